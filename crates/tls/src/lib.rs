//! TLS 1.3 encryption for connections to a supervisor's API.
//!
//! Both ends derive the supervisor's key pair from the federation's key, so each federation has its own. The
//! supervisor presents the bare public key ([RFC 7250](https://www.rfc-editor.org/rfc/rfc7250)), and the
//! caller accepts only that key. Without certificates, there are no authorities, names or expiry dates, so
//! clocks do not matter.
//!
//! A caller that reaches anything but its federation's supervisor fails before it sends its token.

#[cfg(feature = "server")]
mod server;

use std::fmt;
use std::io;
use std::sync::Arc;

use faultline_api::supervision::{self, InvalidKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_eddsa_type};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::sign::SigningKey;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[cfg(feature = "server")]
pub use server::{Acceptor, Connection};

/// The bytes that precede the 32 bytes of a private Ed25519 key in PKCS #8 (RFC 8410, section 10.3).
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// Server name of every supervisor. Callers identify a supervisor by its key, not by this name.
const NAME: &str = "supervisor";

/// Connects to the supervisor of one federation.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    /// Creates a connector for the federation with this key.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid.
    #[expect(clippy::missing_panics_doc, reason = "no expectation depends on the caller")]
    pub fn new(key: &str) -> Result<Connector, InvalidKey> {
        let provider = Arc::new(default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let signing = signing_key(key)?;
        let expected = signing.public_key().expect("an Ed25519 key has a public part").into_owned();
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OnlyKey { expected, algorithms }))
            .with_no_client_auth();
        Ok(Connector(Arc::new(config)))
    }

    /// Encrypts a connection to the supervisor.
    ///
    /// # Errors
    ///
    /// Fails if the connection fails, or if the other end is not the federation's supervisor.
    #[expect(clippy::missing_panics_doc, reason = "no expectation depends on the caller")]
    pub async fn connect<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(NAME).expect("the name is valid");
        TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}

/// Accepts a single public key.
#[derive(Debug)]
struct OnlyKey {
    expected: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for OnlyKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // With raw public keys, the certificate is the key itself.
        match end_entity.as_ref() == self.expected.as_ref() {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Derives the supervisor's key pair from the federation's key.
fn signing_key(key: &str) -> Result<Arc<dyn SigningKey>, InvalidKey> {
    let secret = supervision::tls_key(key)?;
    let document: Vec<u8> = PKCS8.into_iter().chain(secret).collect();
    Ok(any_eddsa_type(&PrivatePkcs8KeyDer::from(document)).expect("any 32 bytes are an Ed25519 key"))
}

//! The supervisor's side: connections that use TLS if the caller requests it.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use faultline_api::supervision::InvalidKey;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of every TLS connection: the type of a handshake record. No HTTP request begins with this byte.
const HANDSHAKE: u8 = 0x16;
/// Time within which a caller must send its first byte and complete the handshake.
const PATIENCE: Duration = Duration::from_secs(5);

/// Accepts TLS and plain connections on the same port.
#[derive(Clone)]
pub struct Acceptor {
    tls: TlsAcceptor,
    idle: Duration,
}

/// A connection, encrypted or not. Reads and writes fail with [`io::ErrorKind::TimedOut`] once nothing has been read or
/// written for the [idle time](Acceptor::new).
pub struct Connection {
    stream: Stream,
    idle: Duration,
    /// Expires once the connection has been idle for too long.
    timer: Pin<Box<Sleep>>,
}

enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted() { "Encrypted" } else { "Plain" })
    }
}

impl Acceptor {
    /// Creates an acceptor for the supervisor of the federation with this key. Its connections fail after `idle`
    /// without progress in either direction.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid.
    #[expect(clippy::missing_panics_doc, reason = "no expectation depends on the caller")]
    pub fn new(key: &str, idle: Duration) -> Result<Acceptor, InvalidKey> {
        let key = crate::signing_key(key)?;
        let public = key.public_key().expect("an Ed25519 key has a public part").as_ref().to_vec();
        let certified = CertifiedKey::new(vec![CertificateDer::from(public)], key);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
        Ok(Acceptor { tls: TlsAcceptor::from(Arc::new(config)), idle })
    }

    /// Waits for the first byte from a caller, and encrypts the connection if that byte begins a TLS handshake.
    ///
    /// # Errors
    ///
    /// Fails if the connection or the handshake fails, or if the caller takes too long.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Connection> {
        let introduced = async {
            let mut first = [0];
            stream.peek(&mut first).await?;
            if first[0] == HANDSHAKE {
                Ok(Stream::Encrypted(Box::new(self.tls.accept(stream).await?)))
            } else {
                Ok::<_, io::Error>(Stream::Plain(stream))
            }
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake was not completed in time");
        let stream = timeout(PATIENCE, introduced).await.map_err(late)??;
        Ok(Connection { stream, idle: self.idle, timer: Box::pin(sleep(self.idle)) })
    }
}

impl Connection {
    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Encrypted(_))
    }

    /// Returns `progress` if it is ready, and restarts the timer. Otherwise, fails once the timer has
    /// expired.
    fn unless_idle<T>(&mut self, progress: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.idle);
            return progress;
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let progress = match &mut this.stream {
            Stream::Plain(it) => Pin::new(it).poll_read(cx, buffer),
            Stream::Encrypted(it) => Pin::new(it).poll_read(cx, buffer),
        };
        this.unless_idle(progress, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let progress = match &mut this.stream {
            Stream::Plain(it) => Pin::new(it).poll_write(cx, bytes),
            Stream::Encrypted(it) => Pin::new(it).poll_write(cx, bytes),
        };
        this.unless_idle(progress, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let progress = match &mut this.stream {
            Stream::Plain(it) => Pin::new(it).poll_write_vectored(cx, parts),
            Stream::Encrypted(it) => Pin::new(it).poll_write_vectored(cx, parts),
        };
        this.unless_idle(progress, cx)
    }

    /// Without vectored writes, hyper would copy a page that callers share for each of them.
    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(it) => it.is_write_vectored(),
            Stream::Encrypted(it) => it.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(it) => Pin::new(it).poll_flush(cx),
            Stream::Encrypted(it) => Pin::new(it).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(it) => Pin::new(it).poll_shutdown(cx),
            Stream::Encrypted(it) => Pin::new(it).poll_shutdown(cx),
        }
    }
}

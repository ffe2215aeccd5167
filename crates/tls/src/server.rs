//! The supervisor's side: a listener that encrypts the connections of callers that request it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use faultline_api::supervision::InvalidKey;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

/// First byte of every TLS connection: a handshake record. No HTTP request begins with it.
const HANDSHAKE: u8 = 0x16;
/// Time within which a caller must send its first byte and complete the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Capacity of the queue of connections that are ready for the server. Further connections wait for room in it.
const WAITING: usize = 64;

/// A listener for TLS and plain connections on the same port. Handshakes take place in parallel, so that a
/// slow caller delays no other.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(Connection, Peer)>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the caller.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
}

/// A connection, encrypted or not.
pub enum Connection {
    /// A connection in plain text.
    Plain(TcpStream),
    /// A connection encrypted with TLS.
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Connection::Plain(_) => "Plain",
            Connection::Encrypted(_) => "Encrypted",
        })
    }
}

impl TlsListener {
    /// Accepts connections from `listener`, as the supervisor of the federation with this key.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid.
    ///
    /// # Panics
    ///
    /// Panics if the listener has no address, or if called outside a Tokio runtime.
    pub fn new(listener: TcpListener, key: &str) -> Result<TlsListener, InvalidKey> {
        let key = crate::signing_key(key)?;
        let public = key.public_key().expect("an Ed25519 key has a public part").as_ref().to_vec();
        let certified = CertifiedKey::new(vec![CertificateDer::from(public)], key);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = listener.local_addr().expect("a listener has an address");
        let (done, ready) = mpsc::channel(WAITING);
        tokio::spawn(accept(listener, acceptor, done));
        Ok(TlsListener { address, ready })
    }
}

async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, done: mpsc::Sender<(Connection, Peer)>) {
    while !done.is_closed() {
        let (stream, address) = Listener::accept(&mut listener).await;
        let (acceptor, done) = (acceptor.clone(), done.clone());
        tokio::spawn(async move {
            match timeout(PATIENCE, introduced(stream, acceptor)).await {
                Ok(Ok(connection)) => {
                    let is_encrypted = matches!(connection, Connection::Encrypted(_));
                    // The receiver is closed only once the server has ended.
                    let _ = done.send((connection, Peer { address, is_encrypted })).await;
                }
                Ok(Err(error)) => debug!(%address, %error, "the handshake with a caller failed"),
                Err(_) => debug!(%address, "a caller did not complete the handshake in time"),
            }
        });
    }
}

/// Waits for the first byte of a caller, and encrypts the connection if that byte begins a TLS handshake.
async fn introduced(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<Connection> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0] == HANDSHAKE {
        Ok(Connection::Encrypted(Box::new(acceptor.accept(stream).await?)))
    } else {
        Ok(Connection::Plain(stream))
    }
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = Peer;

    async fn accept(&mut self) -> (Connection, Peer) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The runtime is about to end.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer { address: self.address, is_encrypted: false })
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Peer {
        *stream.remote_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(it) => Pin::new(it).poll_read(cx, buffer),
            Connection::Encrypted(it) => Pin::new(it).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Connection::Plain(it) => Pin::new(it).poll_write(cx, bytes),
            Connection::Encrypted(it) => Pin::new(it).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(it) => Pin::new(it).poll_flush(cx),
            Connection::Encrypted(it) => Pin::new(it).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Connection::Plain(it) => Pin::new(it).poll_shutdown(cx),
            Connection::Encrypted(it) => Pin::new(it).poll_shutdown(cx),
        }
    }
}

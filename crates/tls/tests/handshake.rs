//! Tests that a caller reaches only the supervisor of its federation, and that no secrets cross the network
//! unencrypted.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use faultline_tls::{Acceptor, Connection, Connector};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER: &str = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const SECRET: &[u8] = b"authorization: Bearer secret";

/// Time after which an idle connection fails.
const IDLE: Duration = Duration::from_secs(90);

/// A listener of the federation with a key.
struct Listener(TcpListener, Acceptor);

impl Listener {
    async fn new(key: &str) -> (Listener, SocketAddr) {
        Listener::with(key, IDLE).await
    }

    async fn with(key: &str, idle: Duration) -> (Listener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Listener(listener, Acceptor::new(key, idle).unwrap()), address)
    }

    async fn accept(&self) -> io::Result<Connection> {
        self.1.accept(self.0.accept().await.unwrap().0).await
    }
}

#[tokio::test]
async fn ends_with_the_same_key_can_communicate() {
    let (listener, address) = Listener::new(KEY).await;
    let caller = tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = Connector::new(KEY).unwrap().connect(stream).await.unwrap();
        stream.write_all(SECRET).await.unwrap();
        stream.flush().await.unwrap();
        stream
    });
    let mut connection = listener.accept().await.unwrap();
    assert!(connection.is_encrypted());
    let mut heard = vec![0; SECRET.len()];
    connection.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, SECRET);
    drop(caller.await.unwrap());
}

/// Otherwise, hyper copies a page that callers share for each of them.
#[tokio::test]
async fn a_connection_accepts_several_buffers_at_once() {
    for is_encrypted in [false, true] {
        let (listener, address) = Listener::new(KEY).await;
        let caller = tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut heard = Vec::new();
            if is_encrypted {
                let mut stream = Connector::new(KEY).unwrap().connect(stream).await.unwrap();
                stream.read_to_end(&mut heard).await.unwrap();
            } else {
                stream.write_all(b"GET").await.unwrap();
                stream.read_to_end(&mut heard).await.unwrap();
            }
            heard
        });
        let mut connection = listener.accept().await.unwrap();
        assert_eq!(connection.is_encrypted(), is_encrypted);
        assert!(connection.is_write_vectored());
        let count =
            connection.write_vectored(&[IoSlice::new(b"head "), IoSlice::new(b"body")]).await.unwrap();
        connection.shutdown().await.unwrap();
        let heard = caller.await.unwrap();
        assert_eq!((heard.as_slice(), count), (b"head body".as_slice(), 9));
    }
}

#[tokio::test]
async fn a_caller_with_another_key_sends_nothing() {
    let (listener, address) = Listener::new(OTHER).await;
    let accepting = tokio::spawn(async move { listener.accept().await });
    let stream = TcpStream::connect(address).await.unwrap();
    let error = Connector::new(KEY).unwrap().connect(stream).await.unwrap_err();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    assert!(accepting.await.unwrap().is_err());
}

#[tokio::test]
async fn the_network_sees_neither_the_token_nor_the_key() {
    let (listener, address) = Listener::new(KEY).await;
    // A machine in the middle forwards everything, and records the bytes that the caller sends.
    let middle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = middle.local_addr().unwrap();
    let (tell, seen) = tokio::sync::oneshot::channel();
    let tap = tokio::spawn(async move {
        let (mut near, _) = middle.accept().await.unwrap();
        let mut far = TcpStream::connect(address).await.unwrap();
        let (mut near_read, mut near_write) = near.split();
        let (mut far_read, mut far_write) = far.split();
        let there = async {
            let (mut all, mut some) = (Vec::new(), [0; 4096]);
            loop {
                let count = near_read.read(&mut some).await.unwrap();
                if count == 0 {
                    break;
                }
                all.extend_from_slice(&some[..count]);
                far_write.write_all(&some[..count]).await.unwrap();
            }
            far_write.shutdown().await.unwrap();
            tell.send(all).unwrap();
        };
        // The caller may have disconnected.
        let back = async { drop(tokio::io::copy(&mut far_read, &mut near_write).await) };
        tokio::join!(there, back);
    });
    let caller = tokio::spawn(async move {
        let stream = TcpStream::connect(through).await.unwrap();
        let mut stream = Connector::new(KEY).unwrap().connect(stream).await.unwrap();
        stream.write_all(SECRET).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut connection = listener.accept().await.unwrap();
    let mut heard = Vec::new();
    connection.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, SECRET);
    caller.await.unwrap();
    drop(connection);
    tap.await.unwrap();
    let seen = seen.await.unwrap();
    assert!(seen.len() > SECRET.len(), "recorded only {} bytes", seen.len());
    for secret in [b"Bearer".as_slice(), b"secret", KEY.as_bytes()] {
        assert!(!seen.windows(secret.len()).any(|it| it == secret));
    }
}

#[tokio::test]
async fn plain_callers_are_identified() {
    let (listener, address) = Listener::new(KEY).await;
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    assert!(!listener.accept().await.unwrap().is_encrypted());
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (listener, address) = Listener::with(KEY, Duration::from_millis(50)).await;
    let mut caller = TcpStream::connect(address).await.unwrap();
    caller.write_all(b"GET").await.unwrap();
    let mut connection = listener.accept().await.unwrap();
    let mut heard = [0; 3];
    connection.read_exact(&mut heard).await.unwrap();
    let error = connection.read(&mut heard).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

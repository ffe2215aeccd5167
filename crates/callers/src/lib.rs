//! Callers that have not authenticated: how many connections they may keep open, and for how long.
//!
//! Any program that reaches a port may connect to it, and metrics can be read without a key. These connections must
//! neither exhaust the memory of the called program nor keep callers that have a key from connecting.
//!
//! A new connection is always accepted. If too many are then open, the address that has the most loses its oldest one.
//! A caller therefore keeps its connection while any other address has more, and only as many hostile addresses as
//! there may be connections can lock it out. A caller that shares its address with hostile programs keeps its connection
//! until they have opened that many. Connections of authenticated callers neither count nor are closed.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::debug;

/// Time within which a caller must authenticate, or request a page and receive it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time before the next attempt to accept a connection, after a failure.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// Size limit of the head of an HTTP request, in bytes. Without it, hyper would buffer up to 400 KiB per connection.
const HEAD: usize = 16 << 10;
/// Number of connections to a port that callers without a key may keep open, at least.
const STRANGERS: usize = 64;

/// A page that callers without a key may request, and that takes time and memory to write. All of them receive the same
/// copy until it is too old.
#[derive(Debug)]
pub struct SharedPage {
    /// Time after which the page is written anew.
    fresh: Duration,
    /// The last page, and the time at which it was written.
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl SharedPage {
    /// Creates a page that is written anew after this time.
    pub fn new(fresh: Duration) -> SharedPage {
        SharedPage { fresh, last: Mutex::default() }
    }

    /// Returns the last page, or the one that `write` returns.
    pub fn text(&self, write: impl FnOnce() -> String) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.fresh) {
            return text.clone();
        }
        last.insert((Instant::now(), write().into())).1.clone()
    }
}

/// The open connections to one port whose callers have not authenticated.
#[derive(Clone, Debug)]
pub struct UntrustedConnections {
    /// Maximum number of these connections.
    most: usize,
    patience: Duration,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// Number of the next connection.
    next: u64,
    by_number: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    close: oneshot::Sender<()>,
}

/// A connection whose caller has not authenticated. Counts until it is dropped or trusted.
#[derive(Debug)]
pub struct UntrustedConnection {
    /// Address of the caller.
    pub address: SocketAddr,
    number: u64,
    connections: UntrustedConnections,
    closed: oneshot::Receiver<()>,
}

/// Marks a connection as that of an authenticated caller.
#[derive(Clone, Debug)]
pub struct Trust {
    number: u64,
    connections: UntrustedConnections,
}

impl UntrustedConnections {
    /// Allows `most` of these connections.
    pub fn new(most: usize) -> UntrustedConnections {
        UntrustedConnections { most, patience: PATIENCE, open: Arc::default() }
    }

    /// Allows enough of these connections for `peers` callers that have a key and connect at the same time, in addition
    /// to those of callers without a key.
    pub fn besides(peers: usize) -> UntrustedConnections {
        UntrustedConnections::new(peers + STRANGERS)
    }

    /// Accepts the next connection.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, UntrustedConnection) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => return (stream, self.admit(address)),
                Err(error) => {
                    // No file descriptor is left, or the caller has already disconnected.
                    debug!(%error, "cannot accept a connection");
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Counts a connection. If there are too many, closes the oldest one of the address that has the most.
    fn admit(&self, address: SocketAddr) -> UntrustedConnection {
        let (close, closed) = oneshot::channel();
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Open { address: address.ip(), close });
        if open.by_number.len() > self.most {
            open.close_one();
        }
        drop(open);
        UntrustedConnection { address, number, connections: self.clone(), closed }
    }

    fn remove(&self, number: u64) {
        self.lock().by_number.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Closes the oldest connection of the address that has the most.
    fn close_one(&mut self) {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for it in self.by_number.values() {
            *counts.entry(it.address).or_default() += 1;
        }
        let most = counts.values().max();
        let oldest = self.by_number.iter().find(|(_, it)| counts.get(&it.address) == most);
        let oldest = oldest.map(|(&number, _)| number);
        if let Some(Open { close, .. }) = oldest.and_then(|number| self.by_number.remove(&number)) {
            // The connection may just have ended.
            let _ = close.send(());
        }
    }
}

impl UntrustedConnection {
    /// Returns a handle with which to trust this connection.
    pub fn trust(&self) -> Trust {
        Trust { number: self.number, connections: self.connections.clone() }
    }

    /// Talks to the caller, and then no longer counts the connection. Returns `None` if the connection was closed to
    /// make room for others, which cancels the conversation.
    pub async fn unless_closed<T>(mut self, conversation: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // A trusted connection is never closed: its sender has been dropped, which disables this branch.
            Ok(()) = &mut self.closed => {
                debug!(address = %self.address, "closed a connection to make room for others");
                None
            }
            said = conversation => Some(said),
        }
    }

    /// Talks to the caller until it has authenticated, or until its request for a page has been answered. Returns an
    /// error if this takes too long, and `None` if the connection was closed to make room for others.
    pub async fn met<T>(self, conversation: impl Future<Output = io::Result<T>>) -> Option<io::Result<T>> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the caller did not identify itself in time");
        let in_time = timeout(self.connections.patience, conversation);
        self.unless_closed(async { in_time.await.unwrap_or_else(|_| Err(late())) }).await
    }
}

impl Drop for UntrustedConnection {
    fn drop(&mut self) {
        self.connections.remove(self.number);
    }
}

impl Trust {
    /// Trusts the connection: it no longer counts, and is not closed to make room for others.
    pub fn grant(&self) {
        self.connections.remove(self.number);
    }
}

/// Answers one HTTP request, and closes the connection.
pub async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD).keep_alive(false);
    let answered = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).await;
    if let Err(error) = answered {
        debug!(%error, "a request was not answered");
    }
}

/// Answers HTTP requests at a port without authenticated callers, until the future is dropped.
pub async fn answer_all(listener: TcpListener, connections: UntrustedConnections, app: Router) {
    loop {
        let (stream, connection) = connections.accept(&listener).await;
        let app = app.clone();
        tokio::spawn(connection.met(async {
            answer(stream, app).await;
            Ok(())
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    /// Connects from the address 127.0.0.`number`.
    async fn connect_from(number: u8, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), 0))).unwrap();
        socket.connect(to).await.unwrap()
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Returns which of the connections have been closed to make room for others.
    fn closed(connections: &mut [UntrustedConnection]) -> Vec<bool> {
        connections.iter_mut().map(|it| it.closed.try_recv() == Ok(())).collect()
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 4711))
    }

    #[test]
    fn the_address_with_the_most_connections_loses_its_oldest() {
        let all = UntrustedConnections::new(4);
        let mut open: Vec<_> = [1, 2, 2, 2].map(|it| all.admit(address(it))).into();
        assert_eq!(closed(&mut open), [false; 4]);
        open.push(all.admit(address(3)));
        assert_eq!(closed(&mut open), [false, true, false, false, false]);
        open.push(all.admit(address(2)));
        assert_eq!(closed(&mut open), [false, false, true, false, false, false], "others lose nothing");
    }

    #[test]
    fn a_flood_from_many_addresses_does_not_close_the_only_connection_of_another() {
        let all = UntrustedConnections::new(512);
        let mut one = [all.admit(address(0))];
        let flood: Vec<_> = (0..100).flat_map(|_| (1..=16).map(|it| all.admit(address(it)))).collect();
        assert_eq!(closed(&mut one), [false]);
        assert_eq!(all.lock().by_number.len(), 512);
        drop(flood);
        assert_eq!(all.lock().by_number.len(), 1);
    }

    #[tokio::test]
    async fn a_trusted_connection_does_not_count_and_is_not_closed() {
        let all = UntrustedConnections::new(1);
        let (trusted, said) = (all.admit(address(1)), oneshot::channel());
        let trust = trusted.trust();
        let conversation = tokio::spawn(trusted.unless_closed(said.1));
        tokio::task::yield_now().await;
        trust.grant();
        let mut others = [all.admit(address(2)), all.admit(address(3))];
        assert_eq!(closed(&mut others), [true, false]);
        said.0.send(7).unwrap();
        assert_eq!(conversation.await.unwrap(), Some(Ok(7)));
        assert_eq!(all.lock().by_number.len(), 1, "the end of the trusted connection removes no other");
    }

    #[tokio::test]
    async fn a_caller_has_limited_time_and_one_request_and_a_large_head_is_refused() {
        let (listener, address) = listener().await;
        let all =
            UntrustedConnections { patience: Duration::from_millis(300), ..UntrustedConnections::new(9) };
        let app = Router::new().route("/metrics", get(async || "page"));
        tokio::spawn(answer_all(listener, all, app));
        let said = async |request: &[u8]| {
            let mut stream = connect_from(2, address).await;
            // The program closes the connection without reading the rest of a large head.
            let _ = stream.write_all(request).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        };
        assert_eq!(said(b"").await, "", "a silent caller");
        assert_eq!(said(b"GET /metrics HTTP/1.1\r\nx: ").await, "", "an unfinished request");
        let twice = b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n";
        assert_eq!(said(twice).await.matches("page").count(), 1);
        let large = format!("GET /metrics HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
        assert!(!said(large.as_bytes()).await.contains("page"));
    }
}

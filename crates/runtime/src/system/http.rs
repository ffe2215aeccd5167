//! Requests of probes. Only the status of the answer counts, whatever follows it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use faultline_core::Ending;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The port of an address without one.
const PORT: u16 = 80;
/// The maximum number of header fields in an answer.
const MOST_FIELDS: usize = 1_000;

/// Requests a page, and returns the status of the answer. Informational answers, such as `103 Early Hints`, are skipped.
pub(super) async fn request(url: &str) -> io::Result<Ending> {
    let invalid = |error: http::Error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let uri: Uri = url.parse().map_err(|it: http::uri::InvalidUri| invalid(it.into()))?;
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(PORT));
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    let request = Request::get(path)
        .header(HOST, uri.authority().map_or("", |it| it.as_str()))
        .header(USER_AGENT, "faultline")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(invalid)?;
    let stream = connect(&format!("{host}:{port}")).await?;
    let mut lenient = http1::Builder::new();
    lenient
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true)
        .max_headers(MOST_FIELDS);
    let (mut sender, connection) =
        lenient.handshake(TokioIo::new(RequestFirst::on(stream))).await.map_err(explained)?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let connection = std::pin::pin!(connection);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer.map_err(explained)?,
        // The answer has arrived before, if there is one.
        ended = connection => answer.await.map_err(|error| explained(ended.err().unwrap_or(error)))?,
    };
    Ok(Ending::Http(answer.status().as_u16()))
}

/// Opens a connection. The server may have answered and closed it already, so a reset is no error here.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        match connect_to(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
        _ => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(stream),
    }
}

/// A connection from which nothing is read until the request has been written. Some servers answer as soon as a connection
/// opens, and `hyper` refuses answers for which there is no request. Some of them then close it without reading the request,
/// so if that cannot be written, there may still be an answer.
struct RequestFirst {
    stream: TcpStream,
    is_written: bool,
    /// Why the request could not be written.
    failed: Option<io::Error>,
    /// The task that waits for an answer.
    reader: Option<Waker>,
}

impl RequestFirst {
    fn on(stream: TcpStream) -> RequestFirst {
        RequestFirst { stream, is_written: false, failed: None, reader: None }
    }
}

impl AsyncRead for RequestFirst {
    fn poll_read(
        mut self: Pin<&mut Self>,
        on: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_written {
            self.reader = Some(on.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(on, buffer));
        let has_ended = read.is_ok() && buffer.filled().len() == before;
        Poll::Ready(self.failed.take_if(|_| has_ended).map_or(read, Err))
    }
}

impl AsyncWrite for RequestFirst {
    fn poll_write(mut self: Pin<&mut Self>, on: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(on, bytes));
        self.is_written = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(written.unwrap_or_else(|error| {
            self.failed = Some(error);
            bytes.len()
        })))
    }

    fn poll_flush(mut self: Pin<&mut Self>, on: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(on)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, on: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(on)
    }
}

/// Returns an error with all its causes.
fn explained(error: hyper::Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        text += &format!(": {it}");
        cause = it.source();
    }
    io::Error::other(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::transport::tests::run;

    /// Answers one request with these bytes, then keeps the connection open or resets it.
    async fn answer(bytes: &'static [u8], resets: bool) -> io::Result<Ending> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            if resets {
                stream.write_all(bytes).await.unwrap();
                // The request has arrived. Because it was not read, the kernel sends a reset.
                stream.readable().await.unwrap();
                return;
            }
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(bytes).await.unwrap();
            std::future::pending::<()>().await;
        });
        let url = format!("http://{address}/health?a=b");
        timeout(Duration::from_secs(20), request(&url)).await.expect("the status has arrived")
    }

    #[test]
    fn the_status_counts_whatever_follows() {
        run(async {
            for (bytes, status) in [
                (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nok\n"[..], 200),
                (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", 200),
                (b"HTTP/1.1 204 No Content\r\n\r\n", 204),
                (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200),
                (b"HTTP/1.0 503 Busy\r\n\r\n", 503),
                (b"HTTP/1.1 302 Found\r\nLocation : /a\r\nbad header\r\n\r\n", 302),
                (b"HTTP/1.1 200 OK\nContent-Length: 9\n\nok", 200),
            ] {
                assert_eq!(answer(bytes, false).await.unwrap(), Ending::Http(status));
            }
            assert_eq!(answer(b"HTTP/1.1 200 OK\r\n\r\nok", true).await.unwrap(), Ending::Http(200));
        });
    }

    /// Sends bytes, and resets the connection before anything is written to it.
    async fn reset(bytes: &'static [u8]) -> RequestFirst {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        peer.write_all(bytes).await.unwrap();
        peer.set_zero_linger().unwrap();
        drop(peer);
        stream.ready(tokio::io::Interest::ERROR).await.unwrap();
        RequestFirst::on(stream)
    }

    #[test]
    fn an_answer_is_read_although_the_request_cannot_be_written() {
        run(async {
            let mut stream = reset(b"HTTP/1.1 200 OK\r\n\r\n").await;
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut text = [0; 19];
            stream.read_exact(&mut text).await.unwrap();
            assert!(text.starts_with(b"HTTP/1.1 200 OK"));
            let mut stream = reset(b"").await;
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let error = stream.read(&mut text).await.unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::ConnectionReset || error.kind() == io::ErrorKind::BrokenPipe,
                "{error}"
            );
        });
    }

    #[test]
    fn what_is_no_answer_is_a_failure_with_its_reason() {
        run(async {
            let error = answer(b"SSH-2.0-OpenSSH_9.2\r\n", false).await.unwrap_err().to_string();
            assert!(error.contains("invalid HTTP"), "{error}");
            let error = request("http://127.0.0.1:1/").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            let error = request("http://127.0.0.1:1/a b").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        });
    }
}

//! A client for a supervisor's API. Each request uses a separate connection, which is encrypted unless it stays on this
//! machine. Callers repeat failed requests later.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use faultline_api::supervision::{self, Amended, InvalidKey, PLACES, Places, RunStatus, SPEC, STATUS};
use faultline_tls::Connector;
use futures::FutureExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

const DEADLINE: Duration = Duration::from_secs(2);
/// Size limit of a response that is read as a whole, in bytes: larger than the status of the largest federation.
const MAX_ANSWER: usize = 16 << 20;
/// Size limit of a status without its links, in bytes.
const MAX_STATUS: usize = 1 << 20;
/// Size limit of one link in a status, in bytes.
const MAX_LINK: usize = 256;
/// Size limit of a refusal, in bytes. The rest is not read.
const MAX_REFUSAL: usize = 4 << 10;
/// Size limit of the text that an error quotes from a response, in bytes.
const MAX_QUOTE: usize = 1 << 10;
/// Size limit of the head of a response, in bytes, and of the pieces in which its body is read.
const MAX_HEAD: usize = 64 << 10;

/// A supervisor at a known address.
#[derive(Clone, Debug)]
pub struct Supervisor {
    address: SocketAddr,
    token: String,
    tls: Connector,
}

/// The reason why a request to a supervisor failed.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// The supervisor cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection could not be encrypted, or the other end is not the federation's supervisor.
    #[error("cannot encrypt the connection: {0}")]
    Tls(std::io::Error),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Http(#[from] hyper::Error),
    /// The supervisor did not respond in time.
    #[error("no response within {DEADLINE:?}")]
    Timeout,
    /// The response is too long or incomplete.
    #[error("cannot read the response: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The supervisor refused the request. The text is shortened, and control characters in it are escaped.
    #[error("the supervisor answered {0}: {1}")]
    Refused(StatusCode, String),
    /// The response has an unexpected form. The text is shortened, because it may quote the response.
    #[error("cannot parse the response: {0}")]
    Answer(String),
}

impl From<serde_json::Error> for SupervisorError {
    fn from(error: serde_json::Error) -> SupervisorError {
        SupervisorError::Answer(quoted(&error.to_string()))
    }
}

/// Returns the beginning of a text that may come from a foreign program, without control characters.
fn quoted(text: &str) -> String {
    let mut quote = String::new();
    for it in text.chars() {
        if quote.len() >= MAX_QUOTE {
            quote.push('…');
            break;
        }
        match it {
            '"' | '\'' | '\\' => quote.push(it),
            _ => quote.extend(it.escape_debug()),
        }
    }
    quote
}

/// Returns the size limit of the status of a federation with this many clusters, in bytes.
pub fn max_status(clusters: usize) -> usize {
    (MAX_STATUS + MAX_LINK * clusters * clusters).min(MAX_ANSWER)
}

impl Supervisor {
    /// Creates a client for the supervisor at this address. `key` is the federation's key.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid.
    pub fn new(address: IpAddr, port: u16, key: &str) -> Result<Supervisor, InvalidKey> {
        Ok(Supervisor {
            address: SocketAddr::new(address, port),
            token: supervision::token(key)?,
            tls: Connector::new(key)?,
        })
    }

    /// Returns the status of the federation, which has this many clusters, with the first events after `event`. The size
    /// of the response is [limited accordingly](max_status), because a foreign program may run in the supervisor's pod,
    /// and a caller may ask many supervisors at the same time.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached, does not respond in time, or refuses the request, or if its response
    /// is too long or not a status.
    pub async fn status(&self, event: u64, clusters: usize) -> Result<RunStatus, SupervisorError> {
        let path = format!("{STATUS}?after={event}");
        let body = self.ask_within(max_status(clusters), Method::GET, &path, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Announces the places of the processes.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached, does not respond in time, or refuses the request.
    pub async fn places(&self, places: &Places) -> Result<(), SupervisorError> {
        self.ask(Method::PUT, PLACES, serde_json::to_vec(places)?.into()).await.map(drop)
    }

    /// Announces changes to the federation.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached, does not respond in time, or refuses the request.
    pub async fn amend(&self, amended: &Amended) -> Result<(), SupervisorError> {
        self.ask(Method::PUT, SPEC, serde_json::to_vec(amended)?.into()).await.map(drop)
    }

    /// Reports that the supervisor's request has been carried out. Succeeds even if the supervisor no longer knows the
    /// request.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached, does not respond in time, or refuses the request.
    pub async fn done(&self, request: u64) -> Result<(), SupervisorError> {
        match self.ask(Method::POST, &supervision::done(request), Bytes::new()).await {
            Ok(_) | Err(SupervisorError::Refused(StatusCode::NOT_FOUND, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, SupervisorError> {
        self.ask_within(MAX_STATUS, method, path, body).await
    }

    /// Sends a request. Accepts a response of at most `longest` bytes.
    async fn ask_within(
        &self,
        longest: usize,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, SupervisorError> {
        let answer = async {
            let stream = TcpStream::connect(self.address).await.map_err(SupervisorError::Connect)?;
            let host = self.address.to_string();
            let question = HttpRequest { host: &host, token: &self.token, method, path, body };
            let answer = match supervision::needs_encryption(self.address.ip()) {
                true => question.ask(self.tls.connect(stream).await.map_err(SupervisorError::Tls)?).await?,
                false => question.ask(stream).await?,
            };
            answer.within(longest).await
        };
        timeout(DEADLINE, answer).await.map_err(|_| SupervisorError::Timeout)?
    }
}

/// A request to a supervisor.
#[derive(Clone, Debug)]
pub struct HttpRequest<'a> {
    /// Host of the supervisor, for the `Host` header of the request.
    pub host: &'a str,
    /// Token that grants access to the API.
    pub token: &'a str,
    /// HTTP method.
    pub method: Method,
    /// Path, with its query.
    pub path: &'a str,
    /// Content of the request.
    pub body: Bytes,
}

/// A response that is being received. Dropping it closes the connection.
pub struct HttpResponse {
    body: Incoming,
    _connection: AbortOnDropHandle<()>,
}

impl HttpRequest<'_> {
    /// Sends the request over an existing connection, and waits for the beginning of the response.
    ///
    /// # Errors
    ///
    /// Fails if the connection fails, or if the supervisor refuses the request.
    ///
    /// # Panics
    ///
    /// Panics if a part of the request is not valid HTTP, which only a bug can cause.
    pub async fn ask<S>(self, stream: S) -> Result<HttpResponse, SupervisorError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) =
            http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await?;
        // The request and the response body report failures of the connection.
        let connection = AbortOnDropHandle::new(tokio::spawn(connection.map(drop)));
        let request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(HOST, self.host)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(self.body))
            .expect("the request is valid HTTP");
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = HttpResponse { body: response.into_body(), _connection: connection };
        if status.is_success() {
            Ok(answer)
        } else {
            let said = answer.beginning(MAX_REFUSAL).await;
            Err(SupervisorError::Refused(status, quoted(&String::from_utf8_lossy(&said))))
        }
    }
}

impl HttpResponse {
    /// Returns the complete response.
    ///
    /// # Errors
    ///
    /// Fails if the response is incomplete or longer than the size limit.
    pub async fn whole(self) -> Result<Bytes, SupervisorError> {
        self.within(MAX_ANSWER).await
    }

    async fn within(self, longest: usize) -> Result<Bytes, SupervisorError> {
        let body = Limited::new(self.body, longest).collect().await;
        Ok(body.map_err(SupervisorError::Body)?.to_bytes())
    }

    /// Returns the first `most` bytes of the response, or as many as arrive.
    async fn beginning(mut self, most: usize) -> Vec<u8> {
        let mut said = Vec::new();
        while said.len() < most
            && let Some(Ok(piece)) = self.piece().await
        {
            said.extend_from_slice(&piece[..piece.len().min(most - said.len())]);
        }
        said
    }

    /// Returns the next piece of the response, or an error if the connection fails; `None` at the end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, SupervisorError>> {
        loop {
            match self.body.frame().await?.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                // Trailers are not used.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    /// Returns the error for a supervisor that gives this answer to a request for its status.
    async fn error_after(status: &str, body: Vec<u8>) -> SupervisorError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 16]).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            // The client may not read all of it.
            let _ = stream.write_all(&body).await;
            std::future::pending::<()>().await;
        });
        let supervisor = Supervisor::new(address.ip(), address.port(), KEY).unwrap();
        supervisor.status(0, 2).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_refusal_is_shortened_whatever_its_length() {
        let error = error_after("500 Internal Server Error", vec![0xff; MAX_ANSWER]).await;
        assert!(matches!(error, SupervisorError::Refused(StatusCode::INTERNAL_SERVER_ERROR, _)), "{error}");
        assert!(error.to_string().len() < 2 * MAX_QUOTE, "{}", error.to_string().len());
    }

    #[tokio::test]
    async fn a_refusal_cannot_forge_lines_of_a_log() {
        let error = error_after("422 Unprocessable Entity", b"no \"x\"\r\n\x1b[2J \xe2\x80\xae".into()).await;
        assert!(error.to_string().ends_with(r#"no "x"\r\n\u{1b}[2J \u{202e}"#), "{error}");
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_parsed_is_not_quoted_as_a_whole() {
        let status = format!(r#"{{"supervisor":"a","phase":"{}"}}"#, "x".repeat(MAX_STATUS / 2));
        let error = error_after("200 OK", status.into_bytes()).await;
        assert!(matches!(error, SupervisorError::Answer(_)), "{error}");
        assert!(error.to_string().len() < 2 * MAX_QUOTE, "{}", error.to_string().len());
    }

    #[tokio::test]
    async fn a_status_that_is_longer_than_that_of_the_federation_could_be_is_rejected() {
        let error = error_after("200 OK", vec![b' '; max_status(2) + 1]).await;
        assert!(matches!(error, SupervisorError::Body(_)), "{error}");
    }
}

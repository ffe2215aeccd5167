//! The client of a supervisor's API. Each request is one connection; whoever asks tries again at the next look.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use faultline_api::supervision::{self, Amended, KeyError, PLACES, Places, SPEC, STATUS, Status};
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
/// Far above what a supervisor has to say.
const MAX_ANSWER: usize = 16 << 20;

/// A supervisor at an address.
#[derive(Clone, Debug)]
pub struct Supervisor {
    address: SocketAddr,
    token: String,
}

/// Why a supervisor could not be asked.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// It cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    /// It did not answer in time.
    #[error("no answer within {DEADLINE:?}")]
    Timeout,
    /// It answers too much, or its answer broke off.
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// It refuses.
    #[error("answered {0}: {1}")]
    Refused(StatusCode, String),
    /// It says something else than expected.
    #[error("the answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
}

impl Supervisor {
    /// The supervisor at this address, whose federation has this key.
    pub fn new(address: IpAddr, port: u16, key: &str) -> Result<Supervisor, KeyError> {
        Ok(Supervisor { address: SocketAddr::new(address, port), token: supervision::token(key)? })
    }

    /// How the federation fares, with the events after `event`.
    pub async fn status(&self, event: u64) -> Result<Status, SupervisorError> {
        let body = self.ask(Method::GET, &format!("{STATUS}?after={event}"), Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Says where the processes are.
    pub async fn places(&self, places: &Places) -> Result<(), SupervisorError> {
        self.ask(Method::PUT, PLACES, serde_json::to_vec(places)?.into()).await.map(drop)
    }

    /// Says what the federation is to be like now.
    pub async fn amend(&self, amended: &Amended) -> Result<(), SupervisorError> {
        self.ask(Method::PUT, SPEC, serde_json::to_vec(amended)?.into()).await.map(drop)
    }

    /// Says that a request is done. One that the supervisor no longer knows is as good.
    pub async fn done(&self, request: u64) -> Result<(), SupervisorError> {
        match self.ask(Method::POST, &supervision::done(request), Bytes::new()).await {
            Ok(_) | Err(SupervisorError::Refused(StatusCode::NOT_FOUND, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, SupervisorError> {
        let answer = async {
            let stream = TcpStream::connect(self.address).await.map_err(SupervisorError::Connect)?;
            let host = self.address.to_string();
            Question { host: &host, token: &self.token, method, path, body }.ask(stream).await?.whole().await
        };
        timeout(DEADLINE, answer).await.map_err(|_| SupervisorError::Timeout)?
    }
}

/// What is asked of a supervisor.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What the supervisor is called.
    pub host: &'a str,
    /// What opens the API.
    pub token: &'a str,
    /// What is to be done.
    pub method: Method,
    /// With what.
    pub path: &'a str,
    /// What is said.
    pub body: Bytes,
}

/// An answer that is on its way. The connection ends with it.
pub struct Answer {
    body: Incoming,
    _connection: AbortOnDropHandle<()>,
}

impl Question<'_> {
    /// Asks over a connection that has been made already. An answer that is a refusal is an error.
    pub async fn ask<S>(self, stream: S) -> Result<Answer, SupervisorError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its failures are those of the request and of the body.
        let connection = AbortOnDropHandle::new(tokio::spawn(connection.map(drop)));
        let request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(HOST, self.host)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(self.body))
            .expect("its parts are valid");
        let response = sender.send_request(request).await?;
        let status = response.status();
        let answer = Answer { body: response.into_body(), _connection: connection };
        if status.is_success() {
            Ok(answer)
        } else {
            let said = answer.whole().await?;
            Err(SupervisorError::Refused(status, String::from_utf8_lossy(&said).into_owned()))
        }
    }
}

impl Answer {
    /// All of it, if it is not too much.
    pub async fn whole(self) -> Result<Bytes, SupervisorError> {
        let body = Limited::new(self.body, MAX_ANSWER).collect().await;
        Ok(body.map_err(SupervisorError::Body)?.to_bytes())
    }

    /// The next piece; `None` at its end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, SupervisorError>> {
        loop {
            match self.body.frame().await?.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                // Trailers say nothing here.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

//! The supervisor's HTTP API, on its own thread. `faultline_api::supervision` defines the messages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path as Segment, RawQuery, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use faultline_api::Names;
use faultline_api::supervision::{
    self, Amended, BUNDLE, FACTS, FACTS_PER_ANSWER, FactsHead, HeldFacts, PLACES, PieceHead, Places, Refusal,
    SPEC, STATUS,
};
use faultline_callers::{SharedPage, Trust, UntrustedConnections};
use faultline_core::ProcessId;
use faultline_runtime::metrics::Sum;
use faultline_runtime::remote::{AgentPlace, PlaceRegistry};
use faultline_tls::Acceptor;
use faultline_trace::{Bundle, BundleError};
use futures::future::ready;
use futures::{StreamExt, stream};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio_util::io::{ReaderStream, SyncIoBridge};
use tracing::{debug, warn};

use crate::amend::Amender;
use crate::run_state::RunState;

/// Time after which a connection that makes no progress in either direction is closed.
const IDLE: Duration = Duration::from_secs(90);
/// Maximum number of open connections without a valid token.
const UNTRUSTED: usize = 512;
/// Time for which a page with metrics is sent again. Callers without a token can request it.
pub(crate) const FRESH: Duration = Duration::from_millis(500);
/// Maximum number of clients that read facts at the same time.
pub(crate) const FACTS_READERS: usize = 4;
/// Size in bytes of the buffer between packing and sending a record.
const PIPE: usize = 256 << 10;

/// State that the handlers of the API share.
pub(crate) struct ApiState {
    /// The federation's key, from which both ends derive the keys for encrypted connections.
    pub(crate) key: String,
    /// Token that grants access.
    pub(crate) token: String,
    /// Token that grants access to the status and the record only.
    pub(crate) reader_token: String,
    pub(crate) names: Names,
    pub(crate) place_registry: PlaceRegistry,
    pub(crate) run_state: RunState,
    pub(crate) amender: Amender,
    pub(crate) sum: Sum,
    /// The page with metrics.
    pub(crate) page: SharedPage,
    /// Directory of the record.
    pub(crate) dir: PathBuf,
    /// Limits how many clients read facts at the same time.
    pub(crate) facts_readers: Arc<Semaphore>,
}

/// The caller of a request.
#[derive(Clone)]
struct Caller {
    address: IpAddr,
    is_encrypted: bool,
    /// Trusts the connection of the request.
    trust: Trust,
}

/// Starts a thread that serves the API at `address` until the program exits. Returns the actual address.
pub(crate) fn serve(address: SocketAddr, api: ApiState) -> io::Result<SocketAddr> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind(address))?;
    let address = listener.local_addr()?;
    let acceptor = Acceptor::new(&api.key, IDLE).map_err(io::Error::other)?;
    let app = router(Arc::new(api));
    thread::Builder::new()
        .name("api".into())
        .spawn(move || runtime.block_on(listen(listener, acceptor, app)))?;
    Ok(address)
}

/// Accepts connections, and answers one request on each. Handshakes take place in parallel, so a slow caller does not
/// delay the others.
async fn listen(listener: TcpListener, acceptor: Acceptor, app: Router) {
    let connections = UntrustedConnections::new(UNTRUSTED);
    loop {
        let (stream, connection) = connections.accept(&listener).await;
        let (address, trust) = (connection.address, connection.trust());
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(connection.unless_closed(async move {
            match acceptor.accept(stream).await {
                Ok(stream) => {
                    let is_encrypted = stream.is_encrypted();
                    let caller = Caller { address: address.ip(), is_encrypted, trust };
                    faultline_callers::answer(stream, app.layer(Extension(caller))).await;
                }
                Err(error) => debug!(%address, %error, "the handshake with a caller failed"),
            }
        }));
    }
}

fn router(api: Arc<ApiState>) -> Router {
    Router::new()
        .route(PLACES, put(places))
        .route(SPEC, put(spec))
        .route(STATUS, get(status))
        .route("/v1/requests/{id}/done", post(done))
        .route(BUNDLE, get(bundle))
        .route(FACTS, post(facts))
        .route_layer(middleware::from_fn_with_state(api.clone(), guard))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(api)
}

/// Passes on requests that contain a token that allows them. A request from another machine must be encrypted. A token
/// that was sent in plain text is rejected even if it is correct, so that the caller does not send it that way again.
async fn guard(
    State(api): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if is_exposed(caller.address, caller.is_encrypted) {
        let why = "the API accepts only encrypted (TLS) connections from other machines; only `/metrics` and \
                   `/healthz` can be read without encryption";
        return refuse(StatusCode::UPGRADE_REQUIRED, why.to_owned());
    }
    let given =
        request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    // Comparing hashes takes constant time.
    let is = |token: &str| given.is_some_and(|given| blake3::hash(given) == blake3::hash(token.as_bytes()));
    let (is_writer, is_reader) = (is(&api.token), is(&api.reader_token));
    if !is_writer && !is_reader {
        let wants = [(WWW_AUTHENTICATE, "Bearer")];
        let why = "a token derived from the federation's key is required";
        return (StatusCode::UNAUTHORIZED, wants, refusal(why)).into_response();
    }
    caller.trust.grant();
    if is_writer || is_readable(request.method(), request.uri().path()) {
        next.run(request).await
    } else {
        let why = format!("the reader's token allows only `GET {STATUS}`, `GET {BUNDLE}` and `POST {FACTS}`");
        refuse(StatusCode::FORBIDDEN, why)
    }
}

fn is_exposed(address: IpAddr, is_encrypted: bool) -> bool {
    !is_encrypted && supervision::needs_encryption(address)
}

/// Returns whether the reader's token allows a request.
fn is_readable(method: &Method, path: &str) -> bool {
    match *method {
        Method::GET => [STATUS, BUNDLE].contains(&path),
        Method::POST => path == FACTS,
        _ => false,
    }
}

async fn places(State(api): State<Arc<ApiState>>, body: Bytes) -> Response {
    let said: Places = match serde_json::from_slice(&body) {
        Ok(said) => said,
        Err(error) => {
            return refuse(
                StatusCode::BAD_REQUEST,
                format!("the body is not a valid list of places: {error}"),
            );
        }
    };
    let mut known: BTreeMap<ProcessId, AgentPlace> = BTreeMap::new();
    for place in said.places {
        let unfit = |why: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, format!("{}: {why}", place.process));
        let Some(process) = api.names.process_id(&place.process) else {
            return unfit("the federation has no such process");
        };
        let Ok(address) = place.address.parse() else {
            return unfit(&format!("its address does not have the form IP:PORT (found `{}`)", place.address));
        };
        if known.insert(process, AgentPlace { uid: place.uid.clone(), address }).is_some() {
            return unfit("it is listed twice");
        }
    }
    match api.place_registry.assign(said.generation, known) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(stale) => refuse(StatusCode::CONFLICT, stale.to_string()),
    }
}

async fn spec(State(api): State<Arc<ApiState>>, body: Bytes) -> Response {
    let said: Amended = match serde_json::from_slice(&body) {
        Ok(said) => said,
        Err(error) => {
            return refuse(StatusCode::BAD_REQUEST, format!("the body is not a valid spec: {error}"));
        }
    };
    let amendment = api.amender.amend(said);
    api.run_state.amended(amendment.clone());
    match amendment.refused {
        None => StatusCode::OK.into_response(),
        Some(why) => refuse(StatusCode::UNPROCESSABLE_ENTITY, why),
    }
}

async fn status(State(api): State<Arc<ApiState>>, RawQuery(query): RawQuery) -> Response {
    let mut after = 0;
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        match query.strip_prefix("after=").and_then(|number| number.parse().ok()) {
            Some(number) => after = number,
            None => {
                return refuse(
                    StatusCode::BAD_REQUEST,
                    "the only query parameter is `after=NUMBER`".to_owned(),
                );
            }
        }
    }
    json(&api.run_state.status(after))
}

async fn done(State(api): State<Arc<ApiState>>, Segment(id): Segment<String>) -> Response {
    if id.parse().is_ok_and(|id| api.place_registry.done(id)) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        refuse(StatusCode::NOT_FOUND, format!("there is no request {id}"))
    }
}

async fn bundle(State(api): State<Arc<ApiState>>) -> Response {
    if !api.run_state.is_closed() {
        return refuse(StatusCode::CONFLICT, "the run has not ended; its record is incomplete".to_owned());
    }
    let (near, far) = tokio::io::duplex(PIPE);
    let dir = api.dir.clone();
    let packed = tokio::task::spawn_blocking(move || pack(&dir, SyncIoBridge::new(near)));
    // If packing the record fails, the response is aborted: a truncated archive could look complete.
    let failure = stream::once(async {
        match packed.await.map_err(io::Error::other).flatten() {
            Ok(()) => None,
            Err(error) => {
                warn!(%error, "the record was not sent completely");
                Some(Err(error))
            }
        }
    });
    let record = ReaderStream::new(far).chain(failure.filter_map(ready));
    ([(CONTENT_TYPE, "application/x-tar")], Body::from_stream(record)).into_response()
}

/// Sends what was added to the record since the client's last request. Reads files only, a bounded part of them, and
/// interprets nothing, so that the run is not disturbed.
async fn facts(State(api): State<Arc<ApiState>>, body: Bytes) -> Response {
    let Ok(permit) = api.facts_readers.clone().try_acquire_owned() else {
        return refuse(
            StatusCode::TOO_MANY_REQUESTS,
            "too many clients read facts; try again later".to_owned(),
        );
    };
    let held: HeldFacts = match serde_json::from_slice(&body) {
        Ok(held) => held,
        Err(error) => {
            let why = format!("the body does not say which facts the client has: {error}");
            return refuse(StatusCode::BAD_REQUEST, why);
        }
    };
    let bundle = Bundle::open(&api.dir);
    let read = tokio::task::spawn_blocking(move || {
        let added = added(&bundle, &held);
        drop(permit);
        added
    });
    match read.await.map_err(io::Error::other) {
        Ok(Ok(answer)) => ([(CONTENT_TYPE, "application/octet-stream")], answer).into_response(),
        Ok(Err(error)) => refuse(StatusCode::NOT_FOUND, format!("there is no record yet: {error}")),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Returns what a record has in addition to what the client has.
fn added(bundle: &Bundle, held: &HeldFacts) -> Result<Vec<u8>, BundleError> {
    let description = bundle.read_description()?;
    let digest = blake3::hash(description.concat().as_bytes()).to_string();
    let is_known = held.description.as_ref() == Some(&digest);
    let head = FactsHead { digest, description: (!is_known).then_some(description) };
    let mut answer = serde_json::to_vec(&head).expect("text can be written as JSON");
    answer.push(b'\n');
    let held: BTreeMap<_, _> = held.facts.iter().map(|it| ((it.0, it.1), it.2)).collect();
    let mut left = FACTS_PER_ANSWER;
    for (process, life, length) in bundle.facts_lengths()? {
        let offset = held.get(&(process.0, life.0)).copied().unwrap_or(0);
        if offset >= length || left <= PieceHead::LENGTH {
            continue;
        }
        let piece = bundle.read_facts_at(process, life, offset, left - PieceHead::LENGTH)?;
        let head = PieceHead { process: process.0, life: life.0, offset, length: piece.len() as u32 };
        left -= PieceHead::LENGTH + piece.len();
        answer.extend(head.bytes());
        answer.extend(piece);
    }
    Ok(answer)
}

async fn metrics(State(api): State<Arc<ApiState>>) -> Response {
    let text = api.page.text(|| api.sum.text());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Packs the record as a tar archive. After an error, the archive has no end, although a dropped `tar::Builder` writes
/// one: the archive must not look complete.
fn pack(dir: &Path, to: impl Write) -> io::Result<()> {
    let mut tar = tar::Builder::new(Breakable(Some(to)));
    let logs = Some(Bundle::LOGS).filter(|it| dir.join(it).exists());
    for part in Bundle::PARTS.into_iter().chain(logs) {
        let path = dir.join(part);
        let appended = fs::metadata(&path).and_then(|it| {
            if it.is_dir() { tar.append_dir_all(part, path) } else { tar.append_path_with_name(path, part) }
        });
        if appended.is_err() {
            tar.get_mut().0 = None;
            return appended;
        }
    }
    tar.into_inner()?.flush()
}

/// A writer that fails once it is `None`.
struct Breakable<W>(Option<W>);

impl<W: Write> Breakable<W> {
    fn open(&mut self) -> io::Result<&mut W> {
        self.0.as_mut().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl<W: Write> Write for Breakable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush()
    }
}

fn refuse(status: StatusCode, why: String) -> Response {
    (status, refusal(&why)).into_response()
}

fn refusal(why: &str) -> Response {
    json(&Refusal { error: why.to_owned() })
}

fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("every response can be written as JSON");
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use faultline_core::Life;

    use super::*;

    #[test]
    fn an_incomplete_archive_has_no_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(Bundle::PARTS[0]), "{}").unwrap();
        let mut archive = Vec::new();
        pack(dir.path(), &mut archive).unwrap_err();
        assert!(!archive.is_empty() && archive.len() <= 1024, "{} bytes", archive.len());
    }

    #[test]
    fn only_what_was_added_to_a_record_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        assert!(added(&bundle, &HeldFacts::default()).is_err(), "there is no manifest");
        bundle.write_description(&["{}".to_owned(), "a: 1\n".to_owned()]).unwrap();
        let (one, two) = ((ProcessId(0), Life(1)), (ProcessId(3), Life(2)));
        bundle.write_facts_at(one.0, one.1, 0, b"abcdef").unwrap();
        bundle.write_facts_at(two.0, two.1, 0, &vec![7; FACTS_PER_ANSWER]).unwrap();
        let ask = |held: &HeldFacts| {
            let answer = added(&bundle, held).unwrap();
            let end = answer.iter().position(|it| *it == b'\n').unwrap();
            let head: FactsHead = serde_json::from_slice(&answer[..end]).unwrap();
            assert!(answer.len() - end - 1 <= FACTS_PER_ANSWER);
            let (mut rest, mut pieces) = (&answer[end + 1..], Vec::new());
            while let Some((head, content, after)) = PieceHead::split(rest) {
                pieces.push((head.process, head.life, head.offset, content.to_vec()));
                rest = after;
            }
            assert_eq!(rest, b"");
            (head, pieces)
        };
        let (head, pieces) = ask(&HeldFacts::default());
        assert_eq!(head.description.unwrap()[1], "a: 1\n");
        assert_eq!(pieces[0], (0, 1, 0, b"abcdef".to_vec()));
        let had = pieces[1].3.len() as u64;
        assert!(had > 0 && had < FACTS_PER_ANSWER as u64);
        let held = HeldFacts { description: Some(head.digest), facts: vec![(0, 1, 4), (3, 2, had)] };
        let (head, pieces) = ask(&held);
        assert_eq!(head.description, None);
        assert_eq!(pieces[0], (0, 1, 4, b"ef".to_vec()));
        assert_eq!((pieces[1].2, pieces[1].3.len() as u64), (had, FACTS_PER_ANSWER as u64 - had));
    }

    #[test]
    fn only_plain_connections_from_other_machines_are_exposed() {
        let readable =
            |address: &str, is_encrypted| is_exposed(address.parse().expect("an address"), is_encrypted);
        assert!(readable("10.244.1.7", false));
        assert!(!readable("10.244.1.7", true));
        assert!(!readable("127.0.0.1", false), "a forwarded port");
    }
}

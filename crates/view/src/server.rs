//! Answers requests.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use faultline_callers::{Trust, UntrustedConnections, answer};
use faultline_report::page::live::{self, Asset, Update};
use faultline_trace::Hash;
use hyper::body::Frame;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::timeout;

use crate::control::Refused;
use crate::requests::{Route, route};
use crate::{MOST_PAGES, Run, Shared, Shown, Stage};

/// The maximum length of a request's content, in bytes.
const LONGEST: usize = 16 << 10;
/// Time within which a request's content must arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time without an event, after which a comment shows that the connection still works.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The policy of stored pages, which may come from strangers.
const STORED_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The answer to a request for another host.
const OTHER_HOST: &str = "This page is shown under the names 127.0.0.1 and localhost only, so that no other page can read it. \
     Open the address that Faultline has printed. From another machine, forward its port first, such as with \
     `ssh -L PORT:127.0.0.1:PORT HOST`, and open http://127.0.0.1:PORT/ with the same path; if a proxy forwards requests, let it \
     set the header `Host` to localhost.";

/// Starts a thread that answers all requests.
pub(crate) fn spawn(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _guard = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let serve = async move {
        let connections = UntrustedConnections::besides(MOST_PAGES);
        loop {
            let (stream, connection) = connections.accept(&listener).await;
            let (shared, trust) = (shared.clone(), connection.trust());
            let app = Router::new().fallback(move |request| respond(shared.clone(), trust.clone(), request));
            tokio::spawn(connection.unless_closed(answer(stream, app)));
        }
    };
    std::thread::Builder::new().name("view".to_owned()).spawn(move || runtime.block_on(serve))?;
    Ok(())
}

async fn respond(shared: Arc<Shared>, trust: Trust, request: Request) -> Response {
    let (head, content) = request.into_parts();
    let key = head.uri.path().split('/').nth(1).unwrap_or_default();
    let mut response = match route(&head, &shared.keys) {
        Err(StatusCode::MISDIRECTED_REQUEST) => said(StatusCode::MISDIRECTED_REQUEST, OTHER_HOST),
        Err(status) => said(status, status.canonical_reason().unwrap_or_default()),
        Ok(Route::Asset(path)) => asset(&path),
        Ok(Route::Redirect(path)) => Redirect::to(&path).into_response(),
        Ok(Route::Fault) => changed(&shared, content, true).await,
        Ok(Route::Pause) => changed(&shared, content, false).await,
        Ok(reading) => answered(&shared, key, &trust, head.headers.get(header::IF_NONE_MATCH), reading)
            .unwrap_or_else(|| said(StatusCode::NOT_FOUND, "Not Found")),
    };
    let headers = response.headers_mut();
    let mut add = |name: &'static str, value: &'static str| {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    };
    add("content-security-policy", POLICY);
    add("referrer-policy", "no-referrer");
    add("x-content-type-options", "nosniff");
    add("cross-origin-opener-policy", "same-origin");
    add("cross-origin-resource-policy", "same-origin");
    add("cache-control", "no-store");
    response
}

fn said(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}

fn asset(path: &str) -> Response {
    match Asset::at(path) {
        None => said(StatusCode::NOT_FOUND, "Not Found"),
        Some(asset) => {
            let headers = [
                (header::CONTENT_TYPE, asset.kind),
                (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            ];
            (headers, asset.content.as_str()).into_response()
        }
    }
}

/// Answers a request for a page or its content; `None` if there is none.
fn answered(
    shared: &Shared,
    key: &str,
    trust: &Trust,
    known: Option<&HeaderValue>,
    route: Route,
) -> Option<Response> {
    let run = |number: usize| match &shared.list {
        Some(list) => list.run(number),
        None => (number == 1).then(|| shared.run.clone()),
    };
    match (route, &shared.list) {
        (Route::Page { run: number, controls }, list) => {
            let page = page(&*run(number)?, controls);
            Some(html(if list.is_some() { live::listed(&page) } else { page }))
        }
        (Route::Events { run: number, stage, controls }, _) => {
            trust.grant();
            Some(events(shared, &*run(number)?, stage, controls))
        }
        (Route::First, None) => Some(Redirect::to(&format!("/{key}/run/1/")).into_response()),
        (Route::First, Some(list)) => Some(html(list.page())),
        (Route::Rows, Some(list)) => Some(rows(list.rows(), known)),
        (Route::Stored(number), Some(list)) => {
            let policy = [(header::CONTENT_SECURITY_POLICY, STORED_POLICY)];
            Some((policy, html(list.stored(number)?)).into_response())
        }
        (Route::Linked(number, link), Some(list)) => {
            let run = list.linked(number, &link);
            let to_run = run.map(|run| Redirect::to(&format!("/{key}/run/{run}/")).into_response());
            to_run.or_else(|| Some(said(StatusCode::OK, &list.linked_file(number, &link)?)))
        }
        _ => None,
    }
}

fn html(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// Sends the rows of the list, unless the page already has them.
fn rows(text: String, known: Option<&HeaderValue>) -> Response {
    let version = format!("\"{}\"", Hash::of_bytes(text.as_bytes()));
    if known.is_some_and(|it| it.as_bytes() == version.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(header::ETAG, version)], html(text)).into_response()
}

fn page(run: &Run, controls: bool) -> String {
    let stage = run.shown.borrow().stage.clone();
    match stage {
        Stage::Running(manifest) => live::page(&manifest, controls),
        Stage::Waiting(page) | Stage::Over(page) => page.to_string(),
    }
}

/// Sends events to a page for as long as it is open. The last place is reserved for a page that can change the run.
fn events(shared: &Shared, run: &Run, stage: String, controls: bool) -> Response {
    let reserved = usize::from(shared.control.is_some() && !controls);
    let free = shared.pages.clone().try_acquire_many_owned(reserved as u32 + 1);
    let Some(permit) = free.ok().and_then(|mut it| it.split(1)) else {
        let most = MOST_PAGES - reserved;
        let text =
            format!("Pages are already open {most} times. This one follows the run once another is closed.");
        return said(StatusCode::SERVICE_UNAVAILABLE, &text);
    };
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(send_events(run.shown.subscribe(), stage, sender, permit));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(Events(receiver))).into_response()
}

/// Sends the parts that changed. A page that is too slow receives only the newest ones.
async fn send_events(
    mut shown: watch::Receiver<Shown>,
    stage: String,
    sender: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
) {
    let mut sent = Arc::<Update>::default();
    let mut text = ":\n\n".to_owned();
    loop {
        let Shown { stage: now, update } = shown.borrow_and_update().clone();
        if now.name() != stage {
            text = "event: reload\ndata:\n\n".to_owned();
        } else if matches!(now, Stage::Running(_)) {
            let parts = [
                ("now", &sent.now, &update.now),
                ("diagram", &sent.diagram, &update.diagram),
                ("story", &sent.story, &update.story),
                ("map", &sent.map, &update.map),
            ];
            for (name, _, new) in parts.into_iter().filter(|(_, old, new)| old != new) {
                let _ = write!(text, "event: {name}\ndata: {new}\n\n");
            }
            sent = update;
        }
        if !text.is_empty() && sender.send(std::mem::take(&mut text).into()).await.is_err() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            changed = timeout(ALIVE_EVERY, shown.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => ":\n\n".clone_into(&mut text),
            },
        }
    }
}

/// The content of an answer that consists of events.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|it| it.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Changes the run: adds the fault, or pauses or resumes the run, that the content describes.
async fn changed(shared: &Shared, content: Body, is_fault: bool) -> Response {
    let Some(control) = &shared.control else { return said(StatusCode::NOT_FOUND, "Not Found") };
    let Ok(Ok(content)) = timeout(PATIENCE, to_bytes(content, LONGEST)).await else {
        return said(StatusCode::PAYLOAD_TOO_LARGE, "The request is too long, or too slow.");
    };
    if shared.run.is_over() {
        return said(StatusCode::CONFLICT, "The run has ended.");
    }
    let done = if is_fault { control.add_fault(&content) } else { control.pause(&content) };
    match done {
        Ok(text) => said(StatusCode::ACCEPTED, &text),
        Err(refused) => {
            let status = match refused {
                Refused::NotBegun => StatusCode::CONFLICT,
                Refused::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                Refused::Failed(_) => StatusCode::BAD_GATEWAY,
                Refused::TooMany => StatusCode::TOO_MANY_REQUESTS,
            };
            said(status, &refused.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use faultline_api::samples::sample;
    use faultline_core::Span;

    use crate::{Control, Server};

    fn started() -> (Server, String) {
        let text = sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid");
        let control = Control::new(federation, Span::ZERO, |_, _| Ok(()));
        let server = Server::start(Some("127.0.0.1:0".parse().unwrap()), Some(control)).unwrap();
        let host = server.address.to_string();
        (server, host)
    }

    /// Sends a request, and returns the connection.
    fn asked(host: &str, head: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "{head} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").unwrap();
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn every_answer_restricts_what_a_page_may_do() {
        let (server, host) = started();
        let page = format!("/{}/run/1/", server.watch);
        for (path, status) in [(page.as_str(), 200), ("/wrong/", 404), ("/assets/0.js", 404)] {
            let answer = answer(asked(&host, &format!("GET {path}"), ""));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            for header in ["default-src 'none'", "no-referrer", "nosniff", "no-store", "same-origin"] {
                assert!(answer.contains(header), "{path}: {answer}");
            }
        }
        server.show(super::live::message("Over", "The run has ended.", false));
        let report = answer(asked(&host, &format!("GET {page}"), ""));
        let (_, styles) = report.split_once("stylesheet\" href=\"").unwrap();
        let styles = answer(asked(&host, &format!("GET {}", styles.split('"').next().unwrap()), ""));
        assert!(styles.contains("text/css") && styles.contains("immutable") && styles.contains(".badge"));
    }

    #[test]
    fn another_host_is_refused_with_the_remedy() {
        let (_server, host) = started();
        let mut stream = TcpStream::connect(&host).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: laptop.example:80\r\n\r\n").unwrap();
        let answer = answer(stream);
        assert!(
            answer.starts_with("HTTP/1.1 421") && answer.contains("ssh -L PORT:127.0.0.1:PORT"),
            "{answer}"
        );
    }

    #[test]
    fn long_requests_and_many_pages_are_refused() {
        let (server, host) = started();
        let key = server.control.clone().unwrap();
        let post = |length: usize| {
            let more = format!(
                "Origin: http://{host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
            );
            let mut stream = asked(&host, &format!("POST /{key}/run/1/faults"), &more);
            // The server may answer before it has read everything.
            let _ = stream.write_all("{".repeat(length).as_bytes());
            answer(stream)
        };
        assert!(post(1).starts_with("HTTP/1.1 422"), "{}", post(1));
        assert!(post(super::LONGEST + 1).starts_with("HTTP/1.1 413"));

        let open_with = |key: &str| {
            let mut stream = asked(&host, &format!("GET /{key}/run/1/events?stage=waiting"), "");
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            (String::from_utf8(status.to_vec()).unwrap(), stream)
        };
        let open = || open_with(&server.watch);
        let pages: Vec<_> = (1..super::MOST_PAGES).map(|_| open()).collect();
        assert!(pages.iter().all(|it| it.0 == "HTTP/1.1 200"));
        assert!(server.shared.run.is_watched());
        assert_eq!(open().0, "HTTP/1.1 503");
        let last = open_with(&key);
        assert_eq!(
            (&*last.0, &*open_with(&key).0),
            ("HTTP/1.1 200", "HTTP/1.1 503"),
            "the last place is reserved"
        );
        drop((pages, last));
        while server.shared.run.is_watched() {
            std::thread::yield_now();
        }
        assert_eq!(open().0, "HTTP/1.1 200", "closed pages make room");
    }

    #[test]
    fn a_page_loads_again_when_the_run_ends() {
        let (server, host) = started();
        let mut stream = asked(&host, &format!("GET /{}/run/1/events?stage=waiting", server.watch), "");
        let mut said = String::new();
        let mut piece = [0; 512];
        while !said.contains("\r\n\r\n") {
            let read = stream.read(&mut piece).unwrap();
            said.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        assert!(!said.contains("reload"), "{said}");
        server.show(String::new());
        while !said.contains("event: reload") {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "{said}");
            said.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
    }
}

//! Decides which requests are answered. Any program on this machine, and any page in the user's browser, may send
//! requests to the port.

use axum::http::request::Parts;
use axum::http::{HeaderName, Method, StatusCode, header};
use faultline_trace::Hash;

/// The keys, as hashes, so that the time of a comparison tells nothing about them.
pub(crate) struct Keys {
    watch: Hash,
    control: Option<Hash>,
}

impl Keys {
    pub(crate) fn new(watch: &str, control: Option<&str>) -> Keys {
        let hash = |key: &str| Hash::of_bytes(key.as_bytes());
        Keys { watch: hash(watch), control: control.map(hash) }
    }

    /// Returns whether the holder of a key may change the run; `None` if the key is wrong.
    fn controls(&self, key: &str) -> Option<bool> {
        let key = Hash::of_bytes(key.as_bytes());
        if self.control == Some(key) { Some(true) } else { (self.watch == key).then_some(false) }
    }
}

/// A request that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The script or the styles, with this path.
    Asset(String),
    /// Another address of the page.
    Redirect(String),
    /// The first page: the list, or that of the only run.
    First,
    /// The rows of the list.
    Rows,
    /// The page of a run, which may be able to change the run.
    Page { run: usize, controls: bool },
    /// The events of the page of a run that shows this stage.
    Events { run: usize, stage: String, controls: bool },
    /// The stored page with this number.
    Stored(usize),
    /// A file that a stored page links to.
    Linked(usize, String),
    /// An additional fault.
    Fault,
    /// A pause, or its end.
    Pause,
}

/// Returns what a request asks for.
///
/// # Errors
///
/// Returns the status of the answer if the request is refused.
pub(crate) fn route(request: &Parts, keys: &Keys) -> Result<Route, StatusCode> {
    let host = header_of(request, header::HOST).unwrap_or_default();
    if !is_this_machine(host) {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let path = request.uri.path();
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let (key, rest) = match &parts[..] {
        ["assets", _] => return reads(request, Route::Asset(path.to_owned())),
        [key, rest @ ..] => (*key, rest),
        [] => return Err(StatusCode::NOT_FOUND),
    };
    let controls = keys.controls(key).ok_or(StatusCode::NOT_FOUND)?;
    let (kind, number, rest) = match rest {
        [] => return reads(request, Route::Redirect(format!("/{key}/"))),
        [""] => return reads(request, Route::First),
        ["list"] => return reads(request, Route::Rows),
        [kind, number, rest @ ..] => (*kind, number.parse().map_err(|_| StatusCode::NOT_FOUND)?, rest),
        _ => return Err(StatusCode::NOT_FOUND),
    };
    match (kind, rest) {
        ("run" | "page", []) => reads(request, Route::Redirect(format!("/{key}/{kind}/{number}/"))),
        ("run", [""]) => reads(request, Route::Page { run: number, controls }),
        ("run", ["events"]) => {
            let query = request.uri.query().unwrap_or_default();
            let stage = query.strip_prefix("stage=").unwrap_or_default().to_owned();
            reads(request, Route::Events { run: number, stage, controls })
        }
        ("run", ["faults"]) if controls && number == 1 => changes(request, host, Route::Fault),
        ("run", ["pause"]) if controls && number == 1 => changes(request, host, Route::Pause),
        ("page", [""]) => reads(request, Route::Stored(number)),
        ("page", link) => reads(request, Route::Linked(number, link.join("/"))),
        _ => Err(StatusCode::NOT_FOUND),
    }
}

fn header_of(request: &Parts, name: HeaderName) -> Option<&str> {
    request.headers.get(name)?.to_str().ok()
}

/// Returns whether a host is this machine. Any other name may belong to a page of a stranger, who lets the name resolve
/// to this machine.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    ["127.0.0.1", "[::1]", "localhost"].contains(&name)
}

fn reads(request: &Parts, route: Route) -> Result<Route, StatusCode> {
    if request.method == Method::GET { Ok(route) } else { Err(StatusCode::METHOD_NOT_ALLOWED) }
}

/// Permits a change only to the page itself. Other pages cannot send JSON without asking first, and have other origins.
fn changes(request: &Parts, host: &str, route: Route) -> Result<Route, StatusCode> {
    if request.method != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let site = request.headers.get("sec-fetch-site");
    if header_of(request, header::ORIGIN) != Some(&format!("http://{host}"))
        || site.is_some_and(|it| it != "same-origin")
    {
        return Err(StatusCode::FORBIDDEN);
    }
    if header_of(request, header::CONTENT_TYPE) != Some("application/json") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    Ok(route)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const HOST: (&str, &str) = ("host", "127.0.0.1:7380");
    const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:7380");
    const JSON: (&str, &str) = ("content-type", "application/json");

    fn answer(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Route, u16> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        route(&parts, &Keys::new("watch", Some("control"))).map_err(|it| it.as_u16())
    }

    #[test]
    fn only_holders_of_a_key_read() {
        let get = |path: &str| answer("GET", path, &[HOST]);
        let page = |controls| Ok(Route::Page { run: 1, controls });
        assert_eq!(get("/watch/"), Ok(Route::First));
        assert_eq!(get("/control"), Ok(Route::Redirect("/control/".to_owned())));
        assert_eq!(get("/watch/run/1"), Ok(Route::Redirect("/watch/run/1/".to_owned())));
        assert_eq!(get("/watch/list"), Ok(Route::Rows));
        assert_eq!(get("/watch/page/7/"), Ok(Route::Stored(7)));
        assert_eq!(
            get("/watch/page/7/records/1/report.html"),
            Ok(Route::Linked(7, "records/1/report.html".to_owned()))
        );
        assert_eq!(get("/watch/run/1/"), page(false));
        assert_eq!(get("/control/run/1/"), page(true));
        assert_eq!(
            get("/watch/run/1/events?stage=over"),
            Ok(Route::Events { run: 1, stage: "over".to_owned(), controls: false })
        );
        assert_eq!(get("/assets/0.js"), Ok(Route::Asset("/assets/0.js".to_owned())));
        for path in [
            "/",
            "/run/1/",
            "/wrong/",
            "/wrong/run/1/",
            "/watch/run/-1/",
            "/watch/run/quickstart/",
            "/watch/list/",
            "/watch/run/1/other",
            "/watch/run/1/..%2f..%2fmanifest.json",
            "/watch/../control/run/1/faults",
            "//watch/",
            "/assets/a/b",
            "/watch%2frun%2f1%2f",
        ] {
            assert_eq!(get(path), Err(404), "{path}");
        }
        assert_eq!(answer("POST", "/watch/run/1/", &[HOST]), Err(405));
        assert_eq!(answer("OPTIONS", "/control/run/1/faults", &[HOST]), Err(405));
    }

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        let get = |host: &str| answer("GET", "/watch/run/1/", &[("host", host)]).map(|_| ());
        for host in ["127.0.0.1", "localhost:1", "[::1]:7380", "[::1]"] {
            assert_eq!(get(host), Ok(()), "{host}");
        }
        for host in ["", "example.org", "127.0.0.1.example.org:7380", "localhost:x", "10.0.0.1:7380", "::1"] {
            assert_eq!(get(host), Err(421), "{host}");
        }
        assert_eq!(answer("GET", "/watch/run/1/", &[]), Err(421));
    }

    #[test]
    fn only_the_page_itself_changes_a_run() {
        let post = |path: &str, headers: &[(&str, &str)]| answer("POST", path, headers);
        let faults = "/control/run/1/faults";
        assert_eq!(post(faults, &[HOST, ORIGIN, JSON]), Ok(Route::Fault));
        assert_eq!(post("/control/run/1/pause", &[HOST, ORIGIN, JSON]), Ok(Route::Pause));
        let same = ("sec-fetch-site", "same-origin");
        assert_eq!(post(faults, &[HOST, ORIGIN, JSON, same]), Ok(Route::Fault));
        assert_eq!(answer("GET", faults, &[HOST]), Err(405));
        assert_eq!(post("/watch/run/1/faults", &[HOST, ORIGIN, JSON]), Err(404));
        assert_eq!(post("/control/run/2/faults", &[HOST, ORIGIN, JSON]), Err(404));
        assert_eq!(post("/wrong/run/1/faults", &[HOST, ORIGIN, JSON]), Err(404));
        assert_eq!(post(faults, &[HOST, JSON]), Err(403), "no origin");
        assert_eq!(post(faults, &[HOST, ("origin", "http://127.0.0.1:8000"), JSON]), Err(403));
        assert_eq!(post(faults, &[HOST, ("origin", "null"), JSON]), Err(403));
        assert_eq!(post(faults, &[HOST, ORIGIN, JSON, ("sec-fetch-site", "cross-site")]), Err(403));
        assert_eq!(post(faults, &[HOST, ORIGIN]), Err(415));
        assert_eq!(post(faults, &[HOST, ORIGIN, ("content-type", "text/plain")]), Err(415));
        assert_eq!(
            post(faults, &[("host", "example.org"), ("origin", "http://example.org"), JSON]),
            Err(421)
        );
    }
}

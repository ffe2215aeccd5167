//! The page of a run in progress in a real browser. Requires `chromium`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::samples::sample;
use faultline_core::{Span, Time};
use faultline_session::{Session, Simulator, UnjudgedRecording};
use faultline_trace::{Bundle, Manifest, Trace};
use faultline_view::feed::{self, Feed};
use faultline_view::{Control, Server};
use serde_json::{Value, json};

/// Opens a page until the document, as modified by the script, satisfies a condition, and returns it. The browser may end
/// before the first event arrives. Fails if the script reports an error.
fn opened_until(profile: &Path, address: &str, width: u32, condition: impl Fn(&str) -> bool) -> String {
    for _ in 0..10 {
        let page = opened(profile, address, width);
        if condition(&page) {
            return page;
        }
    }
    panic!("the page never changed: {:.3000}", opened(profile, address, width))
}

fn opened(profile: &Path, address: &str, width: u32) -> String {
    let options =
        ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"];
    let size = format!("--window-size={width},1200");
    let profile = format!("--user-data-dir={}", profile.display());
    let output = Command::new("chromium")
        .args(options)
        .args([&profile, &size, "--timeout=4000", "--dump-dom", address])
        .output()
        .expect("chromium is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<_> = errors.lines().filter(|it| it.contains("CONSOLE")).collect();
    assert!(output.status.success() && errors.is_empty(), "{errors:#?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the content of the element with this ID.
fn text<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, after) =
        page.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}: {page:.3000}"));
    after.split_once('>').unwrap().1.split('<').next().unwrap()
}

/// Writes the facts up to a time, without seals, as a run in progress does.
fn write(bundle: &Bundle, trace: &Trace, upto: Time) {
    for (&(process, life), stream) in &trace.streams {
        let mut known = stream.iter().take_while(|(at, _)| *at <= upto).peekable();
        if known.peek().is_some() {
            let mut writer = bundle.facts_writer(process, life).unwrap();
            known.for_each(|(at, fact)| writer.write(*at, fact).unwrap());
            writer.flush().unwrap();
        }
    }
}

/// Returns a simulated run of the quick start.
fn run() -> (Federation, UnjudgedRecording) {
    let federation = sample("quickstart").expect("the sample exists").text;
    let federation = faultline_api::parse("quickstart", federation.as_bytes()).unwrap();
    let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
    (federation, run)
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_page_follows_a_run_and_becomes_its_report() {
    let (federation, UnjudgedRecording { manifest, trace }) = run();
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    let in_progress = Manifest { outcome: None, faults: Vec::new(), ..manifest.clone() };
    bundle.write_manifest(&in_progress).unwrap();
    // The loss of paris has been announced, and its processes have not recovered.
    let lost = trace.supervisor().iter().rfind(|it| matches!(it.1, faultline_core::Fact::Detected { .. }));
    write(&bundle, &trace, lost.unwrap().0);

    let server = Server::start(None, Some(Control::new(federation, Span::ZERO, |_, _| Ok(())))).unwrap();
    server.follow(Feed::of_record(bundle.clone())).unwrap();
    let address = server.control_address().unwrap();
    for width in [1240, 520] {
        let is_running = |page: &str| text(page, "phase") == "running";
        let page = opened_until(&dir.path().join("profile"), &address, width, is_running);
        assert!(text(&page, "elapsed").ends_with(" s"), "{}", text(&page, "elapsed"));
        let sentence = text(&page, "sentence");
        assert!(sentence.starts_with("paris-") && sentence.contains("are down (fault 1)"), "{sentence}");
        assert_eq!(page.matches("data-cell=\"down\"").count(), 3);
        assert_eq!(page.matches("data-cell=\"up\"").count(), 3);
        let count = text(&page, "count");
        assert!(count.contains(" of ") && !count.contains(" of 0 "), "{count}");
        assert!(page.contains("rennes, whose failure was detected"), "the story: {page:.3000}");
        assert!(page.contains("<option>rennes-2</option>"), "the targets of faults");
    }

    std::fs::remove_dir_all(dir.path().join("run/facts")).unwrap();
    std::fs::create_dir(dir.path().join("run/facts")).unwrap();
    UnjudgedRecording { manifest, trace }.write(&bundle).unwrap();
    let is_over = |page: &str| page.contains("data-stage=\"over\"");
    let report = opened_until(&dir.path().join("profile"), &address, 1240, is_over);
    assert!(report.contains("Properties"), "{report:.3000}");
    assert!(text(&report, "count").contains(" of "), "the script draws the diagram");
}

/// A browser that the test drives: by messages in JSON, each of which ends with a zero byte.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
}

impl Browser {
    fn open(profile: &Path, address: &str, width: u32) -> Browser {
        // The browser expects its pipes at these numbers.
        let line = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe \
                    --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", line]).arg(profile).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("chromium is installed");
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Browser { process, to, from, session: None, number: 0 };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|it| it["type"] == "page").unwrap();
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        browser.session = Some(session);
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser.call("Page.navigate", json!({ "url": address }));
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            let answer: Value = serde_json::from_slice(answer.strip_suffix(b"\0").unwrap()).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Returns the value of an expression in the page; null if it has none.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", parameters)["result"]["value"].clone()
    }

    fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById('{id}')?.textContent"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has loaded, with its styles, and the expression is true.
    fn wait_for(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        let loaded = format!("document.readyState === 'complete' && ({expression})");
        while self.value(&loaded) != true {
            let page = self.value("document.body.innerText");
            assert!(Instant::now() < until, "never {expression}: {page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&mut self, key: &str, code: u32) {
        let mut parameters = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if key == "Enter" || key.len() == 1 {
            parameters["text"] = if key == "Enter" { "\r".into() } else { key.into() };
        }
        self.call("Input.dispatchKeyEvent", parameters);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Moves the focus with the tabulator key until `expression` is true of the focused element.
    fn tab_to(&mut self, expression: &str) {
        for _ in 0..80 {
            self.press("Tab", 9);
            if self.value(&format!("(it => {expression})(document.activeElement)")) == true {
                return;
            }
        }
        panic!("the keyboard does not reach {expression}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the parts of the page that are wider than the window, controls without a name, and names that occur twice.
const FLAWS: &str = "[
    ...[...document.querySelectorAll('[id]')].map(it => it.id)
        .filter((it, index, all) => all.indexOf(it) !== index).map(it => 'twice: ' + it),
    document.documentElement.scrollWidth > document.documentElement.clientWidth ? 'the page scrolls' : '',
    ...[...document.querySelectorAll('main *')]
        .filter(it => it.getBoundingClientRect().right > innerWidth + 1 && !it.closest('pre, thead, .unseen, .matrix, #tip'))
        .map(it => 'too wide: ' + it.outerHTML.slice(0, 90)),
    ...[...document.querySelectorAll('button, input, select')]
        .filter(it => !(it.textContent || it.ariaLabel || it.labels?.length)).map(it => 'no name: ' + it.outerHTML),
].filter(it => it).join()";

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn the_keyboard_alone_shows_the_run_and_adds_a_fault() {
    let (federation, UnjudgedRecording { manifest, trace }) = run();
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    bundle.write_manifest(&Manifest { outcome: None, faults: Vec::new(), ..manifest }).unwrap();
    let lost = trace.supervisor().iter().rfind(|it| matches!(it.1, faultline_core::Fact::Detected { .. }));
    write(&bundle, &trace, lost.unwrap().0);
    let control = Control::new(federation, Span::ZERO, |_, _| Ok(()));
    control.elapsed(Span::from_millis(7000));
    let server = Server::start(None, Some(control)).unwrap();
    server.follow(Feed::of_record(bundle)).unwrap();
    let address = server.control_address().unwrap();
    let mut browser = Browser::open(&dir.path().join("profile"), &address, 420);
    browser.wait_for("document.querySelectorAll('[data-cell=down]').length === 3");
    assert_eq!(browser.value(FLAWS), "");
    // The text alone tells the states.
    let states = browser.value("document.getElementById('processes').innerText");
    assert_eq!(states.as_str().unwrap().matches("down").count(), 3, "{states}");
    assert_eq!(browser.value("document.querySelectorAll('[data-up]')[0].textContent"), "0 of 3 up");
    assert!(browser.text("story").contains("rennes, whose failure was detected"));

    browser.tab_to("it.id === 'plot'");
    browser.press("]", 221);
    assert!(browser.text("tip").starts_with("paris-0: down"), "{}", browser.text("tip"));
    browser.press("[", 219);
    assert!(browser.text("tip").starts_with("rennes-2: up"), "{}", browser.text("tip"));
    browser.press("?", 191);
    assert_eq!(browser.value("document.getElementById('keys').open"), true);
    browser.press("i", 73);
    assert_eq!(browser.value("document.activeElement.name"), "action");
    browser.tab_to("it.name === 'target' && it.value === 'rennes-2'");
    browser.tab_to("it.textContent === 'add fault'");
    browser.press("Enter", 13);
    browser
        .wait_for("document.getElementById('answer').textContent.includes('crash: { process: rennes-2 }')");

    // An earlier time, for the processes and for the map.
    browser.tab_to("it.id === 'time'");
    browser.press("Home", 36);
    browser.wait_for("document.querySelectorAll('[data-cell=down]').length === 0");
    browser.press("End", 35);
    browser.wait_for("document.querySelectorAll('[data-cell=down]').length === 3");
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_page_without_a_place_says_so_and_follows_the_run_later() {
    let (_, UnjudgedRecording { manifest, trace }) = run();
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    bundle.write_manifest(&Manifest { outcome: None, faults: Vec::new(), ..manifest }).unwrap();
    write(&bundle, &trace, trace.supervisor().last().unwrap().0);
    let server = Server::start(None, None).unwrap();
    server.follow(Feed::of_record(bundle)).unwrap();
    let address = server.address();
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let open = |_| {
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET /{path}run/1/events?stage=running HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        stream
    };
    let others: Vec<TcpStream> = (0..16).map(open).collect();
    let mut browser = Browser::open(&dir.path().join("profile"), &address, 420);
    browser.wait_for("document.getElementById('lost')?.textContent.includes('already open 16 times')");
    assert_eq!(browser.value(FLAWS), "");
    drop(others);
    browser.wait_for("document.getElementById('phase').textContent === 'running'");
    assert_eq!(browser.value("document.getElementById('lost').hidden"), true);
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn the_list_of_records_is_filtered_and_grows() {
    let (_, recording) = run();
    let dir = tempfile::tempdir().unwrap();
    let record =
        |name: &str| recording.write(&Bundle::create(dir.path().join("all").join(name)).unwrap()).unwrap();
    record("one-record-with-a-long-name-that-does-not-fit-into-a-narrow-window");
    record("two");
    let server = Server::of_list(None, &dir.path().join("all")).unwrap();
    let mut browser = Browser::open(&dir.path().join("profile"), &server.address(), 420);
    browser.wait_for("document.getElementById('number')?.textContent === '2 records, 2 judged; all shown'");
    assert_eq!(browser.value(FLAWS), "");
    assert_eq!(browser.value("document.querySelectorAll('.thumbnail').length"), 2);
    browser.tab_to("it.id === 'search'");
    browser.press("t", 84);
    browser.press("w", 87);
    assert_eq!(browser.text("number"), "2 records, 2 judged; 1 shown");
    record("two-more");
    browser.wait_for("document.getElementById('number').textContent === '3 records, 3 judged; 2 shown'");
    browser.tab_to("it.textContent === 'two'");
    browser.press("Enter", 13);
    browser.wait_for("document.querySelector('[data-stage=over]') !== null");
    assert_eq!(browser.value(FLAWS), "");
    assert_eq!(browser.value("document.querySelector('nav a').textContent"), "all records");
}

/// 200 processes that send 125,000 messages.
const LARGE: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: large }
spec:
  clusters: [{ name: paris, nodes: 100 }, { name: rennes, nodes: 100 }]
  links: { within: { latency: 10us }, between: { latency: 5ms } }
  protocol: { hc3i: { checkpointEvery: 10s, collectEvery: 20s, replicas: 1, replicateTo: sameCluster } }
  application:
    synthetic:
      message: 100B
      state: 10kB
      traffic:
        exact:
          duration: 60s
          messages:
            - { from: paris, to: paris, count: 56000 }
            - { from: rennes, to: rennes, count: 56000 }
            - { from: paris, to: rennes, count: 6500 }
            - { from: rennes, to: paris, count: 6500 }
  faults: [{ at: 20s, crash: { process: paris-3 } }]
  deadline: 10m
";

/// The limits are three times the times that a reader should have to wait, in seconds of the browser's processor time.
#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_run_of_many_messages_is_drawn_quickly() {
    let federation = faultline_api::parse("large", LARGE.as_bytes()).unwrap();
    let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    run.write(&bundle).unwrap();
    let report = feed::report(&bundle).unwrap();
    assert!(report.len() < 4 << 20, "{} bytes", report.len());
    let server = Server::start(None, None).unwrap();
    server.show(report);
    let mut browser = Browser::open(&dir.path().join("profile"), "about:blank", 1240);
    browser.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
    browser.call("Page.navigate", json!({ "url": server.address() }));
    browser.wait_for(
        "document.readyState === 'complete' && document.getElementById('count')?.textContent !== ''",
    );
    let count = browser.text("count");
    let number = count.split(" of ").nth(1).unwrap().replace(',', "");
    let number: u32 = number.split(' ').next().unwrap().parse().unwrap();
    assert!(number >= 125_000, "{count}");
    let used = |browser: &mut Browser, name: &str| {
        let metrics = browser.call("Performance.getMetrics", json!({}));
        let metrics = metrics["metrics"].as_array().unwrap();
        metrics.iter().find(|it| it["name"] == name).unwrap()["value"].as_f64().unwrap()
    };
    let script = used(&mut browser, "ScriptDuration");
    let heap = used(&mut browser, "JSHeapUsedSize") / 1e6;
    let before = used(&mut browser, "TaskDuration");
    const FRAMES: u32 = 10;
    let pan = "(async () => { for (let i = 0; i < 10; i++) {
        document.getElementById('plot').dispatchEvent(new KeyboardEvent('keydown', { key: i % 2 ? '-' : '+' }));
        await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    } })()";
    browser.call("Runtime.evaluate", json!({ "expression": pan, "awaitPromise": true }));
    let frame = (used(&mut browser, "TaskDuration") - before) / f64::from(FRAMES);
    eprintln!("script {script:.3} s, {frame:.4} s per frame, heap {heap:.1} MB");
    assert!(script < 1.05 && frame < 0.09 && heap < 60.0);
}

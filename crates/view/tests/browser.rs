//! The page of a run in progress in a real browser. Requires `chromium`.

use std::path::Path;
use std::process::Command;

use faultline_api::samples::sample;
use faultline_core::Time;
use faultline_session::{Session, Simulator, UnjudgedRecording};
use faultline_trace::{Bundle, Manifest, Trace};
use faultline_view::feed::Feed;
use faultline_view::{Control, Server};

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

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_page_follows_a_run_and_becomes_its_report() {
    let federation = sample("quickstart").expect("the sample exists").text;
    let federation = faultline_api::parse("quickstart", federation.as_bytes()).unwrap();
    let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
    let UnjudgedRecording { manifest, trace } = run;
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    let in_progress = Manifest { outcome: None, faults: Vec::new(), ..manifest.clone() };
    bundle.write_manifest(&in_progress).unwrap();
    // The loss of paris has been announced, and its processes have not recovered.
    let lost = trace.supervisor().iter().rfind(|it| matches!(it.1, faultline_core::Fact::Detected { .. }));
    write(&bundle, &trace, lost.unwrap().0);

    let server = Server::start(None, Some(Control::new(federation, |_| ()))).unwrap();
    server.follow(Feed::of_record(bundle.clone())).unwrap();
    let address = server.control_address().unwrap();
    for width in [1240, 520] {
        let is_running = |page: &str| text(page, "phase") == "running";
        let page = opened_until(&dir.path().join("profile"), &address, width, is_running);
        assert!(text(&page, "time").ends_with(" s"), "{}", text(&page, "time"));
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

//! The page in a real browser: filters, the causal past of a message, and the drawing of a large run. Requires
//! `chromium`.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use faultline_checker::{Judgement, Verdict};
use faultline_report::{RecordedRun, page};

/// Options that run the browser without a window and without background activity.
const OPTIONS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=4000",
    "--window-size=1240,1600",
];

/// A page about a run of two clusters with `nodes` processes each.
struct Page {
    dir: PathBuf,
}

impl Page {
    /// Creates the page for the test with this name. Each test has its own directory and browser profile.
    fn new(test: &str, nodes: u32) -> Page {
        let (manifest, trace) = common::run(nodes);
        let judgement = Judgement { verdict: Verdict::Pass, reasons: vec![], findings: vec![] };
        let recorded =
            RecordedRun { bundle: "run", manifest: &manifest, trace: &trace, judgement: &judgement };
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{nodes}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("report.html"), page::render(recorded)).unwrap();
        Page { dir }
    }

    /// Opens the page with these filters in its address. Returns the document as modified by the script.
    fn shown(&self, filters: &str) -> String {
        let filters = filters.replace(' ', "%20").replace('#', "%23").replace('>', "%3E");
        let address = format!("file://{}#{filters}", self.dir.join("report.html").display());
        let profile = format!("--user-data-dir={}", self.dir.join("profile").display());
        let output = Command::new("chromium").args(OPTIONS).args([&profile, "--dump-dom", &address]).output();
        let output = output.expect("chromium is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the page's statement about the number of messages.
    fn count(&self, filters: &str) -> String {
        let shown = self.shown(filters);
        let after = shown.split("id=\"count\"").nth(1).expect("the page counts messages");
        after.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned()
    }

    /// Returns how many messages are shown.
    fn number(&self, filters: &str) -> u64 {
        let text = self.count(filters);
        let number = text.split(" of ").next().unwrap().replace(',', "");
        number.parse().unwrap_or_else(|_| panic!("{text}"))
    }
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn messages_are_filtered_by_process_kind_and_link() {
    let page = Page::new("filters", 3);
    let all = page.number("");
    let of = |filters: &str| page.number(filters);
    let (paris, rennes) = (of("link=paris>rennes"), of("link=rennes>paris"));
    let within = of("link=paris>paris") + of("link=rennes>rennes");
    assert!(paris > 0 && rennes > 0 && within > 0);
    assert_eq!(paris + rennes + within, all, "each message belongs to one link");
    let kinds = ["delivered", "undone", "resent", "stale", "lost"].map(|it| of(&format!("kind={it}")));
    assert!(kinds[0] > kinds[2] && kinds[2] > 0, "{kinds:?}");
    assert_eq!(kinds.iter().sum::<u64>(), all);
    // Each message has two ends.
    let ends: u64 =
        (0..3).flat_map(|it| ["paris", "rennes"].map(|name| of(&format!("process={name}-{it}")))).sum();
    assert_eq!(ends, 2 * all);
    assert!(of("process=paris&kind=resent") <= kinds[2]);
    assert!(page.shown("process=paris-1").contains("<option value=\"paris\">all of paris"));
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn the_causal_past_of_a_message_is_what_could_have_influenced_it() {
    let page = Page::new("past", 3);
    let all = page.number("");
    let past = |message: &str| {
        let text = page.count(&format!("past={message}")).replace("&gt;", ">");
        let has = format!("; the causal past of {message} contains ");
        let (_, number) = text.split_once(&has).unwrap_or_else(|| panic!("{text}"));
        number.split(" message").next().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    let (early, late) = (past("paris-0->rennes-0 #1"), past("paris-0->rennes-0 #9"));
    assert!(early > 0 && early < late && late < all, "{early} {late} {all}");
    assert_eq!(past("paris-0->paris-1 #0"), 0, "nothing was delivered before the first message");
    assert!(page.count("past=paris-0->mars #9").contains("; no message has the name paris-0-"));
    assert!(
        page.shown("past=paris-0->rennes-0 #9").contains("<button id=\"forget\">"),
        "the filter can be removed"
    );
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_large_run_is_drawn_in_shades_until_the_reader_zooms_in() {
    let page = Page::new("large", 60);
    assert!(page.number("") > 2_500);
    assert!(page.shown("").contains("data-drawn=\"density\""));
    assert!(page.shown("from=3&upto=3.05").contains("data-drawn=\"messages\""));
    assert!(Page::new("large", 3).shown("").contains("data-drawn=\"messages\""));
}

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
        self.opened(&format!("report.html#{filters}"))
    }

    /// Opens the page in a frame of this size, and returns the value of a script that `page` and `errors` are defined for:
    /// the window of the page, and its errors. `script` may await `drawn()`.
    fn measured(&self, (width, height): (u32, u32), script: &str) -> String {
        let page = std::fs::read_to_string(self.dir.join("report.html")).unwrap();
        // A browser without a window may never draw another frame.
        let head = "<head><script>
            onerror = error => parent.errors.push(error);
            requestAnimationFrame = act => setTimeout(act);
            </script>";
        let page = page.replacen("<head>", head, 1);
        let page = serde_json::to_string(&page).unwrap().replace('<', "\\u003c");
        let outer = format!(
            "<!doctype html><iframe style='border:0;width:{width}px;height:{height}px'></iframe><script>
            const frame = document.querySelector('iframe');
            var errors = [];
            frame.onload = async () => {{
                const page = frame.contentWindow, drawn = () => new Promise(done => page.setTimeout(done, 100));
                await drawn();
                document.body.dataset.measured = String(await (async () => {{ {script} }})());
            }};
            frame.srcdoc = {page};
            </script>"
        );
        std::fs::write(self.dir.join("frame.html"), outer).unwrap();
        let shown = self.opened("frame.html");
        let (_, value) = shown.split_once("data-measured=\"").unwrap_or_else(|| panic!("{shown:.2000}"));
        value.split('"').next().unwrap().to_owned()
    }

    fn opened(&self, file: &str) -> String {
        let address = format!("file://{}/{file}", self.dir.display());
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

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn large_clusters_are_folded_until_the_reader_unfolds_them() {
    let page = Page::new("folded", 60);
    let states = page.measured(
        (1240, 1000),
        "const { document } = page, plot = document.getElementById('plot'), found = [];
        const state = () => found.push([...document.querySelectorAll('#names button')]
            .map(it => it.textContent + it.getAttribute('aria-expanded')), plot.offsetHeight <= 700,
            document.getElementById('scroll').scrollHeight);
        state();
        document.querySelector('#names button').click();
        await drawn();
        state();
        plot.dispatchEvent(new page.KeyboardEvent('keydown', { key: 'f' }));
        await drawn();
        state();
        return found.concat(errors);",
    );
    let found: Vec<_> = states.split(',').collect();
    let [before, unfolded, all] = found.as_chunks::<4>().0 else { panic!("{states}") };
    assert_eq!(before[..3], ["paris (60)false", "rennes (60)false", "true"]);
    assert_eq!(unfolded[..3], ["paris (60)true", "rennes (60)false", "true"]);
    assert_eq!(all[..3], ["paris (60)true", "rennes (60)true", "true"]);
    let height = |it: &[&str; 4]| it[3].parse::<u32>().unwrap();
    assert!(height(before) < 300 && height(before) < height(unfolded), "{states}");
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn shades_count_messages_that_a_page_omits() {
    let page = Page::new("counts", 60);
    let file = page.dir.join("report.html");
    let text = std::fs::read_to_string(&file).unwrap();
    let total = text.split("\"total\":").nth(1).and_then(|it| it.split(',').next()).unwrap();
    // One process sent or received 370,000 messages in one period, as long as the run: the numbers 0 and 370,000.
    let text = text.replacen("\"counts\":null", r#""counts":{"columns":1,"cells":"ANDKFg=="}"#, 1);
    let text = text.replacen(&format!("\"total\":{total}"), "\"total\":1000000", 1);
    std::fs::write(&file, text).unwrap();
    let found = page.measured(
        (1240, 1000),
        "const plot = page.document.getElementById('plot'), { left, top } = plot.getBoundingClientRect();
        plot.dispatchEvent(new page.PointerEvent('pointermove', { clientX: left + 611, clientY: top + 92 }));
        const texts = ['count', 'tip'].map(it => page.document.getElementById(it).textContent);
        return texts.concat(errors).join(';');",
    );
    let (count, shade) = found.rsplit_once(';').unwrap();
    assert!(count.ends_with("in this page; the run has 1,000,000 messages"), "{found}");
    let (number, _) = shade.split_once(" sends and deliveries within ").unwrap_or_else(|| panic!("{found}"));
    let number = number.strip_prefix("paris (60 processes)\n").unwrap_or_else(|| panic!("{found}"));
    let number: u32 = number.replace(',', "").parse().unwrap();
    // The window has about as many columns as messages were divided by.
    assert!((850..1150).contains(&number), "{found}");
}

#[test]
#[ignore = "needs chromium: run by the step `pages` of .ci/run"]
fn a_narrow_window_shows_the_diagram_early_and_cuts_nothing_off() {
    for nodes in [3, 60] {
        let found = Page::new("narrow", nodes).measured(
            (420, 900),
            "const { document } = page, root = document.documentElement;
            const wide = [...document.querySelectorAll('main *')]
                .filter(it => it.getBoundingClientRect().right > 421 && !it.closest('pre, thead'));
            return [root.scrollWidth <= root.clientWidth, document.getElementById('plot').getBoundingClientRect().top < 900,
                wide.map(it => it.outerHTML.slice(0, 99)).join(), errors.join()].join(';');",
        );
        assert_eq!(found, "true;true;;", "{nodes} processes per cluster");
    }
}

//! What is said about a run in progress.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use faultline_core::{Progress, Time};
use faultline_report::now::Progressing;
use faultline_trace::Manifest;

/// Returns a sentence without its numbers, which change all the time.
fn shape(sentence: &str) -> String {
    sentence.chars().filter(|it| !it.is_ascii_digit()).collect()
}

#[test]
fn a_sentence_says_what_happens_now() {
    // Of all sentences that differ only in numbers, the first one.
    let (manifest, trace) = common::run(3);
    let manifest = Manifest { outcome: None, faults: Vec::new(), ..manifest };
    let end = trace.streams.values().filter_map(|it| it.last()).map(|it| it.0.0).max().unwrap();
    let (mut told, mut known_shapes) = (String::new(), BTreeSet::new());
    for at in (0..=end).step_by(5_000_000) {
        let mut known = trace.clone();
        known.streams.values_mut().for_each(|it| it.retain(|(time, _)| *time <= Time(at)));
        known.streams.retain(|_, stream| !stream.is_empty());
        let progress = Progress { done: at, total: end };
        let now = Progressing::new(&known, &manifest, &[progress, progress]).now;
        if known_shapes.insert(shape(&now.sentence)) {
            let states: Vec<_> = now.states.iter().map(u8::to_string).collect();
            let seconds = now.seconds.map_or("before the start".to_owned(), |it| format!("{it:.2} s"));
            let clusters: Vec<_> = now.clusters.iter().map(|it| it.text.as_str()).collect();
            let _ = writeln!(told, "{seconds} [{}] {}", states.concat(), now.sentence);
            let _ = writeln!(told, "    {}", clusters.join(" | "));
        }
    }
    insta::assert_snapshot!(told);
}

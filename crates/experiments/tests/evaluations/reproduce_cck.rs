//! Tests that all experiments of the papers on CCK are reproduced with few settings, and that every run passes.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use faultline_experiments::reproduce::{Agreement, Settings, cck, page};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};

#[test]
fn every_figure_is_repeated_and_every_run_passes() {
    let settings = Settings { seeds: 1, quick: true, jobs: NonZero::<usize>::MIN };
    let (never, mut told) = (AtomicBool::new(false), (0, 0));
    let mut keep = |_: &StoredResult| {};
    let mut tell = |step: RunProgress<'_>| told = (step.done, step.total);
    let done = cck::reproduce(settings, &mut ResultStore::new(Vec::new(), &mut keep, &mut tell, &never));
    assert_eq!((told.0, done.missing), (told.1, 0), "as many runs as were announced");
    println!("{}", page::text(&done));
    assert_eq!(done.judged.wrong, Vec::<String>::new());
    let ids: Vec<&str> = done.sections.iter().map(|it| it.id).collect();
    assert_eq!(
        ids,
        ["messages", "servers-short", "servers-long", "frequency", "required", "neighbours", "order"]
    );
    assert!(done.sections.iter().all(|it| !it.findings.is_empty() && !it.tables.is_empty()));
    let messages = &done.sections[0].findings[0];
    assert_eq!(messages.agreement, Agreement::Agrees, "{messages:?}");
    assert!(messages.ours.starts_with("588 instead of 2400"), "{messages:?}");
    let page = page::render(&done);
    assert!(page.contains(cck::PAPER.heading) && !page.contains("NaN"));
}

//! Tests that all experiments in the papers on CCK are reproduced with few settings, and that every run passes.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use faultline_experiments::reproduce::cck::costs::MeasuredTasks;
use faultline_experiments::reproduce::{Cell, Grade, Settings, cck, page};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};

#[test]
fn every_figure_is_repeated_and_every_run_passes() {
    let settings = Settings { seeds: 1, quick: true, jobs: NonZero::<usize>::MIN };
    let (never, mut told) = (AtomicBool::new(false), (0, 0));
    let mut keep = |_: &StoredResult| {};
    let mut tell = |step: RunProgress<'_>| told = (step.done, step.total);
    let tasks =
        [MeasuredTasks { task_us: 2000.0, seconds: 6.4 }, MeasuredTasks { task_us: 500.0, seconds: 5.0 }];
    let tasks = tasks.map(|it| vec![it]);
    let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &never);
    let done = cck::reproduce(settings, Some(&tasks), &mut store);
    assert_eq!((told.0, done.missing), (told.1, 0), "as many runs as were announced");
    println!("{}", page::text(&done));
    assert_eq!(done.judged.wrong, Vec::<String>::new());
    let ids: Vec<&str> = done.sections.iter().map(|it| it.id).collect();
    assert_eq!(
        ids,
        [
            "messages",
            "servers-short",
            "servers-long",
            "frequency",
            "required",
            "neighbours",
            "order",
            "task-times"
        ]
    );
    assert!(done.sections.iter().all(|it| !it.findings.is_empty() && !it.tables.is_empty()));
    let messages = &done.sections[0].findings[0];
    assert_eq!(messages.grade, Grade::ValueAgrees, "{messages:?}");
    assert!(messages.ours.starts_with("588 instead of 2400"), "{messages:?}");
    // A simulated run takes about as long as its tasks, executed one after another on one process.
    let times = &done.sections[7].tables[0];
    let column = |row: usize, column: usize| match &times.rows[row][column] {
        Cell::Spread(it) => it.mean,
        other => panic!("{other:?}"),
    };
    for (row, (tasks, task_us)) in
        [(16.0 * 50.0, 2000.0), (100.0 * 20.0 * 2.0, 500.0)].into_iter().enumerate()
    {
        let (simulated, least) = (column(row, 4), tasks * task_us / 1e6);
        assert!((least..1.2 * least).contains(&simulated), "row {row}: {simulated} of {least}");
    }
    let page = page::render(&done);
    assert!(page.contains(cck::PAPER.heading) && !page.contains("NaN"));
}

//! Lost work is bounded in task-based programs whose processes log every event: a failure loses at most the tasks that
//! were running, and those whose events were not yet durable.
//!
//! The parts of this bound that the protocol controls are judged: a process writes an event to stable storage
//! immediately, or as soon as earlier writes are complete; and a process whose storage survived restores its whole log
//! up to the first gap. The successor of a process that never returns absorbs the longest log at any one holder. The
//! duration of a write depends on the storage and the network, and is taken from the run itself.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Fact, FactNo, ImageName, Life, Position, ProcessId, Span, Time};
use faultline_trace::Stream;

use crate::finding::{Findings, Worded};
use crate::properties::intervals::{lives_before, since_restored};
use faultline_history::{Context, History, Source};

/// The time that a holder's answer may take beyond the delay of the slowest link. No fact states when it arrives, and
/// packets may be lost and sent again, or delayed by the simulator. With real processes, timers may be late.
const SLACK: Span = Span::from_secs(1);

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    LogNotRestored { process: ProcessId, since: Position },
    LogNotAbsorbed { by: ProcessId, of: ProcessId, since: Position },
    EventNotWritten { process: ProcessId, waited: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::LogNotRestored { process: by, since } => format!(
                "{} did not restore its whole log since checkpoint {since}, although the log was durable",
                names.process(by)
            ),
            Breach::LogNotAbsorbed { by, of, since } => format!(
                "{} did not absorb the whole log of {} since checkpoint {since}, although the log was durable",
                names.process(by),
                names.process(of)
            ),
            Breach::EventNotWritten { process: by, waited } => format!(
                "{} ran a task whose event it had still not written {waited} later, although none of its writes took that \
                 long",
                names.process(by)
            ),
        }
    }
}

pub(super) fn check(history: &History<'_>, finding: &mut Findings) {
    let durable = durable(history);
    let all = history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores());
    for at in all.map(|it| history.source(it.at)) {
        let process = at.process;
        let lives = lives_before(history, process, at.life);
        if lives.is_empty() {
            continue;
        }
        finding.instances += 1;
        let end = history.supervision.end_of_life(process, at.life);
        let is_kept = |it: &Stored| {
            it.holder == process
                && it.life < at.life
                && !history.context.volatile_storage
                && !history.supervision.may_have_lost(process, it.life, end)
        };
        let mut images = written(history, &durable, process, &lives);
        mark(&mut images, &durable, is_kept);
        if let Some(newest) = newest(&images).filter(|it| restored_name(history, at) < Some(*it)) {
            finding.violated([at], Breach::LogNotRestored { process, since: newest.position() });
        }
        check_delays(process, &lives, &images, finding);
    }
    let gone = history.supervision.gone(&history.context.clusters);
    for absorption in history.tasks.iter().flat_map(|it| &it.absorptions) {
        let (of, at) = (absorption.of, history.source(absorption.at));
        let lives = lives_before(history, of, Life(u32::MAX));
        if lives.is_empty() {
            continue;
        }
        finding.instances += 1;
        let mut images = written(history, &durable, of, &lives);
        check_delays(of, &lives, &images, finding);
        let end = history.supervision.end_of_life(at.process, at.life);
        let is_left = |it: &Stored| {
            !gone.contains(&it.holder) && !history.supervision.may_have_lost(it.holder, it.life, end)
        };
        let holders: BTreeSet<ProcessId> = durable.values().flatten().map(|it| it.holder).collect();
        let longest = holders.into_iter().filter_map(|holder| {
            mark(&mut images, &durable, |it| it.holder == holder && is_left(it));
            newest(&images)
        });
        if let Some(newest) = longest.max().filter(|it| absorption.image < Some(*it)) {
            finding.violated([at], Breach::LogNotAbsorbed { by: at.process, of, since: newest.position() });
        }
    }
}

/// An image in stable storage.
#[derive(Clone, Copy)]
struct Stored {
    holder: ProcessId,
    /// The holder's life in which the image became durable.
    life: Life,
    at: Time,
}

/// An image that a process has written: a checkpoint, or a segment of the log.
struct Written {
    name: ImageName,
    /// The life that wrote the image.
    life: Life,
    /// The number of the first fact of `life` that the image does not contain.
    upto: u64,
    at: Time,
    /// Whether the holder being examined has a durable copy of the image.
    is_durable: bool,
    /// The time by which the process knows that the image is durable in its own storage and at all holders; `None` if
    /// the image may never have become durable everywhere.
    complete: Option<Time>,
}

/// Returns, for each image, the processes at which it became durable, and when.
fn durable(history: &History<'_>) -> BTreeMap<ImageName, Vec<Stored>> {
    let mut all: BTreeMap<ImageName, Vec<_>> = BTreeMap::new();
    for (&(holder, life), stream) in &history.trace.streams {
        for &(at, ref fact) in stream {
            if let Fact::Durable(name) = fact {
                all.entry(*name).or_default().push(Stored { holder, life, at });
            }
        }
    }
    all
}

/// Returns all images that a process has written in these lives.
fn written(
    history: &History<'_>,
    durable: &BTreeMap<ImageName, Vec<Stored>>,
    process: ProcessId,
    lives: &[(Life, &Stream)],
) -> Vec<Written> {
    let context = history.context;
    let replicas = context.copies.map_or(0, |it| it.replicas as usize);
    let slowest = context.links.iter().map(|it| it.requested.latency + it.requested.jitter).max();
    let written = |life: Life, (at, fact): &(Time, Fact)| {
        let Fact::Saved(saved) = fact else { return None };
        let (name, witness, _) = **saved;
        if name.owner != process {
            return None;
        }
        let stored = durable.get(&name).map_or(&[][..], Vec::as_slice);
        let others: BTreeSet<ProcessId> =
            stored.iter().map(|it| it.holder).filter(|it| *it != process).collect();
        let is_durable = stored.iter().any(|it| it.holder == process);
        // The last holder's answer takes time to arrive.
        let answered = stored.iter().map(|it| it.at).max().map(|it| it + slowest.unwrap_or_default() * 2);
        Some(Written {
            name,
            life,
            upto: if witness.life == life { witness.upto.0 } else { 0 },
            at: *at,
            is_durable,
            complete: answered.filter(|_| is_durable && others.len() >= replicas),
        })
    };
    lives.iter().flat_map(|(life, stream)| stream.iter().filter_map(|it| written(*life, it))).collect()
}

/// Marks each image as durable if it has a copy for which `is_copy` returns `true`, and as not durable otherwise.
fn mark(
    images: &mut [Written],
    durable: &BTreeMap<ImageName, Vec<Stored>>,
    is_copy: impl Fn(&Stored) -> bool,
) {
    for image in images {
        image.is_durable = durable.get(&image.name).is_some_and(|it| it.iter().any(&is_copy));
    }
}

/// Returns the last image before the first gap in the newest log whose first image is durable. A log consists of a
/// checkpoint and the segments that follow it.
fn newest(images: &[Written]) -> Option<ImageName> {
    let mut logs: BTreeMap<_, BTreeMap<ImageName, bool>> = BTreeMap::new();
    for it in images {
        *logs.entry(it.name.position()).or_default().entry(it.name).or_default() |= it.is_durable;
    }
    let end = |log: &BTreeMap<ImageName, bool>| log.iter().take_while(|it| *it.1).last().map(|it| *it.0);
    logs.values().filter_map(end).next_back()
}

fn restored_name(history: &History<'_>, at: Source) -> Option<ImageName> {
    match &history.trace.streams[&(at.process, at.life)][at.number.0 as usize].1 {
        Fact::Restored(restored) => restored.0,
        _ => None,
    }
}

/// Checks that a process wrote its events immediately, in all lives that were not judged at an earlier restore.
fn check_delays(process: ProcessId, lives: &[(Life, &Stream)], images: &[Written], finding: &mut Findings) {
    for &(life, stream) in since_restored(lives) {
        if let Some((number, waited)) = too_late(life, stream, images) {
            let at = Source { process, life, number: FactNo(number) };
            finding.violated([at], Breach::EventNotWritten { process, waited });
        }
    }
}

/// Returns a task whose event in `life` remained unwritten for longer than any write took, and the time
/// elapsed.
fn too_late(life: Life, stream: &Stream, images: &[Written]) -> Option<(u64, Span)> {
    let images = || images.iter().filter(|it| it.life == life);
    let end = stream.last()?.0;
    let longest = images().filter_map(|it| Some(it.complete?.since(it.at))).max().unwrap_or_default();
    let ran = (0..).zip(stream).filter(|(_, (_, fact))| matches!(fact, Fact::Ran { .. }));
    for (number, (at, _)) in ran {
        let written = images().find(|it| it.upto > number).map_or(end, |it| it.at);
        // A write that may never have completed could have delayed others for any length of time.
        let is_held_back = images().any(|it| it.at <= written && it.complete.is_none());
        let waited = written.since(*at);
        if waited > longest + SLACK && !is_held_back {
            return Some((number, waited));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Promise, TaskId, Witness};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::tasks::TaskRun;

    /// Makes process 0 write a checkpoint and two segments of its log, and run a task after each. `durable`
    /// says which of these images `holder` stores. If `holder` is another process, process 0 stores all of
    /// them.
    fn write_log(run: &mut TaskRun, durable: [bool; 3], holder: u32) -> Vec<(ImageName, Witness)> {
        let mut images = Vec::new();
        for (attempt, is_durable) in (1..).zip(durable) {
            let name = ImageName { attempt: Attempt(attempt), ..run.0.image(0, 0, 1) };
            let witness = run.0.witness(0);
            run.state(0, Fact::Saved(Box::new((name, witness, 0))));
            if holder != 0 {
                run.0.durable(0, name);
            }
            if is_durable {
                run.0.wait(Span::from_millis(5));
                run.0.durable(holder, name);
            }
            images.push((name, witness));
            run.ran(0, TaskId::MAIN.child(attempt), 0);
        }
        images
    }

    /// Checks a process that writes a checkpoint and two segments of a log (`durable` says which become durable), waits
    /// for `wait`, runs a task, fails, and restores the image with the number `restored`.
    fn found(durable: [bool; 3], wait: Span, restored: usize) -> Vec<Breach> {
        let mut run = TaskRun::promising(1, &[Promise::EventsLogged]);
        run.0.context.common_clock = true;
        run.begin(0, 4);
        let images = write_log(&mut run, durable, 0);
        run.0.wait(wait);
        run.ran(0, TaskId::MAIN.child(0), 0);
        run.0.kill(0, false);
        run.restore(0, Some(images[restored]));
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    #[test]
    fn everything_durable_is_restored() {
        assert_eq!(found([true; 3], Span::ZERO, 2), []);
        let wrong = found([true; 3], Span::ZERO, 1);
        assert!(matches!(wrong[0], Breach::LogNotRestored { .. }), "{wrong:?}");
        // Nothing after a gap is restored.
        assert_eq!(found([true, false, true], Span::ZERO, 0), []);
    }

    #[test]
    fn events_are_written_immediately() {
        assert_eq!(found([true; 3], Span::from_millis(900), 2), []);
        let wrong = found([true; 3], Span::from_millis(1_100), 2);
        assert!(matches!(wrong[0], Breach::EventNotWritten { .. }), "{wrong:?}");
        // Earlier writes had not completed.
        assert_eq!(found([true, true, false], Span::from_millis(1_100), 1), []);
    }

    /// Checks the absorption, by process 1, of the image with the number `absorbed`. Process 0 has written a
    /// checkpoint and two segments of its log, and never returns. `durable` says which of these images
    /// process 1 stores.
    fn found_at_a_successor(durable: [bool; 3], wait: Span, absorbed: Option<usize>) -> Vec<Breach> {
        let mut run = TaskRun::promising(2, &[Promise::EventsLogged]);
        run.0.context.common_clock = true;
        run.begin(0, 4);
        let images = write_log(&mut run, durable, 1);
        run.0.wait(wait);
        run.ran(0, TaskId::MAIN.child(0), 0);
        run.lose_permanently(0);
        run.absorb(1, 0, absorbed.map(|it| images[it]));
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    #[test]
    fn a_successor_absorbs_the_whole_log_that_a_holder_stores() {
        let is_wrong = |durable, absorbed| {
            let wrong = found_at_a_successor(durable, Span::ZERO, absorbed);
            assert!(wrong.iter().all(|it| matches!(it, Breach::LogNotAbsorbed { .. })), "{wrong:?}");
            !wrong.is_empty()
        };
        assert!(!is_wrong([true; 3], Some(2)));
        assert!(is_wrong([true; 3], Some(1)));
        assert!(is_wrong([true, false, false], None));
        // Nothing after a gap is absorbed, and the storage of process 0 is lost with the process.
        assert!(!is_wrong([true, false, true], Some(0)));
        assert!(!is_wrong([false; 3], None));
    }

    #[test]
    fn a_process_that_never_returns_wrote_events_immediately() {
        let wrong = found_at_a_successor([true; 3], Span::from_millis(1_100), Some(2));
        assert!(matches!(wrong[..], [Breach::EventNotWritten { process: ProcessId(0), .. }]), "{wrong:?}");
    }

    /// Checks the first life of process 0. This life writes the log, waits for `wait`, runs a task, and fails. The next
    /// `lives` lives fail before they restore a state. Process 0 then returns if `returns`, and restores the image with
    /// the number `restored`; otherwise, process 1 absorbs that image.
    fn found_in_an_earlier_life(lives: u32, returns: bool, wait: Span, restored: usize) -> Vec<Breach> {
        let mut run = TaskRun::promising(2, &[Promise::EventsLogged]);
        run.0.context.common_clock = true;
        run.begin(0, 4);
        let images = write_log(&mut run, [true; 3], 1);
        run.0.wait(wait);
        run.ran(0, TaskId::MAIN.child(0), 0);
        for _ in 0..lives {
            run.0.kill(0, false);
            run.0.wait(Span::from_millis(1));
        }
        if returns {
            run.0.kill(0, false);
            run.restore(0, Some(images[restored]));
        } else {
            run.lose_permanently(0);
            run.absorb(1, 0, Some(images[restored]));
        }
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    #[test]
    fn a_life_that_failed_before_it_restored_a_state_hides_no_loss() {
        for lives in 0..3 {
            for returns in [false, true] {
                let found = |wait, restored| found_in_an_earlier_life(lives, returns, wait, restored);
                assert_eq!(found(Span::ZERO, 2), [], "{lives} {returns}");
                let wrong = found(Span::ZERO, 1);
                let is_short =
                    |it: &Breach| matches!(it, Breach::LogNotRestored { .. } | Breach::LogNotAbsorbed { .. });
                assert!(matches!(&wrong[..], [it] if is_short(it)), "{lives} {returns}: {wrong:?}");
                let wrong = found(Span::from_millis(1_100), 2);
                assert!(
                    matches!(wrong[..], [Breach::EventNotWritten { process: ProcessId(0), .. }]),
                    "{lives} {returns}: {wrong:?}"
                );
            }
        }
    }

    #[test]
    fn a_loss_is_found_once() {
        let mut run = TaskRun::promising(2, &[Promise::EventsLogged]);
        run.0.context.common_clock = true;
        run.begin(0, 4);
        let images = write_log(&mut run, [true; 3], 1);
        run.0.wait(Span::from_millis(1_100));
        run.ran(0, TaskId::MAIN.child(0), 0);
        run.0.kill(0, false);
        run.restore(0, Some(images[2]));
        run.lose_permanently(0);
        run.absorb(1, 0, Some(images[2]));
        let wrong = check_alone(&super::super::bounded_loss::RULE, &run.0).wrong::<Breach>();
        assert!(matches!(wrong[..], [Breach::EventNotWritten { .. }]), "{wrong:?}");
    }
}

//! Task-based programs on federations in the simulator: whatever fails, the result equals that of the sequential
//! reference.

mod cases;
mod defects;
mod evidence;
mod federation;

use faultline_core::fault::Outcome;
use faultline_core::{ClusterId, Fact, FactKind, Fault, ProcessId, Span, Target, Time, Trigger};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::queens::Queens;
use faultline_protocols::none::NoProtocol;
use faultline_protocols::{satin, theft};
use faultline_trace::Record;

use evidence::{named_differently, owned_twice, sent_too_early};
use federation::{Ended, Federation};

pub(crate) const TAU: Span = Span::from_millis(50);

/// A fault-tolerant protocol for task-based programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tic,
    Sel,
    Satin,
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Tic, Protocol::Sel, Protocol::Satin];

impl Protocol {
    pub(crate) fn run(self, federation: &Federation) -> Ended {
        let none = theft::Defects::default();
        match self {
            Protocol::Tic => federation.run::<theft::TaskRecovery>(tic(federation, none)),
            Protocol::Sel => federation.run::<theft::TaskRecovery>(sel(federation, none)),
            Protocol::Satin => {
                let mut federation = federation.clone();
                // Satin has no storage servers that could fail.
                let exists = |fault: &Fault| !matches!(fault.kills(), Some(Target::Process(it)) if it.0 >= federation.ranks());
                let faults = federation.faults.iter().filter(|it| exists(&it.1)).cloned().collect();
                federation.faults = faults;
                federation.run::<satin::Satin>(satin::Config::default())
            }
        }
    }
}

/// Returns parameters of TIC with the federation's number and location of replicas.
pub(crate) fn tic(federation: &Federation, defects: theft::Defects) -> theft::Config {
    let (replicas, replicate_to) = federation.copies;
    let before_asking = federation.seed.is_multiple_of(5);
    theft::Config {
        tau: TAU,
        record: theft::StableState::Graph,
        before_asking,
        replicas,
        replicate_to,
        defects,
    }
}

/// Returns parameters of SEL with the federation's number and location of replicas.
pub(crate) fn sel(federation: &Federation, defects: theft::Defects) -> theft::Config {
    theft::Config { record: theft::StableState::Events, ..tic(federation, defects) }
}

#[test]
fn without_faults_every_federation_computes_the_sequential_result() {
    let mut stolen = 0;
    for seed in 0..60 {
        let federation = Federation::random(seed, 0);
        let Ended { outcome, digests, thefts, .. } = federation.run::<NoProtocol>(());
        assert_eq!(outcome, Outcome::Completed, "seed {seed}");
        assert_eq!(digests, [federation.expected()], "seed {seed}");
        stolen += thefts;
    }
    assert!(stolen > 500, "processes steal tasks: {stolen} thefts");
}

#[test]
fn without_fault_tolerance_the_first_failure_ends_the_run() {
    let mut federation = Federation::random(3, 0);
    let trigger =
        Trigger::When { fact: FactKind::Ran, of: None, cluster: None, process: None, occurrence: 3 };
    let fault = Fault::crash(ProcessId(0));
    federation.faults.push((trigger, fault));
    let ended = federation.run::<NoProtocol>(());
    assert!(matches!(ended.outcome, Outcome::Unrecoverable { .. }), "{:?}", ended.outcome);
    assert!(ended.ended > Time::ZERO);
}

#[test]
fn a_cluster_that_joins_late_has_not_failed() {
    let program = Flow::Queens(Queens { n: 6, depth: 3, task_time: Span::from_millis(10) });
    let mut federation = Federation::new(3, vec![2, 2, 1], program);
    federation.joins.push((ClusterId(1), Span::from_millis(50)));
    // This cluster has not joined when the members of the other one are announced.
    federation.joins.push((ClusterId(2), Span::from_millis(100)));
    let ended = federation.run::<NoProtocol>(());
    assert_eq!((ended.outcome, &ended.digests[..]), (Outcome::Completed, &[federation.expected()][..]));
    let late = |it: &&Record| it.process.0 >= 2 && matches!(it.fact, Fact::Ran { .. });
    assert!(ended.facts.iter().any(|it| late(&it)), "the late processes steal tasks");
    // Once the late processes are present, the failure of one of them ends the run.
    let late = Some(ClusterId(1));
    let trigger =
        Trigger::When { fact: FactKind::Ran, of: None, cluster: late, process: None, occurrence: 1 };
    let fault = Fault::crash(ProcessId(2));
    federation.faults.push((trigger, fault));
    let ended = federation.run::<NoProtocol>(());
    assert!(matches!(ended.outcome, Outcome::Unrecoverable { .. }), "{:?}", ended.outcome);
}

/// The first seed and the number of seeds of the ordinary tests.
const FIRST: (u64, u64) = (0, 60);

#[test]
fn tic_survives_whatever_fails() {
    survives(Protocol::Tic, |seed| Federation::random(seed, 3), 20, FIRST);
}

#[test]
fn sel_survives_whatever_fails() {
    survives(Protocol::Sel, |seed| Federation::random(seed, 3), 20, FIRST);
}

#[test]
fn satin_survives_whatever_fails() {
    survives(Protocol::Satin, |seed| Federation::random(seed, 3), u64::MAX, FIRST);
}

#[test]
fn tic_survives_with_servers_late_clusters_and_bounds() {
    survives(Protocol::Tic, |seed| Federation::wide(seed, 3), 5, FIRST);
}

#[test]
fn sel_survives_with_servers_late_clusters_and_bounds() {
    survives(Protocol::Sel, |seed| Federation::wide(seed, 3), 5, FIRST);
}

#[test]
fn satin_survives_with_servers_late_clusters_and_bounds() {
    survives(Protocol::Satin, |seed| Federation::wide(seed, 3), u64::MAX, FIRST);
}

/// Asserts that every run has the correct result. At most one run in `of` may be unrecoverable.
fn survives(protocol: Protocol, federation: impl Fn(u64) -> Federation, of: u64, (from, count): (u64, u64)) {
    let (mut failed, mut lost, mut restored, mut absorbed, mut thefts) = (Vec::new(), Vec::new(), 0, 0, 0);
    for seed in from..from + count {
        let federation = federation(seed);
        let ended = protocol.run(&federation);
        restored += ended.restored;
        absorbed += ended.absorbed;
        thefts += ended.thefts;
        if matches!(ended.outcome, Outcome::Unrecoverable { .. }) {
            lost.push(seed);
        }
        let different = named_differently(&ended.facts);
        assert!(different.is_empty(), "seed {seed}: {different:?}");
        if !ended.is_right(federation.expected()) {
            failed.push((seed, format!("{:?}, {:?}", ended.outcome, ended.digests)));
        } else if protocol != Protocol::Satin {
            let early = sent_too_early(&ended.facts);
            let twice = owned_twice(&ended.facts).unwrap_or_default();
            if !early.is_empty() || !twice.is_empty() {
                failed.push((seed, format!("sent too early: {early:?}, owned twice: {twice:?}")));
            }
        }
    }
    println!(
        "{protocol:?}: {count} runs, {thefts} thefts, {restored} restored, {absorbed} absorbed, {} lost",
        lost.len()
    );
    assert!(thefts > 5 * count as usize && restored > 0 && absorbed > 0, "faults have an effect");
    assert!(lost.len() as u64 <= count / of, "{} runs lost everything: {lost:?}", lost.len());
    assert!(failed.is_empty(), "{} of {count}: {:#?}", failed.len(), &failed[..failed.len().min(20)]);
}

/// Returns the first seed and the number of seeds of the long tests. `FAULTLINE_SEEDS=FROM,COUNT` overrides them.
fn seeds() -> (u64, u64) {
    let asked = std::env::var("FAULTLINE_SEEDS").ok();
    let numbers = asked.as_deref().and_then(|it| it.split_once(','));
    numbers.and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?))).unwrap_or((0, 300))
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn tic_survives_with_many_seeds_whatever_fails() {
        survives(Protocol::Tic, |seed| Federation::random(seed, 3), 20, seeds());
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn sel_survives_with_many_seeds_whatever_fails() {
        survives(Protocol::Sel, |seed| Federation::random(seed, 3), 20, seeds());
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn satin_survives_with_many_seeds_whatever_fails() {
        survives(Protocol::Satin, |seed| Federation::random(seed, 3), u64::MAX, seeds());
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn tic_survives_with_many_seeds_servers_late_clusters_and_bounds() {
        survives(Protocol::Tic, |seed| Federation::wide(seed, 3), 5, seeds());
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn sel_survives_with_many_seeds_servers_late_clusters_and_bounds() {
        survives(Protocol::Sel, |seed| Federation::wide(seed, 3), 5, seeds());
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn satin_survives_with_many_seeds_servers_late_clusters_and_bounds() {
        survives(Protocol::Satin, |seed| Federation::wide(seed, 3), u64::MAX, seeds());
    }
}

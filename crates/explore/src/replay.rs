//! The facts of one run, and its judgement.

use std::sync::Arc;

use faultline_api::resource::Family;
use faultline_checker::{Context, Judgement, Property, Verdict};
use faultline_core::fault::{FaultState, Outcome, Panic};
use faultline_core::{Fact, FactNo, Life, PlannedFault, ProcessId, Span, Time, Trigger};
use faultline_session::{Recording, RunEnd, UnjudgedRecording};
use faultline_trace::{Manifest, Record, Sink, Trace};

use crate::bounds::Bounds;
use crate::search::Run;
use crate::state::{Choice, Choices, Witness};
use crate::subject::Subject;
use crate::tables::Tables;

/// A complete run with its judgement.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The manifest of the run.
    pub manifest: Manifest,
    /// The facts of the run. Each step takes a millisecond.
    pub trace: Trace,
    /// The steps until the federation is quiet, in words.
    pub steps: Vec<String>,
    /// The judgement of the checker.
    pub judgement: Judgement,
    /// Whether the run ended: all ranks finished, or the protocol declared a cluster unrecoverable or found that the
    /// program is not send-deterministic.
    pub has_ended: bool,
    /// Whether every run must end. False only under a protocol that runs message-passing applications and
    /// does not promise progress.
    must_end: bool,
}

impl Counterexample {
    /// Returns the violations, as sentences.
    pub fn violations(&self) -> Vec<String> {
        let findings = self.judgement.findings.iter().flat_map(|it| &it.violations);
        let stuck = (self.must_end && !self.has_ended).then(|| STUCK.to_owned());
        findings.map(|it| it.text.clone()).chain(stuck).collect()
    }

    /// Returns the violated properties.
    pub fn violated(&self) -> Vec<Property> {
        let mut violated: Vec<Property> = self.judgement.violated().collect();
        if self.must_end && !self.has_ended && !violated.contains(&Property::Progress) {
            violated.push(Property::Progress);
        }
        violated
    }

    fn run(&self) -> Run {
        // No fact of an exploration can be missing, so a violation holds even if the facts contradict each other.
        match self.judgement.verdict {
            _ if !self.violated().is_empty() => Run::Violating,
            Verdict::Pass => Run::Sound,
            Verdict::Unknown | Verdict::Fail => Run::Unknown,
        }
    }
}

/// Longer than any time limit of a federation.
const FOREVER: Span = Span::from_secs(10_000_000);

const STUCK: &str = "nothing is pending, and not all ranks have finished";

/// Repeats runs of an exploration, and judges them.
pub(crate) struct Replay<'a> {
    subject: &'a Subject,
    bounds: Bounds,
    must_end: bool,
}

impl Replay<'_> {
    pub(crate) fn new(subject: &Subject, bounds: Bounds) -> Replay<'_> {
        // Protocols for task-based programs do not promise when progress occurs, but every run must end.
        let must_end = subject.family == Family::Tasks
            || Property::Progress.is_judged(&Context::from_manifest(&subject.draft));
        Replay { subject, bounds, must_end }
    }

    /// Judges the run that these choices lead to.
    pub(crate) fn judge(&self, tables: &Tables, path: &[Choice]) -> Run {
        self.perform(tables, path, false).run()
    }

    /// Performs these choices, completes the run, and judges the result. Describes the steps if `is_described`.
    pub(crate) fn perform(&self, tables: &Tables, path: &[Choice], is_described: bool) -> Counterexample {
        let mut collector = FactCollector {
            trace: Trace::default(),
            now: Time::ZERO,
            is_described,
            steps: Vec::new(),
            outcome: None,
        };
        let mut state = self.subject.begun(&self.bounds, tables, &mut collector);
        collector.steps.clear();
        let mut choices = Choices::default();
        for &choice in path {
            state.find_choices(&self.bounds, tables, &mut choices);
            state.perform(choice, &choices, tables, &mut collector);
        }
        let steps = std::mem::take(&mut collector.steps);
        collector.is_described = false;
        let has_ended = state.complete(tables, &mut collector);
        let outcome = match (collector.outcome.take(), has_ended) {
            (Some(outcome), _) => outcome,
            (None, true) => {
                collector.tick();
                collector.states_one(Fact::Completed);
                Outcome::Completed
            }
            (None, false) => {
                // Events that have not happened by now never will.
                collector.now += FOREVER;
                Outcome::Deadline
            }
        };
        let mut draft = self.subject.draft.clone();
        draft.plan = injected(&collector.trace);
        // In some orders of the steps, a fault strikes nothing.
        draft.drawn = draft.plan.iter().map(|it| it.no).collect();
        draft.has_random_faults = false;
        let end = RunEnd {
            outcome,
            added: Vec::new(),
            faults: draft.plan.iter().map(|it| (it.no, FaultState::Effective)).collect(),
            effects: Vec::new(),
            pressure: None,
            links: None,
            duration: collector.now.since(Time::ZERO),
            waiting: Vec::new(),
            program: None,
        };
        let silent: Vec<_> = collector.trace.started().collect();
        for life in silent {
            collector.trace.streams.entry(life).or_default();
        }
        let run = UnjudgedRecording::of_ended(draft, end, collector.trace);
        let Recording { manifest, trace, judgement } = run.judge();
        Counterexample { manifest, trace, steps, judgement, has_ended, must_end: self.must_end }
    }
}

/// Returns the plan by which a supervisor would have injected the faults of a run at the same times.
fn injected(trace: &Trace) -> Vec<PlannedFault> {
    let facts = trace.supervisor();
    let begun = facts.iter().find(|(_, fact)| *fact == Fact::Begun).map_or(Time::ZERO, |(at, _)| *at);
    let planned = |(at, fact): &(Time, Fact)| match fact {
        Fact::Injecting { no, fault } => {
            let trigger = Trigger::At(Time::ZERO + at.since(begun));
            Some(PlannedFault { no: *no, trigger, fault: (**fault).clone(), reported: None, cause: None })
        }
        _ => None,
    };
    facts.iter().filter_map(planned).collect()
}

/// Collects the reported facts. Each step takes a millisecond.
struct FactCollector {
    trace: Trace,
    now: Time,
    /// Whether to describe the steps.
    is_described: bool,
    steps: Vec<String>,
    /// How the run has ended, if it has.
    outcome: Option<Outcome>,
}

impl FactCollector {
    fn tick(&mut self) {
        self.now += Span::from_millis(1);
    }

    fn states_one(&mut self, fact: Fact) {
        let (process, life) = (ProcessId::SUPERVISOR, Life(0));
        let number = FactNo(self.trace.supervisor().len() as u64);
        self.trace.record(Record { process, life, number, at: self.now, fact });
    }
}

impl Witness for FactCollector {
    fn states(&mut self, process: ProcessId, life: Life, facts: &[Fact]) {
        let facts_key = self.trace.streams.get(&(process, life)).map_or(0, Vec::len) as u64;
        for (number, fact) in (facts_key..).map(FactNo).zip(facts) {
            self.trace.record(Record { process, life, number, at: self.now, fact: fact.clone() });
        }
    }

    fn steps(&mut self, text: impl FnOnce() -> String) {
        self.tick();
        if self.is_described {
            self.steps.push(text());
        }
    }

    fn ends(&mut self, outcome: &Outcome) {
        // A process has a clock of its own, which advances only when a deadline expires.
        self.outcome.get_or_insert_with(|| match outcome {
            Outcome::Panicked(panic) => {
                Outcome::Panicked(Arc::new(Panic { at: self.now, ..(**panic).clone() }))
            }
            other => other.clone(),
        });
    }
}

//! The run was as the federation expects (`expect`). The figures are those that reports show; the history compares them
//! with their limits.

use faultline_core::{Ending, ProcessId};
use faultline_history::expected::{Met, assess, not_ready_again, unpermitted_exits};
use faultline_history::{Context, History};

use super::Rule;
use crate::finding::{Findings, Worded};
use crate::property::Property;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NotMet { expected: String, measured: String },
    Exited { process: ProcessId, ending: Ending },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match self {
            Breach::NotMet { expected, measured } => format!("expected {expected}, but measured {measured}"),
            Breach::Exited { process, ending } => {
                format!("the command of {} ended by itself: {ending}", names.process(*process))
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::Expected, "the run was as expected", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.context.system.is_some() && history.context.expectations.is_empty() {
        finding.unjudged("nothing about this system was asserted", "add what you expect of it (`expect`)");
    }
    for (source, ending) in unpermitted_exits(history) {
        finding.violated([source], Breach::Exited { process: source.process, ending: ending.clone() });
    }
    for (process, life) in not_ready_again(history) {
        let name = history.context.process(process);
        finding.remark(format!("{name} was not ready again when the run ended, in {life}"));
    }
    for it in assess(history) {
        finding.instances += 1;
        let expected = it.expected;
        match (it.met, it.unknown) {
            (Met::No, _) => {
                let measured = it.measured.unwrap_or_else(|| "nothing".to_owned());
                finding.violated([], Breach::NotMet { expected, measured });
            }
            (_, Some(unknown)) => {
                let reason = format!("expected {expected}, but {}", unknown.reason);
                match unknown.lacks_facts {
                    true => finding.inconclusive(reason, unknown.remedy),
                    false => finding.unjudged(reason, unknown.remedy),
                }
            }
            (Met::Yes | Met::Unknown, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Observation;
    use faultline_core::fault::Outcome;
    use faultline_core::{Fact, Span, Time, WatchNo};
    use faultline_trace::expectation::{Expectation, SystemEntry};

    use super::*;
    use crate::testing::{Run, check_alone, finds};

    fn run(expectations: &[Expectation]) -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.context.expectations = expectations.to_vec();
        run.context.outcome = Some(Outcome::Completed);
        run.supervisor(Fact::Begun);
        run.send(0, 1);
        run.context.end = Time::ZERO + Span::from_secs(5);
        run
    }

    #[test]
    fn a_system_of_which_nothing_is_asserted_does_not_pass_and_a_command_must_not_end() {
        let exits = |ending: Ending, system: SystemEntry| {
            let mut run = run(&[]);
            run.context.system = Some(system);
            run.state(1, Fact::Observed(Box::new(Observation::Exited { ending, said: "".into() })));
            check_alone(&RULE, &run)
        };
        let finding = exits(Ending::Exit(3), SystemEntry::default());
        assert!(finding.gap().starts_with("nothing about this system was asserted"), "{}", finding.gap());
        finds!(finding, Breach::Exited { ending: Ending::Exit(3), .. });
        let may_exit = || SystemEntry { may_exit: vec![ProcessId(1)], ..SystemEntry::default() };
        let may_finish = || SystemEntry { may_finish: vec![ProcessId(1)], ..SystemEntry::default() };
        for (ending, system, violations) in [
            (Ending::Signal(11), may_exit(), 0),
            (Ending::Exit(0), may_finish(), 0),
            (Ending::Exit(1), may_finish(), 1),
        ] {
            assert_eq!(exits(ending, system).violation_count(), violations);
        }
    }

    #[test]
    fn a_node_that_did_not_become_ready_again_is_mentioned() {
        let mut run = run(&[]);
        run.context.system = Some(SystemEntry::default());
        for process in [0, 1] {
            run.state(process, Fact::Observed(Box::new(Observation::Ready)));
        }
        assert_eq!(check_alone(&RULE, &run).remarks, [] as [String; 0]);
        run.next_life(1);
        let line = Observation::Logged { watch: WatchNo(0), line: "recovering".into() };
        run.state(1, Fact::Observed(Box::new(line)));
        let expected = "p1 was not ready again when the run ended, in life 2";
        assert_eq!(check_alone(&RULE, &run).remarks, [expected]);
        run.state(1, Fact::Observed(Box::new(Observation::Ready)));
        assert_eq!(check_alone(&RULE, &run).remarks, [] as [String; 0]);
    }

    #[test]
    fn an_expectation_that_is_not_met_violates_and_one_that_is_not_judged_leaves_a_gap() {
        assert_eq!(check_alone(&RULE, &run(&[])).instances, 0);
        let finished = |within| Expectation::FinishedWithin(Span::from_secs(within));
        let finding = check_alone(&RULE, &run(&[finished(5), Expectation::Rollbacks { at_most: 0 }]));
        assert_eq!((finding.instances, finding.violation_count(), finding.gap()), (2, 0, String::new()));
        let run = run(&[finished(4), Expectation::RecoveredWithin(Span::from_secs(1))]);
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::NotMet { .. });
        let text = finding.wrong::<Breach>()[0].sentence(&run.context);
        assert_eq!(text, "expected the end within 4.00 s, but measured 5.00 s");
        assert_eq!(
            finding.gap(),
            "expected recovery within 1.00 s, but no process failed; plan a fault that ends a process, or omit the \
             expectation"
        );
    }
}

//! The run was as the federation expects (`expect`). The figures are those that reports show; the history compares them
//! with their limits.

use faultline_core::{Ending, ProcessId};
use faultline_history::expected::{
    About, Assessment, Met, NOT_STARTED, assess, exits, log_of, not_ready_again,
};
use faultline_history::{Context, History};

use faultline_trace::expectation::SystemEntry;

use super::Rule;
use crate::finding::{Findings, Worded};
use crate::property::Property;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq)]
enum Breach {
    NotMet { kind: u8, expected: String, measured: String, said: Option<String> },
    CheckFailed { expected: String, measured: String, said: Option<String>, log: Option<String> },
    Exited { process: ProcessId, ending: Ending, said: Option<String>, log: String },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match self {
            Breach::NotMet { expected, measured, said, .. } => {
                let said = said.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
                format!("expected {expected}, but measured {measured}{said}")
            }
            Breach::CheckFailed { expected, measured, said, log } => {
                let log = log.as_ref().map(|it| format!("; see {it}")).unwrap_or_default();
                match said {
                    Some(said) => format!("{said} (expected {expected}, but measured {measured}{log})"),
                    None => format!("expected {expected}, but measured {measured}{log}"),
                }
            }
            Breach::Exited { process, ending, said, log } => {
                let said = said.as_ref().map(|it| format!("; its last line: {it}")).unwrap_or_default();
                format!(
                    "the command of {} ended by itself: {ending}{said}; see {log}",
                    names.process(*process)
                )
            }
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Breach::CheckFailed { .. } => About::Check.kind(0),
            Breach::Exited { .. } => About::Exits.kind(0),
            Breach::NotMet { kind, .. } => *kind,
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::Expected, "the run was as expected", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    let asserts_nothing =
        |it: &SystemEntry| it.histories.is_empty() && history.context.expectations.is_empty();
    if history.context.system.as_ref().is_some_and(asserts_nothing) {
        finding.unjudged(
            "nothing about this system was asserted",
            "add what you expect of it (`expect`), or `clients`",
        );
    }
    let mut all = assess(history);
    finding.instances = all.len() as u64;
    all.sort_by_key(|it| it.about);
    let (checks, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.about == About::Check);
    judge(checks, finding);
    for it in exits(history) {
        if let Ending::Impossible(why) = it.ending {
            let name = history.context.process(it.source.process);
            finding.also_unjudged(format!("the command of {name}: {why}"), NOT_STARTED, false);
            continue;
        }
        if it.is_permitted {
            continue;
        }
        let (process, ending, said) = (it.source.process, it.ending.clone(), it.said);
        let log = log_of(history, process, it.source.life);
        finding.violated([it.source], Breach::Exited { process, ending, said, log });
    }
    judge(others, finding);
    for (process, life) in not_ready_again(history) {
        let name = history.context.process(process);
        finding.remark(format!("{name} was not ready again when the run ended, in {life}"));
    }
}

/// Judges expectations, which are sorted by what they are about. Records the first reason of each kind why one could not be
/// judged.
fn judge(all: Vec<Assessment>, finding: &mut Findings) {
    let mut open = None;
    for (index, it) in all.into_iter().enumerate() {
        let Assessment { about, expected, said, log, sources, .. } = it;
        match (it.met, it.unknown) {
            (Met::No, _) => {
                let measured = it.measured.unwrap_or_else(|| "nothing".to_owned());
                finding.violated(
                    sources,
                    match about {
                        About::Check => Breach::CheckFailed { expected, measured, said, log },
                        _ => Breach::NotMet { kind: about.kind(index), expected, measured, said },
                    },
                );
            }
            (_, Some(unknown)) if open != Some(about.kind(index)) => {
                open = Some(about.kind(index));
                let said = said.filter(|_| !sources.is_empty()).map(|it| format!(" ({it})"));
                let reason =
                    format!("expected {expected}, but {}{}", unknown.reason, said.unwrap_or_default());
                finding.also_unjudged(reason, unknown.remedy, unknown.lacks_facts);
            }
            (Met::Yes | Met::Unknown, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Observation;
    use faultline_core::fault::Outcome;
    use faultline_core::{CheckNo, Fact, Span, Time, WatchNo};
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
        let line = Observation::Logged {
            watch: WatchNo(0),
            line: "recovering".into(),
            log_line: 0,
            is_error: false,
            groups: [].into(),
        };
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

    /// Adds the result of the check with this number.
    fn checks(run: &mut Run, check: u16, ending: Ending, said: &str) {
        let (check, latency) = (CheckNo(check), Span::from_millis(20));
        run.state(
            1,
            Fact::Observed(Box::new(Observation::Checked { check, latency, ending, said: said.into() })),
        );
    }

    fn check_expected(text: &str, check: u16) -> Expectation {
        let (check, by, within) = (CheckNo(check), ProcessId(1), Span::from_secs(60));
        Expectation::Check { check, text: text.into(), by, within }
    }

    #[test]
    fn reasons_of_all_kinds_are_given_and_that_of_a_check_comes_first() {
        let mut run = run(&[
            Expectation::FinishedWithin(Span::from_secs(1)),
            Expectation::FinishedWithin(Span::from_secs(2)),
            check_expected("no write is lost", 0),
            check_expected("all agree", 1),
        ]);
        run.context.system = Some(SystemEntry::default());
        run.state(
            0,
            Fact::Observed(Box::new(Observation::Exited {
                ending: Ending::Exit(3),
                said: "no config".into(),
            })),
        );
        checks(&mut run, 0, Ending::Exit(1), "read 198 of 200\nlost 17 and 18\n");
        checks(&mut run, 1, Ending::Exit(1), "");
        let reasons = crate::judge(&run.trace, &run.context).reasons;
        let expected = [
            "read 198 of 200 / lost 17 and 18 (expected success of check \"no write is lost\", but measured exit status 1 \
             after 20.0 ms; see logs/p1-1.log) (and 1 more of this kind)",
            "the command of p0 ended by itself: exit status 3; its last line: no config; see logs/p0-1.log",
            "expected the end within 1.00 s, but measured 5.00 s (and 1 more of this kind)",
        ];
        assert_eq!(reasons[..3], expected);
    }

    #[test]
    fn no_number_of_violations_hides_another_kind() {
        let exits = |run: &mut Run| {
            let said = "".into();
            run.state(0, Fact::Observed(Box::new(Observation::Exited { ending: Ending::Exit(3), said })));
        };
        let mut run = run(&[Expectation::FinishedWithin(Span::from_secs(1))]);
        run.context.system = Some(SystemEntry::default());
        (0..30).for_each(|_| exits(&mut run));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.violation_count(), finding.violations.len()), (31, 21));
        let reasons = finding.first_violations(&run.context);
        assert!(reasons[0].ends_with("(and 29 more of this kind)"), "{reasons:?}");
        assert_eq!(reasons[1], "expected the end within 1.00 s, but measured 5.00 s");
    }

    #[test]
    fn a_check_that_cannot_tell_is_unknown_and_quoted_and_hides_no_other_reason() {
        let recovered = Expectation::RecoveredWithin(Span::from_secs(1));
        let mut run = run(&[recovered, check_expected("no write is lost", 0)]);
        checks(&mut run, 0, Ending::Exit(75), "cannot connect\n");
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        let reason = "expected success of check \"no write is lost\", but exit status 75 (cannot tell) after 20.0 ms: \
                      cannot connect; ";
        assert!(finding.gap().starts_with(reason), "{}", finding.gap());
        let [other] = &finding.also_open[..] else { panic!("{:?}", finding.also_open) };
        assert!(
            other.text.starts_with("expected recovery within 1.00 s, but no process failed"),
            "{}",
            other.text
        );
    }
}

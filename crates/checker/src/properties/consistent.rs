//! The answers to clients do not contradict the model of the data, at the level that the federation states.

use faultline_core::FactKind;
use faultline_history::clients::ClientHistory;
use faultline_history::{Context, History};
use faultline_trace::duration::lasted;

use super::Rule;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::words::count;

/// The maximum number of keys or clients that a reason lists.
const LISTED: usize = 3;

/// A kind of anomaly in a history, with its first case.
#[derive(Clone, Debug, PartialEq)]
struct Breach {
    index: u8,
    history: String,
    model: String,
    kind: &'static str,
    sentence: String,
    cases: usize,
    /// The last fault before the end of the first case, and how long before.
    fault: Option<String>,
    help: Option<&'static str>,
}

impl Worded for Breach {
    fn sentence(&self, _: &Context) -> String {
        let Breach { history, model, kind, sentence, cases, .. } = self;
        let fault = self.fault.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
        let more = if *cases > 1 { format!(" (one of {cases} cases)") } else { String::new() };
        let help = self.help.map(|it| format!("; {it}")).unwrap_or_default();
        format!("{history} ({model}): {kind}: {sentence}{more}{fault}{help}")
    }

    fn kind(&self) -> u8 {
        self.index
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::Consistent,
    "the answers to clients do not contradict the model of their data",
    check,
)
.needs(&[FactKind::Invoked, FactKind::Concluded]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut index = 0;
    for it in history.clients() {
        finding.instances += it.len() as u64;
        violations(history, it, &mut index, finding);
        open(it, finding);
    }
}

fn violations(history: &History<'_>, it: &ClientHistory, index: &mut u8, finding: &mut Findings) {
    let name = &it.entry.name;
    let model = format!("{}, {}", it.judgement.model, it.judgement.level);
    for anomaly in &it.judgement.anomalies {
        let Some(case) = anomaly.cases.first() else { continue };
        let fault = it
            .fault_before(history, case)
            .map(|(no, before)| format!("fault {no} had taken effect {} before", lasted(before)));
        let breach = Breach {
            index: *index,
            history: name.clone(),
            model: model.clone(),
            kind: anomaly.kind,
            sentence: case.sentence.clone(),
            cases: anomaly.count,
            fault,
            help: anomaly.help,
        };
        *index = index.saturating_add(1);
        finding.violated(it.sources_of(case), breach);
    }
    let is_violated = !it.judgement.anomalies.is_empty();
    if let Some(strongest) =
        it.judgement.strongest.filter(|level| is_violated && *level != it.judgement.level)
    {
        finding.remark(format!("the strongest level that {name} does not contradict is `{strongest}`"));
    }
}

/// Records why a history, or a part of it, could not be judged.
fn open(it: &ClientHistory, finding: &mut Findings) {
    let name = &it.entry.name;
    if let Some((_, why, times)) = &it.broken {
        let reason = match times {
            1 => format!("a client of {name} broke its contract {why}"),
            times => format!("clients of {name} broke their contract {times} times, the first {why}"),
        };
        finding.also_unjudged(reason, "correct the program (docs/histories.md describes its lines)", false);
    }
    for doubt in &it.judgement.doubts {
        finding.also_unjudged(format!("{name} could not be judged: {}", doubt.what), &doubt.help, true);
    }
    if !it.unread.is_empty() && !it.is_empty() {
        let mut listed = it.unread.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
        if it.unread.len() > LISTED {
            listed = format!("{listed} and {} more", it.unread.len() - LISTED);
        }
        let (what, whom) = match it.unread[0].starts_with("client") {
            true => ("read everything in the end", format!("{listed} of {name} did not")),
            false => ("read in the end", format!("{listed} of {name} was not")),
        };
        let help = "see why in the log of the node, or let the run end later, so that the system can recover";
        finding.also_unjudged(format!("{whom} {what}"), help, true);
    }
    for kind in it.kinds.iter().filter(|kind| kind.ok == 0) {
        let operations = count((kind.failed + kind.unknown + kind.missed) as u64, "operation");
        let is_doubted =
            it.judgement.doubts.iter().any(|doubt| doubt.what.contains(&format!("`{}`", kind.name)));
        if !is_doubted {
            let reason = format!("no `{}` of {name} was answered (of {operations})", kind.name);
            finding.also_unjudged(reason, "see why in the log of the node, or omit this kind in `mix`", true);
        }
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::operation::{Answer, Call, Completion, FINAL};
    use faultline_history::testing::clients::{KEY, serving};

    use super::*;
    use crate::judge;
    use crate::testing::{Run, check_alone};

    fn number(value: i64) -> Completion {
        Completion::Ok(Answer::Number(value))
    }

    fn null() -> Completion {
        Completion::Ok(Answer::Null)
    }

    /// A client writes 1 and 2, and then another one reads.
    fn read(found: i64, finds: impl FnOnce(&mut Run)) -> Findings {
        let mut run = serving(&["read", "write"]);
        run.operate(0, 1, Call::Write(KEY, 1), null());
        run.wait_until(20);
        run.operate(0, 2, Call::Write(KEY, 2), null());
        run.kill(0, false);
        run.wait_until(40);
        run.operate(1, 3, Call::Read(KEY), number(found));
        finds(&mut run);
        run.supervisor(faultline_core::Fact::Completed);
        check_alone(&RULE, &run)
    }

    fn last_read(run: &mut Run) {
        run.wait_until(1000);
        run.operate(0, FINAL, Call::Read(KEY), number(2));
    }

    #[test]
    fn answers_that_an_order_explains_are_consistent() {
        let found = read(2, last_read);
        assert_eq!((found.violations.len(), found.instances), (0, 4));
        assert!(found.open.is_none(), "{:?}", found.open);
    }

    #[test]
    fn a_stale_read_is_a_violation_with_the_last_fault_and_its_facts() {
        let found = read(1, last_read);
        let names = serving(&[]).context;
        let [(what, evidence)] = &found.violations[..] else { panic!("{:?}", found.violations) };
        assert_eq!(
            what.sentence(&names),
            "kv (register, linearizable): stale: no order of the operations on k0 explains that client 1 read 1: \
             2 had replaced it"
        );
        let numbers: Vec<u64> = evidence.iter().map(|it| it.number.0).collect();
        assert_eq!(numbers, [0, 2, 4]);
        assert_eq!(found.remarks, ["the strongest level that kv does not contradict is `session`"]);
    }

    #[test]
    fn what_was_not_judged_is_unknown() {
        let open = |found: &Findings| found.open.as_ref().map(|it| it.text.clone()).unwrap_or_default();
        let found = read(2, |_| {});
        assert!(open(&found).starts_with("k0 of kv was not read in the end; "), "{}", open(&found));
        let found = read(2, |run| {
            run.operate(0, 5, Call::Read(KEY), Completion::Broken("replied with no JSON object: hi".into()));
            last_read(run);
        });
        let why = "a client of kv broke its contract at `read`: replied with no JSON object: hi; correct the program";
        assert!(open(&found).starts_with(why), "{}", open(&found));
        // A write without a result may have replaced 2, or not.
        let found = read(2, |run| {
            run.operate(0, 5, Call::Write(KEY, 5), Completion::Unknown("timed out".into()));
            last_read(run);
        });
        assert_eq!((found.violations.len(), open(&found).as_str()), (0, ""));
    }

    #[test]
    fn a_kind_that_was_never_answered_is_unknown() {
        let mut run = serving(&["read", "write"]);
        run.operate(0, 1, Call::Read(KEY), null());
        run.wait_until(100);
        run.operate(0, 2, Call::Write(KEY, 2), Completion::Failed("refused".into()));
        run.operate(0, FINAL, Call::Read(KEY), null());
        let found = check_alone(&RULE, &run);
        let open = found.open.as_ref().map(|it| it.text.clone()).unwrap_or_default();
        assert!(open.contains("no `write` was answered"), "{open}");
        assert_eq!(found.also_open.len(), 0, "it is stated once");
    }

    #[test]
    fn a_system_with_clients_needs_no_other_assertion() {
        let mut run = serving(&["read"]);
        run.operate(0, 1, Call::Read(KEY), null());
        run.operate(0, FINAL, Call::Read(KEY), null());
        run.supervisor(faultline_core::Fact::Completed);
        let judgement = judge(&run.trace, &run.context);
        assert!(!judgement.reasons.iter().any(|it| it.contains("asserted")), "{:?}", judgement.reasons);
    }

    #[test]
    fn a_missing_fact_makes_a_violation_doubtful() {
        let mut run = serving(&["read"]);
        // The record lacks the write of 7.
        run.operate(0, 1, Call::Read(KEY), number(7));
        run.lose_evidence(1);
        let judgement = judge(&run.trace, &run.context);
        assert!(judgement.of(Property::Consistent).is_doubtful);
        assert_ne!(judgement.verdict, crate::Verdict::Fail);
    }
}

//! The code of no process panicked. A panic ends the run.

use std::sync::Arc;

use faultline_core::fault::{Handled, Outcome, Panic};
use faultline_core::{ImageName, ProcessId};
use faultline_history::{Context, History};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    Panicked(Arc<Panic>),
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::Panicked(panic) = self;
        let Panic { process, at, handled, message, place, .. } = &**panic;
        let (process, at) = (names.process(*process), at.as_secs_f64());
        format!(
            "{process} panicked at {at:.2} s while it handled {}: {message} ({place})",
            input(*handled, names)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::NoPanic, "no process panicked", check).with(&[Aspect::NeedsNoOtherFact]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let lives = history.trace.streams.keys().filter(|(process, _)| *process != ProcessId::SUPERVISOR);
    finding.instances = lives.count() as u64;
    if let Some(panicked) = at_end(history.context) {
        // A life that panics at its start has recorded no facts.
        finding.instances = finding.instances.max(1);
        finding.violated([], panicked);
    }
}

/// Returns the panic with which the run ended.
pub(super) fn at_end(context: &Context) -> Option<impl Worded + use<>> {
    match context.outcome.as_ref()? {
        Outcome::Panicked(panic) => Some(Breach::Panicked(panic.clone())),
        _ => None,
    }
}

/// Names an input of a process.
pub(super) fn input(handled: Handled, names: &Context) -> String {
    let part = |it: ImageName| names.names.part_in_sentence(it);
    match handled {
        Handled::Start => "its start".into(),
        Handled::Message(id) => names.message(id),
        Handled::Control { from } => format!("a message of the protocol from {}", names.process(from)),
        Handled::Image { from, name } => format!("{} from {}", part(name), names.process(from)),
        Handled::Persisted(name) => format!("the end of the write of {}", part(name)),
        Handled::PersistFailed(name) => format!("the failed write of {}", part(name)),
        Handled::Read(name) => format!("the answer to its read of {}", part(name)),
        Handled::Listed => "the list of its stored parts".into(),
        Handled::Recorded => "the end of the write of its record".into(),
        Handled::Membership => "a new membership".into(),
        Handled::Result(no) => format!("the result of {no}"),
        Handled::Job(no) => format!("{no} of the application"),
        Handled::Timeout => "a timeout".into(),
        Handled::Flip => "the order to flip a bit".into(),
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Life, Time};

    use super::*;
    use crate::judgement::Evidence;
    use crate::testing::{Run, check_alone, finds, p};
    use faultline_core::fault::{Flip, FlipTarget, Impairment};
    use faultline_core::{Fact, Fault, FaultNo};

    #[test]
    fn a_panic_is_a_violation() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "one life has recorded facts");
        let (message, place) = (Arc::from("index out of bounds"), Arc::from("src/lib.rs:7:1"));
        let (process, life, at, handled) = (p(1), Life(1), Time(3_000_000_000), Handled::Message(id));
        let panic = Arc::new(Panic { process, life, at, handled, message, place });
        run.context.outcome = Some(Outcome::Panicked(panic));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::Panicked(_));
        let text = finding.wrong::<Breach>()[0].sentence(&run.context);
        for part in ["panicked at 3.00 s", "index out of bounds", "(src/lib.rs:7:1)", "while it handled"] {
            assert!(text.contains(part), "{text}");
        }

        assert_eq!(Evidence::of(&run.history()), Evidence::Whole);
        for (target, evidence) in
            [(FlipTarget::Copy, Evidence::Whole), (FlipTarget::Message, Evidence::Corrupted)]
        {
            let how = Impairment::Flip(Flip { target, bit: 7 });
            let fault = Box::new(Fault::Impair { process: p(1), how, span: None });
            run.supervisor(Fact::Injecting { no: FaultNo(0), fault });
            assert_eq!(
                Evidence::of(&run.history()),
                evidence,
                "the receiver may have panicked because of it"
            );
        }
    }
}

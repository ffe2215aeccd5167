//! Changes that users make to a running federation: determined by comparing specs, and passed to the run.

use std::sync::{Mutex, PoisonError};

use faultline_api::live::changes;
use faultline_api::supervision::{Amended, Amendment};
use faultline_api::{Federation, Problem};
use faultline_runtime::supervise::ChangeQueue;

/// Compares each spec with the last accepted one, and asks the run to apply the differences.
pub(crate) struct Amender {
    change_queue: ChangeQueue,
    state: Mutex<AmendState>,
}

struct AmendState {
    /// The federation with the last accepted spec. Its changes may not be in effect yet.
    federation: Federation,
    /// The outcome of the newest spec, which may have been refused.
    newest: Amendment,
}

impl Amender {
    /// Creates an amender for a run that started with this file and reads from `change_queue`. `note` is the last
    /// accepted spec as recorded in the journal, if any.
    pub(crate) fn new(federation: &Federation, note: Option<&str>, change_queue: ChangeQueue) -> Amender {
        let mut state = AmendState { federation: federation.clone(), newest: Amendment::default() };
        if let Some(taken) = note.and_then(|it| serde_json::from_str::<Amended>(it).ok()) {
            state.federation.spec = taken.spec;
            state.newest = Amendment { generation: taken.generation, refused: None };
        }
        Amender { change_queue, state: Mutex::new(state) }
    }

    /// Returns the outcome of the newest spec; `None` if none has arrived since the run started with its file.
    pub(crate) fn newest(&self) -> Option<Amendment> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(state.newest.clone()).filter(|it| it.generation > 0)
    }

    /// Accepts or refuses a spec, unless this generation or a newer one is known. Returns the outcome of the newest
    /// spec.
    pub(crate) fn amend(&self, said: Amended) -> Amendment {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if said.generation <= state.newest.generation {
            return state.newest.clone();
        }
        let note = serde_json::to_string(&said).expect("a spec can be written as JSON");
        let federation = Federation { spec: said.spec, ..state.federation.clone() };
        let refused = match changes(&state.federation, &federation) {
            Ok(changes) => {
                self.change_queue.ask(changes, Some(note));
                state.federation = federation;
                None
            }
            Err(problems) => Some(problems.iter().map(problem_text).collect::<Vec<_>>().join("; ")),
        };
        state.newest = Amendment { generation: said.generation, refused };
        state.newest.clone()
    }
}

fn problem_text(problem: &Problem) -> String {
    format!("{}: {} ({})", problem.path, problem.message, problem.help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_api::samples::SAMPLES;

    #[test]
    fn a_refused_spec_changes_nothing() {
        let file = faultline_api::parse("quickstart", SAMPLES[0].text.as_bytes()).expect("a valid sample");
        let amender = Amender::new(&file, None, ChangeQueue::default());
        let say = |generation, change: fn(&mut faultline_api::FederationSpec)| {
            let mut spec = file.spec.clone();
            change(&mut spec);
            amender.amend(Amended { generation, spec })
        };
        assert_eq!(say(1, |_| {}), Amendment { generation: 1, refused: None });
        let refused = say(2, |spec| spec.faults.clear());
        assert!(refused.refused.as_ref().is_some_and(|it| it.contains("spec.faults")), "{refused:?}");
        assert_eq!(say(2, |_| {}), refused, "a repeated request has the same outcome");
        assert_eq!(say(1, |_| {}), refused, "an older spec is ignored");
        assert_eq!(say(3, |spec| spec.pause = true), Amendment { generation: 3, refused: None });
        let no_such_node = |spec: &mut faultline_api::FederationSpec| {
            let mut fault = spec.faults[0].clone();
            fault.crash.as_mut().expect("it is a crash").node = Some(99);
            spec.faults.push(fault);
        };
        assert!(say(4, no_such_node).refused.is_some(), "there is no such node");
        assert_eq!(say(5, |_| {}), Amendment { generation: 5, refused: None }, "the change was withdrawn");
        assert_eq!(amender.state.lock().unwrap().federation.spec.faults, file.spec.faults);
    }
}

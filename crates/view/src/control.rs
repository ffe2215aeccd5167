//! Faults and pauses that a user adds to a run in progress. They take the same way as changes to a federation on
//! Kubernetes: they become part of the federation, whose rules decide whether they are permitted.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faultline_api::live::changes;
use faultline_api::quantity;
use faultline_api::resource::FaultSpec;
use faultline_api::{Federation, Names, Problem};
use faultline_core::fault::Change;
use faultline_core::{Fact, Span, Time, Trigger};
use faultline_trace::RunNames;
use faultline_trace::duration::instant;
use faultline_trace::fault::entry_of;

/// The maximum number of changes in [`WINDOW`].
const MOST_CHANGES: usize = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Changes a run in progress.
pub struct Control {
    state: Mutex<ControlState>,
    names: RunNames,
    /// Time from a request until the fault is due.
    due_after: Span,
    ask: Box<Ask>,
}

/// Passes changes to the supervisor, given the changed federation. Fails with the reason.
type Ask = dyn Fn(&Federation, Vec<Change>) -> Result<(), String> + Send + Sync;

struct ControlState {
    /// The federation with all changes accepted so far.
    federation: Federation,
    clock: RunClock,
    /// The times of the last changes that were accepted.
    recent: VecDeque<Instant>,
}

/// The time since the application began, without pauses, as the supervisor counts it.
#[derive(Clone, Copy, Debug, Default)]
struct RunClock {
    /// The start of the application, plus the length of all pauses that have ended.
    origin: Option<Time>,
    paused: Option<Time>,
    now: Time,
}

/// The reason why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The application has not begun.
    #[error("The application has not begun.")]
    NotBegun,
    /// The change is not permitted.
    #[error("{0}")]
    Invalid(String),
    /// The change could not be passed on.
    #[error("{0}")]
    Failed(String),
    /// Too many changes were made.
    #[error("At most {MOST_CHANGES} changes in 10 s are accepted. Try again later.")]
    TooMany,
}

impl Control {
    /// Creates a control of a run of this federation. `ask` passes changes to the supervisor, given the changed federation.
    /// Added faults are due after the time `due_after`.
    pub fn new(
        federation: Federation,
        due_after: Span,
        ask: impl Fn(&Federation, Vec<Change>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Control {
        let names = RunNames {
            processes: Names::of(&federation.spec).processes(),
            clusters: federation.spec.clusters.iter().map(|it| it.name.clone()).collect(),
            ..RunNames::default()
        };
        let state = ControlState { federation, clock: RunClock::default(), recent: VecDeque::new() };
        Control { state: Mutex::new(state), names, due_after, ask: Box::new(ask) }
    }

    /// Takes note of a fact that the supervisor recorded.
    pub fn recorded(&self, at: Time, fact: &Fact) {
        self.lock().clock.recorded(at, fact);
    }

    /// Takes note of the supervisor's time.
    pub fn passed(&self, now: Time) {
        self.lock().clock.now = now;
    }

    /// Takes note of the time since the application began, without pauses. For runs whose supervisor reports only this.
    pub fn elapsed(&self, elapsed: Span) {
        self.lock().clock = RunClock { origin: Some(Time::ZERO), paused: None, now: Time::ZERO + elapsed };
    }

    /// Adds the fault that `content` describes, as JSON: an entry of `faults` without a trigger. Returns what the user is
    /// told.
    ///
    /// # Errors
    ///
    /// Fails if the fault is not permitted at present.
    pub fn add_fault(&self, content: &[u8]) -> Result<String, Refused> {
        let fault: FaultSpec =
            serde_json::from_slice(content).map_err(|it| Refused::Invalid(format!("{it}.")))?;
        if let [(name, _), ..] = fault.triggers()[..] {
            let text = format!("The fault is due at once: `{name}` must not be set.");
            return Err(Refused::Invalid(text));
        }
        let mut state = self.lock();
        let due = state.clock.elapsed().ok_or(Refused::NotBegun)? + self.due_after;
        // The entry is short in whole milliseconds.
        let due = Span(due.0.next_multiple_of(1_000_000));
        let fault = FaultSpec { at: Some(quantity::Duration(due)), ..fault };
        let accepted = self.change(&mut state, |federation| federation.spec.faults.push(fault))?;
        let mut text = String::new();
        for change in &accepted {
            if let Change::Fault(planned) = change {
                let at = match planned.trigger {
                    Trigger::At(at) => instant(at.as_secs_f64()),
                    Trigger::When { .. } => continue,
                };
                let entry = entry_of(planned, &self.names);
                let _ = writeln!(text, "Fault {} is due at {at}:\n{entry}", planned.no.0);
            }
        }
        Ok(text.trim_end().to_owned())
    }

    /// Pauses or resumes the run, as `content` says: `{"pause": true}`.
    ///
    /// # Errors
    ///
    /// Fails if this is not permitted at present.
    pub fn pause(&self, content: &[u8]) -> Result<String, Refused> {
        let content: serde_json::Value = serde_json::from_slice(content).unwrap_or_default();
        let Some(pause) = content.get("pause").and_then(serde_json::Value::as_bool) else {
            return Err(Refused::Invalid("`pause` must be true or false.".to_owned()));
        };
        let mut state = self.lock();
        state.clock.elapsed().ok_or(Refused::NotBegun)?;
        self.change(&mut state, |federation| federation.spec.pause = pause)?;
        Ok(if pause { "The run pauses.".to_owned() } else { "The run resumes.".to_owned() })
    }

    /// Passes on the changes of the run that correspond to a change of the federation, and returns them.
    fn change(
        &self,
        state: &mut ControlState,
        change: impl FnOnce(&mut Federation),
    ) -> Result<Vec<Change>, Refused> {
        while state.recent.front().is_some_and(|it| it.elapsed() > WINDOW) {
            state.recent.pop_front();
        }
        if state.recent.len() >= MOST_CHANGES {
            return Err(Refused::TooMany);
        }
        let mut federation = state.federation.clone();
        change(&mut federation);
        let accepted = changes(&state.federation, &federation)
            .map_err(|problems| Refused::Invalid(problems.iter().map(said).collect::<Vec<_>>().join("\n")))?;
        (self.ask)(&federation, accepted.clone()).map_err(Refused::Failed)?;
        state.federation = federation;
        state.recent.push_back(Instant::now());
        Ok(accepted)
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn said(problem: &Problem) -> String {
    format!("{}: {}; {}.", problem.path, problem.message, problem.help)
}

impl RunClock {
    fn recorded(&mut self, at: Time, fact: &Fact) {
        self.now = self.now.max(at);
        let Fact::Changed(change) = fact else {
            if *fact == Fact::Begun {
                self.origin = Some(at);
            }
            return;
        };
        match (&**change, self.paused, self.origin) {
            (Change::Pause(true), None, _) => self.paused = Some(at),
            (Change::Pause(false), Some(since), origin) => {
                self.origin = origin.map(|it| it + at.since(since));
                self.paused = None;
            }
            _ => {}
        }
    }

    /// Returns the time since the application began; `None` before that.
    fn elapsed(&self) -> Option<Span> {
        Some(self.paused.unwrap_or(self.now).since(self.origin?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use faultline_api::plan;
    use faultline_api::samples::sample;

    use super::*;

    fn quickstart() -> Federation {
        let text = sample("quickstart").expect("the sample exists").text;
        faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid")
    }

    /// Returns a control of the quick start, and the changes that it passed on.
    fn control() -> (Control, Arc<Mutex<Vec<Change>>>) {
        let asked = Arc::<Mutex<Vec<Change>>>::default();
        let to = asked.clone();
        let ask = move |_: &Federation, changes| {
            to.lock().unwrap().extend(changes);
            Ok(())
        };
        (Control::new(quickstart(), Span::from_millis(300), ask), asked)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_fault_is_due_soon_after_the_request() {
        let (control, asked) = control();
        let crash = br#"{"crash": {"process": "paris-1", "storage": "lost"}}"#;
        assert_eq!(control.add_fault(crash), Err(Refused::NotBegun));
        control.recorded(at(400), &Fact::Begun);
        control.passed(at(2400));
        let known = plan(&quickstart(), quickstart().spec.seed()).len();
        let entry = "- { at: 2300ms, crash: { process: paris-1, storage: lost } }";
        assert_eq!(control.add_fault(crash), Ok(format!("Fault {known} is due at 2.30 s:\n{entry}")));
        // Pauses do not count.
        assert_eq!(control.pause(br#"{"pause": true}"#), Ok("The run pauses.".to_owned()));
        control.recorded(at(2500), &Fact::Changed(Box::new(Change::Pause(true))));
        control.passed(at(9000));
        let lost = control.add_fault(br#"{"loseCluster": {"cluster": "rennes"}}"#).unwrap();
        assert!(lost.ends_with("- { at: 2400ms, loseCluster: { cluster: rennes } }"), "{lost}");
        control.recorded(at(9500), &Fact::Changed(Box::new(Change::Pause(false))));
        control.passed(at(10_000));
        let paused = control.add_fault(br#"{"pause": {"process": "paris-0", "for": "1s"}}"#).unwrap();
        assert!(paused.ends_with("- { at: 2900ms, pause: { process: paris-0, for: 1s } }"), "{paused}");
        assert_eq!(asked.lock().unwrap().len(), 4);
    }

    #[test]
    fn what_the_federation_does_not_permit_is_refused() {
        let (control, asked) = control();
        control.recorded(at(400), &Fact::Begun);
        let refused = |content: &str| control.add_fault(content.as_bytes()).unwrap_err().to_string();
        assert!(refused("{").contains("EOF"), "{}", refused("{"));
        assert!(refused(r#"{"crash": {"process": "nancy-1"}}"#).contains("nancy-1"));
        assert!(refused(r#"{"at": "1s", "crash": {"process": "paris-1"}}"#).contains("`at` must not be set"));
        assert!(refused(r#"{"steal": {}}"#).contains("steal"));
        let none = control.pause(b"{}").unwrap_err().to_string();
        assert!(none.contains("true or false"), "{none}");
        for _ in 0..2 * MOST_CHANGES {
            assert!(
                refused(r#"{"crash": {"process": "nancy-1"}}"#).contains("nancy-1"),
                "refusals do not count"
            );
        }
        for number in 0..MOST_CHANGES {
            let pause = format!(r#"{{"pause": {}}}"#, number % 2 == 0);
            control.pause(pause.as_bytes()).unwrap();
        }
        assert_eq!(control.pause(br#"{"pause": true}"#), Err(Refused::TooMany));
        assert_eq!(asked.lock().unwrap().len(), MOST_CHANGES);
    }

    #[test]
    fn a_change_that_cannot_be_passed_on_is_not_made() {
        let control = Control::new(quickstart(), Span::from_millis(5000), |federation, _| {
            if federation.spec.pause { Err("forbidden".to_owned()) } else { Ok(()) }
        });
        control.elapsed(Span::from_millis(1500));
        assert_eq!(control.pause(br#"{"pause": true}"#), Err(Refused::Failed("forbidden".to_owned())));
        let fault = control.add_fault(br#"{"crash": {"process": "paris-1"}}"#).unwrap();
        assert!(fault.contains("due at 6.50 s"), "{fault}");
    }

    #[test]
    fn an_entry_has_the_meaning_of_its_fault() {
        let file = r"
            - { at: 1500ms, crash: { process: paris-1, storage: lost } }
            - { at: 2s, loseCluster: { cluster: rennes } }
            - { at: 1234us, pause: { process: rennes-0, for: 1s } }
            - { at: 3s, slow: { process: paris-0, by: 2.5, for: 1s } }
            - { at: 3s, slowStorage: { process: paris-0, by: 10ms } }
            - { at: 3s, fullStorage: { process: paris-0, for: 100ms } }
            - { at: 3s, corruptStorage: { process: paris-0 } }
            - { at: 3s, link: { from: paris, to: rennes, latency: 20ms, jitter: 1ms, bandwidth: 8Mbit, loss: 0.5%, for: 2s } }
            - { at: 4s, partition: { from: paris, to: rennes, oneWay: true, for: 300ms } }
            - { at: 4s, partition: { from: rennes, to: paris, for: 300ms } }
            - { when: { fact: checkpointCommitted, cluster: paris, occurrence: 3 }, crash: { process: paris-2 } }";
        let with = |faults: &str| {
            let mut value = serde_json::to_value(quickstart()).unwrap();
            value["spec"]["faults"] = serde_json::Value::Array(Vec::new());
            let text = faultline_api::to_yaml(&serde_json::from_value(value).unwrap());
            let text = text.lines().filter(|it| !it.contains("faults:")).collect::<Vec<_>>().join("\n");
            let text = format!("{text}\n  faults:\n{faults}\n");
            let federation = faultline_api::parse("test", text.as_bytes());
            federation.unwrap_or_else(|it| panic!("{it}\n{text}"))
        };
        let indent = |lines: &str| {
            let lines = lines.lines().filter(|it| !it.trim().is_empty());
            lines.map(|it| format!("    {}\n", it.trim())).collect::<String>()
        };
        let federation = with(&indent(file));
        let planned = plan(&federation, 1);
        let names = Control::new(federation, Span::ZERO, |_, _| Ok(())).names;
        let entries: String = planned.iter().map(|it| format!("{}\n", entry_of(it, &names))).collect();
        assert_eq!(plan(&with(&indent(&entries)), 1), planned, "{entries}");
    }
}

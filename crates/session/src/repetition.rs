//! Comparison of a recorded run with a repetition in virtual time.

use std::time::{Duration, UNIX_EPOCH};

use faultline_api::parse;
use faultline_catalog::SetupError;
use faultline_core::fault::Outcome;
use faultline_core::{Fact, FactNo, Life, ProcessId, Time};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Flaw, FlawKind, Trace};

use crate::{Session, Simulator, UnjudgedRecording};

/// The reason why a recorded run cannot be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RepetitionError {
    /// Something other than the federation and the seed affected the run.
    #[error("the run was not simulated, so its federation and its seed do not determine its facts")]
    NotSimulated,
    /// The run ended for a reason outside the federation.
    #[error(
        "the run was interrupted or reached a memory limit, so its federation and its seed do not determine how it ended"
    )]
    CutShort,
    /// The federation file of the record is invalid.
    #[error("the record's federation.yaml cannot be used: {0}")]
    Federation(String),
    /// The federation of the record cannot be set up.
    #[error("the record's federation.yaml cannot be used: {0}")]
    Setup(#[from] SetupError),
    /// The repetition ended for a reason outside the federation.
    #[error("the repeated simulation was interrupted or reached the memory limit")]
    RepetitionCutShort,
}

impl UnjudgedRecording {
    /// Simulates the run again, and compares the facts and the end of both runs. A different end, and each stream that
    /// differs, becomes a flaw of the trace and makes the verdict `unknown`. A simulated run depends only on its
    /// federation, its seed and the version of this program.
    ///
    /// # Errors
    ///
    /// Fails if the recorded run was not simulated or did not end by itself, if its federation cannot be set up, or if
    /// the repetition is cut short.
    pub fn compare_with_repetition(&mut self, simulator: &mut Simulator<'_>) -> Result<(), RepetitionError> {
        let manifest = &self.manifest;
        if manifest.backend != BackendKind::Simulate {
            return Err(RepetitionError::NotSimulated);
        }
        if is_cut_short(manifest.outcome.as_ref()) {
            return Err(RepetitionError::CutShort);
        }
        let federation = parse("federation.yaml", manifest.federation.as_bytes())
            .map_err(|it| RepetitionError::Federation(it.to_string()))?;
        let started = UNIX_EPOCH + Duration::from_millis(manifest.started_unix_ms);
        let session = Session::new(&federation).seed(manifest.seed).of_text(&manifest.federation, started);
        let repeated = session.simulate(simulator)?;
        if is_cut_short(repeated.manifest.outcome.as_ref()) {
            return Err(RepetitionError::RepetitionCutShort);
        }
        let end = |it: &UnjudgedRecording| (it.manifest.outcome.clone(), it.manifest.duration);
        if end(self) != end(&repeated) {
            let text = "the run and its repetition ended differently".to_owned();
            self.trace.flaws.push(Flaw { stream: None, kind: FlawKind::Contradiction(text) });
        }
        let differences = differences(&self.trace, &repeated.trace);
        self.trace.flaws.extend(differences);
        Ok(())
    }

    /// Starts the program that is the application of the run, computes the results of a run without faults again, and
    /// compares them with the recorded ones. A difference becomes a flaw of the trace, and the results are not judged.
    ///
    /// # Errors
    ///
    /// Fails if the federation of the record cannot be set up.
    pub fn compare_expected(&mut self) -> Result<(), RepetitionError> {
        let Some(recorded) = &self.manifest.expected else { return Ok(()) };
        let federation = parse("federation.yaml", self.manifest.federation.as_bytes())
            .map_err(|it| RepetitionError::Federation(it.to_string()))?;
        let expected = Session::new(&federation).seed(self.manifest.seed).expected()?;
        if expected.as_ref() != Some(recorded) {
            let text = "the program computes other expected results than those in the record".to_owned();
            self.trace.flaws.push(Flaw { stream: None, kind: FlawKind::Contradiction(text) });
            self.manifest.expected = None;
        }
        Ok(())
    }
}

/// Returns whether a run ended for a reason outside its federation, or has no recorded end.
fn is_cut_short(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, None | Some(Outcome::Interrupted | Outcome::OutOfMemory(_)))
}

/// Returns a flaw for each stream that differs from the repetition's.
fn differences(recorded: &Trace, repeated: &Trace) -> Vec<Flaw> {
    let mut lives: Vec<_> = recorded.streams.keys().chain(repeated.streams.keys()).copied().collect();
    lives.sort_unstable();
    lives.dedup();
    let difference = |life| {
        let (recorded, repeated) = (facts(recorded, life), facts(repeated, life));
        let is_same = |(recorded, repeated): &(_, _)| recorded == repeated;
        let same = recorded.iter().zip(repeated).take_while(is_same).count();
        (same < recorded.len().max(repeated.len()))
            .then_some(Flaw { stream: Some(life), kind: FlawKind::NotRepeated(FactNo(same as u64)) })
    };
    lives.into_iter().filter_map(difference).collect()
}

fn facts(trace: &Trace, life: (ProcessId, Life)) -> &[(Time, Fact)] {
    trace.streams.get(&life).map_or(&[], |it| it)
}

#[cfg(test)]
mod tests {
    use faultline_core::Span;

    use super::*;

    fn simulated(name: &str) -> UnjudgedRecording {
        let text = faultline_api::samples::sample(name).unwrap().text;
        let federation = parse(name, text.as_bytes()).unwrap();
        let session = Session::new(&federation).of_text(text, UNIX_EPOCH);
        session.simulate(&mut Simulator::new(&mut ())).unwrap()
    }

    fn flaws(mut run: UnjudgedRecording) -> Result<Vec<Flaw>, RepetitionError> {
        run.compare_with_repetition(&mut Simulator::new(&mut ()))?;
        Ok(run.trace.flaws)
    }

    #[test]
    fn a_repetition_has_the_same_facts() {
        for name in ["quickstart", "hydee", "tic"] {
            assert_eq!(flaws(simulated(name)).unwrap(), [], "{name}");
        }
    }

    #[test]
    fn every_difference_is_found() {
        let run = simulated("quickstart");
        let (&life, stream) = run.trace.streams.iter().next().unwrap();
        let last = stream.len() as u64 - 1;

        let mut cut = run.clone();
        cut.trace.streams.get_mut(&life).unwrap().pop();
        let flaw = |kind| vec![Flaw { stream: Some(life), kind }];
        assert_eq!(flaws(cut).unwrap(), flaw(FlawKind::NotRepeated(FactNo(last))));

        let mut changed = run.clone();
        let (at, _) = &mut changed.trace.streams.get_mut(&life).unwrap()[5];
        *at += Span(1);
        assert_eq!(flaws(changed).unwrap(), flaw(FlawKind::NotRepeated(FactNo(5))));

        let mut absent = run.clone();
        absent.trace.streams.remove(&life);
        assert_eq!(flaws(absent).unwrap(), flaw(FlawKind::NotRepeated(FactNo(0))));

        let mut longer = run.clone();
        longer.manifest.duration = longer.manifest.duration + Span(1);
        assert!(matches!(&flaws(longer).unwrap()[..], [Flaw { stream: None, .. }]));

        let mut other_seed = run;
        other_seed.manifest.seed += 1;
        assert!(flaws(other_seed).unwrap().len() > 1);
    }

    #[test]
    fn only_simulations_that_ended_by_themselves_are_repeated() {
        let run = simulated("quickstart");
        let mut real = run.clone();
        real.manifest.backend = BackendKind::Local;
        assert!(matches!(flaws(real), Err(RepetitionError::NotSimulated)));
        for outcome in [None, Some(Outcome::Interrupted)] {
            let mut cut = run.clone();
            cut.manifest.outcome = outcome;
            assert!(matches!(flaws(cut), Err(RepetitionError::CutShort)));
        }
        let mut invalid = run;
        invalid.manifest.federation = "kind: Federation".into();
        assert!(matches!(flaws(invalid), Err(RepetitionError::Federation(_))));
    }
}

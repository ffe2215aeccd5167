//! Runs on real processes for the page of a reproduction, a small federation beside the simulator and ping-pong, and for a
//! comparison of protocols.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_api::resource::{Forcing, Protocol};
use faultline_core::Time;
use faultline_experiments::compare::Made;
use faultline_experiments::reproduce::Interrupted;
use faultline_experiments::reproduce::hydee::calibration::{Predicted, Real};
use faultline_experiments::reproduce::hydee::ping_pong::{Played, Setting, progress};
use faultline_experiments::reproduce::reality::{FEDERATION, Pair, Told};

use crate::arguments::{BackendName, Format, LinksName, OutputArguments, RunArguments};
use crate::kubernetes::KubernetesArguments;
use crate::progress::Progress;
use crate::recording::Recording;
use crate::run::Session;
use crate::trouble::Trouble;

/// Runs it with the first `seeds` seeds on both. The records stay in `out`.
pub(crate) fn beside_the_simulator(
    seeds: u64,
    out: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Pair>, Trouble> {
    let federation = faultline_api::parse("reality", FEDERATION.as_bytes())
        .map_err(|rejected| Trouble::input(*rejected))?;
    let mut progress = Progress::new();
    let mut pairs = Vec::new();
    for seed in 1..=seeds {
        progress.show(|| format!("real processes beside the simulator ({} of {seeds} seeds done)", seed - 1));
        let run = |backend, on: &str| {
            let arguments = quietly(backend);
            let session = Session::new(&arguments, &federation, FEDERATION, interrupted.clone())?;
            let dir = place(out, &format!("{on}-{seed}"))?;
            session.once(seed, &dir).map(|recording| told(&recording))
        };
        let (real, simulated) = (run(BackendName::Local, "real")?, run(BackendName::Simulate, "simulated")?);
        if interrupted.load(Ordering::Relaxed) {
            return Err(Trouble::machine("interrupted: nothing was written but records of runs"));
        }
        pairs.push(Pair { seed, real, simulated });
    }
    Ok(pairs)
}

/// Plays ping-pong so often in each setting, the settings in turn, so that what disturbs the machine for a while disturbs
/// all alike. The records stay in `out`.
pub(crate) fn ping_pong(
    runs: u32,
    rounds: u32,
    out: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Played>, Trouble> {
    let mut shown = Progress::new();
    let mut all = Vec::new();
    for (run, setting) in (1..=runs).flat_map(|run| Setting::ALL.map(|it| (run, it))) {
        shown.show(|| progress(all.len(), runs as usize * Setting::ALL.len()));
        let text = setting.text(rounds);
        let federation = faultline_api::parse("ping-pong", text.as_bytes())
            .map_err(|rejected| Trouble::input(*rejected))?;
        let arguments = quietly(BackendName::Local);
        let session = Session::new(&arguments, &federation, &text, interrupted.clone())?;
        let dir = place(out, &format!("ping-pong-{setting:?}-{run}").to_lowercase())?;
        let recording = session.once(run.into(), &dir)?;
        if interrupted.load(Ordering::Relaxed) {
            return Err(Trouble::machine("interrupted: nothing was written but records of runs"));
        }
        let played = Played::of(setting, rounds, recording.recorded().trace);
        all.push(played.ok_or_else(|| {
            Trouble::machine(format!("ping-pong did not come to its end: see {}", dir.display()))
        })?);
    }
    Ok(all)
}

/// Makes the runs that are to be predicted, so often, in turn. The records stay in `out`.
pub(crate) fn predicted(runs: u32, out: &Path, interrupted: &Arc<AtomicBool>) -> Result<Real, Trouble> {
    let mut shown = Progress::new();
    let mut real =
        Real { cores: std::thread::available_parallelism().map_or(1, NonZero::get), ..Real::default() };
    for run in 1..=runs {
        for (predicted, seconds) in Predicted::ALL.into_iter().zip(&mut real.seconds) {
            shown.show(|| format!("{} on real processes (turn {run} of {runs})", predicted.name()));
            let text = predicted.text();
            let federation = faultline_api::parse("messages", text.as_bytes())
                .map_err(|rejected| Trouble::input(*rejected))?;
            let arguments = quietly(BackendName::Local);
            let session = Session::new(&arguments, &federation, &text, interrupted.clone())?;
            let dir = place(out, &format!("{}-{run}", predicted.name()))?;
            let recording = session.once(run.into(), &dir)?;
            if interrupted.load(Ordering::Relaxed) {
                return Err(Trouble::machine("interrupted: nothing was written but records of runs"));
            }
            seconds.push(recording.made(&federation).seconds().ok_or_else(|| {
                Trouble::machine(format!("a run did not come to its end: see {}", dir.display()))
            })?);
        }
    }
    Ok(real)
}

/// Makes the runs of a comparison on real processes. The records stay in `out`.
pub(crate) struct Compared<'a> {
    out: &'a Path,
    interrupted: &'a Arc<AtomicBool>,
    /// Why there are no more runs.
    pub(crate) trouble: Option<Trouble>,
}

impl<'a> Compared<'a> {
    pub(crate) fn new(out: &'a Path, interrupted: &'a Arc<AtomicBool>) -> Compared<'a> {
        Compared { out, interrupted, trouble: None }
    }

    /// One run, judged like any other.
    pub(crate) fn run(&mut self, federation: &Federation, seed: u64) -> Result<Made, Interrupted> {
        self.record(federation, seed).map_err(|trouble| {
            self.trouble = Some(trouble);
            Interrupted
        })
    }

    fn record(&self, federation: &Federation, seed: u64) -> Result<Made, Trouble> {
        let text = faultline_api::to_yaml(federation);
        let arguments = quietly(BackendName::Local);
        let session = Session::new(&arguments, federation, &text, self.interrupted.clone())?;
        let faults = if federation.spec.faults.is_empty() { "calm" } else { "faults" };
        // Two protocols of a comparison can be the same one with other options.
        let forces_always = matches!(&federation.spec.protocol, Protocol::Hc3i(it) if it.forcing == Some(Forcing::EveryMessage));
        let every = if forces_always { "-every-message" } else { "" };
        let protocol = federation.spec.protocol.name();
        let dir = place(self.out, &format!("{protocol}{every}-{faults}-{seed}"))?;
        let recording = session.once(seed, &dir)?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Trouble::machine("interrupted: no page was written, but records of runs"));
        }
        Ok(recording.made(federation))
    }
}

/// Where the record of a run goes; one of an evaluation that was made here before is removed.
fn place(out: &Path, name: &str) -> Result<PathBuf, Trouble> {
    let dir = out.join("processes").join(name);
    if dir.join("manifest.json").exists() {
        std::fs::remove_dir_all(&dir)
            .map_err(|error| Trouble::path("replace", &dir, error, "name another directory with `--out`"))?;
    }
    Ok(dir)
}

fn quietly(backend: BackendName) -> RunArguments {
    RunArguments {
        file: None,
        backend,
        links: LinksName::InNode,
        seed: None,
        repeat: 1,
        keep: true,
        out: None,
        record: false,
        metrics: None,
        output: OutputArguments { format: Format::Text, quiet: true, verbose: 0 },
        cluster: KubernetesArguments::default(),
    }
}

fn told(recording: &Recording) -> Told {
    let recorded = recording.recorded();
    let begun = recorded.trace.begun().map_or(0.0, Time::as_secs_f64);
    Told::of(&recording.account(), recorded.manifest.duration.as_secs_f64() - begun)
}

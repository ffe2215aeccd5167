//! Runs of a small federation on real processes and in virtual time, for the page of a reproduction.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_core::Fact;
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
            let dir = out.join("processes").join(format!("{on}-{seed}"));
            // Of an evaluation that was made here before.
            if dir.join("manifest.json").exists() {
                std::fs::remove_dir_all(&dir).map_err(|error| {
                    Trouble::path("replace", &dir, error, "name another directory with `--out`")
                })?;
            }
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
    let begun = recorded.trace.supervisor().iter().find(|(_, fact)| *fact == Fact::Begun);
    let begun = begun.map_or(0.0, |(at, _)| at.as_secs_f64());
    Told::of(&recording.account(), recorded.manifest.duration.as_secs_f64() - begun)
}

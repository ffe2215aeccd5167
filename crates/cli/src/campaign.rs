//! Campaigns: pods on a Kubernetes cluster perform parts of many runs, each of them with `faultline part`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use faultline_console::campaign::{self, Campaign, FEDERATION, INDEX, MOST_PARTS, NUMBERS};
use miette::miette;
use serde::Serialize;

use crate::arguments::{Arguments, Command, ComparedOn, PartArguments, SimulatedOn};
use crate::command_error::CommandError;
use crate::plugin;
use crate::run::without_effect;

/// The time that one part should take.
pub(crate) const PART: Duration = Duration::from_secs(300);
/// The directory of a campaign in that of `--out`.
pub(crate) const PARTS: &str = "parts";

/// Runs that can be divided among pods.
#[derive(Debug)]
pub(crate) struct Divisible<'a> {
    /// The text of the federation file, if the runs need one.
    pub(crate) federation: Option<&'a str>,
    /// The number of runs.
    pub(crate) runs: u64,
    /// The number of pieces into which the runs can be divided.
    pub(crate) pieces: u64,
    /// The time that a run takes on one core.
    pub(crate) run: Duration,
    /// The directory for the campaign and its results.
    pub(crate) dir: &'a Path,
    pub(crate) quiet: bool,
    /// Whether the first violation that a pod finds ends the campaign.
    pub(crate) first_found: bool,
}

/// Rejects options that the backend would ignore.
pub(crate) fn check_options(parts: &PartArguments, is_on_cluster: bool) -> Result<(), CommandError> {
    match parts.workers.first() {
        Some(option) if !is_on_cluster => Err(without_effect(option, "kubernetes")),
        _ if is_on_cluster && (parts.part.is_some() || !parts.gather.is_empty()) => {
            Err(CommandError::input(miette!(
                help = "omit `--part` and `--gather`, or omit `--backend kubernetes`",
                "`--backend kubernetes` already divides the runs into parts and gathers their results"
            )))
        }
        _ => Ok(()),
    }
}

/// Lets pods perform runs, which `identity` determines. Returns the files with their results.
pub(crate) fn perform(
    runs: &Divisible<'_>,
    identity: &impl Serialize,
    parts: &PartArguments,
    interrupted: &AtomicBool,
) -> Result<Vec<PathBuf>, CommandError> {
    let dir = runs.dir;
    let identity = Campaign::identity(identity);
    let known = Campaign::read(dir)?;
    let known = known.filter(|it| {
        it.identity == identity
            && it.version == env!("CARGO_PKG_VERSION")
            && parts.workers.count.is_none_or(|count| it.parts == count)
    });
    let campaign = match known {
        Some(known) => known,
        None => {
            remove(dir)?;
            let campaign = Campaign {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                arguments: std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()).collect(),
                identity,
                runs: runs.runs,
                parts: parts.workers.count.unwrap_or_else(|| runs.parts(parts.workers.workers())),
            };
            campaign.write(dir, runs.federation)?;
            campaign
        }
    };
    plugin::campaign(dir, &parts.workers, runs, interrupted)?;
    let files = (1..=campaign.parts).map(|it| Campaign::results(dir, it));
    Ok(files.filter(|it| it.exists()).collect())
}

/// Removes the directory of a campaign, if it exists.
pub(crate) fn remove(dir: &Path) -> Result<(), CommandError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(CommandError::machine(format!("cannot remove {}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

impl Divisible<'_> {
    /// Returns the number of parts: each takes about five minutes, unless some of the pods would then have no work.
    fn parts(&self, workers: u32) -> u32 {
        let timed = (self.run.as_secs_f64() * self.runs as f64 / PART.as_secs_f64()).ceil();
        (timed as u64).max(workers.into()).min(self.pieces).clamp(1, MOST_PARTS.into()) as u32
    }
}

/// Returns the arguments with which this program performs the part of a pod, which `dir` describes.
pub(crate) fn of_pod(dir: &Path) -> Result<Arguments, CommandError> {
    let absent = |what: &str| {
        let help = "`--backend kubernetes` starts this command in pods";
        CommandError::input(miette!(help = help, "{} does not describe a part: {what}", dir.display()))
    };
    let campaign = Campaign::read(dir)?.ok_or_else(|| absent("there is no campaign"))?;
    if campaign.version != env!("CARGO_PKG_VERSION") {
        return Err(CommandError::input(miette!(
            help = format!("use `--image` with an image of version {}", campaign.version),
            "the image of the pods contains version {} of Faultline; the campaign was started with version {}",
            env!("CARGO_PKG_VERSION"),
            campaign.version
        )));
    }
    let numbers: Option<Vec<u32>> = campaign::read(&dir.join(NUMBERS))?;
    let index: Option<usize> = std::env::var(INDEX).ok().and_then(|it| it.parse().ok());
    let number = numbers.zip(index).and_then(|(numbers, index)| numbers.get(index).copied());
    let part = number.and_then(|it| campaign.part(it).parse().ok());
    let part = part.ok_or_else(|| absent(&format!("{INDEX} or {NUMBERS} is missing or invalid")))?;
    let words = ["faultline"].into_iter().chain(campaign.arguments.iter().map(String::as_str));
    let mut arguments = Arguments::try_parse_from(words).map_err(|it| absent(&it.to_string()))?;
    let parts = PartArguments { part: Some(part), ..PartArguments::default() };
    // The progress in the log of a pod is shown by `kubectl-faultline`.
    let file = dir.join(FEDERATION);
    arguments.memory = None;
    match &mut arguments.command {
        Command::Sweep(it) => {
            (it.file, it.parts, it.backend) = (file, parts, SimulatedOn::Simulate);
            (it.jobs, it.quiet) = (None, false);
        }
        Command::Fuzz(it) => {
            (it.parts, it.backend) = (parts, SimulatedOn::Simulate);
            (it.jobs, it.quiet) = (None, false);
        }
        Command::Compare(it) => {
            (it.file, it.parts, it.backend) = (file, parts, ComparedOn::Simulate);
            (it.jobs, it.quiet) = (None, false);
        }
        Command::Reproduce(it) => {
            (it.parts, it.backend) = (parts, SimulatedOn::Simulate);
            (it.jobs, it.quiet, it.with_processes) = (None, false, false);
        }
        _ => return Err(absent("its command cannot be divided")),
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_five_minutes_unless_pods_would_be_idle() {
        let parts = |runs, milliseconds, workers| {
            let run = Duration::from_millis(milliseconds);
            let divisible = Divisible {
                federation: None,
                runs,
                pieces: runs,
                run,
                dir: Path::new(""),
                quiet: true,
                first_found: false,
            };
            divisible.parts(workers)
        };
        assert_eq!(parts(1_000_000, 30, 10), 100);
        assert_eq!(parts(1_000, 30, 10), 10);
        assert_eq!(parts(3, 30, 10), 3, "no part is empty");
        assert_eq!(parts(1_000_000_000, 30, 10), 100_000);
        assert_eq!(parts(0, 30, 10), 1);
    }
}

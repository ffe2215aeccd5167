//! A campaign: parts of many runs that pods on a Kubernetes cluster perform. `faultline` describes the campaign in a
//! directory, `kubectl-faultline` lets pods perform its parts, and `faultline part` performs one of them in a pod.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use faultline_api::quantity::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::arguments::{KubernetesArguments, number};
use crate::command_error::CommandError;
use crate::output::{read_file, replace};

/// The file that contains the [`Campaign`], in its directory and in a pod.
pub const CAMPAIGN: &str = "campaign.json";
/// The file that contains the federation, if the campaign has one, in the same directories.
pub const FEDERATION: &str = "federation.yaml";
/// The file that contains the numbers of the parts that the pods perform, in the order of their indexes.
pub const NUMBERS: &str = "parts.json";
/// The variable with the index of a pod, from 0.
pub const INDEX: &str = "JOB_COMPLETION_INDEX";
/// The default image of the pods, tagged with this program's version.
pub const IMAGE: &str = concat!("faultline:", env!("CARGO_PKG_VERSION"));
/// The maximum number of parts. Kubernetes allows at most this many indexes.
pub const MOST_PARTS: u32 = 100_000;

/// Where and how pods perform the parts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct WorkerArguments {
    /// With `--backend kubernetes`, let W pods perform runs in parallel. Default: 10
    #[arg(long, value_name = "W", allow_negative_numbers = true, value_parser = number::<u32>(1..=10_000))]
    pub workers: Option<u32>,
    /// Divide the runs into N parts, of which a pod performs one. Default: parts of about five minutes, but at least one
    /// for each pod
    #[arg(long = "parts", value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=MOST_PARTS.into()))]
    pub count: Option<u32>,
    /// Run this image, which contains this program, in the pods [default: faultline, with this program's version]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Reserve CPU for each pod, such as 2 or 500m, in the notation of Kubernetes. Default: 1
    #[arg(long, value_name = "CPU")]
    pub worker_cpu: Option<String>,
    /// Reserve SIZE of memory for each pod. Default: 1GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub worker_memory: Option<Size>,
    /// Submit the pods to this local queue of Kueue, which decides when they start
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Cluster and namespace.
    #[command(flatten)]
    pub cluster: KubernetesArguments,
}

impl WorkerArguments {
    /// Returns the first option that was specified.
    pub fn first(&self) -> Option<&'static str> {
        let WorkerArguments { workers, count, image, worker_cpu, worker_memory, queue, cluster } = self;
        let given = [
            ("--workers", workers.is_some()),
            ("--parts", count.is_some()),
            ("--image", image.is_some()),
            ("--worker-cpu", worker_cpu.is_some()),
            ("--worker-memory", worker_memory.is_some()),
            ("--queue", queue.is_some()),
            ("--namespace", cluster.namespace.is_some()),
            ("--context", cluster.context.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Returns the number of pods that run in parallel.
    pub fn workers(&self) -> u32 {
        self.workers.unwrap_or(10)
    }
}

/// Runs that are divided among pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Campaign {
    /// The version of the program. Another version may compute different results.
    pub version: String,
    /// The arguments of the command, of which `--part` and the place of the federation are set in each pod.
    pub arguments: Vec<String>,
    /// A hash of everything that determines the runs.
    pub identity: String,
    /// The number of runs.
    pub runs: u64,
    /// The number of parts.
    pub parts: u32,
}

impl Campaign {
    /// Returns the identity of a campaign with this work.
    #[expect(clippy::missing_panics_doc, reason = "all work has a JSON form")]
    pub fn identity(work: &impl Serialize) -> String {
        let text = serde_json::to_vec(work).expect("all work has a JSON form");
        blake3::hash(&text).to_hex()[..10].to_owned()
    }

    /// Reads the campaign in a directory; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or is not a campaign of this version.
    pub fn read(dir: &Path) -> Result<Option<Campaign>, CommandError> {
        read(&dir.join(CAMPAIGN))
    }

    /// Writes the campaign, and the federation of its runs, to a directory.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    #[expect(clippy::missing_panics_doc, reason = "every campaign has a JSON form")]
    pub fn write(&self, dir: &Path, federation: Option<&str>) -> Result<(), CommandError> {
        let text = serde_json::to_string(self).expect("a campaign has a JSON form");
        let written = fs::create_dir_all(dir)
            .and_then(|()| federation.map_or(Ok(()), |it| replace(&dir.join(FEDERATION), it)))
            .and_then(|()| replace(&dir.join(CAMPAIGN), &text));
        written.map_err(|error| {
            CommandError::writing("write to", dir, &error, "specify a writable directory with `--out`")
        })
    }

    /// Returns the name of a part, as in `--part`.
    pub fn part(&self, number: u32) -> String {
        format!("{number}/{}", self.parts)
    }

    /// Returns the file with the results of a part.
    pub fn results(dir: &Path, number: u32) -> PathBuf {
        dir.join(format!("{number}.jsonl"))
    }

    /// Returns the name of the campaign's objects.
    pub fn name(&self) -> String {
        let command = self.arguments.first().map_or("runs", String::as_str);
        format!("faultline-{command}-{}-{}", self.identity, self.parts)
    }
}

/// Reads a JSON file; `None` if it does not exist.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or has another content.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CommandError> {
    let refused = |why: String| CommandError::path("read", path, why, "delete this directory");
    match read_file(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| refused(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// The last line of a part's results. Without it, some results may be missing.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// The part, such as `3/50`.
    pub part: String,
    /// The number of results.
    pub results: u64,
}

/// Returns the results of a part in the log of its pod, which also contains messages; `None` if a line is missing.
pub fn sealed(log: &str, part: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().filter(|it| it.starts_with('{')).collect();
    let [_, results @ .., last] = &lines[..] else { return None };
    let seal: Seal = serde_json::from_str(last).ok()?;
    (seal.part == part && seal.results == results.len() as u64).then(|| lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_log_is_sealed() {
        let whole = "{\"of\":1}\nwarning: slow\n{\"run\":1}\n{\"run\":2}\n{\"part\":\"1/3\",\"results\":2}\n";
        let lines: Vec<&str> = whole.lines().collect();
        let without = |number: usize| {
            let kept = lines.iter().enumerate().filter(|(it, _)| *it != number);
            sealed(&kept.map(|(_, line)| format!("{line}\n")).collect::<String>(), "1/3")
        };
        assert_eq!(sealed(whole, "1/3"), Some(whole.replace("warning: slow\n", "")));
        assert_eq!(without(1), sealed(whole, "1/3"), "a message is not a result");
        for number in [0, 2, 3, 4] {
            assert_eq!(without(number), None, "line {number} is missing");
        }
        assert_eq!(sealed(whole, "2/3"), None);
        assert_eq!(sealed("", "1/3"), None);
    }
}

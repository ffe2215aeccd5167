//! The three files of the HC3I paper's simulator (section 5.1): topology, application and timers.
//!
//! The paper describes their contents but does not print them, so their format is this project's own: YAML with the
//! quantities of the `Federation` resource. `docs/hc3i-files.md` describes the format. Together, the files form one
//! federation ([`import()`]), which runs like any other.

mod import;

use std::collections::BTreeMap;

use faultline_api::parse::{Text, read};
use faultline_api::quantity::{Duration, Period, Size};
use faultline_api::resource::{ClusterSpec, Link};
use faultline_api::{Problem, Rejected};
use faultline_report::explain::count;
use serde::{Deserialize, Serialize};

pub use import::{Imported, import};

/// The topology file: clusters, the links within and between them, and how often a node fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// The clusters, in the order in which `links` and the results list them.
    pub clusters: Vec<ClusterSpec>,
    /// The lower triangle of the matrix of links, which are the same in both directions. Row i has the links
    /// between cluster i and clusters 0 to i; the last one is the link within the cluster. A property that a
    /// link does not state is not emulated.
    pub links: Vec<Vec<Link>>,
    /// The mean time between two failures in the whole federation. A failure crashes a random node, and its
    /// memory is lost.
    #[serde(default)]
    pub mtbf: Period,
}

/// The application file: how long processes compute, and the messages that they send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationFile {
    /// The total computing time of each process.
    pub duration: Duration,
    /// The length of every message. The default is 1kB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Size>,
    /// The size of every process's state. The default is 1MB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
    /// The random behaviour of the processes of each cluster. A file has either this or [`ApplicationFile::messages`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<BTreeMap<String, Behaviour>>,
    /// Exact numbers of messages, by sending cluster and then by receiving cluster. The processes of the sending
    /// cluster divide the messages equally, and send them at random times to random processes of the receiving cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<BTreeMap<String, BTreeMap<String, u32>>>,
}

/// The behaviour of the processes of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Behaviour {
    /// The mean of the exponentially distributed time of one computation.
    pub mean_computation: Duration,
    /// The probability that a computation is followed by a message to a random process of a cluster, by
    /// receiving cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub send: BTreeMap<String, f64>,
}

/// The timers file: the delays of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timers {
    /// The delay between two unforced checkpoints, by cluster; `never` disables the timer.
    pub checkpoint: BTreeMap<String, Period>,
    /// The delay between two garbage collections. The default is `never`.
    #[serde(default)]
    pub collect: Period,
    /// The delay from a failure to its detection. The default is 500ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_after: Option<Duration>,
    /// The delay from the detection to the restart of the node. The default is 200ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_after: Option<Duration>,
}

/// The three files as they were read. The text of each is kept, to show problems in their context.
#[derive(Clone, Debug)]
pub struct Files {
    /// The topology file.
    pub topology: Topology,
    /// The application file.
    pub application: ApplicationFile,
    /// The timers file.
    pub timers: Timers,
    texts: [Text; 3],
}

/// One of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// Clusters and links.
    Topology,
    /// Computations and messages.
    Application,
    /// Delays of the protocol.
    Timers,
}

impl File {
    /// Returns the help for an empty file.
    fn example(self) -> &'static str {
        match self {
            File::Topology => "`faultline samples hc3i/topology` prints an example",
            File::Application => "`faultline samples hc3i/application` prints an example",
            File::Timers => "`faultline samples hc3i/timers` prints an example",
        }
    }
}

impl Files {
    /// Reads the three files, each given as the name to use in error messages and its content.
    ///
    /// Checks the form of the files. [`Files::import`] checks the federation that they describe.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is invalid. The error shows the line.
    pub fn read(
        topology: (&str, &[u8]),
        application: (&str, &[u8]),
        timers: (&str, &[u8]),
    ) -> Result<Files, Box<Rejected>> {
        let topology = read::<Topology>(topology.0, topology.1, File::Topology.example())?;
        let application = read::<ApplicationFile>(application.0, application.1, File::Application.example())?;
        let timers = read::<Timers>(timers.0, timers.1, File::Timers.example())?;
        let files = Files {
            topology: topology.value,
            application: application.value,
            timers: timers.value,
            texts: [topology.text, application.text, timers.text],
        };
        files.reject(files.shapes())?;
        Ok(files)
    }

    /// Returns the federation that the files describe.
    ///
    /// # Errors
    ///
    /// Returns an error if the files do not describe a valid federation. The error shows the line.
    pub fn import(&self, name: &str) -> Result<faultline_api::Federation, Box<Rejected>> {
        let imported = import(name, &self.topology, &self.application, &self.timers);
        self.reject(imported.problems())?;
        Ok(imported.federation)
    }

    /// Returns an error for the first file that has a problem.
    fn reject(&self, problems: Vec<(File, Problem)>) -> Result<(), Box<Rejected>> {
        let Some(file) = problems.iter().map(|(file, _)| *file).min() else { return Ok(()) };
        let of_file = problems.into_iter().filter(|(it, _)| *it == file).map(|(_, problem)| problem);
        Err(self.texts[file as usize].reject(of_file.collect()))
    }

    /// Returns the problems that validation of the federation cannot detect, or cannot describe in terms of the files.
    fn shapes(&self) -> Vec<(File, Problem)> {
        let mut problems = Vec::new();
        let mut problem = |file, path: &str, message: String, help: &str| {
            problems.push((file, Problem { path: path.into(), message, help: help.into() }));
        };
        // The protocol's own error would mention options that the files do not have.
        for (index, cluster) in self.topology.clusters.iter().enumerate().filter(|(_, it)| it.nodes == 1) {
            let message = format!("cluster `{}` has only one node", cluster.name);
            let help = "add a node: replicas of checkpoints are kept by a neighbour in the same cluster";
            problem(File::Topology, &format!("clusters[{index}].nodes"), message, help);
        }
        let (clusters, rows) = (self.topology.clusters.len(), self.topology.links.len());
        if rows != clusters {
            let message = format!(
                "the matrix of links has {} for {}",
                count(rows as u64, "row"),
                count(clusters as u64, "cluster")
            );
            problem(File::Topology, "links", message, "write one row per cluster");
        }
        for (index, row) in self.topology.links.iter().enumerate().take(clusters) {
            if row.len() != index + 1 {
                let message = format!(
                    "row {index} of the matrix (counted from 0) has {} instead of {}",
                    count(row.len() as u64, "link"),
                    index + 1
                );
                let help = "list the links to all previous clusters, then the link within the cluster";
                problem(File::Topology, &format!("links[{index}]"), message, help);
            }
        }
        match (&self.application.clusters, &self.application.messages) {
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => {
                let message = "the file does not define any messages".to_owned();
                problem(
                    File::Application,
                    "",
                    message,
                    "add `clusters` with probabilities, or `messages` with numbers of messages",
                );
            }
            (Some(_), Some(_)) => {
                let message = "`clusters` and `messages` cannot be combined".to_owned();
                problem(File::Application, "messages", message, "keep one of the two");
            }
        }
        for cluster in
            self.topology.clusters.iter().filter(|it| !self.timers.checkpoint.contains_key(&it.name))
        {
            let message = format!("the delay between checkpoints of cluster `{}` is missing", cluster.name);
            let help = format!("add `{0}: 30m`, or `{0}: never` for no checkpoints", cluster.name);
            problem(File::Timers, "checkpoint", message, &help);
        }
        problems
    }
}

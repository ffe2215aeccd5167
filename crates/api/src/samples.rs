//! Example federations, one per topic. The files in `manifests/samples` are compiled into the binary.

/// An example federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Name of the sample: the path of its file without the extension.
    pub name: &'static str,
    /// Content of the file.
    pub text: &'static str,
}

impl Sample {
    /// Returns the description of the sample: the comment in the first line of its file.
    pub fn description(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(Sample {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/samples/", $name, ".yaml")),
        }),*]
    };
}

/// All samples. The first is the quick start.
pub const SAMPLES: &[Sample] = samples![
    "quickstart",
    "two-way",
    "same-cluster-loss",
    "random-faults",
    "traces",
    "spares",
    "pause",
    "partition",
    "guest",
    "storage",
    "hydee",
    "full-logging",
    "pessimistic-logging",
    "domino",
    "nas",
    "ping-pong",
    "coordinated",
    "chandy-lamport",
    "hierarchical",
    "paper-2x100",
    "tasks",
    "tic",
    "sel",
    "satin",
    "cck",
    "cck-short",
    "cck-elastic",
];

/// Systems, whose programs must be installed. They run only on real processes.
pub const SYSTEMS: &[Sample] = samples![
    "systems/pages",
    "systems/etcd",
    "systems/redis-sentinel",
    "systems/redis-cluster",
    "systems/nats",
];

/// A protocol and an application in Python, to start from. Python must be installed.
pub const PROGRAMS: &[Sample] = samples!["programs/protocol", "programs/application"];

/// Returns the sample with this name.
pub fn sample(name: &str) -> Option<&'static Sample> {
    SAMPLES.iter().find(|it| it.name == name)
}

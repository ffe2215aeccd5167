//! Federations to start from, one per thing to see. They stand in `manifests/samples`, and in the binary.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its name, which is also its file's without the ending.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

impl Sample {
    /// What it shows, in one line: the file's first comment.
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

/// All of them. The first is the quick start.
pub const SAMPLES: &[Sample] = samples![
    "quickstart",
    "two-way",
    "same-cluster-loss",
    "random-faults",
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
];

/// The sample of this name.
pub fn sample(name: &str) -> Option<&'static Sample> {
    SAMPLES.iter().find(|it| it.name == name)
}

//! The input files of the HC3I paper's experiments.

use faultline_api::samples::Sample;

use crate::files::Files;

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(Sample {
            name: concat!("hc3i/", $name),
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/hc3i/", $name, ".yaml")),
        }),*]
    };
}

/// All samples.
pub const SAMPLES: &[Sample] = samples![
    "topology",
    "application",
    "timers",
    "application-probabilities",
    "application-103",
    "timers-collect",
    "topology-three-clusters",
    "application-three-clusters",
    "timers-three-clusters",
];

/// Returns the sample with this name.
pub fn sample(name: &str) -> Option<&'static Sample> {
    SAMPLES.iter().find(|it| it.name == name)
}

/// Combines three samples, whose names are given without `hc3i/`.
///
/// # Panics
///
/// Panics if a sample does not exist, or if the files do not fit together.
pub(crate) fn files(topology: &str, application: &str, timers: &str) -> Files {
    let text = |name: &str| {
        let name = format!("hc3i/{name}");
        sample(&name).unwrap_or_else(|| panic!("there is no sample {name}")).text.as_bytes()
    };
    let [topology, application, timers] = [topology, application, timers].map(|it| (it, text(it)));
    Files::read(topology, application, timers).unwrap_or_else(|it| panic!("the samples are invalid: {it}"))
}

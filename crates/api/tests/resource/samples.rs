//! Every sample is valid, has a description, and is part of the binary.

use std::collections::BTreeSet;
use std::path::Path;

use faultline_api::samples::{SAMPLES, sample};
use faultline_api::{parse, plan};

#[test]
fn every_sample_is_valid_and_described() {
    for sample in SAMPLES {
        let federation = parse(sample.name, sample.text.as_bytes())
            .unwrap_or_else(|it| panic!("{}: {it}: {:?}", sample.name, it.errors()));
        assert_eq!(
            federation.metadata.name.as_deref(),
            Some(sample.name),
            "the file and the federation agree"
        );
        assert!(sample.description().ends_with('.') && sample.description().len() > 20, "{}", sample.name);
        // Expanding the faults of a valid federation never fails.
        plan(&federation, federation.spec.seed());
    }
}

#[test]
fn every_system_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples/systems");
    for file in std::fs::read_dir(folder).expect("there are systems") {
        let path = file.expect("the folder can be read").path();
        let name = path.display().to_string();
        let parsed = parse(&name, &std::fs::read(&path).expect("the file can be read"));
        let federation = parsed.unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()));
        assert!(federation.spec.application.system().is_some(), "{name}");
    }
}

#[test]
fn every_file_is_in_the_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the samples exist")
        .map(|it| it.expect("the folder can be read").file_name().to_string_lossy().into_owned())
        // Systems need programs that Faultline does not contain.
        .filter(|it| it != "systems")
        .collect();
    let embedded: BTreeSet<String> = SAMPLES.iter().map(|it| format!("{}.yaml", it.name)).collect();
    assert_eq!(files, embedded);
    assert_eq!(sample("quickstart"), SAMPLES.first());
    assert_eq!(sample("nothing"), None);
}

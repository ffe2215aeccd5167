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
fn every_file_is_in_the_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the samples exist")
        .map(|it| it.expect("the folder can be read"))
        .filter(|it| it.path().is_file())
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .collect();
    let embedded: BTreeSet<String> = SAMPLES.iter().map(|it| format!("{}.yaml", it.name)).collect();
    assert_eq!(files, embedded);
    assert_eq!(sample("quickstart"), SAMPLES.first());
    assert_eq!(sample("nothing"), None);
}

//! Every sample is valid, has a description, and is part of the binary.

use std::collections::BTreeSet;
use std::path::Path;

use faultline_api::samples::{PROGRAMS, SAMPLES, SYSTEMS, sample};
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
fn every_system_is_valid_and_described() {
    for sample in SYSTEMS {
        let federation = parse(sample.name, sample.text.as_bytes())
            .unwrap_or_else(|it| panic!("{}: {it}: {:?}", sample.name, it.errors()));
        assert!(federation.spec.application.system().is_some(), "{}", sample.name);
        let name = federation.metadata.name.unwrap_or_default();
        assert_eq!(format!("systems/{name}"), sample.name, "the file and the federation agree");
        assert!(sample.description().ends_with('.') && sample.description().len() > 20, "{}", sample.name);
    }
}

#[test]
fn every_program_is_valid_and_described_and_equals_the_example() {
    for sample in PROGRAMS {
        let federation = parse(sample.name, sample.text.as_bytes())
            .unwrap_or_else(|it| panic!("{}: {it}: {:?}", sample.name, it.errors()));
        let name = federation.metadata.name.unwrap_or_default();
        assert_eq!(format!("programs/{name}"), sample.name, "the file and the federation agree");
        assert!(sample.description().ends_with('.') && sample.description().len() > 20, "{}", sample.name);
    }
    let example = include_str!("../../../../examples/python/again.py");
    let is_indented =
        |line: &str| line.is_empty() || PROGRAMS[0].text.contains(&format!("\n            {line}\n"));
    assert_eq!(example.lines().find(|it| !is_indented(it)), None, "this line differs from the example");
}

#[test]
fn every_file_is_in_the_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/samples");
    for (folder, samples) in
        [(folder.clone(), SAMPLES), (folder.join("systems"), SYSTEMS), (folder.join("programs"), PROGRAMS)]
    {
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the samples exist")
            .map(|it| it.expect("the folder can be read").path())
            .filter(|it| it.is_file())
            .map(|it| it.file_stem().expect("a file has a name").to_string_lossy().into_owned())
            .collect();
        let name = |it: &str| it.rsplit('/').next().unwrap_or(it).to_owned();
        let embedded: BTreeSet<String> = samples.iter().map(|it| name(it.name)).collect();
        assert_eq!(files, embedded);
    }
    assert_eq!(sample("quickstart"), SAMPLES.first());
    assert_eq!(sample("nothing"), None);
}

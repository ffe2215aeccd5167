//! Federations that once had a violation, as shrunk by the fuzzer. Each must remain clean.

use std::fs;
use std::path::Path;

use faultline_checker::Verdict;
use faultline_fuzz::{Scenario, run};

#[test]
fn fixed_scenarios_stay_clean() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy();
        let federation = faultline_api::parse(&name, &fs::read(&file).unwrap());
        let federation = federation.unwrap_or_else(|it| panic!("{name}: {:?}", it.errors()));
        let seed = federation.spec.seed.expect("a scenario has a seed");
        let trial = run(Scenario { seed, federation, defect: None }).unwrap();
        assert_ne!(trial.judgement.verdict, Verdict::Fail, "{name}: {:?}", trial.judgement.reasons);
    }
}

//! Federations that once went wrong, as the fuzzer shrank them. Each has to stay clean.

use std::fs;
use std::path::Path;

use faultline_checker::Verdict;
use faultline_fuzz::{Scenario, run};

#[test]
fn nothing_that_was_found_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy();
        let federation = faultline_api::parse(&name, &fs::read(&file).unwrap());
        let federation = federation.unwrap_or_else(|it| panic!("{name}: {:?}", it.complaints()));
        let seed = federation.spec.seed.expect("it is what makes it go wrong");
        let trial = run(Scenario { seed, federation, defect: None }).unwrap();
        assert_ne!(trial.judgement.verdict, Verdict::Fail, "{name}: {:?}", trial.judgement.reasons);
    }
}

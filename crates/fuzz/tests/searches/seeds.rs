//! Seeds are 64-bit numbers.

use faultline_checker::Verdict;
use faultline_fuzz::{Scenario, run};

#[test]
fn seeds_are_not_truncated_and_a_file_keeps_them() {
    for seed in [7, u64::from(u32::MAX), (1 << 32) + 7, u64::MAX] {
        let scenario = Scenario::new(seed, None, None);
        let text = scenario.to_yaml();
        let federation = faultline_api::parse("seed.yaml", text.as_bytes());
        let federation = federation.unwrap_or_else(|it| panic!("{:?}", it.errors()));
        assert_eq!(federation.spec.seed, Some(seed), "{text}");
        let trial = run(Scenario { seed, federation, defect: None }).unwrap();
        assert_ne!(trial.judgement.verdict, Verdict::Fail, "{seed}: {:?}", trial.judgement.reasons);
        assert_eq!(trial.manifest.seed, seed);
    }
    let unnamed = |seed| {
        let mut federation = Scenario::new(seed, None, None).federation;
        federation.spec.seed = None;
        faultline_api::to_yaml(&federation).replace(&format!("fuzz-{seed}"), "")
    };
    assert_ne!(unnamed(7), unnamed((1 << 32) + 7), "the upper half counts");
    assert_eq!(unnamed(7), unnamed(7));
}

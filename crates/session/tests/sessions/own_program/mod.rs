//! The worked example of `docs/applications.md`: a user-defined task-based program under every protocol with work
//! stealing. Processes fail, except under `none`.

mod merge_sort;

use faultline_api::resource::ProtocolSpec;
use faultline_api::{Federation, parse};
use faultline_catalog::{TasksSetup, TasksVisitor, with_tasks};
use faultline_checker::{Judgement, Property, Verdict};
use faultline_core::fault::Outcome;
use faultline_dataflow::program::{Program, chunk};
use faultline_dataflow::{TaskProtocol, reference};
use faultline_session::{Session, Simulator};
use faultline_trace::manifest::Expected;
use merge_sort::{MergeSort, scrambled};

const EXAMPLE: MergeSort = MergeSort { numbers: 4000, leaf: 40 };

/// Runs the example in place of the federation's program.
struct RunMergeSort<'a>(&'a Federation);

impl TasksVisitor for RunMergeSort<'_> {
    type Output = Judgement;

    fn visit<P>(self, setup: TasksSetup<P>) -> Judgement
    where
        P: TaskProtocol<Config: Send + Sync> + Send + 'static,
    {
        let setup = setup.running(EXAMPLE);
        let expected = || {
            let digests = setup.reference()?;
            Some(Expected { source: "one task after another".to_owned(), digests })
        };
        let session = Session::new(self.0).seed(setup.seed);
        let run = session.simulate_setup(&setup, expected, &mut Simulator::new(&mut ())).judge();
        assert_eq!(run.manifest.outcome, Some(Outcome::Completed));
        run.judgement
    }
}

fn federation(protocol: &str, faults: &str) -> Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: merge-sort }}
spec:
  clusters: [{{ name: a, nodes: 3 }}, {{ name: b, nodes: 3, speed: 50 }}]
  links: {{ between: {{ latency: 5ms, jitter: 4ms }} }}
  protocol: {{ {protocol} }}
  application: {{ fibonacci: {{}} }} # replaced by the example
  faults: {faults}
  deadline: 60s
"
    );
    parse("merge-sort.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

#[test]
fn the_example_is_judged_under_every_protocol_with_stealing_and_with_failures() {
    let faults = "[{ at: 150ms, crash: { cluster: a, node: 1 } }, \
                   { at: 300ms, loseCluster: { cluster: b, storage: lost, returns: false } }]";
    let unprotected = federation("none: {}", "[]").spec;
    let names = ProtocolSpec::compared_on(&unprotected.application).into_iter();
    // `with_tasks` rejects planned programs.
    let names: Vec<&str> =
        names.filter(|it| !unprotected.protocol.or_instead(it).is_some_and(|it| it.plans())).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        let (options, faults) = match name {
            "none" => ("{}", "[]"),
            "satin" => ("{}", faults),
            _ => ("{ tau: 100ms, replicateTo: otherCluster }", faults),
        };
        let federation = federation(&format!("{name}: {options}"), faults);
        for seed in 0..10 {
            let judgement = with_tasks(&federation, Some(seed), RunMergeSort(&federation)).unwrap();
            assert_eq!(judgement.verdict, Verdict::Pass, "{name}, seed {seed}: {:?}", judgement.reasons);
            assert!(judgement.of(Property::TasksOnce).instances > 200, "{name}, seed {seed}");
        }
    }
}

#[test]
fn the_example_sorts() {
    let mut all: Vec<u64> = (0..EXAMPLE.numbers).map(scrambled).collect();
    all.sort_unstable();
    let (digest, tasks) = reference(&EXAMPLE);
    assert_eq!(digest, EXAMPLE.digest(&chunk(&all)));
    assert_eq!(tasks, 128 + 127 + 127, "leaves, calls above them, and merges");
}

#[test]
fn the_guide_shows_the_example() {
    let guide = include_str!("../../../../../docs/applications.md");
    let program = include_str!("merge_sort.rs");
    assert!(program.lines().count() <= 60);
    assert!(guide.contains(program), "docs/applications.md has the program of merge_sort.rs in full");
}

//! Tests of message-passing programs: in any order of delivery, they compute the same results as their references, and
//! every defect is detected.

use std::sync::Arc;

use crate::network::{Defect, Network, membership, seed};
use faultline_core::{Application, Digest, Membership, Outbox, ProcessId, Progress, Span};
use faultline_workloads::messaging::{
    Message, Operation, Performer, Program, RankInfo, Step, digest_of, pack, sequential,
};
use faultline_workloads::{Config, Invalid, exchange, nas, pingpong, reference};
use serde::{Deserialize, Serialize};

const SIXTEEN: [usize; 3] = [5, 8, 3];

fn exchanges() -> Config {
    Config::Exchange(exchange::Config {
        pattern: 3,
        exchanges: 12,
        step_cost: Span::from_millis(1),
        classes: exchange::Config::default().classes,
    })
}

fn nas(pattern: nas::Pattern) -> nas::Config {
    let order = (0..16).map(|it| it * 5 % 16).collect();
    nas::Config {
        pattern,
        iterations: 2,
        message_bytes: 512,
        state_bytes: 100,
        order,
        ..nas::Config::default()
    }
}

const PATTERNS: [nas::Pattern; 6] = [
    nas::Pattern::Bt,
    nas::Pattern::Cg,
    nas::Pattern::Ft,
    nas::Pattern::Lu,
    nas::Pattern::Mg,
    nas::Pattern::Sp,
];

fn ping_pong() -> Config {
    Config::PingPong(pingpong::Config { sizes: vec![1, 12, 40], rounds: 2 })
}

/// Returns every program with its clusters.
fn programs() -> Vec<(Config, Vec<usize>)> {
    let small = [(exchanges(), vec![2, 3]), (ping_pong(), vec![2, 1])];
    let patterns = PATTERNS.map(|it| (Config::Nas(nas(it)), SIXTEEN.to_vec()));
    small.into_iter().chain(patterns).collect()
}

fn expected(config: &Config, clusters: &[usize]) -> Vec<Digest> {
    let results = reference(&Arc::new(config.clone()), &membership(clusters), seed);
    results.expect("programs have a reference").into_iter().map(|it| it.1).collect()
}

fn run(config: &Config, clusters: &[usize], schedule: u64, defect: Option<Defect>) -> Network {
    let mut network = Network::new(config, clusters, schedule);
    network.defect = defect;
    network.run();
    network
}

#[test]
fn results_equal_the_reference_under_any_schedule() {
    for (config, clusters) in programs() {
        let expected = Some(expected(&config, &clusters));
        for schedule in 0..10 {
            let network = run(&config, &clusters, schedule, None);
            assert_eq!(network.results(), expected, "{config:?}, schedule {schedule}");
            assert_eq!(network.consumed, network.sent, "every message is consumed: {config:?}");
        }
        let mut restored = Network::new(&config, &clusters, 1);
        restored.restore_always = true;
        assert_eq!(restored.run(), expected, "a restored rank continues unchanged: {config:?}");
    }
}

#[test]
fn every_message_matters() {
    for (config, clusters) in programs() {
        let expected = Some(expected(&config, &clusters));
        let messages = run(&config, &clusters, 0, None).messages();
        // Patterns in which all ranks communicate have many similar messages, so only a sample is tested.
        let every = messages.len().div_ceil(40);
        for message in messages.into_iter().step_by(every) {
            let lost = run(&config, &clusters, 1, Some(Defect::Drop(message)));
            assert_eq!(lost.results(), None, "all ranks finished although {message:?} was lost: {config:?}");
            let twice = run(&config, &clusters, 1, Some(Defect::Duplicate(message)));
            let results = twice.results().expect("a duplicate stops no rank");
            assert_ne!(
                Some(results),
                expected,
                "a duplicate of {message:?} did not change the result: {config:?}"
            );
        }
    }
}

#[test]
fn an_inconsistent_state_changes_the_result() {
    for (config, clusters) in programs() {
        let expected = Some(expected(&config, &clusters));
        let mut entangled = 0;
        for rank in (0..clusters.iter().sum::<usize>() as u32).map(ProcessId) {
            for step in 1..=4 {
                let network = run(&config, &clusters, 2, Some(Defect::RollBack(rank, step)));
                match network.entangled {
                    Some(true) => {
                        entangled += 1;
                        assert_ne!(network.results(), expected, "{rank}, step {step}: {config:?}");
                    }
                    Some(false) => {
                        assert_eq!(network.results(), expected, "the result is the same: {config:?}")
                    }
                    // The rank performs fewer than `step` computations.
                    None => {}
                }
            }
        }
        assert!(entangled >= 2, "{entangled} of {config:?}");
    }
}

#[test]
fn invalid_parameters_are_named() {
    let validate = |config: nas::Config, clusters: &[usize]| Config::Nas(config).validate(clusters);
    let cg = nas(nas::Pattern::Cg);
    assert_eq!(validate(cg.clone(), &SIXTEEN), Ok(()));
    assert_eq!(validate(cg.clone(), &[4, 4]), Err(Invalid::Ranks { found: 8 }));
    let order = vec![0; 16];
    assert_eq!(
        validate(nas::Config { order, ..cg.clone() }, &SIXTEEN),
        Err(Invalid::NotAnOrder { ranks: 16 })
    );
    let short = nas::Config { message_bytes: 100, ..cg };
    assert!(matches!(validate(short, &SIXTEEN), Err(Invalid::TooSmall { field: "message_bytes", .. })));
    assert_eq!(ping_pong().validate(&[1]), Err(Invalid::OneProcess));
}

/// A program that performs every collective, with every root.
#[derive(Clone, Debug)]
struct Collectives(RankInfo);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Heard {
    step: u32,
    /// The messages received: the step, the sender and the content of each.
    words: Vec<(u32, u32, Vec<u8>)>,
}

impl Program for Collectives {
    type Config = ();
    type State = Heard;

    fn new(_: &Arc<()>, place: RankInfo) -> Collectives {
        Collectives(place)
    }

    fn begin(&self) -> Heard {
        Heard::default()
    }

    fn next(&self, heard: &mut Heard) -> Step {
        let RankInfo { me, ranks } = self.0;
        let step = heard.step;
        heard.step += 1;
        match (step / ranks, step % ranks) {
            (0, root) => Step::Broadcast { root, content: vec![me as u8 + 10] },
            (1, root) => {
                let operation = [Operation::Sum, Operation::Least, Operation::Greatest][root as usize % 3];
                Step::Reduce { root, part: vec![f64::from(me) + 1.0, 7.0], operation }
            }
            (2, 0) => Step::Barrier,
            (2, 1) => Step::AllToAll { contents: (0..ranks).map(|to| vec![me as u8, to as u8]).collect() },
            _ => Step::Finish,
        }
    }

    fn received(&self, heard: &mut Heard, messages: Vec<Message>) {
        heard.words.extend(messages.iter().map(|it| (heard.step - 1, it.from, it.bytes().to_vec())));
    }

    fn result(&self, heard: &Heard) -> Vec<u8> {
        pack(&heard.words)
    }

    fn progress(&self, heard: &Heard) -> Progress {
        Progress { done: heard.step.into(), total: 0 }
    }
}

/// Returns the messages that a rank must receive.
fn expected_messages(RankInfo { me, ranks }: RankInfo) -> Vec<(u32, u32, Vec<u8>)> {
    let mut words: Vec<_> = (0..ranks).map(|root| (root, root, vec![root as u8 + 10])).collect();
    let all = f64::from(ranks);
    let numbers = match me % 3 {
        0 => vec![all * (all + 1.0) / 2.0, 7.0 * all],
        1 => vec![1.0, 7.0],
        _ => vec![all, 7.0],
    };
    words.push((ranks + me, me, pack(&numbers)));
    if ranks > 1 {
        words.extend((0..ranks).map(|from| (2 * ranks + 1, from, vec![from as u8, me as u8])));
    }
    words
}

#[test]
fn collectives_deliver_the_right_messages() {
    for ranks in 1..=9_u32 {
        let membership: Membership = membership(&[ranks as usize]);
        let results = sequential::<Collectives>(&Arc::new(()), &membership).expect("no rank waits forever");
        for (me, digest) in results {
            let words = pack(&expected_messages(RankInfo { me: me.0, ranks }));
            let fits = (0..200).any(|arrived| digest_of(&words, arrived) == digest);
            assert!(fits, "{me} of {ranks}");
        }
    }
}

#[test]
fn a_program_that_deadlocks_has_no_expected_results() {
    /// Every rank waits for a message from the next one, and none sends.
    #[derive(Clone, Debug)]
    struct Deadlock(RankInfo);

    impl Program for Deadlock {
        type Config = ();
        type State = ();

        fn new(_: &Arc<()>, place: RankInfo) -> Deadlock {
            Deadlock(place)
        }

        fn begin(&self) {}

        fn next(&self, (): &mut ()) -> Step {
            Step::Receive { from: (self.0.me + 1) % self.0.ranks }
        }

        fn received(&self, (): &mut (), _: Vec<Message>) {}

        fn result(&self, (): &()) -> Vec<u8> {
            Vec::new()
        }

        fn progress(&self, (): &()) -> Progress {
            Progress::default()
        }
    }

    assert_eq!(sequential::<Deadlock>(&Arc::new(()), &membership(&[2])), None);
}

#[test]
#[should_panic = "a rank cannot send to itself or receive from itself"]
fn a_program_that_waits_for_itself_panics() {
    #[derive(Clone, Debug)]
    struct SendsToItself(RankInfo);

    impl Program for SendsToItself {
        type Config = ();
        type State = ();

        fn new(_: &Arc<()>, place: RankInfo) -> SendsToItself {
            SendsToItself(place)
        }

        fn begin(&self) {}

        fn next(&self, (): &mut ()) -> Step {
            Step::Receive { from: self.0.me }
        }

        fn received(&self, (): &mut (), _: Vec<Message>) {}

        fn result(&self, (): &()) -> Vec<u8> {
            Vec::new()
        }

        fn progress(&self, (): &()) -> Progress {
            Progress::default()
        }
    }

    let mut rank = Performer::<SendsToItself>::new(&Arc::new(()), ProcessId(0), &membership(&[2]), 0);
    rank.computed((), &mut Outbox::default());
}

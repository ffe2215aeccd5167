//! A program as an application: it performs its steps, its state is saved and restored, and each way to break the contract
//! has its message. The programs are `bad/application.py`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use faultline_core::*;
use faultline_program::{Actor, ApplicationConfig, Executable, Kind, ProgramRank, Receives};
use faultline_workloads::messaging::{Performer, sequential};

type ByRank = Performer<ProgramRank>;

fn config(bad: &str, receives: Receives) -> Arc<ApplicationConfig> {
    faultline_program::store_in(env!("CARGO_TARGET_TMPDIR").into());
    let executable = Executable {
        kind: Kind::Application,
        name: "application.py".into(),
        command: vec!["python3".into(), "application.py".into()],
        files: vec![("application.py".into(), include_str!("bad/application.py").into())],
        env: vec![("BAD".into(), bad.into())],
        answer_within: Duration::from_secs(3),
    };
    Arc::new(ApplicationConfig {
        executable: executable.into(),
        parameters: "{}".into(),
        receives,
        seeds: vec![1, 2],
        names: vec!["a-0".into(), "a-1".into()],
        clusters: vec![("a".into(), vec![0, 1])],
    })
}

fn membership() -> Membership {
    let member = Member {
        cluster: ClusterId(0),
        role: Role::RANK,
        node: NodeId(0),
        life: Life(1),
        up: true,
        started: true,
        gone: false,
        idle_lives: 0,
    };
    let cluster = Cluster::new([ProcessId(0), ProcessId(1)].into());
    Membership { version: MembershipVersion(1), members: [member; 2].into(), clusters: [cluster].into() }
}

/// Two ranks, and the messages between them.
struct Pair<A: Application> {
    ranks: [A; 2],
    in_transit: VecDeque<(usize, Payload)>,
    out: Outbox,
}

impl<A: Application<Config = ApplicationConfig>> Pair<A> {
    fn new(config: &Arc<ApplicationConfig>) -> Pair<A> {
        let ranks = [0, 1].map(|me| A::new(config, ProcessId(me), &membership(), 0));
        Pair { ranks, in_transit: VecDeque::new(), out: Outbox::default() }
    }

    /// Lets both ranks act until neither can, and returns why rank 1 can no longer act.
    fn run(&mut self) -> Option<Arc<Breakage>> {
        loop {
            let mut has_moved = false;
            for me in 0..2 {
                while let Some(job) = self.ranks[me].next_job() {
                    self.ranks[me].computed(job.run(), &mut self.out);
                    self.collect();
                    has_moved = true;
                }
            }
            while let Some((to, payload)) = self.in_transit.pop_front() {
                self.ranks[to].deliver(ProcessId(1 - to as u32), payload, &mut self.out);
                self.collect();
                has_moved = true;
            }
            if !has_moved {
                return self.ranks[1].failure(ProcessId(1), Life(4));
            }
        }
    }

    fn collect(&mut self) {
        self.in_transit.extend(self.out.sends.drain(..).map(|(to, payload)| (to.index(), payload)));
    }
}

#[test]
fn a_program_performs_its_steps() {
    let config = config("", Receives::ByRank);
    let mut pair = Pair::<ByRank>::new(&config);
    assert_eq!(pair.run(), None);
    let results = pair.ranks.each_ref().map(|it| it.result().unwrap());
    let expected = sequential::<ProgramRank>(&config, &membership()).unwrap();
    assert_eq!(expected, [(ProcessId(0), results[0]), (ProcessId(1), results[1])]);
    assert_eq!(pair.ranks[0].progress(), Progress { done: 2, total: 3 });
    assert_eq!(sequential::<ProgramRank>(&self::config("exits", Receives::ByRank), &membership()), None);
}

#[test]
fn a_state_is_saved_and_restored() {
    let config = config("", Receives::ByRank);
    let mut pair = Pair::<ByRank>::new(&config);
    let job = pair.ranks[1].next_job().unwrap();
    job.run();
    pair.ranks[1].computed((), &mut pair.out);
    let saved = pair.ranks[1].snapshot().unwrap();
    assert_eq!(saved[1], Chunk::Virtual(100));
    assert_eq!(pair.run(), None);
    let result = pair.ranks[1].result().unwrap();
    assert_eq!(pair.ranks[1].progress().done, 2);
    pair.ranks[1].restore(Some(&saved), Incarnation(1));
    assert_eq!((pair.ranks[1].result(), pair.ranks[1].progress().done), (None, 1));
    assert_eq!(pair.ranks[1].snapshot().unwrap()[0], saved[0], "before the program continues");
    pair.ranks[0].restore(None, Incarnation(1));
    assert_eq!(pair.run(), None);
    assert_eq!((pair.ranks[1].result(), pair.ranks[1].progress().done), (Some(result), 2));
    // A later life restores the state in an execution of its own.
    let mut later = ByRank::new(&config, ProcessId(1), &membership(), 0);
    later.restore(Some(&saved), Incarnation(2));
    later.deliver(ProcessId(0), Payload::from_slice(b"[1.5, \"\xc3\xa4\"]\0\0\0\0"), &mut pair.out);
    assert_eq!((later.failure(ProcessId(1), Life(2)), later.result()), (None, Some(result)));
}

#[test]
fn with_any_messages_are_handed_over_as_they_arrive() {
    let config = config("", Receives::Any);
    let mut pair = Pair::<Actor>::new(&config);
    pair.ranks[1].deliver(ProcessId(0), Payload::from_slice(b"1"), &mut pair.out);
    let why = pair.run().expect("`receive` is not permitted");
    assert!(
        why.what.contains("step 1 (`receive`): with `receives: any`, messages arrive by themselves"),
        "{why:?}"
    );
    assert_eq!(pair.ranks[1].failure(ProcessId(1), Life(4)), None, "it is reported once");
    assert_eq!(pair.ranks[1].result(), None);
}

#[test]
fn each_broken_rule_is_named() {
    let at = "broke the contract at event 3 (`received`)";
    for (bad, what) in [
        ("self", format!("{at}: step 1 (`send`): rank 1 cannot send to itself or receive from itself")),
        ("noRank", format!("{at}: step 2 (`receive`): there is no rank 2; the last one is 1")),
        ("twice", format!("{at}: step 1 (`gather`): `from` names rank 0 twice")),
        ("middle", format!("{at}: step 1 (`receive`): only the last step may receive messages or finish")),
        ("unknown", format!("{at}: step 1 (`sned`): there is no such step; use one of: `send`, `compute`")),
        ("noDo", format!("{at}: step 1 (``): field `do` is missing")),
        ("missing", format!("{at}: step 1 (`send`): field `content` is missing")),
        (
            "negative",
            format!(
                "{at}: step 1: invalid value: integer `-1`, expected a whole number from 0 to {}",
                u64::MAX
            ),
        ),
        ("operation", format!("{at}: step 1 (`reduce`): `max` is not an operation; use `sum`, `least`")),
        ("all", format!("{at}: step 1 (`allToAll`): `contents` has 1 entries; there are 2 ranks")),
        ("exits", "exited with status 1 while it answered event 3 (`received`)".to_owned()),
        ("helper", "exited with status 3 while it answered event 3 (`received`)".to_owned()),
        ("nan", format!("{at}: its reply contains `NaN`, which is not a number in JSON")),
        ("overflow", format!("{at}: receives `inf` from a reduction, which is not a number in JSON")),
        ("hangs", "has not answered event 3 (`received`) for 3 s".to_owned()),
        ("start", "broke the contract at event 1 (`start`): this event is answered without steps".to_owned()),
        ("nextNothing", "broke the contract at event 2 (`next`): its reply contains no step".to_owned()),
        (
            "nextForever",
            "broke the contract at event 10002 (`next`): it has answered 10000 events without".to_owned(),
        ),
        (
            "nextReduce",
            "broke the contract after event 2: takes part in a reduction, but rank 0 sent it another"
                .to_owned(),
        ),
    ] {
        let mut pair = Pair::<ByRank>::new(&config(bad, Receives::ByRank));
        let why = pair.run().expect(bad);
        assert!(why.what.starts_with(&what), "{bad}: {}", why.what);
        assert_eq!((why.process, why.life, pair.ranks[1].result()), (ProcessId(1), Life(4), None), "{bad}");
    }
}

#[test]
fn a_state_that_cannot_be_saved_is_reported() {
    let mut pair = Pair::<ByRank>::new(&config("save", Receives::ByRank));
    let job = pair.ranks[1].next_job().unwrap();
    job.run();
    pair.ranks[1].computed((), &mut pair.out);
    assert!(pair.ranks[1].snapshot().is_some());
    let why = pair.ranks[1].failure(ProcessId(1), Life(1)).unwrap();
    assert_eq!(&*why.what, "broke the contract at event 3 (`save`): field `state` is missing");
}

//! Each way to break the contract has its message, and none of them panics. The programs are `bad/bad.py`.

use std::sync::Arc;
use std::time::Duration;

use faultline_core::fact::FactKinds;
use faultline_core::process::To;
use faultline_core::*;
use faultline_program::{
    Executable, Json, Kind, ProgramConfig, ProgramMessage, ProgramProtocol, ProgramStamp, Saved, StartError,
    with_exchanged_executions,
};

type P = ProgramProtocol;

/// A host that counts deliveries, and keeps the breakage.
#[derive(Default)]
struct Counting {
    delivered: usize,
    transmitted: Option<(ProgramStamp, Payload)>,
    broke: Option<Arc<Breakage>>,
}

impl Machine<P> for Counting {
    fn control(&mut self, _: To, _: ProgramMessage) {}
    fn send_image(&mut self, _: ProcessId, _: Arc<Image<Json, Saved>>) {}
    fn persist(&mut self, _: Arc<Image<Json, Saved>>) {}
    fn read(&mut self, _: ImageName) {}
    fn list(&mut self) {}
    fn delete(&mut self, _: ImageName) {}
    fn record(&mut self, _: u64, _: Arc<[u8]>) {}
    fn started(&mut self) {}
    fn held(&mut self) {}
    fn claim(&mut self, claim: Claim) {
        if let Claim::Broke(breakage) = claim {
            self.broke = Some(breakage);
        }
    }
}

impl Host<P> for Counting {
    fn transmit(&mut self, _: MessageId, stamp: ProgramStamp, payload: Payload) {
        self.transmitted = Some((stamp, payload));
    }
    fn suppress(&mut self, _: MessageId) {}
    fn deliver(&mut self, _: MessageId, _: Payload) {
        self.delivered += 1;
    }
    fn drop_stale(&mut self, _: MessageId) {}
    fn hold(&mut self) {}
    fn wait(&mut self) {}
    fn release(&mut self) {}
    fn request_snapshot(&mut self) {}
    fn request_rest(&mut self) {}
    fn restore(&mut self, _: Option<&Image<Json, Saved>>, _: Incarnation) {}
}

fn executable(bad: &str) -> Arc<Executable> {
    faultline_program::store_in(env!("CARGO_TARGET_TMPDIR").into());
    Arc::new(Executable {
        kind: Kind::Protocol,
        name: "bad.py".into(),
        command: vec!["python3".into(), "bad.py".into()],
        files: vec![("bad.py".into(), include_str!("bad/bad.py").into())],
        env: vec![("BAD".into(), bad.into())],
        answer_within: Duration::from_secs(3),
    })
}

fn start(executable: Arc<Executable>, host: &mut Counting) -> P {
    start_as(ProcessId(1), executable, host)
}

fn start_as(me: ProcessId, executable: Arc<Executable>, host: &mut Counting) -> P {
    let member = Member {
        cluster: ClusterId(0),
        role: Role::RANK,
        node: NodeId(0),
        life: Life(1),
        up: true,
        started: false,
        gone: false,
        idle_lives: 0,
    };
    let cluster = Cluster::new([ProcessId(0), ProcessId(1)].into());
    let membership =
        Membership { version: MembershipVersion(1), members: [member; 2].into(), clusters: [cluster].into() };
    let config = ProgramConfig {
        executable,
        parameters: "{}".into(),
        promises: Promises::of_scope(Scope::Process),
        is_fifo: false,
        repeats: false,
        processes: vec!["a-0".into(), "a-1".into()],
        clusters: vec!["a".into()],
    };
    let start = LifeStart {
        me,
        life: Life(1),
        boot: Boot::Fresh,
        membership: membership.into(),
        config: config.into(),
        record: None,
        seed: 7,
        facts: FactKinds::ALL,
    };
    P::start(start, Time(0), host)
}

/// Passes a message to a program that misbehaves in this way, and returns what its host did.
fn receive(bad: &str) -> Counting {
    let id = |from, to| MessageId {
        from: ProcessId(from),
        to: ProcessId(to),
        incarnation: Incarnation(0),
        number: 0,
    };
    let mut host = Counting::default();
    let mut program = start(executable(bad), &mut host);
    assert_eq!(host.broke, None);
    let payload = Payload::from_slice(b"some content that is shared");
    program.handle(Input::Sent { id: id(1, 0), payload: payload.clone() }, Time(5), &mut host);
    let (stamp, sent) = host.transmitted.take().expect("it transmits what it is sent");
    assert_eq!(sent, payload);
    program.handle(Input::Received { id: id(0, 1), stamp, payload }, Time(7), &mut host);
    // A program that can no longer act is not asked again.
    let breakage = host.broke.clone();
    program.handle(Input::Rested, Time(8), &mut host);
    assert_eq!(host.broke, breakage);
    assert!(breakage.is_none() || program.next_deadline().is_none());
    host
}

#[test]
fn a_program_that_keeps_the_contract_acts() {
    let host = receive("");
    assert_eq!((host.delivered, host.broke), (1, None));
}

#[test]
fn each_broken_rule_is_named() {
    let at = "broke the contract at event 3 (`received`)";
    for (bad, what) in [
        ("prints", format!("{at}: its reply is not a JSON object: `DEBUG got it`")),
        ("list", format!("{at}: its reply is not a JSON object: `[]`")),
        ("twice", format!("{at}: it wrote more than one line in reply")),
        ("noNewline", format!("{at}: its reply has no end of line: `{{\"n\": 3, \"do\": ")),
        ("closes", format!("{at}: it closed its standard output")),
        ("floods", format!("{at}: its reply is longer than 16 MiB")),
        ("forks", format!("{at}: its reply is not a JSON object: `child`")),
        ("binary", format!("{at}: its reply is not UTF-8 text: `")),
        ("n", format!("{at}: its reply has `n` 4 instead of 3")),
        ("missing", format!("{at}: action 2 (`suppress`): field `id` is missing")),
        (
            "wrongType",
            format!("{at}: action 1 (`deliver`): invalid type: string \"0\", expected an array of length 4"),
        ),
        ("unknown", format!("{at}: action 1 (`delivr`): there is no such action; use one of: `transmit`")),
        ("held", format!("{at}: action 2 (`deliver`): the application is held since event 3 (`received`)")),
        ("foreign", format!("{at}: action 1 (`transmit`): process 0 sends this message, not process 1")),
        ("altered", format!("{at}: action 1 (`deliver`): the payload is not that of this message")),
        (
            "notAtHand",
            format!("{at}: action 1 (`restore`): image [1,0,1,1] is not at hand; it is at hand only"),
        ),
        ("version", format!("{at}: action 1 (`record`): the version of this record is 2 instead of 1")),
        ("noProcess", format!("{at}: action 1 (`send`): there is no process 99; the last one is 1")),
        ("evidence", format!("{at}: action 1 (`claim`): a program cannot claim `delivered`")),
    ] {
        let breakage = receive(bad).broke.expect(bad);
        assert!(breakage.what.starts_with(&what), "{bad}: {}", breakage.what);
        assert_eq!(
            (breakage.kind, breakage.process, breakage.life),
            (BreakageKind::Contract, ProcessId(1), Life(1))
        );
    }
}

#[test]
fn a_program_that_ends_or_is_silent_is_told_apart_from_one_that_was_killed() {
    let answered = "while it answered event 3 (`received`)";
    for (bad, kind, what, log) in [
        ("exits", BreakageKind::Ended, format!("exited with status 3 {answered}"), "second thoughts"),
        (
            "raises",
            BreakageKind::Ended,
            format!("exited with status 1 {answered}"),
            "ValueError: no such message",
        ),
        ("dies", BreakageKind::Ended, format!("was ended by SIGTERM {answered}"), ""),
        ("killed", BreakageKind::Killed, format!("was ended by SIGKILL {answered}"), ""),
        (
            "hangs",
            BreakageKind::Silent,
            "has not answered event 3 (`received`) for 3 s; it used 0.0 s of CPU time: did the program flush its \
             output?"
                .into(),
            "",
        ),
        ("spins", BreakageKind::Silent, "has not answered event 3 (`received`) for 3 s; it used ".into(), ""),
    ] {
        let breakage = receive(bad).broke.expect(bad);
        assert!(breakage.what.starts_with(&what), "{bad}: {}", breakage.what);
        assert_eq!(breakage.kind, kind, "{bad}");
        assert_eq!(breakage.log.last().map_or("", |it| it), log, "{bad}");
        assert!(breakage.log.iter().all(|it| !it.contains("/faultline-programs-")), "{:?}", breakage.log);
    }
}

#[test]
fn a_program_that_cannot_be_started_says_why() {
    let why = |executable: Executable| -> StartError { Arc::new(executable).prepare().unwrap_err() };
    let unknown = Executable { command: vec!["pyhton3".into()], ..(*executable("")).clone() };
    let error = why(unknown.clone());
    assert_eq!(error.to_string(), "bad.py cannot be started: `pyhton3` was not found");
    assert_eq!(error.help, "is it in PATH? `files` are in the working directory");
    let error = why((*executable("future")).clone());
    let expected = "bad.py speaks version 2 of the contract; this Faultline speaks 1";
    assert_eq!(error.to_string(), expected);
    let mut host = Counting::default();
    start(Arc::new(unknown), &mut host);
    assert_eq!(host.broke.unwrap().kind, BreakageKind::NotStarted);
}

#[test]
fn an_execution_serves_later_lives_of_its_process_unless_executions_are_exchanged() {
    let executable = executable("reused");
    let mut host = Counting::default();
    let mut start = |me| start_as(ProcessId(me), executable.clone(), &mut host);
    let lives = |program: &P| program.gauges().checkpoints;
    let both = [start(0), start(1)];
    assert_eq!(both.each_ref().map(lives), [1, 1]);
    drop(both);
    assert_eq!(lives(&start(1)), 2);
    assert_eq!(lives(&start(0)), 2);
    assert_eq!(lives(&start(0)), 3);
    assert_eq!(with_exchanged_executions(|| lives(&start(0))), 3, "process 1 had it before");
    assert_eq!(host.broke, None);
}

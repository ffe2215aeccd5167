//! Measures what one message costs a process, under HC3I and without a protocol. Two ranks of one cluster send a
//! message back and forth, and the only driver is a queue of events.

#[path = "../../../benches/common.rs"]
mod bench;

use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::process::{ActionOf, In};
use faultline_core::{
    Action, Application, Boot, Chunk, Cluster, ClusterId, Digest, Event, FactKinds, Incarnation, Job, Life,
    LifeStart, Member, Membership, MembershipVersion, Node, NodeConfig, NodeId, Outbox, Payload, Process,
    ProcessId, Progress, Protocol, Role, Span, Time, To,
};
use faultline_protocols::hc3i::{self, Hc3i, ReplicateTo};
use faultline_protocols::none::NoProtocol;

const MESSAGES: u64 = 1_000_000;

fn main() {
    bench::pin(1);
    let turns = if bench::quick() { 3 } else { 15 };
    let (mut hc3i, mut none) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        hc3i.push(per_message::<Hc3i>(protocol()));
        none.push(per_message::<NoProtocol>(()));
    }
    bench::row(
        "protocol step: a message sent and received",
        &format!("HC3I {:.0} ns", bench::median(&hc3i)),
        &format!("none {:.0} ns", bench::median(&none)),
        bench::ratio(&hc3i, &none),
        None,
    );
}

fn protocol() -> hc3i::Config {
    hc3i::Config {
        checkpoint_every: [None].into(),
        collect_every: None,
        collect_by: hc3i::CollectBy::Initiator,
        replicas: 1,
        replicate_to: ReplicateTo::SameCluster,
        piggyback: hc3i::Piggyback::Sn,
        forcing: hc3i::Forcing::News,
        retry_every: Span::from_secs(1),
        defects: hc3i::Defects::default(),
    }
}

/// Returns the cost of one message in nanoseconds, including sending and receiving.
fn per_message<P: Protocol>(protocol: P::Config) -> f64 {
    let mut driver = TestDriver::<Node<P, Echo>>::new(NodeConfig {
        protocol: protocol.into(),
        application: ().into(),
        verify: false,
    });
    driver.run(1000);
    let (seconds, ()) = bench::busy(|| driver.run(MESSAGES));
    seconds * 1e9 / MESSAGES as f64
}

/// Two processes and their pending events. Storage operations complete immediately.
struct TestDriver<P: Process> {
    processes: Vec<P>,
    waiting: VecDeque<(usize, In<P>)>,
    actions: Vec<ActionOf<P>>,
    now: Time,
    membership: Membership,
    messages: u64,
}

impl<P: Process> TestDriver<P> {
    fn new(config: P::Config) -> TestDriver<P> {
        let member = |index| Member {
            cluster: ClusterId(0),
            role: Role::RANK,
            node: NodeId(index),
            life: Life(1),
            up: true,
            started: false,
            gone: false,
            idle_lives: 0,
        };
        let cluster = Cluster::new([ProcessId(0), ProcessId(1)].into());
        let membership = Membership {
            version: MembershipVersion(1),
            members: [member(0), member(1)].into(),
            clusters: [cluster].into(),
        };
        let mut driver = TestDriver {
            processes: Vec::new(),
            waiting: VecDeque::new(),
            actions: Vec::new(),
            now: Time::ZERO,
            membership,
            messages: 0,
        };
        let config = Arc::new(config);
        for index in 0..2 {
            let start = LifeStart {
                me: ProcessId(index as u32),
                life: Life(1),
                boot: Boot::Fresh,
                membership: Arc::new(driver.membership.clone()),
                config: config.clone(),
                record: None,
                seed: 1,
                facts: FactKinds::ALL,
            };
            let process = P::start(start, driver.now, &mut driver.actions);
            driver.processes.push(process);
            driver.perform(index);
        }
        driver
    }

    /// Runs until the processes have handled `messages` more application messages.
    fn run(&mut self, messages: u64) {
        let end = self.messages + messages;
        while self.messages < end {
            let (index, event) = self.waiting.pop_front().unwrap_or_else(|| self.timeout());
            if let Event::Packet { packet: faultline_core::Packet::Application { .. }, .. } = event {
                self.messages += 1;
            }
            self.processes[index].handle(event, self.now, &mut self.actions);
            self.perform(index);
        }
    }

    /// Advances the time to the next deadline. Returns the process that set it, and the timeout. Called when no event
    /// is pending.
    fn timeout(&mut self) -> (usize, In<P>) {
        let deadlines =
            self.processes.iter().enumerate().filter_map(|(it, at)| Some((at.next_deadline()?, it)));
        let (at, index) = deadlines.min().expect("a message is in transit, or a deadline is set");
        self.now = self.now.max(at);
        (index, Event::Timeout)
    }

    fn perform(&mut self, index: usize) {
        let from = ProcessId(index as u32);
        for action in self.actions.drain(..) {
            let answer = match action {
                Action::Send { to, packet } => {
                    let to = match to {
                        To::One(to) => to.index(),
                        To::Cluster(_) => 1 - index,
                    };
                    self.waiting.push_back((to, Event::Packet { from, packet }));
                    continue;
                }
                Action::Started => {
                    if !std::mem::replace(&mut Arc::make_mut(&mut self.membership.members)[0].started, true) {
                        self.membership.version.0 += 1;
                        let membership = Arc::new(self.membership.clone());
                        self.waiting.push_back((1 - index, Event::Membership(membership.clone())));
                        self.waiting.push_back((index, Event::Membership(membership)));
                    }
                    continue;
                }
                Action::Persist(image) => Event::Persisted(image.name),
                Action::Read(name) => Event::Read { name, image: None },
                Action::List => Event::Listed(Vec::new()),
                Action::Record { version, .. } => Event::Recorded { version },
                Action::Compute(no, job) => Event::Computed(no, job.run()),
                Action::Delete(_) | Action::Held | Action::Fact(_) => continue,
            };
            self.waiting.push_back((index, answer));
        }
    }
}

/// Returns each message to its sender. Process 0 sends the first message.
#[derive(Clone, Debug)]
struct Echo {
    begins: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Begin;

impl Job for Begin {
    type Output = ();
    fn cost(&self) -> Span {
        Span::ZERO
    }
    fn run(self) {}
}

impl Application for Echo {
    type Job = Begin;
    type Config = ();

    fn new(_: &Arc<()>, me: ProcessId, _: &Membership, _: u64) -> Echo {
        Echo { begins: me == ProcessId(0) }
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        out.send(from, payload);
    }

    fn computed(&mut self, (): (), out: &mut Outbox) {
        out.send(ProcessId(1), Payload::Virtual(1));
    }

    fn next_job(&mut self) -> Option<Begin> {
        std::mem::take(&mut self.begins).then_some(Begin)
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        Some([].into())
    }

    fn restore(&mut self, _: Option<&[Chunk]>, _: Incarnation) {}

    fn result(&self) -> Option<Digest> {
        None
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

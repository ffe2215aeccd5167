//! The contract of HydEE with its programs: what keeps it, what breaks it, and what is said of that. The program that breaks
//! it is master and workers: whoever answers first gets the next piece of work.

use std::sync::Arc;

use faultline_catalog::{Setup, Visitor, with_setup};
use faultline_checker::{Context, Judgement, Property, Verdict, judge};
use faultline_core::fault::Outcome;
use faultline_core::{
    Application, Chunk, Digest, Incarnation, Job, Membership, Node, Outbox, Payload, ProcessId, Progress,
    Protocol, Role, Span,
};
use faultline_fuzz::{Differs, Scenario, difference, run};
use faultline_trace::Trace;
use faultline_trace::manifest::ProtocolKind;
use faultline_workloads::{Workload, exchange, heat, salted};

const MASTER: ProcessId = ProcessId(0);

/// How many pieces of work there are.
#[derive(Clone, Debug)]
struct Pieces(u64);

/// The master has two pieces with every worker at first, and another for each answer; a worker answers each.
#[derive(Clone, Debug)]
struct Farm {
    me: ProcessId,
    workers: Vec<ProcessId>,
    pieces: u64,
    state: State,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Pieces that were given away, or that were worked on.
    begun: u64,
    done: u64,
    /// Pieces that wait.
    waiting: Vec<u64>,
    /// Of everything that came, in the order in which it came.
    hash: u64,
    received: Vec<u32>,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq)]
struct Piece(u64);

impl Job for Piece {
    type Output = u64;

    fn cost(&self) -> Span {
        Span::from_millis(1 + self.0 * 7 % 5)
    }

    fn run(self) -> u64 {
        self.0
    }
}

fn payload(value: u64) -> Payload {
    Payload::from_slice(&value.to_le_bytes())
}

impl Farm {
    fn give(&mut self, to: ProcessId, out: &mut Outbox) {
        if self.state.begun < self.pieces {
            out.send(to, payload(self.state.begun));
            self.state.begun += 1;
        }
    }
}

impl Application for Farm {
    type Job = Piece;
    type Config = Pieces;

    fn new(config: &Arc<Pieces>, me: ProcessId, membership: &Membership, _: u64) -> Farm {
        let ranks: Vec<ProcessId> = membership.with_role(Role::RANK).collect();
        let state = State { received: vec![0; ranks.len()], ..State::default() };
        Farm { me, workers: ranks.into_iter().filter(|&it| it != MASTER).collect(), pieces: config.0, state }
    }

    fn deliver(&mut self, from: ProcessId, content: Payload, out: &mut Outbox) {
        let number = &mut self.state.received[from.index()];
        out.consume(from, *number);
        *number += 1;
        let value = u64::from_le_bytes(content.bytes().try_into().expect("eight bytes"));
        self.state.hash = self.state.hash.rotate_left(7) ^ value ^ u64::from(from.0);
        if self.me == MASTER {
            self.state.done += 1;
            self.give(from, out);
        } else {
            self.state.waiting.push(value);
        }
    }

    fn computed(&mut self, piece: u64, out: &mut Outbox) {
        if self.me == MASTER {
            for worker in self.workers.clone() {
                self.give(worker, out);
                self.give(worker, out);
            }
        } else {
            self.state.waiting.remove(0);
            out.send(MASTER, payload(piece));
        }
    }

    fn next_job(&mut self) -> Option<Piece> {
        match self.me == MASTER {
            true => (self.state.begun == 0).then_some(Piece(0)),
            false => self.state.waiting.first().map(|&it| Piece(it)),
        }
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        let State { begun, done, waiting, hash, received } = &self.state;
        let received = received.iter().map(|&it| u64::from(it));
        let numbers = [*begun, *done, *hash].into_iter().chain(received).chain(waiting.iter().copied());
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        Some([Chunk::Bytes(bytes.into())].into())
    }

    fn restore(&mut self, chunks: Option<&[Chunk]>, _: Incarnation) {
        let ranks = self.workers.len() + 1;
        self.state = match chunks {
            None => State { received: vec![0; ranks], ..State::default() },
            Some([Chunk::Bytes(bytes)]) => {
                let number = |it: &[u8]| u64::from_le_bytes(it.try_into().expect("eight bytes"));
                let mut numbers = bytes.chunks(8).map(number);
                let mut next = || numbers.next().expect("there are three");
                let (begun, done, hash) = (next(), next(), next());
                let received = numbers.by_ref().take(ranks).map(|it| it as u32).collect();
                State { begun, done, hash, received, waiting: numbers.collect() }
            }
            Some(_) => panic!("a snapshot has one chunk"),
        };
    }

    fn result(&self) -> Option<Digest> {
        let is_over = match self.me == MASTER {
            true => self.state.done == self.pieces,
            false => self.state.waiting.is_empty(),
        };
        let mut digest = Digest([0; 16]);
        digest.0[..8].copy_from_slice(&self.state.hash.to_le_bytes());
        is_over.then_some(digest)
    }

    fn progress(&self) -> Progress {
        Progress { done: self.state.done, total: self.pieces }
    }
}

/// Three clusters of two under HydEE, with faults.
fn federation(faults: &str, options: &str) -> faultline_api::Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: farm }}
spec:
  clusters: [{{ name: a, nodes: 2 }}, {{ name: b, nodes: 2 }}, {{ name: c, nodes: 2 }}]
  links: {{ between: {{ latency: 5ms, jitter: 4ms }} }}
  protocol: {{ hydee: {{ checkpointEvery: 1h{options} }} }}
  application: {{ heat: {{ steps: 100 }} }}
  faults: {faults}
  deadline: 60s
"
    );
    let federation = faultline_api::parse("farm.yaml", text.as_bytes());
    federation.unwrap_or_else(|it| panic!("{it}: {:?}", it.complaints()))
}

/// Runs the farm in place of the federation's application.
struct RunFarm;

impl Visitor for RunFarm {
    type Output = (Outcome, Judgement);

    fn visit<P>(self, setup: Setup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        let setup = setup.hosting::<Farm>(Pieces(200));
        let clusters = setup.membership.clusters.iter().map(|it| it.processes.to_vec()).collect();
        let names = setup.names.processes();
        let mut trace = Trace::default();
        let run = faultline_sim::run::<Node<P, Farm>>(setup.simulation(), &mut trace);
        let context = Context {
            outcome: Some(run.outcome.clone()),
            process_names: names,
            common_clock: true,
            ..Context::new(ProtocolKind::Hydee, clusters)
        };
        (run.outcome, judge(&trace, &context))
    }
}

#[test]
fn master_and_workers_are_refused_when_it_shows() {
    let sound = with_setup(&federation("[]", ""), Some(1), RunFarm).unwrap();
    assert_eq!((sound.0, sound.1.verdict), (Outcome::Completed, Verdict::Pass), "{:?}", sound.1.reasons);

    let federation = federation("[{ at: 100ms, crash: { cluster: a, node: 0 } }]", "");
    let mut refused = 0;
    for seed in 0..20 {
        let (outcome, judgement) = with_setup(&federation, Some(seed), RunFarm).unwrap();
        let Outcome::NotRepeated { id } = outcome else { continue };
        refused += 1;
        assert_eq!(id.from, MASTER);
        assert_eq!(judgement.verdict, Verdict::Fail);
        let told = &judgement.of(Property::Completed).violations[0].text;
        for word in ["a-0 did not send message", "does not repeat itself", "such as hc3i"] {
            assert!(told.contains(word), "{told}");
        }
    }
    assert!(refused >= 5, "it showed in {refused} of 20 runs");
}

fn membership() -> Membership {
    struct Of;
    impl Visitor for Of {
        type Output = Membership;
        fn visit<P: Protocol>(self, setup: Setup<P>) -> Membership {
            setup.membership
        }
    }
    with_setup(&federation("[]", ""), None, Of).unwrap()
}

fn of_workload(config: faultline_workloads::Config) -> Option<faultline_fuzz::Difference> {
    difference::<Workload>(&Arc::new(config), &membership(), |it| it.0.into(), 4)
}

#[test]
fn two_orders_tell_master_and_workers_before_any_failure() {
    let found = difference::<Farm>(&Arc::new(Pieces(50)), &membership(), |_| 0, 4).expect("it differs");
    assert_eq!(found.process, MASTER);
    // What it gives away at first does not depend on anything.
    assert!(found.send >= 10, "{found:?}");
}

#[test]
fn programs_that_keep_the_contract_send_the_same_in_every_order() {
    for pattern in 0..20 {
        let config = exchange::Config { pattern, exchanges: 100, ..exchange::Config::default() };
        assert_eq!(of_workload(faultline_workloads::Config::Exchange(config)), None);
    }
    let config =
        heat::Config { rows: 2, columns: 4, steps: 30, feedback_every: 3, ..heat::Config::default() };
    assert_eq!(
        of_workload(faultline_workloads::Config::Heat(heat::Config { state_bytes: 8, ..config })),
        None
    );
}

#[test]
fn answers_in_the_order_of_arrival_are_found() {
    let config = salted::Config { reply: 0.5, ..salted::Config::default() };
    let found = of_workload(faultline_workloads::Config::Salted(config)).expect("it differs");
    assert!(matches!(found.what, Differs::Message | Differs::Count | Differs::Consumed), "{found:?}");
}

/// Copies in the own cluster do not outlive it: nobody can restore it, and it is said who was asked for what.
#[test]
fn a_cluster_that_is_lost_with_all_copies_is_unrecoverable_by_design() {
    let lost = "[{ at: 1s, loseCluster: { cluster: b, storage: lost } }]";
    let federation = federation(lost, ", replicas: 1, replicateTo: sameCluster");
    let trial = run(Scenario { seed: 1, federation, defect: None }).unwrap();
    assert!(matches!(trial.run.outcome, Outcome::Unrecoverable { .. }), "{:?}", trial.run.outcome);
    assert_eq!(trial.judgement.verdict, Verdict::Unknown);
    assert_eq!(trial.judgement.of(Property::UnrecoverableJustified).violation_count(), 0);
    let told = trial.judgement.of(Property::Completed).unknown.as_deref().unwrap_or_default();
    for word in ["b is unrecoverable by design", "the part of b-0", "asked of b-0, b-1"] {
        assert!(told.contains(word), "{told}");
    }
}

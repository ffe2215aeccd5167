//! Tests the conformance kit with protocols of its own: one needs processes in addition to the ranks, and another stops
//! the virtual time.

use faultline_checker::Property;
use faultline_core::fault::{Handled, Outcome};
use faultline_core::{
    Gauges, Host, Input, Life, LifeStart, ProcessId, Promises, Protocol, ProtocolTypes, Role, Scope, Span,
    Time,
};
use faultline_fuzz::Candidate;
use faultline_protocols::hydee::{Config, Defect, Defects, Hydee};
use faultline_protocols::none::NoStamp;
use faultline_protocols::placement::{Placement, ReplicateTo};

/// Returns HydEE as if it were a user's protocol.
fn candidate(defects: Defects) -> Candidate<Hydee> {
    let config = Config {
        checkpoint_every: vec![Some(Span::from_millis(200)); 4].into(),
        placement: Placement { replicas: 1, to: ReplicateTo::SharedStorage },
        log_memory: None,
        retry_every: Span::from_millis(10),
        defects,
    };
    Candidate::new(config)
}

#[test]
fn processes_besides_the_ranks_fail_and_are_replaced() {
    let mut replaced = 0;
    for seed in 0..300 {
        let tried = candidate(Defects::default()).try_seed(seed).unwrap();
        assert_eq!(tried.failure(), None);
        let ranks: u32 = tried.federation.spec.clusters.iter().map(|it| it.nodes).sum();
        let beside = |it: &&(ProcessId, Life)| it.0.0 >= ranks && it.0 != ProcessId::SUPERVISOR;
        replaced += tried.trace.streams.keys().filter(beside).filter(|it| it.1 > Life(1)).count();
    }
    assert!(replaced > 10, "only {replaced} lives of processes that are not ranks started after a failure");
}

#[test]
fn a_defect_of_their_recovery_is_found() {
    let wrong = candidate(Defects::only(Defect::NoBarrier));
    let tried = wrong.first_failure(0..100).unwrap().expect("it is found");
    assert!(tried.judgement.violated().any(|it| it == Property::NoLoss));
}

/// Passes all messages through. From its first message on, asks for a timeout in the past.
#[derive(Clone, Debug)]
struct Restless {
    deadline: Option<Time>,
}

impl ProtocolTypes for Restless {
    type Control = ();
    type Head = ();
    type Saved = ();
}

impl Protocol for Restless {
    type Config = ();
    type Stamp = NoStamp;
    const FIFO: bool = false;

    fn promises((): &()) -> Promises {
        Promises::of_scope(Scope::Cluster)
    }

    fn extra_processes((): &()) -> Vec<Role> {
        Vec::new()
    }

    fn start(_: LifeStart<()>, _: Time, host: &mut dyn Host<Self>) -> Restless {
        host.release();
        Restless { deadline: None }
    }

    fn handle(&mut self, input: Input<Self>, _: Time, host: &mut dyn Host<Self>) {
        match input {
            Input::Sent { id, payload } => host.transmit(id, NoStamp, payload),
            Input::Received { id, payload, .. } => {
                self.deadline = Some(Time::ZERO);
                host.deliver(id, payload);
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

#[test]
fn a_run_without_progress_in_virtual_time_is_a_violation() {
    let candidate = Candidate::<Restless>::new(());
    let tried = candidate.first_failure(0..10).unwrap().expect("it is found");
    let shrunk = candidate.shrink(&tried).unwrap();
    let Some(Outcome::Stalled { handled: Handled::Timeout, .. }) = shrunk.manifest.outcome else {
        panic!("{:?}", shrunk.manifest.outcome)
    };
    let text = &shrunk.judgement.of(Property::TimeAdvances).violations[0].text;
    assert!(
        text.starts_with("virtual time stopped advancing at ") && text.ends_with(" handled a timeout"),
        "{text}"
    );
}

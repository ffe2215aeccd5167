//! Clients in traces for tests: two clients of process 1 read and write a register ten times per second.

use faultline_consistency::Workload;
use faultline_core::operation::{Call, Completion, Key};
use faultline_core::{Fact, HistoryNo, Observation, Span, Time};
use faultline_trace::expectation::{HistoryEntry, ProbeEntry, SystemEntry};

use super::{Run, p};

const HISTORY: HistoryNo = HistoryNo(0);
pub const KEY: Key = Key(0);

/// Returns a completed run that has begun, with one history, `kv`, and a probe for each kind of its operations.
pub fn serving(mix: &[&str]) -> Run {
    let mut run = Run::new(&[&[0], &[1]]);
    let workload = Workload {
        seed: 1,
        model: "register".to_owned(),
        every: Span::from_millis(100),
        mix: mix.iter().map(|it| ((*it).to_owned(), 1)).collect(),
        keys: 1,
        ops_per_key: 300,
        accounts: 8,
    };
    let timeout = Span::from_millis(300);
    let probes = workload.kinds().into_iter().map(|kind| ProbeEntry {
        name: format!("kv.{kind}"),
        by: vec![p(1)],
        every: workload.every(kind),
        timeout,
    });
    let probes = probes.collect();
    let (name, level) = ("kv".to_owned(), "linearizable".to_owned());
    let histories = vec![HistoryEntry { name, by: p(1), count: 2, timeout, level, workload }];
    run.context.system = Some(SystemEntry { probes, histories, ..SystemEntry::default() });
    run.context.outcome = Some(faultline_core::fault::Outcome::Completed);
    run.supervisor(Fact::Begun);
    run
}

impl Run {
    /// Waits until `millis` after the epoch.
    pub fn wait_until(&mut self, millis: u64) {
        self.wait((Time::ZERO + Span::from_millis(millis)).since(self.now));
    }

    pub fn invoke(&mut self, client: u16, operation: u64, call: Call) {
        let observation = Observation::Invoked { history: HISTORY, client, session: 1, operation, call };
        self.state(1, Fact::Observed(Box::new(observation)));
    }

    pub fn conclude(&mut self, operation: u64, completion: Completion) {
        let observation = Observation::Concluded { history: HISTORY, operation, completion };
        self.state(1, Fact::Observed(Box::new(observation)));
    }

    /// Lets a client carry out an operation, which takes 10 ms.
    pub fn operate(&mut self, client: u16, operation: u64, call: Call, completion: Completion) {
        self.invoke(client, operation, call);
        self.wait(Span::from_millis(10));
        self.conclude(operation, completion);
    }
}

//! Expected results of an application in a run without failures.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{Application, Digest, Job, Membership, Outbox, ProcessId};

use crate::messaging::sequential;
use crate::{Config, Workload, exchange, farm, heat, nas, pingpong};

/// Returns the result of each rank in a run without failures, after every message has arrived. `seed` returns the
/// seed of each rank.
///
/// Returns `None` for the salted application, whose result depends on timing, and for an application from another crate
/// if it provides no expected results.
///
/// The heat application's results come from a sequential solver, which takes as long as all steps of all ranks
/// together. The synthetic application's results come from running its ranks sequentially, which is correct because
/// received messages do not affect what a rank sends.
pub fn reference(
    config: &Arc<Config>,
    membership: &Membership,
    seed: impl Fn(ProcessId) -> u64,
) -> Option<Vec<(ProcessId, Digest)>> {
    let ranks = membership.clusters.iter().flat_map(|cluster| cluster.processes.iter().copied());
    match &**config {
        Config::Heat(heat) => {
            let clusters: Vec<usize> = membership.clusters.iter().map(|it| it.processes.len()).collect();
            Some(ranks.zip(heat::reference(heat, &clusters)).collect())
        }
        Config::Synthetic(_) => {
            let mut ranks: Vec<(ProcessId, Workload)> =
                ranks.map(|me| (me, Workload::new(config, me, membership, seed(me)))).collect();
            Some(run_one_by_one(&mut ranks))
        }
        Config::Exchange(exchange) => Some(exchange::reference(exchange, membership)),
        Config::Nas(nas) => Some(nas::reference(nas, membership)),
        Config::PingPong(it) => sequential::<pingpong::Rank>(&Arc::new(it.clone()), membership),
        Config::Farm(it) => Some(farm::reference(it, ranks)),
        Config::Salted(_) => None,
        Config::Custom(it) => it.reference(membership, &seed),
    }
}

fn run_one_by_one(ranks: &mut [(ProcessId, Workload)]) -> Vec<(ProcessId, Digest)> {
    ranks.sort_by_key(|&(id, _)| id);
    let mut out = Outbox::default();
    for at in 0..ranks.len() {
        let from = ranks[at].0;
        while let Some(job) = ranks[at].1.next_job() {
            ranks[at].1.computed(job.run(), &mut out);
            deliver_all(from, &mut out, ranks);
        }
    }
    let result = |rank: &Workload| rank.result().expect("a rank without a job has finished");
    ranks.iter().map(|(id, rank)| (*id, result(rank))).collect()
}

/// Delivers the messages that `from` has sent, and all messages sent in response.
fn deliver_all(from: ProcessId, out: &mut Outbox, ranks: &mut [(ProcessId, Workload)]) {
    for (to, payload) in core::mem::take(&mut out.sends) {
        let place = ranks.binary_search_by_key(&to, |&(id, _)| id).expect("the receiver is a rank");
        let mut answers = Outbox::default();
        ranks[place].1.deliver(from, payload, &mut answers);
        deliver_all(to, &mut answers, ranks);
    }
}

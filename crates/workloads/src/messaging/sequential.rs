//! Computes the results of a program in a run without failures, by executing all ranks in one loop with immediate
//! delivery.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Application, Digest, Job, Membership, Outbox, Payload, ProcessId, Role};

use super::{Performer, Program};

/// Returns the results of all ranks; `None` if the ranks deadlock. A program's result does not depend on the order of
/// execution, so any order is correct.
///
/// # Panics
///
/// Panics if the program breaks the rules of the messaging interface, for example if a rank sends to itself, or to a
/// rank that does not exist.
pub fn sequential<P: Program>(
    config: &Arc<P::Config>,
    membership: &Membership,
) -> Option<Vec<(ProcessId, Digest)>> {
    let mut ranks: Vec<(ProcessId, Performer<P>)> =
        membership.with_role(Role::RANK).map(|me| (me, Performer::new(config, me, membership, 0))).collect();
    let mut on_the_way: VecDeque<(ProcessId, ProcessId, Payload)> = VecDeque::new();
    let mut out = Outbox::default();
    loop {
        let mut has_moved = false;
        for (me, rank) in &mut ranks {
            while let Some(job) = rank.next_job() {
                job.run();
                rank.computed((), &mut out);
                on_the_way.extend(out.sends.drain(..).map(|(to, payload)| (*me, to, payload)));
                has_moved = true;
            }
        }
        while let Some((from, to, payload)) = on_the_way.pop_front() {
            let at = ranks.binary_search_by_key(&to, |it| it.0).expect("the receiver is a rank");
            ranks[at].1.deliver(from, payload, &mut out);
            on_the_way.extend(out.sends.drain(..).map(|(next, payload)| (to, next, payload)));
            has_moved = true;
        }
        out.consumed.clear();
        if !has_moved {
            break;
        }
    }
    ranks.into_iter().map(|(me, rank)| Some((me, rank.result()?))).collect()
}

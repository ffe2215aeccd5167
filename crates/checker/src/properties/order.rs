//! What the processes have done in the end, as sends and consumptions, and an order of it in which every message is sent
//! before it is consumed. What depends on nothing later has such an order; the phases of messages follow from it.

use std::collections::{HashMap, HashSet};

use faultline_core::{Fact, MessageId, ProcessId};

use crate::history::{Ending, History, Point, SegmentNo};
use crate::judgement::Source;

/// What a process does that others can depend on.
#[derive(Clone, Copy)]
pub(super) enum Doing {
    Sends(MessageId),
    Consumes(MessageId),
}

/// What each process has done in the end, in its order. Consumed messages whose send is not known to last are left out:
/// `no_ghost` speaks of them.
pub(super) fn doings(history: &History<'_>) -> Vec<Vec<(Doing, Source)>> {
    let mut doings: Vec<Vec<(Doing, Source)>> = (0..history.processes.len()).map(|_| Vec::new()).collect();
    for (index, process) in history.processes.iter().enumerate() {
        if !matches!(history.ending(ProcessId(index as u32)), Ending::Known(_) | Ending::Silent) {
            continue;
        }
        for number in process.segments.clone() {
            let segment = &history.segments[number as usize];
            let Some(stream) = history.trace.streams.get(&(segment.host, segment.life)) else { continue };
            for fact in segment.begin..segment.survives {
                let doing = match stream[fact as usize].1 {
                    Fact::Sent { id, .. } => Doing::Sends(id),
                    Fact::Consumed(id) if is_sent(history, id) => Doing::Consumes(id),
                    _ => continue,
                };
                let at = Point { segment: SegmentNo(number), fact };
                doings[index].push((doing, history.source(at)));
            }
        }
    }
    doings
}

fn is_sent(history: &History<'_>, id: MessageId) -> bool {
    history.messages.find(id).and_then(|message| history.send_survives(message)) == Some(true)
}

/// Lets every process go on as far as it can, and gives `visit` what each does, in an order in which every message is sent
/// before it is consumed. Tells of a process that waits when nobody can go on.
pub(super) fn replay(
    doings: &[Vec<(Doing, Source)>],
    mut visit: impl FnMut(ProcessId, Doing),
) -> Option<(MessageId, Source)> {
    let mut done = vec![0; doings.len()];
    let mut sent = HashSet::new();
    let mut waiting: HashMap<MessageId, usize> = HashMap::new();
    let mut ready: Vec<usize> = (0..doings.len()).collect();
    while let Some(process) = ready.pop() {
        while let Some(&(doing, _)) = doings[process].get(done[process]) {
            match doing {
                Doing::Sends(id) => {
                    sent.insert(id);
                    ready.extend(waiting.remove(&id));
                }
                Doing::Consumes(id) if !sent.contains(&id) => {
                    waiting.insert(id, process);
                    break;
                }
                Doing::Consumes(_) => {}
            }
            visit(ProcessId(process as u32), doing);
            done[process] += 1;
        }
    }
    doings.iter().zip(done).find_map(|(doings, done)| match doings.get(done) {
        Some(&(Doing::Consumes(id), at)) => Some((id, at)),
        _ => None,
    })
}

/// The phases of the messages that were sent in the end (HydEE section III-B): a process begins in phase 1, a message has the
/// phase of its sender, and raises its receiver's to its own, or above it when it comes from another cluster.
///
/// They are known only if it is known what everybody has done in the end.
pub(super) fn phases(history: &History<'_>) -> HashMap<MessageId, u32> {
    let is_known = |&it: &ProcessId| matches!(history.ending(it), Ending::Known(_) | Ending::Silent);
    if !history.groups.iter().flat_map(|it| &it.members).all(is_known) {
        return HashMap::new();
    }
    let mut phases: HashMap<MessageId, u32> = HashMap::new();
    let mut of_process = vec![1; history.processes.len()];
    replay(&doings(history), |process, doing| {
        let own = &mut of_process[process.index()];
        match doing {
            Doing::Sends(id) => {
                phases.insert(id, *own);
            }
            Doing::Consumes(id) => {
                let is_inside = history.group_of(id.from) == history.group_of(id.to);
                *own = (*own).max(phases[&id] + u32::from(!is_inside));
            }
        }
    });
    phases
}

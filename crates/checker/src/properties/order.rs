//! The final states of the processes as sequences of sends and consumptions, and an order in which every message is
//! sent before it is consumed. Such an order exists unless some action depends on a later one. The phases of messages
//! follow from this order.

use std::collections::{HashMap, HashSet};

use faultline_core::{Fact, MessageId, ProcessId};

use faultline_history::{Ending, History, Point, SegmentNo, Source};

/// An action of a process on which others can depend.
#[derive(Clone, Copy)]
pub(super) enum ProcessAction {
    Sends(MessageId),
    Consumes(MessageId),
}

/// Returns the actions in the final state of each process, in the order in which it took them. Omits consumed messages
/// whose send is not known to survive, since `no_ghost` judges these.
pub(super) fn final_actions(history: &History<'_>) -> Vec<Vec<(ProcessAction, Source)>> {
    let mut final_actions: Vec<Vec<(ProcessAction, Source)>> =
        (0..history.processes.len()).map(|_| Vec::new()).collect();
    for (index, process) in history.processes.iter().enumerate() {
        if !matches!(history.ending(ProcessId(index as u32)), Ending::Known(_) | Ending::Silent) {
            continue;
        }
        for number in process.segments.clone() {
            let segment = &history.segments[number as usize];
            let Some(stream) = history.trace.streams.get(&(segment.host, segment.life)) else { continue };
            for fact in segment.begin..segment.survives {
                let doing = match stream[fact as usize].1 {
                    Fact::Sent { id, .. } => ProcessAction::Sends(id),
                    Fact::Consumed(id) if is_sent(history, id) => ProcessAction::Consumes(id),
                    _ => continue,
                };
                let at = Point { segment: SegmentNo(number), fact };
                final_actions[index].push((doing, history.source(at)));
            }
        }
    }
    final_actions
}

fn is_sent(history: &History<'_>, id: MessageId) -> bool {
    history.messages.find(id).and_then(|message| history.send_survives(message)) == Some(true)
}

/// Advances every process as far as possible, and passes each action to `visit`, in an order in which every message is
/// sent before it is consumed. If actions are left when no process can advance, returns a message for which a process
/// waits, and the fact that reports its consumption.
pub(super) fn replay(
    final_actions: &[Vec<(ProcessAction, Source)>],
    mut visit: impl FnMut(ProcessId, ProcessAction),
) -> Option<(MessageId, Source)> {
    let mut done = vec![0; final_actions.len()];
    let mut sent = HashSet::new();
    let mut waiting: HashMap<MessageId, usize> = HashMap::new();
    let mut ready: Vec<usize> = (0..final_actions.len()).collect();
    while let Some(process) = ready.pop() {
        while let Some(&(doing, _)) = final_actions[process].get(done[process]) {
            match doing {
                ProcessAction::Sends(id) => {
                    sent.insert(id);
                    ready.extend(waiting.remove(&id));
                }
                ProcessAction::Consumes(id) if !sent.contains(&id) => {
                    waiting.insert(id, process);
                    break;
                }
                ProcessAction::Consumes(_) => {}
            }
            visit(ProcessId(process as u32), doing);
            done[process] += 1;
        }
    }
    final_actions.iter().zip(done).find_map(|(final_actions, done)| match final_actions.get(done) {
        Some(&(ProcessAction::Consumes(id), at)) => Some((id, at)),
        _ => None,
    })
}

/// Returns the phases of the messages in the final states of their senders (HydEE section III-B). A process
/// starts in phase 1. A message has the phase of its sender, and raises its receiver's phase to its own, or
/// to one more than its own if it comes from another cluster.
///
/// The phases are known only if the final states of all processes are known.
pub(super) fn phases(history: &History<'_>) -> HashMap<MessageId, u32> {
    let is_known = |&it: &ProcessId| matches!(history.ending(it), Ending::Known(_) | Ending::Silent);
    if !history.groups.iter().flat_map(|it| &it.members).all(is_known) {
        return HashMap::new();
    }
    let mut phases: HashMap<MessageId, u32> = HashMap::new();
    let mut of_process = vec![1; history.processes.len()];
    replay(&final_actions(history), |process, doing| {
        let own = &mut of_process[process.index()];
        match doing {
            ProcessAction::Sends(id) => {
                phases.insert(id, *own);
            }
            ProcessAction::Consumes(id) => {
                let is_inside = history.group_of(id.from) == history.group_of(id.to);
                *own = (*own).max(phases[&id] + u32::from(!is_inside));
            }
        }
    });
    phases
}

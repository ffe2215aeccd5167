//! Causal order (HydEE section II-A: the events of an execution are consistent with the happened-before relation): what the
//! processes have done in the end can be put into one order in which every message is sent before it is consumed.
//!
//! Without rollbacks nothing else is possible. But where messages of a rolled-back process are still there before it has
//! sent them again, a message that depends on them can overtake them: be consumed by what led to them. Judged where the
//! application states what it consumes.

use std::collections::{HashMap, HashSet};

use faultline_core::{Fact, MessageId, ProcessId};

use crate::history::{Ending, History};
use crate::judgement::{Finding, Property, Source};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::CausalOrder);
    let mut doings: Vec<Vec<(Doing, Source)>> = (0..history.processes.len()).map(|_| Vec::new()).collect();
    let mut consumed = 0;
    for (index, process) in history.processes.iter().enumerate() {
        if !matches!(history.ending(ProcessId(index as u32)), Ending::Known(_) | Ending::Silent) {
            continue;
        }
        for number in process.segments.clone() {
            let segment = &history.segments[number as usize];
            let Some(stream) = history.trace.streams.get(&(segment.process, segment.life)) else { continue };
            for fact in segment.begin..segment.survives {
                let doing = match stream[fact as usize].1 {
                    Fact::Sent { id, .. } => Doing::Sends(id),
                    Fact::Consumed(id) if is_sent(history, id) => Doing::Consumes(id),
                    _ => continue,
                };
                consumed += u64::from(matches!(doing, Doing::Consumes(_)));
                let at = crate::history::Point { segment: crate::history::SegmentNo(number), fact };
                doings[index].push((doing, history.source(at)));
            }
        }
    }
    finding.instances = consumed;
    if consumed > 0
        && let Some((id, at)) = first_that_depends_on_itself(&doings)
    {
        let context = history.context;
        finding.violated([at], || {
            let (receiver, message) = (context.process(id.to), context.message(id));
            format!("{receiver} consumed {message}, which was sent because of what {receiver} did after that")
        });
    }
    finding
}

#[derive(Clone, Copy)]
enum Doing {
    Sends(MessageId),
    Consumes(MessageId),
}

/// Whether the message has a send in the end; if it has none, `no_ghost` says so, and if that is not known, nobody can.
fn is_sent(history: &History<'_>, id: MessageId) -> bool {
    history.messages.find(id).and_then(|message| history.send_survives(message)) == Some(true)
}

/// Lets every process go on as far as it can, and tells of one that waits when nobody can.
fn first_that_depends_on_itself(doings: &[Vec<(Doing, Source)>]) -> Option<(MessageId, Source)> {
    let mut done = vec![0; doings.len()];
    let mut sent = HashSet::new();
    let mut waiting: HashMap<MessageId, usize> = HashMap::new();
    let mut ready: Vec<usize> = (0..doings.len()).collect();
    while let Some(process) = ready.pop() {
        while let Some((doing, _)) = doings[process].get(done[process]) {
            match *doing {
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
            done[process] += 1;
        }
    }
    doings.iter().zip(done).find_map(|(doings, done)| match doings.get(done) {
        Some(&(Doing::Consumes(id), at)) => Some((id, at)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};

    #[test]
    fn a_chain_of_messages_is_in_order_whoever_is_read_first() {
        let mut run = Run::new(&[&[0], &[1], &[2]]);
        let first = run.send(2, 1);
        run.deliver(first);
        run.consume(first);
        let second = run.send(1, 0);
        run.deliver(second);
        run.consume(second);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }

    #[test]
    fn what_was_consumed_before_its_cause_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let cause = run.send(0, 1);
        run.deliver(cause);
        run.consume(cause);
        let effect = run.send(1, 0);
        // The cause is undone, its effect is not, and comes before it.
        run.restore(0, 0, Some((0, 1)));
        run.deliver(effect);
        run.consume(effect);
        assert_eq!(check_alone(check, &run).violation_count(), 0, "the cause is not there any more");
        run.send_as(cause);
        let finding = check_alone(check, &run);
        assert!(finding.violations[0].text.contains("because of what p0 did after that"), "{finding:?}");
    }
}

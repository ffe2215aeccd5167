//! Determines the final states, once all facts have been read.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{Claim, ImageName, Position, ProcessId};

use super::{Builder, Deliveries, Delivery};
use crate::groups::CheckpointName;
use crate::history::{CheckpointCut, Claimed};
use crate::history::{History, find_cut};
use crate::segments::{Ending, Point, SegmentNo};
use crate::tasks::{self, Absorption};

impl<'a> Builder<'a> {
    pub(super) fn finish(mut self) -> History<'a> {
        self.enter_deliveries();
        self.enter_parts();
        if !self.planned.is_empty() {
            self.history.planned = Some(std::mem::take(&mut self.planned));
        } else if !self.tasks.is_empty() {
            let mut read = std::mem::take(&mut self.tasks);
            read.moves = 0;
            self.history.tasks = Some(tasks::follow(&self.history, read));
        }
        self.end_processes();
        self.keep_what_was_absorbed();
        self.settle();
        self.history
    }

    fn enter_deliveries(&mut self) {
        let history = &mut self.history;
        let mut numbers = Vec::with_capacity(Deliveries::PIECE);
        for Deliveries { last, full } in self.deliveries.drain(..) {
            for piece in full.into_iter().chain([last]) {
                // Two loops: the second mostly waits for memory, and a short loop can wait for several messages at
                // once.
                numbers.clear();
                numbers.extend(piece.iter().map(|it| history.messages.entry(&it.message)));
                for (delivery, &number) in piece.iter().zip(&numbers) {
                    history.messages.get_mut(number).deliver(delivery.at);
                    if delivery.between != Delivery::WITHIN {
                        history.between[delivery.between as usize].message = number;
                    }
                }
            }
        }
    }

    /// Finds the cut of every part, and its holders.
    fn enter_parts(&mut self) {
        let history = &mut self.history;
        for group in history.groups.iter_mut() {
            for (place, member) in group.members.iter().enumerate() {
                let own = history.processes[member.index()].segments.clone();
                let segments = &history.segments[own.start as usize..own.end as usize];
                for (name, checkpoint) in &mut group.checkpoints {
                    let part = &mut checkpoint.parts[place];
                    let CheckpointName { position: Position { incarnation, sn }, attempt } = *name;
                    let name = ImageName { owner: *member, incarnation, sn, attempt };
                    let host = history.saved_by.get(&name).copied().unwrap_or(*member);
                    part.cut =
                        part.witness.and_then(|(witness, _)| find_cut(segments, own.start, host, &witness));
                }
            }
        }
        for (name, copy) in self.durable.drain(..) {
            if let Some((group, place)) = history.member(name.owner) {
                let checkpoint = history.groups[group].checkpoints.get_mut(&CheckpointName::from(name));
                if let Some(checkpoint) = checkpoint {
                    checkpoint.parts[place].copies.push(copy);
                }
            }
        }
        for (number, group) in history.groups.numbered() {
            for (&name, checkpoint) in &group.checkpoints {
                if !checkpoint.commits.is_empty() || checkpoint.is_restored {
                    let parts = history.part_cuts.len() as u32;
                    let cuts = checkpoint.parts.iter().map(|part| part.cut);
                    history.part_cuts.extend(cuts.clone());
                    let cut = |cut| CheckpointCut { cut, group: number, name, parts };
                    history.cuts.extend(cuts.flatten().map(cut));
                }
            }
        }
        history.cuts.sort_unstable();
        let first_of = |segment| history.cuts.partition_point(|it| it.cut.segment.0 < segment) as u32;
        history.cuts_of = (0..=history.segments.len() as u32).map(first_of).collect();
    }

    /// Determines the final state of every process.
    fn end_processes(&mut self) {
        let history = &mut self.history;
        let completed = history.context.outcome == Some(Outcome::Completed);
        let given_up = given_up(history);
        let gone = history.supervision.gone(&history.context.clusters);
        for index in 0..history.processes.len() {
            let process = ProcessId(index as u32);
            let range = history.processes[index].segments.clone();
            let ending = match history.segments[range.start as usize..range.end as usize].last() {
                None if history.supervision.ends.iter().any(|end| end.process == process) => {
                    Ending::Unsettled
                }
                None => Ending::Silent,
                Some(last) => {
                    // The process that took over the partition last, if any; otherwise, the partition's own.
                    let host = last.host;
                    let has_state = history.has_state(SegmentNo(range.end - 1));
                    let newer = history.supervision.newest_life(host).is_some_and(|life| life > last.life);
                    let dead = history.supervision.end_of(host, last.life).is_some();
                    let gap = history.trace.has_gap(host, last.life);
                    if gone.contains(&process) && history.planned.is_none() {
                        Ending::Gone
                    } else if gone.contains(&host) {
                        Ending::Unsettled
                    } else if last.is_rootless || gap {
                        Ending::Incomplete
                    } else if !has_state
                        || newer
                        || (dead || lags(history, process)) && !completed
                        || dead && history.context.derives_supervision()
                        || given_up.contains(&process)
                    {
                        Ending::Unsettled
                    } else {
                        Ending::Known(Point { segment: SegmentNo(range.end - 1), fact: last.end })
                    }
                }
            };
            history.processes[index].ending = ending;
            let mut cut = match ending {
                Ending::Known(cut) => Some(cut),
                _ => None,
            };
            while let Some(Point { segment, fact }) = cut {
                let segment = &mut history.segments[segment.0 as usize];
                segment.survives = fact;
                cut = segment.parent;
            }
        }
    }

    /// Marks the work of permanently failed processes as surviving, up to the states that surviving processes absorbed.
    fn keep_what_was_absorbed(&mut self) {
        let history = &mut self.history;
        let mut absorptions = history.tasks.as_ref().map_or(Vec::new(), |it| it.absorptions.clone());
        loop {
            let survives = |it: &Absorption| history.survives(it.at);
            let (found, rest): (Vec<_>, Vec<_>) = absorptions.into_iter().partition(survives);
            if found.is_empty() {
                return;
            }
            absorptions = rest;
            for it in found.iter().filter(|it| it.image.is_some()) {
                let mut cut = history.cut_of(it.of, &it.witness);
                while let Some(Point { segment, fact }) = cut {
                    let segment = &mut history.segments[segment.0 as usize];
                    segment.survives = segment.survives.max(fact);
                    cut = segment.parent;
                }
            }
        }
    }

    /// Determines whether nothing was in transit at the end of the run.
    fn settle(&mut self) {
        let context = self.history.context;
        self.history.is_settled = match context.outcome {
            Some(Outcome::Completed) => true,
            Some(Outcome::Deadline) => context.settled_after.is_some_and(|quiet| {
                let since = self.last_movement.max(self.history.last_disturbance());
                let transit = self.history.transit_time(since) + self.history.longest_delay();
                context.end.since(since) >= quiet.max(transit)
            }),
            _ => false,
        };
    }
}

/// Returns whether other members of the group of `process` have rolled back but `process` has not.
fn lags(history: &History<'_>, process: ProcessId) -> bool {
    let Some((group, place)) = history.member(process) else { return false };
    let mut newest = history.groups[group].rollbacks.values().rev().filter(|it| it.target().is_some());
    newest.next().is_some_and(|it| it.restored.get(place).is_none_or(Option::is_none))
}

/// Returns the members of groups in which a process claimed that the group cannot be restored, and restored nothing
/// afterwards. They may have announced a rollback that they did not perform, so it is unknown which of their states
/// survive.
fn given_up(history: &History<'_>) -> BTreeSet<ProcessId> {
    let gave_up = |claimed: &&Claimed<'_>| {
        let own = history.processes[history.process_of(claimed.at).index()].segments.clone();
        let later = claimed.at.segment.0 + 1..own.end;
        matches!(claimed.claim, Claim::Unrecoverable { .. })
            && !later.map(|it| history.segment(SegmentNo(it))).any(|it| it.is_restored)
    };
    let words = history.claims.iter().filter(gave_up);
    let groups = words.filter_map(|claimed| history.group_of(history.process_of(claimed.at)));
    groups.flat_map(|group| history.groups[group].members.iter().copied()).collect()
}

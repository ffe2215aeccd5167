//! Stops of commands: nodes of a system are told to end their commands, at once or one after the other. The life of a node
//! ends once its command has, and the next one begins.

use std::collections::VecDeque;

use faultline_core::{EndedBy, FaultNo, Life, ProcessId, Span, StorageFate, Time};

use crate::interface::Order;
use crate::supervisor::{LifeState, Supervisor};

/// A fault that stops commands, until the last one has ended.
#[derive(Debug)]
pub(crate) struct Stopping {
    pub(crate) no: FaultNo,
    pub(crate) storage: StorageFate,
    pub(crate) repair: Option<Span>,
    pub(crate) within: Span,
    pub(crate) command: Option<u16>,
    /// The nodes that have not been told yet.
    pub(crate) rest: VecDeque<ProcessId>,
    /// If the nodes are told one after the other, the node that must become ready before the next one is told.
    pub(crate) awaited: Option<ProcessId>,
    /// The lives that were told, and have not ended.
    pub(crate) told: Vec<(ProcessId, Life)>,
}

impl Supervisor {
    /// Begins to stop commands. If `in_turn`, tells one node after the other.
    pub(crate) fn begin_stop(&mut self, mut stopping: Stopping, in_turn: bool, out: &mut Vec<Order>) {
        if !in_turn {
            for process in std::mem::take(&mut stopping.rest) {
                self.tell_to_stop(process, &mut stopping, out);
            }
        }
        self.stops.push(stopping);
        self.continue_stops(out);
    }

    /// Returns whether a command has not ended, or has not even been told to.
    pub(crate) fn is_stopping(&self) -> bool {
        !self.stops.is_empty()
    }

    /// Handles the end of a command. Ends the life of its node if the node was told to end the command.
    pub(crate) fn command_stopped(&mut self, process: ProcessId, now: Time, out: &mut Vec<Order>) {
        let life = self.entries[process.index()].life;
        let Some(stopping) = self.stops.iter().find(|it| it.told.contains(&(process, life))) else { return };
        let (no, storage, repair) = (stopping.no, stopping.storage, stopping.repair);
        if let Some(repair) = repair {
            self.begin_repairs(&[process], now + repair);
        }
        self.kill(&[process], storage, EndedBy::Fault(no), now, out);
    }

    /// Records that the life of a node has ended, whatever ended it.
    pub(crate) fn stop_ended(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        self.stops.iter_mut().for_each(|it| it.told.retain(|it| it.0 != process));
        self.continue_stops(out);
    }

    /// Records that a node is ready.
    pub(crate) fn ready_after_stop(&mut self, process: ProcessId, out: &mut Vec<Order>) {
        // A node that has been told to end its command may become ready just before it ends.
        let is_told = |it: &Stopping| it.told.iter().any(|it| it.0 == process);
        for stopping in self.stops.iter_mut().filter(|it| it.awaited == Some(process) && !is_told(it)) {
            stopping.awaited = None;
        }
        self.continue_stops(out);
    }

    /// Tells the next nodes to end their commands, and forgets what is over.
    fn continue_stops(&mut self, out: &mut Vec<Order>) {
        let mut stops = std::mem::take(&mut self.stops);
        for stopping in &mut stops {
            while stopping.awaited.is_none()
                && let Some(process) = stopping.rest.pop_front()
            {
                let entry = &self.entries[process.index()];
                stopping.awaited = Some(process).filter(|_| !self.preparation.has_exited(process));
                if entry.state == LifeState::Registered {
                    self.tell_to_stop(process, stopping, out);
                } else if stopping.awaited.is_some() {
                    // It is told once it is ready.
                    stopping.rest.push_front(process);
                }
            }
        }
        stops.retain(|it| !it.rest.is_empty() || !it.told.is_empty());
        self.stops = stops;
    }

    /// Tells a node to end its command, if it runs one.
    fn tell_to_stop(&mut self, process: ProcessId, stopping: &mut Stopping, out: &mut Vec<Order>) {
        if self.runs_command(process) {
            let (life, within, command) =
                (self.entries[process.index()].life, stopping.within, stopping.command);
            stopping.told.push((process, life));
            out.push(Order::Stop { process, life, within, command });
        }
    }

    /// Returns whether a node has registered, and its command has not exited.
    pub(crate) fn runs_command(&self, process: ProcessId) -> bool {
        let entry = &self.entries[process.index()];
        entry.state == LifeState::Registered && !self.preparation.has_exited(process)
    }
}

//! The memory of a simulation, broken down by its contents.

use faultline_core::{Footprint, Process};
use faultline_trace::Sink;

use crate::simulation::Simulation;

/// The contents of a simulation's memory, except facts, which its sink keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of stored images: parts of checkpoints, and their replicas.
    pub images: u64,
    /// Memory of all stored images, in bytes. Data that several images share counts once.
    pub image_bytes: u64,
    /// Number of messages in the logs of all processes.
    pub logged: u64,
    /// Payload of all logged messages in memory, in bytes. Excludes payload that is stored on disk.
    pub logged_bytes: u64,
    /// Number of pending events, including packets in transit.
    pub queued: u64,
    /// Memory of all pending events, in bytes, excluding the contents of long messages.
    pub queued_bytes: u64,
}

impl<P: Process, S: Sink> Simulation<'_, P, S> {
    /// Returns the current contents of memory. Visits all stored data.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents {
            queued: self.queue.len() as u64,
            queued_bytes: self.queue.bytes(),
            ..Contents::default()
        };
        let mut footprint = Footprint::default();
        for image in self.storages.iter().flat_map(|storage| storage.images()) {
            contents.images += 1;
            image.add_to(&mut footprint, P::add_to);
        }
        contents.image_bytes = footprint.bytes();
        for process in self.sim_processes.iter().filter_map(|sim_process| sim_process.process.as_ref()) {
            let gauges = process.gauges();
            contents.logged += gauges.log_messages;
            contents.logged_bytes += gauges.log_bytes - gauges.log_bytes_spilled;
        }
        contents
    }
}

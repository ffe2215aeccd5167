//! Facts in memory.

use std::collections::BTreeMap;

use faultline_core::{Fact, FactNo, Life, ProcessId, Time};
use serde::{Deserialize, Serialize};

/// One fact with its header, as a driver hands it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who stated it; [`ProcessId::SUPERVISOR`] for the supervisor.
    pub process: ProcessId,
    /// In which life; 0 for the supervisor.
    pub life: Life,
    /// Its place in that life's stream, from 0 and without gaps.
    pub number: FactNo,
    /// By the clock of the driver that hosts the process. No clock orders facts of different processes.
    pub at: Time,
    /// It.
    pub fact: Fact,
}

/// Takes facts as they are stated.
pub trait Sink {
    /// Takes one fact.
    fn record(&mut self, record: Record);
}

/// A sink that keeps nothing, for measurements.
impl Sink for () {
    fn record(&mut self, _: Record) {}
}

impl Sink for Vec<Record> {
    fn record(&mut self, record: Record) {
        self.push(record);
    }
}

/// The facts of one life, in order; the index is the fact's number.
pub type Stream = Vec<(Time, Fact)>;

/// All facts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// One stream per life, the supervisor's under ([`ProcessId::SUPERVISOR`], 0).
    pub streams: BTreeMap<(ProcessId, Life), Stream>,
    /// Facts that were missing before a fact that arrived: evidence with a hole in it.
    pub gaps: Vec<(ProcessId, Life, FactNo)>,
}

impl Sink for Trace {
    fn record(&mut self, record: Record) {
        let stream = self.streams.entry((record.process, record.life)).or_default();
        if stream.len() as u64 != record.number.0 {
            self.gaps.push((record.process, record.life, record.number));
        }
        stream.push((record.at, record.fact));
    }
}

impl Trace {
    /// The supervisor's facts.
    pub fn supervisor(&self) -> &[(Time, Fact)] {
        self.streams.get(&(ProcessId::SUPERVISOR, Life(0))).map_or(&[], Vec::as_slice)
    }

    /// The lives of one process, ascending.
    pub fn lives(&self, process: ProcessId) -> impl Iterator<Item = (Life, &Stream)> {
        self.streams.range((process, Life(0))..=(process, Life(u32::MAX))).map(|(&(_, life), it)| (life, it))
    }
}

//! Facts in memory.

use std::collections::BTreeMap;

use faultline_core::{Fact, FactKinds, FactNo, Life, ProcessId, Time};
use serde::{Deserialize, Serialize};

use crate::flaw::{Flaw, FlawKind};

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
    /// The kinds of fact that are taken; of others a driver need not tell it. Facts are numbered without gaps if all
    /// are taken.
    const TAKES: FactKinds = FactKinds::ALL;
    /// Takes one fact.
    fn record(&mut self, record: Record);
}

/// A sink that keeps nothing, for measurements.
impl Sink for () {
    const TAKES: FactKinds = FactKinds::NONE;
    #[inline]
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
    /// What is wrong with this evidence, the description of the run included. Empty for a run that was kept in memory.
    pub flaws: Vec<Flaw>,
}

impl Sink for Trace {
    fn record(&mut self, record: Record) {
        let (process, life) = (record.process, record.life);
        if self.has_gap(process, life) {
            return;
        }
        let stream = self.streams.entry((process, life)).or_default();
        if stream.len() as u64 == record.number.0 {
            stream.push((record.at, record.fact));
        } else {
            self.note_gap(process, life);
        }
    }
}

/// Takes the facts of a whole run into memory, quickly: the streams of the newest lives are found by their number.
#[derive(Debug, Default)]
pub struct Recorder {
    /// By process; empty for one that has stated nothing.
    newest: Vec<(Life, Stream)>,
    rest: Trace,
}

impl Recorder {
    /// Everything that was recorded.
    ///
    /// A life that the supervisor started and that stated nothing has an empty stream.
    pub fn finish(mut self) -> Trace {
        for index in 0..self.newest.len() {
            self.put_away(index);
        }
        let silent: Vec<_> = self.rest.started().collect();
        for life in silent {
            self.rest.streams.entry(life).or_default();
        }
        self.rest
    }

    /// What is not the next fact of a newest life.
    fn record_other(&mut self, record: Record) {
        let index = record.process.index();
        if record.process != ProcessId::SUPERVISOR && record.number == FactNo(0) {
            if index >= self.newest.len() {
                self.newest.resize(index + 1, (Life(0), Stream::new()));
            }
            let known = self.rest.streams.contains_key(&(record.process, record.life));
            if self.newest[index].0 < record.life && !known {
                self.put_away(index);
                self.newest[index] = (record.life, vec![(record.at, record.fact)]);
                return;
            }
        }
        if index < self.newest.len() {
            self.put_away(index);
        }
        self.rest.record(record);
    }

    fn put_away(&mut self, index: usize) {
        let (life, stream) = &mut self.newest[index];
        if !stream.is_empty() {
            self.rest.streams.insert((ProcessId(index as u32), *life), std::mem::take(stream));
        }
    }
}

impl Sink for Recorder {
    #[inline]
    fn record(&mut self, record: Record) {
        match self.newest.get_mut(record.process.index()) {
            Some((life, stream)) if *life == record.life && stream.len() as u64 == record.number.0 => {
                stream.push((record.at, record.fact));
            }
            _ => self.record_other(record),
        }
    }
}

impl Trace {
    /// The supervisor's facts.
    pub fn supervisor(&self) -> &[(Time, Fact)] {
        self.streams.get(&(ProcessId::SUPERVISOR, Life(0))).map_or(&[], Vec::as_slice)
    }

    /// When the application began, by the supervisor's clock: the origin of the times that people are told.
    pub fn begun(&self) -> Option<Time> {
        self.supervisor().iter().find_map(|(at, fact)| (*fact == Fact::Begun).then_some(*at))
    }

    /// The lives of one process, ascending.
    pub fn lives(&self, process: ProcessId) -> impl DoubleEndedIterator<Item = (Life, &Stream)> {
        self.streams.range((process, Life(0))..=(process, Life(u32::MAX))).map(|(&(_, life), it)| (life, it))
    }

    /// Number of facts.
    pub fn len(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All facts, by process and life, in the order of stating.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.streams.iter().flat_map(|(&(process, life), stream)| {
            stream.iter().zip(0..).map(move |((at, fact), number)| Record {
                process,
                life,
                number: FactNo(number),
                at: *at,
                fact: fact.clone(),
            })
        })
    }

    /// Every life that the supervisor says it started.
    pub fn started(&self) -> impl Iterator<Item = (ProcessId, Life)> + '_ {
        self.supervisor().iter().filter_map(|(_, fact)| match fact {
            Fact::LifeStarted { process, life, .. } => Some((*process, *life)),
            _ => None,
        })
    }

    /// Whether facts of a life may be missing.
    pub fn has_gap(&self, process: ProcessId, life: Life) -> bool {
        self.flaws.iter().any(|flaw| flaw.concerns(process, life))
    }

    /// Whether facts of any life of a process may be missing.
    pub fn has_gap_of(&self, process: ProcessId) -> bool {
        self.flaws.iter().any(|flaw| flaw.stream.is_some_and(|(of, _)| of == process))
    }

    /// Notes that the fact after the last one of a stream is missing.
    pub(crate) fn note_gap(&mut self, process: ProcessId, life: Life) {
        let next = FactNo(self.streams.get(&(process, life)).map_or(0, Vec::len) as u64);
        self.flaws.push(Flaw { stream: Some((process, life)), kind: FlawKind::Gap(next) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::Boot;

    #[test]
    fn a_life_that_states_nothing_has_an_empty_stream() {
        let mut recorder = Recorder::default();
        let (process, life) = (ProcessId(4), Life(1));
        recorder.record(Record {
            process: ProcessId::SUPERVISOR,
            life: Life(0),
            number: FactNo(0),
            at: Time(0),
            fact: Fact::LifeStarted { process, life, boot: Boot::Fresh },
        });
        assert_eq!(recorder.finish().streams[&(process, life)], []);
    }

    #[test]
    fn a_recorder_keeps_what_a_trace_does() {
        let (mut recorder, mut trace) = (Recorder::default(), Trace::default());
        let facts = [
            // Two lives of one process, a packet of the first one late, and a gap in the second.
            (1, 1, 0),
            (1, 1, 1),
            (0, 1, 0),
            (1, 2, 0),
            (1, 1, 2),
            (1, 2, 1),
            (1, 2, 3),
            (1, 2, 2),
            (0, 1, 1),
            (u32::MAX, 0, 0),
            (u32::MAX, 0, 1),
            // One that starts with a gap.
            (2, 1, 1),
            (2, 1, 0),
            (2, 3, 0),
        ];
        for (process, life, number) in facts {
            let record = Record {
                process: ProcessId(process),
                life: Life(life),
                number: FactNo(number),
                at: Time(number),
                fact: Fact::Begun,
            };
            recorder.record(record.clone());
            trace.record(record);
        }
        let recorded = recorder.finish();
        assert_eq!(recorded.flaws.len(), 2);
        assert_eq!(recorded, trace);
    }

    #[test]
    fn a_stream_ends_at_its_first_gap() {
        let mut trace = Trace::default();
        for number in [0, 1, 3, 2, 4] {
            trace.record(Record {
                process: ProcessId(1),
                life: Life(1),
                number: FactNo(number),
                at: Time(number),
                fact: Fact::Begun,
            });
        }
        assert_eq!(
            trace.flaws,
            [Flaw { stream: Some((ProcessId(1), Life(1))), kind: FlawKind::Gap(FactNo(2)) }]
        );
        assert_eq!(trace.records().map(|it| it.number.0).collect::<Vec<_>>(), [0, 1]);
    }
}

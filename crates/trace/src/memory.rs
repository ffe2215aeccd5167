//! Facts in memory, and the interface through which drivers pass them on.

use std::collections::BTreeMap;
use std::{iter, mem};

use faultline_core::{Fact, FactKinds, FactNo, Life, ProcessId, Time};
use serde::{Deserialize, Serialize};

use crate::flaw::{Flaw, FlawKind};

/// One fact with its header, as a driver passes it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The process that reported the fact; [`ProcessId::SUPERVISOR`] for the supervisor.
    pub process: ProcessId,
    /// The life that reported the fact; 0 for the supervisor.
    pub life: Life,
    /// The number of the fact in the life's stream: consecutive, from 0.
    pub number: FactNo,
    /// The time of the fact by the clock of the process's driver. Times of different processes are not
    /// comparable.
    pub at: Time,
    /// The fact itself.
    pub fact: Fact,
}

/// Receives facts as they are reported.
pub trait Sink {
    /// The kinds of facts that the sink needs. A driver may omit all others, which leaves gaps in the
    /// numbers.
    const TAKES: FactKinds = FactKinds::ALL;
    /// Receives one fact.
    fn record(&mut self, record: Record);
    /// Receives one fact, and leaves another in its place. A sink that keeps facts moves it only once in this way.
    #[inline(always)]
    fn take(&mut self, process: ProcessId, life: Life, number: FactNo, at: Time, fact: &mut Fact) {
        let fact = mem::replace(fact, Fact::Begun);
        self.record(Record { process, life, number, at, fact });
    }
}

/// A sink that drops all facts, for measurements.
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

/// The facts of one life, in order. The index is the number of the fact.
pub type Stream = Vec<(Time, Fact)>;

/// All facts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// One stream per life. The supervisor's stream has the key ([`ProcessId::SUPERVISOR`], 0).
    pub streams: BTreeMap<(ProcessId, Life), Stream>,
    /// Flaws in the facts and in the run's description. Empty for facts that were collected in memory, unless their
    /// numbers have gaps.
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

/// Collects the facts of a run in memory. Finds the streams of the newest lives quickly, by index.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The newest life of each process with its stream, indexed by process.
    newest: Vec<(Life, Stream)>,
    rest: Trace,
}

impl Recorder {
    /// Returns everything that was recorded.
    ///
    /// A life that the supervisor started has a stream even if it reported nothing.
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

    /// Records a fact that is not the next one of its process's newest life.
    #[cold]
    #[inline(never)]
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
            self.rest.streams.insert((ProcessId(index as u32), *life), mem::take(stream));
        }
    }
}

impl Sink for Recorder {
    #[inline]
    fn record(&mut self, mut record: Record) {
        self.take(record.process, record.life, record.number, record.at, &mut record.fact);
    }

    #[inline]
    fn take(&mut self, process: ProcessId, life: Life, number: FactNo, at: Time, fact: &mut Fact) {
        if let Some((newest, stream)) = self.newest.get_mut(process.index())
            && *newest == life
            && stream.len() as u64 == number.0
        {
            // The compiler would build a pair with the fact on the stack first. The copy from there would wait until
            // all earlier writes have reached the cache, and the writes to a stream rarely hit the cache.
            stream.extend(iter::once_with(|| (at, Fact::Begun)));
            if let Some((_, place)) = stream.last_mut() {
                mem::forget(mem::replace(place, mem::replace(fact, Fact::Begun)));
            }
        } else {
            let fact = mem::replace(fact, Fact::Begun);
            self.record_other(Record { process, life, number, at, fact });
        }
    }
}

impl Trace {
    /// Returns the supervisor's facts.
    pub fn supervisor(&self) -> &[(Time, Fact)] {
        self.streams.get(&(ProcessId::SUPERVISOR, Life(0))).map_or(&[], Vec::as_slice)
    }

    /// Returns the time at which the application began, by the supervisor's clock. Times in reports are
    /// relative to it.
    pub fn begun(&self) -> Option<Time> {
        self.supervisor().iter().find_map(|(at, fact)| (*fact == Fact::Begun).then_some(*at))
    }

    /// Iterates over the lives of one process in ascending order.
    pub fn lives(&self, process: ProcessId) -> impl DoubleEndedIterator<Item = (Life, &Stream)> {
        self.streams.range((process, Life(0))..=(process, Life(u32::MAX))).map(|(&(_, life), it)| (life, it))
    }

    /// Returns the number of facts.
    pub fn len(&self) -> usize {
        self.streams.values().map(Vec::len).sum()
    }

    /// Returns whether there are no facts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over all facts, sorted by process and life, and within a life in the order in which they were reported.
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

    /// Iterates over all lives that the supervisor started, according to its facts.
    pub fn started(&self) -> impl Iterator<Item = (ProcessId, Life)> + '_ {
        self.supervisor().iter().filter_map(|(_, fact)| match fact {
            Fact::LifeStarted { process, life, .. } => Some((*process, *life)),
            _ => None,
        })
    }

    /// Returns whether facts of a life may be missing.
    pub fn has_gap(&self, process: ProcessId, life: Life) -> bool {
        self.flaws.iter().any(|flaw| flaw.concerns(process, life))
    }

    /// Returns whether facts of any life of a process may be missing.
    pub fn has_gap_of(&self, process: ProcessId) -> bool {
        self.flaws.iter().any(|flaw| flaw.stream.is_some_and(|(of, _)| of == process))
    }

    /// Records that the fact after the last one of a stream is missing.
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
    fn a_life_that_reports_nothing_has_an_empty_stream() {
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
    fn a_recorder_collects_the_same_facts_as_a_trace() {
        let (mut recorder, mut trace) = (Recorder::default(), Trace::default());
        let facts = [
            // Two lives of one process, with a late fact of the first and a gap in the second.
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
            // A life whose stream starts with a gap.
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

//! The streams of all lives, and what follows from the lines: the supervisor's facts, if the lines contain none, and the
//! facts that each saved state contains.
//!
//! Times of different processes are never compared. The supervisor's facts that are derived have the order of the lines.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::Outcome;
use faultline_core::{
    Boot, Claim, EndedBy, Fact, FactNo, ImageName, Life, ProcessId, Span, StorageFate, Time, Witness,
};

use super::fields::MOST_LIVES;
use super::{Event, EventLife, ImportError};
use crate::flaw::{Flaw, FlawKind};
use crate::memory::Trace;

/// The longest time between two events.
const LONGEST: Span = Span(1 << 60);

type StreamKey = (ProcessId, Life);

/// The supervisor's stream.
const SUPERVISOR: StreamKey = (ProcessId::SUPERVISOR, Life(0));

/// Where an event belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    stream: StreamKey,
    time: i64,
}

/// What the lines of a process have shown so far.
#[derive(Default)]
struct Progress {
    life: Life,
    /// The text that identifies the life, for lives that are not numbered.
    text: Option<String>,
    /// Whether the newest life has ended.
    has_ended: bool,
    /// Whether the storage was lost when that life ended.
    has_lost: bool,
    /// The number after that of the last line.
    next: u64,
}

/// The streams that are being assembled.
pub(super) struct Assembly {
    /// Whether the lines contain the supervisor's facts. Otherwise, they are derived.
    is_supervised: bool,
    /// Whether the lines state when parts of checkpoints were saved. Otherwise, a part is saved when it is committed.
    is_saved: bool,
    streams: BTreeMap<StreamKey, Vec<(i64, Fact)>>,
    /// Streams with a hole: their later facts are ignored.
    cut: BTreeSet<StreamKey>,
    flaws: Vec<Flaw>,
    progress: BTreeMap<ProcessId, Progress>,
    /// The number that the next line of each stream must have.
    next: BTreeMap<StreamKey, u64>,
    has_unnumbered: bool,
    /// The contents of each part of a checkpoint.
    states: BTreeMap<ImageName, Witness>,
    /// Facts about parts whose contents were not known yet.
    awaiting: Vec<(StreamKey, usize, ImageName)>,
    /// The supervisor's facts after the start, if they are derived.
    derived: Vec<(i64, Fact)>,
    last: i64,
    events: u64,
    facts: u64,
}

impl Assembly {
    pub(super) fn new(is_supervised: bool, is_saved: bool) -> Assembly {
        Assembly {
            is_supervised,
            is_saved,
            streams: BTreeMap::new(),
            cut: BTreeSet::new(),
            flaws: Vec::new(),
            progress: BTreeMap::new(),
            next: BTreeMap::new(),
            has_unnumbered: false,
            states: BTreeMap::new(),
            awaiting: Vec::new(),
            derived: Vec::new(),
            last: 0,
            events: 0,
            facts: 0,
        }
    }

    /// Returns the number of facts so far, including those that are derived.
    pub(super) fn facts(&self) -> u64 {
        self.facts
    }

    /// Returns the number of facts in the stream of a place.
    pub(super) fn facts_at(&self, place: Place) -> u64 {
        self.streams.get(&place.stream).map_or(0, Vec::len) as u64
    }

    /// Finds the stream and the time of an event, begins its life if it is new, and checks its number.
    pub(super) fn place(&mut self, process: ProcessId, event: &Event) -> Result<Place, ImportError> {
        self.events += 1;
        let stream = (process, self.life_of(process, &event.life)?);
        let before = self.streams.get(&stream).and_then(|it| it.last()).map_or(self.last, |it| it.0);
        let time = event.time.unwrap_or(before);
        self.last = time;
        if process != ProcessId::SUPERVISOR {
            self.begin(stream, time);
        }
        self.count(stream, event)?;
        Ok(Place { stream, time })
    }

    fn life_of(&mut self, process: ProcessId, life: &EventLife) -> Result<Life, ImportError> {
        let (least, most) = if process == ProcessId::SUPERVISOR { (0, 0) } else { (1, MOST_LIVES) };
        match life {
            EventLife::Number(number) if (least..=most).contains(number) => Ok(Life(*number)),
            EventLife::Number(number) => Err(ImportError::new(
                format!("`life` must be at least {least} and at most {most} (found {number})"),
                "number the lives of each process from 1; the supervisor has only life 0",
            )),
            EventLife::Given(_) => unreachable!("a given life has been numbered"),
            EventLife::Current(_) if process == ProcessId::SUPERVISOR => Ok(Life(0)),
            EventLife::Current(text) => {
                let progress = self.progress.entry(process).or_default();
                let is_new = progress.life == Life(0)
                    || progress.has_ended
                    || text.is_some() && progress.text != *text;
                let life = if is_new { progress.life.next() } else { progress.life };
                progress.text.clone_from(text);
                match life.0 <= MOST_LIVES {
                    true => Ok(life),
                    false => Err(ImportError::new(
                        format!("a process has more than {MOST_LIVES} lives"),
                        "check that the field for the process names a process, not an attempt",
                    )),
                }
            }
        }
    }

    /// Begins a life, unless it or a later one has begun. Earlier lives have then ended.
    fn begin(&mut self, (process, life): StreamKey, time: i64) {
        self.streams.entry((process, life)).or_default();
        let progress = self.progress.entry(process).or_default();
        if self.is_supervised {
            progress.life = progress.life.max(life);
            return;
        }
        if progress.life == Life(0) {
            progress.life = Life(1);
            self.streams.entry((process, Life(1))).or_default();
        }
        while self.progress.get(&process).is_some_and(|it| it.life < life) {
            self.end(process, StorageFate::Kept, EndedBy::Silence, time);
            let Some(progress) = self.progress.get_mut(&process) else { return };
            (progress.life, progress.has_ended) = (progress.life.next(), false);
            let (life, has_lost) = (progress.life, std::mem::take(&mut progress.has_lost));
            self.streams.entry((process, life)).or_default();
            let boot = if has_lost { Boot::Replaced } else { Boot::Restarted };
            self.derive(Fact::LifeStarted { process, life, boot }, time);
        }
    }

    /// Ends the newest life of a process, unless it has ended.
    fn end(&mut self, process: ProcessId, storage: StorageFate, by: EndedBy, time: i64) {
        let progress = self.progress.entry(process).or_default();
        progress.life = progress.life.max(Life(1));
        if !std::mem::replace(&mut progress.has_ended, true) {
            let life = progress.life;
            progress.has_lost = storage == StorageFate::Lost;
            self.derive(Fact::Failed { process, life, storage, by }, time);
            self.derive(Fact::Detected { process, life }, time);
        }
    }

    fn derive(&mut self, fact: Fact, time: i64) {
        self.facts += 1;
        let time = self.derived.last().map_or(time, |(last, _)| time.max(*last));
        self.derived.push((time, fact));
    }

    /// Checks the number of an event: the events of a life are numbered without holes.
    fn count(&mut self, stream: StreamKey, event: &Event) -> Result<(), ImportError> {
        let Some(number) = event.number else {
            self.has_unnumbered = true;
            return Ok(());
        };
        let is_mapped = matches!(event.life, EventLife::Current(_));
        let progress = self.progress.entry(stream.0).or_default();
        let expected = match self.next.get(&stream) {
            Some(next) => *next,
            // A foreign log may continue to count in the next life, and count from 1.
            None if is_mapped && (number <= 1 || number == progress.next) => number,
            None => 0,
        };
        if number < expected {
            return Err(ImportError::new(
                format!("`number` must be {expected} (found {number})"),
                "keep the lines of each life in order, each once",
            ));
        }
        if number > expected && self.cut.insert(stream) {
            let gap = FactNo(self.streams.get(&stream).map_or(0, Vec::len) as u64);
            self.flaws.push(Flaw { stream: Some(stream), kind: FlawKind::Gap(gap) });
        }
        let next = number.saturating_add(1);
        self.next.insert(stream, next);
        progress.next = next;
        Ok(())
    }

    /// Adds a fact. `state` is the content of the state that it saves or restores, if the line contains it.
    pub(super) fn add(
        &mut self,
        place: Place,
        fact: Fact,
        state: Option<Witness>,
    ) -> Result<(), ImportError> {
        let Place { stream, time } = place;
        if self.cut.contains(&stream) {
            return Ok(());
        }
        let is_of_process = fact.kind().is_of_process();
        if is_of_process == (stream.0 == ProcessId::SUPERVISOR) && (is_of_process || self.is_supervised) {
            let kind = crate::row::kind_name(fact.kind());
            let (what, help) = match is_of_process {
                true => ("the supervisor does not report", "name the process that reported it in `process`"),
                false => ("only the supervisor reports", "write `supervisor` in `process`"),
            };
            return Err(ImportError::new(format!("{what} `{kind}`"), help));
        }
        if !is_of_process && !self.is_supervised {
            self.observe(fact, time);
            return Ok(());
        }
        if let (Fact::Claim(claim), false) = (&fact, self.is_saved)
            && let Claim::Committed { position, attempt, .. } = **claim
        {
            let (incarnation, sn, owner) = (position.incarnation, position.sn, stream.0);
            let image = ImageName { owner, incarnation, sn, attempt };
            self.push(stream, time, Fact::Saved(Box::new((image, Witness::default(), 0))), None);
        }
        self.push(stream, time, fact, state);
        Ok(())
    }

    fn push(&mut self, key: StreamKey, time: i64, mut fact: Fact, state: Option<Witness>) {
        let stream = self.streams.entry(key).or_default();
        let own = Witness { life: key.1, upto: FactNo(stream.len() as u64), ..Witness::default() };
        match &mut fact {
            Fact::Finished(finished) => finished.0 = state.unwrap_or(own),
            Fact::Saved(saved) if state.is_some() || saved.0.owner == key.0 => {
                saved.1 = state.unwrap_or(own);
                self.states.entry(saved.0).or_insert(saved.1);
            }
            _ => match (part_of(&mut fact), state) {
                (Some((_, witness)), Some(state)) => *witness = state,
                (Some((image, _)), None) => self.awaiting.push((key, stream.len(), image)),
                (None, _) => {}
            },
        }
        stream.push((time, fact));
        self.facts += 1;
    }

    /// Handles a fact about a life, which in a log without a supervisor any process may report.
    fn observe(&mut self, fact: Fact, time: i64) {
        match fact {
            Fact::Failed { process, life, storage, by } if process != ProcessId::SUPERVISOR => {
                let newest = self.progress.get(&process).map_or(Life(1), |it| it.life);
                if life == Life(0) || life == newest {
                    self.end(process, storage, by, time);
                }
            }
            // These follow from the other lines.
            Fact::Failed { .. } | Fact::Detected { .. } | Fact::Begun | Fact::Completed => {}
            other => self.derive(other, time),
        }
    }

    /// Writes the streams into `trace`, and returns the duration of the run. `processes` is the number of processes, and
    /// `end` contains the time of the end and the number of events, if the `end` line states them.
    pub(super) fn finish(
        mut self,
        processes: u32,
        outcome: Option<&Outcome>,
        (end, counted): (Option<i64>, Option<u64>),
        trace: &mut Trace,
    ) -> Result<Span, ImportError> {
        for (key, at, image) in std::mem::take(&mut self.awaiting) {
            // A part that was never saved has unknown contents.
            let unknown = Witness { upto: FactNo(u64::MAX), ..Witness::default() };
            let state = self.states.get(&image).copied().unwrap_or(unknown);
            let fact = self.streams.get_mut(&key).and_then(|it| it.get_mut(at));
            if let Some((_, witness)) = fact.and_then(|(_, fact)| part_of(fact)) {
                *witness = state;
            }
        }
        let times = || self.streams.values().flatten().chain(&self.derived).map(|it| it.0);
        let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        let last = last.max(end.unwrap_or(last));
        let duration = u64::try_from(i128::from(last) - i128::from(first)).unwrap_or(u64::MAX);
        if duration > LONGEST.0 {
            return Err(ImportError::new(
                format!("the times of the events are {} s apart", duration / 1_000_000_000),
                "check the units of the times",
            ));
        }
        if self.is_supervised {
            self.add_silent();
        } else {
            self.supervise(processes, first, last, outcome);
        }
        let shifted = |(at, fact): (i64, Fact)| (Time((i128::from(at) - i128::from(first)) as u64), fact);
        let streams = self.streams.into_iter();
        trace.streams = streams.map(|(key, it)| (key, it.into_iter().map(shifted).collect())).collect();
        trace.flaws = self.flaws;
        let mut flaw = |kind| trace.flaws.push(Flaw { stream: None, kind });
        if self.has_unnumbered {
            flaw(FlawKind::Unnumbered);
        }
        if outcome.is_none() {
            flaw(FlawKind::NoEnd);
        }
        if let Some(counted) = counted.filter(|it| *it != self.events) {
            flaw(FlawKind::EventsMissing { counted, found: self.events });
        }
        Ok(Span(duration))
    }

    /// Adds the streams of lives that were started, but of which there are no lines.
    fn add_silent(&mut self) {
        let started =
            self.streams.get(&SUPERVISOR).into_iter().flatten().filter_map(|(_, fact)| match fact {
                Fact::LifeStarted { process, life, .. } => Some((*process, *life)),
                _ => None,
            });
        for life in started.collect::<Vec<_>>() {
            self.streams.entry(life).or_default();
        }
    }

    /// Adds the supervisor's facts that follow from the lines: every process was started, then the application began.
    fn supervise(&mut self, processes: u32, first: i64, last: i64, outcome: Option<&Outcome>) {
        let mut facts = Vec::new();
        for process in (0..processes).map(ProcessId) {
            let life = Life(1);
            self.streams.entry((process, life)).or_default();
            facts.push((first, Fact::LifeStarted { process, life, boot: Boot::Fresh }));
        }
        facts.push((first, Fact::Begun));
        facts.append(&mut self.derived);
        if outcome == Some(&Outcome::Completed) {
            facts.push((last, Fact::Completed));
        }
        self.streams.insert(SUPERVISOR, facts);
    }
}

/// Returns the part of a checkpoint to which a fact refers, with its contents.
fn part_of(fact: &mut Fact) -> Option<(ImageName, &mut Witness)> {
    match fact {
        Fact::Saved(saved) => Some((saved.0, &mut saved.1)),
        Fact::Restored(restored) => restored.0.map(|image| (image, &mut restored.2)),
        Fact::Absorbed(absorbed) => absorbed.1.map(|image| (image, &mut absorbed.2)),
        _ => None,
    }
}

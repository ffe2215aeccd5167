//! The operations of clients: as samples of probes, one for each kind of operation, and as histories, which are compared
//! with their models.
//!
//! The node's process observes its clients in each of its lives from the first arrival that a client took until the life,
//! a pause or the run ends. An arrival that no client took in time is a failed sample, so a system that stalls is not
//! asked less. The latency of an operation counts from the time at which its arrival was due.

use std::collections::{BTreeMap, BTreeSet};

use faultline_consistency::clients::{Recorded, history_of};
use faultline_consistency::{self as consistency, Limits, Verdict, judge, model};
use faultline_core::operation::{Answer, Call, Completion, FINAL, Key, Step};
use faultline_core::{Fact, FactNo, HistoryNo, Life, Observation, Span, Time};
use faultline_trace::expectation::HistoryEntry;
use faultline_trace::{Stream, printable};

use crate::availability::{Latency, Reason, Sample, Shows, State, Strip, effects, end, paused};
use crate::history::History;
use crate::segments::Source;

/// The operations of one history, and how they compare with the model.
#[derive(Debug)]
pub struct ClientHistory {
    /// The history, as the manifest lists it.
    pub entry: HistoryEntry,
    /// The operations, by invocation.
    pub operations: consistency::History,
    /// The fact that states the invocation of each operation.
    pub sources: Vec<Source>,
    /// How the operations compare with the model.
    pub judgement: consistency::Judgement,
    /// What happened to each kind of operation.
    pub kinds: Vec<KindHistory>,
    /// The first operation at which a client broke its contract, and how, with the number of such operations.
    pub broken: Option<(Source, String, usize)>,
    /// What no client has read in the end, such as `k3`; empty if everything was read.
    pub unread: Vec<String>,
}

/// What happened to the operations of one kind, apart from those of the final phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindHistory {
    /// The name of the kind.
    pub name: &'static str,
    /// The number of operations that were answered.
    pub ok: usize,
    /// The number of operations that had no effect.
    pub failed: usize,
    /// The number of operations without a result.
    pub unknown: usize,
    /// The number of arrivals that no client took in time.
    pub missed: usize,
    /// How long answers took, from the time at which the operation was due.
    pub latency: Option<Latency>,
}

/// An operation, with the fact that states its invocation.
struct Told<'a> {
    source: Source,
    recorded: Recorded<'a>,
}

/// The facts that state the invocation and the end of each operation in a life.
pub(crate) type Pairs = (Life, Vec<(FactNo, Option<FactNo>)>);

/// Returns the facts about the operations of a history, by life.
fn pairs(history: &History<'_>, no: HistoryNo, entry: &HistoryEntry) -> Vec<Pairs> {
    let of_life = |(life, stream): (Life, &Stream)| {
        let (mut all, mut open) = (Vec::new(), BTreeMap::new());
        for (number, (_, fact)) in (0..).map(FactNo).zip(stream) {
            let Fact::Observed(observation) = fact else { continue };
            match &**observation {
                Observation::Invoked { history, operation, .. } if *history == no => {
                    open.insert(*operation, all.len());
                    all.push((number, None));
                }
                Observation::Concluded { history, operation, .. } if *history == no => {
                    if let Some(place) = open.remove(operation) {
                        all[place].1 = Some(number);
                    }
                }
                _ => {}
            }
        }
        (life, all)
    };
    history.trace.lives(entry.by).map(of_life).collect()
}

impl<'a> History<'a> {
    /// Returns the operations of a history, by life.
    fn told(&self, no: HistoryNo) -> Vec<Vec<Told<'a>>> {
        let entries = || self.context.system.iter().flat_map(|it| &it.histories);
        let all = self.pairs.get_or_init(|| {
            (0..).map(HistoryNo).zip(entries()).map(|(no, it)| pairs(self, no, it)).collect()
        });
        let Some((lives, entry)) = all.get(no.index()).zip(entries().nth(no.index())) else {
            return Vec::new();
        };
        let of_life = |(life, pairs): &Pairs| {
            let stream = &self.trace.streams[&(entry.by, *life)];
            let told = |(invoked, concluded): &(FactNo, Option<FactNo>)| {
                let (at, call) = &stream[invoked.0 as usize];
                let Observation::Invoked { client, session, operation, call, .. } = observed(call)? else {
                    return None;
                };
                let concluded = concluded.and_then(|it| {
                    let (at, fact) = &stream[it.0 as usize];
                    match observed(fact)? {
                        Observation::Concluded { completion, .. } => Some((*at, completion)),
                        _ => None,
                    }
                });
                let source = Source { process: entry.by, life: *life, number: *invoked };
                let (client, session, number) = (*client, *session, *operation);
                let recorded =
                    Recorded { client, life: *life, session, number, invoked: *at, call, concluded };
                Some(Told { source, recorded })
            };
            pairs.iter().filter_map(told).collect()
        };
        lives.iter().map(of_life).collect()
    }

    /// Returns the histories of clients, each compared with its model. They are computed once.
    pub fn clients(&self) -> &[ClientHistory] {
        self.clients.get_or_init(|| {
            let entries = self.context.system.iter().flat_map(|it| &it.histories);
            (0..).map(HistoryNo).zip(entries).filter_map(|(no, it)| client_history(self, no, it)).collect()
        })
    }
}

fn observed(fact: &Fact) -> Option<&Observation> {
    match fact {
        Fact::Observed(observation) => Some(observation),
        _ => None,
    }
}

fn client_history(history: &History<'_>, no: HistoryNo, entry: &HistoryEntry) -> Option<ClientHistory> {
    let model = model(&entry.workload.model)?;
    let level = model.levels.iter().position(|it| *it == entry.level)?;
    let mut all: Vec<Told<'_>> = history.told(no).into_iter().flatten().collect();
    all.sort_by_key(|it| it.recorded.invoked);
    let recorded: Vec<Recorded<'_>> = all.iter().map(|it| it.recorded.clone()).collect();
    let begun = history.supervision.begun.unwrap_or_default();
    let mut operations = history_of(&recorded, begun);
    for (line, it) in (1..).zip(&mut operations.operations) {
        it.line = line;
    }
    let judgement = judge(&operations, model, level, Limits::default());
    let mut broken = all.iter().filter_map(|it| match it.recorded.concluded? {
        (_, Completion::Broken(why)) => {
            Some((it.source, format!("at `{}`: {}", it.recorded.call.kind(), printable(why))))
        }
        _ => None,
    });
    let broken = broken.next().map(|(source, why)| (source, why, 1 + broken.count()));
    let window = (begun, end(history).max(begun));
    let kinds = entry.workload.kinds().into_iter().map(|kind| kind_history(history, no, kind, window));
    let kinds = kinds.collect();
    let unread = unread(entry, &recorded);
    let sources = all.iter().map(|it| it.source).collect();
    Some(ClientHistory { entry: entry.clone(), operations, sources, judgement, kinds, broken, unread })
}

fn kind_history(
    history: &History<'_>,
    no: HistoryNo,
    name: &'static str,
    window: (Time, Time),
) -> KindHistory {
    let mut kind = KindHistory { name, ok: 0, failed: 0, unknown: 0, missed: 0, latency: None };
    for life in history.told(no) {
        let of_kind =
            life.iter().map(|it| &it.recorded).filter(|it| it.call.kind() == name && it.number < FINAL);
        for it in of_kind {
            match it.concluded {
                Some((_, Completion::Ok(_))) => kind.ok += 1,
                Some((_, Completion::Failed(_))) => kind.failed += 1,
                Some((_, Completion::Unknown(_) | Completion::Broken(_))) | None => kind.unknown += 1,
            }
        }
    }
    let strip = strip(history, no, name, window);
    let missed = strip.samples.iter().filter(|it| it.shows == Shows::Failure);
    // Every other failed sample is an operation.
    kind.missed = missed.filter(|it| it.is_missed).count();
    kind.latency = strip.latency(Span::ZERO);
    kind
}

/// Returns what the final phase did not read, although it must.
fn unread(entry: &HistoryEntry, all: &[Recorded<'_>]) -> Vec<String> {
    let (finals, arrivals): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.number >= FINAL);
    let answered = || finals.iter().filter_map(|it| Some((it.client, it.call, it.concluded?.1.answer()?)));
    let keys = |call: &Call| -> Vec<Key> {
        match call {
            Call::Read(key) | Call::Write(key, _) | Call::Cas(key, ..) => vec![*key],
            Call::Send(key, _) | Call::Poll(key, _) => vec![*key],
            Call::Txn(steps) => {
                let of = |step: &Step| match step {
                    Step::Read(key) | Step::Append(key, _) => *key,
                };
                steps.iter().map(of).collect()
            }
            _ => Vec::new(),
        }
    };
    let clients = |is_last: &dyn Fn(&Call, &Answer) -> bool| {
        let have: BTreeSet<u16> = answered().filter(|it| is_last(it.1, it.2)).map(|it| it.0).collect();
        (0..entry.count).filter(|it| !have.contains(it)).map(|it| format!("client {it}")).collect()
    };
    match entry.workload.model.as_str() {
        "register" | "list" | "log" => {
            let is_end = |call: &Call, answer: &Answer| match (call, answer) {
                // The last poll of a log shows that nothing follows.
                (Call::Poll(..), Answer::Entries(entries)) => entries.is_empty(),
                _ => true,
            };
            let read: BTreeSet<Key> =
                answered().filter(|it| is_end(it.1, it.2)).flat_map(|it| keys(it.1)).collect();
            let used: BTreeSet<Key> = arrivals.iter().flat_map(|it| keys(it.call)).collect();
            used.difference(&read).map(ToString::to_string).collect()
        }
        "set" | "counter" | "bank" => clients(&|call, _| *call == Call::ReadAll),
        "queue" => clients(&|call, answer| *call == Call::Dequeue && *answer == Answer::Null),
        _ => Vec::new(),
    }
}

/// Returns the samples of a kind of operation.
pub(crate) fn strip(history: &History<'_>, no: HistoryNo, kind: &str, (begun, end): (Time, Time)) -> Strip {
    let entries = history.context.system.iter().flat_map(|it| &it.histories);
    let Some(entry) = entries.clone().nth(no.index()) else { return Strip::default() };
    let paused = paused(history, entry.by, end);
    let mut strip = Strip { process: entry.by, ..Strip::default() };
    let mut state = State::Working;
    let mut observed_until = begun;
    for life in history.told(no) {
        let arrivals: Vec<&Told<'_>> = life.iter().filter(|it| it.recorded.number < FINAL).collect();
        let Some(first) = arrivals.iter().map(|it| it.recorded.number).min() else { continue };
        let source = arrivals[0].source;
        let ended = history.supervision.end_of(entry.by, source.life).map(|it| it.at);
        let from = entry.workload.due(first).max(begun);
        let upto = ended.unwrap_or(end).min(end);
        let samples = samples(entry, kind, &arrivals, (from, upto));
        for period in periods((from, upto), &paused) {
            strip.gap(observed_until, period.0, Span::ZERO, &mut state);
            observed_until = observed_until.max(period.1);
            let is_inside = |it: &&(Sample, Option<String>)| it.0.from >= period.0 && it.0.upto <= period.1;
            for (sample, why) in samples.iter().filter(is_inside) {
                let reason = why.as_ref().map(|it| Reason { at: sample.from, text: it.clone() });
                match sample.shows {
                    Shows::Success => strip.enter(State::Working, sample.from, &mut state),
                    Shows::Failure => {
                        strip.enter(State::Failing(sample.from), sample.from, &mut state);
                        strip.last_failed = reason;
                    }
                    // The client, not the system, failed; the operations of the others show more.
                    Shows::Nothing => strip.last_unknown = reason,
                }
                strip.samples.push(*sample);
            }
        }
    }
    strip.gap(observed_until, end, Span::ZERO, &mut state);
    strip.leave(&mut state, end, true);
    strip
}

/// Returns the samples of a kind in a life, by the time at which they were due, and why they did not succeed.
fn samples(
    entry: &HistoryEntry,
    kind: &str,
    arrivals: &[&Told<'_>],
    (from, upto): (Time, Time),
) -> Vec<(Sample, Option<String>)> {
    let workload = &entry.workload;
    let mut samples: Vec<(Sample, Option<String>)> = Vec::new();
    for it in arrivals.iter().map(|it| &it.recorded).filter(|it| it.call.kind() == kind) {
        // What was in progress at the end of the life shows nothing.
        let Some((at, completion)) = it.concluded else { continue };
        let (shows, why) = match completion {
            Completion::Ok(_) => (Shows::Success, None),
            Completion::Failed(why) | Completion::Unknown(why) => (Shows::Failure, Some(printable(why))),
            Completion::Broken(why) => (Shows::Nothing, Some(printable(why))),
        };
        let from = workload.due(it.number).min(it.invoked);
        samples.push((Sample { from, upto: at, shows, is_missed: false }, why.map(|it| it.to_string())));
    }
    let taken: BTreeSet<u64> = arrivals.iter().map(|it| it.recorded.number).collect();
    for arrival in workload.first_from(from).. {
        let due = workload.due(arrival);
        if due + entry.timeout > upto {
            break;
        }
        if !taken.contains(&arrival) && workload.kind(arrival) == kind {
            let sample =
                Sample { from: due, upto: due + entry.timeout, shows: Shows::Failure, is_missed: true };
            samples.push((sample, Some("no client was idle: all waited for answers".to_owned())));
        }
    }
    samples.sort_by_key(|it| it.0.from);
    samples
}

/// Returns the parts of a period outside of pauses.
fn periods(whole: (Time, Time), paused: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let mut parts = vec![whole];
    for pause in paused {
        let cut = |it: (Time, Time)| [(it.0, it.1.min(pause.0)), (it.0.max(pause.1), it.1)];
        parts = parts.into_iter().flat_map(cut).filter(|it| it.0 < it.1).collect();
    }
    parts.sort_unstable();
    parts
}

impl ClientHistory {
    /// Returns the number of operations that were recorded.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Returns whether no operation was recorded.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the facts that state the operations of a case.
    pub fn sources_of(&self, case: &consistency::Case) -> Vec<Source> {
        let places = case.operations.iter().filter_map(|it| (it.line as usize).checked_sub(1));
        places.filter_map(|it| self.sources.get(it).copied()).collect()
    }

    /// Returns the last fault that took effect before the last operation of a case ended, and how long before.
    pub fn fault_before(&self, history: &History<'_>, case: &consistency::Case) -> Option<(u32, Span)> {
        let ended = |it: &consistency::Operation| match it.return_at {
            consistency::NEVER => it.call_at,
            at => at,
        };
        let begun = history.supervision.begun.unwrap_or_default();
        let last = case.operations.iter().map(ended).max()? + begun.0;
        let before = effects(history).into_iter().filter(|it| it.1.0 <= last).max_by_key(|it| it.1)?;
        Some((before.0.0, Span(last - before.1.0)))
    }

    /// Returns whether the judge found no contradiction and no doubt.
    pub fn is_consistent(&self) -> bool {
        self.judgement.verdict == Verdict::Pass && self.broken.is_none() && self.unread.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::availability::{Before, probes};
    use crate::testing::clients::{KEY, serving};
    use crate::testing::{Run, p};

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn null() -> Completion {
        Completion::Ok(Answer::Null)
    }

    /// Lets a client read at these arrivals, ten per second.
    fn reads(run: &mut Run, arrivals: std::ops::Range<u64>) {
        for arrival in arrivals {
            run.wait_until(arrival * 100);
            run.operate(0, arrival, Call::Read(KEY), null());
        }
    }

    #[test]
    fn an_arrival_that_no_client_took_is_a_failed_sample() {
        let mut run = serving(&["read"]);
        reads(&mut run, 0..2);
        run.wait_until(200);
        run.invoke(0, 2, Call::Read(KEY));
        run.wait_until(300);
        run.invoke(1, 3, Call::Read(KEY));
        run.wait_until(750);
        run.conclude(2, Completion::Unknown("no reply in time".into()));
        run.conclude(3, Completion::Unknown("no reply in time".into()));
        // The arrivals 4 and 5 were due at 400 and 500 ms, and a client has 300 ms to answer.
        run.operate(0, 6, Call::Read(KEY), null());
        reads(&mut run, 8..10);
        run.wait_until(1000);
        run.supervisor(Fact::Completed);
        let history = run.history();
        let found = probes(&history).remove(0);
        let missed = found.strips[0].samples.iter().filter(|it| it.is_missed).map(|it| it.from);
        assert_eq!(missed.collect::<Vec<_>>(), [at(400), at(500), at(700)]);
        let outages: Vec<_> = found.outages().map(|it| (it.from, it.upto)).collect();
        assert_eq!(outages, [(at(200), at(600)), (at(700), at(800))]);
        assert_eq!((found.samples(), found.unobserved()), ((5, 10), 0.0));
        let kind = history.clients()[0].kinds[0];
        assert_eq!((kind.ok, kind.failed, kind.unknown, kind.missed), (5, 0, 2, 3));
        // The operation 6 waited for 150 ms until a client was idle.
        assert_eq!(kind.latency.unwrap().longest, Span::from_millis(160));
    }

    #[test]
    fn what_is_in_progress_when_the_node_fails_shows_nothing_and_may_take_effect() {
        let mut run = serving(&["read", "write"]);
        reads(&mut run, 0..5);
        run.wait_until(500);
        run.invoke(0, 5, Call::Write(KEY, 5));
        run.wait_until(550);
        run.kill(1, false);
        run.wait_until(800);
        // The write took effect.
        run.operate(0, 8, Call::Read(KEY), Completion::Ok(Answer::Number(5)));
        run.wait_until(820);
        run.supervisor(Fact::Completed);
        let history = run.history();
        let clients = &history.clients()[0];
        assert_eq!(clients.judgement.anomalies, []);
        assert_eq!(clients.kinds[1].unknown, 1);
        let found = probes(&history);
        assert_eq!(found[1].samples().1, 0);
        assert_eq!(found[0].strips[0].unobserved, [(at(550), at(800))]);
        assert_eq!(found[0].outages().count(), 0);
    }

    #[test]
    fn a_kind_of_operation_recovers_after_a_fault() {
        let mut run = serving(&["read"]);
        reads(&mut run, 0..5);
        run.wait_until(450);
        let fault = Box::new(faultline_core::Fault::crash(p(0)));
        run.supervisor(Fact::Injecting { no: faultline_core::FaultNo(0), fault });
        for arrival in 5..8 {
            run.wait_until(arrival * 100);
            run.operate(0, arrival, Call::Read(KEY), Completion::Failed("refused".into()));
        }
        reads(&mut run, 8..20);
        run.supervisor(Fact::Completed);
        let history = run.history();
        let found = probes(&history).remove(0);
        let recovery = found.recoveries[0];
        assert_eq!((recovery.recovered, recovery.before), (Some(Span::from_millis(350)), Before::Working));
        assert_eq!(found.strips[0].last_failed.as_ref().unwrap().text, "refused");
    }

    #[test]
    fn samples_during_a_pause_do_not_count() {
        let mut run = serving(&["read"]);
        reads(&mut run, 0..5);
        let fault = faultline_core::Fault::pause(p(1), Span::from_millis(500));
        run.supervisor(Fact::Injecting { no: faultline_core::FaultNo(0), fault: Box::new(fault) });
        run.wait_until(1000);
        let life = faultline_core::Life(1);
        run.supervisor(Fact::Resumed { process: p(1), life });
        reads(&mut run, 10..12);
        run.supervisor(Fact::Completed);
        let found = probes(&run.history()).remove(0);
        assert_eq!(found.samples(), (7, 7));
        assert_eq!(found.strips[0].unobserved, [(at(410), at(1000))]);
    }

    #[test]
    fn what_was_not_read_in_the_end_is_listed() {
        let unread = |model: &str, finals: &[(u16, Call, Completion)]| {
            let mut run = serving(&["read"]);
            run.context.system.as_mut().unwrap().histories[0].workload.model = model.to_owned();
            let call = match model {
                "queue" => Call::Enqueue(1),
                "set" => Call::Add(1),
                _ => Call::Send(KEY, 1),
            };
            run.operate(0, 1, call, null());
            for (number, (client, call, completion)) in (FINAL..).zip(finals) {
                run.operate(*client, number, call.clone(), completion.clone());
            }
            let entry = run.context.system.as_ref().unwrap().histories[0].clone();
            let history = run.history();
            let told: Vec<_> = history.told(HistoryNo(0)).into_iter().flatten().collect();
            unread(&entry, &told.into_iter().map(|it| it.recorded).collect::<Vec<_>>())
        };
        let unknown = || Completion::Unknown("timed out".into());
        let entries = |all: &[(i64, i64)]| Completion::Ok(Answer::Entries(all.into()));
        assert_eq!(unread("log", &[]), ["k0"]);
        assert_eq!(unread("log", &[(0, Call::Poll(KEY, 0), entries(&[(0, 1)]))]), ["k0"]);
        assert_eq!(unread("log", &[(0, Call::Poll(KEY, 1), entries(&[]))]), [""; 0]);
        let read = |client| (client, Call::ReadAll, Completion::Ok(Answer::Numbers([1].into())));
        assert_eq!(unread("set", &[read(0)]), ["client 1"]);
        assert_eq!(unread("set", &[read(0), (1, Call::ReadAll, unknown())]), ["client 1"]);
        assert_eq!(unread("set", &[read(0), read(1)]), [""; 0]);
        let dequeue = |client, completion| (client, Call::Dequeue, completion);
        let one = Completion::Ok(Answer::Number(1));
        assert_eq!(unread("queue", &[dequeue(0, one), dequeue(1, null())]), ["client 0"]);
    }
}

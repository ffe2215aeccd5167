//! Expectations of what programs log.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::observation::MOST_OF_GROUP;
use faultline_core::{FaultNo, Life, LinesOf, ProcessId, Span, Time, WatchNo};
use faultline_trace::duration::instant;
use faultline_trace::expectation::LinesAre;
use faultline_trace::fault::describe_injected_fault;
use faultline_trace::printable;

use super::{CitedLine, Figure, Measuring, Unknown, seconds};
use crate::availability::effects;
use crate::expected::log_of;
use crate::lines::{Line, Lines, Number, ORDERED_AFTER, Resumption, Silence, canonical};
use crate::segments::Source;

/// The lines because of which an expectation is not met or unknown.
#[derive(Default)]
pub(super) struct Cited {
    pub(super) lines: Vec<CitedLine>,
    pub(super) sources: Vec<Source>,
    /// The lines and the last fault before the last of them, in words.
    pub(super) words: Option<String>,
}

/// The number of lines that violate an expectation, and those that show it best.
#[derive(Default)]
struct Violating<'l> {
    number: usize,
    first: Vec<Line<'l>>,
}

impl<'l> Violating<'l> {
    fn add(&mut self, lines: impl IntoIterator<Item = Line<'l>>) {
        self.number += 1;
        if self.first.is_empty() {
            self.first = lines.into_iter().collect();
        }
    }
}

impl Measuring<'_, '_> {
    /// Returns the limit and the figure of an assertion about the lines of a watch.
    pub(super) fn lines(
        &self,
        watch: WatchNo,
        are: &LinesAre,
        cited: &mut Cited,
    ) -> (f64, Result<Figure, Unknown>) {
        let lines = Lines::of(self.history, watch);
        match are {
            LinesAre::RecoveredWithin { within, per } => {
                (within.as_secs_f64(), self.resumed(watch, &lines, *within, *per, cited))
            }
            LinesAre::LongestGap { at_most, per } => {
                (at_most.as_secs_f64(), self.longest_gap(&lines, *per, cited))
            }
            LinesAre::Same { group, for_each } => (0.0, self.same(&lines, group, for_each.as_deref(), cited)),
            LinesAre::Increases { group, per } => (0.0, self.increases(&lines, group, *per, cited)),
            LinesAre::AtMost(most) => (*most as f64, Ok(self.at_most(&lines, *most, cited))),
            LinesAre::AtLeast(least) => (*least as f64, Ok(self.at_least(&lines))),
        }
    }

    fn at_most(&self, lines: &Lines<'_>, most: u64, cited: &mut Cited) -> Figure {
        let mut all = lines.all.clone();
        all.sort_by_key(|it| it.at);
        if let Some(one_too_many) = usize::try_from(most).ok().and_then(|it| all.get(it)) {
            *cited = self.cite(&[*one_too_many], None);
        }
        let more = self.unfinished().or_else(|| left_out(lines));
        Figure::new(all.len() as f64, more, count(all.len(), "line"))
    }

    fn at_least(&self, lines: &Lines<'_>) -> Figure {
        let number = lines.all.len();
        let figure = Figure::new(number as f64, None, count(number, "line"));
        match self.unfinished().or_else(|| left_out(lines)) {
            Some(more) => Figure { at_best: f64::INFINITY, excuse: Some(more), ..figure },
            None => figure,
        }
    }

    /// Returns for how many values of the group `key` the values of a group differ.
    fn same(
        &self,
        lines: &Lines<'_>,
        group: &str,
        key: Option<&str>,
        cited: &mut Cited,
    ) -> Result<Figure, Unknown> {
        let mut all: Vec<(String, String, Line<'_>)> = Vec::new();
        for line in &lines.all {
            let of = |name: &str| line.groups.get(name).map(|it| canonical(it));
            if let (Some(value), Some(key)) = (of(group), key.map_or(Some(String::new()), of)) {
                all.push((key, value, *line));
            }
        }
        all.sort_by(|a, b| (&a.0, a.2.at).cmp(&(&b.0, b.2.at)));
        let (mut compared, mut values) = (0, BTreeSet::new());
        let mut violating: Vec<[Line<'_>; 2]> = Vec::new();
        for of_key in all.chunk_by(|a, b| a.0 == b.0).filter(|it| it.len() > 1) {
            compared += if key.is_some() { 1 } else { of_key.len() };
            let other = of_key.iter().find(|it| it.1 != of_key[0].1);
            values.extend(of_key.iter().map(|it| &it.1));
            violating.extend(other.map(|other| [of_key[0].2, other.2]));
        }
        let first = violating.iter().min_by_key(|it| it[1].at);
        if let Some(first) = first {
            *cited = self.cite(first, None);
        }
        if compared == 0 {
            return Err(match key {
                _ if lines.all.is_empty() => self.without_lines(),
                Some(key) => {
                    self.uncompared(format!("no two lines have the same {key}, so none were compared"))
                }
                None => {
                    self.uncompared(format!("fewer than two lines have a {group}, so none were compared"))
                }
            });
        }
        let words = match key {
            Some(key) if violating.is_empty() => {
                format!("the same {group} for {} that several lines have", count(compared, key))
            }
            Some(key) => format!("different {group} for {} of {}", violating.len(), count(compared, key)),
            None => format!("{} in {}", count(values.len(), group), count(compared, "line")),
        };
        let more = self.unfinished().or_else(|| left_out(lines));
        Ok(Figure::new(violating.len() as f64, more, words))
    }

    /// Returns how many lines do not have a larger value of a group than an earlier line.
    fn increases(
        &self,
        lines: &Lines<'_>,
        group: &str,
        per: LinesOf,
        cited: &mut Cited,
    ) -> Result<Figure, Unknown> {
        let (mut compared, mut violating) = (0, Violating::default());
        let (mut text, mut unordered) = (None, None);
        for together in lines.together(per) {
            // The line with the largest number from each stream, and among those that are surely earlier than the next one.
            let mut of_stream: BTreeMap<_, (Number<'_>, Line<'_>)> = BTreeMap::new();
            let mut earlier: Option<(Number<'_>, Line<'_>)> = None;
            // The lines that may have been logged after the next one.
            let mut recent: Vec<(Number<'_>, Line<'_>)> = Vec::new();
            for line in together {
                let Some(value) = line.groups.get(group) else { continue };
                let Some(number) = Number::read(value) else {
                    text.get_or_insert((*line, value));
                    continue;
                };
                compared += usize::from(!of_stream.is_empty());
                for it in recent.extract_if(.., |it| self.is_apart(&it.1, line)) {
                    if earlier.as_ref().is_none_or(|most| it.0 > most.0) {
                        earlier = Some(it);
                    }
                }
                let stream = (line.source.process, line.source.life, line.is_error);
                let own = of_stream.range((stream.0, Life(0), false)..=stream).map(|it| it.1);
                let own = own.filter(|it| is_of_stream(&it.1, stream));
                let before = own.chain(&earlier).filter(|it| number <= it.0).max_by(|a, b| a.0.cmp(&b.0));
                // In any order, one of two equal numbers is not larger.
                let before = before.or_else(|| recent.iter().find(|it| it.0 == number));
                let other = recent.iter().find(|it| !is_of_stream(&it.1, stream));
                match (before, other) {
                    (Some((_, before)), _) => violating.add([*before, *line]),
                    (None, Some((_, other))) => drop(unordered.get_or_insert([*other, *line])),
                    (None, None) => {}
                }
                let most = of_stream.entry(stream).or_insert_with(|| (number.clone(), *line));
                if number > most.0 {
                    *most = (number.clone(), *line);
                }
                recent.push((number, *line));
            }
        }
        let unclear = match (&text, &unordered) {
            (Some((line, value)), _) => {
                *cited = self.cite(&[*line], None);
                match value.len() == MOST_OF_GROUP && value.contains('~') {
                    true => {
                        let reason = format!(
                            "{group} is longer than {MOST_OF_GROUP} bytes, so its value is not known"
                        );
                        Some((reason, "let the group match less"))
                    }
                    false => {
                        let reason = format!("{group} is not a number: {}", printable(value));
                        Some((reason, "let the group match only a whole number or a decimal"))
                    }
                }
            }
            (None, Some(two)) => {
                *cited = self.cite(two, None);
                let reason = "two lines of different nodes or streams came too soon after each other to know their order, \
                              or the machine was busy";
                let remedy = "use `per: node` and one of standard output and error, or repeat the run on an idle machine";
                Some((reason.to_owned(), remedy))
            }
            (None, None) => None,
        };
        let unclear = unclear.map(|(reason, remedy)| Unknown { reason, remedy, lacks_facts: false });
        if !violating.first.is_empty() {
            *cited = self.cite(&violating.first, None);
        }
        if compared == 0 {
            return Err(unclear.unwrap_or_else(|| match lines.all.is_empty() {
                true => self.without_lines(),
                false => self.uncompared(format!("no two lines with a {group} were compared")),
            }));
        }
        let words = match violating.number {
            0 => count(compared + 1, "line"),
            number => format!("{number} of {} that do not increase it", count(compared + 1, "line")),
        };
        let more = self.unfinished().or(unclear).or_else(|| left_out(lines));
        Ok(Figure::new(violating.number as f64, more, words))
    }

    /// Returns whether two lines are far enough apart to have an order, even if they are of different streams.
    /// A busy machine delays both.
    fn is_apart(&self, before: &Line<'_>, after: &Line<'_>) -> bool {
        let apart = after.at.since(before.at).as_secs_f64() - self.busy(before.at, after.at).as_secs_f64();
        apart > ORDERED_AFTER.as_secs_f64() + self.clock_error()
    }

    /// Returns the longest time without a line.
    fn longest_gap(&self, lines: &Lines<'_>, per: LinesOf, cited: &mut Cited) -> Result<Figure, Unknown> {
        let rhythms = lines.rhythms(self.history, per);
        let all: Vec<(Option<ProcessId>, Silence)> =
            rhythms.iter().flat_map(|it| it.silences().map(|silence| (it.process, silence))).collect();
        let Some((value, at_best, excuse)) = self.longest(all.iter().map(|it| &it.1), "this time") else {
            return Err(self.without_lines());
        };
        let error = imprecision(lines);
        let longest = all.iter().max_by_key(|it| it.1.lasted());
        if let Some((process, silence)) = longest {
            *cited = self.cite(&around(lines, *process, silence), Some((silence, None)));
        }
        let words = match longest {
            Some((_, it)) if it.is_open => format!("{} until the end", seconds(value, error)),
            _ => seconds(value, error),
        };
        Ok(Figure { error, at_best, excuse, ..Figure::new(value, self.unfinished(), words) })
    }

    /// Returns the longest time without a line after a fault. A fault is not judged if the next one takes effect, or the run
    /// ends, before the next line and before the limit. If there had been no line for longer than the limit when the fault
    /// struck, nothing shows whether the programs resumed after it.
    fn resumed(
        &self,
        watch: WatchNo,
        lines: &Lines<'_>,
        limit: Span,
        per: LinesOf,
        cited: &mut Cited,
    ) -> Result<Figure, Unknown> {
        let error = imprecision(lines) + self.clock_error();
        let rhythms = lines.rhythms(self.history, per);
        let all: Vec<Resumption> =
            rhythms.iter().flat_map(|it| it.resumptions(self.history, limit)).collect();
        let silent = all.iter().find(|it| it.before > limit);
        let silent = silent.map(|it| Unknown {
            reason: format!(
                "{}{} had logged no line for {} when fault {} struck, so its recovery is unknown",
                self.history.context.names.watch(watch),
                it.process.map(|it| format!(" of {}", self.history.context.process(it))).unwrap_or_default(),
                seconds(it.before.as_secs_f64(), 0.0),
                it.no.0
            ),
            remedy: "permit a longer time, or plan the fault for a time at which the programs log such lines",
            lacks_facts: false,
        });
        let is_judged = |it: &&Resumption| {
            let lasted = it.silence.lasted().as_secs_f64();
            it.before <= limit && (!it.silence.is_open || lasted - error > limit.as_secs_f64())
        };
        let judged: Vec<&Resumption> = all.iter().filter(is_judged).collect();
        if let Some(longest) = judged.iter().max_by_key(|it| it.silence.lasted()) {
            let around = around(lines, longest.process, &longest.silence);
            *cited = self.cite(&around, Some((&longest.silence, Some(longest.no))));
        }
        let periods: Vec<Silence> = judged.iter().map(|it| it.silence).collect();
        let faults = |each: &mut dyn Iterator<Item = FaultNo>| each.collect::<BTreeSet<_>>().len();
        let faults = [faults(&mut judged.iter().map(|it| it.no)), faults(&mut all.iter().map(|it| it.no))];
        if all.is_empty() && lines.all.is_empty() {
            return Err(self.without_lines());
        }
        let mut figure = self.recoveries(&periods, faults, error, silent)?;
        figure.more = self.lacks_facts().or(figure.more);
        Ok(figure)
    }

    /// Cites lines with the last fault before the last of them or, for a time without lines, before its end.
    fn cite(&self, lines: &[Line<'_>], silence: Option<(&Silence, Option<FaultNo>)>) -> Cited {
        let (history, names) = (self.history, &self.history.context.names);
        let begun = history.supervision.begun.unwrap_or_default();
        let seconds_of = |at: Time| at.as_secs_f64() - begun.as_secs_f64();
        let quoted = |it: &Line<'_>| CitedLine {
            node: history.context.process(it.source.process),
            life: it.source.life.0,
            at_seconds: seconds_of(it.at),
            log: log_of(history, it.source.process, it.source.life),
            log_line: (it.log_line > 0).then_some(it.log_line),
            line: printable(it.text).to_string(),
        };
        let cited: Vec<CitedLine> = lines.iter().map(quoted).collect();
        let mut words: Vec<String> = lines
            .iter()
            .zip(&cited)
            .map(|(line, it)| {
                let (at, place) = (instant(it.at_seconds), line.place(history));
                format!("{} logged \"{}\" in life {} at {at} ({place})", it.node, it.line, it.life)
            })
            .collect();
        let last = lines.iter().map(|it| it.at).chain(silence.map(|it| it.0.upto)).max();
        let mut faults = effects(history).into_iter().rev();
        let fault = match silence.and_then(|it| it.1) {
            Some(no) => faults.find(|it| it.0 == no),
            None => faults.find(|it| last.is_some_and(|last| it.1 <= last)),
        };
        if let Some(silence) = silence.filter(|it| it.0.is_open) {
            words.push(format!("no line followed until {}", instant(seconds_of(silence.0.upto))));
        }
        if let Some((no, at, _)) = fault {
            let injected = history.supervision.injected.iter().find(|it| it.0 == no);
            let what = injected.map(|it| describe_injected_fault(it.1, names)).unwrap_or_default();
            let at = instant(seconds_of(at));
            words.push(format!("the last fault before: fault {} at {at} ({what})", no.0));
        }
        Cited {
            sources: lines.iter().map(|it| it.source).collect(),
            words: (!words.is_empty()).then(|| words.join("; ")),
            lines: cited,
        }
    }

    fn without_lines(&self) -> Unknown {
        self.uncompared("no line matched the watch".to_owned())
    }

    fn uncompared(&self, reason: String) -> Unknown {
        Unknown {
            reason,
            remedy: "see the logs of the nodes, and correct the regular expression of the watch, or let the run last longer",
            lacks_facts: !self.is_over,
        }
    }
}

/// Returns whether a line has an order with those of a stream: the same stream, or an earlier life of the process.
fn is_of_stream(line: &Line<'_>, (process, life, is_error): (ProcessId, Life, bool)) -> bool {
    line.source.process == process && (line.source.life != life || line.is_error == is_error)
}

/// Returns the reason why there may have been more lines, if a node left some out.
fn left_out(lines: &Lines<'_>) -> Option<Unknown> {
    (!lines.left_out.is_empty()).then(|| Unknown {
        reason: "a node left out lines that match, or may match: there were more than 100 per second, or one was longer \
                 than 64 KiB"
            .into(),
        remedy: "let the regular expression of the watch match fewer lines, and the programs log shorter ones",
        lacks_facts: false,
    })
}

/// Returns the largest possible error of the time between two lines in seconds: lines of a second may have been left out.
fn imprecision(lines: &Lines<'_>) -> f64 {
    if lines.left_out.is_empty() { 0.0 } else { 1.0 }
}

/// Returns the last line before a time without lines, and the first one after it.
fn around<'l>(lines: &Lines<'l>, process: Option<ProcessId>, silence: &Silence) -> Vec<Line<'l>> {
    let of = || lines.all.iter().filter(|it| process.is_none_or(|process| it.source.process == process));
    let before = of().filter(|it| it.at <= silence.from).max_by_key(|it| it.at);
    let after = of().filter(|it| it.at >= silence.upto && !silence.is_open).min_by_key(|it| it.at);
    before.into_iter().chain(after).copied().collect()
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::Outcome;
    use faultline_core::{EndedBy, Fact, Fault, Life, Observation, StorageFate};
    use faultline_trace::expectation::{Expectation, SystemEntry};
    use faultline_trace::manifest::Pressure;

    use super::*;
    use crate::expected::{Assessment, Met, assess};
    use crate::testing::{Run, p};

    fn seconds(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    /// A run of two nodes, each in its own cluster, whose lines match a watch.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.system =
            Some(SystemEntry { watches: vec!["committed".into()], ..SystemEntry::default() });
        run.context.outcome = Some(Outcome::Completed);
        run.supervisor(Fact::Begun);
        run
    }

    /// Adds a line of a process, one second after the last one. `groups` has the form `step=1 digest=a`.
    fn logs(run: &mut Run, process: u32, groups: &str) {
        run.wait(seconds(1));
        let pairs = groups.split_whitespace().filter_map(|it| it.split_once('='));
        let observation = Observation::Logged {
            watch: WatchNo(0),
            line: groups.into(),
            log_line: 7,
            is_error: false,
            groups: pairs.map(|(name, value)| (name.into(), value.into())).collect(),
        };
        run.state(process, Fact::Observed(Box::new(observation)));
    }

    fn leaves_out(run: &mut Run, process: u32) {
        run.state(process, Fact::Observed(Box::new(Observation::LeftOut { watch: WatchNo(0) })));
    }

    fn crash(run: &mut Run, no: u32, process: u32) {
        let (no, fault) = (FaultNo(no), Box::new(Fault::crash(p(process))));
        run.supervisor(Fact::Injecting { no, fault });
        let (by, storage) = (EndedBy::Fault(no), StorageFate::Kept);
        run.supervisor(Fact::Failed { process: p(process), life: Life(1), storage, by });
    }

    fn judged(run: &mut Run, are: LinesAre) -> Assessment {
        run.context.expectations = vec![Expectation::Lines { watch: WatchNo(0), are }];
        assess(&run.history()).remove(0)
    }

    fn end(run: &mut Run) {
        run.supervisor(Fact::Completed);
        run.context.end = run.history().end();
    }

    fn same() -> LinesAre {
        LinesAre::Same { group: "digest".into(), for_each: Some("step".into()) }
    }

    fn increases(per: LinesOf) -> LinesAre {
        LinesAre::Increases { group: "step".into(), per }
    }

    fn reason(it: &Assessment) -> &str {
        it.unknown.as_ref().map_or("", |it| &it.reason)
    }

    #[test]
    fn two_lines_with_the_same_step_must_have_the_same_digest() {
        let mut run = run();
        logs(&mut run, 0, "step=1 digest=a");
        logs(&mut run, 1, "step=01 digest=a");
        logs(&mut run, 0, "step=2 digest=b");
        let it = judged(&mut run, same());
        assert_eq!(
            (it.met, it.measured.as_deref()),
            (Met::Yes, Some("the same digest for 1 step that several lines have"))
        );
        assert_eq!((it.lines.len(), it.said), (0, None));
        crash(&mut run, 0, 0);
        run.next_life(0);
        logs(&mut run, 1, "step=2 digest=c");
        logs(&mut run, 0, "step=3 digest=4.0");
        logs(&mut run, 1, "step=3 digest=4");
        end(&mut run);
        let it = judged(&mut run, same());
        assert_eq!(
            (it.met, it.figure, it.measured.as_deref()),
            (Met::No, Some(1.0), Some("different digest for 1 of 3 steps"))
        );
        assert_eq!(
            it.said.as_deref(),
            Some(
                "p0 logged \"step=2 digest=b\" in life 1 at 3.00 s (logs/p0-1.log:7); p1 logged \"step=2 digest=c\" in \
                 life 1 at 4.00 s (logs/p1-1.log:7); the last fault before: fault 0 at 3.00 s (p0 was killed)"
            )
        );
        assert_eq!(
            (it.sources.len(), &*it.lines[1].line, it.lines[1].log_line),
            (2, "step=2 digest=c", Some(7))
        );
        // A line that is left out cannot undo the violation, but could be one.
        leaves_out(&mut run, 0);
        assert_eq!(judged(&mut run, same()).met, Met::No);
        let all = LinesAre::Same { group: "digest".into(), for_each: None };
        assert_eq!(judged(&mut run, all).measured.as_deref(), Some("4 digests in 6 lines"));
    }

    #[test]
    fn what_was_not_compared_or_left_out_is_unknown() {
        let mut run = run();
        let it = judged(&mut run, same());
        assert_eq!((it.met, reason(&it)), (Met::Unknown, "no line matched the watch"));
        logs(&mut run, 0, "step=1 digest=a");
        logs(&mut run, 0, "step=2 digest=a");
        logs(&mut run, 0, "digest=a");
        let it = judged(&mut run, same());
        assert_eq!(
            (it.met, reason(&it)),
            (Met::Unknown, "no two lines have the same step, so none were compared")
        );
        logs(&mut run, 1, "step=2 digest=a");
        for are in [same(), increases(LinesOf::Node), LinesAre::AtMost(4), LinesAre::AtLeast(4)] {
            assert_eq!(judged(&mut run, are).met, Met::Yes);
        }
        leaves_out(&mut run, 1);
        for (are, met) in [
            (same(), Met::Unknown),
            (increases(LinesOf::Node), Met::Unknown),
            (LinesAre::AtMost(4), Met::Unknown),
            (LinesAre::AtMost(3), Met::No),
            (LinesAre::AtLeast(4), Met::Yes),
            (LinesAre::AtLeast(5), Met::Unknown),
        ] {
            let it = judged(&mut run, are.clone());
            assert_eq!(it.met, met, "{are:?}");
            assert!(met != Met::Unknown || reason(&it).contains("left out lines"), "{it:?}");
        }
        run.context.outcome = Some(Outcome::Deadline);
        for are in [same(), LinesAre::AtMost(9), LinesAre::AtLeast(9)] {
            assert_eq!(judged(&mut run, are).met, Met::Unknown);
        }
    }

    #[test]
    fn steps_increase_over_all_lives_of_a_node_or_in_each() {
        let mut run = run();
        logs(&mut run, 0, "step=9");
        logs(&mut run, 0, "step=10");
        logs(&mut run, 1, "step=1");
        crash(&mut run, 0, 0);
        run.next_life(0);
        logs(&mut run, 0, "step=10");
        logs(&mut run, 0, "step=11");
        let all = [LinesOf::Life, LinesOf::Node, LinesOf::Run].map(|per| judged(&mut run, increases(per)));
        assert_eq!(all.each_ref().map(|it| it.met), [Met::Yes, Met::No, Met::No]);
        assert_eq!(all[1].measured.as_deref(), Some("1 of 4 lines that do not increase it"));
        assert_eq!(all[1].lines.iter().map(|it| it.life).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(all[2].figure, Some(2.0));
        logs(&mut run, 1, "step=1e3");
        let it = judged(&mut run, increases(LinesOf::Life));
        assert_eq!((it.met, reason(&it)), (Met::Unknown, "step is not a number: 1e3"));
        assert!(it.said.is_some_and(|it| it.starts_with("p1 logged \"step=1e3\"")));
        assert_eq!(judged(&mut run, increases(LinesOf::Node)).met, Met::No);
    }

    #[test]
    fn lines_of_two_nodes_have_no_order_if_they_are_close_or_the_machine_was_busy() {
        let after = |millis: u64, step: &str, busy: bool| {
            let mut run = run();
            logs(&mut run, 0, "step=2");
            let at = run.history().end();
            run.wait(Span::from_millis(millis));
            let (watch, groups) = (WatchNo(0), [("step".into(), step.into())].into());
            let line = Observation::Logged { watch, line: "x".into(), log_line: 0, is_error: false, groups };
            run.state(1, Fact::Observed(Box::new(line)));
            if busy {
                run.context.pressure = Some(Pressure::Busy(vec![(at, at + seconds(1))]));
            }
            judged(&mut run, increases(LinesOf::Run)).met
        };
        assert_eq!(after(201, "1", false), Met::No);
        assert_eq!((after(200, "1", false), after(201, "1", true)), (Met::Unknown, Met::Unknown));
        // In any order, one of two equal steps is not larger.
        assert_eq!(after(1, "2", true), Met::No);
        // The smaller one may have been logged later.
        assert_eq!((after(1, "3", false), after(201, "3", true)), (Met::Unknown, Met::Unknown));
        assert_eq!((after(201, "3", false), after(1_201, "3", true)), (Met::Yes, Met::Yes));
    }

    #[test]
    fn the_time_in_which_a_node_is_down_is_no_gap_but_both_sides_of_it_are() {
        let mut run = run();
        logs(&mut run, 0, "");
        run.wait(seconds(2));
        crash(&mut run, 0, 0);
        run.wait(seconds(10));
        run.next_life(0);
        run.state(0, Fact::Observed(Box::new(Observation::Ready)));
        run.wait(seconds(2));
        logs(&mut run, 0, "");
        run.wait(seconds(4));
        end(&mut run);
        let gap = |at_most, per| LinesAre::LongestGap { at_most: seconds(at_most), per };
        let it = judged(&mut run, gap(5, LinesOf::Node));
        assert_eq!((it.met, it.figure), (Met::Yes, Some(5.0)), "{it:?}");
        let it = judged(&mut run, gap(4, LinesOf::Node));
        assert_eq!((it.met, it.lines.len()), (Met::No, 2));
        assert_eq!(judged(&mut run, gap(14, LinesOf::Run)).met, Met::No);
        // As for probes, a busy machine may be the reason.
        run.context.pressure = Some(Pressure::Busy(vec![(Time::ZERO + seconds(1), Time::ZERO + seconds(3))]));
        let it = judged(&mut run, gap(4, LinesOf::Node));
        assert_eq!((it.met, reason(&it)), (Met::Unknown, "the machine was busy for 2.00 s of this time"));
        assert_eq!(judged(&mut run, gap(2, LinesOf::Node)).met, Met::No);
    }

    #[test]
    fn a_node_needs_no_more_lines_only_if_its_command_has_done_its_work() {
        for (status, met) in [(0, Met::Yes), (1, Met::No)] {
            for may_finish in [true, false] {
                let mut run = run();
                let system = run.context.system.as_mut().unwrap();
                if may_finish { &mut system.may_finish } else { &mut system.may_exit }.push(p(0));
                logs(&mut run, 0, "");
                logs(&mut run, 1, "");
                let ending = faultline_core::Ending::Exit(status);
                run.state(0, Fact::Observed(Box::new(Observation::Exited { ending, said: "".into() })));
                (0..9).for_each(|_| logs(&mut run, 1, ""));
                end(&mut run);
                let are = LinesAre::LongestGap { at_most: seconds(1), per: LinesOf::Node };
                assert_eq!(judged(&mut run, are).met, met, "exit status {status}");
            }
        }
    }

    fn resumed(within: u64, per: LinesOf) -> LinesAre {
        LinesAre::RecoveredWithin { within: seconds(within), per }
    }

    #[test]
    fn the_next_line_must_follow_each_fault_at_every_node_that_logs() {
        let mut run = run();
        logs(&mut run, 0, "");
        logs(&mut run, 1, "");
        crash(&mut run, 0, 0);
        // A line that was on its way does not hide the silence after it.
        logs(&mut run, 1, "");
        run.wait(seconds(5));
        run.next_life(0);
        logs(&mut run, 0, "");
        logs(&mut run, 1, "");
        (0..9).for_each(|it| logs(&mut run, it % 2, ""));
        end(&mut run);
        let met = |run: &mut Run, within| judged(run, resumed(within, LinesOf::Node)).met;
        assert_eq!((met(&mut run, 7), met(&mut run, 6)), (Met::Yes, Met::No));
        let it = judged(&mut run, resumed(6, LinesOf::Node));
        assert_eq!((it.figure, it.lines.len()), (Some(7.0), 2));
        assert!(it.said.is_some_and(|it| it.contains("fault 0 at 2.00 s")));
        assert_eq!(judged(&mut run, resumed(6, LinesOf::Run)).met, Met::Yes);
        run.context.pressure = Some(Pressure::Busy(vec![(Time::ZERO + seconds(3), Time::ZERO + seconds(4))]));
        assert_eq!(met(&mut run, 6), Met::Unknown);
    }

    #[test]
    fn a_node_that_was_silent_before_a_fault_or_does_not_log_again_in_time() {
        let mut run = run();
        logs(&mut run, 0, "");
        run.wait(seconds(4));
        crash(&mut run, 0, 0);
        run.wait(seconds(6));
        end(&mut run);
        let it = judged(&mut run, resumed(3, LinesOf::Node));
        let expected =
            "0 of p0 had logged no line for 4.00 s when fault 0 struck, so its recovery is unknown";
        assert_eq!((it.met, reason(&it)), (Met::Unknown, expected));
        let it = judged(&mut run, resumed(5, LinesOf::Node));
        assert_eq!((it.met, it.measured.as_deref()), (Met::No, Some("not recovered after 6.00 s")));
        assert!(it.said.is_some_and(|it| it.contains("no line followed until 11.00 s")));
        let it = judged(&mut run, resumed(7, LinesOf::Node));
        assert_eq!((it.met, it.measured), (Met::Unknown, None));
    }
}

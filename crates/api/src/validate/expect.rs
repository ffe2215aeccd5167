//! Checks what the federation expects of the run.

use faultline_core::Span;

use super::system::LIVES;
use super::{Check, one_of};
use crate::quantity::Duration;
use crate::resource::{Assertion, ExpectSpec, MAX_EXPECTATIONS, MAX_TEXT, Per, problem_of_words};

/// The length of the longest name.
const MAX_NAME: usize = 40;
/// Maximum length of the name of a probe, which may be that of a history with a kind of operation.
const MAX_PROBE: usize = 60;
/// The length of the longest name of a node.
const MAX_NODE: usize = 64;
/// The length of the longest text of a check.
const MAX_CHECK: usize = 100;

impl Check<'_> {
    pub(super) fn expectations(&mut self) {
        let all = &self.spec.expect;
        self.at_most_entries("spec.expect", all.len(), MAX_EXPECTATIONS);
        for (index, entry) in all.iter().enumerate() {
            self.expectation(&format!("spec.expect[{index}]"), entry);
            if self.problems.is_empty() && all[..index].contains(entry) {
                self.problem(
                    format!("spec.expect[{index}]"),
                    "the same expectation is listed twice",
                    "remove one of them",
                );
            }
        }
    }

    fn expectation(&mut self, path: &str, entry: &ExpectSpec) {
        let assertions = entry.assertions();
        // `latency` may have several limits.
        let mut names: Vec<&str> = assertions.iter().map(|it| it.0).collect();
        names.dedup();
        match names[..] {
            [] if entry.latency.is_some() => self.problem(
                format!("{path}.latency"),
                "the latency has no limit",
                "add one: `p50`, `p99` or `max`, such as `latency: { p99: 200ms }`",
            ),
            [] => self.problem(
                path,
                "the expectation has no assertion",
                match entry.watch {
                    Some(_) => {
                        "add one: `recoveredWithin: 10s`, `longestGap: 5s`, `same: GROUP`, `increases: GROUP`, \
                         `atMost: 0` or `atLeast: 1`"
                    }
                    None => {
                        "add one: `recoveredWithin: 3s`, `rollbacks: { atMost: 4 }`, `lostWork: { atMost: 10s }`, \
                         `finishedWithin: 2m`, `faults: { atLeast: 1 }` or, for a probe of a system, \
                         `availability: 0.95`, `latency: { p99: 200ms }`, `longestOutage: 5s` or `check: TEXT`"
                    }
                },
            ),
            [name] => {
                assertions.into_iter().for_each(|(_, it)| self.assertion(path, name, it, entry));
            }
            [first, second, ..] => self.problem(
                format!("{path}.{second}"),
                format!("the expectation has two assertions, `{first}` and `{second}`"),
                "split it into two expectations with one assertion each",
            ),
        }
        let words = entry.exec.as_deref();
        if let Some((_, message, help)) = words.and_then(|it| problem_of_words("exec", it)) {
            let long = words.and_then(|it| it.iter().position(|word| word.chars().count() > MAX_TEXT));
            let word = long.map(|it| format!("[{it}]")).unwrap_or_default();
            self.problem(format!("{path}.exec{word}"), message, help);
        }
        if let Some(by) = &entry.by {
            self.has_length(&format!("{path}.by"), "name", by, MAX_NODE);
        }
        for (name, is_set) in
            [("by", entry.by.is_some()), ("exec", entry.exec.is_some()), ("within", entry.within.is_some())]
        {
            if is_set && entry.check.is_none() {
                let message = format!("`{name}` belongs to a check");
                self.problem(format!("{path}.{name}"), message, "add `check: TEXT`, or remove it");
            }
        }
        self.about_lines(path, entry);
        let Some(probe) = &entry.probe else { return };
        self.recovery_can_be_shown(path, probe, entry);
        let path = format!("{path}.probe");
        self.probe(&path, probe);
        let is_of_probe = entry.recovered_within.or(entry.longest_outage).is_some()
            || entry.availability.is_some()
            || entry.latency.is_some();
        if !is_of_probe {
            self.problem(
                path,
                "this assertion is not about a probe",
                "remove `probe`, or assert `availability`, `latency`, `longestOutage` or `recoveredWithin`",
            );
        }
    }

    fn assertion(&mut self, path: &str, name: &str, assertion: Assertion<'_>, entry: &ExpectSpec) {
        let at = format!("{path}.{name}");
        match assertion {
            Assertion::RecoveredWithin(_) | Assertion::Rollbacks(_) | Assertion::LostWork(_)
                if entry.probe.is_none()
                    && entry.watch.is_none()
                    && self.spec.application.system().is_some() =>
            {
                self.problem(
                    at,
                    "Faultline does not see rollbacks and recoveries of the programs of a system",
                    "use a probe or a watch: `{ probe: NAME, recoveredWithin: 10s }`",
                );
            }
            Assertion::RecoveredWithin(within) | Assertion::FinishedWithin(within) => self.within(at, within),
            Assertion::Rollbacks(_) | Assertion::LostWork(_) => {}
            Assertion::Availability(share) if !(share > 0.0 && share <= 1.0) => self.problem(
                at,
                format!("{share} is not a fraction of the time"),
                "write a number above 0 and up to 1, such as 0.95",
            ),
            Assertion::Latency(of, Duration(Span::ZERO)) => self.problem(
                format!("{at}.{}", of.name()),
                "the time must not be 0",
                "write a duration above zero",
            ),
            Assertion::Availability(_) | Assertion::LongestOutage(_) | Assertion::Latency(..) => {
                if entry.probe.is_none() {
                    self.problem(at, format!("`{name}` needs a probe"), "add `probe: NAME`");
                }
            }
            Assertion::Faults(_) => {
                if self.spec.faults.is_empty() {
                    self.problem(at, "the federation has no faults", "add faults, or remove the expectation");
                }
            }
            Assertion::Exits(cluster) => {
                if !self.has_length(&at, "name", cluster, MAX_NAME) {
                    return;
                }
                if self.spec.application.system().is_none() {
                    self.not_a_system(at);
                } else if !self.nodes.contains_key(cluster) {
                    let known: Vec<&str> = self.nodes.keys().copied().collect();
                    self.problem(at, format!("there is no cluster `{cluster}`"), one_of(cluster, &known));
                } else if entry.at_most.is_none() {
                    self.problem(at, "the limit is missing", "add `atMost: 0`");
                }
            }
            Assertion::Check(_) => self.check(path, at, entry),
            Assertion::LinesAtMost(_) if entry.watch.is_none() => self.problem(
                at,
                "`atMost` limits nothing here",
                "add `exits: CLUSTER` or `watch: NAME`, or write `atMost` under `rollbacks` or `lostWork`",
            ),
            Assertion::LinesAtLeast(_) if entry.watch.is_none() => self.problem(
                at,
                "`atLeast` limits nothing here",
                "add `watch: NAME`, or write `atLeast` under `faults`",
            ),
            Assertion::LinesAtLeast(0) => {
                self.problem(at, "every run has at least 0 lines", "write a larger number, such as 1");
            }
            Assertion::Same(group) | Assertion::Increases(group)
                if !self.has_length(&at, "name", group, MAX_NAME) => {}
            Assertion::LongestGap(_) | Assertion::Same(_) | Assertion::Increases(_)
                if entry.watch.is_none() =>
            {
                self.problem(at, format!("`{name}` needs a watch"), "add `watch: NAME`");
            }
            Assertion::LongestGap(within) => self.within(at, within),
            Assertion::Same(group) | Assertion::Increases(group) => self.group(at, group, entry),
            Assertion::LinesAtMost(_) | Assertion::LinesAtLeast(_) => {}
        }
    }

    /// Checks the fields that only assertions about the lines of a watch have.
    fn about_lines(&mut self, path: &str, entry: &ExpectSpec) {
        if let Some(group) = &entry.for_each {
            let at = format!("{path}.for");
            match entry.same {
                _ if !self.has_length(&at, "name", group, MAX_NAME) => {}
                Some(_) => self.group(at, group, entry),
                None => self.problem(at, "`for` belongs to `same`", "add `same: GROUP`, or remove it"),
            }
        }
        let is_of_times = entry.watch.is_some() && entry.recovered_within.or(entry.longest_gap).is_some();
        let at = format!("{path}.per");
        match entry.per {
            Some(Per::Life) if is_of_times => self.problem(
                at,
                "the time between two lines is not that of one life",
                "write `per: node` or `per: run`",
            ),
            Some(_) if !is_of_times && entry.increases.is_none() => {
                let help = "remove it, or assert `increases`, `longestGap` or `recoveredWithin` of a watch";
                self.problem(at, "`per` has no effect on this assertion", help);
            }
            _ => {}
        }
        let Some(watch) = &entry.watch else { return };
        let at = format!("{path}.watch");
        if !self.has_length(&at, "name", watch, MAX_NAME) {
            return;
        }
        let assertions = entry.assertions();
        let is_of_lines = is_of_times
            || assertions.iter().any(|it| {
                use Assertion::{Increases, LinesAtLeast, LinesAtMost, Same};
                matches!(it.1, Same(_) | Increases(_) | LinesAtMost(_) | LinesAtLeast(_))
            });
        if !is_of_lines && !assertions.is_empty() {
            return self.problem(
                at,
                "this assertion is not about the lines of a watch",
                "remove `watch`, or assert `recoveredWithin`, `longestGap`, `same`, `increases`, `atMost` or `atLeast`",
            );
        }
        if entry.probe.is_some() {
            return self.problem(
                at,
                "the expectation is about a watch and a probe",
                "split it into two expectations",
            );
        }
        match self.spec.application.system() {
            Some(system) if system.watch_no(watch).is_none() => self.no_watch(&at, watch),
            Some(_) => {}
            None => self.not_a_system(at),
        }
    }

    /// Checks that all regular expressions of the watch have this group.
    fn group(&mut self, at: String, group: &str, entry: &ExpectSpec) {
        let Some((watch, system)) = entry.watch.as_ref().zip(self.spec.application.system()) else { return };
        let lacking = system.groups(watch).into_iter().find(|(_, all)| !all.iter().any(|it| it == group));
        if let Some((cluster, known)) = lacking {
            let place = cluster.map(|it| format!(" in cluster `{it}`")).unwrap_or_default();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let help = match &known[..] {
                [] => format!("name a group of its regular expression: `(?<{group}>\\d+)`"),
                known => one_of(group, known),
            };
            self.problem(at, format!("the watch `{watch}` has no group `{group}`{place}"), help);
        }
    }

    fn check(&mut self, path: &str, at: String, entry: &ExpectSpec) {
        if !self.has_length(&at, "text", entry.check.as_deref().unwrap_or_default(), MAX_CHECK) {
            return;
        }
        let Some(system) = self.spec.application.system() else { return self.not_a_system(at) };
        if let Some(within) = entry.within {
            self.within(format!("{path}.within"), within);
        }
        let (Some(by), Some(words)) = (&entry.by, &entry.exec) else {
            let help = "write `{ check: TEXT, by: NODE, exec: [COMMAND, …] }`";
            return self.problem(at, "a check needs a node and a command", help);
        };
        self.node(&format!("{path}.by"), by);
        if self.problems.is_empty()
            && self.sized
            && let Some(process) = self.names().process_id(by)
            && let Some(Err(error)) = LIVES
                .map(|life| self.system_node_in(system, process, life).check(words))
                .into_iter()
                .find(Result::is_err)
        {
            self.problem(format!("{path}.{}", error.field), error.message, error.help);
        }
    }

    fn within(&mut self, path: String, within: Duration) {
        let deadline = self.spec.deadline();
        if within.0 == Span::ZERO {
            self.problem(path, "the time must not be 0", "write a duration above zero");
        } else if within.0 > deadline {
            self.problem(
                path,
                format!("{within} is longer than the deadline of the run, {}", Duration(deadline)),
                "choose a shorter time, or extend `deadline`",
            );
        }
    }

    /// Checks that a text has at least one character, and at most `most` bytes.
    fn has_length(&mut self, path: &str, what: &str, text: &str, most: usize) -> bool {
        let is_short = (1..=most).contains(&text.len());
        if !is_short {
            let help = format!("write 1 to {most} characters");
            self.problem(path, format!("the {what} has {} characters", text.chars().count()), help);
        }
        is_short
    }

    fn probe(&mut self, path: &str, probe: &str) {
        if !self.has_length(path, "name", probe, MAX_PROBE) {
            return;
        }
        let Some(system) = self.spec.application.system() else { return self.not_a_system(path.to_owned()) };
        let known = system.probe_names();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        if !known.contains(&probe) {
            let help = match &known[..] {
                [] => "add it to `application.system.probes`".to_owned(),
                known => one_of(probe, known),
            };
            self.problem(path, format!("there is no probe `{probe}`"), help);
        }
    }

    /// Checks that the limit of a recovery is above its uncertainty. Otherwise, no run could show that it was met.
    fn recovery_can_be_shown(&mut self, path: &str, probe: &str, entry: &ExpectSpec) {
        let probe = self.spec.application.system().and_then(|it| it.probes.get(probe));
        let (Some(within), Some(probe)) = (entry.recovered_within, probe) else { return };
        let uncertainty = probe.every() + probe.timeout();
        if within.0 > Span::ZERO && within.0 <= uncertainty {
            self.problem(
                format!("{path}.recoveredWithin"),
                format!(
                    "{within} is not longer than the uncertainty of a recovery, {} (`every` and `timeout` of the probe)",
                    Duration(uncertainty)
                ),
                "allow a longer time, or shorten `every` and `timeout`",
            );
        }
    }

    fn not_a_system(&mut self, path: String) {
        let name = self.spec.application.name();
        self.problem(
            path,
            format!("only systems have probes, watches and commands, but the application is `{name}`"),
            "use `recoveredWithin`, `rollbacks`, `lostWork` or `finishedWithin`, without `probe` and `watch`",
        );
    }
}

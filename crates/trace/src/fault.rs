//! Describes faults, their triggers, changes during a run, and links. Facts, reports and commands all use
//! these descriptions.

use std::fmt;

use faultline_core::fault::{Change, Flip, FlipTarget, Impairment, LinkProperties, StorageFault};
use faultline_core::{
    ClusterId, Fault, PlannedFault, ProcessId, RunNames, Source, Span, StorageFate, Target, Time, Trigger,
    WatchNo,
};

use crate::duration::{instant, lasted};
use crate::row::kind_name;

/// Describes the effect of a fault, in the present tense.
pub fn describe_fault(fault: &Fault, names: &RunNames) -> String {
    effect(fault, names, false, None)
}

/// Describes the effect of an injected fault, in the past tense.
pub fn describe_injected_fault(fault: &Fault, names: &RunNames) -> String {
    effect(fault, names, true, None)
}

/// Describes the effect of a planned fault, in the present tense, with the cause that a failure trace states.
pub fn describe_planned(planned: &PlannedFault, names: &RunNames) -> String {
    let effect = effect(&planned.fault, names, false, planned.reported);
    match &planned.cause {
        Some(cause) => format!("{effect} (cause: {cause})"),
        None => effect,
    }
}

/// Describes an injected fault like [`describe_planned`], with the target that was found when it was injected.
pub fn describe_aimed(planned: &PlannedFault, injected: &Fault, names: &RunNames) -> String {
    let aimed =
        describe_planned(&PlannedFault { fault: injected.clone(), reported: None, ..planned.clone() }, names);
    match planned.reported {
        Some(watch) => format!("{aimed} (last to log {})", names.watch(watch)),
        None => aimed,
    }
}

fn effect(fault: &Fault, names: &RunNames, is_past: bool, reported: Option<WatchNo>) -> String {
    let last = reported.map(|it| format!("the node that last logged {}", names.watch(it)));
    let be = if is_past { "was" } else { "is" };
    let lost = |storage: &StorageFate| match storage {
        StorageFate::Kept => String::new(),
        StorageFate::Lost => format!(", and its storage {be} lost"),
    };
    match fault {
        Fault::Kill { target, storage, returns, repair } => {
            let killed = match target {
                Target::Process(process) => {
                    format!("{} {be} killed", last.unwrap_or_else(|| names.process(*process)))
                }
                Target::Cluster(_) | Target::Rack { .. } => {
                    let place = last.map(|it| format!("the cluster of {it}"));
                    let place = place.unwrap_or_else(|| self::place(*target, names));
                    format!("all of {place} {be} killed at once")
                }
            };
            format!("{killed}{}{}{}", not_restarted(*returns), lost(storage), repaired(*repair))
        }
        Fault::Stop { target, storage, repair, within, in_turn, command } => {
            let stopped = match target {
                Target::Process(process) => {
                    format!("{} {be} stopped", last.unwrap_or_else(|| names.process(*process)))
                }
                Target::Cluster(_) | Target::Rack { .. } => {
                    let how = if *in_turn { "restarted one after the other" } else { "restarted" };
                    format!("all nodes of {} {be} {how}", self::place(*target, names))
                }
            };
            let command = if command.is_some() { ", with another command" } else { "" };
            let within = lasted(*within);
            let signals = format!("SIGTERM, and SIGKILL after {within}");
            format!("{stopped} ({signals}){command}{}{}", lost(storage), repaired(*repair))
        }
        Fault::Impair { process, how: how @ Impairment::Flip(_), .. } => {
            impaired(*how, names.process(*process), is_past)
        }
        Fault::Impair { process, how, span } => {
            let span = span
                .map_or_else(|| "until the end of the run".to_owned(), |it| format!("for {}", lasted(it)));
            format!("{} {span}", impaired(*how, last.unwrap_or_else(|| names.process(*process)), is_past))
        }
        Fault::Link { from, to, properties, span } => {
            let which = network(*from, *to, names);
            let how = match properties {
                None => format!("{be} restored"),
                Some(properties) => format!("{be} changed to {}", describe_link(properties)),
            };
            match span {
                Some(span) => format!("{which} {how} for {}", lasted(*span)),
                None => format!("{which} {how}"),
            }
        }
        Fault::Partition { from, to, both, span } => {
            let span = lasted(*span);
            match (&to[..], last) {
                ([to], None) => {
                    let arrow = if *both { "<->" } else { "->" };
                    format!("{}{arrow}{} {be} cut for {span}", names.cluster(*from), names.cluster(*to))
                }
                (_, Some(last)) => format!("the cluster of {last} {be} isolated for {span}"),
                (to, None) => {
                    let to: Vec<String> = to.iter().map(|it| names.cluster(*it)).collect();
                    format!("{} {be} cut off from {} for {span}", names.cluster(*from), to.join(", "))
                }
            }
        }
        Fault::Split { cluster, nodes, span } => {
            let be = if nodes.len() > 1 { if is_past { "were" } else { "are" } } else { be };
            let (nodes, cluster) = (listed(nodes, names), names.cluster(*cluster));
            format!("{nodes} {be} cut off from the other nodes of {cluster} for {}", lasted(*span))
        }
    }
}

/// Joins the names of processes.
fn listed(processes: &[ProcessId], names: &RunNames) -> String {
    processes.iter().map(|it| names.process(*it)).collect::<Vec<_>>().join(", ")
}

fn impaired(how: Impairment, process: impl fmt::Display, is_past: bool) -> String {
    let verb = |past, present| if is_past { past } else { present };
    let be = verb("was", "is");
    match how {
        Impairment::Paused => format!("{process} {be} paused"),
        Impairment::Storage(StorageFault::Slow(extra)) => {
            let take = verb("took", "takes");
            format!("the storage of {process} {take} {extra} longer per write")
        }
        Impairment::Slow { percent } => {
            format!("{process} {be} slowed down by a factor of {}", f64::from(percent) / 100.0)
        }
        Impairment::Flip(flip) => match flip.target {
            FlipTarget::Message => {
                format!(
                    "a bit of the next message that {process} {} {be} flipped",
                    verb("received", "receives")
                )
            }
            FlipTarget::Copy => {
                format!("a bit of the next state that {process} {} {be} flipped", verb("stored", "stores"))
            }
            FlipTarget::State => format!("a bit of the state of {process} {be} flipped"),
        },
        Impairment::Storage(StorageFault::Full) => format!("the storage of {process} {be} full"),
        Impairment::Storage(StorageFault::Corrupt) => {
            format!("the storage of {process} {} corrupt data", verb("returned", "returns"))
        }
    }
}

/// Names a cluster, or a rack of a cluster; empty for a process.
pub fn place(target: Target, names: &RunNames) -> String {
    match target {
        Target::Process(_) => String::new(),
        Target::Cluster(cluster) => names.cluster(cluster),
        Target::Rack { cluster, rack, .. } => format!("rack {rack} of {}", names.cluster(cluster)),
    }
}

/// Returns a phrase that says how long the repair of failed nodes takes; empty if they need none.
pub fn repaired(repair: Option<Span>) -> String {
    repair.map(|it| format!(", repair takes {}", lasted(it))).unwrap_or_default()
}

/// Returns a phrase that says that killed processes are not restarted; empty if `returns` is set.
pub fn not_restarted(returns: bool) -> &'static str {
    if returns { "" } else { " and not restarted" }
}

/// Describes a change that a user makes during the run, in the present tense.
pub fn describe_change(change: &Change, names: &RunNames) -> String {
    changed(change, names, "is")
}

/// Describes a change that a user has made during the run, in the past tense.
pub fn describe_applied_change(change: &Change, names: &RunNames) -> String {
    changed(change, names, "was")
}

fn changed(change: &Change, names: &RunNames, be: &str) -> String {
    match change {
        Change::Link { from, to, properties } => {
            format!("{} {be} changed to {}", network(*from, *to, names), describe_link(properties))
        }
        Change::Fault(planned) => {
            let (no, when) = (planned.no.0, describe_trigger(&planned.trigger, names));
            format!("fault {no} {be} added, due {when}: {}", describe_fault(&planned.fault, names))
        }
        Change::Pause(true) => format!("the federation {be} paused"),
        Change::Pause(false) => format!("the federation {be} resumed"),
    }
}

/// Returns a fault as an entry of `faults` in a federation file.
pub fn entry_of(planned: &PlannedFault, names: &RunNames) -> String {
    let mut fields = Vec::new();
    let mut add = |name: &str, value: String| fields.push(format!("{name}: {value}"));
    let lasts = |span: &Option<Span>| span.map(|it| ("for", exact(it)));
    let mut span_of = None;
    match &planned.fault {
        Fault::Kill { target, storage, returns, repair } => {
            match target {
                _ if let Some(watch) = planned.reported => add("reported", quoted(names.watch(watch))),
                Target::Process(process) => add("process", quoted(names.process(*process))),
                Target::Cluster(cluster) => add("cluster", quoted(names.cluster(*cluster))),
                Target::Rack { cluster, rack, .. } => {
                    add("cluster", quoted(names.cluster(*cluster)));
                    add("rack", rack.to_string());
                }
            }
            if *storage == StorageFate::Lost {
                add("storage", "lost".to_owned());
            }
            if !returns {
                add("returns", "false".to_owned());
            }
            if let Some(repair) = repair {
                add("repair", exact(*repair));
            }
        }
        Fault::Stop { target, storage, repair, within, in_turn, .. } => {
            match target {
                _ if let Some(watch) = planned.reported => add("reported", quoted(names.watch(watch))),
                Target::Process(process) => add("process", quoted(names.process(*process))),
                Target::Cluster(cluster) | Target::Rack { cluster, .. } => {
                    add("cluster", quoted(names.cluster(*cluster)));
                }
            }
            if *in_turn {
                add("inTurn", "true".to_owned());
            }
            add("within", exact(*within));
            if *storage == StorageFate::Lost {
                add("storage", "lost".to_owned());
            }
            if let Some(repair) = repair {
                add("repair", exact(*repair));
            }
        }
        Fault::Impair { process, how, span } => {
            match planned.reported {
                Some(watch) => add("reported", quoted(names.watch(watch))),
                None => add("process", quoted(names.process(*process))),
            }
            match how {
                Impairment::Storage(StorageFault::Slow(by)) => add("by", exact(*by)),
                Impairment::Slow { percent } => add("by", (f64::from(*percent) / 100.0).to_string()),
                Impairment::Flip(Flip { target: FlipTarget::Message, .. }) => add("in", "message".to_owned()),
                Impairment::Flip(Flip { target: FlipTarget::State, .. }) => add("in", "state".to_owned()),
                _ => {}
            }
            span_of = lasts(span);
        }
        Fault::Link { from, to, properties, span } => {
            add("from", quoted(names.cluster(*from)));
            add("to", quoted(names.cluster(*to)));
            if let Some(it) = properties {
                add("latency", exact(it.latency));
                add("jitter", exact(it.jitter));
                let bandwidth = match it.bandwidth {
                    0 => "unlimited".to_owned(),
                    bytes => format!("{bytes}B/s"),
                };
                add("bandwidth", bandwidth);
                add("loss", format!("{}%", f64::from(it.loss_ppm) / 1e4));
            }
            span_of = lasts(span);
        }
        Fault::Partition { from, to, both, span } => {
            match (&to[..], planned.reported) {
                ([to], None) => {
                    add("from", quoted(names.cluster(*from)));
                    add("to", quoted(names.cluster(*to)));
                }
                (to, reported) => {
                    match reported {
                        Some(watch) => add("reported", quoted(names.watch(watch))),
                        None => add("isolate", quoted(names.cluster(*from))),
                    }
                    let all = (0..names.clusters.len()).map(|it| ClusterId(it as u16));
                    let others = all.filter(|it| it != from && !to.contains(it));
                    let others: Vec<String> = others.map(|it| quoted(names.cluster(it))).collect();
                    if !others.is_empty() {
                        add("except", format!("[{}]", others.join(", ")));
                    }
                }
            }
            if !both {
                add("oneWay", "true".to_owned());
            }
            span_of = lasts(&Some(*span));
        }
        Fault::Split { cluster, nodes, span } => {
            add("within", quoted(names.cluster(*cluster)));
            let number =
                |it: &ProcessId| names.process(*it).rsplit('-').next().unwrap_or_default().to_owned();
            add("nodes", format!("[{}]", nodes.iter().map(number).collect::<Vec<_>>().join(", ")));
            span_of = lasts(&Some(*span));
        }
    }
    span_of.into_iter().for_each(|(name, value)| add(name, value));
    let trigger = match &planned.trigger {
        Trigger::At(at) => format!("at: {}", exact(at.since(Time::ZERO))),
        Trigger::When { fact, of, cluster, process, occurrence } => {
            let by = process.map(|it| format!(", process: {}", quoted(names.process(it))));
            let among = cluster.map(|it| format!(", cluster: {}", quoted(names.cluster(it))));
            let by = by.or(among).unwrap_or_default();
            let of = of.map(|it| format!(", of: {}", quoted(source(it, names)))).unwrap_or_default();
            format!("when: {{ fact: {}{of}{by}, occurrence: {occurrence} }}", kind_name(*fact))
        }
    };
    format!("- {{ {trigger}, {}: {{ {} }} }}", planned.fault.kind(), fields.join(", "))
}

/// Formats a duration exactly, in the largest unit in which it is a whole number.
fn exact(span: Span) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let unit = units.into_iter().find(|(worth, _)| span.0.is_multiple_of(*worth));
    unit.map_or_else(|| format!("{}ns", span.0), |(worth, unit)| format!("{}{unit}", span.0 / worth))
}

/// Quotes a name that YAML might read as anything other than a string.
fn quoted(name: String) -> String {
    let is_plain = name.starts_with(|it: char| it.is_ascii_alphabetic())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it))
        && !["true", "false", "null", "yes", "no", "on", "off"].contains(&&*name.to_ascii_lowercase());
    if is_plain { name } else { serde_json::Value::from(name).to_string() }
}

/// Describes when a fault is due.
pub fn describe_trigger(trigger: &Trigger, names: &RunNames) -> String {
    match trigger {
        Trigger::At(at) => format!("at {}", instant(at.as_secs_f64())),
        Trigger::When { fact, of, cluster, process, occurrence } => {
            let by = match (process, cluster) {
                (Some(process), _) => format!(" of {}", names.process(*process)),
                (None, Some(cluster)) => format!(" of {}", names.cluster(*cluster)),
                (None, None) => String::new(),
            };
            let source = of.map(|it| format!(" ({})", source(it, names))).unwrap_or_default();
            format!("at {} {}{source}{by}", ordinal(*occurrence), kind_name(*fact))
        }
    }
}

fn source(source: Source, names: &RunNames) -> String {
    match source {
        Source::Watch(watch) => names.watch(watch),
        Source::Probe(probe) => names.probe(probe),
        Source::History(history) => names.history(history),
    }
}

/// Describes a link: its latency, and all other properties that are set.
pub fn describe_link(link: &LinkProperties) -> String {
    let mut parts = vec![link.latency.to_string()];
    if link.jitter.0 > 0 {
        parts.push(format!("+-{}", link.jitter));
    }
    if link.bandwidth > 0 {
        parts.push(bits(link.bandwidth));
    }
    if link.loss_ppm > 0 {
        parts.push(format!("{} % loss", f64::from(link.loss_ppm) / 1e4));
    }
    parts.join(", ")
}

/// Names a link by its ends, and a cluster's internal network by the cluster.
pub fn link(from: ClusterId, to: ClusterId, names: &RunNames) -> String {
    if from == to {
        format!("within {}", names.cluster(from))
    } else {
        format!("{}->{}", names.cluster(from), names.cluster(to))
    }
}

/// Names a link as the subject of a sentence.
fn network(from: ClusterId, to: ClusterId, names: &RunNames) -> String {
    if from == to { format!("the network within {}", names.cluster(from)) } else { link(from, to, names) }
}

/// Formats a bandwidth in bytes per second as bits per second.
fn bits(bytes: u64) -> String {
    let bits = bytes as f64 * 8.0;
    match bits {
        1e9.. => format!("{} Gbit/s", trim(bits / 1e9)),
        1e6.. => format!("{} Mbit/s", trim(bits / 1e6)),
        _ => format!("{} kbit/s", trim(bits / 1e3)),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn ordinal(number: u32) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("the {number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{FactKind, FaultNo, Span};

    #[test]
    fn ordinals_have_the_right_suffix() {
        let said: Vec<_> = [1, 2, 3, 4, 11, 12, 21, 102].map(ordinal).into();
        assert_eq!(
            said,
            ["the 1st", "the 2nd", "the 3rd", "the 4th", "the 11th", "the 12th", "the 21st", "the 102nd"]
        );
    }

    #[test]
    fn links_are_described_by_their_properties() {
        let link = LinkProperties {
            latency: Span::from_millis(8),
            jitter: Span::from_micros(200),
            bandwidth: 12_500_000,
            loss_ppm: 1000,
        };
        assert_eq!(describe_link(&link), "8.00 ms, +-200 us, 100 Mbit/s, 0.1 % loss");
        assert_eq!(
            describe_link(&LinkProperties { bandwidth: 200_000_000, ..link }),
            "8.00 ms, +-200 us, 1.6 Gbit/s, 0.1 % loss"
        );
    }

    #[test]
    fn planned_faults_are_described_in_the_present_and_injected_ones_in_the_past() {
        let (from, to) = (ClusterId(0), ClusterId(1));
        let names = RunNames::default();
        let said = |fault| {
            let (now, then) = (describe_fault(&fault, &names), describe_injected_fault(&fault, &names));
            [now, then].map(|it| it.split_once(' ').expect("a name precedes the verb").1.to_owned())
        };
        let cut = Fault::Partition { from, to: vec![to], both: true, span: Span::from_millis(700) };
        assert_eq!(said(cut), ["is cut for 700 ms", "was cut for 700 ms"]);
        let healed = Fault::Link { from, to, properties: None, span: None };
        assert_eq!(said(healed), ["is restored", "was restored"]);
    }

    #[test]
    fn faults_that_follow_a_system_are_described_and_can_be_repeated() {
        let names = RunNames {
            processes: vec!["paris-0".to_owned()],
            clusters: vec!["paris".to_owned()],
            watches: vec!["leader".to_owned()],
            ..RunNames::default()
        };
        let source = Source::Watch(WatchNo(0));
        let trigger = Trigger::When {
            fact: FactKind::Logged,
            of: Some(source),
            cluster: None,
            process: None,
            occurrence: 2,
        };
        let planned = |fault| PlannedFault {
            no: FaultNo(0),
            trigger: trigger.clone(),
            fault,
            reported: Some(WatchNo(0)),
            cause: None,
        };
        let crash = planned(Fault::crash(ProcessId::SUPERVISOR));
        assert_eq!(describe_trigger(&trigger, &names), "at the 2nd logged (leader)");
        assert_eq!(describe_planned(&crash, &names), "the node that last logged leader is killed");
        let aimed = crash.aimed_at(ProcessId(0), ClusterId(0));
        assert_eq!(describe_aimed(&crash, &aimed, &names), "paris-0 is killed (last to log leader)");
        assert_eq!(
            entry_of(&crash, &names),
            "- { when: { fact: logged, of: leader, occurrence: 2 }, crash: { reported: leader } }"
        );
        let loss = planned(Fault::kill(ClusterId::OUTSIDE, StorageFate::Kept));
        let said = "all of the cluster of the node that last logged leader is killed at once";
        assert_eq!(describe_planned(&loss, &names), said);
        assert!(loss.allows(&loss.aimed_at(ProcessId(0), ClusterId(0))));
        assert!(!loss.allows(&aimed) && !loss.allows(&Fault::kill(ClusterId(0), StorageFate::Lost)));
    }

    #[test]
    fn triggers_are_described() {
        let trigger = Trigger::When {
            fact: FactKind::CheckpointRequested,
            of: None,
            cluster: None,
            process: None,
            occurrence: 3,
        };
        assert_eq!(describe_trigger(&trigger, &RunNames::default()), "at the 3rd checkpointRequested");
    }
}

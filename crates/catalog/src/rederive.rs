//! Checks a record's description of its run against the federation file in the record.
//!
//! A manifest is drafted from the federation ([`crate::manifest::draft`]). Drafting it again from `federation.yaml`,
//! with the recorded seed and backend, must give the same names, plan, links and expected results; otherwise, the
//! manifest or the federation file was changed. Entries that only the run can determine are not derived: the outcomes
//! of the run and of each fault, the measurements, and the times. The checker compares the outcomes of the faults with
//! the supervisor's facts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use faultline_api::resource::{ClusterSpec, FederationSpec};
use faultline_api::{Federation, parse};
use faultline_core::fault::{Change, LinkProperties, Outcome};
use faultline_core::{ClusterId, Fact, PlannedFault, Presence, ProcessId};
use faultline_trace::manifest::{BackendKind, Expected, LinkEntry};
use faultline_trace::{Manifest, Trace};

use crate::manifest::{draft, expected};
use crate::{Hosted, Setup, SetupError, Visitor, with_valid};

/// New properties for a link, identified by its two ends.
type LinkChange = ((ClusterId, ClusterId), LinkProperties);
type Links = BTreeMap<(ClusterId, ClusterId), LinkProperties>;

/// The result of deriving a run's description again.
#[derive(Clone, Debug)]
pub struct Rederived {
    /// The recorded manifest. Every value that follows from the federation is replaced with the derived one.
    pub manifest: Manifest,
    /// Reasons to doubt the record, as sentences without a full stop.
    pub doubts: Vec<String>,
}

/// Derives the manifest of a record again, and compares it with the recorded one. Unless the application is a program,
/// computes the expected results, which
/// may take as long as the computations of the application; modelled time takes no real time.
///
/// Derives nothing if the federation file and the recorded manifest list different clusters, or if `check_memory`
/// rejects the federation: a file that was changed may describe a run that no machine can hold.
pub fn rederive(
    recorded: Manifest,
    trace: &Trace,
    check_memory: impl Fn(&Federation) -> Result<(), SetupError>,
) -> Rederived {
    let doubtful = |recorded, doubt| Rederived { manifest: recorded, doubts: vec![doubt] };
    let unusable =
        |recorded, error: String| doubtful(recorded, format!("federation.yaml cannot be used: {error}"));
    let federation = match parse("federation.yaml", recorded.federation.as_bytes()) {
        Ok(federation) => federation,
        Err(rejected) => {
            let why = match rejected.errors() {
                [only] => format!("{}; {}", only.message, only.help),
                _ => rejected.to_string(),
            };
            return unusable(recorded, why);
        }
    };
    let described = federation.spec.clusters.iter().map(|it| (&it.name, it.nodes));
    if !described.eq(recorded.clusters.iter().map(|it| (&it.name, it.nodes))) {
        return doubtful(recorded, differing(&["clusters"]));
    }
    if let Err(error) = check_memory(&federation) {
        return unusable(recorded, error.to_string());
    }
    let seed = recorded.seed;
    let needs_expected = recorded.expected.is_some()
        || match recorded.outcome {
            // The user may have interrupted the computation of the expected results, which may also panic.
            Some(Outcome::Interrupted | Outcome::Panicked(_)) => false,
            // The results of a run that was cut short are compared only if there are any.
            None => trace.streams.values().flatten().any(|(_, fact)| matches!(fact, Fact::Finished(_))),
            Some(_) => true,
        };
    let draft = Draft { federation: &federation, recorded: &recorded, needs_expected };
    match with_valid(&federation, Some(seed), None, draft) {
        Ok(derived) => compare(recorded, derived, trace, &federation.spec),
        Err(error) => unusable(recorded, error.to_string()),
    }
}

/// Returns the reason to doubt a manifest in which these fields differ from the derived ones.
fn differing(fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|it| format!("`{it}`")).collect();
    format!("manifest.json does not follow from federation.yaml; differing entries: {}", fields.join(", "))
}

/// Everything in a manifest that follows from its federation.
struct Derived {
    manifest: Manifest,
    /// The expected results; `None` if the application has no reference, or if no result of the run is compared with
    /// them.
    expected: Option<Expected>,
    /// Properties of all links, including those of processes outside all clusters.
    links: Links,
    /// Clusters that join while the application runs, with their processes.
    awaited: Vec<(ClusterId, Vec<ProcessId>)>,
}

struct Draft<'a> {
    federation: &'a Federation,
    recorded: &'a Manifest,
    needs_expected: bool,
}

impl Visitor for Draft<'_> {
    type Output = Derived;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Derived {
        let Manifest { federation: text, backend, started_unix_ms, .. } = self.recorded;
        let started = UNIX_EPOCH + Duration::from_millis(*started_unix_ms);
        let clusters = (0..).map(ClusterId).zip(setup.membership.clusters.iter());
        Derived {
            manifest: draft(self.federation, text, &setup, *backend, started),
            // A record is only data, so reading it starts no program.
            expected: match self.federation.spec.application.program() {
                Some(_) => self.recorded.expected.clone(),
                None => self.needs_expected.then(|| expected(&setup)).flatten(),
            },
            awaited: clusters
                .filter(|(_, cluster)| cluster.presence == Presence::Awaited)
                .map(|(id, cluster)| (id, cluster.processes.to_vec()))
                .collect(),
            links: setup.links,
        }
    }
}

fn compare(recorded: Manifest, derived: Derived, trace: &Trace, spec: &FederationSpec) -> Rederived {
    let Derived { manifest: mut derived, expected, links, awaited } = derived;
    let has_ended = recorded.outcome.is_some();
    let (added, relinked) = changes(trace);
    let drafted = derived.plan.len();
    derived.plan.extend(added);
    let is_expected = recorded.expected == expected || !has_ended && recorded.expected.is_none();
    // If they differ, it is unknown which of the two files was changed, so the results cannot be judged.
    derived.expected = expected.filter(|_| is_expected);
    let mut fields = Vec::new();
    let mut differ = |field: &'static str, is_equal: bool| {
        if !is_equal {
            fields.push(field);
        }
    };
    differ("name", recorded.name == derived.name);
    differ("seed", recorded.backend != BackendKind::Kubernetes || recorded.seed == spec.seed());
    differ("protocol", recorded.protocol == derived.protocol);
    differ("promises", recorded.promises == derived.promises);
    differ("clusters", recorded.clusters == derived.clusters);
    // Records of earlier versions lack this field.
    differ("leaving", recorded.leaving.is_empty() || recorded.leaving == derived.leaving);
    differ("processes", recorded.processes == derived.processes);
    differ("bounds", recorded.bounds == derived.bounds);
    differ("copies", recorded.copies == derived.copies);
    differ("volatileStorage", recorded.volatile_storage == derived.volatile_storage);
    // Records of earlier versions lack this field.
    differ("longestTask", recorded.longest_task.is_none() || recorded.longest_task == derived.longest_task);
    differ("expectations", recorded.expectations == derived.expectations);
    differ("system", recorded.system == derived.system);
    differ("spares", recorded.spares == derived.spares);
    differ("atOnceWithin", recorded.at_once_within == derived.at_once_within);
    // Faults that were added during the run become part of the plan only when the run ends.
    differ("plan", recorded.plan == derived.plan || !has_ended && recorded.plan == derived.plan[..drafted]);
    let are_links_asked = links_agree(&recorded.links, &links, &relinked, has_ended);
    differ("links", are_links_asked);
    // The expected results are computed while the application runs, or afterwards.
    differ("expected", is_expected);
    let mut doubts = Vec::new();
    if !fields.is_empty() {
        doubts.push(differing(&fields));
    }
    doubts.extend(unplanned_move(trace, spec));
    let has_joined = |cluster| trace.supervisor().iter().any(|(_, fact)| *fact == Fact::Joined(cluster));
    let acts = |process| {
        let mut facts = trace.lives(process).flat_map(|(_, stream)| stream);
        facts.any(|(_, fact)| matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Ran { .. }))
    };
    for (cluster, members) in awaited {
        if members.into_iter().any(acts) && !has_joined(cluster) {
            let name = &derived.clusters[cluster.index()].name;
            doubts.push(format!(
                "processes of {name} acted, but the supervisor's facts do not state that {name} joined"
            ));
        }
    }
    let manifest = Manifest {
        name: derived.name,
        protocol: derived.protocol,
        promises: derived.promises,
        clusters: derived.clusters,
        leaving: derived.leaving,
        processes: derived.processes,
        bounds: derived.bounds,
        copies: derived.copies,
        volatile_storage: derived.volatile_storage,
        longest_task: derived.longest_task,
        expectations: derived.expectations,
        system: derived.system,
        at_once_within: derived.at_once_within,
        plan: derived.plan,
        // A search states that none of its faults needs to occur.
        drawn: BTreeSet::from_iter(recorded.drawn.iter().chain(&derived.drawn).copied())
            .into_iter()
            .collect(),
        links: if are_links_asked { recorded.links.clone() } else { derived.links },
        expected: derived.expected,
        ..recorded
    };
    Rederived { manifest, doubts }
}

/// Returns the reason to doubt the first fact that a cluster joined or left although its federation does not let it.
fn unplanned_move(trace: &Trace, spec: &FederationSpec) -> Option<String> {
    let doubt = |cluster: &ClusterSpec, what, field| {
        format!("the supervisor's facts state that {} {what}, but it has no `{field}`", cluster.name)
    };
    let of = |cluster: &ClusterId| spec.clusters.get(cluster.index());
    trace.supervisor().iter().find_map(|(_, fact)| match fact {
        Fact::Joined(it) => {
            of(it).filter(|it| it.joins_after.is_none()).map(|it| doubt(it, "joined", "joinsAfter"))
        }
        Fact::Leaving(it) | Fact::Left(it) => {
            of(it).filter(|it| it.leaves_after.is_none()).map(|it| doubt(it, "left", "leavesAfter"))
        }
        _ => None,
    })
}

/// Returns the faults that the user added during the run, and the links that the user changed, each in order.
fn changes(trace: &Trace) -> (Vec<PlannedFault>, Vec<LinkChange>) {
    let (mut added, mut relinked) = (Vec::new(), Vec::new());
    for (_, fact) in trace.supervisor() {
        let Fact::Changed(change) = fact else { continue };
        match &**change {
            Change::Fault(planned) => added.push(planned.clone()),
            Change::Link { from, to, properties } => relinked.push(((*from, *to), *properties)),
            Change::Pause(_) => {}
        }
    }
    (added, relinked)
}

/// Returns whether the recorded requests for each link match the federation and then the user's changes, in order. A
/// change made before the application began replaces the earlier request.
fn links_agree(recorded: &[LinkEntry], drafted: &Links, relinked: &[LinkChange], has_ended: bool) -> bool {
    let mut found: BTreeMap<_, Vec<LinkProperties>> = BTreeMap::new();
    for entry in recorded {
        found.entry((entry.from, entry.to)).or_default().push(entry.requested);
    }
    let is_inside =
        |&(from, to): &(ClusterId, ClusterId)| ClusterId::OUTSIDE != from && ClusterId::OUTSIDE != to;
    let is_listed = drafted.keys().filter(|pair| is_inside(pair)).all(|pair| found.contains_key(pair));
    is_listed
        && found.into_iter().all(|(pair, found)| {
            let Some(first) = drafted.get(&pair) else { return false };
            let later = relinked.iter().filter(|(it, _)| *it == pair).map(|(_, properties)| properties);
            let asked: Vec<_> = [first].into_iter().chain(later).collect();
            let mut rest = asked.iter();
            let are_in_order = found.iter().all(|it| rest.any(|asked| *asked == it));
            are_in_order && (!has_ended || relinked.is_empty() || found.last() == asked.last().copied())
        })
}

//! `faultline replay`: feeds the recorded inputs to the processes of a run again, and compares what they do.
//!
//! There is no network, storage or clock here: a process sees only its inputs, so that equal facts and
//! actions show that it is the recorded protocol code, whichever driver hosted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_catalog::{Hosted, Setup, Visitor, with_setup};
use faultline_core::process::{ActionOf, In};
use faultline_core::{Action, Birth, Event, Fact, FactKinds, Job, JobNo, Life, Process, ProcessId, Time};
use faultline_report::Cast;
use faultline_report::explain::count;
use faultline_trace::describe::describe;
use faultline_trace::inputs::{Deed, Entry, EntryOf, InputsFile};
use faultline_trace::{Bundle, BundleError, Cut, Manifest, Trace};
use miette::miette;

use crate::arguments::{Format, ReplayArguments};
use crate::trouble::{Exit, Trouble};
use crate::{files, output};

/// `faultline replay`
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<Exit, Trouble> {
    const HELP: &str = "record a run with `faultline run --record`";
    let bundle = Bundle::open(&arguments.dir);
    let wrong = |error: BundleError| Trouble::path("use", &arguments.dir, error, HELP);
    let manifest = bundle.read_manifest().map_err(wrong)?;
    let trace = bundle.read_trace().map_err(wrong)?;
    if !bundle.records_inputs() {
        let why = "it does not contain the inputs of its processes";
        return Err(Trouble::path("replay", &arguments.dir, why, HELP));
    }
    let nodes = nodes(arguments, &manifest)?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())
        .map_err(|rejected| Trouble::input(*rejected))?;
    let again = Again { bundle: &bundle, trace: &trace, manifest: &manifest, nodes };
    let lives = with_setup(&federation, Some(manifest.seed), again).map_err(files::unfit)?.map_err(wrong)?;
    let exit = if lives.iter().any(|it| it.difference.is_some()) {
        Exit::Fail
    } else if lives.iter().all(|it| it.inputs == 0) {
        Exit::Unknown
    } else {
        Exit::Pass
    };
    output::print(&match arguments.format {
        Format::Json => output::json(&lives),
        Format::Text => lives.iter().map(Relived::text).collect(),
    })?;
    Ok(exit)
}

/// Returns the processes to replay.
fn nodes(arguments: &ReplayArguments, manifest: &Manifest) -> Result<Vec<ProcessId>, Trouble> {
    let names = || manifest.processes.iter().map(|it| it.name.as_str());
    match &arguments.node {
        None => Ok((0..manifest.processes.len() as u32).map(ProcessId).collect()),
        Some(node) => match names().position(|it| it == node) {
            Some(index) => Ok(vec![ProcessId(index as u32)]),
            None => Err(Trouble::input(miette!(
                help = format!("use one of: {}", names().collect::<Vec<_>>().join(", ")),
                "unknown node `{node}`"
            ))),
        },
    }
}

/// One replayed life.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Relived {
    node: String,
    life: u32,
    inputs: usize,
    actions: usize,
    facts: usize,
    /// The first difference.
    difference: Option<String>,
    /// Why some of it could not be compared.
    remark: Option<String>,
}

impl Relived {
    fn text(&self) -> String {
        let Relived { node, life, inputs, actions, facts, .. } = self;
        let verdict = if self.difference.is_some() { "DIFFERS" } else { "equal  " };
        let mut text = format!(
            "{verdict} {node}, life {life}: {}, {}, {}\n",
            count(*inputs as u64, "input"),
            count(*actions as u64, "action"),
            count(*facts as u64, "fact"),
        );
        for it in self.difference.iter().chain(&self.remark) {
            text.push_str(&format!("        {it}\n"));
        }
        text
    }
}

/// A visitor that replays.
struct Again<'a> {
    bundle: &'a Bundle,
    trace: &'a Trace,
    manifest: &'a Manifest,
    nodes: Vec<ProcessId>,
}

impl Visitor for Again<'_> {
    type Output = Result<Vec<Relived>, BundleError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        let cast = Cast::new(self.manifest);
        // A life that was killed may have received an input that had no recorded effect.
        let ends = self.trace.supervisor().iter().filter_map(|(_, fact)| match fact {
            Fact::Failed { process, life, .. } | Fact::Detected { process, life } => Some((*process, *life)),
            _ => None,
        });
        let killed: BTreeSet<(ProcessId, Life)> = ends.collect();
        let mut all = Vec::new();
        for &process in &self.nodes {
            for (life, facts) in self.trace.lives(process) {
                let relived = match self.bundle.read_inputs::<N>(process, life)? {
                    Some(file) => {
                        let was_killed = killed.contains(&(process, life));
                        relive(file, setup.process.clone(), facts, was_killed, &cast)
                    }
                    None => Relived {
                        node: cast.process(process),
                        life: life.0,
                        inputs: 0,
                        actions: 0,
                        facts: 0,
                        difference: None,
                        remark: Some("the process was killed before its first input was recorded".to_owned()),
                    },
                };
                all.push(relived);
            }
        }
        Ok(all)
    }
}

/// Feeds a new process the inputs of the recorded one.
fn relive<P: Process>(
    file: InputsFile<P>,
    config: Arc<P::Config>,
    recorded: &[(Time, Fact)],
    was_killed: bool,
    cast: &Cast,
) -> Relived {
    let InputsFile { process: me, life, entries, cut } = file;
    let mut relived = Relived {
        node: cast.process(me),
        life: life.0,
        inputs: 0,
        actions: 0,
        facts: 0,
        difference: None,
        remark: None,
    };
    let mut process: Option<P> = None;
    let mut jobs: BTreeMap<JobNo, P::Job> = BTreeMap::new();
    let mut actions: Vec<ActionOf<P>> = Vec::new();
    let mut facts: Vec<(Time, Fact)> = Vec::new();
    for (at, entry) in entries {
        let number = relived.inputs;
        if let Entry::Did(deeds) = &entry {
            relived.difference =
                difference::<P>(deeds, &actions).map(|it| format!("after input {number}, at {at}: {it}"));
            relived.actions += actions.len();
            actions.clear();
            if relived.difference.is_some() {
                return relived;
            }
            continue;
        }
        relived.inputs += 1;
        let what = kind(&entry);
        match (&mut process, entry) {
            (None, Entry::Birth { boot, membership, record, seed }) => {
                let (config, membership) = (config.clone(), Arc::new(membership));
                let facts = FactKinds::ALL;
                let birth = Birth { me, life, boot, membership, config, record, seed, facts };
                process = Some(P::start(birth, at, &mut actions));
            }
            (Some(process), entry) => match event::<P>(entry, &mut jobs) {
                Some(event) => process.handle(event, at, &mut actions),
                None => {
                    relived.difference = Some(format!(
                        "input {number} ({what}) is the result of a job that was never started"
                    ));
                    return relived;
                }
            },
            (None, _) => {
                relived.difference =
                    Some(format!("the record starts with {what} instead of the start of the process"));
                return relived;
            }
        }
        for action in &actions {
            match action {
                Action::Compute(no, job) => drop(jobs.insert(*no, job.clone())),
                Action::Fact(fact) => facts.push((at, fact.clone())),
                _ => {}
            }
        }
    }
    relived.facts = facts.len().min(recorded.len());
    let first = facts.iter().zip(recorded).position(|(replayed, recorded)| replayed != recorded);
    if let Some(number) = first {
        let ((at, fact), (then, recorded)) = (&facts[number], &recorded[number]);
        relived.difference = Some(format!(
            "fact {number}: recorded `{}` at {then}, replayed `{}` at {at}",
            describe(recorded),
            describe(fact)
        ));
    } else if facts.len() != recorded.len() {
        let text = format!("{} recorded, {} replayed", count(recorded.len() as u64, "fact"), facts.len());
        match was_killed {
            true => relived.remark = Some(format!("{text}: the process was killed in between")),
            false => relived.difference = Some(text),
        }
    }
    match cut {
        None => {}
        Some(Cut::Torn) if was_killed => {}
        Some(Cut::Torn) => relived.remark = Some("the record of its inputs is truncated".to_owned()),
        Some(Cut::Damaged) => relived.difference = Some("the record of its inputs is damaged".to_owned()),
    }
    relived
}

/// Returns the event of an entry; `None` if it is the result of a job that does not exist.
fn event<P: Process>(entry: EntryOf<P>, jobs: &mut BTreeMap<JobNo, P::Job>) -> Option<In<P>> {
    Some(match entry {
        Entry::Packet { from, packet } => Event::Packet { from, packet },
        Entry::Persisted(name) => Event::Persisted(name),
        Entry::PersistFailed(name) => Event::PersistFailed(name),
        Entry::Read { name, image } => Event::Read { name, image },
        Entry::Listed(images) => Event::Listed(images),
        Entry::Recorded { version } => Event::Recorded { version },
        Entry::Membership(membership) => Event::Membership(membership),
        Entry::Computed(no) => Event::Computed(no, jobs.remove(&no)?.run()),
        Entry::Timeout => Event::Timeout,
        Entry::Birth { .. } | Entry::Did(_) => return None,
    })
}

/// Returns the first action that differs from the recorded ones.
fn difference<P: Process>(recorded: &[Deed], actions: &[ActionOf<P>]) -> Option<String> {
    let replayed: Vec<Deed> = actions.iter().map(Deed::of::<P>).collect();
    let first = (0..recorded.len().max(replayed.len())).find(|&it| recorded.get(it) != replayed.get(it))?;
    let says = |deeds: &[Deed]| deeds.get(first).map_or("nothing more".to_owned(), |it| format!("{it:?}"));
    Some(format!("action {first}: recorded {}, replayed {}", says(recorded), says(&replayed)))
}

fn kind<S, M, H, V>(entry: &Entry<S, M, H, V>) -> &'static str {
    match entry {
        Entry::Birth { .. } => "a start",
        Entry::Packet { .. } => "a packet",
        Entry::Persisted(_) | Entry::PersistFailed(_) => "the completion of a write",
        Entry::Read { .. } | Entry::Listed(_) => "a response of the storage",
        Entry::Recorded { .. } => "a durable record",
        Entry::Membership(_) => "a membership",
        Entry::Computed(_) => "the result of a job",
        Entry::Timeout => "a timeout",
        Entry::Did(_) => "actions",
    }
}

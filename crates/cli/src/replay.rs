//! `faultline replay`: feeds the recorded inputs to the processes of a run again, and compares their behaviour with the
//! record.
//!
//! A replayed process has no network, storage or clock. It sees only its inputs, so identical facts and actions show
//! that the recorded process ran the same protocol code, whichever driver hosted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_api::Federation;
use faultline_catalog::{Hosted, Setup, Visitor, with_setup};
use faultline_console::recording::{MORE_MEMORY, located, unusable};
use faultline_core::process::{ActionOf, In};
use faultline_core::{Action, Event, Fact, FactKinds, Job, JobNo, Life, LifeStart, Process, ProcessId, Time};
use faultline_report::DisplayNames;
use faultline_report::explain::count;
use faultline_session::{BYTES_PER_FACT, most_facts};
use faultline_trace::describe::describe;
use faultline_trace::inputs::{InputEntry, InputEntryOf, InputsFile, RecordedAction};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, BundleError, Cut, Manifest, Trace};
use miette::miette;

use crate::arguments::{Format, ReplayArguments};
use crate::command_error::{CommandError, Exit};
use crate::recording::permit_program;
use crate::{files, output};

/// Executes `faultline replay`.
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<Exit, CommandError> {
    const HELP: &str = "record a run with `faultline run --record`";
    let dir = located(arguments.dir.as_deref())?;
    let bundle = Bundle::open(&dir);
    let wrong = |error: BundleError| unusable(&dir, error, HELP);
    let manifest = bundle.read_manifest().map_err(wrong)?;
    let trace = bundle.read_trace_of(most_facts()).map_err(wrong)?;
    if !bundle.records_inputs() {
        let why = "it does not contain the inputs of its processes";
        return Err(CommandError::path("replay", &dir, why, HELP));
    }
    permit_program(&manifest, arguments.run_programs)?;
    let nodes = nodes(arguments, &manifest)?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())
        .map_err(|rejected| CommandError::input(*rejected))?;
    if arguments.lines {
        show_lines(&federation)?;
    }
    let again = ReplayVisitor { bundle: &bundle, trace: &trace, manifest: &manifest, nodes };
    let lives = with_setup(&federation, Some(manifest.seed), again).map_err(files::unfit)?;
    let lives = lives.map_err(|error| match error {
        BundleError::TooLarge { .. } => CommandError::path("use", &dir, error, MORE_MEMORY),
        error => wrong(error),
    })?;
    let exit = if lives.iter().any(|it| it.difference.is_some()) {
        Exit::Fail
    } else if lives.iter().all(|it| it.inputs == 0) {
        Exit::Unknown
    } else {
        Exit::Pass
    };
    output::print(&match arguments.format {
        Format::Json => output::json(&lives),
        Format::Text => output::filled(lives.iter().map(ReplayedLife::text).collect()),
    })?;
    Ok(exit)
}

/// Prints the lines that the replayed processes exchange with their programs. Each life has executions of its own, so that
/// its lines can be fed to a program in a debugger.
fn show_lines(federation: &Federation) -> Result<(), CommandError> {
    let spec = &federation.spec;
    if spec.protocol.program().is_none() && spec.application.program().is_none() {
        return Err(CommandError::input(miette!(
            help = "omit `--lines`",
            "neither the protocol nor the application of this run is a program, so there are no lines"
        )));
    }
    faultline_catalog::never_reuse();
    // If the output is closed, printing the result reports it.
    faultline_catalog::show_lines(Some(|_, program, line| {
        drop(output::print(&format!("{program} {line}\n")))
    }));
    Ok(())
}

/// Returns the processes to replay.
fn nodes(arguments: &ReplayArguments, manifest: &Manifest) -> Result<Vec<ProcessId>, CommandError> {
    let names = || manifest.processes.iter().map(|it| it.name.as_str());
    match &arguments.node {
        None => Ok((0..manifest.processes.len() as u32).map(ProcessId).collect()),
        Some(node) => match names().position(|it| it == node) {
            Some(index) => Ok(vec![ProcessId(index as u32)]),
            None => Err(CommandError::input(miette!(
                help = format!("use one of: {}", names().collect::<Vec<_>>().join(", ")),
                "unknown node `{node}`"
            ))),
        },
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayedLife {
    node: String,
    life: u32,
    inputs: usize,
    actions: usize,
    facts: usize,
    /// The first difference from the record, if there is one.
    difference: Option<String>,
    /// The reason why a part of this life could not be compared.
    remark: Option<String>,
}

impl ReplayedLife {
    fn text(&self) -> String {
        let ReplayedLife { node, life, inputs, actions, facts, .. } = self;
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

/// Replays the selected processes of a recorded run.
struct ReplayVisitor<'a> {
    bundle: &'a Bundle,
    trace: &'a Trace,
    manifest: &'a Manifest,
    nodes: Vec<ProcessId>,
}

impl Visitor for ReplayVisitor<'_> {
    type Output = Result<Vec<ReplayedLife>, BundleError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        let names = DisplayNames::new(self.manifest);
        // The last inputs of a life that was killed may have had effects that were not recorded.
        let ends = self.trace.supervisor().iter().filter_map(|(_, fact)| match fact {
            Fact::Failed { process, life, .. } | Fact::Detected { process, life } => Some((*process, *life)),
            _ => None,
        });
        let killed: BTreeSet<(ProcessId, Life)> = ends.collect();
        let process_config = match self.manifest.backend {
            BackendKind::Simulate => setup.process_in_virtual_time(),
            _ => setup.process,
        };
        // Decoded inputs need a multiple of the memory of their file.
        let most = most_facts().saturating_mul(BYTES_PER_FACT) / 4;
        let mut all = Vec::new();
        for &process in &self.nodes {
            for (life, facts) in self.trace.lives(process) {
                let replayed = match self.bundle.read_inputs::<N>(process, life, most)? {
                    Some(file) => {
                        let was_killed = killed.contains(&(process, life));
                        replay_life(file, process_config.clone(), facts, was_killed, self.manifest, &names)
                    }
                    None => ReplayedLife {
                        node: names.process(process),
                        life: life.0,
                        inputs: 0,
                        actions: 0,
                        facts: 0,
                        difference: None,
                        remark: Some("the process was killed before its first input was recorded".to_owned()),
                    },
                };
                all.push(replayed);
            }
        }
        Ok(all)
    }
}

/// Feeds a new process the inputs of the recorded one.
fn replay_life<P: Process>(
    file: InputsFile<P>,
    config: Arc<P::Config>,
    recorded: &[(Time, Fact)],
    was_killed: bool,
    manifest: &Manifest,
    names: &DisplayNames,
) -> ReplayedLife {
    let InputsFile { process: me, life, entries, cut } = file;
    let mut replayed = ReplayedLife {
        node: names.process(me),
        life: life.0,
        inputs: 0,
        actions: 0,
        facts: 0,
        difference: None,
        remark: None,
    };
    let facts = match replay_entries::<P>(me, life, entries, config, &mut replayed) {
        Ok(facts) => facts,
        Err(difference) => {
            replayed.difference = Some(difference);
            return replayed;
        }
    };
    replayed.facts = facts.len().min(recorded.len());
    if let Some(number) = first_difference(&facts, recorded, me, manifest) {
        let (ReplayedFact { at, fact, .. }, (then, recorded)) = (&facts[number], &recorded[number]);
        let names = manifest.names();
        replayed.difference = Some(format!(
            "fact {number}: recorded `{:#}` at {then}, replayed `{:#}` at {at}",
            describe(me, recorded, &names),
            describe(me, fact, &names)
        ));
    } else if facts.len() != recorded.len() {
        let text = format!("{} recorded, {} replayed", count(recorded.len() as u64, "fact"), facts.len());
        match was_killed {
            true => {
                replayed.remark =
                    Some(format!("{text}: the process was killed before it had recorded everything"))
            }
            false => replayed.difference = Some(text),
        }
    }
    match cut {
        None => {}
        Some(Cut::Torn) if was_killed => {}
        Some(Cut::Torn) => replayed.remark = Some("the record of its inputs is truncated".to_owned()),
        Some(Cut::Damaged) => replayed.difference = Some("the record of its inputs is damaged".to_owned()),
    }
    replayed
}

/// Feeds the recorded inputs to a process, and compares its actions with the recorded ones. Returns its facts, or the
/// first difference.
fn replay_entries<P: Process>(
    me: ProcessId,
    life: Life,
    entries: Vec<(Time, InputEntryOf<P>)>,
    config: Arc<P::Config>,
    replayed: &mut ReplayedLife,
) -> Result<Vec<ReplayedFact>, String> {
    let mut process: Option<P> = None;
    let mut jobs: BTreeMap<JobNo, P::Job> = BTreeMap::new();
    let mut actions: Vec<ActionOf<P>> = Vec::new();
    let mut facts: Vec<ReplayedFact> = Vec::new();
    for (at, entry) in entries {
        let number = replayed.inputs;
        if let InputEntry::Did(recorded_actions) = &entry {
            replayed.actions += actions.len();
            if let Some(it) = difference::<P>(recorded_actions, &actions) {
                return Err(format!("after input {number}, at {at}: {it}"));
            }
            actions.clear();
            continue;
        }
        replayed.inputs += 1;
        let what = kind(&entry);
        match (&mut process, entry) {
            (None, InputEntry::LifeStart { boot, membership, record, seed }) => {
                let (config, membership) = (config.clone(), Arc::new(membership));
                let facts = FactKinds::ALL;
                let start = LifeStart { me, life, boot, membership, config, record, seed, facts };
                process = Some(P::start(start, at, &mut actions));
            }
            (Some(process), entry) => {
                let inconsistent =
                    || format!("input {number} ({what}) is inconsistent with the preceding inputs");
                let event = event::<P>(entry, &mut jobs).ok_or_else(inconsistent)?;
                process.handle(event, at, &mut actions);
            }
            (None, _) => {
                return Err(format!("the record starts with {what} instead of the start of the process"));
            }
        }
        for action in &actions {
            match action {
                Action::Compute(no, job) => drop(jobs.insert(*no, job.clone())),
                Action::Fact(fact) => facts.push(ReplayedFact { input: number, at, fact: fact.clone() }),
                _ => {}
            }
        }
    }
    Ok(facts)
}

/// A fact that a replayed process reported.
struct ReplayedFact {
    /// The number of the last input before the fact.
    input: usize,
    /// The time of that input.
    at: Time,
    fact: Fact,
}

/// Returns the number of the first fact that differs from the recorded one. In virtual time, a process is halted when
/// it reports a fact that triggers a fault. Its remaining actions happen after the supervisor has released it.
fn first_difference(
    facts: &[ReplayedFact],
    recorded: &[(Time, Fact)],
    process: ProcessId,
    manifest: &Manifest,
) -> Option<usize> {
    let cluster = manifest.processes[process.index()].cluster;
    let halts = |fact: &Fact| manifest.plan.iter().any(|it| it.trigger.matches(fact, process, cluster));
    let mut halted_in = None;
    facts.iter().zip(recorded).position(|(ReplayedFact { input, at, fact }, (then, recorded))| {
        let is_on_time = at == then || at < then && halted_in == Some(input);
        if halts(fact) {
            halted_in = Some(input);
        }
        !is_on_time || fact != recorded
    })
}

/// Returns the event of an entry; `None` if the entry is not an event, or is the result of a job that does not exist.
fn event<P: Process>(entry: InputEntryOf<P>, jobs: &mut BTreeMap<JobNo, P::Job>) -> Option<In<P>> {
    Some(match entry {
        InputEntry::Packet { from, packet } => Event::Packet { from, packet },
        InputEntry::Persisted(name) => Event::Persisted(name),
        InputEntry::PersistFailed(name) => Event::PersistFailed(name),
        InputEntry::Read { name, image } => Event::Read { name, image },
        InputEntry::Listed(images) => Event::Listed(images),
        InputEntry::Recorded { version } => Event::Recorded { version },
        InputEntry::Membership(membership) => Event::Membership(membership),
        InputEntry::Computed(no) => Event::Computed(no, jobs.remove(&no)?.run()),
        InputEntry::Timeout => Event::Timeout,
        InputEntry::Flip(flip) => Event::Flip(flip),
        InputEntry::LifeStart { .. } | InputEntry::Did(_) => return None,
    })
}

/// Returns a description of the first action that differs from the recorded ones; `None` if all are equal.
fn difference<P: Process>(recorded: &[RecordedAction], actions: &[ActionOf<P>]) -> Option<String> {
    let replayed: Vec<RecordedAction> = actions.iter().map(RecordedAction::of::<P>).collect();
    let first = (0..recorded.len().max(replayed.len())).find(|&it| recorded.get(it) != replayed.get(it))?;
    let says = |recorded_actions: &[RecordedAction]| {
        recorded_actions.get(first).map_or("nothing more".to_owned(), |it| format!("{it:?}"))
    };
    Some(format!("action {first}: recorded {}, replayed {}", says(recorded), says(&replayed)))
}

fn kind<S, M, H, V>(entry: &InputEntry<S, M, H, V>) -> &'static str {
    match entry {
        InputEntry::LifeStart { .. } => "a start",
        InputEntry::Packet { .. } => "a packet",
        InputEntry::Persisted(_) | InputEntry::PersistFailed(_) => "the completion of a write",
        InputEntry::Read { .. } | InputEntry::Listed(_) => "a response from the storage",
        InputEntry::Recorded { .. } => "a durable record",
        InputEntry::Membership(_) => "a membership",
        InputEntry::Computed(_) => "the result of a job",
        InputEntry::Timeout => "a timeout",
        InputEntry::Flip(_) => "the order to flip a bit",
        InputEntry::Did(_) => "actions",
    }
}

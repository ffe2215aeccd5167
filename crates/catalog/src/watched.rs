//! Processes of a system. Each belongs to a node's command, which knows nothing of Faultline: it exchanges no messages
//! and stores nothing. Its driver runs the command and records what it observes.

use faultline_api::resource::{FederationSpec, OnExit, System};
use faultline_api::{Federation, Names};
use faultline_core::application::Job;
use faultline_core::process::{In, Out};
use faultline_core::{
    Action, CheckNo, Digest, FaultModel, Gauges, LifeStart, Membership, Process, ProcessId, Promises, Scope,
    Span, Time, Trigger,
};
use faultline_protocols::none::NoStamp;
use faultline_supervisor::{AfterExit, SystemEnd, SystemRun};

use crate::{Hosted, Setup, SetupError, Visitor};

/// A process of a system.
#[derive(Clone, Copy, Debug)]
pub struct Watched;

/// The computation of a process that has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoJob;

impl Job for NoJob {
    type Output = ();

    fn cost(&self) -> Span {
        Span::ZERO
    }

    fn run(self) {}
}

impl Process for Watched {
    type Stamp = NoStamp;
    type Control = ();
    type Head = ();
    type Saved = ();
    type Job = NoJob;
    type Config = ();
    const FIFO: bool = false;

    /// The process stores nothing itself, so its storage is complete from the start.
    fn start(_: LifeStart<()>, _: Time, out: &mut Out<Self>) -> Watched {
        out.extend([Action::Started, Action::Held]);
        Watched
    }

    fn handle(&mut self, _: In<Self>, _: Time, _: &mut Out<Self>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl Hosted for Watched {
    /// The programs recover by themselves, each one alone, from what is on the disk of its node.
    fn promises((): &()) -> Promises {
        Promises::of_scope(Scope::Process).surviving(FaultModel::Stable)
    }

    fn reference((): &(), _: &Membership, _: &dyn Fn(ProcessId) -> u64) -> Option<Vec<(ProcessId, Digest)>> {
        None
    }
}

/// Works like [`with_valid`](crate::with_valid), but for a system.
pub(crate) fn with_valid_system<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let system = federation.spec.application.system().ok_or(SetupError::Messages)?;
    let seed = seed.unwrap_or_else(|| federation.spec.seed());
    let mut setup = Setup::<Watched>::new(federation, seed, &[], ());
    setup.supervisor.system = Some(run(&federation.spec, system, &setup));
    // A system reports no progress.
    setup.supervisor.least_work_left_percent = 0;
    Ok(visitor.visit(setup))
}

fn run(spec: &FederationSpec, system: &System, setup: &Setup<Watched>) -> SystemRun {
    let stated = system.ends.as_ref();
    let exit = stated.and_then(|it| setup.names.cluster_id(it.exit.as_ref()?));
    let after = stated.and_then(|it| Some(it.after?.0));
    let ends = match exit {
        Some(cluster) => SystemEnd::Exit(cluster),
        None => SystemEnd::After(after.unwrap_or_else(|| {
            let times = setup.supervisor.plan.iter().filter_map(|it| match it.trigger {
                Trigger::At(at) => Some(at.since(Time::ZERO)),
                Trigger::When { .. } => None,
            });
            times.max().unwrap_or(Span::ZERO) + System::AFTER_LAST_FAULT
        })),
    };
    let set_up_by = system.setup.as_ref().and_then(|it| setup.names.process_id(&it.by));
    let checks = (0..).map(CheckNo).zip(spec.checks());
    let checks = checks.filter_map(|(no, it)| Some((no, setup.names.process_id(it.by.as_ref()?)?)));
    // The final phase of clients comes before everything that may look at its effects.
    let checks = final_checks(spec, system, &setup.names).into_iter().chain(checks).collect();
    let stated: Vec<_> = spec.clusters.iter().map(|it| system.on(&it.name)).collect();
    let after_exit = stated.iter().map(|it| match it.on_exit {
        OnExit::Fail | OnExit::Daemon => AfterExit::End,
        OnExit::Stay => AfterExit::Stay,
        OnExit::Restart => AfterExit::Restart,
        OnExit::RestartCluster => AfterExit::RestartCluster,
    });
    let after_exit = after_exit.collect();
    let starts_after =
        stated.iter().map(|it| it.after.iter().filter_map(|name| setup.names.cluster_id(name)).collect());
    let starts_after = starts_after.collect();
    SystemRun { set_up_by, ends, checks, after_exit, starts_after }
}

/// Returns the checks that are the final phases of clients, with the processes whose nodes run them.
pub fn final_checks(spec: &FederationSpec, system: &System, names: &Names) -> Vec<(CheckNo, ProcessId)> {
    let first = spec.checks().count() as u16;
    let processes = crate::manifest::system(system, names, 0).final_by();
    (first..).map(CheckNo).zip(processes).collect()
}

/// Returns an error if the federation is a system, which cannot run in virtual time.
///
/// # Errors
///
/// Fails for a system.
pub fn check_virtual_time(federation: &Federation) -> Result<(), SetupError> {
    match federation.spec.application.system() {
        Some(_) => Err(SetupError::System),
        None => Ok(()),
    }
}

//! Checks task-based programs together with their protocols and clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use faultline_core::{ClusterId, ProcessId, Role, Span, Target};

use super::Check;
use crate::flow::flow;
use crate::names::Names;
use crate::plan::faults_of;
use crate::quantity::Duration;
use crate::resource::{ApplicationSpec, Family, FaultSpec, MAX_QAP_DATA, Qap};

/// Permitted speeds in percent, from a hundredth of the default to a hundred times the default.
const SPEEDS: RangeInclusive<u32> = 1..=10_000;
/// Permitted numbers of tasks that a node runs at the same time.
const CORES: RangeInclusive<u32> = 1..=256;
/// Permitted numbers of iterations that a process works on at the same time.
const WINDOWS: RangeInclusive<u32> = 1..=1024;
/// Permitted lengths of the path of a file, in characters.
const PATHS: RangeInclusive<usize> = 1..=4096;

/// Counts a process that never returns. `stay` holds the number of processes that stay, by cluster.
fn leave(
    stay: &mut BTreeMap<ClusterId, u32>,
    gone: &mut BTreeSet<ProcessId>,
    cluster: ClusterId,
    process: ProcessId,
) {
    if let Some(left) = stay.get_mut(&cluster).filter(|_| gone.insert(process)) {
        *left -= 1;
        if *left == 0 {
            stay.remove(&cluster);
        }
    }
}

impl Check<'_> {
    /// Checks that the protocol supports this family of applications.
    pub(super) fn family(&mut self) {
        let (protocol, application) = (&self.spec.protocol, &self.spec.application);
        let path = format!("spec.protocol.{}", protocol.field());
        let (protocol, application) = (protocol.name(), application.name());
        match (self.spec.protocol.family(), self.spec.application.family()) {
            (Some(Family::Messages), Family::Tasks) => self.problem(
                path,
                format!(
                    "`{protocol}` does not support task-based programs such as `{application}`"
                ),
                "choose the protocol `tic`, `sel`, `satin`, `cck` or `none`, or an application that exchanges messages, \
                 such as `heat`",
            ),
            (Some(Family::Tasks), Family::Messages) => self.problem(
                path,
                format!(
                    "`{protocol}` supports only task-based programs, but `{application}` exchanges messages"
                ),
                match self.spec.protocol.plans() {
                    true => "choose a task-based program, such as `jacobi`, or another protocol, such as `hc3i`",
                    false => "choose a task-based program, such as `fibonacci`, or another protocol, such as `hc3i`",
                },
            ),
            _ => {}
        }
        match self.spec.application.family() {
            Family::Messages => self.nothing_for_tasks(),
            Family::Tasks => self.places(),
            // Refuses more than what only tasks need.
            Family::System => {}
        }
    }

    /// Checks how tasks are assigned to processes in advance.
    fn schedule(&mut self) {
        const PATH: &str = "spec.schedule";
        let spec = self.spec;
        let (protocol, application) = (spec.protocol.name(), spec.application.name());
        if !spec.is_planned() {
            if spec.schedule.is_some() {
                let message = match spec.protocol.family() {
                    None => "`stealing` and `schedule` cannot be combined".to_owned(),
                    Some(_) => format!(
                        "under `{protocol}`, processes steal tasks, and nothing is assigned in advance"
                    ),
                };
                let help = match (spec.protocol.family(), &spec.stealing) {
                    (None, Some(_)) => "omit one of the two",
                    // No process steals tasks under `cck`.
                    (_, Some(_)) => "omit `schedule`",
                    (_, None) => "omit `schedule`, or choose the protocol `cck`",
                };
                self.problem(PATH, message, help);
            }
            return;
        }
        if spec.stealing.is_some() {
            self.problem(
                "spec.stealing",
                format!("under `{protocol}`, tasks are assigned in advance, and no process steals any"),
                match spec.schedule {
                    Some(_) => "omit `stealing`",
                    None => "omit `stealing`, or choose a protocol under which processes steal tasks, such as `tic`",
                },
            );
        }
        let schedule = spec.schedule();
        if let Some(file) = &schedule.file {
            self.path_of_file(&format!("{PATH}.file"), file);
        }
        if !WINDOWS.contains(&schedule.window()) {
            self.problem(
                format!("{PATH}.window"),
                format!("`window` is {}, which is out of range", schedule.window()),
                format!("write a number from {} to {}", WINDOWS.start(), WINDOWS.end()),
            );
        }
        let Some(Ok(flow)) = flow(&spec.application) else { return };
        let ranks = match u32::try_from(self.total) {
            Ok(ranks @ 1..) if self.sized => ranks,
            _ => return,
        };
        let pieces = flow.planned().pieces();
        if pieces < ranks {
            self.problem(
                format!("spec.application.{application}"),
                match pieces {
                    1 => format!("a single piece cannot be assigned to {ranks} processes"),
                    _ => format!("{pieces} pieces cannot be assigned to {ranks} processes"),
                },
                "use a larger program, such as one with more `rows` or `columns`, or fewer nodes",
            );
        }
        match (&schedule.pieces, &schedule.file) {
            (Some(_), Some(_)) => self.problem(
                format!("{PATH}.file"),
                "`pieces` and `file` cannot be combined",
                "keep one of the two",
            ),
            (Some(of), None) => self.pieces(of, pieces, ranks),
            _ => {}
        }
    }

    /// Checks the process to which each piece is assigned.
    fn pieces(&mut self, of: &[u32], pieces: u32, ranks: u32) {
        let path = "spec.schedule.pieces";
        if of.len() != pieces as usize {
            self.problem(
                path,
                format!(
                    "`pieces` must have {pieces} entries, one per piece of the program (found {})",
                    of.len()
                ),
                "write one process for each piece",
            );
        }
        if let Some(index) = of.iter().position(|it| *it >= ranks) {
            self.problem(
                format!("{path}[{index}]"),
                format!("there is no process {}", of[index]),
                format!("write a number from 0 to {}", ranks - 1),
            );
        }
    }

    /// Checks that an application without tasks has no settings for tasks.
    fn nothing_for_tasks(&mut self) {
        let spec = self.spec;
        let help =
            |field: &str| format!("omit `{field}`, or choose a task-based program, such as `fibonacci`");
        let message = format!("`{}` has no tasks", spec.application.name());
        for (index, cluster) in spec.clusters.iter().enumerate() {
            for (name, value) in [("speed", cluster.speed), ("cores", cluster.cores)] {
                if value.is_some() {
                    self.problem(format!("spec.clusters[{index}].{name}"), message.as_str(), help(name));
                }
            }
        }
        if spec.stealing.is_some() {
            self.problem("spec.stealing", message.as_str(), help("stealing"));
        }
        if spec.schedule.is_some() {
            self.problem("spec.schedule", message, help("schedule"));
        }
    }

    fn places(&mut self) {
        let spec = self.spec;
        for (index, cluster) in spec.clusters.iter().enumerate() {
            for (name, value, range) in
                [("speed", cluster.speed(), SPEEDS), ("cores", cluster.cores(), CORES)]
            {
                if !range.contains(&value) {
                    self.problem(
                        format!("spec.clusters[{index}].{name}"),
                        format!("`{name}` is {value}, which is out of range"),
                        format!("write a number from {} to {}", range.start(), range.end()),
                    );
                }
            }
        }
        self.schedule();
        let stealing = spec.stealing();
        if stealing.patience() < Span::from_micros(1) {
            self.problem(
                "spec.stealing.patience",
                format!(
                    "{} is too short: idle processes would ask for tasks without pausing",
                    Duration(stealing.patience())
                ),
                "write a duration of at least 1us",
            );
        }
        self.probability("spec.stealing.clusterFirst", stealing.cluster_first());
    }

    /// Checks that the application supports processes that never return, and that other processes can take over their
    /// work.
    pub(super) fn processes_that_never_return(&mut self) {
        let spec = self.spec;
        let Some(first) = spec.faults.iter().position(FaultSpec::never_returns) else { return };
        let path = |entry: usize| {
            let name = spec.faults[entry].actions().first().map_or("crash", |it| it.0);
            format!("spec.faults[{entry}].{name}.returns")
        };
        if spec.application.family() != Family::Tasks {
            self.problem(
                path(first),
                format!("`{}` does not support processes that never return", spec.application.name()),
                "omit `returns`, or choose a task-based program, such as `fibonacci`",
            );
            return;
        }
        if !self.problems.is_empty() {
            return;
        }
        let names = Names::of(spec);
        // Number of processes that stay, by cluster. A process whose cluster joins or leaves during the run may not be
        // present when work has to be taken over.
        let permanent = (0..).zip(&spec.clusters).filter(|(_, it)| it.is_permanent());
        let mut stay: BTreeMap<ClusterId, u32> =
            permanent.map(|(id, cluster)| (ClusterId(id), cluster.nodes)).collect();
        let mut gone = BTreeSet::new();
        let helpers = spec.extra_processes();
        // Other storage servers or, if there are too few, ranks take over the replicas of a storage server.
        let is_unique = |it: ProcessId| {
            let helper = it.0.checked_sub(names.ranks()).and_then(|index| helpers.get(index as usize));
            helper.is_some_and(|role| *role != Role::STORAGE_SERVER)
        };
        let entries = (0..spec.faults.len()).filter(|entry| spec.faults[*entry].never_returns());
        let faults = entries
            .flat_map(|entry| faults_of(spec, &names, spec.seed(), entry).map(move |it| (entry, it.fault)));
        for (entry, fault) in faults {
            match fault.target() {
                Some(Target::Process(process)) if is_unique(process) => {
                    return self.problem(
                        path(entry),
                        format!("no process can take over from `{}`", names.process(process)),
                        "omit `returns`, so that the process is restarted",
                    );
                }
                Some(Target::Process(process)) => {
                    leave(&mut stay, &mut gone, names.cluster_of(process), process);
                }
                Some(Target::Rack { cluster, rack, nodes }) => {
                    let members = names.processes_of(cluster);
                    for process in members.skip((rack * nodes) as usize).take(nodes as usize) {
                        leave(&mut stay, &mut gone, cluster, ProcessId(process));
                    }
                }
                Some(Target::Cluster(cluster)) => {
                    stay.remove(&cluster);
                }
                None => unreachable!("processes return after any other fault"),
            }
            if stay.is_empty() {
                let (message, help) = self.no_successor();
                return self.problem(path(entry), message, help);
            }
        }
    }

    /// Returns the message and the remedy for a fault that leaves no process to take over the work of others.
    fn no_successor(&self) -> (String, String) {
        const HELP: &str = "let some processes return: omit `returns` in one of the faults";
        let Some(other) = self.spec.clusters.iter().find(|it| !it.is_permanent()) else {
            return ("with this fault, no process is left to take over the work".into(), HELP.into());
        };
        let field = if other.joins_after.is_some() { "joinsAfter" } else { "leavesAfter" };
        let name = &other.name;
        let message = format!(
            "with this fault, only processes of clusters that join or leave during the run, such as `{name}`, could \
             take over the work, and they may not be present in time"
        );
        (message, format!("{HELP}, or omit `{field}` from `{name}`"))
    }

    /// Checks that a task-based program can be built from its parameters.
    pub(super) fn program(&mut self) {
        if let ApplicationSpec::Jacobi(jacobi) = &self.spec.application
            && (jacobi.tolerance() < 0.0 || jacobi.tolerance().is_nan())
        {
            self.problem(
                "spec.application.jacobi.tolerance",
                format!("`tolerance` must not be negative (found {})", jacobi.tolerance()),
                "write a number of at least 0; with 0, the computation converges only once no cell changes",
            );
        }
        if let ApplicationSpec::Qap(Qap { instance, file, data, .. }) = &self.spec.application {
            let stated =
                [("instance", instance.is_some()), ("file", file.is_some()), ("data", data.is_some())];
            let names: Vec<&str> = stated.into_iter().filter(|it| it.1).map(|it| it.0).collect();
            if let [first, second, ..] = names[..] {
                self.problem(
                    format!("spec.application.qap.{second}"),
                    format!("`{first}` and `{second}` cannot be combined"),
                    "keep one of the two",
                );
                return;
            }
            if let Some(file) = file {
                self.path_of_file("spec.application.qap.file", file);
                return;
            }
            let length = data.as_ref().map_or(0, |it| it.chars().count());
            if length > MAX_QAP_DATA {
                self.problem(
                    "spec.application.qap.data",
                    format!("the text is too long ({length} characters)"),
                    format!("write at most {MAX_QAP_DATA} characters"),
                );
                return;
            }
        }
        if let Some(Err(problem)) = flow(&self.spec.application) {
            self.add(problem);
        }
    }

    pub(super) fn path_of_file(&mut self, path: &str, file: &str) {
        let length = file.chars().count();
        if !PATHS.contains(&length) {
            self.problem(
                path,
                format!("a path of {length} characters cannot name a file"),
                format!("write a path of {} to {} characters, or omit the field", PATHS.start(), PATHS.end()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Federation;
    use serde_json::json;

    #[test]
    fn only_faults_whose_processes_never_return_are_drawn() {
        let federation: Federation = serde_json::from_value(json!({
            "apiVersion": "faultline.dev/v1alpha1",
            "kind": "Federation",
            "metadata": { "name": "example" },
            "spec": {
                "clusters": [{ "name": "a", "nodes": 1 }],
                "protocol": { "tic": {} },
                "application": { "fibonacci": {} },
                "faults": [
                    // To draw from this distribution would panic.
                    { "mtbf": { "weibull": { "scale": "1s", "shape": -1.0 } }, "crash": {} },
                    { "at": "1s", "crash": { "returns": false } },
                ],
            },
        }))
        .unwrap();
        let mut check = Check::new(&federation.spec);
        check.processes_that_never_return();
        assert_eq!(check.problems[0].path, "spec.faults[1].crash.returns");
    }
}

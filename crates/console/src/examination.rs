//! Findings of `doctor` on this machine or on a Kubernetes cluster, and their output.

use std::fmt;
use std::num::NonZero;

use faultline_report::explain::count;
use faultline_report::table::wrapped;
use faultline_tc::probe::Ability;
use serde::Serialize;

use crate::arguments::Format;
use crate::command_error::{CommandError, Exit};
use crate::output;

/// Whether an operation is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckState {
    /// The operation is possible.
    Ok,
    /// The operation is not possible, but there is an alternative.
    Missing,
    /// The operation is possible, but runs may be slow or inconclusive.
    Warning,
    /// The operation is not possible, and runs of the requested size would fail.
    Fail,
}

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The name of the check.
    pub name: &'static str,
    /// The result of the check.
    pub state: CheckState,
    /// Details of the result.
    pub detail: String,
    /// The suggested remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The object that `--format json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Whether the requested run is possible.
    fit: bool,
    nodes: u64,
    /// Whether traffic control is possible; `None` if it was not tested.
    traffic_control: Option<bool>,
    /// Whether traffic control emulates delays, jitter and losses; `None` if it was not tested.
    kernel_delays: Option<bool>,
    findings: &'a [Finding],
}

/// The size of the run for which `doctor` checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRun(Option<NonZero<u32>>);

impl PlannedRun {
    /// Number of nodes of the quick start, which is the run that is meant if the user states no number.
    const QUICK_START: u64 = 6;

    /// Returns a run with this many nodes or, without a number, the quick start.
    pub fn of(nodes: Option<NonZero<u32>>) -> PlannedRun {
        PlannedRun(nodes)
    }

    /// Returns the number of nodes.
    pub fn nodes(self) -> u64 {
        self.0.map_or(PlannedRun::QUICK_START, |it| it.get().into())
    }
}

impl fmt::Display for PlannedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(_) => f.write_str(&count(self.nodes(), "node")),
            None => f.write_str("the quick start"),
        }
    }
}

/// The results of an examination.
pub struct Examination {
    /// The examined subject, as part of a sentence.
    pub subject: String,
    /// The option that enables traffic control on the examined subject.
    pub by: &'static str,
    /// Whether traffic control is possible; `None` if it was not tested.
    pub traffic_control: Option<bool>,
    /// Whether traffic control emulates delays, jitter and losses, not only bandwidth and partitions; `None` if it was not
    /// tested.
    pub kernel_delays: Option<bool>,
    /// Findings in the order in which they are printed.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Returns whether a run is possible.
    fn is_fit(&self) -> bool {
        self.findings.iter().all(|it| it.state != CheckState::Fail)
    }

    /// Prints the findings for a planned run. The exit status says whether the run is possible, with
    /// traffic control if `needs_tc` is set.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    pub fn print(&self, planned: PlannedRun, needs_tc: bool, format: Format) -> Result<Exit, CommandError> {
        let Examination { traffic_control, kernel_delays, findings, .. } = self;
        let fit = self.is_fit() && (*traffic_control == Some(true) || !needs_tc);
        match format {
            Format::Json => {
                let nodes = planned.nodes();
                let (traffic_control, kernel_delays) = (*traffic_control, *kernel_delays);
                let diagnosis = Diagnosis { fit, nodes, traffic_control, kernel_delays, findings };
                output::print(&output::json(&diagnosis))?;
            }
            Format::Text => output::print(&text(self, planned))?,
        }
        Ok(if fit { Exit::Pass } else { Exit::Fail })
    }
}

/// Returns the finding about a kernel feature: details if the kernel has the feature, or the reason why it does not.
pub fn can(ability: Ability, result: Result<String, &str>) -> Finding {
    let instead = match ability {
        Ability::Netem => {
            "; without it, the nodes of a protocol emulate delay, jitter and loss, but nothing emulates them for a system"
        }
        Ability::Ifb | Ability::Redirect => "; without it, packets are delayed at the sender",
        _ => "",
    };
    let name = ability.module();
    match result {
        Ok(detail) => Finding { name, state: CheckState::Ok, detail, remedy: None },
        Err(why) => Finding {
            name,
            state: CheckState::Missing,
            detail: format!("{}; not available: {why}", ability.purpose()),
            remedy: Some(format!("{}{instead}", loading(name))),
        },
    }
}

/// Returns the remedy for missing kernel modules.
pub fn loading(modules: &str) -> String {
    format!(
        "run `modprobe -a {modules}`, or install a kernel, or a package of extra kernel modules, that provides {modules}"
    )
}

fn text(examination: &Examination, planned: PlannedRun) -> String {
    let Examination { subject, by, traffic_control, kernel_delays, findings } = examination;
    let mut text = String::new();
    for Finding { name, state, detail, remedy } in findings {
        let state = match state {
            CheckState::Ok => "ok",
            CheckState::Missing | CheckState::Warning => "--",
            CheckState::Fail => "FAIL",
        };
        text += &wrapped(&format!("{state:<5} {name:<15} "), detail);
        if let Some(remedy) = remedy {
            text += &wrapped(&format!("{:22}remedy: ", ""), remedy);
        }
    }
    let can = |can| if can { "can" } else { "cannot" };
    let links = match traffic_control {
        Some(true) if *kernel_delays == Some(false) => format!(
            ", and can emulate bandwidth and partitions with traffic control ({by}), but not delay, jitter and loss: the nodes \
             of a protocol emulate these, but for a system, nothing does"
        ),
        Some(able) => format!(", and {} emulate links with traffic control ({by})", can(*able)),
        None => String::new(),
    };
    let conclusion = format!("{subject} {} run {planned}{links}.", can(examination.is_fit()));
    text + "\n" + &wrapped("", &conclusion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_of_nodes_that_was_requested_is_named() {
        let subject = "This machine".to_owned();
        let (traffic_control, kernel_delays, findings) = (None, None, Vec::new());
        let examination = Examination { subject, by: "", traffic_control, kernel_delays, findings };
        let said = |nodes| text(&examination, PlannedRun::of(NonZero::new(nodes)));
        assert_eq!(said(7), "\nThis machine can run 7 nodes.\n");
        assert_eq!(said(0), "\nThis machine can run the quick start.\n");
        let text = faultline_api::samples::sample("quickstart").expect("it is a sample").text;
        let quick_start = faultline_api::parse("quickstart", text.as_bytes()).expect("it is valid");
        let processes = faultline_api::Names::of(&quick_start.spec).processes().len() as u64;
        assert_eq!(PlannedRun::of(None).nodes(), processes);
    }

    #[test]
    fn traffic_control_that_emulates_no_delays_is_not_called_complete() {
        let conclusion = |kernel_delays| {
            let (subject, traffic_control, findings) = ("This machine".to_owned(), Some(true), Vec::new());
            let examination = Examination { subject, by: "`tc`", traffic_control, kernel_delays, findings };
            let text = text(&examination, PlannedRun::of(None));
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let complete =
            "This machine can run the quick start, and can emulate links with traffic control (`tc`).";
        assert_eq!(conclusion(Some(true)), complete);
        let partly = conclusion(Some(false));
        assert!(
            partly.contains("can emulate bandwidth and partitions with traffic control (`tc`)"),
            "{partly}"
        );
        assert!(
            partly.ends_with(
                "but not delay, jitter and loss: the nodes of a protocol emulate these, but for a \
                                  system, nothing does."
            ),
            "{partly}"
        );
        let netem = can(Ability::Netem, Err("no such file"));
        assert!(netem.remedy.is_some_and(|it| it.ends_with("nothing emulates them for a system")));
    }
}

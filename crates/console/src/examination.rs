//! What `doctor` finds, on this machine or on a cluster, and how it is printed.

use faultline_tc::probe::Ability;
use serde::Serialize;

use crate::arguments::Format;
use crate::output;
use crate::trouble::{Exit, Trouble};

/// Whether something can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It can.
    Ok,
    /// It cannot, and what asks for it has another way.
    Missing,
    /// It cannot, and runs of that size fail.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// What came of it.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The object of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Runs on real processes with so many nodes are possible.
    fit: bool,
    nodes: u64,
    /// Traffic control is possible; none when nobody has tried.
    traffic_control: Option<bool>,
    findings: &'a [Finding],
}

/// What was examined.
pub struct Examination {
    /// What it is called in a sentence.
    pub subject: String,
    /// How traffic control is asked for there.
    pub by: &'static str,
    /// Whether it can be had, where that was tried.
    pub traffic_control: Option<bool>,
    /// What was found, in the order in which it is printed.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Whether nothing stands in the way of a run.
    fn is_fit(&self) -> bool {
        self.findings.iter().all(|it| it.state != State::Fail)
    }

    /// Prints what was found for a run with so many nodes. Fails if it is not possible, or not with traffic control, if that
    /// is needed.
    pub fn print(&self, nodes: u64, needs_tc: bool, format: Format) -> Result<Exit, Trouble> {
        let Examination { traffic_control, findings, .. } = self;
        let fit = self.is_fit() && (*traffic_control == Some(true) || !needs_tc);
        match format {
            Format::Json => {
                let diagnosis = Diagnosis { fit, nodes, traffic_control: *traffic_control, findings };
                output::print(&output::json(&diagnosis))?;
            }
            Format::Text => output::print(&text(self, nodes))?,
        }
        Ok(if fit { Exit::Pass } else { Exit::Fail })
    }
}

/// That a kernel can do something, or why it cannot.
pub fn can(ability: Ability, result: Result<String, &str>) -> Finding {
    let instead = match ability {
        Ability::Netem => "; without it, delay and loss are emulated in the nodes",
        Ability::Ifb | Ability::Redirect => "; without it, packets are delayed where they leave",
        _ => "",
    };
    let name = ability.module();
    match result {
        Ok(detail) => Finding { name, state: State::Ok, detail, remedy: None },
        Err(why) => Finding {
            name,
            state: State::Missing,
            detail: format!("{}: {why}", ability.purpose()),
            remedy: Some(format!("{}{instead}", loading(name))),
        },
    }
}

/// How to get modules that the kernel lacks.
pub fn loading(modules: &str) -> String {
    format!(
        "`modprobe -a {modules}`, or a kernel that has it (many distributions: the package with extra modules)"
    )
}

fn text(examination: &Examination, nodes: u64) -> String {
    let Examination { subject, by, traffic_control, findings } = examination;
    let mut text = String::new();
    for Finding { name, state, detail, remedy } in findings {
        let state = match state {
            State::Ok => "ok",
            State::Missing => "--",
            State::Fail => "FAIL",
        };
        text.push_str(&format!("{state:<5} {name:<15} {detail}\n"));
        if let Some(remedy) = remedy {
            text.push_str(&format!("{:22}remedy: {remedy}\n", ""));
        }
    }
    let can = |can| if can { "can" } else { "cannot" };
    let links = match traffic_control {
        Some(able) => format!(", and {} emulate their links by traffic control ({by})", can(*able)),
        None => String::new(),
    };
    text.push_str(&format!("\n{subject} {} run {nodes} nodes{links}.\n", can(examination.is_fit())));
    text
}

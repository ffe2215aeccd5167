//! The steps of a program that acts as an application.

use std::borrow::Cow;

use faultline_core::Span;
use faultline_workloads::messaging::{Operation, RankInfo, Step};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::contract::{Wrong, read, required};
use crate::pipe::quoted;

/// The names of all steps, for messages.
const STEPS: &str =
    "`send`, `compute`, `receive`, `gather`, `poll`, `barrier`, `broadcast`, `reduce`, `allToAll`, `finish`";

/// How a program receives messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// Each receiving step names the senders.
    ByRank,
    /// Messages are handed over in the order in which they arrive.
    Any,
}

/// What a program does next.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// The result, as JSON, if the last step is `finish`.
    pub(crate) result: Option<String>,
}

/// The fields of all steps. Each step has some of them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow, rename = "do", default)]
    step: Option<Cow<'a, str>>,
    #[serde(default)]
    to: Option<u32>,
    #[serde(borrow, default)]
    from: Option<&'a RawValue>,
    #[serde(rename = "for", default)]
    span: Option<u64>,
    #[serde(default)]
    piece: Option<u64>,
    #[serde(default)]
    pieces: Option<u32>,
    #[serde(default)]
    root: Option<u32>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    contents: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    numbers: Option<Vec<f64>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

/// Returns the steps of a reply. An error names the first wrong step.
pub(crate) fn plan(actions: &[&RawValue], place: RankInfo, receives: Receives) -> Result<Plan, Wrong> {
    let mut plan = Plan::default();
    for (number, action) in (1..).zip(actions) {
        let fields: Fields<'_> = read(action.get()).map_err(|why| format!("step {number}: {why}"))?;
        let name = fields.step.as_deref().unwrap_or_default();
        let step = if name.is_empty() { Err("field `do` is missing".to_owned()) } else { fields.step(place) };
        let step = step.and_then(|step| {
            if number < actions.len() && is_last(&step) {
                return Err("only the last step may receive messages or finish".to_owned());
            }
            let is_allowed = matches!(step, Step::Send { .. } | Step::Compute(_) | Step::Finish);
            match receives {
                Receives::Any if !is_allowed => Err(
                    "with `receives: any`, messages arrive by themselves; use `send`, `compute` or `finish`"
                        .to_owned(),
                ),
                _ => Ok(step),
            }
        });
        let step = step.map_err(|why| format!("step {number} (`{}`): {why}", quoted(name)))?;
        if step == Step::Finish {
            plan.result = Some(text(fields.result));
        }
        plan.steps.push(step);
    }
    Ok(plan)
}

/// Returns whether a step ends the list of a reply, because the program must see its outcome or has no next step.
fn is_last(step: &Step) -> bool {
    !matches!(step, Step::Send { .. } | Step::Compute(_) | Step::Barrier)
}

impl Fields<'_> {
    fn step(&self, place: RankInfo) -> Result<Step, Wrong> {
        Ok(match self.step.as_deref().unwrap_or_default() {
            "send" => Step::Send {
                to: other(place, required("to", self.to)?)?,
                content: content(required("content", self.content)?),
            },
            "compute" => Step::Compute(Span(required("for", self.span)?)),
            "receive" => Step::Receive {
                from: other(place, required("from", self.from).and_then(|it| read(it.get()))?)?,
            },
            "gather" => Step::Gather { from: self.senders(place)? },
            "poll" => Step::Poll {
                from: self.senders(place)?,
                piece: Span(required("piece", self.piece)?),
                pieces: required("pieces", self.pieces)?,
            },
            "barrier" => Step::Barrier,
            "broadcast" => {
                let root = rank(place, required("root", self.root)?)?;
                let given = if root == place.me { Some(required("content", self.content)?) } else { None };
                Step::Broadcast { root, content: given.map(content).unwrap_or_default() }
            }
            "reduce" => Step::Reduce {
                root: rank(place, required("root", self.root)?)?,
                part: required("numbers", self.numbers.clone())?,
                operation: operation(required("operation", self.operation.as_deref())?)?,
            },
            "allToAll" => {
                let contents = required("contents", self.contents.as_ref())?;
                if contents.len() != place.ranks as usize {
                    let (found, ranks) = (contents.len(), place.ranks);
                    return Err(format!("`contents` has {found} entries; there are {ranks} ranks"));
                }
                Step::AllToAll { contents: contents.iter().map(|it| content(it)).collect() }
            }
            "finish" => Step::Finish,
            _ => return Err(format!("there is no such step; use one of: {STEPS}")),
        })
    }

    fn senders(&self, place: RankInfo) -> Result<Vec<u32>, Wrong> {
        let from: Vec<u32> = required("from", self.from).and_then(|it| read(it.get()))?;
        let mut sorted = from.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|it| it[0] == it[1]) {
            return Err(format!("`from` names rank {} twice", twice[0]));
        }
        from.into_iter().map(|it| other(place, it)).collect()
    }
}

fn rank(place: RankInfo, rank: u32) -> Result<u32, Wrong> {
    if rank < place.ranks {
        return Ok(rank);
    }
    Err(format!("there is no rank {rank}; the last one is {}", place.ranks - 1))
}

/// Returns a rank other than this one.
fn other(place: RankInfo, other: u32) -> Result<u32, Wrong> {
    if other == place.me {
        return Err(format!("rank {other} cannot send to itself or receive from itself"));
    }
    rank(place, other)
}

fn operation(name: &str) -> Result<Operation, Wrong> {
    Ok(match name {
        "sum" => Operation::Sum,
        "least" => Operation::Least,
        "greatest" => Operation::Greatest,
        _ => return Err(format!("`{}` is not an operation; use `sum`, `least` or `greatest`", quoted(name))),
    })
}

fn text(value: Option<&RawValue>) -> String {
    value.map_or("null", RawValue::get).to_owned()
}

fn content(value: &RawValue) -> Vec<u8> {
    value.get().as_bytes().to_vec()
}

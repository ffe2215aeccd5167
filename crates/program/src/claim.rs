//! The claims of a program. Their fields have the names of the columns of exported facts where such columns exist.

use std::sync::Arc;

use faultline_core::{
    Attempt, Cause, Claim, ClusterId, GroupId, ImageName, PhaseClaim, Position, ProcessId, Sn, Span, Vectors,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::contract::{Wrong, bounded, image_name, message_id, position, read, required};

/// The names of all claims that a program can make.
const CLAIMS: [&str; 15] = [
    "checkpointRequested",
    "checkpointCommitted",
    "checkpointAborted",
    "recoveryStarted",
    "rolledBack",
    "alerted",
    "resent",
    "forcing",
    "collected",
    "protected",
    "unrecoverable",
    "released",
    "spilled",
    "orphaned",
    "notRepeated",
];

/// The fields of all claims. Each claim has some of them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    fact: Option<String>,
    id: Option<[u32; 4]>,
    position: Option<[u32; 2]>,
    attempt: Option<u32>,
    forced: bool,
    frozen: Option<u64>,
    ddv: Vec<[u32; 2]>,
    delivered: Vec<(u16, [u32; 2])>,
    lives: Option<u64>,
    round: Option<u32>,
    to: Option<[u32; 2]>,
    checkpoint: Option<[u32; 2]>,
    cause: Option<String>,
    from: Option<u16>,
    below: Option<u32>,
    kept: Option<u32>,
    log: Option<u32>,
    group: Option<u16>,
    missing: Vec<Missing>,
    cluster: Option<u16>,
    messages: Option<u32>,
    bytes: Option<u64>,
    left: Option<u64>,
    phase: Option<u32>,
    recorded: Option<u32>,
    repeated: Option<u32>,
}

/// A part of a checkpoint that no storage holds.
#[derive(Deserialize)]
struct Missing {
    name: [u32; 4],
    asked: Vec<u32>,
}

impl Missing {
    fn part(self) -> Result<(ImageName, Vec<ProcessId>), Wrong> {
        Ok((image_name(self.name)?, self.asked.into_iter().map(ProcessId).collect()))
    }
}

impl Fields {
    fn position(&self) -> Result<Position, Wrong> {
        required("position", self.position).and_then(position)
    }

    fn attempt(&self) -> Result<Attempt, Wrong> {
        required("attempt", self.attempt).and_then(bounded).map(Attempt)
    }

    fn id(&self) -> Result<faultline_core::MessageId, Wrong> {
        required("id", self.id).map(message_id)
    }

    fn group(&self) -> Result<GroupId, Wrong> {
        required("from", self.from).map(GroupId)
    }

    fn vectors(&self) -> Result<Arc<Vectors>, Wrong> {
        let ddv = self.ddv.iter().copied().map(position).collect::<Result<Vec<_>, _>>()?;
        let delivered = self.delivered.iter().map(|&(group, at)| Ok((GroupId(group), position(at)?)));
        let delivered = delivered.collect::<Result<Vec<_>, Wrong>>()?;
        Ok(Arc::new(Vectors { ddv: ddv.into(), delivered: delivered.into() }))
    }

    fn cause(&self) -> Result<Cause, Wrong> {
        match required("cause", self.cause.as_deref())? {
            "failure" => Ok(Cause::Failure),
            "alert" => Ok(Cause::Alert { from: self.group()?, position: self.position()? }),
            other => Err(format!("`{other}` is not a cause; write `failure` or `alert`")),
        }
    }
}

/// Reads the claim in an action. `frozen` returns the time for which the application was held for a checkpoint that the
/// program claims to have committed without stating this time.
pub(crate) fn claim(action: &RawValue, frozen: impl FnOnce() -> Span) -> Result<Claim, Wrong> {
    let mut it: Fields = read(action.get())?;
    if it.fact.as_deref() == Some("checkpointCommitted") {
        it.frozen.get_or_insert_with(|| frozen().0);
    }
    let fact = required("fact", it.fact.take())?;
    checkpoint_claim(&fact, &mut it).or_else(|| other_claim(&fact, &it)).unwrap_or_else(|| {
        Err(format!("a program cannot claim `{fact}`; the claims are: {}", CLAIMS.join(", ")))
    })
}

/// Returns a claim about checkpoints or rollbacks; `None` if the fact is another one.
fn checkpoint_claim(fact: &str, it: &mut Fields) -> Option<Result<Claim, Wrong>> {
    let mut read = || {
        let checkpoint = || required("checkpoint", it.checkpoint).and_then(position);
        Ok(Some(match fact {
            "checkpointRequested" => Claim::CheckpointRequested {
                position: it.position()?,
                attempt: it.attempt()?,
                forced: it.forced,
            },
            "checkpointCommitted" => Claim::Committed {
                position: it.position()?,
                attempt: it.attempt()?,
                forced: it.forced,
                frozen: Span(it.frozen.unwrap_or_default()),
                vectors: it.vectors()?,
            },
            "checkpointAborted" => Claim::Aborted { position: it.position()?, attempt: it.attempt()? },
            "rolledBack" => Claim::RolledBack {
                to: required("to", it.to).and_then(position)?,
                checkpoint: checkpoint()?,
                cause: it.cause()?,
                vectors: it.vectors()?,
            },
            "unrecoverable" => {
                let missing = std::mem::take(&mut it.missing).into_iter().map(Missing::part);
                let missing = missing.collect::<Result<Vec<_>, _>>()?.into();
                Claim::Unrecoverable { group: required("group", it.group).map(GroupId)?, missing }
            }
            _ => return Ok(None),
        }))
    };
    read().transpose()
}

fn other_claim(fact: &str, it: &Fields) -> Option<Result<Claim, Wrong>> {
    let read = || {
        Ok(Some(match fact {
            "recoveryStarted" => Claim::RecoveryStarted {
                lives: required("lives", it.lives)?,
                round: required("round", it.round)?,
            },
            "alerted" => Claim::Alerted { from: it.group()?, position: it.position()? },
            "resent" => Claim::Resent { id: it.id()? },
            "forcing" => Claim::Forcing { id: it.id()? },
            "collected" => Claim::Collected {
                round: required("round", it.round)?,
                below: required("below", it.below).and_then(bounded).map(Sn)?,
                kept: required("kept", it.kept)?,
                log: required("log", it.log)?,
            },
            "protected" => Claim::Protected,
            "released" => Claim::Released { cluster: required("cluster", it.cluster).map(ClusterId)? },
            "spilled" => Claim::Spilled {
                messages: required("messages", it.messages)?,
                bytes: required("bytes", it.bytes)?,
                left: required("left", it.left)?,
            },
            "orphaned" => {
                Claim::Phase(PhaseClaim::Orphaned { id: it.id()?, phase: required("phase", it.phase)? })
            }
            "notRepeated" => Claim::Phase(PhaseClaim::NotRepeated {
                id: it.id()?,
                recorded: required("recorded", it.recorded)?,
                repeated: required("repeated", it.repeated)?,
            }),
            _ => return Ok(None),
        }))
    };
    read().transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Claim, Wrong> {
        claim(&RawValue::from_string(text.to_owned()).unwrap(), || Span(7))
    }

    #[test]
    fn each_claim_is_known_under_the_name_of_its_fact() {
        let all = r#""id":[0,1,0,0],"position":[1,2],"attempt":1,"lives":2,"round":1,"to":[1,2],"checkpoint":[0,2],
            "cause":"failure","from":0,"below":1,"kept":1,"log":0,"group":0,"cluster":0,"messages":1,"bytes":1,
            "left":0,"phase":1,"recorded":1,"repeated":2"#;
        for name in CLAIMS {
            let claim = of(&format!("{{\"fact\":\"{name}\",{all}}}")).unwrap();
            assert_eq!(serde_json::to_value(claim.kind()).unwrap(), name);
            assert!(name == "protected" || of(&format!("{{\"fact\":\"{name}\"}}")).is_err(), "{name}");
        }
    }

    #[test]
    fn the_host_states_how_long_a_checkpoint_took_unless_the_program_does() {
        let text = r#""fact":"checkpointCommitted","position":[1,2],"attempt":1"#;
        for (more, expected) in [("", 7), (",\"frozen\":0", 0), (",\"frozen\":9", 9)] {
            let claim = of(&format!("{{{text}{more}}}")).unwrap();
            assert!(
                matches!(claim, Claim::Committed { frozen: Span(it), .. } if it == expected),
                "{claim:?}"
            );
        }
    }

    #[test]
    fn a_program_cannot_claim_what_its_host_observes() {
        for name in ["broke", "delivered", "drained", ""] {
            assert!(
                of(&format!("{{\"fact\":\"{name}\"}}")).unwrap_err().contains("the claims are"),
                "{name}"
            );
        }
        assert_eq!(of("{}").unwrap_err(), "field `fact` is missing");
        let later = r#"{"fact":"rolledBack","to":[1,2],"checkpoint":[0,2],"cause":"rain"}"#;
        assert_eq!(of(later).unwrap_err(), "`rain` is not a cause; write `failure` or `alert`");
    }
}

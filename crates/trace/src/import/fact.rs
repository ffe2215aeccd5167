//! A line's columns as a fact: the inverse of [`crate::row`].

use std::sync::Arc;

use faultline_core::fact::Flipped;
use faultline_core::{
    Boot, Cause, CheckNo, Claim, ClusterId, EndedBy, Ending, Fact, FactKind, FactNo, FaultNo, HistoryNo,
    Life, Observation, PartitionClaim, PhaseClaim, PlannedFault, PlannedTask, Position, ProbeNo, ProcessId,
    Sn, Span, StorageFate, Target, Theft, TheftStep, WatchNo, Witness,
};

use super::ImportError;
use super::fields::Fields;
use super::run::RunLine;
use crate::expectation::{Expectation, SystemEntry};

type Read<T> = Result<T, ImportError>;

/// Reads a fact of this kind that follows `facts` others of its life. Its witness, if any, is assigned later. A life that
/// the line does not state is life 0.
pub(super) fn read(kind: FactKind, facts: u64, run: &RunLine, from: &mut Fields<'_>) -> Read<Fact> {
    if !kind.is_of_process() {
        return supervisor(kind, &run.plan, from);
    }
    if FactKind::OF_SYSTEMS.contains(&kind) {
        return observation(kind, run, from).map(|it| Fact::Observed(Box::new(it)));
    }
    Ok(match kind {
        FactKind::Sent => Fact::Sent { id: from.message(true)?, bytes: from.or_zero("message_bytes")? },
        FactKind::Transmitted => {
            let id = from.message(true)?;
            let incarnation = from.incarnation("piggybacked_incarnation")?;
            let position = Position { incarnation, sn: Sn(from.or_zero("piggybacked_sn")?) };
            Fact::Transmitted { id, position }
        }
        FactKind::Suppressed => Fact::Suppressed(from.message(true)?),
        FactKind::Delivered => Fact::Delivered(from.message(false)?),
        FactKind::Consumed => Fact::Consumed(from.message(false)?),
        FactKind::Held => Fact::Held,
        FactKind::DroppedStale => Fact::DroppedStale(from.message(false)?),
        FactKind::Saved => {
            Fact::Saved(Box::new((from.image()?, Witness::default(), from.or_zero("state_bytes")?)))
        }
        FactKind::Durable => Fact::Durable(from.image()?),
        FactKind::Removed => Fact::Removed(from.image()?),
        FactKind::Damaged => Fact::Damaged(from.image()?),
        FactKind::Flipped => Fact::Flipped(flipped(from)?),
        FactKind::Restored => {
            let image = from.optional_image()?;
            Fact::Restored(Box::new((image, from.incarnation("incarnation")?, Witness::default())))
        }
        FactKind::Finished => {
            let digest = match from.optional_text("digest")? {
                Some(text) => super::run::digest(&text)
                    .ok_or_else(|| from.not_one_of("digest", &text, "the texts of 32 hexadecimal digits"))?,
                None => faultline_core::Digest([0; 16]),
            };
            Fact::Finished(Box::new((Witness::default(), digest)))
        }
        FactKind::Computed => Fact::Computed { since: FactNo(from.optional("since")?.unwrap_or(facts)) },
        _ => return task(kind, from),
    })
}

/// Reads what contained a flipped bit: the part of a checkpoint or the message that the columns name or, without either,
/// the state.
fn flipped(from: &mut Fields<'_>) -> Result<Flipped, ImportError> {
    if let Some(name) = from.optional_image()? {
        return Ok(Flipped::Copy { name, is_checked: from.flag("checked")? });
    }
    Ok(from.optional_message()?.map_or(Flipped::State, Flipped::Message))
}

/// Reads what a process observed about its node's command.
fn observation(kind: FactKind, run: &RunLine, from: &mut Fields<'_>) -> Read<Observation> {
    let system = run.system.as_ref();
    Ok(match kind {
        FactKind::Ready => Observation::Ready,
        FactKind::Logged | FactKind::LinesLeftOut => {
            let watches = system.iter().flat_map(|it| &it.watches).map(String::as_str);
            let watch = WatchNo(numbered("watch", watches, from)?);
            if kind == FactKind::LinesLeftOut {
                return Ok(Observation::LeftOut { watch });
            }
            let (line, log_line) = (crate::printable(&from.text("line")?).into(), from.or_zero("log_line")?);
            let stream: String = from.optional_value("stream")?;
            let (is_error, groups) = (stream == "stderr", from.optional_value("groups")?);
            Observation::Logged { watch, line, log_line, is_error, groups }
        }
        FactKind::Exited => Observation::Exited { ending: ending(from)?, said: said(from)? },
        FactKind::Stopped => Observation::Stopped {
            ending: ending(from)?,
            latency: latency(from)?,
            killed: from.flag("killed")?,
            said: said(from)?,
        },
        FactKind::Checked => {
            let checks = run.expectations.iter().filter_map(|it| match it {
                Expectation::Check { text, .. } => Some(&**text),
                _ => None,
            });
            let finals = system.map(SystemEntry::final_names).unwrap_or_default();
            let checks = checks.chain(finals.iter().map(String::as_str));
            let check = CheckNo(numbered("check", checks, from)?);
            Observation::Checked { check, latency: latency(from)?, ending: ending(from)?, said: said(from)? }
        }
        FactKind::Invoked => Observation::Invoked {
            history: history(system, from)?,
            client: from.number("client")?,
            session: from.number("session")?,
            operation: from.number("operation")?,
            call: from.value("call")?,
        },
        FactKind::Concluded => Observation::Concluded {
            history: history(system, from)?,
            operation: from.number("operation")?,
            completion: from.value("answer")?,
        },
        _ => {
            let probes = system.iter().flat_map(|it| &it.probes).map(|it| it.name.as_str());
            let probe = ProbeNo(numbered("probe", probes, from)?);
            let (sample, latency) = (from.number("sample")?, latency(from)?);
            let (ending, said) = (ending(from)?, said(from)?);
            let observation = Observation::Probed { probe, sample, latency, ending, said };
            if observation.kind() != kind {
                let help = "correct `fact`, `ending` or `status`";
                return Err(ImportError::new(
                    "`fact` and the ending of the sample contradict each other",
                    help,
                ));
            }
            observation
        }
    })
}

fn history(system: Option<&SystemEntry>, from: &mut Fields<'_>) -> Read<HistoryNo> {
    let names = system.iter().flat_map(|it| &it.histories).map(|it| it.name.as_str());
    numbered("history", names, from).map(HistoryNo)
}

/// Reads a name as its position among `names`.
fn numbered<'a>(column: &str, mut names: impl Iterator<Item = &'a str>, from: &mut Fields<'_>) -> Read<u16> {
    let name = from.text(column)?;
    let position = names.position(|it| it == name).and_then(|it| u16::try_from(it).ok());
    position.ok_or_else(|| from.not_one_of(column, &name, "the names in the `run` line"))
}

fn latency(from: &mut Fields<'_>) -> Read<Span> {
    from.number("latency_ns").map(Span)
}

/// Reads what a command wrote last.
fn said(from: &mut Fields<'_>) -> Read<Arc<str>> {
    from.optional_text("said").map(|it| crate::printable(&it.unwrap_or_default()).into())
}

fn ending(from: &mut Fields<'_>) -> Read<Ending> {
    Ok(match &*from.text("ending")? {
        "exit" => Ending::Exit(from.number("status")?),
        "signal" => Ending::Signal(from.number("status")?),
        "http" => Ending::Http(from.number("status")?),
        "opened" => Ending::Opened,
        "timedOut" => Ending::TimedOut,
        "failed" => Ending::Failed(crate::printable(&from.text("reason")?).into()),
        "impossible" => Ending::Impossible(crate::printable(&from.text("reason")?).into()),
        other => {
            let endings = "`exit`, `signal`, `http`, `opened`, `timedOut`, `failed` and `impossible`";
            return Err(from.not_one_of("ending", other, endings));
        }
    })
}

/// Reads a fact about tasks or partitions.
fn task(kind: FactKind, from: &mut Fields<'_>) -> Read<Fact> {
    let step = match kind {
        FactKind::Lent => TheftStep::Lent,
        FactKind::Shipped => TheftStep::Shipped,
        FactKind::Taken => TheftStep::Taken,
        FactKind::Done => TheftStep::Done,
        FactKind::Returned => TheftStep::Returned,
        FactKind::Merged => TheftStep::Merged,
        FactKind::Receipted => TheftStep::Receipted,
        FactKind::Forgotten => TheftStep::Forgotten,
        FactKind::Voided => TheftStep::Voided,
        FactKind::Ran => {
            let (task, spawned) = (from.task("task")?, from.or_zero("spawned")?);
            return Ok(Fact::Ran { task, spawned, cost_us: from.or_zero("cost_us")? });
        }
        FactKind::Planned => {
            let (task, partition) = (from.task("task")?, from.process_or_own("partition")?);
            let sources = from.tasks("sources")?.into();
            return Ok(Fact::Planned(Box::new(PlannedTask { task, partition, sources })));
        }
        FactKind::Rerun => {
            let (task, by) = (from.task("task")?, from.process("partition")?);
            let (epoch, cost_us) = (from.incarnation("incarnation")?, from.or_zero("cost_us")?);
            return Ok(Fact::Rerun { task, by, epoch, cost_us });
        }
        FactKind::CheckpointMessage => {
            let (position, from, to) =
                (from.checkpoint()?, from.process("sender")?, from.process("receiver")?);
            return Ok(Fact::CheckpointMessage { position, from, to });
        }
        FactKind::Absorbed => {
            let (of, image) = (from.process("partition")?, from.optional_image()?);
            let incarnation = from.incarnation("incarnation")?;
            return Ok(Fact::Absorbed(Box::new((of, image, Witness::default(), incarnation))));
        }
        FactKind::Ceded => {
            let partition = from.process("partition")?;
            return Ok(Fact::Ceded { partition, epoch: from.incarnation("incarnation")? });
        }
        _ => return claim(kind, from).map(|it| Fact::Claim(Box::new(it))),
    };
    let (victim, thief) = (from.process("victim")?, from.process("thief")?);
    let (life, number) = (Life(from.number("theft_life")?), from.number("theft_number")?);
    Ok(Fact::Theft { theft: Theft { victim, thief, life, number }, task: from.task("task")?, step })
}

fn claim(kind: FactKind, from: &mut Fields<'_>) -> Read<Claim> {
    Ok(match kind {
        FactKind::CheckpointRequested => {
            let (position, attempt) = (from.checkpoint()?, from.attempt()?);
            Claim::CheckpointRequested { position, attempt, forced: from.flag("forced")? }
        }
        FactKind::CheckpointCommitted => {
            let (position, attempt, forced) = (from.checkpoint()?, from.attempt()?, from.flag("forced")?);
            let (frozen, vectors) = (Span(from.or_zero("frozen_ns")?), from.vectors()?.into());
            Claim::Committed { position, attempt, forced, frozen, vectors }
        }
        FactKind::CheckpointAborted => {
            Claim::Aborted { position: from.checkpoint()?, attempt: from.attempt()? }
        }
        FactKind::RecoveryStarted => {
            Claim::RecoveryStarted { lives: from.or_zero("recovery_lives")?, round: from.or_zero("round")? }
        }
        FactKind::RolledBack => rolled_back(from)?,
        FactKind::Alerted => {
            let (group, incarnation) = (from.group("cause_cluster")?, from.incarnation("incarnation")?);
            let position = Position { incarnation, sn: Sn(from.number("checkpoint_sn")?) };
            Claim::Alerted { from: group, position }
        }
        FactKind::Resent => Claim::Resent { id: from.message(true)? },
        FactKind::Forcing => Claim::Forcing { id: from.message(false)? },
        FactKind::Collected => Claim::Collected {
            round: from.or_zero("round")?,
            below: Sn(from.number("checkpoint_sn")?),
            kept: from.or_zero("kept")?,
            log: from.or_zero("log_entries")?,
        },
        FactKind::Protected => Claim::Protected,
        FactKind::Broke => Claim::Broke(from.value("breakage")?),
        FactKind::Unrecoverable => {
            Claim::Unrecoverable { group: from.group("about_cluster")?, missing: from.value("missing")? }
        }
        FactKind::Released => Claim::Released { cluster: from.cluster("about_cluster")? },
        FactKind::Spilled => Claim::Spilled {
            messages: from.or_zero("spilled_messages")?,
            bytes: from.or_zero("spilled_bytes")?,
            left: from.or_zero("memory_bytes")?,
        },
        FactKind::Orphaned => {
            let id = from.message(false)?;
            Claim::Phase(PhaseClaim::Orphaned { id, phase: from.number("message_phase")? })
        }
        FactKind::NotRepeated => {
            let (id, recorded) = (from.message(true)?, from.number("recorded_phase")?);
            Claim::Phase(PhaseClaim::NotRepeated { id, recorded, repeated: from.number("message_phase")? })
        }
        FactKind::RecoveryJoined => {
            let (partition, epoch) = (from.process("partition")?, from.incarnation("incarnation")?);
            Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, slot: from.checkpoint()? })
        }
        FactKind::Drained => {
            let (of, to) = (from.process("sender")?, from.process("receiver")?);
            let epoch = from.incarnation("incarnation")?;
            Claim::Partition(PartitionClaim::Drained { from: of, to, epoch })
        }
        other => {
            return Err(ImportError::new(
                format!("`{}` cannot be imported", crate::row::kind_name(other)),
                "remove the line",
            ));
        }
    })
}

fn rolled_back(from: &mut Fields<'_>) -> Read<Claim> {
    let checkpoint = from.checkpoint()?;
    let to = Position { incarnation: from.incarnation("incarnation")?, sn: checkpoint.sn };
    let cause = match from.optional_text("cause")?.as_deref() {
        None | Some("failure") => Cause::Failure,
        Some("alert") => {
            let (group, incarnation) = (from.group("cause_cluster")?, from.incarnation("cause_incarnation")?);
            Cause::Alert {
                from: group,
                position: Position { incarnation, sn: Sn(from.or_zero("cause_sn")?) },
            }
        }
        Some(other) => return Err(from.not_one_of("cause", other, "`failure` and `alert`")),
    };
    Ok(Claim::RolledBack { to, checkpoint, cause, vectors: from.vectors()?.into() })
}

/// Reads a fact of the supervisor. Another process may report such a fact about itself.
fn supervisor(kind: FactKind, plan: &[PlannedFault], from: &mut Fields<'_>) -> Read<Fact> {
    Ok(match kind {
        FactKind::LifeStarted => {
            let process = from.process_or_own("about_process")?;
            let life = Life(from.number("about_life")?);
            let boot = match from.optional_text("begins")?.as_deref() {
                None if life <= Life(1) => Boot::Fresh,
                Some("fresh") => Boot::Fresh,
                None | Some("restarted") => Boot::Restarted,
                Some("replaced") => Boot::Replaced,
                Some(other) => {
                    return Err(from.not_one_of("begins", other, "`fresh`, `restarted` and `replaced`"));
                }
            };
            Fact::LifeStarted { process, life, boot }
        }
        FactKind::Begun => Fact::Begun,
        FactKind::Completed => Fact::Completed,
        FactKind::Failed => failed(from)?,
        FactKind::Detected | FactKind::Resumed => {
            let process = from.process_or_own("about_process")?;
            let life = Life(from.or_zero("about_life")?);
            match kind {
                FactKind::Detected => Fact::Detected { process, life },
                _ => Fact::Resumed { process, life },
            }
        }
        FactKind::Injecting => {
            let no = FaultNo(from.number("fault")?);
            let planned = plan.iter().find(|it| it.no == no).ok_or_else(|| {
                ImportError::new(
                    format!("`fault` must be a fault of the plan (found {})", no.0),
                    "add the fault to `plan` of the `run` line",
                )
            })?;
            // Only the fact shows the target of a fault that strikes the node that last logged a line.
            let known = planned.reported.is_none();
            let fault = match planned.fault.target() {
                Some(Target::Process(target)) => {
                    let process = from.process_or("about_process", known.then_some(target))?;
                    planned.aimed_at(process, ClusterId::OUTSIDE)
                }
                Some(Target::Cluster(target)) => {
                    let cluster = from.cluster_or("about_cluster", known.then_some(target))?;
                    planned.aimed_at(ProcessId::SUPERVISOR, cluster)
                }
                Some(Target::Rack { .. }) | None => planned.fault.clone(),
            };
            Fact::Injecting { no, fault: Box::new(fault) }
        }
        FactKind::Ineffective => {
            let no = FaultNo(from.number("fault")?);
            let reason = crate::printable(&from.optional_text("reason")?.unwrap_or_default());
            Fact::Ineffective { no, reason: reason.into() }
        }
        FactKind::Changed => {
            from.optional::<u32>("fault")?;
            Fact::Changed(from.value("change")?)
        }
        FactKind::Joined => Fact::Joined(from.cluster("about_cluster")?),
        FactKind::Leaving => Fact::Leaving(from.cluster("about_cluster")?),
        _ => Fact::Left(from.cluster("about_cluster")?),
    })
}

fn failed(from: &mut Fields<'_>) -> Read<Fact> {
    let process = from.process_or_own("about_process")?;
    let life = Life(from.or_zero("about_life")?);
    let storage = match from.optional_text("storage")?.as_deref() {
        None | Some("kept") => StorageFate::Kept,
        Some("lost") => StorageFate::Lost,
        Some(other) => return Err(from.not_one_of("storage", other, "`kept` and `lost`")),
    };
    let by = match (from.optional("fault")?, from.optional_text("ended_by")?.as_deref()) {
        (Some(no), None) => EndedBy::Fault(FaultNo(no)),
        (None, Some("silence")) => EndedBy::Silence,
        (None, None) if storage == StorageFate::Kept => EndedBy::Silence,
        (None, None | Some("storageLost")) => EndedBy::StorageLost,
        (None, Some("placeLost")) => EndedBy::PlaceLost,
        (None, Some("supervisorRestarted")) => EndedBy::SupervisorRestarted,
        (None, Some("moved")) => EndedBy::Moved,
        (None, Some("commandExited")) => EndedBy::CommandExited,
        (_, Some(other)) => {
            let causes =
                "`silence`, `placeLost`, `storageLost`, `supervisorRestarted` and `moved`, without `fault`";
            return Err(from.not_one_of("ended_by", other, causes));
        }
    };
    Ok(Fact::Failed { process, life, storage, by })
}

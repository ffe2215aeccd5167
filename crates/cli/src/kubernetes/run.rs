//! The `kubernetes` backend: a federation on a cluster, from its making to its end. Nothing is left of it there once its
//! record is here.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase, condition};
use faultline_api::supervision::{self, Status};
use miette::miette;
use tokio::time::sleep;

use super::arguments::KubernetesArguments;
use super::cluster::Cluster;
use super::fetch::{unpack, unreachable};
use super::supervisor::{Supervisor, is_over};
use crate::screen::{Row, Screen};
use crate::trouble::Trouble;

/// Between two looks at a run.
const LOOK: Duration = Duration::from_secs(1);
/// An operator looks at a new federation within so many looks.
const UNHEEDED: u32 = 15;
/// A supervisor that has been heard may be silent for so long before somebody is told.
const PATIENCE: u32 = 5;

/// Runs a federation to its end; the record is in `dir` then.
pub(crate) fn run(
    arguments: &KubernetesArguments,
    federation: &Federation,
    dir: &Path,
    interrupted: &AtomicBool,
    screen: Screen,
) -> Result<(), Trouble> {
    super::block_on(async {
        let cluster = Cluster::connect(&place(arguments, federation)?).await?;
        let mut wanted = Federation::new(&name(federation), federation.spec.clone());
        wanted.metadata.namespace = Some(cluster.namespace().to_owned());
        let federation = cluster.create(&wanted).await?;
        let mut watch =
            Watch { cluster: &cluster, federation: &federation, screen, told: 0, said: String::new() };
        let ended = tokio::select! {
            ended = watch.follow() => Some(ended),
            () = raised(interrupted) => None,
        };
        watch.screen.finish();
        let ended = ended.unwrap_or_else(|| {
            let deletion = cluster.deletion(&federation);
            anstream::eprintln!(
                "interrupted: deleting the federation; interrupt again to leave that to `{deletion}`"
            );
            Err(Trouble::machine(
                "interrupted: the federation was deleted from the cluster, and there is no record of it",
            ))
        });
        let fetched = match &ended {
            Ok(supervisor) => tokio::select! {
                fetched = unpack(supervisor, &federation, dir) => fetched,
                () = raised(interrupted) => Err(Trouble::machine(format!(
                    "interrupted while the record was fetched: the federation stays in the cluster with it, for \
                     `faultline fetch federation/{}`; `{}` removes both",
                    name(&federation),
                    cluster.deletion(&federation),
                ))),
            },
            Err(_) => Ok(()),
        };
        // A record that could not be had stays where it is.
        if fetched.is_ok()
            && let Err(error) = cluster.delete(&federation).await
        {
            let left = cluster.deletion(&federation);
            anstream::eprintln!("the federation is still in the cluster; `{left}` removes it");
            return Err(error);
        }
        ended.and(fetched)
    })
}

/// A run that is watched.
struct Watch<'a> {
    cluster: &'a Cluster,
    federation: &'a Federation,
    screen: Screen,
    /// The newest event that was shown.
    told: u64,
    /// The message that was shown last.
    said: String,
}

impl Watch<'_> {
    /// Shows the run until there is a record, and returns who has it.
    async fn follow(&mut self) -> Result<Supervisor, Trouble> {
        let mut supervisor = None;
        let mut silent = 0;
        let mut looks = 0;
        loop {
            let status = self.resource().await?;
            looks += 1;
            if status.phase == Phase::Rejected {
                let why = status.message.unwrap_or_default();
                return Err(Trouble::input(miette!("the operator refuses the federation: {why}")));
            }
            if supervisor.is_none() && status.holds(condition::SUPERVISED) {
                supervisor = Some(self.cluster.supervisor(self.federation).await?);
            }
            match &supervisor {
                None => self.say(match status.message.as_deref() {
                    Some(message) => message,
                    None if looks < UNHEEDED => "waiting for the operator",
                    None => {
                        "waiting for the operator, which has not looked at the federation yet: does it run, and does it look \
                         after this namespace? `faultline doctor --backend kubernetes` says"
                    }
                }),
                Some(supervisor) => match supervisor.status(self.told).await {
                    Ok(said) => {
                        silent = 0;
                        self.show(&said, &status);
                        if is_over(&said) {
                            break;
                        }
                    }
                    Err(error) if error.is_forbidden() => return Err(unreachable(error, self.federation)),
                    // It may be in another pod soon, with another story.
                    Err(error) => {
                        silent += 1;
                        if silent == PATIENCE {
                            self.screen.tell(None, &format!("nothing is heard: {error}"));
                        }
                    }
                },
            }
            sleep(LOOK).await;
        }
        supervisor.ok_or_else(|| Trouble::machine("the run is over, and nobody has its record"))
    }

    /// What the resource says.
    async fn resource(&self) -> Result<FederationStatus, Trouble> {
        let name = self.federation.metadata.name.as_deref().unwrap_or_default();
        let there = self.cluster.find(name).await?;
        let there = there.filter(|it| it.metadata.uid == self.federation.metadata.uid);
        match there {
            Some(it) if it.metadata.deletion_timestamp.is_none() => Ok(it.status.unwrap_or_default()),
            _ => Err(Trouble::machine("somebody deleted the federation from the cluster")),
        }
    }

    fn say(&mut self, message: &str) {
        if self.said != message {
            self.said = message.to_owned();
            self.screen.tell(None, message);
        }
        if self.screen.is_due() {
            self.screen.show(None, "starting", &[]);
        }
    }

    fn show(&mut self, said: &Status, resource: &FederationStatus) {
        for event in said.events.iter().filter(|it| it.number > self.told) {
            self.screen.tell(event.at_seconds, &event.text);
        }
        self.told = said.events.last().map_or(self.told, |it| it.number);
        let state = match said.phase {
            supervision::Phase::Gathering => {
                self.say(resource.message.as_deref().unwrap_or("waiting for processes"));
                "starting"
            }
            supervision::Phase::Measuring => "measuring the links",
            supervision::Phase::Running => "running",
            supervision::Phase::Paused => "paused",
            supervision::Phase::Judging => "judging",
            supervision::Phase::Completed | supervision::Phase::Failed => "over",
        };
        if self.screen.is_due() {
            let rows: Vec<Row> = said.clusters.iter().map(row).collect();
            self.screen.show(said.elapsed_seconds, state, &rows);
        }
    }
}

fn row(cluster: &supervision::Cluster) -> Row {
    Row {
        name: cluster.name.clone(),
        processes: cluster.processes,
        up: cluster.up,
        checkpoints: cluster.checkpoints,
        forced: cluster.forced,
        done: cluster.steps_done,
        total: cluster.steps,
    }
}

/// Where the federation is to be: its file may say so, too.
fn place(asked: &KubernetesArguments, federation: &Federation) -> Result<KubernetesArguments, Trouble> {
    let mut asked = asked.clone();
    match (&asked.namespace, &federation.metadata.namespace) {
        (Some(asked), Some(stated)) if asked != stated => Err(Trouble::input(miette!(
            help = "leave one of the two out, or let them agree",
            "`--namespace` says `{asked}`, and the file's metadata.namespace says `{stated}`"
        ))),
        (None, Some(stated)) => {
            asked.namespace = Some(stated.clone());
            Ok(asked)
        }
        _ => Ok(asked),
    }
}

fn name(federation: &Federation) -> String {
    federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned())
}

/// Waits for an interrupt.
async fn raised(interrupted: &AtomicBool) {
    while !interrupted.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_say_which_namespace_it_is_for() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let mut federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        let asked = |namespace: Option<&str>| KubernetesArguments {
            namespace: namespace.map(str::to_owned),
            ..KubernetesArguments::default()
        };
        let chosen = |asked, federation: &Federation| place(&asked, federation).map(|it| it.namespace);
        assert_eq!(chosen(asked(None), &federation).unwrap(), None);
        federation.metadata.namespace = Some("other".to_owned());
        assert_eq!(chosen(asked(None), &federation).unwrap().as_deref(), Some("other"));
        assert_eq!(chosen(asked(Some("other")), &federation).unwrap().as_deref(), Some("other"));
        assert!(chosen(asked(Some("mine")), &federation).is_err());
    }
}

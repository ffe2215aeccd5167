//! `kubectl faultline campaign`: lets the pods of an indexed Job perform the parts of many runs, and lists, shows and
//! cancels such campaigns.
//!
//! A pod prints the results of its part. This program copies the logs of finished pods to the directory of the campaign,
//! and deletes the pods. The cluster contains all that it needs to continue after an interruption.

mod follow;
mod objects;

use std::fmt::Write as _;

use faultline_console::campaign::{CAMPAIGN, Campaign};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::{interrupt, output};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use miette::miette;

use crate::arguments::{CampaignCommand, KubernetesArguments, PerformArguments};
use crate::cluster::KubernetesCluster;
use crate::waiting::until_interrupted;
use follow::{Jobs, condition};

/// Executes `kubectl faultline campaign`.
pub(crate) fn campaign(command: &CampaignCommand) -> Result<Exit, CommandError> {
    match command {
        CampaignCommand::Perform(arguments) => perform(arguments),
        CampaignCommand::List { cluster } => list(cluster),
        CampaignCommand::View { name, cluster } => view(name, cluster),
        CampaignCommand::Cancel { name, cluster } => cancel(name, cluster),
    }
}

fn perform(arguments: &PerformArguments) -> Result<Exit, CommandError> {
    let PerformArguments { dir, workers, .. } = arguments;
    let campaign = Campaign::read(dir)?.ok_or_else(|| {
        let help = "use `faultline sweep --backend kubernetes`, for example";
        CommandError::input(miette!(help = help, "{} contains no {CAMPAIGN}", dir.display()))
    })?;
    let interrupted = interrupt::quiet_flag();
    crate::block_on(async {
        let cluster = KubernetesCluster::connect(&workers.cluster).await?;
        let jobs = Jobs::on(&cluster);
        tokio::select! {
            done = jobs.perform(&campaign, arguments) => done.map(|()| Exit::Pass),
            () = until_interrupted(&interrupted) => {
                let name = campaign.name();
                Err(CommandError::machine_with(
                    format!("interrupted: the campaign `{name}` continues on the cluster"),
                    format!("to end it, use `{}`", cluster.cancellation(&name)),
                ))
            }
        }
    })
}

/// Prints all campaigns in the namespace.
fn list(cluster: &KubernetesArguments) -> Result<Exit, CommandError> {
    crate::block_on(async {
        let cluster = KubernetesCluster::connect(cluster).await?;
        let mut text = row("NAME", "PARTS", "RUNNING", "STATE");
        for job in Jobs::on(&cluster).all().await? {
            text += &summary(&job);
        }
        output::print(&text)?;
        Ok(Exit::Pass)
    })
}

/// Prints one campaign, what delays it, and its command.
fn view(name: &str, cluster: &KubernetesArguments) -> Result<Exit, CommandError> {
    crate::block_on(async {
        let cluster = KubernetesCluster::connect(cluster).await?;
        let jobs = Jobs::on(&cluster);
        let (job, campaign) = jobs.existing(name).await?;
        let mut text = row("NAME", "PARTS", "RUNNING", "STATE") + &summary(&job);
        if let Some(campaign) = campaign {
            let _ = write!(text, "\nversion   {}\nruns      {}\n", campaign.version, campaign.runs);
            let _ = writeln!(text, "command   faultline {}", campaign.arguments.join(" "));
        }
        if condition(&job, "Failed").is_none()
            && let Some(delay) = jobs.delay(&job).await?
        {
            let _ = writeln!(text, "waiting   {}", delay.why);
        }
        output::print(&text)?;
        Ok(Exit::Pass)
    })
}

/// Deletes a campaign.
fn cancel(name: &str, cluster: &KubernetesArguments) -> Result<Exit, CommandError> {
    crate::block_on(async {
        let cluster = KubernetesCluster::connect(cluster).await?;
        let jobs = Jobs::on(&cluster);
        jobs.existing(name).await?;
        jobs.delete(name).await?;
        output::print(&format!("cancelled {name}\n"))?;
        Ok(Exit::Pass)
    })
}

fn row(name: &str, parts: &str, running: &str, state: &str) -> String {
    format!("{name:<44}  {parts:>12}  {running:>7}  {state}\n")
}

fn summary(job: &Job) -> String {
    let spec = job.spec.clone().unwrap_or_default();
    let status = job.status.clone().unwrap_or_default();
    let state = match (condition(job, "Failed"), condition(job, "Complete")) {
        (Some(message), _) => format!("failed: {message}"),
        (None, Some(_)) => "done".to_owned(),
        _ if spec.suspend == Some(true) => "queued".to_owned(),
        _ => "running".to_owned(),
    };
    let parts = format!("{}/{}", status.succeeded.unwrap_or(0), spec.completions.unwrap_or(0));
    row(&job.name_any(), &parts, &status.active.unwrap_or(0).to_string(), &state)
}

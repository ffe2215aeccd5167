//! `faultline-operator`: manages the federations of a Kubernetes cluster.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use faultline_operator::election::{Election, Timing};
use faultline_operator::install::METRICS_PORT;
use faultline_operator::metrics::{self, Metrics};
use faultline_operator::{Context, Settings, client, controller};
use kube::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Manage the federations of a Kubernetes cluster: create their pods, tell their supervisors where the pods are, and
/// report the state of each run in its resource.
///
/// If several operators run, only the one that holds the lease is active. The others wait for the lease.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Manage only the federations in this namespace. Default: all namespaces.
    #[arg(long, env = "FAULTLINE_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Serve /metrics and /healthz at this address. [::] stands for all addresses, including those of IPv4.
    #[arg(long, value_name = "ADDR", default_value_t = (Ipv6Addr::UNSPECIFIED, METRICS_PORT).into())]
    metrics: SocketAddr,
    /// Hold the lease under this name.
    #[arg(long, env = "POD_NAME", value_name = "NAME", default_value = "faultline-operator")]
    identity: String,
}

/// Ends the program if a task panics, so that the container is restarted. The other tasks would otherwise wait for it.
fn abort_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        std::process::abort();
    }));
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    abort_on_panic();
    let arguments = Arguments::parse();
    // Custom protocols are part of the image of a federation's pods; the operator does not contain them.
    faultline_api::resource::custom::accept_unknown();
    let colours = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let filter = std::env::var("FAULTLINE_LOG").ok().and_then(|it| it.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let shown = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(io::stderr);
    tracing_subscriber::registry().with(shown.with_filter(filter)).init();
    match work(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "the operator failed");
            ExitCode::FAILURE
        }
    }
}

async fn work(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { settings, namespace, metrics: address, identity } = arguments;
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| "another TLS provider is already installed")?;
    let metrics = Arc::new(Metrics::default());
    let client = client::build(Config::infer().await?, Arc::clone(&metrics), client::RESPONSE)?;
    let page = tokio::spawn(metrics::serve(address, Arc::clone(&metrics)));

    let (mut leads, lease) = Election::new(client.clone(), identity.clone(), Timing::default()).start();
    let stopped = stopped()?;

    tracing::info!(identity, "waiting for the lease");
    if !changes_to(&mut leads, true, &stopped).await {
        return Ok(());
    }
    tracing::info!(namespace = namespace.as_deref().unwrap_or("(all)"), "managing federations");
    metrics.lead(true);
    let context = Arc::new(Context::new(client, settings, identity, Arc::clone(&metrics)));
    let over = {
        let (mut leads, stopped) = (leads.clone(), stopped.clone());
        let metrics = Arc::clone(&metrics);
        // Once the lease is lost, another operator becomes active, and this one exits.
        async move {
            changes_to(&mut leads, false, &stopped).await;
            metrics.lead(false);
        }
    };
    tokio::select! {
        () = controller::run(context, namespace.as_deref(), over) => {}
        served = page => served??,
    }
    let is_stopped = *stopped.borrow();
    // Releases the lease. If it is lost, the operator exits without another request.
    if *leads.borrow() {
        drop(leads);
        lease.await?;
    }
    if is_stopped { Ok(()) } else { Err("the lease was lost, or a watch ended".into()) }
}

/// Returns a receiver whose value becomes `true` once a signal asks the operator to stop.
fn stopped() -> Result<watch::Receiver<bool>, Failure> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
        // Keeps the sender until the process exits, so that the channel is never closed.
        std::future::pending::<()>().await;
    });
    Ok(stopped)
}

/// Waits until this operator holds the lease or, if `wanted` is `false`, no longer holds it. Returns `false`
/// if the operator must stop first.
async fn changes_to(
    leads: &mut watch::Receiver<bool>,
    wanted: bool,
    stopped: &watch::Receiver<bool>,
) -> bool {
    let mut stopped = stopped.clone();
    tokio::select! {
        changed = leads.wait_for(|it| *it == wanted) => changed.is_ok(),
        _ = stopped.wait_for(|it| *it) => false,
    }
}

//! The federation of an exploration: clusters of equal size under a protocol. Under a protocol for task-based programs,
//! it runs the smallest useful program. Periods and latencies are fixed, and all other values are defaults.

use faultline_api::Federation;
use faultline_api::quantity::{Duration, Period};
use faultline_api::resource::{
    ApplicationSpec, ClusterSpec, Family, FederationSpec, Fibonacci, Jacobi, Link, Links, PingPong,
    ProtocolSpec, ReplicateTo, SharedOptions, Stealing,
};
use faultline_api::validate::one_of;
use faultline_core::Span;

/// The letters that name an exploration's clusters.
const NAMES: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// The delays between checkpoints and between garbage collections, chosen so that deadlines expire in this order:
/// unforced checkpoints, collections, repeated requests.
const CHECKPOINT_EVERY: Span = Span::from_secs(10);
const COLLECT_EVERY: Span = Span::from_secs(15);
/// The latency of the links. Protocols repeat requests after four times the latency of the slowest link.
const LATENCY: Span = Span::from_secs(5);
/// How long an idle process waits after a refusal before it asks for tasks again.
const PATIENCE: Span = Span::from_secs(5);

/// The reason why a federation cannot be explored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplored {
    /// No protocol that can be explored has this name.
    #[error("`{0}` is not a protocol that can be explored; {instead}", instead = one_of(.0, &names().collect::<Vec<_>>()))]
    UnknownProtocol(String),
    /// The number of clusters or of ranks is out of range.
    #[error(
        "an exploration needs 1 to 26 clusters of at least one node, and at least two nodes in total (found clusters: \
         {clusters}, nodes per cluster: {nodes})"
    )]
    Clusters {
        /// The number of clusters.
        clusters: u32,
        /// The number of ranks of each cluster.
        nodes: u32,
    },
}

/// Iterates over the names of the protocols that can be explored: all that protect an application.
#[expect(clippy::missing_panics_doc, reason = "every name denotes a protocol")]
pub fn names() -> impl Iterator<Item = &'static str> {
    ProtocolSpec::names().filter(|name| {
        let protocol =
            ProtocolSpec::named(name, SharedOptions::default()).expect("the name denotes a protocol");
        protocol.family().is_some()
    })
}

/// Returns a federation of `clusters` clusters with `nodes` ranks each. Each part has one replica: in another cluster,
/// or in the same cluster if there is no other. Under a protocol for task-based programs, the federation computes a
/// small Fibonacci number, or, if the protocol plans tasks, two iterations of Jacobi's method with one block for each
/// rank.
///
/// # Errors
///
/// Fails if no protocol that can be explored has this name, or if the number of clusters or ranks is out of range.
pub fn federation(protocol: &str, clusters: u32, nodes: u32) -> Result<Federation, Unexplored> {
    if clusters as usize > NAMES.len() || nodes == 0 || clusters.saturating_mul(nodes) < 2 {
        return Err(Unexplored::Clusters { clusters, nodes });
    }
    let stated = SharedOptions {
        checkpoint_every: Some(Period(Some(CHECKPOINT_EVERY))),
        collect_every: Some(Period(Some(COLLECT_EVERY))),
        replicas: Some(1),
        replicate_to: Some(match clusters {
            1 => ReplicateTo::SameCluster,
            _ => ReplicateTo::OtherCluster,
        }),
        ..SharedOptions::default()
    };
    let options = names().any(|it| it == protocol).then(|| ProtocolSpec::named(protocol, stated)).flatten();
    let protocol = options.ok_or_else(|| Unexplored::UnknownProtocol(protocol.to_owned()))?;
    let is_stealing = protocol.family() == Some(Family::Tasks) && !protocol.plans();
    let application = match protocol.family() {
        Some(Family::Tasks) if protocol.plans() => ApplicationSpec::Jacobi(Jacobi {
            rows: Some(clusters.saturating_mul(nodes)),
            columns: Some(1),
            size: Some(1),
            iterations: Some(2),
            test_every: Some(0),
            ..Jacobi::default()
        }),
        Some(Family::Tasks) => {
            ApplicationSpec::Fibonacci(Fibonacci { n: Some(2), threshold: Some(1), ..Fibonacci::default() })
        }
        _ => ApplicationSpec::PingPong(PingPong::default()),
    };
    let stealing = Stealing { patience: Some(Duration(PATIENCE)), cluster_first: Some(0.0) };
    let link = || Some(Link { latency: Some(Duration(LATENCY)), ..Link::default() });
    let names = NAMES[..clusters as usize].iter();
    let clusters = names.map(|&name| ClusterSpec::new(&char::from(name).to_string(), nodes)).collect();
    let spec = FederationSpec {
        seed: Some(0),
        links: Some(Links { within: link(), between: link(), pairs: Vec::new() }),
        stealing: is_stealing.then_some(stealing),
        ..FederationSpec::new(clusters, protocol, application)
    };
    Ok(Federation::new(&format!("explore-{}", spec.protocol.name().to_lowercase()), spec))
}

//! The federation of an exploration: clusters of equal size under a protocol. All other values are defaults.

use faultline_api::Federation;
use faultline_api::quantity::{Duration, Period};
use faultline_api::resource::{
    Application, Cluster, Family, FederationSpec, Link, Links, PingPong, Protocol, ReplicateTo, SharedOptions,
};
use faultline_core::Span;

/// Clusters of an exploration are named by letters.
const NAMES: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
/// Chosen so that deadlines expire in this order: unforced checkpoints, collections, repeated requests.
const CHECKPOINT_EVERY: Span = Span::from_secs(10);
const COLLECT_EVERY: Span = Span::from_secs(15);
/// Protocols repeat requests after four times the delay of the slowest link.
const LATENCY: Span = Span::from_secs(300);

/// The reason why a federation cannot be explored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplored {
    /// No protocol has this name.
    #[error("`{0}` is not a protocol that can be explored; use one of: {all}", all = names().collect::<Vec<_>>().join(", "))]
    UnknownProtocol(String),
    /// The number of clusters or of ranks is out of range.
    #[error(
        "an exploration has 1 to 26 clusters of at least one node, and two nodes or more (found {clusters} of {nodes})"
    )]
    Clusters {
        /// Number of clusters.
        clusters: u32,
        /// Ranks of each cluster.
        nodes: u32,
    },
}

/// Iterates over the names of the protocols that can be explored: those for programs that exchange messages.
#[expect(clippy::missing_panics_doc, reason = "every name denotes a protocol")]
pub fn names() -> impl Iterator<Item = &'static str> {
    Protocol::names().filter(|name| {
        let protocol = Protocol::named(name, SharedOptions::default()).expect("the name denotes a protocol");
        protocol.family() == Some(Family::Messages)
    })
}

/// Returns a federation of `clusters` clusters with `nodes` ranks each. Each part has one replica: in another
/// cluster, or in the same cluster if there is no other.
///
/// # Errors
///
/// Fails if no protocol for programs that exchange messages has this name, or if the number of clusters or
/// ranks is out of range.
pub fn federation(protocol: &str, clusters: u32, nodes: u32) -> Result<Federation, Unexplored> {
    if clusters as usize > NAMES.len() || nodes == 0 || clusters * nodes < 2 {
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
    let unknown = || Unexplored::UnknownProtocol(protocol.to_owned());
    let options = names().any(|it| it == protocol).then(|| Protocol::named(protocol, stated)).flatten();
    let link = || Some(Link { latency: Some(Duration(LATENCY)), ..Link::default() });
    let spec = FederationSpec {
        seed: Some(0),
        clusters: NAMES[..clusters as usize]
            .iter()
            .map(|&name| Cluster::new(&char::from(name).to_string(), nodes))
            .collect(),
        links: Some(Links { within: link(), between: link(), pairs: Vec::new() }),
        storage: None,
        protocol: options.ok_or_else(unknown)?,
        application: Application::PingPong(PingPong::default()),
        stealing: None,
        schedule: None,
        failures: None,
        faults: Vec::new(),
        deadline: None,
        kubernetes: None,
        simulator: None,
        pause: false,
    };
    Ok(Federation::new(&format!("explore-{}", protocol.to_lowercase()), spec))
}

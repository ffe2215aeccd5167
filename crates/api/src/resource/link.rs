//! Links: one class within clusters, one between them, and exceptions per pair and direction.

use std::collections::BTreeMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bandwidth, Duration, Loss};
use crate::resource::Cluster;

/// What the network between processes is like.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Links {
    /// Between two nodes of the same cluster. Default preset `san`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Link>,
    /// Between nodes of different clusters, and to processes that stand outside every cluster. Default preset `wan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Link>,
    /// Exceptions, each for one direction. What an exception does not state, it has from its class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub pairs: Vec<Pair>,
}

/// Properties of a link, one direction. What is not stated comes from the preset.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// A known kind of network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// One-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
    /// Half-width of a uniform distribution around the delay; at most the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// What passes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Packets lost; the transport sends them again, so that a loss appears as delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// The link from one cluster to another, or within one when both ends are the same.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pair {
    /// Sending side.
    #[schemars(length(max = 40))]
    pub from: String,
    /// Receiving side.
    #[schemars(length(max = 40))]
    pub to: String,
    /// A known kind of network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// One-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
    /// Half-width of a uniform distribution around the delay; at most the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// What passes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Packets lost; the transport sends them again, so that a loss appears as delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

/// A known kind of network.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Preset {
    /// Nothing is emulated: as fast as the backend is.
    None,
    /// A system-area network, "Myrinet like": 10us, 80MB (HC3I, section 5.2).
    San,
    /// A local network, "Ethernet like": 150us, 100MB (HC3I, section 5.2).
    Lan,
    /// A wide-area network: 10ms with 500us of jitter, 100Mbit.
    Wan,
}

impl Preset {
    /// What the preset stands for.
    pub const fn properties(self) -> LinkProperties {
        let (latency, jitter, bandwidth) = match self {
            Preset::None => (Span::ZERO, Span::ZERO, 0),
            Preset::San => (Span::from_micros(10), Span::ZERO, 80_000_000),
            Preset::Lan => (Span::from_micros(150), Span::ZERO, 100_000_000),
            Preset::Wan => (Span::from_millis(10), Span::from_micros(500), 12_500_000),
        };
        LinkProperties { latency, jitter, bandwidth, loss_ppm: 0 }
    }
}

impl Link {
    /// The properties, with what is not stated taken from `base`, or from the preset when there is one.
    ///
    /// A stated latency takes the jitter of `base` with it: jitter that is not stated is never greater than the latency.
    pub fn over(&self, base: LinkProperties) -> LinkProperties {
        let base = self.preset.map_or(base, Preset::properties);
        let latency = self.latency.map_or(base.latency, |it| it.0);
        LinkProperties {
            latency,
            jitter: self.jitter.map_or(base.jitter.min(latency), |it| it.0),
            bandwidth: self.bandwidth.map_or(base.bandwidth, Bandwidth::bytes_per_second),
            loss_ppm: self.loss.map_or(base.loss_ppm, |it| it.ppm),
        }
    }
}

impl Pair {
    /// The properties that the exception states.
    pub fn link(&self) -> Link {
        let Pair { preset, latency, jitter, bandwidth, loss, .. } = *self;
        Link { preset, latency, jitter, bandwidth, loss }
    }
}

impl Links {
    /// Properties within a cluster, exceptions aside.
    pub fn within(&self) -> LinkProperties {
        self.within.unwrap_or_default().over(Preset::San.properties())
    }

    /// Properties between clusters, exceptions aside.
    pub fn between(&self) -> LinkProperties {
        // A link of one's own starts from nothing, not from the default's delay and bandwidth.
        self.between.map_or(Preset::Wan.properties(), |it| it.over(Preset::None.properties()))
    }

    /// The properties of every link between these clusters, and of those to and from processes outside them, which are
    /// reached, and reach each other, as other clusters are.
    pub fn expand(&self, clusters: &[Cluster]) -> BTreeMap<(ClusterId, ClusterId), LinkProperties> {
        let clusters = || (0..).zip(clusters).map(|(id, cluster)| (ClusterId(id), cluster.name.as_str()));
        let mut properties = BTreeMap::from([((ClusterId::OUTSIDE, ClusterId::OUTSIDE), self.between())]);
        for (from, sender) in clusters() {
            properties.insert((from, ClusterId::OUTSIDE), self.between());
            properties.insert((ClusterId::OUTSIDE, from), self.between());
            for (to, receiver) in clusters() {
                properties.insert((from, to), self.properties(sender, receiver));
            }
        }
        properties
    }

    /// Properties from one cluster to another, or within one.
    pub fn properties(&self, from: &str, to: &str) -> LinkProperties {
        let class = if from == to { self.within() } else { self.between() };
        match self.pairs.iter().find(|pair| pair.from == from && pair.to == to) {
            Some(pair) => pair.link().over(class),
            None => class,
        }
    }
}

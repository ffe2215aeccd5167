//! Links: one class within clusters, one between them, and exceptions per pair and direction.

use std::collections::BTreeMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::rules;
use crate::quantity::{Bandwidth, Duration, Loss};
use crate::resource::ClusterSpec;

/// Properties of the network between processes.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [
    rules::jitter_within_latency("within"),
    rules::jitter_within_latency("between"),
    rules::jitter_within_latency_of_pairs(),
]))]
pub struct Links {
    /// Links between nodes of the same cluster. Default: the preset `san`.
    pub within: Option<Link>,
    /// Links between nodes of different clusters, and to and from processes outside the clusters. Default: the preset
    /// `wan`. If this field is set, properties that it omits come from its preset or, without one, from `none`.
    pub between: Option<Link>,
    /// Exceptions, each for one direction. Properties that an exception does not set come from its preset or, without
    /// one, from `within` or `between`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub pairs: Vec<Pair>,
}

/// Properties of a link in one direction. Properties that are not set come from the preset; without a preset, from
/// `san` within clusters and from `none` between clusters.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    /// Predefined properties of a kind of network.
    pub preset: Option<Preset>,
    /// One-way delay.
    pub latency: Option<Duration>,
    /// Half-width of the uniform distribution of the delay. At most the latency.
    pub jitter: Option<Duration>,
    /// Bandwidth, as an amount of data per second.
    pub bandwidth: Option<Bandwidth>,
    /// Share of packets lost. The transport retransmits them, so losses appear as delays.
    pub loss: Option<Loss>,
}

/// Properties of the link from one cluster to another, or within a cluster if both are the same.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pair {
    /// The sending cluster.
    #[schemars(length(max = 40))]
    pub from: String,
    /// The receiving cluster.
    #[schemars(length(max = 40))]
    pub to: String,
    /// Predefined properties of a kind of network.
    pub preset: Option<Preset>,
    /// One-way delay.
    pub latency: Option<Duration>,
    /// Half-width of the uniform distribution of the delay. At most the latency.
    pub jitter: Option<Duration>,
    /// Bandwidth, as an amount of data per second.
    pub bandwidth: Option<Bandwidth>,
    /// Share of packets lost. The transport retransmits them, so losses appear as delays.
    pub loss: Option<Loss>,
}

/// Predefined properties of a kind of network.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Preset {
    /// No emulation: as fast as the backend allows.
    None,
    /// A system-area network, "Myrinet like": 10us, 80MB (HC3I, section 5.2).
    San,
    /// A local network, "Ethernet like": 150us, 100MB (HC3I, section 5.2).
    Lan,
    /// A wide-area network: 10ms with 500us of jitter, 100Mbit.
    Wan,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [Preset::None, Preset::San, Preset::Lan, Preset::Wan];

    /// Returns the properties that the preset represents.
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
    /// Returns the properties. Those that are not set come from the preset, or from `base` if there is no
    /// preset.
    ///
    /// If a latency is set without a jitter, the jitter of the preset or of `base` is limited to that latency.
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
    /// Returns the properties that the exception sets.
    pub fn link(&self) -> Link {
        let Pair { preset, latency, jitter, bandwidth, loss, .. } = *self;
        Link { preset, latency, jitter, bandwidth, loss }
    }
}

impl Links {
    /// Returns links of which nothing is requested.
    pub fn not_emulated() -> Links {
        let none = Some(Link { preset: Some(Preset::None), ..Link::default() });
        Links { within: none, between: none, pairs: Vec::new() }
    }

    /// Returns the properties of links within a cluster, regardless of exceptions in `pairs`.
    pub fn within(&self) -> LinkProperties {
        self.within.unwrap_or_default().over(Preset::San.properties())
    }

    /// Returns the properties of links between clusters, regardless of exceptions in `pairs`.
    pub fn between(&self) -> LinkProperties {
        // If the file describes these links, properties that it omits come from `none`, not from the default preset.
        self.between.map_or(Preset::Wan.properties(), |it| it.over(Preset::None.properties()))
    }

    /// Returns the properties of all links within and between these clusters, and of the links to, from and
    /// between processes outside the clusters. The latter have the properties of links between clusters; no
    /// exceptions apply to them.
    pub fn expand(&self, clusters: &[ClusterSpec]) -> BTreeMap<(ClusterId, ClusterId), LinkProperties> {
        let ids = || (0..clusters.len() as u16).map(ClusterId);
        let class =
            |from, to| if from == to && from != ClusterId::OUTSIDE { self.within() } else { self.between() };
        let ends = || ids().chain([ClusterId::OUTSIDE]);
        let mut properties: BTreeMap<_, _> =
            ends().flat_map(|from| ends().map(move |to| ((from, to), class(from, to)))).collect();
        let by_name: BTreeMap<&str, ClusterId> =
            clusters.iter().map(|it| it.name.as_str()).zip(ids()).collect();
        for pair in &self.pairs {
            let id = |name: &String| by_name.get(name.as_str()).copied();
            if let (Some(from), Some(to)) = (id(&pair.from), id(&pair.to)) {
                properties.insert((from, to), pair.link().over(class(from, to)));
            }
        }
        properties
    }

    /// Returns the properties of the link from one cluster to another, or within a cluster if both are the
    /// same.
    pub fn properties(&self, from: &str, to: &str) -> LinkProperties {
        let class = if from == to { self.within() } else { self.between() };
        match self.pairs.iter().find(|pair| pair.from == from && pair.to == to) {
            Some(pair) => pair.link().over(class),
            None => class,
        }
    }
}

//! Requested properties of the links of a federation.

use std::collections::BTreeMap;

use faultline_core::ClusterId;
use faultline_core::fault::LinkProperties;
use serde::{Deserialize, Serialize};

/// Requested properties of links. Links without a request are not emulated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The requests, by sending and receiving cluster.
    pub requested: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
}

impl Links {
    /// Returns the requested properties of the link from one cluster to another, or of the link inside one cluster.
    pub fn between(&self, from: ClusterId, to: ClusterId) -> LinkProperties {
        self.requested.get(&(from, to)).copied().unwrap_or_default()
    }
}

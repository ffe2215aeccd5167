//! What the links of a federation are to be like.

use std::collections::BTreeMap;

use faultline_core::ClusterId;
use faultline_core::fault::LinkProperties;
use serde::{Deserialize, Serialize};

/// Requested properties by (sending cluster, receiving cluster). What is not named is left as the machine has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The requests.
    pub requested: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
}

impl Links {
    /// Of one direction between two clusters, or within one.
    pub fn between(&self, from: ClusterId, to: ClusterId) -> LinkProperties {
        self.requested.get(&(from, to)).copied().unwrap_or_default()
    }
}

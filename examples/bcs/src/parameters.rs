//! The parameters of the protocol in a federation file.

use faultline::CustomProtocol;
use faultline::core::Span;
use faultline::quantity::Period;
use faultline::resource::FederationSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bcs;

/// Options of BCS.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parameters {
    /// Delay between unforced checkpoints of a process. A forced checkpoint restarts the timer. Default 2s.
    pub checkpoint_every: Period,
    /// A rule to omit, to show that the checker detects the violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<Defect>,
}

/// Rules that can be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Defect {
    /// A message is delivered before the checkpoint that it forces.
    NoForcing,
    /// Messages from before a recovery are delivered after it.
    StaleAccepted,
    /// A re-sent message is delivered again.
    DuplicatesAccepted,
    /// A checkpoint does not contain the messages that its process had sent.
    LogNotSaved,
    /// Every process restores its newest checkpoint, whatever its index.
    NewestRestored,
    /// A process agrees to a line before its decision to roll back is durable.
    DecisionNotDurable,
    /// A message that arrives while the application is held is delivered, which panics.
    DeliversWhileHeld,
    /// A timeout is requested for a time in the past, so that virtual time no longer advances.
    TimeoutInThePast,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { checkpoint_every: Period(Some(Span::from_secs(2))), defect: None }
    }
}

impl CustomProtocol for Bcs {
    const NAME: &'static str = "bcs";
    type Parameters = Parameters;

    fn configure(parameters: Parameters, _: &FederationSpec) -> Result<Parameters, String> {
        Ok(parameters)
    }
}

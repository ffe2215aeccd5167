//! The parameters of the protocol in a federation file.

use faultline::CustomProtocol;
use faultline::core::Span;
use faultline::quantity::Period;
use faultline::resource::{Demand, FederationSpec, Logs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SenderBased;

/// Options for sender-based logging.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parameters {
    /// Delay between the checkpoints of a process. Default 2s.
    pub checkpoint_every: Period,
    /// A rule to omit, to show that the checker detects the violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<Defect>,
}

/// Rules that can be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Defect {
    /// A process sends before the receive sequence numbers of the messages that it has delivered are in the logs.
    SendsAtOnce,
    /// A recovering process receives the logged messages sender by sender.
    OrderIgnored,
    /// A recovering process receives the logged messages before it has re-sent the messages that they may answer.
    RepeatedAtOnce,
    /// A re-sent message is delivered again.
    DuplicatesAccepted,
    /// A checkpoint does not contain the messages that its process had sent.
    LogNotSaved,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { checkpoint_every: Period(Some(Span::from_secs(2))), defect: None }
    }
}

impl CustomProtocol for SenderBased {
    const NAME: &'static str = "sender-based";
    const DEMAND: Demand = Demand::SameOrder;
    const LOGS: Logs = Logs::Everything;
    type Parameters = Parameters;

    fn configure(parameters: Parameters, _: &FederationSpec) -> Result<Parameters, String> {
        Ok(parameters)
    }
}

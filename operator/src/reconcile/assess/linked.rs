//! The condition `Linked`: whether the links have the requested delays, and what emulates them.

use faultline_api::resource::Emulation;
use faultline_api::supervision::{RunPhase, RunStatus, Shaping};
use faultline_client::status::condition;

use super::Report;
use crate::reconcile::dereference::LinkSummary;
use crate::reconcile::freeze::Frozen;

impl Report<'_> {
    pub(super) fn links(&mut self, frozen: &Frozen, said: &RunStatus, links: &LinkSummary) {
        let LinkSummary { measured, as_requested, unmeasured, not_judged, worst } = links;
        let Emulated { word, reason, sentence } = emulated(said.shaping.as_ref());
        let early = matches!(said.phase, RunPhase::Gathering | RunPhase::Measuring) && *measured == 0;
        // The pods report only at their start what their kernels support.
        let kubernetes = frozen.federation.spec.kubernetes.as_ref();
        let is_open = early && kubernetes.is_some_and(|it| it.links == Some(Emulation::Tc));
        self.status.shaping = (!is_open).then(|| word.into());
        let mut message =
            format!("{sentence}; the delay is as requested on {as_requested} of {measured} measured links");
        if let Some((worst, off)) = worst {
            let link = match worst.from == worst.to {
                true => format!("within {}", worst.from),
                false => format!("from {} to {}", worst.from, worst.to),
            };
            message += &format!(
                ", and deviates most on the link {link}, by {off} us from the requested {} us",
                worst.requested_micros
            );
        }
        if *unmeasured > 0 && *measured > 0 {
            message += &format!("; links that changed and have not been measured yet: {unmeasured}");
        }
        let (status, reason) = match () {
            () if *measured == 0 && *not_judged > 0 => ("True", "NothingRequested"),
            () if *measured == 0 => ("Unknown", "NotMeasured"),
            () if as_requested == measured => ("True", reason),
            () => ("False", "NotAsRequested"),
        };
        if reason == "NothingRequested" {
            message = "no delay is requested of any link, so none is judged".into();
        }
        if status == "Unknown" {
            message = if early {
                "the links will be measured once all processes are ready"
            } else {
                "no link was measured"
            }
            .into();
            if said.shaping.is_some() {
                message += &format!("; {sentence}");
            }
        }
        if self.condition(condition::LINKED, status, reason, &message) && status == "False" {
            self.add_event(condition::LINKED, "LinksNotAsRequested", &message, true);
        }
    }
}

/// How links are emulated.
struct Emulated {
    /// Name in the status.
    word: &'static str,
    /// Reason in the condition.
    reason: &'static str,
    sentence: String,
}

/// Determines how the links are emulated, from the features that the kernels support.
fn emulated(shaping: Option<&Shaping>) -> Emulated {
    const IN_NODE: &str = "delay lines in the nodes emulate the links";
    let Some(Shaping { places, rates, delays, lacks }) = shaping else {
        return Emulated { word: "inNode", reason: "InNode", sentence: IN_NODE.into() };
    };
    let lacks = lacks.join(", ");
    if *rates == 0 {
        let sentence = format!("{IN_NODE}, because the kernels lack {lacks}");
        Emulated { word: "inNode", reason: "InNode", sentence }
    } else if delays == places {
        let sentence = "traffic control in the pods emulates the links".into();
        Emulated { word: "tc", reason: "TrafficControl", sentence }
    } else {
        let limits = if rates == places {
            "traffic control in the pods limits bandwidth".to_owned()
        } else {
            format!("traffic control limits bandwidth in {rates} of {places} pods")
        };
        let sentence = format!(
            "{limits}, and delay lines in the nodes emulate the rest, because the kernels lack {lacks}"
        );
        Emulated { word: "tc+inNode", reason: "TrafficControlAndInNode", sentence }
    }
}

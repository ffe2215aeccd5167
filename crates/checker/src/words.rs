//! Wording that the sentences of several properties share.

use faultline_core::{ClusterId, Theft};
use faultline_history::Context;

/// Formats how often something happened: `once`, `twice` or `3 times`.
pub fn how_often(times: u64) -> String {
    match times {
        1 => "once".into(),
        2 => "twice".into(),
        times => format!("{times} times"),
    }
}

/// Returns a number with its noun, such as `1 message` or `2 processes`.
pub fn count(number: u64, thing: &str) -> String {
    match (number, thing) {
        (1, thing) => format!("1 {thing}"),
        (_, "process") => format!("{number} processes"),
        (_, thing) => format!("{number} {thing}s"),
    }
}

/// Names a link, or the network within a cluster.
pub(crate) fn link(from: ClusterId, to: ClusterId, names: &Context) -> String {
    match from == to {
        true => format!("the link within {}", names.cluster(from)),
        false => format!("the link from {} to {}", names.cluster(from), names.cluster(to)),
    }
}

/// Names a theft, or the program itself, which no process stole.
pub(crate) fn theft_name(theft: Theft, names: &Context) -> String {
    if theft == Theft::NONE {
        return "the program itself".into();
    }
    let (victim, thief) = (names.process(theft.victim), names.process(theft.thief));
    format!("theft {} by {thief} in {}, from {victim}", theft.number, theft.life)
}

/// The remedy if links or the times of faults differ from the request, which happens on a busy machine.
pub(crate) fn idle_machine(names: &Context) -> &'static str {
    match names.in_pods {
        // The programs of a system run only in real time.
        false if names.system.is_some() => "the machine was busy: repeat the run on an idle one",
        true => "the machines were busy: repeat the run on idle ones, or use `--backend simulate`",
        false => "the machine was busy: repeat the run on an idle one, or use `--backend simulate`",
    }
}

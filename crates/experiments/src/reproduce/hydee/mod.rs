//! The HydEE paper's evaluation (section V), repeated: ping-pong, the NAS kernels without failures, and how far a failure
//! spreads.
//!
//! | module | holds |
//! | --- | --- |
//! | [`ping_pong`] | latency and bandwidth on real processes |
//! | `overhead` | the kernels without failures |
//! | `containment` | the kernels with a failure, beside global checkpoints |

mod containment;
mod overhead;
pub mod ping_pong;

use std::fmt::Write;
use std::sync::atomic::AtomicBool;

use faultline_api::Federation;
use faultline_clustering::patterns::Pattern;
use faultline_clustering::{Division, Wish, find};

use super::{Experiment, Interrupted, Paper, Reproduction, Settings, all};

/// The paper.
pub const PAPER: Paper = Paper {
    title: "HydEE, repeated",
    heading: "HydEE: Failure Containment without Event Logging for Large Scale Send-Deterministic MPI Applications, repeated",
    meta: "A. Guermouche, T. Ropars, M. Snir, F. Cappello, IPDPS 2012: the evaluation (section V)",
    prose: &[
        "What is real: the protocol is the same code everywhere; ping-pong is played by two processes over TCP on this \
         machine; in every simulated run each message was sent, logged, delivered and checked, and every value depends on \
         what was received before.",
        "What is not: the kernels compute nothing, time passes instead; they send what the kernels send to whom and in which \
         proportion, not in which length. In the simulator links have a latency and a bandwidth, and the handling of a message, \
         its copy into a log included, takes no time: what that costs is only in the numbers of ping-pong. MPICH2, \
         Myrinet and InfiniPath of 2012 are not here.",
    ],
    command: "faultline reproduce hydee",
};

/// Repeats the part of the evaluation that is simulated. `tell` is told before each setting what will be run, and after
/// how many settings.
pub fn reproduce(
    settings: Settings,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Reproduction, Interrupted> {
    const ALL: [Experiment; 2] = [overhead::overhead, containment::containment];
    all(&PAPER, &ALL, settings, interrupted, tell)
}

/// A kernel on processes in clusters, as it is run.
struct Kernel {
    pattern: Pattern,
    division: Division,
    iterations: u32,
}

/// What all processes compute in one run, in milliseconds.
const COMPUTING_MS: u32 = 3_000;

impl Kernel {
    /// In the clusters that are found for it.
    fn new(pattern: Pattern, processes: usize, quick: bool) -> Kernel {
        let found = find(&pattern.graph(processes), Wish::default());
        let division = found.front[found.chosen].clone();
        // Everybody to everybody is many messages: fewer iterations, each longer.
        let iterations = match pattern {
            Pattern::Ft if processes > 256 => 1,
            Pattern::Ft if quick => 2,
            Pattern::Ft => 5,
            _ if quick => 5,
            _ => 20,
        };
        Kernel { pattern, division, iterations }
    }

    /// The ranks of each cluster.
    fn clusters(&self) -> Vec<Vec<usize>> {
        let mut clusters = vec![Vec::new(); self.division.clusters];
        for (rank, cluster) in self.division.cluster_of.iter().enumerate() {
            clusters[*cluster as usize].push(rank);
        }
        clusters
    }

    /// As a federation under a protocol, with faults; both as they stand in a file.
    fn federation(&self, protocol: &str, faults: &str) -> Federation {
        let clusters = self.clusters();
        let mut text = String::from(
            "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: { name: kernel }\nspec:\n  clusters:\n",
        );
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            text.write_fmt(arguments).expect("a string takes everything")
        };
        for (number, members) in clusters.iter().enumerate() {
            line(format_args!("    - {{ name: c{number}, nodes: {} }}\n", members.len()));
        }
        let order: Vec<String> = clusters.concat().iter().map(usize::to_string).collect();
        let (iterations, step) = (self.iterations, COMPUTING_MS / self.iterations);
        // Latency and bandwidth of the paper's network, Myri-10G; a fifth of a second to notice a failure and begin again.
        line(format_args!(
            "  links: {{ within: {{ latency: 3us, bandwidth: 10Gbit }}, between: {{ latency: 3us, bandwidth: 10Gbit }} }}
  protocol: {protocol}
  application:
    nas: {{ pattern: {}, iterations: {iterations}, stepTime: {step}ms, message: 2KiB, state: 1MiB, order: [{}] }}
  failures: {{ detectAfter: 1s, restartAfter: 200ms }}
  faults: {faults}
  deadline: 10m
",
            self.pattern.name().to_lowercase(),
            order.join(", "),
        ));
        let parsed = faultline_api::parse("kernel", text.as_bytes());
        parsed.unwrap_or_else(|it| panic!("the experiment's federation fits: {it}: {:?}", it.complaints()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;

    #[test]
    fn the_simulated_part_is_repeated_and_every_run_passes() {
        let settings = Settings { seeds: 1, quick: true, jobs: NonZero::<usize>::MIN };
        let done = reproduce(settings, &AtomicBool::new(false), &mut |_, _| {}).expect("nobody interrupts");
        assert_eq!(done.judged.wrong, Vec::<String>::new());
        let ids: Vec<&str> = done.sections.iter().map(|it| it.id).collect();
        assert_eq!(ids, ["overhead", "containment"]);
        let contained = &done.sections[1].findings[0];
        assert_eq!(contained.agreement, super::super::Agreement::Agrees, "{contained:?}");
        let page = super::super::page::render(&done);
        assert!(page.contains(PAPER.heading) && !page.contains("NaN"));
    }
}

//! The dashboard that compares runs.

use super::run::{FAULTS, FEDERATION, NAMESPACE, PROTOCOL};
use super::table::{BLUE, Dashboard, GREEN, ORANGE, PLAIN, Panel, RED};

pub(super) const COMPARE: Dashboard = Dashboard {
    file: "compare",
    uid: "faultline-compare",
    title: "Faultline: runs compared",
    variables: &[NAMESPACE, FEDERATION, PROTOCOL],
    annotations: &[FAULTS],
    rows: &[
        (
            "Outcome",
            &[
                Panel::bars("Verdict", "none", &[(0.0, BLUE), (1.0, GREEN), (2.0, ORANGE), (3.0, RED)])
                    .about("0: not judged, 1: pass, 2: unknown, 3: fail.")
                    .of(&[(
                        "max by (namespace, federation, protocol) (faultline_run_verdict{RUNS, verdict=\"pass\"} \
                         or faultline_run_verdict{RUNS, verdict=\"unknown\"} * 2 \
                         or faultline_run_verdict{RUNS, verdict=\"fail\"} * 3)",
                        LEGEND,
                    )]),
                Panel::bars("Useful time", "percentunit", &[(0.0, RED), (0.5, ORANGE), (0.8, GREEN)])
                    .about("Share of time during which processes were up, were not frozen for a checkpoint, and did \
                            work that no rollback undid. An estimate.")
                    .of(&[(
                        "(sum by (namespace, federation, protocol) (faultline_process_time_seconds_total{RUNS, state=\"up\"}) \
                         - sum by (namespace, federation, protocol) (faultline_lost_work_seconds_total{RUNS}) \
                         - sum by (namespace, federation, protocol) (faultline_checkpoint_frozen_seconds_total{RUNS})) \
                         / (sum by (namespace, federation, protocol) (faultline_process_time_seconds_total{RUNS}) > 0)",
                        LEGEND,
                    )]),
                Panel::bars("Mean time per process", "s", PLAIN)
                    .about("Time since the application started, per process: the duration of the run without pauses.")
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_process_time_seconds_total{RUNS}) \
                         / (sum by (namespace, federation, protocol) (faultline_processes{RUNS}) > 0)",
                        LEGEND,
                    )]),
            ],
        ),
        (
            "Cost of failures",
            &[
                Panel::bars("Lost work", "s", PLAIN)
                    .about("Time between a checkpoint and the rollback to it, summed over processes. An estimate.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_lost_work_seconds_total{RUNS})", LEGEND)]),
                Panel::bars("Rollbacks", "short", PLAIN)
                    .about("Rollbacks of processes.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_rollbacks_total{RUNS})", LEGEND)]),
                Panel::bars("Mean recovery time", "s", PLAIN)
                    .about(
                        "Time from a fault, or from the last heartbeat, until the failed process had restored its \
                         state.",
                    )
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_recovery_seconds_sum{RUNS}) \
                         / (sum by (namespace, federation, protocol) (faultline_recovery_seconds_count{RUNS}) > 0)",
                        LEGEND,
                    )]),
                Panel::bars("Messages due to recovery", "short", PLAIN)
                    .about("Messages re-sent from logs, suppressed, or dropped because a rollback undid them.")
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_messages_total{RUNS, event=~\"resent|dropped|suppressed\"})",
                        LEGEND,
                    )]),
                Panel::bars("Worst skew", "s", &[(0.0, GREEN), (0.01, ORANGE), (0.05, RED)])
                    .about("Longest time from the first to the last effect of a fault, as the upper bound of its \
                            bucket, or 300 s if it took longer.")
                    .of(&[(
                        "histogram_quantile(1, sum by (namespace, federation, protocol, le) (faultline_fault_skew_seconds_bucket{RUNS}))",
                        LEGEND,
                    )]),
                Panel::bars("Mean detection time", "s", PLAIN)
                    .about("Time from a fault, or from the last heartbeat, to the announcement of the failure.")
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_detection_seconds_sum{RUNS}) \
                         / (sum by (namespace, federation, protocol) (faultline_detection_seconds_count{RUNS}) > 0)",
                        LEGEND,
                    )]),
            ],
        ),
        (
            "Cost without failures",
            &[
                Panel::bars("Committed checkpoints", "short", PLAIN)
                    .about("Checkpoints committed by all processes together.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_checkpoints_total{RUNS})", LEGEND)]),
                Panel::bars("Freeze", "percentunit", PLAIN)
                    .about("Share of the processes' time during which applications were frozen for checkpoints.")
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_checkpoint_frozen_seconds_total{RUNS}) \
                         / (sum by (namespace, federation, protocol) (faultline_process_time_seconds_total{RUNS}) > 0)",
                        LEGEND,
                    )]),
                Panel::bars("Packets", "short", PLAIN)
                    .about("Packets that arrived over links, including those of the protocol and those that measure the \
                            links.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_link_packets_total{RUNS})", LEGEND)]),
                Panel::graph("Progress", "percentunit")
                    .about("Share of the application's steps that are complete.")
                    .of(&[(
                        "sum by (namespace, federation, protocol) (faultline_steps_done{RUNS}) \
                         / (sum by (namespace, federation, protocol) (faultline_steps_wanted{RUNS}) > 0)",
                        LEGEND,
                    )]),
                Panel::graph("Sender logs", "bytes")
                    .about("Payload of messages kept for re-sending.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_log_bytes{RUNS})", LEGEND)]),
                Panel::graph("Lost work over time", "s")
                    .about("Time between a checkpoint and the rollback to it, summed over processes.")
                    .of(&[("sum by (namespace, federation, protocol) (faultline_lost_work_seconds_total{RUNS})", LEGEND)]),
            ],
        ),
    ],
};

const LEGEND: &str = "{{namespace}} {{federation}} ({{protocol}})";

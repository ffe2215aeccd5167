//! The dashboard of a run.

use super::table::{Annotation, BLUE, Dashboard, GREEN, ORANGE, PLAIN, Panel, RED, Variable};

pub(super) const NAMESPACE: Variable =
    Variable { name: "namespace", label: "Namespace", query: "label_values(faultline_run_info, namespace)" };
pub(super) const FEDERATION: Variable = Variable {
    name: "federation",
    label: "Federation",
    query: "label_values(faultline_run_info{namespace=~\"$namespace\"}, federation)",
};
pub(super) const PROTOCOL: Variable = Variable {
    name: "protocol",
    label: "Protocol",
    query: "label_values(faultline_run_info{namespace=~\"$namespace\", federation=~\"$federation\"}, protocol)",
};
const CLUSTER: Variable = Variable {
    name: "cluster",
    label: "Cluster",
    query: "label_values(faultline_processes{namespace=~\"$namespace\", federation=~\"$federation\"}, cluster)",
};

pub(super) const FAULTS: Annotation = Annotation {
    name: "Faults",
    color: RED,
    query: "sum by (namespace, federation, kind) (changes(faultline_faults_injected_total{RUNS}[INTERVAL])) > 0",
    text: "{{federation}}: {{kind}}",
};

/// The worst verdict of the selected runs, as a number.
pub(super) const VERDICT: &str = "max(faultline_run_verdict{RUNS, verdict=\"pass\"} \
    or faultline_run_verdict{RUNS, verdict=\"unknown\"} * 2 or faultline_run_verdict{RUNS, verdict=\"fail\"} * 3)";
pub(super) const VERDICTS: &[(u32, &str, &str)] =
    &[(0, "not judged", BLUE), (1, "pass", GREEN), (2, "unknown", ORANGE), (3, "fail", RED)];

pub(super) const RUN: Dashboard = Dashboard {
    file: "run",
    uid: "faultline-run",
    title: "Faultline: a run",
    variables: &[NAMESPACE, FEDERATION, PROTOCOL, CLUSTER],
    annotations: &[
        FAULTS,
        Annotation {
            name: "Rollbacks",
            color: ORANGE,
            query: "sum by (namespace, federation, cluster) (changes(faultline_rollbacks_total{CLUSTERS}[INTERVAL])) > 0",
            text: "{{federation}}: {{cluster}} rolls back",
        },
        Annotation {
            name: "Recoveries",
            color: GREEN,
            query: "sum by (namespace, federation) (changes(faultline_recovery_seconds_count{RUNS}[INTERVAL])) > 0",
            text: "{{federation}}: a failed process has recovered",
        },
    ],
    rows: &[("Run", ROW_RUN), ("Protocol", ROW_PROTOCOL), ("Links", ROW_LINKS), ("Storage", ROW_STORAGE)],
};

const ROW_RUN: &[Panel] = &[
    Panel::word("Verdict", VERDICTS)
        .about("The worst verdict of the selected runs.")
        .of(&[(VERDICT, "verdict")]),
    Panel::name("Phase")
        .about("The phases of the selected runs.")
        .of(&[("max by (phase) (faultline_run_phase{RUNS}) > 0", "{{phase}}")]),
    Panel::number("Progress", "percentunit", PLAIN)
        .about("Share of the application's steps that are complete. Rollbacks undo steps.")
        .of(&[(
            "sum(faultline_steps_done{CLUSTERS}) / (sum(faultline_steps_wanted{CLUSTERS}) > 0)",
            "done",
        )]),
    Panel::number("Useful time", "percentunit", &[(0.0, RED), (0.5, ORANGE), (0.8, GREEN)])
        .about(
            "Share of time during which processes were up, were not frozen for a checkpoint, and did work that no \
             rollback undid. An estimate.",
        )
        .of(&[(
            "(sum(faultline_process_time_seconds_total{CLUSTERS, state=\"up\"}) \
             - sum(faultline_lost_work_seconds_total{CLUSTERS}) \
             - sum(faultline_checkpoint_frozen_seconds_total{CLUSTERS})) \
             / (sum(faultline_process_time_seconds_total{CLUSTERS}) > 0)",
            "useful time",
        )]),
    Panel::number("Lost work", "s", &[(0.0, GREEN), (10.0, ORANGE), (60.0, RED)])
        .about("Time between a checkpoint and the rollback to it, summed over processes. An estimate.")
        .of(&[("sum(faultline_lost_work_seconds_total{CLUSTERS})", "lost")]),
    Panel::number("Worst skew", "s", &[(0.0, GREEN), (0.01, ORANGE), (0.05, RED)])
        .about("Longest time from the first to the last effect of a fault, as the upper bound of its bucket, or 300 s if it \
                took longer.")
        .of(&[("histogram_quantile(1, sum by (le) (faultline_fault_skew_seconds_bucket{RUNS}))", "skew")]),
    Panel::number("Mean recovery time", "s", &[(0.0, GREEN), (5.0, ORANGE), (30.0, RED)])
        .about("Time from a fault, or from the last heartbeat, until the failed process had restored its state.")
        .of(&[(
            "sum(faultline_recovery_seconds_sum{RUNS}) / (sum(faultline_recovery_seconds_count{RUNS}) > 0)",
            "recovery",
        )]),
    Panel::number("Effective faults", "percentunit", PLAIN)
        .about("Share of the planned faults that had an effect.")
        .of(&[(
            "sum(faultline_faults_effective_total{RUNS}) / (sum(faultline_faults_planned{RUNS}) > 0)",
            "effective",
        )]),
    Panel::graph("Progress of clusters", "percentunit")
        .about("Share of a cluster's steps that are complete.")
        .of(&[(
            "sum by (namespace, federation, cluster) (faultline_steps_done{CLUSTERS}) \
             / (sum by (namespace, federation, cluster) (faultline_steps_wanted{CLUSTERS}) > 0)",
            "{{namespace}} {{federation}}: {{cluster}}",
        )]),
    Panel::graph("Processes", "short").about("Processes that are up, and all processes.").of(&[
        ("sum by (namespace, federation) (faultline_processes_up{CLUSTERS})", "{{namespace}} {{federation}}: up"),
        ("sum by (namespace, federation) (faultline_processes{CLUSTERS})", "{{namespace}} {{federation}}: all"),
    ]),
    Panel::graph("Faults", "short").about("Faults so far, by outcome.").of(&[
        ("sum(faultline_faults_planned{RUNS})", "planned"),
        ("sum(faultline_faults_injected_total{RUNS})", "injected"),
        ("sum(faultline_faults_effective_total{RUNS})", "effective"),
        ("sum(faultline_faults_ineffective_total{RUNS})", "without effect"),
    ]),
    Panel::graph("Detection and recovery", "s")
        .about("Mean times so far from a fault, or from the last heartbeat, until the failure is announced and until \
                the failed process has restored its state.")
        .of(&[
            (
                "sum(faultline_detection_seconds_sum{RUNS}) / (sum(faultline_detection_seconds_count{RUNS}) > 0)",
                "detection",
            ),
            (
                "sum(faultline_recovery_seconds_sum{RUNS}) / (sum(faultline_recovery_seconds_count{RUNS}) > 0)",
                "recovery",
            ),
        ]),
    Panel::graph("Fault latency", "s")
        .about("Time between the due time of a fault and its last effect. The median is interpolated within its bucket; \
                the maximum is the upper bound of its bucket.")
        .of(&[
            ("histogram_quantile(0.5, sum by (le) (faultline_fault_latency_seconds_bucket{RUNS}))", "median"),
            ("histogram_quantile(1, sum by (le) (faultline_fault_latency_seconds_bucket{RUNS}))", "worst"),
        ]),
    Panel::graph("Lost work of clusters", "s")
        .about("Time between a checkpoint and the rollback to it, summed over processes.")
        .of(&[(
            "sum by (namespace, federation, cluster) (faultline_lost_work_seconds_total{CLUSTERS})",
            "{{namespace}} {{federation}}: {{cluster}}",
        )]),
];

const ROW_PROTOCOL: &[Panel] = &[
    Panel::graph("Committed checkpoints", "short")
        .about("Checkpoints of all processes, by kind: forced, or unforced (timer).")
        .of(&[("sum by (kind) (faultline_checkpoints_total{CLUSTERS})", "{{kind}}")]),
    Panel::graph("Rollbacks", "short")
        .about("Rollbacks of processes, rollback alerts from other clusters, and recovery rounds.")
        .of(&[
            ("sum(faultline_rollbacks_total{CLUSTERS})", "rollbacks"),
            ("sum(faultline_alerts_total{CLUSTERS})", "alerts"),
            ("sum(faultline_recoveries_total{CLUSTERS})", "recovery rounds"),
        ]),
    Panel::graph("Discarded checkpoints", "short")
        .about("Checkpoints interrupted by a failure or a rollback.")
        .of(&[("sum by (cluster) (faultline_checkpoints_aborted_total{CLUSTERS})", "{{cluster}}")]),
    Panel::graph("Application messages", "ops")
        .about(
            "Messages by event. A message whose send a rollback undid counts again when it is re-executed.",
        )
        .of(&[("sum by (event) (rate(faultline_messages_total{CLUSTERS}[INTERVAL]))", "{{event}}")]),
    Panel::graph("Messages due to recovery", "short")
        .about("Messages re-sent from logs, suppressed, or dropped because a rollback undid them.")
        .of(&[(
            "sum by (event) (faultline_messages_total{CLUSTERS, event=~\"resent|dropped|suppressed\"})",
            "{{event}}",
        )]),
    Panel::graph("Freeze", "percentunit")
        .about("Share of the processes' time during which applications are frozen for checkpoints.")
        .of(&[(
            "sum by (cluster) (rate(faultline_checkpoint_frozen_seconds_total{CLUSTERS}[INTERVAL])) \
             / (sum by (cluster) (faultline_processes{CLUSTERS}) > 0)",
            "{{cluster}}",
        )]),
];

/// The mean delay of the packets that have just arrived over each link, and its requested latency.
macro_rules! delay {
    () => {
        "sum by (from, to) (rate(faultline_link_delay_seconds_total{RUNS}[INTERVAL])) \
         / (sum by (from, to) (rate(faultline_link_packets_total{RUNS}[INTERVAL])) > 0)"
    };
    (requested) => {
        "max by (from, to) (faultline_link_delay_requested_seconds{RUNS})"
    };
}

const ROW_LINKS: &[Panel] = &[
    Panel::graph("Delay", "s")
        .about("Mean delay of the packets that have just arrived, and the requested latency. Queueing on a slow link adds \
                to the delay.")
        .of(&[
            (delay!(), "{{from}} to {{to}}"),
            (delay!(requested), "{{from}} to {{to}}, requested"),
        ]),
    Panel::graph("Delay beyond the requested latency", "s")
        .about("Mean delay of the packets that have just arrived, minus the requested latency.")
        .of(&[(concat!(delay!(), " - ", delay!(requested)), "{{from}} to {{to}}")]),
    Panel::graph("Packets", "pps")
        .about("Packets that arrived over a link.")
        .of(&[("sum by (from, to) (rate(faultline_link_packets_total{RUNS}[INTERVAL]))", "{{from}} to {{to}}")]),
];

const ROW_STORAGE: &[Panel] = &[
    Panel::graph("Checkpoint parts written", "short")
        .about("Parts passed to the storage, and parts reported as durable. The difference is still being written.")
        .of(&[
            ("sum(faultline_images_saved_total{CLUSTERS})", "saved"),
            ("sum(faultline_images_durable_total{CLUSTERS})", "durable"),
        ]),
    Panel::graph("Stored checkpoints", "short")
        .about("Checkpoints that can be restored. Garbage collections remove those that no recovery needs.")
        .of(&[
            ("sum(faultline_checkpoints_kept{CLUSTERS})", "stored"),
            ("sum(faultline_collections_total{CLUSTERS})", "collections"),
        ]),
    Panel::graph("Sender logs", "bytes")
        .about("Payload of messages kept for re-sending, and the part of it that is only on stable storage.")
        .of(&[
            ("sum(faultline_log_bytes{CLUSTERS})", "payload"),
            ("sum(faultline_log_spilled_bytes{CLUSTERS})", "on stable storage"),
        ]),
    Panel::graph("Logged messages", "short")
        .about("Messages kept for re-sending.")
        .of(&[("sum by (cluster) (faultline_log_messages{CLUSTERS})", "{{cluster}}")]),
];

//! The dashboard of the operator and the agents.

use super::table::{Annotation, BLUE, Dashboard, GREEN, ORANGE, PLAIN, Panel, RED, Variable};

pub(super) const OPERATOR: Dashboard = Dashboard {
    file: "operator",
    uid: "faultline-operator",
    title: "Faultline: operator and agents",
    variables: &[
        Variable {
            name: "namespace",
            label: "Namespace",
            query: "label_values(faultline_federation_info, namespace)",
        },
        Variable {
            name: "federation",
            label: "Federation",
            query: "label_values(faultline_federation_info{namespace=~\"$namespace\"}, federation)",
        },
    ],
    annotations: &[Annotation {
        name: "Operators",
        color: BLUE,
        query: "faultline_operator_leader == 1 unless faultline_operator_leader offset INTERVAL == 1",
        text: "{{instance}} becomes active",
    }],
    rows: &[
        (
            "Federations",
            &[
                Panel::number("Federations", "short", PLAIN)
                    .about("Federations that the operator manages.")
                    .of(&[("count(faultline_federation_info{FEDERATIONS}) or vector(0)", "federations")]),
                Panel::number("Running", "short", PLAIN)
                    .about("Federations whose application is running.")
                    .of(&[("sum(faultline_federation_phase{FEDERATIONS, phase=\"Running\"}) or vector(0)", "running")]),
                Panel::number("Failed verdicts", "short", &[(0.0, GREEN), (1.0, RED)])
                    .about("Federations whose run violated a property.")
                    .of(&[("sum(faultline_federation_verdict{FEDERATIONS, verdict=\"fail\"})", "fail")]),
                Panel::number("Unknown verdicts", "short", &[(0.0, GREEN), (1.0, ORANGE)])
                    .about("Federations whose run violated no property, but could not be judged completely.")
                    .of(&[("sum(faultline_federation_verdict{FEDERATIONS, verdict=\"unknown\"})", "unknown")]),
                Panel::number("Rejected", "short", &[(0.0, GREEN), (1.0, ORANGE)])
                    .about("Federations that cannot be run.")
                    .of(&[("sum(faultline_federation_phase{FEDERATIONS, phase=\"Rejected\"})", "rejected")]),
                Panel::number("Active operators", "short", &[(0.0, RED), (1.0, GREEN), (2.0, RED)])
                    .about("Operators that hold the lease of their installation: in the installations with the fewest and \
                            with the most.")
                    .of(&[
                        ("min(sum by (job, namespace) (faultline_operator_leader)) or vector(0)", "fewest"),
                        ("max(sum by (job, namespace) (faultline_operator_leader)) or vector(0)", "most"),
                    ]),
                Panel::graph("Phases", "short")
                    .about("Federations by phase.")
                    .of(&[("sum by (phase) (faultline_federation_phase{FEDERATIONS}) > 0", "{{phase}}")]),
                Panel::graph("Verdicts", "short")
                    .about("Judged federations by verdict.")
                    .of(&[("sum by (verdict) (faultline_federation_verdict{FEDERATIONS})", "{{verdict}}")]),
                Panel::graph("Ended runs", "short")
                    .about("Runs that have ended since the operators started, including those of deleted federations.")
                    .of(&[("sum by (verdict, reason) (faultline_operator_runs_total)", "{{verdict}}: {{reason}}")]),
                Panel::graph("Conditions", "short")
                    .about("Number of federations for which each condition is true.")
                    .of(&[("sum by (condition) (faultline_federation_condition{FEDERATIONS})", "{{condition}}")]),
            ],
        ),
        (
            "Operator",
            &[
                Panel::graph("Reconciliations", "ops")
                    .about("Reconciliations of federations by outcome.")
                    .of(&[(
                        "sum by (outcome) (rate(faultline_operator_reconciles_total[INTERVAL]))",
                        "{{outcome}}",
                    )]),
                Panel::graph("Reconciliation time", "s")
                    .about("Median and 99th percentile.")
                    .of(&[
                        (
                            "histogram_quantile(0.5, sum by (le) (rate(faultline_operator_reconcile_duration_seconds_bucket[INTERVAL])))",
                            "median",
                        ),
                        (
                            "histogram_quantile(0.99, sum by (le) (rate(faultline_operator_reconcile_duration_seconds_bucket[INTERVAL])))",
                            "99 %",
                        ),
                    ]),
                Panel::graph("Requests to the API server", "reqps")
                    .about("Requests by method.")
                    .of(&[(
                        "sum by (method) (rate(faultline_operator_api_requests_total[INTERVAL]))",
                        "{{method}}",
                    )]),
            ],
        ),
        (
            "Agents",
            &[
                Panel::graph("Connected agents", "short")
                    .about("Agents with a connection to their supervisor, and all agents.")
                    .of(&[
                        ("sum(faultline_agent_supervisor_connected{NAMESPACES})", "connected"),
                        ("count(faultline_agent_supervisor_connected{NAMESPACES})", "all"),
                    ]),
                Panel::graph("Lives", "short")
                    .about("Lives of processes: started, killed by their agents, and ended unexpectedly.")
                    .of(&[
                        ("sum(faultline_agent_lives_launched_total{NAMESPACES})", "started"),
                        ("sum(faultline_agent_lives_killed_total{NAMESPACES})", "killed"),
                        ("sum(faultline_agent_lives_collapsed_total{NAMESPACES})", "ended unexpectedly"),
                    ]),
                Panel::graph("Facts sent", "Bps")
                    .about("Facts that agents send to their supervisors.")
                    .of(&[("sum(rate(faultline_agent_facts_sent_bytes_total{NAMESPACES}[INTERVAL]))", "facts")]),
                Panel::graph("Shaped traffic", "Bps")
                    .about("Bytes sent through traffic control, by receiving cluster.")
                    .of(&[(
                        "sum by (to) (rate(faultline_agent_shaped_bytes_total{NAMESPACES}[INTERVAL]))",
                        "to {{to}}",
                    )])
                    .with_traffic_control(),
                Panel::graph("Shaped packets", "pps")
                    .about("Packets sent through traffic control, by receiving cluster.")
                    .of(&[(
                        "sum by (to) (rate(faultline_agent_shaped_packets_total{NAMESPACES}[INTERVAL]))",
                        "to {{to}}",
                    )])
                    .with_traffic_control(),
                Panel::graph("Dropped packets", "pps")
                    .about("Packets dropped by traffic control, intentionally or because of a full queue.")
                    .of(&[(
                        "sum by (to) (rate(faultline_agent_shaped_drops_total{NAMESPACES}[INTERVAL]))",
                        "to {{to}}",
                    )])
                    .with_traffic_control(),
            ],
        ),
    ],
};

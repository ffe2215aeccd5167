//! The expansion of faults: random choices are the same on every machine, and entries are independent of each other.

use std::hash::Hasher;

use faultline_api::mtbf::{mean_between_faults, with_mean_between_faults};
use faultline_api::resource::{Hc3i, ProtocolSpec, ReplicateTo};
use faultline_api::{Federation, parse, plan, unfit_for_pods};
use faultline_core::fault::{Impairment, LinkProperties, StorageFault};
use faultline_core::{
    ClusterId, FactKind, Fault, PlannedFault, ProcessId, Span, StorageFate, Target, Time, Trigger,
};

fn federation(faults: &str) -> Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: example }}
spec:
  clusters: [{{ name: a, nodes: 3, rack: 2 }}, {{ name: b, nodes: 2, rack: 1 }}, {{ name: c, nodes: 5, rack: 2 }}]
  links: {{ between: {{ latency: 5ms, bandwidth: 8Mbit }} }}
  protocol: {{ hc3i: {{}} }}
  application: {{ heat: {{}} }}
  deadline: 10m
  faults:
{faults}
"
    );
    parse("test.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

fn plan_of(faults: &str) -> Vec<PlannedFault> {
    plan(&federation(faults), 7)
}

fn times(plan: &[PlannedFault]) -> Vec<u64> {
    plan.iter()
        .map(|it| match it.trigger {
            Trigger::At(at) => at.0,
            ref other => panic!("{other:?} is not a time"),
        })
        .collect()
}

/// Returns a hash (FNV-1a) that changes if any of the drawn numbers changes.
fn hash(numbers: impl IntoIterator<Item = u64>) -> u64 {
    struct Fnv(u64);
    impl Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    numbers.into_iter().for_each(|it| hasher.write(&it.to_le_bytes()));
    hasher.finish()
}

#[test]
fn faults_name_processes_inside_and_outside_the_clusters() {
    let mut federation = federation("    - { at: 1s, crash: { process: b-1 } }");
    let mut on_server = federation.spec.faults[0].clone();
    on_server.crash.as_mut().unwrap().process = Some("storage-server".into());
    federation.spec.faults.push(on_server);
    let replicate_to = Some(ReplicateTo::SharedStorage);
    federation.spec.protocol = ProtocolSpec::Hc3i(Hc3i { replicate_to, ..Hc3i::default() });
    let faults: Vec<Fault> = plan(&federation, 7).into_iter().map(|it| it.fault).collect();
    let crash = |process| Fault::crash(ProcessId(process));
    assert_eq!(faults, [crash(4), crash(10)]);
}

#[test]
fn explicit_faults_are_planned_as_written() {
    let plan = plan_of(
        "
    - { at: 4s, crash: { cluster: b, node: 1 } }
    - { when: { fact: checkpointRequested, cluster: b, node: 0, occurrence: 3 }, loseCluster: { cluster: a, storage: lost } }
    - { when: { fact: delivered }, pause: { cluster: c, node: 4, for: 300ms } }
    - { at: 5s, link: { from: a, to: b, latency: 9ms, for: 2s } }
    - { at: 6s, partition: { from: c, to: a, oneWay: true, for: 1s } }
    - { at: 7s, slowStorage: { cluster: a, node: 0, by: 50ms } }
    - { at: 8s, fullStorage: { cluster: a, node: 1, for: 1s } }
    - { at: 9s, corruptStorage: { cluster: a, node: 2 } }
    - { at: 9s, slow: { cluster: a, node: 2, by: 2.5, for: 1s } }",
    );
    let seconds = |it| Trigger::At(Time::ZERO + Span::from_secs(it));
    let expected = [
        (seconds(4), Fault::crash(ProcessId(4))),
        (
            Trigger::When {
                fact: FactKind::CheckpointRequested,
                of: None,
                cluster: Some(ClusterId(1)),
                process: Some(ProcessId(3)),
                occurrence: 3,
            },
            Fault::kill(ClusterId(0), StorageFate::Lost),
        ),
        (
            Trigger::When {
                fact: FactKind::Delivered,
                of: None,
                cluster: None,
                process: None,
                occurrence: 1,
            },
            Fault::pause(ProcessId(9), Span::from_millis(300)),
        ),
        (
            seconds(5),
            Fault::Link {
                from: ClusterId(0),
                to: ClusterId(1),
                properties: Some(LinkProperties {
                    latency: Span::from_millis(9),
                    jitter: Span::ZERO,
                    bandwidth: 1_000_000,
                    loss_ppm: 0,
                }),
                span: Some(Span::from_secs(2)),
            },
        ),
        (
            seconds(6),
            Fault::Partition {
                from: ClusterId(2),
                to: vec![ClusterId(0)],
                both: false,
                span: Span::from_secs(1),
            },
        ),
        (seconds(7), Fault::storage(ProcessId(0), StorageFault::Slow(Span::from_millis(50)), None)),
        (seconds(8), Fault::storage(ProcessId(1), StorageFault::Full, Span::from_secs(1))),
        (seconds(9), Fault::storage(ProcessId(2), StorageFault::Corrupt, None)),
        (
            seconds(9),
            Fault::Impair {
                process: ProcessId(2),
                how: Impairment::Slow { percent: 250 },
                span: Some(Span::from_secs(1)),
            },
        ),
    ];
    for (no, (planned, (trigger, fault))) in plan.iter().zip(expected).enumerate() {
        assert_eq!((planned.no.0 as usize, &planned.trigger, &planned.fault), (no, &trigger, &fault));
    }
    assert_eq!(plan.len(), 9);
}

#[test]
fn exponential_times_are_the_same_everywhere_and_have_the_mean() {
    let times = times(&plan_of("    - { mtbf: { exponential: 100ms }, crash: {} }"));
    assert_eq!(hash(times.iter().copied()), 0x5a3a_d2f7_3b73_e0c4);
    assert!(times.is_sorted_by(|a, b| a < b));
    assert!(times.last().is_some_and(|last| *last < Span::from_secs(600).0));
    // 6000 expected, with a standard deviation of 77.
    assert!((5_700..6_300).contains(&times.len()), "{}", times.len());
}

#[test]
fn weibull_times_are_the_same_everywhere_and_have_the_mean() {
    let times = times(&plan_of("    - { mtbf: { weibull: { scale: 100ms, shape: 0.7 } }, crash: {} }"));
    assert_eq!(hash(times.iter().copied()), 0x8539_e095_d70a_5013);
    // The mean is 100 ms x gamma(1 + 1/0.7) = 126.6 ms: 4740 expected, with a standard deviation of about 102.
    assert!((4_400..5_100).contains(&times.len()), "{}", times.len());
}

#[test]
fn uniform_times_lie_between_their_bounds() {
    let times = times(&plan_of("    - { mtbf: { uniform: { least: 100ms, most: 300ms } }, crash: {} }"));
    let gaps = times.windows(2).map(|it| it[1] - it[0]);
    let [least, most] = [100_000_000, 300_000_000];
    assert!(gaps.clone().all(|it| (least..=most).contains(&it)));
    let [early, late] = [110_000_000, 290_000_000];
    assert!(gaps.clone().any(|it| it < early) && gaps.clone().any(|it| it > late));
    // 3000 expected, with a standard deviation of 16.
    assert!((2_900..3_100).contains(&times.len()), "{}", times.len());
}

#[test]
fn targets_are_the_same_everywhere_and_evenly_drawn() {
    let plan = plan_of("    - { mtbf: { exponential: 100ms }, crash: {} }");
    let victims = plan.iter().map(|it| match it.fault.kills() {
        Some(Target::Process(process)) => u64::from(process.0),
        _ => panic!("{:?} is not a crash", it.fault),
    });
    let mut counts = [0; 10];
    victims.clone().for_each(|it| counts[it as usize] += 1);
    let even = plan.len() / 10;
    assert!(counts.iter().all(|it| (even * 3 / 4..even * 5 / 4).contains(it)), "{counts:?}");
    assert_eq!(hash(victims), 0xc2e2_64bc_535c_764c);
}

#[test]
fn any_draws_only_possible_targets() {
    let plan = plan_of(
        "
    - { mtbf: { exponential: 1s }, partition: { for: 1ms } }
    - { mtbf: { exponential: 1s }, partition: { to: b, for: 1ms } }
    - { mtbf: { exponential: 1s }, loseCluster: {} }
    - { mtbf: { exponential: 1s }, crash: { node: 1 } }
    - { mtbf: { exponential: 1s }, crash: { cluster: c } }",
    );
    let mut seen = std::collections::BTreeSet::new();
    let mut entry = 0;
    let mut last = 0;
    for planned in &plan {
        let Trigger::At(at) = planned.trigger else { panic!("all are timed") };
        entry += usize::from(at.0 < last);
        last = at.0;
        match planned.fault {
            Fault::Partition { from, ref to, both, .. } => {
                let [to] = to[..] else { panic!("{to:?}") };
                assert!(from != to && both && (entry == 0 || to == ClusterId(1)));
                seen.insert((entry, from.0, to.0));
            }
            Fault::Kill { target: Target::Cluster(cluster), .. } => {
                seen.insert((entry, cluster.0, 0));
            }
            Fault::Kill { target: Target::Process(process), .. } => {
                let possible: &[u32] = if entry == 3 { &[1, 4, 6] } else { &[5, 6, 7, 8, 9] };
                assert!(possible.contains(&process.0), "{process}");
                seen.insert((entry, process.0 as u16, 0));
            }
            ref other => panic!("{other:?} is unexpected"),
        }
    }
    // 6 ordered pairs, 2 pairs that end in b, 3 clusters, node 1 of each of 3 clusters, 5 nodes of c: all were drawn.
    assert_eq!(seen.len(), 6 + 2 + 3 + 3 + 5);
}

#[test]
fn racks_are_drawn_by_their_nodes_or_within_their_cluster() {
    let plan = plan_of(
        "
    - { mtbf: { exponential: 300ms }, loseRack: {} }
    - { mtbf: { exponential: 300ms }, loseRack: { cluster: c } }
    - { mtbf: { exponential: 300ms }, loseRack: { rack: 1 } }",
    );
    let mut counts = [const { std::collections::BTreeMap::new() }; 3];
    let (mut entry, mut last) = (0, 0);
    for planned in plan {
        let Trigger::At(at) = planned.trigger else { panic!("all are timed") };
        entry += usize::from(at.0 < last);
        last = at.0;
        let Some(Target::Rack { cluster, rack, nodes }) = planned.fault.kills() else {
            panic!("{planned:?}")
        };
        assert_eq!(nodes, [2, 1, 2][cluster.index()]);
        *counts[entry].entry((cluster.0, rack)).or_insert(0) += 1;
    }
    let racks = |it: usize| counts[it].keys().copied().collect::<Vec<_>>();
    let all = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)];
    assert_eq!(
        [racks(0), racks(1), racks(2)],
        [all.to_vec(), all[4..].to_vec(), vec![(0, 1), (1, 1), (2, 1)]]
    );
    // A rack of two nodes is hit twice as often as one of one node.
    let [two, one] = [(0, 0), (0, 1)].map(|it| f64::from(counts[0][&it]));
    assert!((1.7..2.3).contains(&(two / one)), "{counts:?}");
}

#[test]
fn seeds_differ_and_entries_are_independent() {
    let one = "    - { mtbf: { exponential: 10s }, crash: {} }\n";
    let two = "    - { mtbf: { exponential: 7s }, pause: { for: 1ms } }\n";
    let alone = plan_of(one);
    assert_eq!(alone, plan(&federation(one), 7));
    assert_ne!(alone, plan(&federation(one), 8));
    let both = plan_of(&format!("{one}{two}"));
    assert_eq!(both[..alone.len()], alone);
    let numbers: Vec<u32> = both.iter().map(|it| it.no.0).collect();
    assert!(numbers.iter().copied().eq(0..both.len() as u32));
    assert_ne!(times(&both[alone.len()..])[0], times(&alone)[0]);
}

#[test]
fn faults_wait_for_facts_that_processes_report_without_a_protocol() {
    for (fact, is_stated) in [("sent", true), ("computed", true), ("finished", true), ("saved", false)] {
        let mut federation =
            federation(&format!("    - {{ when: {{ fact: {fact} }}, crash: {{ process: a-1 }} }}"));
        federation.spec.protocol = ProtocolSpec::None(faultline_api::resource::Unprotected::default());
        let problems = faultline_api::validate(&federation);
        assert_eq!(problems.is_empty(), is_stated, "{fact}: {problems:?}");
    }
}

/// The trace `tiny.json`, in the product's own form.
const TINY: &str = "
        data: |
          start,end,node,cause
          43200,86400,n1,GPU
          43200,64800,n2,NIC
          172800,194400,n1,GPU
          216000,388800,n3,Fan
          259200,302400,n2,GPU
        speed: 8640";

/// Returns the times of the faults of a plan in seconds, with their causes.
fn caused(plan: &[PlannedFault]) -> Vec<(f64, &str)> {
    let seconds = times(plan).into_iter().map(|it| it as f64 / 1e9);
    seconds.zip(plan.iter().map(|it| it.cause.as_deref().unwrap_or("unknown"))).collect()
}

#[test]
fn the_failures_of_a_trace_hit_the_processes_that_their_nodes_stand_for() {
    let plan =
        plan_of(&format!("    - crash: {{}}\n      trace:{TINY}\n        nodes: fold\n        begin: 0s"));
    let due = [(0.0, "GPU"), (0.0, "NIC"), (15.0, "GPU"), (20.0, "Fan"), (25.0, "GPU")];
    assert_eq!(caused(&plan), due);
    let fault = |(process, repair)| Fault::Kill {
        target: Target::Process(ProcessId(process)),
        storage: StorageFate::Kept,
        returns: true,
        repair: Some(Span::from_millis(repair)),
    };
    let faults = [(0, 5000), (1, 2500), (0, 2500), (2, 20_000), (1, 5000)].map(fault);
    assert_eq!(plan.into_iter().map(|it| it.fault).collect::<Vec<_>>(), faults);
}

#[test]
fn a_fault_without_a_duration_lasts_as_long_as_the_recorded_failure() {
    let entry = |action: &str| {
        plan_of(&format!("    - {action}\n      trace:{TINY}\n        nodes: fold\n        begin: 0s"))
    };
    let spans: Vec<Span> = entry("pause: {}").iter().map(|it| Span(it.fault.until(Time::ZERO).0)).collect();
    assert_eq!(spans, [5000, 2500, 2500, 20_000, 5000].map(Span::from_millis));
    for it in entry("pause: { for: 1s }") {
        assert_eq!(it.fault.until(Time::ZERO), Time::ZERO + Span::from_secs(1));
    }
    // Nodes 0 to 2 are in the first cluster.
    for it in entry("partition: {}") {
        assert!(matches!(it.fault, Fault::Partition { from: ClusterId(0), .. }), "{it:?}");
    }
    for it in entry("loseCluster: {}") {
        assert_eq!(it.fault.kills(), Some(Target::Cluster(ClusterId(0))));
    }
    for it in entry("crash: { repair: 1h }") {
        assert_eq!(it.fault.repair(), Some(Span::from_secs(3600)), "the action states another time");
    }
    for it in entry("crash: { cluster: c }") {
        let Some(Target::Process(process)) = it.fault.kills() else { panic!("{it:?}") };
        assert!(process.0 >= 5, "the action names another cluster: {process}");
    }
}

#[test]
fn a_trace_that_begins_later_continues_with_its_beginning() {
    let plan =
        plan_of(&format!("    - crash: {{}}\n      trace:{TINY}\n        nodes: fold\n        begin: 48h"));
    // The trace lasts 40 s at this speed, of which 20 s have passed.
    let due = [(0.0, "Fan"), (5.0, "GPU"), (20.0, "GPU"), (20.0, "NIC"), (35.0, "GPU")];
    assert_eq!(caused(&plan), due);
}

#[test]
fn entries_with_the_same_trace_agree_on_its_begin_and_on_the_nodes() {
    let trace = |causes: &str| format!("    - crash: {{}}\n      trace:{TINY}\n        of: 12{causes}\n");
    let other = "    - { mtbf: { exponential: 100s }, pause: { for: 1s } }\n";
    for seed in 0..50 {
        let sorted = |faults: String| {
            let mut plan = plan(&federation(&faults), seed);
            plan.retain(|it| it.cause.is_some());
            plan.sort_by_key(|it| format!("{:?} {:?} {:?}", it.trigger, it.cause, it.fault));
            plan.into_iter().map(|it| (it.trigger, it.fault, it.cause)).collect::<Vec<_>>()
        };
        let whole = sorted(trace(""));
        let split = [trace("\n        causes: [GPU, Fan]"), other.into(), trace("\n        causes: [NIC]")];
        assert_eq!(sorted(split.concat()), whole);
        assert!(whole.len() <= 5);
    }
}

#[test]
fn all_random_faults_are_scaled_by_one_factor() {
    let faults = format!(
        "    - {{ mtbf: {{ exponential: 100s }}, crash: {{}} }}
    - {{ mtbf: {{ weibull: {{ scale: 50s, shape: 0.5 }} }}, crash: {{}} }}
    - {{ at: 1s, crash: {{}} }}
    - {{ mtbf: {{ uniform: {{ least: 50s, most: 150s }} }}, crash: {{}} }}
    - pause: {{}}
      trace:{TINY}
        nodes: fold\n"
    );
    let before = federation(&faults);
    // Four gaps between failures in 25 s; a Weibull distribution of shape 0.5 has the mean 2 times its scale.
    let mean = mean_between_faults(&before.spec).expect("there are random faults");
    assert!((1.0 / mean - (0.01 + 0.01 + 0.01 + 4.0 / 25.0)).abs() < 1e-9, "{mean}");
    let wanted = "3m".parse().expect("a duration");
    let after = with_mean_between_faults(&before, wanted).expect("there are random faults");
    let scaled = mean_between_faults(&after.spec).expect("there are random faults");
    assert!((scaled - 180.0).abs() < 1e-6, "{scaled}");
    assert_eq!(after.spec.faults[2], before.spec.faults[2], "a fault with a fixed time stays");
    let lasts = |it: &Federation| {
        let plan = plan(it, 1).into_iter().filter(|it| it.cause.is_some());
        plan.map(|it| it.fault.until(Time::ZERO)).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(lasts(&after).is_subset(&lasts(&before)), "repair times stay");
    assert_eq!(with_mean_between_faults(&federation("    - { at: 1s, crash: {} }\n"), wanted), None);
}

#[test]
fn failure_rates_of_nodes_add_up() {
    // The federation has ten nodes.
    for (mtbf, mean) in [
        ("perNode: 100s", 10.0),
        ("preset: { name: llama3 }", 263.94 * 8640.0),
        ("preset: { name: rsc1, speed: 1000 }", 153.846 * 8.64),
    ] {
        let federation = federation(&format!("    - {{ mtbf: {{ {mtbf} }}, crash: {{}} }}\n"));
        let found = mean_between_faults(&federation.spec).expect("there are random faults");
        assert!((found / mean - 1.0).abs() < 1e-4, "{mtbf}: {found}");
        let scaled = with_mean_between_faults(&federation, "5s".parse().expect("a duration"));
        let count = plan(&scaled.expect("there are random faults"), 1).len();
        assert!((90..150).contains(&count), "120 on average in ten minutes: {count}");
    }
}

#[test]
fn faults_of_a_system_are_drawn_until_its_run_ends() {
    let drawn = |ends: &str, faults: &str| {
        let text = format!(
            "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: example }}
spec:
  clusters: [{{ name: a, nodes: 3 }}]
  deadline: 10m
  application: {{ system: {{ command: [sleep, '600'], {ends} }} }}
  faults: [{{ mtbf: {{ exponential: 1s }}, crash: {{ cluster: a }} }}{faults}]
"
        );
        let federation = parse("test.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
        let times: Vec<Span> = times(&plan(&federation, 7)).into_iter().map(Span).collect();
        times[..times.len() - usize::from(!faults.is_empty())].last().unwrap().0 / 1_000_000_000
    };
    let is_within = |last: u64, end: u64| assert!(last < end && last > end / 2, "{last} s of {end} s");
    is_within(drawn("ends: { after: 60s }", ""), 60);
    is_within(drawn("ends: { exit: a }", ""), 600);
    is_within(drawn("", ""), 30);
    is_within(drawn("", ", { at: 50s, pause: { cluster: a, for: 1s } }"), 80);
}

#[test]
fn an_isolated_cluster_is_cut_off_from_all_others_in_one_fault() {
    let faults = "    - { at: 1s, partition: { isolate: b, for: 1s } }
    - { at: 2s, partition: { isolate: b, except: [a], for: 1s } }
    - { at: 3s, partition: { isolate: any, for: 1s } }";
    let plan = plan(&federation(faults), 7);
    let [a, b, c] = [0, 1, 2].map(ClusterId);
    assert_eq!(plan.len(), 3);
    assert_eq!(plan[0].fault.cuts(), [(b, a), (b, c), (a, b), (c, b)]);
    assert_eq!(plan[1].fault.cuts(), [(b, c), (c, b)]);
    let Fault::Partition { from, to, .. } = &plan[2].fault else { panic!("{:?}", plan[2]) };
    assert!(to.len() == 2 && !to.contains(from));
    // The cluster of the node that last logged a line is known only in the run.
    let (from, to, span) = (ClusterId::OUTSIDE, vec![a, b, c], Span::from_secs(1));
    let planned = PlannedFault {
        fault: Fault::Partition { from, to, both: true, span },
        reported: Some(faultline_core::WatchNo(0)),
        ..plan[0].clone()
    };
    let aimed = planned.aimed_at(ProcessId(3), b);
    assert_eq!(aimed, plan[0].fault);
    assert!(planned.allows(&aimed) && !planned.allows(&plan[1].fault));
}

/// Returns the text of a system with these faults, and of a federation with messages and the same faults.
fn system_and_heat(faults: &str) -> [String; 2] {
    let with = |application: &str| {
        format!(
            "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: example }}
spec:
  clusters: [{{ name: a, nodes: 3 }}, {{ name: b, nodes: 2 }}]
  kubernetes: {{ image: \"own:1\", links: tc }}
  {application}
  faults: [{faults}]
"
        )
    };
    [
        with("application: { system: { command: [sleep, infinity], ends: { after: 1m } } }"),
        with("protocol: { hc3i: {} }\n  application: { heat: {} }").replace("image: \"own:1\", ", ""),
    ]
}

#[test]
fn commands_are_stopped_one_by_one_or_in_a_cluster() {
    let [system, heat] = system_and_heat(
        "{ at: 1s, stop: { cluster: b, node: 1, within: 3s, storage: lost, repair: 4s } }, \
         { at: 2s, restart: { cluster: a, inTurn: true, command: [sleep, '1000'] } }, \
         { at: 3s, partition: { within: a, nodes: [2, 0], for: 2s } }, \
         { at: 4s, slow: { cluster: b, node: 0, by: 2, for: 2s } }",
    );
    let federation = parse("test.yaml", system.as_bytes()).unwrap_or_else(|it| panic!("{:?}", it.errors()));
    let faults: Vec<Fault> = plan(&federation, 7).into_iter().map(|it| it.fault).collect();
    let stop = Fault::Stop {
        target: Target::Process(ProcessId(4)),
        storage: StorageFate::Lost,
        repair: Some(Span::from_secs(4)),
        within: Span::from_secs(3),
        in_turn: false,
        command: None,
    };
    let restart = Fault::Stop {
        target: Target::Cluster(ClusterId(0)),
        storage: StorageFate::Kept,
        repair: None,
        within: Span::from_secs(10),
        in_turn: true,
        command: Some(1),
    };
    let nodes = [2, 0].map(ProcessId).into();
    let split = Fault::Split { cluster: ClusterId(0), nodes, span: Span::from_secs(2) };
    assert_eq!(faults[..3], [stop, restart, split]);
    assert_eq!(faults.iter().map(Fault::kind).collect::<Vec<_>>(), ["stop", "restart", "partition", "slow"]);
    let unfit: Vec<String> = unfit_for_pods(&federation.spec).into_iter().map(|it| it.message).collect();
    let expected = ["stop", "restart", "slow"].map(|it| format!("`{it}` is not supported in pods"));
    assert_eq!(unfit, expected);
    let refused = parse("test.yaml", heat.as_bytes()).expect_err("only a system has commands");
    let errors = format!("{:?}", refused.errors());
    assert!(errors.matches("only the commands of a system can be stopped").count() == 2, "{errors}");
    assert!(errors.contains("only the nodes of a system can be cut off within their cluster"), "{errors}");
}

//! Federations in which a process fails just after stealing a task, and never returns. Its successor fails before it
//! can tell the victim that the task is lost. Random faults rarely coincide in this way.

use faultline_api::quantity::{Bandwidth, Duration, Loss};
use faultline_api::resource::{
    ApplicationSpec, ClusterSpec, Crash, FaultSpec, Federation, Fibonacci, Pair, When,
};
use faultline_api::validate;
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// The number of tasks of the program that take time.
const LEAVES: u64 = 89;

/// Replaces the program and the faults of at most one federation in eight. The victim is the first process, which has
/// the program. Its messages to the successor are slow, so that the successor can take a checkpoint after taking over,
/// and then fail.
pub(super) fn fail(
    chance: &mut Chance,
    federation: &mut Federation,
    detect_after: Span,
    restart_after: Span,
) {
    if !chance.percent(12) {
        return;
    }
    let nodes = |it: &ClusterSpec| (0..it.nodes).map(|node| (it.name.clone(), node)).collect::<Vec<_>>();
    let permanent = federation.spec.clusters.iter().filter(|it| it.joins_after.is_none());
    let all: Vec<_> = permanent.flat_map(nodes).collect();
    let thief = chance.between(0, all.len() as u64 - 1) as usize;
    let (victim, successor) = (&all[0].0, &all[(thief + 1) % all.len()].0);
    if thief == 0 || successor == victim {
        return;
    }
    let delay = Span(chance.between(Span::from_millis(200).0, Span::from_millis(800).0));
    let length = (delay + detect_after + restart_after) * chance.between(2, 5);
    let task_time = Duration(short(Span(length.0 * all.len() as u64 / LEAVES)));
    let crash = |place: usize, returns| {
        let (cluster, node) = all[place % all.len()].clone();
        Some(Crash { returns, ..Crash::new(cluster, Some(node)) })
    };
    let when = When {
        of: None,
        fact: FactKind::Taken,
        cluster: all[thief].0.clone(),
        node: Some(all[thief].1),
        occurrence: Some(chance.between(1, 3) as u32),
    };
    let at = detect_after + Span(chance.between(Span::from_millis(50).0, delay.0 + Span::from_millis(300).0));
    let slow = Pair {
        from: victim.clone(),
        to: successor.clone(),
        preset: None,
        latency: Some(Duration(short(delay))),
        jitter: Some(Duration(Span::ZERO)),
        bandwidth: Some(Bandwidth::UNLIMITED),
        loss: Some(Loss { ppm: 0 }),
    };
    let mut failing = federation.clone();
    let spec = &mut failing.spec;
    for pair in spec.links.iter_mut().flat_map(|it| &mut it.pairs) {
        if (&pair.from, &pair.to) == (&slow.from, &slow.to) {
            *pair = slow.clone();
        }
    }
    spec.application =
        ApplicationSpec::Fibonacci(Fibonacci { n: Some(14), threshold: Some(5), task_time: Some(task_time) });
    spec.faults = vec![
        FaultSpec { when: Some(when), crash: crash(thief, Some(false)), ..FaultSpec::default() },
        FaultSpec { at: Some(Duration(short(at))), crash: crash(thief + 1, None), ..FaultSpec::default() },
    ];
    spec.deadline = Some(Duration(length * 20 + Span::from_secs(20)));
    if validate(&failing).is_empty() {
        *federation = failing;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tasks;
    use super::*;

    #[test]
    fn a_thief_fails_permanently_with_a_task_and_its_successor_fails_later() {
        let (detect, restart) = (Span::from_millis(50), Span::from_millis(20));
        let mut replaced = 0;
        for seed in 0..400 {
            let drawn = tasks::federation(seed, "tic".parse().unwrap());
            let mut federation = drawn.clone();
            // These draws differ from those of the federation.
            fail(&mut Chance::new(1000 + seed), &mut federation, detect, restart);
            if federation == drawn {
                continue;
            }
            replaced += 1;
            let [first, second] = &federation.spec.faults[..] else { panic!("seed {seed}: two faults") };
            let (thief, successor) = (first.crash.as_ref().unwrap(), second.crash.as_ref().unwrap());
            assert!(first.never_returns() && !second.never_returns(), "seed {seed}");
            let when = first.when.as_ref().unwrap();
            assert_eq!((when.fact, &when.cluster, when.node), (FactKind::Taken, &thief.cluster, thief.node));
            assert_ne!((&thief.cluster, thief.node), (&successor.cluster, successor.node), "seed {seed}");
            // Not before the first failure can be detected.
            assert!(second.at.unwrap().0 >= detect, "seed {seed}");
            let first_cluster = &federation.spec.clusters[0].name;
            let links = &federation.spec.links.as_ref().unwrap().pairs;
            let slow =
                links.iter().find(|it| (&it.from, &it.to) == (first_cluster, &successor.cluster)).unwrap();
            assert!(slow.latency.unwrap().0 >= Span::from_millis(190), "seed {seed}: {slow:?}");
        }
        assert!((10..100).contains(&replaced), "{replaced} of 400");
    }
}

//! The rules of the contract, one function each. A function panics if the driver breaks its rule.
//!
//! Time limits are generous, so that a slow machine does not break a rule.
#![expect(clippy::missing_panics_doc, reason = "the module documents when its functions panic")]

use std::collections::BTreeSet;

use faultline_core::fault::StorageFault;
use faultline_core::{
    Boot, ClusterId, EndedBy, Fact, FactKind, Fault, FaultNo, Life, ProcessId, Span, StorageFate, Time,
    Trigger,
};

use crate::observation::Observation;
use crate::probe::Act;
use crate::scenario::{Driver, Scenario};
use crate::traffic::{TRAFFIC, bursts, expect_all_received, expect_lives_apart, received, steady_traffic};

const P0: ProcessId = ProcessId(0);
const P1: ProcessId = ProcessId(1);
const C0: ClusterId = ClusterId(0);
const C1: ClusterId = ClusterId(1);
const FIRST: Life = Life(1);
const SECOND: Life = Life(2);

/// Each message from one life to another arrives exactly once if neither of them ends.
pub fn nothing_is_lost_or_delivered_twice(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[3, 3], Span::from_millis(800));
    scenario.script.all_arrives = true;
    bursts(&mut scenario);
    for process in scenario.processes() {
        let own = if process.0 < 3 { C0 } else { C1 };
        scenario.at(process, None, Span::from_millis(300), [Act::Broadcast(own)]);
    }
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_all_received(&evidence, &scenario, |from, to| if from.0 / 3 == to.0 / 3 { 61 } else { 60 });
}

/// With FIFO, the messages from one process to another arrive in the order in which they were sent.
pub fn fifo_keeps_the_order_of_every_pair(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2, 2], Span::from_millis(800));
    scenario.script.all_arrives = true;
    bursts(&mut scenario);
    let evidence = driver.run::<true>(&scenario);
    evidence.expect_complete();
    expect_all_received(&evidence, &scenario, |_, _| 60);
    for process in scenario.processes() {
        for ((from, _), numbers) in received(&evidence.seen(process, FIRST)) {
            assert!(numbers.is_sorted(), "{from}->{process}: {numbers:?}");
        }
    }
}

/// Messages and images arrive unchanged (a probe that receives changed content fails).
pub fn contents_survive_the_network(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[1, 1], Span::from_millis(1500));
    scenario.script.all_arrives = true;
    let images = (0..4).map(|number| Act::SendImage(P1, number, 250_000 * number));
    scenario.at(P0, None, Span::from_millis(50), images.chain([Act::Send(P1, 100)]));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    assert_eq!(evidence.lives(P1), [FIRST], "a probe that receives changed content fails");
    let seen = evidence.seen(P1, FIRST);
    for number in 0..4 {
        let image = Observation::ReceivedImage { from: P0, by: FIRST, number };
        assert_eq!(seen.iter().filter(|it| **it == image).count(), 1, "image {number}");
    }
    assert_eq!(received(&seen)[&(P0, FIRST)].len(), 100);
}

/// Nothing is delivered from or to an older life, or from a life that has not been announced. Crashes three of four
/// processes, one after another.
pub fn lives_do_not_mix(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2, 2], Span::from_millis(1200));
    steady_traffic(&mut scenario);
    for (millis, process) in [(200, 0), (350, 3), (420, 1)] {
        let fault = Fault::crash(ProcessId(process));
        scenario.inject(Trigger::At(at(millis)), fault);
    }
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_lives_apart(&evidence, &scenario);
    for (process, lives) in [(0, 2), (1, 2), (2, 1), (3, 2)] {
        assert_eq!(evidence.lives(ProcessId(process)).len(), lives, "lives of p{process}");
    }
    // The test is not vacuous: new lives communicate with old ones and with each other.
    let of_survivor = received(&evidence.seen(ProcessId(2), FIRST));
    for from in [0, 1, 3] {
        assert!(
            of_survivor.contains_key(&(ProcessId(from), FIRST)),
            "messages from p{from}, life 1, arrived"
        );
        assert!(
            of_survivor.contains_key(&(ProcessId(from), SECOND)),
            "messages from p{from}, life 2, arrived"
        );
    }
    assert!(received(&evidence.seen(P0, SECOND)).contains_key(&(P1, SECOND)));
}

/// Lives do not mix even if a process was paused while another failed and returned. In that case, messages
/// and the announcement of the new life reach the paused process together.
pub fn lives_do_not_mix_after_a_pause(driver: &mut impl Driver) {
    const PAUSED: ProcessId = ProcessId(2);
    let mut scenario = Scenario::new(&[3], Span::from_millis(1200));
    // Keep sending after the pause, so that the new life receives messages.
    for index in 0..2 * u64::from(TRAFFIC) {
        scenario.at(P1, None, Span::from_millis(20 + 8 * index), [Act::Send(PAUSED, 1)]);
    }
    scenario.script.on_message.push((PAUSED, vec![Act::Send(P0, 1)]));
    let pause = Fault::pause(PAUSED, Span::from_millis(400));
    scenario.inject(Trigger::At(at(100)), pause);
    scenario.inject(Trigger::At(at(120)), Fault::crash(P0));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_lives_apart(&evidence, &scenario);
    for life in [FIRST, SECOND] {
        let heard = received(&evidence.seen(P0, life));
        assert!(
            heard.contains_key(&(PAUSED, FIRST)),
            "{life} of p0 received messages from the paused process"
        );
    }
}

/// Each life receives memberships with increasing versions, the newest last. The first one lists the life as
/// up.
pub fn memberships_come_in_order_and_contain_their_receiver(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2, 2], Span::from_millis(800));
    for process in 0..3 {
        let fault = Fault::crash(ProcessId(process));
        scenario.inject(Trigger::At(at(150 + 40 * u64::from(process))), fault);
    }
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    for process in scenario.processes() {
        for life in evidence.lives(process) {
            let seen = evidence.seen(process, life);
            let versions: Vec<u32> = seen.iter().filter_map(version).collect();
            assert!(versions.is_sorted_by(|a, b| a < b), "{process}, {life}: {versions:?}");
            let first = seen.iter().position(|it| version(it).is_some()).expect("a first membership");
            let me = Observation::Peer { process, life, up: true };
            let told = seen[first + 1..].iter().take_while(|it| version(it).is_none());
            assert!(told.into_iter().any(|it| *it == me), "{process}, {life}, is up in its first membership");
        }
    }
    // At the end, the survivor knows each new life. Versions may have been skipped.
    let seen = evidence.seen(ProcessId(3), FIRST);
    for process in (0..3).map(ProcessId) {
        let last = seen
            .iter()
            .rev()
            .find(|it| matches!(it, Observation::Peer { process: of, .. } if *of == process));
        assert_eq!(last, Some(&Observation::Peer { process, life: SECOND, up: true }));
    }
}

/// A listing contains the images written before it, except those removed before it.
pub fn a_listing_sees_every_earlier_write(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(600));
    let acts = [
        Act::List,
        Act::Persist(1, 500_000),
        Act::Persist(2, 100),
        Act::List,
        Act::Persist(3, 10),
        Act::Delete(FIRST, 1),
        Act::List,
    ];
    scenario.at(P0, None, Span::from_millis(50), acts);
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let listings = listings(&evidence.seen(P0, FIRST));
    let expected = [vec![], vec![(FIRST, 1), (FIRST, 2)], vec![(FIRST, 2), (FIRST, 3)]];
    assert_eq!(listings, expected);
    assert_eq!(
        evidence.seen(P1, FIRST).iter().filter(|it| stored(it)).count(),
        0,
        "each process has its own storage"
    );
}

/// The storage answers requests in order.
pub fn storage_actions_complete_in_order(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[1], Span::from_millis(600));
    let acts = [
        Act::Persist(1, 1_000_000),
        Act::Read(FIRST, 1),
        Act::Read(FIRST, 9),
        Act::Record(1),
        Act::Persist(2, 10),
        Act::List,
        Act::Record(2),
    ];
    scenario.at(P0, None, Span::from_millis(50), acts);
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let answers: Vec<Observation> = evidence.seen(P0, FIRST).into_iter().filter(stored).collect();
    let expected = [
        Observation::Persisted { by: FIRST, number: 1 },
        Observation::Read { by: FIRST, number: 1, intact: true },
        Observation::Read { by: FIRST, number: 9, intact: false },
        Observation::Recorded { version: 1 },
        Observation::Persisted { by: FIRST, number: 2 },
        Observation::Listed { images: 2 },
        Observation::Found { by: FIRST, number: 1 },
        Observation::Found { by: FIRST, number: 2 },
        Observation::Recorded { version: 2 },
    ];
    assert_eq!(answers, expected);
}

/// The next life finds the images and the record that were reported durable, and no others.
pub fn a_crash_keeps_what_was_durable_and_nothing_else(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(900));
    for number in 1..=200 {
        // Each write takes longer than the interval between writes, so that the storage is always busy.
        let mut acts = vec![Act::Persist(number, 600_000), Act::Record(number)];
        match number {
            1 => acts.push(Act::Settle),
            120 => acts.push(Act::Mark),
            _ => {}
        }
        scenario.at(P0, Some(FIRST), Span::from_millis(20 + 2 * u64::from(number)), acts);
    }
    scenario.at(
        P0,
        Some(SECOND),
        Span::from_millis(20),
        [Act::List, Act::Persist(1, 10), Act::Read(FIRST, 1)],
    );
    scenario.inject(mark(P0, 1), Fault::crash(P0));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let before = evidence.seen(P0, FIRST);
    let after = evidence.seen(P0, SECOND);
    let durable: Vec<(Life, u32)> = before
        .iter()
        .filter_map(|it| match *it {
            Observation::Persisted { by, number } => Some((by, number)),
            _ => None,
        })
        .collect();
    assert!((1..120).contains(&durable.len()), "the crash occurred while images were being written");
    assert_eq!(listings(&after), [durable]);
    let record = before.iter().rev().find_map(|it| match *it {
        Observation::Recorded { version } => Some(version),
        _ => None,
    });
    assert_eq!(after[0], Observation::Started { boot: Boot::Restarted, record: record.unwrap_or(0) });
    let answers: Vec<&Observation> = after.iter().filter(|it| stored(it)).collect();
    assert!(answers.contains(&&Observation::Read { by: FIRST, number: 1, intact: true }));
    for answer in answers {
        if let Observation::Persisted { by, .. } = answer {
            assert_eq!(*by, SECOND, "a completion belongs to the life that requested it");
        }
    }
}

/// A process halts at the fact that triggers a fault: earlier actions are complete, later ones have not
/// begun. If the process is released, it performs the rest.
pub fn a_process_halts_between_two_actions(driver: &mut impl Driver) {
    expect_halt_at_second_mark(driver, &[]);
}

/// A process halts in the same way between actions that result from a job.
pub fn a_process_halts_between_two_actions_after_a_job(driver: &mut impl Driver) {
    expect_halt_at_second_mark(driver, &[Act::Compute(0, Span::from_millis(20)), Act::Settle]);
}

fn expect_halt_at_second_mark(driver: &mut impl Driver, before: &[Act]) {
    let acts = [
        Act::Mark,
        Act::Persist(1, 100),
        Act::Send(P1, 1),
        Act::Mark,
        Act::Persist(2, 100),
        Act::Send(P1, 3),
        Act::Mark,
    ];
    let acts = [before, &acts].concat();
    let at_second_mark = mark(P0, 2);

    let mut scenario = Scenario::new(&[2], Span::from_millis(800));
    scenario.at(P0, Some(FIRST), Span::from_millis(100), acts.clone());
    scenario.at(P0, Some(SECOND), Span::from_millis(100), [Act::List]);
    scenario.inject(at_second_mark.clone(), Fault::crash(P0));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let stream = &evidence.trace.streams[&(P0, FIRST)];
    let marks = stream.iter().filter(|(_, fact)| fact.kind() == FactKind::Protected).count();
    assert_eq!(marks, 2);
    assert_eq!(
        stream.last().map(|(_, fact)| fact.kind()),
        Some(FactKind::Protected),
        "no action after the halt is performed"
    );
    let from_first = received(&evidence.seen(P1, FIRST)).remove(&(P0, FIRST)).unwrap_or_default();
    assert!(
        from_first.is_empty() || from_first == [0],
        "only messages sent before the halt arrive: {from_first:?}"
    );
    for images in listings(&evidence.seen(P0, SECOND)) {
        assert!(images.is_empty() || images == [(FIRST, 1)], "only images written before the halt exist");
    }

    let mut scenario = Scenario::new(&[2], Span::from_millis(1200));
    scenario.script.all_arrives = true;
    scenario.at(P0, None, Span::from_millis(100), acts);
    scenario.inject(at_second_mark, Fault::pause(P0, Span::from_millis(200)));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_all_received(&evidence, &scenario, |from, _| if from == P0 { 4 } else { 0 });
    let answers: Vec<Observation> = evidence.seen(P0, FIRST).into_iter().filter(stored).collect();
    assert_eq!(answers, [1, 2].map(|number| Observation::Persisted { by: FIRST, number }));
}

/// When a halted process is released, the fault that it triggered is already in effect everywhere.
pub fn a_fault_is_in_force_before_its_trigger_resumes(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(600));
    scenario.script.all_arrives = true;
    expect_full_when_told(driver, scenario, Span::from_millis(100));
}

/// A fault also takes effect at a paused process, before that process handles any message from the released process.
pub fn a_fault_is_in_force_even_at_a_paused_process(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(600));
    scenario.script.all_arrives = true;
    let span = Span::from_millis(300);
    scenario.inject(Trigger::At(at(100)), Fault::pause(P1, span));
    expect_full_when_told(driver, scenario, Span::from_millis(200));
}

/// Asserts that P1's write fails if, at `after`, P0 triggers the fault that fills P1's storage, and then
/// tells P1 to write.
fn expect_full_when_told(driver: &mut impl Driver, mut scenario: Scenario, after: Span) {
    scenario.at(P0, None, after, [Act::Mark, Act::Send(P1, 1)]);
    scenario.script.on_message.push((P1, vec![Act::Persist(1, 100)]));
    scenario.inject(mark(P0, 1), Fault::storage(P1, StorageFault::Full, None));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let answers: Vec<Observation> = evidence.seen(P1, FIRST).into_iter().filter(stored).collect();
    assert_eq!(answers, [Observation::PersistFailed { by: FIRST, number: 1 }]);
}

/// The life that follows a loss of storage learns of the loss, and finds empty storage. Later lives also learn of
/// it, until one reports that its storage is complete.
pub fn lost_storage_is_empty_and_the_loss_is_remembered(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(500));
    let life = |number| Some(Life(number));
    let (early, late) = (Span::from_millis(50), Span::from_millis(250));
    scenario.at(P0, life(1), early, [Act::Persist(1, 1000), Act::Record(7), Act::List]);
    scenario.at(P0, life(2), early, [Act::List, Act::Persist(2, 1000), Act::Record(8)]);
    scenario.at(P0, life(3), early, [Act::List, Act::Held]);
    scenario.at(P0, life(4), early, [Act::List]);
    for number in 1..=3 {
        scenario.at(P0, life(number), late, [Act::Settle, Act::Mark]);
        let storage = if number == 1 { StorageFate::Lost } else { StorageFate::Kept };
        scenario.inject(mark(P0, number), Fault::kill(P0, storage));
    }
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let expected = [
        (1, Boot::Fresh, 0, vec![(Life(1), 1)]),
        (2, Boot::Replaced, 0, vec![]),
        (3, Boot::Replaced, 8, vec![(Life(2), 2)]),
        (4, Boot::Restarted, 8, vec![(Life(2), 2)]),
    ];
    for (life, boot, record, images) in expected {
        let seen = evidence.seen(P0, Life(life));
        assert_eq!(seen[0], Observation::Started { boot, record }, "life {life}");
        assert_eq!(listings(&seen), [images], "life {life}");
        let stated = Fact::LifeStarted { process: P0, life: Life(life), boot };
        assert!(evidence.supervisor().any(|fact| *fact == stated), "life {life}");
    }
}

/// Storage in memory is lost with its process.
pub fn volatile_storage_is_lost_with_its_process(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2], Span::from_millis(500));
    scenario.supervisor.volatile_storage = true;
    scenario.at(P0, Some(FIRST), Span::from_millis(50), [Act::Persist(1, 1000), Act::Record(7)]);
    scenario.at(P0, Some(FIRST), Span::from_millis(250), [Act::Settle, Act::Mark]);
    scenario.at(P0, Some(SECOND), Span::from_millis(50), [Act::List]);
    scenario.inject(mark(P0, 1), Fault::crash(P0));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let seen = evidence.seen(P0, SECOND);
    assert_eq!(seen[0], Observation::Started { boot: Boot::Replaced, record: 0 });
    assert_eq!(listings(&seen), [vec![]]);
}

/// Every job returns, unless the life that requested it ends first. In that case, its output is not delivered to the
/// next life.
pub fn completions_belong_to_the_life_that_asked(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[1], Span::from_millis(1500));
    let acts = [Act::Compute(0, Span::from_millis(800)), Act::Compute(1, Span::ZERO)];
    scenario.at(P0, Some(FIRST), Span::from_millis(20), acts);
    let acts = [Act::Compute(0, Span::from_millis(100)), Act::Compute(1, Span::ZERO)];
    scenario.at(P0, Some(SECOND), Span::from_millis(20), acts);
    scenario.inject(Trigger::At(at(200)), Fault::crash(P0));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let computed = |life| -> Vec<Observation> {
        let seen = evidence.seen(P0, life).into_iter();
        seen.filter(|it| matches!(it, Observation::Computed { .. })).collect()
    };
    assert_eq!(computed(FIRST), [Observation::Computed { by: FIRST, number: 1 }]);
    assert_eq!(computed(SECOND), [1, 0].map(|number| Observation::Computed { by: SECOND, number }));
}

/// No timeout is missed, even if timeouts are close together or expire under load.
pub fn timeouts_are_never_missed(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2, 1], Span::from_millis(700));
    scenario.script.all_arrives = true;
    steady_traffic(&mut scenario);
    for millis in [1, 2, 3, 100, 100, 101, 300, 500] {
        scenario.at(P0, None, Span::from_millis(millis), []);
    }
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    for process in scenario.processes() {
        let mut stepped: Vec<usize> = Vec::new();
        for observation in evidence.seen(process, FIRST) {
            if let Observation::Stepped { step, .. } = observation {
                stepped.push(step as usize);
            }
        }
        let steps = &scenario.script.steps;
        assert!(stepped.is_sorted_by_key(|&step| steps[step].after), "{process} performs its steps in order");
        let own: BTreeSet<usize> = (0..steps.len()).filter(|&step| steps[step].process == process).collect();
        assert_eq!(stepped.len(), own.len(), "{process} performs each step once");
        assert_eq!(stepped.into_iter().collect::<BTreeSet<_>>(), own, "{process}");
    }
}

/// A process that was paused for less than the detection time resumes, and loses neither a message nor a
/// timeout, even if nothing else wakes the process.
pub fn a_short_pause_loses_nothing(driver: &mut impl Driver) {
    const LONELY: ProcessId = ProcessId(3);
    let mut scenario = Scenario::new(&[2, 1, 1], Span::from_millis(1500));
    scenario.script.all_arrives = true;
    steady_traffic(&mut scenario);
    scenario.script.steps.retain(|step| step.process != LONELY);
    for step in &mut scenario.script.steps {
        step.acts.retain(|act| *act != Act::Send(LONELY, 1));
    }
    for millis in [100, 200, 1500] {
        let acts = if millis == 1500 { vec![Act::Finish] } else { vec![] };
        scenario.at(LONELY, None, Span::from_millis(millis), acts);
    }
    let span = Span::from_millis(150);
    scenario.inject(Trigger::At(at(150)), Fault::pause(P1, span));
    scenario.inject(Trigger::At(at(150)), Fault::pause(LONELY, span));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_all_received(
        &evidence,
        &scenario,
        |from, to| {
            if from == LONELY || to == LONELY { 0 } else { TRAFFIC }
        },
    );
    assert!(evidence.supervisor().all(|fact| !matches!(fact, Fact::Failed { .. } | Fact::Detected { .. })));
    let latenesses = |process| {
        evidence.seen(process, FIRST).into_iter().filter_map(|it| match it {
            Observation::Stepped { late, .. } => Some(late),
            _ => None,
        })
    };
    assert_eq!(latenesses(LONELY).count(), 3);
    for process in [P1, LONELY] {
        assert!(latenesses(process).any(|late| late > 50_000), "{process} was paused");
    }
}

/// A process that is paused for longer than the detection time is killed before its failure is announced. Its next life
/// starts afterwards.
pub fn a_long_pause_is_fenced(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[2, 1], Span::from_millis(1200));
    steady_traffic(&mut scenario);
    scenario.inject(Trigger::At(at(150)), Fault::pause(P1, Span::from_secs(20)));
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    assert_eq!(evidence.lives(P1), [FIRST, SECOND]);
    let own: Vec<&Fact> = evidence.supervisor().collect();
    let place = |wanted: &Fact| own.iter().position(|fact| *fact == wanted).expect("the fact is reported");
    let by = EndedBy::Fault(FaultNo(0));
    let failed = Fact::Failed { process: P1, life: FIRST, storage: StorageFate::Kept, by };
    let detected = Fact::Detected { process: P1, life: FIRST };
    let next = Fact::LifeStarted { process: P1, life: SECOND, boot: Boot::Restarted };
    assert!(place(&failed) < place(&detected) && place(&detected) < place(&next));
    let stepped = evidence.seen(P1, FIRST).into_iter().filter(|it| matches!(it, Observation::Stepped { .. }));
    assert!(stepped.count() < TRAFFIC as usize, "it was paused until it was killed");
    expect_lives_apart(&evidence, &scenario);
}

/// A cut link holds packets until it heals; other links, including the opposite direction, are not affected.
pub fn a_partition_delays_and_loses_nothing(driver: &mut impl Driver) {
    const P2: ProcessId = ProcessId(2);
    let mut scenario = Scenario::new(&[2, 1], Span::from_millis(1800));
    scenario.script.all_arrives = true;
    // While the link from cluster 0 to cluster 1 is cut:
    scenario.at(P0, None, Span::from_millis(300), [Act::Send(P1, 10), Act::Send(P2, 10)]);
    scenario.at(P2, None, Span::from_millis(300), [Act::Send(P1, 10)]);
    for process in scenario.processes() {
        scenario.at(process, None, Span::from_millis(600), [Act::Mark]);
    }
    let fault = Fault::Partition { from: C0, to: vec![C1], both: false, span: Span::from_millis(1000) };
    scenario.inject(Trigger::At(at(100)), fault);
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_all_received(&evidence, &scenario, |from, to| {
        if [(P0, P1), (P0, P2), (P2, P1)].contains(&(from, to)) { 10 } else { 0 }
    });
    let before_mark = |process| {
        let stream = &evidence.trace.streams[&(process, FIRST)];
        let early = stream.iter().take_while(|(_, fact)| fact.kind() != FactKind::Protected);
        let is_message = |fact| matches!(Observation::from_fact(fact), Some(Observation::Received { .. }));
        early.filter(|(_, fact)| is_message(fact)).count()
    };
    assert_eq!(before_mark(P1), 20, "the links within the cluster and back are not cut");
    assert_eq!(before_mark(P2), 0, "the cut link holds everything");
}

/// Full storage refuses writes only while it is full, and keeps images that it already contains. Images in corrupt
/// storage count as missing only while it is corrupt.
pub fn full_storage_refuses_and_corrupt_storage_forgets(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[1], Span::from_millis(2500));
    let storage = |how, span| Fault::storage(P0, how, Span::from_millis(span));
    scenario.inject(Trigger::At(at(200)), storage(StorageFault::Full, 400));
    scenario.inject(Trigger::At(at(1000)), storage(StorageFault::Corrupt, 500));
    scenario.at(P0, None, Span::from_millis(20), [Act::Persist(1, 1000)]);
    scenario.at(P0, None, Span::from_millis(400), [Act::Persist(2, 1000), Act::Persist(1, 1000)]);
    scenario.at(P0, None, Span::from_millis(800), [Act::Persist(3, 1000), Act::Read(FIRST, 1)]);
    scenario.at(P0, None, Span::from_millis(1250), [Act::Read(FIRST, 1)]);
    scenario.at(P0, None, Span::from_millis(1900), [Act::Read(FIRST, 1), Act::Read(FIRST, 2), Act::List]);
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    let answers: Vec<Observation> = evidence.seen(P0, FIRST).into_iter().filter(stored).collect();
    let expected = [
        Observation::Persisted { by: FIRST, number: 1 },
        Observation::PersistFailed { by: FIRST, number: 2 },
        Observation::Persisted { by: FIRST, number: 1 },
        Observation::Persisted { by: FIRST, number: 3 },
        Observation::Read { by: FIRST, number: 1, intact: true },
        Observation::Read { by: FIRST, number: 1, intact: false },
        Observation::Read { by: FIRST, number: 1, intact: true },
        Observation::Read { by: FIRST, number: 2, intact: false },
        Observation::Listed { images: 2 },
        Observation::Found { by: FIRST, number: 1 },
        Observation::Found { by: FIRST, number: 3 },
    ];
    assert_eq!(answers, expected);
}

/// All processes of a lost cluster fail before any of the failures is detected, and all return.
pub fn a_lost_cluster_returns(driver: &mut impl Driver) {
    let mut scenario = Scenario::new(&[3, 1], Span::from_millis(900));
    steady_traffic(&mut scenario);
    for process in scenario.processes() {
        scenario.at(process, Some(FIRST), Span::from_millis(50), [Act::Persist(1, 1000)]);
        scenario.at(process, Some(SECOND), Span::from_millis(50), [Act::List]);
    }
    let fault = Fault::kill(C0, StorageFate::Lost);
    scenario.inject(Trigger::At(at(200)), fault);
    let evidence = driver.run::<false>(&scenario);
    evidence.expect_complete();
    expect_lives_apart(&evidence, &scenario);
    let ends: Vec<&Fact> = evidence
        .supervisor()
        .filter(|fact| matches!(fact, Fact::Failed { .. } | Fact::Detected { .. }))
        .collect();
    let by = EndedBy::Fault(FaultNo(0));
    let failed = |process| Fact::Failed { process, life: FIRST, storage: StorageFate::Lost, by };
    assert_eq!(ends.len(), 6);
    for (index, process) in (0..3).map(ProcessId).enumerate() {
        assert_eq!(*ends[index], failed(process), "all processes of the cluster fail simultaneously");
        let seen = evidence.seen(process, SECOND);
        assert_eq!(seen[0], Observation::Started { boot: Boot::Replaced, record: 0 });
        assert_eq!(listings(&seen), [vec![]]);
    }
}

/// Returns the time that is this many milliseconds after the start of the application.
fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// Returns a trigger for occurrence `occurrence` of [`Act::Mark`] at `process`.
fn mark(process: ProcessId, occurrence: u32) -> Trigger {
    Trigger::When { fact: FactKind::Protected, of: None, cluster: None, process: Some(process), occurrence }
}

fn version(observation: &Observation) -> Option<u32> {
    match observation {
        Observation::Membership { version } => Some(*version),
        _ => None,
    }
}

/// Returns whether this is a response from the storage.
fn stored(observation: &Observation) -> bool {
    matches!(
        observation,
        Observation::Persisted { .. }
            | Observation::PersistFailed { .. }
            | Observation::Read { .. }
            | Observation::Listed { .. }
            | Observation::Found { .. }
            | Observation::Recorded { .. }
    )
}

/// Returns the listings, each with its images.
fn listings(seen: &[Observation]) -> Vec<Vec<(Life, u32)>> {
    let mut listings: Vec<Vec<(Life, u32)>> = Vec::new();
    for observation in seen {
        match *observation {
            Observation::Listed { .. } => listings.push(Vec::new()),
            Observation::Found { by, number } => {
                listings.last_mut().expect("an image is found in a listing").push((by, number));
            }
            _ => {}
        }
    }
    listings
}

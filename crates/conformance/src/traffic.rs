//! The messages that processes exchange in several cases, and what every driver must do with them.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Life, ProcessId, Span};

use crate::observation::Observation;
use crate::probe::Act;
use crate::scenario::{Evidence, Scenario};

/// Number of messages that each life of a process sends to every other process in [`steady_traffic`].
pub(crate) const TRAFFIC: u32 = 60;

/// Makes every process send 20 messages to every other process, three times.
pub(crate) fn bursts(scenario: &mut Scenario) {
    for from in scenario.processes() {
        let acts: Vec<Act> =
            scenario.processes().filter(|to| *to != from).map(|to| Act::Send(to, 20)).collect();
        for millis in [50, 51, 200] {
            scenario.at(from, None, Span::from_millis(millis), acts.clone());
        }
    }
}

/// Makes every process send a message to every other process every 8 ms for half a second, in each of its
/// lives.
pub(crate) fn steady_traffic(scenario: &mut Scenario) {
    for from in scenario.processes() {
        let acts: Vec<Act> =
            scenario.processes().filter(|to| *to != from).map(|to| Act::Send(to, 1)).collect();
        for index in 0..u64::from(TRAFFIC) {
            scenario.at(from, None, Span::from_millis(20 + 8 * index), acts.clone());
        }
    }
}

/// Returns the numbers of the received messages in order of arrival, grouped by the life that sent them.
pub(crate) fn received(seen: &[Observation]) -> BTreeMap<(ProcessId, Life), Vec<u32>> {
    let mut numbers: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for observation in seen {
        if let Observation::Received { from, from_life, number, .. } = *observation {
            numbers.entry((from, from_life)).or_default().push(number);
        }
    }
    numbers
}

/// Panics unless there were only first lives, and each pair's messages (as many as `sent` returns) arrived exactly
/// once.
pub(crate) fn expect_all_received(
    evidence: &Evidence,
    scenario: &Scenario,
    sent: impl Fn(ProcessId, ProcessId) -> u32,
) {
    for to in scenario.processes() {
        assert_eq!(evidence.lives(to), [Life(1)], "{to} has a single life");
        let mut received = received(&evidence.seen(to, Life(1)));
        for from in scenario.processes().filter(|from| *from != to) {
            let mut numbers = received.remove(&(from, Life(1))).unwrap_or_default();
            numbers.sort_unstable();
            let expected: Vec<u32> = (0..sent(from, to)).collect();
            assert_eq!(numbers, expected, "{from}->{to}");
        }
        assert!(received.is_empty(), "messages without a sender: {received:?}");
    }
}

/// Panics unless each message was delivered at most once, to the intended life, and came from the newest life
/// announced. Also panics if a message between the last lives of two processes is missing, but a later one arrived.
pub(crate) fn expect_lives_apart(evidence: &Evidence, scenario: &Scenario) {
    for process in scenario.processes() {
        for life in evidence.lives(process) {
            let mut newest: BTreeMap<ProcessId, Life> = BTreeMap::new();
            let mut heard = BTreeSet::new();
            for observation in evidence.seen(process, life) {
                match observation {
                    Observation::Peer { process, life, .. } => {
                        newest.insert(process, life);
                    }
                    Observation::Received { from, from_life, for_life, number } => {
                        assert_eq!(for_life, life, "{process}: a message from {from} for another life");
                        assert_eq!(newest.get(&from), Some(&from_life), "{process}: a message from {from}");
                        assert!(
                            heard.insert((from, from_life, number)),
                            "{process}: a message from {from} twice"
                        );
                    }
                    _ => {}
                }
            }
            if Some(&life) != evidence.lives(process).last() {
                continue;
            }
            for ((from, from_life), mut numbers) in received(&evidence.seen(process, life)) {
                if Some(&from_life) == evidence.lives(from).last() {
                    numbers.sort_unstable();
                    let expected: Vec<u32> = (0..numbers.len() as u32).collect();
                    assert_eq!(numbers, expected, "{from}->{process}, last lives");
                }
            }
        }
    }
}

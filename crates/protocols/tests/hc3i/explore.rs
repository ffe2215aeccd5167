//! Random schedules without a clock: any possible event may come next. On a simulated network, an unlikely order
//! stays unlikely. Here, a message can be overtaken by a whole recovery, and one process can learn of the membership
//! long after all others.

use faultline_checker::Verdict;
use faultline_core::StorageFate::{Kept, Lost};
use faultline_core::{Claim, ClusterId, Presence, ProcessId};
use faultline_protocols::hc3i::{CollectBy, Config, Defects, ReplicateTo};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::setting::{CHECKPOINT_EVERY, COLLECT_EVERY, Federation, RETRY, config};

struct Schedule {
    dice: ChaCha8Rng,
    federation: Federation,
    ranks: Vec<ProcessId>,
    /// Percentage of failures in which the storage is lost.
    lost_percent: u32,
    /// Whether any storage may be lost at any time. The replicas do not cover such losses.
    is_greedy: bool,
    /// Unless `is_greedy` is set: the process that has lost its storage, and the number of `Protected` claims
    /// that it had made before. No other process loses its storage until this process makes another such
    /// claim.
    lost_storage: Option<(ProcessId, usize)>,
    /// Whether storage may become full.
    fills: bool,
    full: Vec<ProcessId>,
    /// Whether the content of one storage may become corrupt. Set only in schedules in which no storage is lost.
    may_corrupt: bool,
    texts: u32,
    guest: Option<Guest>,
}

/// A cluster that joins, leaves, or both.
struct Guest {
    cluster: ClusterId,
    has_joined: bool,
    /// Whether the cluster is leaving. Once it is, the schedule sends no further messages from it or to it.
    leaves: bool,
    has_left: bool,
    /// Number of permissions to leave that became void because one of the cluster's processes failed.
    void: usize,
}

impl Schedule {
    fn new(seed: u64) -> Schedule {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let clusters: &[u32] =
            pick(&mut dice, &[&[1, 1][..], &[1, 2], &[2, 1], &[2, 2], &[1, 1, 1], &[1, 2, 1]]);
        let own = Config {
            replicas: pick(&mut dice, &[1, 1, 2]),
            replicate_to: pick(
                &mut dice,
                &[ReplicateTo::OtherCluster, ReplicateTo::SameCluster, ReplicateTo::SharedStorage],
            ),
            collect_by: pick(&mut dice, &[CollectBy::Initiator, CollectBy::EveryCluster]),
            ..config(Defects::default())
        };
        // The two other clusters can hold the guest's replicas, and collect garbage without the guest.
        let may_have_guest = clusters.len() == 3 && own.replicas == 1;
        let presence = may_have_guest.then(|| {
            pick(
                &mut dice,
                &[None, Some(Presence::Awaited), Some(Presence::Present), Some(Presence::Present)],
            )
        });
        let guest = presence.flatten().map(|presence| (ClusterId(2), presence));
        let mut federation = Federation::with_presences(clusters, own, guest.as_slice());
        if dice.random() {
            federation.let_output_survive();
        }
        let is_rank = |it: &ProcessId| federation.cluster_of(*it) != ClusterId::OUTSIDE;
        let ranks = federation.processes().filter(is_rank).collect();
        let lost_percent = pick(&mut dice, &[0, 0, 30]);
        Schedule {
            federation,
            ranks,
            lost_percent,
            is_greedy: dice.random_range(0..4) == 0,
            lost_storage: None,
            fills: dice.random_range(0..4) == 0,
            full: Vec::new(),
            may_corrupt: lost_percent == 0 && dice.random_range(0..4) == 0,
            texts: 0,
            guest: guest.map(|(cluster, presence)| Guest {
                cluster,
                has_joined: presence == Presence::Present,
                leaves: false,
                has_left: false,
                void: 0,
            }),
            dice,
        }
    }

    /// Performs one random step.
    fn step(&mut self, faults: bool) {
        let all: Vec<ProcessId> = self.federation.processes().collect();
        let process = pick(&mut self.dice, &all);
        let lives = self.federation.lives(process);
        match self.dice.random_range(0..1000) {
            0..100 => self.send(process),
            100..120 if lives => self.federation.wake(process, CHECKPOINT_EVERY),
            120..130 if lives => self.federation.wake(process, COLLECT_EVERY),
            130..150 if lives => self.federation.wake(process, RETRY),
            150..157 if lives && faults => self.kill(process),
            160..163 if faults && self.fills && !self.is_away(process) => self.fill_or_empty(process),
            163..164 if faults && self.may_corrupt => {
                self.may_corrupt = false;
                self.federation.corrupt(process);
            }
            170..230 if !lives && !self.is_away(process) => self.federation.advance_return(process),
            230..250 => self.move_guest(),
            _ => {
                self.federation.step_any(|count| self.dice.random_range(0..count));
            }
        }
    }

    fn send(&mut self, from: ProcessId) {
        let to = pick(&mut self.dice, &self.ranks);
        if from != to && self.federation.can_act(from) && !self.is_leaving(from) && !self.is_leaving(to) {
            self.texts += 1;
            self.federation.send(from, to, &format!("m{}", self.texts));
        }
    }

    fn is_of_guest(&self, process: ProcessId, is: impl Fn(&Guest) -> bool) -> bool {
        let cluster = self.federation.cluster_of(process);
        self.guest.as_ref().is_some_and(|guest| guest.cluster == cluster && is(guest))
    }

    fn is_away(&self, process: ProcessId) -> bool {
        self.is_of_guest(process, |guest| !guest.has_joined || guest.has_left)
    }

    fn is_leaving(&self, process: ProcessId) -> bool {
        self.is_of_guest(process, |guest| guest.leaves)
    }

    /// Takes the guest's next step towards joining or leaving, if that is possible.
    fn move_guest(&mut self) {
        let Some(guest) = &mut self.guest else { return };
        let (cluster, federation) = (guest.cluster, &mut self.federation);
        let members = federation.members(cluster);
        let is_whole = members.iter().all(|&it| federation.lives(it));
        if !guest.has_joined {
            guest.has_joined = true;
            federation.join(cluster);
        } else if !guest.leaves {
            guest.leaves = self.dice.random_range(0..4) == 0;
        } else if !is_whole {
            // The guest has left, or has to recover first.
        } else if federation.releases(cluster) > guest.void {
            guest.has_left = true;
            self.lost_storage = self.lost_storage.filter(|(victim, _)| !members.contains(victim));
            federation.leave_federation(cluster);
        } else if federation.has_everything(cluster) {
            for &member in members.iter() {
                if federation.can_act(member) && !federation.has_left(member) {
                    federation.leave(member);
                }
            }
        }
    }

    fn kill(&mut self, process: ProcessId) {
        if let Some(guest) = &mut self.guest
            && guest.cluster == self.federation.cluster_of(process)
        {
            guest.void = self.federation.releases(guest.cluster);
        }
        let protected = |federation: &Federation, it| {
            federation.claims(it).filter(|claim| matches!(claim, Claim::Protected)).count()
        };
        if self.lost_storage.is_some_and(|(victim, before)| protected(&self.federation, victim) > before) {
            self.lost_storage = None;
        }
        let may_lose = self.is_greedy || self.lost_storage.is_none_or(|(victim, _)| victim == process);
        let is_lost = may_lose && self.dice.random_range(0..100) < self.lost_percent;
        if is_lost {
            self.lost_storage = Some((process, protected(&self.federation, process)));
        }
        self.federation.kill(process, if is_lost { Lost } else { Kept });
    }

    fn fill_or_empty(&mut self, process: ProcessId) {
        match self.full.iter().position(|&it| it == process) {
            Some(place) => {
                self.full.swap_remove(place);
            }
            None => self.full.push(process),
        }
        self.federation.fail_writes(process, self.full.contains(&process));
    }

    /// Starts all processes and delivers everything. The last messages show that no process is blocked.
    fn run_until_quiescent(&mut self) {
        while let Some(&process) = self.full.first() {
            self.fill_or_empty(process);
        }
        if self.guest.as_ref().is_some_and(|it| !it.has_joined) {
            self.move_guest();
        }
        for process in self.federation.processes().filter(|&it| !self.is_away(it)).collect::<Vec<_>>() {
            while !self.federation.lives(process) {
                self.federation.advance_return(process);
            }
        }
        (0..200).for_each(|_| self.step(false));
        self.federation.retry();
        self.federation.retry();
        if self.federation.is_unrecoverable() {
            return;
        }
        let ranks: Vec<ProcessId> = self.ranks.iter().copied().filter(|&it| !self.is_leaving(it)).collect();
        for &from in &ranks {
            for &to in ranks.iter().filter(|&&to| to != from) {
                self.federation.exchange(from, to, "last");
            }
        }
        self.federation.retry();
    }
}

fn pick<T: Copy>(dice: &mut ChaCha8Rng, from: &[T]) -> T {
    from[dice.random_range(0..from.len())]
}

/// Tries `EXPLORE_COUNT` seeds (default 1000) from `EXPLORE_FROM` (default 0). If any of them fail, the events of the
/// first failed schedule are printed.
#[test]
fn random_schedules_are_clean() {
    let setting = |name, default| {
        std::env::var(name).map_or(default, |it| it.parse().expect("the variable is a number"))
    };
    let (from, count) = (setting("EXPLORE_FROM", 0), setting("EXPLORE_COUNT", 1000));
    let mut passed = 0;
    let mut failed = Vec::new();
    let mut first = None;
    for seed in from..from + count {
        let mut schedule = Schedule::new(seed);
        let steps = pick(&mut schedule.dice, &[150, 400, 800]);
        (0..steps).for_each(|_| schedule.step(true));
        schedule.run_until_quiescent();
        let judgement = schedule.federation.judge();
        passed += u64::from(judgement.verdict == Verdict::Pass);
        if judgement.verdict == Verdict::Fail {
            failed.push((seed, judgement.reasons));
            first.get_or_insert(schedule.federation);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(passed * 100 >= 85 * count, "only {passed} of {count} schedules exercised a property and passed");
}

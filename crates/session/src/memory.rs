//! The memory limit of simulated runs.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_catalog::{SetupError, check_memory};
use faultline_core::fault::{MemoryContent, MemoryPart, MemoryUse};
use faultline_core::{Fact, Time};
use faultline_sim::Contents;
use faultline_supervisor::MemoryBound;

/// The memory of a fact, in bytes: the fact itself, and half as much for unused space in its vector.
const FACT: u64 = 3 * size_of::<(Time, Fact)>() as u64 / 2;
/// The memory per fact that is needed to judge a run, in bytes. Measured: 225 to 245 including the fact itself, in runs
/// of 400,000 and 900,000 facts.
const JUDGED_FACT: u64 = 200;

/// The memory in bytes that a fact requires until it has been judged.
pub const BYTES_PER_FACT: u64 = FACT + JUDGED_FACT;

/// The fraction of the limit that is reserved for the end of each run in progress, as a divisor: adding up the contents
/// of the memory takes memory, too, and the allocator takes some time to return the memory of a run that has ended.
const RESERVE: u64 = 8;
/// The largest number of runs in progress that have memory reserved for their ends. Together, they reserve
/// half of the limit.
const RESERVES: u64 = RESERVE / 2;

/// The longest time to wait for the allocator to return freed memory to the system. By default, mimalloc keeps it for a
/// second.
const RETURN_WITHIN: Duration = Duration::from_millis(2000);

/// The memory limit of this program.
static BOUND: OnceLock<MemoryBound> = OnceLock::new();
/// The memory in bytes that this program used when its limit was set. No run can use it.
static BASE: AtomicU64 = AtomicU64::new(0);
/// The number of simulated runs in progress.
static RUNNING: AtomicU64 = AtomicU64::new(0);
/// The memory in bytes that this program used after it last waited for freed memory or, if it has never
/// waited, when its limit was set.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Limits the memory of this program: a simulated run ends as [out of
/// memory](faultline_core::fault::Outcome::OutOfMemory) once the program has reached the limit, or once judging the run
/// would exceed it. The limit applies to all simulators that are created afterwards. Only the first call has an effect.
///
/// The limit applies to the whole program: runs on several threads share it, including the runs that a search or an
/// experiment begins.
pub fn bound_memory(bound: MemoryBound) {
    BOUND.get_or_init(|| {
        let used = (bound.used)();
        BASE.store(used, Ordering::Relaxed);
        KEPT.store(used, Ordering::Relaxed);
        bound
    });
}

/// Returns the memory limit of this program, if it has one.
pub fn memory_bound() -> Option<MemoryBound> {
    BOUND.get().copied()
}

/// Returns the number of facts that can be judged within the memory limit of this program.
pub fn most_facts() -> u64 {
    memory_bound().map_or(u64::MAX, |it| free(it.bytes) / BYTES_PER_FACT)
}

/// Checks that the task-based program of a federation fits in this memory limit.
///
/// # Errors
///
/// Fails if it does not.
pub(crate) fn check_program(federation: &Federation, bound: Option<MemoryBound>) -> Result<(), SetupError> {
    bound.map_or(Ok(()), |it| check_memory(federation, free(it.bytes - reserved(it.bytes, 1))))
}

/// Returns the part of a memory limit, in bytes, that is reserved for the ends of `running` runs.
fn reserved(bound: u64, running: u64) -> u64 {
    bound / RESERVE * running.clamp(1, RESERVES)
}

/// Returns the part of a memory limit that runs can use, in bytes.
fn free(bound: u64) -> u64 {
    bound.saturating_sub(BASE.load(Ordering::Relaxed))
}

/// Returns the memory use to report for a record with more than `most` facts, too many for this program to judge.
pub(crate) fn beyond(most: u64) -> MemoryUse {
    let (bound, used) = memory_bound().map_or((0, 0), |it| (it.bytes, (it.used)()));
    let facts = MemoryPart { content: MemoryContent::JudgedFacts, count: most, bytes: most * BYTES_PER_FACT };
    MemoryUse { bound, used, parts: vec![facts] }
}

/// Watches the memory of the program during one run.
pub(crate) struct Watch {
    bound: Option<MemoryBound>,
    /// The memory in bytes that the program used when the run began. The allocator keeps the memory that
    /// earlier runs have freed, so this run may use up to that much memory before the program grows.
    before: u64,
    /// The last measurement, in bytes.
    last: Cell<u64>,
}

impl Watch {
    pub(crate) fn new(bound: Option<MemoryBound>) -> Watch {
        let is_alone = RUNNING.fetch_add(1, Ordering::Relaxed) == 0;
        let before =
            bound.map_or(0, |it| if is_alone { wait_for_return(it.used, it.bytes / 2) } else { (it.used)() });
        Watch { before, bound, last: Cell::new(before) }
    }

    /// Returns the last measurement in bytes, or 0 if there is no limit.
    pub(crate) fn last_used(&self) -> u64 {
        self.last.get()
    }

    /// Returns the memory limit in bytes, or [`u64::MAX`] if there is none.
    pub(crate) fn limit(&self) -> u64 {
        self.bound.map_or(u64::MAX, |it| it.bytes)
    }

    /// Returns what fills the memory if the run has to end now; `None` if the run can continue. `facts` is
    /// the number of facts so far; `contents` returns the contents of the simulation.
    pub(crate) fn reached(&self, facts: u64, contents: impl FnOnce() -> Contents) -> Option<MemoryUse> {
        let MemoryBound { bytes: bound, used } = self.bound?;
        let used = used();
        self.last.set(used);
        let judged_bytes = facts * BYTES_PER_FACT;
        let running = RUNNING.load(Ordering::Relaxed).max(1);
        let threshold = bound - reserved(bound, running);
        // If no other run is in progress, judging this one may use the whole limit: by then, this run's simulation has
        // freed its memory.
        let judgeable = if running == 1 { free(bound) } else { free(threshold) / running };
        // The memory of the simulation is free again when the run is judged; that of the facts is not.
        let is_full = used >= threshold && used > self.before + self.before / RESERVE;
        let of_facts = if is_full || used >= bound {
            (MemoryContent::Facts, facts * FACT)
        } else if judged_bytes >= judgeable {
            (MemoryContent::JudgedFacts, judged_bytes)
        } else {
            return None;
        };
        let Contents { images, image_bytes, logged, logged_bytes, queued, queued_bytes } = contents();
        let part = |content, count, bytes| MemoryPart { content, count, bytes };
        let parts = vec![
            part(of_facts.0, facts, of_facts.1),
            part(MemoryContent::Checkpoints, images, image_bytes),
            part(MemoryContent::Logs, logged, logged_bytes),
            part(MemoryContent::Queue, queued, queued_bytes),
        ];
        Some(MemoryUse { bound, used, parts })
    }

    /// Waits for the allocator to return the memory that the simulation has freed, if the program would
    /// otherwise exceed the limit while it judges a run with `facts` facts.
    pub(crate) fn make_room(&self, facts: u64) {
        if let Some(MemoryBound { bytes, used }) = self.bound {
            wait_for_return(used, bytes.saturating_sub(facts * JUDGED_FACT));
        }
    }
}

/// Waits, for at most [`RETURN_WITHIN`], until the allocator has returned enough freed memory for the program to use at
/// most `enough` bytes. Returns the memory in use, in bytes.
///
/// There is no further wait until the memory has grown by an eighth, so that a program whose memory is all in use does
/// not wait before and after each run.
#[expect(
    clippy::disallowed_methods,
    reason = "the allocator returns memory after some time; no run is in progress"
)]
fn wait_for_return(used: fn() -> u64, enough: u64) -> u64 {
    let mut now = used();
    let kept = KEPT.load(Ordering::Relaxed);
    if now <= enough || now <= kept + kept / RESERVE {
        return now;
    }
    let begun = Instant::now();
    while now > enough && begun.elapsed() < RETURN_WITHIN {
        sleep(Duration::from_millis(10));
        // The allocator returns memory to the system only when the program frees some.
        drop(black_box(vec![0_u8; 4 << 20]));
        now = used();
    }
    KEPT.store(now, Ordering::Relaxed);
    now
}

impl Drop for Watch {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

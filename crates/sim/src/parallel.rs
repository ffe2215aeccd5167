//! Runs many simulations on several cores. The results do not depend on the number of cores.
//!
//! Runs share nothing, so this is the only module of the simulator with threads. It is independent of the
//! simulation: the caller defines the work.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Number of items per thread that may be in progress or wait for the result of an earlier item.
const AHEAD: usize = 16;

/// Applies `work` to each of `items`, such as the seeds of runs, on `jobs` threads, and passes the results to `take`
/// in the order of the items.
///
/// `take` runs on the calling thread. It receives the same sequence for every value of `jobs`, so its output is
/// identical, byte for byte. Once `take` returns [`ControlFlow::Break`], no further work begins, and the function
/// returns the value of the break. Work in progress on later items completes, and its results are discarded, so `work`
/// must have no side effects. At most 16 items per thread are in progress or waiting at any time, even if `items` is
/// infinite. With one job, everything runs on the calling thread.
///
/// # Panics
///
/// Panics if `work` panics, once all work in progress has completed.
pub fn in_order<Item: Send, Result: Send, Break>(
    jobs: NonZero<usize>,
    items: impl IntoIterator<Item = Item>,
    work: impl Fn(Item) -> Result + Sync,
    mut take: impl FnMut(Result) -> ControlFlow<Break>,
) -> ControlFlow<Break> {
    let mut items = items.into_iter();
    if jobs.get() == 1 {
        return items.try_for_each(|item| take(work(item)));
    }
    let under_way = jobs.get().saturating_mul(AHEAD);
    let (tasks, queue) = sync_channel::<Task<Item, Result>>(under_way);
    let (queue, stopped) = (Mutex::new(queue), AtomicBool::new(false));
    thread::scope(|scope| {
        // Moved here so that the sender is dropped before the scope waits for its threads: they end once the queue is
        // closed.
        let tasks = tasks;
        let mut threads = 0;
        let mut results = VecDeque::new();
        loop {
            while results.len() < under_way
                && let Some(item) = items.next()
            {
                if threads < jobs.get() {
                    threads += 1;
                    scope.spawn(|| serve(&queue, &work, &stopped));
                }
                let (answer, result) = sync_channel(1);
                results.push_back(result);
                // The send cannot fail, because the receiver outlives the scope.
                let _ = tasks.send(Task { item, answer });
            }
            let Some(oldest) = results.pop_front() else { return ControlFlow::Continue(()) };
            let taken = oldest.recv().map(&mut take);
            // If there is no result, the thread has panicked. The scope panics as well once the other threads have
            // ended.
            if !matches!(taken, Ok(ControlFlow::Continue(()))) {
                stopped.store(true, Ordering::Relaxed);
                return taken.unwrap_or(ControlFlow::Continue(()));
            }
        }
    })
}

/// One item, and the channel for its result.
struct Task<Item, Result> {
    item: Item,
    answer: SyncSender<Result>,
}

/// Handles tasks from the queue until it is closed.
fn serve<Item, Result>(
    queue: &Mutex<Receiver<Task<Item, Result>>>,
    work: &impl Fn(Item) -> Result,
    stopped: &AtomicBool,
) {
    loop {
        // No work happens under the lock, so a panic cannot leave the queue in an inconsistent state.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Task { item, answer }) = next else { return };
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        // The send fails if the caller has stopped and no longer needs the result.
        let _ = answer.send(work(item));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn jobs(count: usize) -> NonZero<usize> {
        NonZero::new(count).expect("at least one")
    }

    /// Takes longer for some items than for others, so that later items complete first.
    fn uneven(item: u64) -> u64 {
        (0..item % 7 * 10_000).fold(item, |sum, it| std::hint::black_box(sum ^ it ^ it))
    }

    #[test]
    fn results_come_in_order_whatever_the_number_of_jobs() {
        for count in [1, 2, 3, 16] {
            let mut taken = Vec::new();
            let flow: ControlFlow<()> = in_order(jobs(count), 0..500, uneven, |result| {
                taken.push(result);
                ControlFlow::Continue(())
            });
            assert_eq!(flow, ControlFlow::Continue(()));
            assert_eq!(taken, Vec::from_iter(0..500), "{count} jobs");
        }
    }

    #[test]
    fn nothing_begins_after_a_break() {
        for count in [1, 2, 8] {
            let (begun, mut taken) = (AtomicUsize::new(0), 0);
            let work = |item| {
                begun.fetch_add(1, Ordering::Relaxed);
                uneven(item)
            };
            let flow = in_order(jobs(count), 0.., work, |result| {
                taken += 1;
                if result == 100 { ControlFlow::Break(result) } else { ControlFlow::Continue(()) }
            });
            assert_eq!((flow, taken), (ControlFlow::Break(100), 101), "{count} jobs");
            let begun = begun.into_inner();
            assert!(begun <= 101 + count * AHEAD, "{begun} begun with {count} jobs");
        }
    }

    #[test]
    fn all_jobs_work_in_parallel() {
        let all_at_once = Barrier::new(4);
        let work = |_| {
            all_at_once.wait();
        };
        let flow: ControlFlow<()> = in_order(jobs(4), 0..8, work, |()| ControlFlow::Continue(()));
        assert!(flow.is_continue());
    }

    #[test]
    fn jobs_do_not_run_too_far_ahead() {
        let (begun, mut taken) = (AtomicUsize::new(0), 0);
        let work = |_| begun.fetch_add(1, Ordering::Relaxed);
        let flow: ControlFlow<()> = in_order(jobs(3), 0..2000, work, |_| {
            let ahead = begun.load(Ordering::Relaxed) - taken;
            assert!(ahead <= 3 * AHEAD, "{ahead} results wait");
            taken += 1;
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_in_work_reaches_the_caller() {
        let work = |item| assert_ne!(item, 40);
        let _: ControlFlow<()> = in_order(jobs(2), 0..1000, work, |()| ControlFlow::Continue(()));
    }
}

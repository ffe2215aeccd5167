//! Many runs on many cores, with the same answer whatever their number.
//!
//! Runs share nothing, so that this is the only place where the simulator knows threads. It knows no simulation either:
//! what a run is, the caller says.

use std::collections::VecDeque;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Results of one thread that may wait for an earlier one of another.
const AHEAD: usize = 16;

/// Does `work` on each of `items`, such as the seeds of runs, on `jobs` threads, and gives the results to `take` in the
/// order of the items.
///
/// `take` runs on the calling thread, and sees the same sequence whatever `jobs` is: what it prints or sums up is the
/// same to the byte. Once it breaks nothing more begins, and what it broke with is returned; work that is under way on
/// later items is finished and forgotten, so `work` must leave no trace but its result. At most a few dozen items for
/// each thread are under way or wait to be taken, however many there are, which may be infinitely many. With one job
/// everything happens on the calling thread.
///
/// # Panics
///
/// When `work` does, after what had begun is finished.
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
        // Dropped before the scope waits for its threads, which end with it.
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
                // Only if all threads have panicked does nobody take it, and then there is no result either.
                let _ = tasks.send(Task { item, answer });
            }
            let Some(oldest) = results.pop_front() else { return ControlFlow::Continue(()) };
            let taken = oldest.recv().map(&mut take);
            // Without a result, its thread has panicked, and the scope does so, too, when the others have ended.
            if !matches!(taken, Ok(ControlFlow::Continue(()))) {
                stopped.store(true, Ordering::Relaxed);
                return taken.unwrap_or(ControlFlow::Continue(()));
            }
        }
    })
}

/// One thing to do, and where its result is waited for.
struct Task<Item, Result> {
    item: Item,
    answer: SyncSender<Result>,
}

/// Does what is in the queue until nothing more will come.
fn serve<Item, Result>(
    queue: &Mutex<Receiver<Task<Item, Result>>>,
    work: &impl Fn(Item) -> Result,
    stopped: &AtomicBool,
) {
    loop {
        // No work is done under the lock, so that a panic cannot have left anything half-done there.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Task { item, answer }) = next else { return };
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        // Nobody waits any more once the caller has stopped.
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

    /// Takes longer for some than for others, so that later items are done first.
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
    fn as_many_work_at_once_as_there_are_jobs() {
        let all_at_once = Barrier::new(4);
        let work = |_| {
            all_at_once.wait();
        };
        let flow: ControlFlow<()> = in_order(jobs(4), 0..8, work, |()| ControlFlow::Continue(()));
        assert!(flow.is_continue());
    }

    #[test]
    fn no_more_is_under_way_than_may_wait() {
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
    fn a_panic_at_work_is_one_of_the_caller() {
        let work = |item| assert_ne!(item, 40);
        let _: ControlFlow<()> = in_order(jobs(2), 0..1000, work, |()| ControlFlow::Continue(()));
    }
}

//! Fibonacci numbers, computed from their definition: two calls and a sum, down to a threshold, at or below which a
//! task spawns no further calls.
//!
//! The program has the shape of every divide-and-conquer program but almost no data, so, apart from `task_time`, its
//! run time is mostly the overhead of its tasks.

use faultline_core::{Chunk, Span};

use super::{Invalid, at_most_tasks, in_range, mix};
use crate::program::{Call, Data, Frame, Program, Use, chunk};

/// A call. Its argument is n.
const CALL: u16 = 0;
/// The sum of two calls.
const SUM: u16 = 1;

/// The index of the largest Fibonacci number that fits in 64 bits.
const MOST: u32 = 93;
/// The largest threshold: the time that a single task takes to compute its number from the definition grows
/// exponentially with the threshold.
const MOST_THRESHOLD: u32 = 35;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fibonacci {
    /// The index of the Fibonacci number.
    pub n: u32,
    /// The largest index whose Fibonacci number a single task computes without spawning others.
    pub threshold: u32,
    /// The time that a call at or below the threshold takes. Other calls, and sums, take no time.
    pub task_time: Span,
}

impl Default for Fibonacci {
    /// 7,750 tasks, a third of which take 10 ms.
    fn default() -> Self {
        Fibonacci { n: 21, threshold: 5, task_time: Span::from_millis(10) }
    }
}

impl Fibonacci {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        in_range("n", self.n.into(), 1, MOST.into())?;
        in_range("threshold", self.threshold.into(), 1, MOST_THRESHOLD.into())?;
        at_most_tasks(self.tasks(), "raise `threshold` or lower `n`")
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> u64 {
        // The numbers of tasks for the two most recent values of n.
        let (mut before, mut last) = (1u64, 1u64);
        for _ in self.threshold..self.n {
            (before, last) = (last, last.saturating_add(before).saturating_add(2));
        }
        last
    }

    /// Computes the result from the smallest number upwards.
    pub(super) fn reference(&self) -> Chunk {
        let mut lines = [[0, trail_of_call(0)], [1, trail_of_call(1)]];
        for n in 2..=u64::from(self.n) {
            let [[a, of_a], [b, of_b]] = lines;
            let trail = if n <= self.threshold.into() { trail_of_call(n) } else { trail_of_sum(of_b, of_a) };
            lines = [[b, of_b], [a + b, trail]];
        }
        chunk(&lines[1])
    }
}

impl Program for Fibonacci {
    fn main(&self, frame: &mut Frame) -> Data {
        let result = frame.data();
        frame.spawn(CALL, &[self.n.into()], &[Use::Write(result)]);
        result
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        match call.kind {
            CALL if call.args[0] <= self.threshold.into() => {
                let n = call.args[0];
                frame.put(0, chunk(&[by_definition(n), trail_of_call(n)]));
            }
            CALL => {
                let (n, one, other, sum) = (call.args[0], frame.data(), frame.data(), frame.own(0));
                frame.spawn(CALL, &[n - 1], &[Use::Write(one)]);
                frame.spawn(CALL, &[n - 2], &[Use::Write(other)]);
                frame.spawn(SUM, &[], &[Use::Read(one), Use::Read(other), Use::Write(sum)]);
            }
            _ => {
                let (one, other) = (call.words(0), call.words(1));
                frame.put(2, chunk(&[one[0].wrapping_add(other[0]), trail_of_sum(one[1], other[1])]));
            }
        }
    }

    fn spawns(&self, call: &Call) -> bool {
        call.kind == CALL && call.args[0] > self.threshold.into()
    }

    fn cost(&self, call: &Call) -> Span {
        match call.kind {
            CALL if call.args[0] <= self.threshold.into() => self.task_time,
            _ => Span::ZERO,
        }
    }
}

fn by_definition(n: u64) -> u64 {
    if n < 2 { n } else { by_definition(n - 1) + by_definition(n - 2) }
}

/// Returns what a task without children contributes to the result.
fn trail_of_call(n: u64) -> u64 {
    mix(n)
}

/// Returns the contribution of a sum to the result. Exchanging the operands changes it.
fn trail_of_sum(one: u64, other: u64) -> u64 {
    mix(one ^ mix(other).rotate_left(1))
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, testing};
    use super::*;
    use crate::program::words;

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        for n in 1..=16 {
            for threshold in [1, 2, 5, 20] {
                let program = Fibonacci { n, threshold, task_time: Span::ZERO };
                let tasks = testing::agrees_with_its_reference(&Flow::Fibonacci(program.clone()));
                assert_eq!(tasks, program.tasks(), "n = {n}, threshold = {threshold}");
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_definition() {
        let of = |n| words(&Fibonacci { n, threshold: 3, task_time: Span::ZERO }.reference())[0];
        assert_eq!((of(1), of(2), of(3), of(10), of(90)), (1, 1, 2, 55, 2_880_067_194_370_816_120));
        assert_eq!(of(MOST), 12_200_160_415_121_876_738, "the largest that fits in 64 bits");
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        testing::every_task_matters(&Flow::Fibonacci(Fibonacci {
            n: 9,
            threshold: 2,
            task_time: Span::ZERO,
        }));
    }

    #[test]
    fn a_program_that_does_not_fit_in_memory_is_refused() {
        let program = Fibonacci { n: 60, threshold: 10, task_time: Span::ZERO };
        assert!(matches!(program.validate(), Err(Invalid::TooManyTasks { .. })));
        assert!(matches!(
            Fibonacci { threshold: 0, ..program.clone() }.validate(),
            Err(Invalid::OutOfRange { field: "threshold", .. })
        ));
        assert_eq!(Fibonacci { threshold: 35, ..program }.validate(), Ok(()));
        assert_eq!(Fibonacci::default().validate(), Ok(()));
    }
}

use faultline_core::Span;
use faultline_dataflow::program::{Call, Data, Frame, Program, Use, chunk};

// The kinds of task.
const SORT: u16 = 0; // arguments: the first number and the count
const MERGE: u16 = 1; // reads two sorted lists

/// Sorts numbers by sorting and merging halves.
#[derive(Clone, Debug)]
pub(crate) struct MergeSort {
    pub(crate) numbers: u64,
    /// The largest number of elements that one task sorts on its own.
    pub(crate) leaf: u64,
}

pub(crate) fn scrambled(n: u64) -> u64 {
    n * 7919 % 10_007
}

impl Program for MergeSort {
    fn main(&self, frame: &mut Frame) -> Data {
        let sorted = frame.data();
        frame.spawn(SORT, &[0, self.numbers], &[Use::Write(sorted)]);
        sorted
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        match (call.kind, &call.args[..]) {
            (SORT, &[first, count]) if count <= self.leaf => {
                let mut numbers: Vec<u64> = (first..first + count).map(scrambled).collect();
                numbers.sort();
                frame.put(0, chunk(&numbers));
            }
            (SORT, &[first, count]) => {
                let (low, high, sorted) = (frame.data(), frame.data(), frame.own(0));
                let half = count / 2;
                frame.spawn(SORT, &[first, half], &[Use::Write(low)]);
                frame.spawn(SORT, &[first + half, count - half], &[Use::Write(high)]);
                frame.spawn(MERGE, &[], &[Use::Read(low), Use::Read(high), Use::Write(sorted)]);
            }
            _ => {
                let mut both = [call.words(0), call.words(1)].concat();
                both.sort();
                frame.put(2, chunk(&both)); // the third access: the right to write
            }
        }
    }

    fn cost(&self, call: &Call) -> Span {
        Span::from_millis(if call.kind == SORT { 20 } else { 5 })
    }
}

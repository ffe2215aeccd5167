//! Compares the result of partitions that run in random order, and are saved and loaded at every step, with the
//! sequential reference.

use alloc::collections::VecDeque;

use faultline_core::{Incarnation, Span};

use super::*;
use crate::plan::in_blocks;
use crate::program::Frame;
use crate::programs::Flow;
use crate::programs::jacobi::Jacobi;

fn jacobi(rows: u32, columns: u32, iterations: u32, test_every: u32) -> Flow {
    let task_time = Span::ZERO;
    Flow::Jacobi(Jacobi { rows, columns, size: 2, iterations, test_every, tolerance: 0.1, task_time })
}

fn plan(program: &Flow, partitions: u32) -> Plan {
    Plan::new(program, partitions, &in_blocks(program.pieces(), partitions))
}

/// Returns the values that a task writes, given these inputs.
fn execute(
    program: &Flow,
    plan: &Plan,
    task: TaskNo,
    value: impl FnMut(Value) -> Option<Chunk>,
) -> Vec<Option<Chunk>> {
    let call = plan.call(task, value);
    let mut frame = Frame::of(&call, u64::MAX);
    program.run(&call, &mut frame);
    by_output(plan.accesses(task), frame.finish())
}

/// Runs all partitions in a random order, and saves and loads them at each step. Returns the digest, all messages in
/// the order in which they were sent, and the final shares.
fn run(program: &Flow, plan: &Plan, window: u32, mut random: u64) -> (Digest, Vec<MessageId>, Vec<Share>) {
    let mut shares: Vec<Share> =
        (0..plan.partitions()).map(|it| Share::new(ProcessId(it), plan, window)).collect();
    let mut way: VecDeque<(ProcessId, Value, Option<Chunk>)> = VecDeque::new();
    let (mut sent, mut result) = (Vec::new(), None);
    while shares.iter().any(|it| !it.is_complete(plan)) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (random >> 40).is_multiple_of(2)
            && let Some(index) = (way.len() as u64 > 0).then(|| (random >> 33) % way.len() as u64)
        {
            let (to, value, content) = way.remove(index as usize).expect("a message is in transit");
            assert!(
                shares[to.index()].receive(plan, window, value, content.clone()),
                "a task waits for the value"
            );
            assert!(!shares[to.index()].receive(plan, window, value, content), "a duplicate is refused");
        }
        let share = &mut shares[((random >> 33) % u64::from(plan.partitions())) as usize];
        *share = Share::load(&share.save(), plan, window);
        let Some(task) = share.next() else { continue };
        let wrote = execute(program, plan, task, |it| share.value(it).cloned().flatten());
        assert!(share.execute(plan, window, task, &wrote));
        for (value, content) in plan.outputs(task).zip(wrote) {
            if value == plan.result() {
                result = content.clone();
            }
            for id in plan.messages(value) {
                sent.push(id);
                way.push_back((id.to, value, content.clone()));
            }
        }
    }
    (program.digest(&result.expect("the result was written")), sent, shares)
}

#[test]
fn every_order_of_execution_computes_the_reference_result() {
    for (partitions, window, test_every) in [(1, 1, 2), (2, 1, 0), (5, 3, 2), (6, 2, 1), (4, 100, 3)] {
        let program = jacobi(2, 3, 6, test_every);
        let plan = plan(&program, partitions);
        for seed in 0..10 {
            let (digest, sent, shares) = run(&program, &plan, window, seed);
            assert_eq!(digest, program.reference(), "{partitions} partitions");
            let left = |it: &Share| it.save().len() - 1;
            assert_eq!(shares.iter().map(left).sum::<usize>(), 1, "only the result is left at the end");
            let loaded = shares.iter().map(|it| Share::load(&it.save(), &plan, window));
            let results: Vec<Digest> =
                loaded.filter_map(|it| Some(program.digest(it.value(plan.result())?.as_ref()?))).collect();
            assert_eq!(results, [digest]);
            for channel in plan.channels() {
                let on_channel = sent.iter().filter(|it| (it.from, it.to) == channel);
                let mut numbers: Vec<u32> = on_channel.map(|it| it.number).collect();
                numbers.sort_unstable();
                assert!(numbers.iter().zip(0..).all(|(it, place)| *it == place), "{channel:?}: {numbers:?}");
                assert!(!numbers.is_empty(), "a channel is used");
            }
            assert!(sent.iter().all(|it| plan.channels().any(|channel| channel == (it.from, it.to))));
        }
    }
}

#[test]
fn blocks_send_only_to_neighbours_and_steps_share_their_shape() {
    let grid = plan(&jacobi(15, 16, 100, 0), 240);
    assert_eq!(grid.channels().count(), 898, "each of 240 blocks with its neighbours");
    assert_eq!(grid.steps(), 102);
    assert!(grid.shapes() <= 6, "{} kinds of step", grid.shapes());
    let tested = plan(&jacobi(3, 4, 40, 5), 12);
    assert_eq!(
        tested.channels().count(),
        34 + 9,
        "the convergence test adds a channel from each block that is not a neighbour of the first block"
    );
    assert_eq!(plan(&jacobi(3, 4, 40, 5), 1).channels().count(), 0);
}

#[test]
fn a_partition_runs_ahead_by_at_most_its_window() {
    let program = jacobi(1, 2, 9, 0);
    // Block 0 waits for block 1, which never runs.
    let plan = plan(&program, 2);
    let mut share = Share::new(ProcessId(0), &plan, 3);
    let mut steps = Vec::new();
    while let Some(task) = share.next() {
        let wrote = execute(&program, &plan, task, |it| share.value(it).cloned().flatten());
        share.execute(&plan, 3, task, &wrote);
        steps.push(task.step);
    }
    assert_eq!(steps, [0], "the first iteration needs the other block");
    // No task waits for another: only the window restricts the order of execution.
    let alone = plan_of_independent_steps();
    let mut share = Share::new(ProcessId(0), &alone, 3);
    let tasks: Vec<TaskNo> = core::iter::from_fn(|| share.next()).collect();
    assert_eq!(tasks.len(), 3);
    assert!(share.execute(&alone, 3, tasks[2], &[Some(crate::program::chunk(&[1]))]));
    assert_eq!(share.next(), None, "the first step is not complete");
    assert!(share.execute(&alone, 3, tasks[0], &[Some(crate::program::chunk(&[1]))]));
    assert_eq!(share.next().map(|it| it.step), Some(3));
}

/// Returns a plan of ten steps with one task each. No task reads the output of another.
fn plan_of_independent_steps() -> Plan {
    use crate::program::{Call, Data, Use};

    #[derive(Clone, Debug)]
    struct Steps;

    impl Program for Steps {
        fn main(&self, frame: &mut Frame) -> Data {
            let all = [(); 10].map(|()| frame.data());
            for data in all {
                frame.spawn(0, &[], &[Use::Write(data)]);
                frame.next_step();
            }
            all[9]
        }

        fn run(&self, _: &Call, frame: &mut Frame) {
            frame.put(0, crate::program::chunk(&[1]));
        }

        fn cost(&self, _: &Call) -> Span {
            Span::ZERO
        }
    }

    Plan::new(&Steps, 1, &[])
}

#[test]
fn a_value_in_memory_is_sent_without_re_execution() {
    let plan = plan(&jacobi(1, 2, 3, 0), 2);
    let (own, other) = (ProcessId(0), ProcessId(1));
    let first = plan.tasks_of(0, own).next().expect("the partition has a task in the first step");
    let value = plan
        .outputs(first)
        .find(|it| plan.messages(*it).next().is_some())
        .expect("the first task sends a value");
    let content = Some(crate::program::chunk(&[1]));
    let rerun = |memory: &[(Value, Option<Chunk>)]| {
        let memory = memory.iter().map(|(value, content)| (value, content));
        Rerun::new(own, Incarnation(1), Share::new(own, &plan, 2), memory, false)
    };
    let mut from_checkpoint = rerun(&[]);
    assert_eq!(from_checkpoint.demand(&plan, value, other), Err(Vec::new()));
    assert!(from_checkpoint.tasks().0.into_iter().eq([first]));
    let mut from_memory = rerun(&[(value, content.clone())]);
    assert_eq!(from_memory.demand(&plan, value, other), Ok(content));
    assert!(from_memory.tasks().0.is_empty());
}

#[test]
fn values_sent_in_the_last_steps_stay_in_memory() {
    let plan = plan(&jacobi(1, 2, 6, 0), 2);
    let own = ProcessId(0);
    let mut share = Share::new(own, &plan, 2);
    share.keep_recent(2);
    let chunk = Some(crate::program::chunk(&[1]));
    for _ in 0..8 {
        while let Some(task) = share.next() {
            let wrote: Vec<Option<Chunk>> = plan.outputs(task).map(|_| chunk.clone()).collect();
            assert!(share.execute(&plan, 2, task, &wrote));
        }
        let all = Executed { before: plan.steps(), beyond: BTreeSet::new() };
        for value in share.lacking(&plan, ProcessId(1), &all) {
            share.receive(&plan, 2, value, chunk.clone());
        }
        let steps: BTreeSet<u32> = share.in_memory().map(|(value, _)| value.task.step).collect();
        let before = share.executed().before;
        let kept = |step: &u32| *step + 2 >= before;
        assert!(before == plan.steps() || steps.iter().all(kept), "{steps:?} at step {before}");
        let sent = |step: u32| plan.tasks_of(step, own).flat_map(|it| plan.outputs(it)).collect::<Vec<_>>();
        for value in (before.saturating_sub(2)..before).flat_map(sent) {
            let is_sent = plan.messages(value).next().is_some();
            assert!(!is_sent || share.in_memory().any(|it| *it.0 == value), "{value:?} at step {before}");
        }
    }
    assert_eq!(share.executed().before, plan.steps());
}

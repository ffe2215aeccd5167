//! Compares the results of graphs with the sequential reference. The tests cover a graph that stays whole, two graphs
//! that are saved and loaded at every step while one lends tasks to the other, and a graph that absorbs another.

use alloc::vec::Vec;

use faultline_core::{Digest, Life, Span};

use super::*;
use crate::program::{Frame, Program};
use crate::programs::fibonacci::Fibonacci;
use crate::programs::queens::Queens;
use crate::reference;

fn first<G: Program>(program: &G) -> Graph {
    let mut frame = Frame::main();
    let result = program.main(&mut frame);
    let (outcome, result) = frame.finish_main(result);
    Graph::begin(outcome, result)
}

/// Runs the newest task, if there is one.
fn step<G: Program>(program: &G, graph: &mut Graph, events: &mut Vec<GraphEvent>) -> bool {
    let Some((theft, call)) = graph.execute() else { return false };
    let mut frame = Frame::of(&call, u64::MAX);
    program.run(&call, &mut frame);
    let outcome = frame.finish();
    events.push(GraphEvent::Ran { theft, task: call.id, hint: u64::MAX, outcome: outcome.clone() });
    assert!(graph.apply(theft, call.id, outcome));
    true
}

fn result<G: Program>(program: &G, graph: &Graph) -> Digest {
    let payment = graph.payment(Theft::NONE).expect("the program has ended");
    assert_eq!(payment.effects.spawned, payment.effects.ran, "everything spawned was run once");
    program.digest(&payment.written[0].1)
}

fn theft(number: u32) -> Theft {
    Theft { victim: ProcessId(0), thief: ProcessId(1), life: Life(1), number }
}

fn programs() -> (Fibonacci, Queens) {
    let task_time = Span::ZERO;
    (Fibonacci { n: 12, threshold: 3, task_time }, Queens { n: 6, depth: 3, task_time })
}

#[test]
fn a_single_graph_computes_the_reference_result_and_ends_empty() {
    fn check<G: Program>(program: &G) {
        let mut graph = first(program);
        let mut tasks = 0;
        while step(program, &mut graph, &mut Vec::new()) {
            tasks += 1;
        }
        assert_eq!((result(program, &graph), tasks), reference(program));
        assert_eq!(graph.save().len(), 2, "an index, and the result");
    }
    let (fibonacci, queens) = programs();
    check(&fibonacci);
    check(&queens);
}

#[test]
fn two_graphs_that_steal_from_each_other_compute_the_same_despite_saves_and_voids() {
    fn check<G: Program>(program: &G, every: usize) {
        let (mut victim, mut thief) = (first(program), Graph::default());
        let (mut number, mut tasks) = (0, 0);
        while !victim.is_done(Theft::NONE) {
            number += 1;
            let key = theft(number);
            if victim.lend(key).is_some() {
                if (number as usize).is_multiple_of(every) {
                    assert!(victim.void(key).is_some() && victim.loan(key).is_none());
                } else {
                    let loan = victim.loan(key).expect("the task is lent");
                    assert!(thief.take(key, loan.clone()) && !thief.take(key, loan));
                }
            }
            tasks += u64::from(step(program, &mut victim, &mut Vec::new()));
            for _ in 0..3 {
                tasks += u64::from(step(program, &mut thief, &mut Vec::new()));
            }
            thief = Graph::load(&thief.save());
            victim = Graph::load(&victim.save());
            let debts: Vec<(Theft, bool)> = thief.debts().collect();
            for (key, _) in debts.into_iter().filter(|(_, is_done)| *is_done) {
                let payment = thief.payment(key).expect("the result is complete");
                assert!(victim.merge(key, payment.clone()).is_some());
                assert!(victim.merge(key, payment).is_none(), "a result is merged only once");
                assert!(thief.forget(key).is_some());
            }
        }
        assert_eq!((result(program, &victim), tasks), reference(program));
        assert_eq!(thief, Graph::default());
    }
    let (fibonacci, queens) = programs();
    for every in [2, 3, 1000] {
        check(&fibonacci, every);
        check(&queens, every);
    }
}

#[test]
fn an_absorbed_graph_resumes_where_it_stopped() {
    let (program, _) = programs();
    let (mut victim, mut thief) = (first(&program), Graph::default());
    let mut none = Vec::new();
    (0..5).for_each(|_| assert!(step(&program, &mut victim, &mut none)));
    victim.lend(theft(1)).expect("a task is ready");
    thief.take(theft(1), victim.loan(theft(1)).expect("the task is lent"));
    step(&program, &mut thief, &mut none);
    thief.absorb(ProcessId(0), Graph::load(&victim.save()));
    while step(&program, &mut thief, &mut none) {}
    let payment = thief.payment(theft(1)).expect("all tasks have ended");
    thief.merge(theft(1), payment).expect("the task is lent");
    thief.forget(theft(1)).expect("the result is owed");
    while step(&program, &mut thief, &mut none) {}
    assert_eq!(result(&program, &thief), reference(&program).0);
    assert!(thief.absorbed().contains(&ProcessId(0)));
}

#[test]
fn a_graph_is_the_fold_of_its_events() {
    let (program, _) = programs();
    let mut graph = first(&program);
    let (start, mut events) = (graph.clone(), Vec::new());
    for number in 1.. {
        let key = theft(number);
        if let Some((of, task)) = graph.lend(key).filter(|_| number % 2 == 0) {
            events.push(GraphEvent::Lent(key, of, task));
            graph.void(key).expect("the task was lent");
            events.push(GraphEvent::Voided(key));
        } else {
            graph.void(key);
        }
        if !step(&program, &mut graph, &mut events) {
            break;
        }
        let mut again = start.clone();
        events.iter().for_each(|event| assert!(again.redo(event.clone())));
        assert_eq!(again.effects(), graph.effects());
        assert_eq!(again.debts().collect::<Vec<_>>(), graph.debts().collect::<Vec<_>>());
    }
    assert_eq!(result(&program, &graph), reference(&program).0);
}

#[test]
fn an_event_of_another_graph_changes_nothing() {
    let (program, _) = programs();
    let mut graph = first(&program);
    let (of, task) = graph.lend(theft(1)).expect("a task is ready");
    let before = graph.clone();
    for event in [
        GraphEvent::Voided(theft(2)),
        GraphEvent::Lent(theft(1), of, task),
        GraphEvent::Lent(theft(2), of, task),
        GraphEvent::Ran { theft: of, task, hint: u64::MAX, outcome: TaskOutcome::default() },
        GraphEvent::Forgotten(theft(2)),
    ] {
        assert!(!graph.redo(event.clone()), "{event:?}");
        assert_eq!(graph, before, "{event:?}");
    }
}

#[test]
fn a_graph_that_is_absorbed_twice_keeps_its_state() {
    let (program, _) = programs();
    let mut victim = first(&program);
    (0..5).for_each(|_| assert!(step(&program, &mut victim, &mut Vec::new())));
    let early = Graph::load(&victim.save());
    victim.lend(theft(1)).expect("a task is ready");
    assert!(step(&program, &mut victim, &mut Vec::new()));
    let mut successor = Graph::default();
    successor.absorb(ProcessId(0), Graph::load(&victim.save()));
    let before = successor.clone();
    successor.absorb(ProcessId(0), early);
    assert_eq!(successor, before);
}

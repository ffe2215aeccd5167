//! Tasks per second of processor time: the simulator with 30 processes, compared with the sequential
//! reference, which runs the same tasks one after another, without processes, messages or events.

#[path = "../../../benches/common.rs"]
mod bench;
#[path = "../tests/tasks/federation.rs"]
#[allow(dead_code, reason = "written for tests")]
mod federation;

use faultline_core::Span;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::{TaskProcess, TaskProtocol, reference};
use faultline_protocols::none::NoProtocol;
use faultline_protocols::placement::ReplicateTo;
use faultline_protocols::satin::{self, Satin};
use faultline_protocols::theft::{self, StableState, TaskRecovery};

use federation::Federation;

/// The allocator of the `faultline` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    bench::pin(1);
    let turns = if bench::quick() { 3 } else { 9 };
    let program = Fibonacci { n: 29, threshold: 5, task_time: Span::from_millis(10) };
    let (_, tasks) = reference(&program);
    println!(
        "{tasks} tasks on 30 processes, tau 1 s, two replicas in other clusters, facts off; median of {turns} turns"
    );
    let per_task = |work: &dyn Fn()| bench::busy(work).0 / tasks as f64;
    let mut measured = [const { Vec::new() }; 5];
    for _ in 0..turns {
        let runs: [&dyn Fn(); 5] = [
            &|| {
                reference(&program);
            },
            &|| simulate::<NoProtocol>(&program, ()),
            &|| simulate::<TaskRecovery>(&program, theft(StableState::Graph)),
            &|| simulate::<TaskRecovery>(&program, theft(StableState::Events)),
            &|| simulate::<Satin>(&program, satin::Config::default()),
        ];
        runs.iter().zip(&mut measured).for_each(|(run, all)| all.push(per_task(run)));
    }
    let rate = |seconds: &[f64]| format!("{:.2} M tasks/s", 1e-6 / bench::median(seconds));
    let baseline = format!("sequential reference {}", rate(&measured[0]));
    for (name, of) in ["none", "TIC", "SEL", "Satin"].into_iter().zip(&measured[1..]) {
        bench::row(
            &format!("simulator, tasks under {name}"),
            &rate(of),
            &baseline,
            bench::ratio(of, &measured[0]),
            None,
        );
    }
    let tic = 1e-6 / bench::median(&measured[2]);
    bench::row("tasks under TIC", &format!("{tic:.2} M tasks/s"), "1 M tasks/s", 1.0 / tic, Some(1.0));
}

fn theft(record: StableState) -> theft::Config {
    theft::Config {
        tau: Span::from_secs(1),
        record,
        before_asking: false,
        replicas: 2,
        replicate_to: ReplicateTo::OtherCluster,
        defects: theft::Defects::default(),
    }
}

fn simulate<P: TaskProtocol + Send + 'static>(program: &Fibonacci, protocol: P::Config) {
    let federation = Federation::new(1, vec![10, 10, 10], Flow::Fibonacci(program.clone()));
    let config = federation.config::<P, Fibonacci>(program.clone(), protocol);
    let run = faultline_sim::run::<TaskProcess<P, Fibonacci>>(config, &mut ());
    assert_eq!(run.outcome, faultline_core::fault::Outcome::Completed);
}

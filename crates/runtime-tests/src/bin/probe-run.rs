//! A supervisor for tests that kill it: `probe-run DIR PROBE_NODE DETECT_AFTER_MS` runs probes that
//! communicate with each other and store images for a minute, with a run directory below DIR. It serves
//! metrics on any free port.

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use faultline_conformance::{Act, Scenario, Script, Step};
use faultline_core::fault::LinkProperties;
use faultline_core::{ProcessId, Span};
use faultline_runtime::{interrupt, local};
use faultline_runtime_tests::{probe_command, run_options};
use faultline_supervisor::Config;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let dir = PathBuf::from(args.next().ok_or("no directory")?);
    let probe_node = args.next().ok_or("no program for nodes")?;
    let detect_after =
        args.next().and_then(|it| it.to_str()?.parse().ok()).ok_or("no number of milliseconds")?;
    let scenario = scenario(Span::from_millis(detect_after));
    let command = probe_command(&scenario, false, &dir, probe_node);
    let mut options = run_options(&scenario, &dir);
    let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    options.metrics = Some(Arc::new(metrics));
    options.interrupted = interrupt::flag(1, || ())?;
    local::run(command, options, &mut ())?;
    Ok(())
}

fn scenario(detect_after: Span) -> Scenario {
    let minute = Span::from_secs(60);
    let mut steps = Vec::new();
    for process in (0..4).map(ProcessId) {
        let mut step = |after, acts| steps.push(Step { process, life: None, after, acts });
        for tick in 1..600 {
            let others = (0..4).map(ProcessId).filter(|it| *it != process);
            let mut acts: Vec<Act> = others.map(|to| Act::Send(to, 2)).collect();
            acts.push(Act::Persist(tick, 1000));
            step(Span::from_millis(100) * u64::from(tick), acts);
        }
        step(minute, vec![Act::Finish]);
    }
    Scenario {
        clusters: vec![2, 2],
        script: Script { steps, ..Script::default() },
        within: LinkProperties::default(),
        between: LinkProperties { latency: Span::from_millis(1), ..LinkProperties::default() },
        supervisor: Config {
            detect_after,
            restart_after: Span::from_millis(50),
            spares: 0,
            volatile_storage: false,
            deadline: minute,
            start_within: Some(minute),
            plan: Vec::new(),
            scope: faultline_core::Scope::Cluster,
            joins: Vec::new(),
            leaves: Vec::new(),
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        },
        seed: 1,
    }
}

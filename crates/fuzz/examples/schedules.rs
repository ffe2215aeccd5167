//! Runs schedules of some protocols in turn until one reveals a defect, and prints what revealed it, or a hash of all
//! facts (`cargo xtask mutants`).
//!
//! Usage: `schedules PROTOCOL,... RANDOM DIRECTED`: the maximum numbers of random schedules, and of directed ones.

use std::error::Error;
use std::fmt::Debug;

use faultline_checker::Property;
use faultline_fuzz::{Coverage, Directions, Observed, ProtocolName, Scenario, Trial, run};

/// The number of directed schedules that are derived from one run.
const FOLLOWED: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocols, random, directed] = arguments.as_slice() else {
        return Err("usage: schedules PROTOCOL,... RANDOM DIRECTED".into());
    };
    let (random, directed): (u64, u64) = (random.parse()?, directed.parse()?);
    let protocols = protocols.split(',').map(str::parse).collect::<Result<Vec<ProtocolName>, _>>()?;
    let in_turn = || (0..).flat_map(|seed| protocols.iter().map(move |&it| (seed, it)));
    // The panics of a defect are violations.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut coverage, mut runs, mut facts) = (Coverage::default(), 0, blake3::Hasher::new());
    for (seed, protocol) in in_turn().take(random.try_into()?) {
        runs += 1;
        let trial = run(Scenario::new(seed, Some(protocol), None))?;
        if report(runs, protocol, trial.violated()) {
            return Ok(());
        }
        add(&trial, &mut facts);
        coverage.add(&Observed::new(&trial, None));
    }
    if let Some(unusual) = coverage.shares().unusual().first() {
        println!("{runs}\t-\tunusual outcomes: {unusual}");
        return Ok(());
    }
    let (mut directions, random) = (Directions::default(), runs);
    for (seed, protocol) in in_turn() {
        if runs >= random + directed {
            break;
        }
        let base = run(Directions::base(seed, protocol, None))?;
        runs += 1;
        if report(runs, protocol, base.violated()) {
            return Ok(());
        }
        add(&base, &mut facts);
        for scenario in directions.follow(&base, FOLLOWED) {
            runs += 1;
            let trial = run(scenario)?;
            if report(runs, protocol, trial.violated()) {
                return Ok(());
            }
            add(&trial, &mut facts);
        }
    }
    println!("{runs}\t-\t\t{}", facts.finalize());
    Ok(())
}

fn add(trial: &Trial, facts: &mut blake3::Hasher) {
    facts.update(format!("{:?}", trial.trace.streams).as_bytes());
}

/// Prints the number of runs, the protocol and the violated properties. Returns whether there are any.
fn report(runs: u64, protocol: ProtocolName, violated: impl Iterator<Item = Property>) -> bool {
    let violated: Vec<String> = violated.map(|it| name(&it)).collect();
    if !violated.is_empty() {
        println!("{runs}\t{protocol}\t{}", violated.join(", "));
    }
    !violated.is_empty()
}

fn name(property: &impl Debug) -> String {
    let name = format!("{property:?}");
    name[..1].to_lowercase() + &name[1..]
}

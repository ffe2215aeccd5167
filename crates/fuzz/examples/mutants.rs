//! Runs all mutations, or those named on the command line, and prints which properties found each
//! (`cargo xtask mutants`).

use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::thread;

use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_fuzz::mutants::{Mutant, MutationEffort};
use faultline_sim::in_order;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut extent = MutationEffort { seeds: 300, directed: 60, enough: 5 };
    let mut jobs = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let mut wanted: Vec<Defect> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} requires a number"));
        match argument.as_str() {
            "--seeds" => extent.seeds = value()?.parse()?,
            "--directed" => extent.directed = value()?.parse()?,
            "--jobs" => jobs = value()?.parse()?,
            name => wanted.push(name.parse()?),
        }
    }
    if wanted.is_empty() {
        wanted = Defect::mutations().collect();
    }
    // Panics caused by a mutation are counted instead of printed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut all = Vec::new();
    println!("| mutation | schedules | found at | violated |\n| --- | ---: | ---: | --- |");
    let _ = in_order(
        jobs,
        wanted,
        |it| Mutant::search(it, extent),
        |mutant: Mutant| {
            println!("{}", row(&mutant));
            all.push(mutant);
            ControlFlow::<()>::Continue(())
        },
    );
    println!("\n{}", rates(&all));
    let survivors: Vec<&Mutant> = all.iter().filter(|it| !it.is_killed()).collect();
    let (shown, survivors): (Vec<&Mutant>, Vec<&Mutant>) =
        survivors.into_iter().partition(|it| it.shown_by().is_some());
    for it in &shown {
        println!("detected by a directed schedule: {}. {}", it.mutation, it.shown_by().unwrap_or_default());
    }
    let unexplained = survivors.iter().filter(|it| it.argument().is_none()).count();
    for it in &survivors {
        println!("survives: {}. {}", it.mutation, it.argument().unwrap_or("No reason is recorded."));
    }
    let counted = all.len() - (survivors.len() - unexplained);
    let (killed, of) = (all.len() - survivors.len(), all.len());
    println!(
        "detected: {killed} of the {counted} mutations that are not listed as equivalent ({} of them only by directed \
         tests); {of} mutations were tried",
        shown.len()
    );
    Ok(if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(mutant: &Mutant) -> String {
    let mut by: Vec<String> =
        mutant.violated.iter().map(|(property, runs)| format!("{} {runs}", name(*property))).collect();
    by.extend(mutant.unusual.iter().cloned());
    let first = mutant.first.map_or("-".to_owned(), |it| it.to_string());
    format!("| `{}` | {} | {first} | {} |", mutant.mutation, mutant.runs, by.join(", "))
}

/// Counts, for each property, the mutations that it found, and those that it alone found.
fn rates(all: &[Mutant]) -> String {
    let mut rates: BTreeMap<Property, (u64, u64)> = BTreeMap::new();
    for mutant in all {
        for &property in mutant.violated.keys() {
            let rate = rates.entry(property).or_default();
            rate.0 += 1;
            rate.1 += u64::from(mutant.violated.len() == 1);
        }
    }
    let mut text =
        "| property | mutations that it found | that only it found |\n| --- | ---: | ---: |\n".to_owned();
    for (property, (found, alone)) in rates {
        text.push_str(&format!("| `{}` | {found} | {alone} |\n", name(property)));
    }
    text
}

fn name(property: Property) -> String {
    let name = format!("{property:?}");
    name[..1].to_lowercase() + &name[1..]
}

//! Maintenance tasks of the repository: checks that no compiler performs, and generated files.
//!
//! ```text
//! cargo xtask bench       runs all or the named benchmarks, and prints each measurement with its baseline
//! cargo xtask build-cost  builds the default program from scratch, and prints the cost by cause
//! cargo xtask check       checks the repository
//! cargo xtask dashboards  tests every query of the dashboards on a real Prometheus server
//! cargo xtask dist        builds static programs, an inventory of their components, and checksums
//! cargo xtask documents   runs the commands that README.md and docs/ print
//! cargo xtask generate    writes the generated files
//! cargo xtask mutants     generates mutants of the code, and prints what reveals each
//! cargo xtask picture     runs the quick start, and draws docs/quickstart.svg from it
//! ```
//!
//! Every check is a function from the repository to the problems found.

mod bench;
mod build_cost;
mod dashboards;
mod dependencies;
mod dist;
mod documents;
mod generated;
mod instructions;
mod layers;
mod lists;
mod machine_load;
mod mutants;
mod names;
mod phrases;
mod picture;
mod profiles;
mod sources;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use cargo_metadata::{Metadata, MetadataCommand};
use clap::Parser;

/// Run the repository's maintenance tasks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Run benchmarks, and print each measurement with its baseline.
    Bench {
        /// Run only these: a benchmark's name, or `simulator` for all benchmarks of the simulator.
        names: Vec<String>,
        /// Run fewer and shorter iterations.
        #[arg(long)]
        quick: bool,
        /// Count instructions instead of measuring times, with `valgrind`. Fails if a ratio exceeds its limit.
        #[arg(long, conflicts_with_all = ["names", "quick"])]
        instructions: bool,
    },
    /// Build the default program in the release profile from scratch, and print the CPU seconds by cause.
    BuildCost {
        /// Fail if the build takes more CPU time than this many times that of certain third-party crates in it.
        #[arg(long, value_name = "TIMES")]
        at_most: Option<f64>,
        /// Warn if the build takes more CPU seconds than this.
        #[arg(long, value_name = "SECONDS")]
        goal: Option<f64>,
        /// Fail if the program is larger than this.
        #[arg(long, value_name = "MB")]
        size_at_most: Option<f64>,
    },
    /// Check the repository: layers, dependencies, sources, profiles, names of protocols, dashboards, generated files,
    /// lists in the documents, and phrases.
    Check,
    /// Test every query of the dashboards on a real Prometheus server, which scrapes runs with faults.
    Dashboards,
    /// Build the release files for users without a compiler: static programs, an inventory of their components, and
    /// checksums.
    Dist,
    /// Run the commands that README.md and docs/ print.
    Documents {
        /// Run only the commands of documents whose names contain one of these strings.
        names: Vec<String>,
        /// Use the programs in DIR.
        #[arg(long, value_name = "DIR", default_value = "target/release")]
        programs: PathBuf,
    },
    /// Write the generated files.
    Generate,
    /// Generate mutants of the protocols and of the crates that they build on, and print which schedules or tests
    /// reveal each. Fails if a mutant survives that is not known to be equivalent.
    Mutants(mutants::Options),
    /// Run the quick start, and draw docs/quickstart.svg from it.
    Picture,
}

/// The repository that the checks examine.
pub(crate) struct Repository {
    /// The root directory of the repository.
    root: PathBuf,
    /// Cargo's metadata for `x86_64-unknown-linux-gnu`.
    metadata: Metadata,
}

/// Problems found by a check.
type Problems = Vec<String>;
/// A check. Fails if it cannot be performed.
type Check = fn(&Repository) -> Result<Problems, Box<dyn Error>>;

const CHECKS: &[(&str, Check)] = &[
    ("dependencies point to lower layers", layers::check),
    ("licences are permissive", dependencies::licences),
    ("duplicates are known", dependencies::duplicates),
    ("crates follow the workspace's lints", sources::lints),
    ("programs are stripped, examples optimised alike", profiles::check),
    ("no_std crates do not use std", sources::no_std),
    ("only real-time crates permit clocks", sources::clocks),
    ("programs print only through functions that report errors", sources::prints),
    ("every source file is compiled", sources::reached),
    ("no file names a developer's directory or another registry", sources::places),
    ("protocols are named only where permitted", names::check),
    ("dashboards follow their rules", dashboards::check),
    ("generated files are up to date", generated::check),
    ("lists in the documents are complete", lists::check),
    ("phrases are plain English", phrases::check),
];

fn main() -> ExitCode {
    // Cargo calls this program in place of the compiler while it measures a build.
    match build_cost::compile().unwrap_or_else(|| perform(&Task::parse())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &Task) -> Result<ExitCode, Box<dyn Error>> {
    let metadata =
        MetadataCommand::new().other_options(["--filter-platform=x86_64-unknown-linux-gnu".into()]).exec()?;
    let repository = Repository { root: metadata.workspace_root.clone().into(), metadata };
    match task {
        Task::Bench { instructions: true, .. } => instructions::run(&repository),
        Task::Bench { names, quick, .. } => bench::run(&repository, names, *quick),
        Task::BuildCost { at_most, goal, size_at_most } => {
            build_cost::run(&repository, *goal, *at_most, *size_at_most)
        }
        Task::Check => check(&repository),
        Task::Dashboards => dashboards::try_queries(&repository).map(|()| ExitCode::SUCCESS),
        Task::Dist => dist::run(&repository),
        Task::Documents { names, programs } => {
            documents::run(&repository, programs, names).map(|()| ExitCode::SUCCESS)
        }
        Task::Generate => generated::write(&repository).map(|()| ExitCode::SUCCESS),
        Task::Mutants(options) => mutants::run(&repository, options),
        Task::Picture => picture::draw(&repository).map(|()| ExitCode::SUCCESS),
    }
}

fn check(repository: &Repository) -> Result<ExitCode, Box<dyn Error>> {
    let mut code = ExitCode::SUCCESS;
    for (name, check) in CHECKS {
        let problems = check(repository)?;
        println!("{} {name}", if problems.is_empty() { "ok  " } else { "FAIL" });
        for problem in problems {
            println!("       {problem}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

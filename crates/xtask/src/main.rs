//! The repository's own chores: checks that no compiler performs, and generated files.
//!
//! ```text
//! cargo xtask bench       runs every benchmark, or those that are named, beside its baseline and prints the table
//! cargo xtask build-cost  builds the default program from nothing and prints what that costs, by cause
//! cargo xtask check       every check below
//! cargo xtask dashboards  has a real Prometheus answer every query of the dashboards
//! cargo xtask dist        makes static programs, an inventory of what is in them, and checksums
//! cargo xtask documents   runs the commands that README.md and docs/ print
//! cargo xtask generate    writes the generated files
//! cargo xtask mutants     makes the code wrong in each of many small ways, and prints what finds it
//! cargo xtask picture     runs the quick start and draws docs/quickstart.svg from it
//! ```
//!
//! Every check is a function from the repository to the problems found, and has a test that shows that it detects
//! one.

mod bench;
mod build_cost;
mod dashboards;
mod dependencies;
mod dist;
mod documents;
mod floors;
mod generated;
mod lists;
mod names;
mod phrases;
mod picture;
mod sources;

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use cargo_metadata::{Metadata, MetadataCommand};
use clap::Parser;

/// The repository's own chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Runs every benchmark beside its baseline and prints the table.
    Bench {
        /// Only these: a benchmark's name, or `simulator` for all of the simulator's.
        names: Vec<String>,
        /// Fewer turns and shorter runs, where a benchmark can.
        #[arg(long)]
        quick: bool,
    },
    /// Builds the default program's release from nothing, and prints the seconds of CPU that it took, by cause.
    BuildCost {
        /// Fails if it took more than this, in seconds of CPU.
        #[arg(long, value_name = "SECONDS")]
        at_most: Option<f64>,
    },
    /// Checks the repository: floors, dependencies, sources, generated files, names of protocols, lists in the
    /// documents.
    Check,
    /// Has a real Prometheus, which scrapes runs with faults, answer every query of the dashboards.
    Dashboards {
        /// Also draws the dashboards into docs/.
        #[arg(long)]
        draw: bool,
    },
    /// Makes what is handed out to users without a compiler: static programs, an inventory of what is in them, checksums.
    Dist,
    /// Runs the commands that README.md and docs/ print.
    Documents {
        /// Only documents with this in their names.
        names: Vec<String>,
        /// The directory of the programs that the commands call.
        #[arg(long, value_name = "DIR", default_value = "target/release")]
        programs: PathBuf,
    },
    /// Writes the generated files.
    Generate,
    /// Makes protocols, composite and supervisor wrong in each of many small ways, one at a time, and prints which property
    /// finds it. Fails if one survives that is not argued to change nothing.
    Mutants {
        /// Only these mutations.
        names: Vec<String>,
        /// Schedules of each protocol, at most.
        #[arg(long, default_value_t = 300)]
        seeds: u64,
    },
    /// Runs the quick start and draws docs/quickstart.svg from it.
    Picture,
}

/// The repository, as the checks see it.
pub(crate) struct Repository {
    /// Root directory of the repository.
    root: PathBuf,
    /// Cargo's metadata for the platform on which it runs.
    metadata: Metadata,
}

/// Problems found by a check.
type Problems = Vec<String>;
/// A check. Fails if it cannot be performed.
type Check = fn(&Repository) -> Result<Problems, Box<dyn Error>>;

const CHECKS: &[(&str, Check)] = &[
    ("dependencies point down", floors::check),
    ("licences are permissive", dependencies::licences),
    ("duplicates are known", dependencies::duplicates),
    ("crates follow the workspace's lints", sources::lints),
    ("no_std crates are", sources::no_std),
    ("every source file is compiled", sources::reached),
    ("no file names a machine or a registry", sources::places),
    ("protocols are named in their rooms only", names::check),
    ("dashboards follow their rules", dashboards::check),
    ("generated files are fresh", generated::check),
    ("lists in the documents are complete", lists::check),
    ("phrases are plain English", phrases::check),
];

fn main() -> ExitCode {
    // Cargo calls this program in place of the compiler while it measures a build.
    match build_cost::compile().unwrap_or_else(|| perform(&Chore::parse())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(chore: &Chore) -> Result<ExitCode, Box<dyn Error>> {
    let metadata =
        MetadataCommand::new().other_options(["--filter-platform=x86_64-unknown-linux-gnu".into()]).exec()?;
    let repository = Repository { root: metadata.workspace_root.clone().into(), metadata };
    match chore {
        Chore::Bench { names, quick } => bench::run(&repository, names, *quick),
        Chore::BuildCost { at_most } => build_cost::run(&repository, *at_most),
        Chore::Check => check(&repository),
        Chore::Dashboards { draw } => dashboards::try_queries(&repository, *draw).map(|()| ExitCode::SUCCESS),
        Chore::Dist => dist::run(&repository),
        Chore::Documents { names, programs } => {
            documents::run(&repository, programs, names).map(|()| ExitCode::SUCCESS)
        }
        Chore::Generate => generated::write(&repository).map(|()| ExitCode::SUCCESS),
        Chore::Mutants { names, seeds } => mutants(&repository, names, *seeds),
        Chore::Picture => picture::draw(&repository).map(|()| ExitCode::SUCCESS),
    }
}

fn mutants(repository: &Repository, names: &[String], seeds: u64) -> Result<ExitCode, Box<dyn Error>> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "faultline-fuzz", "--example", "mutants", "--"]);
    command.args(["--seeds", &seeds.to_string()]).args(names).current_dir(&repository.root);
    let code = command.status()?.code().unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
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

//! Recorded runs: reading, judging and printing them.

use std::path::Path;

use faultline_checker::Property;
use faultline_report::text::{self, Layout};
use faultline_report::{Recorded, Summary};
use faultline_session::Unjudged;
use faultline_trace::{Bundle, BundleError};

use crate::arguments::{Format, OutputArguments};
use crate::output;
use crate::trouble::{Exit, Trouble};

/// What helps when a directory holds no record.
pub const HELP: &str = "give the directory that `faultline run` named at its end";

/// A recorded run with its judgement, and where the record is.
pub struct Recording {
    dir: String,
    /// The run, and its judgement.
    pub run: faultline_session::Recording,
}

impl Recording {
    /// Judges a run.
    pub fn new(dir: &Path, run: Unjudged) -> Recording {
        Recording { dir: dir.display().to_string(), run: run.judge() }
    }

    /// Reads and judges the record in `dir`.
    pub fn read(dir: &Path) -> Result<Recording, Trouble> {
        if !dir.is_dir() {
            let why =
                if dir.exists() { "it is not the directory of a run" } else { "there is no such directory" };
            return Err(Trouble::path("read", dir, why, HELP));
        }
        Ok(Recording::new(dir, open(dir)?))
    }

    /// What everything that is said and drawn of it is made from.
    pub fn recorded(&self) -> Recorded<'_> {
        Recorded {
            bundle: &self.dir,
            manifest: &self.run.manifest,
            trace: &self.run.trace,
            judgement: &self.run.judgement,
        }
    }

    /// Says what is wrong with it, where a command does not print its verdict.
    pub fn warn(&self) {
        if let Some(reason) = &self.run.judgement.of(Property::RecordComplete).unknown {
            anstream::eprintln!("the record is not complete: {reason}");
        }
    }

    /// How a command about it ends.
    pub fn exit(&self) -> Exit {
        self.run.judgement.verdict.into()
    }

    /// Prints its summary.
    pub fn print(&self, output: OutputArguments) -> Result<(), Trouble> {
        let summary = Summary::new(self.recorded());
        output::print(&match output.format {
            Format::Json => output::json(&summary),
            Format::Text => text::summary(
                &summary,
                Layout { colour: output::colours(), quiet: output.quiet, verbose: output.verbose > 0 },
            ),
        })
    }
}

/// Reads the record in `dir`, unjudged.
pub fn open(dir: &Path) -> Result<Unjudged, Trouble> {
    let wrong = |error: BundleError| {
        let help = match error {
            BundleError::Format { .. } => "read it with the version of the program that recorded it",
            _ => HELP,
        };
        Trouble::path("use", dir, error, help)
    };
    Unjudged::read(&Bundle::open(dir)).map_err(wrong)
}

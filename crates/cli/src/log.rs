//! The program's own diagnostic log, which goes to standard error and, for a run on real processes, also to the record.
//!
//! `FAULTLINE_LOG` sets the level, in the syntax of `tracing_subscriber::filter::Targets`, for example `info` or
//! `warn,faultline_runtime=debug`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use faultline_runtime::detached::LogOutput;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{BackendName, CheckArguments, Command, RunArguments};
use crate::output;

/// The name of the log file in the record of a run.
pub(crate) const FILE: &str = "run.log";

/// The log file of the current run.
static RECORD: Mutex<Option<File>> = Mutex::new(None);

/// Starts logging, and returns the output, which must be finished at the end. By default, warnings are shown, except those
/// of a run on real processes, which are only recorded.
pub(crate) fn begin(command: &Command) -> LogOutput {
    let level = match command {
        Command::Run(arguments) if arguments.backend == BackendName::Local => {
            match arguments.output.verbose {
                0 => "off",
                1 => WARNINGS,
                _ => "debug",
            }
        }
        Command::Run(RunArguments { output, .. }) | Command::Check(CheckArguments { output, .. })
            if output.verbose > 1 =>
        {
            "debug"
        }
        _ => WARNINGS,
    };
    let filter = |otherwise: &str| -> Targets {
        let asked = std::env::var("FAULTLINE_LOG").ok().and_then(|it| it.parse().ok());
        asked.unwrap_or_else(|| otherwise.parse().expect("levels form a valid filter"))
    };
    let in_real_time = matches!(
        command,
        Command::Run(_) | Command::Compare(_) | Command::Reproduce(_) | Command::Node { .. }
    );
    let output = LogOutput::new(in_real_time);
    let shown = output.clone();
    let shown = tracing_subscriber::fmt::layer()
        .without_time()
        .with_ansi(output::supports_escapes(&io::stderr()))
        // A message about the work must not end the work.
        .log_internal_errors(false)
        .with_writer(move || shown.clone())
        .with_filter(filter(level));
    let recorded = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        // If the record cannot be written, the writer of the facts reports the error.
        .log_internal_errors(false)
        .with_writer(Record)
        .with_filter(filter(WARNINGS));
    tracing_subscriber::registry().with(shown).with(recorded).init();
    output
}

const WARNINGS: &str = "warn";

/// Starts writing the log to the record of a run as well.
pub(crate) fn record_in(dir: &Path) -> io::Result<()> {
    let file = File::create(dir.join(FILE))?;
    *RECORD.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    Ok(())
}

/// Writes to the log file of the current run, if there is one.
struct Record;

impl MakeWriter<'_> for Record {
    type Writer = Record;

    fn make_writer(&self) -> Record {
        Record
    }
}

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *RECORD.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! What the programs of a simulated run write to standard error, for the record.

use std::collections::BTreeMap;
use std::fmt::Write;

use faultline_catalog::LoggedLine;
use faultline_core::{Life, ProcessId, Time};
use faultline_trace::{Bundle, BundleError, Manifest};

/// The maximum size of the log of a life, in bytes.
const MOST: usize = 1 << 20;

/// The log of each life.
#[derive(Default)]
pub(crate) struct Logs(BTreeMap<(ProcessId, Life), String>);

impl Logs {
    /// Adds a line that a program wrote at this time. A log that is too long says so at its end.
    pub(crate) fn add(&mut self, at: Time, line: &LoggedLine) {
        let LoggedLine { process, life, program, text } = line;
        let log = self.0.entry((*process, *life)).or_default();
        if log.len() >= MOST {
            return;
        }
        let _ = writeln!(log, "{at} {program}: {text}");
        if log.len() >= MOST {
            let _ =
                writeln!(log, "the lines that follow are left out: this log has reached its limit of 1 MiB");
        }
    }

    /// Writes each log to a file of its own.
    pub(crate) fn write(&self, bundle: &Bundle, manifest: &Manifest) -> Result<(), BundleError> {
        let names = manifest.names();
        self.0.iter().try_for_each(|((process, life), log)| {
            bundle.write_log_at(&names.process(*process), *life, 0, log.as_bytes())
        })
    }
}

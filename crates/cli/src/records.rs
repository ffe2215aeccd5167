//! Records of the runs with the first seed of a sweep or a comparison, next to its page.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_console::place::{ACTION, check_replaceable, create_record, remove_record};
use faultline_report::RecordedRun;
use faultline_report::page::render as report;
use faultline_session::{Recording, UnjudgedRecording};
use faultline_trace::Bundle;

use crate::command_error::CommandError;
use crate::output;

/// The directory that contains the records.
const RECORDS: &str = "records";
/// The report in a record.
pub(crate) const REPORT: &str = "report.html";
/// The maximum size of all records and reports together, in bytes. All records have equal shares, so that the order in
/// which runs complete does not affect which records are kept.
const RECORDED: u64 = 256 << 20;
/// A lower bound on the size of a fact in a record, in bytes.
const FACT: u64 = 8;

/// Records one run of each name, unless its record is too large.
pub(crate) struct Records<'a> {
    /// The directory of `--out`.
    out: &'a Path,
    /// The maximum size of one record with its report, in bytes.
    most: u64,
    /// The first error while writing records.
    failed: Mutex<Option<CommandError>>,
}

impl<'a> Records<'a> {
    /// Prepares `count` records.
    pub(crate) fn new(out: &'a Path, count: usize) -> Records<'a> {
        Records { out, most: RECORDED / count.max(1) as u64, failed: Mutex::default() }
    }

    fn dir(&self, name: &str) -> PathBuf {
        // The name of a program may contain a directory.
        self.out.join(RECORDS).join(name.replace('/', "-"))
    }

    /// Checks that the records with these names can be written.
    pub(crate) fn check(&self, names: &[String]) -> Result<(), CommandError> {
        names.iter().try_for_each(|it| check_replaceable(ACTION, &self.dir(it)))
    }

    /// Writes the record and the report of a run, unless they are too large. Removes those of an earlier run in any
    /// case.
    pub(crate) fn keep(&self, name: &str, federation: &Federation, recording: Recording) {
        if let Err(error) = self.write(name, federation, recording) {
            self.failed.lock().expect("no thread panics while it holds the lock").get_or_insert(error);
        }
    }

    /// Returns the first error while writing records.
    pub(crate) fn result(self) -> Result<(), CommandError> {
        self.failed.into_inner().expect("no thread panics while it holds the lock").map_or(Ok(()), Err)
    }

    fn write(&self, name: &str, federation: &Federation, recording: Recording) -> Result<(), CommandError> {
        const HELP: &str = "free some space, or specify another directory with `--out`";
        let dir = self.dir(name);
        remove_record(&dir)?;
        if recording.trace.len() as u64 * FACT > self.most {
            return Ok(());
        }
        let Recording { mut manifest, trace, judgement } = recording;
        manifest.federation = faultline_api::to_yaml(federation);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        manifest.started_unix_ms = now.as_millis() as u64;
        let unjudged = UnjudgedRecording { manifest, trace };
        let bundle = create_record(ACTION, &dir)?;
        unjudged.write(&bundle).map_err(|error| CommandError::writing(ACTION, &dir, &error, HELP))?;
        let UnjudgedRecording { manifest, trace, .. } = &unjudged;
        let shown = dir.display().to_string();
        let page = report(RecordedRun { bundle: &shown, manifest, trace, judgement: &judgement });
        let written = size(&dir).map_err(|error| CommandError::writing("read", &dir, &error, HELP))?;
        if written + page.len() as u64 > self.most {
            return remove_record(&dir);
        }
        output::write(&dir, REPORT, &page).map(|_| ())
    }

    /// Returns the path of the report with this name, relative to the page; `None` if the run with this seed was not
    /// recorded.
    pub(crate) fn link(&self, name: &str, seed: u64) -> Option<String> {
        let dir = self.dir(name);
        let manifest = Bundle::open(&dir).read_manifest().ok()?;
        let report = dir.join(REPORT);
        let path = report.strip_prefix(self.out).ok().filter(|_| manifest.seed == seed && report.exists())?;
        Some(path.display().to_string())
    }
}

/// Returns the size of all files in a directory, in bytes.
fn size(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use faultline_experiments::compare::Made;

    use super::*;

    #[test]
    fn a_record_above_its_share_is_left_out_and_an_earlier_one_removed() {
        let out = tempfile::tempdir().expect("a directory");
        let text = faultline_api::samples::sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid");
        let (_, recording) =
            Made::recorded(&federation, 7, &AtomicBool::new(false)).expect("the sample can be set up");
        let records = |most| Records { most, ..Records::new(out.path(), 1) };
        let enough = records(8 << 20);
        enough.keep("1", &federation, recording.clone());
        assert_eq!(enough.link("1", 7).as_deref(), Some("records/1/report.html"));
        assert_eq!(enough.link("1", 8), None, "the record has another seed");
        let whole = size(&enough.dir("1")).expect("the record was written");
        let facts = recording.trace.len() as u64 * FACT;
        assert!(facts < whole, "{facts} < {whole}");
        // The size is checked before and after the record is written. Each check rejects the record under one
        // of these limits.
        for most in [facts - 1, whole - 1] {
            enough.keep("1", &federation, recording.clone());
            let tight = records(most);
            tight.keep("1", &federation, recording.clone());
            assert_eq!((tight.link("1", 7), tight.dir("1").exists()), (None, false), "{most}");
            assert!(tight.result().is_ok());
        }
    }
}

//! Runs that Faultline did not carry out: records that are imported from events.

use faultline_trace::import::{ImportError, Mapping, import};
use faultline_trace::seal::Hash;
use faultline_trace::{Bundle, BundleError, Flaw, FlawKind, Manifest, Trace};

use crate::memory::most_facts;
use crate::recording::UnjudgedRecording;

/// Events to be imported.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    /// The lines.
    pub bytes: &'a [u8],
    /// The name of their file for readers.
    pub file: &'a str,
    /// The mapping; `None` if the lines have the columns of Faultline.
    pub mapping: Option<&'a Mapping>,
}

impl Events<'_> {
    /// Imports the events.
    ///
    /// # Errors
    ///
    /// Fails if a line is malformed, or if judging the run would exceed this program's [memory
    /// limit](crate::bound_memory).
    pub fn import(&self) -> Result<UnjudgedRecording, ImportError> {
        let (manifest, trace) = import(self.bytes, self.file, self.mapping, most_facts())?;
        Ok(UnjudgedRecording::in_memory(manifest, trace))
    }

    /// Writes the imported run, together with its events, into a bundle that contains no facts yet.
    ///
    /// # Errors
    ///
    /// Fails if the bundle cannot be written.
    pub fn write(&self, run: &UnjudgedRecording, bundle: &Bundle) -> Result<(), BundleError> {
        bundle.write_events(self.bytes, self.mapping.map(Mapping::text))?;
        run.write(bundle)
    }
}

/// Imports the events of a record again, and adds the flaws of the events to those of the record. If the record does not
/// follow from its events, that is a flaw, too.
pub(crate) fn compare(bundle: &Bundle, recorded: &Manifest, trace: &mut Trace) {
    let doubt = |text: String| Flaw { stream: None, kind: FlawKind::Contradiction(text) };
    match import_again(bundle, recorded) {
        Err(why) => trace.flaws.insert(0, doubt(why)),
        Ok(UnjudgedRecording { manifest, trace: imported }) => {
            let Manifest { started_unix_ms, tool, facts, .. } = recorded.clone();
            if (Manifest { started_unix_ms, tool, facts, ..manifest }) != *recorded {
                trace.flaws.push(doubt("manifest.json does not follow from events.jsonl".to_owned()));
            }
            if imported.streams != trace.streams {
                trace.flaws.push(doubt("the facts do not follow from events.jsonl".to_owned()));
            }
            let known: Vec<Flaw> = trace.flaws.clone();
            trace.flaws.extend(imported.flaws.into_iter().filter(|it| !known.contains(it)));
        }
    }
}

/// Imports the events of a record; fails with a sentence without a full stop.
fn import_again(bundle: &Bundle, recorded: &Manifest) -> Result<UnjudgedRecording, String> {
    let Some(entry) = &recorded.events else {
        return Err("manifest.json does not state from which events the record was imported".to_owned());
    };
    let (bytes, text) = bundle.read_events().map_err(|error| error.to_string())?;
    if Hash::of_bytes(&bytes) != entry.digest {
        return Err("events.jsonl was changed after it was imported".to_owned());
    }
    let mapping = match (&entry.mapping, text) {
        (None, _) => None,
        (Some(_), None) => return Err("mapping.yaml is missing".to_owned()),
        (Some(mapping), Some(text)) if Hash::of_bytes(text.as_bytes()) == mapping.digest => {
            Some(Mapping::parse(&mapping.name, &text).map_err(|error| format!("mapping.yaml: {error}"))?)
        }
        _ => return Err("mapping.yaml was changed after the events were imported".to_owned()),
    };
    let events = Events { bytes: &bytes, file: &entry.file, mapping: mapping.as_ref() };
    events.import().map_err(|error| format!("events.jsonl: {error}"))
}

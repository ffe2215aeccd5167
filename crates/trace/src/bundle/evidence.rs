//! Reads the facts of a run and detects flaws, such as streams that differ from their seals or from the manifest's
//! list, or whose times decrease.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use faultline_core::{FactNo, Life, ProcessId};

use super::description::Digest;
use super::{Bundle, BundleError, life_of, read_within};
use crate::facts::{FactsFile, StreamEnd, read_facts};
use crate::flaw::{Flaw, FlawKind};
use crate::manifest::{FactsEntry, Manifest};
use crate::memory::{Stream, Trace};
use crate::possible::Extent;

/// The length of a fact in a file, in bytes, beyond which a file counts as too large. Most facts take up less than a
/// quarter of this. While a file is read, its bytes and its facts together then fit in the memory limit.
const BYTES_OF_FACT: u64 = 128;

impl Bundle {
    /// Reads all facts, and reports flaws in the facts and in the run's description ([`Trace::flaws`]).
    ///
    /// While a run is in progress or after it was cut short, its manifest has no outcome. In such a run, a
    /// stream without a seal is not a flaw, nor is an incomplete record at its end, which a killed process
    /// can leave behind.
    ///
    /// # Errors
    ///
    /// Fails if the directory of facts, or a file in it, cannot be read. A file with invalid content is a flaw, not an
    /// error.
    pub fn read_trace(&self) -> Result<Trace, BundleError> {
        self.read_trace_of(u64::MAX)
    }

    /// Works like [`Bundle::read_trace`], but reads at most `most` facts.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`Bundle::read_trace`], and also if there are more facts.
    pub fn read_trace_of(&self, most: u64) -> Result<Trace, BundleError> {
        let mut trace = Trace::default();
        let mut facts = 0;
        let manifest = self.read_manifest().ok();
        if manifest.is_some() {
            match self.check_digest()? {
                Digest::Right => {}
                Digest::Absent => trace.flaws.push(Flaw { stream: None, kind: FlawKind::NoDigest }),
                Digest::Wrong => trace.flaws.push(Flaw { stream: None, kind: FlawKind::Edited }),
            }
        }
        let has_ended = manifest.as_ref().is_some_and(|it| it.outcome.is_some());
        let extent = Extent::new(manifest.as_ref());
        let mut files = self.facts_files()?;
        files.sort_unstable();
        let mut found = BTreeMap::new();
        for path in files {
            let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            let Some(named) = life_of(&path).filter(|it| extent.contains(it.0)) else {
                trace.flaws.push(Flaw { stream: None, kind: FlawKind::Stranger(name) });
                continue;
            };
            let bytes = match read_within(&path, (most - facts).saturating_mul(BYTES_OF_FACT)) {
                Err(BundleError::TooLarge { .. }) => {
                    return Err(BundleError::TooManyFacts { path: self.dir().to_owned(), most });
                }
                read => read?,
            };
            let mut flaw = |stream, kind| trace.flaws.push(Flaw { stream: Some(stream), kind });
            if bytes.is_empty() && !has_ended {
                continue; // killed before it wrote anything
            }
            let mut file = match read_facts(&bytes) {
                Ok(file) => file,
                Err(error) => {
                    flaw(named, FlawKind::Unreadable(error.to_string()));
                    continue;
                }
            };
            facts += file.stream.len() as u64;
            if facts > most {
                return Err(BundleError::TooManyFacts { path: self.dir().to_owned(), most });
            }
            let stream = (file.process, file.life);
            if !extent.contains(stream.0) {
                flaw(named, FlawKind::Unreadable(format!("they name {}, which does not exist", stream.0)));
                continue;
            }
            if stream.0 == ProcessId::SUPERVISOR && stream.1 != Life(0) {
                let why = format!("they name {} of the supervisor, which does not exist", stream.1);
                flaw(named, FlawKind::Unreadable(why));
                continue;
            }
            if stream != named {
                flaw(named, FlawKind::Absent);
                flaw(stream, FlawKind::Misnamed(name.clone()));
            }
            let (kind, seal) = ending(&file, has_ended);
            kind.into_iter().for_each(|kind| flaw(stream, kind));
            cut_at_impossible(extent, file.process, &mut file.stream).for_each(|kind| flaw(stream, kind));
            let entry = FactsEntry { process: stream.0, life: stream.1, bytes: bytes.len() as u64, seal };
            match trace.streams.entry(stream) {
                Entry::Occupied(_) => flaw(stream, FlawKind::Twice(name)),
                Entry::Vacant(vacant) => {
                    vacant.insert(file.stream);
                    found.insert(stream, entry);
                }
            }
        }
        if let Some(manifest) = manifest.filter(|_| has_ended) {
            compare(&manifest.facts, found, &mut trace.flaws);
        }
        trace.flaws.sort_by_key(|flaw| flaw.stream);
        Ok(trace)
    }
}

impl Trace {
    /// Examines the streams of a run that was collected in memory as those of a record are examined when they are read.
    pub fn examine(&mut self, manifest: &Manifest) {
        let extent = Extent::new(Some(manifest));
        for (&stream, facts) in &mut self.streams {
            let found = cut_at_impossible(extent, stream.0, facts);
            self.flaws.extend(found.map(|kind| Flaw { stream: Some(stream), kind }));
        }
    }
}

/// Returns the flaws of the facts of a stream, which then ends before its first impossible fact.
fn cut_at_impossible(
    extent: Extent,
    process: ProcessId,
    stream: &mut Stream,
) -> impl Iterator<Item = FlawKind> + use<> {
    let decreases = time_decreases_at(stream).map(FlawKind::TimeGoesBack);
    let impossible = extent.first_impossible(process, stream);
    if let Some(number) = impossible {
        stream.truncate(number.index());
    }
    decreases.into_iter().chain(impossible.map(FlawKind::Impossible))
}

/// Returns the flaw at the end of a stream, if any, and the stream's seal.
fn ending(file: &FactsFile, has_ended: bool) -> (Option<FlawKind>, Option<crate::Seal>) {
    let found = file.stream.len() as u64;
    match file.end {
        StreamEnd::Sealed(seal) => (seal.incomplete.then_some(FlawKind::Incomplete(found)), Some(seal)),
        StreamEnd::BrokenSeal(seal) => (Some(FlawKind::BrokenSeal { sealed: seal.facts, found }), Some(seal)),
        StreamEnd::AfterSeal => (Some(FlawKind::AfterSeal), None),
        StreamEnd::Unsealed => (has_ended.then_some(FlawKind::Unsealed(found)), None),
        StreamEnd::Torn => (has_ended.then_some(FlawKind::Torn(found)), None),
        StreamEnd::Damaged => (Some(FlawKind::Gap(FactNo(found))), None),
    }
}

/// Returns the first fact whose time is earlier than that of its predecessor.
fn time_decreases_at(stream: &Stream) -> Option<FactNo> {
    let at = stream.windows(2).position(|pair| pair[1].0 < pair[0].0)?;
    Some(FactNo(at as u64 + 1))
}

/// Compares the streams that the manifest lists with those that exist.
fn compare(listed: &[FactsEntry], mut found: BTreeMap<(ProcessId, Life), FactsEntry>, flaws: &mut Vec<Flaw>) {
    for entry in listed {
        let stream = (entry.process, entry.life);
        let kind = match found.remove(&stream) {
            Some(found) if found == *entry => continue,
            // A flaw in this stream has already been reported.
            _ if flaws.iter().any(|flaw| flaw.stream == Some(stream)) => continue,
            Some(found) => FlawKind::Unlike { listed: Box::new(*entry), found: Box::new(found) },
            None => FlawKind::Absent,
        };
        flaws.push(Flaw { stream: Some(stream), kind });
    }
    let unlisted = found.into_keys().map(|stream| Flaw { stream: Some(stream), kind: FlawKind::Unlisted });
    flaws.extend(unlisted);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use faultline_core::{Fact, Incarnation, MessageId, Time};

    use super::super::tests::trace;
    use super::*;
    use crate::SealedBy;
    use crate::manifest::tests::example;

    /// A fact that a process reports about itself.
    const OWN: Fact = Fact::Computed { since: FactNo(0) };
    const FIRST: (ProcessId, Life) = (ProcessId(0), Life(1));
    const SECOND: (ProcessId, Life) = (ProcessId(0), Life(2));

    /// Writes the record of a run that ended.
    fn record() -> (tempfile::TempDir, Bundle) {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        bundle.write_trace(&trace()).unwrap();
        bundle.write_manifest(&example()).unwrap();
        assert_eq!(bundle.read_trace().unwrap(), trace());
        (dir, bundle)
    }

    #[test]
    fn facts_that_exceed_memory_are_not_read() {
        let (_dir, bundle) = record();
        let all = trace().len() as u64;
        assert_eq!(bundle.read_trace_of(all).unwrap(), trace());
        let refused = bundle.read_trace_of(all - 1).unwrap_err().to_string();
        assert!(refused.contains("exceed the memory"), "{refused}");
    }

    #[test]
    fn a_file_that_exceeds_memory_is_not_read() {
        let (_dir, bundle) = record();
        let file = fs::OpenOptions::new().append(true).open(path(&bundle, FIRST)).unwrap();
        // The file takes up no space on the disk.
        file.set_len(3 << 30).unwrap();
        let refused = bundle.read_trace_of(1_000_000).unwrap_err().to_string();
        assert!(refused.contains("exceed the memory"), "{refused}");
        let manifest = fs::OpenOptions::new().append(true).open(bundle.dir().join("manifest.json")).unwrap();
        manifest.set_len(3 << 30).unwrap();
        let refused = bundle.read_manifest().unwrap_err().to_string();
        assert!(refused.ends_with("has 3072 MiB, but this program reads at most 64 MiB of it"), "{refused}");
    }

    #[test]
    fn a_manifest_with_a_key_twice_or_a_long_error_is_refused_briefly() {
        let refused = |change: &dyn Fn(&str) -> String| {
            let (_dir, bundle) = record();
            let file = bundle.dir().join("manifest.json");
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, change(&text)).unwrap();
            bundle.read_manifest().unwrap_err().to_string()
        };
        for (key, value) in [("seed", "1"), ("digest", "\"\""), ("name", "\"x\"")] {
            let twice = refused(&|text| text.replacen('{', &format!("{{ \"{key}\": {value},"), 1));
            assert!(twice.contains(&format!("the key `{key}` occurs twice")), "{twice}");
        }
        let nested = refused(&|text| text.replacen("\"nodes\": 1", "\"nodes\": 1, \"nodes\": 2", 1));
        assert!(nested.contains("the key `nodes` occurs twice"), "{nested}");
        let long = refused(&|text| text.replacen("\"local\"", &format!("\"{}\"", "x".repeat(1 << 20)), 1));
        assert!(long.len() < 1000, "{} bytes", long.len());
    }

    fn path(bundle: &Bundle, (process, life): (ProcessId, Life)) -> PathBuf {
        bundle.facts_path(process, life)
    }

    /// Returns the flaws of a record that `attack` has changed.
    fn flaws(attack: impl FnOnce(&Bundle)) -> Vec<(Option<(ProcessId, Life)>, FlawKind)> {
        let (_dir, bundle) = record();
        attack(&bundle);
        bundle.read_trace().unwrap().flaws.into_iter().map(|it| (it.stream, it.kind)).collect()
    }

    #[test]
    fn a_missing_or_truncated_file_is_reported() {
        let gone = flaws(|bundle| fs::remove_file(path(bundle, FIRST)).unwrap());
        assert_eq!(gone, [(Some(FIRST), FlawKind::Absent)]);
        let (_dir, bundle) = record();
        let bytes = fs::read(path(&bundle, FIRST)).unwrap();
        for cut in 0..bytes.len() {
            fs::write(path(&bundle, FIRST), &bytes[..cut]).unwrap();
            let flaws = bundle.read_trace().unwrap().flaws;
            assert!(
                !flaws.is_empty() && flaws.iter().all(|it| it.stream == Some(FIRST)),
                "truncated to {cut} bytes: {flaws:?}"
            );
        }
    }

    #[test]
    fn every_changed_byte_of_a_stream_is_reported() {
        let (_dir, bundle) = record();
        let bytes = fs::read(path(&bundle, SECOND)).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x20;
            fs::write(path(&bundle, SECOND), &changed).unwrap();
            let flaws = bundle.read_trace().unwrap().flaws;
            assert!(flaws.iter().any(|it| it.stream == Some(SECOND)), "byte {at}: {flaws:?}");
        }
    }

    #[test]
    fn a_changed_stream_with_a_new_seal_differs_from_the_manifest() {
        let again = flaws(|bundle| {
            let bytes = fs::read(path(bundle, FIRST)).unwrap();
            fs::write(path(bundle, FIRST), &bytes[..bytes.len() - 60]).unwrap();
            bundle.seal(FIRST.0, FIRST.1, false).unwrap();
        });
        assert!(matches!(again[..], [(Some(FIRST), FlawKind::Unlike { .. })]), "{again:?}");
    }

    #[test]
    fn the_stream_of_another_life_is_not_a_substitute() {
        let swapped = flaws(|bundle| {
            fs::copy(path(bundle, SECOND), path(bundle, FIRST)).map(drop).unwrap();
        });
        assert!(swapped.contains(&(Some(FIRST), FlawKind::Absent)), "{swapped:?}");
        let extra = flaws(|bundle| {
            let extra = Trace { streams: [((ProcessId(0), Life(9)), vec![])].into(), flaws: vec![] };
            bundle.write_trace(&extra).unwrap();
        });
        assert_eq!(extra, [(Some((ProcessId(0), Life(9))), FlawKind::Unlisted)]);
    }

    #[test]
    fn facts_about_processes_that_do_not_exist_are_not_read() {
        let unknown = |process, fact| {
            flaws(|bundle| {
                let streams = [((process, Life(9)), vec![(Time(0), OWN), (Time(0), fact)])].into();
                bundle.write_trace(&Trace { streams, flaws: vec![] }).unwrap();
            })
        };
        let (no, incarnation) = (ProcessId(77), Incarnation(0));
        assert_eq!(unknown(no, OWN), [(None, FlawKind::Stranger("p77-9.facts".into()))]);
        let message = MessageId { from: no, to: ProcessId(0), incarnation, number: 0 };
        let found = unknown(ProcessId(0), Fact::Delivered(message));
        assert_eq!(found[0], (Some((ProcessId(0), Life(9))), FlawKind::Impossible(FactNo(1))));
    }

    #[test]
    fn a_file_that_belongs_to_no_process_is_reported() {
        for name in ["zzz-9.facts", "zzz-9.jsonl", "p0-1.facts.bak", "notes"] {
            let stranger = flaws(|bundle| fs::write(bundle.dir().join("facts").join(name), "{}").unwrap());
            assert_eq!(stranger, [(None, FlawKind::Stranger(name.to_owned()))]);
        }
    }

    #[test]
    fn decreasing_times_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        let mut trace = trace();
        trace.streams.get_mut(&FIRST).unwrap()[2].0 = Time(0);
        bundle.write_trace(&trace).unwrap();
        bundle.write_manifest(&example()).unwrap();
        let flaws = bundle.read_trace().unwrap().flaws;
        assert_eq!(flaws, [Flaw { stream: Some(FIRST), kind: FlawKind::TimeGoesBack(FactNo(2)) }]);
    }

    #[test]
    fn every_changed_byte_of_the_manifest_is_reported() {
        let (_dir, bundle) = record();
        for name in ["manifest.json", "federation.yaml"] {
            let file = bundle.dir().join(name);
            let bytes = fs::read(&file).unwrap();
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                fs::write(&file, &changed).unwrap();
                let is_told =
                    bundle.read_manifest().is_err() || !bundle.read_trace().unwrap().flaws.is_empty();
                assert!(is_told, "byte {at} of {name}");
            }
            fs::write(&file, &bytes).unwrap();
        }
        let digestless = flaws(|bundle| {
            let file = bundle.dir().join("manifest.json");
            let text = fs::read_to_string(&file).unwrap();
            let rest =
                text.lines().filter(|line| !line.contains("\"digest\": \"") || line.starts_with("   "));
            fs::write(&file, rest.collect::<Vec<_>>().join("\n")).unwrap();
        });
        assert_eq!(digestless, [(None, FlawKind::NoDigest)]);
    }

    #[test]
    fn a_run_in_progress_needs_no_seals() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        bundle.write_manifest(&Manifest { outcome: None, ..example() }).unwrap();
        let mut writer = bundle.facts_writer(FIRST.0, FIRST.1).unwrap();
        for (at, fact) in &trace().streams[&FIRST] {
            writer.write(*at, fact).unwrap();
        }
        writer.flush().unwrap();
        fs::write(path(&bundle, SECOND), []).unwrap();
        let bytes = fs::read(path(&bundle, FIRST)).unwrap();
        fs::write(path(&bundle, FIRST), &bytes[..bytes.len() - 1]).unwrap();
        let read = bundle.read_trace().unwrap();
        assert_eq!((read.flaws.len(), read.streams[&FIRST].len()), (0, 2));

        // The streams are not sealed, although the manifest has an outcome.
        bundle.write_manifest(&example()).unwrap();
        let flaws = bundle.read_trace().unwrap().flaws;
        assert_eq!(flaws[0], Flaw { stream: Some(FIRST), kind: FlawKind::Torn(2) });
        assert!(matches!(flaws[1].kind, FlawKind::Unreadable(_)));
        // The supervisor seals existing streams, and creates missing ones.
        for (process, life) in [FIRST, SECOND, (ProcessId(0), Life(3))] {
            bundle.seal(process, life, false).unwrap();
        }
        bundle.write_manifest(&example()).unwrap();
        let read = bundle.read_trace().unwrap();
        assert_eq!(read.flaws, []);
        assert_eq!(read.streams.values().map(Vec::len).collect::<Vec<_>>(), [2, 0, 0]);
        let by =
            bundle.read_manifest().unwrap().facts.iter().map(|it| it.seal.unwrap().by).collect::<Vec<_>>();
        assert_eq!(by, [SealedBy::Supervisor; 3]);
    }

    #[test]
    fn a_stream_whose_header_was_overwritten_is_sealed_as_incomplete() {
        let (_dir, bundle) = record();
        let mut bytes = fs::read(path(&bundle, FIRST)).unwrap();
        bytes[0] ^= 1;
        fs::write(path(&bundle, FIRST), bytes).unwrap();
        bundle.seal(FIRST.0, FIRST.1, false).unwrap();
        bundle.write_manifest(&example()).unwrap();
        let read = bundle.read_trace().unwrap();
        assert_eq!(read.flaws, [Flaw { stream: Some(FIRST), kind: FlawKind::Incomplete(0) }]);
    }

    #[test]
    fn facts_that_arrive_in_pieces_are_joined_and_missing_ones_are_reported() {
        let (_dir, whole) = record();
        let bytes = fs::read(path(&whole, FIRST)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        let put = |from: usize, to: usize| {
            bundle.write_facts_at(FIRST.0, FIRST.1, from as u64, &bytes[from..to]).unwrap();
        };
        put(0, 20);
        put(10, bytes.len());
        bundle.seal(FIRST.0, FIRST.1, true).unwrap();
        bundle.seal(SECOND.0, SECOND.1, true).unwrap();
        let read = bundle.read_trace().unwrap();
        assert_eq!(read.flaws, [Flaw { stream: Some(SECOND), kind: FlawKind::Incomplete(0) }]);
        assert_eq!(
            read.streams[&FIRST],
            trace().streams[&FIRST],
            "the process's own seal has arrived as well"
        );
    }

    #[test]
    fn a_restarted_supervisor_appends_to_its_facts() {
        let (_dir, bundle) = record();
        let (mut writer, past) = bundle.facts_appender(FIRST.0, FIRST.1).unwrap();
        assert_eq!(past, trace().streams[&FIRST]);
        writer.write(Time(9), &OWN).unwrap();
        writer.seal().unwrap();
        bundle.write_manifest(&example()).unwrap();
        let read = bundle.read_trace().unwrap();
        assert_eq!((read.flaws.len(), read.streams[&FIRST].len()), (0, 4));
    }
}

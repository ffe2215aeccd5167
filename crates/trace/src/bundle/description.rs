//! The description of the run in a bundle: the manifest and the federation file, with a digest of both.
//!
//! The digest is the first entry of `manifest.json`, on a line of its own. It covers all other entries of that file and
//! the whole of `federation.yaml`. The manifest lists the streams with their digests, so the digest indirectly covers
//! all facts, too.

use std::path::Path;
use std::{fmt, fs};

use faultline_core::text::one_line;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Bundle, BundleError, FEDERATION, life_of, read, replace};
use crate::manifest::{FORMAT, FactsEntry, Manifest};
use crate::printable::{is_printable, printable};
use crate::seal::{Hash, SEAL_LEN, Seal};

/// The result of checking the manifest's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    /// The digest matches.
    Right,
    /// The manifest has no digest.
    Absent,
    /// The digest does not match.
    Wrong,
}

const BEFORE: &str = "{\n  \"digest\": \"";
const AFTER: &str = "\",\n";

impl Bundle {
    /// Writes the manifest and the federation's text. Each file atomically replaces its earlier version, if any. Once
    /// the run has ended, all facts must be present and sealed, and the manifest lists the seal of each stream.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be written, or if a stream of facts cannot be read.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no JSON form.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let mut manifest = manifest.clone();
        if manifest.outcome.is_some() {
            manifest.facts = self.list_facts()?;
        }
        let json = serde_json::to_string_pretty(&manifest).expect("a manifest has a JSON form");
        let entries = json.strip_prefix("{\n").expect("a manifest is an object of several lines");
        let entries = format!("{entries}\n");
        let digest = digest(&entries, manifest.federation.as_bytes());
        replace(&self.dir.join(FEDERATION), manifest.federation.as_bytes())?;
        replace(&self.manifest_path(), format!("{BEFORE}{digest}{AFTER}{entries}").as_bytes())
    }

    /// Reads the files that describe the run, as they are: the manifest and the federation file.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub fn read_description(&self) -> Result<[String; 2], BundleError> {
        let text = |path: &Path| read(path).map(|it| String::from_utf8_lossy(&it).into_owned());
        Ok([text(&self.manifest_path())?, text(&self.dir.join(FEDERATION))?])
    }

    /// Writes what [`Bundle::read_description`] read. Each file atomically replaces its earlier version, if any.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be written.
    pub fn write_description(&self, [manifest, federation]: &[String; 2]) -> Result<(), BundleError> {
        replace(&self.dir.join(FEDERATION), federation.as_bytes())?;
        replace(&self.manifest_path(), manifest.as_bytes())
    }

    /// Reads the manifest, including the federation's text.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or if the manifest is invalid or has another format version.
    pub fn read_manifest(&self) -> Result<Manifest, BundleError> {
        let path = self.manifest_path();
        let json = read(&path)?;
        let wrong = |source| BundleError::Manifest { path: path.clone(), source };
        let Unique(mut value) = serde_json::from_slice(&json).map_err(wrong)?;
        if let Some(found) = value["format"].as_u64().filter(|&found| found != u64::from(FORMAT)) {
            return Err(BundleError::Format { path, found });
        }
        if let Some(object) = value.as_object_mut() {
            object.remove("digest");
        }
        replace_unprintable(&mut value);
        let mut manifest: Manifest = serde_json::from_value(value).map_err(wrong)?;
        manifest.federation = String::from_utf8_lossy(&read(&self.dir.join(FEDERATION))?).into_owned();
        Ok(manifest)
    }

    /// Checks the manifest's digest against the bytes that it covers.
    pub(super) fn check_digest(&self) -> Result<Digest, BundleError> {
        let manifest = read(&self.manifest_path())?;
        let federation = read(&self.dir.join(FEDERATION))?;
        let text = String::from_utf8_lossy(&manifest);
        let Some((stated, entries)) = text.strip_prefix(BEFORE).and_then(|rest| rest.split_once(AFTER))
        else {
            let is_there = serde_json::from_slice::<serde_json::Value>(&manifest)
                .is_ok_and(|value| value.get("digest").is_some());
            return Ok(if is_there { Digest::Wrong } else { Digest::Absent });
        };
        let is_right = stated == digest(entries, &federation).to_string();
        Ok(if is_right { Digest::Right } else { Digest::Wrong })
    }

    /// Returns all existing streams, with the seals at the ends of their files.
    fn list_facts(&self) -> Result<Vec<FactsEntry>, BundleError> {
        let mut entries = Vec::new();
        for path in self.facts_files()? {
            let Some((process, life)) = life_of(&path) else { continue };
            let measure = || {
                let file = fs::File::open(&path)?;
                let bytes = file.metadata()?.len();
                let mut last = [0; SEAL_LEN];
                let seal = match bytes.checked_sub(SEAL_LEN as u64) {
                    None => None,
                    Some(at) => {
                        std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, at)?;
                        Seal::from_bytes(&last)
                    }
                };
                Ok(FactsEntry { process, life, bytes, seal })
            };
            let entry = measure().map_err(|source| BundleError::Read { path: path.clone(), source })?;
            entries.push(entry);
        }
        entries.sort_unstable();
        Ok(entries)
    }
}

/// A JSON value in which no object contains a key twice. Readers would disagree on which of the entries counts.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unique, D::Error> {
        from.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = from.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut entries = serde_json::Map::new();
        while let Some((key, Unique(value))) = from.next_entry::<String, Unique>()? {
            if entries.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key `{}` occurs twice", short(&key))));
            }
            entries.insert(key, value);
        }
        Ok(Value::Object(entries))
    }
}

/// Returns the beginning of a text that may be of any length, for an error.
pub(super) fn short(text: &str) -> String {
    printable(&one_line(text, 300))
}

/// Replaces the characters in all strings that may not reach a terminal. Programs print the names and reasons in records
/// from any source, also in pictures.
fn replace_unprintable(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if !text.chars().all(is_printable) => {
            *text = printable(text);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(replace_unprintable),
        serde_json::Value::Object(entries) => entries.values_mut().for_each(replace_unprintable),
        _ => {}
    }
}

/// Returns the digest of the federation file and of `entries`, the part of the manifest file after the digest.
fn digest(entries: &str, federation: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(entries.len() as u64).to_le_bytes());
    hasher.update(entries.as_bytes());
    hasher.update(federation);
    Hash(*hasher.finalize().as_bytes())
}

//! What says which run a bundle holds: the manifest and the federation file, with a digest over both.
//!
//! The digest is the first entry of `manifest.json`, on a line of its own. It covers every other byte of that file and every
//! byte of `federation.yaml`; the manifest lists the streams with their digests, so it covers the whole evidence.

use std::fs;

use super::{Bundle, BundleError, FEDERATION, life_of, read, replace};
use crate::manifest::{FORMAT, FactsEntry, Manifest};
use crate::seal::{Hash, SEAL_LEN, Seal};

/// What the manifest says of its own bytes and of the federation file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    /// Its digest is right.
    Right,
    /// It carries none.
    Absent,
    /// Its digest is another one's.
    Wrong,
}

const BEFORE: &str = "{\n  \"digest\": \"";
const AFTER: &str = "\",\n";

impl Bundle {
    /// Writes the manifest and the federation's text, replacing earlier ones whole. When the run has ended, all facts have to
    /// be there, and sealed: the seal of each stream becomes part of the manifest.
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

    /// Reads the manifest, with the federation's text.
    pub fn read_manifest(&self) -> Result<Manifest, BundleError> {
        let path = self.manifest_path();
        let json = read(&path)?;
        let wrong = |source| BundleError::Manifest { path: path.clone(), source };
        let mut value: serde_json::Value = serde_json::from_slice(&json).map_err(wrong)?;
        if let Some(found) = value["format"].as_u64().filter(|&found| found != u64::from(FORMAT)) {
            return Err(BundleError::Format { path, found });
        }
        if let Some(object) = value.as_object_mut() {
            object.remove("digest");
        }
        let mut manifest: Manifest = serde_json::from_value(value).map_err(wrong)?;
        manifest.federation = String::from_utf8_lossy(&read(&self.dir.join(FEDERATION))?).into_owned();
        Ok(manifest)
    }

    /// Compares the manifest's digest with the bytes that it covers.
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

    /// Every stream that is there, with the seal that its file ends with.
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

/// The digest of a manifest's entries, as they stand in its file after the digest, and of the federation file.
fn digest(entries: &str, federation: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(entries.len() as u64).to_le_bytes());
    hasher.update(entries.as_bytes());
    hasher.update(federation);
    Hash(*hasher.finalize().as_bytes())
}

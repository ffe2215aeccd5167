//! A federation's file.

use std::fs;
use std::path::Path;

use faultline_api::Federation;
use faultline_api::samples::SAMPLES;
use miette::miette;

use crate::trouble::Trouble;

/// The bytes of a federation's file, which need not be text.
pub struct Source {
    /// What to call it in errors.
    pub label: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Source {
    /// The file in which a user keeps a federation, or without one the quick start.
    pub fn of(file: Option<&Path>) -> Result<Source, Trouble> {
        match file {
            Some(path) => read(path),
            None => {
                Ok(Source { label: "the quick start".to_owned(), bytes: SAMPLES[0].text.as_bytes().to_vec() })
            }
        }
    }

    /// The federation that it holds.
    pub fn parse(&self) -> Result<Federation, Trouble> {
        faultline_api::parse(&self.label, &self.bytes).map_err(|rejected| Trouble::input(*rejected))
    }

    /// Its text, once it has been parsed.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads a federation's file.
pub fn read(path: &Path) -> Result<Source, Trouble> {
    read_with(path, "give a file; `faultline samples quickstart` prints one to start from")
}

/// Reads any file of values; `help` says where to get one.
pub fn read_with(path: &Path, help: &str) -> Result<Source, Trouble> {
    let bytes = fs::read(path).map_err(|error| Trouble::path("read", path, error, help))?;
    Ok(Source { label: path.display().to_string(), bytes })
}

/// A federation that is well-formed, and yet cannot be set up.
pub fn unfit(error: faultline_catalog::SetupError) -> Trouble {
    Trouble::input(miette!(help = "change the file; `faultline samples` shows whole federations", "{error}"))
}

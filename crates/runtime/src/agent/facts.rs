//! Sends the facts of the lives at a place to the supervisor. Each life writes its own file. The agent sends new
//! content of the file while the life runs, and the rest after the life has ended. Also sends the logs of commands, which
//! are no evidence, once their lives have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use faultline_core::{Life, ProcessId};
use faultline_trace::Bundle;
use tracing::warn;

use crate::remote::messages::ToPlace;

/// Largest number of bytes of facts per message.
const PIECE: usize = 256 << 10;

/// The facts files at a place, with the number of bytes of each that have been sent.
pub(super) struct Facts {
    bundle: Bundle,
    process: ProcessId,
    files: BTreeMap<Life, (File, u64)>,
    /// Lives whose files may not exist yet, with the number of bytes that the supervisor already has.
    expected: BTreeMap<Life, u64>,
    buffer: Vec<u8>,
}

impl Facts {
    /// Creates the state for a process whose lives write below `run_dir`.
    pub(super) fn new(run_dir: PathBuf, process: ProcessId) -> Facts {
        Facts {
            bundle: Bundle::open(run_dir),
            process,
            files: BTreeMap::new(),
            expected: BTreeMap::new(),
            buffer: vec![0; PIECE],
        }
    }

    /// Resumes after the bytes that have arrived: from the given offset for lives in `arrived`, and from
    /// the beginning for all others.
    pub(super) fn resume(&mut self, newest: Life, arrived: &[(Life, u64)]) {
        self.files.clear();
        for life in (1..=newest.0).map(Life) {
            let from = arrived.iter().find(|(it, _)| *it == life).map_or(0, |&(_, bytes)| bytes);
            self.expected.insert(life, from);
        }
    }

    /// Follows the file of a new life.
    pub(super) fn follow(&mut self, life: Life) {
        self.expected.insert(life, 0);
    }

    /// Sends all bytes that have not been sent yet. Returns their number.
    pub(super) fn send(&mut self, mut to: impl FnMut(ToPlace)) -> io::Result<u64> {
        for (life, from) in std::mem::take(&mut self.expected) {
            match File::open(self.bundle.facts_path(self.process, life)) {
                Ok(file) => drop(self.files.insert(life, (file, from))),
                // The file does not exist yet, or was written at another place.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.expected.insert(life, from);
                }
                Err(error) => return Err(error),
            }
        }
        let mut sent = 0;
        for (&life, (file, offset)) in &mut self.files {
            loop {
                let read = file.read_at(&mut self.buffer, *offset)?;
                if read == 0 {
                    break;
                }
                to(ToPlace::Facts { life, offset: *offset, bytes: self.buffer[..read].to_vec() });
                *offset += read as u64;
                sent += read as u64;
            }
        }
        Ok(sent)
    }
}

/// The logs of commands at a place that have not been sent.
pub(super) struct Logs {
    run_dir: PathBuf,
    name: String,
    unsent: BTreeSet<Life>,
}

impl Logs {
    /// Creates the state for the process with this name.
    pub(super) fn new(run_dir: &Path, name: &str) -> Logs {
        Logs { run_dir: run_dir.to_owned(), name: name.to_owned(), unsent: BTreeSet::new() }
    }

    /// Sends the logs of all lives again, because they may not have arrived.
    pub(super) fn resume(&mut self, newest: Life) {
        self.unsent = (1..=newest.0).map(Life).collect();
    }

    /// Adds a new life.
    pub(super) fn follow(&mut self, life: Life) {
        self.unsent.insert(life);
    }

    /// Sends the logs of lives that have ended.
    pub(super) fn send(&mut self, running: Option<Life>, mut to: impl FnMut(ToPlace)) {
        let ended: Vec<Life> = self.unsent.iter().copied().filter(|it| Some(*it) != running).collect();
        for life in ended {
            self.unsent.remove(&life);
            let path = self.run_dir.join(Bundle::log_path(&self.name, life));
            let mut offset = 0;
            let mut buffer = vec![0; PIECE];
            let read = || -> io::Result<()> {
                let file = File::open(path)?;
                while let read @ 1.. = file.read_at(&mut buffer, offset)? {
                    to(ToPlace::Log { life, offset, bytes: buffer[..read].to_vec() });
                    offset += read as u64;
                }
                Ok(())
            };
            match read() {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(%life, %error, "cannot send the log of the command");
                }
                _ => {}
            }
        }
    }
}

//! Sends the facts of the lives at a place to the supervisor. Each life writes its own file. The agent sends new
//! content of the file while the life runs, and the rest after the life has ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use faultline_core::{Life, ProcessId};
use faultline_trace::Bundle;

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

//! The facts of the lives at a place, on their way to the supervisor. A life writes its own file; what stands there is
//! sent on, and after the end of a life everything that it wrote.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use faultline_core::{Life, ProcessId};
use faultline_trace::Bundle;

use crate::remote::words::ToPlace;

/// Bytes sent at once.
const PIECE: usize = 256 << 10;

/// How far each file has been sent.
pub(super) struct Facts {
    bundle: Bundle,
    process: ProcessId,
    files: BTreeMap<Life, (File, u64)>,
    /// Lives that may not have begun a file yet, and what is not to be sent of it.
    expected: BTreeMap<Life, u64>,
    buffer: Vec<u8>,
}

impl Facts {
    /// Of a process whose lives write below `run_dir`. What had `arrived` is not sent again.
    pub(super) fn new(run_dir: PathBuf, process: ProcessId) -> Facts {
        Facts {
            bundle: Bundle::open(run_dir),
            process,
            files: BTreeMap::new(),
            expected: BTreeMap::new(),
            buffer: vec![0; PIECE],
        }
    }

    /// Begins with what has not arrived: of the lives that are named, from there on; of others, everything.
    pub(super) fn resume(&mut self, newest: Life, arrived: &[(Life, u64)]) {
        self.files.clear();
        for life in (1..=newest.0).map(Life) {
            let from = arrived.iter().find(|(it, _)| *it == life).map_or(0, |&(_, bytes)| bytes);
            self.expected.insert(life, from);
        }
    }

    /// A life is about to write.
    pub(super) fn follow(&mut self, life: Life) {
        self.expected.insert(life, 0);
    }

    /// Everything that is there and was not sent. Returns the bytes.
    pub(super) fn send(&mut self, mut to: impl FnMut(ToPlace)) -> io::Result<u64> {
        for (life, from) in std::mem::take(&mut self.expected) {
            match File::open(self.bundle.facts_path(self.process, life)) {
                Ok(file) => drop(self.files.insert(life, (file, from))),
                // Not begun, or written at another place.
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

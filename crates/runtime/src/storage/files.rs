//! Writing files durably.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;
use std::thread;

/// Waits until a new file is durable. Syncs the file and its directory in parallel, so that a single commit of the file
/// system can make both durable.
pub(super) fn sync_with_dir(file: &File, dir: &Path) -> io::Result<()> {
    thread::scope(|scope| {
        let dir = scope.spawn(|| File::open(dir)?.sync_all());
        file.sync_all().and(dir.join().expect("syncing does not panic"))
    })
}

/// Writes all slices completely.
pub(super) fn write_all_vectored(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

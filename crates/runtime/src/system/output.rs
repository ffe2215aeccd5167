//! The output of a command: a file of limited size, and the lines that match watches.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faultline_core::WatchNo;
use regex::Regex;

/// Length of the longest line that watches see as a whole, in bytes.
const LONGEST_LINE: usize = 4096;
/// Number of bytes of a line that a fact contains.
pub(super) const MOST_QUOTED: usize = 200;
/// The maximum number of matches per watch and second.
const MOST_PER_SECOND: u32 = 100;

/// A file with the first half of the permitted bytes of output, and the newest bytes.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    most: u64,
    /// Length of the file.
    len: u64,
    /// Number of bytes that were removed.
    omitted: u64,
}

impl Log {
    pub(super) fn create(path: &Path, most: u64) -> io::Result<Log> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        Ok(Log { path: path.to_owned(), file, most, len: 0, omitted: 0 })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        if self.len > self.most { self.shorten() } else { Ok(()) }
    }

    /// Keeps the first half of the permitted bytes, and the newest quarter.
    fn shorten(&mut self) -> io::Result<()> {
        let (half, quarter) = (self.most / 2, self.most / 4);
        self.file.seek(SeekFrom::Start(0))?;
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        (&mut self.file).take(half).read_to_end(&mut head)?;
        self.file.seek(SeekFrom::Start(self.len - quarter))?;
        self.file.read_to_end(&mut tail)?;
        self.omitted += self.len - half - quarter;
        let beside = self.path.with_extension("new");
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&beside)?;
        let mark = format!("\n[about {} bytes are omitted]\n", self.omitted);
        let parts = [&head[..], mark.as_bytes(), &tail];
        parts.iter().try_for_each(|it| file.write_all(it))?;
        fs::rename(&beside, &self.path)?;
        self.len = parts.iter().map(|it| it.len() as u64).sum();
        self.file = file;
        Ok(())
    }

    /// Returns the last lines.
    pub(super) fn end(&mut self) -> String {
        const LENGTH: u64 = 1_000;
        let mut end = Vec::new();
        let read = self.file.seek(SeekFrom::Start(self.len.saturating_sub(LENGTH)));
        let read = read.and_then(|_| self.file.read_to_end(&mut end));
        let _ = read.and_then(|_| self.file.seek(SeekFrom::End(0)));
        String::from_utf8_lossy(&end).trim().to_owned()
    }
}

/// Finds the lines of one stream that match watches.
pub(super) struct Lines<'a> {
    watches: &'a [(WatchNo, Regex)],
    /// The beginning of a line whose end has not arrived.
    open: Vec<u8>,
    /// For each watch, the start of the current second and the number of matches in it.
    matches: Vec<(Instant, u32)>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(watches: &'a [(WatchNo, Regex)]) -> Lines<'a> {
        let matches = watches.iter().map(|_| (Instant::now(), 0)).collect();
        Lines { watches, open: Vec::new(), matches }
    }

    /// Handles output, and passes each match to `found`.
    pub(super) fn push(&mut self, bytes: &[u8], mut found: impl FnMut(WatchNo, String)) {
        if self.watches.is_empty() {
            return;
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|it| *it == b'\n') {
            self.keep(&rest[..end]);
            let line = std::mem::take(&mut self.open);
            self.matched(&String::from_utf8_lossy(&line), &mut found);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LONGEST_LINE - self.open.len();
        self.open.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn matched(&mut self, line: &str, found: &mut impl FnMut(WatchNo, String)) {
        for ((no, pattern), (second, count)) in self.watches.iter().zip(&mut self.matches) {
            if !pattern.is_match(line) {
                continue;
            }
            if second.elapsed() >= Duration::from_secs(1) {
                (*second, *count) = (Instant::now(), 0);
            }
            *count += 1;
            if *count <= MOST_PER_SECOND {
                let end = line.char_indices().map(|it| it.0).find(|it| *it >= MOST_QUOTED);
                found(*no, line[..end.unwrap_or(line.len())].to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_its_beginning_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/a-1.log");
        let mut log = Log::create(&path, 4_000).unwrap();
        for number in 0..10_000 {
            log.write(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert!(log.end().ends_with("line 9999"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() < 4_100, "{}", text.len());
        assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 9998\nline 9999\n"), "{text}");
        assert!(text.contains(" bytes are omitted]"));
    }

    #[test]
    fn lines_are_matched_as_a_whole_and_at_a_limited_rate() {
        let watches = [(WatchNo(0), Regex::new("^became leader").unwrap())];
        let mut lines = Lines::new(&watches);
        let mut found = Vec::new();
        for part in ["not yet\nbeca", "me leader at term 2\nx became leader\n"] {
            lines.push(part.as_bytes(), |_, line| found.push(line));
        }
        assert_eq!(found, ["became leader at term 2"]);
        (0..1_000).for_each(|_| lines.push(b"became leader\n", |_, line| found.push(line)));
        assert!(found.len() <= 2 * MOST_PER_SECOND as usize, "{}", found.len());
    }
}

//! The output of a command: a file of limited size, and the lines that match watches.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use faultline_core::observation::{MOST_OF_GROUP, MOST_SAID_BY_PROBE};
use faultline_core::{Observation, WatchNo};
use regex::{Regex, bytes};
use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;

/// The maximum number of bytes of output in one message.
pub(crate) const PIECE: usize = 16 << 10;
/// Length of the longest line that watches see as a whole, in bytes.
const LONGEST_LINE: usize = 64 << 10;
/// Number of bytes of a line that a fact contains.
pub(super) const MOST_QUOTED: usize = 200;
/// The maximum number of matches per watch and second.
const MOST_PER_SECOND: u32 = 100;

/// A file with the first half of the permitted bytes of output, and the newest bytes. It is shortened between lines.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    most: u64,
    /// Length of the file.
    len: u64,
    /// Length of the beginning that is kept; `None` before anything was removed.
    head: Option<u64>,
    /// Number of bytes that were removed.
    omitted: u64,
    /// Number of ends of lines that were written.
    lines: usize,
}

fn ends_of_lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|it| **it == b'\n').count()
}

impl Log {
    pub(super) fn create(path: &Path, most: u64) -> io::Result<Log> {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        Ok(Log { path: path.to_owned(), file, most, len: 0, head: None, omitted: 0, lines: 0 })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        self.lines += ends_of_lines(bytes);
        if self.len > self.most { self.shorten() } else { Ok(()) }
    }

    /// Keeps the lines in the first half of the permitted bytes, and those in the newest quarter.
    fn shorten(&mut self) -> io::Result<()> {
        let (half, quarter) = (self.most / 2, self.most / 4);
        let is_end = |it: &u8| *it == b'\n';
        self.file.seek(SeekFrom::Start(0))?;
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        (&mut self.file).take(self.head.unwrap_or(half)).read_to_end(&mut head)?;
        let whole = head.iter().rposition(is_end).map_or(head.len(), |it| it + 1);
        head.truncate(whole);
        // The byte before shows whether a line begins here.
        self.file.seek(SeekFrom::Start(self.len - quarter - 1))?;
        self.file.read_to_end(&mut tail)?;
        let starts = tail.iter().position(is_end).map(|it| it + 1).filter(|it| *it < tail.len());
        tail.drain(..starts.unwrap_or(1));
        self.head = Some(head.len() as u64);
        self.omitted += self.len - (head.len() + tail.len()) as u64;
        let start = if head.last().is_none_or(is_end) { "" } else { "\n" };
        let upto = self.lines - ends_of_lines(&tail);
        let mark = format!("{start}[about {} bytes are omitted, up to line {upto}]\n", self.omitted);
        let beside = self.path.with_extension("new");
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&beside)?;
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

/// Merges the streams of a command by whole lines.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// For each stream, the beginning of a line whose end has not arrived.
    open: [Vec<u8>; 2],
    /// The stream whose unfinished line was passed on last, if no line has ended since.
    unfinished: Option<usize>,
    /// The last line that is not blank.
    last_line: String,
    /// The number of ends of lines that were passed on.
    lines: usize,
}

impl Merged {
    /// Adds output of a stream. Returns what to pass on: its whole lines, or the beginning of a very long one.
    pub(super) fn add(&mut self, stream: usize, bytes: &[u8]) -> Vec<u8> {
        let open = &mut self.open[stream];
        open.extend_from_slice(bytes);
        let whole = match open.iter().rposition(|it| *it == b'\n') {
            Some(end) => open.drain(..=end).collect(),
            None if open.len() >= PIECE => std::mem::take(open),
            None => Vec::new(),
        };
        self.passed(stream, whole)
    }

    /// Returns the unfinished line of a stream, which has not continued for a while, or has ended.
    pub(super) fn flush(&mut self, stream: usize) -> Vec<u8> {
        let open = std::mem::take(&mut self.open[stream]);
        self.passed(stream, open)
    }

    /// Returns whole lines of Faultline's own, between those of the command.
    pub(super) fn note(&mut self, text: &str) -> Vec<u8> {
        let start = if self.unfinished.take().is_some() { "\n" } else { "" };
        let note = format!("{start}{text}\n").into_bytes();
        self.lines += ends_of_lines(&note);
        note
    }

    /// Returns the number that the next line of a stream has in the log, from 1.
    pub(super) fn next_line(&self, stream: usize) -> u32 {
        let is_after_another = self.unfinished.is_some_and(|it| it != stream);
        u32::try_from(self.lines + 1 + usize::from(is_after_another)).unwrap_or(u32::MAX)
    }

    /// Returns the last line that is not blank, shortened.
    pub(super) fn last_line(&self) -> &str {
        &self.last_line
    }

    fn passed(&mut self, stream: usize, mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.is_empty() {
            return bytes;
        }
        let lines = bytes.rsplit(|it| matches!(it, b'\n' | b'\r'));
        if let Some(line) = lines.map(|it| quoted(it, MOST_SAID_BY_PROBE)).find(|it| !it.is_empty()) {
            self.last_line = line;
        }
        let is_unfinished = bytes.last() != Some(&b'\n');
        if self.unfinished.is_some_and(|it| it != stream) {
            bytes.insert(0, b'\n');
        }
        self.lines += ends_of_lines(&bytes);
        self.unfinished = is_unfinished.then_some(stream);
        bytes
    }
}

/// Returns text for people: without terminal escapes, without space at its ends, and at most `most` bytes long.
pub(super) fn quoted(bytes: &[u8], most: usize) -> String {
    let text = plain(bytes);
    let text = text.trim();
    beginning(text, most).to_owned()
}

/// Returns at most the first `most` bytes of a text.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|it| text.is_char_boundary(*it));
    &text[..end.unwrap_or(0)]
}

/// Returns text without terminal escapes and other control characters, with LF at the end of each line.
fn plain(bytes: &[u8]) -> String {
    let text = strip_str(&String::from_utf8_lossy(bytes)).to_string();
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

/// Terminal escapes: control sequences, titles, and a few others.
static ESCAPES: LazyLock<bytes::Regex> = LazyLock::new(|| {
    bytes::Regex::new(
        r"(?-u)\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[78=>])",
    )
    .expect("a valid expression")
});
/// A terminal escape at the end of a text whose rest may follow.
static UNFINISHED: LazyLock<bytes::Regex> = LazyLock::new(|| {
    bytes::Regex::new(r"(?-u)\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[()])?$").expect("a valid expression")
});
/// The character that stands for the byte 0 if that is not text. The following ones stand for the other bytes. They are in
/// the last plane for private use.
const BYTE_0: u32 = 0x10_FF00;

/// Returns the text of a line without terminal escapes. A character of its own stands for each byte that is not text and
/// for each control character, so two lines have the same text only if they are the same.
fn exact(bytes: &[u8]) -> String {
    let bytes = ESCAPES.replace_all(bytes, &b""[..]);
    let of_byte = |it: u8| char::from_u32(BYTE_0 + u32::from(it)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.extend(chunk.valid().chars().map(|it| match it {
            '\t' => it,
            '\0'..='\x1f' | '\x7f' => of_byte(it as u8),
            _ => it,
        }));
        text.extend(chunk.invalid().iter().map(|it| of_byte(*it)));
    }
    text
}

/// Returns the text of the beginning of a line, without an escape or a character that may continue.
fn exact_beginning(bytes: &[u8]) -> String {
    let end = UNFINISHED.find(bytes).map_or(bytes.len(), |it| it.start());
    let bytes = &bytes[..end];
    let end = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    exact(&bytes[..end])
}

/// Returns the beginning of a line for people.
fn shown(line: &str) -> String {
    let byte = |it: char| (it as u32).checked_sub(BYTE_0).filter(|it| *it < 256);
    let shown = line.chars().map(|it| byte(it).map_or_else(|| it.to_string(), |it| format!("\\x{it:02x}")));
    let shown: String = shown.collect();
    beginning(&shown, MOST_QUOTED).to_owned()
}

/// What a pattern finds in a line of which only the beginning is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// It matches, whatever follows.
    Certain,
    /// This depends on what follows.
    Possible,
    /// It does not match, whatever follows.
    Impossible,
}

/// A watch of one stream.
struct Watch<'a> {
    no: WatchNo,
    pattern: &'a Regex,
    has_groups: bool,
    is_error: bool,
    /// Finds matches in the beginning of a line, once there is one. `None` if it would be too large.
    automaton: OnceCell<Option<DFA>>,
    /// The start of the current second.
    second: Instant,
    /// The number of matches in it.
    count: u32,
    /// The number in the log of the line whose end has not arrived, if its beginning was passed on.
    begun: Option<u32>,
}

impl<'a> Watch<'a> {
    fn new(no: WatchNo, pattern: &'a Regex, is_error: bool) -> Watch<'a> {
        let has_groups = pattern.capture_names().flatten().next().is_some();
        let (automaton, second) = (OnceCell::new(), Instant::now());
        Watch { no, pattern, has_groups, is_error, automaton, second, count: 0, begun: None }
    }

    fn outlook(&self, text: &str) -> Outlook {
        let automaton = self.automaton.get_or_init(|| {
            let config = DFA::config().unicode_word_boundary(true);
            DFA::builder().configure(config).build(self.pattern.as_str()).ok()
        });
        automaton.as_ref().and_then(|it| outlook(it, text)).unwrap_or(Outlook::Possible)
    }

    /// Passes on a line, or its beginning without the values of groups.
    fn matched(&mut self, line: &str, is_whole: bool, log_line: u32, found: &mut impl FnMut(Observation)) {
        let log_line = self.begun.replace(log_line).unwrap_or(log_line);
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.count) = (Instant::now(), 0);
        }
        self.count += 1;
        let (watch, is_error) = (self.no, self.is_error);
        if self.count <= MOST_PER_SECOND {
            let groups = if is_whole { groups(self.pattern, line) } else { BTreeMap::new() };
            let line = shown(line).into();
            found(Observation::Logged { watch, line, log_line, is_error, groups });
        } else if self.count == MOST_PER_SECOND + 1 {
            found(Observation::LeftOut { watch });
        }
    }
}

/// Returns what an automaton finds in the beginning of a line; `None` if it gives up. It enters a state of a match one
/// byte after the match, and never leaves it for good: a longer line also matches.
fn outlook(automaton: &DFA, text: &str) -> Option<Outlook> {
    let mut cache = automaton.create_cache();
    let mut state = automaton.start_state_forward(&mut cache, &Input::new(text)).ok()?;
    for byte in text.bytes() {
        state = automaton.next_state(&mut cache, state, byte).ok()?;
        if state.is_match() {
            return Some(Outlook::Certain);
        }
        if state.is_dead() {
            return Some(Outlook::Impossible);
        }
        if state.is_quit() {
            return None;
        }
    }
    let mut is_certain = automaton.next_eoi_state(&mut cache, state).ok()?.is_match();
    for byte in 0..=u8::MAX {
        is_certain = is_certain && automaton.next_state(&mut cache, state, byte).ok()?.is_match();
    }
    Some(if is_certain { Outlook::Certain } else { Outlook::Possible })
}

/// Finds the lines of one stream that match watches. Lines end with LF, CR or CRLF, or with the stream. Terminal escapes
/// are not part of a line.
///
/// The beginning of a line that does not continue, or is very long, is passed on if a watch matches it whatever follows.
/// What named groups match in it is not: a value could be incomplete.
pub(super) struct Lines<'a> {
    watches: Vec<Watch<'a>>,
    /// The beginning of a line whose end has not arrived.
    open: Vec<u8>,
    /// Whether the rest of this line is dropped.
    is_cut: bool,
}

impl<'a> Lines<'a> {
    /// Creates the lines of standard error or output.
    pub(super) fn new(watches: &'a [(WatchNo, Regex)], is_error: bool) -> Lines<'a> {
        let watches = watches.iter().map(|(no, pattern)| Watch::new(*no, pattern, is_error)).collect();
        Lines { watches, open: Vec::new(), is_cut: false }
    }

    /// Handles output, and passes what it shows to `found`. `log_line` is the number that the line in which the output
    /// begins has in the log.
    pub(super) fn push(&mut self, bytes: &[u8], mut log_line: u32, mut found: impl FnMut(Observation)) {
        if self.watches.is_empty() {
            return;
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|it| matches!(it, b'\n' | b'\r')) {
            self.keep(&rest[..end], log_line, &mut found);
            self.end(log_line, &mut found);
            log_line = log_line.saturating_add(u32::from(rest[end] == b'\n'));
            rest = &rest[end + 1..];
        }
        self.keep(rest, log_line, &mut found);
    }

    /// Handles a pause in the middle of a line. A program may wait for an answer to it, or never continue. Watches with
    /// groups need the whole line, so they see the beginning only if the pause is `long`.
    pub(super) fn pause(&mut self, is_long: bool, log_line: u32, mut found: impl FnMut(Observation)) {
        if self.open.is_empty() || self.is_cut {
            return;
        }
        let line = exact_beginning(&self.open);
        let unseen = self.watches.iter_mut().filter(|it| it.begun.is_none() && (is_long || !it.has_groups));
        for watch in unseen {
            if watch.outlook(&line) == Outlook::Certain {
                watch.matched(&line, false, log_line, &mut found);
            }
        }
    }

    /// Handles the end of the stream. The last line is whole unless its program was killed.
    pub(super) fn finish(&mut self, was_killed: bool, log_line: u32, mut found: impl FnMut(Observation)) {
        match was_killed {
            true => self.pause(true, log_line, found),
            false => self.end(log_line, &mut found),
        }
    }

    /// Keeps a part of a line. What is longer than the longest line is dropped.
    fn keep(&mut self, part: &[u8], log_line: u32, found: &mut impl FnMut(Observation)) {
        let room = LONGEST_LINE - self.open.len();
        self.open.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() <= room || std::mem::replace(&mut self.is_cut, true) {
            return;
        }
        let line = exact_beginning(&self.open);
        for watch in &mut self.watches {
            let outlook = if watch.begun.is_some() { Outlook::Certain } else { watch.outlook(&line) };
            if outlook == Outlook::Certain && watch.begun.is_none() {
                watch.matched(&line, false, log_line, found);
            }
            if outlook == Outlook::Possible || outlook == Outlook::Certain && watch.has_groups {
                found(Observation::LeftOut { watch: watch.no });
            }
        }
    }

    /// Handles the end of a line. Between CR and LF, there is none.
    fn end(&mut self, log_line: u32, found: &mut impl FnMut(Observation)) {
        let is_cut = std::mem::take(&mut self.is_cut);
        let line = exact(&std::mem::take(&mut self.open));
        for watch in &mut self.watches {
            let is_seen = is_cut || watch.begun.is_some() && !watch.has_groups;
            if !line.is_empty() && !is_seen && watch.pattern.is_match(&line) {
                watch.matched(&line, true, log_line, found);
            }
            watch.begun = None;
        }
    }
}

/// Returns what the named groups of a watch match in a line.
fn groups(pattern: &Regex, line: &str) -> BTreeMap<Arc<str>, Arc<str>> {
    let names = || pattern.capture_names().flatten();
    let captures = names().next().and_then(|_| pattern.captures(line));
    let Some(captures) = captures else { return BTreeMap::new() };
    names().filter_map(|it| Some((it.into(), value(captures.name(it)?.as_str()).into()))).collect()
}

/// Returns a value of a group, whose length is limited. Two values are equal only if the whole values are. Zeros of a long
/// number that have no effect on it are omitted.
fn value(whole: &str) -> String {
    let whole = if whole.len() > MOST_OF_GROUP { without_zeros(whole) } else { whole.into() };
    if whole.len() <= MOST_OF_GROUP {
        return whole.into_owned();
    }
    let mut hash = DefaultHasher::new();
    whole.hash(&mut hash);
    let hash = format!("~{:016x}", hash.finish());
    format!("{}{hash}", beginning(&whole, MOST_OF_GROUP - hash.len()))
}

/// Returns a number without leading zeros, and without zeros at the end of its fraction. Other text is returned as it is.
fn without_zeros(text: &str) -> Cow<'_, str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let is_digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return text.into();
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    format!("{sign}{}{fraction}", if whole.is_empty() { "0" } else { whole }).into()
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
        assert!(text.contains(" bytes are omitted, up to line "));
        let whole = |it: &str| it.strip_prefix("line ").is_some_and(|it| it.parse::<u32>().is_ok());
        let other: Vec<_> = text.lines().filter(|it| !whole(it)).collect();
        let [mark] = other[..] else { panic!("{other:?}") };
        // Its first line is line 0.
        let next = text.lines().skip_while(|it| *it != mark).nth(1).unwrap().replace("line ", "");
        assert!(
            mark.starts_with("[about ") && mark.ends_with(&format!(", up to line {next}]")),
            "{mark}: {next}"
        );
    }

    #[test]
    fn a_log_without_lines_is_shortened_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Log::create(&path, 4_000).unwrap();
        (0..100).for_each(|_| log.write(&[b'x'; 999]).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() < 4_100 && text.ends_with('x') && text.contains("\n[about "), "{text}");
    }

    #[test]
    fn streams_are_merged_by_whole_lines() {
        let mut merged = Merged::default();
        let mut text = Vec::new();
        for (stream, part) in [(0, "one "), (1, "error\nmore"), (0, "line\nanother\nand"), (1, " of it\n")] {
            text.extend(merged.add(stream, part.as_bytes()));
        }
        assert_eq!(String::from_utf8_lossy(&text), "error\none line\nanother\nmore of it\n");
        assert_eq!(merged.last_line(), "more of it");
        assert_eq!(merged.flush(0), b"and");
        assert_eq!(merged.add(1, b"\x1b[31mbad\x1b[0m\n"), b"\n\x1b[31mbad\x1b[0m\n");
        assert_eq!(merged.last_line(), "bad");
        assert_eq!(merged.flush(1), b"");
        assert_eq!(merged.add(0, b" so on"), b"");
        assert_eq!(merged.flush(0), b" so on");
        assert_eq!(merged.note("[check]"), b"\n[check]\n");
        assert_eq!(merged.add(1, &[b'x'; PIECE]).len(), PIECE);
        assert_eq!(merged.add(1, b"\n"), b"\n");
    }

    #[test]
    fn a_quotation_is_plain_text_of_limited_length() {
        assert_eq!(quoted(b" \x1b]0;title\x07\x1b[1mhello\x1b[m \r", 200), "hello");
        assert_eq!(quoted("äöü".as_bytes(), 3), "ä");
        assert_eq!(quoted(b"10%\r20%\r\na\tb\n", 200), "10%\n20%\na\tb");
        assert_eq!(quoted(b"\xff\xfe", 200), "\u{fffd}\u{fffd}");
    }

    fn found(pattern: &str, parts: &[&[u8]]) -> Vec<String> {
        let watches = [(WatchNo(0), Regex::new(pattern).unwrap())];
        let mut lines = Lines::new(&watches, false);
        let mut found = Vec::new();
        let mut note = |it| match it {
            Observation::Logged { line, .. } => found.push(line.to_string()),
            _ => found.push("left out".to_owned()),
        };
        parts.iter().for_each(|it| lines.push(it, 1, &mut note));
        lines.finish(false, 1, note);
        found
    }

    #[test]
    fn lines_are_matched_as_a_whole_and_at_a_limited_rate() {
        let parts = [&b"not yet\nbeca"[..], b"me leader at term 2\nx became leader\n"];
        assert_eq!(found("^became leader", &parts), ["became leader at term 2"]);
        let many = vec![&b"became leader\n"[..]; 1_000];
        let found = found("^became leader", &many);
        assert!(found.len() <= 2 * (MOST_PER_SECOND as usize + 1));
        assert_eq!(found[MOST_PER_SECOND as usize], "left out");
    }

    #[test]
    fn named_groups_are_kept_and_two_long_values_remain_different() {
        let of = |line: &str| groups(&Regex::new(r"step (?<step>\d+)( by (?<by>\S+))?").unwrap(), line);
        let one = |name: &str, value: &str| (Arc::from(name), Arc::from(value));
        assert_eq!(of("step 12 by a"), [one("step", "12"), one("by", "a")].into());
        assert_eq!(of("step 12"), [one("step", "12")].into());
        let long = |end: &str| value(&format!("{}{end}", "é".repeat(40)));
        assert_eq!((long("a"), long("a").len() <= MOST_OF_GROUP), (long("a"), true));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").starts_with("ééé"));
    }

    #[test]
    fn the_position_of_a_line_in_the_log_is_known() {
        let watches = [(WatchNo(0), Regex::new("x").unwrap())];
        let (mut lines, mut merged) = ([false, true].map(|it| Lines::new(&watches, it)), Merged::default());
        let (mut log, mut found) = (Vec::new(), Vec::new());
        let mut note = |it| match it {
            Observation::Logged { line, log_line, .. } => found.push((log_line as usize, line)),
            _ => unreachable!("there are few lines"),
        };
        for (stream, bytes) in [(0, "a\nx1\n"), (1, "x2\nx"), (0, "b\nx3"), (1, "4\n"), (0, "\n")] {
            lines[stream].push(bytes.as_bytes(), merged.next_line(stream), &mut note);
            log.extend(merged.add(stream, bytes.as_bytes()));
        }
        log.extend(merged.note("a note"));
        lines[1].push(b"x5", merged.next_line(1), &mut note);
        log.extend(merged.add(1, b"x5"));
        log.extend(merged.flush(1));
        lines[0].push(b"x6\n", merged.next_line(0), &mut note);
        log.extend(merged.add(0, b"x6\n"));
        lines[1].finish(false, merged.next_line(1), &mut note);
        let log = String::from_utf8(log).unwrap();
        let log: Vec<&str> = log.lines().collect();
        for (number, line) in &found[..found.len() - 1] {
            assert_eq!(log[number - 1], &**line, "{log:?}");
        }
        assert_eq!(found.len(), 6);
    }

    /// Returns the lines of a watch and their groups: `pause` follows each part but the last.
    fn seen(pattern: &str, parts: &[&[u8]], was_killed: bool) -> Vec<String> {
        let watches = [(WatchNo(0), Regex::new(pattern).unwrap())];
        let mut lines = Lines::new(&watches, false);
        let mut seen = Vec::new();
        let mut note = |it| match it {
            Observation::Logged { line, groups, .. } => {
                let groups: Vec<_> = groups.iter().map(|it| format!(" {}={}", it.0, it.1)).collect();
                seen.push(format!("{line}{}", groups.concat()));
            }
            _ => seen.push("left out".to_owned()),
        };
        for (number, part) in parts.iter().enumerate() {
            lines.push(part, 1, &mut note);
            if number + 1 < parts.len() {
                lines.pause(part.is_empty(), 1, &mut note);
            }
        }
        lines.finish(was_killed, 1, note);
        seen
    }

    #[test]
    fn a_line_without_its_end_is_matched_after_a_pause_if_no_rest_changes_this() {
        assert_eq!(seen("FATAL", &[b"FATAL: no disk", b""], true), ["FATAL: no disk"]);
        assert_eq!(seen("FATAL", &[b"FATAL", b": no disk\nFATAL\n"], false), ["FATAL", "FATAL"]);
        for pattern in ["^ready$", r"\bready\b", r"ready\b{end}", "^ready[^k]*$", "^ready.{0,9}$"] {
            assert_eq!(
                seen(pattern, &[b"ready", b"-or-not-like-that-k\n"], true).len(),
                usize::from(pattern.starts_with(r"\b") || pattern.contains("{end}")),
                "{pattern}"
            );
            assert_eq!(seen(pattern, &[b"ready", b"k9-and-more-of-this\n"], true), [""; 0], "{pattern}");
            assert_eq!(seen(pattern, &[b"ready", b"\n"], true), ["ready"], "{pattern}");
        }
        // Neither a part of a character nor one of an escape is text.
        assert_eq!(seen("^a.", &[b"a\xc3", b"\xa4\n"], true), ["aä"]);
        assert_eq!(seen("^a.", &[b"a\x1b[3", b"1m\n"], true), [""; 0]);
    }

    #[test]
    fn the_values_of_a_line_are_those_of_the_whole_line() {
        const STEP: &str = r"step (?<s>\d+)";
        assert_eq!(seen(STEP, &[b"step 1", b"2\n"], false), ["step 12 s=12"]);
        assert_eq!(seen(STEP, &[b"step 1\nstep 2"], false), ["step 1 s=1", "step 2 s=2"]);
        // After a long pause, or a kill, the beginning counts.
        assert_eq!(seen(STEP, &[b"step 1\nstep 2"], true), ["step 1 s=1", "step 2"]);
        assert_eq!(seen(STEP, &[b"step 1", b"", b"2\n"], true), ["step 1", "step 12 s=12"]);
        assert_eq!(seen("code 1$", &[b"code 1"], true), [""; 0]);
    }

    #[test]
    fn what_a_very_long_line_hides_is_left_out() {
        let long = |begin: &str, end: &[u8]| [begin.as_bytes(), &[b'.'; LONGEST_LINE][..], end].concat();
        for (pattern, begin, expected) in [
            ("^fatal", "fine", &[][..]),
            ("^fatal", "fatal", &["fatal"]),
            ("fatal", "fine", &["left out"]),
            (r"\.$", "fine", &["left out"]),
            (r"step (?<s>\d+)", "step 1", &["step 1", "left out"]),
        ] {
            for end in [&b"\n"[..], b" fatal\n", b""] {
                let seen = seen(pattern, &[&long(begin, end)], true);
                let seen: Vec<&str> = seen.iter().map(|it| it.split("..").next().unwrap()).collect();
                assert_eq!(seen, expected, "{pattern}");
            }
        }
    }

    #[test]
    fn different_bytes_are_different_text() {
        for (bytes, text) in [
            (&b"\x1b[32mok\x1b[0m\t."[..], "ok\t."),
            (b"\x1b]0;title\x07ok\x1b(B", "ok"),
            (b"\x1b]no end: fatal", r"\x1b]no end: fatal"),
            (b"a\xff", r"a\xff"),
            (b"a\x00b\x07", r"a\x00b\x07"),
            (br"\xff", r"\xff"),
        ] {
            assert_eq!(shown(&exact(bytes)), text);
        }
        assert_ne!(exact(b"\xff"), exact(br"\xff"));
        assert_ne!(exact(b"\x1bA"), exact(b"\x1bB"));
        assert_eq!(found("^$", &[b"\x1b[0m\n"]), [""; 0], "a line of escapes is blank");
    }

    #[test]
    fn long_numbers_are_the_same_if_only_zeros_differ() {
        let zeros = "0".repeat(80);
        assert_eq!(
            (value(&format!("-{zeros}1.5{zeros}")), value(&format!("0.{zeros}"))),
            ("-1.5".into(), "0".into())
        );
        assert_ne!(value(&format!("1{zeros}")), value(&format!("1{zeros}0")));
    }

    #[test]
    fn lines_are_matched_as_programs_write_them() {
        const LEADS: &str = "^became leader$";
        for parts in [
            &[&b"became leader\r\n"[..]][..],
            &[b"became leader\r", b"\nnot\r\n"],
            &[b"\x1b[32mbecame leader\x1b[0m\n"],
            &[b"\x1b]0;node 1\x07became \x1b[1;4", b"mleader\n"],
            &[b"10%\r20%\rbecame leader\r"],
            &[b"became leader"],
        ] {
            assert_eq!(found(LEADS, parts), ["became leader"], "{parts:?}");
        }
        let long = [&[b'x'; LONGEST_LINE][..], b" became leader\nbecame leader\n"].concat();
        assert_eq!(found("became leader", &[&long]), ["left out", "became leader"]);
        assert_eq!(found("^$", &[b"\n\r\n"]), [""; 0], "blank lines are no lines");
    }
}

//! The list of all records and stored pages below a directory. Nothing is written, and without an open page nothing is
//! read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use faultline_report::page;
use faultline_report::page::list::{self, Origin, Row, RowState};
use faultline_report::summary::RecordedRun;
use faultline_session::Recording;
use faultline_trace::Bundle;

use crate::feed::{Feed, is_in_progress, is_unfinished};
use crate::{Run, ServeError};

/// The interval between two searches.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A page asks for the rows more often than this.
const WATCHED_WITHIN: Duration = Duration::from_secs(10);
/// The interval between two checks for something to judge.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum number of directories that are searched.
const MOST_DIRECTORIES: usize = 50_000;
/// The maximum depth of a record below the directory.
const DEEPEST: usize = 8;
/// The maximum number of runs whose reports are kept.
const MOST_RUNS: usize = 8;
/// The maximum length of a stored page, in bytes.
const LONGEST_PAGE: u64 = 64 << 20;
/// The maximum length of a federation file, in bytes.
const LONGEST_FILE: u64 = 4 << 20;
/// The names of stored pages.
const PAGES: [&str; 2] = ["index.html", "errata.html"];

/// The records and the stored pages below a directory.
pub(crate) struct List {
    dir: PathBuf,
    state: Mutex<ListState>,
}

struct ListState {
    /// All entries that were ever found. Their numbers never change.
    entries: Vec<Entry>,
    numbers: BTreeMap<PathBuf, usize>,
    /// Whether some directories were not searched.
    is_partial: bool,
    /// The reports that have been asked for, the newest last.
    runs: Vec<(usize, Arc<Run>)>,
    /// The time at which a page last asked for the rows.
    asked: Instant,
}

struct Entry {
    /// The directory of a record, or the file of a page.
    path: PathBuf,
    /// The time at which it was last written, as of the row.
    written: Option<SystemTime>,
    row: Row,
    /// Whether it still exists.
    exists: bool,
}

impl List {
    /// Searches a directory, and starts to follow it.
    pub(crate) fn start(dir: &Path) -> Result<Arc<List>, ServeError> {
        let state = ListState {
            entries: Vec::new(),
            numbers: BTreeMap::new(),
            is_partial: false,
            runs: Vec::new(),
            asked: Instant::now(),
        };
        let list = Arc::new(List { dir: dir.to_owned(), state: Mutex::new(state) });
        list.search();
        if list.lock().entries.is_empty() {
            return Err(ServeError::NoRecords(dir.to_owned()));
        }
        let spawn = |name: &str, act: fn(&List)| {
            let list = list.clone();
            let repeat = move || loop {
                act(&list);
            };
            thread::Builder::new().name(name.to_owned()).spawn(repeat).map_err(ServeError::Start)
        };
        spawn("search", |it| {
            thread::sleep(LOOK_EVERY);
            if it.is_watched() {
                it.search();
            }
        })?;
        spawn("judge", |it| {
            if !it.is_watched() || !it.judge_one() {
                thread::sleep(PAUSE);
            }
        })?;
        Ok(list)
    }

    /// Returns the page.
    pub(crate) fn page(&self) -> String {
        list::page(&self.dir.display().to_string(), &self.rows())
    }

    /// Returns the rows of the page, the newest first.
    pub(crate) fn rows(&self) -> String {
        let mut state = self.lock();
        state.asked = Instant::now();
        let mut rows: Vec<&Row> = state.entries.iter().filter(|it| it.exists).map(|it| &it.row).collect();
        rows.sort_by_key(|it| (it.state != RowState::Running, std::cmp::Reverse(it.unix_ms), &it.name));
        let now = unix_ms(Some(SystemTime::now()));
        let partial = state.is_partial.then_some(MOST_DIRECTORIES);
        list::rows(&rows, now, partial)
    }

    /// Returns the run with this number, which is read from now on.
    pub(crate) fn run(&self, number: usize) -> Option<Arc<Run>> {
        let mut state = self.lock();
        let entry = state.entries.get(number).filter(|it| it.exists && !it.is_page())?;
        let bundle = Bundle::open(&entry.path);
        if let Some(place) = state.runs.iter().position(|it| it.0 == number) {
            let known = state.runs.remove(place);
            let run = known.1.clone();
            state.runs.push(known);
            return Some(run);
        }
        // Reports are large. An unwatched run is read again if necessary.
        while state.runs.len() >= MOST_RUNS {
            let place = state.runs.iter().position(|it| !it.1.is_watched())?;
            state.runs.remove(place).1.show(String::new());
        }
        let run = Arc::new(Run::new());
        let of_feed = run.clone();
        let follow = move || Feed::of_record(bundle).run(&of_feed);
        thread::Builder::new().name("feed".to_owned()).spawn(follow).ok()?;
        state.runs.push((number, run.clone()));
        Some(run)
    }

    /// Returns the stored page with this number.
    pub(crate) fn stored(&self, number: usize) -> Option<String> {
        let path = self.lock().entries.get(number).filter(|it| it.exists && it.is_page())?.path.clone();
        read(&path, LONGEST_PAGE).ok()
    }

    /// Returns the number of the run that a stored page links to.
    pub(crate) fn linked(&self, number: usize, link: &str) -> Option<usize> {
        let state = self.lock();
        let page = state.entries.get(number).filter(|it| it.is_page())?;
        let record = page.path.parent()?.join(Path::new(link).parent()?);
        state.numbers.get(&record).copied()
    }

    /// Returns the federation file that a stored page links to. The file must be below the page's directory.
    pub(crate) fn linked_file(&self, number: usize, link: &str) -> Option<String> {
        let page = self.lock().entries.get(number).filter(|it| it.exists && it.is_page())?.path.clone();
        let dir = page.parent()?.canonicalize().ok()?;
        let path = dir.join(link).canonicalize().ok()?;
        let is_below =
            path.starts_with(&dir) && path.is_file() && path.extension().is_some_and(|it| it == "yaml");
        is_below.then(|| read(&path, LONGEST_FILE).ok())?
    }

    fn is_watched(&self) -> bool {
        self.lock().asked.elapsed() < WATCHED_WITHIN
    }

    fn lock(&self) -> MutexGuard<'_, ListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches the directory, and renews the rows of what changed.
    fn search(&self) {
        let mut found = Search::default();
        found.search(&self.dir, 0);
        let known: BTreeMap<PathBuf, (Option<SystemTime>, RowState)> = {
            let mut state = self.lock();
            state.is_partial = found.left == 0;
            for it in &mut state.entries {
                it.exists = found.paths.contains_key(&it.path);
            }
            state.entries.iter().map(|it| (it.path.clone(), (it.written, it.row.state))).collect()
        };
        for (path, written) in found.paths {
            let is_new = known.get(&path).is_none_or(|it| {
                // Only time tells whether a run is still in progress.
                it.0 != written || it.1 == RowState::Running
            });
            if !is_new {
                continue;
            }
            let name = self.name(&path);
            let row = if path.is_file() {
                row_of_page(&path, name, written)
            } else {
                row_of_run(&path, name, written)
            };
            self.lock().put(path, written, row);
        }
    }

    /// Returns the path of an entry below the directory.
    fn name(&self, path: &Path) -> String {
        let path = if path.is_file() { path.parent().unwrap_or(path) } else { path };
        let relative = path.strip_prefix(&self.dir).unwrap_or(path).display().to_string();
        if relative.is_empty() { ".".to_owned() } else { relative }
    }

    /// Judges the newest run that has not been judged. Returns whether there was one.
    fn judge_one(&self) -> bool {
        let next = {
            let state = self.lock();
            let open = state.entries.iter().filter(|it| it.exists && it.row.state == RowState::Unjudged);
            open.max_by_key(|it| it.row.unix_ms).map(|it| (it.path.clone(), it.written, it.row.clone()))
        };
        let Some((path, written, row)) = next else { return false };
        let bundle = Bundle::open(&path);
        let row = match Recording::read(&bundle) {
            Err(error) => Row { state: RowState::Unreadable, result: error.to_string(), ..row },
            Ok(Recording { manifest, trace, judgement }) => {
                let dir = path.display().to_string();
                let recorded =
                    RecordedRun { bundle: &dir, manifest: &manifest, trace: &trace, judgement: &judgement };
                row.judged(recorded)
            }
        };
        let mut state = self.lock();
        let place = state.numbers[&path];
        let entry = &mut state.entries[place];
        if entry.written == written {
            entry.row = row;
        }
        true
    }
}

impl ListState {
    fn put(&mut self, path: PathBuf, written: Option<SystemTime>, row: Row) {
        let number = *self.numbers.entry(path.clone()).or_insert(self.entries.len());
        if number == self.entries.len() {
            self.entries.push(Entry { path, written, row: Row { number, ..row }, exists: true });
            return;
        }
        let entry = &mut self.entries[number];
        // A report of the earlier run would be wrong.
        if entry.written != written && entry.row.state != RowState::Running {
            self.runs.retain(|it| it.0 != number);
        }
        (entry.written, entry.row, entry.exists) = (written, Row { number, ..row }, true);
    }
}

impl Entry {
    fn is_page(&self) -> bool {
        self.row.origin == Origin::Page
    }
}

/// A search through directories.
struct Search {
    paths: BTreeMap<PathBuf, Option<SystemTime>>,
    /// The number of directories that may still be searched.
    left: usize,
}

impl Default for Search {
    fn default() -> Search {
        Search { paths: BTreeMap::new(), left: MOST_DIRECTORIES }
    }
}

impl Search {
    /// Searches a directory. Symbolic links are not followed.
    fn search(&mut self, dir: &Path, depth: usize) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let bundle = Bundle::open(dir);
        if bundle.holds_a_run() {
            self.paths.insert(dir.to_owned(), bundle.described());
            return;
        }
        let files = match fs::read_dir(dir) {
            Ok(files) => files,
            Err(error) => {
                // The row of this directory states the reason.
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.paths.insert(dir.to_owned(), None);
                }
                return;
            }
        };
        for file in files.flatten() {
            let Ok(kind) = file.file_type() else { continue };
            if kind.is_dir() && depth < DEEPEST {
                self.search(&file.path(), depth + 1);
            } else if kind.is_file() && PAGES.iter().any(|it| file.file_name() == *it) {
                let written = file.metadata().and_then(|it| it.modified()).ok();
                self.paths.insert(file.path(), written);
            }
        }
    }
}

fn row_of_run(dir: &Path, name: String, written: Option<SystemTime>) -> Row {
    let bundle = Bundle::open(dir);
    let row = Row::new(name, unix_ms(written));
    match bundle.read_manifest() {
        Ok(manifest) if is_unfinished(&bundle, &manifest) => row.described(&manifest, RowState::Running),
        Ok(manifest) => row.described(&manifest, RowState::Unjudged),
        Err(_) if is_in_progress(&bundle).is_ok_and(|it| it) => Row { state: RowState::Running, ..row },
        Err(error) => Row { state: RowState::Unreadable, result: error.to_string(), ..row },
    }
}

fn row_of_page(path: &Path, name: String, written: Option<SystemTime>) -> Row {
    // The title is at the beginning.
    let start = beginning(path, 4096).unwrap_or_default();
    let row = Row { origin: Origin::Page, ..Row::new(name, unix_ms(written)) };
    match page::title(&start) {
        Some(result) => Row { state: RowState::Page, result, ..row },
        None => {
            let result = "this page was not written by Faultline".to_owned();
            Row { state: RowState::Unreadable, result, ..row }
        }
    }
}

/// Reads a file. A file that is longer than this number of bytes is an error: a part of it would mislead.
fn read(path: &Path, most: u64) -> io::Result<String> {
    let text = beginning(path, most + 1)?;
    if text.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Reads at most this number of bytes.
fn beginning(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unix_ms(time: Option<SystemTime>) -> u64 {
    let since = time.and_then(|it| it.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use faultline_api::samples::sample;
    use faultline_report::page::live;
    use faultline_session::{Session, Simulator};
    use faultline_trace::Manifest;

    use super::*;

    /// Writes the record of a simulated run.
    fn record(dir: &Path, change: impl FnOnce(&mut Manifest)) {
        let text = sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).unwrap();
        let mut run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
        change(&mut run.manifest);
        run.write(&Bundle::create(dir).unwrap()).unwrap();
    }

    /// Returns the states and names of all rows.
    fn rows(list: &List) -> Vec<String> {
        let state = list.lock();
        let mut rows: Vec<_> = state.entries.iter().filter(|it| it.exists).map(|it| &it.row).collect();
        rows.sort_by_key(|it| it.name.clone());
        rows.into_iter().map(|it| format!("{} {}", it.state.name(), it.name)).collect()
    }

    #[test]
    fn a_list_contains_records_and_pages() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        assert!(matches!(List::start(dir), Err(ServeError::NoRecords(_))));
        record(&dir.join("a"), |_| ());
        record(&dir.join("sweep/records/1"), |_| ());
        record(&dir.join("broken"), |_| ());
        fs::write(dir.join("broken/manifest.json"), "{").unwrap();
        fs::write(dir.join("sweep/index.html"), live::message("one & <two>", "", false)).unwrap();
        fs::create_dir(dir.join("other")).unwrap();
        fs::write(dir.join("other/index.html"), "<title>mine</title>").unwrap();
        std::os::unix::fs::symlink(dir, dir.join("loop")).unwrap();

        let list = List::start(dir).unwrap();
        while list.judge_one() {}
        let mut known =
            ["unknown a", "unreadable broken", "unreadable other", "page sweep", "unknown sweep/records/1"];
        assert_eq!(rows(&list), known);
        let text = list.rows();
        assert!(
            text.contains("one &amp; &lt;two&gt;")
                && text.contains("rollbacks, ")
                && text.contains("svg class=\"thumbnail"),
            "{text}"
        );

        // Numbers remain valid.
        let number = |name: &str| list.lock().entries.iter().position(|it| it.row.name == name).unwrap();
        let [a, sweep, record_of_sweep] = ["a", "sweep", "sweep/records/1"].map(number);
        assert_eq!(list.linked(sweep, "records/1/report.html"), Some(record_of_sweep));
        for link in ["records/2/report.html", "../a/report.html", "report.html", ""] {
            assert_eq!(list.linked(sweep, link), None, "{link}");
        }
        fs::create_dir(dir.join("sweep/settings")).unwrap();
        fs::write(dir.join("sweep/settings/1.yaml"), "kind: Federation").unwrap();
        fs::write(dir.join("secret.yaml"), "").unwrap();
        std::os::unix::fs::symlink(dir.join("secret.yaml"), dir.join("sweep/settings/2.yaml")).unwrap();
        assert_eq!(list.linked_file(sweep, "settings/1.yaml").as_deref(), Some("kind: Federation"));
        let long = fs::File::create(dir.join("sweep/settings/4.yaml")).unwrap();
        long.set_len(LONGEST_FILE + 1).unwrap();
        for link in [
            "settings/2.yaml",
            "settings/3.yaml",
            "settings/4.yaml",
            "../secret.yaml",
            "index.html",
            "settings",
            "",
        ] {
            assert_eq!(list.linked_file(sweep, link), None, "{link}");
        }
        assert!(list.stored(sweep).unwrap().contains("generator") && list.stored(a).is_none());
        assert!(list.run(sweep).is_none() && list.run(99).is_none());
        let run = list.run(a).unwrap();
        while !run.is_over() {
            thread::yield_now();
        }
        fs::remove_dir_all(dir.join("broken")).unwrap();
        record(&dir.join("b"), |it| it.outcome = None);
        list.search();
        known[1] = "running b";
        assert_eq!(rows(&list), known);
        assert_eq!(number("sweep"), sweep);
        assert!(list.rows().contains(">running<"));
    }

    #[test]
    fn reports_that_nobody_reads_are_dropped() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=MOST_RUNS {
            record(&root.path().join(number.to_string()), |_| ());
        }
        let list = List::start(root.path()).unwrap();
        let first = list.run(0).unwrap();
        let watched = first.shown.subscribe();
        let runs: Vec<_> = (1..=MOST_RUNS).map(|it| list.run(it).unwrap()).collect();
        assert_eq!(list.lock().runs.len(), MOST_RUNS);
        assert!(Arc::ptr_eq(&first, &list.run(0).unwrap()));
        assert!(!Arc::ptr_eq(&runs[0], &list.run(1).unwrap()));
        drop(watched);
    }
}

//! Files that describe federations.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::failure_trace::{explained, with_text};
use faultline_api::flow::{pieces, with_file};
use faultline_api::parse::Text;
use faultline_api::resource::{ApplicationSpec, ProgramFile, ProtocolSpec, Qap};
use faultline_api::samples::SAMPLES;
use faultline_api::validate::similar;
use faultline_api::{Federation, Problem, unfit_for_pods, validate};
use faultline_catalog::SetupError;
use miette::miette;

use crate::command_error::CommandError;
use crate::output::open_file;

/// The maximum size of an input, in bytes. A device or a pipe may never end.
const MOST_BYTES: u64 = 256 << 20;

/// The content of an input file, which need not be valid text.
pub struct Source {
    /// The name of the file in errors.
    pub label: String,
    /// The content of the file. The names of other files are replaced with their content.
    pub bytes: Vec<u8>,
    /// The content as the user wrote it, if it differs.
    stated: Option<Vec<u8>>,
}

impl Source {
    fn new(label: String, bytes: Vec<u8>) -> Source {
        Source { label, bytes, stated: None }
    }

    /// Reads the file with this path. Without a path, returns the federation of the quick start.
    ///
    /// # Errors
    ///
    /// Fails if the file, or a file that it names, cannot be read or has invalid content.
    pub fn of(file: Option<&Path>) -> Result<Source, CommandError> {
        match file {
            Some(path) => read(path),
            None => Ok(Source::new("the quick start".to_owned(), SAMPLES[0].text.as_bytes().to_vec())),
        }
    }

    /// Parses the federation.
    ///
    /// # Errors
    ///
    /// Fails if the content is not a valid federation.
    pub fn parse(&self) -> Result<Federation, CommandError> {
        faultline_api::parse(&self.label, &self.bytes).map_err(|rejected| CommandError::input(*rejected))
    }

    /// Works like [`Source::parse`], and checks whether the federation can run in pods.
    ///
    /// # Errors
    ///
    /// Fails if the content is not a valid federation, or describes one that cannot run in pods.
    pub fn parse_for_pods(&self) -> Result<Federation, CommandError> {
        let federation = self.parse()?;
        match unfit_for_pods(&federation.spec) {
            problems if problems.is_empty() => Ok(federation),
            problems => Err(self.reject(problems)),
        }
    }

    /// Replaces the names of other files with their content, so that the record of a run needs no other file. Validates
    /// the resulting federation, so that errors refer to the lines of this file. Leaves all other checks to
    /// [`Source::parse`].
    fn with_files(self, path: &Path) -> Result<Source, CommandError> {
        // Few federations name other files, and parsing takes time.
        let contains = |word: &[u8]| self.bytes.windows(word.len()).any(|it| it == word);
        if ![&b"qap"[..], b"schedule", b"program", b"system", b"trace"].into_iter().any(contains) {
            return Ok(self);
        }
        let Ok(mut federation) = faultline_api::parse(&self.label, &self.bytes) else { return Ok(self) };
        let dir = path.parent().unwrap_or(Path::new(""));
        let names_instance = read_instance(&mut federation, dir)?;
        let names_pieces = read_pieces(&mut federation, dir)?;
        let names_program = read_programs(&mut federation, dir)?;
        let names_traces = read_traces(&mut federation, dir)?;
        if !names_instance && !names_pieces && !names_program && !names_traces {
            return Ok(self);
        }
        let problems = validate(&federation);
        if !problems.is_empty() {
            return Err(self.reject(problems));
        }
        let bytes = faultline_api::to_yaml(&federation).into_bytes();
        Ok(Source { bytes, stated: Some(self.bytes), ..self })
    }

    /// Returns the error for these problems of the federation. It quotes the lines that the user wrote.
    pub fn reject(&self, problems: Vec<Problem>) -> CommandError {
        let stated = String::from_utf8_lossy(self.stated.as_ref().unwrap_or(&self.bytes));
        CommandError::input(*Text::new(&self.label, stated.into_owned()).reject(problems))
    }

    /// Returns the content, which must be text, without a byte order mark.
    ///
    /// # Errors
    ///
    /// Fails if the content is not valid UTF-8.
    fn strict_text(&self) -> Result<&str, CommandError> {
        let text = str::from_utf8(&self.bytes).map_err(|error| {
            let line = 1 + self.bytes[..error.valid_up_to()].iter().filter(|it| **it == b'\n').count();
            CommandError::input(miette!(
                help = "check that this is the right file, and save it as UTF-8",
                "{}: line {line}: the file is not UTF-8 text",
                self.label
            ))
        })?;
        Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
    }

    /// Returns the content as text. Invalid characters are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Replaces the name of a QAPLIB file with its content. Returns whether the federation names such a file.
fn read_instance(federation: &mut Federation, dir: &Path) -> Result<bool, CommandError> {
    let ApplicationSpec::Qap(Qap { file: Some(file), .. }) = &federation.spec.application else {
        return Ok(false);
    };
    let file = dir.join(file);
    let read = read_with(&file, "specify a file in QAPLIB format, relative to the federation file")?;
    federation.spec.application = with_file(&federation.spec.application, read.strict_text()?.to_owned())
        .map_err(|error| {
            CommandError::input(miette!(help = error.remedy(), "{}: {error}", file.display()))
        })?;
    Ok(true)
}

/// Replaces the name of a partition file with its content. Returns whether the federation names such a file.
fn read_pieces(federation: &mut Federation, dir: &Path) -> Result<bool, CommandError> {
    let Some(schedule) = &mut federation.spec.schedule else { return Ok(false) };
    let Some(file) = schedule.file.take() else { return Ok(false) };
    let file = dir.join(file);
    let read = read_with(&file, "specify a METIS partition file, relative to the federation file")?;
    let help = "write the number of a process, counted from 0, on each line";
    let all = pieces(read.strict_text()?)
        .map_err(|error| CommandError::input(miette!(help = help, "{}: {error}", file.display())))?;
    schedule.pieces = Some(all);
    Ok(true)
}

/// Replaces the names of the programs' files with their content. Returns whether the federation names such files.
fn read_programs(federation: &mut Federation, dir: &Path) -> Result<bool, CommandError> {
    let spec = &mut federation.spec;
    let of_protocol = match &mut spec.protocol {
        ProtocolSpec::Program(program) => Some(&mut program.files),
        _ => None,
    };
    let of_application: Vec<&mut ProgramFile> = match &mut spec.application {
        ApplicationSpec::Program(program) => program.files.values_mut().collect(),
        ApplicationSpec::System(system) => system.all_files().collect(),
        _ => Vec::new(),
    };
    let mut names_files = false;
    for ProgramFile { file, text } in
        of_protocol.into_iter().flat_map(|it| it.values_mut()).chain(of_application)
    {
        let Some(file) = file.take() else { continue };
        let path = dir.join(file);
        let help = "specify a file of the program, relative to the federation file";
        let bytes = open_file(&path).and_then(bounded);
        let bytes = bytes.map_err(|error| CommandError::path("read", &path, error, help))?;
        let read = Source::new(path.display().to_string(), bytes);
        *text = Some(read.strict_text()?.to_owned());
        names_files = true;
    }
    Ok(names_files)
}

/// Replaces the names of failure traces with their text. Returns whether the federation names such files.
fn read_traces(federation: &mut Federation, dir: &Path) -> Result<bool, CommandError> {
    let mut names_traces = false;
    for trace in federation.spec.faults.iter_mut().filter_map(|it| it.trace.as_mut()) {
        let Some(file) = &trace.file else { continue };
        let path = dir.join(file);
        let help =
            "specify a failure trace, relative to the federation file; docs/failures.md lists the formats";
        let opened = open_file(&path).map_err(|error| CommandError::path("read", &path, error, help))?;
        *trace = with_text(trace, BufReader::new(opened)).map_err(|error| {
            let [message, help] = explained(&error);
            CommandError::input(miette!(help = help, "{}: {message}", path.display()))
        })?;
        names_traces = true;
    }
    Ok(names_traces)
}

/// Reads a federation file, and the files that it names, if any.
///
/// # Errors
///
/// Fails if a file cannot be read or has invalid content.
pub fn read(path: &Path) -> Result<Source, CommandError> {
    let help = match of_sample(path) {
        Some(remedy) => remedy,
        None => "specify a federation file; `faultline samples quickstart` prints an example".to_owned(),
    };
    read_with(path, &help)?.with_files(path)
}

/// Returns the remedy if the name of a file that does not exist is that of a sample, or similar to one.
fn of_sample(path: &Path) -> Option<String> {
    let name = path.to_str().filter(|it| !it.contains('/') && !path.exists())?;
    let name = name.strip_suffix(".yaml").unwrap_or(name);
    let sample = similar(name, SAMPLES.iter().map(|it| it.name))?;
    let asks = if sample == name { "" } else { "did you mean a sample? " };
    Some(format!("{asks}to copy the sample to a file: faultline samples {sample} > {sample}.yaml"))
}

/// Reads a file of any kind; `-` stands for standard input. `help` is the remedy if that fails.
///
/// # Errors
///
/// Fails if the file cannot be read, or if standard input has already been read.
pub fn read_with(path: &Path, help: &str) -> Result<Source, CommandError> {
    if path == Path::new("-") {
        return standard_input();
    }
    let bytes = File::open(path).and_then(bounded);
    let bytes = bytes.map_err(|error| CommandError::path("read", path, error, help))?;
    Ok(Source::new(path.display().to_string(), bytes))
}

/// Reads standard input, which is possible only once.
fn standard_input() -> Result<Source, CommandError> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    if IS_READ.swap(true, Ordering::Relaxed) {
        return Err(CommandError::input(miette!(
            help = "use `-` for one input, and specify a file for the other",
            "standard input can be read only once"
        )));
    }
    let bytes = bounded(io::stdin().lock()).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            CommandError::input(miette!(help = "specify a file", "cannot read standard input: {error}"))
        }
        _ => CommandError::machine(format!("cannot read standard input: {error}")),
    })?;
    Ok(Source::new("standard input".to_owned(), bytes))
}

/// Reads an input to its end, unless it is longer than [`MOST_BYTES`].
fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if from.take(MOST_BYTES + 1).read_to_end(&mut bytes)? as u64 > MOST_BYTES {
        let why = format!("it is longer than {} MiB", MOST_BYTES >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Returns the error for a well-formed federation that cannot be set up.
pub fn unfit(error: SetupError) -> CommandError {
    let help = match &error {
        SetupError::Federation(problems) => &problems[0].help,
        SetupError::Program(problem) => &problem.help,
        SetupError::System => "use `--backend local`, or write a program (docs/programs.md)",
        _ => "change the file; `faultline samples` prints complete examples",
    };
    CommandError::input(miette!(help = help, "{error}"))
}

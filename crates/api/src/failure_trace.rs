//! Failure traces as triggers: which of the recorded failures hit the federation, and when.

use std::io::Read;
use std::sync::Arc;

use faultline_core::{ProcessId, Span, Time};
use faultline_failures::{FailureTrace, FaultRecord, Options, ReadError, read};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::resource::{FaultSpec, NodeChoice, TraceTrigger};
use crate::validate::Problem;

/// Maximum length of the text of a failure trace, in bytes.
pub const MOST_TRACE_BYTES: usize = 512 << 10;

/// A recorded failure that hits a process of the federation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) at: Time,
    pub(crate) process: ProcessId,
    /// How long the failure lasts, if known.
    pub(crate) lasts: Option<Span>,
    pub(crate) cause: Arc<str>,
}

/// Reads the text of a failure trace. Keeps faults with any cause, because entries that choose different causes of one
/// trace agree on the numbers of its nodes.
///
/// # Errors
///
/// Fails if the text is not a failure trace, or if it has no fault with a requested cause.
pub(crate) fn parsed(trace: &TraceTrigger) -> Result<FailureTrace, ReadError> {
    let options = options(trace);
    // The end of a text within a federation is its own, whether or not a line break is stated.
    let text = || trace.data.as_deref().unwrap_or_default().as_bytes().chain(&b"\n"[..]);
    if !trace.causes.is_empty() {
        read(text(), &Options { causes: trace.causes.clone(), ..options.clone() })?;
    }
    read(text(), &options)
}

fn options(trace: &TraceTrigger) -> Options {
    Options {
        format: trace.as_format.map(Into::into),
        system: trace.system.map(|it| it.to_string()),
        nodes: trace.of.map(|it| it as usize),
        ..Options::default()
    }
}

/// Returns the faults of a trace that have a requested cause.
pub(crate) fn chosen<'a>(
    trace: &'a TraceTrigger,
    all: &'a FailureTrace,
) -> impl Iterator<Item = &'a FaultRecord> {
    let is_chosen =
        |it: &&FaultRecord| trace.causes.is_empty() || trace.causes.contains(&all.causes[it.cause as usize]);
    all.faults.iter().filter(is_chosen)
}

/// Returns the failures of a valid trace that hit one of `ranks` processes before `deadline`, in the order in which
/// they are due.
pub(crate) fn hits(trace: &TraceTrigger, ranks: u32, seed: u64, deadline: Span) -> Vec<Hit> {
    // The file has not been read.
    let Some(data) = &trace.data else { return Vec::new() };
    let all = parsed(trace).expect("a valid trace can be read");
    let mut rng = stream(data, seed);
    let end = all.last_event();
    let drawn = Time(rng.random_range(0..end.0.max(1)));
    let begin = trace.begin.map_or(drawn, |it| Time::ZERO + it.0);
    let processes = match trace.nodes {
        Some(NodeChoice::Fold) => (0..all.observed).map(|node| Some(node as u32 % ranks)).collect(),
        Some(NodeChoice::Sample) | None => sample(all.observed, ranks, &mut rng),
    };
    let numbers = numbers(&all);
    let speed = trace.speed();
    let repair_speed = trace.repair_speed.unwrap_or(speed);
    let scaled = |nanos: u64, speed: f64| (nanos as f64 / speed).round() as u64;
    let hit = |it: &FaultRecord| {
        let since = match it.start < begin {
            // The trace continues with its beginning.
            true => it.start.0 + end.since(begin).0,
            false => it.start.since(begin).0,
        };
        Some(Hit {
            at: Time(scaled(since, speed)),
            process: ProcessId(processes[numbers[it.node as usize]]?),
            lasts: it.repair().map(|it| Span(scaled(it.0, repair_speed).max(1))),
            cause: all.causes[it.cause as usize].as_str().into(),
        })
    };
    let (before, after): (Vec<&FaultRecord>, Vec<_>) = chosen(trace, &all).partition(|it| it.start < begin);
    let hits = after.into_iter().chain(before).filter_map(hit);
    hits.filter(|it| it.at < Time::ZERO + deadline).collect()
}

/// Returns the random stream of a trace, which all entries with the same text share, wherever they are in the list.
fn stream(data: &str, seed: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let hash = blake3::hash(data.as_bytes());
    let number = hash.as_bytes().first_chunk().copied().expect("a hash has 32 bytes");
    // Lower numbers belong to other entries.
    rng.set_stream(u64::from_le_bytes(number) | 1 << 63);
    rng
}

/// Returns the process that each of `observed` nodes stands for: each process is drawn a different node.
fn sample(observed: usize, ranks: u32, rng: &mut ChaCha8Rng) -> Vec<Option<u32>> {
    let mut nodes: Vec<usize> = (0..observed).collect();
    let mut processes = vec![None; observed];
    for process in 0..ranks as usize {
        let drawn = rng.random_range(process as u64..observed as u64) as usize;
        nodes.swap(process, drawn);
        processes[nodes[process]] = Some(process as u32);
    }
    processes
}

/// Returns the number of each node: nodes are numbered by their first faults.
fn numbers(all: &FailureTrace) -> Vec<usize> {
    let mut numbers = vec![None; all.nodes.len()];
    let mut next = 0;
    for fault in &all.faults {
        numbers[fault.node as usize].get_or_insert_with(|| {
            next += 1;
            next - 1
        });
    }
    numbers.into_iter().map(|it| it.unwrap_or(all.nodes.len().saturating_sub(1))).collect()
}

/// Returns the entry with the text of its file, in the product's own form, instead of the file's name.
///
/// # Errors
///
/// Fails if the content of the file is not a failure trace.
pub fn with_text(trace: &TraceTrigger, file: impl std::io::BufRead) -> Result<TraceTrigger, ReadError> {
    let read = read(file, &options(trace))?;
    // The text does not mention nodes without faults.
    let of = if read.observed > read.nodes.len() { u32::try_from(read.observed).ok() } else { trace.of };
    let data = Some(read.to_csv());
    Ok(TraceTrigger { file: None, as_format: None, system: None, data, of, ..trace.clone() })
}

/// Returns the message and the remedy of an error, with the fields of an entry instead of the options of the command
/// `faultline traces`.
pub fn explained(error: &ReadError) -> [String; 2] {
    [error.to_string(), error.help.clone()].map(|it| it.replace("`--nodes`", "`of`").replace("`--", "`"))
}

/// Returns a problem for each entry that still names a file, which only the `faultline` command can read.
pub fn unread_traces(faults: &[FaultSpec]) -> impl Iterator<Item = Problem> {
    let named = (0..).zip(faults).filter_map(|(index, it)| Some((index, it.trace.as_ref()?.file.as_ref()?)));
    named.map(|(index, file): (usize, &String)| {
        let path = format!("spec.faults[{index}].trace.file");
        Problem::unread(path, file, "copy the text of the file into `data`")
    })
}

//! Draws the operations of a case as text: one line per client, with time from left to right.

use crate::judgement::Case;
use crate::operation::{History, NEVER, Operation};

/// The greatest width of a drawing, in columns.
pub const WIDTH: usize = 100;

/// The greatest width of a client's name.
const NAME: usize = 16;

/// Draws the operations of a case in at most [`WIDTH`] columns. Without operations, returns an empty text.
///
/// A box reaches from the call of an operation to its return, and is open to the right if the outcome is unknown. The
/// number is the place of the operation in an order that explains all but the one marked `✗`. Distances are not to scale:
/// each call and each return has a column of its own. If the labels do not fit, they are below the boxes.
pub fn draw(history: &History, case: &Case) -> String {
    let labels: Vec<String> = case.operations.iter().map(|it| history.describe(it)).collect();
    let inside: Vec<String> = (0..labels.len()).map(|at| join(&mark(case, at), &labels[at])).collect();
    if let Some(text) = lanes(history, case, &inside) {
        return text;
    }
    // Operations without a number get a letter.
    let marks: Vec<String> = (0..labels.len())
        .map(|at| match mark(case, at) {
            it if it.is_empty() => char::from(b'a' + (at % 26) as u8).to_string(),
            it => it,
        })
        .collect();
    let Some(mut text) = lanes(history, case, &marks) else { return String::new() };
    for (it, (mark, label)) in case.operations.iter().zip(marks.iter().zip(&labels)) {
        let line = format!("  {mark:>2}  {}: {label}", history.client(it));
        text += &match line.char_indices().nth(WIDTH - 1) {
            Some((at, _)) => format!("{}…\n", &line[..at]),
            None => format!("{line}\n"),
        };
    }
    text
}

/// Returns the place of an operation in the order, or `✗`.
fn mark(case: &Case, at: usize) -> String {
    match case.order[at] {
        _ if case.impossible == Some(at) => "✗".to_owned(),
        Some(place) => place.to_string(),
        None => String::new(),
    }
}

fn join(mark: &str, label: &str) -> String {
    if mark.is_empty() { label.to_owned() } else { format!("{mark} {label}") }
}

/// A call or a return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    time: u64,
    /// Calls come first, because operations with equal times are concurrent.
    is_return: bool,
    operation: usize,
}

/// Draws the boxes with these labels, if they fit into [`WIDTH`] columns.
fn lanes(history: &History, case: &Case, labels: &[String]) -> Option<String> {
    let operations = &case.operations;
    let mut ends: Vec<End> = Vec::new();
    for (operation, it) in operations.iter().enumerate() {
        ends.push(End { time: it.call_at, is_return: false, operation });
        if it.return_at != NEVER {
            ends.push(End { time: it.return_at, is_return: true, operation });
        }
    }
    ends.sort_unstable();
    let mut clients: Vec<u32> = operations.iter().map(|it| it.client).collect();
    clients.sort_unstable();
    clients.dedup();
    let name = |client: u32| -> String {
        let named = operations.iter().find(|it| it.client == client);
        named.map_or(String::new(), |it| history.client(it)).chars().take(NAME).collect()
    };
    let margin = clients.iter().map(|it| name(*it).chars().count()).max()? + 4;
    let length = |at: usize| labels[at].chars().count();
    // The columns of the first and the last character of each box.
    let (mut begins, mut finishes) = (vec![0; operations.len()], vec![None; operations.len()]);
    let (mut column, mut lane_end) = (margin, vec![margin; clients.len()]);
    let lane = |it: &Operation| clients.binary_search(&it.client).unwrap_or(0);
    for end in &ends {
        let at = end.operation;
        let lane_end = &mut lane_end[lane(&operations[at])];
        if end.is_return {
            column = column.max(begins[at] + length(at) + 1);
            finishes[at] = Some(column);
            *lane_end = column + 2;
        } else {
            column = column.max(*lane_end);
            begins[at] = column;
            // A session may continue after an operation without a result.
            *lane_end = column + length(at) + 3;
        }
        column += 1;
    }
    let width = lane_end.iter().copied().max().unwrap_or(0).max(column + 1);
    if width > WIDTH {
        return None;
    }
    let mut text = String::new();
    for (number, client) in clients.iter().enumerate() {
        let mut row = vec![' '; width];
        for (at, letter) in name(*client).chars().enumerate() {
            row[at + 2] = letter;
        }
        for at in (0..operations.len()).filter(|it| lane(&operations[*it]) == number) {
            let last = finishes[at].unwrap_or(begins[at] + length(at) + 1);
            for place in &mut row[begins[at]..last] {
                *place = '─';
            }
            row[begins[at]] = '├';
            row[last] = if finishes[at].is_some() { '┤' } else { '┄' };
            for (place, letter) in labels[at].chars().enumerate() {
                row[begins[at] + 1 + place] = letter;
            }
        }
        let row: String = row.into_iter().collect();
        text += row.trim_end();
        text.push('\n');
    }
    Some(text + &times(history, &ends, &begins, &finishes, width))
}

/// Returns a line with the times of the first call, the last return and, if they fit, those between.
fn times(
    history: &History,
    ends: &[End],
    begins: &[usize],
    finishes: &[Option<usize>],
    width: usize,
) -> String {
    let mut row: Vec<char> = vec![' '; width];
    let mut free = 0;
    let mut put = |end: &End, only_if_before: usize| -> bool {
        let at = end.operation;
        let column = if end.is_return { finishes[at].unwrap_or(begins[at]) } else { begins[at] };
        let label: Vec<char> = history.time(end.time).chars().collect();
        let begin = column.min(width.saturating_sub(label.len()));
        if begin < free || begin + label.len() > only_if_before {
            return false;
        }
        for (place, letter) in label.iter().enumerate() {
            row[begin + place] = *letter;
        }
        free = begin + label.len() + 2;
        true
    };
    let Some(last) = ends.iter().rfind(|it| it.is_return).or(ends.last()) else { return String::new() };
    let label = history.time(last.time).chars().count();
    let column = if last.is_return { finishes[last.operation].unwrap_or(0) } else { begins[last.operation] };
    let reserved = column.min(width.saturating_sub(label)).saturating_sub(2);
    for end in ends.iter().take(1) {
        put(end, reserved);
    }
    for end in ends.iter().skip(1).filter(|it| it.is_return && *it != last) {
        put(end, reserved);
    }
    put(last, width);
    let row: String = row.into_iter().collect();
    format!("{}\n", row.trim_end())
}

//! The graph format of METIS.

use std::collections::BTreeMap;

use super::{ReadError, number, quoted};
use crate::graph::CommunicationGraph;

pub(super) fn read(text: &str) -> Result<CommunicationGraph, ReadError> {
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('%'));
    let (header, line) = lines.by_ref().find(|(line, _)| !line.trim().is_empty()).ok_or(ReadError::Empty)?;
    let words: Vec<&str> = header.split_whitespace().collect();
    let (processes, edges, weighted) = match words[..] {
        [processes, edges] => (processes, edges, false),
        [processes, edges, format] => match format {
            "0" | "00" | "000" => (processes, edges, false),
            "1" | "01" | "001" => (processes, edges, true),
            _ => return Err(ReadError::Format { line, format: quoted(format) }),
        },
        _ => return Err(ReadError::Header { line }),
    };
    let stated = |word: &str| number(word, line).map_err(|_| ReadError::Header { line });
    let (processes, edges) = (stated(processes)? as usize, stated(edges)?);
    let mut rows: Vec<(usize, Row)> = Vec::new();
    for (text, line) in lines {
        if text.trim().is_empty() && rows.len() == processes {
            continue;
        }
        if rows.len() < processes {
            rows.push((line, row(text, line, rows.len(), processes, weighted)?));
        } else {
            rows.push((line, Row::new()));
        }
    }
    if rows.len() != processes {
        return Err(ReadError::Lines { stated: processes, found: rows.len() });
    }
    if processes == 0 {
        return Err(ReadError::Empty);
    }
    let mut graph = CommunicationGraph::new((1..=processes).map(|it| it.to_string()).collect());
    let mut entries = 0;
    for (one, (line, row)) in rows.iter().enumerate() {
        for (&other, &(weight, count)) in row {
            if rows[other].1.get(&one) != Some(&(weight, count)) {
                return Err(ReadError::Lopsided { line: *line, neighbour: other + 1 });
            }
            entries += count;
            if one < other {
                graph
                    .try_add(one, other, weight, 0)
                    .map_err(|why| ReadError::Traffic { line: *line, why })?;
            }
        }
    }
    if entries != 2 * u128::from(edges) {
        return Err(ReadError::Edges { line, stated: edges, found: (entries / 2) as u64 });
    }
    Ok(graph)
}

/// The neighbours of a process, counted from zero, each with the sum of the weights of the edges to it, and their number.
type Row = BTreeMap<usize, (u64, u128)>;

/// Reads the line of the process with this index.
fn row(text: &str, line: usize, own: usize, processes: usize, weighted: bool) -> Result<Row, ReadError> {
    let numbers: Vec<u64> = text.split_whitespace().map(|it| number(it, line)).collect::<Result<_, _>>()?;
    let mut row = Row::new();
    for pair in numbers.chunks(if weighted { 2 } else { 1 }) {
        let weight = match *pair {
            [_, weight] => weight,
            _ if weighted => return Err(ReadError::Weight { line }),
            _ => 1,
        };
        let neighbour = pair[0];
        if !(1..=processes as u64).contains(&neighbour) {
            return Err(ReadError::Neighbour { line, neighbour, processes });
        }
        let neighbour = neighbour as usize - 1;
        if neighbour == own {
            return Err(ReadError::Itself { line });
        }
        // Several edges between two processes add up.
        let (sum, count) = row.entry(neighbour).or_default();
        *sum =
            sum.checked_add(weight).ok_or(ReadError::Traffic { line, why: crate::graph::TooMuchTraffic })?;
        *count += 1;
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read::tests::refusal;
    use crate::read::{GraphFormat, read};

    fn graph(text: &str) -> CommunicationGraph {
        read(text.as_bytes(), GraphFormat::Metis).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn refused(text: &str) -> String {
        refusal(text, GraphFormat::Metis)
    }

    #[test]
    fn each_edge_counts_once() {
        let weighted = graph("% made by hand\n3 2 001\n2 7\n1 7 3 4\n2 4\n");
        assert_eq!(
            (weighted.names().join(" "), weighted.total(), weighted.pairs()),
            ("1 2 3".to_owned(), 11, 2)
        );
        let plain = graph("\u{feff}3 1\r\n2\r\n1\r\n\r\n");
        assert_eq!((plain.len(), plain.total()), (3, 1));
    }

    #[test]
    fn repeated_edges_add_up() {
        let repeated = graph("3 3 1\n2 4 2 6\n1 6 1 4 3 1.0\n2 1\n");
        assert_eq!((repeated.total(), repeated.pairs(), repeated.peers(0)), (11, 2, &[(1, 10)][..]));
        assert!(
            refused("2 2 1\n2 4 2 6\n1 10\n").contains("the edge to 2"),
            "each edge appears at both ends"
        );
    }

    #[test]
    fn what_the_header_states_is_checked() {
        assert!(refused("a b\n").starts_with("line 1 is not the header"));
        assert!(refused("3\n").starts_with("line 1 is not the header"));
        assert!(refused("2 1 011\n2\n1\n").contains("the format `011`"));
        assert!(refused("2 1 0001\n2 1\n1 1\n").contains("the format `0001`"));
        assert_eq!(
            refused("3 1\n2\n1\n"),
            "the header gives 3 as the number of processes, but the file has lines for 2"
        );
        assert!(refused("1 0\n\n2\n").contains("lines for 2"));
        assert_eq!(
            refused("% a comment\n3 2\n2\n1\n\n"),
            "line 2: the header gives 2 as the number of edges, but the lines contain 1; count each edge once"
        );
        assert!(refused("3 18446744073709551615\n2\n1\n\n").contains("but the lines contain 1;"));
    }

    #[test]
    fn errors_state_the_line() {
        assert!(refused("2 1\n3\n1\n").contains("names neighbour 3"));
        assert!(refused("2 1\n0\n1\n").contains("names neighbour 0"));
        assert!(refused("2 1\n1\n2\n").starts_with("line 2: an edge leads from a process to itself"));
        assert!(refused("2 1 1\n2\n1 1\n").contains("has no weight"));
        assert!(refused("2 1\n2\n\n").contains("the edge to 2 is missing"));
        assert!(refused("2 1 1\n2 5\n1 6\n").contains("has a different weight"));
        assert!(refused("2 1 1\n2 0.5\n1 0.5\n").contains("has a fraction"));
        let most = u64::MAX;
        assert!(
            refused(&format!("2 2 1\n2 {most} 2 1\n1 {most} 1 1\n")).contains("line 2: the traffic exceeds")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-4]{1} [0-4]{1}( 001)?\n[0-9 \n%.]{0,40}") {
            let _ = read(text.as_bytes(), GraphFormat::Metis);
        }
    }
}

//! Parsers for graphs.
//!
//! *Edge list*: one line per channel, `from to bytes` or `from to bytes messages`, separated by spaces, tabs
//! or commas. A line with a single word names a process, which may have no traffic. Text after `#` is a comment.
//! A line that begins with `from to` before the first channel names the columns. Processes are in the order of their
//! first mention.
//!
//! *METIS*: `processes edges [format]` on the first line, then one line per process with its neighbours, counted from
//! one. Each is followed by the weight of the edge if the format ends in `1`. Lines that begin with `%` are comments.
//! Each edge appears twice, once for each end.
//!
//! *GraphML*: the nodes and edges of the first graph in the file. The bytes of an edge are in its `data` element whose
//! key is named `bytes` or `weight`; its messages are in the one whose key is named `messages`. An edge without bytes
//! counts as 1 byte.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::graph::CommunicationGraph;

/// The file format of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFormat {
    /// One line per channel.
    EdgeList,
    /// The graph format of METIS.
    Metis,
    /// The XML format used by many graph tools.
    GraphMl,
}

/// The reason why text cannot be read as a graph. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The text is empty.
    #[error("the file contains no processes")]
    Empty,
    /// A line of an edge list has the wrong number of words.
    #[error(
        "line {line} should have 1, 3 or 4 words (found {words}); write the name of a process, `from to bytes`, or \
         `from to bytes messages`"
    )]
    Words {
        /// The number of the line.
        line: usize,
        /// The number of words in the line.
        words: usize,
    },
    /// A word should be a number but is not.
    #[error("line {line}: `{word}` is not a whole number, 0 or greater")]
    Number {
        /// The number of the line.
        line: usize,
        /// The word found there.
        word: String,
    },
    /// A METIS file does not begin with a header.
    #[error(
        "line {line} is not the header of a METIS file; write `processes edges`, or `processes edges 001` with weights"
    )]
    Header {
        /// The number of the line.
        line: usize,
    },
    /// A METIS file assigns weights to processes; such weights have no meaning here.
    #[error(
        "line {line}: the format {format} includes weights of processes, which are not supported; use 0, 1 or 001"
    )]
    Format {
        /// The number of the line.
        line: usize,
        /// The format in the header.
        format: String,
    },
    /// The number of lines in a METIS file differs from the number of processes.
    #[error("the header gives {stated} as the number of processes, but the file has lines for {found}")]
    Lines {
        /// The number of processes in the header.
        stated: usize,
        /// The number of lines after the header.
        found: usize,
    },
    /// A neighbour does not exist.
    #[error("line {line} names neighbour {neighbour}; use numbers from 1 to {processes}")]
    Neighbour {
        /// The number of the line.
        line: usize,
        /// The number of the neighbour, counted from 1.
        neighbour: u64,
        /// The number of processes.
        processes: usize,
    },
    /// The weight of an edge is missing.
    #[error("line {line} ends with a neighbour that has no weight")]
    Weight {
        /// The number of the line.
        line: usize,
    },
    /// An edge of a METIS file does not appear at both ends with the same weight.
    #[error(
        "line {line}: the edge to {neighbour} is missing from that process's line, or has a different weight there"
    )]
    Lopsided {
        /// The number of the line.
        line: usize,
        /// The other end of the edge.
        neighbour: usize,
    },
    /// A GraphML file is not XML.
    #[error("the file is not XML: {0}")]
    Xml(String),
    /// A GraphML file contains no graph.
    #[error("the file has no `graph` element; add one, with `node` and `edge` elements")]
    NoGraph,
    /// An element of a GraphML file lacks an attribute.
    #[error("line {line}: the `{element}` has no `{attribute}`")]
    Attribute {
        /// The number of the line.
        line: usize,
        /// The name of the element.
        element: &'static str,
        /// The name of the missing attribute.
        attribute: &'static str,
    },
    /// An edge of a GraphML file refers to a node that does not exist.
    #[error("line {line}: there is no node `{node}`")]
    Node {
        /// The number of the line.
        line: usize,
        /// The name of the node.
        node: String,
    },
}

/// Reads a graph from text in this format.
///
/// # Errors
///
/// Returns a [`ReadError`] that names the problem and, where possible, its line.
pub fn read(text: &str, form: GraphFormat) -> Result<CommunicationGraph, ReadError> {
    match form {
        GraphFormat::EdgeList => edge_list(text),
        GraphFormat::Metis => metis(text),
        GraphFormat::GraphMl => graph_ml(text),
    }
}

fn edge_list(text: &str) -> Result<CommunicationGraph, ReadError> {
    let mut names: Vec<String> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut place = |name: &str| {
        *places.entry(name.to_owned()).or_insert_with(|| {
            names.push(name.to_owned());
            names.len() - 1
        })
    };
    let mut channels = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or_default().split([',', ' ', '\t']);
        let words: Vec<&str> = words.map(str::trim).filter(|it| !it.is_empty()).collect();
        let line = index + 1;
        match words[..] {
            [] => {}
            ["from", "to", ..] if channels.is_empty() => {}
            [name] => {
                place(name);
            }
            [from, to, bytes] => channels.push((place(from), place(to), number(bytes, line)?, 0)),
            [from, to, bytes, messages] => {
                channels.push((place(from), place(to), number(bytes, line)?, number(messages, line)?));
            }
            _ => return Err(ReadError::Words { line, words: words.len() }),
        }
    }
    if names.is_empty() {
        return Err(ReadError::Empty);
    }
    let mut graph = CommunicationGraph::new(names);
    channels.into_iter().for_each(|(from, to, bytes, messages)| graph.add(from, to, bytes, messages));
    Ok(graph)
}

fn metis(text: &str) -> Result<CommunicationGraph, ReadError> {
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('%'));
    let (header, line) = lines.by_ref().find(|(line, _)| !line.trim().is_empty()).ok_or(ReadError::Empty)?;
    let words: Vec<&str> = header.split_whitespace().collect();
    let (processes, weighted) = match words[..] {
        [processes, _] => (processes, false),
        [processes, _, format] => match format.trim_start_matches('0') {
            "" => (processes, false),
            "1" => (processes, true),
            _ => return Err(ReadError::Format { line, format: format.to_owned() }),
        },
        _ => return Err(ReadError::Header { line }),
    };
    let processes = number(processes, line).map_err(|_| ReadError::Header { line })? as usize;
    let mut rows: Vec<(usize, BTreeMap<usize, u64>)> = Vec::new();
    for (text, line) in lines {
        if text.trim().is_empty() && rows.len() == processes {
            continue;
        }
        let numbers: Vec<u64> =
            text.split_whitespace().map(|it| number(it, line)).collect::<Result<_, _>>()?;
        let mut row = BTreeMap::new();
        for pair in numbers.chunks(if weighted { 2 } else { 1 }) {
            let weight = match *pair {
                [_, weight] => weight,
                _ if weighted => return Err(ReadError::Weight { line }),
                _ => 1,
            };
            if !(1..=processes as u64).contains(&pair[0]) {
                return Err(ReadError::Neighbour { line, neighbour: pair[0], processes });
            }
            row.insert(pair[0] as usize - 1, weight);
        }
        rows.push((line, row));
    }
    if rows.len() != processes {
        return Err(ReadError::Lines { stated: processes, found: rows.len() });
    }
    if processes == 0 {
        return Err(ReadError::Empty);
    }
    let mut graph = CommunicationGraph::new((1..=processes).map(|it| it.to_string()).collect());
    for (one, (line, row)) in rows.iter().enumerate() {
        for (&other, &weight) in row {
            if rows[other].1.get(&one) != Some(&weight) {
                return Err(ReadError::Lopsided { line: *line, neighbour: other + 1 });
            }
            if one < other {
                graph.add(one, other, weight, 0);
            }
        }
    }
    Ok(graph)
}

fn graph_ml(text: &str) -> Result<CommunicationGraph, ReadError> {
    let document = roxmltree::Document::parse(text).map_err(|error| ReadError::Xml(error.to_string()))?;
    let line = |it: roxmltree::Node<'_, '_>| document.text_pos_at(it.range().start).row as usize;
    let attribute = |it: roxmltree::Node<'_, '_>, element, attribute| {
        let value = it.attribute(attribute).map(str::to_owned);
        value.ok_or_else(|| ReadError::Attribute { line: line(it), element, attribute })
    };
    // The key that a `data` element refers to determines its meaning.
    let keys = document.descendants().filter(|it| it.is_called("key"));
    let titles: BTreeMap<&str, &str> =
        keys.filter_map(|it| Some((it.attribute("id")?, it.attribute("attr.name")?))).collect();
    let graph = document.descendants().find(|it| it.is_called("graph")).ok_or(ReadError::NoGraph)?;
    let (mut names, mut places) = (Vec::new(), BTreeMap::new());
    for node in graph.children().filter(|it| it.is_called("node")) {
        let name = attribute(node, "node", "id")?;
        places.entry(name.clone()).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        });
    }
    if names.is_empty() {
        return Err(ReadError::Empty);
    }
    let mut channels = CommunicationGraph::new(names);
    for edge in graph.children().filter(|it| it.is_called("edge")) {
        let end = |which| {
            let node = attribute(edge, "edge", which)?;
            places.get(&node).copied().ok_or(ReadError::Node { line: line(edge), node })
        };
        let value = |wanted: &[&str]| {
            let of = |it: &roxmltree::Node<'_, '_>| {
                let key = it.attribute("key").unwrap_or_default();
                wanted.contains(titles.get(key).unwrap_or(&key))
            };
            let data = edge.children().filter(|it| it.is_called("data")).find(of);
            data.map(|it| number(it.text().unwrap_or_default().trim(), line(it))).transpose()
        };
        let bytes = value(&["bytes", "weight"])?.unwrap_or(1);
        channels.add(end("source")?, end("target")?, bytes, value(&["messages"])?.unwrap_or(0));
    }
    Ok(channels)
}

/// Compares the names of elements, whatever namespace the file declares.
trait Named {
    fn is_called(&self, name: &str) -> bool;
}

impl Named for roxmltree::Node<'_, '_> {
    fn is_called(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

fn number(word: &str, line: usize) -> Result<u64, ReadError> {
    word.parse().map_err(|_| ReadError::Number { line, word: word.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_an_edge_list_are_in_the_order_of_their_first_mention() {
        let text = "from,to,bytes,messages\n# a comment\nquiet\nb,a,10,2\na b 5   # and back\n";
        let graph = read(text, GraphFormat::EdgeList).unwrap();
        assert_eq!(graph.names(), ["quiet", "b", "a"]);
        assert_eq!((graph.total(), graph.messages(), graph.pairs()), (15, 2, 1));
    }

    #[test]
    fn a_metis_file_counts_each_edge_once() {
        let graph = read("% made by hand\n3 2 001\n2 7\n1 7 3 4\n2 4\n", GraphFormat::Metis).unwrap();
        assert_eq!((graph.names().join(" "), graph.total(), graph.pairs()), ("1 2 3".to_owned(), 11, 2));
        let graph = read("3 1\n2\n1\n\n", GraphFormat::Metis).unwrap();
        assert_eq!((graph.len(), graph.total()), (3, 1));
    }

    const GRAPH_ML: &str = r#"<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="edge" attr.name="bytes" attr.type="long"/>
  <graph edgedefault="directed">
    <node id="a"/> <node id="b"/> <node id="quiet"/>
    <edge source="a" target="b"><data key="d0"> 12 </data></edge>
    <edge source="b" target="a"/>
  </graph>
</graphml>"#;

    #[test]
    fn graph_ml_bytes_are_found_by_key() {
        let graph = read(GRAPH_ML, GraphFormat::GraphMl).unwrap();
        assert_eq!(graph.names(), ["a", "b", "quiet"]);
        assert_eq!((graph.total(), graph.pairs()), (13, 1));
    }

    #[test]
    fn errors_in_graph_ml_state_the_line() {
        let wrong = |from: &str, to: &str| {
            read(&GRAPH_ML.replace(from, to), GraphFormat::GraphMl).unwrap_err().to_string()
        };
        assert_eq!(wrong("target=\"a\"", "target=\"c\""), "line 7: there is no node `c`");
        assert_eq!(wrong("target=\"a\"", ""), "line 7: the `edge` has no `target`");
        assert!(wrong(" 12 ", "many").starts_with("line 6: `many` is not a whole number"));
        assert!(wrong("</graphml>", "").starts_with("the file is not XML"));
        assert!(read("<a/>", GraphFormat::GraphMl).unwrap_err().to_string().contains("no `graph` element"));
    }

    #[test]
    fn errors_state_the_line() {
        let wrong = |text: &str, form| read(text, form).unwrap_err().to_string();
        assert_eq!(wrong("# nothing\n", GraphFormat::EdgeList), "the file contains no processes");
        assert!(
            wrong("a b 1\na b\n", GraphFormat::EdgeList)
                .starts_with("line 2 should have 1, 3 or 4 words (found 2)")
        );
        assert!(wrong("a b -1\n", GraphFormat::EdgeList).starts_with("line 1: `-1` is not a whole number"));
        assert!(wrong("a b\n", GraphFormat::Metis).starts_with("line 1 is not the header"));
        assert!(wrong("2 1 011\n2\n1\n", GraphFormat::Metis).contains("the format 011"));
        assert_eq!(
            wrong("3 1\n2\n1\n", GraphFormat::Metis),
            "the header gives 3 as the number of processes, but the file has lines for 2"
        );
        assert!(wrong("2 1\n3\n1\n", GraphFormat::Metis).contains("names neighbour 3"));
        assert!(wrong("2 1 1\n2\n1 1\n", GraphFormat::Metis).contains("has no weight"));
        assert!(wrong("2 1\n2\n\n", GraphFormat::Metis).contains("the edge to 2 is missing"));
    }
}

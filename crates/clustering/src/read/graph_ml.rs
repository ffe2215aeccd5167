//! GraphML. The reader knows the elements that describe a flat graph; of the others, it ignores those that only describe
//! the drawing or the document, and refuses those that would change the graph.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};

use super::number::whole;
use super::{ReadError, quoted};
use crate::graph::CommunicationGraph;

/// The values of an edge that count, each with the names of the keys that contain it.
const VALUES: [&[&str]; 2] = [&["bytes", "weight"], &["messages"]];

/// A declaration of data.
struct Key<'a> {
    /// The name of the data.
    title: &'a str,
    /// The index in [`VALUES`] if the data counts.
    value: Option<usize>,
    /// Whether edges may have the data.
    of_edges: bool,
    /// Whether the data is a number.
    is_number: bool,
    /// The number of an edge without such data.
    default: Option<Node<'a, 'a>>,
}

pub(super) fn read(text: &str) -> Result<CommunicationGraph, ReadError> {
    let document = Document::parse(text).map_err(|error| ReadError::Xml(quoted(&error.to_string())))?;
    let root = document.root_element();
    if name(root) != "graphml" {
        return Err(ReadError::NotGraphMl { line: line(root), element: quoted(name(root)) });
    }
    let (mut keys, mut graph) = (BTreeMap::new(), None);
    for element in elements(root, &["key", "graph"])? {
        if name(element) == "key" {
            let id = attribute(element, "id")?;
            if keys.insert(id, key(element)?).is_some() {
                return Err(twice(element, id));
            }
        } else if graph.replace(element).is_some() {
            return Err(ReadError::Element {
                line: line(element),
                element: "graph".into(),
                parent: "graphml",
            });
        }
    }
    let graph = graph.ok_or(ReadError::NoGraph)?;
    let (mut names, mut places, mut edges) = (Vec::new(), BTreeMap::new(), Vec::new());
    for element in elements(graph, &["node", "edge"])? {
        if name(element) == "edge" {
            edges.push(element);
            continue;
        }
        elements(element, &[])?;
        let id = attribute(element, "id")?;
        if places.insert(id, names.len()).is_some() {
            return Err(twice(element, id));
        }
        names.push(id.to_owned());
    }
    if names.is_empty() {
        return Err(ReadError::Empty);
    }
    let mut channels = CommunicationGraph::new(names);
    for edge in edges {
        elements(edge, &[])?;
        let end = |which| {
            let node = attribute(edge, which)?;
            places.get(node).copied().ok_or_else(|| ReadError::Node { line: line(edge), node: quoted(node) })
        };
        let [bytes, messages] = values(edge, &keys)?;
        channels
            .try_add(end("source")?, end("target")?, bytes.unwrap_or(1), messages.unwrap_or(0))
            .map_err(|why| ReadError::Traffic { line: line(edge), why })?;
    }
    Ok(channels)
}

/// Returns the children with these names. `desc` and `data` are permitted in addition, because they do not change the
/// graph by themselves.
fn elements<'a>(parent: Node<'a, 'a>, known: &[&'static str]) -> Result<Vec<Node<'a, 'a>>, ReadError> {
    let parent_name = match name(parent) {
        "graphml" => "graphml",
        "graph" => "graph",
        "node" => "node",
        _ => "edge",
    };
    let mut found = Vec::new();
    for child in parent.children() {
        if child.is_text() && child.text().is_some_and(|it| !it.trim().is_empty()) {
            let text = quoted(child.text().unwrap_or_default().trim());
            return Err(ReadError::Text { line: line(child), text, parent: parent_name });
        }
        if !child.is_element() || matches!(name(child), "desc" | "data") {
            continue;
        }
        if !known.contains(&name(child)) {
            let element = quoted(name(child));
            return Err(ReadError::Element { line: line(child), element, parent: parent_name });
        }
        found.push(child);
    }
    Ok(found)
}

fn key<'a>(element: Node<'a, 'a>) -> Result<Key<'a>, ReadError> {
    let title = match element.attribute("attr.name") {
        Some(title) => title,
        None => attribute(element, "id")?,
    };
    let of_edges = matches!(element.attribute("for"), None | Some("all" | "edge"));
    let is_named = |names: &&[&str]| names.iter().any(|it| title.eq_ignore_ascii_case(it));
    let value = VALUES.iter().position(is_named).filter(|_| of_edges);
    let is_number = matches!(element.attribute("attr.type"), Some("int" | "long" | "float" | "double"));
    let default = element.children().find(|it| name(*it) == "default");
    Ok(Key { title, value, of_edges, is_number, default })
}

/// Returns the bytes and the messages of an edge, if the file states them.
fn values<'a>(edge: Node<'a, 'a>, keys: &BTreeMap<&str, Key<'a>>) -> Result<[Option<u64>; 2], ReadError> {
    let mut values = [None; 2];
    for data in edge.children().filter(|it| name(*it) == "data") {
        let id = attribute(data, "key")?;
        let key = keys.get(id).filter(|it| it.of_edges);
        let key = key.ok_or_else(|| ReadError::Key { line: line(data), key: quoted(id) })?;
        let Some(value) = key.value else {
            if key.is_number && keys.values().all(|it| it.value != Some(0)) {
                return Err(ReadError::NotBytes { line: line(data), key: quoted(key.title) });
            }
            continue;
        };
        if values[value].replace(number(data)?).is_some() {
            return Err(ReadError::Ambiguous { line: line(data), key: quoted(id) });
        }
    }
    for (value, of_key) in values.iter_mut().zip(0..) {
        let defaults = keys.values().filter(|it| it.value == Some(of_key)).filter_map(|it| it.default);
        let defaults: Vec<Node<'_, '_>> = defaults.collect();
        match defaults[..] {
            _ if value.is_some() => {}
            [] => {}
            [default] => *value = Some(number(default)?),
            [_, second, ..] => {
                return Err(ReadError::Ambiguous { line: line(second), key: "default".into() });
            }
        }
    }
    Ok(values)
}

/// Returns the number in an element. To find the line takes time, so only errors do.
fn number(element: Node<'_, '_>) -> Result<u64, ReadError> {
    let word = content(element);
    whole(word).map_err(|why| ReadError::Number { line: line(element), word: quoted(word), why })
}

/// Returns the text in an element; empty if it contains other elements.
fn content<'a>(element: Node<'a, 'a>) -> &'a str {
    match element.children().any(|it| it.is_element()) {
        true => "",
        false => element.text().unwrap_or_default().trim(),
    }
}

/// Returns the name of an element, whatever namespace the file declares; empty for a node that is not an element.
fn name<'a>(node: Node<'a, 'a>) -> &'a str {
    node.tag_name().name()
}

fn line(node: Node<'_, '_>) -> usize {
    node.document().text_pos_at(node.range().start).row as usize
}

fn attribute<'a>(node: Node<'a, 'a>, attribute: &'static str) -> Result<&'a str, ReadError> {
    let value = node.attribute(attribute).filter(|it| !it.is_empty());
    value.ok_or_else(|| ReadError::Attribute { line: line(node), element: quoted(name(node)), attribute })
}

fn twice(element: Node<'_, '_>, id: &str) -> ReadError {
    ReadError::Twice { line: line(element), element: element.tag_name().name().to_owned(), id: quoted(id) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read::{GraphFormat, read};

    const GRAPH_ML: &str = r#"<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <desc>Measured by hand.</desc>
  <key id="d0" for="edge" attr.name="bytes" attr.type="long"/>
  <key id="d1" attr.name="colour" attr.type="string"/>
  <graph edgedefault="directed">
    <node id="a"><data key="d1">red</data></node> <node id="b"/> <node id="quiet"/>
    <edge source="a" target="b"><data key="d0"> 12 </data></edge>
    <edge source="b" target="a"/>
  </graph>
</graphml>"#;

    fn changed(from: &str, to: &str) -> Result<CommunicationGraph, ReadError> {
        assert!(GRAPH_ML.contains(from), "{from}");
        read(GRAPH_ML.replacen(from, to, 1).as_bytes(), GraphFormat::GraphMl)
    }

    fn wrong(from: &str, to: &str) -> String {
        changed(from, to).expect_err("the graph must be rejected").to_string()
    }

    #[test]
    fn bytes_are_found_by_key() {
        let graph = read(GRAPH_ML.as_bytes(), GraphFormat::GraphMl).unwrap();
        assert_eq!(graph.names(), ["a", "b", "quiet"]);
        assert_eq!((graph.total(), graph.pairs()), (13, 1));
        assert_eq!(changed(" 12 ", "12.0").map(|it| it.total()), Ok(13));
        assert_eq!(changed(" 12 ", "1.2e1").map(|it| it.total()), Ok(13));
        let with_default = r#"attr.type="long"><default>30</default></key>"#;
        assert_eq!(changed(r#"attr.type="long"/>"#, with_default).map(|it| it.total()), Ok(42));
    }

    #[test]
    fn numbers_that_are_not_known_to_be_bytes_are_refused() {
        assert_eq!(changed("\"bytes\"", "\"Bytes\"").map(|it| it.total()), Ok(13));
        let error = wrong("\"bytes\"", "\"traffic\"");
        assert!(error.starts_with("line 8: the edge has `traffic`, but no `bytes`"), "{error}");
        assert_eq!(
            changed("\"bytes\" attr.type=\"long\"", "\"label\" attr.type=\"string\"").map(|it| it.total()),
            Ok(2)
        );
    }

    #[test]
    fn elements_that_would_change_the_graph_are_refused() {
        let edge = r#"<edge source="b" target="a"/>"#;
        for (element, found) in [
            (r#"<hyperedge><endpoint node="a"/></hyperedge>"#, "hyperedge"),
            (r#"<edge source="b" target="a"><graph/></edge>"#, "graph"),
            (r#"<node id="c"><graph edgedefault="directed"/></node>"#, "graph"),
            (r#"<node id="c"><port name="p"/></node>"#, "port"),
            (r#"<locator/>"#, "locator"),
            (r#"<edges/>"#, "edges"),
        ] {
            let error = wrong(edge, element);
            assert!(error.starts_with(&format!("line 9: `{found}` in")), "{error}");
        }
        assert!(wrong("</graph>", "</graph><graph/>").starts_with("line 10: `graph` in `graphml`"));
        assert!(
            wrong(edge, "b a 5").starts_with("line 8: unexpected text `b a 5`"),
            "{}",
            wrong(edge, "b a 5")
        );
    }

    #[test]
    fn data_that_is_not_declared_or_ambiguous_is_refused() {
        let data = r#"<data key="d0"> 12 </data>"#;
        assert!(wrong(data, r#"<data key="bytes">12</data>"#).contains("no key `bytes` for edges"));
        assert!(
            wrong(data, &format!("{data}{data}"))
                .starts_with("line 8: the edge has several numbers of bytes")
        );
        assert!(wrong(r#"for="edge""#, r#"for="node""#).contains("no key `d0` for edges"));
        assert!(wrong(r#"id="d1""#, r#"id="d0""#).starts_with("line 5: the `key` `d0` appears twice"));
        assert!(wrong(r#"id="quiet""#, r#"id="a""#).starts_with("line 7: the `node` `a` appears twice"));
    }

    #[test]
    fn errors_state_the_line() {
        assert_eq!(wrong("target=\"a\"", "target=\"c\""), "line 9: there is no node `c`");
        assert_eq!(wrong("target=\"a\"", ""), "line 9: the `edge` has no `target`");
        assert!(wrong(" 12 ", "many").starts_with("line 8: `many` is not a whole number"));
        assert!(wrong(" 12 ", "1.5").starts_with("line 8: `1.5` has a fraction"));
        assert!(wrong(" 12 ", "-3").starts_with("line 8: `-3` is negative"));
        assert!(wrong(" 12 ", "<b>12</b>").contains("a number is missing"));
        assert!(wrong("</graphml>", "").starts_with("the file is not XML"));
        let error = read(b"<a/>", GraphFormat::GraphMl).unwrap_err().to_string();
        assert!(error.contains("begins with `a`"), "{error}");
        let error = read(b"<graphml/>", GraphFormat::GraphMl).unwrap_err().to_string();
        assert!(error.contains("no `graph` element"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(place in 0..GRAPH_ML.len(), length in 0..40_usize, text in "\\PC{0,10}") {
            let rest = GRAPH_ML.get(place + length..).unwrap_or_default();
            let _ = read(format!("{}{text}{rest}", &GRAPH_ML[..place]).as_bytes(), GraphFormat::GraphMl);
        }
    }
}

//! Edge lists: one line per channel, in plain text or as comma-separated values.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{ReadError, number, quoted};
use crate::graph::CommunicationGraph;

/// What separates the fields of a line.
#[derive(Clone, Copy, PartialEq)]
enum Separator {
    /// Spaces and tabs.
    Blanks,
    /// This character, as in comma-separated values (RFC 4180).
    Character(char),
}

/// The names that a header may give to a column, the first of which is the one to use in messages.
const COLUMNS: [&[&str]; 4] = [
    &["from", "src", "source", "sender"],
    &["to", "dst", "dest", "destination", "target", "receiver"],
    &["bytes", "weight"],
    &["messages"],
];

/// The graph under construction.
#[derive(Default)]
struct EdgeList {
    names: Vec<String>,
    places: BTreeMap<String, usize>,
    /// For each channel, its ends, bytes and messages, and its line.
    channels: Vec<([usize; 2], [u64; 2], usize)>,
    /// The columns, by their index in [`COLUMNS`], as stated by a header or by the first channel.
    columns: Option<Vec<usize>>,
}

pub(super) fn read(text: &str) -> Result<CommunicationGraph, ReadError> {
    let mut list = EdgeList::default();
    match separator(text)? {
        Separator::Blanks => {
            for (line, content) in (1..).zip(text.lines()) {
                let words = content.split([' ', '\t']).filter(|it| !it.is_empty());
                let words: Vec<&str> = words.take_while(|it| !it.starts_with('#')).collect();
                list.add(&words, line, Separator::Blanks)?;
            }
        }
        Separator::Character(character) => {
            check_quotes(text, character)?;
            let mut reader = ReaderBuilder::new();
            let reader = reader.delimiter(character as u8).has_headers(false).flexible(true);
            let mut reader = reader.comment(Some(b'#')).trim(Trim::All).from_reader(text.as_bytes());
            let (mut record, mut at, mut line) = (StringRecord::new(), 0, 1);
            while reader.read_record(&mut record).map_err(|_| ReadError::Quotes { line })? {
                let start = skip_comments(text, record.position().map_or(at, |it| it.byte() as usize));
                line += text[at..start].matches('\n').count();
                at = start;
                let fields: Vec<&str> = record.iter().collect();
                match fields[..] {
                    [""] => {}
                    // Only in quotes is a blank certainly part of a name.
                    [name] if name.contains([' ', '\t']) && !text[at..].starts_with('"') => {
                        return Err(ReadError::Mixed { line, found: character });
                    }
                    _ => list.add(&fields, line, Separator::Character(character))?,
                }
            }
        }
    }
    list.finish()
}

impl EdgeList {
    /// Adds the channel or the process of a line.
    fn add(&mut self, fields: &[&str], line: usize, separator: Separator) -> Result<(), ReadError> {
        if fields.is_empty() {
            return Ok(());
        }
        if separator == Separator::Blanks {
            // Such characters are more likely to separate fields than to be part of a name: a file without any known
            // separator would otherwise have one process per line.
            let foreign = if fields.len() == 1 { ",;\"|=>" } else { ",\"" };
            let names = &fields[..fields.len().min(2)];
            let found = names.iter().find_map(|name| name.chars().find(|it| foreign.contains(*it)));
            if let Some(found) = found {
                return Err(ReadError::Separator { line, found });
            }
        }
        if let &[name] = fields {
            return self.place(name, line).map(drop);
        }
        if self.columns.is_none() {
            match header(fields, line)? {
                Some(columns) => {
                    self.columns = Some(columns);
                    return Ok(());
                }
                None if fields.len() > 4 || fields.len() < 3 => {
                    return Err(self.fields(fields, line, separator));
                }
                None => self.columns = Some((0..fields.len()).collect()),
            }
        }
        let Some(columns) = self.columns.clone().filter(|it| it.len() == fields.len()) else {
            return Err(self.fields(fields, line, separator));
        };
        let field = |column: usize| columns.iter().position(|it| *it == column).map(|it| fields[it]);
        let end =
            |list: &mut EdgeList, column| list.place(field(column).expect("every channel has ends"), line);
        let ends = [end(self, 0)?, end(self, 1)?];
        let count = |column| field(column).map_or(Ok(0), |it| number(it, line));
        self.channels.push((ends, [count(2)?, count(3)?], line));
        Ok(())
    }

    /// Returns the index of the process with this name.
    fn place(&mut self, name: &str, line: usize) -> Result<usize, ReadError> {
        if name.is_empty() {
            return Err(ReadError::NoName { line });
        }
        if let Some(&place) = self.places.get(name) {
            return Ok(place);
        }
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), self.names.len() - 1);
        Ok(self.names.len() - 1)
    }

    /// Returns the error for a wrong number of fields.
    fn fields(&self, fields: &[&str], line: usize, separator: Separator) -> ReadError {
        if let (Separator::Character(found), true) = (separator, fields.iter().any(|it| it.contains(' '))) {
            return ReadError::Mixed { line, found };
        }
        match &self.columns {
            Some(columns) => ReadError::Stated { line, fields: fields.len(), stated: columns.len() },
            None => ReadError::Fields { line, fields: fields.len() },
        }
    }

    fn finish(self) -> Result<CommunicationGraph, ReadError> {
        if self.names.is_empty() {
            return Err(ReadError::Empty);
        }
        let mut graph = CommunicationGraph::new(self.names);
        for ([from, to], [bytes, messages], line) in self.channels {
            graph.try_add(from, to, bytes, messages).map_err(|why| ReadError::Traffic { line, why })?;
        }
        Ok(graph)
    }
}

/// Returns the start of the first line at or after byte `at` that is neither empty nor a comment.
fn skip_comments(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        at += match rest.bytes().next() {
            Some(b'\n' | b'\r') => 1,
            Some(b'#') => rest.find('\n').unwrap_or(rest.len()),
            _ => return at,
        };
    }
}

/// Returns the separator of the first line that has several fields.
fn separator(text: &str) -> Result<Separator, ReadError> {
    let mut rest = text;
    for (line, content) in (1..).zip(text.lines()) {
        let from_here = rest;
        rest = rest.split_once('\n').map_or("", |it| it.1);
        if content.trim_start_matches([' ', '\t']).starts_with('#') {
            continue;
        }
        if content.contains('"') {
            // A separator inside quotes, which may span lines, is part of a name.
            let found = from_here.split('"').step_by(2).flat_map(str::chars).find(|it| ",;".contains(*it));
            return Ok(found.map_or(Separator::Blanks, Separator::Character));
        }
        let words: Vec<&str> = content.split([' ', '\t']).filter(|it| !it.is_empty()).collect();
        let is_plain = |it: &str| !it.contains(',') && !it.ends_with(';');
        if let [from, to, rest @ ..] = &words[..]
            && is_plain(from)
            && is_plain(to)
            && (!from.contains(';') && !to.contains(';') || rest.iter().all(|it| number(it, line).is_ok()))
        {
            return Ok(Separator::Blanks);
        }
        match (content.contains(','), content.contains(';')) {
            (true, true) => return Err(ReadError::Mixed { line, found: ',' }),
            (true, false) => return Ok(Separator::Character(',')),
            (false, true) => return Ok(Separator::Character(';')),
            (false, false) => {}
        }
    }
    Ok(Separator::Blanks)
}

/// Returns the columns if these fields are the names of columns.
fn header(fields: &[&str], line: usize) -> Result<Option<Vec<usize>>, ReadError> {
    let column =
        |field: &str| COLUMNS.iter().position(|names| names.iter().any(|it| field.eq_ignore_ascii_case(it)));
    let found: Vec<Option<usize>> = fields.iter().map(|it| column(it)).collect();
    let is_number = |it: &&&str| it.starts_with(|it: char| it.is_ascii_digit() || "+-.".contains(it));
    let names_ends = found.contains(&Some(0)) && found.contains(&Some(1));
    if !names_ends || fields.iter().any(|it| is_number(&it)) {
        return Ok(None);
    }
    let mut columns = Vec::new();
    for (field, column) in fields.iter().zip(found) {
        match column {
            Some(column) if !columns.contains(&column) => columns.push(column),
            _ => return Err(ReadError::Column { line, column: quoted(field) }),
        }
    }
    match columns.contains(&2) {
        true => Ok(Some(columns)),
        false => Err(ReadError::NoBytes { line }),
    }
}

/// Checks that quotes enclose whole fields, because the reader accepts any.
fn check_quotes(text: &str, separator: char) -> Result<(), ReadError> {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        LineStart,
        FieldStart,
        Comment,
        Plain,
        Quoted,
        Closed,
    }
    let (mut at, mut line, mut opened) = (At::LineStart, 1, 1);
    for it in text.chars() {
        at = match (at, it) {
            (At::Quoted, '"') => At::Closed,
            (At::Quoted, _) => At::Quoted,
            (_, '\n' | '\r') => At::LineStart,
            (At::LineStart, '#') | (At::Comment, _) => At::Comment,
            (At::Closed, ' ' | '\t') => At::Closed,
            (_, _) if it == separator => At::FieldStart,
            (At::LineStart | At::FieldStart, '"') => {
                opened = line;
                At::Quoted
            }
            (At::Closed, '"') => At::Quoted,
            (At::Plain, '"') | (At::Closed, _) => return Err(ReadError::Quotes { line }),
            _ => At::Plain,
        };
        line += usize::from(it == '\n');
    }
    if at == At::Quoted { Err(ReadError::Quotes { line: opened }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read::tests::refusal;
    use crate::read::{GraphFormat, read};

    fn graph(text: &str) -> CommunicationGraph {
        read(text.as_bytes(), GraphFormat::EdgeList).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    fn refused(text: &str) -> String {
        refusal(text, GraphFormat::EdgeList)
    }

    #[test]
    fn processes_are_in_the_order_of_their_first_mention() {
        for text in [
            "from,to,bytes,messages\n# a comment, with \"commas\nquiet\nb,a,10,2\na, b ,5,0\n",
            "from;to;bytes;messages\nquiet\nb;a;10;2\n\n\"a\";\"b\";5.0;0",
            "# from to bytes messages\nquiet\nb a 10 2\na\tb  5 0  # and back\n",
            "messages,source,Bytes,target\nquiet\n2,b,10,a\n0,a,5e0,b\n",
        ] {
            let graph = graph(text);
            assert_eq!(graph.names(), ["quiet", "b", "a"], "{text}");
            assert_eq!((graph.total(), graph.messages(), graph.pairs()), (15, 2, 1), "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_are_not_part_of_a_name() {
        for text in [
            "\u{feff}p q 10\r\nq p 3\r\nq r 4\r\n",
            "\u{feff}src,dst,bytes\r\np,q,13\r\nq,r,4\r\n",
            "\u{feff}\"p\";\"q\";13\r\nq;r;4\r\n",
        ] {
            let graph = graph(text);
            assert_eq!((graph.names().join(" "), graph.total()), ("p q r".to_owned(), 17), "{text:?}");
        }
    }

    #[test]
    fn quotes_protect_separators_and_line_breaks() {
        let graph = graph("\"solver, rank 0\",\"say \"\"hi\"\"\",7\n\"line\nbreak\",=1+1,2\n");
        assert_eq!(graph.names(), ["solver, rank 0", "say \"hi\"", "line\nbreak", "=1+1"]);
        assert!(refused("a,b,\"5\n").starts_with("line 1: the quotes"));
        assert!(refused("a,b,5\n\"a\"x,b,5\n").starts_with("line 2: the quotes"));
        assert!(refused("a,b,5\na\"x,b,5\n").starts_with("line 2: the quotes"));
        assert!(refused("\"a\" \"b\" 5\n").starts_with("line 1"));
    }

    #[test]
    fn a_line_has_one_kind_of_separator() {
        assert!(refused("a b,c 5\nd e 6\n").starts_with("line 1 separates fields both"));
        assert!(refused("a b 5\nc,d 5 1\n").starts_with("line 2"));
        assert!(refused("a b 5\nc,d,5\n").starts_with("line 2 contains `,`"));
        assert!(refused("a,b,5\nc d 6\n").starts_with("line 2"), "{}", refused("a,b,5\nc d 6\n"));
        assert!(refused("a,b;5\n").starts_with("line 1 separates fields both"));
        assert!(refused("a|b|5\nb|c|6\n").starts_with("line 1 contains `|`"));
        assert_eq!(graph("a;1 b 5\n").names(), ["a;1", "b"]);
        assert_eq!(graph("a; b; 5\n").names(), ["a", "b"]);
        assert!(refused("a;b;5\na c 5\n").starts_with("line 2 separates"));
        assert!(refused("a->b=5\n").starts_with("line 1 contains `>`"));
    }

    #[test]
    fn a_line_has_the_stated_number_of_fields() {
        assert!(refused("a b 1\na b\n").starts_with("line 2 has 2 fields instead of 3"));
        assert!(refused("a b\n").starts_with("line 1 has 2 fields"));
        assert!(refused("a b 1\na b 1 2\n").starts_with("line 2 has 4 fields instead of 3"));
        assert!(refused("from,to,bytes\na,b,1,500\n").starts_with("line 2 has 4 fields instead of 3"));
        assert!(refused("a,b,1,\n").contains("a number is missing"));
        assert!(refused("a,,1\n").starts_with("line 1: the name of a process is missing"));
        assert!(refused("a,b,c,d,5\n").starts_with("line 1 has 5 fields"));
    }

    #[test]
    fn a_header_names_only_known_columns() {
        assert!(refused("from,to,bytes,seconds\n").contains("`seconds`"));
        assert!(refused("from,to,bytes,weight\n").contains("`weight`"));
        assert!(refused("from,to\na,b\n").contains("no column `bytes`"));
        assert_eq!(graph("from to 5\n").names(), ["from", "to"], "processes may have these names");
    }

    #[test]
    fn numbers_with_separators_are_refused() {
        for text in ["a b 1,000\n", "x y 5\na b 1,000\n", "a,b,\"1,000\"\n", "a;b;1.000,5\n", "a,b,1,000\n"] {
            let error = refused(text);
            assert!(error.contains("write 1000, not 1,000"), "{text}: {error}");
        }
        assert!(refused("a b -1\n").contains("`-1` is negative"));
    }

    #[test]
    fn traffic_beyond_the_maximum_is_refused() {
        let error = refused("a b 18446744073709551614\n");
        assert!(error.starts_with("line 1: the traffic exceeds the maximum"), "{error}");
        let half = crate::graph::MAX_TRAFFIC;
        assert!(refused(&format!("a b {half}\nb c 1\n")).starts_with("line 2: the traffic exceeds"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ab,;\" \t\n\r#0-9.]{0,60}") {
            let _ = read(text.as_bytes(), GraphFormat::EdgeList);
        }

        #[test]
        fn quoted_names_are_read_back(
            // Blanks around a name are not part of it.
            names in proptest::collection::btree_set("[^ \t\r\n\u{85}\u{a0}\\s]([,;\"\n a=#]{0,3}[x\"])?", 2..6),
            separator in prop_oneof![Just(b','), Just(b';')],
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let mut writer = csv::WriterBuilder::new()
                .delimiter(separator)
                .quote_style(csv::QuoteStyle::Always)
                .from_writer(Vec::new());
            for pair in names.windows(2) {
                writer.write_record([&pair[0], &pair[1], "3"]).expect("a vector accepts every write");
            }
            let text = String::from_utf8(writer.into_inner().expect("no error occurred")).expect("it is text");
            let graph = read(text.as_bytes(), GraphFormat::EdgeList);
            prop_assert_eq!(graph.map(|it| it.names().to_vec()), Ok(names));
        }
    }
}

//! EDN, as Jepsen and Maelstrom write it. Tags are ignored, and keywords lose their colon.

use super::ForeignError;
use super::data::Data;

/// The deepest nesting of lists and maps.
const DEEPEST: usize = 64;

/// Reads the forms of a text one after the other.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The line of the next character, from 1.
    pub(super) line: u32,
}

impl<'a> Reader<'a> {
    /// Creates a reader of a text that begins at a line.
    pub(super) const fn new(text: &'a str, line: u32) -> Reader<'a> {
        Reader { text, at: 0, line }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let it = self.peek()?;
        self.at += it.len_utf8();
        self.line += u32::from(it == '\n');
        Some(it)
    }

    fn error(&self, what: impl Into<String>) -> ForeignError {
        ForeignError {
            line: Some(self.line),
            what: what.into(),
            help: "each operation is a map such as `{:process 0, :type :invoke, :f :read, :value nil}`"
                .to_owned(),
        }
    }

    /// Skips white space, commas, comments and discarded forms. Returns the next character.
    pub(super) fn skip(&mut self) -> Result<Option<char>, ForeignError> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: usize) -> Result<Option<char>, ForeignError> {
        loop {
            match self.peek() {
                Some(it) if it.is_whitespace() || it == ',' => {
                    self.bump();
                }
                Some(';') => while self.bump().is_some_and(|it| it != '\n') {},
                Some('#') if self.text[self.at..].starts_with("#_") => {
                    self.at += 2;
                    self.form_at(depth + 1)?;
                }
                other => return Ok(other),
            }
        }
    }

    /// Skips the beginning of a vector or list. Returns the character that ends it.
    pub(super) fn open(&mut self) -> Option<char> {
        let end = match self.peek()? {
            '[' => ']',
            '(' => ')',
            _ => return None,
        };
        self.bump();
        Some(end)
    }

    /// Reads the next form, which must exist.
    pub(super) fn form(&mut self) -> Result<Data, ForeignError> {
        self.form_at(0)
    }

    fn form_at(&mut self, depth: usize) -> Result<Data, ForeignError> {
        if depth > DEEPEST {
            return Err(self.error(format!("lists are nested more than {DEEPEST} deep")));
        }
        let Some(first) = self.skip_at(depth)? else {
            return Err(self.error("the file ends within a form"));
        };
        match first {
            '[' => self.list(']', depth).map(Data::List),
            '(' => self.list(')', depth).map(Data::List),
            '{' => self.map(depth),
            '"' => self.string().map(Data::Text),
            '\\' => {
                self.bump();
                let begin = self.at;
                self.bump();
                self.word();
                Ok(Data::Text(self.text[begin..self.at].to_owned()))
            }
            '#' => {
                self.bump();
                match self.peek() {
                    Some('{') => self.list('}', depth).map(Data::List),
                    // A tag, or a symbolic number such as ##Inf.
                    Some('#') => {
                        self.bump();
                        Ok(Data::Text(self.word().to_owned()))
                    }
                    Some(it) if !it.is_whitespace() && !is_delimiter(it) => {
                        self.word();
                        self.form_at(depth + 1)
                    }
                    _ => Err(self.error("a `#` without a tag")),
                }
            }
            it if is_delimiter(it) => Err(self.error(format!("unexpected `{it}`"))),
            _ => match self.word() {
                "nil" => Ok(Data::Null),
                "true" => Ok(Data::Bool(true)),
                "false" => Ok(Data::Bool(false)),
                word => {
                    let digits = word.strip_suffix('N').unwrap_or(word);
                    let text = word.strip_prefix(':').unwrap_or(word);
                    Ok(digits.parse().map_or_else(|_| Data::Text(text.to_owned()), Data::Integer))
                }
            },
        }
    }

    /// Reads the elements of a list whose beginning is the next character.
    fn list(&mut self, end: char, depth: usize) -> Result<Vec<Data>, ForeignError> {
        self.bump();
        let mut all = Vec::new();
        loop {
            match self.skip_at(depth)? {
                Some(it) if it == end => {
                    self.bump();
                    return Ok(all);
                }
                None => return Err(self.error(format!("the file ends before `{end}`"))),
                Some(_) => all.push(self.form_at(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Data, ForeignError> {
        let mut all = self.list('}', depth)?.into_iter();
        let mut pairs = Vec::with_capacity(all.len() / 2);
        while let Some(key) = all.next() {
            let Some(value) = all.next() else {
                return Err(self.error(format!("the key `{key}` of a map has no value")));
            };
            pairs.push((key, value));
        }
        Ok(Data::Map(pairs))
    }

    fn string(&mut self) -> Result<String, ForeignError> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                Some('"') => return Ok(text),
                Some('\\') => match self.bump() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('u') => {
                        let digits = self.text.get(self.at..self.at + 4);
                        let Some(number) = digits.and_then(|it| u32::from_str_radix(it, 16).ok()) else {
                            return Err(self.error("`\\u` needs four hexadecimal digits"));
                        };
                        self.at += 4;
                        text.push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    Some(other) => text.push(other),
                    None => {}
                },
                Some(other) => text.push(other),
                None => return Err(self.error("the file ends within a string")),
            }
        }
    }

    /// Reads up to the next delimiter. The result may be empty.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|it: char| it.is_whitespace() || is_delimiter(it)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }
}

const fn is_delimiter(it: char) -> bool {
    matches!(it, '(' | ')' | '[' | ']' | '{' | '}' | '"' | ',' | ';')
}

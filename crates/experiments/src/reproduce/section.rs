//! The result of an experiment.

use std::fmt::Write;

use crate::measures::{Spread, short};

use super::chart::Chart;

/// The result of one experiment, as a section of a page.
#[derive(Clone, Debug)]
pub struct Section {
    /// A short identifier for links.
    pub id: &'static str,
    /// The title.
    pub title: String,
    /// The section of the paper.
    pub place: &'static str,
    /// A description of the experiment, and of the choices made where the paper leaves details open.
    pub text: Vec<String>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A claim from the paper, compared with our result.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The subject.
    pub what: String,
    /// What the paper states; empty if it states nothing.
    pub published: String,
    /// Our result.
    pub ours: String,
    /// How the result relates to the paper.
    pub agreement: Agreement,
    /// A sentence that explains the finding.
    pub sentence: String,
}

/// How a finding relates to the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The finding agrees with the paper.
    Agrees,
    /// The finding differs from the paper.
    Differs,
    /// The paper does not specify the experiment well enough to reproduce it.
    UnderSpecified,
    /// The paper has no such measurement.
    Measured,
}

impl Agreement {
    /// Returns the words for a report.
    pub fn text(self) -> &'static str {
        match self {
            Agreement::Agrees => "agrees",
            Agreement::Differs => "differs",
            Agreement::UnderSpecified => "under-specified",
            Agreement::Measured => "measured",
        }
    }

    /// Returns [`Agreement::Agrees`] or [`Agreement::Differs`].
    pub fn of(agrees: bool) -> Agreement {
        if agrees { Agreement::Agrees } else { Agreement::Differs }
    }
}

/// A picture, and the name of its file without the extension.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of the file.
    pub name: &'static str,
    /// The caption below the picture.
    pub caption: String,
    /// The picture.
    pub chart: Chart,
}

/// A table, and the name of its file without the extension.
#[derive(Clone, Debug)]
pub struct Table {
    /// The name of the file.
    pub name: &'static str,
    /// The caption above the table.
    pub caption: String,
    /// The titles of the columns.
    pub columns: Vec<&'static str>,
    /// The cells, row by row.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A string.
    Word(String),
    /// A single number, such as one that the paper states.
    Number(f64),
    /// The spread of a number over many runs.
    Spread(Spread),
    /// An empty cell: there is no such number.
    Nothing,
}

impl Cell {
    /// Formats the cell for display.
    pub fn text(&self) -> String {
        match self {
            Cell::Word(it) => it.clone(),
            Cell::Number(it) => short(*it),
            Cell::Spread(it) => it.text(),
            Cell::Nothing => String::new(),
        }
    }
}

impl From<&str> for Cell {
    fn from(word: &str) -> Cell {
        Cell::Word(word.to_owned())
    }
}

impl From<Spread> for Cell {
    fn from(spread: Spread) -> Cell {
        Cell::Spread(spread)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl Table {
    /// Formats the table as CSV. A column with spreads becomes four columns: mean, deviation, least and most.
    pub fn csv(&self) -> String {
        let spreads: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Spread(_)))))
            .collect();
        let mut text = String::new();
        let titles = self.columns.iter().zip(&spreads).map(|(title, spread)| {
            let title = title.replace(',', "");
            if *spread { format!("{title} mean,{title} deviation,{title} least,{title} most") } else { title }
        });
        writeln!(text, "{}", titles.collect::<Vec<_>>().join(",")).expect("a string accepts every write");
        for row in &self.rows {
            let cells = row.iter().zip(&spreads).map(|(cell, spread)| match (cell, spread) {
                (Cell::Spread(it), _) => format!("{},{},{},{}", it.mean, it.deviation, it.least, it.most),
                (Cell::Number(it), true) => format!("{it},,,"),
                (Cell::Number(it), false) => it.to_string(),
                (other, true) => format!("{},,,", other.text().replace(',', "")),
                (other, false) => other.text().replace(',', ""),
            });
            writeln!(text, "{}", cells.collect::<Vec<_>>().join(",")).expect("a string accepts every write");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_four_columns_in_a_file() {
        let rows = vec![
            vec!["a, b".into(), Spread::of([1.0, 3.0]).into(), 7.0.into()],
            vec!["c".into(), Cell::Nothing, Cell::Nothing],
        ];
        let table =
            Table { name: "t", caption: String::new(), columns: vec!["who", "how many", "paper"], rows };
        assert_eq!(
            table.csv(),
            "who,how many mean,how many deviation,how many least,how many most,paper\n\
             a b,2,1.4142135623730951,1,3,7\nc,,,,,\n"
        );
    }
}

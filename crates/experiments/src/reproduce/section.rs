//! What an experiment leaves.

use std::fmt::Write;

use crate::measures::{Spread, short};

use super::chart::Chart;

/// One experiment.
#[derive(Clone, Debug)]
pub struct Section {
    /// Short, for links.
    pub id: &'static str,
    /// What it is called.
    pub title: String,
    /// Where it stands in the paper.
    pub place: &'static str,
    /// What was done, and what was chosen because the paper does not say it.
    pub text: Vec<String>,
    /// What came of it.
    pub findings: Vec<Finding>,
    /// In pictures.
    pub figures: Vec<Figure>,
    /// In numbers.
    pub tables: Vec<Table>,
}

/// A sentence of the paper beside what was found here.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it is about.
    pub what: String,
    /// What the paper says; empty where it says nothing.
    pub published: String,
    /// What was found.
    pub ours: String,
    /// Whether they agree.
    pub agreement: Agreement,
    /// In a sentence.
    pub sentence: String,
}

/// Whether a finding is that of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// It is.
    Agrees,
    /// It is not.
    Differs,
    /// The paper says too little to repeat it.
    UnderSpecified,
    /// The paper has no such measurement.
    Measured,
}

impl Agreement {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Agreement::Agrees => "agrees",
            Agreement::Differs => "differs",
            Agreement::UnderSpecified => "under-specified",
            Agreement::Measured => "measured",
        }
    }

    /// [`Agreement::Agrees`] or [`Agreement::Differs`].
    pub fn of(agrees: bool) -> Agreement {
        if agrees { Agreement::Agrees } else { Agreement::Differs }
    }
}

/// A picture and the name of its file, without the ending.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Of the file.
    pub name: &'static str,
    /// What stands below it.
    pub caption: String,
    /// It.
    pub chart: Chart,
}

/// A table and the name of its file, without the ending.
#[derive(Clone, Debug)]
pub struct Table {
    /// Of the file.
    pub name: &'static str,
    /// What stands above it.
    pub caption: String,
    /// What the columns are called.
    pub columns: Vec<&'static str>,
    /// Row by row.
    pub rows: Vec<Vec<Cell>>,
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A word.
    Word(String),
    /// One number, such as the paper's.
    Number(f64),
    /// What many runs gave.
    Spread(Spread),
    /// Nothing: the paper does not say.
    Nothing,
}

impl Cell {
    /// For people.
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
    /// With a column each for mean, deviation, least and most where the table has a spread.
    pub fn csv(&self) -> String {
        let spreads: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Spread(_)))))
            .collect();
        let mut text = String::new();
        let titles = self.columns.iter().zip(&spreads).map(|(title, spread)| {
            let title = title.replace(',', "");
            if *spread { format!("{title} mean,{title} deviation,{title} least,{title} most") } else { title }
        });
        writeln!(text, "{}", titles.collect::<Vec<_>>().join(",")).expect("a string takes everything");
        for row in &self.rows {
            let cells = row.iter().zip(&spreads).map(|(cell, spread)| match (cell, spread) {
                (Cell::Spread(it), _) => format!("{},{},{},{}", it.mean, it.deviation, it.least, it.most),
                (Cell::Number(it), true) => format!("{it},,,"),
                (Cell::Number(it), false) => it.to_string(),
                (other, true) => format!("{},,,", other.text().replace(',', "")),
                (other, false) => other.text().replace(',', ""),
            });
            writeln!(text, "{}", cells.collect::<Vec<_>>().join(",")).expect("a string takes everything");
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

//! The result of an experiment.

use std::iter;

use crate::measures::{Spread, short};
use crate::text::comma_separated;

use faultline_report::chart::Chart;

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
    pub grade: Grade,
    /// A sentence that explains the finding.
    pub sentence: String,
}

impl Section {
    /// Creates a section without content.
    pub fn new(id: &'static str, title: impl Into<String>, place: &'static str) -> Section {
        let title = title.into();
        Section {
            id,
            title,
            place,
            text: Vec::new(),
            findings: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Section {
        self.text.push(text.into());
        self
    }

    /// Adds a finding, from the arguments of [`Finding::new`].
    #[must_use]
    pub fn finding(
        self,
        what: impl Into<String>,
        published: impl Into<String>,
        ours: impl Into<String>,
        grade: Grade,
        sentence: impl Into<String>,
    ) -> Section {
        self.findings([Finding::new(what, published, ours, grade, sentence)])
    }

    /// Adds findings.
    #[must_use]
    pub fn findings(mut self, findings: impl IntoIterator<Item = Finding>) -> Section {
        self.findings.extend(findings);
        self
    }

    /// Adds a figure, from the name of its file without the extension, its caption and the picture.
    #[must_use]
    pub fn figure(self, name: &'static str, caption: impl Into<String>, chart: Chart) -> Section {
        self.figures([Figure::new(name, caption, chart)])
    }

    /// Adds figures.
    #[must_use]
    pub fn figures(mut self, figures: impl IntoIterator<Item = Figure>) -> Section {
        self.figures.extend(figures);
        self
    }

    /// Adds a table, from the arguments of [`Table::new`].
    #[must_use]
    pub fn table(
        self,
        name: &'static str,
        caption: impl Into<String>,
        columns: Vec<&'static str>,
        rows: Vec<Vec<Cell>>,
    ) -> Section {
        self.tables([Table::new(name, caption, columns, rows)])
    }

    /// Adds tables.
    #[must_use]
    pub fn tables(mut self, tables: impl IntoIterator<Item = Table>) -> Section {
        self.tables.extend(tables);
        self
    }
}

impl Finding {
    /// Creates a finding from its subject, what the paper states, our result, how the two relate, and a sentence that
    /// explains it.
    pub fn new(
        what: impl Into<String>,
        published: impl Into<String>,
        ours: impl Into<String>,
        grade: Grade,
        sentence: impl Into<String>,
    ) -> Finding {
        let (what, published, ours) = (what.into(), published.into(), ours.into());
        Finding { what, published, ours, grade, sentence: sentence.into() }
    }
}

/// How a finding relates to the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grade {
    /// Our value lies within the tolerance or the interval that the finding states, or a rule holds exactly.
    ValueAgrees,
    /// The values differ, or the paper states none, but they point in the same direction. Contains our value divided by
    /// the paper's if both are known.
    DirectionAgrees(Option<f64>),
    /// The difference on which the claim rests is smaller than the uncertainty of our runs.
    Inseparable,
    /// The finding differs from the paper.
    Differs,
    /// The paper states no value or direction to compare with, or not enough about the experiment.
    NotStated,
}

impl Grade {
    /// How far our value may be from a value or a maximum that the paper measured, relative to the paper's, for the
    /// value to agree.
    pub const TOLERANCE: f64 = 0.2;

    /// The least difference between two means that is material, relative to the greater: the simulator's model of costs
    /// is not precise enough for smaller ones.
    pub const MATERIAL: f64 = 0.005;

    /// The names of all grades, in the order of the counts on a page.
    pub const NAMES: [&str; 5] =
        ["value agrees", "direction agrees", "cannot be told apart", "differs", "not stated"];

    /// Grades a value or a rule that the paper states: `agrees` tells whether ours is within the stated tolerance.
    pub fn value(agrees: bool) -> Grade {
        if agrees { Grade::ValueAgrees } else { Grade::Differs }
    }

    /// Grades a direction or the shape of a curve, for which the paper states no number.
    pub fn direction(agrees: bool) -> Grade {
        if agrees { Grade::DirectionAgrees(None) } else { Grade::Differs }
    }

    /// Grades a maximum that the paper measured. If ours is far below, only the direction agrees.
    pub fn at_most(ours: f64, published: f64) -> Grade {
        if ours > published {
            Grade::Differs
        } else if ours >= published * (1.0 - Grade::TOLERANCE) {
            Grade::ValueAgrees
        } else {
            Grade::DirectionAgrees(Some(ours / published))
        }
    }

    /// Grades the claim that one mean is less than another, given our runs of both. The means cannot be told apart if
    /// there is only one run of either, or if they differ by no more than their uncertainty or [`Self::MATERIAL`].
    pub fn less(smaller: &Spread, larger: &Spread) -> Grade {
        let difference = larger.mean - smaller.mean;
        let uncertainty = smaller.uncertainty().hypot(larger.uncertainty());
        let least = uncertainty.max(Grade::MATERIAL * larger.mean.abs().max(smaller.mean.abs()));
        match smaller.runs.min(larger.runs) > 1 && difference.abs() > least {
            true => Grade::direction(difference > 0.0),
            false => Grade::Inseparable,
        }
    }

    /// Grades a single run of the paper, given ours: the value agrees if about 95 % of our runs are as far from their
    /// mean.
    pub fn sample(published: f64, ours: &Spread) -> Grade {
        Grade::value(ours.is_near(published, 2.0 * ours.deviation))
    }

    /// Returns the name of the grade.
    pub fn name(self) -> &'static str {
        Grade::NAMES[match self {
            Grade::ValueAgrees => 0,
            Grade::DirectionAgrees(_) => 1,
            Grade::Inseparable => 2,
            Grade::Differs => 3,
            Grade::NotStated => 4,
        }]
    }

    /// Returns the words for a report: the name, and the factor between the two values if there is one.
    pub fn text(self) -> String {
        match self {
            Grade::DirectionAgrees(Some(factor)) => format!("{} (factor {})", self.name(), short(factor)),
            _ => self.name().to_owned(),
        }
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

impl Figure {
    /// Creates a figure from the name of its file without the extension, its caption and the picture.
    pub fn new(name: &'static str, caption: impl Into<String>, chart: Chart) -> Figure {
        Figure { name, caption: caption.into(), chart }
    }
}

impl Table {
    /// Creates a table from the name of its file without the extension, its caption, the titles of its columns and its
    /// rows.
    pub fn new(
        name: &'static str,
        caption: impl Into<String>,
        columns: Vec<&'static str>,
        rows: Vec<Vec<Cell>>,
    ) -> Table {
        Table { name, caption: caption.into(), columns, rows }
    }

    /// Formats the table as CSV. A column with spreads becomes four columns: mean, deviation, least and most.
    pub fn csv(&self) -> String {
        let spreads: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Spread(_)))))
            .collect();
        let titles = self.columns.iter().zip(&spreads).flat_map(|(title, spread)| match spread {
            true => ["mean", "deviation", "least", "most"].map(|it| format!("{title} {it}")).to_vec(),
            false => vec![(*title).to_owned()],
        });
        let rows = self.rows.iter().map(|row| {
            let cells = row.iter().zip(&spreads).flat_map(|(cell, spread)| {
                let mut cells = match cell {
                    Cell::Spread(it) => {
                        [it.mean, it.deviation, it.least, it.most].map(|it| it.to_string()).to_vec()
                    }
                    Cell::Number(it) => vec![it.to_string()],
                    other => vec![other.text()],
                };
                cells.resize(if *spread { 4 } else { 1 }, String::new());
                cells
            });
            cells.collect()
        });
        comma_separated(iter::once(titles.collect::<Vec<String>>()).chain(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_far_below_a_published_maximum_agrees_only_in_its_direction() {
        assert_eq!(Grade::at_most(5.8, 5.7), Grade::Differs);
        assert_eq!(Grade::at_most(4.6, 5.7), Grade::ValueAgrees);
        assert_eq!(Grade::at_most(0.5, 5.0).text(), "direction agrees (factor 0.1)");
    }

    #[test]
    fn means_closer_than_their_uncertainty_cannot_be_told_apart() {
        let around = |mean: f64| Spread::of([mean - 1.0, mean, mean + 1.0]);
        assert_eq!(Grade::less(&around(206.0), &around(206.1)), Grade::Inseparable);
        assert_eq!(Grade::less(&around(200.0), &around(206.0)), Grade::DirectionAgrees(None));
        assert_eq!(Grade::less(&around(206.0), &around(200.0)), Grade::Differs);
        assert_eq!(Grade::less(&Spread::of([206.0; 3]), &Spread::of([206.1; 3])), Grade::Inseparable);
        assert_eq!(Grade::less(&Spread::of([1.0]), &Spread::of([9.0])), Grade::Inseparable, "one run each");
    }

    #[test]
    fn a_single_run_of_the_paper_is_compared_with_the_deviation_of_our_runs() {
        let ours = Spread::of([9.0, 10.0, 11.0]);
        assert_eq!(Grade::sample(8.0, &ours), Grade::ValueAgrees);
        assert_eq!(Grade::sample(7.9, &ours), Grade::Differs);
    }

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
             \"a, b\",2,1.4142135623730951,1,3,7\nc,,,,,\n"
        );
    }
}

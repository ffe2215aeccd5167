//! Tables and sentences of at most [`width`] columns.

use std::sync::atomic::{AtomicUsize, Ordering};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use textwrap::{Options, WordSeparator, WordSplitter};

/// The maximum number of characters in a line of text output, unless the terminal is narrower.
pub const WIDTH: usize = 100;
/// The least width for which text is laid out. On a narrower terminal, lines are broken anywhere.
const LEAST: usize = 40;
/// The maximum width of a title that is wider than the cells below it. Longer titles take several lines.
const TITLE: usize = 12;

/// See [`width`].
static COLUMNS: AtomicUsize = AtomicUsize::new(WIDTH);

/// Returns the maximum number of characters in a line: [`WIDTH`], unless a program has [fitted](fit) its output to a
/// narrower terminal.
pub fn width() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}

/// Fits all later output of the program to a terminal with this number of columns.
pub fn fit(columns: usize) {
    COLUMNS.store(columns.clamp(LEAST, WIDTH), Ordering::Relaxed);
}

/// Returns an empty table without borders and colours. If its rows are wider than [`width`], their cells take several
/// lines.
pub fn table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width() as u16);
    table
}

/// Aligns all columns after the first `left` ones to the right.
pub fn align_right(table: &mut Table, left: usize) {
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Formats a table, each line with a line break. Never breaks a word, such as a path.
pub fn lines(table: &Table) -> String {
    let mut table = table.clone();
    // For each column, the lengths of its longest line and word. A column has a space on both sides.
    let mut longest = vec![(2, 2); table.column_count()];
    for row in table.header().into_iter().chain(table.row_iter()) {
        for ((line, word), cell) in longest.iter_mut().zip(row.cell_iter()) {
            let content = cell.content();
            let most = |parts: &mut dyn Iterator<Item = &str>| parts.map(|it| it.chars().count() + 2).max();
            *line = most(&mut content.lines()).unwrap_or(2).max(*line);
            *word = most(&mut content.split_whitespace()).unwrap_or(2).max(*word);
        }
    }
    if longest.iter().map(|it| it.0).sum::<usize>() > usize::from(table.width().unwrap_or(u16::MAX)) {
        for (column, (_, word)) in table.column_iter_mut().zip(longest) {
            let least = Width::Fixed(u16::try_from(word).unwrap_or(u16::MAX));
            column.set_constraint(ColumnConstraint::LowerBoundary(least));
        }
    }
    table.lines().map(|it| format!("{}\n", it.trim_end())).collect()
}

/// Formats rows under titles.
pub fn titled<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = table();
    table.set_header(titles).add_rows(rows);
    lines(&table)
}

/// Formats rows whose first `labels` cells name the row. If the other columns do not fit next to each other, formats
/// several tables, each of which repeats the names.
///
/// # Panics
///
/// Panics if a row has fewer cells than there are titles.
pub fn split(labels: usize, titles: &[&str], rows: &[Vec<String>]) -> String {
    split_at(width(), labels, titles, rows)
}

fn split_at(most: usize, labels: usize, titles: &[&str], rows: &[Vec<String>]) -> String {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = titles
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = rows.iter().map(|row| length(&row[column])).max().unwrap_or(0);
            let words = title.split(' ').map(length).max().unwrap_or(0);
            cells.max(words).max(length(title).min(TITLE))
        })
        .collect();
    // Each column has a space on both sides.
    let room = |columns: &[usize]| columns.iter().map(|it| widths[*it] + 2).sum::<usize>();
    let named: Vec<usize> = (0..labels).collect();
    let mut parts = vec![named.clone()];
    for column in labels..titles.len() {
        let part = parts.last_mut().expect("there is a part");
        part.push(column);
        if room(part) > most && part.len() > labels + 1 {
            part.pop();
            parts.push(named.iter().copied().chain([column]).collect());
        }
    }
    let part = |columns: Vec<usize>| {
        let mut table = table();
        table.set_width(most as u16);
        table.set_header(columns.iter().map(|&it| textwrap::fill(titles[it], options(widths[it]))));
        table.add_rows(rows.iter().map(|row| columns.iter().map(|&it| row[it].clone())));
        align_right(&mut table, labels);
        lines(&table)
    };
    parts.into_iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Wraps a sentence. Begins the first line with `first`, and the following lines with as many spaces. Never breaks a
/// word, such as a path.
pub fn wrapped(first: &str, sentence: &str) -> String {
    let indent = " ".repeat(first.chars().count());
    textwrap::fill(sentence, options(width()).initial_indent(first).subsequent_indent(&indent)) + "\n"
}

/// Wraps the lines that do not fit, and leaves all others unchanged. Indents what follows a line break by two more columns
/// than the line. Never breaks a word.
pub fn filled(text: &str) -> String {
    let fill = |line: &str| {
        if textwrap::core::display_width(line) <= width() {
            return format!("{line}\n");
        }
        let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len() + 2);
        textwrap::fill(line, options(width()).subsequent_indent(&indent)) + "\n"
    };
    text.lines().map(fill).collect()
}

fn options(width: usize) -> Options<'static> {
    Options::new(width)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_follow_in_another_table() {
        let titles = ["protocol", "verdicts", "processes rolled back, per outage"];
        let row = |name: &str| vec![name.to_owned(), "10 pass".to_owned(), "100 %".to_owned()];
        let rows = [row("hc3i"), row("hierarchicalCoordinated")];
        insta::assert_snapshot!(split(1, &titles, &rows), @r"
        protocol                 verdicts     processes
                                           rolled back,
                                             per outage
        hc3i                      10 pass         100 %
        hierarchicalCoordinated   10 pass         100 %
        ");
        let titles: Vec<&str> =
            std::iter::once("protocol").chain(["overhead over an unprotected run"; 9]).collect();
        let row = |name: &str| {
            std::iter::once(name.to_owned()).chain((0..9).map(|it| format!("{it}.25 %"))).collect()
        };
        let wide = split(1, &titles, &[row("hc3i"), row("hierarchicalCoordinated")]);
        assert!(wide.lines().all(|it| it.chars().count() <= WIDTH), "{wide}");
        assert_eq!(
            (wide.matches("hierarchicalCoordinated").count(), wide.matches(".25 %").count()),
            (2, 18),
            "{wide}"
        );
    }

    #[test]
    fn a_table_fits_a_narrow_terminal() {
        let titles: Vec<&str> = std::iter::once("protocol").chain(["lost work, per outage"; 6]).collect();
        let row = |name: &str| -> Vec<String> {
            std::iter::once(name.to_owned()).chain((0..6).map(|it| format!("{it}00.25 +- 3.25 s"))).collect()
        };
        let rows = [row("hc3i"), row("hierarchicalCoordinated")];
        for (most, tables) in [(200, 1), (WIDTH, 2), (80, 2), (LEAST, 6)] {
            let text = split_at(most, 1, &titles, &rows);
            assert!(text.lines().all(|it| it.chars().count() <= most.max(43)), "{most}: {text}");
            assert_eq!(text.matches("hc3i").count(), tables, "{most}: {text}");
            assert_eq!(text.matches(".25 +-").count(), 12, "{most}: {text}");
        }
    }

    #[test]
    fn a_table_that_is_too_wide_breaks_no_word() {
        let row = |cell: &str| [cell.to_owned(), "6 (incarnation 1)".to_owned(), "word ".repeat(30)];
        let text = titled(["rollback of", "to checkpoint", "meaning"], [row("paris"), row("rennes")]);
        assert!(text.lines().all(|it| it.chars().count() <= WIDTH), "{text}");
        let known = [
            "rollback",
            "of",
            "to",
            "checkpoint",
            "meaning",
            "paris",
            "rennes",
            "6",
            "(incarnation",
            "1)",
            "word",
        ];
        assert!(text.split_whitespace().all(|it| known.contains(&it)), "{text}");
    }

    #[test]
    fn only_lines_that_do_not_fit_are_wrapped() {
        let fits = "  a    b".to_owned() + &" word".repeat(18);
        let text = filled(&format!("{fits}\n{fits} end\n\n"));
        assert_eq!(text, format!("{fits}\n{fits}\n    end\n\n"));
    }

    #[test]
    fn a_sentence_is_indented_and_its_words_are_whole() {
        let path = "a/".repeat(60);
        let text = wrapped("  - ", &format!("{} {path} end", "word ".repeat(20).trim()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1].trim_start()), (4, "word"), "{text}");
        assert_eq!((lines[0].split_at(4).0, lines[2]), ("  - ", &*format!("    {path}")));
        assert!(lines[0].len() <= WIDTH);
    }
}

//! The terms that reports use, with their definitions from `docs/glossary.md`. A report contains them, because it may
//! be read without the documents.

use maud::{Markup, html};

const GLOSSARY: &str = include_str!("../../../docs/glossary.md");

/// Terms of the page of a run.
pub(crate) const OF_A_RUN: &[&str] = &[
    "cluster loss",
    "forced checkpoint",
    "freeze",
    "ghost",
    "incarnation",
    "instance",
    "life",
    "lost work",
    "property",
    "recovery line",
    "re-sent",
    "rollback",
    "skew",
    "stale",
    "time to recover",
    "undone",
    "unforced checkpoint",
    "unrecoverable",
    "verdict",
];

/// Terms of the page of a run of a system.
pub(crate) const OF_A_SYSTEM: &[&str] = &["cluster loss", "instance", "life", "property", "skew", "verdict"];

/// A row of the glossary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    name: &'static str,
    /// The papers' term, if it differs; empty otherwise.
    in_papers: &'static str,
    definition: &'static str,
}

/// Renders the definitions of these terms, collapsed at first.
pub(crate) fn section(names: &[&str]) -> Markup {
    html! {
        h2 { "Terms" }
        details {
            summary { "Definitions of the terms on this page" }
            dl {
                @for term in terms().filter(|it| names.contains(&it.name)) {
                    dt { (term.name) @if !term.in_papers.is_empty() { span.hint { " (in the papers: " (plain(term.in_papers)) ")" } } }
                    dd { (plain(term.definition)) }
                }
            }
        }
    }
}

/// Returns the rows of the glossary's table.
fn terms() -> impl Iterator<Item = Term> {
    GLOSSARY.lines().skip_while(|it| !it.starts_with("| ---")).skip(1).filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        Some(Term { name: cells.next()?, in_papers: cells.next()?, definition: cells.next()? })
    })
}

/// Removes the markup of a cell: code, emphasis and links. Links would lead to documents that are not part of the
/// page.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(shown, after)| Some((shown, after.split_once(')')?.1)));
        let Some((shown, after)) = parts else { break };
        plain.push_str(before);
        plain.push_str(shown);
        rest = after;
    }
    plain.push_str(rest);
    plain.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_glossary_defines_every_term_of_the_page() {
        let names: Vec<&str> = terms().map(|it| it.name).collect();
        let missing: Vec<_> = OF_A_RUN.iter().filter(|it| !names.contains(it)).collect();
        assert_eq!(missing, Vec::<&&str>::new());
        assert!(terms().all(|it| !it.definition.is_empty()));
    }

    #[test]
    fn a_definition_has_no_markup() {
        assert_eq!(
            plain("One *run* of `a`. [Facts](bundle.md#facts) are [all](x)."),
            "One run of a. Facts are all."
        );
        assert_eq!(plain("a [b"), "a [b");
    }
}

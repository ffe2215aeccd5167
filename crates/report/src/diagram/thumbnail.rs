//! A small picture of a run without messages and names, for lists.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::Diagram;

/// The size of the picture, in pixels.
const WIDTH: usize = 200;
const HEIGHT: usize = 40;
/// The maximum number of rows. If there are more processes, each cluster has one row.
const MOST_ROWS: usize = 12;
/// The classes of the states, from the least to the most important one.
const STATES: [&str; 3] = ["undone", "recovering", "down"];

/// Draws the work that was undone, recoveries and outages as stretches of rows, and faults as lines.
pub(crate) fn render(diagram: &Diagram) -> Markup {
    let by_cluster = diagram.lanes.len() > MOST_ROWS;
    let rows = if by_cluster { diagram.clusters.len() } else { diagram.lanes.len() }.max(1);
    let span = (diagram.end - diagram.begin).max(1) as f64;
    let column = |at: i64| {
        ((at - diagram.begin) as f64 / span * (WIDTH - 1) as f64).clamp(0.0, (WIDTH - 1) as f64) as usize
    };
    let cluster = |lane: usize| diagram.clusters.iter().rposition(|it| it.first <= lane).unwrap_or(0);
    let row = |lane: usize| if by_cluster { cluster(lane) } else { lane }.min(rows - 1);
    // The state of each row in each column; 0 is none of them.
    let mut states = vec![[0_usize; WIDTH]; rows];
    let periods =
        |all: &[super::Stretch]| all.iter().map(|it| (it.lane, it.from, it.upto)).collect::<Vec<_>>();
    let outages = diagram.outages.iter().map(|it| (it.lane, it.from, it.upto)).collect();
    for (state, all) in [periods(&diagram.undone), periods(&diagram.recoveries), outages].iter().enumerate() {
        for &(lane, from, upto) in all {
            states[row(lane)][column(from)..=column(upto.max(from))]
                .iter_mut()
                .for_each(|it| *it = (*it).max(state + 1));
        }
    }
    let mut paths = [const { String::new() }; STATES.len()];
    for (row, states) in states.iter().enumerate() {
        let mut from = 0;
        for part in states.chunk_by(|a, b| a == b) {
            if let Some(path) = part[0].checked_sub(1).map(|it| &mut paths[it]) {
                let _ = write!(path, "M{from} {row}.5h{}", part.len());
            }
            from += part.len();
        }
    }
    let mut faults: Vec<usize> = diagram.faults.iter().map(|it| column(it.at)).collect();
    faults.dedup();
    let faults: String = faults.iter().map(|it| format!("M{it}.5 0v{rows}")).collect();
    let begins = |index: usize| if by_cluster { index } else { diagram.clusters[index].first };
    html! {
        svg.thumbnail viewBox={ "0 0 " (WIDTH) " " (rows) } width=(WIDTH) height=(HEIGHT) preserveAspectRatio="none"
            aria-hidden="true" {
            @for index in 0..diagram.clusters.len() {
                @let end = if index + 1 < diagram.clusters.len() { begins(index + 1) } else { rows };
                rect class={ "c" (index % 6) } y=(begins(index)) width=(WIDTH) height=(end - begins(index)) {}
            }
            @for (class, path) in STATES.iter().zip(paths).filter(|it| !it.1.is_empty()) { path class=(class) d=(path) {} }
            @if !faults.is_empty() { path.fault d=(faults) {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterLanes, Injected, Outage, Stretch};
    use super::*;

    fn diagram(lanes: usize) -> Diagram {
        let cluster = |name: &str, first, lanes| ClusterLanes { name: name.into(), first, lanes };
        Diagram {
            end: 1000,
            clusters: vec![cluster("a", 0, 2), cluster("b", 2, lanes - 2)],
            lanes: (0..lanes).map(|it| it.to_string()).collect(),
            outages: vec![Outage { lane: 3, from: 500, upto: 600, text: String::new() }],
            undone: vec![Stretch { lane: 3, from: 0, upto: 550 }],
            faults: vec![Injected { at: 500, text: String::new(), no: 0 }],
            ..Diagram::default()
        }
    }

    #[test]
    fn the_most_important_state_of_a_row_is_shown() {
        let few = render(&diagram(4)).into_string();
        assert!(
            few.contains("class=\"undone\" d=\"M0 3.5h99\"")
                && few.contains("class=\"down\" d=\"M99 3.5h21\""),
            "{few}"
        );
        assert!(few.contains("d=\"M99.5 0v4\"") && !few.contains("recovering"), "{few}");
        let many = render(&diagram(50)).into_string();
        assert!(many.contains("d=\"M99 1.5h21\"") && many.contains("viewBox=\"0 0 200 2\""), "{many}");
        assert!(!render(&Diagram::default()).into_string().contains("path"), "an empty run");
    }
}

//! A map of the clusters and the links between them: the delays that were asked for and measured, and the links that are
//! cut. The page's script shows the state at one time.

use std::collections::BTreeMap;
use std::f64::consts::PI;

use faultline_core::{ClusterId, Span};
use faultline_trace::Manifest;
use faultline_trace::duration::lasted;
use maud::{Markup, html};

use crate::explain::count;
use crate::names::DisplayNames;

/// The maximum number of clusters that are drawn. Above it, a table shows the links.
const MOST_DRAWN: usize = 5;
/// The maximum number of clusters whose links all fit in a table.
const MOST_TABLED: usize = 16;
/// The number of links that are shown if there are more: those whose delays differ the most from what was asked for.
const FURTHEST: usize = 20;

const WIDTH: f64 = 560.0;
const NODE_HEIGHT: f64 = 58.0;
/// The distance between the two directions of a link, in pixels.
const APART: f64 = 9.0;

/// One direction of a link, or the network of a cluster.
#[derive(Clone, Copy)]
struct Delay {
    asked: Span,
    measured: Option<Span>,
}

impl Delay {
    fn text(&self) -> String {
        match self.measured {
            None => lasted(self.asked),
            Some(measured) => format!("{} / {}", lasted(self.asked), lasted(measured)),
        }
    }

    /// Returns how far the measured delay is from the one that was asked for.
    fn off(&self) -> u64 {
        self.measured.map_or(0, |it| it.0.abs_diff(self.asked.0))
    }
}

/// Renders the map of a run; nothing if there is only one cluster.
pub(crate) fn render(manifest: &Manifest, names: &DisplayNames) -> Markup {
    // The last entry of a link is the newest.
    let links: BTreeMap<(ClusterId, ClusterId), Delay> = manifest
        .links
        .iter()
        .map(|it| {
            let measured = it.observed.map(|it| it.mean).or(it.measured.map(|it| it.latency));
            ((it.from, it.to), Delay { asked: it.requested.latency, measured })
        })
        .collect();
    let is_measured = links.values().any(|it| it.measured.is_some());
    let (shown, hint) = match names.clusters().count() {
        0 | 1 => return html! {},
        number if number <= MOST_DRAWN => (drawing(&links, names), ""),
        number if number <= MOST_TABLED => (matrix(&links, names), ""),
        _ => (furthest(&links, names), " The links whose delays differ the most from the request."),
    };
    html! {
        div #map {
            (shown)
            p.hint {
                "One-way delay of each link" @if is_measured { ": requested / measured" } ". A dashed line is cut." (hint)
            }
        }
    }
}

fn drawing(links: &BTreeMap<(ClusterId, ClusterId), Delay>, names: &DisplayNames) -> Markup {
    let clusters: Vec<ClusterId> = names.clusters().collect();
    let inside = |it: &ClusterId| links.get(&(*it, *it)).map_or_else(String::new, Delay::text);
    let wide = |it: &ClusterId| {
        let processes = names.processes(*it).len() as u64;
        let up = format!("{processes} of {processes} up");
        box_width(&shortened(&names.cluster(*it)), &[&count(processes, "process"), &up, &inside(it)])
    };
    let (height, places) = layout(clusters.len());
    html! {
        svg.map viewBox={ "0 0 " (WIDTH) " " (height) } role="group" aria-label="Map of the links" {
            @for (from, &a) in clusters.iter().zip(&places) { @for (to, &b) in clusters.iter().zip(&places) {
                @if let Some(link) = links.get(&(*from, *to)).filter(|_| from != to) {
                    (line((*from, *to), (a, wide(from)), (b, wide(to)), link, names))
                }
            } }
            @for (cluster, (x, y)) in clusters.iter().zip(&places) {
                @let (wide, processes) = (wide(cluster), names.processes(*cluster).len() as u64);
                g class={ "c" (cluster.index() % 6) } {
                    rect x=(px(x - wide / 2.0)) y=(px(y - NODE_HEIGHT / 2.0)) width=(px(wide)) height=(NODE_HEIGHT) rx="9" {}
                    text.name x=(px(*x)) y=(px(y - 10.0)) { (shortened(&names.cluster(*cluster))) }
                    text x=(px(*x)) y=(px(y + 6.0)) data-up=(cluster.index()) { (count(processes, "process")) }
                    text x=(px(*x)) y=(px(y + 21.0)) { (inside(cluster)) }
                }
            }
        }
    }
}

/// The least and the largest width of a box.
const BOX: (f64, f64) = (104.0, 188.0);

/// Returns the width of a box in which a name and other texts fit, in the sizes that a narrow window uses.
fn box_width(name: &str, texts: &[&str]) -> f64 {
    let wide = |text: &str, character: f64| text.chars().count() as f64 * character + 16.0;
    texts.iter().map(|it| wide(it, 8.0)).fold(wide(name, 9.4), f64::max).clamp(BOX.0, BOX.1)
}

/// Returns the height of the map, and the centre of each cluster.
fn layout(clusters: usize) -> (f64, Vec<(f64, f64)>) {
    if clusters == 2 {
        return (120.0, vec![(96.0, 60.0), (WIDTH - 96.0, 60.0)]);
    }
    let (middle, wide, high) = (WIDTH / 2.0, WIDTH / 2.0 - 96.0, 150.0);
    let place = |it: usize| {
        let angle = 2.0 * PI * it as f64 / clusters as f64 - PI / 2.0;
        (middle + wide * angle.cos(), high + 40.0 + high * angle.sin())
    };
    (2.0 * high + 80.0, (0..clusters).map(place).collect())
}

/// A centre and the width of its box.
type Node = ((f64, f64), f64);

fn line(
    (from, to): (ClusterId, ClusterId),
    (a, a_wide): Node,
    (b, b_wide): Node,
    link: &Delay,
    names: &DisplayNames,
) -> Markup {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy);
    let (ux, uy) = (dx / length, dy / length);
    // From the edge of one box to the edge of the other, to the right of the middle.
    let reach =
        |wide: f64| (wide / 2.0 / ux.abs().max(1e-9)).min(NODE_HEIGHT / 2.0 / uy.abs().max(1e-9)) + 3.0;
    let point = |of: f64| (a.0 + ux * of - uy * APART, a.1 + uy * of + ux * APART);
    let ((x1, y1), (x2, y2)) = (point(reach(a_wide)), point(length - reach(b_wide)));
    let (start, end) = (reach(a_wide), length - reach(b_wide));
    let (x, y) = point(start + (end - start) * if uy.abs() < 0.05 { 0.5 } else { 0.36 });
    let y = y + if uy.abs() < 0.05 { 13.0 * ux.signum() + 4.0 } else { 4.0 };
    let title = format!("{} to {}: {}", names.cluster(from), names.cluster(to), link.text());
    html! {
        g.link data-link={ (from.index()) ">" (to.index()) } {
            title { (title) }
            line x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) {}
            path d="M0 0-7-3.5-7 3.5Z" transform={ "translate(" (px(x2)) " " (px(y2)) ") rotate(" (px(dy.atan2(dx).to_degrees())) ")" } {}
            text x=(px(x)) y=(px(y)) { (link.text()) }
        }
    }
}

fn matrix(links: &BTreeMap<(ClusterId, ClusterId), Delay>, names: &DisplayNames) -> Markup {
    html! {
        div.table.matrix { table {
            thead { tr { th { "from \u{2193} to \u{2192}" } @for to in names.clusters() { th.num { (names.cluster(to)) } } } }
            tbody { @for from in names.clusters() { tr {
                th { (names.cluster(from)) }
                @for to in names.clusters() {
                    td.num data-link={ (from.index()) ">" (to.index()) } {
                        @if let Some(link) = links.get(&(from, to)) { (link.text()) }
                    }
                }
            } } }
        } }
    }
}

fn furthest(links: &BTreeMap<(ClusterId, ClusterId), Delay>, names: &DisplayNames) -> Markup {
    let mut all: Vec<_> = links.iter().collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.1.off()));
    html! {
        div.table { table {
            thead { tr { th { "link" } th.num { "delay" } } }
            tbody { @for ((from, to), link) in all.into_iter().take(FURTHEST) { tr {
                td { (names.cluster(*from)) @if from != to { " to " (names.cluster(*to)) } }
                td.num data-link={ (from.index()) ">" (to.index()) } { (link.text()) }
            } } }
        } }
    }
}

/// Returns a name of at most 18 characters.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(17) {
        Some((end, last)) if end + last.len_utf8() < name.len() => format!("{}\u{2026}", &name[..end]),
        _ => name.to_owned(),
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::LinkProperties;
    use faultline_core::{Promises, Scope, Time};
    use faultline_trace::manifest::{LinkEntry, LinkObserved};

    use super::*;

    fn map(clusters: u16) -> String {
        let mut manifest =
            Manifest::bare(Promises::of_scope(Scope::Cluster), &vec![2; usize::from(clusters)]);
        let link = |from: u16, to: u16, since: Option<Time>, mean: Option<u64>| LinkEntry {
            from: ClusterId(from),
            to: ClusterId(to),
            requested: LinkProperties {
                latency: Span::from_millis(5 + u64::from(from)),
                ..LinkProperties::default()
            },
            measured: None,
            observed: mean.map(|it| LinkObserved { echoes: 9, outside: 0, mean: Span::from_millis(it) }),
            since,
        };
        for from in 0..clusters {
            manifest.links.extend((0..clusters).map(|to| link(from, to, None, None)));
        }
        // The newest entry counts.
        manifest.links.push(link(1, 0, Some(Time(7)), Some(44)));
        render(&manifest, &DisplayNames::new(&manifest)).into_string()
    }

    #[test]
    fn every_link_is_on_the_map() {
        assert_eq!(map(1), "");
        for clusters in [2, 5, 6, 16] {
            let text = map(clusters);
            let is_table = clusters > 5;
            let number = usize::from(if is_table { clusters * clusters } else { clusters * (clusters - 1) });
            assert_eq!(text.matches("data-link").count(), number, "{text}");
            assert_eq!(text.contains("<svg"), !is_table);
            assert_eq!(text.matches("6.00 ms / 44.0 ms").count(), if is_table { 1 } else { 2 }, "{text}");
            assert!(text.contains("requested / measured") && !text.contains("NaN"), "{text}");
        }
        let furthest = map(17);
        assert_eq!(furthest.matches("data-link").count(), FURTHEST);
        let first = furthest.find("data-link").unwrap();
        assert!(furthest[first..].starts_with("data-link=\"1&gt;0\""), "{}", &furthest[first..first + 40]);
    }

    #[test]
    fn texts_fit_in_their_boxes() {
        let long = shortened("a-cluster-with-a-long-name");
        assert!(long.chars().count() as f64 * 9.4 <= box_width(&long, &[]) - 8.0, "{long}");
        assert_eq!(shortened("a-rather-long-name"), "a-rather-long-name");
        let delays = "12.3 ms / 12.4 ms";
        assert!(delays.chars().count() as f64 * 8.0 <= box_width("a", &[delays]) - 8.0);
        assert_eq!(box_width("a", &["2 of 2 up"]), BOX.0);
    }

    #[test]
    fn boxes_are_within_the_map() {
        for clusters in 2..=MOST_DRAWN {
            let (height, places) = layout(clusters);
            for (x, y) in places {
                assert!((BOX.1 / 2.0..=WIDTH - BOX.1 / 2.0).contains(&x));
                assert!((NODE_HEIGHT / 2.0..=height - NODE_HEIGHT / 2.0).contains(&y));
            }
        }
    }
}

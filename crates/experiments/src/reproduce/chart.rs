//! Figures as SVG: lines with the range of all runs behind them, in the colours of the other pages.

use faultline_report::style;
use maud::{Markup, PreEscaped, html};

use crate::measures::{Spread, short};

/// A line chart, drawn as SVG.
#[derive(Clone, Debug)]
pub struct Chart {
    /// A description for screen readers.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: String,
    /// The label of the vertical axis, with its unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Values stated in the paper: a name and a value on the vertical axis.
    pub stated: Vec<(String, f64)>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// The line's name in the legend.
    pub name: String,
    /// The points, ascending by x.
    pub points: Vec<(f64, Spread)>,
}

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 346.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 16.0;
/// The margin at the top, which includes a line for the label of the vertical axis.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// The width of a character in the legend.
const CHARACTER: f64 = 6.4;

/// The styles of the picture, in addition to the colours of the page.
pub const STYLE: &str = ".chart text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;fill:var(--faint)}\
.chart .grid{stroke:var(--grid)}.chart .middle{text-anchor:middle}.chart .end{text-anchor:end}\
.chart .band{fill:var(--c);fill-opacity:.16}.chart .mean{fill:none;stroke:var(--c);stroke-width:2}\
.chart .dot{fill:var(--c);stroke:var(--paper);stroke-width:1.5}\
.chart .sign{fill:none;stroke:var(--c);stroke-width:2.2;stroke-linecap:round}\
.chart .stated{stroke:var(--bad);stroke-width:1.6;stroke-dasharray:6 4}.chart .key{fill:var(--ink)}";

impl Chart {
    /// Renders the picture for a page that includes the common style and [`STYLE`].
    pub fn markup(&self) -> Markup {
        let area = PlotArea::new(self);
        html! {
            svg.chart xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (HEIGHT + area.legend) }
                role="img" aria-label=(self.title) {
                (area.axes())
                @for (index, series) in self.series.iter().enumerate() { (area.line(index, series)) }
                @for (_, at) in &self.stated {
                    line.stated x1=(LEFT) x2=(WIDTH - RIGHT) y1=(n(area.y(*at))) y2=(n(area.y(*at))) {}
                }
                (area.legend())
            }
        }
    }

    /// Renders the picture as a separate file.
    pub fn file(&self) -> String {
        let area = PlotArea::new(self);
        let (width, height) = (WIDTH, HEIGHT + area.legend);
        let picture = self.markup();
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
                style { (PreEscaped(style::PALETTE)) (PreEscaped(style::CLUSTERS)) (PreEscaped(STYLE)) ".paper{fill:var(--paper)}" }
                rect.paper width=(width) height=(height) {}
                (picture)
            }
        };
        markup.into_string()
    }
}

struct PlotArea<'a> {
    chart: &'a Chart,
    x: (f64, f64),
    top: f64,
    step: f64,
    /// The height of the legend.
    legend: f64,
}

impl<'a> PlotArea<'a> {
    fn new(chart: &'a Chart) -> PlotArea<'a> {
        let points = || chart.series.iter().flat_map(|it| &it.points);
        let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let heights = points().map(|(_, it)| it.most).chain(chart.stated.iter().map(|it| it.1));
        let highest = heights.fold(1.0, f64::max);
        let step = round_step(highest / 5.0);
        let rows = chart.legend_rows().len() as f64;
        let top = (highest / step).ceil() * step;
        PlotArea { chart, x: (least.min(0.0), most.max(least + 1.0)), top, step, legend: rows * 20.0 + 4.0 }
    }

    fn x(&self, value: f64) -> f64 {
        let (least, most) = self.x;
        LEFT + (value - least) / (most - least) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self) -> Markup {
        let steps = (self.top / self.step).round() as u32;
        let wide = round_step((self.x.1 - self.x.0) / 6.0);
        let ticks = (0..).map(|it| f64::from(it) * wide).take_while(|it| *it <= self.x.1);
        let ticks: Vec<f64> = ticks.filter(|it| *it >= self.x.0).collect();
        html! {
            @for step in 0..=steps {
                @let value = f64::from(step) * self.step;
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(n(self.y(value))) y2=(n(self.y(value))) {}
                text.end x=(LEFT - 7.0) y=(n(self.y(value) + 4.0)) { (short(value)) }
            }
            @for value in ticks {
                text.middle x=(n(self.x(value))) y=(HEIGHT - BOTTOM + 17.0) { (short(value)) }
            }
            text.middle x=(n((LEFT + WIDTH - RIGHT) / 2.0)) y=(HEIGHT - 8.0) { (self.chart.x) }
            text x="4" y="14" { (self.chart.y) }
        }
    }

    fn line(&self, index: usize, series: &Series) -> Markup {
        let place = |(x, value): (f64, f64)| format!("{},{}", n(self.x(x)), n(self.y(value)));
        let path = |values: Vec<(f64, f64)>| values.into_iter().map(place).collect::<Vec<_>>().join(" ");
        let mean = path(series.points.iter().map(|(x, it)| (*x, it.mean)).collect());
        let upper = series.points.iter().map(|(x, it)| (*x, it.most));
        let lower = series.points.iter().rev().map(|(x, it)| (*x, it.least));
        let band = path(upper.chain(lower).collect());
        html! {
            g class={ "c" (index % 6) } {
                polygon.band points=(band) {}
                polyline.mean points=(mean) {}
                @for (x, it) in &series.points {
                    @let title = html! { title { (series.name) " at " (short(*x)) ": " (it.text()) } };
                    (self.chart.sign(index, (self.x(*x), self.y(it.mean)), title))
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        let names = self.chart.names();
        html! {
            @for (row, entries) in self.chart.legend_rows().iter().enumerate() {
                @for &(entry, x) in entries {
                    @let (name, y) = (&names[entry], HEIGHT + 10.0 + row as f64 * 20.0);
                    @if entry < self.chart.series.len() {
                        g class={ "c" (entry % 6) } {
                            @if self.chart.series[entry].points.len() > 1 {
                                line.mean x1=(n(x)) x2=(n(x + 20.0)) y1=(y) y2=(y) {}
                            }
                            (self.chart.sign(entry, (x + 10.0, y), html! {}))
                        }
                    } @else {
                        line.stated x1=(n(x)) x2=(n(x + 20.0)) y1=(y) y2=(y) {}
                    }
                    text.key x=(n(x + 26.0)) y=(y + 4.0) { (name) }
                }
            }
        }
    }
}

impl Chart {
    /// Renders the marker of a point: a dot or, for a series of one point, one of several shapes, so that points at
    /// the same place can be distinguished without colours.
    fn sign(&self, index: usize, (x, y): (f64, f64), title: Markup) -> Markup {
        let alone = |it: &Series| it.points.len() == 1;
        let place = self.series[..index].iter().filter(|it| alone(it)).count();
        if !alone(&self.series[index]) {
            return html! { circle.dot cx=(n(x)) cy=(n(y)) r="3.4" { (title) } };
        }
        let path = match place % 3 {
            // A ring, a cross inside it, and a diamond around it.
            0 => format!("M{} {}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0z", n(x - 7.0), n(y)),
            1 => format!("M{} {}l8 8m0 -8l-8 8", n(x - 4.0), n(y - 4.0)),
            _ => format!("M{} {}l11 11l-11 11l-11 -11z", n(x), n(y - 11.0)),
        };
        html! { path.sign d=(path) { (title) } }
    }

    fn names(&self) -> Vec<String> {
        let series = self.series.iter().map(|it| it.name.clone());
        series.chain(self.stated.iter().map(|it| it.0.clone())).collect()
    }

    /// Returns the entries of the legend with their positions, row by row.
    fn legend_rows(&self) -> Vec<Vec<(usize, f64)>> {
        let mut rows: Vec<Vec<(usize, f64)>> = vec![Vec::new()];
        let mut x = LEFT;
        for (entry, name) in self.names().iter().enumerate() {
            let width = name.chars().count() as f64 * CHARACTER + 44.0;
            if x + width > WIDTH && x > LEFT {
                rows.push(Vec::new());
                x = LEFT;
            }
            if let Some(row) = rows.last_mut() {
                row.push((entry, x));
            }
            x += width;
        }
        rows
    }
}

/// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|it| it * power)
        .find(|it| *it >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// Rounds a coordinate to a tenth of a pixel.
fn n(value: f64) -> String {
    short((value * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([0.3, 1.0, 1.2, 23.0, 51.0].map(round_step), [0.5, 1.0, 2.0, 50.0, 100.0]);
    }

    #[test]
    fn everything_is_inside_the_picture() {
        let points = (1..=4).map(|x| (f64::from(x) * 15.0, Spread::of([f64::from(x), 40.0]))).collect();
        let name = "a line with a rather long name that needs space in the legend";
        let series = vec![Series { name: name.into(), points }; 3];
        let stated = vec![("the paper".into(), 55.0)];
        let chart = Chart { title: "t".into(), x: "x".into(), y: "y".into(), series, stated };
        let area = PlotArea::new(&chart);
        assert_eq!((area.top, area.step), (60.0, 20.0));
        assert_eq!(chart.legend_rows().iter().map(Vec::len).sum::<usize>(), 4);
        for (x, y) in [(15.0, 1.0), (60.0, 55.0)] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&area.x(x)) && (TOP..=HEIGHT).contains(&area.y(y)));
        }
        assert!(chart.file().starts_with("<svg"));
        assert!(!chart.file().contains("class=\"sign\""), "lines have dots");
    }

    #[test]
    fn points_at_one_place_have_different_markers_and_no_label_covers_a_point() {
        let series = |name: &str, points: Vec<(f64, Spread)>| Series { name: name.into(), points };
        let one = || vec![(0.0, Spread::of([60.0]))];
        let front = series("front", vec![(0.0, Spread::of([60.0])), (40.0, Spread::of([10.0]))]);
        let series = vec![front, series("chosen", one()), series("the paper", one())];
        let chart = Chart { title: "t".into(), x: "x".into(), y: "y".into(), series, stated: Vec::new() };
        let file = chart.file();
        let shapes: Vec<&str> = file.split("class=\"sign\" d=\"").skip(1).collect();
        let shapes: Vec<&str> = shapes.iter().map(|it| it.split('"').next().unwrap_or_default()).collect();
        assert_eq!(shapes.len(), 4, "two points, and both in the legend");
        assert!(shapes[0].contains('a') && shapes[1].contains('m'), "{shapes:?}");
        let area = PlotArea::new(&chart);
        assert!(area.y(area.top) - 14.0 > 12.0, "the label is above the highest point");
    }
}

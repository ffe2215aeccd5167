//! Charts as SVG, in the colours of the pages: lines with bands, bars, cells, and trade-offs.

mod bars;
mod heat;
mod trade_off;

use maud::{Markup, PreEscaped, html};

use crate::spread::{Spread, short};
use crate::style;

pub use bars::{Bar, Bars, Length};
pub use heat::{Heat, HeatCell};
pub use trade_off::{Cost, TradeOff};

/// The styles of all charts, in addition to the colours of the page.
pub const STYLE: &str = include_str!("../assets/chart.css");

/// The margin on the right of a chart.
const RIGHT: f64 = 16.0;

/// A drawn chart, or several.
struct Picture {
    /// A description for screen readers.
    label: String,
    width: f64,
    height: f64,
    content: Markup,
}

impl Picture {
    /// Renders the picture for a page that includes the common style and [`STYLE`].
    fn markup(self) -> Markup {
        html! {
            svg.chart xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (self.width) " " (self.height) } role="img"
                style={ "max-width:" (self.width) "px" } aria-label=(self.label) { (self.content) }
        }
    }

    /// Renders the picture as a separate file.
    fn file(self) -> String {
        let (width, height) = (self.width, self.height);
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) {
                style { (PreEscaped(style::PALETTE)) (PreEscaped(style::CLUSTERS)) (PreEscaped(STYLE)) ".paper{fill:var(--paper)}" }
                rect.paper width=(width) height=(height) {}
                (self.markup())
            }
        };
        markup.into_string()
    }
}

/// Makes content a link, if there is a path.
pub fn linked(path: Option<&str>, content: Markup) -> Markup {
    html! { @match path { Some(path) => a href=(path) { (content) }, None => (content) } }
}

/// Renders a sentence in which backticks enclose code.
pub fn coded(sentence: &str) -> Markup {
    html! {
        @for (place, part) in sentence.split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A line chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// A description for screen readers.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, which starts at 0.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Values stated in the paper: a name and a value on the vertical axis.
    pub stated: Vec<(String, f64)>,
    /// What the points show, for each line; empty, or as long as `series`.
    pub details: Vec<Vec<Detail>>,
    /// Ranges of the horizontal axis in which one line is the best one.
    pub ranges: Vec<Range>,
    /// Intervals on the horizontal axis with a text each.
    pub marks: Vec<(f64, f64, String)>,
}

/// A range of the horizontal axis in which one line is the best one.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The start.
    pub from: f64,
    /// The end.
    pub to: f64,
    /// The index of the line.
    pub series: usize,
}

/// An axis, with its label, which includes the unit.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    scale: Scale,
}

#[derive(Clone, Debug)]
enum Scale {
    Linear,
    /// All values must be above 0.
    Logarithmic,
    /// Values with a text each. The ends of the axis are the first and the last.
    Marked(Vec<(f64, String)>),
}

impl<S: Into<String>> From<S> for Axis {
    fn from(label: S) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }
}

impl Axis {
    /// Creates a horizontal axis with a mark at each power of ten.
    pub fn logarithmic(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Logarithmic }
    }

    /// Creates an axis with marks at these values only.
    pub fn marked(label: &str, marks: Vec<(f64, String)>) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Marked(marks) }
    }

    /// Creates a horizontal axis with these names at 0, 1, 2 and so on.
    pub fn named(label: &str, names: &[&str]) -> Axis {
        // If the names would overlap, only every nth name is shown.
        let every = names.len().div_ceil(10).max(1);
        let shown = |(index, name): (usize, &&str)| {
            (index as f64, if index % every == 0 { (*name).to_owned() } else { String::new() })
        };
        let ends = [(-0.5, String::new()), (names.len() as f64 - 0.5, String::new())];
        let [first, last] = ends;
        let names = names.iter().enumerate().map(shown);
        Axis::marked(label, [first].into_iter().chain(names).chain([last]).collect())
    }

    /// Returns where a value is between two others, as a share.
    fn share(&self, value: f64, (least, most): (f64, f64)) -> f64 {
        match self.scale {
            Scale::Logarithmic => (value / least).log10() / (most / least).log10(),
            _ => (value - least) / (most - least),
        }
    }

    /// Returns the ends of a horizontal axis that shows values from `least` to `most`.
    fn ends(&self, least: f64, most: f64) -> (f64, f64) {
        match &self.scale {
            Scale::Linear => (least.min(0.0), most.max(least + 1.0)),
            Scale::Logarithmic => (least, most.max(least * 10.0)),
            Scale::Marked(marks) => marks.first().zip(marks.last()).map_or((0.0, 1.0), |(a, b)| (a.0, b.0)),
        }
    }

    /// Returns the values between `least` and `most` that have a mark, with their texts.
    fn marks(&self, (least, most): (f64, f64), steps: f64) -> Vec<(f64, String)> {
        let within = |values: Vec<f64>| {
            let values = values.into_iter().filter(|it| (least..=most * 1.000_001).contains(it));
            values.map(|it| (it, short(it))).collect()
        };
        match &self.scale {
            Scale::Linear => {
                let step = round_step((most - least) / steps);
                within((0..=(most / step * 1.000_001) as u32).map(|it| f64::from(it) * step).collect())
            }
            Scale::Logarithmic => within((-9..19).map(|it| 10_f64.powi(it)).collect()),
            Scale::Marked(marks) => marks.clone(),
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// The line's name in the legend.
    pub name: String,
    /// The points, ascending by x.
    pub points: Vec<(f64, Spread)>,
}

impl Series {
    /// Returns the points that are drawn as dots.
    fn dots(&self) -> &[(f64, Spread)] {
        if self.points.len() > MOST_DOTS { &[] } else { &self.points }
    }
}

/// What a chart shows with one of its points.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// The text of the point.
    pub text: String,
    /// The path that the point links to.
    pub link: String,
    /// The values of individual runs.
    pub runs: Vec<f64>,
}

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 52.0;
/// The margin at the top, which includes a line for the label of the vertical axis.
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// The maximum number of points of a line that are drawn as dots.
const MOST_DOTS: usize = 32;
/// The distance between the texts of the vertical axis and the lines.
const LABEL_GAP: f64 = 7.0;
/// The width of a character.
const CHARACTER: f64 = 6.4;

impl Chart {
    /// Creates a chart.
    pub fn new(
        title: impl Into<String>,
        x: impl Into<Axis>,
        y: impl Into<Axis>,
        series: Vec<Series>,
    ) -> Chart {
        let (stated, details, ranges, marks) = Default::default();
        Chart { title: title.into(), x: x.into(), y: y.into(), series, stated, details, ranges, marks }
    }

    /// Adds values stated in the paper: each a name and a value on the vertical axis.
    #[must_use]
    pub fn stated(mut self, stated: Vec<(String, f64)>) -> Chart {
        self.stated = stated;
        self
    }

    /// Renders the picture for a page that includes the common style and [`STYLE`].
    pub fn markup(&self) -> Markup {
        self.picture().markup()
    }

    /// Renders the picture as a separate file.
    pub fn file(&self) -> String {
        self.picture().file()
    }

    fn picture(&self) -> Picture {
        let area = PlotArea::new(self);
        let content = html! {
            (area.axes())
            (area.ranges())
            @for (index, series) in self.series.iter().enumerate() { (area.line(index, series)) }
            @for (_, at) in &self.stated {
                line.stated x1=(n(area.left)) x2=(WIDTH - RIGHT) y1=(n(area.y(*at))) y2=(n(area.y(*at))) {}
            }
            (area.legend())
        };
        Picture { label: self.title.clone(), width: WIDTH, height: HEIGHT + area.legend, content }
    }
}

struct PlotArea<'a> {
    chart: &'a Chart,
    x: (f64, f64),
    /// The margin on the left, in which the texts of the vertical axis fit.
    left: f64,
    top: f64,
    marks: Vec<(f64, String)>,
    /// The height of the legend.
    legend: f64,
}

impl<'a> PlotArea<'a> {
    fn new(chart: &'a Chart) -> PlotArea<'a> {
        let points = || chart.series.iter().flat_map(|it| &it.points);
        let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let heights = points().map(|(_, it)| it.most).chain(chart.stated.iter().map(|it| it.1));
        let highest = heights.fold(if chart.details.is_empty() { 1.0 } else { 0.0 }, f64::max);
        let (top, marks) = match &chart.y.scale {
            Scale::Marked(marks) => (marks.last().map_or(1.0, |it| it.0), marks.clone()),
            _ => {
                let values = round_values(highest);
                let top = values.last().copied().unwrap_or_default();
                (top, values.into_iter().map(|it| (it, short(it))).collect())
            }
        };
        let rows = if chart.has_legend() { chart.legend_rows().len() as f64 } else { 0.0 };
        let widest = marks.iter().map(|it| width(&it.1)).fold(0.0, f64::max);
        let left = LEFT.max(widest + LABEL_GAP + 2.0);
        PlotArea { chart, x: chart.x.ends(least, most), left, top, marks, legend: rows * 20.0 + 4.0 }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.chart.x.share(value, self.x) * (WIDTH - self.left - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.top > 0.0 { value / self.top } else { 0.0 };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self) -> Markup {
        html! {
            @for (value, text) in &self.marks {
                line.grid x1=(n(self.left)) x2=(WIDTH - RIGHT) y1=(n(self.y(*value))) y2=(n(self.y(*value))) {}
                text.end x=(n(self.left - LABEL_GAP)) y=(n(self.y(*value) + 4.0)) { (text) }
            }
            @for (value, text) in self.chart.x.marks(self.x, 6.0) {
                text.middle x=(n(within(self.x(value), &text))) y=(HEIGHT - BOTTOM + 17.0) { (text) }
            }
            text.middle x=(n(within((self.left + WIDTH - RIGHT) / 2.0, &self.chart.x.label))) y=(HEIGHT - 8.0) { (self.chart.x.label) }
            text x="4" y="14" { (self.chart.y.label) }
        }
    }

    /// Renders the best line of each range as a strip above the lines, and the marked intervals.
    fn ranges(&self) -> Markup {
        let wide = |from: f64, to: f64| (self.x(to) - self.x(from)).max(1.0);
        html! {
            @for (low, high, text) in &self.chart.marks {
                rect.interval x=(n(self.x(*low))) y=(TOP) width=(n(wide(*low, *high))) height=(HEIGHT - TOP - BOTTOM) {}
                text.middle.ink x=(n(within(self.x(f64::midpoint(*low, *high)), text))) y=(HEIGHT - BOTTOM - 6.0) { (text) }
            }
            @for Range { from, to, series } in &self.chart.ranges {
                g class={ "c" (series % 6) } {
                    rect.bar x=(n(self.x(*from))) y=(TOP - 8.0) width=(n(wide(*from, *to))) height="6" {
                        title { "best: " (self.chart.series[*series].name) }
                    }
                }
            }
        }
    }

    fn line(&self, index: usize, series: &Series) -> Markup {
        let details = self.chart.details.get(index).map_or(&[][..], Vec::as_slice);
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
                @for (number, (x, it)) in series.dots().iter().enumerate() {
                    @let place = (self.x(*x), self.y(it.mean));
                    @match details.get(number) {
                        Some(detail) => {
                            @for run in &detail.runs { circle.run cx=(n(place.0)) cy=(n(self.y(*run))) r="3" {} }
                            a href=(detail.link) {
                                (self.chart.sign(index, place, html! { title { (detail.text) } }))
                            }
                        }
                        None => {
                            @let title = html! { title { (series.name) " at " (short(*x)) ": " (it.text()) } };
                            (self.chart.sign(index, place, title))
                        }
                    }
                }
            }
        }
    }

    fn legend(&self) -> Markup {
        if !self.chart.has_legend() {
            return html! {};
        }
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
                    text.ink x=(n(x + 26.0)) y=(y + 4.0) { (name) }
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

    /// Returns whether there is a legend: a single line with details needs none.
    fn has_legend(&self) -> bool {
        self.details.is_empty() || self.series.len() > 1
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

/// Returns round values, evenly spaced from 0 to at least `most`, of which there are about six.
pub fn round_values(most: f64) -> Vec<f64> {
    let step = round_step(most / 5.0);
    (0..=(most / step * 0.999_999).ceil() as u32).map(|it| f64::from(it) * step).collect()
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

/// Returns the width of a text on an axis, as an upper bound.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Returns where the middle of a text must be so that all of the text is inside the picture, as close to `x` as possible.
fn within(x: f64, text: &str) -> f64 {
    let half = (width(text) / 2.0).min(WIDTH / 2.0);
    x.clamp(half, WIDTH - half)
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
        assert_eq!(round_values(760.0), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!(round_values(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_values(0.0), [0.0]);
    }

    #[test]
    fn everything_is_inside_the_picture() {
        let points = (1..=4).map(|x| (f64::from(x) * 15.0, Spread::of([f64::from(x), 40.0]))).collect();
        let name = "a line with a rather long name that needs space in the legend";
        let series = vec![Series { name: name.into(), points }; 3];
        let stated = vec![("the paper".into(), 55.0)];
        let chart = Chart::new("t", "x", "y", series).stated(stated);
        let area = PlotArea::new(&chart);
        let marks: Vec<f64> = area.marks.iter().map(|it| it.0).collect();
        assert_eq!((area.top, marks), (60.0, vec![0.0, 20.0, 40.0, 60.0]));
        assert_eq!(chart.legend_rows().iter().map(Vec::len).sum::<usize>(), 4);
        for (x, y) in [(15.0, 1.0), (60.0, 55.0)] {
            assert!((LEFT..=WIDTH - RIGHT).contains(&area.x(x)) && (TOP..=HEIGHT).contains(&area.y(y)));
        }
        assert!(chart.file().starts_with("<svg"));
        assert!(!chart.file().contains("class=\"sign\""), "lines have dots");
    }

    #[test]
    fn backticks_enclose_code() {
        assert_eq!(coded("use `--seeds 5` <here>").into_string(), "use <code>--seeds 5</code> &lt;here&gt;");
    }

    #[test]
    fn no_label_of_an_axis_is_cut() {
        let points = [1.0, 1e7].map(|x| (x, Spread::of([1e9]))).to_vec();
        let series = || vec![Series { name: "s".into(), points: points.clone() }];
        let marks = vec![(0.0, "0 s".to_owned()), (1e9, "1000000000 seconds".to_owned())];
        for y in [Axis::from("y"), Axis::marked("y", marks)] {
            let chart = Chart::new("t", Axis::logarithmic("x"), y, series());
            let area = PlotArea::new(&chart);
            for (value, text) in area.chart.x.marks(area.x, 6.0) {
                let x = within(area.x(value), &text);
                assert!(x >= width(&text) / 2.0 && x + width(&text) / 2.0 <= WIDTH, "{text} at {x}");
            }
            assert!(area.marks.iter().all(|it| width(&it.1) <= area.left - LABEL_GAP), "{}", area.left);
        }
    }

    #[test]
    fn points_at_one_place_have_different_markers_and_no_label_covers_a_point() {
        let series = |name: &str, points: Vec<(f64, Spread)>| Series { name: name.into(), points };
        let one = || vec![(0.0, Spread::of([60.0]))];
        let front = series("front", vec![(0.0, Spread::of([60.0])), (40.0, Spread::of([10.0]))]);
        let series = vec![front, series("chosen", one()), series("the paper", one())];
        let chart = Chart::new("t", "x", "y", series);
        let file = chart.file();
        let shapes: Vec<&str> = file.split("class=\"sign\" d=\"").skip(1).collect();
        let shapes: Vec<&str> = shapes.iter().map(|it| it.split('"').next().unwrap_or_default()).collect();
        assert_eq!(shapes.len(), 4, "two points, and both in the legend");
        assert!(shapes[0].contains('a') && shapes[1].contains('m'), "{shapes:?}");
        let area = PlotArea::new(&chart);
        assert!(area.y(area.top) - 14.0 > 12.0, "the label is above the highest point");
    }

    #[test]
    fn axes_have_round_marks_powers_of_ten_or_names() {
        let values = |axis: &Axis, ends| axis.marks(ends, 6.0).into_iter().map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(values(&"s".into(), (0.0, 60.0)), ["0", "10", "20", "30", "40", "50", "60"]);
        let logarithmic = Axis::logarithmic("s");
        assert_eq!(values(&logarithmic, logarithmic.ends(20.0, 3000.0)), ["100", "1000"]);
        assert!((logarithmic.share(100.0, (10.0, 1000.0)) - 0.5).abs() < 1e-9);
        let named = Axis::named("n", &["a", "b"]);
        assert_eq!(values(&named, (0.0, 0.0)), ["", "a", "b", ""]);
        assert_eq!(named.ends(0.0, 1.0), (-0.5, 1.5));
    }

    #[test]
    fn the_best_cell_is_outlined_and_every_cell_has_a_link() {
        let cell = |column: usize, value: f64| HeatCell {
            place: [0, column],
            value,
            brief: short(value),
            text: String::new(),
            link: format!("{column}.html"),
        };
        let axis =
            |name: &str, values: &[&str]| (name.to_owned(), values.iter().map(|&it| it.to_owned()).collect());
        let heat = Heat {
            title: "t".into(),
            down: axis("d", &["x"]),
            across: axis("a", &["1", "2"]),
            rises: false,
            cells: vec![cell(0, 5.0), cell(1, 3.0)],
        };
        let picture = heat.markup().into_string();
        let outlined = |picture: &str| {
            assert_eq!(picture.matches("class=\"outlined\"").count(), 1);
            picture.find("class=\"outlined\"") > picture.find("1.html")
        };
        assert!(outlined(&picture), "the second cell, 3, is the least");
        assert!(!outlined(&Heat { rises: true, ..heat.clone() }.markup().into_string()));
        assert!(
            picture.contains("fill-opacity=\"0.66\"") && picture.contains("fill-opacity=\"0.06\""),
            "{picture}"
        );
        assert!(picture.contains("href=\"0.html\"") && picture.contains("href=\"1.html\""));
    }
}

//! The diagram as a static SVG picture for documents. The picture follows the reader's light or dark
//! preference.

use std::collections::{BTreeMap, BTreeSet};

use faultline_trace::duration::{LONG, clock};
use maud::{Markup, PreEscaped, html};

use super::{CheckpointMark, Diagram, Fate, Injected, Kind, MessageLine, Stretch};
use crate::names::checkpoint;

/// The stylesheet of the picture, with the colours of the page.
const STYLE: &str =
    concat!(include_str!("../../assets/palette.css"), include_str!("../../assets/diagram.css"));

/// The size and the content of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The width in pixels.
    pub width: f64,
    /// The height of a lane in pixels. With many processes, lanes are narrower, so that the picture fits on a page.
    pub lane: f64,
    /// Whether messages within clusters are drawn.
    pub within: bool,
    /// The part of the run to show, in microseconds since the start of the application; `None` shows all of
    /// it.
    pub part: Option<(i64, i64)>,
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 1200.0, lane: 26.0, within: false, part: None }
    }
}

/// The maximum number of messages that are drawn individually. Above it, shades show their density.
const MOST_LINES: usize = 4000;
/// The maximum height of all lanes together, in pixels.
const LANES: f64 = 640.0;
/// The maximum height of all gaps between clusters together, in pixels.
const GAPS: f64 = 360.0;
/// The lane height, in pixels, below which processes are not named and checkpoints are drawn as ticks.
const LEAST_LANE: f64 = 9.0;
/// The least height of a row, in pixels. Lower lanes share rows.
const LEAST_ROW: f64 = 3.0;
/// The distance, in pixels, below which the names of clusters would overlap.
const NAME: f64 = 13.0;
/// The width of a shaded column, in pixels.
const COLUMN: f64 = 3.0;
const SHADES: usize = 6;

const LEFT: f64 = 92.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const GAP: f64 = 30.0;
/// Estimated width of a character of a label.
const CHARACTER: f64 = 5.9;
const AXIS: f64 = 30.0;
const LEGEND: f64 = 30.0;

const LABEL: &str = "Space-time diagram of the run";

/// Returns whether `content` is a diagram of this module.
pub fn is_diagram(content: &str) -> bool {
    content.starts_with("<svg") && content.split('>').next().is_some_and(|it| it.contains(LABEL))
}

/// Draws a diagram.
pub fn render(diagram: &Diagram, options: Options) -> String {
    let scene = SvgDrawing::new(diagram, options);
    let (width, height) = (options.width, scene.height);
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (n(width)) " " (n(height)) }
            width=(n(width)) height=(n(height)) role="img" aria-label=(LABEL) {
            style { (PreEscaped(STYLE)) }
            rect.paper width=(n(width)) height=(n(height)) {}
            clipPath id="plot" {
                rect x=(n(LEFT)) y="0" width=(n(width - LEFT - RIGHT)) height=(n(height)) {}
            }
            (scene.axis())
            (scene.labels())
            g clip-path="url(#plot)" {
                (scene.lanes())
                @let is_dense = scene.is_dense();
                (scene.density(is_dense))
                @if !is_dense { (scene.messages()) }
                (scene.stretches())
                (scene.returns())
                (scene.recovery_lines())
                (scene.marks())
            }
            (scene.faults())
            (scene.legend())
        }
    };
    markup.into_string()
}

struct SvgDrawing<'a> {
    diagram: &'a Diagram,
    options: Options,
    begin: f64,
    scale: f64,
    /// The height of the gap above each cluster.
    gap: f64,
    height: f64,
}

impl<'a> SvgDrawing<'a> {
    fn new(diagram: &'a Diagram, options: Options) -> Self {
        let (begin, end) = options.part.unwrap_or((diagram.begin, diagram.end));
        let margin = if options.part.is_some() { 0.0 } else { (end - begin) as f64 * 0.008 };
        let begin = begin as f64 - margin;
        let span = (end as f64 + margin - begin).max(1.0);
        let lane = options.lane.min(LANES / diagram.lanes.len().max(1) as f64);
        let gap = GAP.min(GAPS / diagram.clusters.len().max(1) as f64);
        let scale = (options.width - LEFT - RIGHT) / span;
        let mut scene =
            SvgDrawing { diagram, options: Options { lane, ..options }, begin, scale, gap, height: 0.0 };
        scene.height = scene.bottom() + AXIS + LEGEND;
        scene
    }

    fn x(&self, at: i64) -> f64 {
        LEFT + (at as f64 - self.begin) * self.scale
    }

    fn y(&self, lane: usize) -> f64 {
        let group = self.group(lane);
        TOP + (lane as f64 + 0.5) * self.options.lane + group as f64 * self.gap
    }

    fn group(&self, lane: usize) -> usize {
        self.diagram.clusters.iter().rposition(|it| it.first <= lane).unwrap_or(0)
    }

    fn bottom(&self) -> f64 {
        match self.diagram.lanes.len() {
            0 => TOP,
            lanes => self.y(lanes - 1) + self.options.lane / 2.0,
        }
    }

    fn shown(&self, from: i64, upto: i64) -> bool {
        self.x(upto) >= LEFT && self.x(from) <= self.options.width - RIGHT
    }

    fn axis(&self) -> Markup {
        let bottom = self.bottom() + 4.0;
        let right = self.options.width - RIGHT;
        let is_long = self.diagram.end as f64 / 1e6 >= LONG;
        html! {
            @for at in ticks(self.begin, self.begin + (right - LEFT) / self.scale, is_long) {
                @let x = n(self.x(at));
                line.grid x1=(x) x2=(x) y1=(n(TOP - 8.0)) y2=(n(bottom)) {}
                text.tick x=(x) y=(n(bottom + 15.0)) { (tick(at, is_long)) }
            }
            text.unit x=(n(LEFT - 8.0)) y=(n(bottom + 15.0)) { @if is_long { "h:mm:ss" } @else { "seconds" } }
        }
    }

    fn labels(&self) -> Markup {
        let edge = |first: usize| self.y(first) - self.options.lane / 2.0 - 2.0;
        let mut last = f64::NEG_INFINITY;
        let mut has_room = |first: usize| {
            let has_room = edge(first) - last >= NAME;
            last = if has_room { edge(first) } else { last };
            has_room
        };
        html! {
            @for (index, group) in self.diagram.clusters.iter().enumerate() {
                @if has_room(group.first) {
                    text class={ "cluster c" (index % 6) } x="8" y=(n(edge(group.first))) { (group.name) }
                }
                @for lane in (group.first..group.first + group.lanes).filter(|_| self.options.lane >= LEAST_LANE) {
                    text.lane x=(n(LEFT - 8.0)) y=(n(self.y(lane) + 4.0)) { (self.diagram.lanes[lane]) }
                }
            }
        }
    }

    /// Returns how many lanes a row has.
    fn lanes_per_row(&self) -> usize {
        (LEAST_ROW / self.options.lane).ceil() as usize
    }

    /// Returns the number of a lane's row, which differs from those of all other rows, and the centre of the row.
    fn row(&self, lane: usize) -> (usize, f64) {
        let (first, lanes) = (self.diagram.clusters[self.group(lane)].first, self.lanes_per_row());
        let top = lane - (lane - first) % lanes;
        (top, self.y(top) + (lanes - 1) as f64 * self.options.lane / 2.0)
    }

    fn lanes(&self) -> Markup {
        let rows: BTreeSet<_> = (0..self.diagram.lanes.len()).map(|it| self.row(it).0).collect();
        html! {
            @for lane in rows {
                @let y = n(self.row(lane).1);
                line class={ "life c" (self.group(lane) % 6) } x1=(n(LEFT)) x2=(n(self.options.width - RIGHT)) y1=(y) y2=(y) {}
            }
        }
    }

    fn stretches(&self) -> Markup {
        let height = (self.options.lane * 0.46).max(LEAST_ROW);
        let bar = |lane: usize, from: i64, upto: i64| {
            let (x, y) = (self.x(from), self.row(lane).1 - height / 2.0);
            let wide = (self.x(upto) - x).max(1.0);
            format!("M{} {}h{w}v{}h-{w}z", n(x), n(y), n(height), w = n(wide))
        };
        let all = |class: &str, title: &str, stretches: &[Stretch]| {
            // Lanes that share a row often share bars.
            let bars: BTreeSet<_> = stretches.iter().map(|it| bar(it.lane, it.from, it.upto)).collect();
            html! {
                @if !bars.is_empty() {
                    path class=(class) d=(bars.into_iter().collect::<String>()) { title { (title) } }
                }
            }
        };
        html! {
            (all("recovering", "recovering", &self.diagram.recoveries))
            (all("undone", "undone", &self.diagram.undone))
            @for it in &self.diagram.outages {
                path.down d=(bar(it.lane, it.from, it.upto)) { title { (it.text) } }
            }
        }
    }

    /// Returns the messages to draw.
    fn drawn(&self) -> impl Iterator<Item = &MessageLine> {
        let drawn = |it: &&MessageLine| it.between || self.options.within;
        let shown = |it: &&MessageLine| self.shown(it.sent, it.arrived.unwrap_or(it.sent));
        self.diagram.messages.iter().filter(drawn).filter(shown)
    }

    /// Returns whether there are too many messages to draw each of them.
    fn is_dense(&self) -> bool {
        self.drawn().nth(MOST_LINES).is_some()
    }

    /// Draws the density of the messages that each process sends and receives, in columns of equal width with a few
    /// shades: all messages if `is_dense`, otherwise, on low lanes, those within clusters.
    fn density(&self, is_dense: bool) -> Markup {
        let is_counted = |it: &&MessageLine| {
            let has_shade = is_dense && (it.between || self.options.within);
            has_shade || self.is_low() && !it.between && self.shown(it.sent, it.arrived.unwrap_or(it.sent))
        };
        let mut bins: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for it in self.diagram.messages.iter().filter(is_counted) {
            for (lane, at) in [(it.from, Some(it.sent)), (it.to, it.arrived)] {
                if let Some(at) = at.map(|at| self.x(at)).filter(|it| *it >= LEFT) {
                    *bins.entry((self.row(lane).0, ((at - LEFT) / COLUMN) as usize)).or_default() += 1;
                }
            }
        }
        let most = f64::from(bins.values().copied().max().unwrap_or(1)).ln_1p();
        // Per colour and shade: the path, and where it ends.
        let mut paths: BTreeMap<(usize, usize), (String, (usize, usize))> = BTreeMap::new();
        for ((row, column), count) in bins {
            let shade = (f64::from(count).ln_1p() / most * SHADES as f64).ceil() as usize;
            let key = (self.group(row) % 6, shade.clamp(1, SHADES));
            let (path, end) = paths.entry(key).or_insert_with(|| (String::new(), (usize::MAX, 0)));
            if end.0 != row {
                path.push_str(&format!("M{} {}", n(LEFT), n(self.row(row).1)));
                *end = (row, 0);
            }
            if column > end.1 {
                path.push_str(&format!("m{} 0", n((column - end.1) as f64 * COLUMN)));
            }
            path.push_str(&format!("h{COLUMN}"));
            end.1 = column + 1;
        }
        let height = n((self.options.lane * 0.84).max(LEAST_ROW - 0.5));
        html! {
            @for ((cluster, shade), (d, _)) in &paths {
                path class={ "density c" (cluster) } stroke-width=(height)
                    stroke-opacity=(format!("{:.2}", 0.7 * *shade as f64 / SHADES as f64)) d=(d) {}
            }
        }
    }

    fn messages(&self) -> Markup {
        let d = |line: &MessageLine| {
            let upto = line.arrived.unwrap_or(line.sent + (9.0 / self.scale) as i64);
            let (x1, y1) = (self.x(line.sent), self.y(line.from));
            let (x2, mut y2) = (self.x(upto), self.y(line.to));
            if line.arrived.is_none() {
                y2 = y1 + (y2 - y1).clamp(-14.0, 14.0);
            }
            format!("M{} {}L{} {}", n(x1), n(y1), n(x2), n(y2))
        };
        let mut paths: BTreeMap<(Fate, usize), String> = BTreeMap::new();
        for line in self.drawn() {
            let plain = line.fate == Fate::Delivered;
            let class = if plain { self.group(line.from) % 6 } else { 0 };
            paths.entry((line.fate, class)).or_default().push_str(&d(line));
        }
        html! {
            @for ((fate, cluster), d) in &paths {
                @let class = match fate {
                    Fate::Delivered => format!("message c{cluster}"),
                    Fate::Undone => "message gone".to_owned(),
                    Fate::Resent => "message resent".to_owned(),
                    Fate::Stale => "message stale".to_owned(),
                    Fate::Lost => "message lost".to_owned(),
                };
                path class=(class) d=(d) {}
            }
        }
    }

    fn returns(&self) -> Markup {
        let lift = (self.options.lane * 0.55).min(16.0);
        let arch = |lane: usize, restored: i64, saved: i64| {
            let (x1, x2, y) = (n(self.x(restored)), self.x(saved), self.y(lane));
            if self.is_low() {
                return format!("M{x1} {}H{}", n(y), n(x2));
            }
            let (x2, top) = (n(x2), n(y - lift));
            format!("M{x1} {}C{x1} {top} {x2} {top} {x2} {}", n(y), n(y - 5.0))
        };
        let tip =
            |lane: usize, saved: i64| format!("M{} {}l-3 -5h6z", n(self.x(saved)), n(self.y(lane) - 4.0));
        html! {
            @for it in &self.diagram.rollbacks {
                path.return d=(it.members.iter().map(|it| arch(it.0, it.1, it.2)).collect::<String>()) {
                    title { (it.text) }
                }
                @if !self.is_low() {
                    path.tip d=(it.members.iter().map(|it| tip(it.0, it.2)).collect::<String>()) {}
                }
            }
        }
    }

    fn recovery_lines(&self) -> Markup {
        html! {
            @for line in &self.diagram.recovery_lines {
                @if line.len() > 1 {
                    path.line d=(line.iter().enumerate().map(|(i, &(lane, at))| {
                        format!("{}{} {}", if i == 0 { "M" } else { "L" }, n(self.x(at)), n(self.y(lane)))
                    }).collect::<String>()) { title { "recovery line" } }
                }
            }
        }
    }

    /// Draws symbols if there is space for them; otherwise ticks at the upper edge of the lane, which hide nothing. If
    /// lanes are low, a checkpoint of several processes is one tick above them.
    fn marks(&self) -> Markup {
        let size = (self.options.lane * 0.2).clamp(1.8, 4.6);
        let is_low = self.is_low();
        let shown = || {
            let members = |it: &'a CheckpointMark| it.members.iter().map(move |&(lane, at)| (it, lane, at));
            self.diagram.checkpoints.iter().flat_map(members).filter(|&(_, _, at)| self.shown(at, at))
        };
        let mut seen = vec![0.0; self.diagram.lanes.len()];
        for (_, lane, _) in shown() {
            seen[lane] += 1.0;
        }
        let most = if is_low { 0.0 } else { (self.options.width - LEFT - RIGHT) / (size * 5.0) };
        let (mut ticks, mut signs): (BTreeMap<_, BTreeSet<String>>, _) = (BTreeMap::new(), Vec::new());
        for (it, lane, at) in shown() {
            let (cluster, x) = (self.group(lane) % 6, self.x(at));
            let is_shared = is_low && it.members.len() > 1;
            if seen[lane] <= most {
                let title = format!("{}: checkpoint {}", self.diagram.lanes[lane], checkpoint(it.position));
                signs.push(mark(it.kind, it.undone, cluster, x, self.y(lane), size, Some(&title)));
            } else if !is_shared || lane == it.members[0].0 {
                let x = LEFT + ((x - LEFT) / COLUMN).floor() * COLUMN + 0.5;
                let high = if is_shared { 4.0 } else { (self.options.lane * 0.22).max(1.0) };
                let y = self.y(lane) - self.options.lane / 2.0 - if is_shared { 6.0 } else { 0.0 };
                ticks.entry(cluster).or_default().insert(format!("M{} {}v{}", n(x), n(y), n(high)));
            }
        }
        html! {
            @for (cluster, ticks) in ticks {
                path class={ "tick c" (cluster) } d=(ticks.into_iter().collect::<String>()) {}
            }
            @for sign in signs { (sign) }
            @if is_low {
                path.failure d=(self.diagram.outages.iter().map(|it| {
                    let top = self.y(it.lane) - self.options.lane / 2.0;
                    format!("M{} {}v{}", n(self.x(it.from)), n(top), n(self.options.lane))
                }).collect::<BTreeSet<_>>().into_iter().collect::<String>()) {}
            } @else {
                @for it in &self.diagram.outages { (cross(self.x(it.from), self.y(it.lane), size)) }
            }
            @for it in self.diagram.flips.iter().filter(|it| self.shown(it.at, it.at)) {
                (triangle(self.x(it.at), self.y(it.lane), size.min(self.options.lane / 2.0), Some(&it.text)))
            }
        }
    }

    fn is_low(&self) -> bool {
        self.options.lane < LEAST_LANE
    }

    fn faults(&self) -> Markup {
        let mut faults: Vec<_> = self.diagram.faults.iter().filter(|it| self.shown(it.at, it.at)).collect();
        faults.sort_by_key(|it| it.at);
        html! {
            @for it in &faults {
                @let x = n(self.x(it.at));
                line.fault x1=(x) x2=(x) y1=(n(TOP - 22.0)) y2=(n(self.bottom() + 4.0)) {
                    title { "fault " (it.no) ": " (it.text) }
                }
            }
            @for (x, row, text) in self.fault_labels(&faults) {
                text.fault x=(n(x)) y=(n(TOP - 26.0 - 14.0 * row as f64)) { (text) }
            }
        }
    }

    /// Returns the labels of faults in chronological order, each with its place and its row, from the lowest. A label is
    /// shortened or omitted if it would reach into that of another fault.
    fn fault_labels(&self, faults: &[&Injected]) -> Vec<(f64, usize, String)> {
        let right = self.options.width - 4.0;
        let mut ends = [f64::NEG_INFINITY; 2];
        let labels = faults.iter().enumerate().filter_map(|(index, it)| {
            let limit = faults.get(index + ends.len()).map_or(right, |next| self.x(next.at));
            let texts =
                [format!("fault {}: {}", it.no, it.text), format!("fault {}", it.no), it.no.to_string()];
            texts.into_iter().find_map(|text| {
                let wide = text.chars().count() as f64 * CHARACTER;
                let start = (self.x(it.at) + 5.0).min(right - wide).max(4.0);
                let row = ends.iter().position(|end| start > end + 8.0)?;
                (start + wide <= limit).then(|| {
                    ends[row] = start + wide;
                    (start, row, text)
                })
            })
        });
        labels.collect()
    }

    fn legend(&self) -> Markup {
        let y = self.height - 14.0;
        let mut x = LEFT;
        let mut place = |wide: f64| {
            let at = x;
            x += wide;
            at
        };
        let entry = |x: f64, sign: Markup, text: &str| {
            html! { (sign) text.legend x=(n(x + 12.0)) y=(n(y + 4.0)) { (text) } }
        };
        let sign = |kind: Kind, x: f64| mark(kind, false, 9, x, y, 4.4, None);
        let bar = |class: &str, x: f64| html! { rect class=(class) x=(n(x - 8.0)) y=(n(y - 5.0)) width="16" height="10" {} };
        let dash = |class: &str, x: f64| html! { path class=(class) d={ "M" (n(x - 8.0)) " " (n(y + 4.0)) "L" (n(x + 8.0)) " " (n(y - 4.0)) } {} };
        html! {
            @let x = place(100.0); (entry(x, sign(Kind::Unforced, x), "checkpoint"))
            @let x = place(134.0); (entry(x, sign(Kind::Forced, x), "forced checkpoint"))
            @let x = place(70.0); (entry(x, sign(Kind::Initial, x), "initial"))
            @let x = place(74.0); (entry(x, cross(x, y, 4.4), "failure"))
            @let x = place(72.0); (entry(x, bar("down", x), "down"))
            @let x = place(100.0); (entry(x, bar("recovering", x), "recovering"))
            @let x = place(104.0); (entry(x, bar("undone", x), "work undone"))
            @let x = place(124.0); (entry(x, dash("message gone", x), "message undone"))
            @let x = place(118.0); (entry(x, dash("message resent", x), "message re-sent"))
            @let x = place(100.0); (entry(x, dash("line", x), "recovery line"))
            @if !self.diagram.flips.is_empty() {
                @let x = place(80.0); (entry(x, triangle(x, y, 4.4, None), "flipped bit"))
            }
        }
    }
}

/// Draws the symbol of a checkpoint.
fn mark(kind: Kind, undone: bool, cluster: usize, x: f64, y: f64, size: f64, title: Option<&str>) -> Markup {
    let shape = match kind {
        Kind::Unforced => format!(
            "M{} {}a{size} {size} 0 1 0 {} 0a{size} {size} 0 1 0 -{} 0z",
            n(x - size),
            n(y),
            n(2.0 * size),
            n(2.0 * size)
        ),
        Kind::Forced => {
            let s = size * 1.35;
            format!("M{} {}l{s:.1} {s:.1}l-{s:.1} {s:.1}l-{s:.1} -{s:.1}z", n(x), n(y - s))
        }
        Kind::Initial => format!("M{} {}h{w}v{w}h-{w}z", n(x - size), n(y - size), w = n(2.0 * size)),
    };
    html! {
        path class={ "mark c" (cluster) @if kind == Kind::Forced { " forced" } @if undone { " past" } } d=(shape) {
            @if let Some(title) = title { title { (title) } }
        }
    }
}

fn cross(x: f64, y: f64, size: f64) -> Markup {
    let s = size * 1.1;
    let (a, b, c, d) = (n(x - s), n(x + s), n(y - s), n(y + s));
    let d = format!("M{a} {c}L{b} {d}M{a} {d}L{b} {c}");
    html! { path.failure.edge d=(d) {} path.failure d=(d) {} }
}

/// Draws the symbol of a flipped bit.
fn triangle(x: f64, y: f64, size: f64, title: Option<&str>) -> Markup {
    let s = size * 1.2;
    let d = format!("M{} {}l{s:.1} {:.1}h-{:.1}z", n(x), n(y - s), 2.0 * s, 2.0 * s);
    html! { path.flip d=(d) { @if let Some(title) = title { title { (title) } } } }
}

/// Distances between ticks, in seconds, that yield round times in h:mm:ss. The page's script uses the same distances.
const CLOCK: [f64; 13] =
    [15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0];

/// Returns about a dozen round times between `begin` and `end`, in microseconds. If `is_long` is set and the times are
/// more than ten seconds apart, they are round in h:mm:ss.
fn ticks(begin: f64, end: f64, is_long: bool) -> Vec<i64> {
    let rough = (end - begin) / 12.0;
    let magnitude = 10f64.powf(rough.max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * magnitude).into_iter().find(|it| *it >= rough);
    let clock = CLOCK.map(|it| it * 1e6).into_iter().find(|it| is_long && rough > 10e6 && *it >= rough);
    let step = clock.or(step).unwrap_or(10.0 * magnitude).max(1.0) as i64;
    let first = (begin / step as f64).ceil() as i64;
    let last = (end / step as f64).floor() as i64;
    (first..=last).map(|it| it * step).collect()
}

/// Formats the time of a tick. All ticks of a run have the same format: seconds or, if `is_long` is set, h:mm:ss.
fn tick(micros: i64, is_long: bool) -> String {
    match (is_long, micros < 0) {
        (true, false) => clock(micros as f64 / 1e6),
        (true, true) => format!("-{}", clock(-micros as f64 / 1e6)),
        (false, _) => seconds(micros),
    }
}

fn seconds(micros: i64) -> String {
    let text = format!("{:.6}", micros as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a coordinate with as many digits as a screen can show.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            ticks(-100_000.0, 9_000_000.0, false),
            (0..=9).map(|it| it * 1_000_000).collect::<Vec<_>>()
        );
        assert_eq!(ticks(0.0, 5.0, false), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn ticks_of_long_runs_are_round_on_a_clock() {
        let minutes = |times: Vec<i64>| times.into_iter().map(|it| it as f64 / 60e6).collect::<Vec<_>>();
        assert_eq!(
            minutes(ticks(0.0, 3600e6, true)),
            (0..=12).map(|it| f64::from(it) * 5.0).collect::<Vec<_>>()
        );
        assert_eq!(minutes(ticks(0.0, 1500e6, true))[..3], [0.0, 5.0, 10.0]);
        assert_eq!(minutes(ticks(0.0, 10.0 * 3600e6, true))[1], 60.0);
        // A few seconds of a long run are shown in decimal steps.
        assert_eq!(ticks(4000e6, 4012e6, true)[1], 4_001_000_000);
        let shown = ticks(0.0, 1500e6, true).into_iter().map(|it| tick(it, true)).collect::<Vec<_>>();
        assert_eq!(shown, ["0:00:00", "0:05:00", "0:10:00", "0:15:00", "0:20:00", "0:25:00"]);
        assert_eq!([tick(-500_000, true), tick(-500_000, false)], ["-0:00:00.50", "-0.5"]);
    }

    /// Creates a diagram of two clusters of `processes` processes each, with `messages` messages between them.
    fn diagram(processes: usize, messages: usize) -> Diagram {
        let line = |number: usize| MessageLine {
            from: number % processes,
            to: processes + number % processes,
            sent: number as i64 * 100,
            arrived: Some(number as i64 * 100 + 50),
            fate: Fate::Delivered,
            between: true,
            number: number as u32,
            incarnation: 0,
            content: super::super::Content::Message,
        };
        let group =
            |name: &str, first| super::super::ClusterLanes { name: name.to_owned(), first, lanes: processes };
        Diagram {
            begin: 0,
            end: messages as i64 * 100,
            clusters: vec![group("paris", 0), group("rennes", processes)],
            lanes: (0..2 * processes).map(|it| format!("process-{it}")).collect(),
            messages: (0..messages).map(line).collect(),
            ..Diagram::default()
        }
    }

    #[test]
    fn more_messages_than_lines_become_shades_and_fewer_stay_lines() {
        let density = |it: &str| it.matches("class=\"density").count();
        let lines = |it: &str| it.matches("class=\"message c").count();
        let some = render(&diagram(3, MOST_LINES), Options::default());
        assert_eq!((density(&some), lines(&some)), (0, 1));
        let many = render(&diagram(3, MOST_LINES + 1), Options::default());
        assert!(density(&many) > 0 && lines(&many) == 0, "{} {}", density(&many), lines(&many));
        assert!(many.len() < some.len(), "shades take less space");
    }

    #[test]
    fn many_lanes_are_low_enough_for_a_page() {
        let of = |processes| {
            let diagram = diagram(processes, 10);
            SvgDrawing::new(&diagram, Options::default()).height
        };
        assert!(of(12) < of(13) + 26.0 && of(100) < 900.0, "{} {}", of(12), of(100));
        let text = render(&diagram(100, 10), Options::default());
        assert!(text.contains(">paris<") && text.contains(">rennes<") && !text.contains(">process-0<"));
        assert!(render(&diagram(12, 10), Options::default()).contains(">process-0<"));
    }

    #[test]
    fn labels_of_faults_do_not_overlap() {
        let mut diagram = diagram(3, 100);
        let fault = |(no, at)| Injected { at, no, text: "rennes-1 is killed".to_owned() };
        diagram.faults = (0..).zip([2000, 2100, 2200, 2300, 5000, 9990]).map(fault).collect();
        let scene = SvgDrawing::new(&diagram, Options::default());
        let mut labels = scene.fault_labels(&diagram.faults.iter().collect::<Vec<_>>());
        let texts: Vec<&str> = labels.iter().map(|it| it.2.as_str()).collect();
        assert_eq!(
            texts,
            [
                "0",
                "1",
                "fault 2: rennes-1 is killed",
                "fault 3: rennes-1 is killed",
                "fault 4: rennes-1 is killed",
                "fault 5: rennes-1 is killed"
            ]
        );
        labels.sort_by(|a, b| (a.1, a.0).partial_cmp(&(b.1, b.0)).unwrap());
        for pair in labels.windows(2).filter(|it| it[0].1 == it[1].1) {
            assert!(pair[0].0 + pair[0].2.len() as f64 * CHARACTER < pair[1].0, "{pair:?}");
        }
        assert!(labels.iter().all(|it| it.0 + it.2.len() as f64 * CHARACTER <= Options::default().width));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([n(1.04), n(2.0), n(-0.25)], ["1", "2", "-0.2"]);
        assert_eq!([seconds(1_500_000), seconds(2_000_000), seconds(0)], ["1.5", "2", "0"]);
    }
}

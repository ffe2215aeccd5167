//! The diagram as a static SVG picture for documents. The picture follows the reader's light or dark
//! preference.

use std::collections::BTreeMap;

use faultline_trace::duration::{LONG, clock};
use maud::{Markup, PreEscaped, html};

use super::{Diagram, Fate, Kind, Mark, MessageLine};

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
/// The distance, in pixels, below which the names of clusters would overlap.
const NAME: f64 = 13.0;
/// The width of a shaded column, in pixels.
const COLUMN: f64 = 3.0;
const SHADES: usize = 6;

const LEFT: f64 = 92.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const GAP: f64 = 30.0;
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
                @match scene.is_dense() {
                    true => (scene.density()),
                    false => (scene.messages()),
                }
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

    fn lanes(&self) -> Markup {
        html! {
            @for (lane, _) in self.diagram.lanes.iter().enumerate() {
                @let y = n(self.y(lane));
                line class={ "life c" (self.group(lane) % 6) } x1=(n(LEFT)) x2=(n(self.options.width - RIGHT)) y1=(y) y2=(y) {}
            }
        }
    }

    fn stretches(&self) -> Markup {
        let height = (self.options.lane * 0.46).max(3.0).min(self.options.lane);
        let bar = |class: &str, lane: usize, from: i64, upto: i64, title: &str| {
            html! {
                rect class=(class) x=(n(self.x(from))) y=(n(self.y(lane) - height / 2.0))
                    width=(n((self.x(upto) - self.x(from)).max(1.0))) height=(n(height)) {
                    @if !title.is_empty() { title { (title) } }
                }
            }
        };
        html! {
            @for it in &self.diagram.recoveries { (bar("recovering", it.lane, it.from, it.upto, "recovering")) }
            @for it in &self.diagram.undone { (bar("undone", it.lane, it.from, it.upto, "undone")) }
            @for it in &self.diagram.outages { (bar("down", it.lane, it.from, it.upto, &it.text)) }
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
    /// shades.
    fn density(&self) -> Markup {
        let mut bins: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for it in self.drawn() {
            for (lane, at) in [(it.from, Some(it.sent)), (it.to, it.arrived)] {
                if let Some(at) = at.map(|at| self.x(at)).filter(|it| *it >= LEFT) {
                    *bins.entry((lane, ((at - LEFT) / COLUMN) as usize)).or_default() += 1;
                }
            }
        }
        let most = f64::from(bins.values().copied().max().unwrap_or(1)).ln_1p();
        let mut paths: BTreeMap<(usize, usize), String> = BTreeMap::new();
        let height = self.options.lane * 0.84;
        for ((lane, column), count) in bins {
            let shade = (f64::from(count).ln_1p() / most * SHADES as f64).ceil() as usize;
            let (x, y) = (LEFT + column as f64 * COLUMN, self.y(lane) - height / 2.0);
            let path = paths.entry((self.group(lane) % 6, shade.clamp(1, SHADES))).or_default();
            path.push_str(&format!("M{} {}h{COLUMN}v{}h-{COLUMN}z", n(x), n(y), n(height)));
        }
        html! {
            @for ((cluster, shade), d) in &paths {
                path class={ "density c" (cluster) } fill-opacity=(format!("{:.2}", 0.7 * *shade as f64 / SHADES as f64)) d=(d) {}
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
        html! {
            @for it in &self.diagram.rollbacks {
                @for &(lane, restored, saved) in &it.members {
                    @let (x1, x2, y) = (self.x(restored), self.x(saved), self.y(lane));
                    @let lift = (self.options.lane * 0.55).min(16.0);
                    path.return d={ "M" (n(x1)) " " (n(y)) "C" (n(x1)) " " (n(y - lift)) " " (n(x2)) " " (n(y - lift)) " " (n(x2)) " " (n(y - 5.0)) } {
                        title { (it.text) }
                    }
                    path.tip d={ "M" (n(x2)) " " (n(y - 4.0)) "l-3 -5h6z" } {}
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

    fn marks(&self) -> Markup {
        let size = (self.options.lane * 0.2).clamp(1.8, 4.6);
        // Symbols if there is space for them; otherwise ticks at the upper edge of the lane, which hide nothing.
        let mut seen = vec![0.0; self.diagram.lanes.len()];
        for it in self.diagram.checkpoints.iter().filter(|it| self.shown(it.at, it.at)) {
            seen[it.lane] += 1.0;
        }
        let is_low = self.options.lane < LEAST_LANE;
        let most = if is_low { 0.0 } else { (self.options.width - LEFT - RIGHT) / (size * 5.0) };
        let tick = |it: &Mark| {
            let y = self.y(it.lane) - self.options.lane / 2.0;
            format!("M{} {}v{}", n(self.x(it.at)), n(y), n((self.options.lane * 0.22).max(1.0)))
        };
        html! {
            @for it in &self.diagram.checkpoints {
                @if self.shown(it.at, it.at) && seen[it.lane] > most {
                    path class={ "tick c" (self.group(it.lane) % 6) } d=(tick(it)) {}
                } @else if self.shown(it.at, it.at) {
                    (mark(it.kind, it.undone, self.group(it.lane) % 6, self.x(it.at), self.y(it.lane), size,
                        Some(&format!("{}: checkpoint {}", self.diagram.lanes[it.lane], it.name))))
                }
            }
            @for it in &self.diagram.outages {
                (cross(self.x(it.from), self.y(it.lane), size))
            }
        }
    }

    fn faults(&self) -> Markup {
        let right = self.options.width - RIGHT;
        html! {
            @for it in self.diagram.faults.iter().filter(|it| self.shown(it.at, it.at)) {
                @let x = self.x(it.at);
                line.fault x1=(n(x)) x2=(n(x)) y1=(n(TOP - 22.0)) y2=(n(self.bottom() + 4.0)) {}
                @let late = x > right - 260.0;
                text class={ "fault" @if late { " late" } } x=(n(if late { x - 5.0 } else { x + 5.0 })) y=(n(TOP - 26.0)) {
                    "fault " (it.no) ": " (it.text)
                }
            }
        }
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
    html! { path.failure d={ "M" (a) " " (c) "L" (b) " " (d) "M" (a) " " (d) "L" (b) " " (c) } {} }
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
            checkpoints: Vec::new(),
            outages: Vec::new(),
            recoveries: Vec::new(),
            undone: Vec::new(),
            rollbacks: Vec::new(),
            recovery_lines: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
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
    fn numbers_are_short() {
        assert_eq!([n(1.04), n(2.0), n(-0.25)], ["1", "2", "-0.2"]);
        assert_eq!([seconds(1_500_000), seconds(2_000_000), seconds(0)], ["1.5", "2", "0"]);
    }
}

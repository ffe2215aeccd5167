//! Draws a dashboard as an SVG from the data of a Prometheus server.

use std::error::Error;
use std::fmt::Write as _;

use super::RATE_INTERVAL;
use super::prometheus::{Prometheus, Series};
use super::table::{Dashboard, Kind, PLAIN, Panel, Steps, fill};

/// The size of a cell of Grafana's grid, in pixels.
const CELL: (usize, usize) = (50, 30);
const MARGIN: usize = 4;
/// The maximum number of instants in a graph.
const POINTS: f64 = 90.0;
/// The maximum number of series that a legend names.
const LEGEND_LINES: usize = 4;
/// The mean width of a letter in a legend, in pixels.
const LETTER: f64 = 5.2;
/// Colours of series.
const PALETTE: [&str; 8] =
    ["#3366cc", "#dc3912", "#ff9900", "#109618", "#990099", "#0099c6", "#b82e2e", "#66aa00"];

/// The data of a dashboard over one interval. Times are in seconds since the Unix epoch.
struct Drawing<'a> {
    prometheus: &'a Prometheus,
    from: f64,
    upto: f64,
    step: f64,
    /// Instants and colours of the annotations.
    marks: Vec<(f64, &'static str)>,
    svg: String,
}

/// A rectangle in the picture, in pixels.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Returns the picture of a dashboard with the data from `from` to `upto`.
pub(super) fn draw(
    dashboard: &Dashboard,
    prometheus: &Prometheus,
    from: f64,
    upto: f64,
) -> Result<String, Box<dyn Error>> {
    let step = ((upto - from) / POINTS).max(1.0);
    let mut drawing = Drawing { prometheus, from, upto, step, marks: Vec::new(), svg: String::new() };
    for it in dashboard.annotations {
        for series in drawing.query(it.query)? {
            let mut last = f64::MIN;
            for (at, _) in series.points() {
                // Consecutive instants belong to one event.
                if at - last > 1.5 * step {
                    drawing.marks.push((at, css(it.color)));
                }
                last = at;
            }
        }
    }
    let mut lines = 0;
    for (line, title, placed) in dashboard.places() {
        let y = line * CELL.1 + CELL.1 * 2 / 3;
        drawing.text(8.0, y as f64, "row", title);
        for (column, line, panel) in placed {
            let (width, height) = panel.size();
            lines = lines.max(line + height);
            let area = Area {
                x: (column * CELL.0 + MARGIN) as f64,
                y: (line * CELL.1 + MARGIN) as f64,
                width: (width * CELL.0 - 2 * MARGIN) as f64,
                height: (height * CELL.1 - 2 * MARGIN) as f64,
            };
            drawing.panel(panel, area)?;
        }
    }
    let (width, height) = (super::table::COLUMNS * CELL.0, lines * CELL.1 + MARGIN);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>{}</title>\n<style>.row{{font-size:14px;font-weight:bold}}.title{{font-weight:bold}}\
         .small{{font-size:9px;fill:#666}}.big{{font-size:26px;text-anchor:middle}}.axis{{font-size:9px;fill:#666;\
         text-anchor:end}}</style>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#f4f5f5\"/>\n{}</svg>\n",
        escaped(dashboard.title),
        drawing.svg,
    ))
}

impl Drawing<'_> {
    fn query(&self, query: &str) -> Result<Vec<Series>, Box<dyn Error>> {
        self.prometheus.query(&fill(query, Some(RATE_INTERVAL)), self.from, self.upto, self.step)
    }

    fn panel(&mut self, panel: &Panel, area: Area) -> Result<(), Box<dyn Error>> {
        let Area { x, y, width, height } = area;
        _ = writeln!(
            self.svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"#fff\" stroke=\"#ddd\"/>"
        );
        self.text(x + 8.0, y + 16.0, "title", panel.title);
        let mut all = Vec::new();
        for (query, legend) in panel.queries {
            all.extend(self.query(query)?.into_iter().map(|it| (it.named(legend), it)));
        }
        all.retain(|(_, series)| series.points().next().is_some());
        let inner = Area { x: x + 8.0, y: y + 24.0, width: width - 16.0, height: height - 32.0 };
        if all.is_empty() {
            let why = if panel.needs_traffic_control { "only with traffic control" } else { "no data" };
            self.text(inner.x, inner.y + 16.0, "small", why);
            return Ok(());
        }
        match panel.kind {
            Kind::Graph => self.graph(panel.unit, &all, inner),
            Kind::Number(steps) => {
                let value = last(&all[0].1);
                self.big(inner, &shown(value, panel.unit), color_of(steps, value));
            }
            Kind::Word(words) => {
                let value = last(&all[0].1);
                let found = words.iter().find(|it| f64::from(it.0) == value);
                let (text, color) = found.map_or(("?", super::table::RED), |it| (it.1, it.2));
                self.big(inner, text, css(color));
            }
            Kind::Name => {
                let is_current = |it: &&(String, Series)| {
                    it.1.points().last().is_some_and(|(at, _)| at + 2.0 * self.step >= self.upto)
                };
                let names: Vec<&str> = all.iter().filter(is_current).map(|it| it.0.as_str()).collect();
                self.big(inner, &names.join(", "), color_of(PLAIN, 0.0));
            }
            Kind::Bars(steps) => self.bars(panel.unit, steps, &all, inner),
        }
        Ok(())
    }

    fn graph(&mut self, unit: &str, all: &[(String, Series)], area: Area) {
        let most = all.iter().flat_map(|it| it.1.points()).map(|it| it.1).fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.05 } else { 1.0 };
        let legend = all.len().min(LEGEND_LINES).div_ceil(2) as f64 * 12.0 + 2.0;
        let plot = Area { x: area.x + 44.0, width: area.width - 44.0, height: area.height - legend, ..area };
        let bottom = plot.y + plot.height;
        for share in [0.0, 0.5, 1.0] {
            let y = bottom - share * plot.height;
            _ = writeln!(self.svg, "<path d=\"M{:.0} {y:.0}h{:.0}\" stroke=\"#eee\"/>", plot.x, plot.width);
            self.text(plot.x - 4.0, y + 3.0, "axis", &shown(share * most, unit));
        }
        let across = |at: f64| plot.x + (at - self.from) / (self.upto - self.from) * plot.width;
        let marks: Vec<_> = self.marks.iter().map(|&(at, color)| (across(at), color)).collect();
        for (x, color) in marks {
            _ = writeln!(
                self.svg,
                "<path d=\"M{x:.0} {:.0}v{:.0}\" stroke=\"{color}\" stroke-dasharray=\"2 2\" opacity=\".6\"/>",
                plot.y, plot.height
            );
        }
        for (index, (_, series)) in all.iter().enumerate() {
            let (mut path, mut previous) = (String::new(), f64::MIN);
            for (at, value) in series.points() {
                let (x, y) = (
                    plot.x + (at - self.from) / (self.upto - self.from) * plot.width,
                    bottom - value.max(0.0) / most * plot.height,
                );
                let is_gap = at - previous > 1.5 * self.step;
                _ = write!(path, "{}{x:.0} {y:.0}", if is_gap { "M" } else { "L" });
                if is_gap {
                    // A point without neighbours must also be visible.
                    path.push_str("h1");
                }
                previous = at;
            }
            let color = PALETTE[index % PALETTE.len()];
            _ = writeln!(
                self.svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>"
            );
        }
        for (index, (name, _)) in all.iter().enumerate().take(LEGEND_LINES) {
            let more = all.len() - LEGEND_LINES.min(all.len());
            let (x, y) =
                (area.x + (index % 2) as f64 * area.width / 2.0, bottom + 13.0 + (index / 2) as f64 * 12.0);
            let color = PALETTE[index % PALETTE.len()];
            _ = writeln!(
                self.svg,
                "<path d=\"M{x:.0} {:.0}h10\" stroke=\"{color}\" stroke-width=\"3\"/>",
                y - 3.0
            );
            let is_last = index + 1 == LEGEND_LINES && more > 0;
            let more = if is_last { format!(", and {more} more") } else { String::new() };
            let room = (area.width / 2.0 - 14.0) / LETTER;
            let name: String = name.chars().take((room as usize).saturating_sub(more.len())).collect();
            let name = name + &more;
            self.text(x + 14.0, y, "small", &name);
        }
    }

    fn bars(&mut self, unit: &str, steps: Steps, all: &[(String, Series)], area: Area) {
        let values: Vec<_> = all.iter().map(|(name, series)| (name, last(series))).collect();
        let most = values.iter().map(|it| it.1).fold(0.0, f64::max);
        let line = (area.height / values.len() as f64).min(40.0);
        for (index, (name, value)) in values.into_iter().enumerate() {
            let y = area.y + index as f64 * line;
            let width = if most > 0.0 { (value / most).max(0.0) * (area.width - 70.0) } else { 0.0 };
            let color = color_of(steps, value);
            self.text(area.x, y + 10.0, "small", name);
            _ = writeln!(
                self.svg,
                "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"{:.0}\" fill=\"{color}\"/>",
                area.x,
                y + 14.0,
                (line - 22.0).max(4.0)
            );
            self.text(area.x + width + 6.0, y + 10.0 + line / 2.0, "", &shown(value, unit));
        }
    }

    fn big(&mut self, area: Area, text: &str, color: &str) {
        // Long text gets a smaller font.
        let size = (area.width * 1.6 / text.chars().count().max(1) as f64).clamp(9.0, 26.0);
        let (x, y) = (area.x + area.width / 2.0, area.y + area.height * 0.6);
        _ = writeln!(
            self.svg,
            "<text class=\"big\" x=\"{x:.0}\" y=\"{y:.0}\" fill=\"{color}\" style=\"font-size:{size:.0}px\">{}</text>",
            escaped(text)
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        _ = writeln!(self.svg, "<text class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", escaped(text));
    }
}

fn last(series: &Series) -> f64 {
    series.points().last().map_or(0.0, |it| it.1)
}

fn color_of(steps: Steps, value: f64) -> &'static str {
    let step = steps.iter().rev().find(|it| it.0 <= value).or(steps.first());
    css(step.map_or("", |it| it.1))
}

/// Returns the shade in which Grafana shows a named colour.
fn css(color: &str) -> &'static str {
    match color {
        "green" => "#3c8c3c",
        "orange" => "#e07b00",
        "red" => "#c4162a",
        _ => "#1f60c4",
    }
}

/// Returns a value with its unit, as Grafana shows it.
fn shown(value: f64, unit: &str) -> String {
    let scaled = |scales: &[(f64, &str)], rest: &str| {
        let scale = scales.iter().find(|it| value.abs() >= it.0);
        let (by, name) = scale.map_or((1.0, rest), |&it| it);
        format!("{}{name}", rounded(value / by))
    };
    match unit {
        "percentunit" => format!("{} %", rounded(value * 100.0)),
        "s" if value == 0.0 => "0 s".to_owned(),
        "s" if value.abs() < 1e-3 => format!("{} µs", rounded(value * 1e6)),
        "s" if value.abs() < 1.0 => format!("{} ms", rounded(value * 1e3)),
        "s" => format!("{} s", rounded(value)),
        "bytes" => scaled(&[(1_048_576.0, " MiB"), (1024.0, " KiB")], " B"),
        "Bps" => scaled(&[(1e6, " MB/s"), (1e3, " kB/s")], " B/s"),
        "ops" | "reqps" | "pps" => format!("{}/s", scaled(&[(1e3, "k")], "")),
        _ => scaled(&[(1e6, "M"), (1e4, "k")], ""),
    }
}

/// Returns a number with about three digits.
fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        it if it >= 100.0 || it.fract() == 0.0 => 0,
        it if it >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        for (value, unit, text) in [
            (0.8768, "percentunit", "87.7 %"),
            (0.000_25, "s", "250 µs"),
            (0.0123, "s", "12.3 ms"),
            (0.0, "s", "0 s"),
            (75.25, "s", "75.2 s"),
            (2_097_152.0, "bytes", "2 MiB"),
            (12.0, "short", "12"),
            (1500.0, "ops", "1.50k/s"),
        ] {
            assert_eq!(shown(value, unit), text);
        }
    }

    #[test]
    fn the_highest_step_at_or_below_a_value_colours_it() {
        let steps: Steps = &[(0.0, "green"), (0.01, "orange"), (0.05, "red")];
        let colors = [0.0, 0.009, 0.01, 0.2].map(|it| color_of(steps, it));
        assert_eq!(colors, [css("green"), css("green"), css("orange"), css("red")]);
    }
}

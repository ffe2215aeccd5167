//! A trade-off between two costs.

use maud::{Markup, html};

use super::{Axis, Picture, n};

/// Alternatives with two costs each, both of which should be low.
#[derive(Clone, Debug)]
pub struct TradeOff {
    /// A description for screen readers.
    pub title: String,
    /// The label of the horizontal axis, which includes the unit.
    pub x: String,
    /// The label of the vertical axis, which includes the unit.
    pub y: String,
    /// The alternatives.
    pub costs: Vec<Cost>,
}

/// An alternative.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Its name.
    pub name: String,
    /// Whether the name is highlighted.
    pub is_marked: bool,
    /// Its costs, each with half the width of its interval.
    pub at: [(f64, f64); 2],
}

const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 310.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// The space on the right, in which the names of the rightmost points fit.
const RIGHT: f64 = 136.0;
/// The height of a name.
const LINE: f64 = 14.0;
/// The radius of a point.
const DOT: f64 = 4.5;
/// The width of a character.
const CHARACTER: f64 = 6.6;

impl TradeOff {
    /// Returns the alternatives that no other one beats in both costs, by the first cost.
    fn front(&self) -> Vec<&Cost> {
        let is_better = |a: &Cost, b: &Cost| {
            let pairs = || a.at.iter().zip(&b.at).map(|(a, b)| (a.0, b.0));
            pairs().all(|(a, b)| a <= b) && pairs().any(|(a, b)| a < b)
        };
        let is_best = |it: &&Cost| self.costs.iter().all(|other| !is_better(other, it));
        let mut front: Vec<&Cost> = self.costs.iter().filter(is_best).collect();
        front.sort_by(|a, b| a.at[0].0.total_cmp(&b.at[0].0));
        front
    }

    /// Renders the picture for a page that includes the common style and [`STYLE`](super::STYLE).
    pub fn markup(&self) -> Markup {
        let most = |axis: usize| {
            let ends = self.costs.iter().map(|it| it.at[axis].0 + it.at[axis].1);
            ends.fold(f64::MIN_POSITIVE, f64::max)
        };
        let [right, top] = [most(0), most(1)];
        let x = |value: f64| LEFT + value.max(0.0) / right * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value.max(0.0) / top * (HEIGHT - TOP - BOTTOM);
        let place = |it: &Cost| (x(it.at[0].0), y(it.at[1].0));
        let front: Vec<String> =
            self.front().into_iter().map(place).map(|(x, y)| format!("{},{}", n(x), n(y))).collect();
        let names = names(&self.costs, &self.costs.iter().map(place).collect::<Vec<_>>());
        let axis = Axis::from("");
        let content = html! {
            @for (value, text) in axis.marks((0.0, top), 5.0) {
                line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(n(y(value))) y2=(n(y(value))) {}
                text.end x=(LEFT - 7.0) y=(n(y(value) + 4.0)) { (text) }
            }
            @for (value, text) in axis.marks((0.0, right), 5.0) {
                text.middle x=(n(x(value))) y=(HEIGHT - BOTTOM + 17.0) { (text) }
            }
            text.middle x=(n(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(HEIGHT - 8.0) { (self.x) }
            text x="4" y="14" { (self.y) }
            g.c1 { polyline.mean.front points=(front.join(" ")) {} }
            @for (cost, (name_x, name_y)) in self.costs.iter().zip(names) {
                @let [(across, wide), (up, high)] = cost.at;
                g.c0 {
                    @if wide > 0.0 { path.whisker d={ "M" (n(x(across - wide))) " " (n(y(up))) "H" (n(x(across + wide))) } {} }
                    @if high > 0.0 { path.whisker d={ "M" (n(x(across))) " " (n(y(up - high))) "V" (n(y(up + high))) } {} }
                    circle.dot cx=(n(x(across))) cy=(n(y(up))) r=(DOT) {}
                }
                @if name_y > y(up) + LINE || name_y < y(up) - LINE / 2.0 {
                    line.grid x1=(n(x(across) + 5.0)) y1=(n(y(up))) x2=(n(name_x - 2.0)) y2=(n(name_y - 4.0)) {}
                }
                text class={ "ink" @if cost.is_marked { " title" } } x=(n(name_x)) y=(n(name_y)) { (cost.name) }
            }
        };
        Picture { label: self.title.clone(), width: WIDTH, height: HEIGHT, content }.markup()
    }
}

/// Returns where the names of the points are: on their right, and lower where they would cover each other or a point.
fn names(costs: &[Cost], places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|a, b| places[*a].1.total_cmp(&places[*b].1));
    let width = |it: usize| costs[it].name.chars().count() as f64 * CHARACTER;
    let mut taken: Vec<(f64, f64, f64)> = places.iter().map(|(x, y)| (x - DOT, x + DOT, y + 4.0)).collect();
    let mut names = vec![(0.0, 0.0); costs.len()];
    for it in order {
        let (x, mut y) = (places[it].0 + 9.0, places[it].1 + 4.0);
        let overlaps = |y: f64, &(from, to, other): &(f64, f64, f64)| {
            // Otherwise, a name that was moved below another one could still overlap it after rounding, forever.
            x < to && from < x + width(it) && (y - other).abs() < LINE - 0.01
        };
        while let Some(other) = taken.iter().find(|other| overlaps(y, other)) {
            y = other.2 + LINE;
        }
        taken.push((x, x + width(it), y));
        names[it] = (x, y);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, x: f64, y: f64) -> Cost {
        Cost { name: name.into(), is_marked: name == "own", at: [(x, 0.5), (y, 0.0)] }
    }

    #[test]
    fn the_line_joins_what_nothing_beats_in_both_costs() {
        let costs = vec![
            cost("slow", 9.0, 9.0),
            cost("own", 5.0, 1.0),
            cost("cheap", 1.0, 5.0),
            cost("twin", 5.0, 1.0),
        ];
        let it = TradeOff { title: "t".into(), x: "x".into(), y: "y".into(), costs };
        let front: Vec<&str> = it.front().iter().map(|it| it.name.as_str()).collect();
        assert_eq!(front, ["cheap", "own", "twin"]);
        let picture = it.markup().into_string();
        assert_eq!(picture.matches("class=\"dot\"").count(), 4);
        assert!(picture.contains(">slow</text>") && picture.contains("class=\"ink title\""), "{picture}");
    }

    #[test]
    fn names_do_not_overlap() {
        let costs: Vec<Cost> = (0..6).map(|it| cost("a name", 1.0 + f64::from(it) / 100.0, 2.0)).collect();
        let names = names(&costs, &costs.iter().map(|it| (it.at[0].0, it.at[1].0)).collect::<Vec<_>>());
        let mut rows: Vec<f64> = names.iter().map(|it| it.1).collect();
        rows.sort_by(f64::total_cmp);
        assert!(rows.windows(2).all(|it| it[1] - it[0] >= LINE - 1e-9), "{rows:?}");
    }

    #[test]
    fn costs_of_zero_are_drawn_at_the_origin() {
        let it =
            TradeOff { title: "t".into(), x: "x".into(), y: "y".into(), costs: vec![cost("none", 0.0, 0.0)] };
        assert!(!it.markup().into_string().contains("NaN"));
    }
}

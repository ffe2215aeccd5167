//! A grid of cells.

use maud::{Markup, html};

use super::{LABEL_GAP, Picture, RIGHT, WIDTH, n, width};

/// A grid of cells. The darker a cell, the greater its value.
#[derive(Clone, Debug)]
pub struct Heat {
    /// The heading.
    pub title: String,
    /// The name and values of the vertical axis.
    pub down: (String, Vec<String>),
    /// The name and values of the horizontal axis.
    pub across: (String, Vec<String>),
    /// Whether the greatest value is the best one, rather than the least.
    pub rises: bool,
    /// The cells.
    pub cells: Vec<HeatCell>,
}

/// One cell of a grid.
#[derive(Clone, Debug)]
pub struct HeatCell {
    /// The indices of its values on the vertical and the horizontal axis.
    pub place: [usize; 2],
    /// Its value.
    pub value: f64,
    /// The text in the cell.
    pub brief: String,
    /// The text of the cell.
    pub text: String,
    /// The path that the cell links to.
    pub link: String,
}

impl Heat {
    /// The least and the largest margin on the left, in which the values of the vertical axis must fit.
    const LEFT: (f64, f64) = (116.0, 240.0);
    const TOP: f64 = 56.0;
    const ROW: f64 = 30.0;

    /// Renders the picture for a page that includes the common style and [`STYLE`].
    pub fn markup(&self) -> Markup {
        let values = || self.cells.iter().map(|it| it.value);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let least = values().fold(f64::INFINITY, f64::min);
        let best = if self.rises { most } else { least };
        let shade = |it: f64| if most > least { 0.06 + 0.6 * (it - least) / (most - least) } else { 0.06 };
        let ((down, rows), (across, columns)) = (&self.down, &self.across);
        let left = rows.iter().map(|it| width(it) + LABEL_GAP + 3.0).fold(Heat::LEFT.0, f64::max);
        let left = left.min(Heat::LEFT.1);
        let wide = (WIDTH - left - RIGHT) / columns.len() as f64;
        // If the values would overlap, only every nth is shown.
        let widest = columns.iter().map(|it| width(it) + 4.0).fold(0.0, f64::max);
        let every = (widest / wide).ceil().max(1.0) as usize;
        let high = Heat::TOP + rows.len() as f64 * Heat::ROW;
        let content = html! {
            text.title x="8" y="18" { (self.title) }
            @for (index, value) in columns.iter().enumerate().step_by(every) {
                text.middle x=(n(left + (index as f64 + 0.5) * wide)) y=(Heat::TOP - 8.0) { (value) }
            }
            @for (index, value) in rows.iter().enumerate() {
                text.end x=(n(left - LABEL_GAP)) y=(Heat::TOP + index as f64 * Heat::ROW + 19.0) { (value) }
            }
            @for cell in &self.cells {
                @let [row, column] = cell.place.map(|it| it as f64);
                @let (x, y) = (left + column * wide, Heat::TOP + row * Heat::ROW);
                a.c0 href=(cell.link) {
                    rect.cell x=(n(x + 1.0)) y=(y + 1.0) width=(n(wide - 2.0)) height=(Heat::ROW - 2.0) rx="3"
                        fill-opacity=(format!("{:.2}", shade(cell.value))) { title { (cell.text) } }
                    @if cell.value == best {
                        rect.outlined x=(n(x + 2.0)) y=(y + 2.0) width=(n(wide - 4.0)) height=(Heat::ROW - 4.0) rx="3" {}
                    }
                    @if wide >= 44.0 { text.middle.ink x=(n(x + wide / 2.0)) y=(y + 19.0) { (cell.brief) } }
                }
            }
            text x="8" y=(high + 20.0) { "down: " (down) ", across: " (across) ", outlined: the best mean" }
        };
        let label = format!("{} over {down} and {across}; the table below has the numbers.", self.title);
        Picture { label, width: WIDTH, height: high + 30.0, content }.markup()
    }
}

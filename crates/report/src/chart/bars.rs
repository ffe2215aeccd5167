//! Panels of horizontal bars.

use maud::{Markup, html};

use super::{Picture, linked, n};

/// A panel of horizontal bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The heading.
    pub title: String,
    /// A remark on the right of the heading.
    pub remark: &'static str,
    /// The bars, from top to bottom.
    pub rows: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name on the left.
    pub name: String,
    /// Whether the name is highlighted.
    pub is_marked: bool,
    /// The length of the bar; otherwise the reason why there is none.
    pub length: Result<Length, &'static str>,
    /// The path that the row links to, if any.
    pub link: Option<String>,
}

/// The length of a bar.
#[derive(Clone, Debug)]
pub struct Length {
    /// The value.
    pub mean: f64,
    /// Half the length of the whisker, if there is one.
    pub half_width: Option<f64>,
    /// The values of individual runs.
    pub runs: Vec<f64>,
    /// The text at the end of the row.
    pub brief: String,
    /// The text of the bar.
    pub text: String,
    /// Why the bar cannot be compared with the others.
    pub unlike: Option<String>,
}

impl Length {
    /// Returns the largest value that is drawn.
    fn end(&self) -> f64 {
        self.runs.iter().copied().fold(self.mean + self.half_width.unwrap_or(0.0), f64::max)
    }
}

/// A bar that is more than this many times as long as the next one would hide the differences between the others, so it is
/// drawn with a gap.
const BROKEN: f64 = 8.0;

impl Bars {
    const WIDTH: f64 = 424.0;
    const GAP: f64 = 40.0;
    const NAME: f64 = 170.0;
    const ROW: f64 = 22.0;
    const HEAD: f64 = 26.0;
    /// The space next to a bar, for its number.
    const NUMBER: f64 = 92.0;
    /// The space for bars.
    const ROOM: f64 = Bars::WIDTH - Bars::NAME - Bars::NUMBER;

    /// Renders panels for a page that includes the common style and [`STYLE`](super::STYLE): each a picture of its own, in
    /// as many columns as fit.
    pub fn markup(panels: &[Bars]) -> Markup {
        html! {
            div.panels { @for panel in panels {
                (Picture {
                    label: format!("{}, {}: bars for each protocol. A table contains the same numbers.", panel.title, panel.remark),
                    width: Bars::WIDTH,
                    height: panel.height(),
                    content: panel.panel(),
                }.markup())
            } }
        }
    }

    /// Renders panels in two columns, as a separate file.
    pub fn file(panels: &[Bars]) -> String {
        let height = panels.iter().map(Bars::height).fold(0.0, f64::max);
        let content = html! {
            @for (index, panel) in panels.iter().enumerate() {
                @let x = (index % 2) as f64 * (Bars::WIDTH + Bars::GAP);
                @let y = (index / 2) as f64 * height;
                g transform={ "translate(" (x) " " (y) ")" } { (panel.panel()) }
            }
        };
        let label = "Bars for each quantity and protocol.".to_owned();
        let (width, height) = (2.0 * Bars::WIDTH + Bars::GAP, panels.len().div_ceil(2) as f64 * height);
        Picture { label, width, height, content }.file()
    }

    fn height(&self) -> f64 {
        Bars::HEAD + self.rows.len() as f64 * Bars::ROW + 14.0
    }

    /// Returns the value at the right end of the axis. Longer bars are broken.
    fn most(&self) -> f64 {
        let lengths = self.rows.iter().filter_map(|it| it.length.as_ref().ok());
        let mut ends: Vec<f64> = lengths.map(Length::end).collect();
        ends.sort_by(|a, b| b.total_cmp(a));
        let is_near = |pair: &&[f64]| pair[1] <= 0.0 || pair[0] <= pair[1] * BROKEN;
        ends.windows(2).find(is_near).map_or(ends.last().copied().unwrap_or(0.0), |it| it[0])
    }

    fn panel(&self) -> Markup {
        let most = self.most();
        let bottom = Bars::HEAD + self.rows.len() as f64 * Bars::ROW;
        html! {
            text.title x="0" y="16" { (self.title) }
            text.end x=(Bars::WIDTH) y="16" { (self.remark) }
            line.grid x1=(Bars::NAME) x2=(Bars::NAME) y1=(Bars::HEAD) y2=(bottom) {}
            @for (index, row) in self.rows.iter().enumerate() {
                g.c0 transform={ "translate(0 " (Bars::HEAD + index as f64 * Bars::ROW) ")" } {
                    (linked(row.link.as_deref(), html! {
                        text class={ "end ink" @if row.is_marked { " title" } } x=(Bars::NAME - 8.0) y="15" { (row.name) }
                        @match &row.length {
                            Ok(length) => (row.bar(length, most)),
                            Err(reason) => text x=(Bars::NAME + 6.0) y="15" { (reason) },
                        }
                    }))
                }
            }
        }
    }
}

impl Bar {
    fn bar(&self, length: &Length, most: f64) -> Markup {
        let is_broken = length.end() > most;
        let scale = |value: f64| if most > 0.0 { (value / most).clamp(0.0, 1.0) * Bars::ROOM } else { 0.0 };
        let half = length.half_width.filter(|_| !is_broken).unwrap_or(0.0);
        let class = if length.unlike.is_some() { "bar unlike" } else { "bar" };
        let x = |value: f64| n(Bars::NAME + scale(value));
        html! {
            rect class=(class) x=(Bars::NAME) y="4" width=(n(scale(length.mean))) height=(Bars::ROW - 8.0) rx="2" {
                title { (self.name) ": " (length.text) }
            }
            @if is_broken {
                path.broken d={ "M" (Bars::NAME + Bars::ROOM * 0.8) " 2l5 6l-5 6l5 6" } {}
            } @else {
                @if half > 0.0 {
                    path.whisker d={ "M" (x(length.mean - half)) " 8v6m0 -3H" (x(length.mean + half)) "m0 -3v6" } {}
                }
                @for run in &length.runs { circle.run cx=(x(*run)) cy="11" r="2.4" {} }
            }
            @if let Some(why) = &length.unlike { text x=(Bars::NAME + 6.0) y="15" { (why) } }
            text.end.ink x=(Bars::WIDTH) y="15" { (length.brief) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(means: &[f64]) -> Bars {
        let bar = |mean: &f64| Bar {
            name: "p".into(),
            is_marked: false,
            length: Ok(Length {
                mean: *mean,
                half_width: None,
                runs: Vec::new(),
                brief: String::new(),
                text: String::new(),
                unlike: None,
            }),
            link: None,
        };
        Bars { title: "t".into(), remark: "", rows: means.iter().map(bar).collect() }
    }

    #[test]
    fn only_bars_that_would_hide_the_others_are_broken() {
        let broken = |means: &[f64]| bars(means).panel().into_string().matches("class=\"broken\"").count();
        assert_eq!(broken(&[1.0, 8.0, 3.0]), 0);
        assert_eq!((broken(&[1.0, 40.0, 3.0]), bars(&[1.0, 40.0, 3.0]).most()), (1, 3.0));
        assert_eq!((broken(&[500.0, 40.0, 3.0]), bars(&[500.0, 40.0, 3.0]).most()), (2, 3.0));
        assert_eq!(
            (broken(&[7.0, 0.0, 0.0]), broken(&[0.0, 0.0]), broken(&[5.0]), broken(&[])),
            (0, 0, 0, 0)
        );
    }

    #[test]
    fn every_panel_of_a_page_is_a_picture_of_its_own() {
        let panels = [bars(&[1.0]), bars(&[2.0])];
        assert_eq!(Bars::markup(&panels).into_string().matches("<svg").count(), 2);
        assert_eq!(Bars::file(&panels).matches("<svg").count(), 2, "the file, and one picture in it");
    }
}

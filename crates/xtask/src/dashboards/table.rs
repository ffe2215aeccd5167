//! The types of the tables from which the dashboards are generated.

/// The number of columns in Grafana's grid.
pub(super) const COLUMNS: usize = 24;

pub(super) struct Dashboard {
    /// The name of the dashboard's file, without the extension.
    pub(super) file: &'static str,
    pub(super) uid: &'static str,
    pub(super) title: &'static str,
    pub(super) variables: &'static [Variable],
    pub(super) annotations: &'static [Annotation],
    pub(super) rows: &'static [(&'static str, &'static [Panel])],
}

/// A list at the top of the dashboard, from which a user selects values.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    /// Grafana's query for the values of the list.
    pub(super) query: &'static str,
}

/// A set of marks at the times of certain events, shown in all graphs.
pub(super) struct Annotation {
    pub(super) name: &'static str,
    pub(super) color: &'static str,
    /// The query whose value is greater than zero at the time of an event.
    pub(super) query: &'static str,
    /// The text of a mark.
    pub(super) text: &'static str,
}

pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// Grafana's name for the unit.
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    /// Queries, each with a legend. The words of [`PLACEHOLDERS`] stand for the user's selection.
    pub(super) queries: &'static [(&'static str, &'static str)],
    /// Whether the panel has data only if traffic control emulates the links.
    pub(super) needs_traffic_control: bool,
}

/// How a panel shows its values.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Lines over time.
    Graph,
    /// The last value as a number, coloured by the highest step at or below it.
    Number(Steps),
    /// The last value as a word: the word and the colour of each value.
    Word(&'static [(u32, &'static str, &'static str)]),
    /// The legends of the series that currently have a value.
    Name,
    /// The last value of each series as a bar, coloured like a number.
    Bars(Steps),
}

/// Colours by minimum value. The first step has no minimum.
pub(super) type Steps = &'static [(f64, &'static str)];

pub(super) const GREEN: &str = "green";
pub(super) const ORANGE: &str = "orange";
pub(super) const RED: &str = "red";
pub(super) const BLUE: &str = "blue";
/// One colour for all values, because no value is better than another.
pub(super) const PLAIN: Steps = &[(0.0, BLUE)];

/// Placeholders in queries, each with the label matchers that replace it in Grafana.
pub(super) const PLACEHOLDERS: [(&str, &str); 4] = [
    ("CLUSTERS", "RUNS, cluster=~\"$cluster\""),
    ("RUNS", "namespace=~\"$namespace\", federation=~\"$federation\", protocol=~\"$protocol\""),
    ("FEDERATIONS", "namespace=~\"$namespace\", federation=~\"$federation\""),
    ("NAMESPACES", "namespace=~\"$namespace\""),
];
/// A placeholder for an interval of a few scrapes.
pub(super) const INTERVAL: (&str, &str) = ("INTERVAL", "$__rate_interval");

impl Panel {
    const fn new(title: &'static str, unit: &'static str, kind: Kind) -> Panel {
        Panel { title, description: "", unit, kind, queries: &[], needs_traffic_control: false }
    }

    pub(super) const fn graph(title: &'static str, unit: &'static str) -> Panel {
        Panel::new(title, unit, Kind::Graph)
    }

    pub(super) const fn number(title: &'static str, unit: &'static str, steps: Steps) -> Panel {
        Panel::new(title, unit, Kind::Number(steps))
    }

    pub(super) const fn bars(title: &'static str, unit: &'static str, steps: Steps) -> Panel {
        Panel::new(title, unit, Kind::Bars(steps))
    }

    pub(super) const fn word(
        title: &'static str,
        words: &'static [(u32, &'static str, &'static str)],
    ) -> Panel {
        Panel::new(title, "none", Kind::Word(words))
    }

    pub(super) const fn name(title: &'static str) -> Panel {
        Panel::new(title, "none", Kind::Name)
    }

    pub(super) const fn about(self, description: &'static str) -> Panel {
        Panel { description, ..self }
    }

    pub(super) const fn of(self, queries: &'static [(&'static str, &'static str)]) -> Panel {
        Panel { queries, ..self }
    }

    pub(super) const fn with_traffic_control(self) -> Panel {
        Panel { needs_traffic_control: true, ..self }
    }

    /// Returns the width and the height in Grafana's grid.
    pub(super) fn size(&self) -> (usize, usize) {
        match self.kind {
            Kind::Graph | Kind::Bars(_) => (8, 7),
            Kind::Number(_) | Kind::Word(_) | Kind::Name => (3, 4),
        }
    }
}

impl Dashboard {
    /// Iterates over all panels.
    pub(super) fn panels(&self) -> impl Iterator<Item = &'static Panel> {
        self.rows.iter().flat_map(|(_, panels)| *panels)
    }

    /// Iterates over the rows: the line and the title of each, and its panels with their positions (column, line) in
    /// Grafana's grid.
    pub(super) fn places(
        &self,
    ) -> impl Iterator<Item = (usize, &'static str, Vec<(usize, usize, &'static Panel)>)> {
        let mut line = 0;
        self.rows.iter().map(move |(title, panels)| {
            let heading = line;
            line += 1;
            let (mut column, mut tallest, mut placed) = (0, 0, Vec::new());
            for panel in *panels {
                let (width, height) = panel.size();
                if column + width > COLUMNS || tallest > 0 && height != tallest {
                    (column, line) = (0, line + tallest);
                }
                tallest = height;
                placed.push((column, line, panel));
                column += width;
            }
            line += tallest;
            (heading, *title, placed)
        })
    }
}

/// Returns a query with all placeholders replaced. With an interval, the query selects everything; otherwise, it
/// selects by Grafana's variables.
pub(super) fn fill(query: &str, interval: Option<&str>) -> String {
    let filled =
        PLACEHOLDERS.iter().fold(query.to_owned(), |it, (name, matchers)| it.replace(name, matchers));
    let Some(interval) = interval else { return filled.replace(INTERVAL.0, INTERVAL.1) };
    let mut selected = filled.replace(INTERVAL.0, interval);
    for variable in ["namespace", "federation", "protocol", "cluster"] {
        selected = selected.replace(&format!("\"${variable}\""), "\".*\"");
    }
    selected
}

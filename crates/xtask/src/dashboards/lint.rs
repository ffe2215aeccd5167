//! Rules for the tables of the dashboards, based on Grafana's dashboard-linter.

use super::table::{Dashboard, INTERVAL, Kind, PLACEHOLDERS, fill};

/// The suffix of metrics that only grow. Their values count from the start of one run, so a panel that shows them must
/// aggregate them.
const COUNTER: &str = "_total";

/// Returns the problems of a dashboard.
pub(super) fn problems(dashboard: &Dashboard) -> Vec<String> {
    let mut problems = Vec::new();
    let mut titles = std::collections::BTreeSet::new();
    for panel in dashboard.panels() {
        let mut problem = |what: &str| problems.push(format!("{}, {}: {what}", dashboard.title, panel.title));
        if !titles.insert(panel.title) {
            problem("another panel has this title");
        }
        if panel.description.is_empty() || !panel.description.ends_with('.') {
            problem("the description must be a sentence that ends with a full stop");
        }
        if panel.queries.is_empty() {
            problem("the panel has no query");
        }
        if let Kind::Number(steps) | Kind::Bars(steps) = panel.kind
            && !steps.is_sorted_by(|one, other| one.0 < other.0)
        {
            problem("thresholds must ascend");
        }
        for (query, legend) in panel.queries {
            if legend.is_empty() {
                problem("a query has no legend");
            }
            let absent = labels_of(legend).find(|label| !query.contains(label));
            if let Some(label) = absent {
                problem(&format!("the query has no label `{label}` for the legend"));
            }
        }
    }
    let of_panels =
        dashboard.panels().flat_map(|it| it.queries.iter().map(move |(query, _)| (it.title, *query)));
    let of_annotations = dashboard.annotations.iter().map(|it| (it.name, it.query));
    for (title, query) in of_panels.chain(of_annotations) {
        let mut problem =
            |what: &str| problems.push(format!("{}, {title}: {what}: {query}", dashboard.title));
        if query.contains("instance") {
            problem("select federations and clusters, not instances");
        }
        let selects = PLACEHOLDERS.iter().any(|(name, _)| query.contains(name));
        if !selects && !query.contains("faultline_operator_") {
            problem("the query ignores the user's selection");
        }
        let plain = fill(query, None);
        if PLACEHOLDERS.iter().chain([&INTERVAL]).any(|(name, _)| plain.contains(name)) {
            problem("a placeholder was not replaced");
        }
        for variable in variables_in(&plain) {
            if !dashboard.variables.iter().any(|it| it.name == variable) {
                problem(&format!("the dashboard has no variable `{variable}`"));
            }
        }
        let is_aggregated =
            ["sum", "max", "rate(", "changes(", "histogram_quantile("].iter().any(|it| plain.contains(it));
        if plain.contains(COUNTER) && !is_aggregated {
            problem("a counter must be aggregated");
        }
        if plain.matches('(').count() != plain.matches(')').count() {
            problem("parentheses do not match");
        }
    }
    problems
}

/// Iterates over the labels that a legend shows.
fn labels_of(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).filter_map(|it| it.split("}}").next())
}

/// Iterates over the variables in a query, except those that Grafana provides.
fn variables_in(query: &str) -> impl Iterator<Item = &str> {
    let names = query.split('$').skip(1);
    let names =
        names.map(|it| it.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(""));
    names.filter(|it| !it.starts_with("__"))
}

#[cfg(test)]
mod tests {
    use super::super::DASHBOARDS;
    use super::super::table::{Panel, Variable};
    use super::*;

    #[test]
    fn the_dashboards_have_no_problem() {
        for dashboard in DASHBOARDS {
            assert_eq!(problems(dashboard), Vec::<String>::new());
        }
    }

    #[test]
    fn each_rule_detects_its_violation() {
        const NAMESPACE: Variable = Variable { name: "namespace", label: "", query: "" };
        fn found(panels: Vec<Panel>) -> String {
            let panels: &'static [Panel] = panels.leak();
            let rows: &'static [(&str, &[Panel])] = vec![("row", panels)].leak();
            let variables = &[NAMESPACE];
            let dashboard = Dashboard { file: "", uid: "", title: "", variables, annotations: &[], rows };
            problems(&dashboard).join("\n")
        }
        const GOOD: Panel = Panel::graph("Good", "s").about("It is.").of(&[("sum(a{NAMESPACES})", "a")]);
        assert_eq!(found(vec![GOOD]), "");
        for (panels, what) in [
            (vec![GOOD, GOOD], "another panel has this title"),
            (vec![GOOD.about("None")], "the description must be a sentence that ends with a full stop"),
            (vec![GOOD.of(&[])], "the panel has no query"),
            (vec![GOOD.of(&[("sum(a{NAMESPACES})", "")])], "a query has no legend"),
            (vec![GOOD.of(&[("sum(a{NAMESPACES})", "{{kind}}")])], "no label `kind`"),
            (vec![GOOD.of(&[("sum by (instance) (a{NAMESPACES})", "a")])], "not instances"),
            (vec![GOOD.of(&[("sum(a)", "a")])], "ignores the user's selection"),
            (vec![GOOD.of(&[("sum(a{RUNS})", "a")])], "no variable `federation`"),
            (vec![GOOD.of(&[("a_total{NAMESPACES}", "a")])], "a counter must be aggregated"),
            (vec![GOOD.of(&[("sum(a{NAMESPACES}", "a")])], "parentheses do not match"),
            (
                vec![Panel::number("Number", "s", &[(1.0, ""), (0.0, "")]).about("It is.").of(GOOD.queries)],
                "thresholds must ascend",
            ),
        ] {
            let found = found(panels);
            assert!(found.contains(what), "{what}: {found}");
        }
    }
}

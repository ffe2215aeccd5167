//! Whether clusters can join and leave as they are to.

use faultline_core::Span;

use super::Check;
use crate::quantity::Duration;
use crate::resource::{Application, Protocol, Traffic};

impl Check<'_> {
    pub(super) fn presence(&mut self) {
        let spec = self.spec;
        let clusters = &spec.clusters;
        let Some(first) = clusters.iter().position(|it| !it.is_permanent()) else { return };
        let field = |index: usize| {
            let name = if clusters[index].joins_after.is_some() { "joinsAfter" } else { "leavesAfter" };
            format!("spec.clusters[{index}].{name}")
        };
        if clusters.iter().all(|it| !it.is_permanent()) {
            self.problem(
                field(first),
                "every cluster joins or leaves",
                "let at least one cluster be there from the beginning to the end: it decides what is collected",
            );
        }
        if !matches!(self.spec.protocol, Protocol::Hc3i(_)) {
            self.problem(
                field(first),
                format!("under {} clusters neither join nor leave", self.spec.protocol.name()),
                "choose the protocol `hc3i`, or let every cluster be there from the beginning to the end",
            );
        }
        let duration = match &spec.application {
            Application::Synthetic(_) => spec.application.computing_time(),
            _ => None,
        };
        match duration {
            None => self.problem(
                field(first),
                format!("{} needs every cluster from the beginning to the end", self.what_runs()),
                "choose the application `synthetic` with `random` or `exact` traffic, which says who sends to whom when",
            ),
            Some(duration) => self.terms(duration),
        }
    }

    fn what_runs(&self) -> String {
        match self.spec.application {
            Application::Synthetic(_) => "`burst` traffic".into(),
            _ => format!("the application {}", self.spec.application.name()),
        }
    }

    /// Each cluster has a time in a program that computes for `duration`.
    fn terms(&mut self, duration: Span) {
        let spec = self.spec;
        for (index, cluster) in spec.clusters.iter().enumerate() {
            let path = format!("spec.clusters[{index}]");
            let joins = cluster.joins_after.map(|it| it.0);
            let leaves = cluster.leaves_after.map(|it| it.0);
            if joins == Some(Span::ZERO) {
                self.problem(
                    format!("{path}.joinsAfter"),
                    format!("cluster `{}` is to join at the beginning", cluster.name),
                    "leave `joinsAfter` out: it is there from the beginning",
                );
            }
            if let Some(leaves) = leaves.filter(|&it| it <= joins.unwrap_or_default()) {
                self.problem(
                    format!("{path}.leavesAfter"),
                    format!(
                        "cluster `{}` leaves after {}, and joins only after {}",
                        cluster.name,
                        Duration(leaves),
                        Duration(joins.unwrap_or_default())
                    ),
                    "let it leave later than it joins; both are counted from the beginning",
                );
            }
            for (field, at) in [("joinsAfter", joins), ("leavesAfter", leaves)] {
                if let Some(at) = at.filter(|&it| it >= duration) {
                    self.problem(
                        format!("{path}.{field}"),
                        format!(
                            "the application computes for {}: {} is its end",
                            Duration(duration),
                            Duration(at)
                        ),
                        format!("choose an earlier time, or a longer `duration`; `{field}` may be left out"),
                    );
                }
            }
        }
        self.meetings(duration);
    }

    /// Who sends an exact number of messages to a cluster must be there at the same time.
    fn meetings(&mut self, duration: Span) {
        let Application::Synthetic(synthetic) = &self.spec.application else { return };
        let Traffic::Exact(exact) = &synthetic.traffic else { return };
        let term = |name: &str| {
            let cluster = self.spec.clusters.iter().find(|it| it.name == name)?;
            let joins = cluster.joins_after.map_or(Span::ZERO, |it| it.0);
            Some((joins, cluster.leaves_after.map_or(duration, |it| it.0)))
        };
        let mut apart = Vec::new();
        for (index, count) in exact.messages.iter().enumerate().filter(|(_, it)| it.count > 0) {
            if let (Some(from), Some(to)) = (term(&count.from), term(&count.to))
                && from.0.max(to.0) + Span(1) >= from.1.min(to.1)
            {
                apart.push((index, count.from.clone(), count.to.clone()));
            }
        }
        for (index, from, to) in apart {
            self.problem(
                format!("spec.application.synthetic.traffic.exact.messages[{index}]"),
                format!("`{from}` and `{to}` are never there together"),
                "write no messages between them, or let one leave after the other has joined",
            );
        }
    }

    /// Copies are kept where their holders stay.
    pub(super) fn copies_stay(&mut self, path: String, replicas: u32) {
        let spec = self.spec;
        let clusters = &spec.clusters;
        let stay = |but: &str| clusters.iter().filter(|it| it.is_permanent() && it.name != but).count();
        let short = clusters.iter().find(|it| stay(&it.name) < replicas as usize);
        if clusters.iter().any(|it| !it.is_permanent())
            && let Some(owner) = short
        {
            let (name, others) = (owner.name.clone(), stay(&owner.name));
            self.problem(
                path,
                format!(
                    "{replicas} copies of the checkpoints of `{name}` need as many other clusters that are there from the \
                     beginning to the end; there are {others}"
                ),
                "keep fewer copies, keep them elsewhere (`replicateTo`), or let more clusters stay",
            );
        }
    }
}

//! Checks the clients of a system.

use super::Check;
use crate::quantity::Duration;
use crate::resource::{MAX_OPERATIONS, System};

impl Check<'_> {
    /// Checks where the clients of a system run, and how many operations they carry out.
    pub(super) fn clients(&mut self, system: &System) {
        if !system.clients.is_empty() && self.spec.kubernetes.as_ref().is_some_and(|it| it.image.is_some()) {
            self.problem(
                "spec.application.system.clients",
                "`clients` do not run in pods",
                "omit `kubernetes`, and run the federation on this machine: `faultline run`",
            );
        }
        let until = self.spec.faults_end();
        for (name, it) in &system.clients {
            let path = format!("spec.application.system.clients.{name}");
            let by = format!("{path}.by");
            match self.nodes.get(it.by.as_str()) {
                None => self.node_or_cluster(&by, &it.by),
                Some(1) => {}
                Some(nodes) => {
                    let message = format!("`{}` has {nodes} nodes, but clients run on a single node", it.by);
                    self.problem(by, message, format!("write `{}-0`", it.by));
                }
            }
            let operations = it.rate() * until.as_secs_f64();
            if operations > MAX_OPERATIONS as f64 {
                let message = format!(
                    "`rate` gives {operations:.0} operations in {}, but at most {MAX_OPERATIONS} are judged",
                    Duration(until)
                );
                self.problem(format!("{path}.rate"), message, "choose a lower rate, or a shorter run");
            }
        }
    }
}

//! The summary in sentences, which the text and the page share.

use super::Summary;
use crate::explain::count;
use crate::text::word;

impl Summary {
    /// Describes what was run, and how it ended.
    pub(crate) fn run_in_words(&self) -> String {
        let run = &self.run;
        match &run.events {
            Some(file) => {
                let processes: usize = self.clusters.iter().map(|it| it.processes).sum();
                format!("{}, events from {file}", count(processes as u64, "process"))
            }
            None => format!(
                "{} on the {} backend, seed {}, {}",
                run.protocol,
                word(&run.backend),
                run.seed,
                run.ended()
            ),
        }
    }

    /// Says how many properties hold, without a full stop.
    pub(crate) fn properties_in_words(&self) -> String {
        let (hold, judged) = self.holding();
        let instances: u64 = self.properties.iter().map(|it| it.instances).sum();
        let idle = match self.not_exercised().len() {
            0 => String::new(),
            1 => "; 1 was not exercised".to_owned(),
            idle => format!("; {idle} were not exercised"),
        };
        format!("{hold} of {judged} exercised properties hold ({}){idle}", count(instances, "instance"))
    }

    /// Says in a phrase how many faults were added during the run; `None` if none were.
    pub(crate) fn added_in_words(&self) -> Option<String> {
        let added = self.faults.iter().filter(|it| it.added).count() as u64;
        (added > 0).then(|| format!("with {} added during the run", count(added, "fault")))
    }

    /// Says in sentences whether the planned faults, and those added during the run, took effect.
    pub(crate) fn faults_in_words(&self) -> String {
        let of = |added| self.faults.iter().filter(move |it| it.added == added);
        let effects = |added| of(added).filter(|it| it.is_effective()).count();
        let of_added = match (of(true).count(), effects(true)) {
            (0, _) => "".to_owned(),
            (1, 1) => " The fault added during the run took effect.".to_owned(),
            (1, _) => " The fault added during the run had no effect.".to_owned(),
            (added, effective) => {
                format!(" {effective} of {added} faults added during the run took effect.")
            }
        };
        let planned = match (of(false).count(), effects(false)) {
            (0, _) => "No faults were planned.".to_owned(),
            (1, 1) => "The planned fault took effect.".to_owned(),
            (1, _) => "The planned fault had no effect.".to_owned(),
            (2, 2) => "Both planned faults took effect.".to_owned(),
            (planned, effective) if planned == effective => {
                format!("All {planned} planned faults took effect.")
            }
            (planned, effective) => format!("{effective} of {planned} planned faults took effect."),
        };
        planned + &of_added
    }

    /// Says in a sentence whether the links had the requested delay; `None` if links were not emulated.
    pub(crate) fn links_in_words(&self) -> Option<String> {
        let emulated = || self.links.iter().filter(|it| it.is_emulated());
        let number = emulated().count();
        let outside = emulated().filter_map(|it| it.observed_percent_outside).max().unwrap_or(0);
        Some(match (number, emulated().filter(|it| it.is_off).count()) {
            (0, _) => return None,
            (1, 0) if outside == 0 => "The link had the requested delay.".to_owned(),
            (_, 0) if outside == 0 => format!("All {number} links had the requested delay."),
            (1, 0) => format!("The link had the requested delay, except for {outside} % of the echoes."),
            (_, 0) => {
                format!(
                    "All {number} links had the requested delay, except for at most {outside} % of the echoes."
                )
            }
            (_, off) => {
                format!("{off} of {} did not have the requested delay.", count(number as u64, "link"))
            }
        })
    }
}

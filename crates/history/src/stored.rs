//! The contents of the processes' storage at the end of a run.

use std::collections::BTreeMap;

use faultline_core::{Fact, ImageName, Life, ProcessId};

use crate::history::History;

/// The state of a part in the storage of a process.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Whether a write has been requested, and has neither completed nor been cancelled.
    is_being_written: bool,
    /// The life in which the part became durable.
    durable: Option<Life>,
}

impl History<'_> {
    /// Returns the parts that are durable in some storage at the end of the run, each with its holder: those that
    /// became durable, and have since been neither removed by their holder nor destroyed or corrupted by a fault. Omits
    /// holders that are down, or whose cluster has left.
    pub fn stored(&self) -> Vec<(ProcessId, ImageName)> {
        let mut slots: BTreeMap<(ProcessId, ImageName), Slot> = BTreeMap::new();
        let mut previous = None;
        for (&(process, life), stream) in &self.trace.streams {
            if previous != Some(process) {
                previous = Some(process);
            } else {
                // Writes of an earlier life that were never reported as durable do not count as durable.
                let own =
                    slots.range_mut((process, FIRST)..).take_while(|((holder, _), _)| *holder == process);
                own.for_each(|(_, slot)| slot.is_being_written = false);
            }
            for (_, fact) in stream {
                match fact {
                    Fact::Saved(saved) => {
                        slots.entry((process, saved.0)).or_default().is_being_written = true
                    }
                    Fact::Durable(name) => {
                        let slot = slots.entry((process, *name)).or_default();
                        if std::mem::take(&mut slot.is_being_written) {
                            slot.durable = Some(life);
                        }
                    }
                    // Storage operations are performed in order, so a part whose write has yet to complete is removed
                    // as well.
                    Fact::Removed(name) => drop(slots.remove(&(process, *name))),
                    _ => {}
                }
            }
        }
        let is_stored = |holder: ProcessId, slot: Slot| {
            slot.durable.is_some_and(|life| !self.supervision.may_have_lost(holder, life, usize::MAX))
        };
        let all = slots
            .into_iter()
            .filter(|&((holder, _), slot)| is_stored(holder, slot) && self.is_present(holder));
        all.map(|(place, _)| place).collect()
    }
}

/// The smallest name.
const FIRST: ImageName = ImageName {
    owner: ProcessId(0),
    incarnation: faultline_core::Incarnation(0),
    sn: faultline_core::Sn(0),
    attempt: faultline_core::Attempt(0),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::Witness;

    fn save(run: &mut Run, holder: u32, name: ImageName) {
        run.state(holder, Fact::Saved(Box::new((name, Witness::default(), 0))));
    }

    #[test]
    fn a_part_is_stored_until_it_is_removed() {
        let mut run = Run::new(&[&[0], &[1]]);
        let (one, two) = (run.image(0, 0, 1), run.image(0, 0, 2));
        for (holder, name) in [(0, one), (1, one), (0, two)] {
            save(&mut run, holder, name);
            run.durable(holder, name);
        }
        assert_eq!(run.history().stored(), [(p(0), one), (p(0), two), (p(1), one)]);
        run.state(1, Fact::Removed(one));
        assert_eq!(run.history().stored(), [(p(0), one), (p(0), two)]);
        run.kill(0, false);
        assert_eq!(run.history().stored(), [(p(0), one), (p(0), two)], "the storage is kept");
        run.kill(0, true);
        assert_eq!(run.history().stored(), [], "the storage is lost");
    }

    #[test]
    fn a_write_that_was_not_reported_is_not_stored() {
        let mut run = Run::new(&[&[0], &[1]]);
        let (one, two) = (run.image(0, 0, 1), run.image(0, 0, 2));
        save(&mut run, 0, one);
        run.kill(0, false);
        run.durable(0, one);
        save(&mut run, 0, two);
        run.state(0, Fact::Removed(two));
        run.durable(0, two);
        assert_eq!(run.history().stored(), []);
    }
}

//! Facts that require an earlier fact under every protocol, because the code that hosts the protocol reports
//! both.

use std::collections::BTreeMap;

use faultline_core::{Fact, ImageName};
use faultline_history::{Contradiction, History};

/// Requires that a life saved each part before its storage reported the part as durable, and saved it once for each
/// report.
pub(super) fn writes(history: &History<'_>, found: &mut Vec<Contradiction>) {
    for (&(process, life), stream) in &history.trace.streams {
        let mut awaited: BTreeMap<ImageName, u32> = BTreeMap::new();
        for (_, fact) in stream {
            match fact {
                Fact::Saved(saved) => *awaited.entry(saved.0).or_default() += 1,
                Fact::Durable(name) => match awaited.get_mut(name) {
                    Some(writes) if *writes > 0 => *writes -= 1,
                    _ if history.trace.has_gap(process, life) => {}
                    _ => found.push(Contradiction::NeverSaved { process, life, part: *name }),
                },
                _ => {}
            }
        }
    }
}

/// Requires that each delivered message was transmitted.
pub(super) fn transmissions(history: &History<'_>, found: &mut Vec<Contradiction>) {
    for message in history.messages.iter().filter(|it| it.stamp().is_none()) {
        if !message.delivered().is_empty() && !history.trace.has_gap_of(message.id.from) {
            found.push(Contradiction::NeverTransmitted(message.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, position};

    #[test]
    fn a_durable_part_that_was_never_saved_is_found() {
        let found = |reports: usize| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.commit_all(0, &[0]);
            let stream = &run.trace.streams[&(crate::testing::p(0), faultline_core::Life(1))];
            let durable = stream.iter().find(|(_, fact)| matches!(fact, Fact::Durable(_))).unwrap().1.clone();
            (0..reports).for_each(|_| run.state(0, durable.clone()));
            let mut found = Vec::new();
            writes(&run.history(), &mut found);
            found.len()
        };
        assert_eq!((found(0), found(1)), (0, 1));
    }

    #[test]
    fn a_delivered_message_that_was_never_transmitted_is_found() {
        let found = |is_transmitted: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            let id = run.send(0, 1);
            if is_transmitted {
                run.transmit(id, position(0, 0));
            }
            run.deliver(id);
            let mut found = Vec::new();
            transmissions(&run.history(), &mut found);
            found
        };
        assert_eq!(found(true), []);
        assert!(matches!(found(false)[..], [Contradiction::NeverTransmitted(_)]));
    }
}

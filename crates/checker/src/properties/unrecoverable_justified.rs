//! A cluster may be given up only when a part of its newest checkpoint is lost everywhere: its owner's storage and that of
//! every holder. Whoever stated that a copy was durable, and lost nothing since, still has it.

use faultline_core::{Claim, ImageName};

use crate::history::{CheckpointName, History, Point};
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::UnrecoverableJustified);
    let context = history.context;
    for claimed in &history.claims {
        let Claim::Unrecoverable { cluster, missing } = claimed.claim else { continue };
        finding.instances += 1;
        if missing.is_empty() {
            finding.violated([history.source(claimed.at)], || {
                format!("{} was given up without saying what is missing", context.cluster(*cluster))
            });
        }
        for (name, _) in missing.iter() {
            check_part(history, claimed.at, name, &mut finding);
        }
    }
    finding
}

fn check_part(history: &History<'_>, claim: Point, name: &ImageName, finding: &mut Finding) {
    let context = history.context;
    let segment = history.segment(claim.segment);
    let supervision = &history.supervision;
    let before = supervision.end_of(segment.process, segment.life).map_or(usize::MAX, |end| end.fact);
    let part = history.member(name.owner).and_then(|(group, place)| {
        Some(&history.groups[group].checkpoints.get(&CheckpointName::from(*name))?.parts[place])
    });
    let what = || format!("the part of {} in checkpoint {}", context.process(name.owner), name.position());
    let holders = part.map_or(&[][..], |part| &part.durable);
    let intact = holders.iter().find(|&&(holder, life)| !supervision.may_have_lost(holder, life, before));
    if let Some(&(holder, _)) = intact {
        finding.violated([history.source(claim)], || {
            format!("{} was given up as missing, but {} had it durably", what(), context.process(holder))
        });
    } else if holders.is_empty() && !supervision.may_have_lost(name.owner, Default::default(), before) {
        finding.violated([history.source(claim)], || {
            format!("{} was given up as missing, but {} lost no storage", what(), context.process(name.owner))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::{ClusterId, Fact};

    fn give_up(run: &mut Run) {
        let missing = [(run.image(0, 0, 1), vec![p(0), p(1)])].into();
        let claim = Claim::Unrecoverable { cluster: ClusterId(0), missing };
        run.state(0, Fact::Claim(Box::new(claim)));
    }

    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.durable(1, run.image(0, 0, 1));
        run
    }

    #[test]
    fn with_every_copy_lost_it_is_justified() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, true);
        give_up(&mut run);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn with_a_copy_left_it_is_not() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, false);
        give_up(&mut run);
        assert!(check_alone(check, &run).violations[0].text.contains("but p1 had it"));
    }

    #[test]
    fn a_part_that_was_never_durable_needs_a_loss_too() {
        let mut run = Run::new(&[&[0], &[1]]);
        give_up(&mut run);
        assert!(check_alone(check, &run).violations[0].text.contains("p0 lost no storage"));
    }

    #[test]
    fn a_copy_made_after_the_loss_is_there() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, true);
        run.durable(1, run.image(0, 0, 1));
        give_up(&mut run);
        assert_eq!(check_alone(check, &run).violation_count(), 1);
    }
}

//! The emulated links had the requested delays; otherwise the run does not show what it was meant to show.

use std::cmp::Reverse;

use crate::finding::{Findings, Gap, LinkDelay, Remark};
use crate::judgement::Property;
use faultline_history::History;

/// If the delays of more than this percentage of a link's echoes are out of tolerance, the verdict is `unknown`.
const MOST_PERCENT_OUTSIDE: u32 = 20;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::LinksAsRequested);
    let context = history.context;
    // Only the first reason is reported.
    let mut links: Vec<_> = context.links.iter().collect();
    links
        .sort_by_key(|link| Reverse(link.measured.map(|it| it.latency.0.abs_diff(link.requested.latency.0))));
    for link in links {
        let (Some(as_requested), Some(measured)) = (link.as_requested(), link.measured) else { continue };
        finding.instances += 1;
        if !as_requested {
            finding.unjudged(Gap::LinkLatency {
                from: link.from,
                to: link.to,
                measured: measured.latency,
                asked: link.requested.latency,
            });
        }
    }
    let mut observed: Vec<_> =
        context.links.iter().filter_map(|it| Some((it.percent_outside()?, it))).collect();
    observed.sort_by_key(|&(percent, _)| Reverse(percent));
    if let Some((percent @ 1.., link)) = observed.first().copied() {
        let delay = LinkDelay {
            from: link.from,
            to: link.to,
            percent,
            tolerance: link.tolerance_observed(),
            mean: link.observed.map_or(link.requested.latency, |it| it.mean),
            asked: link.requested.latency,
        };
        match percent > MOST_PERCENT_OUTSIDE {
            true => finding.unjudged(Gap::LinkDelay(delay)),
            false => finding.remarks.push(Remark::LinkDelay(delay)),
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, Span};
    use faultline_trace::manifest::{LinkEntry, LinkMeasured, LinkObserved};

    #[test]
    fn a_link_that_is_off_for_much_of_the_run_is_not_as_requested() {
        let mut run = Run::new(&[&[0]]);
        let link = |outside| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_millis(5), ..LinkProperties::default() },
            measured: Some(LinkMeasured {
                latency: Span::from_millis(5),
                jitter: Span::ZERO,
                samples: 1,
                rounds: 1,
            }),
            observed: Some(LinkObserved { echoes: 50, outside, mean: Span::from_millis(14) }),
            since: None,
        };
        run.context.links = vec![link(0)];
        let finding = check_alone(check, &run);
        assert_eq!((&finding.open, finding.remarks.len()), (&None, 0));
        run.context.links = vec![link(0), link(10)];
        let finding = check_alone(check, &run);
        assert_eq!(finding.open, None);
        assert!(
            matches!(finding.remarks[..], [Remark::LinkDelay(LinkDelay { percent: 20, .. })]),
            "{finding:?}"
        );
        run.context.links.push(link(11));
        let open = check_alone(check, &run).open.unwrap();
        let Gap::LinkDelay(delay) = open else { panic!("{open:?}") };
        assert_eq!(
            (delay.percent, delay.mean, delay.asked),
            (22, Span::from_millis(14), Span::from_millis(5))
        );
        run.context.links = vec![LinkEntry {
            observed: Some(LinkObserved { echoes: 19, outside: 19, mean: Span::ZERO }),
            ..link(0)
        }];
        assert_eq!(check_alone(check, &run).open, None, "too few to tell");
    }

    #[test]
    fn percentages_of_echoes_are_rounded_up() {
        let found = |echoes, outside| {
            let mut run = Run::new(&[&[0]]);
            run.context.links = vec![LinkEntry {
                from: ClusterId(0),
                to: ClusterId(1),
                requested: LinkProperties { latency: Span::from_millis(5), ..LinkProperties::default() },
                measured: None,
                observed: Some(LinkObserved { echoes, outside, mean: Span::from_millis(14) }),
                since: None,
            }];
            let finding = check_alone(check, &run);
            (finding.open.is_some(), finding.remarks.len())
        };
        assert_eq!(found(24, 5), (true, 0), "20.83 % is more than 20 %");
        assert_eq!(found(25, 5), (false, 1));
        assert_eq!(found(500, 1), (false, 1), "0.2 % is more than none");
        assert_eq!(found(500, 0), (false, 0));
    }

    #[test]
    fn a_link_far_from_the_request_is_named() {
        let link = |measured| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_millis(8), ..LinkProperties::default() },
            measured: Some(LinkMeasured { latency: measured, jitter: Span::ZERO, samples: 1, rounds: 1 }),
            observed: None,
            since: None,
        };
        let mut run = Run::new(&[&[0]]);
        run.context.links = vec![link(Span::from_millis(8)), link(Span::from_micros(8_300))];
        assert_eq!(check_alone(check, &run).open, None);
        run.context.links.push(link(Span::from_millis(9)));
        let finding = check_alone(check, &run);
        assert_eq!(finding.instances, 3);
        let measured = |open: Option<Gap>| match open {
            Some(Gap::LinkLatency { measured, .. }) => measured,
            open => panic!("{open:?}"),
        };
        assert_eq!(measured(finding.open), Span::from_millis(9));
        run.context.links.push(link(Span::from_millis(90)));
        assert_eq!(measured(check_alone(check, &run).open), Span::from_millis(90));
    }
}

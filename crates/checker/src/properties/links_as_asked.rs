//! The emulated links were as asked for: otherwise the run answers another question than the one that was put.

use std::cmp::Reverse;

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::LinksAsAsked);
    let context = history.context;
    // The reason that is given is the first.
    let mut links: Vec<_> = context.links.iter().collect();
    links
        .sort_by_key(|link| Reverse(link.measured.map(|it| it.latency.0.abs_diff(link.requested.latency.0))));
    for link in links {
        let (Some(as_asked), Some(measured)) = (link.as_asked(), link.measured) else { continue };
        finding.instances += 1;
        if !as_asked {
            finding.unjudged(|| {
                let ends = format!("{} to {}", context.cluster(link.from), context.cluster(link.to));
                let asked = link.requested.latency;
                format!("the link {ends} has a latency of {}, asked for was {asked}", measured.latency)
            });
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
    use faultline_trace::manifest::{LinkEntry, LinkMeasured};

    #[test]
    fn a_link_far_from_what_was_asked_is_named() {
        let link = |measured| LinkEntry {
            from: ClusterId(0),
            to: ClusterId(1),
            requested: LinkProperties { latency: Span::from_millis(8), ..LinkProperties::default() },
            measured: Some(LinkMeasured { latency: measured, jitter: Span::ZERO, samples: 1, rounds: 1 }),
            since: None,
        };
        let mut run = Run::new(&[&[0]]);
        run.context.links = vec![link(Span::from_millis(8)), link(Span::from_micros(8_300))];
        assert_eq!(check_alone(check, &run).unknown, None);
        run.context.links.push(link(Span::from_millis(9)));
        let finding = check_alone(check, &run);
        assert_eq!(finding.instances, 3);
        assert!(finding.unknown.unwrap().starts_with("the link c0 to c1 has a latency of 9.00 ms"));
        run.context.links.push(link(Span::from_millis(90)));
        let worst = check_alone(check, &run).unknown.unwrap();
        assert!(worst.starts_with("the link c0 to c1 has a latency of 90.0 ms"), "{worst}");
    }
}

//! The figures of the paper (sections 3.2 and 4).

use std::collections::BTreeSet;
use std::sync::Arc;

use faultline_core::{Claim, Fact, MessageId, Position, ProcessId, StorageFate, Vectors};
use faultline_protocols::hc3i::{Control, Defects, Hc3i};

use crate::harness::{Entry, assert_golden, c, p};
use crate::setting::{Federation, config, running, within};

/// "A CLC is forced in the receiver's cluster only when a CLC has been stored in the sender's cluster since the last
/// communication from the sender's cluster to the receiver's cluster."
#[test]
fn figure_3_a_message_forces_a_checkpoint_only_after_a_checkpoint_of_its_sender() {
    let mut federation = running(&[1, 1], config(Defects::default()));
    let checkpoints = |it: &Federation| it.protocol(p(1)).position().sn.0;
    federation.exchange(p(0), p(1), "m1");
    assert_eq!(checkpoints(&federation), 2, "m1 is the first message from cluster 0");
    federation.exchange(p(0), p(1), "m2");
    assert_eq!(checkpoints(&federation), 2, "CLC3 of the figure would be useless");
    federation.take_checkpoint(c(0));
    federation.exchange(p(0), p(1), "m3");
    assert_eq!(checkpoints(&federation), 3, "the sender has stored a CLC since m2");
    assert_eq!(federation.received(p(1)), ["m1", "m2", "m3"]);
}

/// Section 4. Three clusters of two nodes. All SNs and vectors are as in the paper.
#[test]
fn figure_4_checkpoints_and_rollbacks_match_the_paper() {
    let mut federation = running(&[2, 2, 2], within(Defects::default()));
    let [c1, c2, c3] = [c(0), c(1), c(2)];
    federation.exchange(p(0), p(2), "m1");
    federation.exchange(p(1), p(3), "m2");
    federation.take_checkpoint(c1);
    federation.take_checkpoint(c3);
    federation.take_checkpoint(c2);
    federation.exchange(p(2), p(4), "m3");
    federation.exchange(p(0), p(5), "m4");
    federation.exchange(p(4), p(1), "m5");
    assert_eq!(
        checkpoints(&federation),
        [
            "C1 CLC1 (1,0,0)",
            "C1 CLC2 (2,0,0)",
            "C1 CLC3 (3,0,4) forced",
            "C2 CLC1 (0,1,0)",
            "C2 CLC2 (1,2,0) forced",
            "C2 CLC3 (1,3,0)",
            "C3 CLC1 (0,0,1)",
            "C3 CLC2 (0,0,2)",
            "C3 CLC3 (0,3,3) forced",
            "C3 CLC4 (2,3,4) forced",
        ]
    );

    federation.kill(p(3), StorageFate::Kept);
    let failed = federation.log().len();
    federation.detect(p(3));
    federation.restart(p(3));
    let m4 = federation.hold(|flight| flight.contains("m4"));
    federation.retry();
    assert_eq!(
        rollbacks(&federation),
        ["C1 to CLC3 (3,0,4)", "C2 to CLC3 (1,3,0)", "C3 to CLC3 (0,3,3)"],
        "each once"
    );
    assert_eq!(
        alerts(&federation),
        ["C1: (C2,3)", "C1: (C3,3)", "C2: (C1,3)", "C2: (C3,3)", "C3: (C1,3)", "C3: (C2,3)"]
    );
    let restored = federation.processes().map(|it| federation.received(it)).collect::<Vec<_>>();
    assert_eq!(restored, [vec![], vec![], vec!["m1"], vec!["m2"], vec![], vec![]], "not m3, m4, m5");
    federation.release(m4);
    federation.settle();
    assert_eq!(BTreeSet::from_iter(federation.resent()), BTreeSet::from(["m4"]));
    assert_eq!(federation.received(p(5)), ["m4"], "once, although it was re-sent twice");
    assert_eq!(federation.violations(), [""; 0]);

    let mut story = String::from(
        "The paper's Figure 4 (section 4), cluster by cluster. Vectors are DDVs. An acknowledgement carries the SN at\n\
         delivery, which for a message that forces a CLC is the paper's \"local SN + 1\". C1 sends m4 again on the alert,\n\
         and again from its restored log; C3 delivers it once.\n",
    );
    let mut narrator = Narrator { federation: &federation, said: BTreeSet::new(), resends: None };
    for (title, part) in [
        ("A normal execution, until a node of C2 fails", &federation.log()[..failed]),
        ("The rollback alert of C2, and the recovery line", &federation.log()[failed..]),
    ] {
        story += &format!("\n{title}\n\n");
        for line in part.iter().filter_map(|entry| narrator.line(entry)) {
            story += &format!("  {line}\n");
        }
    }
    story += "\nMessages that the applications have received at the end\n\n";
    for cluster in [c1, c2, c3] {
        let received: Vec<_> =
            federation.members(cluster).iter().flat_map(|&it| federation.received(it)).collect();
        story += &format!("  {}  {}\n", name(cluster.index()), received.join(" "));
    }
    assert_golden("figure4.txt", &story);
}

/// Lists every committed checkpoint, by cluster and SN.
fn checkpoints(federation: &Federation) -> Vec<String> {
    let mut all = BTreeSet::new();
    for process in federation.processes() {
        for claim in federation.claims(process) {
            if let Claim::Committed { position, vectors, forced, .. } = claim {
                let cluster = name(federation.cluster_of(process).index());
                let forced = if *forced { " forced" } else { "" };
                all.insert(format!("{cluster} CLC{} {}{forced}", position.sn.0, ddv(vectors)));
            }
        }
    }
    all.into_iter().collect()
}

/// Lists every rollback, by cluster. A rollback has more than one line if members disagree about it.
fn rollbacks(federation: &Federation) -> Vec<String> {
    let mut all = Vec::new();
    for process in federation.processes() {
        for claim in federation.claims(process) {
            if let Claim::RolledBack { checkpoint, vectors, .. } = claim {
                let cluster = federation.cluster_of(process);
                let line = format!("{} to CLC{} {}", name(cluster.index()), checkpoint.sn.0, ddv(vectors));
                // All members of a cluster claim the same rollback, so it is listed once. A second rollback
                // has its own line.
                if federation.members(cluster)[0] == process || !all.contains(&line) {
                    all.push(line);
                }
            }
        }
    }
    all
}

/// Lists every alert that a cluster received, with the SN in it.
fn alerts(federation: &Federation) -> Vec<String> {
    let mut all = BTreeSet::new();
    for process in federation.processes() {
        for claim in federation.claims(process) {
            if let Claim::Alerted { from, position } = claim {
                let cluster = name(federation.cluster_of(process).index());
                all.insert(format!("{cluster}: ({},{})", name(from.place()), position.sn.0));
            }
        }
    }
    all.into_iter().collect()
}

/// Describes the events in the paper's terms, by cluster.
struct Narrator<'a> {
    federation: &'a Federation,
    /// Claims already listed, each with its cluster. All members of a cluster make the same claims, which are listed
    /// once.
    said: BTreeSet<String>,
    /// The message that is being re-sent.
    resends: Option<MessageId>,
}

impl Narrator<'_> {
    fn line(&mut self, entry: &Entry<Hc3i>) -> Option<String> {
        let (process, what) = match entry {
            Entry::Fact { process: ProcessId::SUPERVISOR, fact } => match fact {
                Fact::Failed { process, .. } => (*process, "a node fails".into()),
                _ => return None,
            },
            Entry::Fact { process, fact: Fact::Claim(claim) } => {
                let what = self.claim(claim)?;
                if !self.said.insert(format!("{} {claim:?}", self.cluster(*process))) {
                    return None;
                }
                (*process, what)
            }
            Entry::Fact { process, fact } => (*process, self.fact(fact)?),
            Entry::Arrival(flight) => (flight.to, self.control(flight.control()?)?),
        };
        Some(format!("{}  {what}", self.cluster(process)))
    }

    fn fact(&mut self, fact: &Fact) -> Option<String> {
        let text = |id| self.federation.text(id);
        Some(match fact {
            Fact::Transmitted { id, position } => {
                let again = if self.resends.take() == Some(*id) { "again " } else { "" };
                format!("sends {} {again}to {} with SN {}", text(*id), self.cluster(id.to), position.sn.0)
            }
            Fact::Delivered(id) => format!("delivers {}", text(*id)),
            Fact::DroppedStale(id) => format!("drops {}, which was undone", text(*id)),
            _ => return None,
        })
    }

    fn claim(&mut self, claim: &Claim) -> Option<String> {
        Some(match claim {
            Claim::Committed { position, forced, vectors, .. } => {
                let kind = if *forced { "forced" } else { "unforced" };
                format!("takes {kind} CLC{} {}", position.sn.0, ddv(vectors))
            }
            Claim::Forcing { id } => {
                format!("has to take a CLC before it delivers {}", self.federation.text(*id))
            }
            Claim::RolledBack { checkpoint, vectors, .. } => {
                format!("rolls back to CLC{} {}", checkpoint.sn.0, ddv(vectors))
            }
            Claim::Alerted { from, position } => {
                format!("is alerted: {} rolled back to SN {}", name(from.place()), position.sn.0)
            }
            Claim::Resent { id } => {
                self.resends = Some(*id);
                return None;
            }
            _ => return None,
        })
    }

    fn control(&self, message: &Control) -> Option<String> {
        match message {
            Control::Acknowledge { id, position } => {
                Some(format!("logs {} as acknowledged with {}", self.federation.text(*id), position.sn.0))
            }
            _ => None,
        }
    }

    fn cluster(&self, process: ProcessId) -> String {
        name(self.federation.cluster_of(process).index())
    }
}

/// The paper counts clusters from 1.
fn name(cluster: usize) -> String {
    format!("C{}", cluster + 1)
}

/// Formats a vector as in the figure's boxes, which show no incarnations: no checkpoint in the figure depends on an
/// incarnation after the first.
fn ddv(vectors: &Arc<Vectors>) -> String {
    let entries: Vec<String> = vectors.ddv.iter().map(|Position { sn, .. }| sn.0.to_string()).collect();
    format!("({})", entries.join(","))
}

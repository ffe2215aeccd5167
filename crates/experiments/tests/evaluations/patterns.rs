//! Tests that runs of the NAS patterns have the same communication graphs as the closed forms that are used to find
//! clusters.

use faultline_api::{Federation, parse};
use faultline_clustering::CommunicationGraph;
use faultline_clustering::patterns::Pattern;
use faultline_core::Fact;
use faultline_experiments::simulate;
use faultline_session::SimulationObserver;
use faultline_trace::Record;

/// Builds the communication graph of a run.
struct Draw(CommunicationGraph);

impl SimulationObserver for Draw {
    fn recorded(&mut self, record: &Record) {
        if let Fact::Sent { id, bytes, .. } = &record.fact {
            self.0.add(id.from.index(), id.to.index(), u64::from(*bytes), 1);
        }
    }
}

fn federation(pattern: Pattern, processes: usize) -> Federation {
    let text = format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: pattern }}
spec:
  clusters: [{{ name: a, nodes: {processes} }}]
  protocol: {{ none: {{}} }}
  application: {{ nas: {{ pattern: {}, iterations: 2, stepTime: 1ms, message: 4096B }} }}
  deadline: 60s
",
        pattern.name().to_lowercase()
    );
    parse("pattern.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

/// Returns the shares of the bytes that are sent between different parts, for many divisions into parts.
fn shares(graph: &CommunicationGraph) -> Vec<f64> {
    let processes = graph.len() as u32;
    let share = |part: &dyn Fn(u32) -> u32| {
        let parts: Vec<u32> = (0..processes).map(part).collect();
        graph.between(&parts) as f64 / graph.total() as f64
    };
    let alone = (0..processes).map(|one| share(&|it| u32::from(it == one)));
    let pairs = (1..processes).map(|one| share(&|it| u32::from(it == 0 || it == one)));
    let blocks = [2, 4, 8, 16].map(|size| share(&|it| it / size));
    alone.chain(pairs).chain(blocks).collect()
}

#[test]
fn a_pattern_sends_its_graph_in_closed_form() {
    for pattern in Pattern::ALL {
        for processes in [16, 64] {
            let closed = pattern.graph(processes);
            let mut drawn = Draw(CommunicationGraph::new(closed.names().to_vec()));
            let run =
                simulate(&federation(pattern, processes), 1, &mut drawn).expect("the run can be set up");
            assert_eq!(run.outcome, "completed");
            for (number, (here, there)) in shares(&drawn.0).iter().zip(shares(&closed)).enumerate() {
                assert!((here - there).abs() < 1e-9, "{pattern:?} on {processes}, {number}: {here} {there}");
            }
        }
    }
}

//! Runs the program with the application under several protocols, and shows that the result reveals a protocol's
//! errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use faultline::core::Span;
use faultline::messaging::{Program, RankInfo, Step};
use faultline::quantity::Duration;
use stencil::{Block, Parameters, Stencil};
use tempfile::TempDir;

/// Runs a command in a directory with this federation file. Its exit status must be one of `codes`.
fn run(place: &TempDir, text: &str, codes: &[i32], arguments: &[&str]) -> String {
    fs::write(place.path().join("federation.yaml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stencil"));
    let Output { status, stdout, stderr } = command.args(arguments).current_dir(place).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.code().is_some_and(|it| codes.contains(&it)), "{arguments:?}: {status}\n{out}{error}");
    format!("{out}{error}")
}

fn federation() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("federation.yaml")).unwrap()
}

/// Returns the results of all ranks in a JSON summary.
fn digests(said: &str) -> &str {
    let (_, digests) = said.split_once("\"digests\": {").expect("a summary has results");
    let (digests, _) = digests.split_once('}').expect("they end");
    assert_eq!(digests.lines().filter(|it| it.contains(':')).count(), 6, "{said}");
    digests
}

/// Returns the results of a run without faults.
fn undisturbed(place: &TempDir) -> String {
    let faults = federation().find("  faults:").expect("the federation has faults");
    let text = federation()[..faults].to_owned() + "  deadline: 60s\n";
    let arguments =
        ["run", "federation.yaml", "--backend", "simulate", "--out", "without", "--format", "json"];
    digests(&run(place, &text, &[0], &arguments)).to_owned()
}

#[test]
fn it_survives_failures_under_every_protocol() {
    let place = tempfile::tempdir().unwrap();
    let expected = undisturbed(&place);
    let hc3i = "hc3i: { checkpointEvery: 500ms, replicas: 1, replicateTo: otherCluster }";
    for protocol in ["hc3i", "hydee", "coordinated", "pessimisticLogging"] {
        let text = federation().replace(hc3i, &hc3i.replace("hc3i", protocol));
        let arguments =
            ["run", "federation.yaml", "--backend", "simulate", "--out", protocol, "--format", "json"];
        let said = run(&place, &text, &[0], &arguments);
        assert_eq!(digests(&said), expected, "{protocol}");
        assert!(
            said.contains("\"equal\": true"),
            "the program has computed the results without faults: {said}"
        );
    }
}

#[test]
fn it_runs_on_real_processes() {
    let place = tempfile::tempdir().unwrap();
    let expected = undisturbed(&place);
    // The exit status is 3 if the machine is too busy to emulate the links as requested.
    let said =
        run(&place, &federation(), &[0, 3], &["run", "federation.yaml", "--out", "real", "--format", "json"]);
    assert_eq!(digests(&said), expected);
}

#[test]
fn it_sends_the_same_messages_in_every_order() {
    let place = tempfile::tempdir().unwrap();
    let said = run(&place, &federation(), &[0], &["validate", "federation.yaml", "--orders", "8"]);
    assert!(said.contains("sends the same messages"), "{said}");
}

#[test]
fn a_grid_that_the_ranks_do_not_fill_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let text = federation().replace("columns: 3", "columns: 4");
    let said = run(&place, &text, &[2], &["validate", "federation.yaml"]);
    assert!(said.contains("6 ranks do not fill rows of 4"), "{said}");
}

/// An error in the handling of one message or state.
#[derive(Clone, Copy, PartialEq)]
enum Mutation {
    Nothing,
    /// The content of an earlier message arrives instead.
    Repeated,
    /// A rank continues from its state one step earlier.
    TooOld,
}

/// Runs two ranks side by side, and returns their results. The mutation happens in step 5.
fn results(mutation: Mutation) -> Vec<Vec<u8>> {
    let step_time = Duration(Span::from_millis(1));
    let parameters = Arc::new(Parameters { columns: 2, side: 4, steps: 10, step_time });
    let ranks: Vec<Stencil> = (0..2).map(|me| Stencil::new(&parameters, RankInfo { me, ranks: 2 })).collect();
    let mut blocks: Vec<Block> = ranks.iter().map(Program::begin).collect();
    let mut old: Option<(Vec<u8>, Block)> = None;
    for step in 0..10 {
        let mut edges = Vec::new();
        for (rank, block) in ranks.iter().zip(&mut blocks) {
            let Step::Send { content, .. } = rank.next(block) else { panic!("it sends its edge") };
            assert!(matches!(rank.next(block), Step::Gather { .. }));
            edges.push(content);
        }
        if let (5, Some((edge, block))) = (step, old.take()) {
            match mutation {
                Mutation::Nothing => {}
                Mutation::Repeated => edges[0] = edge,
                Mutation::TooOld => blocks[0] = block,
            }
        }
        old = Some((edges[0].clone(), blocks[0].clone()));
        for (number, (rank, block)) in ranks.iter().zip(&mut blocks).enumerate() {
            let from = 1 - number;
            let message = faultline::messaging::Message::new(from as u32, edges[from].clone());
            rank.received(block, vec![message]);
            assert!(matches!(rank.next(block), Step::Compute(_)));
        }
    }
    ranks.iter().zip(&blocks).map(|(rank, block)| rank.result(block)).collect()
}

#[test]
fn its_result_depends_on_every_message_and_state() {
    let right = results(Mutation::Nothing);
    assert_eq!(results(Mutation::Nothing), right);
    for mutation in [Mutation::Repeated, Mutation::TooOld] {
        assert_ne!(results(mutation), right);
    }
}

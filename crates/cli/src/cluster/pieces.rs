//! Divides the pieces of a planned task-based program into partitions.

use std::fmt::Write;

use faultline_api::Names;
use faultline_catalog::{PieceTraffic, SetupError, traffic_of_pieces};
use faultline_clustering::{CommunicationGraph, parts};
use miette::miette;

use crate::command_error::{CommandError, Exit};
use crate::files::{self, Source};
use crate::output;

/// Prints a METIS partition file that assigns the pieces of a federation's program to processes. Each process gets
/// about the same number of pieces, and few values are sent between processes.
pub(super) fn print(source: &Source) -> Result<Exit, CommandError> {
    let federation = source.parse()?;
    let PieceTraffic { pieces, values } = traffic_of_pieces(&federation).map_err(|error| match error {
        SetupError::Messages | SetupError::Stolen => CommandError::input(miette!(
            help = "run the federation, and specify the directory of its record: `faultline cluster DIR`",
            "{}: {error}, so the file does not determine which processes communicate",
            source.label
        )),
        error => files::unfit(error),
    })?;
    let mut graph = CommunicationGraph::new((0..pieces).map(|it| it.to_string()).collect());
    for (from, to, count) in values {
        graph.add(from as usize, to as usize, count, count);
    }
    let ranks = Names::of(&federation.spec).ranks() as usize;
    let mut text = String::new();
    for part in parts(&graph, ranks) {
        writeln!(text, "{part}").expect("writing to a string never fails");
    }
    output::print(&text)?;
    Ok(Exit::Pass)
}

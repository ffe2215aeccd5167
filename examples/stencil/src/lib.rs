//! A stencil in two dimensions: ranks form a grid, each has a block of cells, and in every step each cell becomes the
//! mean of its four neighbours. Ranks exchange the edges of their blocks before each step. At the end, the first rank
//! receives the sum of all cells.

use std::sync::Arc;

use faultline::CustomApplication;
use faultline::core::{Progress, Span};
use faultline::messaging::{Message, Operation, Performer, Program, RankInfo, Step, pack};
use faultline::quantity::Duration;
use faultline::resource::FederationSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters in a federation file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parameters {
    /// Number of ranks in a row of the grid. The total number of ranks must be a multiple of it. Default 2.
    #[schemars(range(min = 1))]
    pub columns: u32,
    /// Number of cells along each side of a rank's block. Default 8.
    #[schemars(range(min = 1, max = 1024))]
    pub side: u32,
    /// Number of steps. Default 100.
    pub steps: u32,
    /// Computing time of a step. Default 10ms.
    pub step_time: Duration,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters { columns: 2, side: 8, steps: 100, step_time: Duration(Span::from_millis(10)) }
    }
}

impl CustomApplication for Stencil {
    const NAME: &'static str = "stencil";
    type Parameters = Parameters;
    type Rank = Performer<Stencil>;

    fn configure(parameters: Parameters, federation: &FederationSpec) -> Result<Parameters, String> {
        let ranks: u32 = federation.clusters.iter().map(|it| it.nodes).sum();
        let Parameters { columns, side, .. } = parameters;
        if columns == 0 || !ranks.is_multiple_of(columns) {
            return Err(format!(
                "{ranks} ranks do not fill rows of {columns} (change `columns` or the clusters)"
            ));
        }
        if !(1..=1024).contains(&side) {
            return Err(format!("`side` must be 1 to 1024 (found {side})"));
        }
        Ok(parameters)
    }
}

/// One rank. Its fields are constant; [`Block`] is its state.
#[derive(Clone, Debug)]
pub struct Stencil {
    place: RankInfo,
    parameters: Arc<Parameters>,
}

/// The part of a rank that a checkpoint contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    step: u32,
    /// The next action of the rank within the step.
    part: Part,
    /// The cells, row by row.
    cells: Vec<f64>,
    /// The edges of the neighbours, in the order of [`Stencil::neighbours`].
    edges: Vec<Vec<f64>>,
    /// The sum of all cells. Only the first rank learns it.
    sum: f64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Part {
    /// Sends an edge to the neighbour with this index.
    Send(usize),
    Receive,
    Compute,
    Sum,
    Done,
}

/// A side of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    North,
    South,
    West,
    East,
}

impl Stencil {
    /// Returns the neighbours of this rank, each with the side of this rank's block that it adjoins.
    fn neighbours(&self) -> Vec<(Side, u32)> {
        let RankInfo { me, ranks } = self.place;
        let columns = self.parameters.columns;
        let column = me % columns;
        let mut all = Vec::new();
        all.extend((me >= columns).then(|| (Side::North, me - columns)));
        all.extend((me + columns < ranks).then(|| (Side::South, me + columns)));
        all.extend((column > 0).then(|| (Side::West, me - 1)));
        all.extend((column + 1 < columns).then(|| (Side::East, me + 1)));
        all
    }

    fn edge(&self, cells: &[f64], side: Side) -> Vec<f64> {
        let length = self.parameters.side as usize;
        let all = 0..length;
        match side {
            Side::North => cells[..length].to_vec(),
            Side::South => cells[cells.len() - length..].to_vec(),
            Side::West => all.map(|row| cells[row * length]).collect(),
            Side::East => all.map(|row| cells[row * length + length - 1]).collect(),
        }
    }

    /// Computes a step. Outside the grid, everything is zero.
    fn compute(&self, block: &Block) -> Vec<f64> {
        let length = self.parameters.side as usize;
        let sides: Vec<Side> = self.neighbours().into_iter().map(|(side, _)| side).collect();
        let beyond = |side: Side, place: usize| {
            sides.iter().position(|it| *it == side).map_or(0.0, |at| block.edges[at][place])
        };
        let at = |row: usize, column: usize| block.cells[row * length + column];
        let cell = |place: usize| {
            let (row, column) = (place / length, place % length);
            let north = if row > 0 { at(row - 1, column) } else { beyond(Side::North, column) };
            let south = if row + 1 < length { at(row + 1, column) } else { beyond(Side::South, column) };
            let west = if column > 0 { at(row, column - 1) } else { beyond(Side::West, row) };
            let east = if column + 1 < length { at(row, column + 1) } else { beyond(Side::East, row) };
            (north + south + west + east) / 4.0
        };
        (0..length * length).map(cell).collect()
    }
}

impl Program for Stencil {
    type Config = Parameters;
    type State = Block;

    fn new(parameters: &Arc<Parameters>, place: RankInfo) -> Stencil {
        Stencil { place, parameters: parameters.clone() }
    }

    fn begin(&self) -> Block {
        let count = self.parameters.side * self.parameters.side;
        let first = self.place.me * count;
        let cells = (first..first + count).map(|it| f64::from(it % 97)).collect();
        Block { step: 0, part: Part::Send(0), cells, edges: Vec::new(), sum: 0.0 }
    }

    fn next(&self, block: &mut Block) -> Step {
        let neighbours = self.neighbours();
        match block.part {
            _ if block.step == self.parameters.steps && !matches!(block.part, Part::Sum | Part::Done) => {
                block.part = Part::Sum;
                self.next(block)
            }
            Part::Send(number) => match neighbours.get(number) {
                Some(&(side, rank)) => {
                    block.part = Part::Send(number + 1);
                    Step::send(rank, &self.edge(&block.cells, side))
                }
                // A single rank has no neighbours.
                None => {
                    block.part = if neighbours.is_empty() { Part::Compute } else { Part::Receive };
                    self.next(block)
                }
            },
            Part::Receive => {
                block.part = Part::Compute;
                Step::Gather { from: neighbours.into_iter().map(|(_, rank)| rank).collect() }
            }
            Part::Compute => {
                block.cells = self.compute(block);
                (block.step, block.part) = (block.step + 1, Part::Send(0));
                Step::Compute(self.parameters.step_time.0)
            }
            Part::Sum => {
                block.part = Part::Done;
                Step::Reduce { root: 0, part: vec![block.cells.iter().sum()], operation: Operation::Sum }
            }
            Part::Done => Step::Finish,
        }
    }

    fn received(&self, block: &mut Block, messages: Vec<Message>) {
        match block.part {
            Part::Done => block.sum = messages[0].unpack::<Vec<f64>>()[0],
            _ => block.edges = messages.iter().map(Message::unpack).collect(),
        }
    }

    fn result(&self, block: &Block) -> Vec<u8> {
        pack(&(&block.cells, block.sum))
    }

    fn progress(&self, block: &Block) -> Progress {
        Progress { done: block.step.into(), total: self.parameters.steps.into() }
    }
}

//! Experiments: the input files and statistics of the HC3I paper's simulator, reproductions of published evaluations,
//! comparisons of protocols, and parameter sweeps.
//!
//! All runs are set up by the catalog and performed by the simulator or the caller's backend. Numbers are computed from
//! the facts. This crate prints nothing and reads no clock.
//!
//! | module | contents |
//! | --- | --- |
//! | [`compare`] | one federation under several protocols |
//! | [`curves`] | one federation under several protocols, over the values of a parameter |
//! | [`stored`] | stored results, from which interrupted work resumes |
//! | [`part`] | parts of many runs, for several machines |
//! | [`files`] | the three files of the paper's simulator, and the federation that they describe |
//! | [`mod@model`] | published models of checkpointing beside measurements |
//! | [`samples`] | the files of the paper's experiments |
//! | [`mod@reproduce`] | reproductions of published evaluations, and their pages |
//! | [`mod@simulate`] | simulation of one run, from which its statistics are computed |
//! | [`statistics`] | the data types of these statistics |
//! | [`measures`] | the statistics of runs as a flat list, and their spread over several runs |
//! | `study` | the page of any of these studies |
//! | [`sweep`] | one federation with many settings of its parameters |
//! | [`verdict_counts`] | counts of the verdicts and outcomes of several runs |
//! | [`table1`] | the HydEE paper's table of clusterings, reproduced |
//! | [`traces`] | the page of a failure trace |
//! | [`text`] | statistics as text, JSON and CSV |

pub mod compare;
pub mod curves;
pub mod files;
pub mod measures;
pub mod model;
pub mod part;
pub mod reproduce;
pub mod samples;
pub mod simulate;
pub mod statistics;
mod store_counter;
pub mod stored;
mod study;
pub mod sweep;
pub mod table1;
pub mod text;
pub mod traces;
pub mod verdict_counts;

pub use files::Files;
pub use part::Part;
pub use simulate::{simulate, simulate_all};
pub use statistics::Statistics;

//! Experiments on the simulator: the HC3I paper's three files, its statistics and its figures, and
//! comparisons of protocols.
//!
//! All runs take the ordinary path: the catalog sets up a federation, and the simulator runs it. Numbers are
//! computed from the facts. Nothing here prints or reads a clock.
//!
//! | module | contents |
//! | --- | --- |
//! | [`compare`] | one federation under several protocols |
//! | [`kept`] | results that outlive the program, so that interrupted work continues |
//! | [`files`] | the three files of the paper's simulator, and the federation that they describe |
//! | [`samples`] | the files of the paper's experiments |
//! | [`mod@reproduce`] | the paper's evaluation, repeated, and its page |
//! | [`mod@simulate`] | one run, in numbers |
//! | [`statistics`] | the numbers of a run |
//! | [`measures`] | the same numbers as a flat list, and their spread over runs |
//! | [`sweep`] | one federation at many settings of its parameters |
//! | [`table1`] | the HydEE paper's table of clusterings, repeated |
//! | [`tell`] | statistics as text, JSON and CSV |

pub mod compare;
pub mod files;
pub mod kept;
pub mod measures;
pub mod reproduce;
pub mod samples;
pub mod simulate;
pub mod statistics;
mod store_counter;
pub mod sweep;
pub mod table1;
pub mod tell;

pub use files::Files;
pub use simulate::{simulate, simulate_all};
pub use statistics::Statistics;

//! What a run looks like to people: the summary, the explanation in sentences, the page and its diagram.
//!
//! Everything here is drawn from the recorded facts and from what the checkers said of them. It judges nothing.
//!
//! | module | holds |
//! | --- | --- |
//! | [`cast`] | who takes part, by name |
//! | [`history`] | what happened, put together from the facts |
//! | [`narrate`] | what happens during a run, in sentences, as it happens |
//! | [`explain`] | why each cluster rolled back, in sentences |
//! | [`spent`] | where the time of the processes went |
//! | [`summary`] | everything that is said of a run, as one value and as JSON |
//! | [`text`] | the summary for a terminal |
//! | [`diagram`] | the space-time diagram, as data and as a static picture |
//! | [`page`] | the report: one HTML file |
//! | [`mod@transcript`] | a small run, line by line |
//! | [`fault`] | faults and links in words |
//! | [`style`] | the colours and the look of every page |

pub mod cast;
pub mod diagram;
pub mod explain;
pub mod fault;
pub mod history;
pub mod narrate;
pub mod page;
pub mod spent;
pub mod style;
pub mod summary;
pub mod text;
pub mod transcript;

pub use cast::Cast;
pub use diagram::Diagram;
pub use history::History;
pub use spent::Spent;
pub use summary::{Recorded, Summary};

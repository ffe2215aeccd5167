//! What a run looks like to people: the summary, the explanation in sentences, the page and its diagram.
//!
//! Everything here is drawn from the recorded facts and from what the checkers said of them. It judges nothing.
//!
//! | module | holds |
//! | --- | --- |
//! | [`cast`] | who takes part, by name |
//! | [`history`] | what happened, put together from the facts |
//! | [`diagram`] | the space-time diagram, as data and as a static picture |
//! | [`fault`] | faults and links in words |

pub mod cast;
pub mod diagram;
pub mod fault;
pub mod history;

pub use cast::Cast;
pub use diagram::Diagram;
pub use history::History;

//! Presents a run in human-readable form: the summary, the explanation in sentences, the page and its diagram.
//!
//! All of it is derived from the recorded facts and from the checker's findings. This crate makes no
//! judgements.
//!
//! | module | contents |
//! | --- | --- |
//! | [`names`] | the names of processes and clusters |
//! | [`events`] | sentences about a run, as it happens |
//! | [`now`] | a run in progress: one sentence about what happens now, and the states of processes |
//! | [`explain`] | why each cluster rolled back, in sentences |
//! | [`summary`] | everything reported about a run, as one value and as JSON |
//! | [`text`] | the summary for a terminal |
//! | [`mod@junit`] | runs as JUnit XML |
//! | [`table`] | tables and sentences of at most 100 columns |
//! | [`diagram`] | the space-time diagram, as data and as a static picture |
//! | [`chart`] | charts: lines with bands, bars, and cells |
//! | [`spread`] | the mean and range of a value over several runs |
//! | [`page`] | the report: one HTML file |
//! | [`timeline`] | what happened, timed by the clocks of the processes |
//! | [`mod@transcript`] | a small run, line by line |
//! | [`histories`] | what clients were told: tables, and drawings of contradictions |
//! | [`probes`] | what the probes of a user's own system found: tables, and strips for the page |
//! | [`style`] | the colours and styles of all pages |

pub mod chart;
pub mod diagram;
pub mod events;
pub mod explain;
pub mod histories;
pub mod junit;
mod map;
pub mod names;
pub mod now;
pub mod page;
pub mod probes;
pub mod spread;
pub mod style;
pub mod summary;
pub mod table;
mod terms;
pub mod text;
pub mod timeline;
pub mod transcript;

pub use diagram::Diagram;
pub use names::DisplayNames;
pub use summary::{RecordedRun, Summary};
pub use timeline::Timeline;

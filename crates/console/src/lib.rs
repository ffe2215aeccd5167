//! Code shared by the programs that users invoke, `faultline` and `kubectl-faultline`: exit statuses, output, the live
//! view and repetitions of runs.
//!
//! | module | content |
//! | --- | --- |
//! | [`command_error`] | exit statuses, and errors with their remedy |
//! | [`arguments`] | options of several commands |
//! | [`campaign`] | runs that are divided among pods |
//! | [`source`] | files that describe federations |
//! | [`recording`] | a recorded run with its judgement |
//! | [`repetition`] | runs with consecutive seeds |
//! | [`place`] | names of the directories in which runs are recorded |
//! | [`progress`] | progress of long operations |
//! | [`examination`] | findings of `doctor` |
//! | [`screen`] | the live view |
//! | [`page`] | the page that shows a run |
//! | [`memory`] | the memory limit of the program |
//! | [`output`] | standard output |
//! | [`interrupt`] | Ctrl-C |

pub mod arguments;
pub mod campaign;
pub mod command_error;
pub mod examination;
pub mod interrupt;
pub mod memory;
pub mod output;
pub mod page;
pub mod place;
pub mod progress;
pub mod recording;
pub mod repetition;
pub mod screen;
pub mod source;

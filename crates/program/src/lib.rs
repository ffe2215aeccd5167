//! Programs in any language as protocols and as applications: the program reads one event per line, and replies to each
//! with one line that lists what to do. `docs/programs.md` describes this contract.
//!
//! A program is one more [`Protocol`](faultline_core::Protocol) or [`Application`](faultline_core::Application), so
//! drivers, searches and reports treat it like any other. The content of images and snapshots stays on this side of the pipe, and only this side reports facts. A
//! program that breaks the contract cannot cause a panic: [`Claim::Broke`](faultline_core::Claim::Broke) ends the run.
//!
//! | module | contents |
//! | --- | --- |
//! | `contract` | the lines of both sides |
//! | `claim` | the claims of a program |
//! | `payload` | the content of application messages as text |
//! | `pipe` | a running program, and the limits on time and size |
//! | `executable` | the command, its files, and the executions that later lives reuse |
//! | `guard` | ends programs that outlive this process |
//! | `log` | what programs write to standard error |
//! | `checks` | what a program must not ask of its host |
//! | `protocol` | the program as a protocol |
//! | `steps` | the steps of an application |
//! | `application` | the program as an application: the connection to it, and where its state is |
//! | `actor` | an application that receives messages in the order of their arrival |

mod actor;
mod application;
mod checks;
mod claim;
mod contract;
mod executable;
mod guard;
mod log;
mod payload;
mod pipe;
mod protocol;
mod steps;

pub use actor::Actor;
pub use application::{ApplicationConfig, ProgramRank};
pub use contract::{Json, Saved};
pub use executable::{
    Executable, Kind, StartError, end_all, host_in, never_reuse, store_in, with_exchanged_executions,
};
pub use guard::guard_with;
pub use log::{LoggedLine, keep_log, take_log};
pub use pipe::{ShowLine, show_lines};
pub use protocol::{ProgramConfig, ProgramMessage, ProgramProtocol, ProgramStamp};
pub use steps::Receives;

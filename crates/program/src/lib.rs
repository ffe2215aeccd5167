//! Programs in any language as protocols: the program reads one event per line, and replies to each with one line that
//! lists actions. `docs/programs.md` describes this contract.
//!
//! A program is one more [`Protocol`](faultline_core::Protocol), so drivers, searches and reports treat it like any
//! other. The content of images and snapshots stays on this side of the pipe, and only this side reports facts. A
//! program that breaks the contract cannot cause a panic: [`Claim::Broke`](faultline_core::Claim::Broke) ends the run.
//!
//! | module | contents |
//! | --- | --- |
//! | `contract` | the lines of both sides |
//! | `claim` | the claims of a program |
//! | `payload` | the content of application messages as text |
//! | `pipe` | a running program, and the limits on time and size |
//! | `executable` | the command, its files, and the executions that later lives reuse |
//! | `checks` | what a program must not ask of its host |
//! | `protocol` | the program as a protocol |

mod checks;
mod claim;
mod contract;
mod executable;
mod payload;
mod pipe;
mod protocol;

pub use contract::Json;
pub use executable::{Executable, StartError, end_all, host_in, never_reuse, with_exchanged_executions};
pub use protocol::{ProgramConfig, ProgramMessage, ProgramProtocol, ProgramStamp};

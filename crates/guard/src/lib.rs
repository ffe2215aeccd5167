//! The processes of commands that Faultline starts, and the guard that ends them.
//!
//! A program that is killed cannot end its commands itself. It therefore starts a [`Guard`] beforehand, another process,
//! which ends them once the program has ended. Both kinds of commands are guarded in the same way: [programs] that are a
//! protocol or an application, and the commands of a [system].
//!
//! [programs]: https://github.com/faultline-testbed/faultline/blob/main/docs/programs.md
//! [system]: https://github.com/faultline-testbed/faultline/blob/main/docs/systems.md

mod guard;
mod processes;

pub use guard::{Guard, MARK, serve};
pub use processes::{
    ATTEMPT_VARIABLE, MOST_SEARCHES, PAUSE, Processes, RunId, VARIABLE, group_file, has, is_of_attempt,
    is_running, is_without_environment, kill_group, matching, name_of, processor_time, signal, signal_all,
};

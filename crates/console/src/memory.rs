//! `--memory`: the memory limit of this program.

use faultline_api::quantity::Size;
use faultline_runtime::memory;
use faultline_session::bound_memory;
use miette::miette;
use nix::sys::resource::{Resource, getrlimit};

use crate::command_error::CommandError;

/// The address space that any command needs beyond what its program occupies, in bytes.
const LEAST_ADDRESSES: u64 = 64 << 20;
/// The number of files that any command may have to open.
const LEAST_FILES: u64 = 24;

/// Sets the memory limit for all runs that this program performs: the requested limit or, by default, half of the
/// available memory.
///
/// # Errors
///
/// Fails if no run could stay within the requested limit, if the limit exceeds the memory of this machine, or if a
/// limit is requested but this system does not report the memory use of programs.
pub fn set_limit(requested: Option<Size>) -> Result<(), CommandError> {
    check_limits()?;
    let checked = |requested| checked(requested, memory::available(), memory::used());
    bound_memory(memory::bound(requested.map(checked).transpose()?));
    Ok(())
}

/// Checks that the limits of this program leave room for any work. Beyond them, neither the allocator nor the standard
/// library reports errors: the program would be aborted.
fn check_limits() -> Result<(), CommandError> {
    if let Some(left) = memory::addresses_left().filter(|it| *it < LEAST_ADDRESSES) {
        return Err(CommandError::machine_with(
            format!(
                "the address space of this program is limited: {} MiB are left, and it needs at least {} MiB",
                left >> 20,
                LEAST_ADDRESSES >> 20
            ),
            "raise the limit (`ulimit -v`)",
        ));
    }
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((limit, _)) if limit < LEAST_FILES => Err(CommandError::machine_with(
            format!("this program may open only {limit} files, and needs at least {LEAST_FILES}"),
            "raise the limit (`ulimit -n`)",
        )),
        _ => Ok(()),
    }
}

/// Returns the requested limit in bytes, if a run can respect it.
fn checked(requested: Size, available: Option<u64>, used: Option<u64>) -> Result<u64, CommandError> {
    let (Some(available), Some(used)) = (available, used) else {
        const HELP: &str = "omit `--memory`, or use a system with /proc";
        return Err(CommandError::input(miette!(
            help = HELP,
            "this system does not report the memory use of programs"
        )));
    };
    let mebibytes = |bytes: u64| format!("{}MiB", bytes >> 20);
    if requested.0 > available {
        return Err(CommandError::input(miette!(
            help = format!("use at most `--memory {}`", mebibytes(available)),
            "`--memory` must not exceed the memory of this machine or of this program's control group (found {requested})"
        )));
    }
    // The memory use differs slightly from one start of the program to the next.
    let least = (used + (1 << 20)).next_multiple_of(1 << 20);
    if requested.0 < least {
        return Err(CommandError::input(miette!(
            help = format!("use at least `--memory {}`", mebibytes(least)),
            "`--memory` must exceed the memory that the program uses before a run (found {requested})"
        )));
    }
    Ok(requested.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_no_run_can_stay_within_is_rejected_with_a_remedy() {
        let checked = |bytes| checked(Size(bytes), Some(1 << 30), Some(4 << 20));
        for accepted in [5 << 20, 64 << 20, 1 << 30] {
            assert_eq!(checked(accepted).unwrap(), accepted);
        }
        for (bytes, help) in
            [(0, "`--memory 5MiB`"), ((5 << 20) - 1, "`--memory 5MiB`"), (2 << 30, "`--memory 1024MiB`")]
        {
            let refused = format!("{:?}", checked(bytes).unwrap_err().report);
            assert!(refused.contains("--memory") && refused.contains(help), "{refused}");
        }
        assert!(super::checked(Size(1 << 20), None, None).is_err());
    }
}

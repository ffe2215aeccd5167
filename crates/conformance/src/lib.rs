//! The contract between a process and its driver, as tests that every driver runs.
//!
//! A [`Probe`] is a process that follows a [`Script`], and reports every action of its driver as an
//! [`Observation`]. A [`Scenario`] is a federation of probes with a fault plan. A [`Driver`] runs a
//! scenario and returns its facts. Each function of [`cases`] runs scenarios and judges them. A driver's
//! tests are a single line:
//!
//! ```ignore
//! faultline_conformance::conformance_tests!(MyDriver::new());
//! ```
//!
//! The drivers are the simulator, the runtime, and the harness of the protocols' own tests.
//!
//! The tests neither sleep nor read a clock: results derive only from facts and their order.

pub mod cases;
mod observation;
mod probe;
mod scenario;
mod traffic;

pub use observation::{Observation, observations};
pub use probe::{Act, Head, Message, Probe, Script, Stamp, Step, Work};
pub use scenario::{Driver, Evidence, Scenario, membership};

/// Defines one `#[test]` per case. The argument is an expression that creates a new [`Driver`].
///
/// For a driver that can neither pause a process nor halt it between two actions, add `without suspension`. The cases
/// that need suspension are then listed as ignored, with the reason.
#[macro_export]
macro_rules! conformance_tests {
    ($driver:expr) => {
        $crate::conformance_tests! { @cases [] $driver }
    };
    ($driver:expr, without suspension) => {
        $crate::conformance_tests! { @cases [#[ignore = "the driver cannot suspend a process"]] $driver }
    };
    (@cases $suspending:tt $driver:expr) => {
        $crate::conformance_tests! { @each [] $driver;
            nothing_is_lost_or_delivered_twice
            fifo_keeps_the_order_of_every_pair
            contents_survive_the_network
            lives_do_not_mix
            memberships_come_in_order_and_contain_their_receiver
            a_listing_sees_every_earlier_write
            storage_actions_complete_in_order
            a_crash_keeps_what_was_durable_and_nothing_else
            a_fault_is_in_force_before_its_trigger_resumes
            lost_storage_is_empty_and_the_loss_is_remembered
            volatile_storage_is_lost_with_its_process
            completions_belong_to_the_life_that_asked
            timeouts_are_never_missed
            a_partition_delays_and_loses_nothing
            full_storage_refuses_and_corrupt_storage_forgets
            a_lost_cluster_returns
        }
        $crate::conformance_tests! { @each $suspending $driver;
            lives_do_not_mix_after_a_pause
            a_process_halts_between_two_actions
            a_process_halts_between_two_actions_after_a_job
            a_fault_is_in_force_even_at_a_paused_process
            a_short_pause_loses_nothing
            a_long_pause_is_fenced
        }
    };
    (@each $attributes:tt $driver:expr; $($case:ident)*) => {
        $( $crate::conformance_tests! { @case $attributes $driver; $case } )*
    };
    (@case [$($attribute:tt)*] $driver:expr; $case:ident) => {
        #[test]
        $($attribute)*
        fn $case() {
            $crate::cases::$case(&mut $driver);
        }
    };
}

//! Whole runs: what every backend and every command have in common, and programs that users write.

mod accounts;
mod events;
mod every_backend;
mod evidence;
mod flips;
mod golden;
mod late_checkpoints;
mod memory_limit;
mod one_result;
mod own_application;
mod own_program;
mod samples;

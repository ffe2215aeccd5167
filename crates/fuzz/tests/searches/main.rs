//! Searches that correct protocols survive and defective ones do not.

mod clean;
mod contract;
mod defects;
mod directed;
mod found;
mod in_progress;
mod kit;
mod same_judgement;
mod schedules;
mod seeds;

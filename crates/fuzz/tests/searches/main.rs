//! Searches: correct protocols survive them, wrong ones do not.

mod clean;
mod contract;
mod defects;
mod directed;
mod found;
mod kit;
mod mutations;
mod seeds;

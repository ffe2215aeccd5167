//! Tests of comparisons, of the published evaluations, and of the files of the HC3I paper's simulator.

mod compare;
mod files;
mod patterns;
mod reproduce_cck;

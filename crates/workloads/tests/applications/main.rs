//! Each application computes what its sequential reference computes, and exposes defects of the network below it.

mod network;

mod heat;
mod messaging;
mod salted;
mod synthetic;

//! Tests that each application computes the results of its sequential reference, if it has one, and reveals
//! defects of the network.

mod network;

mod heat;
mod messaging;
mod salted;
mod synthetic;

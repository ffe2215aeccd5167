//! A node that hosts a probe of the conformance tests: `probe-node SCRIPT fifo|any OPTIONS`, where SCRIPT is
//! a file in postcard format. The tests start it for each process of a federation.

use std::env;
use std::error::Error;
use std::sync::Arc;

use faultline_conformance::{Probe, Script};
use faultline_runtime::{NodeInput, NodeOptions, node};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let script: Script = postcard::from_bytes(&std::fs::read(args.next().ok_or("no script")?)?)?;
    let fifo = args.next().is_some_and(|order| order == "fifo");
    let (options, input) = (NodeOptions::parse(args)?, NodeInput::read()?);
    if fifo {
        node::run::<Probe<true>>(options, input, Arc::new(script), None)?;
    } else {
        node::run::<Probe<false>>(options, input, Arc::new(script), None)?;
    }
    Ok(())
}

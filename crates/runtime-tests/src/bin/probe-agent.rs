//! An agent that hosts a probe of the conformance tests: `probe-agent DIR KEY_FILE COMMAND…`, where COMMAND
//! starts the probe. The agent prints its address.

use std::env;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use faultline_runtime::Secret;
use faultline_runtime::agent::{AgentOptions, run};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let data = args.next().ok_or("no directory")?.into();
    let key = args.next().ok_or("no key file")?;
    let options = AgentOptions {
        command: args.collect(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        secret: Secret::read_file(key.as_ref())?,
        data,
        uid: None,
        node_port: 0,
        shaper: None,
        executor: None,
    };
    Ok(run(options)?)
}

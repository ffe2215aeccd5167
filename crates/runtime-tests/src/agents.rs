//! Agents as processes on this machine, each with its own directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use faultline_core::ProcessId;
use faultline_runtime::Keys;
use faultline_runtime::metrics::Sum;
use faultline_runtime::remote::{AgentPlace, PlaceRegistry, RemoteOptions};

/// Agents that wait for a supervisor. They are killed when this value is dropped.
pub struct Agents {
    keys: Keys,
    /// The agents, indexed by process.
    pub agents: Vec<Agent>,
}

/// One agent.
pub struct Agent {
    /// The operating-system process.
    pub child: Child,
    /// Address of the agent.
    pub address: SocketAddr,
    /// Directory of the agent.
    pub data: PathBuf,
}

impl Agents {
    /// Starts `number` agents, each of which executes the program `probe_agent` and has a directory under `dir`. Each
    /// agent starts its process with `command`.
    ///
    /// # Panics
    ///
    /// Panics if an agent cannot be started.
    pub fn start(dir: &Path, probe_agent: &str, command: &[OsString], number: usize) -> Agents {
        let keys = Keys::generate(number).expect("random bytes");
        let agent = |index| {
            let key = dir.join(format!("key-{index}"));
            let of_process = keys.of(ProcessId(index as u32)).expect("every process has a key");
            fs::write(&key, of_process.to_line()).expect("a file for the key");
            Agent::start(&dir.join(format!("agent-{index}")), probe_agent, command, &key)
        };
        let agents = (0..number).map(agent).collect();
        Agents { keys, agents }
    }

    /// Returns the options with which a supervisor reaches the agents.
    pub fn options(&self) -> RemoteOptions {
        RemoteOptions {
            run: "run".to_owned(),
            keys: self.keys.clone(),
            replace_after: Duration::ZERO,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            sum: Sum::default(),
        }
    }

    /// Returns a registry with the agents as generation 1, under the UIDs `0`, `1`, …
    ///
    /// # Panics
    ///
    /// Panics if the first generation of places is refused.
    pub fn place_registry(&self) -> PlaceRegistry {
        let place_registry = PlaceRegistry::default();
        place_registry.assign(1, self.places()).expect("the first generation");
        place_registry
    }

    /// Returns the places of the agents.
    pub fn places(&self) -> BTreeMap<ProcessId, AgentPlace> {
        let place = |(index, agent): (usize, &Agent)| {
            (ProcessId(index as u32), AgentPlace { uid: index.to_string(), address: agent.address })
        };
        self.agents.iter().enumerate().map(place).collect()
    }
}

impl Agent {
    /// Starts an agent with the directory `data`.
    ///
    /// # Panics
    ///
    /// Panics if the agent cannot be started.
    pub fn start(data: &Path, probe_agent: &str, command: &[OsString], key: &Path) -> Agent {
        let mut child = Command::new(probe_agent)
            .arg(data)
            .arg(key)
            .args(command)
            .stdout(Stdio::piped())
            .spawn()
            .expect("an agent starts");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("standard output is piped");
        BufReader::new(stdout).read_line(&mut address).expect("an agent prints its address");
        Agent { child, address: address.trim().parse().expect("an address"), data: data.to_owned() }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The agent may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

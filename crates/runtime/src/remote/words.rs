//! What a supervisor and the agents at its places say to each other, over one connection each, which the supervisor
//! makes. Nothing that both of them do not know already is lost with a connection: another one takes up where it was.

use faultline_core::{Life, ProcessId};
use serde::{Deserialize, Serialize};

use crate::metrics::ClusterNames;
use crate::shaper::Abilities;

/// Numbers what is answered.
pub(crate) type OrderNo = u64;

/// What an agent is to host, and for which run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Post {
    /// Names the run; the agent forgets whatever it hosted for another.
    pub(crate) run: String,
    /// Of the place that is meant.
    pub(crate) uid: String,
    pub(crate) process: ProcessId,
    /// What people call the process.
    pub(crate) name: String,
    pub(crate) cluster_names: ClusterNames,
    /// What a process finds in the run's directory when it starts, by file name.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// The life that is believed to be there. Any other is ended before the agent is ready.
    pub(crate) life: Option<Life>,
    /// The newest life that was ever launched anywhere.
    pub(crate) newest: Life,
    /// Bytes of facts that have arrived already, by life.
    pub(crate) arrived: Vec<(Life, u64)>,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// The first words of a connection.
    Post(Post),
    /// Asks for the agent's clock.
    Clock,
    /// Starts a life. Its storage begins empty unless it is kept.
    Launch { life: Life, keeps_storage: bool, supervisor: std::net::SocketAddr },
    /// Gets ready to end a life.
    Arm { order: OrderNo, life: Life },
    /// Ends what was armed under this number; answered when it is gone and its facts have been sent.
    Fire { order: OrderNo, wipe: bool },
    /// Stops a life where it stands, or lets it go on.
    Pause { order: OrderNo, life: Life, paused: bool },
}

/// From an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToPlace {
    /// The answer to [`ToAgent::Post`], after the facts that had not arrived.
    Ready(Ready),
    /// The other answer: this is the place of this UID.
    Elsewhere(String),
    /// Nanoseconds of the agent's monotonic clock.
    Clock(u64),
    /// A piece of the file of a life's facts.
    Facts {
        life: Life,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A life has ended by itself; all its facts have been sent.
    Ended {
        life: Life,
        status: String,
        last_words: String,
    },
    Armed {
        order: OrderNo,
    },
    /// An order was carried out, or why not. With the moment of death by the agent's monotonic clock, if there was one.
    Done {
        order: OrderNo,
        died: Option<u64>,
        trouble: Option<String>,
    },
    /// The agent is about to end; its life is gone, and all facts have been sent.
    Leaving,
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The life that runs.
    pub(crate) life: Option<Life>,
    /// The storage of the process is there.
    pub(crate) holds_storage: bool,
    /// What the shaper there finds the kernel can do for links, if there is one.
    pub(crate) abilities: Option<Abilities>,
    /// Names the kernel, whose monotonic clock is the same for all its processes.
    pub(crate) boot: String,
}

//! The shaper of a place: the only process there that may configure the kernel's traffic control, on behalf
//! of the node in the same network namespace. In pods, only the shaper is privileged; the node and its agent
//! are not.
//!
//! The programs communicate over a socket in a directory that no other program can access. Every request uses
//! a separate connection, and requests are answered in the order of the connections, so that the requests of a life
//! that has ended are answered before those of the next life. The shaper is stateless: all state is in the kernel. A
//! restarted shaper continues from that state, and clients repeat requests that were not answered.

mod serve;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultline_shaper::{Kernel, Tree};
use faultline_tc::TrafficCounts;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::control;
#[cfg(test)]
pub(crate) use serve::answer_all;
pub(crate) use serve::listen;
pub use serve::{ServeError, serve};

/// Time within which a running shaper responds.
const ANSWER: Duration = Duration::from_secs(5);
/// Time between two attempts to send a request.
const AGAIN: Duration = Duration::from_millis(50);
/// Time for which a client waits for a shaper: restarting a killed container may take this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request to a shaper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Asks for the features of the kernel.
    Abilities,
    /// Applies exactly this tree to the interface with this address.
    Apply { address: Ipv4Addr, tree: Tree },
    /// Asks for the traffic at the interface with this address.
    TrafficCounts { address: Ipv4Addr },
}

/// A shaper's response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Abilities(Abilities),
    /// The tree is in effect, after this number of changes.
    InForce(u64),
    TrafficCounts(TrafficCounts),
    /// The request could not be carried out, for this reason.
    Refused(String),
}

/// Link-emulation features of the kernel at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// The supported elements of a tree.
    pub kernel: Kernel,
    /// Missing features: the names of their modules, with the kernel's error messages.
    pub lacks: Vec<(String, String)>,
}

/// The reason why a shaper did not carry out a request.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// The shaper does not respond.
    #[error("the shaper at {} does not respond: {source}", socket.display())]
    Silent {
        /// Path of the socket.
        socket: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The shaper could not carry out the request.
    #[error("the shaper cannot configure the links: {0}")]
    Refused(String),
    /// The program at the socket is not a shaper.
    #[error("the shaper sent an unexpected response")]
    Confused,
}

/// A client of a shaper.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    socket: PathBuf,
}

impl Shaper {
    pub(crate) fn at(socket: &Path) -> Shaper {
        Shaper { socket: socket.to_owned() }
    }

    /// Returns the features of the kernel. Waits indefinitely for a shaper that has not started yet.
    pub(crate) async fn abilities(&self) -> Result<Abilities, ShaperError> {
        loop {
            match self.ask(&Question::Abilities).await {
                Ok(Answer::Abilities(abilities)) => return Ok(abilities),
                Err(error @ ShaperError::Silent { .. }) => warn!(%error, "waiting for the shaper"),
                Err(error) => return Err(error),
                Ok(_) => return Err(ShaperError::Confused),
            }
        }
    }

    /// Applies a tree to the interface with this address. Returns the number of changes once the tree is in effect.
    pub(crate) async fn apply(&self, address: Ipv4Addr, tree: Tree) -> Result<u64, ShaperError> {
        match self.ask(&Question::Apply { address, tree }).await? {
            Answer::InForce(changes) => Ok(changes),
            _ => Err(ShaperError::Confused),
        }
    }

    /// Returns the traffic at the interface with this address. Does not repeat the request.
    pub(crate) async fn passed(&self, address: Ipv4Addr) -> Result<TrafficCounts, ShaperError> {
        match self.ask_once(&Question::TrafficCounts { address }).await {
            Ok(Answer::TrafficCounts(passed)) => Ok(passed),
            Ok(Answer::Refused(why)) => Err(ShaperError::Refused(why)),
            Ok(_) => Err(ShaperError::Confused),
            Err(source) => Err(ShaperError::Silent { socket: self.socket.clone(), source }),
        }
    }

    /// Repeats a request until it is answered, for up to [`PATIENCE`]. Repeating it is harmless: a request that has
    /// already been carried out changes nothing.
    async fn ask(&self, question: &Question) -> Result<Answer, ShaperError> {
        let give_up = Instant::now() + PATIENCE;
        let mut waited = false;
        loop {
            match self.ask_once(question).await {
                Ok(Answer::Refused(why)) => return Err(ShaperError::Refused(why)),
                Ok(answer) => {
                    if waited {
                        info!("the shaper is ready");
                    }
                    return Ok(answer);
                }
                Err(source) if Instant::now() >= give_up => {
                    return Err(ShaperError::Silent { socket: self.socket.clone(), source });
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
            waited = true;
        }
    }

    async fn ask_once(&self, question: &Question) -> io::Result<Answer> {
        let conversation = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            control::send(&mut stream, question).await?;
            control::receive(&mut stream).await
        };
        timeout(ANSWER, conversation).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

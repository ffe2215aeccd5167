//! The shaper of a place: the one process there that may tell the kernel what to do with packets, and that does what the
//! node beside it says. Where the node and its agent must have no privilege, in pods, it has this one for them.
//!
//! They talk over a socket in a directory that nobody else can reach. Every question is a connection of its own, and
//! questions are answered in the order of the calls: what a life has said before it ended comes before what the next one
//! says. The shaper remembers nothing. What is in force stands in the kernel, so that one that is started again goes on
//! with that, and whoever has asked one that is gone asks again.

mod serve;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultline_shaper::{Kernel, Tree};
use faultline_tc::Passed;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::control;
pub use serve::{ServeError, serve};

/// A shaper that is there answers within this.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(50);
/// For so long nobody gives up a shaper: a container that was killed may be started again as late as this.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a shaper is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Question {
    /// What can the kernel do?
    Abilities,
    /// Is this in force at the interface with this address, and nothing else?
    Apply { address: Ipv4Addr, tree: Tree },
    /// What has passed there?
    Passed { address: Ipv4Addr },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Abilities(Abilities),
    /// It is, after so many changes.
    InForce(u64),
    Passed(Passed),
    /// The kernel did not let it happen.
    Refused(String),
}

/// What the kernel of a place can do for links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// What a tree may consist of.
    pub kernel: Kernel,
    /// What it lacks, by the names of modules, with its own words.
    pub lacks: Vec<(String, String)>,
}

/// Why a shaper did not do as it was told.
#[derive(Debug, Error)]
pub enum ShaperError {
    /// It does not answer.
    #[error("the shaper at {} does not answer: {source}", socket.display())]
    Silent {
        /// Where it should be.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses.
    #[error("the shaper cannot do as it is told: {0}")]
    Refused(String),
    /// It is another program.
    #[error("the shaper answers something else than it was asked")]
    Confused,
}

/// A shaper that is asked from here.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    socket: PathBuf,
}

impl Shaper {
    pub(crate) fn at(socket: &Path) -> Shaper {
        Shaper { socket: socket.to_owned() }
    }

    /// What the kernel can do; waits for a shaper that has not started yet, for ever.
    pub(crate) async fn abilities(&self) -> Result<Abilities, ShaperError> {
        loop {
            match self.ask(&Question::Abilities).await {
                Ok(Answer::Abilities(abilities)) => return Ok(abilities),
                Err(error @ ShaperError::Silent { .. }) => warn!(%error, "waiting for it"),
                Err(error) => return Err(error),
                Ok(_) => return Err(ShaperError::Confused),
            }
        }
    }

    /// Has a tree brought into force at the interface with this address. Returns when it is.
    pub(crate) async fn apply(&self, address: Ipv4Addr, tree: Tree) -> Result<u64, ShaperError> {
        match self.ask(&Question::Apply { address, tree }).await? {
            Answer::InForce(changes) => Ok(changes),
            _ => Err(ShaperError::Confused),
        }
    }

    /// What has passed through the interface with this address. Asks once.
    pub(crate) async fn passed(&self, address: Ipv4Addr) -> Result<Passed, ShaperError> {
        match self.ask_once(&Question::Passed { address }).await {
            Ok(Answer::Passed(passed)) => Ok(passed),
            Ok(Answer::Refused(why)) => Err(ShaperError::Refused(why)),
            Ok(_) => Err(ShaperError::Confused),
            Err(source) => Err(ShaperError::Silent { socket: self.socket.clone(), source }),
        }
    }

    /// Asks until there is an answer. To ask twice does no harm: the second time nothing has to be changed.
    async fn ask(&self, question: &Question) -> Result<Answer, ShaperError> {
        let give_up = Instant::now() + PATIENCE;
        let mut waited = false;
        loop {
            match self.ask_once(question).await {
                Ok(Answer::Refused(why)) => return Err(ShaperError::Refused(why)),
                Ok(answer) => {
                    if waited {
                        info!("the shaper is there");
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

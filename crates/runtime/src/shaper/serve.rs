//! The server side of the shaper: answers requests one after another, using [`faultline_tc`].

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultline_shaper::Tree;
use faultline_tc::probe::{Ability, Probe};
use faultline_tc::{TcError, apply, disable_segmentation_offload, interface_of, passed};
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{Abilities, Answer, Question};
use crate::control;

/// Time after which a silent caller is disconnected, because other callers may be waiting.
const PATIENCE: Duration = Duration::from_secs(1);
/// Permissions of the socket: its owner and the directory's group may connect.
const FOR_THE_GROUP: u32 = 0o660;

/// The reason why a shaper exited without a termination signal.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The asynchronous runtime or the handling of signals failed.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The features of the kernel could not be determined.
    #[error("cannot test the features of this kernel: {0} (requires the capability NET_ADMIN)")]
    Probe(TcError),
    /// The socket could not be opened.
    #[error("cannot listen on {}: {source}", path.display())]
    Listen {
        /// Path of the socket.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The socket failed after it was opened.
    #[error("cannot accept a connection: {0}")]
    Accept(io::Error),
}

/// Serves requests at `socket` in the calling thread's network namespace until a termination signal arrives.
/// Traffic control stays in effect afterwards.
///
/// # Errors
///
/// Fails if the server cannot start, or if the socket fails.
pub fn serve(socket: &Path) -> Result<(), ServeError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Runtime)?;
        let abilities = abilities(&Probe::run().map_err(ServeError::Probe)?);
        info!(?abilities, "tested the kernel's features");
        let listener = listen(socket)?;
        tokio::select! {
            Err(error) = answer_all(&listener, |question| answer(question, &abilities)) => Err(error),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

/// Opens the socket, replacing a predecessor's.
pub(crate) fn listen(socket: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Listen { path: socket.to_owned(), source };
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    fs::set_permissions(socket, Permissions::from_mode(FOR_THE_GROUP)).map_err(failed)?;
    Ok(listener)
}

/// Answers requests one at a time, in order of arrival.
pub(crate) async fn answer_all(
    listener: &UnixListener,
    answer: impl Fn(Question) -> Answer,
) -> Result<Infallible, ServeError> {
    loop {
        let (mut stream, _) = listener.accept().await.map_err(ServeError::Accept)?;
        match timeout(PATIENCE, converse(&mut stream, &answer)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "a client closed the connection"),
            Err(_) => warn!("a client did not complete its request in time"),
        }
    }
}

async fn converse(stream: &mut UnixStream, answer: impl Fn(Question) -> Answer) -> io::Result<()> {
    let question: Question = control::receive(stream).await?;
    control::send(stream, &answer(question)).await
}

fn answer(question: Question, abilities: &Abilities) -> Answer {
    let answer = match question {
        Question::Abilities => Ok(Answer::Abilities(abilities.clone())),
        Question::Apply { address, tree } => bring_into_force(address, &tree),
        Question::TrafficCounts { address } => {
            interface_of(address).and_then(|interface| passed(&interface)).map(Answer::TrafficCounts)
        }
    };
    answer.unwrap_or_else(|error| {
        warn!(%error, "refused a request");
        Answer::Refused(error.to_string())
    })
}

fn bring_into_force(address: Ipv4Addr, tree: &Tree) -> Result<Answer, TcError> {
    let interface = interface_of(address)?;
    disable_segmentation_offload(&interface)?;
    let changes = apply(&interface, tree)?;
    info!(interface, changes, peers = tree.leaving.filters.len(), "configured links");
    Ok(Answer::InForce(changes as u64))
}

fn abilities(probe: &Probe) -> Abilities {
    let lacks = probe.lacks(&Ability::OF_LINKS).into_iter();
    let lacks = lacks.map(|(ability, why)| (ability.module().to_owned(), why.to_owned()));
    Abilities { kernel: probe.kernel(), lacks: lacks.collect() }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::SocketAddr;

    use faultline_core::ClusterId;
    use faultline_core::fault::LinkProperties;
    use faultline_shaper::tree::{Peer, Prefix};
    use faultline_shaper::{Kernel, ShapingSide};
    use faultline_tc::namespace::{Hub, isolated};
    use tokio::runtime::LocalOptions;

    use super::super::{Shaper, ShaperError};
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(test)
    }

    #[test]
    fn requests_wait_for_the_shaper_and_refusals_have_a_reason() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("shaper");
            let shaper = Shaper::at(&socket);
            assert!(
                matches!(shaper.passed(HERE).await, Err(ShaperError::Silent { .. })),
                "the request is not repeated"
            );
            let waiting = tokio::task::spawn_local(async move { shaper.apply(HERE, Tree::default()).await });
            tokio::task::yield_now().await;
            let listener = listen(&socket).unwrap();
            let heard = RefCell::new(Vec::new());
            let serve = answer_all(&listener, |question| {
                heard.borrow_mut().push(question);
                if heard.borrow().len() == 1 { Answer::InForce(7) } else { Answer::Refused("no".into()) }
            });
            let ask = async {
                assert_eq!(waiting.await.unwrap().unwrap(), 7);
                let refused = Shaper::at(&socket).apply(HERE, Tree::default()).await.unwrap_err();
                assert_eq!(refused.to_string(), "the shaper cannot configure the links: no");
            };
            tokio::select! {
                Err(error) = serve => panic!("{error}"),
                () = ask => {}
            }
            assert_eq!(heard.borrow().len(), 2);
        });
    }

    #[test]
    fn a_silent_caller_does_not_block_others() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("shaper");
            let listener = listen(&socket).unwrap();
            let silent = UnixStream::connect(&socket).await.unwrap();
            let shaper = Shaper::at(&socket);
            tokio::select! {
                Err(error) = answer_all(&listener, |_| Answer::InForce(0)) => panic!("{error}"),
                changes = shaper.apply(HERE, Tree::default()) => assert_eq!(changes.unwrap(), 0),
            }
            drop(silent);
        });
    }

    /// A restarted shaper finds its predecessor's traffic control, and leaves it unchanged.
    #[test]
    fn a_restarted_shaper_continues_with_the_state_of_the_kernel() {
        let tested = isolated(|| {
            let (hub, listener) = Hub::new().unwrap();
            let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
                panic!("the address is IPv4")
            };
            hub.within(|| {
                let probe = Probe::run().unwrap();
                let abilities = abilities(&probe);
                if !abilities.kernel.htb {
                    eprintln!("!!! SKIPPED: this kernel lacks {:?}", abilities.lacks);
                    return;
                }
                let here = *address.ip();
                let link = LinkProperties { bandwidth: 1_250_000, ..LinkProperties::default() };
                let prefix = Prefix { address: Ipv4Addr::new(10, 0, 0, 9), length: 32 };
                let peer = Peer { number: 4, cluster: ClusterId(1), prefix };
                let kernel = Kernel { htb: true, ..Kernel::default() };
                let tree = Tree::new(ClusterId(0), &[peer], |_, _| link, kernel, ShapingSide::Sender);
                let question = Question::Apply { address: here, tree };
                let changes = |_| match answer(question.clone(), &abilities) {
                    Answer::InForce(changes) => changes,
                    other => panic!("{other:?}"),
                };
                let [first, second] = [0, 1].map(changes);
                assert!(first > 0);
                assert_eq!(second, 0);
                let Answer::TrafficCounts(passed) =
                    answer(Question::TrafficCounts { address: here }, &abilities)
                else {
                    panic!("the response contains the traffic")
                };
                assert!(passed.leaving.contains_key(&ClusterId(1)));
                let elsewhere = answer(Question::TrafficCounts { address: HERE }, &abilities);
                let why = "no network interface has the address 192.0.2.1";
                assert_eq!(elsewhere, Answer::Refused(why.into()));
            })
            .unwrap();
        });
        if let Err(error) = tested {
            eprintln!("!!! SKIPPED: {error}");
        }
    }
}

//! Tests of transports over real sockets. One test uses a proxy that breaks the connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use faultline_callers::UntrustedConnections;
use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Life, ProcessId, Span};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::*;
use crate::node::listen;

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of connections that callers without a key may keep open.
const MOST: usize = 8;

/// Connects from the address 127.0.0.`number`.
pub(crate) async fn connect_from(number: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), 0))).unwrap();
    socket.connect(to).await.unwrap()
}

/// The network of one node.
pub(crate) struct End {
    pub(crate) transport: Rc<Transport>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    pub(crate) echoes: mpsc::UnboundedReceiver<EchoReply>,
    pub(crate) address: SocketAddr,
}

impl End {
    pub(crate) async fn new(process: u32, life: u32, secret: &Secret, clock: Clock, links: Links) -> End {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let me =
            Identity { process: ProcessId(process), life: Life(life), cluster: ClusterId(process as u16) };
        let (incoming_in, incoming) = mpsc::unbounded_channel();
        let (echoes_in, echoes) = mpsc::unbounded_channel();
        let take = move |packet| incoming_in.send(packet).unwrap();
        let transport = Transport::new(me, vec![secret.clone(); 3], clock, links, 1, take, echoes_in);
        let page = Router::new().route("/metrics", get(async || "page"));
        spawn_local(listen(listener, UntrustedConnections::new(MOST), transport.clone(), page));
        End { transport, incoming, echoes, address }
    }

    fn say(&self, to: u32, body: Vec<u8>) {
        let charge = body.len() as u64;
        self.transport.send(ProcessId(to), FrameKind::Control, charge, Body::new(body));
    }

    async fn hear(&mut self) -> Incoming {
        timeout(PATIENCE, self.incoming.recv()).await.expect("nothing is lost").unwrap()
    }
}

/// Creates a directory with these lives and addresses; life 0 means that the process is not up.
pub(crate) fn directory(entries: &[(u32, SocketAddr)]) -> Directory {
    let entry = |(index, &(life, address)): (usize, &(u32, SocketAddr))| {
        (life > 0).then_some(DirectoryEntry { life: Life(life), cluster: ClusterId(index as u16), address })
    };
    Directory { entries: entries.iter().enumerate().map(entry).collect() }
}

/// Forwards connections to `target`, and breaks each after a pseudorandom number of bytes, from 200 to 30,199.
async fn breaking_proxy(target: SocketAddr, mut seed: u64) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        loop {
            let (mut caller, _) = listener.accept().await.unwrap();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut left = 200 + (seed >> 40) as usize % 30_000;
            spawn_local(async move {
                let mut called = TcpStream::connect(target).await.unwrap();
                let (mut there, mut back) = ([0; 777], [0; 777]);
                while left > 0 {
                    let (from, to, bytes) = tokio::select! {
                        read = caller.read(&mut there) => (&there, &mut called, read),
                        read = called.read(&mut back) => (&back, &mut caller, read),
                    };
                    let Ok(bytes @ 1..) = bytes else { return };
                    let bytes = bytes.min(left);
                    if to.write_all(&from[..bytes]).await.is_err() {
                        return;
                    }
                    left -= bytes;
                }
            });
        }
    });
    address
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

#[test]
fn broken_connections_do_not_lose_duplicate_or_reorder_frames() {
    run(async {
        const MESSAGES: u32 = 3000;
        let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
        let mut ends = [
            End::new(0, 1, &secret, clock, Links::default()).await,
            End::new(1, 1, &secret, clock, Links::default()).await,
        ];
        let known =
            [(1, breaking_proxy(ends[0].address, 3).await), (1, breaking_proxy(ends[1].address, 4).await)];
        ends.iter().for_each(|end| end.transport.update(&directory(&known)));
        for number in 0..MESSAGES {
            for (from, to) in [(0, 1), (1, 0)] {
                let mut body = number.to_le_bytes().to_vec();
                body.resize(4 + number as usize % 500, number as u8);
                ends[from].say(to, body);
            }
            tokio::task::yield_now().await;
        }
        for end in &mut ends {
            for number in 0..MESSAGES {
                let heard = end.hear().await;
                assert_eq!(heard.body[..4], number.to_le_bytes());
                assert_eq!(heard.body.len(), 4 + number as usize % 500);
            }
            assert!(end.incoming.is_empty());
        }
        let generations = ends.each_ref().map(|end| {
            let state = end.transport.state.borrow();
            state.peers.iter().map(|peer| peer.generation).max().unwrap()
        });
        assert!(generations.iter().all(|&it| it > 20), "connections broke: {generations:?}");
    });
}

#[test]
fn a_new_life_receives_nothing_sent_to_the_old_one() {
    run(async {
        let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
        let mut speaker = End::new(0, 1, &secret, clock, Links::default()).await;
        let mut first = End::new(1, 1, &secret, clock, Links::default()).await;
        let both = directory(&[(1, speaker.address), (1, first.address)]);
        speaker.transport.update(&both);
        first.transport.update(&both);
        speaker.say(1, vec![1]);
        assert_eq!(first.hear().await.body[..], [1]);

        // The second life knows the speaker before the speaker knows it, so the second life's packet waits.
        let mut second = End::new(1, 2, &secret, clock, Links::default()).await;
        let new = directory(&[(1, speaker.address), (2, second.address)]);
        second.transport.update(&new);
        second.say(0, vec![7]);
        speaker.say(1, vec![2]);
        let waits = async {
            while speaker.transport.directory.receiver_count() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, waits).await.expect("the call waits for a directory that contains the life");
        assert!(speaker.incoming.is_empty(), "a packet from an unannounced life arrived");
        speaker.transport.update(&new);
        let heard = speaker.hear().await;
        assert_eq!((heard.life, &heard.body[..]), (Life(2), &[7][..]));
        speaker.say(1, vec![3]);
        assert_eq!(second.hear().await.body[..], [3], "packets to the old life do not reach the new one");
    });
}

#[test]
fn links_are_delayed_cut_and_healed() {
    run(async {
        let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
        let pair = (ClusterId(0), ClusterId(1));
        let latency = Span::from_millis(20);
        let mut links = Links::default();
        links.requested.insert(pair, LinkProperties { latency, ..Default::default() });
        let mut left = End::new(0, 1, &secret, clock, links.clone()).await;
        let mut right = End::new(1, 1, &secret, clock, links).await;
        let both = directory(&[(1, left.address), (1, right.address)]);
        left.transport.update(&both);
        right.transport.update(&both);

        left.transport.echo(ProcessId(1), latency);
        let echo = timeout(PATIENCE, left.echoes.recv()).await.unwrap().unwrap();
        assert_eq!(echo.from, ProcessId(1));
        assert!(echo.arrived.since(echo.sent) >= latency - HEAD_START, "{echo:?}");

        left.transport.cut(pair.0, pair.1, true);
        left.say(1, vec![1]);
        right.say(0, vec![2]);
        assert_eq!(left.hear().await.body[..], [2], "the other direction is not cut");
        assert_eq!(left.transport.state.borrow().peers[1].line.len(), 1, "the packet waits for the link");
        left.transport.cut(pair.0, pair.1, false);
        assert_eq!(right.hear().await.body[..], [1]);

        left.transport.set_link(pair.0, pair.1, Some(LinkProperties::default()));
        let begin = clock.now();
        left.say(1, vec![3]);
        right.hear().await;
        assert!(clock.now().since(begin) < latency, "a change applies to later packets");
        left.transport.set_link(pair.0, pair.1, None);
        let begin = clock.now();
        left.say(1, vec![4]);
        right.hear().await;
        assert!(
            clock.now().since(begin) >= latency - HEAD_START,
            "the end of a change applies to later packets"
        );
    });
}

#[test]
fn strangers_neither_accumulate_nor_keep_processes_from_connecting() {
    run(async {
        let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
        let speaker = End::new(0, 1, &secret, clock, Links::default()).await;
        let mut hearer = End::new(1, 1, &secret, clock, Links::default()).await;
        // Three times as many connections as may be open: silent ones, unfinished requests and unfinished handshakes.
        let mut strangers = Vec::new();
        for beginning in [&b""[..], b"GET /metrics HTTP/1.1\r\nx: ", b"FLT3"] {
            for _ in 0..MOST {
                let mut stream = connect_from(2, hearer.address).await;
                stream.write_all(beginning).await.unwrap();
                strangers.push(stream);
            }
        }
        let known = [(1, speaker.address), (1, hearer.address)];
        [&speaker, &hearer].iter().for_each(|end| end.transport.update(&directory(&known)));
        speaker.say(1, vec![7]);
        assert_eq!(hearer.hear().await.body[..], [7]);
        // The connection of the two processes is not among those that make room.
        for _ in 0..MOST {
            strangers.push(connect_from(3, hearer.address).await);
        }
        for stream in &mut strangers[..2 * MOST] {
            let closed = timeout(PATIENCE, stream.read(&mut [0])).await.expect("the node closes it");
            assert!(!closed.is_ok_and(|read| read > 0));
        }
        let generation = speaker.transport.state.borrow().peers[1].generation;
        speaker.say(1, vec![8]);
        assert_eq!(hearer.hear().await.body[..], [8]);
        assert_eq!(speaker.transport.state.borrow().peers[1].generation, generation);
        let mut reader = connect_from(4, hearer.address).await;
        reader.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        let mut page = String::new();
        reader.read_to_string(&mut page).await.unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK") && page.ends_with("page"), "{page}");
    });
}

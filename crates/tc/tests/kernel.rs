//! Tests that apply traffic-control trees to the running kernel, as far as the kernel supports them. A skipped test
//! prints the reason.

#![allow(clippy::disallowed_methods)] // The kernel delays packets in real time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Life, ProcessId, Span};
use faultline_shaper::tree::{Peer, Prefix};
use faultline_shaper::{Kernel, ShapingSide, Tree};
use faultline_tc::namespace::{Hub, INTERFACE, isolated, leave_hub, prefix_of};
use faultline_tc::netlink::{Mode, Socket};
use faultline_tc::probe::{Ability, Probe};
use faultline_tc::traffic::{Discipline, Handle, HtbClass};
use faultline_tc::{ApplyError, TcError, apply, passed};

const HTB: [Ability; 4] = [Ability::Veth, Ability::Htb, Ability::Pfifo, Ability::U32];
const ARRIVING: [Ability; 7] = [
    Ability::Veth,
    Ability::Htb,
    Ability::Pfifo,
    Ability::U32,
    Ability::Netem,
    Ability::Ifb,
    Ability::Redirect,
];
const MINE: ClusterId = ClusterId(0);

/// Runs a test in a new namespace if the kernel has these abilities.
fn with(abilities: &[Ability], test: impl FnOnce() + Send) {
    let tested = isolated(|| {
        let probe = Probe::run().expect("features can be tested in a namespace");
        let lacks = probe.lacks(abilities);
        if lacks.is_empty() {
            test();
            return;
        }
        for (ability, why) in lacks {
            eprintln!("!!! SKIPPED: this kernel has no {}: {why}", ability.module());
        }
    });
    if let Err(error) = tested {
        eprintln!("!!! SKIPPED: {error}");
    }
}

/// Opens a socket for requests that bypass [`apply`].
fn by_hand() -> Socket {
    Socket::open().unwrap()
}

fn add_interface() {
    let kernel = by_hand();
    kernel.add_pair(INTERFACE, "other", None, None).unwrap();
    kernel.bring_up(INTERFACE).unwrap();
    kernel.bring_up("other").unwrap();
}

fn peer(number: u16, cluster: u16) -> Peer {
    let prefix = Prefix { address: Ipv4Addr::new(10, 0, number as u8, 0), length: 24 };
    Peer { number, cluster: ClusterId(cluster), prefix }
}

fn link(latency: Span, jitter: Span, bandwidth: u64, loss_ppm: u32) -> LinkProperties {
    LinkProperties { latency, jitter, bandwidth, loss_ppm }
}

type Links = BTreeMap<(ClusterId, ClusterId), LinkProperties>;

fn tree(peers: &[Peer], links: &Links, kernel: Kernel, place: ShapingSide) -> Tree {
    let asked = |from, to| links.get(&(from, to)).copied().unwrap_or_default();
    Tree::new(MINE, peers, asked, kernel, place)
}

fn three_clusters() -> Links {
    let wan = link(Span::from_millis(5), Span::from_micros(200), 12_500_000, 10_000);
    let one = ClusterId(1);
    let two = ClusterId(2);
    let slow = LinkProperties { bandwidth: 1_250_000, ..wan };
    let within = link(Span::from_micros(10), Span::ZERO, 80_000_000, 0);
    [((MINE, MINE), within), ((MINE, one), wan), ((one, MINE), wan), ((MINE, two), slow), ((two, MINE), slow)]
        .into()
}

/// Asserts that a tree is applied, that a change touches only the objects concerned, and that nothing remains
/// at the end.
fn is_applied_changed_and_removed(kernel: Kernel, place: ShapingSide) {
    add_interface();
    let peers = [peer(0, 0), peer(1, 1), peer(2, 1), peer(3, 2)];
    let mut links = three_clusters();
    let first = tree(&peers, &links, kernel, place);
    assert!(apply(INTERFACE, &first).unwrap() > 8);
    assert_eq!(apply(INTERFACE, &first).unwrap(), 0, "existing objects are adopted");

    let wan = links[&(MINE, ClusterId(1))];
    links.insert((MINE, ClusterId(2)), LinkProperties { bandwidth: 2_500_000, ..wan });
    let faster = tree(&peers, &links, kernel, place);
    assert_eq!(apply(INTERFACE, &faster).unwrap(), 1, "one class has another rate");
    assert_eq!(apply(INTERFACE, &faster).unwrap(), 0);

    // Without a bandwidth, the class is removed, or leaves the parent class whose rate it shared.
    links.insert((MINE, ClusterId(2)), LinkProperties { bandwidth: 0, ..wan });
    let unlimited = tree(&peers, &links, kernel, place);
    assert!(apply(INTERFACE, &unlimited).unwrap() > 0);
    assert_eq!(apply(INTERFACE, &unlimited).unwrap(), 0);

    let moved = Peer { prefix: Prefix { address: Ipv4Addr::new(10, 9, 9, 9), length: 32 }, ..peers[1] };
    let replaced = tree(&[peers[0], moved, peers[3]], &links, kernel, place);
    assert!(apply(INTERFACE, &replaced).unwrap() >= 3, "one peer moved, one was removed");
    assert_eq!(apply(INTERFACE, &replaced).unwrap(), 0);

    assert!(apply(INTERFACE, &Tree::default()).unwrap() > 0);
    assert_eq!(apply(INTERFACE, &Tree::default()).unwrap(), 0);
    let kernel = by_hand();
    let mut names: Vec<_> = kernel.links().unwrap().into_iter().map(|it| it.0).collect();
    names.sort_unstable();
    assert_eq!(names, [INTERFACE, "lo", "other"]);
    let left = kernel.queues(kernel.link(INTERFACE).unwrap().unwrap()).unwrap();
    assert!(left.iter().all(|it| it.handle.is_none()), "{left:?}");
}

#[test]
fn rates_are_applied_changed_and_removed() {
    with(&HTB, || {
        is_applied_changed_and_removed(Kernel { htb: true, ..Kernel::default() }, ShapingSide::Node)
    });
}

#[test]
fn delays_at_the_sender_are_applied_changed_and_removed() {
    let kernel = Kernel { htb: true, netem: true, ifb: false };
    with(&ARRIVING[..5], || is_applied_changed_and_removed(kernel, ShapingSide::Sender));
}

#[test]
fn delays_at_the_receiver_are_applied_changed_and_removed() {
    let kernel = Kernel { htb: true, netem: true, ifb: true };
    with(&ARRIVING, || is_applied_changed_and_removed(kernel, ShapingSide::Receiver));
}

#[test]
fn an_altered_class_is_repaired() {
    with(&HTB, || {
        add_interface();
        let kernel = Kernel { htb: true, ..Kernel::default() };
        let tree = tree(&[peer(0, 0), peer(1, 1)], &three_clusters(), kernel, ShapingSide::Node);
        apply(INTERFACE, &tree).unwrap();
        let kernel = by_hand();
        let interface = kernel.link(INTERFACE).unwrap().unwrap();
        let classes = kernel.classes(interface).unwrap();
        let (handle, parent, _) = *classes.iter().find(|it| it.0.minor() == 0x11).unwrap();
        let other = HtbClass::new(125_000, 125_000, 1600, 1514);
        kernel.set_class(Mode::Existing, interface, (parent, handle), other, 1600).unwrap();
        let altered = kernel.classes(interface).unwrap();
        assert_ne!(altered, classes);
        assert_eq!(altered.iter().find(|it| it.0 == handle).map(|it| it.2.rate), Some(125_000));
        assert_eq!(apply(INTERFACE, &tree).unwrap(), 1);
        assert_eq!(apply(INTERFACE, &tree).unwrap(), 0);
    });
}

#[test]
fn missing_interfaces_and_foreign_disciplines_are_rejected() {
    with(&HTB, || {
        let kernel = Kernel { htb: true, ..Kernel::default() };
        let tree = tree(&[peer(1, 1)], &three_clusters(), kernel, ShapingSide::Node);
        let missing = apply(INTERFACE, &tree).unwrap_err();
        assert!(matches!(missing, TcError::Apply(ApplyError::Interface(_))), "{missing}");
        add_interface();
        let by_hand = by_hand();
        let interface = by_hand.link(INTERFACE).unwrap().unwrap();
        let foreign = (Handle::ROOT, Handle::new(7, 0));
        by_hand.set_discipline(Mode::New, interface, foreign, Discipline::Pfifo(1000)).unwrap();
        let occupied = apply(INTERFACE, &tree).unwrap_err().to_string();
        assert!(
            occupied.contains("(pfifo)") && occupied.contains("tc qdisc del dev data root"),
            "{occupied}"
        );
        assert_eq!(apply(INTERFACE, &Tree::default()).unwrap(), 0, "a foreign discipline is not removed");
    });
}

#[test]
fn only_packets_to_a_peer_are_limited() {
    let abilities = [&HTB[..], &[Ability::Bridge]].concat();
    with(&abilities, || {
        const RATE: u64 = 1_250_000;
        const BYTES: u64 = 3 * RATE;
        let limited = link(Span::ZERO, Span::ZERO, RATE, 0);
        let links: Links = [((MINE, ClusterId(1)), limited)].into();
        let pair = pair(&links, Kernel { htb: true, ..Kernel::default() }, ShapingSide::Node);
        let took = pair.send(BYTES);
        let least = Duration::from_secs_f64(BYTES as f64 / RATE as f64 * 0.9);
        assert!(took > least && took < 3 * least, "{BYTES} bytes took {took:?}");
        println!("goodput: {:.1} % of the rate", 100.0 * BYTES as f64 / RATE as f64 / took.as_secs_f64());
        let to = pair.near.ask(|| passed(INTERFACE).unwrap().leaving[&ClusterId(1)]);
        assert!(to.packets > BYTES / 1514 && to.bytes > BYTES, "{to:?} have passed");
        // There are no counts for the hub, because it is not a peer.
        assert!(pair.near.ask(|| passed(INTERFACE).unwrap().leaving.len()) == 1);
    });
}

#[test]
fn packets_from_a_peer_are_delayed_as_requested() {
    let abilities = [&ARRIVING[..], &[Ability::Bridge]].concat();
    with(&abilities, || {
        let there = link(Span::from_millis(40), Span::from_millis(2), 12_500_000, 0);
        let back = link(Span::from_millis(60), Span::ZERO, 0, 0);
        let links: Links = [((MINE, ClusterId(1)), there), ((ClusterId(1), MINE), back)].into();
        let pair = pair(&links, Kernel { htb: true, netem: true, ifb: true }, ShapingSide::Receiver);
        let least = (0..20).map(|_| pair.round_trip()).min().unwrap();
        assert!(least > Duration::from_millis(98) && least < Duration::from_millis(125), "{least:?}");
        let from = pair.near.ask(|| passed(INTERFACE).unwrap().arriving[&ClusterId(1)]);
        assert!(from.packets >= 20 && from.drops == 0, "{from:?}");
    });
}

/// TCP re-sends lost packets, so a lossy link delays round trips but does not prevent them.
#[test]
fn packets_from_a_peer_are_lost_as_requested() {
    let abilities = [&ARRIVING[..], &[Ability::Bridge]].concat();
    with(&abilities, || {
        let lossy = link(Span::from_millis(1), Span::ZERO, 0, 200_000);
        let links: Links = [((ClusterId(1), MINE), lossy)].into();
        let pair = pair(&links, Kernel { htb: true, netem: true, ifb: true }, ShapingSide::Receiver);
        for _ in 0..50 {
            pair.round_trip();
        }
        let from = pair.near.ask(|| passed(INTERFACE).unwrap().arriving[&ClusterId(1)]);
        // With a loss of 20 %, the probability that none of 50 packets is lost is 1 in 70,000.
        assert!(from.drops > 0, "{from:?}");
    });
}

#[test]
fn the_hub_keeps_its_hardware_address_when_processes_join() {
    with(&[Ability::Veth, Ability::Bridge], || {
        let (hub, _) = Hub::new().unwrap();
        let bridge = || by_hand().hardware_address("faultline").unwrap();
        let before = hub.within(bridge).unwrap();
        let residents: Vec<_> = (0..16).map(|process| Resident::new(&hub, process)).collect();
        residents.iter().for_each(|resident| resident.ask(|| ()));
        assert!(before.is_some());
        assert_eq!(hub.within(bridge).unwrap(), before);
    });
}

/// A thread that has its own namespace and runs the work passed to it.
struct Resident {
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Resident {
    fn new(hub: &Hub, process: u32) -> Resident {
        let (work, orders) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let live = move || {
            leave_hub(ProcessId(process), Life(1), false).unwrap();
            orders.iter().for_each(|order| order());
        };
        hub.within(|| thread::spawn(live)).unwrap();
        Resident { work }
    }

    fn ask<T: Send + 'static>(&self, question: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, result) = mpsc::channel();
        self.work.send(Box::new(move || drop(answer.send(question())))).unwrap();
        result.recv().expect("the resident answers")
    }
}

/// Two processes, in clusters 0 and 1, with a connection between them. The far process echoes each byte whose
/// value is 1, and ignores all others.
struct Pair {
    near: Resident,
    _far: Resident,
    _hub: Hub,
    stream: TcpStream,
}

fn pair(links: &Links, kernel: Kernel, place: ShapingSide) -> Pair {
    let (hub, _) = Hub::new().unwrap();
    let residents = [0, 1].map(|process| Resident::new(&hub, process));
    let listener: TcpListener = residents[1].ask(|| TcpListener::bind("0.0.0.0:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    let prefix = prefix_of(ProcessId(1)).address;
    let address = SocketAddr::from((Ipv4Addr::from(u32::from(prefix) + 2), port));
    for (mine, resident) in residents.iter().enumerate() {
        let other = 1 - mine as u16;
        let peers =
            [Peer { number: other, cluster: ClusterId(other), prefix: prefix_of(ProcessId(other.into())) }];
        let links = links.clone();
        resident.ask(move || {
            let asked = |from, to| links.get(&(from, to)).copied().unwrap_or_default();
            let tree = Tree::new(ClusterId(mine as u16), &peers, asked, kernel, place);
            apply(INTERFACE, &tree).unwrap();
        });
    }
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; 1 << 16];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            for _ in bytes[..read].iter().filter(|&&byte| byte == 1) {
                stream.write_all(&[1]).unwrap();
            }
        }
    });
    let [near, far] = residents;
    let stream = near.ask(move || TcpStream::connect(address).unwrap());
    stream.set_nodelay(true).unwrap();
    Pair { near, _far: far, _hub: hub, stream }
}

impl Pair {
    /// Sends `bytes` bytes, and returns the time until the far process has confirmed their arrival.
    fn send(&self, bytes: u64) -> Duration {
        let begun = Instant::now();
        (&self.stream).write_all(&vec![0; bytes as usize]).unwrap();
        self.round_trip();
        begun.elapsed()
    }

    fn round_trip(&self) -> Duration {
        let begun = Instant::now();
        (&self.stream).write_all(&[1]).unwrap();
        (&self.stream).read_exact(&mut [0]).unwrap();
        begun.elapsed()
    }
}

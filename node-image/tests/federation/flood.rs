//! Floods of connections from callers that have no key, from many addresses, and callers that do not read the answers.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use faultline_api::supervision::{BUNDLE, RunPhase, STATUS};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::common::{KEY, Setting};
use crate::{FAULTS, PROCESSES, encrypted, federation, passes};

/// Number of hostile addresses.
const ADDRESSES: u8 = 16;
/// Size of the unfinished request on each connection, in bytes.
const REQUEST: usize = 300_000;
/// Memory that an agent may use during a flood, in KiB.
const MEMORY: u64 = 96 << 10;

/// Connects from the hostile address with this number.
async fn connect(number: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 1, number), 0)))?;
    socket.connect(to).await
}

/// Opens connections from each hostile address. On each, sends an unfinished request of this size.
async fn flood(to: SocketAddr, per_address: usize, size: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..per_address {
        for number in 1..=ADDRESSES {
            let Ok(mut stream) = connect(number, to).await else { continue };
            let mut request = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
            request.resize(size, b'a');
            // The program may close the connection, or read only a part.
            let _ = timeout(Duration::from_millis(1), stream.write_all(&request[..size])).await;
            open.push(stream);
        }
    }
    open
}

/// Returns the resident memory of a program, in KiB.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_flood_neither_exhausts_the_memory_of_an_agent_nor_disturbs_a_run() {
    let setting = Setting::start(&federation(FAULTS), &PROCESSES);
    let runtime = Runtime::new().unwrap();
    let (agent, pid) = (setting.agents[0].1.address, setting.agents[0].1.child.id());
    let open = runtime.block_on(async {
        let open = flood(agent, 80, REQUEST).await;
        sleep(Duration::from_secs(1)).await;
        open
    });
    assert!(memory(pid) < MEMORY, "{} connections occupy {} KiB", open.len(), memory(pid));
    // The flood continues during the run.
    let flooding = runtime.spawn(async move {
        let mut open = open;
        loop {
            open.extend(flood(agent, 1, 100).await);
            open.drain(..usize::from(ADDRESSES));
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(setting.put(&setting.places(1)), 200);
    passes(&setting.judged());
    assert!(memory(pid) < MEMORY, "{} KiB", memory(pid));
    flooding.abort();
}

#[test]
fn readers_of_the_api_that_stand_still_do_not_delay_a_run() {
    let setting = Setting::start(&federation(FAULTS), &PROCESSES);
    let token = faultline_api::supervision::token(KEY).unwrap();
    let reads = |path: &str, pipelined: usize| {
        let mut stream = std::net::TcpStream::connect(setting.supervisor.address).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n\r\n");
        // The supervisor may accept only some of the requests.
        let _ = stream.write_all(request.repeat(pipelined).as_bytes());
        stream
    };
    let stand_still = || -> Vec<_> {
        let paths = [STATUS, "/metrics"].into_iter();
        paths.flat_map(|path| [1, 1, 1, 5000].map(|pipelined| reads(path, pipelined))).collect()
    };
    let _before = stand_still();
    assert_eq!(setting.put(&setting.places(1)), 200);
    setting.wait("the application has begun", |it| it.phase == RunPhase::Running);
    let _during = stand_still();
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (2, 2));
    assert!(status.faults.worst_skew_micros.is_some_and(|skew| skew < 500_000), "{:?}", status.faults);
    let _after = [BUNDLE; 4].map(|path| reads(path, 1));
    assert_eq!(setting.ask("GET", BUNDLE, &[]).0, 200);
}

#[test]
fn connections_from_many_addresses_do_not_lock_out_the_holder_of_the_token() {
    let setting = Setting::start(&federation(""), &[]);
    let address = setting.supervisor.address;
    let token = faultline_api::supervision::token(KEY).unwrap();
    Runtime::new().unwrap().block_on(async {
        // Half of the connections have sent nothing, and half an unfinished request.
        let _open = (flood(address, 16, 0).await, flood(address, 16, 40).await);
        sleep(Duration::from_millis(200)).await;
        for _ in 0..3 {
            encrypted(address, KEY, &token).await.unwrap();
        }
        // The holder of the token needs no address of its own.
        setting.status();
    });
}

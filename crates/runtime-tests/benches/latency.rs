//! The round trip of one byte between two node processes, including stamps, headers and facts, compared with echo
//! servers that use plain Tokio or blocking sockets, on the same two cores of the same machine, in alternating turns.
//!
//! `cargo bench -p faultline-runtime-tests --bench latency`

#[path = "../../../benches/common.rs"]
mod bench;

use std::cell::RefCell;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use faultline_core::application::Job;
use faultline_core::{
    Application, Chunk, Digest, Incarnation, Membership, Node, NodeConfig, Outbox, Payload, ProcessId,
    Progress, Span,
};
use faultline_protocols::none::NoProtocol;
use faultline_runtime::{NodeInput, NodeOptions, local, node};
use faultline_runtime_tests::undisturbed;
use faultline_trace::Bundle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ROUND_TRIPS: usize = 20_000;
const WARM_UP: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    match args.first().and_then(|it| it.to_str()) {
        Some("node") => ping_pong_node(&args[1..]),
        Some("tokio-server") => tokio_server(),
        Some("socket-server") => socket_server(),
        _ => compare(),
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let turns = if bench::quick() { 5 } else { 15 };
    let (mut between_nodes, mut tokio, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        between_nodes.push(nodes()?);
        tokio.push(echo("tokio-server", tokio_client)?);
        sockets.push(echo("socket-server", socket_client)?);
    }
    for (name, baseline, goal) in [("tokio echo", tokio, Some(1.25)), ("blocking sockets", sockets, None)] {
        bench::row(
            "round trip of one byte between two nodes, p50",
            &format!("{:.1} us", bench::median(&between_nodes)),
            &format!("{name} {:.1} us", bench::median(&baseline)),
            bench::ratio(&between_nodes, &baseline),
            goal,
        );
    }
    Ok(())
}

/// Runs two nodes. The first repeatedly sends a byte, and waits until it returns.
fn nodes() -> Result<f64, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let bundle = Bundle::create(dir.path().join("run"))?;
    let results = dir.path().join("median");
    let command = vec![env::current_exe()?.into(), "node".into(), results.clone().into()];
    let options = undisturbed(bundle.dir(), &[2], Span::from_secs(60));
    local::run(command, options, &mut ())?;
    Ok(fs::read_to_string(results)?.parse()?)
}

fn ping_pong_node(args: &[OsString]) -> Result<(), Box<dyn Error>> {
    let options = NodeOptions::parse(args[1..].iter().cloned())?;
    bench::pin(options.process.index());
    let results = Arc::new(PathBuf::from(&args[0]));
    let config = NodeConfig { protocol: Arc::new(()), application: results, verify: false };
    Ok(node::run::<Node<NoProtocol, PingPong>>(options, NodeInput::read()?, Arc::new(config), None)?)
}

#[derive(Clone, Debug)]
struct PingPong {
    me: ProcessId,
    results: Arc<PathBuf>,
    sent: RefCell<Option<Instant>>,
    trips: Vec<f64>,
    returned: usize,
    asked: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Kick;

impl Job for Kick {
    type Output = ();
    fn cost(&self) -> Span {
        Span::ZERO
    }
    fn run(self) {}
}

impl PingPong {
    fn ping(&mut self, out: &mut Outbox) {
        self.sent.replace(Some(Instant::now()));
        out.send(ProcessId(1), Payload::from_slice(&[1]));
    }
}

impl Application for PingPong {
    type Job = Kick;
    type Config = PathBuf;

    fn new(config: &Arc<PathBuf>, me: ProcessId, _: &Membership, _: u64) -> Self {
        let results = config.clone();
        PingPong { me, results, sent: RefCell::new(None), trips: Vec::new(), returned: 0, asked: false }
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        self.returned += 1;
        if self.me == ProcessId(1) {
            return out.send(from, payload);
        }
        let sent = self.sent.borrow().expect("a returned byte was sent");
        if self.returned > WARM_UP {
            self.trips.push(sent.elapsed().as_secs_f64() * 1e6);
        }
        if self.returned < WARM_UP + ROUND_TRIPS {
            self.ping(out);
        } else {
            fs::write(&*self.results, bench::median(&self.trips).to_string()).expect("a file for the result");
        }
    }

    fn computed(&mut self, (): (), out: &mut Outbox) {
        self.ping(out);
    }

    fn next_job(&mut self) -> Option<Kick> {
        (self.me == ProcessId(0) && !std::mem::replace(&mut self.asked, true)).then_some(Kick)
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        Some(Arc::new([]))
    }

    fn restore(&mut self, _: Option<&[Chunk]>, _: Incarnation) {}

    fn result(&self) -> Option<Digest> {
        (self.returned == WARM_UP + ROUND_TRIPS).then_some(Digest([0; 16]))
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// Starts this program as an echo server, and runs `client` against it.
fn echo(
    server: &str,
    client: impl FnOnce(u16) -> Result<f64, Box<dyn Error>> + Send,
) -> Result<f64, Box<dyn Error>> {
    let mut server =
        Command::new(env::current_exe()?).arg(server).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn()?;
    let mut port = [0; 2];
    server.stdout.take().ok_or("no output")?.read_exact(&mut port)?;
    // On a separate thread, so that it can be pinned.
    let result = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            bench::pin(0);
            client(u16::from_le_bytes(port)).map_err(|error| error.to_string())
        });
        client.join().expect("the client does not panic")
    })?;
    server.wait()?;
    Ok(result)
}

fn tokio_server() -> Result<(), Box<dyn Error>> {
    bench::pin(1);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        std::io::stdout().write_all(&listener.local_addr()?.port().to_le_bytes())?;
        std::io::stdout().flush()?;
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte).await? > 0 {
            stream.write_all(&byte).await?;
        }
        Ok(())
    })
}

fn tokio_client(port: u16) -> Result<f64, Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        let mut trips = Vec::new();
        let mut byte = [1];
        for trip in 0..WARM_UP + ROUND_TRIPS {
            let begin = Instant::now();
            stream.write_all(&byte).await?;
            stream.read_exact(&mut byte).await?;
            if trip >= WARM_UP {
                trips.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(bench::median(&trips))
    })
}

fn socket_server() -> Result<(), Box<dyn Error>> {
    bench::pin(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    std::io::stdout().write_all(&listener.local_addr()?.port().to_le_bytes())?;
    std::io::stdout().flush()?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn socket_client(port: u16) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let mut trips = Vec::new();
    let mut byte = [1];
    for trip in 0..WARM_UP + ROUND_TRIPS {
        let begin = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        if trip >= WARM_UP {
            trips.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(bench::median(&trips))
}

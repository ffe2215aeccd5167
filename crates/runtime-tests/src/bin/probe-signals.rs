//! A program for tests of signals. `probe-signals STATUS` prints `ready` once it handles signals, and `signalled` after
//! the first one, which has no other effect. On the second signal, it exits with STATUS.

use std::env;
use std::error::Error;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use faultline_runtime::interrupt;

fn main() -> Result<(), Box<dyn Error>> {
    let status = env::args().nth(1).ok_or("no exit status")?.parse()?;
    let flag = interrupt::flag(status, || ())?;
    println!("ready");
    while !flag.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
    }
    println!("signalled");
    loop {
        thread::park();
    }
}

//! Output that never makes the program wait: a terminal may be stopped, and a reader may be slow.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The maximum number of frames that wait for the output.
const WAITING: usize = 1024;
/// The time within which an output must show the frames that wait at the end. Later ones are dropped.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// An output on a thread of its own, which receives frames: lines, or pictures of the screen. While the output does not
/// keep up, frames are dropped.
#[derive(Debug)]
pub struct Detached<T> {
    frames: SyncSender<T>,
    /// The number of frames that were dropped since the last call of [`Detached::take_dropped`].
    dropped: AtomicU64,
    /// Whether the remaining frames are to be dropped.
    is_abandoned: Arc<AtomicBool>,
    /// Closed once the output has shown the last frame.
    ended: Receiver<()>,
}

impl<T: Send + 'static> Detached<T> {
    /// Starts the thread, which passes each frame to `show`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn new(mut show: impl FnMut(T) + Send + 'static) -> io::Result<Detached<T>> {
        let (frames, waiting) = sync_channel(WAITING);
        let (end, ended) = channel();
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let drops = is_abandoned.clone();
        thread::Builder::new().name("output".into()).spawn(move || {
            let _end: Sender<()> = end;
            for frame in waiting {
                if !drops.load(Ordering::Relaxed) {
                    show(frame);
                }
            }
        })?;
        Ok(Detached { frames, dropped: AtomicU64::new(0), is_abandoned, ended })
    }

    /// Passes a frame to the output, or drops it if too many frames wait.
    pub fn show(&self, frame: T) {
        if self.frames.try_send(frame).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of frames that were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Waits until the output has shown all frames, but for at most a second.
    pub fn finish(self) {
        let Detached { frames, is_abandoned, ended, .. } = self;
        drop(frames);
        if ended.recv_timeout(GRACE_PERIOD) == Err(RecvTimeoutError::Timeout) {
            is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// The output of a program's log: standard error.
#[derive(Clone, Debug)]
pub struct LogOutput(Arc<Mutex<Option<Detached<Vec<u8>>>>>);

impl LogOutput {
    /// Creates the output. A program that carries out runs in real time needs one that `is_detached`: the reader of the
    /// log must not delay it.
    pub fn new(is_detached: bool) -> LogOutput {
        let show = |frame: Vec<u8>| drop(io::stderr().write_all(&frame));
        let detached = is_detached.then(|| Detached::new(show).ok()).flatten();
        LogOutput(Arc::new(Mutex::new(detached)))
    }

    /// Waits until the log has been written, so that other output can follow. Later entries are written directly.
    pub fn finish(&self) {
        let detached = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        detached.into_iter().for_each(Detached::finish);
    }
}

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(detached) => detached.show(bytes.to_vec()),
            None => return io::stderr().write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_stands_still_delays_nothing_and_drops_frames() {
        let (go, may_go) = channel::<()>();
        let (shown_in, shown) = channel();
        let output = Detached::new(move |frame: u64| {
            // Accepts nothing until the sender is dropped.
            let _ = may_go.recv();
            let _ = shown_in.send(frame);
        })
        .unwrap();
        let total = WAITING as u64 + 100;
        (0..total).for_each(|frame| output.show(frame));
        let dropped = output.take_dropped();
        assert!((99..=100).contains(&dropped), "{dropped}");
        assert_eq!(output.take_dropped(), 0);
        drop(go);
        output.finish();
        let shown: Vec<u64> = shown.iter().collect();
        assert_eq!(shown.len() as u64, total - dropped);
        assert!(shown.is_sorted() && shown.iter().zip(0..WAITING as u64).all(|(shown, no)| *shown == no));
    }

    #[test]
    fn an_output_that_never_goes_on_is_abandoned() {
        let (_stays, may_go) = channel::<()>();
        let output = Detached::new(move |()| {
            let _ = may_go.recv();
        })
        .unwrap();
        output.show(());
        output.finish();
    }
}

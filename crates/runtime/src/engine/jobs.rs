//! Runs the jobs of a process on threads of their own.
//!
//! When a job returns, the thread that ran it passes the result to the process directly, and then runs the next job. As
//! long as a process only computes, no other thread has to wake up, and the process continues on the same core.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use faultline_core::fault::Handled;
use faultline_core::process::In;
use faultline_core::{Event, Job, JobNo, Process};
use faultline_supervisor::panics::handles;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Stimulus;
use super::handler::EventHandler;
use crate::clock::{Clock, pause};
use crate::transport::Identity;

/// The part of the engine that the main thread shares with the threads that run jobs.
pub(super) struct JobRunner<P: Process> {
    me: Identity,
    clock: Clock,
    runtime: Handle,
    inbox: mpsc::UnboundedSender<Stimulus<P>>,
    /// The handler, unless the main thread is using it or an error has ended it.
    handler: Mutex<Option<Box<EventHandler<P>>>>,
    /// Whether the main thread is using the handler, or is waiting for it. A thread with many short jobs would
    /// otherwise hold the lock most of the time.
    is_main_active: AtomicBool,
    /// The percentage of their time that jobs take.
    percent: AtomicU32,
}

/// When dropped by a thread that panics, reports the panic to the main thread.
struct PanicReport<'a, P: Process>(&'a mpsc::UnboundedSender<Stimulus<P>>);

impl<P: Process> Drop for PanicReport<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.0.send(Stimulus::Panicked));
        }
    }
}

impl<P: Process + Send + 'static> JobRunner<P> {
    /// Creates a runner whose threads come from `runtime`.
    pub(super) fn new(
        clock: Clock,
        runtime: Handle,
        inbox: mpsc::UnboundedSender<Stimulus<P>>,
        handler: EventHandler<P>,
    ) -> Arc<JobRunner<P>> {
        let me = handler.me;
        let handler = Mutex::new(Some(Box::new(handler)));
        let (is_main_active, percent) = (AtomicBool::new(false), AtomicU32::new(100));
        Arc::new(JobRunner { me, clock, runtime, inbox, handler, is_main_active, percent })
    }

    /// Sets the percentage of their time that jobs take if they begin from now on.
    pub(super) fn set_percent(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Takes the handler. Until it is [given back](Self::give_back), results of jobs go to the inbox. Returns `None` if
    /// an error has ended the handler; the error is in the inbox.
    pub(super) fn take(&self) -> Option<Box<EventHandler<P>>> {
        self.is_main_active.store(true, Ordering::Relaxed);
        self.handler().take()
    }

    /// Lets the threads that run jobs use the handler.
    pub(super) fn give_back(&self, handler: Box<EventHandler<P>>) {
        *self.handler() = Some(handler);
        self.is_main_active.store(false, Ordering::Relaxed);
    }

    fn handler(&self) -> MutexGuard<'_, Option<Box<EventHandler<P>>>> {
        self.handler.lock().expect("no thread has panicked while it handled an event")
    }

    /// Runs a job in parallel with the process.
    pub(super) fn start(self: &Arc<Self>, no: JobNo, job: P::Job) {
        let this = self.clone();
        self.runtime.spawn_blocking(move || this.work(no, job));
    }

    /// Runs a job, then a job that results from it, and so on. Each job takes at least its stated time. A slow node
    /// multiplies the longer of the stated time and the measured one.
    fn work(self: Arc<Self>, no: JobNo, job: P::Job) {
        let _report = PanicReport(&self.inbox);
        let mut next = Some((no, job));
        while let Some((no, job)) = next {
            let begin = self.clock.now();
            let (cost, percent) = (job.cost(), self.percent.load(Ordering::Relaxed));
            handles(self.me.process, self.me.life, begin, Handled::Job(no));
            let output = job.run();
            let now = self.clock.now();
            pause((begin + cost.max(now.since(begin)).percent(percent)).since(now));
            next = self.handle(Event::Computed(no, output));
        }
    }

    /// Handles the result of a job, unless the main thread is using the handler. Returns another job for this thread,
    /// if there is one.
    fn handle(self: &Arc<Self>, computed: In<P>) -> Option<(JobNo, P::Job)> {
        if self.is_main_active.load(Ordering::Relaxed) {
            return self.leave_to_main_thread(Stimulus::Event(computed));
        }
        let mut slot = self.handler();
        let Some(handler) = slot.as_mut().filter(|it| !it.is_halted()) else {
            return self.leave_to_main_thread(Stimulus::Event(computed));
        };
        if let Err(error) = handler.handle(computed).and_then(|()| handler.settle()) {
            *slot = None;
            return self.leave_to_main_thread(Stimulus::Broken(error));
        }
        if handler.needs_main_thread() {
            self.leave_to_main_thread(Stimulus::Settle);
        }
        let mut jobs = handler.jobs.drain(..);
        let next = jobs.next();
        jobs.for_each(|(no, job)| self.start(no, job));
        next
    }

    fn leave_to_main_thread(&self, stimulus: Stimulus<P>) -> Option<(JobNo, P::Job)> {
        // The receiver is closed only if the node exits.
        drop(self.inbox.send(stimulus));
        None
    }
}

#[cfg(test)]
mod tests {
    use faultline_conformance::{Act, Probe, Script, Step, membership};
    use faultline_core::{Boot, ClusterId, FactKind, FactKinds, Life, LifeStart, ProcessId, Span, Trigger};
    use faultline_trace::FactsWriter;

    use super::*;
    use crate::engine::ReportedFacts;
    use crate::storage::{Storage, StorageMedium, StorageOptions};
    use crate::transport::Identity;

    type Inbox = mpsc::UnboundedReceiver<Stimulus<Probe<false>>>;

    /// Returns the runner and the inbox of a process that performs these actions immediately, and then does nothing for
    /// an hour. Its first job has not started. The main thread knows the process's deadline, and is not using the
    /// process.
    fn process(acts: &[Act]) -> (Arc<JobRunner<Probe<false>>>, Inbox) {
        let (me, clock) = (ProcessId(0), Clock::start());
        let step = |after, acts| Step { process: me, life: None, after, acts };
        let steps = vec![step(Span::ZERO, acts.to_vec()), step(Span::from_secs(3600), Vec::new())];
        let options = StorageOptions { kind: StorageMedium::Memory, ..StorageOptions::default() };
        let storage = Storage::open("unused".into(), Life(1), options, clock, |_| {}).unwrap();
        let facts = FactsWriter::new(tempfile::tempfile().unwrap(), me, Life(1));
        let identity = Identity { process: me, life: Life(1), cluster: ClusterId(0) };
        let fact = FactKind::Protected;
        let marks = Trigger::When { fact, of: None, cluster: None, process: None, occurrence: 1 };
        let attention = ReportedFacts { follows: Vec::new(), watches: vec![marks] };
        let (supervisor, _) = mpsc::unbounded_channel();
        let mut handler = EventHandler::new(identity, clock, attention, storage, supervisor, facts, None);
        let start = LifeStart {
            me,
            life: Life(1),
            boot: Boot::Fresh,
            membership: Arc::new(membership(&[2])),
            config: Arc::new(Script { steps, ..Script::default() }),
            record: None,
            seed: 1,
            facts: FactKinds::ALL,
        };
        handler.start(start).unwrap();
        handler.settle().unwrap();
        handler.alarm = handler.deadline();
        let (inbox_in, inbox) = mpsc::unbounded_channel();
        (JobRunner::new(clock, Handle::current(), inbox_in, handler), inbox)
    }

    fn start_jobs(runner: &Arc<JobRunner<Probe<false>>>) {
        let jobs = std::mem::take(&mut runner.handler().as_mut().unwrap().jobs);
        jobs.into_iter().for_each(|(no, job)| runner.start(no, job));
    }

    fn job(number: u32) -> [Act; 2] {
        [Act::Compute(number, Span::ZERO), Act::Settle]
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_process_that_only_computes_does_not_need_the_main_thread() {
        let acts = [&job(0)[..], &job(1), &job(2), &[Act::Send(ProcessId(1), 1)]].concat();
        let (runner, mut inbox) = process(&acts);
        start_jobs(&runner);
        assert!(matches!(inbox.recv().await, Some(Stimulus::Settle)), "the message needs the main thread");
        let handler = runner.take().unwrap();
        assert_eq!(handler.packets.len(), 1, "the message follows the last of three jobs");
        assert!(inbox.try_recv().is_err(), "no job needed the main thread");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn jobs_take_longer_on_a_slow_node() {
        let act = Act::Compute(0, Span::from_millis(20));
        let (runner, mut inbox) = process(&[act, Act::Settle, Act::Send(ProcessId(1), 1)]);
        runner.set_percent(300);
        let begun = runner.clock.now();
        start_jobs(&runner);
        assert!(matches!(inbox.recv().await, Some(Stimulus::Settle)));
        let lasted = runner.clock.now().since(begun);
        assert!(lasted >= Span::from_millis(60), "{lasted}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_job_that_brings_the_deadline_forward_sets_the_alarm() {
        let (runner, mut inbox) = process(&job(0));
        runner.handler().as_mut().unwrap().alarm = None;
        start_jobs(&runner);
        assert!(matches!(inbox.recv().await, Some(Stimulus::Settle)), "the main thread must set the alarm");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn results_wait_while_the_main_thread_uses_the_process() {
        let (runner, mut inbox) = process(&job(0));
        let mut handler = runner.take().unwrap();
        handler.jobs.drain(..).for_each(|(no, job)| runner.start(no, job));
        assert!(matches!(inbox.recv().await, Some(Stimulus::Event(Event::Computed(JobNo(0), _)))));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_halted_process_handles_no_results() {
        let acts = [&job(0)[..], &[Act::Compute(1, Span::ZERO), Act::Mark, Act::Mark]].concat();
        let (runner, mut inbox) = process(&acts);
        start_jobs(&runner);
        assert!(matches!(inbox.recv().await, Some(Stimulus::Settle)), "the halt needs the main thread");
        assert!(matches!(inbox.recv().await, Some(Stimulus::Event(Event::Computed(JobNo(1), _)))));
        let mut handler = runner.take().unwrap();
        assert!(handler.is_halted());
        handler.resume().unwrap();
        assert!(handler.is_halted(), "the process halts again");
        handler.resume().unwrap();
        assert!(!handler.is_halted());
    }
}

//! The applications as one, so that drivers are built once for all of them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use faultline_core::{
    Application, Chunk, Digest, Incarnation, Membership, Outbox, Payload, ProcessId, Progress, Span,
};

use crate::{Config, exchange, heat, salted, synthetic};

/// One rank of the application that its [`Config`] names.
#[derive(Clone, Debug)]
pub struct Workload(Rank);

#[derive(Clone, Debug)]
enum Rank {
    Heat(Box<heat::Rank>),
    Synthetic(Box<synthetic::Rank>),
    Exchange(Box<exchange::Rank>),
    Salted(Box<salted::Rank>),
}

/// A computation of any of the applications.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// A time step.
    Heat(Box<heat::Step>),
    /// Time that passes.
    Pass(Span),
}

/// What a [`Job`] gives back.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// A time step.
    Heat(Box<heat::Stepped>),
    /// The time has passed.
    Passed,
}

impl faultline_core::Job for Job {
    type Output = Done;

    fn cost(&self) -> Span {
        match self {
            Job::Heat(step) => step.cost(),
            Job::Pass(span) => *span,
        }
    }

    fn run(self) -> Done {
        match self {
            Job::Heat(step) => Done::Heat(Box::new(step.run())),
            Job::Pass(_) => Done::Passed,
        }
    }
}

impl Application for Workload {
    type Job = Job;
    type Config = Config;

    /// The parameters must be valid for the federation (see [`Config::validate`]).
    fn new(config: &Arc<Config>, me: ProcessId, membership: &Membership, seed: u64) -> Workload {
        Workload(match &**config {
            Config::Heat(config) => Rank::Heat(Box::new(heat::Rank::new(config, me, membership))),
            Config::Synthetic(config) => {
                Rank::Synthetic(Box::new(synthetic::Rank::new(config, me, membership, seed)))
            }
            Config::Exchange(config) => Rank::Exchange(Box::new(exchange::Rank::new(config, me, membership))),
            Config::Salted(config) => Rank::Salted(Box::new(salted::Rank::new(config, me, membership, seed))),
        })
    }

    #[inline]
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        match &mut self.0 {
            Rank::Heat(rank) => rank.deliver(from, payload),
            Rank::Synthetic(rank) => rank.deliver(from),
            Rank::Exchange(rank) => rank.deliver(from, &payload, out),
            Rank::Salted(rank) => rank.deliver(from, &payload, out),
        }
    }

    fn computed(&mut self, done: Done, out: &mut Outbox) {
        match (&mut self.0, done) {
            (Rank::Heat(rank), Done::Heat(stepped)) => rank.computed(*stepped, out),
            (Rank::Synthetic(rank), Done::Passed) => rank.computed(out),
            (Rank::Exchange(rank), Done::Passed) => rank.computed(out),
            (Rank::Salted(rank), Done::Passed) => rank.computed(out),
            (_, done) => panic!("{done:?} is not a computation of this application"),
        }
    }

    #[inline]
    fn next_job(&mut self) -> Option<Job> {
        match &self.0 {
            Rank::Heat(rank) => rank.next_job().map(|step| Job::Heat(Box::new(step))),
            Rank::Synthetic(rank) => rank.next_job().map(Job::Pass),
            Rank::Exchange(rank) => rank.next_job().map(Job::Pass),
            Rank::Salted(rank) => rank.next_job().map(Job::Pass),
        }
    }

    /// Always answers: no job holds state that a snapshot needs.
    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        Some(match &self.0 {
            Rank::Heat(rank) => rank.snapshot(),
            Rank::Synthetic(rank) => rank.snapshot(),
            Rank::Exchange(rank) => rank.snapshot(),
            Rank::Salted(rank) => rank.snapshot(),
        })
    }

    /// Panics when `chunks` are not a snapshot of the same rank of the same application.
    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation) {
        match &mut self.0 {
            Rank::Heat(rank) => rank.restore(chunks),
            Rank::Synthetic(rank) => rank.restore(chunks),
            Rank::Exchange(rank) => rank.restore(chunks),
            Rank::Salted(rank) => rank.restore(chunks, salt),
        }
    }

    #[inline]
    fn result(&self) -> Option<Digest> {
        match &self.0 {
            Rank::Heat(rank) => rank.result(),
            Rank::Synthetic(rank) => rank.result(),
            Rank::Exchange(rank) => rank.result(),
            Rank::Salted(rank) => rank.result(),
        }
    }

    fn progress(&self) -> Progress {
        match &self.0 {
            Rank::Heat(rank) => rank.progress(),
            Rank::Synthetic(rank) => rank.progress(),
            Rank::Exchange(rank) => rank.progress(),
            Rank::Salted(rank) => rank.progress(),
        }
    }
}

//! All applications as a single type, so that drivers are compiled only once.
//!
//! To add a message-passing program, add a variant to [`Config`], and handle it in [`Workload::new`],
//! [`Config::validate`] and [`reference()`](crate::reference()).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use faultline_core::{
    Application, Breakage, Chunk, Digest, Incarnation, Life, Membership, Outbox, Payload, ProcessId,
    Progress, Span,
};

use crate::custom::{CustomJob, CustomOutput, CustomRank};
use crate::messaging::{Performer, Program};
use crate::{Config, exchange, farm, heat, nas, pingpong, salted, synthetic};

/// One rank of the application selected by its [`Config`].
#[derive(Clone, Debug)]
pub struct Workload(Rank);

#[derive(Clone, Debug)]
enum Rank {
    Heat(Box<heat::Rank>),
    Synthetic(Box<synthetic::Rank>),
    Program(Box<dyn Performs>),
    Farm(Box<farm::Rank>),
    Salted(Box<salted::Rank>),
    Custom(Box<dyn CustomRank>),
}

/// A job of any application.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// A time step.
    Heat(Box<heat::Step>),
    /// A computation that exists only as modelled time.
    Pass(Span),
    /// A job of an application from another crate.
    Custom(CustomJob),
}

/// The output of a [`Job`].
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// A time step.
    Heat(Box<heat::Stepped>),
    /// The modelled time has passed.
    Passed,
    /// The output of a job of an application from another crate.
    Custom(CustomOutput),
}

impl faultline_core::Job for Job {
    type Output = Done;

    fn cost(&self) -> Span {
        match self {
            Job::Heat(step) => step.cost(),
            Job::Pass(span) => *span,
            Job::Custom(job) => job.cost(),
        }
    }

    fn run(self) -> Done {
        match self {
            Job::Heat(step) => Done::Heat(Box::new(step.run())),
            Job::Pass(_) => Done::Passed,
            Job::Custom(job) => Done::Custom(job.run()),
        }
    }
}

impl Application for Workload {
    type Job = Job;
    type Config = Config;

    /// Creates a rank. The parameters must be valid for the federation (see [`Config::validate`]).
    fn new(config: &Arc<Config>, me: ProcessId, membership: &Membership, seed: u64) -> Workload {
        Workload(match &**config {
            Config::Heat(config) => Rank::Heat(Box::new(heat::Rank::new(config, me, membership))),
            Config::Synthetic(config) => {
                Rank::Synthetic(Box::new(synthetic::Rank::new(config, me, membership, seed)))
            }
            Config::Exchange(config) => program::<exchange::Part>(config, me, membership),
            Config::Nas(config) => program::<nas::Kernel>(config, me, membership),
            Config::PingPong(config) => program::<pingpong::Rank>(config, me, membership),
            Config::Farm(config) => Rank::Farm(Box::new(farm::Rank::new(config, me, membership))),
            Config::Salted(config) => Rank::Salted(Box::new(salted::Rank::new(config, me, membership, seed))),
            Config::Custom(custom) => Rank::Custom(custom.rank(me, membership, seed)),
        })
    }

    #[inline]
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        match &mut self.0 {
            Rank::Heat(rank) => rank.deliver(from, payload),
            Rank::Synthetic(rank) => rank.deliver(from, &payload, out),
            Rank::Program(rank) => rank.deliver(from, payload, out),
            Rank::Farm(rank) => rank.deliver(from, &payload, out),
            Rank::Salted(rank) => rank.deliver(from, &payload, out),
            Rank::Custom(rank) => rank.deliver(from, payload, out),
        }
    }

    fn computed(&mut self, done: Done, out: &mut Outbox) {
        match (&mut self.0, done) {
            (Rank::Heat(rank), Done::Heat(stepped)) => rank.computed(*stepped, out),
            (Rank::Synthetic(rank), Done::Passed) => rank.computed(out),
            (Rank::Program(rank), Done::Passed) => rank.computed(out),
            (Rank::Farm(rank), Done::Passed) => rank.computed(out),
            (Rank::Salted(rank), Done::Passed) => rank.computed(out),
            (Rank::Custom(rank), Done::Custom(output)) => rank.computed(output, out),
            (_, done) => panic!("{done:?} is not the output of a job of this application"),
        }
    }

    #[inline]
    fn next_job(&mut self) -> Option<Job> {
        match &mut self.0 {
            Rank::Heat(rank) => rank.next_job().map(|step| Job::Heat(Box::new(step))),
            Rank::Synthetic(rank) => rank.next_job().map(Job::Pass),
            Rank::Program(rank) => rank.next_job().map(Job::Pass),
            Rank::Farm(rank) => rank.next_job().map(Job::Pass),
            Rank::Salted(rank) => rank.next_job().map(Job::Pass),
            Rank::Custom(rank) => rank.next_job().map(Job::Custom),
        }
    }

    /// Returns `None` only for an application from another crate. No job of a built-in application holds state
    /// that a snapshot needs.
    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        Some(match &self.0 {
            Rank::Heat(rank) => rank.snapshot(),
            Rank::Synthetic(rank) => rank.snapshot(),
            Rank::Program(rank) => rank.snapshot(),
            Rank::Farm(rank) => rank.snapshot(),
            Rank::Salted(rank) => rank.snapshot(),
            Rank::Custom(rank) => return rank.snapshot(),
        })
    }

    fn for_virtual_time(config: &Config) -> Option<Config> {
        match config {
            Config::Heat(config) => {
                Some(Config::Heat(heat::Config { virtual_state: true, ..config.clone() }))
            }
            _ => None,
        }
    }

    /// Restores a snapshot.
    ///
    /// # Panics
    ///
    /// Panics if `chunks` are not a snapshot of the same rank of the same application.
    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation) {
        match &mut self.0 {
            Rank::Heat(rank) => rank.restore(chunks),
            Rank::Synthetic(rank) => rank.restore(chunks),
            Rank::Program(rank) => rank.restore(chunks),
            Rank::Farm(rank) => rank.restore(chunks),
            Rank::Salted(rank) => rank.restore(chunks, salt),
            Rank::Custom(rank) => rank.restore(chunks, salt),
        }
    }

    #[inline]
    fn result(&self) -> Option<Digest> {
        match &self.0 {
            Rank::Heat(rank) => rank.result(),
            Rank::Synthetic(rank) => rank.result(),
            Rank::Program(rank) => rank.result(),
            Rank::Farm(rank) => rank.result(),
            Rank::Salted(rank) => rank.result(),
            Rank::Custom(rank) => rank.result(),
        }
    }

    fn reference(
        config: &Arc<Config>,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        crate::reference(config, membership, seed)
    }

    fn progress(&self) -> Progress {
        match &self.0 {
            Rank::Heat(rank) => rank.progress(),
            Rank::Synthetic(rank) => rank.progress(),
            Rank::Program(rank) => rank.progress(),
            Rank::Farm(rank) => rank.progress(),
            Rank::Salted(rank) => rank.progress(),
            Rank::Custom(rank) => rank.progress(),
        }
    }

    #[inline]
    fn has_left(&self) -> bool {
        match &self.0 {
            Rank::Synthetic(rank) => rank.has_left(),
            Rank::Custom(rank) => rank.has_left(),
            _ => false,
        }
    }

    fn flip(&mut self, bit: u64) -> bool {
        match &mut self.0 {
            Rank::Heat(rank) => rank.flip(bit),
            Rank::Synthetic(_) => false,
            Rank::Program(rank) => rank.flip(bit),
            Rank::Farm(rank) => rank.flip(bit),
            Rank::Salted(rank) => rank.flip(bit),
            Rank::Custom(rank) => rank.flip(bit),
        }
    }

    #[inline]
    fn failure(&mut self, process: ProcessId, life: Life) -> Option<Arc<Breakage>> {
        match &mut self.0 {
            Rank::Custom(rank) => rank.failure(process, life),
            _ => None,
        }
    }
}

fn program<P: Program>(config: &P::Config, me: ProcessId, membership: &Membership) -> Rank {
    Rank::Program(Box::new(Performer::<P>::new(&Arc::new(config.clone()), me, membership, 0)))
}

/// Any message-passing program.
trait Performs: Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn Performs>;
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox);
    fn computed(&mut self, out: &mut Outbox);
    fn next_job(&mut self) -> Option<Span>;
    fn snapshot(&self) -> Arc<[Chunk]>;
    fn restore(&mut self, chunks: Option<&[Chunk]>);
    fn result(&self) -> Option<Digest>;
    fn progress(&self) -> Progress;
    fn flip(&mut self, bit: u64) -> bool;
}

impl Clone for Box<dyn Performs> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl<P: Program> Performs for Performer<P> {
    fn boxed(&self) -> Box<dyn Performs> {
        Box::new(self.clone())
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        Application::deliver(self, from, payload, out);
    }

    fn computed(&mut self, out: &mut Outbox) {
        Application::computed(self, (), out);
    }

    fn next_job(&mut self) -> Option<Span> {
        Application::next_job(self).map(|it| it.0)
    }

    fn snapshot(&self) -> Arc<[Chunk]> {
        Application::snapshot(self).expect("a program always provides a snapshot")
    }

    fn restore(&mut self, chunks: Option<&[Chunk]>) {
        Application::restore(self, chunks, Incarnation(0));
    }

    fn result(&self) -> Option<Digest> {
        Application::result(self)
    }

    fn progress(&self) -> Progress {
        Application::progress(self)
    }

    fn flip(&mut self, bit: u64) -> bool {
        Application::flip(self, bit)
    }
}

//! Applications from other crates. Only the program that is built with them knows their types.
//!
//! One variant of [`Workload`](crate::Workload) can hold any such application, behind a pointer. Drivers and protocols
//! are therefore compiled only once, and built-in applications are as fast as they would be without this variant.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Debug;

use faultline_core::{
    Application, Breakage, Chunk, Digest, Incarnation, Job, Life, Membership, Outbox, Payload, ProcessId,
    Progress, Span,
};

/// An application with its parameters, ready to create ranks.
#[derive(Clone, Debug)]
pub struct Custom(Arc<dyn Creates>);

/// Without their type, parameters cannot be compared: only copies of one value are equal.
impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Custom {
    /// Returns the application `A` with these parameters.
    pub fn new<A>(config: A::Config) -> Custom
    where
        A: Application<Config: Send + Sync> + Send + Sync + 'static,
    {
        Custom(Arc::new(Creator::<A>(Arc::new(config))))
    }

    pub(crate) fn rank(&self, me: ProcessId, membership: &Membership, seed: u64) -> Box<dyn CustomRank> {
        self.0.rank(me, membership, seed)
    }

    pub(crate) fn reference(
        &self,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        self.0.reference(membership, seed)
    }
}

/// Parameters of an application whose type has been erased.
trait Creates: Debug + Send + Sync {
    fn rank(&self, me: ProcessId, membership: &Membership, seed: u64) -> Box<dyn CustomRank>;
    fn reference(
        &self,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>>;
}

struct Creator<A: Application>(Arc<A::Config>);

impl<A: Application> Debug for Creator<A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

impl<A> Creates for Creator<A>
where
    A: Application<Config: Send + Sync> + Send + Sync + 'static,
{
    fn rank(&self, me: ProcessId, membership: &Membership, seed: u64) -> Box<dyn CustomRank> {
        Box::new(A::new(&self.0, me, membership, seed))
    }

    fn reference(
        &self,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        A::reference(&self.0, membership, seed)
    }
}

/// A rank whose type has been erased.
pub(crate) trait CustomRank: Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn CustomRank>;
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox);
    fn computed(&mut self, output: CustomOutput, out: &mut Outbox);
    fn next_job(&mut self) -> Option<CustomJob>;
    fn snapshot(&self) -> Option<Arc<[Chunk]>>;
    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation);
    fn result(&self) -> Option<Digest>;
    fn progress(&self) -> Progress;
    fn has_left(&self) -> bool;
    fn flip(&mut self, bit: u64) -> bool;
    fn failure(&mut self, process: ProcessId, life: Life) -> Option<Arc<Breakage>>;
}

impl Clone for Box<dyn CustomRank> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl<A> CustomRank for A
where
    A: Application + Send + Sync + 'static,
{
    fn boxed(&self) -> Box<dyn CustomRank> {
        Box::new(self.clone())
    }

    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox) {
        Application::deliver(self, from, payload, out);
    }

    fn computed(&mut self, CustomOutput(output): CustomOutput, out: &mut Outbox) {
        let output = output.into_any().downcast().expect("the output belongs to a job of this application");
        Application::computed(self, *output, out);
    }

    fn next_job(&mut self) -> Option<CustomJob> {
        Application::next_job(self).map(|it| CustomJob(Box::new(it)))
    }

    fn snapshot(&self) -> Option<Arc<[Chunk]>> {
        Application::snapshot(self)
    }

    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation) {
        Application::restore(self, chunks, salt);
    }

    fn result(&self) -> Option<Digest> {
        Application::result(self)
    }

    fn progress(&self) -> Progress {
        Application::progress(self)
    }

    fn has_left(&self) -> bool {
        Application::has_left(self)
    }

    fn flip(&mut self, bit: u64) -> bool {
        Application::flip(self, bit)
    }

    fn failure(&mut self, process: ProcessId, life: Life) -> Option<Arc<Breakage>> {
        Application::failure(self, process, life)
    }
}

/// A computation whose type has been erased.
#[derive(Clone, Debug)]
pub struct CustomJob(Box<dyn Computes>);

impl CustomJob {
    pub(crate) fn cost(&self) -> Span {
        self.0.cost()
    }

    pub(crate) fn run(self) -> CustomOutput {
        self.0.run()
    }
}

impl PartialEq for CustomJob {
    fn eq(&self, other: &CustomJob) -> bool {
        self.0.equals(other.0.as_any())
    }
}

trait Computes: Debug + Send {
    fn boxed(&self) -> Box<dyn Computes>;
    fn cost(&self) -> Span;
    fn run(self: Box<Self>) -> CustomOutput;
    fn equals(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl Clone for Box<dyn Computes> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl<J: Job> Computes for J {
    fn boxed(&self) -> Box<dyn Computes> {
        Box::new(self.clone())
    }

    fn cost(&self) -> Span {
        Job::cost(self)
    }

    fn run(self: Box<Self>) -> CustomOutput {
        CustomOutput(Box::new(Job::run(*self)))
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<J>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The output of a [`CustomJob`].
#[derive(Clone, Debug)]
pub struct CustomOutput(Box<dyn Output>);

impl PartialEq for CustomOutput {
    fn eq(&self, other: &CustomOutput) -> bool {
        self.0.equals(other.0.as_any())
    }
}

trait Output: Debug + Send {
    fn boxed(&self) -> Box<dyn Output>;
    fn equals(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Clone for Box<dyn Output> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

impl<T: Clone + Debug + PartialEq + Send + 'static> Output for T {
    fn boxed(&self) -> Box<dyn Output> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

//! Processes of a federation, for any protocol and program.

use std::fmt::Debug;
use std::sync::Arc;

use faultline_core::{
    Application, Digest, Membership, Node, NodeConfig, Process, ProcessId, Promises, Protocol, Role,
};
use faultline_dataflow::partition::PartitionProtocol;
use faultline_dataflow::{Partition, PartitionConfig, Program, TaskProcess, TaskProcessConfig, TaskProtocol};

/// The type of a federation's processes: a composite of a protocol and a program.
pub trait Hosted: Process<Config: Send + Sync> + Clone + Debug + Send + 'static {
    /// Returns the promises of the process's protocol with these parameters.
    fn promises(config: &Self::Config) -> Promises;

    /// Returns the result of each rank in a run without faults; `None` if the results depend on timing, or if
    /// they cannot be computed independently. `seed` returns the seed of each rank. The call may take as long
    /// as the computations of the program, but modelled time takes no real time.
    fn reference(
        config: &Self::Config,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>>;

    /// Returns parameters with which a process behaves the same in virtual time, but omits contents that serve only as
    /// padding; `None` if no such parameters exist.
    fn for_virtual_time(_config: &Self::Config) -> Option<Self::Config> {
        None
    }
}

impl<P, A> Hosted for Node<P, A>
where
    P: Protocol<Config: Send + Sync> + Send + 'static,
    A: Application<Config: Send + Sync> + Send + 'static,
{
    fn promises(config: &NodeConfig<P, A>) -> Promises {
        Promises::of::<P>(&config.protocol)
    }

    fn reference(
        config: &NodeConfig<P, A>,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        A::reference(&config.application, membership, seed)
    }

    fn for_virtual_time(config: &NodeConfig<P, A>) -> Option<NodeConfig<P, A>> {
        let application = Arc::new(A::for_virtual_time(&config.application)?);
        Some(NodeConfig { application, ..config.clone() })
    }
}

/// Every rank ends with the result of the program, whichever rank computed each task.
impl<P, G> Hosted for TaskProcess<P, G>
where
    P: TaskProtocol<Config: Send + Sync> + Send + 'static,
    G: Program,
{
    fn promises(config: &TaskProcessConfig<P, G>) -> Promises {
        P::promises(&config.protocol)
    }

    fn reference(
        config: &TaskProcessConfig<P, G>,
        membership: &Membership,
        _: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        let result = config.program.expected();
        Some(membership.with_role(Role::RANK).map(|rank| (rank, result)).collect())
    }
}

/// Every rank ends with the result of the program, whichever rank ran each partition.
impl<P, G> Hosted for Partition<P, G>
where
    P: PartitionProtocol<Config: Send + Sync> + Send + 'static,
    G: Program,
{
    fn promises(config: &PartitionConfig<P, G>) -> Promises {
        P::promises(&config.protocol)
    }

    fn reference(
        config: &PartitionConfig<P, G>,
        membership: &Membership,
        _: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        let result = config.program.expected();
        Some(membership.with_role(Role::RANK).map(|rank| (rank, result)).collect())
    }
}

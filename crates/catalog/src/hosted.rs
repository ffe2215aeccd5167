//! The processes of a federation, whatever they are made of.

use faultline_core::{
    Application, Digest, Membership, Node, NodeConfig, Process, ProcessId, Promises, Protocol,
};

/// A process that a federation can ask for: a composite of a protocol and a program.
pub trait Hosted: Process<Config: Send + Sync> + 'static {
    /// What its protocol promises with these parameters.
    fn promises(config: &Self::Config) -> Promises;

    /// What each rank computes when nothing fails; `None` when that is an accident of timing, or nothing computes it in another
    /// way. `seed` gives each rank's own seed. May take as long as the program computes, modelled time aside.
    fn reference(
        config: &Self::Config,
        membership: &Membership,
        seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>>;
}

impl<P, A> Hosted for Node<P, A>
where
    P: Protocol<Config: Send + Sync> + 'static,
    A: Application<Config: Send + Sync> + 'static,
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
}

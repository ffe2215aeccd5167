//! The simulator's entry for a process: its value, its pending jobs and timer, and the inputs that wait for
//! it.

use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::fault::Flip;
use faultline_core::process::{ActionOf, PacketOf};
use faultline_core::{Boot, JobNo, Life, Membership, MembershipVersion, Process, ProcessId, Time};

/// A packet in transit, with the life of its sender, and the newest life of its receiver that the sender knew. The
/// packet comes first, so that it is aligned as in an action.
#[repr(C)]
pub(crate) struct Flight<P: Process> {
    pub(crate) packet: PacketOf<P>,
    pub(crate) from: ProcessId,
    pub(crate) from_life: Life,
    pub(crate) to: ProcessId,
    pub(crate) to_life: Life,
}

/// An input for a running process. Inputs that belong to a life are discarded when it ends.
pub(crate) enum Input<P: Process> {
    Packet(Flight<P>),
    Due(Due),
}

/// An input other than a packet.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// The oldest action of the process's storage is complete.
    Stored,
    Computed(JobNo),
    /// The next membership has arrived ([`SimProcess::coming`]).
    Membership,
    /// A fault flips a bit.
    Flip(Flip),
}

/// The simulator's entry for a process. Fields are laid out in this order: those that every packet touches
/// come first and share cache lines.
#[repr(C)]
pub(crate) struct SimProcess<P: Process> {
    /// Number of the newest life.
    pub(crate) life: Life,
    /// Whether the newest life was launched and has not ended.
    pub(crate) alive: bool,
    /// Whether the process is halted at a fact until the supervisor releases it.
    pub(crate) halted: bool,
    /// Whether the process is paused until the supervisor resumes it.
    pub(crate) paused: bool,
    pub(crate) boot: Boot,
    /// Version of the membership that this process knows.
    pub(crate) view_version: MembershipVersion,
    /// Time of the process's timer; [`Time::NEVER`] if it is not set.
    pub(crate) timer: Time,
    /// Number of facts reported in this life.
    pub(crate) facts: u64,
    /// Empty before the start of a life and after its end.
    pub(crate) process: ProcessSlot<P>,
    /// The membership that this process knows; `None` until the first one arrives.
    pub(crate) view: Option<Arc<Membership>>,
    /// The newest membership in transit. A newer one replaces it if it has not arrived yet.
    pub(crate) coming: Option<Arc<Membership>>,
    /// Time at which the process's newest report arrives. Reports arrive in order.
    pub(crate) reported: Time,
    /// Jobs in progress.
    pub(crate) jobs: Vec<(JobNo, P::Job)>,
    backlog: Option<Box<Backlog<P>>>,
    /// The percentage of their time that computations and the handling of packets take.
    pub(crate) percent: u32,
}

/// A process, or none. An [`Option`] would encode `None` in a rarely used field of the process, far away in
/// memory. This type encodes it next to the fields that every packet touches.
#[repr(u8)]
pub(crate) enum ProcessSlot<P> {
    Free,
    Taken(P),
}

impl<P> ProcessSlot<P> {
    #[inline]
    pub(crate) fn as_ref(&self) -> Option<&P> {
        match self {
            ProcessSlot::Free => None,
            ProcessSlot::Taken(process) => Some(process),
        }
    }

    #[inline]
    pub(crate) fn as_mut(&mut self) -> Option<&mut P> {
        match self {
            ProcessSlot::Free => None,
            ProcessSlot::Taken(process) => Some(process),
        }
    }
}

/// State that only a few processes have at any time.
pub(crate) struct Backlog<P: Process> {
    /// Actions after the one at which the process halted.
    pub(crate) rest: Vec<ActionOf<P>>,
    /// Inputs that arrived while the process was stopped.
    pub(crate) waiting: VecDeque<Input<P>>,
    /// Packets from lives that the known membership does not contain yet.
    pub(crate) early: VecDeque<Flight<P>>,
}

impl<P: Process> SimProcess<P> {
    pub(crate) fn new() -> SimProcess<P> {
        SimProcess {
            process: ProcessSlot::Free,
            life: Life(0),
            alive: false,
            boot: Boot::Fresh,
            halted: false,
            paused: false,
            view: None,
            view_version: MembershipVersion(0),
            coming: None,
            timer: Time::NEVER,
            facts: 0,
            reported: Time::ZERO,
            jobs: Vec::new(),
            backlog: None,
            percent: 100,
        }
    }

    /// Returns whether the process accepts no input at present, because it is halted or paused. Even if it is not
    /// stopped, a life that has not started accepts only its first membership.
    pub(crate) fn is_stopped(&self) -> bool {
        self.halted || self.paused
    }

    /// Begins the next life, which has no value yet.
    pub(crate) fn launch(&mut self, life: Life, boot: Boot) {
        assert!(!self.alive && life > self.life, "a new life follows the end of the old one");
        self.end();
        (self.life, self.alive, self.boot) = (life, true, boot);
    }

    /// Ends this life and discards everything that belongs to it.
    pub(crate) fn end(&mut self) {
        let SimProcess { life, reported, percent, .. } = *self;
        *self = SimProcess { life, reported, percent, ..SimProcess::new() };
    }

    pub(crate) fn backlog(&mut self) -> &mut Backlog<P> {
        self.backlog.get_or_insert_with(|| {
            Box::new(Backlog { rest: Vec::new(), waiting: VecDeque::new(), early: VecDeque::new() })
        })
    }

    /// Returns the backlog if this life has ever needed one.
    pub(crate) fn existing_backlog(&mut self) -> Option<&mut Backlog<P>> {
        self.backlog.as_deref_mut()
    }
}

//! A process in its place: the value, what it waits for, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use faultline_core::process::{ActionOf, PacketOf};
use faultline_core::{Boot, JobNo, Life, Membership, MembershipVersion, Process, ProcessId, Time};

/// A packet on its way, with the lives between which it was sent.
pub(crate) struct Flight<P: Process> {
    pub(crate) from: ProcessId,
    pub(crate) from_life: Life,
    pub(crate) to: ProcessId,
    pub(crate) to_life: Life,
    pub(crate) packet: PacketOf<P>,
}

/// What a running process is given, one at a time. What belongs to a life is discarded with it.
pub(crate) enum Input<P: Process> {
    Packet(Flight<P>),
    Due(Due),
}

/// An input that is no packet.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// The oldest action of its storage is complete.
    Stored,
    Computed(JobNo),
    /// The membership that is coming ([`Seat::coming`]).
    Membership,
}

/// A process in its place. Laid out as written: what every packet touches comes first, and shares cache lines.
#[repr(C)]
pub(crate) struct Seat<P: Process> {
    /// The newest life.
    pub(crate) life: Life,
    /// That life is launched and not ended.
    pub(crate) alive: bool,
    /// Stands at a fact, until the supervisor says go.
    pub(crate) halted: bool,
    /// Stands where it is, until the supervisor lets it go on.
    pub(crate) paused: bool,
    pub(crate) boot: Boot,
    /// Of the membership as this process knows it.
    pub(crate) view_version: MembershipVersion,
    /// When its timer is set to; [`Time::NEVER`] when it is not.
    pub(crate) timer: Time,
    /// Facts stated in this life.
    pub(crate) facts: u64,
    /// Free before the start of a life and after its end.
    pub(crate) process: Place<P>,
    /// The membership as this process knows it.
    pub(crate) view: Option<Arc<Membership>>,
    /// The newest membership that is on its way: one that has not arrived yet is replaced by a newer one.
    pub(crate) coming: Option<Arc<Membership>>,
    /// When its newest report arrives; they arrive in order.
    pub(crate) reported: Time,
    /// Jobs that are out.
    pub(crate) jobs: Vec<(JobNo, P::Job)>,
    backlog: Option<Box<Backlog<P>>>,
}

/// Room for a process. An [`Option`] would say that there is none in some rarely used field of the process, far away in
/// memory; this says it beside what every packet touches.
#[repr(u8)]
pub(crate) enum Place<P> {
    Free,
    Taken(P),
}

impl<P> Place<P> {
    #[inline]
    pub(crate) fn as_ref(&self) -> Option<&P> {
        match self {
            Place::Free => None,
            Place::Taken(process) => Some(process),
        }
    }

    #[inline]
    pub(crate) fn as_mut(&mut self) -> Option<&mut P> {
        match self {
            Place::Free => None,
            Place::Taken(process) => Some(process),
        }
    }
}

/// What few processes have at any time.
pub(crate) struct Backlog<P: Process> {
    /// Actions after the one at which the process halted.
    pub(crate) rest: Vec<ActionOf<P>>,
    /// What came while it could not be given.
    pub(crate) waiting: VecDeque<Input<P>>,
    /// From lives newer than the known membership.
    pub(crate) early: VecDeque<Flight<P>>,
}

impl<P: Process> Seat<P> {
    pub(crate) fn new() -> Seat<P> {
        Seat {
            process: Place::Free,
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
        }
    }

    /// Whether it takes no input now. A life that has not started takes its first membership, and nothing else.
    pub(crate) fn stands(&self) -> bool {
        self.halted || self.paused
    }

    /// Begins the next life, without a value as yet.
    pub(crate) fn launch(&mut self, life: Life, boot: Boot) {
        assert!(!self.alive && life > self.life, "a new life follows the end of the old one");
        *self = Seat { life, alive: true, boot, reported: self.reported, ..Seat::new() };
    }

    /// Ends this life, with everything that belongs to it.
    pub(crate) fn end(&mut self) {
        *self = Seat { life: self.life, reported: self.reported, ..Seat::new() };
    }

    pub(crate) fn backlog(&mut self) -> &mut Backlog<P> {
        self.backlog.get_or_insert_with(|| {
            Box::new(Backlog { rest: Vec::new(), waiting: VecDeque::new(), early: VecDeque::new() })
        })
    }

    /// The backlog, if it was ever needed in this life.
    pub(crate) fn existing_backlog(&mut self) -> Option<&mut Backlog<P>> {
        self.backlog.as_deref_mut()
    }
}

//! Queueing disciplines, classes and filters (`linux/pkt_sched.h`, `linux/pkt_cls.h`): requests that set
//! them, and the kernel's responses.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;

use faultline_core::Span;
use faultline_shaper::tree::{Delay, Prefix};

use crate::link::Link;
use crate::netlink::{Answer, Mode, Request, Socket, attributes, word};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_GETTCLASS: u16 = 42;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_NETEM_RATE: u16 = 6;
const TCA_NETEM_RATE64: u16 = 8;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TC_U32_TERMINAL: u8 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_EGRESS_REDIR: u32 = 1;
const TC_ACT_STOLEN: u32 = 4;
const ETH_P_IP: u16 = 0x0800;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// The version of HTB's parameters, and a default divisor that is not used, because every class has its own
/// quantum.
const HTB_VERSION: u32 = 3;
const HTB_RATE_TO_QUANTUM: u32 = 10;
/// Size of `struct tcmsg` in bytes, and offsets of its fields.
const TRAFFIC: usize = 20;
const HANDLE: usize = 8;
const PARENT: usize = 12;
const INFO: usize = 16;
/// Size of `struct tc_netem_qopt` in bytes. Attributes follow it.
const NETEM: usize = 24;
/// Binary logarithm of the kernel's tick in nanoseconds (`PSCHED_SHIFT`).
const TICK_SHIFT: u32 = 6;
/// Rate of a queue with jitter, in bytes per second. At this rate, a packet takes practically no time.
/// Setting a rate makes the kernel keep packets in order despite the jitter.
const IN_ORDER: u64 = 12_500_000_000;

/// Identifies a queueing discipline or a class on an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// The parent of the queueing discipline at the root of an interface.
    pub const ROOT: Handle = Handle(u32::MAX);
    /// The parent of the queueing discipline for incoming packets.
    pub const INGRESS: Handle = Handle(0xffff_fff1);
    /// The parent of the filters for incoming packets.
    pub const ARRIVING: Handle = Handle::new(0xffff, 0);

    /// Returns `MAJOR:MINOR`; the minor part of a queueing discipline is 0.
    pub const fn new(major: u16, minor: u16) -> Handle {
        Handle((major as u32) << 16 | minor as u32)
    }

    /// Returns the number before the colon.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the number after the colon.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// Returns whether the handle is 0, which means that the kernel itself added the object.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.major(), self.minor())
    }
}

/// A queueing discipline, as a request sets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    /// Classes with rates. Packets without a class pass unshaped.
    Htb,
    /// A queue with a maximum number of packets.
    Pfifo(u32),
    /// A queue that delays and drops packets.
    Netem(Delay),
    /// Filters for incoming packets.
    Ingress,
}

/// A queueing discipline that the kernel reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The handle; 0 if the kernel itself added the discipline.
    pub handle: Handle,
    /// The parent: a class, [`Handle::ROOT`] or [`Handle::INGRESS`].
    pub parent: Handle,
    /// The kind, as `tc` names it.
    pub kind: String,
    /// Bytes that passed.
    pub bytes: u64,
    /// Packets that passed.
    pub packets: u32,
    /// Packets that were lost.
    pub drops: u32,
    options: Vec<u8>,
}

/// An HTB class that the kernel reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HtbClass {
    /// Guaranteed rate, in bytes per second.
    pub rate: u64,
    /// Maximum rate, in bytes per second.
    pub ceiling: u64,
    /// Burst at the guaranteed rate, in the kernel's ticks.
    pub burst: u32,
    /// Bytes that the class may send before the next class of the same parent gets its turn.
    pub quantum: u32,
}

/// The address in a packet that a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchField {
    /// The source address.
    AtSource,
    /// The destination address.
    AtDestination,
}

/// The action of a filter on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Puts packets into a class.
    Class(Handle),
    /// Sends packets through an interface.
    Interface(Link),
}

impl Discipline {
    /// Returns the kind of the discipline, as `tc` names it.
    pub const fn kind(self) -> &'static str {
        match self {
            Discipline::Htb => "htb",
            Discipline::Pfifo(_) => "pfifo",
            Discipline::Netem(_) => "netem",
            Discipline::Ingress => "ingress",
        }
    }

    fn describe(self, options: Request) -> Request {
        match self {
            Discipline::Htb => {
                let [default, debug, passed] = [0; 3];
                options.with(TCA_HTB_INIT, &words([HTB_VERSION, HTB_RATE_TO_QUANTUM, default, debug, passed]))
            }
            Discipline::Pfifo(limit) => options.raw(&limit.to_ne_bytes()),
            Discipline::Netem(delay) => netem(delay, options),
            Discipline::Ingress => options,
        }
    }
}

/// Appends the options of a queue with a delay (`struct tc_netem_qopt`). They always include the rate,
/// because the kernel keeps the old value of a missing option.
fn netem(Delay { latency, jitter, loss_ppm, limit }: Delay, options: Request) -> Request {
    let ticks = |span: Span| u32::try_from(span.0 >> TICK_SHIFT).unwrap_or(u32::MAX);
    let [gap, duplicate] = [0; 2];
    let loss = (u64::from(loss_ppm) * u64::from(u32::MAX) / 1_000_000) as u32;
    let rate = if jitter > Span::ZERO { IN_ORDER } else { 0 };
    let [overhead, cell_size, cell_overhead] = [0; 3];
    let options = options
        .raw(&words([ticks(latency), limit, loss, gap, duplicate, ticks(jitter)]))
        .with(TCA_NETEM_LATENCY64, &latency.0.to_ne_bytes())
        .with(TCA_NETEM_JITTER64, &jitter.0.to_ne_bytes());
    let options =
        if rate > u32::MAX.into() { options.with(TCA_NETEM_RATE64, &rate.to_ne_bytes()) } else { options };
    let low = u32::try_from(rate).unwrap_or(u32::MAX);
    options.with(TCA_NETEM_RATE, &words([low, overhead, cell_size, cell_overhead]))
}

impl HtbClass {
    /// Creates a class. The parameter `burst` is in bytes.
    pub fn new(rate: u64, ceiling: u64, burst: u32, quantum: u32) -> HtbClass {
        HtbClass { rate, ceiling, burst: ticks(rate, burst), quantum }
    }

    /// Appends the options of a class (`struct tc_htb_opt`, `struct tc_ratespec`).
    fn describe(&self, burst: u32, options: Request) -> Request {
        let rate = |rate: u64| {
            let low = u32::try_from(rate).unwrap_or(u32::MAX);
            words([u32::from_ne_bytes([0, TC_LINKLAYER_ETHERNET, 0, 0]), 0, low])
        };
        let [level, priority] = [0; 2];
        let ends = words([self.burst, ticks(self.ceiling, burst), self.quantum, level, priority]);
        let mut options = options;
        for (kind, rate) in [(TCA_HTB_RATE64, self.rate), (TCA_HTB_CEIL64, self.ceiling)] {
            if rate > u32::MAX.into() {
                options = options.with(kind, &rate.to_ne_bytes());
            }
        }
        options.with(TCA_HTB_PARMS, &[rate(self.rate), rate(self.ceiling), ends].concat())
    }

    /// Reads the options of a class.
    fn read(options: &[u8]) -> Option<HtbClass> {
        let mut class = None;
        let (mut rate, mut ceiling) = (None, None);
        for (kind, value) in attributes(options) {
            match kind {
                TCA_HTB_PARMS => {
                    class = Some(HtbClass {
                        rate: word(value, 8)?.into(),
                        ceiling: word(value, 20)?.into(),
                        burst: word(value, 24)?,
                        quantum: word(value, 32)?,
                    });
                }
                TCA_HTB_RATE64 => rate = value.try_into().ok().map(u64::from_ne_bytes),
                TCA_HTB_CEIL64 => ceiling = value.try_into().ok().map(u64::from_ne_bytes),
                _ => {}
            }
        }
        class.map(|class| HtbClass {
            rate: rate.unwrap_or(class.rate),
            ceiling: ceiling.unwrap_or(class.ceiling),
            ..class
        })
    }
}

/// Returns the time that `bytes` take at `rate` bytes per second, in kernel ticks.
fn ticks(rate: u64, bytes: u32) -> u32 {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(nanoseconds >> TICK_SHIFT).unwrap_or(u32::MAX)
}

impl Queue {
    /// Returns whether the queue equals `wanted`.
    pub fn is(&self, wanted: Discipline) -> bool {
        self.kind == wanted.kind()
            && match wanted {
                Discipline::Htb | Discipline::Ingress => true,
                Discipline::Pfifo(limit) => word(&self.options, 0) == Some(limit),
                Discipline::Netem(delay) => self.delay() == Some(delay),
            }
    }

    /// Returns the delay of the queue, if it has one.
    fn delay(&self) -> Option<Delay> {
        let coarse = |offset| Some(u64::from(word(&self.options, offset)?) << TICK_SHIFT);
        let (mut latency, mut jitter) = (coarse(0)?, coarse(20)?);
        for (kind, value) in attributes(self.options.get(NETEM..)?) {
            let exact = value.try_into().ok().map(u64::from_ne_bytes);
            match kind {
                TCA_NETEM_LATENCY64 => latency = exact?,
                TCA_NETEM_JITTER64 => jitter = exact?,
                _ => {}
            }
        }
        let loss = f64::from(word(&self.options, 8)?) / f64::from(u32::MAX);
        let loss_ppm = (loss * 1e6).round() as u32;
        Some(Delay { latency: Span(latency), jitter: Span(jitter), loss_ppm, limit: word(&self.options, 4)? })
    }

    fn read(answer: &Answer) -> Queue {
        let kind = answer.attribute(TRAFFIC, TCA_KIND).unwrap_or_default();
        let statistics = answer.attribute(TRAFFIC, TCA_STATS2).unwrap_or_default();
        let statistic =
            |wanted: u16| attributes(statistics).find(|it| it.0 == wanted).map_or(&[][..], |it| it.1);
        let (basic, queue) = (statistic(TCA_STATS_BASIC), statistic(TCA_STATS_QUEUE));
        Queue {
            handle: Handle(answer.number(HANDLE)),
            parent: Handle(answer.number(PARENT)),
            kind: String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned(),
            bytes: basic.first_chunk().map_or(0, |it| u64::from_ne_bytes(*it)),
            packets: word(basic, 8).unwrap_or(0),
            drops: word(queue, 8).unwrap_or(0),
            options: answer.attribute(TRAFFIC, TCA_OPTIONS).unwrap_or_default().to_vec(),
        }
    }
}

/// Returns the fields at the beginning of a message about traffic control (`struct tcmsg`).
fn head(Link(index): Link, handle: Handle, parent: Handle, info: u32) -> Vec<u8> {
    let family = 0;
    words([family, index, handle.0, parent.0, info])
}

const UNNAMED: Handle = Handle(0);

/// Combines a filter's priority with the protocol of its packets. The priority must not be 0.
fn info(priority: u16) -> u32 {
    u32::from(priority) << 16 | u32::from(ETH_P_IP.to_be())
}

fn words<const N: usize>(values: [u32; N]) -> Vec<u8> {
    values.iter().flat_map(|it| it.to_ne_bytes()).collect()
}

impl Socket {
    /// Adds a queueing discipline, or changes it ([`Mode::Existing`]).
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn set_discipline(
        &self,
        mode: Mode,
        link: Link,
        (parent, handle): (Handle, Handle),
        discipline: Discipline,
    ) -> io::Result<()> {
        let request = Request::new(RTM_NEWQDISC, mode, &head(link, handle, parent, 0));
        let request = request.text(TCA_KIND, discipline.kind());
        self.perform(request.nested(TCA_OPTIONS, |it| discipline.describe(it)))
    }

    /// Removes a queueing discipline and everything below it.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn remove_discipline(&self, link: Link, parent: Handle, handle: Handle) -> io::Result<()> {
        self.perform(Request::new(RTM_DELQDISC, Mode::Existing, &head(link, handle, parent, 0)))
    }

    /// Returns the queueing disciplines of an interface.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn queues(&self, link: Link) -> io::Result<Vec<Queue>> {
        let request = Request::new(RTM_GETQDISC, Mode::Existing, &head(link, UNNAMED, UNNAMED, 0));
        // Some kernels list the disciplines of all interfaces.
        let all = self.list(request)?.into_iter().filter(|it| it.number(4) == link.0);
        Ok(all.map(|it| Queue::read(&it)).collect())
    }

    /// Adds a class, or changes it ([`Mode::Existing`]). The parameter `burst` is in bytes.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn set_class(
        &self,
        mode: Mode,
        link: Link,
        (parent, handle): (Handle, Handle),
        class: HtbClass,
        burst: u32,
    ) -> io::Result<()> {
        let request = Request::new(RTM_NEWTCLASS, mode, &head(link, handle, parent, 0)).text(TCA_KIND, "htb");
        self.perform(request.nested(TCA_OPTIONS, |it| class.describe(burst, it)))
    }

    /// Removes a class.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn remove_class(&self, link: Link, parent: Handle, handle: Handle) -> io::Result<()> {
        self.perform(Request::new(RTM_DELTCLASS, Mode::Existing, &head(link, handle, parent, 0)))
    }

    /// Returns the handle, parent and parameters of each HTB class of an interface.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn classes(&self, link: Link) -> io::Result<Vec<(Handle, Handle, HtbClass)>> {
        let request = Request::new(RTM_GETTCLASS, Mode::Existing, &head(link, UNNAMED, UNNAMED, 0));
        let all = self.list(request)?;
        let read = all.iter().filter_map(|it| {
            let class = HtbClass::read(it.attribute(TRAFFIC, TCA_OPTIONS)?)?;
            Some((Handle(it.number(HANDLE)), Handle(it.number(PARENT)), class))
        });
        Ok(read.collect())
    }

    /// Adds a filter that compares addresses with a prefix.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn add_filter(
        &self,
        link: Link,
        parent: Handle,
        priority: u16,
        (looks, prefix): (MatchField, Prefix),
        target: Target,
    ) -> io::Result<()> {
        let request = Request::new(RTM_NEWTFILTER, Mode::New, &head(link, UNNAMED, parent, info(priority)));
        self.perform(request.text(TCA_KIND, "u32").nested(TCA_OPTIONS, |options| match target {
            Target::Class(class) => {
                options.number(TCA_U32_CLASSID, class.0).with(TCA_U32_SEL, &selector(looks, prefix))
            }
            Target::Interface(to) => {
                let options = options.with(TCA_U32_SEL, &selector(looks, prefix));
                options.nested(TCA_U32_ACT, |it| it.nested(1, |it| redirect(to, it)))
            }
        }))
    }

    /// Removes the filter with this priority.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn remove_filter(&self, link: Link, parent: Handle, priority: u16) -> io::Result<()> {
        self.perform(Request::new(
            RTM_DELTFILTER,
            Mode::Existing,
            &head(link, UNNAMED, parent, info(priority)),
        ))
    }

    /// Returns the priority, prefix and class of each address filter at `parent`. A redirecting filter has no
    /// class: its handle is 0.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn filters(
        &self,
        link: Link,
        parent: Handle,
        looks: MatchField,
    ) -> io::Result<Vec<(u16, Prefix, Handle)>> {
        let request = Request::new(RTM_GETTFILTER, Mode::Existing, &head(link, UNNAMED, parent, 0));
        let all = self.list(request)?;
        let read = all.iter().filter_map(|it| {
            let kind = it.attribute(TRAFFIC, TCA_KIND)?;
            let (prefix, class) = filter(it.attribute(TRAFFIC, TCA_OPTIONS)?, looks)?;
            (kind == b"u32\0").then_some(((it.number(INFO) >> 16) as u16, prefix, class))
        });
        Ok(read.collect())
    }
}

/// Returns a selector for one prefix (`struct tc_u32_sel`, `struct tc_u32_key`).
fn selector(looks: MatchField, Prefix { address, length }: Prefix) -> Vec<u8> {
    let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
    let (keys, any_offset) = (1, 0);
    let header = [u32::from_ne_bytes([TC_U32_TERMINAL, 0, keys, 0]), 0, 0, 0];
    let key = [mask.to_be(), (u32::from(address) & mask).to_be(), looks.offset(), any_offset];
    [words(header), words(key)].concat()
}

impl MatchField {
    /// Returns the offset of the address in a packet.
    const fn offset(self) -> u32 {
        match self {
            MatchField::AtSource => 12,
            MatchField::AtDestination => 16,
        }
    }
}

/// Appends an action that sends packets through another interface (`struct tc_mirred`).
fn redirect(Link(to): Link, action: Request) -> Request {
    let [index, capabilities, references, bound] = [0; 4];
    let mirred = words([index, capabilities, TC_ACT_STOLEN, references, bound, TCA_EGRESS_REDIR, to]);
    action.text(TCA_ACT_KIND, "mirred").nested(TCA_ACT_OPTIONS, |it| it.with(TCA_MIRRED_PARMS, &mirred))
}

/// Reads the prefix and the class, if any, from the options of an address filter. Returns `None` for the
/// kernel's tables of filters, and for other kinds of filters.
fn filter(options: &[u8], looks: MatchField) -> Option<(Prefix, Handle)> {
    let mut class = UNNAMED;
    let mut prefix = None;
    for (kind, value) in attributes(options) {
        match kind {
            TCA_U32_CLASSID => class = Handle(word(value, 0)?),
            TCA_U32_SEL => prefix = selected(value, looks),
            _ => {}
        }
    }
    Some((prefix?, class))
}

/// Returns the prefix that a selector with a single key selects.
fn selected(selector: &[u8], looks: MatchField) -> Option<Prefix> {
    const HEADER: usize = 16;
    const KEY: usize = 16;
    if selector.len() != HEADER + KEY || word(selector, HEADER + 8)? != looks.offset() {
        return None;
    }
    let mask = u32::from_be(word(selector, HEADER)?);
    let address = u32::from_be(word(selector, HEADER + 4)?);
    Some(Prefix { address: Ipv4Addr::from(address), length: mask.leading_ones() as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the queue that the kernel reports for a discipline.
    fn queue(discipline: Discipline) -> Queue {
        let request = discipline.describe(Request::new(RTM_NEWQDISC, Mode::New, &[]));
        Queue {
            handle: UNNAMED,
            parent: UNNAMED,
            kind: discipline.kind().to_owned(),
            bytes: 0,
            packets: 0,
            drops: 0,
            options: request.into_body(),
        }
    }

    #[test]
    fn delays_and_losses_are_read_back_exactly() {
        for (latency, jitter, loss_ppm) in
            [(0, 0, 0), (1, 1, 1), (5_000_000, 200_000, 10_000), (u64::MAX / 2, 1, 999_999)]
        {
            let delay = Delay { latency: Span(latency), jitter: Span(jitter), loss_ppm, limit: 1000 };
            let queue = queue(Discipline::Netem(delay));
            assert_eq!(queue.delay(), Some(delay));
            assert!(queue.is(Discipline::Netem(delay)));
            assert!(!queue.is(Discipline::Netem(Delay { limit: 999, ..delay })));
        }
        assert!(queue(Discipline::Pfifo(17)).is(Discipline::Pfifo(17)));
        assert!(!queue(Discipline::Pfifo(17)).is(Discipline::Pfifo(18)));
    }

    #[test]
    fn a_burst_is_converted_to_ticks() {
        // At 125000 bytes per second, 32768 bytes take 262.144 ms, and a tick is 64 ns.
        assert_eq!(ticks(125_000, 32_768), 4_096_000);
        assert_eq!(ticks(1, u32::MAX), u32::MAX);
        assert_eq!(ticks(0, 1), 15_625_000);
    }

    #[test]
    fn classes_beyond_4_gib_per_second_are_read_back() {
        for rate in [1, 12_500_000, u64::from(u32::MAX), 1 << 33] {
            let class = HtbClass::new(rate, 2 * rate, 1 << 16, 3028);
            let options = class.describe(1 << 16, Request::new(RTM_NEWTCLASS, Mode::New, &[])).into_body();
            assert_eq!(HtbClass::read(&options), Some(class));
        }
    }

    #[test]
    fn a_selector_selects_one_prefix_of_one_address() {
        for length in [0, 1, 24, 32] {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let prefix = Prefix { address: Ipv4Addr::from(0x0a01_0203 & mask), length };
            let bytes = selector(MatchField::AtSource, prefix);
            assert_eq!(selected(&bytes, MatchField::AtSource), Some(prefix));
            assert_eq!(selected(&bytes, MatchField::AtDestination), None);
            assert_eq!(selected(&bytes[..31], MatchField::AtSource), None);
        }
    }
}

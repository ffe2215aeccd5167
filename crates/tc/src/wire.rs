//! What the netlink library does not say, or not right: a `u32` filter with an action, and what stands in the kernel's
//! answers about HTB classes and `u32` filters.

use std::net::Ipv4Addr;

use faultline_shaper::tree::Prefix;
use nlink::netlink::action::{ActionConfig, MirredAction};
use nlink::netlink::filter::{FilterConfig, U32Filter};
use nlink::netlink::{AttrIter, MessageBuilder, Result};
use nlink::{EthProto, FilterPriority, TcHandle};

/// Attributes of `u32` filters and of actions, and of HTB classes (`linux/pkt_cls.h`, `linux/pkt_sched.h`).
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

/// Which address of a packet a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    AtSource,
    AtDestination,
}

/// A filter by address that puts packets into a class.
pub(crate) fn into_class(looks: Looks, prefix: Prefix, priority: u16, class: TcHandle) -> U32Filter {
    by_address(looks, prefix, priority).classid(class).build()
}

/// A filter by address that sends packets through another interface.
pub(crate) fn into_interface(looks: Looks, prefix: Prefix, priority: u16, interface: u32) -> Redirect {
    let action = MirredAction::redirect_to_egress(interface);
    Redirect { filter: by_address(looks, prefix, priority).build(), action }
}

fn by_address(looks: Looks, Prefix { address, length }: Prefix, priority: u16) -> U32Filter {
    let filter = U32Filter::new().priority(FilterPriority::new(priority));
    match looks {
        Looks::AtSource => filter.match_src_ipv4(address, length),
        Looks::AtDestination => filter.match_dst_ipv4(address, length),
    }
}

/// A `u32` filter with the action that the library's lacks.
#[derive(Debug)]
pub(crate) struct Redirect {
    filter: U32Filter,
    action: MirredAction,
}

impl FilterConfig for Redirect {
    fn kind(&self) -> &'static str {
        self.filter.kind()
    }

    fn classid(&self) -> Option<u32> {
        None
    }

    fn protocol(&self) -> Option<EthProto> {
        FilterConfig::protocol(&self.filter)
    }

    fn priority(&self) -> Option<FilterPriority> {
        FilterConfig::priority(&self.filter)
    }

    fn write_options(&self, builder: &mut MessageBuilder) -> Result<()> {
        self.filter.write_options(builder)?;
        let actions = builder.nest_start(TCA_U32_ACT);
        let first = builder.nest_start(1);
        builder.append_attr_str(TCA_ACT_KIND, self.action.kind());
        let options = builder.nest_start(TCA_ACT_OPTIONS);
        self.action.write_options(builder)?;
        builder.nest_end(options);
        builder.nest_end(first);
        builder.nest_end(actions);
        Ok(())
    }
}

/// What a kernel says of a filter by address: the addresses, and the class if there is one. `None` for the tables that it
/// keeps of them, and for filters of another kind.
pub(crate) fn filter(options: &[u8], looks: Looks) -> Option<(Prefix, TcHandle)> {
    let mut class = TcHandle::UNSPEC;
    let mut prefix = None;
    for (kind, value) in AttrIter::new(options) {
        match kind {
            TCA_U32_CLASSID => class = TcHandle::from_raw(word(value, 0)?),
            TCA_U32_SEL => prefix = selected(value, looks),
            _ => {}
        }
    }
    Some((prefix?, class))
}

/// The prefix that the only key of a selector selects (`struct tc_u32_sel`, `struct tc_u32_key`).
fn selected(selector: &[u8], looks: Looks) -> Option<Prefix> {
    const HEADER: usize = 16;
    const KEY: usize = 16;
    let offset = match looks {
        Looks::AtSource => 12,
        Looks::AtDestination => 16,
    };
    if selector.len() != HEADER + KEY || word(selector, HEADER + 8)? != offset {
        return None;
    }
    let mask = u32::from_be(word(selector, HEADER)?);
    let address = u32::from_be(word(selector, HEADER + 4)?);
    Some(Prefix { address: Ipv4Addr::from(address), length: mask.leading_ones() as u8 })
}

/// What a kernel says of an HTB class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HtbClass {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Bytes per second.
    pub(crate) ceiling: u64,
    /// What may leave at once, in the kernel's ticks at that rate.
    pub(crate) burst: u32,
    pub(crate) quantum: u32,
}

/// Reads what a kernel says of an HTB class (`struct tc_htb_opt`).
pub(crate) fn htb_class(options: &[u8]) -> Option<HtbClass> {
    let mut class = None;
    let (mut rate, mut ceiling) = (None, None);
    for (kind, value) in AttrIter::new(options) {
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

/// The number at `offset`, as the machine has it.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

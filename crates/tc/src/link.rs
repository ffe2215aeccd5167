//! Interfaces and their addresses (`linux/if_link.h`, `linux/if_addr.h`).

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use crate::netlink::{Mode, Request, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Size of `struct ifinfomsg` in bytes, and offset of the interface's index in it.
const LINK: usize = 16;
const INDEX: usize = 4;
/// Size of `struct ifaddrmsg` in bytes. The index is at the same offset as in `struct ifinfomsg`.
const ADDRESS: usize = 8;

/// Index of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub u32);

/// Returns the fields at the beginning of a message about a link (`struct ifinfomsg`).
fn head(Link(index): Link, flags: u32, change: u32) -> [u8; LINK] {
    let mut head = [0; LINK];
    head[INDEX..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..].copy_from_slice(&change.to_ne_bytes());
    head
}

/// No link in particular.
const NONE: Link = Link(0);

impl Socket {
    /// Returns the interface with this name, if it exists.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn link(&self, name: &str) -> io::Result<Option<Link>> {
        let request = Request::new(RTM_GETLINK, Mode::Existing, &head(NONE, 0, 0)).text(IFLA_IFNAME, name);
        Ok(self.get(request)?.map(|it| Link(it.number(INDEX))))
    }

    /// Returns the interface with this name, which must exist.
    fn existing(&self, name: &str) -> io::Result<Link> {
        self.link(name)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("interface {name} not found")))
    }

    /// Returns all interfaces with their names.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn links(&self) -> io::Result<Vec<(String, Link)>> {
        let all = self.list(Request::new(RTM_GETLINK, Mode::Existing, &head(NONE, 0, 0)))?;
        let named = all.iter().filter_map(|it| {
            let name = it.attribute(LINK, IFLA_IFNAME)?;
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            Some((name, Link(it.number(INDEX))))
        });
        Ok(named.collect())
    }

    /// Returns the hardware address of an interface; `None` if the interface does not exist or has no such address.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn hardware_address(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let request = Request::new(RTM_GETLINK, Mode::Existing, &head(NONE, 0, 0)).text(IFLA_IFNAME, name);
        Ok(self.get(request)?.and_then(|it| it.attribute(LINK, IFLA_ADDRESS).map(<[u8]>::to_vec)))
    }

    /// Adds an interface of the given kind (`dummy`, `ifb` or `bridge`), optionally with a hardware address.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn add_link(&self, kind: &str, name: &str, hardware: Option<[u8; 6]>) -> io::Result<()> {
        let request = Request::new(RTM_NEWLINK, Mode::New, &head(NONE, 0, 0)).text(IFLA_IFNAME, name);
        let request = match hardware {
            Some(address) => request.with(IFLA_ADDRESS, &address),
            None => request,
        };
        self.perform(request.nested(IFLA_LINKINFO, |it| it.text(IFLA_INFO_KIND, kind)))
    }

    /// Adds a pair of connected interfaces, optionally with the second one in `namespace` and with this hardware address.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn add_pair(
        &self,
        name: &str,
        peer: &str,
        namespace: Option<&File>,
        hardware: Option<[u8; 6]>,
    ) -> io::Result<()> {
        let other = |it: Request| {
            let it = it.raw(&head(NONE, 0, 0)).text(IFLA_IFNAME, peer);
            let it = match &hardware {
                Some(address) => it.with(IFLA_ADDRESS, address),
                None => it,
            };
            match namespace {
                Some(namespace) => it.number(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32),
                None => it,
            }
        };
        let request = Request::new(RTM_NEWLINK, Mode::New, &head(NONE, 0, 0)).text(IFLA_IFNAME, name);
        self.perform(request.nested(IFLA_LINKINFO, |it| {
            it.text(IFLA_INFO_KIND, "veth").nested(IFLA_INFO_DATA, |it| it.nested(VETH_INFO_PEER, other))
        }))
    }

    /// Removes an interface, if it exists.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn remove_link(&self, name: &str) -> io::Result<()> {
        match self.link(name)? {
            Some(link) => self.perform(Request::new(RTM_DELLINK, Mode::Existing, &head(link, 0, 0))),
            None => Ok(()),
        }
    }

    /// Brings an interface up.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, or if the kernel rejects the request.
    pub fn bring_up(&self, name: &str) -> io::Result<()> {
        let link = self.existing(name)?;
        self.perform(Request::new(RTM_SETLINK, Mode::Existing, &head(link, IFF_UP, IFF_UP)))
    }

    /// Makes an interface a port of a bridge.
    ///
    /// # Errors
    ///
    /// Fails if the interface or the bridge does not exist, or if the kernel rejects the request.
    pub fn join(&self, name: &str, bridge: &str) -> io::Result<()> {
        let (link, bridge) = (self.existing(name)?, self.existing(bridge)?);
        self.perform(
            Request::new(RTM_SETLINK, Mode::Existing, &head(link, 0, 0)).number(IFLA_MASTER, bridge.0),
        )
    }

    /// Turns off segmentation offload for an interface, so that each packet is queued individually.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn disable_segmentation_offload(&self, link: Link) -> io::Result<()> {
        self.perform(
            Request::new(RTM_SETLINK, Mode::Existing, &head(link, 0, 0)).number(IFLA_GSO_MAX_SEGS, 1),
        )
    }

    /// Assigns an address with a prefix of `length` bits to an interface.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, or if the kernel rejects the request.
    pub fn add_address(&self, name: &str, address: Ipv4Addr, length: u8) -> io::Result<()> {
        let Link(index) = self.existing(name)?;
        let mut head = [AF_INET, length, 0, 0, 0, 0, 0, 0];
        head[INDEX..].copy_from_slice(&index.to_ne_bytes());
        let request = Request::new(RTM_NEWADDR, Mode::New, &head);
        self.perform(request.with(IFA_LOCAL, &address.octets()).with(IFA_ADDRESS, &address.octets()))
    }

    /// Returns the name of the interface that has this address; `None` if no interface has it.
    ///
    /// # Errors
    ///
    /// Fails if the kernel rejects the request.
    pub fn link_of(&self, address: Ipv4Addr) -> io::Result<Option<String>> {
        let all = self.list(Request::new(RTM_GETADDR, Mode::Existing, &[AF_INET, 0, 0, 0, 0, 0, 0, 0]))?;
        let has_it = all.iter().find(|it| {
            let own = it.attribute(ADDRESS, IFA_LOCAL).or_else(|| it.attribute(ADDRESS, IFA_ADDRESS));
            own == Some(&address.octets())
        });
        let Some(link) = has_it.map(|it| Link(it.number(INDEX))) else { return Ok(None) };
        Ok(self.links()?.into_iter().find(|it| it.1 == link).map(|it| it.0))
    }
}

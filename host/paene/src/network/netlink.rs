//! The few requests to the host's kernel that a network device takes (`rtnetlink(7)`).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// Flags: a request, to be answered; something new.
const REQUEST: u16 = 1 | 4;
const CREATE: u16 = 0x400;
/// The answer's type.
const ERROR: u16 = 2;
/// Attributes.
const LINK_MTU: u16 = 4;
const ADDRESS_HERE: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
const ROUTE_DEVICE: u16 = 4;
/// The device is up.
const UP: u32 = 1;
/// Nobody else can have the address.
const NO_DETECTION: u32 = 2;

/// A socket for requests about the calling thread's network namespace.
pub(super) struct Netlink(OwnedFd);

fn family(ip: IpAddr) -> u8 {
    // AF_INET, AF_INET6.
    if ip.is_ipv4() { 2 } else { 10 }
}

fn bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).expect("attributes are short");
    to.extend(len.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

impl Netlink {
    pub fn open() -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self(socket))
    }

    /// Sends a request of a family's header and attributes, and waits for what became of it.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(16 + body.len()).expect("requests are short");
        let mut message = len.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        // Sequence number and sender, of which there is one.
        message.extend([0; 8]);
        message.extend(body);
        rustix::net::send(&self.0, &message, SendFlags::empty())?;
        let mut answer = [0; 1024];
        let (got, _) = rustix::net::recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        let word = |at: usize| answer[..got].get(at..at + 4).and_then(|b| b.try_into().ok());
        let kind = answer[..got].get(4..6).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
        match (kind, word(16).map(i32::from_ne_bytes)) {
            (Some(ERROR), Some(0)) => Ok(()),
            (Some(ERROR), Some(errno)) => Err(io::Error::from_raw_os_error(errno.wrapping_neg())),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Switches a device on, with packets of at most `mtu` bytes.
    pub fn up(&self, device: u32, mtu: u32) -> io::Result<()> {
        let mut body = vec![0; 4];
        body.extend(device.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        body.extend(UP.to_ne_bytes());
        attribute(&mut body, LINK_MTU, &mtu.to_ne_bytes());
        self.ask(NEW_LINK, 0, &body)
    }

    /// Gives a device an address, which tells of `bits` bits of others that are behind it too.
    pub fn address(&self, device: u32, ip: IpAddr, bits: u8) -> io::Result<()> {
        let mut body = vec![family(ip), bits, 0, 0];
        body.extend(device.to_ne_bytes());
        attribute(&mut body, ADDRESS_LOCAL, &bytes(ip));
        attribute(&mut body, ADDRESS_HERE, &bytes(ip));
        if ip.is_ipv6() {
            attribute(&mut body, ADDRESS_FLAGS, &NO_DETECTION.to_ne_bytes());
        }
        self.ask(NEW_ADDRESS, CREATE, &body)
    }

    /// Sends everything of a family through a device.
    pub fn default_route(&self, device: u32, family_of: IpAddr) -> io::Result<()> {
        // Main table, by the boot's protocol, within the whole world, unicast.
        let mut body = vec![family(family_of), 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
        attribute(&mut body, ROUTE_DEVICE, &device.to_ne_bytes());
        self.ask(NEW_ROUTE, CREATE, &body)
    }
}

//! Interface ioctls (`netdevice(7)`): all can be read, nothing can be changed.

use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use super::interfaces::{self, Interface, QUEUE};
use crate::{Errno, Result};

const SIOCADDRT: u32 = 0x890b;
const SIOCDELRT: u32 = 0x890c;
const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFDSTADDR: u32 = 0x8917;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCETHTOOL: u32 = 0x8946;
const SIOCGMIIPHY: u32 = 0x8947;
const SIOCGMIIREG: u32 = 0x8948;
const SIOCGARP: u32 = 0x8954;
const SIOCGIFMAP: u32 = 0x8970;
/// Size of `struct ifreq`, and of its name.
const IFREQ: usize = 40;
const IFNAMSIZ: usize = 16;

/// What follows the name in `struct ifreq`.
type Data = [u8; IFREQ - IFNAMSIZ];

/// `struct sockaddr_in`
fn address(ip: [u8; 4]) -> Data {
    let mut b = [0; IFREQ - IFNAMSIZ];
    b[0] = 2;
    b[4..8].copy_from_slice(&ip);
    b
}

fn int(v: u32) -> Data {
    let mut b = [0; IFREQ - IFNAMSIZ];
    b[..4].copy_from_slice(&v.to_ne_bytes());
    b
}

/// `struct sockaddr` with a hardware address.
fn hardware(i: &Interface) -> Data {
    let mut b = int(i.hardware.into());
    b[2..8].copy_from_slice(&i.mac);
    b
}

/// Serves an interface ioctl; ENOTTY if it is not one.
pub fn ioctl(cmd: u32, arg: u64) -> Result<u64> {
    let p = UserPtr(arg);
    match cmd {
        SIOCGIFCONF => return configured(p),
        SIOCADDRT | SIOCDELRT => return Err(Errno::EPERM),
        // There are no neighbours whose hardware addresses matter.
        SIOCGARP => return Err(Errno::ENXIO),
        SIOCGIFNAME..=SIOCGIFMAP => {}
        _ => return Err(Errno::ENOTTY),
    }
    let mut r: [u8; IFREQ] = p.read()?;
    if cmd == SIOCGIFNAME {
        let index = u32::from_ne_bytes([r[16], r[17], r[18], r[19]]);
        let i = interfaces::all().into_iter().find(|i| i.index == index).ok_or(Errno::ENODEV)?;
        put_name(&mut r, &i);
        p.write(&r)?;
        return Ok(0);
    }
    let name = r[..IFNAMSIZ].split(|b| *b == 0).next().unwrap_or_default();
    let i = interfaces::named(name).ok_or(Errno::ENODEV)?;
    let data = match cmd {
        SIOCGIFFLAGS => int(i.flags),
        SIOCGIFADDR | SIOCGIFDSTADDR => address(i.first4().0),
        SIOCGIFBRDADDR => address(i.broadcast(i.first4()).unwrap_or_default()),
        SIOCGIFNETMASK => address(i.mask()),
        SIOCGIFMETRIC | SIOCGIFMAP => int(0),
        SIOCGIFMTU => int(i.mtu),
        SIOCGIFINDEX => int(i.index),
        SIOCGIFTXQLEN => int(QUEUE),
        SIOCGIFHWADDR => hardware(&i),
        // There is no device behind it that has a speed or a driver.
        SIOCETHTOOL | SIOCGMIIPHY | SIOCGMIIREG => return Err(Errno::EOPNOTSUPP),
        // Changing interfaces is not the domain's business.
        _ => return Err(Errno::EPERM),
    };
    p.add(IFNAMSIZ as u64).write(&data)?;
    Ok(0)
}

fn put_name(r: &mut [u8; IFREQ], i: &Interface) {
    r[..IFNAMSIZ].fill(0);
    r[..i.name.len()].copy_from_slice(i.name.as_bytes());
}

/// Names and IPv4 addresses, as many as there is room for.
fn configured(p: UserPtr) -> Result<u64> {
    let found = interfaces::all();
    let all: Vec<_> = found.iter().flat_map(|i| i.ip4.iter().map(move |(ip, _)| (i, *ip))).collect();
    let len: i32 = p.read()?;
    let buf: u64 = p.add(8).read()?;
    let room = usize::try_from(len).unwrap_or(0) / IFREQ;
    let told = if buf == 0 { all.len() } else { room.min(all.len()) };
    if buf != 0 {
        for (n, (i, ip)) in all[..told].iter().copied().enumerate() {
            let mut r = [0u8; IFREQ];
            put_name(&mut r, i);
            r[IFNAMSIZ..].copy_from_slice(&address(ip));
            UserPtr(buf).add((n * IFREQ) as u64).write(&r)?;
        }
    }
    p.write(&((told * IFREQ) as i32))?;
    Ok(0)
}

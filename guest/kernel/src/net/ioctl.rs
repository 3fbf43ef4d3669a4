//! Interface ioctls (`netdevice(7)`): the domain has one interface, `lo`.

use doppel_machine::user::UserPtr;

use crate::{Errno, Result};

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
const SIOCGIFMAP: u32 = 0x8970;
/// IFF_UP | IFF_LOOPBACK | IFF_RUNNING
pub const LO_FLAGS: u32 = 0x49;
/// MTU of lo.
pub const LO_MTU: u32 = 65_536;
/// Size of `struct ifreq`, and of its name.
const IFREQ: usize = 40;
const IFNAMSIZ: usize = 16;

/// `struct sockaddr_in` in 16 bytes.
fn sockaddr_in(ip: [u8; 4]) -> [u8; 16] {
    let mut b = [0; 16];
    b[0] = 2;
    b[4..8].copy_from_slice(&ip);
    b
}

/// Serves an interface ioctl; ENOTTY if it is not one.
pub fn ioctl(cmd: u32, arg: u64) -> Result<u64> {
    let p = UserPtr(arg);
    if cmd == SIOCGIFCONF {
        return ifconf(p);
    }
    if !matches!(cmd, 0x8910..=0x8970) {
        return Err(Errno::ENOTTY);
    }
    let mut r: [u8; IFREQ] = p.read()?;
    if cmd == SIOCGIFNAME {
        if i32::from_ne_bytes([r[16], r[17], r[18], r[19]]) != 1 {
            return Err(Errno::ENODEV);
        }
        r[..IFNAMSIZ].fill(0);
        r[..2].copy_from_slice(b"lo");
        p.write(&r)?;
        return Ok(0);
    }
    let name = r[..IFNAMSIZ].split(|b| *b == 0).next().unwrap_or_default();
    if name != b"lo" {
        return Err(Errno::ENODEV);
    }
    let addr = |ip| {
        let mut b = [0; 24];
        b[..16].copy_from_slice(&sockaddr_in(ip));
        b
    };
    let int = |v: u32| {
        let mut b = [0; 24];
        b[..4].copy_from_slice(&v.to_ne_bytes());
        b
    };
    let data: [u8; 24] = match cmd {
        SIOCGIFFLAGS => int(LO_FLAGS),
        SIOCGIFADDR | SIOCGIFDSTADDR => addr([127, 0, 0, 1]),
        SIOCGIFBRDADDR => addr([0; 4]),
        SIOCGIFNETMASK => addr([255, 0, 0, 0]),
        SIOCGIFMETRIC | SIOCGIFMAP => int(0),
        SIOCGIFMTU => int(LO_MTU),
        SIOCGIFINDEX => int(1),
        SIOCGIFTXQLEN => int(1000),
        // ARPHRD_LOOPBACK, address zero.
        SIOCGIFHWADDR => int(772),
        // Changing the interface is not the domain's business.
        _ => return Err(Errno::EPERM),
    };
    p.add(IFNAMSIZ as u64).write(&data)?;
    Ok(0)
}

fn ifconf(p: UserPtr) -> Result<u64> {
    let len: i32 = p.read()?;
    let buf: u64 = p.add(8).read()?;
    let mut written = IFREQ as i32;
    if buf != 0 {
        written = 0;
        if len >= IFREQ as i32 {
            let mut r = [0u8; IFREQ];
            r[..2].copy_from_slice(b"lo");
            r[16..32].copy_from_slice(&sockaddr_in([127, 0, 0, 1]));
            UserPtr(buf).write(&r)?;
            written = IFREQ as i32;
        }
    }
    p.write(&written)?;
    Ok(0)
}

//! `struct msghdr`: names, iovecs and control messages between programs and sockets.

use crate::objects::vfs::opener;
use alloc::vec::Vec;

use doppel_algo::net::ports::mapped;
use doppel_algo::net::sockaddr::{self, Addr, MAX};
use doppel_machine::pod_struct;
use doppel_machine::user::{UserPtr, bytes_of};

use super::Common;
use super::consts::{self as c, MsgFlags};
use super::socket::{Marks, Received, SendMsg};
use super::unix::scm::{Fds, SCM_MAX_FD, Ucred};
use crate::core::subject::Subject;
use crate::objects::net::unix::scm::PEERS;
use crate::objects::vfs::Input;
use crate::objects::vfs::io::IoVec;
use crate::{Errno, Result};

/// Most iovecs in a call.
const UIO_MAXIOV: u64 = 1024;
/// Most bytes in a call.
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
/// Most bytes of control data a program may send (`net.core.optmem_max`).
const OPTMEM_MAX: u64 = 131_072;

pod_struct! {
    /// `struct msghdr` (and the head of `struct mmsghdr`)
    pub struct MsgHdr {
        /// Address buffer.
        pub name: u64,
        /// Its length.
        pub namelen: u32,
        /// Padding.
        pub pad0: u32,
        /// Buffers.
        pub iov: u64,
        /// Number of them.
        pub iovlen: u64,
        /// Control data.
        pub control: u64,
        /// Its length.
        pub controllen: u64,
        /// Flags set by the kernel.
        pub flags: u32,
        /// Padding.
        pub pad1: u32,
    }
}

const UDP_SEGMENT: i32 = 103;
const IP_PKTINFO: i32 = 8;
const IPV6_2292PKTINFO: i32 = 2;
const IPV6_PKTINFO: i32 = 50;
/// Size of `struct cmsghdr`.
const CMSG_HDR: usize = 16;
const fn align8(n: usize) -> usize {
    (n + 7) & !7
}

/// Reads a socket address argument.
pub fn read_addr(p: UserPtr, len: i32) -> Result<Addr> {
    let len = usize::try_from(len).ok().filter(|n| *n <= MAX).ok_or(Errno::EINVAL)?;
    let mut b = [0; MAX];
    p.read_bytes(&mut b[..len])?;
    sockaddr::parse(&b[..len]).map_err(|_| Errno::EINVAL)
}

/// Stores an address with its length, as getsockname, accept and recvfrom do; `lenp` holds the room.
pub fn write_addr(addr: Option<&Addr>, p: UserPtr, lenp: UserPtr) -> Result<()> {
    let room: i32 = lenp.read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let mut b = [0; MAX];
    let len = addr.map_or(0, |a| a.encode(&mut b));
    p.write_bytes(&b[..len.min(room)])?;
    lenp.write(&(len as i32))?;
    Ok(())
}

/// Reads an iovec array; the total is capped as Linux caps it.
fn read_iovecs(at: UserPtr, n: u64) -> Result<Vec<IoVec>> {
    if n > UIO_MAXIOV {
        return Err(Errno::EMSGSIZE);
    }
    let mut v = Vec::with_capacity(n as usize);
    let mut left = MAX_RW_COUNT;
    for i in 0..n {
        let [base, len]: [u64; 2] = at.add(i * 16).read()?;
        let len = i64::try_from(len).map_err(|_| Errno::EINVAL)? as usize;
        let len = len.min(left);
        left -= len;
        v.push(IoVec { base: UserPtr(base), len });
    }
    Ok(v)
}

impl MsgHdr {
    /// The buffers.
    pub fn iovecs(&self) -> Result<Vec<IoVec>> {
        read_iovecs(UserPtr(self.iov), self.iovlen)
    }

    /// The destination address, if one is given.
    fn addr(&self) -> Result<Option<Addr>> {
        if self.name == 0 || self.namelen == 0 {
            return Ok(None);
        }
        let len = i32::try_from(self.namelen).map_err(|_| Errno::EINVAL)?;
        read_addr(UserPtr(self.name), len.min(MAX as i32)).map(Some)
    }

    /// Decodes everything for a send by `p`.
    pub fn for_send(
        &self,
        p: &dyn Subject,
        flags: MsgFlags,
        unix: bool,
    ) -> Result<(Input<'static>, SendMsg)> {
        let mut msg = SendMsg { addr: self.addr()?, flags, ..SendMsg::default() };
        if self.control != 0 && self.controllen != 0 {
            self.read_control(p, &mut msg, unix)?;
        }
        Ok((Input::iovecs(self.iovecs()?), msg))
    }

    fn read_control(&self, p: &dyn Subject, msg: &mut SendMsg, unix: bool) -> Result<()> {
        if self.controllen > OPTMEM_MAX {
            return Err(Errno::ENOBUFS);
        }
        let total = self.controllen as usize;
        let mut buf = Vec::with_capacity(total);
        if UserPtr(self.control).read_append(&mut buf, total)? < total {
            return Err(Errno::EFAULT);
        }
        let mut files = Vec::new();
        let mut at = 0;
        while at + CMSG_HDR <= total {
            let word = |o: usize| i32::from_ne_bytes([buf[o], buf[o + 1], buf[o + 2], buf[o + 3]]);
            let mut len8 = [0; 8];
            len8.copy_from_slice(&buf[at..at + 8]);
            let len = usize::try_from(u64::from_ne_bytes(len8)).map_err(|_| Errno::EINVAL)?;
            if len < CMSG_HDR || len > total - at {
                return Err(Errno::EINVAL);
            }
            let data = &buf[at + CMSG_HDR..at + len];
            match (word(at + 8), word(at + 12)) {
                (c::SOL_SOCKET, c::SCM_RIGHTS) if unix => {
                    for fd in data.chunks_exact(4) {
                        let fd = i32::from_ne_bytes([fd[0], fd[1], fd[2], fd[3]]);
                        if files.len() == SCM_MAX_FD {
                            return Err(Errno::EINVAL);
                        }
                        files.push(opener().any_file(fd)?);
                    }
                }
                (c::SOL_SOCKET, c::SCM_CREDENTIALS) if unix => {
                    if data.len() != size_of::<Ucred>() {
                        return Err(Errno::EINVAL);
                    }
                    let cred: Ucred = UserPtr(self.control).add((at + CMSG_HDR) as u64).read()?;
                    msg.cred = Some(cred.check(p)?);
                }
                (c::SOL_SOCKET, _) if unix => return Err(Errno::EINVAL),
                (c::SOL_UDP, UDP_SEGMENT) if !unix => {
                    let size: [u8; 2] = data.try_into().map_err(|_| Errno::EINVAL)?;
                    msg.segment = u16::from_ne_bytes(size);
                }
                (c::SOL_IP, IP_PKTINFO) if !unix => {
                    // Interface, the address to send from, and one that is not looked at.
                    let [a, b, c, d, e, f, g, h, _, _, _, _] = *data else { return Err(Errno::EINVAL) };
                    msg.index = u32::from_ne_bytes([a, b, c, d]);
                    msg.source = ([e, f, g, h] != [0; 4]).then(|| mapped([e, f, g, h]));
                }
                (c::SOL_IPV6, IPV6_PKTINFO | IPV6_2292PKTINFO) if !unix => {
                    let (Some(ip), 20) = (data.first_chunk::<16>(), data.len()) else {
                        return Err(Errno::EINVAL);
                    };
                    msg.source = (*ip != [0; 16]).then_some(*ip);
                    msg.index = word(at + CMSG_HDR + 16) as u32;
                }
                (level @ (c::SOL_IP | c::SOL_IPV6), kind) if !unix => {
                    packet_field(&mut msg.marks, level, kind, data)?
                }
                _ => {}
            }
            at += align8(len);
        }
        if !files.is_empty() {
            msg.fds = Some(Fds::new(p, files)?);
        }
        Ok(())
    }

    /// Stores what came with a received message. Updates the lengths and flags in `self`.
    pub fn store(&mut self, r: &mut Received, flags: MsgFlags, common: &Common) -> Result<()> {
        if self.name != 0 {
            let mut b = [0; MAX];
            let len = r.addr.as_ref().map_or(0, |a| a.encode(&mut b));
            UserPtr(self.name).write_bytes(&b[..len.min(self.namelen as usize)])?;
            self.namelen = len as u32;
        }
        let mut w =
            ControlWriter { at: UserPtr(self.control), left: self.controllen as usize, flags: r.flags };
        if self.control == 0 {
            w.left = 0;
        }
        let room = w.left;
        for (level, kind, data) in &r.control {
            w.put(*level, *kind, data)?;
        }
        if let Some(cred) = r.cred.filter(|_| common.passcred()) {
            w.put(c::SOL_SOCKET, c::SCM_CREDENTIALS, bytes_of(&cred.shown()))?;
        }
        if let Some(fds) = r.fds.take() {
            w.put_fds(&fds, flags.contains(MsgFlags::CMSG_CLOEXEC))?;
        }
        if let Some(cred) = r.cred.filter(|_| common.on(c::SO_PASSPIDFD)) {
            w.put_process(cred.pid)?;
        }
        self.controllen = (room - w.left) as u64;
        self.flags = (w.flags | (flags & MsgFlags::CMSG_CLOEXEC)).bits();
        Ok(())
    }
}

struct ControlWriter {
    at: UserPtr,
    left: usize,
    flags: MsgFlags,
}

impl ControlWriter {
    fn header(&self, len: usize, level: i32, kind: i32) -> Result<()> {
        self.at.write(&(len as u64))?;
        self.at.add(8).write(&[level, kind])?;
        Ok(())
    }

    fn advance(&mut self, len: usize) {
        let n = align8(len).min(self.left);
        self.at = self.at.add(n as u64);
        self.left -= n;
    }

    fn put(&mut self, level: i32, kind: i32, data: &[u8]) -> Result<()> {
        if self.left < CMSG_HDR {
            self.flags |= MsgFlags::CTRUNC;
            return Ok(());
        }
        let mut len = CMSG_HDR + data.len();
        if len > self.left {
            self.flags |= MsgFlags::CTRUNC;
            len = self.left;
        }
        self.header(len, level, kind)?;
        self.at.add(CMSG_HDR as u64).write_bytes(&data[..len - CMSG_HDR])?;
        self.advance(len);
        Ok(())
    }

    /// A descriptor of the sending process, or in its place why there is none.
    fn put_process(&mut self, pid: i32) -> Result<()> {
        if self.left < CMSG_HDR + 4 {
            self.flags |= MsgFlags::CTRUNC;
            return Ok(());
        }
        let opened = (PEERS.get().descriptor)(pid);
        let fd = opened.unwrap_or_else(|e| -i32::from(e.0));
        self.put(c::SOL_SOCKET, c::SCM_PIDFD, &fd.to_ne_bytes())
    }

    /// Installs as many descriptors as there is room for; the others are closed.
    fn put_fds(&mut self, fds: &Fds, cloexec: bool) -> Result<()> {
        let room = self.left.saturating_sub(CMSG_HDR) / 4;
        let thread = opener();
        let table = thread.files();
        let mut n = 0;
        for f in fds.files().iter().take(room) {
            // The table may be full: then the rest is cut off, as on Linux.
            let Ok(fd) = table.insert(f.clone(), cloexec) else { break };
            if self.at.add((CMSG_HDR + 4 * n) as u64).write(&fd).is_err() {
                table.close(fd)?;
                break;
            }
            n += 1;
        }
        if n < fds.files().len() {
            self.flags |= MsgFlags::CTRUNC;
        }
        if n > 0 {
            let len = CMSG_HDR + 4 * n;
            self.header(len, c::SOL_SOCKET, c::SCM_RIGHTS)?;
            self.advance(len);
        }
        Ok(())
    }
}

/// A field of the IP header of this packet, given by a control message.
fn packet_field(marks: &mut Marks, level: i32, kind: i32, data: &[u8]) -> Result<()> {
    let v6 = level == c::SOL_IPV6;
    let place = match (v6, kind) {
        (true, c::IPV6_HOPLIMIT) | (false, c::IP_TTL) => &mut marks.hops,
        (true, c::IPV6_TCLASS) | (false, c::IP_TOS) => &mut marks.class,
        // Other options of a packet have no effect on loopback.
        _ => return Ok(()),
    };
    let v = match *data {
        [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]),
        [a] if (v6, kind) == (false, c::IP_TOS) => i32::from(a),
        _ => return Err(Errno::EINVAL),
    };
    let least = if v6 { -1 } else { i32::from(kind == c::IP_TTL) };
    if !(least..=255).contains(&v) {
        return Err(Errno::EINVAL);
    }
    *place = v;
    Ok(())
}

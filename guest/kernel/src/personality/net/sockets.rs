//! The system calls of sockets.

use alloc::sync::Arc;
use core::ops::Deref;

use doppel_abi_linux::syscalls::nr;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, AF_UNIX, Addr};
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::core::time;
use crate::objects::net::consts::{self as c, MsgFlags, Shutdown};
use crate::objects::net::inet::tcp::Tcp;
use crate::objects::net::inet::udp::Udp;
use crate::objects::net::msg::{MAX_RW_COUNT, MsgHdr, read_addr, write_addr};
use crate::objects::net::netlink::Netlink;
use crate::objects::net::socket::{Received, SendMsg, Socket, SocketOps, wait_flag};
use crate::objects::net::unix::UnixSock;
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, Input, Output};
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Arg, Bits, FromArg, Number, RawFd, UserBuf};
use crate::personality::net::options::{getsockopt, setsockopt};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// The rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::SOCKET,
        socket(Number<Family>, SocketType, i32),
        Partial,
        "AF_UNIX; AF_INET and AF_INET6 TCP, UDP and ICMP echo (SOCK_DGRAM), UDP-Lite over loopback, the others over loopback or, with a network, through the network service; AF_NETLINK NETLINK_ROUTE, read-only",
    ),
    call!(nr::SOCKETPAIR, socketpair(Number<Family>, SocketType, i32, UserPtr), Full, ""),
    call!(nr::BIND, bind(RawFd, UserPtr, i32), Full, ""),
    call!(nr::LISTEN, listen(RawFd, i32), Full, ""),
    call!(nr::ACCEPT, accept(RawFd, UserPtr, UserPtr), Full, ""),
    call!(nr::ACCEPT4, accept4(RawFd, UserPtr, UserPtr, Bits<OpenFlags>), Full, ""),
    call!(nr::CONNECT, connect(RawFd, UserPtr, i32), Full, ""),
    call!(nr::GETSOCKNAME, getsockname(RawFd, UserPtr, UserPtr), Full, ""),
    call!(nr::GETPEERNAME, getpeername(RawFd, UserPtr, UserPtr), Full, ""),
    call!(nr::SENDTO, sendto(RawFd, UserBuf, usize, Bits<MsgFlags>, UserPtr, i32), Full, ""),
    call!(nr::RECVFROM, recvfrom(RawFd, UserPtr, usize, Bits<MsgFlags>, UserPtr, UserPtr), Full, ""),
    call!(nr::SENDMSG, sendmsg(RawFd, UserPtr, Bits<MsgFlags>), Full, ""),
    call!(nr::RECVMSG, recvmsg(RawFd, UserPtr, Bits<MsgFlags>), Full, ""),
    call!(nr::SENDMMSG, sendmmsg(RawFd, UserPtr, u32, Bits<MsgFlags>), Full, ""),
    call!(nr::RECVMMSG, recvmmsg(RawFd, UserPtr, u32, Bits<MsgFlags>, UserPtr), Full, ""),
    call!(nr::SHUTDOWN, shutdown(RawFd, Number<Shut>), Full, ""),
    call!(
        nr::SETSOCKOPT,
        setsockopt(RawFd, i32, i32, UserPtr, i32),
        Partial,
        "no socket filters; multicast groups are the domain's own",
    ),
    call!(nr::GETSOCKOPT, getsockopt(RawFd, i32, i32, UserPtr, UserPtr), Full, ""),
];

/// Most messages of sendmmsg and recvmmsg.
const UIO_MAXIOV: u32 = 1024;
/// Size of `struct mmsghdr`.
const MMSGHDR: u64 = 64;

/// Size of `struct sockaddr_in`.
const IPV4_SIZE: i32 = 16;

/// An argument that is a socket.
pub(in crate::personality) struct Sock<F> {
    file: F,
    pub(in crate::personality) ops: Arc<dyn SocketOps>,
}

/// A descriptor as a socket.
pub(super) fn sock(a: &Args, fd: i32) -> Result<Sock<FileRef<'_>>> {
    Sock::of(a.thread.file(fd)?)
}

impl<F: Deref<Target = Arc<File>>> Sock<F> {
    /// An open file as a socket.
    pub(in crate::personality) fn of(file: F) -> Result<Self> {
        let ops = file.downcast::<Socket>().ok_or(Errno::ENOTSOCK)?.ops.clone();
        Ok(Self { file, ops })
    }

    fn nonblock(&self) -> bool {
        self.file.nonblocking()
    }

    fn is_unix(&self) -> bool {
        self.ops.common().domain == AF_UNIX
    }

    pub(in crate::personality) fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        match self.file.downcast::<Socket>() {
            Some(s) => s.send(input, msg),
            None => Err(Errno::ENOTSOCK),
        }
    }
}

numbers! {
    /// Address families of which there are sockets (`address_families(7)`).
    enum Family {
        Unix = 1,
        Inet = 2,
        Inet6 = 10,
        Netlink = 16,
    }
}

/// The type argument of socket and socketpair: a kind (SOCK_STREAM and the like), and SOCK_CLOEXEC and SOCK_NONBLOCK.
#[derive(Clone, Copy)]
struct SocketType(u32);

impl FromArg for SocketType {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

impl SocketType {
    const KIND_BITS: u32 = 0xf;

    /// The kind, which a family may still not have, and the flags, which have the bits of the open flags.
    fn split(self) -> Result<(u32, OpenFlags)> {
        let flags = OpenFlags::from_bits(self.0 & !Self::KIND_BITS)
            .filter(|f| OpenFlags::DESCRIPTOR.contains(*f))
            .ok_or(Errno::EINVAL)?;
        let kind = self.0 & Self::KIND_BITS;
        if kind >= c::SOCK_MAX { Err(Errno::EINVAL) } else { Ok((kind, flags)) }
    }
}

/// Gives a socket a descriptor; closes it again if there is none.
fn install(a: &Args, ops: Arc<dyn SocketOps>, flags: OpenFlags) -> Result<i32> {
    let file = Socket::file(ops.clone(), flags);
    a.thread.files().insert(file, flags.contains(OpenFlags::CLOEXEC)).inspect_err(|_| ops.release())
}

/// The family of a new socket.
fn family(number: Number<Family>) -> Result<Family> {
    number.get().map_err(|_| Errno::EAFNOSUPPORT)
}

fn socket(a: &Args, domain: Number<Family>, kind: SocketType, protocol: i32) -> Result<u64> {
    let (kind, flags) = kind.split()?;
    let ops: Arc<dyn SocketOps> = match family(domain)? {
        Family::Unix => {
            if !matches!(protocol, 0 | 1) {
                return Err(Errno::EPROTONOSUPPORT);
            }
            UnixSock::new(kind)?
        }
        Family::Inet => inet_socket(a, AF_INET, kind, protocol)?,
        Family::Inet6 => inet_socket(a, AF_INET6, kind, protocol)?,
        Family::Netlink if matches!(kind, c::SOCK_RAW | c::SOCK_DGRAM) => Netlink::new(kind, protocol)?,
        Family::Netlink => return Err(Errno::ESOCKTNOSUPPORT),
    };
    Ok(install(a, ops, flags)? as u64)
}

fn inet_socket(a: &Args, domain: u16, kind: u32, protocol: i32) -> Result<Arc<dyn SocketOps>> {
    const CAP_NET_RAW: u32 = 13;
    if !(0..256).contains(&protocol) {
        return Err(Errno::EINVAL);
    }
    match (kind, protocol) {
        (c::SOCK_STREAM, 0 | c::SOL_TCP) => Ok(Tcp::new(domain)),
        (c::SOCK_DGRAM, 0 | c::SOL_UDP) => Ok(Udp::new(domain)),
        (c::SOCK_DGRAM, c::SOL_UDPLITE) => Ok(Udp::lite(domain)),
        (c::SOCK_DGRAM, c::IPPROTO_ICMP) if domain == AF_INET => Ok(Udp::echo(domain)),
        (c::SOCK_DGRAM, c::IPPROTO_ICMPV6) if domain == AF_INET6 => Ok(Udp::echo(domain)),
        // Programs that do without try the above then, if they are told that they may not.
        (c::SOCK_RAW, c::IPPROTO_ICMP | c::IPPROTO_ICMPV6) => Err(Errno::EPERM),
        (c::SOCK_RAW, _) if !a.thread.cred().capable(CAP_NET_RAW) => Err(Errno::EPERM),
        (c::SOCK_RAW, _) => Err(Errno::EPROTONOSUPPORT),
        (c::SOCK_STREAM | c::SOCK_DGRAM, _) => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn socketpair(
    a: &Args,
    domain: Number<Family>,
    kind: SocketType,
    protocol: i32,
    user_fds: UserPtr,
) -> Result<u64> {
    let (kind, flags) = kind.split()?;
    match family(domain)? {
        Family::Unix => {}
        Family::Inet | Family::Inet6 => return Err(Errno::EOPNOTSUPP),
        Family::Netlink => return Err(Errno::EAFNOSUPPORT),
    }
    if !matches!(protocol, 0 | 1) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let (x, y) = UnixSock::pair(kind)?;
    let fd0 = match install(a, x, flags) {
        Ok(fd) => fd,
        Err(e) => {
            y.release();
            return Err(e);
        }
    };
    let files = a.thread.files();
    let fd1 = match install(a, y, flags) {
        Ok(fd) => fd,
        Err(e) => {
            files.close(fd0)?;
            return Err(e);
        }
    };
    if let Err(e) = user_fds.write(&[fd0, fd1]) {
        files.close(fd0)?;
        files.close(fd1)?;
        return Err(e.into());
    }
    Ok(0)
}

/// The address argument of bind and connect. To an IPv4 socket another family is wrong, however long its addresses.
pub(in crate::personality) fn address(at: UserPtr, len: i32, domain: u16) -> Result<Addr> {
    let addr = read_addr(at, len);
    if addr.is_err() && domain == AF_INET && len >= IPV4_SIZE && at.read::<u16>()? != AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    addr
}

fn bind(a: &Args, RawFd(fd): RawFd, user_addr: UserPtr, len: i32) -> Result<u64> {
    let s = sock(a, fd)?;
    let domain = s.ops.common().domain;
    let mut addr = address(user_addr, len, domain)?;
    if addr == Addr::Unspec && domain == AF_INET {
        // Old programs leave the family out where they mean any address.
        let [_, port, ip @ ..]: [u16; 4] = user_addr.read()?;
        let any = len >= IPV4_SIZE && ip == [0, 0];
        addr = if any { Addr::V4 { ip: [0; 4], port: u16::from_be(port) } } else { Addr::Other(0) };
    }
    s.ops.bind(&addr)?;
    Ok(0)
}

fn listen(a: &Args, RawFd(fd): RawFd, backlog: i32) -> Result<u64> {
    sock(a, fd)?.ops.listen(backlog)?;
    Ok(0)
}

fn accept(a: &Args, RawFd(fd): RawFd, user_addr: UserPtr, user_len: UserPtr) -> Result<u64> {
    do_accept(a, fd, user_addr, user_len, OpenFlags::empty())
}

fn accept4(
    a: &Args,
    RawFd(fd): RawFd,
    user_addr: UserPtr,
    user_len: UserPtr,
    flags: Bits<OpenFlags>,
) -> Result<u64> {
    do_accept(a, fd, user_addr, user_len, flags.of(OpenFlags::DESCRIPTOR)?)
}

fn do_accept(
    a: &Args,
    listener: i32,
    user_addr: UserPtr,
    user_len: UserPtr,
    flags: OpenFlags,
) -> Result<u64> {
    let s = sock(a, listener)?;
    take_connection(a, &s, user_addr, user_len, flags, s.nonblock())
}

/// Accepts a connection, and gives it a descriptor.
pub(in crate::personality) fn take_connection<F: Deref<Target = Arc<File>>>(
    a: &Args,
    s: &Sock<F>,
    user_addr: UserPtr,
    user_len: UserPtr,
    flags: OpenFlags,
    nonblock: bool,
) -> Result<u64> {
    let new = s.ops.accept(nonblock)?;
    let fd = install(a, new.clone(), flags)?;
    if !user_addr.is_null() {
        let stored = new.accepted_from().and_then(|r| write_addr(Some(&r), user_addr, user_len));
        if let Err(e) = stored {
            a.thread.files().close(fd)?;
            return Err(e);
        }
    }
    Ok(fd as u64)
}

fn connect(a: &Args, RawFd(fd): RawFd, user_addr: UserPtr, len: i32) -> Result<u64> {
    let s = sock(a, fd)?;
    s.ops.connect(&address(user_addr, len, s.ops.common().domain)?, s.nonblock())?;
    Ok(0)
}

fn getsockname(a: &Args, RawFd(fd): RawFd, user_addr: UserPtr, user_len: UserPtr) -> Result<u64> {
    let addr = sock(a, fd)?.ops.local()?;
    write_addr(Some(&addr), user_addr, user_len)?;
    Ok(0)
}

fn getpeername(a: &Args, RawFd(fd): RawFd, user_addr: UserPtr, user_len: UserPtr) -> Result<u64> {
    let addr = sock(a, fd)?.ops.remote()?;
    write_addr(Some(&addr), user_addr, user_len)?;
    Ok(0)
}

#[inline]
fn sendto(
    a: &Args,
    RawFd(fd): RawFd,
    UserBuf(buffer): UserBuf,
    len: usize,
    flags: Bits<MsgFlags>,
    user_addr: UserPtr,
    addr_len: i32,
) -> Result<u64> {
    let s = sock(a, fd)?;
    let addr = if user_addr.is_null() { None } else { Some(read_addr(user_addr, addr_len)?) };
    let msg = SendMsg { addr, flags: flags.any() | wait_flag(&s.file), ..SendMsg::default() };
    let mut input = Input::user(buffer, len.min(MAX_RW_COUNT));
    Ok(s.send(&mut input, msg)? as u64)
}

/// A program's flags, with ours.
fn recv_flags(mut flags: MsgFlags, want_addr: bool) -> MsgFlags {
    flags.set(MsgFlags::WANT_ADDR, want_addr);
    flags
}

#[inline]
fn recvfrom(
    a: &Args,
    RawFd(fd): RawFd,
    buffer: UserPtr,
    len: usize,
    flags: Bits<MsgFlags>,
    user_addr: UserPtr,
    user_len: UserPtr,
) -> Result<u64> {
    let s = sock(a, fd)?;
    let mut out = Output::user(buffer, len.min(MAX_RW_COUNT));
    let r = s.ops.recv(&mut out, recv_flags(flags.any(), !user_addr.is_null()) | wait_flag(&s.file))?;
    if !user_addr.is_null() {
        write_addr(r.addr.as_ref(), user_addr, user_len)?;
    }
    Ok(r.len as u64)
}

/// Sends the message that is described there.
pub(in crate::personality) fn send_one<F: Deref<Target = Arc<File>>>(
    a: &Args,
    s: &Sock<F>,
    at: UserPtr,
    flags: MsgFlags,
) -> Result<usize> {
    let h: MsgHdr = at.read()?;
    let (mut input, msg) = h.for_send(&**a.thread, flags | wait_flag(&s.file), s.is_unix())?;
    s.send(&mut input, msg)
}

fn sendmsg(a: &Args, RawFd(fd): RawFd, message: UserPtr, flags: Bits<MsgFlags>) -> Result<u64> {
    let s = sock(a, fd)?;
    Ok(send_one(a, &s, message, flags.any())? as u64)
}

fn sendmmsg(a: &Args, RawFd(fd): RawFd, messages: UserPtr, count: u32, flags: Bits<MsgFlags>) -> Result<u64> {
    let s = sock(a, fd)?;
    let n = count.min(UIO_MAXIOV);
    for i in 0..n {
        let at = messages.add(u64::from(i) * MMSGHDR);
        let sent = send_one(a, &s, at, flags.any())
            .and_then(|len| at.add(56).write(&(len as u32)).map_err(Errno::from));
        match sent {
            Ok(()) => {}
            Err(_) if i > 0 => return Ok(u64::from(i)),
            Err(e) => return Err(e),
        }
    }
    Ok(u64::from(n))
}

/// Receives a message as it is described there.
pub(in crate::personality) fn recv_one<F: Deref<Target = Arc<File>>>(
    s: &Sock<F>,
    at: UserPtr,
    flags: MsgFlags,
) -> Result<usize> {
    let mut h: MsgHdr = at.read()?;
    let mut out = Output::iovecs(h.iovecs()?);
    let mut r: Received = s.ops.recv(&mut out, recv_flags(flags, h.name != 0) | wait_flag(&s.file))?;
    h.store(&mut r, flags, s.ops.common())?;
    // Only what the kernel returns: the program's pointers stay as they are.
    if h.name != 0 {
        at.add(8).write(&h.namelen)?;
    }
    at.add(40).write(&h.controllen)?;
    at.add(48).write(&h.flags)?;
    Ok(r.len)
}

fn recvmsg(a: &Args, RawFd(fd): RawFd, message: UserPtr, flags: Bits<MsgFlags>) -> Result<u64> {
    let s = sock(a, fd)?;
    Ok(recv_one(&s, message, flags.any())? as u64)
}

fn recvmmsg(
    a: &Args,
    RawFd(fd): RawFd,
    messages: UserPtr,
    count: u32,
    flags: Bits<MsgFlags>,
    timeout: UserPtr,
) -> Result<u64> {
    let s = sock(a, fd)?;
    let n = count.min(UIO_MAXIOV);
    let mut flags = flags.any();
    let deadline = if timeout.is_null() {
        None
    } else {
        let [sec, nsec]: [i64; 2] = timeout.read()?;
        if sec < 0 || !(0..1_000_000_000).contains(&nsec) {
            return Err(Errno::EINVAL);
        }
        let ns = (sec as u64).saturating_mul(1_000_000_000).saturating_add(nsec as u64);
        Some(time::monotonic_ns().saturating_add(ns))
    };
    let mut got = 0;
    while got < n {
        let at = messages.add(u64::from(got) * MMSGHDR);
        let one = recv_one(&s, at, flags - MsgFlags::WAITFORONE)
            .and_then(|len| at.add(56).write(&(len as u32)).map_err(Errno::from));
        match one {
            Ok(()) => got += 1,
            Err(_) if got > 0 => break,
            Err(e) => return Err(e),
        }
        if flags.contains(MsgFlags::WAITFORONE) {
            flags |= MsgFlags::DONTWAIT;
        }
        // As on Linux, the time is only looked at after each message.
        if deadline.is_some_and(|d| time::monotonic_ns() >= d) {
            break;
        }
    }
    Ok(u64::from(got))
}

numbers! {
    /// How `shutdown(2)` ends a connection.
    enum Shut {
        Read = 0,
        Write = 1,
        Both = 2,
    }
}

fn shutdown(a: &Args, RawFd(fd): RawFd, how: Number<Shut>) -> Result<u64> {
    let s = sock(a, fd)?;
    let how = match how.get()? {
        Shut::Read => Shutdown::RECEIVE,
        Shut::Write => Shutdown::SEND,
        Shut::Both => Shutdown::all(),
    };
    s.ops.shutdown(how)?;
    Ok(0)
}

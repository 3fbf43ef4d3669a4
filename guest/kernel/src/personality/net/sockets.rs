//! The system calls of sockets.

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, Addr};
use doppel_machine::user::UserPtr;

use crate::core::numbers::numbers;
use crate::core::time;
use crate::objects::net::consts as c;
use crate::objects::net::inet::tcp::Tcp;
use crate::objects::net::inet::udp::Udp;
use crate::objects::net::msg::{MAX_RW_COUNT, MsgHdr, read_addr, write_addr};
use crate::objects::net::netlink::Netlink;
use crate::objects::net::socket::{Received, SendMsg, Socket, SocketOps, wait_flag};
use crate::objects::net::unix::UnixSock;
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Input, Output};
use crate::personality::Arg::{Fd, Hex, Int, Ptr};
use crate::personality::Support::{Full, Partial};
use crate::personality::net::options::{getsockopt, setsockopt};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// The rows of the system call table.
pub const CALLS: &[Syscall] = &[
    call(
        nr::SOCKET,
        socket,
        Partial,
        &[Int, Hex, Int],
        "AF_UNIX; AF_INET and AF_INET6 TCP, UDP and ICMP echo (SOCK_DGRAM), UDP-Lite over loopback, the others over loopback or, with a network, through the network service; AF_NETLINK NETLINK_ROUTE, read-only",
    ),
    call(nr::SOCKETPAIR, socketpair, Full, &[Int, Hex, Int, Ptr], ""),
    call(nr::BIND, bind, Full, &[Fd, Ptr, Int], ""),
    call(nr::LISTEN, listen, Full, &[Fd, Int], ""),
    call(nr::ACCEPT, accept, Full, &[Fd, Ptr, Ptr], ""),
    call(nr::ACCEPT4, accept4, Full, &[Fd, Ptr, Ptr, Hex], ""),
    call(nr::CONNECT, connect, Full, &[Fd, Ptr, Int], ""),
    call(nr::GETSOCKNAME, getsockname, Full, &[Fd, Ptr, Ptr], ""),
    call(nr::GETPEERNAME, getpeername, Full, &[Fd, Ptr, Ptr], ""),
    call(nr::SENDTO, sendto, Full, &[Fd, Ptr, Int, Hex, Ptr, Int], ""),
    call(nr::RECVFROM, recvfrom, Full, &[Fd, Ptr, Int, Hex, Ptr, Ptr], ""),
    call(nr::SENDMSG, sendmsg, Full, &[Fd, Ptr, Hex], ""),
    call(nr::RECVMSG, recvmsg, Full, &[Fd, Ptr, Hex], ""),
    call(nr::SENDMMSG, sendmmsg, Full, &[Fd, Ptr, Int, Hex], ""),
    call(nr::RECVMMSG, recvmmsg, Full, &[Fd, Ptr, Int, Hex, Ptr], ""),
    call(nr::SHUTDOWN, shutdown, Full, &[Fd, Int], ""),
    call(
        nr::SETSOCKOPT,
        setsockopt,
        Partial,
        &[Fd, Int, Int, Ptr, Int],
        "no socket filters; multicast groups are the domain's own",
    ),
    call(nr::GETSOCKOPT, getsockopt, Full, &[Fd, Int, Int, Ptr, Ptr], ""),
];

/// Most messages of sendmmsg and recvmmsg.
const UIO_MAXIOV: u32 = 1024;
/// Size of `struct mmsghdr`.
const MMSGHDR: u64 = 64;

/// Size of `struct sockaddr_in`.
const IPV4_SIZE: i32 = 16;

/// An argument that is a socket.
pub(super) struct Sock<'a> {
    file: FileRef<'a>,
    pub(super) ops: Arc<dyn SocketOps>,
}

/// The first argument as a socket.
pub(super) fn sock(a: &Args) -> Result<Sock<'_>> {
    let file = a.file(0)?;
    let ops = file.downcast::<Socket>().ok_or(Errno::ENOTSOCK)?.ops.clone();
    Ok(Sock { file, ops })
}

impl Sock<'_> {
    fn nonblock(&self) -> bool {
        self.file.nonblocking()
    }

    fn is_unix(&self) -> bool {
        self.ops.common().domain == AF_UNIX
    }

    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        match self.file.downcast::<Socket>() {
            Some(s) => s.send(input, msg),
            None => Err(Errno::ENOTSOCK),
        }
    }
}

/// SOCK_CLOEXEC and SOCK_NONBLOCK, which have the bits of the open flags.
fn descriptor_flags(bits: u32) -> Result<OpenFlags> {
    OpenFlags::from_bits(bits).filter(|f| OpenFlags::DESCRIPTOR.contains(*f)).ok_or(Errno::EINVAL)
}

/// Splits the type argument: kind and file flags.
fn kind_and_flags(a: &Args) -> Result<(u32, OpenFlags)> {
    let t = a.u32(1);
    let flags = descriptor_flags(t & !0xf)?;
    if t & 0xf >= c::SOCK_MAX {
        return Err(Errno::EINVAL);
    }
    Ok((t & 0xf, flags))
}

/// Gives a socket a descriptor; closes it again if there is none.
fn install(a: &Args, ops: Arc<dyn SocketOps>, flags: OpenFlags) -> Result<i32> {
    let file = Socket::file(ops.clone(), flags);
    a.thread.files().insert(file, flags.contains(OpenFlags::CLOEXEC)).inspect_err(|_| ops.release())
}

fn socket(a: &Args) -> Result<u64> {
    let (kind, flags) = kind_and_flags(a)?;
    let domain = u16::try_from(a.i32(0)).map_err(|_| Errno::EAFNOSUPPORT)?;
    let ops: Arc<dyn SocketOps> = match domain {
        AF_UNIX => {
            if !matches!(a.i32(2), 0 | 1) {
                return Err(Errno::EPROTONOSUPPORT);
            }
            UnixSock::new(kind)?
        }
        AF_INET | AF_INET6 => inet_socket(a, domain, kind)?,
        AF_NETLINK if matches!(kind, c::SOCK_RAW | c::SOCK_DGRAM) => Netlink::new(kind, a.i32(2))?,
        AF_NETLINK => return Err(Errno::ESOCKTNOSUPPORT),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    Ok(install(a, ops, flags)? as u64)
}

fn inet_socket(a: &Args, domain: u16, kind: u32) -> Result<Arc<dyn SocketOps>> {
    const CAP_NET_RAW: u32 = 13;
    let protocol = a.i32(2);
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

fn socketpair(a: &Args) -> Result<u64> {
    let (kind, flags) = kind_and_flags(a)?;
    match a.i32(0) {
        1 => {}
        2 | 10 => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EAFNOSUPPORT),
    }
    if !matches!(a.i32(2), 0 | 1) {
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
    if let Err(e) = a.ptr(3).write(&[fd0, fd1]) {
        files.close(fd0)?;
        files.close(fd1)?;
        return Err(e.into());
    }
    Ok(0)
}

/// The address argument of bind and connect. To an IPv4 socket another family is wrong, however long its addresses.
fn address(a: &Args, domain: u16) -> Result<Addr> {
    let addr = read_addr(a.ptr(1), a.i32(2));
    if addr.is_err() && domain == AF_INET && a.i32(2) >= IPV4_SIZE && a.ptr(1).read::<u16>()? != AF_INET {
        return Err(Errno::EAFNOSUPPORT);
    }
    addr
}

fn bind(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let domain = s.ops.common().domain;
    let mut addr = address(a, domain)?;
    if addr == Addr::Unspec && domain == AF_INET {
        // Old programs leave the family out where they mean any address.
        let [_, port, ip @ ..]: [u16; 4] = a.ptr(1).read()?;
        let any = a.i32(2) >= IPV4_SIZE && ip == [0, 0];
        addr = if any { Addr::V4 { ip: [0; 4], port: u16::from_be(port) } } else { Addr::Other(0) };
    }
    s.ops.bind(&addr)?;
    Ok(0)
}

fn listen(a: &Args) -> Result<u64> {
    sock(a)?.ops.listen(a.i32(1))?;
    Ok(0)
}

fn accept(a: &Args) -> Result<u64> {
    do_accept(a, OpenFlags::empty())
}

fn accept4(a: &Args) -> Result<u64> {
    do_accept(a, a.flags_of(3, OpenFlags::DESCRIPTOR)?)
}

fn do_accept(a: &Args, flags: OpenFlags) -> Result<u64> {
    let s = sock(a)?;
    let new = s.ops.accept(s.nonblock())?;
    let fd = install(a, new.clone(), flags)?;
    if !a.ptr(1).is_null() {
        let stored = new.accepted_from().and_then(|r| write_addr(Some(&r), a.ptr(1), a.ptr(2)));
        if let Err(e) = stored {
            a.thread.files().close(fd)?;
            return Err(e);
        }
    }
    Ok(fd as u64)
}

fn connect(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    s.ops.connect(&address(a, s.ops.common().domain)?, s.nonblock())?;
    Ok(0)
}

fn getsockname(a: &Args) -> Result<u64> {
    let addr = sock(a)?.ops.local()?;
    write_addr(Some(&addr), a.ptr(1), a.ptr(2))?;
    Ok(0)
}

fn getpeername(a: &Args) -> Result<u64> {
    let addr = sock(a)?.ops.remote()?;
    write_addr(Some(&addr), a.ptr(1), a.ptr(2))?;
    Ok(0)
}

fn sendto(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let addr = if a.ptr(4).is_null() { None } else { Some(read_addr(a.ptr(4), a.i32(5))?) };
    let msg = SendMsg { addr, flags: a.u32(3) | wait_flag(&s.file), ..SendMsg::default() };
    let mut input = Input::user(a.ptr(1), a.len(2).min(MAX_RW_COUNT));
    Ok(s.send(&mut input, msg)? as u64)
}

/// A program's flags, with ours.
fn recv_flags(flags: u32, want_addr: bool) -> u32 {
    flags & !c::MSG_WANT_ADDR | if want_addr { c::MSG_WANT_ADDR } else { 0 }
}

fn recvfrom(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let mut out = Output::user(a.ptr(1), a.len(2).min(MAX_RW_COUNT));
    let r = s.ops.recv(&mut out, recv_flags(a.u32(3), !a.ptr(4).is_null()) | wait_flag(&s.file))?;
    if !a.ptr(4).is_null() {
        write_addr(r.addr.as_ref(), a.ptr(4), a.ptr(5))?;
    }
    Ok(r.len as u64)
}

fn send_one(a: &Args, s: &Sock, at: UserPtr, flags: u32) -> Result<usize> {
    let h: MsgHdr = at.read()?;
    let (mut input, msg) = h.for_send(&**a.thread, flags | wait_flag(&s.file), s.is_unix())?;
    s.send(&mut input, msg)
}

fn sendmsg(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    Ok(send_one(a, &s, a.ptr(1), a.u32(2))? as u64)
}

fn sendmmsg(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let n = a.u32(2).min(UIO_MAXIOV);
    for i in 0..n {
        let at = a.ptr(1).add(u64::from(i) * MMSGHDR);
        let sent = send_one(a, &s, at, a.u32(3))
            .and_then(|len| at.add(56).write(&(len as u32)).map_err(Errno::from));
        match sent {
            Ok(()) => {}
            Err(_) if i > 0 => return Ok(u64::from(i)),
            Err(e) => return Err(e),
        }
    }
    Ok(u64::from(n))
}

fn recv_one(s: &Sock, at: UserPtr, flags: u32) -> Result<usize> {
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

fn recvmsg(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    Ok(recv_one(&s, a.ptr(1), a.u32(2))? as u64)
}

fn recvmmsg(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let n = a.u32(2).min(UIO_MAXIOV);
    let mut flags = a.u32(3);
    let deadline = if a.ptr(4).is_null() {
        None
    } else {
        let [sec, nsec]: [i64; 2] = a.ptr(4).read()?;
        if sec < 0 || !(0..1_000_000_000).contains(&nsec) {
            return Err(Errno::EINVAL);
        }
        let ns = (sec as u64).saturating_mul(1_000_000_000).saturating_add(nsec as u64);
        Some(time::monotonic_ns().saturating_add(ns))
    };
    let mut got = 0;
    while got < n {
        let at = a.ptr(1).add(u64::from(got) * MMSGHDR);
        let one = recv_one(&s, at, flags & !c::MSG_WAITFORONE)
            .and_then(|len| at.add(56).write(&(len as u32)).map_err(Errno::from));
        match one {
            Ok(()) => got += 1,
            Err(_) if got > 0 => break,
            Err(e) => return Err(e),
        }
        if flags & c::MSG_WAITFORONE != 0 {
            flags |= c::MSG_DONTWAIT;
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

fn shutdown(a: &Args) -> Result<u64> {
    let s = sock(a)?;
    let how = match a.number(1)? {
        Shut::Read => c::RCV_SHUTDOWN,
        Shut::Write => c::SEND_SHUTDOWN,
        Shut::Both => c::RCV_SHUTDOWN | c::SEND_SHUTDOWN,
    };
    s.ops.shutdown(how)?;
    Ok(0)
}

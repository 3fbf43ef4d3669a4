//! Open sockets as files, and the trait protocols implement.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use doppel_algo::net::sockaddr::{AF_UNIX, Addr};
use doppel_machine::user::UserPtr;

use super::Common;
use super::consts::{self as c, MsgFlags, Shutdown};
use super::unix::scm::{Fds, Ucred, descriptor_closing};
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::sigio::Owner;
use crate::objects::vfs::{File, FileOps, FileType, Input, Output, Stat};
use crate::{Errno, Result};

/// What goes with the bytes of a send.
#[derive(Default)]
pub struct SendMsg {
    /// Destination, if one was given.
    pub addr: Option<Addr>,
    /// Flags; DONTWAIT is set for non-blocking files too.
    pub flags: MsgFlags,
    /// Descriptors (SCM_RIGHTS).
    pub fds: Option<Fds>,
    /// Credentials (SCM_CREDENTIALS), checked.
    pub cred: Option<Ucred>,
    /// Hop limit and traffic class of this packet (IP_TTL, IP_TOS, IPV6_HOPLIMIT, IPV6_TCLASS).
    pub marks: Marks,
    /// Address it shall come from, and interface it shall take (IP_PKTINFO, IPV6_PKTINFO).
    pub source: Option<[u8; 16]>,
    /// See `source`; 0 for any.
    pub index: u32,
    /// Bytes of each datagram it is cut into (UDP_SEGMENT), 0 for one.
    pub segment: u16,
}

/// Fields of an IP header that control messages can set; -1 is the socket's own value.
#[derive(Clone, Copy)]
pub struct Marks {
    /// Time to live.
    pub hops: i32,
    /// Type of service.
    pub class: i32,
}

impl Default for Marks {
    fn default() -> Self {
        Self { hops: -1, class: -1 }
    }
}

/// What comes with the bytes of a receive.
#[derive(Default)]
pub struct Received {
    /// The call's result: bytes stored, or with MSG_TRUNC the message's length.
    pub len: usize,
    /// Source address, if there is one to tell.
    pub addr: Option<Addr>,
    /// TRUNC and the like, for `msg_flags`.
    pub flags: MsgFlags,
    /// Descriptors.
    pub fds: Option<Fds>,
    /// Sender's credentials.
    pub cred: Option<Ucred>,
    /// Further control messages: level, type, data.
    pub control: Vec<(i32, i32, Vec<u8>)>,
}

/// What a protocol does. Calls that may wait take the flags (MSG_DONTWAIT) or `nonblock`.
pub trait SocketOps: Any + Send + Sync {
    /// Options, error, queues.
    fn common(&self) -> &Common;

    /// `bind(2)`
    fn bind(&self, addr: &Addr) -> Result<()>;

    /// `listen(2)`
    fn listen(&self, _backlog: i32) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `connect(2)`
    fn connect(&self, addr: &Addr, nonblock: bool) -> Result<()>;

    /// `accept(2)`
    fn accept(&self, _nonblock: bool) -> Result<Arc<dyn SocketOps>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `getsockname(2)`
    fn local(&self) -> Result<Addr>;

    /// `getpeername(2)`
    fn remote(&self) -> Result<Addr>;

    /// Address accept tells: the peer's, even if it has gone since.
    fn accepted_from(&self) -> Result<Addr> {
        self.remote()
    }

    /// Sends. EPIPE becomes SIGPIPE in the caller.
    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize>;

    /// Receives.
    fn recv(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received>;

    /// `shutdown(2)`: `how` are the sides that are meant.
    fn shutdown(&self, how: Shutdown) -> Result<()>;

    /// Events that hold; registers first if `table` is given.
    fn poll(&self, table: Option<&mut PollTable>) -> PollEvents;

    /// A protocol's own option.
    fn get_option(&self, _level: i32, _name: i32) -> Result<Vec<u8>> {
        Err(Errno::ENOPROTOOPT)
    }

    /// An option that says by its argument what is asked for; `None` if it is none of these.
    fn ask_option(&self, _level: i32, _name: i32, _asked: &[u8]) -> Option<Result<Vec<u8>>> {
        None
    }

    /// See [`Self::get_option`].
    fn set_option(&self, _level: i32, _name: i32, _value: &[u8]) -> Result<()> {
        Err(Errno::ENOPROTOOPT)
    }

    /// A switch, a buffer or the priority (SOL_SOCKET) has another value now.
    fn switched(&self, _option: i32) {}

    /// Whether it listens (SO_ACCEPTCONN).
    fn listening(&self) -> bool {
        false
    }

    /// SO_PEERCRED
    fn peer_cred(&self) -> Option<Ucred> {
        None
    }

    /// Bytes that can be read now (FIONREAD).
    fn readable_bytes(&self) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Bytes sent and not taken yet (SIOCOUTQ).
    fn unsent_bytes(&self) -> Result<usize> {
        Ok(self.common().wmem.load(core::sync::atomic::Ordering::Relaxed))
    }

    /// Whether the read position is at the urgent mark (SIOCATMARK).
    fn at_mark(&self) -> Result<bool> {
        Err(Errno::EINVAL)
    }

    /// The last descriptor is gone.
    fn release(&self);
}

/// An open socket.
pub struct Socket {
    /// The protocol's side.
    pub ops: Arc<dyn SocketOps>,
}

impl Socket {
    /// A file for `ops`; `flags` are O_NONBLOCK or none.
    pub fn file(ops: Arc<dyn SocketOps>, flags: OpenFlags) -> Arc<File> {
        let name = format!("socket:[{}]", ops.common().ino);
        File::anon(Arc::new(Self { ops }), name, OpenFlags::RDWR | (flags & OpenFlags::NONBLOCK))
    }

    /// Sends; on streams EPIPE comes with SIGPIPE unless the flags say otherwise.
    pub fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        let quiet = msg.flags.contains(MsgFlags::NOSIGNAL);
        let r = self.ops.send(input, msg);
        if r == Err(Errno::EPIPE) && !quiet && self.ops.common().kind == c::SOCK_STREAM {
            crate::core::subject::subject().raise(doppel_abi_linux::signal::sig::SIGPIPE);
        }
        r
    }
}

/// MSG_DONTWAIT if the file is non-blocking.
pub fn wait_flag(file: &File) -> MsgFlags {
    MsgFlags::DONTWAIT.when(file.nonblocking())
}

impl FileOps for Socket {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        if out.remaining() == 0 {
            return Ok(0);
        }
        let r = self.ops.recv(out, wait_flag(file))?;
        Ok(r.len)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        self.send(input, SendMsg { flags: wait_flag(file), ..SendMsg::default() })
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        self.ops.poll(table)
    }

    fn urgent(&self) -> bool {
        true
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        let int = |v: i32| File::copy_out(arg, &v);
        match cmd {
            c::FIONREAD => int(self.ops.readable_bytes()?.min(i32::MAX as usize) as i32),
            c::SIOCOUTQ => int(self.ops.unsent_bytes()?.min(i32::MAX as usize) as i32),
            c::SIOCATMARK => int(i32::from(self.ops.at_mark()?)),
            c::FIOGETOWN | c::SIOCGPGRP => int(file.sigio.owner().number()),
            c::FIOSETOWN | c::SIOCSPGRP => {
                let who: i32 = UserPtr(arg).read()?;
                file.sigio.set_owner(file, Owner::from_number(who)?);
                Ok(0)
            }
            _ => super::ioctl::ioctl(cmd, arg),
        }
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Stat {
            dev: 8,
            ino: self.ops.common().ino,
            mode: FileType::Socket as u32 | 0o777,
            uid: self.ops.common().uid,
            ..Stat::anonymous()
        })
    }

    fn parting(&self, file: &File) {
        if self.ops.common().domain == AF_UNIX {
            descriptor_closing(file);
        }
    }

    fn release(&self, _file: &File) {
        self.ops.release();
    }
}

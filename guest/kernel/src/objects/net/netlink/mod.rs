//! AF_NETLINK, NETLINK_ROUTE only (`rtnetlink(7)`): what `getifaddrs`, `if_nameindex` and `ip` ask.
//!
//! Key type: [`Netlink`]. A request is answered while it is sent; the answers wait in the socket's queue.
//! Nothing can be changed (EPERM), nothing ever changes by itself, so there are no multicast messages.

mod route;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_algo::net::sockaddr::{AF_NETLINK, Addr};
use doppel_machine::sync::SpinLock;

use super::Common;
use super::common::wait;
use super::consts::{MsgFlags, SOL_NETLINK, Shutdown};
use super::options::int;
use super::socket::{Received, SendMsg, SocketOps};
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// Longest request taken.
const REQUEST_MAX: usize = 64 * 1024;
/// Most answers that wait.
const QUEUE_MAX: usize = 256;

struct Inner {
    pid: u32,
    groups: u32,
    peer: (u32, u32),
    pub(crate) queue: VecDeque<Arc<Vec<u8>>>,
}

/// A NETLINK_ROUTE socket.
pub struct Netlink {
    common: Common,
    inner: SpinLock<Inner>,
}

impl Netlink {
    /// A new socket; EPROTONOSUPPORT for other protocols.
    pub fn new(kind: u32, protocol: i32) -> Result<Arc<Self>> {
        if protocol != 0 {
            return Err(Errno::EPROTONOSUPPORT);
        }
        Ok(Arc::new(Self {
            common: Common::new(AF_NETLINK, kind, protocol),
            inner: SpinLock::new(Inner { pid: 0, groups: 0, peer: (0, 0), queue: VecDeque::new() }),
        }))
    }

    /// The port id, chosen if there is none yet: the process id if this looks like its first socket.
    fn port(&self) -> u32 {
        let mut i = self.inner.lock();
        if i.pid == 0 {
            // Any unique number will do; inode numbers are unique.
            i.pid = if self.common.ino <= u64::from(u32::MAX >> 1) {
                self.common.ino as u32 | 1 << 31
            } else {
                crate::core::subject::pid() as u32
            };
        }
        i.pid
    }
}

impl SocketOps for Netlink {
    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, addr: &Addr) -> Result<()> {
        let Addr::Netlink { pid, groups } = addr else { return Err(Errno::EINVAL) };
        {
            let mut i = self.inner.lock();
            if i.pid != 0 && *pid != 0 && i.pid != *pid {
                return Err(Errno::EINVAL);
            }
            i.groups = *groups;
            if *pid != 0 {
                i.pid = *pid;
                return Ok(());
            }
        }
        self.port();
        Ok(())
    }

    fn connect(&self, addr: &Addr, _nonblock: bool) -> Result<()> {
        let peer = match addr {
            Addr::Unspec => (0, 0),
            Addr::Netlink { pid, groups } => (*pid, *groups),
            _ => return Err(Errno::EINVAL),
        };
        self.inner.lock().peer = peer;
        self.port();
        Ok(())
    }

    fn local(&self) -> Result<Addr> {
        let i = self.inner.lock();
        Ok(Addr::Netlink { pid: i.pid, groups: i.groups })
    }

    fn remote(&self) -> Result<Addr> {
        let (pid, groups) = self.inner.lock().peer;
        Ok(Addr::Netlink { pid, groups })
    }

    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        match msg.addr {
            None | Some(Addr::Netlink { pid: 0, .. }) => {}
            Some(Addr::Netlink { .. }) => return Err(Errno::ECONNREFUSED),
            Some(_) => return Err(Errno::EINVAL),
        }
        let len = input.remaining();
        if len > REQUEST_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let mut request = Vec::with_capacity(len);
        if len > 0 && input.append(&mut request, len)? < len {
            return Err(Errno::EFAULT);
        }
        let answers = route::answer(&request, self.port());
        if !answers.is_empty() {
            let mut i = self.inner.lock();
            if i.queue.len() + answers.len() > QUEUE_MAX {
                return Err(Errno::ENOBUFS);
            }
            i.queue.extend(answers.into_iter().map(Arc::new));
            drop(i);
            self.common.wake_read(PollEvents::READABLE);
        }
        Ok(len)
    }

    fn recv(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        let peek = flags.contains(MsgFlags::PEEK);
        let m =
            wait(&self.common.rq, flags.contains(MsgFlags::DONTWAIT), self.common.recv_deadline(), || {
                let mut i = self.inner.lock();
                let m = if peek { i.queue.front().cloned() } else { i.queue.pop_front() };
                m.map(Ok)
            })?;
        let n = m.len().min(out.remaining());
        if n > 0 && out.write(&m[..n])? < n {
            return Err(Errno::EFAULT);
        }
        let mut r = Received { len: n, ..Received::default() };
        r.addr = Some(Addr::Netlink { pid: 0, groups: 0 });
        if n < m.len() {
            r.flags |= MsgFlags::TRUNC;
            if flags.contains(MsgFlags::TRUNC) {
                r.len = m.len();
            }
        }
        Ok(r)
    }

    fn shutdown(&self, _how: Shutdown) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn poll(&self, table: Option<&mut PollTable>) -> PollEvents {
        self.common.register(table);
        let readable = !self.inner.lock().queue.is_empty();
        PollEvents::WRITABLE | PollEvents::READABLE.when(readable)
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        // NETLINK_PKTINFO and its like are off.
        if level == SOL_NETLINK && (1..=12).contains(&name) {
            return Ok(0i32.to_ne_bytes().to_vec());
        }
        Err(Errno::ENOPROTOOPT)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level == SOL_NETLINK && (1..=12).contains(&name) {
            return int(value).map(|_| ());
        }
        Err(Errno::ENOPROTOOPT)
    }

    fn release(&self) {
        self.inner.lock().queue.clear();
    }
}

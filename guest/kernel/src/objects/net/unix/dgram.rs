//! Messages: AF_UNIX datagram and seqpacket sockets.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::bpf::Kind;
use doppel_algo::net::sockaddr::{Addr, UnixName};

use super::scm::{Fds, Peeked, Ucred};
use super::{MAX_DGRAM_QLEN, State, UnixSock, names};
use crate::core::sched::PollEvents;
use crate::core::time;
use crate::objects::net::common::{MSG_OVERHEAD, wait};
use crate::objects::net::consts::{MsgFlags, SOCK_DGRAM, Shutdown};
use crate::objects::net::filter;
use crate::objects::net::socket::{Received, SendMsg};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// A queued message.
pub(super) struct Message {
    pub(crate) data: Arc<Vec<u8>>,
    cred: Ucred,
    pub(super) fds: Option<Fds>,
    from: Arc<UnixName>,
    _charge: Charge,
}

/// A message's size, counted against its sender until it is dropped.
struct Charge {
    sender: Arc<UnixSock>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sender.common.uncharge(self.bytes);
    }
}

impl UnixSock {
    /// EPERM if this socket is connected to somebody else.
    pub(super) fn may_receive_from(&self, from: &UnixSock) -> Result<()> {
        let i = self.inner.lock();
        match &i.peer {
            Some(p) if !core::ptr::eq(Arc::as_ptr(p), from) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// Whether a sender must wait for this socket's queue. Two sockets connected to each other only wait for
    /// buffer space.
    pub(super) fn queue_full_for(&self, from: &UnixSock) -> bool {
        let i = self.inner.lock();
        i.messages.len() > MAX_DGRAM_QLEN
            && !i.peer.as_ref().is_some_and(|p| core::ptr::eq(Arc::as_ptr(p), from))
    }
}

fn target(s: &UnixSock, msg: &SendMsg) -> Result<Arc<UnixSock>> {
    if s.common.kind != SOCK_DGRAM {
        let i = s.inner.lock();
        return i.peer.clone().filter(|_| i.state == State::Connected).ok_or(Errno::ENOTCONN);
    }
    match &msg.addr {
        Some(Addr::Unix(name)) => {
            let t = names::find(name)?;
            if t.common.kind == SOCK_DGRAM { Ok(t) } else { Err(Errno::EPROTOTYPE) }
        }
        Some(_) => Err(Errno::EINVAL),
        None => s.inner.lock().peer.clone().ok_or(Errno::ENOTCONN),
    }
}

/// Sends one message.
pub(super) fn send(s: &UnixSock, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
    let nonblock = msg.flags.contains(MsgFlags::DONTWAIT);
    if let Some(e) = s.common.take_error() {
        return Err(e);
    }
    let t = target(s, &msg)?;
    if s.wants_cred() {
        s.autobind()?;
    }
    let len = input.remaining();
    if len > s.common.sndbuf.load(Ordering::Relaxed).saturating_sub(32) {
        return Err(Errno::EMSGSIZE);
    }
    let mut data = Vec::with_capacity(len);
    if len > 0 && input.append(&mut data, len)? < len {
        return Err(Errno::EFAULT);
    }
    if filter::is_set(&t.common) {
        match filter::judge(&t.common, &data, 0, Kind::default()) {
            // Whoever sends is not told.
            None => return Ok(len),
            Some(kept) => data.truncate(kept),
        }
    }
    let deadline = s.common.send_deadline();
    let shut = || (s.inner.lock().shut.contains(Shutdown::SEND)).then_some(Err(Errno::EPIPE));
    wait(&s.common.wq, nonblock, deadline, || {
        shut().or_else(|| (s.common.send_room() > 0).then_some(Ok(())))
    })?;
    let me = s.me();
    let cost = len + MSG_OVERHEAD;
    s.common.charge(cost);
    let cred = s.sender(&t, msg.cred);
    let charge = Charge { sender: me.clone(), bytes: cost };
    let mut m = Some(Message { data: Arc::new(data), cred, fds: msg.fds, from: s.name(), _charge: charge });
    let dgram = s.common.kind == SOCK_DGRAM;
    let r = wait(&t.space, nonblock, deadline, || {
        let mut i = t.inner.lock();
        if i.state == State::Dead {
            return Some(Err(if dgram { Errno::ECONNREFUSED } else { Errno::EPIPE }));
        }
        let mutual = i.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, &me));
        if dgram && i.peer.is_some() && !mutual {
            return Some(Err(Errno::EPERM));
        }
        if i.shut.contains(Shutdown::RECEIVE) {
            return Some(Err(Errno::EPIPE));
        }
        if i.messages.len() > MAX_DGRAM_QLEN && !mutual {
            return None;
        }
        i.messages.extend(m.take());
        Some(Ok(()))
    });
    drop(m);
    if r == Err(Errno::ECONNREFUSED) && msg.addr.is_none() {
        // The peer is gone: no longer connected.
        let old = s.inner.lock().peer.take();
        drop(old);
    }
    r?;
    t.common.wake_read(PollEvents::READABLE | PollEvents::RDBAND);
    Ok(len)
}

/// Receives one message.
pub(super) fn recv(s: &UnixSock, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    let nonblock = flags.contains(MsgFlags::DONTWAIT);
    let peek = flags.contains(MsgFlags::PEEK);
    let dgram = s.common.kind == SOCK_DGRAM;
    if !dgram && s.inner.lock().state != State::Connected {
        return Err(Errno::ENOTCONN);
    }
    let peek_off = s.common.peek_off.load(Ordering::Relaxed);
    let mut peeked = None;
    let got = wait(&s.common.rq, nonblock, s.common.recv_deadline(), || {
        let mut i = s.inner.lock();
        if peek {
            if let Some(m) = i.messages.front() {
                peeked = m.fds.as_ref().map(Fds::duplicate);
                return Some(Ok(Some((m.data.clone(), m.cred, m.from.clone(), None, None))));
            }
        } else if let Some(mut m) = i.messages.pop_front() {
            let fds = m.fds.take();
            return Some(Ok(Some((m.data.clone(), m.cred, m.from.clone(), fds, Some(m)))));
        }
        if let Some(e) = s.common.take_error() {
            return Some(Err(e));
        }
        (i.shut.contains(Shutdown::RECEIVE)).then_some(Ok(None))
    })?;
    let peeked = peeked.map(Peeked::register);
    let Some((data, cred, from, fds, taken)) = got else { return Ok(Received::default()) };
    if taken.is_some() {
        drop(taken);
        s.space.wake_all(PollEvents::OUT);
    }
    let skip = if peek { peek_off.max(0) as usize } else { 0 }.min(data.len());
    let data = &data[skip..];
    let n = data.len().min(out.remaining());
    if n > 0 && out.write(&data[..n])? < n {
        return Err(Errno::EFAULT);
    }
    if peek_off >= 0 {
        let next = if peek { peek_off + n as i32 } else { (peek_off - data.len() as i32).max(0) };
        s.common.peek_off.store(next, Ordering::Relaxed);
    }
    let truncated = n < data.len();
    let mut r = Received { len: n, cred: Some(cred), fds: fds.or(peeked), ..Received::default() };
    if truncated {
        r.flags |= MsgFlags::TRUNC;
        if flags.contains(MsgFlags::TRUNC) {
            r.len = data.len();
        }
    }
    s.common.stamp(time::realtime_ns, &mut r.control);
    r.addr = (*from != UnixName::Unnamed).then(|| Addr::Unix((*from).clone()));
    Ok(r)
}

//! The bytes of TCP connections inside the domain.
//!
//! As on AF_UNIX streams, a writer fills a chunk outside every lock and queues it at the receiver; a reader
//! takes references under the lock and copies afterwards.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::net::stream::{Chunk, SMALL};

use super::transport::Transport;
use super::{BOTH, Inner, RCVBUF, State, Tcp};
use crate::core::sched::PollEvents;
use crate::objects::net::common::wait;
use crate::objects::net::consts::{MsgFlags, SO_OOBINLINE, Shutdown};
use crate::objects::net::socket::{Received, SendMsg};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// Most bytes of one chunk.
const CHUNK: usize = 32 * 1024;
const READABLE: PollEvents = PollEvents::READABLE;

/// Both ends are in this domain.
pub(super) struct Inside;

impl Transport for Inside {
    fn send(&self, s: &Tcp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
        send(s, input, msg)
    }

    fn receive(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        recv(s, out, flags)
    }

    fn receive_urgent(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        recv_urgent(s, out, flags)
    }

    fn events(&self, s: &Tcp, i: &Inner) -> PollEvents {
        let mut ev = PollEvents::empty();
        if i.shut == BOTH || matches!(i.state, State::Closed | State::Dead) {
            ev |= PollEvents::HUP;
        }
        if i.shut.contains(Shutdown::RECEIVE) {
            ev |= READABLE | PollEvents::RDHUP;
        }
        if i.state != State::Connecting {
            let lowat = s.common.rcvlowat.load(Ordering::Relaxed).max(1) as usize;
            if i.recv.len() >= lowat.min(RCVBUF) {
                ev |= READABLE;
            }
            if i.shut.contains(Shutdown::SEND) || s.common.writable() {
                ev |= PollEvents::WRITABLE;
            }
            if i.urgent.is_some() {
                ev |= PollEvents::PRI;
            }
        }
        ev
    }

    fn readable_bytes(&self, _s: &Tcp, i: &Inner) -> usize {
        i.recv.len()
    }

    fn unsent_bytes(&self) -> usize {
        // Everything is acknowledged as soon as it is in the peer's queue.
        0
    }

    fn bytes_before_mark(&self, i: &Inner) -> Option<usize> {
        i.mark
    }

    fn ended(&self, i: &Inner) -> bool {
        i.fin
    }

    fn shut(&self, _how: Shutdown) {
        // The other end reads it from this one.
    }
}

/// Sends all of `input`.
fn send(s: &Tcp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
    let nonblock = msg.flags.contains(MsgFlags::DONTWAIT);
    let deadline = s.common.send_deadline();
    if input.remaining() == 0 {
        return state(s).unwrap_or(Ok(None)).map(|_| 0);
    }
    // The last byte of an urgent send is the urgent one.
    let urgent = msg.flags.contains(MsgFlags::OOB);
    while input.remaining() > 0 {
        let sent = input.done();
        match send_some(s, input, nonblock, deadline, urgent) {
            Ok(()) => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(e) => return Err(e),
        }
    }
    Ok(input.done())
}

/// Whether sending can go on: the peer, an error, or `None` while the connection is being made.
fn state(s: &Tcp) -> Option<Result<Option<Arc<Tcp>>>> {
    if let Some(e) = s.common.take_error() {
        return Some(Err(e));
    }
    let i = s.inner.lock();
    match i.state {
        State::Established if !i.shut.contains(Shutdown::SEND) => Some(Ok(i.peer.clone())),
        State::Connecting => None,
        _ => Some(Err(Errno::EPIPE)),
    }
}

fn send_some(
    s: &Tcp,
    input: &mut Input<'_>,
    nonblock: bool,
    deadline: Option<u64>,
    urgent: bool,
) -> Result<()> {
    let (peer, room) = wait(&s.common.wq, nonblock, deadline, || match state(s)? {
        Err(e) => Some(Err(e)),
        Ok(peer) => Some(s.common.send_room()).filter(|r| *r > 0).map(|r| Ok((peer, r))),
    })?;
    let Some(peer) = peer else { return Err(Errno::EPIPE) };
    let n = input.remaining().min(CHUNK).min(room.max(SMALL));
    let small = n <= SMALL && !urgent;
    let mut chunk = Vec::new();
    if !small {
        chunk.reserve_exact(n);
        input.append(&mut chunk, n)?;
    }
    let mut i = peer.inner.lock();
    if i.state == State::Dead {
        drop(i);
        if small {
            // Taken from the program all the same.
            chunk.reserve_exact(n);
            input.append(&mut chunk, n)?;
        }
        // The peer has closed its socket: these bytes bring a reset.
        s.broken();
        peer.wait_no_more();
        return Ok(());
    }
    let sent = if small {
        i.recv.append(|()| true, || (), |v, room| input.append(v, n.min(room)))?
    } else {
        let sent = chunk.len();
        if urgent && input.remaining() == 0 {
            i.mark = Some(i.recv.len() + sent - 1);
            if !peer.common.on(SO_OOBINLINE) {
                i.urgent = chunk.pop();
            }
        }
        i.recv.push(Chunk::new(chunk, ()));
        sent
    };
    let kept_by = i.kept_by.take();
    // An urgent byte kept aside does not occupy the queue.
    let queued = if i.urgent.is_some() && urgent && input.remaining() == 0 { sent - 1 } else { sent };
    s.common.charge(queued);
    drop(i);
    if let Some(l) = kept_by {
        peer.let_in(&l);
    }
    peer.common.wake_read(if urgent { READABLE | PollEvents::PRI } else { READABLE });
    Ok(())
}

/// Receives up to what `out` takes.
fn recv(s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    let mut r = Received::default();
    let want = out.remaining();
    let nonblock = flags.contains(MsgFlags::DONTWAIT);
    let lowat = s.common.rcvlowat.load(Ordering::Relaxed).max(1) as usize;
    let target = if flags.contains(MsgFlags::WAITALL) { want } else { lowat.min(want) };
    let deadline = s.common.recv_deadline();
    let discard = flags.contains(MsgFlags::TRUNC);
    // With MSG_PEEK and MSG_WAITALL the bytes stay, so wait until enough are there.
    let need = if flags.contains(MsgFlags::PEEK) { target } else { 1 };
    loop {
        match wait(&s.common.rq, nonblock, deadline, || ready(s, need)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) if r.len > 0 => break,
            Err(e) => return Err(e),
        }
        if discard {
            let peer = s.peer();
            let mut i = s.inner.lock();
            let n = i.recv.len().min(want - r.len);
            r.len += n;
            if flags.contains(MsgFlags::PEEK) {
                break;
            }
            i.recv.consume(n);
            i.mark = i.mark.and_then(|m| m.checked_sub(n));
            drop(i);
            if let Some(p) = peer {
                p.common.uncharge(n);
            }
        } else if !move_some(s, out, &mut r, flags.contains(MsgFlags::PEEK))? {
            break;
        }
        if r.len >= target || flags.contains(MsgFlags::PEEK) {
            break;
        }
    }
    Ok(r)
}

/// `Some(Ok(true))` when there are bytes, `Some(Ok(false))` at the end.
fn ready(s: &Tcp, need: usize) -> Option<Result<bool>> {
    let i = s.inner.lock();
    if i.recv.len() >= need || (!i.recv.is_empty() && i.shut.contains(Shutdown::RECEIVE)) {
        return Some(Ok(true));
    }
    // The end is the end, also of a connection that was reset after it.
    if i.fin {
        return Some(Ok(false));
    }
    if let Some(e) = s.common.take_error() {
        return Some(Err(e));
    }
    if i.shut.contains(Shutdown::RECEIVE) {
        return Some(Ok(false));
    }
    match i.state {
        State::Established | State::Connecting => None,
        _ => Some(Err(Errno::ENOTCONN)),
    }
}

/// Copies out a single short chunk under the lock; `None` if the queue is not like that, false after a fault.
fn move_short(s: &Tcp, out: &mut Output<'_>, r: &mut Received) -> Result<Option<bool>> {
    let (copied, fault, peer) = {
        let mut i = s.inner.lock();
        let Some(first) = i.recv.front() else { return Ok(None) };
        if i.mark.is_some() || first.len() > SMALL || i.recv.len() != first.len() {
            return Ok(None);
        }
        let n = first.len().min(out.remaining());
        let copied = out.write(&first.bytes()[..n]).unwrap_or(0);
        i.recv.consume(copied);
        (copied, copied < n, i.peer.clone())
    };
    r.len += copied;
    if let Some(p) = peer {
        p.common.uncharge(copied);
    }
    if fault && r.len == 0 { Err(Errno::EFAULT) } else { Ok(Some(!fault)) }
}

/// Copies what is there to `out`; false if the call must end (a fault after some bytes, the urgent mark).
fn move_some(s: &Tcp, out: &mut Output<'_>, r: &mut Received, peek: bool) -> Result<bool> {
    if !peek && let Some(go_on) = move_short(s, out, r)? {
        return Ok(go_on);
    }
    let mut parts: Vec<Chunk<()>> = Vec::new();
    let mut bytes = 0;
    let mut want = out.remaining();
    let mut at_mark = false;
    let peer = {
        let mut i = s.inner.lock();
        // A read stops at the urgent mark; one that starts there passes it.
        match i.mark {
            Some(0) if !peek => i.mark = None,
            Some(m) if m > 0 && m < want => {
                want = m;
                at_mark = true;
            }
            _ => {}
        }
        if peek {
            for c in i.recv.iter() {
                if bytes == want {
                    break;
                }
                let p = c.prefix(want - bytes, ());
                bytes += p.len();
                parts.push(p);
            }
        } else {
            while bytes < want {
                let Some(p) = i.recv.take(want - bytes, |()| ()) else { break };
                bytes += p.len();
                parts.push(p);
            }
            i.mark = i.mark.and_then(|m| m.checked_sub(bytes));
        }
        i.peer.clone()
    };
    let mut copied = 0;
    let mut fault = false;
    let mut parts = parts.into_iter();
    while let Some(mut p) = parts.next() {
        let n = out.write(p.bytes()).unwrap_or(0);
        copied += n;
        if n < p.len() {
            fault = true;
            if !peek {
                p.skip(n);
                let mut back: Vec<_> = core::iter::once(p).chain(parts).collect();
                let mut i = s.inner.lock();
                while let Some(p) = back.pop() {
                    i.recv.unread(p);
                }
            }
            break;
        }
    }
    if let Some(p) = peer.filter(|_| !peek) {
        p.common.uncharge(copied);
    }
    r.len += copied;
    if fault && r.len == 0 {
        return Err(Errno::EFAULT);
    }
    Ok(!fault && !at_mark)
}

fn recv_urgent(s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    let byte = {
        let mut i = s.inner.lock();
        let b = if flags.contains(MsgFlags::PEEK) { i.urgent } else { i.urgent.take() };
        b.ok_or(Errno::EINVAL)?
    };
    let len = if out.remaining() > 0 { out.write(&[byte])? } else { 0 };
    Ok(Received { len, flags: MsgFlags::OOB, ..Received::default() })
}

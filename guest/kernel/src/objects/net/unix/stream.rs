//! Sending and receiving on AF_UNIX stream sockets.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_algo::net::sockaddr::{Addr, UnixName};
use doppel_algo::net::stream::{Chunk, SMALL};

use super::scm::{Fds, Peeked, Ucred};
use super::{Mark, State, UnixSock};
use crate::core::sched::PollEvents;
use crate::objects::net::common::wait;
use crate::objects::net::consts::{MsgFlags, Shutdown};
use crate::objects::net::socket::{Received, SendMsg};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// Most bytes of one chunk.
const CHUNK: usize = 32 * 1024;

/// Sends all of `input`, waiting for room as needed.
pub(super) fn send(s: &UnixSock, input: &mut Input<'_>, mut msg: SendMsg) -> Result<usize> {
    let nonblock = msg.flags.contains(MsgFlags::DONTWAIT);
    let peer = {
        let i = s.inner.lock();
        if msg.addr.is_some() {
            return Err(if i.state == State::Connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        match &i.peer {
            Some(p) if i.state == State::Connected => p.clone(),
            _ => return Err(Errno::ENOTCONN),
        }
    };
    let cred = s.sender(&peer, msg.cred);
    let deadline = s.common.send_deadline();
    while input.remaining() > 0 {
        let sent = input.done();
        match send_some(s, &peer, input, cred, &mut msg.fds, nonblock, deadline) {
            Ok(()) => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(e) => return Err(e),
        }
    }
    Ok(input.done())
}

fn pipe_state(s: &UnixSock, peer: &UnixSock) -> Result<()> {
    if s.inner.lock().shut.contains(Shutdown::SEND) {
        return Err(Errno::EPIPE);
    }
    let p = peer.inner.lock();
    if p.shut.contains(Shutdown::RECEIVE) || p.state == State::Dead { Err(Errno::EPIPE) } else { Ok(()) }
}

/// Queues one chunk.
fn send_some(
    s: &UnixSock,
    peer: &Arc<UnixSock>,
    input: &mut Input<'_>,
    cred: Ucred,
    fds: &mut Option<Fds>,
    nonblock: bool,
    deadline: Option<u64>,
) -> Result<()> {
    let room = wait(&s.common.wq, nonblock, deadline, || match pipe_state(s, peer) {
        Err(e) => Some(Err(e)),
        Ok(()) => Some(s.common.send_room()).filter(|r| *r > 0).map(Ok),
    })?;
    let n = input.remaining().min(CHUNK).min(room.max(SMALL));
    let sent = if n <= SMALL && fds.is_none() {
        let mut i = peer.inner.lock();
        if i.shut.contains(Shutdown::RECEIVE) {
            return Err(Errno::EPIPE);
        }
        let sent = i.stream.append(
            |m| m.fds.is_none() && m.cred == cred,
            || Mark { cred, fds: None },
            |v, room| input.append(v, n.min(room)),
        )?;
        s.common.charge(sent);
        sent
    } else {
        let mut v = Vec::with_capacity(n);
        let sent = input.append(&mut v, n)?;
        let mut i = peer.inner.lock();
        if i.shut.contains(Shutdown::RECEIVE) {
            return Err(Errno::EPIPE);
        }
        i.stream.push(Chunk::new(v, Mark { cred, fds: fds.take() }));
        s.common.charge(sent);
        sent
    };
    if sent > 0 {
        peer.common.wake_read(PollEvents::READABLE | PollEvents::RDBAND);
    }
    Ok(())
}

/// A part taken off the queue.
type Part = Chunk<()>;

/// What one pass over the queue found.
#[derive(Default)]
struct Pass {
    parts: Vec<Part>,
    bytes: usize,
    cred: Option<Ucred>,
    fds: Option<Fds>,
    /// Descriptors came with the last part: the call ends here.
    stop: bool,
}

/// Receives up to what `out` takes; waits for the first byte, or with MSG_WAITALL for all.
pub(super) fn recv(s: &UnixSock, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    let mut r = Received::default();
    // Who wants no bytes waits for some all the same, and takes the descriptors that come with them.
    let want = out.remaining();
    let nonblock = flags.contains(MsgFlags::DONTWAIT);
    let lowat = s.common.rcvlowat.load(core::sync::atomic::Ordering::Relaxed).max(1) as usize;
    let target = if flags.contains(MsgFlags::WAITALL) { want } else { lowat.min(want) };
    let empty = want == 0;
    let deadline = s.common.recv_deadline();
    let peek_off = s.common.peek_off.load(core::sync::atomic::Ordering::Relaxed);
    let peek_from = if flags.contains(MsgFlags::PEEK) { peek_off.max(0) as usize } else { 0 };
    loop {
        let waited = wait(&s.common.rq, nonblock, deadline, || ready(s, peek_from));
        let more = match waited {
            Ok(more) => more,
            Err(_) if r.len > 0 => break,
            Err(e) => return Err(e),
        };
        if !more {
            break;
        }
        if !flags.contains(MsgFlags::PEEK)
            && let Some(done) = take_short(s, out, &mut r)?
        {
            if done || empty || r.len >= target {
                break;
            }
            continue;
        }
        let pass = take(s, out, &mut r, flags, peek_from);
        let done = deliver(s, out, &mut r, pass, flags)?;
        if done || empty || r.len >= target || flags.contains(MsgFlags::PEEK) {
            break;
        }
    }
    if peek_off >= 0 {
        let n = r.len as i32;
        let next = if flags.contains(MsgFlags::PEEK) { peek_off + n } else { (peek_off - n).max(0) };
        s.common.peek_off.store(next, core::sync::atomic::Ordering::Relaxed);
    }
    if r.len > 0 && flags.contains(MsgFlags::WANT_ADDR) {
        let peer = s.inner.lock().peer.clone();
        // An unnamed sender leaves the address empty, as Linux does.
        r.addr =
            peer.map(|p| p.name()).filter(|n| **n != UnixName::Unnamed).map(|n| Addr::Unix((*n).clone()));
    }
    Ok(r)
}

/// `Some(Ok(true))` when there is something to read, `Some(Ok(false))` at the end.
fn ready(s: &UnixSock, peek_from: usize) -> Option<Result<bool>> {
    let i = s.inner.lock();
    if i.stream.len() > peek_from {
        return Some(Ok(true));
    }
    if !matches!(i.state, State::Connected) {
        return Some(Err(Errno::EINVAL));
    }
    if let Some(e) = s.common.take_error() {
        return Some(Err(e));
    }
    (i.shut.contains(Shutdown::RECEIVE)).then_some(Ok(false))
}

/// Copies out a queue of a few bytes without descriptors right away, under the lock; `None` if it is not like
/// that. True after a fault.
fn take_short(s: &UnixSock, out: &mut Output<'_>, r: &mut Received) -> Result<Option<bool>> {
    let passcred = s.wants_cred();
    let (copied, fault, peer) = {
        let mut i = s.inner.lock();
        let Some(first) = i.stream.front() else { return Ok(None) };
        if first.mark.fds.is_some() || first.len() > SMALL || (passcred && i.stream.len() != first.len()) {
            return Ok(None);
        }
        if r.cred.is_some_and(|c| passcred && c != first.mark.cred) {
            return Ok(Some(true));
        }
        r.cred = Some(first.mark.cred);
        let n = first.len().min(out.remaining());
        let copied = out.write(&first.bytes()[..n]).unwrap_or(0);
        i.stream.consume(copied);
        (copied, copied < n, i.peer.clone())
    };
    r.len += copied;
    if let Some(p) = peer {
        p.common.uncharge(copied);
    }
    if fault && r.len == 0 {
        return Err(Errno::EFAULT);
    }
    // More chunks are left to the general way.
    let more = !fault && out.remaining() > 0 && !s.inner.lock().stream.is_empty();
    if more { Ok(None) } else { Ok(Some(fault)) }
}

/// Takes (or with MSG_PEEK shares) parts of the queue. Short ones are copied out at once.
fn take(s: &UnixSock, out: &mut Output<'_>, r: &mut Received, flags: MsgFlags, mut skip: usize) -> Pass {
    let mut pass = Pass { cred: r.cred, ..Pass::default() };
    let passcred = s.wants_cred();
    let want = out.remaining();
    let mut i = s.inner.lock();
    if flags.contains(MsgFlags::PEEK) {
        let mut peeked = None;
        for c in i.stream.iter() {
            if skip >= c.len() {
                skip -= c.len();
                continue;
            }
            if passcred && pass.cred.is_some_and(|x| x != c.mark.cred) {
                break;
            }
            pass.cred = Some(c.mark.cred);
            let mut part = c.prefix(skip + (want - pass.bytes), ());
            part.skip(skip);
            skip = 0;
            pass.bytes += part.len();
            pass.parts.push(part);
            if let Some(f) = &c.mark.fds {
                peeked = Some(f.duplicate());
                break;
            }
            if pass.bytes == want {
                break;
            }
        }
        drop(i);
        pass.fds = peeked.map(Peeked::register);
        return pass;
    }
    while (pass.bytes < want || want == 0) && !pass.stop {
        let Some(c) = i.stream.front_mut() else { break };
        if passcred && pass.cred.is_some_and(|x| x != c.mark.cred) {
            pass.stop = true;
            break;
        }
        pass.cred = Some(c.mark.cred);
        if let Some(f) = c.mark.fds.take() {
            pass.fds = Some(f);
            pass.stop = true;
        }
        if want == 0 {
            break;
        }
        let Some(part) = i.stream.take(want - pass.bytes, |_| ()) else { break };
        pass.bytes += part.len();
        pass.parts.push(part);
    }
    pass
}

/// Copies parts to the caller; true if the call must end now.
fn deliver(
    s: &UnixSock,
    out: &mut Output<'_>,
    r: &mut Received,
    pass: Pass,
    flags: MsgFlags,
) -> Result<bool> {
    let Pass { parts, bytes, cred, fds, stop } = pass;
    r.cred = cred;
    if fds.is_some() {
        r.fds = fds;
    }
    let mut copied = 0;
    let mut fault = None;
    let mut parts = parts.into_iter();
    for p in parts.by_ref() {
        match out.write(p.bytes()) {
            Ok(n) if n == p.len() => copied += n,
            Ok(n) => {
                copied += n;
                fault = Some((p, n));
                break;
            }
            Err(_) => {
                fault = Some((p, 0));
                break;
            }
        }
    }
    r.len += copied;
    let faulted = fault.is_some();
    if !flags.contains(MsgFlags::PEEK) {
        if let Some((mut p, n)) = fault {
            // Give back what could not be delivered.
            p.skip(n);
            let mut back: Vec<Part> = core::iter::once(p).chain(parts).collect();
            let mark = cred.unwrap_or_default();
            let mut i = s.inner.lock();
            while let Some(p) = back.pop() {
                i.stream.unread(p.remark(Mark { cred: mark, fds: None }));
            }
        }
        let peer = s.inner.lock().peer.clone();
        if let Some(p) = peer {
            p.common.uncharge(if faulted { copied } else { bytes });
        }
    }
    if faulted && r.len == 0 {
        return Err(Errno::EFAULT);
    }
    Ok(stop || faulted)
}

//! Datagrams on their way: sending, finding who gets them, receiving.
//!
//! A datagram goes straight into the queue of the socket that fits best; if its buffer is full the datagram is lost, as
//! on a network. What is for a group goes to all who want it. A sender that is connected, or asked for it (IP_RECVERR),
//! is told that nobody listens.

use crate::core::sched::PollEvents;
use crate::objects::net::inet::PORTS;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::echo;
use doppel_algo::net::ports::{Ip, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6};

use super::udp::{Datagram, Udp};
use super::udpopts::UDP_GRO;
use super::{End, is_local, is_multicast, source_for, spread};
use crate::core::time;
use crate::objects::net::common::{MSG_OVERHEAD, wait};
use crate::objects::net::consts as c;
use crate::objects::net::consts::{MsgFlags, Shutdown};
use crate::objects::net::errqueue::{Problem, origin};
use crate::objects::net::socket::{Marks, Received, SendMsg};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// Longest datagram over IPv4, and over IPv6.
const MAX4: usize = 65_507;
/// See [`MAX4`].
const MAX6: usize = 65_527;
/// Most datagrams that one send is cut into.
const MOST_SEGMENTS: usize = 64;

/// A datagram in the making: where it goes, and what it has so far.
pub(super) struct Begun {
    delivery: Delivery,
    data: Vec<u8>,
}

/// Where a datagram goes, and how.
#[derive(Clone)]
struct Delivery {
    to: End,
    /// Not named by this send.
    connected: bool,
    marks: Marks,
    source: Option<Ip>,
    index: u32,
    segment: u16,
}

impl Udp {
    /// Longest message.
    fn longest(&self) -> usize {
        let most = if self.family() == AF_INET { MAX4 } else { MAX6 };
        // An echo's message has its own header in it.
        if self.is_echo() { most + echo::HEADER } else { most }
    }

    /// Where this send goes, if it may.
    fn delivery_of(&self, msg: &SendMsg) -> Result<Delivery> {
        let (to, connected) = self.destination(msg.addr.as_ref())?;
        if let Some(e) = self.common.take_error() {
            return Err(e);
        }
        let SendMsg { marks, source, index, segment, .. } = *msg;
        Ok(Delivery { to, connected, marks, source, index, segment })
    }

    /// Queues a datagram, or loses it.
    pub(super) fn deliver(&self, mut d: Datagram) {
        if !self.passes(&mut d) {
            return;
        }
        {
            let mut i = self.inner.lock();
            let cost = d.data.len() + MSG_OVERHEAD;
            let room = self.common.rcvbuf.load(Ordering::Relaxed);
            if i.shut.contains(Shutdown::RECEIVE) || i.used + cost > room {
                return;
            }
            i.used += cost;
            i.queue.push_back(d);
        }
        self.common.wake_read(PollEvents::READABLE);
    }

    /// Nobody is there for what was sent: as ICMP would tell it.
    fn unreachable(&self, delivery: &Delivery, data: &[u8]) {
        let v6 = unmapped(&delivery.to.ip).is_none();
        let kept = self.inner.lock().ip.keeps_errors(if v6 { AF_INET6 } else { AF_INET });
        if kept {
            // Type, code and how much of a packet comes back.
            let (origin, kind, code, most) =
                if v6 { (origin::ICMP6, 1, 4, 1184) } else { (origin::ICMP, 3, 3, 520) };
            self.common.report(Problem {
                errno: u32::from(Errno::ECONNREFUSED.0),
                origin,
                kind,
                code,
                info: 0,
                data: 0,
                offender: Some(End { port: 0, ..delivery.to }.show(self.family())),
                to: Some(delivery.to.show(self.family())),
                payload: Arc::new(data[..data.len().min(most)].to_vec()),
            });
        }
        if kept || delivery.connected {
            self.common.set_error(Errno::ECONNREFUSED);
        }
    }
}

/// `send(2)`
pub(super) fn send(s: &Udp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
    let len = input.remaining();
    if len > s.longest() {
        return Err(Errno::EMSGSIZE);
    }
    if msg.flags.contains(MsgFlags::OOB) {
        return Err(Errno::EOPNOTSUPP);
    }
    if !s.is_echo() && (msg.flags.contains(MsgFlags::MORE) || s.corked.load(Ordering::Relaxed)) {
        return add(s, input, msg);
    }
    let delivery = s.delivery_of(msg)?;
    let mut data = Vec::with_capacity(len);
    if len > 0 && input.append(&mut data, len)? < len {
        return Err(Errno::EFAULT);
    }
    if s.is_echo() {
        let marks = {
            let i = s.inner.lock();
            if i.shut.contains(Shutdown::SEND) {
                return Err(Errno::EPIPE);
            }
            i.ip.marks(unmapped(&delivery.to.ip).is_none(), false, delivery.marks)
        };
        s.ask(delivery.to, data, marks, msg.flags.contains(MsgFlags::DONTWAIT))?;
    } else {
        dispatch(s, &delivery, data, msg.flags)?;
    }
    s.common.copied(msg.flags);
    Ok(len)
}

/// Adds to a datagram in the making, which goes where its first part was for, and sends it if it is whole.
fn add(s: &Udp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
    let waiting = s.inner.lock().begun.take();
    let mut begun = match waiting {
        Some(b) => b,
        None => Box::new(Begun { delivery: s.delivery_of(msg)?, data: Vec::new() }),
    };
    let len = input.remaining();
    if begun.data.len() + len > s.longest() {
        return Err(Errno::EMSGSIZE);
    }
    begun.data.reserve(len);
    if len > 0 && input.append(&mut begun.data, len)? < len {
        return Err(Errno::EFAULT);
    }
    let whole = {
        let mut i = s.inner.lock();
        let more = i.udp.cork || msg.flags.contains(MsgFlags::MORE);
        i.begun = Some(begun);
        s.corked.store(more, Ordering::Relaxed);
        !more
    };
    if whole {
        finish(s, msg.flags)?;
    }
    Ok(len)
}

/// Sends what has been put together.
pub(super) fn finish(s: &Udp, flags: MsgFlags) -> Result<()> {
    let begun = {
        let mut i = s.inner.lock();
        s.corked.store(i.udp.cork, Ordering::Relaxed);
        i.begun.take()
    };
    let Some(begun) = begun else { return Ok(()) };
    let Begun { delivery, data } = *begun;
    dispatch(s, &delivery, data, flags)
}

/// Sends a whole datagram, cut into segments if that was asked for.
fn dispatch(s: &Udp, delivery: &Delivery, data: Vec<u8>, flags: MsgFlags) -> Result<()> {
    let to = delivery.to;
    let group = is_multicast(&to.ip);
    let (mut from, marks, segment) = {
        let mut i = s.inner.lock();
        if i.shut.contains(Shutdown::SEND) {
            return Err(Errno::EPIPE);
        }
        if i.port.is_none() {
            drop(i);
            s.autobind()?;
            i = s.inner.lock();
        }
        let segment = if delivery.segment != 0 { delivery.segment } else { i.udp.segment };
        (i.local, i.ip.marks(unmapped(&to.ip).is_none(), group, delivery.marks), usize::from(segment))
    };
    if let Some(ip) = delivery.source {
        if !is_local(&ip) {
            return Err(Errno::EINVAL);
        }
        from.ip = ip;
    }
    let cut = segment != 0 && data.len() > segment;
    if cut && data.len().div_ceil(segment) > MOST_SEGMENTS {
        return Err(Errno::EINVAL);
    }
    let segment = if cut { segment } else { 0 };
    if group {
        let (index, source) = s.source_to_group(&to.ip, delivery.index)?;
        if from.is_any() {
            from.ip = source;
        }
        let send = |data: &[u8]| Datagram {
            data: Arc::new(data.to_vec()),
            from,
            to,
            marks,
            index,
            segment: 0,
            at: time::realtime_ns(),
        };
        parts(&data, segment).for_each(|part| to_group(s, &send(part)));
        return Ok(());
    }
    if !is_local(&to.ip) {
        return parts(&data, segment)
            .try_for_each(|part| s.send_far(to, part, marks, flags.contains(MsgFlags::DONTWAIT)));
    }
    if from.is_any() {
        from.ip = source_for(&to.ip);
    }
    let datagram = |data: Vec<u8>, segment: u16| {
        let at = time::realtime_ns();
        Datagram { data: Arc::new(data), from, to, marks, index: 0, segment, at }
    };
    match find(s, &from, &to) {
        Some(t) if segment != 0 && !t.inner.lock().udp.whole => {
            parts(&data, segment).for_each(|part| t.deliver(datagram(part.to_vec(), 0)));
        }
        Some(t) if !s.is_lite() || t.covers(s, data.len()) => t.deliver(datagram(data, segment as u16)),
        Some(_) => {}
        None => s.unreachable(delivery, &data),
    }
    Ok(())
}

/// The datagrams that data are cut into; the data themselves, if they are not.
fn parts(data: &[u8], segment: usize) -> impl Iterator<Item = &[u8]> {
    let whole = (segment == 0).then_some(data);
    whole.into_iter().chain(data.chunks(segment.max(1)).filter(move |_| segment != 0))
}

impl Udp {
    /// UDP-Lite: whether a sender's checksum covers as much of a datagram as this socket asks for.
    fn covers(&self, sender: &Udp, len: usize) -> bool {
        const HEADER: usize = 8;
        let sent = usize::from(sender.inner.lock().udp.coverage[0]);
        let partial = sent != 0 && sent < len + HEADER;
        let least = usize::from(self.inner.lock().udp.coverage[1]);
        // Who has not set it takes all there is.
        !partial || least == 0 || sent >= least
    }
}

/// The socket a datagram is for.
fn find(s: &Udp, from: &End, to: &End) -> Option<Arc<Udp>> {
    const LOOPBACK: u32 = 1;
    let ports = PORTS.get();
    // Remote ends are looked at after the table's lock is gone.
    let candidates: Vec<Arc<Udp>> = {
        let t = s.table(ports).lock();
        let one = t.find(to.port, &to.ip, 0, |_| Some(0))?;
        let alone = t.find(to.port, &to.ip, 0, |b| (b.id != one.id).then_some(0)).is_none();
        if alone {
            one.what.upgrade().into_iter().collect()
        } else {
            let one = t.find(to.port, &to.ip, spread(from, to), |_| Some(0))?;
            let at = t.at(to.port).filter(|b| b.scope.fits(&to.ip).is_some());
            let mut all: Vec<_> = at.filter_map(|b| b.what.upgrade()).collect();
            // The one chosen goes first among those that are not connected.
            if let Some(k) = all.iter().position(|s| s.common.ino == one.id) {
                all.swap(0, k);
            }
            all
        }
    };
    let remote = |s: &Arc<Udp>| s.inner.lock().remote;
    let connected = candidates.iter().find(|s| remote(s) == Some(*from) && s.hears(LOOPBACK));
    connected.or_else(|| candidates.iter().find(|s| remote(s).is_none() && s.hears(LOOPBACK))).cloned()
}

/// Gives a datagram to everybody in the domain who wants what is sent to its group.
fn to_group(s: &Udp, d: &Datagram) {
    const LOOPBACK: u32 = 1;
    let v6 = unmapped(&d.to.ip).is_none();
    if d.index != LOOPBACK && !s.inner.lock().ip.multicast_loops(v6) {
        return;
    }
    let ports = PORTS.get();
    let all: Vec<(bool, Arc<Udp>)> = {
        let t = s.table(ports).lock();
        let bound = t.iter().map(|(port, b)| (port == d.to.port && b.scope.fits(&d.to.ip).is_some(), b));
        bound.filter_map(|(fits, b)| Some((fits, b.what.upgrade()?))).collect()
    };
    // A group that nobody has joined is not listened to, except that of all hosts.
    let everybody =
        if v6 { d.to.ip[1] & 0xf <= 2 && d.to.ip[2..] == ALL_NODES } else { d.to.ip == ALL_HOSTS };
    if !everybody && !all.iter().any(|(_, t)| t.inner.lock().ip.groups.has(&d.to.ip, d.index)) {
        return;
    }
    for (_, t) in all.iter().filter(|(fits, t)| *fits && t.hears(d.index)) {
        let wanted = {
            let i = t.inner.lock();
            i.remote.is_none_or(|r| r == d.from) && i.ip.takes_of_group(&d.to.ip, d.index, &d.from.ip)
        };
        if wanted {
            t.deliver(d.clone());
        }
    }
}

/// 224.0.0.1
const ALL_HOSTS: Ip = doppel_algo::net::ports::mapped([224, 0, 0, 1]);
/// The end of ff01::1 and ff02::1.
const ALL_NODES: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// `recv(2)`
pub(super) fn recv(s: &Udp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    if flags.contains(MsgFlags::ERRQUEUE) {
        return s.common.receive_error(out, flags);
    }
    if flags.contains(MsgFlags::OOB) {
        return Err(Errno::EOPNOTSUPP);
    }
    let peek = flags.contains(MsgFlags::PEEK);
    let peek_off = s.common.peek_off.load(Ordering::Relaxed);
    let mut plain = true;
    let got = wait(&s.common.rq, flags.contains(MsgFlags::DONTWAIT), s.common.recv_deadline(), || {
        if let Some(e) = s.common.take_error() {
            return Some(Err(e));
        }
        let mut i = s.inner.lock();
        if i.queue.is_empty() {
            s.pull(&mut i);
        }
        plain = i.ip.is_unset();
        if peek {
            let mut skip = peek_off.max(0) as usize;
            let at = i.queue.iter().position(|d| {
                let there = skip == 0 || skip < d.data.len();
                skip -= if there { 0 } else { d.data.len() };
                there
            });
            if let Some(at) = at {
                return Some(Ok(Some((i.queue[at].clone(), skip))));
            }
        } else if let Some(d) = i.queue.pop_front() {
            i.used -= d.data.len() + MSG_OVERHEAD;
            return Some(Ok(Some((d, 0))));
        }
        (i.shut.contains(Shutdown::RECEIVE)).then_some(Ok(None))
    })?;
    let Some((d, skip)) = got else { return Ok(Received::default()) };
    let left = d.data.len() - skip;
    let n = left.min(out.remaining());
    if n > 0 && out.write(&d.data[skip..skip + n])? < n {
        return Err(Errno::EFAULT);
    }
    if peek_off >= 0 {
        let next =
            if peek { peek_off.saturating_add(n as i32) } else { (peek_off - d.data.len() as i32).max(0) };
        s.common.peek_off.store(next, Ordering::Relaxed);
    }
    let mut r = Received { len: n, addr: Some(d.from.show(s.family())), ..Received::default() };
    if n < left {
        r.flags |= MsgFlags::TRUNC;
        if flags.contains(MsgFlags::TRUNC) {
            r.len = left;
        }
    }
    s.common.stamp(|| d.at, &mut r.control);
    if d.segment != 0 {
        r.control.push((c::SOL_UDP, UDP_GRO, i32::from(d.segment).to_ne_bytes().to_vec()));
    }
    if !plain {
        r.control.extend(s.inner.lock().ip.control(s.family(), &d.from, &d.to, d.index, d.marks));
    }
    Ok(r)
}

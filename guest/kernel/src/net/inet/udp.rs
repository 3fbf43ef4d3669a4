//! UDP sockets, and those of ICMP echo, which differ in what they send (`inet::echo`).
//!
//! Key type: [`Udp`]. A datagram goes straight into the queue of the socket that fits best; if its buffer is
//! full the datagram is lost, as on a network. A connected sender is told that nobody listens (ECONNREFUSED).

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_service::echo;
use doppel_algo::net::ports::{PortTable, mapped, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, Addr};
use doppel_machine::sync::SpinLock;
use doppel_machine::user::bytes_of;

use super::ipopts::IpOptions;
use super::{End, Ports, binding, check_bind, claim, ipopts, is_local, route, source_for, spread};
use crate::fs::file::poll;
use crate::fs::{Input, Output};
use crate::net::common::{Common, MSG_OVERHEAD, wait};
use crate::net::consts::{self as c, MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, RCV_SHUTDOWN, SEND_SHUTDOWN};
use crate::net::options::int;
use crate::net::remote::Grams;
use crate::net::socket::{Marks, Received, SendMsg, SocketOps};
use crate::sched::PollTable;
use crate::{Errno, Result, kernel, time};

/// Longest datagram over IPv4, and over IPv6.
const MAX4: usize = 65_507;
/// See [`MAX4`].
const MAX6: usize = 65_527;
/// UDP options that are accepted without effect: CORK, ENCAP, NO_CHECK6_TX, NO_CHECK6_RX, GRO.
const UDP_OPTIONS: [i32; 5] = [1, 100, 101, 102, 104];

#[derive(Clone)]
pub(super) struct Datagram {
    pub(super) data: Arc<Vec<u8>>,
    pub(super) from: End,
    pub(super) to: End,
    pub(super) marks: Marks,
    /// CLOCK_REALTIME of its arrival.
    pub(super) at: u64,
}

pub(super) struct Inner {
    pub(super) local: End,
    pub(super) remote: Option<End>,
    port: Option<u16>,
    explicit: bool,
    pub(super) shut: u8,
    pub(super) queue: VecDeque<Datagram>,
    /// Bytes queued, with overhead.
    pub(super) used: usize,
    pub(super) ip: IpOptions,
    /// Its socket in the network service, if it has had to do with outside.
    pub(super) far: Option<Arc<Grams>>,
    /// The peer the service was asked for, and what it has said.
    pub(super) asked: Option<End>,
    pub(super) told: Option<Result<()>>,
}

/// A UDP socket, or one of ICMP echo.
pub struct Udp {
    me: Weak<Udp>,
    pub(super) common: Common,
    pub(super) inner: SpinLock<Inner>,
}

impl Udp {
    /// A new socket of `family`.
    pub fn new(family: u16) -> Arc<Self> {
        Self::of(family, c::SOL_UDP)
    }

    /// A new socket of ICMP echo.
    pub fn echo(family: u16) -> Arc<Self> {
        let socket = Self::of(family, if family == AF_INET { c::IPPROTO_ICMP } else { c::IPPROTO_ICMPV6 });
        // As on Linux, where they may share an identifier.
        socket.common.switch(c::SO_REUSEADDR, true);
        socket
    }

    fn of(family: u16, protocol: i32) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            common: Common::new(family, c::SOCK_DGRAM, protocol),
            inner: SpinLock::new(Inner {
                local: End::unspecified(family),
                remote: None,
                port: None,
                explicit: false,
                shut: 0,
                queue: VecDeque::new(),
                used: 0,
                ip: IpOptions::default(),
                far: None,
                asked: None,
                told: None,
            }),
        })
    }

    fn family(&self) -> u16 {
        self.common.domain
    }

    /// Whether it is one of ICMP echo.
    pub(super) fn is_echo(&self) -> bool {
        self.common.protocol != c::SOL_UDP
    }

    /// Where its port is bound.
    fn table<'p>(&self, ports: &'p Ports) -> &'p SpinLock<PortTable<Weak<Self>>> {
        if self.is_echo() { &ports.echo } else { &ports.udp }
    }

    /// For /proc/net/udp: local, remote, state (1 connected, 7 not), bytes queued.
    pub fn row(&self) -> (End, End, u8, usize) {
        let i = self.inner.lock();
        let remote = i.remote.unwrap_or(End::unspecified(self.family()));
        (i.local, remote, if i.remote.is_some() { 1 } else { 7 }, i.used)
    }

    fn bind_to(&self, at: End, explicit: bool) -> Result<()> {
        let v6only = self.inner.lock().ip.v6only;
        if v6only && unmapped(&at.ip).is_some() {
            return Err(Errno::EINVAL);
        }
        let ports = kernel().service::<Ports>();
        let port = claim(self.table(&ports), &at, binding(&self.common, at.ip, v6only, self.me.clone()))?;
        let mut i = self.inner.lock();
        i.local = End { ip: at.ip, port };
        i.port = Some(port);
        i.explicit = explicit;
        Ok(())
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    pub(super) fn autobind(&self) -> Result<()> {
        if self.inner.lock().port.is_some() {
            return Ok(());
        }
        self.bind_to(End::unspecified(self.family()), false).map_err(|_| Errno::EAGAIN)
    }

    fn unbind(&self) {
        self.leave_far();
        let port = self.inner.lock().port.take();
        if let Some(p) = port {
            self.table(&kernel().service::<Ports>()).lock().unbind(p, self.common.ino);
        }
    }

    /// Where a send goes.
    fn destination(&self, addr: Option<&Addr>) -> Result<(End, bool)> {
        let (to, connected) = match addr {
            None => (self.inner.lock().remote.ok_or(Errno::EDESTADDRREQ)?, true),
            Some(Addr::V4 { ip, port }) if self.family() == AF_INET6 && !self.is_echo() => {
                if self.inner.lock().ip.v6only {
                    return Err(Errno::ENETUNREACH);
                }
                (End { ip: mapped(*ip), port: *port }, false)
            }
            Some(a) => (End::from_addr(self.family(), a)?, false),
        };
        if to.port == 0 && !self.is_echo() {
            return Err(Errno::EINVAL);
        }
        if to.ip == mapped([255; 4]) && !self.common.on(c::SO_BROADCAST) {
            return Err(Errno::EACCES);
        }
        let to = if self.is_echo() { self.route_echo(to)? } else { route(to)? };
        Ok((to, connected))
    }

    /// Queues a datagram, or loses it.
    pub(super) fn deliver(&self, d: Datagram) {
        {
            let mut i = self.inner.lock();
            let cost = d.data.len() + MSG_OVERHEAD;
            let room = self.common.rcvbuf.load(Ordering::Relaxed);
            if i.shut & RCV_SHUTDOWN != 0 || i.used + cost > room {
                return;
            }
            i.used += cost;
            i.queue.push_back(d);
        }
        self.common.wake_read(poll::POLLIN | poll::POLLRDNORM);
    }
}

/// The socket a datagram is for.
fn find(from: &End, to: &End) -> Option<Arc<Udp>> {
    let ports = kernel().service::<Ports>();
    // Remote ends are looked at after the table's lock is gone.
    let candidates: Vec<Arc<Udp>> = {
        let t = ports.udp.lock();
        let one = t.find(to.port, &to.ip, spread(from, to), |_| Some(0))?;
        let alone = t.find(to.port, &to.ip, 0, |b| (b.id != one.id).then_some(0)).is_none();
        if alone {
            one.what.upgrade().into_iter().collect()
        } else {
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
    let connected = candidates.iter().find(|s| remote(s) == Some(*from));
    connected.or_else(|| candidates.iter().find(|s| remote(s).is_none())).cloned()
}

impl SocketOps for Udp {
    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, addr: &Addr) -> Result<()> {
        let at = End::from_addr(self.family(), addr)?;
        check_bind(&self.common, &at, !self.is_echo())?;
        if self.is_echo() && self.family() == AF_INET6 && unmapped(&at.ip).is_some() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if self.inner.lock().port.is_some() {
            return Err(Errno::EINVAL);
        }
        self.bind_to(at, true)?;
        if !self.is_echo() {
            self.bind_far();
        }
        Ok(())
    }

    fn connect(&self, addr: &Addr, _nonblock: bool) -> Result<()> {
        if *addr == Addr::Unspec {
            let mut i = self.inner.lock();
            i.remote = None;
            let explicit = i.explicit;
            if !explicit {
                i.local = End::unspecified(self.family());
            }
            drop(i);
            if explicit {
                self.disconnect_far();
            } else {
                self.unbind();
            }
            return Ok(());
        }
        let mut to = End::from_addr(self.family(), addr)?;
        if to.ip == mapped([255; 4]) && !self.common.on(c::SO_BROADCAST) {
            return Err(Errno::EACCES);
        }
        to = if self.is_echo() { self.route_echo(to)? } else { route(to)? };
        if !is_local(&to.ip) && !self.is_echo() {
            return self.connect_far(to);
        }
        self.disconnect_far();
        self.autobind()?;
        let mut i = self.inner.lock();
        if i.local.is_any() {
            i.local.ip = source_for(&to.ip);
        }
        i.remote = Some(to);
        Ok(())
    }

    fn local(&self) -> Result<Addr> {
        Ok(self.inner.lock().local.show(self.family()))
    }

    fn remote(&self) -> Result<Addr> {
        Ok(self.inner.lock().remote.ok_or(Errno::ENOTCONN)?.show(self.family()))
    }

    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        let len = input.remaining();
        let most = if self.family() == AF_INET { MAX4 } else { MAX6 };
        // An echo's message has its own header in it.
        if len > if self.is_echo() { most + echo::HEADER } else { most } {
            return Err(Errno::EMSGSIZE);
        }
        if msg.flags & c::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (to, connected) = self.destination(msg.addr.as_ref())?;
        if let Some(e) = self.common.take_error() {
            return Err(e);
        }
        if self.inner.lock().shut & SEND_SHUTDOWN != 0 {
            return Err(Errno::EPIPE);
        }
        let mut data = Vec::with_capacity(len);
        if len > 0 && input.append(&mut data, len)? < len {
            return Err(Errno::EFAULT);
        }
        if self.is_echo() {
            let marks = self.inner.lock().ip.marks(unmapped(&to.ip).is_none(), msg.marks);
            self.ask(to, data, marks, msg.flags & MSG_DONTWAIT != 0)?;
            return Ok(len);
        }
        self.autobind()?;
        let (mut from, marks) = {
            let i = self.inner.lock();
            (i.local, i.ip.marks(unmapped(&to.ip).is_none(), msg.marks))
        };
        if from.is_any() {
            from.ip = source_for(&to.ip);
        }
        if !is_local(&to.ip) {
            self.send_far(to, &data, marks, msg.flags & MSG_DONTWAIT != 0)?;
            return Ok(len);
        }
        match find(&from, &to) {
            Some(t) => t.deliver(Datagram { data: Arc::new(data), from, to, marks, at: time::realtime_ns() }),
            None if connected => self.common.set_error(Errno::ECONNREFUSED),
            None => {}
        }
        Ok(len)
    }

    fn recv(&self, out: &mut Output<'_>, flags: u32) -> Result<Received> {
        if flags & c::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & c::MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        let peek = flags & MSG_PEEK != 0;
        let got = wait(&self.common.rq, flags & MSG_DONTWAIT != 0, self.common.recv_deadline(), || {
            if let Some(e) = self.common.take_error() {
                return Some(Err(e));
            }
            let mut i = self.inner.lock();
            if i.queue.is_empty() {
                self.pull(&mut i);
            }
            let d = if peek { i.queue.front().cloned() } else { i.queue.pop_front() };
            if let Some(d) = d {
                if !peek {
                    i.used -= d.data.len() + MSG_OVERHEAD;
                }
                return Some(Ok(Some(d)));
            }
            (i.shut & RCV_SHUTDOWN != 0).then_some(Ok(None))
        })?;
        let Some(d) = got else { return Ok(Received::default()) };
        let n = d.data.len().min(out.remaining());
        if n > 0 && out.write(&d.data[..n])? < n {
            return Err(Errno::EFAULT);
        }
        let mut r = Received { len: n, addr: Some(d.from.show(self.family())), ..Received::default() };
        if n < d.data.len() {
            r.flags |= MSG_TRUNC;
            if flags & MSG_TRUNC != 0 {
                r.len = d.data.len();
            }
        }
        r.control = self.inner.lock().ip.control(self.family(), &d.from, &d.to, d.marks);
        if self.common.on(c::SO_TIMESTAMPNS) {
            let t = [d.at / 1_000_000_000, d.at % 1_000_000_000];
            r.control.push((c::SOL_SOCKET, c::SO_TIMESTAMPNS, bytes_of(&t).to_vec()));
        } else if self.common.on(c::SO_TIMESTAMP) {
            let t = [d.at / 1_000_000_000, d.at % 1_000_000_000 / 1000];
            r.control.push((c::SOL_SOCKET, c::SO_TIMESTAMP, bytes_of(&t).to_vec()));
        }
        Ok(r)
    }

    fn shutdown(&self, how: u8) -> Result<()> {
        let mut i = self.inner.lock();
        i.shut |= how;
        let connected = i.remote.is_some();
        drop(i);
        self.common.wake_all(poll::POLLIN | poll::POLLOUT | poll::POLLRDHUP | poll::POLLHUP);
        if connected { Ok(()) } else { Err(Errno::ENOTCONN) }
    }

    fn poll(&self, table: Option<&mut PollTable>) -> u32 {
        self.common.register(table);
        let mut i = self.inner.lock();
        if i.queue.is_empty() {
            self.pull(&mut i);
        }
        let mut ev = 0;
        if Self::far_writable(&i) {
            ev |= poll::POLLOUT | poll::POLLWRNORM | poll::POLLWRBAND;
        }
        if i.shut & RCV_SHUTDOWN != 0 {
            ev |= poll::POLLRDHUP | poll::POLLIN | poll::POLLRDNORM;
        }
        if i.shut == RCV_SHUTDOWN | SEND_SHUTDOWN {
            ev |= poll::POLLHUP;
        }
        if !i.queue.is_empty() {
            ev |= poll::POLLIN | poll::POLLRDNORM;
        }
        if self.common.has_error() {
            ev |= poll::POLLERR;
        }
        ev
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if level == c::SOL_UDP && !self.is_echo() {
            let known = UDP_OPTIONS.contains(&name);
            return if known { Ok(0i32.to_ne_bytes().to_vec()) } else { Err(Errno::ENOPROTOOPT) };
        }
        let i = self.inner.lock();
        ipopts::get(&i.ip, i.remote.as_ref(), level, name)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level == c::SOL_UDP && !self.is_echo() {
            int(value)?;
            return if UDP_OPTIONS.contains(&name) { Ok(()) } else { Err(Errno::ENOPROTOOPT) };
        }
        {
            let mut i = self.inner.lock();
            let fixed = i.port.is_some();
            ipopts::set(&mut i.ip, self.family(), fixed, level, name, value)?;
        }
        self.want_marks();
        Ok(())
    }

    fn readable_bytes(&self) -> Result<usize> {
        let mut i = self.inner.lock();
        if i.queue.is_empty() {
            self.pull(&mut i);
        }
        Ok(i.queue.front().map_or(0, |d| d.data.len()))
    }

    fn release(&self) {
        self.unbind();
        let queue = {
            let mut i = self.inner.lock();
            i.shut = RCV_SHUTDOWN | SEND_SHUTDOWN;
            core::mem::take(&mut i.queue)
        };
        drop(queue);
        self.common.wake_all(poll::POLLIN | poll::POLLOUT);
    }
}

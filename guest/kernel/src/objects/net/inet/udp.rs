//! UDP and UDP-Lite sockets, and those of ICMP echo, which differ in what they send (`inet::echo`).
//!
//! Key type: [`Udp`]. udpio.rs sends and receives, udpopts.rs has the options.

use crate::objects::net::inet::PORTS;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_algo::net::ports::{Ip, PortTable, mapped, unmapped};
use doppel_algo::net::sockaddr::{AF_INET, AF_INET6, Addr};
use doppel_machine::sync::SpinLock;

use super::ipopts::IpOptions;
use super::udpio::{self, Begun};
use super::udpopts::UdpOptions;
use super::{
    End, Ports, address_on, binding, check_bind, claim, groups, ipopts, is_local, is_multicast, route,
    share_anew, source_for,
};
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::net::common::Common;
use crate::objects::net::consts as c;
use crate::objects::net::consts::{MsgFlags, Shutdown};
use crate::objects::net::outside::Grams;
use crate::objects::net::socket::{Marks, Received, SendMsg, SocketOps};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) data: Arc<Vec<u8>>,
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) marks: Marks,
    /// The interface it came by, 0 for that of its source.
    pub(crate) index: u32,
    /// Bytes of each datagram of which it was put together (UDP_GRO), 0 for one.
    pub(crate) segment: u16,
    /// CLOCK_REALTIME of its arrival.
    pub(crate) at: u64,
}

pub(crate) struct Inner {
    pub(crate) local: End,
    pub(crate) remote: Option<End>,
    pub(crate) port: Option<u16>,
    explicit: bool,
    pub(crate) shut: Shutdown,
    pub(crate) queue: VecDeque<Datagram>,
    /// Bytes queued, with overhead.
    pub(crate) used: usize,
    pub(crate) ip: IpOptions,
    pub(super) udp: UdpOptions,
    /// The datagram that is being put together (MSG_MORE, UDP_CORK).
    pub(super) begun: Option<Box<Begun>>,
    /// Its socket in the network service, if it has had to do with outside.
    pub(crate) far: Option<Arc<Grams>>,
    /// The peer the service was asked for, and what it has said.
    pub(crate) asked: Option<End>,
    pub(crate) told: Option<Result<()>>,
}

/// A UDP socket, or one of ICMP echo.
pub struct Udp {
    me: Weak<Udp>,
    pub(crate) common: Common,
    pub(crate) inner: SpinLock<Inner>,
    /// A datagram may be in the making.
    pub(super) corked: AtomicBool,
    /// For which families the service was asked to tell errors.
    pub(crate) told_errors: AtomicU32,
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
                shut: Shutdown::empty(),
                queue: VecDeque::new(),
                used: 0,
                ip: IpOptions::default(),
                udp: UdpOptions::default(),
                begun: None,
                far: None,
                asked: None,
                told: None,
            }),
            corked: AtomicBool::new(false),
            told_errors: AtomicU32::new(0),
        })
    }

    /// A new socket of UDP-Lite.
    pub fn lite(family: u16) -> Arc<Self> {
        Self::of(family, c::SOL_UDPLITE)
    }

    pub(super) fn family(&self) -> u16 {
        self.common.domain
    }

    /// Whether it is one of ICMP echo.
    pub(crate) fn is_echo(&self) -> bool {
        !matches!(self.common.protocol, c::SOL_UDP | c::SOL_UDPLITE)
    }

    /// Whether it is one of UDP-Lite, which does not leave the domain.
    pub(super) fn is_lite(&self) -> bool {
        self.common.protocol == c::SOL_UDPLITE
    }

    /// Where its port is bound.
    pub(super) fn table<'p>(&self, ports: &'p Ports) -> &'p SpinLock<PortTable<Weak<Self>>> {
        match self.common.protocol {
            c::SOL_UDP => &ports.udp,
            c::SOL_UDPLITE => &ports.lite,
            _ => &ports.echo,
        }
    }

    /// For /proc/net/udp: local, remote, state (1 connected, 7 not), bytes queued.
    pub fn row(&self) -> (End, End, u8, usize) {
        let i = self.inner.lock();
        let remote = i.remote.unwrap_or(End::unspecified(self.family()));
        (i.local, remote, if i.remote.is_some() { 1 } else { 7 }, i.used)
    }

    fn bind_to(&self, at: End, explicit: bool) -> Result<()> {
        let (v6only, range) = {
            let i = self.inner.lock();
            (i.ip.v6only, i.ip.ports())
        };
        if v6only && unmapped(&at.ip).is_some() {
            return Err(Errno::EINVAL);
        }
        let ports = PORTS.get();
        let port = claim(
            self.table(ports),
            &at,
            range,
            false,
            binding(&self.common, at.ip, v6only, self.me.clone()),
        )?;
        let mut i = self.inner.lock();
        i.local = End { ip: at.ip, port };
        i.port = Some(port);
        i.explicit = explicit;
        Ok(())
    }

    /// Whether options of this level are its protocol's.
    fn has_options(&self, level: i32) -> bool {
        match self.common.protocol {
            c::SOL_UDP => level == c::SOL_UDP,
            c::SOL_UDPLITE => matches!(level, c::SOL_UDP | c::SOL_UDPLITE),
            _ => false,
        }
    }

    /// The interface by which a datagram to a group leaves, and the address it comes from.
    pub(super) fn source_to_group(&self, group: &Ip, index: u32) -> Result<(u32, Ip)> {
        let v6 = unmapped(group).is_none();
        let i = self.inner.lock();
        let asked = if index != 0 { index } else { i.ip.multicast_interface(v6) };
        let index = groups::way_out(asked, self.common.device.load(Ordering::Relaxed), &i.local.ip)?;
        if v6 && index == 1 {
            // As on Linux, where the loopback has no route to groups of IPv6.
            return Err(Errno::ENETUNREACH);
        }
        let source = i.ip.multicast_source().filter(|_| !v6).map(mapped);
        Ok((index, source.unwrap_or_else(|| address_on(index, group))))
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    pub(crate) fn autobind(&self) -> Result<()> {
        if self.inner.lock().port.is_some() {
            return Ok(());
        }
        self.bind_to(End::unspecified(self.family()), false).map_err(|_| Errno::EAGAIN)
    }

    fn unbind(&self) {
        self.leave_far();
        let port = self.inner.lock().port.take();
        if let Some(p) = port {
            self.table(PORTS.get()).lock().unbind(p, self.common.ino);
        }
    }

    /// Where a send goes.
    pub(super) fn destination(&self, addr: Option<&Addr>) -> Result<(End, bool)> {
        // To a socket of IPv6 an address of no family is none.
        let addr = addr.filter(|a| self.family() == AF_INET || **a != Addr::Unspec);
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
        Ok((self.way(to)?, connected))
    }

    /// Where what is for an address goes: groups have no route.
    fn way(&self, to: End) -> Result<End> {
        if self.is_echo() {
            return self.route_echo(to);
        }
        if is_multicast(&to.ip) {
            return Ok(to);
        }
        let to = route(to)?;
        // There is nobody outside who speaks UDP-Lite, and no way out of the loopback device.
        let kept_in = self.is_lite() || self.common.device.load(Ordering::Relaxed) == 1;
        if kept_in && !is_local(&to.ip) { Err(Errno::ENETUNREACH) } else { Ok(to) }
    }
}

impl SocketOps for Udp {
    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, addr: &Addr) -> Result<()> {
        let at = End::from_addr(self.family(), addr)?;
        let free = self.inner.lock().ip.binds_anything();
        check_bind(&self.common, &at, !self.is_echo(), free)?;
        if self.is_echo() && self.family() == AF_INET6 && unmapped(&at.ip).is_some() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if self.inner.lock().port.is_some() {
            return Err(Errno::EINVAL);
        }
        self.bind_to(at, true)?;
        if !self.is_echo() && !self.is_lite() {
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
        to = self.way(to)?;
        let group = is_multicast(&to.ip);
        if !is_local(&to.ip) && !group && !self.is_echo() {
            return self.connect_far(to);
        }
        let source = if group { self.source_to_group(&to.ip, 0)?.1 } else { source_for(&to.ip) };
        self.disconnect_far();
        self.autobind()?;
        let mut i = self.inner.lock();
        if i.local.is_any() {
            i.local.ip = source;
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
        udpio::send(self, input, &msg)
    }

    fn recv(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        udpio::recv(self, out, flags)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let mut i = self.inner.lock();
        i.shut |= how;
        let connected = i.remote.is_some();
        drop(i);
        self.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::RDHUP | PollEvents::HUP);
        if connected { Ok(()) } else { Err(Errno::ENOTCONN) }
    }

    fn poll(&self, table: Option<&mut PollTable>) -> PollEvents {
        self.common.register(table);
        let mut i = self.inner.lock();
        if i.queue.is_empty() {
            self.pull(&mut i);
        }
        let mut ev = PollEvents::empty();
        if Self::far_writable(&i) {
            ev |= PollEvents::WRITABLE | PollEvents::WRBAND;
        }
        if i.shut.contains(Shutdown::RECEIVE) {
            ev |= PollEvents::RDHUP | PollEvents::READABLE;
        }
        if i.shut == Shutdown::all() {
            ev |= PollEvents::HUP;
        }
        if !i.queue.is_empty() {
            ev |= PollEvents::READABLE;
        }
        if self.common.has_error() {
            ev |= PollEvents::ERR;
        }
        ev
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if ipopts::is_mtu(level, name)
            && let Some(mtu) = self.far_mtu()
        {
            return Ok(mtu.to_ne_bytes().to_vec());
        }
        let i = self.inner.lock();
        if self.has_options(level) {
            return i.udp.get(self.is_lite(), name);
        }
        ipopts::get(&i.ip, &self.common, i.port.unwrap_or(0), i.remote.as_ref(), level, name)
    }

    fn ask_option(&self, level: i32, name: i32, asked: &[u8]) -> Option<Result<Vec<u8>>> {
        self.inner.lock().ip.groups.get_filter(level, name, asked)
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if self.has_options(level) {
            let uncorked = {
                let mut i = self.inner.lock();
                let uncorked = i.udp.set(self.is_lite(), name, value)?;
                self.corked.store(i.udp.cork || i.begun.is_some(), Ordering::Relaxed);
                uncorked
            };
            return if uncorked { udpio::finish(self, MsgFlags::empty()) } else { Ok(()) };
        }
        {
            let mut i = self.inner.lock();
            let fixed = i.port.is_some();
            ipopts::set(&mut i.ip, &self.common, fixed, level, name, value)?;
            if !i.ip.keeps_errors(AF_INET) && !i.ip.keeps_errors(AF_INET6) {
                self.common.errors.clear();
            }
        }
        self.want_marks();
        self.tell_options();
        Ok(())
    }

    fn switched(&self, option: i32) {
        if matches!(option, c::SO_SNDBUF | c::SO_RCVBUF | c::SO_PRIORITY) {
            self.tell_options();
        }
        let port = self.inner.lock().port;
        if let (c::SO_REUSEADDR | c::SO_REUSEPORT, Some(port)) = (option, port) {
            let ports = PORTS.get();
            self.table(ports).lock().update(port, self.common.ino, |b| share_anew(b, &self.common));
        }
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
            i.shut = Shutdown::all();
            (core::mem::take(&mut i.queue), i.begun.take())
        };
        drop(queue);
        self.common.wake_all(PollEvents::IN | PollEvents::OUT);
    }
}

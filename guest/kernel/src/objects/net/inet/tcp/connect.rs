//! Connecting: to a listener of this domain, to oneself, or by the network service.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_algo::net::sockaddr::AF_INET6;

use super::super::{End, is_local, source_for, spread, to_loopback};
use super::{BOTH, State, Tcp, Told};
use crate::core::sched::PollEvents;
use crate::core::time;
use crate::objects::net::common::wait;
use crate::objects::net::consts::Shutdown;
use crate::objects::net::inet::PORTS;
use crate::objects::net::outside::network;
use crate::{Errno, Result};

impl Tcp {
    pub(super) fn dial(&self, to: End, nonblock: bool) -> Result<()> {
        if self.family() == AF_INET6
            && self.inner.lock().ip.v6only
            && doppel_algo::net::ports::unmapped(&to.ip).is_some()
        {
            return Err(Errno::ENETUNREACH);
        }
        let to = to_loopback(to);
        if !is_local(&to.ip) {
            let network = network().ok_or(Errno::ENETUNREACH)?;
            if self.common.device.load(Ordering::Relaxed) == 1 {
                // Bound to the loopback device.
                return Err(Errno::ENETUNREACH);
            }
            return self.far_dial(network, to, nonblock);
        }
        let local = self.inner.lock().local;
        let source = source_for(&to.ip);
        if self.inner.lock().port.is_none() {
            // Bound to an address alone, or not at all.
            let ip = if local.is_any() { source } else { local.ip };
            self.bind_to(End { ip, port: 0 }, false).map_err(|_| Errno::EADDRNOTAVAIL)?;
        } else if local.is_any() {
            self.inner.lock().local.ip = source;
        }
        let local = self.inner.lock().local;
        let listener = {
            let ports = PORTS.get();
            let t = ports.tcp.lock();
            t.find(to.port, &to.ip, spread(&local, &to), |b| b.listening.then_some(0))
                .and_then(|b| b.what.upgrade())
        };
        let Some(l) = listener else {
            return if local == to { self.meet_itself(to, nonblock) } else { self.refused(nonblock) };
        };
        let server = self.pair_with(&l, to);
        match l.queue(server) {
            None => {
                let peer = {
                    let mut i = self.inner.lock();
                    i.state = State::Closed;
                    i.peer.take()
                };
                drop(peer);
                self.refused(nonblock)
            }
            Some(ready) => {
                if ready {
                    self.established();
                    l.common.wake_read(PollEvents::READABLE);
                }
                if nonblock {
                    self.inner.lock().told = Told::Success;
                    return Err(Errno::EINPROGRESS);
                }
                self.await_connection()
            }
        }
    }

    /// Makes the server's end of a connection from this end to the listener `l` at `to`, and joins the two.
    pub(super) fn pair_with(&self, l: &Self, to: End) -> Arc<Self> {
        let server = l.server();
        {
            let (ip, tcp) = {
                let i = l.inner.lock();
                (i.ip.clone(), i.tcp.clone())
            };
            let local = self.inner.lock().local;
            let mut i = server.inner.lock();
            (i.ip, i.tcp) = (ip, tcp);
            i.state = State::Established;
            i.local = to;
            i.remote = local;
            i.peer = Some(self.me());
        }
        server.widen();
        server.common.peer_buf.store(self.common.rcvbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let mut i = self.inner.lock();
            i.state = State::Connecting;
            i.shut = Shutdown::empty();
            i.fin = false;
            i.first = false;
            i.remote = to;
            i.peer = Some(server.clone());
        }
        server
    }

    /// Takes the server's end of a connection into the backlog, or has it wait for room: whether there was some. `None` if
    /// this end listens no more.
    pub(super) fn queue(&self, server: Arc<Self>) -> Option<bool> {
        let mut kept_until = None;
        let room = {
            let mut i = self.inner.lock();
            if i.state != State::Listening || i.shut.contains(Shutdown::RECEIVE) {
                None
            } else if i.backlog.len() + i.deferred.len() > i.max_backlog {
                i.pending.push_back(server);
                Some(false)
            } else if let Some(seconds) = i.tcp.defers() {
                server.inner.lock().kept_by = Some(self.me.clone());
                let until = time::monotonic_ns() + seconds * 1_000_000_000;
                i.deferred.push_back((until, server));
                kept_until = Some(until);
                Some(true)
            } else {
                i.backlog.push_back(server);
                Some(true)
            }
        };
        if let Some(until) = kept_until {
            self.look_at(until);
        }
        room
    }

    /// Connects to its own address, where nobody listens: both ends are this one (a simultaneous open).
    pub(super) fn meet_itself(&self, to: End, nonblock: bool) -> Result<()> {
        {
            let mut i = self.inner.lock();
            i.state = State::Established;
            i.shut = Shutdown::empty();
            i.fin = false;
            i.remote = to;
            i.peer = Some(self.me());
            i.told = if nonblock { Told::Success } else { Told::Nothing };
        }
        self.widen();
        self.common.peer_buf.store(self.common.rcvbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        self.common.wake_all(PollEvents::WRITABLE);
        if nonblock { Err(Errno::EINPROGRESS) } else { Ok(()) }
    }

    /// Nobody listens: ECONNREFUSED now, or through SO_ERROR after EINPROGRESS.
    pub(super) fn refused(&self, nonblock: bool) -> Result<()> {
        self.unbind(false);
        if !nonblock {
            return Err(Errno::ECONNREFUSED);
        }
        {
            let mut i = self.inner.lock();
            i.shut = BOTH;
            i.told = Told::Failure;
        }
        self.common.set_error(Errno::ECONNREFUSED);
        Err(Errno::EINPROGRESS)
    }

    /// Blocks until a connection in the making stands or falls.
    pub(crate) fn await_connection(&self) -> Result<()> {
        let r = wait(&self.common.wq, false, self.common.send_deadline(), || {
            if let Some(e) = self.common.take_error() {
                return Some(Err(e));
            }
            match self.inner.lock().state {
                State::Connecting => None,
                State::Established => Some(Ok(())),
                _ => Some(Err(Errno::ECONNABORTED)),
            }
        });
        match r {
            Err(Errno::EAGAIN) => Err(Errno::EINPROGRESS),
            Err(e) if e != Errno::ERESTARTSYS && e != Errno::EINTR => {
                let mut i = self.inner.lock();
                i.told = Told::Nothing;
                i.shut = Shutdown::empty();
                drop(i);
                self.unbind(false);
                Err(e)
            }
            r => {
                if r.is_ok() {
                    self.inner.lock().told = Told::Nothing;
                }
                r
            }
        }
    }

    /// The client's end of a server end that got into the backlog.
    pub(super) fn established(&self) {
        let peer_buf = self.peer().map_or(0, |p| p.common.rcvbuf.load(Ordering::Relaxed));
        self.common.peer_buf.store(peer_buf, Ordering::Relaxed);
        self.widen();
        {
            let mut i = self.inner.lock();
            if i.state != State::Connecting {
                return;
            }
            i.state = State::Established;
        }
        self.common.wake_all(PollEvents::WRITABLE);
    }
}

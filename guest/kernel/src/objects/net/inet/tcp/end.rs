//! The ends of a TCP connection in time: what keeps an address in use when it is over (TIME_WAIT, FIN_WAIT_2), and what is
//! not accepted before something has come (TCP_DEFER_ACCEPT).
//!
//! Nothing can arrive late inside a domain; addresses are kept all the same, as programs know it from Linux. The port
//! table holds who waits ([`Waiting`]) until a time that is looked at when the address is wanted; only who is kept back has a timer.
//! Lock order: a listener's `inner` → its server ends' `inner`.

use crate::core::sched::PollEvents;
use crate::objects::net::inet::{End, PORTS};
use alloc::sync::{Arc, Weak};

use doppel_algo::net::ports::Waiting;

use super::{Inner, Tcp};
use crate::core::time;
use crate::core::time::Expire;
use crate::kernel;
use crate::objects::net::consts::{SO_REUSEADDR, SO_REUSEPORT, Shutdown};
use crate::objects::net::outside::Far;

/// How long TIME_WAIT lasts, and FIN_WAIT_2 without TCP_LINGER2, in seconds.
const WAIT: u64 = 60;

/// How a connection stood when its descriptor went.
pub(super) struct Ended {
    local: End,
    remote: End,
    /// The other end's FIN has come.
    fin: bool,
    /// This end's FIN went before that, or goes now.
    first: bool,
    /// This end's FIN has gone already.
    sent: bool,
    /// TCP_LINGER2
    lingers: Option<u64>,
}

impl Tcp {
    /// How the connection stands.
    pub(super) fn end(&self, i: &Inner) -> Ended {
        let sent = i.shut.contains(Shutdown::SEND);
        Ended {
            local: i.local,
            remote: i.remote,
            fin: i.fin,
            first: if sent { i.first } else { !i.fin },
            sent,
            lingers: i.tcp.lingers(),
        }
    }

    /// Keeps the address of this end for some seconds.
    fn wait(&self, local: End, remote: End, half: bool, seconds: u64) {
        let waiting = Waiting {
            id: self.common.ino,
            local: local.ip,
            remote: (remote.ip, remote.port),
            reuse_addr: self.common.on(SO_REUSEADDR),
            reuse_port: self.common.on(SO_REUSEPORT),
            half,
            until: time::monotonic_ns().saturating_add(seconds * 1_000_000_000),
            count: 1,
        };
        PORTS.get().tcp.lock().wait(local.port, waiting);
    }

    /// The other end finishes: if this one had finished before, whether its descriptor is gone or not, it is in
    /// TIME_WAIT now.
    pub(super) fn wait_if_first(&self) {
        let (first, local, remote) = {
            let i = self.inner.lock();
            (i.first && !i.fin, i.local, i.remote)
        };
        if first {
            self.wait(local, remote, false, WAIT);
        }
    }

    /// The connection of which this is the first end that finished was reset: its address is free.
    pub(super) fn wait_no_more(&self) {
        let (first, port) = {
            let mut i = self.inner.lock();
            (core::mem::take(&mut i.first), i.local.port)
        };
        if first {
            PORTS.get().tcp.lock().wait_no_more(port, self.common.ino);
        }
    }

    /// Something has come to an end that was kept back: it can be accepted now.
    pub(super) fn let_in(&self, listener: &Weak<Tcp>) {
        let Some(l) = listener.upgrade() else { return };
        let found = {
            let mut i = l.inner.lock();
            let at = i.deferred.iter().position(|(_, s)| core::ptr::eq(&**s, self));
            let s = at.and_then(|at| i.deferred.remove(at));
            let found = s.is_some();
            i.backlog.extend(s.map(|(_, s)| s));
            found
        };
        if found {
            l.common.wake_read(PollEvents::READABLE);
        }
    }
}

/// The time is over for which a listener keeps a connection back.
struct Over(Weak<Tcp>);

impl Expire for Over {
    fn expire(self: Arc<Self>, _now: u64) {
        if let Some(l) = self.0.upgrade() {
            l.common.wake_read(PollEvents::READABLE);
        }
    }
}

impl Tcp {
    /// Has those who wait for this listener look again at a time.
    pub(super) fn look_at(&self, when: u64) {
        kernel().timekeeper.arm(when, Arc::new(Over(Arc::downgrade(&self.me()))));
    }
}

impl Inner {
    /// Of a listener: lets those in that were kept back for as long as was asked.
    pub(super) fn admit(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let now = time::monotonic_ns();
        while let Some((_, s)) = self.deferred.pop_front_if(|(until, _)| *until <= now) {
            s.inner.lock().kept_by = None;
            self.backlog.push_back(s);
        }
    }
}

impl Ended {
    /// The descriptor goes: keeps what must be kept.
    pub(super) fn close(&self, s: &Tcp, peer: Option<&Tcp>, far: Option<&Far>) {
        let fin = self.fin || far.is_some_and(Far::ended);
        if let Some(p) = peer.filter(|_| !self.sent) {
            p.wait_if_first();
        }
        let first = if far.is_some() && !self.sent { !fin } else { self.first };
        if !first {
            return;
        }
        s.inner.lock().first = true;
        match self.lingers {
            _ if fin => s.wait(self.local, self.remote, false, WAIT),
            Some(seconds) => s.wait(self.local, self.remote, true, seconds),
            None => {}
        }
    }
}

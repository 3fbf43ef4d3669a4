//! The end of a connection: by its owner, by its peer, by a reset.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::super::End;
use super::{BOTH, State, Tcp, Told};
use crate::Errno;
use crate::core::sched::PollEvents;
use crate::objects::net::consts::Shutdown;
use crate::objects::net::inet::PORTS;

impl Tcp {
    /// The other end refused, reset or vanished: nothing more can be sent or received, except what is queued.
    pub(crate) fn reset(&self, mut e: Errno) {
        let peer = {
            let mut i = self.inner.lock();
            if i.state == State::Dead {
                drop(i);
                self.wait_no_more();
                return;
            }
            if i.fin && !i.shut.contains(Shutdown::SEND) && e == Errno::ECONNRESET {
                // It had sent all it wanted: a broken pipe, as on Linux.
                e = Errno::EPIPE;
            }
            i.shut = BOTH;
            i.state = State::Closed;
            i.told = Told::Failure;
            i.first = false;
            i.peer.take()
        };
        drop(peer);
        self.common.set_error(e);
        self.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::ALWAYS | PollEvents::RDHUP);
    }

    /// What a write to an end that has closed its socket brings: a reset, told as EPIPE next time.
    pub(super) fn broken(&self) {
        self.reset(Errno::EPIPE);
    }

    /// A FIN arrives.
    pub(super) fn finish(&self) {
        let kept_by = {
            let mut i = self.inner.lock();
            i.shut |= Shutdown::RECEIVE;
            i.fin = true;
            i.kept_by.take()
        };
        if let Some(l) = kept_by {
            self.let_in(&l);
        }
        self.common.wake_all(PollEvents::READABLE | PollEvents::RDHUP | PollEvents::HUP);
    }

    /// connect to AF_UNSPEC: breaks the connection, and the socket can be used again.
    pub(super) fn disconnect(&self) {
        let (peer, far, queued) = {
            let mut i = self.inner.lock();
            if i.state == State::Listening {
                return;
            }
            i.state = State::Closed;
            i.shut = Shutdown::empty();
            i.fin = false;
            i.first = false;
            i.told = Told::Nothing;
            i.remote = End::unspecified(self.family());
            (i.peer.take(), i.far.take(), i.recv.clear())
        };
        self.leave_far(far, None, true);
        if let Some(p) = peer.filter(|p| !core::ptr::eq(&**p, self)) {
            p.common.uncharge(queued);
            p.reset(Errno::ECONNRESET);
        }
        self.common.wmem.store(0, Ordering::SeqCst);
        self.unbind(false);
    }

    pub(super) fn close(&self) {
        let (was, peer, (far, listener), unread, waiting, end) = {
            let mut i = self.inner.lock();
            let was = core::mem::replace(&mut i.state, State::Dead);
            if was == State::Dead {
                return;
            }
            let end = (was == State::Established).then(|| self.end(&i));
            i.shut = BOTH;
            let waiting: Vec<_> = {
                let mut w = core::mem::take(&mut i.backlog);
                w.extend(core::mem::take(&mut i.deferred).into_iter().map(|(_, s)| s));
                w.extend(core::mem::take(&mut i.pending));
                w.into()
            };
            (was, i.peer.take(), (i.far.take(), i.listener.take()), i.recv.clear(), waiting, end)
        };
        let abort = self.common.aborts();
        if let Some(end) = end.filter(|_| unread == 0 && !abort) {
            // Before the port is given up: it is never free in between.
            end.close(self, peer.as_deref(), far.as_deref());
        }
        self.unbind(true);
        self.leave_far(far, listener, abort || was == State::Connecting);
        if let Some(p) = peer {
            p.common.uncharge(unread);
            if unread > 0 || abort || was == State::Connecting {
                p.reset(Errno::ECONNRESET);
            } else {
                p.finish();
            }
        }
        waiting.iter().for_each(|s| s.turn_away());
        self.common.wake_all(PollEvents::HUP | PollEvents::IN | PollEvents::OUT);
    }

    /// The server's end of a connection whose listener listens no more: the client is reset, or refused.
    pub(super) fn turn_away(&self) {
        let (client, far) = {
            let mut i = self.inner.lock();
            i.state = State::Dead;
            i.kept_by = None;
            (i.peer.take(), i.far.take())
        };
        self.leave_far(far, None, true);
        if let Some(cl) = client {
            let connecting = cl.inner.lock().state == State::Connecting;
            cl.reset(if connecting { Errno::ECONNREFUSED } else { Errno::ECONNRESET });
        }
    }

    /// Gives up a connection in the making; whoever waits for it is told.
    pub(super) fn stop_connecting(&self) {
        self.common.set_error(Errno::ECONNRESET);
        self.disconnect();
    }

    /// Gives the port up unless bind asked for it.
    pub(super) fn unbind(&self, also_explicit: bool) {
        let port = {
            let mut i = self.inner.lock();
            if i.explicit && !also_explicit {
                return;
            }
            if i.state != State::Dead {
                i.local = End::unspecified(self.family());
            }
            i.port.take()
        };
        if let Some(p) = port {
            PORTS.get().tcp.lock().unbind(p, self.common.ino);
        }
    }
}

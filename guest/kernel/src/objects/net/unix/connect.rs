//! Connecting and accepting.

use crate::core::sched::PollEvents;
use crate::core::subject::subject;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_algo::net::sockaddr::{Addr, UnixName};

use super::scm::Ucred;
use super::{BOTH, State, UnixSock, names};
use crate::objects::net::common::wait;
use crate::objects::net::consts::{SO_PASSCRED, SO_PASSPIDFD, SOCK_DGRAM, Shutdown};
use crate::objects::net::socket::SocketOps;
use crate::{Errno, Result};

/// `connect(2)`
pub(super) fn connect(s: &UnixSock, addr: &Addr, nonblock: bool) -> Result<()> {
    if s.common.kind == SOCK_DGRAM {
        return connect_dgram(s, addr);
    }
    let Addr::Unix(name) = addr else { return Err(Errno::EINVAL) };
    if s.wants_cred() {
        s.autobind()?;
    }
    {
        let mut i = s.inner.lock();
        match i.state {
            State::Idle => i.state = State::Connecting,
            State::Connected => return Err(Errno::EISCONN),
            State::Connecting => return Err(Errno::EALREADY),
            State::Listening | State::Dead => return Err(Errno::EINVAL),
        }
    }
    let r = dial(s, name, nonblock);
    if r.is_err() {
        let mut i = s.inner.lock();
        i.state = State::Idle;
        let peer = i.peer.take();
        drop(i);
        drop(peer);
    }
    r
}

fn dial(s: &UnixSock, name: &UnixName, nonblock: bool) -> Result<()> {
    let l = names::find(name)?;
    if l.common.kind != s.common.kind {
        return Err(Errno::EPROTOTYPE);
    }
    // Both ends are ready before the listener can hand the new one out.
    let server = UnixSock::new(s.common.kind)?;
    server.common.switch(SO_PASSCRED, l.common.passcred());
    server.common.switch(SO_PASSPIDFD, l.common.on(SO_PASSPIDFD));
    server.unaccepted.store(true, Ordering::Relaxed);
    {
        let name = l.name();
        let mut i = server.inner.lock();
        i.state = State::Connected;
        i.name = name;
        i.peer = Some(s.me());
        i.peer_cred = Some(Ucred::peer_of(&*subject()));
    }
    s.inner.lock().peer = Some(server.clone());
    let queued = wait(&l.space, nonblock, s.common.send_deadline(), || {
        let mut i = l.inner.lock();
        if i.state != State::Listening || i.shut.contains(Shutdown::RECEIVE) {
            return Some(Err(Errno::ECONNREFUSED));
        }
        if i.backlog.len() > i.max_backlog {
            return None;
        }
        i.backlog.push_back(server.clone());
        Some(Ok(i.own_cred))
    });
    match queued {
        Ok(cred) => {
            let mut i = s.inner.lock();
            i.state = State::Connected;
            i.peer_cred = cred;
            drop(i);
            l.common.wake_read(PollEvents::READABLE);
            Ok(())
        }
        Err(e) => {
            server.discard();
            Err(e)
        }
    }
}

impl UnixSock {
    /// Undoes the making of an end that nobody has seen.
    fn discard(&self) {
        let mut i = self.inner.lock();
        i.state = State::Dead;
        i.shut = BOTH;
        let peer = i.peer.take();
        drop(i);
        drop(peer);
        names::names().all.lock().remove(&self.common.ino);
    }
}

fn connect_dgram(s: &UnixSock, addr: &Addr) -> Result<()> {
    let peer = match addr {
        Addr::Unspec => None,
        Addr::Unix(name) => {
            if s.wants_cred() {
                s.autobind()?;
            }
            let p = names::find(name)?;
            if p.common.kind != SOCK_DGRAM {
                return Err(Errno::EPROTOTYPE);
            }
            p.may_receive_from(s)?;
            Some(p)
        }
        _ => return Err(Errno::EINVAL),
    };
    let old = {
        let mut i = s.inner.lock();
        i.peer_cred = None;
        core::mem::replace(&mut i.peer, peer)
    };
    drop(old);
    s.common.wake_write(PollEvents::OUT);
    Ok(())
}

/// `accept(2)`
pub(super) fn accept(l: &UnixSock, nonblock: bool) -> Result<Arc<dyn SocketOps>> {
    if l.common.kind == SOCK_DGRAM {
        return Err(Errno::EOPNOTSUPP);
    }
    let s = wait(&l.common.rq, nonblock, l.common.recv_deadline(), || {
        let mut i = l.inner.lock();
        if i.state != State::Listening {
            return Some(Err(Errno::EINVAL));
        }
        match i.backlog.pop_front() {
            Some(s) => Some(Ok(s)),
            None if i.shut.contains(Shutdown::RECEIVE) => Some(Err(Errno::EINVAL)),
            None => None,
        }
    })?;
    s.unaccepted.store(false, Ordering::Relaxed);
    l.space.wake_all(PollEvents::OUT);
    Ok(s)
}

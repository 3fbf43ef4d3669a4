//! AF_UNIX sockets (`unix(7)`).
//!
//! Key type: [`UnixSock`], an endpoint of any of the three types. Data wait in the *receiver's* queue and are
//! charged to the *sender's* `Common::wmem`. stream.rs moves bytes, dgram.rs messages (datagram and seqpacket),
//! connect.rs makes connections, names.rs finds sockets, scm.rs carries descriptors and credentials.
//! Lock order: one socket's `inner` at a time; flight lock (scm.rs) → inner; inner → wait queues.
//! Messages are never dropped under `inner`: dropping one may close files.

mod connect;
mod dgram;
pub mod names;
pub mod scm;
mod stream;

use crate::core::subject::subject;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_algo::net::sockaddr::{Addr, UnixName};
use doppel_algo::net::stream::Stream;
use doppel_machine::sync::SpinLock;

use super::consts::{
    MsgFlags, SO_PASSPIDFD, SO_PEERGROUPS, SO_PEERPIDFD, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM,
    SOL_SOCKET, Shutdown,
};
use super::socket::{Received, SendMsg, SocketOps};
use super::{Common, consts};
use crate::core::sched::{PollEvents, PollTable, WaitQueue};
use crate::objects::net::unix::scm::PEERS;
use crate::objects::vfs::{File, Inode, Input, Output};
use crate::{Errno, Result};
use dgram::Message;
use scm::{Fds, Ucred};

/// Messages a datagram socket holds before senders wait (`net.unix.max_dgram_qlen`).
pub const MAX_DGRAM_QLEN: usize = 512;

const BOTH: Shutdown = Shutdown::all();

/// Where a socket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not connected (datagram sockets stay here).
    Idle,
    /// In connect.
    Connecting,
    Connected,
    Listening,
    /// The last descriptor is gone.
    Dead,
}

/// Who sent a chunk of a stream, and what came with it.
struct Mark {
    cred: Ucred,
    fds: Option<Fds>,
}

struct Inner {
    state: State,
    name: Arc<UnixName>,
    /// The inode of a path name.
    inode: Option<Arc<dyn Inode>>,
    /// The other end; kept (for getpeername) until this end is closed.
    peer: Option<Arc<UnixSock>>,
    peer_cred: Option<Ucred>,
    /// Who listened (credentials shown to those who connect).
    own_cred: Option<Ucred>,
    shut: Shutdown,
    stream: Stream<Mark>,
    messages: VecDeque<Message>,
    /// Connections not yet accepted, and how many may wait.
    backlog: VecDeque<Arc<UnixSock>>,
    max_backlog: usize,
}

/// An AF_UNIX endpoint.
pub struct UnixSock {
    me: Weak<UnixSock>,
    common: Common,
    inner: SpinLock<Inner>,
    /// Connected, and nobody has accepted it yet.
    unaccepted: AtomicBool,
    /// Woken when the queue of messages or of connections has room again.
    space: Arc<WaitQueue>,
}

impl UnixSock {
    /// A new socket; ESOCKTNOSUPPORT for other types.
    pub fn new(kind: u32) -> Result<Arc<Self>> {
        let kind = match kind {
            SOCK_RAW => SOCK_DGRAM,
            SOCK_STREAM | SOCK_DGRAM | SOCK_SEQPACKET => kind,
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        let s = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            common: Common::new(doppel_algo::net::sockaddr::AF_UNIX, kind, 0),
            inner: SpinLock::new(Inner {
                state: State::Idle,
                name: Arc::new(UnixName::Unnamed),
                inode: None,
                peer: None,
                peer_cred: None,
                own_cred: None,
                shut: Shutdown::empty(),
                stream: Stream::default(),
                messages: VecDeque::new(),
                backlog: VecDeque::new(),
                max_backlog: MAX_DGRAM_QLEN,
            }),
            unaccepted: AtomicBool::new(false),
            space: Arc::default(),
        });
        names::names().all.lock().insert(s.common.ino, Arc::downgrade(&s));
        Ok(s)
    }

    /// Two connected sockets.
    pub fn pair(kind: u32) -> Result<(Arc<Self>, Arc<Self>)> {
        let (a, b) = (Self::new(kind)?, Self::new(kind)?);
        let cred = Ucred::peer_of(&*subject());
        for (x, y) in [(&a, &b), (&b, &a)] {
            let mut i = x.inner.lock();
            i.peer = Some(y.clone());
            i.peer_cred = Some(cred);
            if x.common.kind != SOCK_DGRAM {
                i.state = State::Connected;
            }
        }
        Ok((a, b))
    }

    /// For /proc/net/unix: flags, SS_* state, name as shown there.
    pub fn row(&self) -> (u32, u8, Vec<u8>) {
        let i = self.inner.lock();
        let (flags, state) = match i.state {
            State::Listening => (0x1_0000, 1),
            State::Connected => (0, 3),
            State::Connecting => (0, 2),
            State::Idle | State::Dead => (0, if i.peer.is_some() { 3 } else { 1 }),
        };
        let name = match &*i.name {
            UnixName::Unnamed => Vec::new(),
            UnixName::Path(p) => p.clone(),
            UnixName::Abstract(a) => {
                let shown = a.iter().map(|b| if *b == 0 { b'@' } else { *b });
                core::iter::once(b'@').chain(shown).collect()
            }
        };
        (flags, state, name)
    }

    /// Whose credentials go with what is sent to `to`: those given, and if none are the sender's if either end has asked
    /// for such, or the other end is not accepted yet and may.
    fn sender(&self, to: &Self, given: Option<Ucred>) -> Ucred {
        match given {
            Some(c) => c,
            None if self.wants_cred() || to.wants_cred() || to.unaccepted.load(Ordering::Relaxed) => {
                Ucred::of(&*subject())
            }
            None => Ucred::NOBODY,
        }
    }

    fn wants_cred(&self) -> bool {
        self.common.passcred() || self.common.on(SO_PASSPIDFD)
    }

    fn stream(&self) -> bool {
        self.common.kind == SOCK_STREAM
    }

    fn me(&self) -> Arc<Self> {
        match self.me.upgrade() {
            Some(a) => a,
            None => unreachable!("a method runs on a live socket"),
        }
    }

    fn name(&self) -> Arc<UnixName> {
        self.inner.lock().name.clone()
    }

    /// Gives an unnamed socket that wants credentials a name.
    fn autobind(&self) -> Result<()> {
        if *self.name() != UnixName::Unnamed {
            return Ok(());
        }
        let name = names::names().claim_any(&self.me())?;
        self.inner.lock().name = Arc::new(UnixName::Abstract(name));
        Ok(())
    }

    /// Reports every file in flight in this socket's queues, and in those of connections not yet accepted.
    fn files_in_queue(&self, each: &mut dyn FnMut(&Arc<File>)) {
        let waiting: Vec<_> = {
            let i = self.inner.lock();
            for f in i.stream.iter().filter_map(|c| c.mark.fds.as_ref()) {
                f.files().iter().for_each(&mut *each);
            }
            for f in i.messages.iter().filter_map(|m| m.fds.as_ref()) {
                f.files().iter().for_each(&mut *each);
            }
            i.backlog.iter().cloned().collect()
        };
        for s in waiting {
            // Connections in a backlog are not listeners: one level.
            let i = s.inner.lock();
            for f in i.stream.iter().filter_map(|c| c.mark.fds.as_ref()) {
                f.files().iter().for_each(&mut *each);
            }
            for f in i.messages.iter().filter_map(|m| m.fds.as_ref()) {
                f.files().iter().for_each(&mut *each);
            }
        }
    }

    /// Drops everything queued; true if there was something.
    fn purge(&self) -> bool {
        let (stream, messages, peer) = {
            let mut i = self.inner.lock();
            (core::mem::take(&mut i.stream), core::mem::take(&mut i.messages), i.peer.clone())
        };
        let had = !stream.is_empty() || !messages.is_empty();
        if let Some(p) = peer.filter(|_| !stream.is_empty()) {
            p.common.uncharge(stream.len());
        }
        had
    }

    /// The other end has gone or was never accepted.
    fn peer_gone(&self, reset: bool) {
        self.inner.lock().shut |= BOTH;
        if reset {
            self.common.set_error(Errno::ECONNRESET);
        }
        self.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::HUP | PollEvents::RDHUP);
    }

    fn close(&self) {
        let (inode, name, peer, backlog) = {
            let mut i = self.inner.lock();
            if i.state == State::Dead {
                return;
            }
            i.state = State::Dead;
            i.shut |= BOTH;
            (i.inode.take(), i.name.clone(), i.peer.clone(), core::mem::take(&mut i.backlog))
        };
        names::names().all.lock().remove(&self.common.ino);
        if let UnixName::Abstract(a) = &*name {
            names::names().forget_if(a, self);
        }
        if let Some(i) = inode {
            names::unbind_path(&i);
        }
        let unread = self.purge();
        if let Some(p) = peer.filter(|_| self.common.kind != SOCK_DGRAM) {
            p.peer_gone(unread);
        }
        for s in backlog {
            s.close_unaccepted();
        }
        let peer = self.inner.lock().peer.take();
        drop(peer);
        self.common.wake_all(PollEvents::HUP | PollEvents::IN | PollEvents::OUT);
        self.space.wake_all(PollEvents::OUT);
    }

    /// A connection whose listener closed before accepting it.
    fn close_unaccepted(&self) {
        let peer = {
            let mut i = self.inner.lock();
            i.state = State::Dead;
            i.shut |= BOTH;
            i.peer.clone()
        };
        self.purge();
        names::names().all.lock().remove(&self.common.ino);
        if let Some(p) = peer {
            p.peer_gone(true);
        }
        let peer = self.inner.lock().peer.take();
        drop(peer);
    }
}

impl SocketOps for UnixSock {
    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, addr: &Addr) -> Result<()> {
        let Addr::Unix(name) = addr else { return Err(Errno::EINVAL) };
        if *self.name() != UnixName::Unnamed {
            // Autobind of a bound socket is accepted.
            return if *name == UnixName::Unnamed { Ok(()) } else { Err(Errno::EINVAL) };
        }
        match name {
            UnixName::Unnamed => self.autobind(),
            UnixName::Abstract(a) => {
                names::names().claim(a, &self.me())?;
                self.inner.lock().name = Arc::new(name.clone());
                Ok(())
            }
            UnixName::Path(p) => {
                let inode = names::bind_path(p, &self.me())?;
                let mut i = self.inner.lock();
                i.inode = Some(inode);
                i.name = Arc::new(name.clone());
                Ok(())
            }
        }
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        if self.common.kind == SOCK_DGRAM {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut i = self.inner.lock();
        if !matches!(i.state, State::Idle | State::Listening) || *i.name == UnixName::Unnamed {
            return Err(Errno::EINVAL);
        }
        i.state = State::Listening;
        // A negative backlog is a huge one.
        i.max_backlog = usize::try_from(backlog).unwrap_or(consts::SOMAXCONN).min(consts::SOMAXCONN);
        i.own_cred = Some(Ucred::peer_of(&*subject()));
        drop(i);
        self.space.wake_all(PollEvents::OUT);
        Ok(())
    }

    fn connect(&self, addr: &Addr, nonblock: bool) -> Result<()> {
        connect::connect(self, addr, nonblock)
    }

    fn accept(&self, nonblock: bool) -> Result<Arc<dyn SocketOps>> {
        connect::accept(self, nonblock)
    }

    fn local(&self) -> Result<Addr> {
        Ok(Addr::Unix((*self.name()).clone()))
    }

    fn remote(&self) -> Result<Addr> {
        let peer = self.inner.lock().peer.clone().ok_or(Errno::ENOTCONN)?;
        Ok(Addr::Unix((*peer.name()).clone()))
    }

    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        if msg.flags.contains(MsgFlags::OOB) {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.stream() { stream::send(self, input, msg) } else { dgram::send(self, input, msg) }
    }

    fn recv(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        if flags.contains(MsgFlags::OOB) {
            return Err(if self.stream() { Errno::EINVAL } else { Errno::EOPNOTSUPP });
        }
        if self.stream() { stream::recv(self, out, flags) } else { dgram::recv(self, out, flags) }
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let peer = {
            let mut i = self.inner.lock();
            i.shut |= how;
            i.peer.clone()
        };
        if let Some(p) = peer.filter(|_| self.common.kind != SOCK_DGRAM) {
            let mut theirs = Shutdown::empty();
            if how.contains(Shutdown::RECEIVE) {
                theirs |= Shutdown::SEND;
            }
            if how.contains(Shutdown::SEND) {
                theirs |= Shutdown::RECEIVE;
            }
            p.inner.lock().shut |= theirs;
            p.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::RDHUP | PollEvents::HUP);
        }
        self.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::RDHUP | PollEvents::HUP);
        Ok(())
    }

    fn poll(&self, mut table: Option<&mut PollTable>) -> PollEvents {
        self.common.register(table.as_deref_mut());
        let (mut ev, state, peer) = {
            let i = self.inner.lock();
            let mut ev = PollEvents::empty();
            if i.shut.contains(Shutdown::RECEIVE) {
                ev |= PollEvents::RDHUP | PollEvents::READABLE;
            }
            if i.shut == BOTH {
                ev |= PollEvents::HUP;
            }
            if !i.stream.is_empty() || !i.messages.is_empty() || !i.backlog.is_empty() {
                ev |= PollEvents::READABLE;
            }
            (ev, i.state, i.peer.clone())
        };
        if self.common.has_error() {
            ev |= PollEvents::ERR;
        }
        let dgram = self.common.kind == SOCK_DGRAM;
        if !dgram && matches!(state, State::Idle | State::Connecting) {
            ev |= PollEvents::HUP;
        }
        let mut writable = state != State::Listening && self.common.writable();
        if let Some(p) = peer.filter(|_| dgram) {
            if let Some(t) = table {
                t.add(&p.space);
            }
            writable &= !p.queue_full_for(self);
        }
        if writable {
            ev |= PollEvents::WRITABLE | PollEvents::WRBAND;
        }
        ev
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if (level, name) == (SOL_SOCKET, SO_PEERGROUPS) {
            let pid = self.peer_cred().ok_or(Errno::ENODATA)?.pid;
            let groups = (PEERS.get().groups)(pid).ok_or(Errno::ENODATA)?;
            return Ok(groups.iter().flat_map(|g| g.to_ne_bytes()).collect());
        }
        if (level, name) == (SOL_SOCKET, SO_PEERPIDFD) {
            let pid = self.peer_cred().ok_or(Errno::ENODATA)?.pid;
            let gone = |e| if e == Errno::ESRCH { Errno::EINVAL } else { e };
            return Ok((PEERS.get().descriptor)(pid).map_err(gone)?.to_ne_bytes().to_vec());
        }
        Err(if level == SOL_SOCKET { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP })
    }

    fn set_option(&self, level: i32, _name: i32, _value: &[u8]) -> Result<()> {
        Err(if level == SOL_SOCKET { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP })
    }

    fn listening(&self) -> bool {
        self.inner.lock().state == State::Listening
    }

    fn peer_cred(&self) -> Option<Ucred> {
        self.inner.lock().peer_cred
    }

    fn readable_bytes(&self) -> Result<usize> {
        let i = self.inner.lock();
        if i.state == State::Listening {
            return Err(Errno::EINVAL);
        }
        Ok(match self.common.kind {
            SOCK_STREAM => i.stream.len(),
            SOCK_SEQPACKET => i.messages.iter().map(|m| m.data.len()).sum(),
            _ => i.messages.front().map_or(0, |m| m.data.len()),
        })
    }

    fn unsent_bytes(&self) -> Result<usize> {
        if self.listening() {
            return Err(Errno::EINVAL);
        }
        Ok(self.common.wmem.load(Ordering::Relaxed))
    }

    fn release(&self) {
        self.close();
        scm::collect();
    }
}

//! TCP endpoints: binding, listening, connecting, closing.
//!
//! Key types: [`Tcp`]; [`Transport`], which carries the bytes: inside.rs or outside.rs. A connection exists from the moment the listener has room for
//! it in its backlog; until then the connecting end waits in the listener's `pending` list, as a SYN would be
//! resent. end.rs keeps addresses in use after the end (TIME_WAIT), and ends back before the beginning.

mod closing;
mod connect;
mod end;
mod inside;
mod options;
mod outside;
mod told;
mod transport;

use crate::objects::net::inet::PORTS;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::net::sockaddr::Addr;
use doppel_algo::net::stream::Stream;
use doppel_machine::sync::SpinLock;

use super::ipopts::{self, IpOptions};
use super::{End, binding, check_bind, claim, share_anew};
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::net::common::{Common, wait};
use crate::objects::net::consts as c;
use crate::objects::net::consts::{MsgFlags, SOCK_STREAM, Shutdown};
use crate::objects::net::outside::Far;
use crate::objects::net::socket::{Received, SendMsg, SocketOps};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};
use options::TcpOptions;
use transport::Transport;

/// Default send buffer (`net.ipv4.tcp_wmem`), what it is once there is a connection, and receive buffer (`tcp_rmem`).
const SNDBUF: usize = 16_384;
/// See [`SNDBUF`].
const CONNECTED_SNDBUF: usize = 87_040;
/// See [`SNDBUF`].
const RCVBUF: usize = 131_072;
pub(crate) const BOTH: Shutdown = Shutdown::all();

/// Where an endpoint is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not connected.
    Closed,
    /// Waiting for room in a listener's backlog.
    Connecting,
    Established,
    Listening,
    /// The last descriptor is gone.
    Dead,
}

/// What the last non-blocking connect left to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    /// Connected, and the next connect says so by succeeding.
    Success,
    /// Failed, and the next connect gives the error.
    Failure,
}

/// What both ends of a connection touch for every message stands first: it passes from one CPU to the other, and
/// each cache line of it costs as much as the rest of the call.
#[repr(C)]
pub(crate) struct Inner {
    pub(super) recv: Stream<()>,
    pub(super) peer: Option<Arc<Tcp>>,
    /// Instead of a peer: the connection outside the domain.
    pub(crate) far: Option<Arc<Far>>,
    /// Urgent byte not yet taken, and how many bytes before it are still to be read.
    pub(super) mark: Option<usize>,
    pub(super) urgent: Option<u8>,
    pub(crate) state: State,
    pub(crate) told: Told,
    /// RCV: no more comes (FIN, or shut here); SEND: no more goes.
    pub(crate) shut: Shutdown,
    /// The other end's FIN has come: reads end there, whatever happens to the connection later.
    pub(super) fin: bool,
    /// This end's FIN went before that.
    pub(super) first: bool,
    /// The service has sent all that was left when it was closed.
    pub(crate) parted: bool,
    explicit: bool,
    /// The listener that keeps this end back until something comes (TCP_DEFER_ACCEPT).
    pub(super) kept_by: Option<Weak<Tcp>>,
    pub(crate) local: End,
    pub(crate) remote: End,
    /// The port held in the port table; `explicit` if bind asked for it.
    pub(crate) port: Option<u16>,
    /// As what a listener is known to the network service.
    pub(crate) listener: Option<u32>,
    pub(crate) backlog: VecDeque<Arc<Tcp>>,
    pub(crate) max_backlog: usize,
    /// Server ends that are kept back until something comes (TCP_DEFER_ACCEPT), and until when at most.
    pub(super) deferred: VecDeque<(u64, Arc<Tcp>)>,
    /// Server ends of connections the backlog has no room for.
    pending: VecDeque<Arc<Tcp>>,
    pub(crate) ip: IpOptions,
    pub(crate) tcp: TcpOptions,
}

/// A TCP endpoint.
pub struct Tcp {
    me: Weak<Tcp>,
    pub(crate) common: Common,
    pub(crate) inner: SpinLock<Inner>,
}

impl Tcp {
    /// A new socket of `family`.
    pub fn new(family: u16) -> Arc<Self> {
        Self::with(Common::new(family, SOCK_STREAM, c::SOL_TCP))
    }

    /// The server's end of a connection to this listener.
    pub(crate) fn server(&self) -> Arc<Self> {
        let s = Self::with(Common::of_user(self.family(), SOCK_STREAM, c::SOL_TCP, self.common.uid));
        s.common.inherit(&self.common);
        s
    }

    fn with(common: Common) -> Arc<Self> {
        let family = common.domain;
        common.sndbuf.store(SNDBUF, Ordering::Relaxed);
        common.rcvbuf.store(RCVBUF, Ordering::Relaxed);
        let any = End::unspecified(family);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            common,
            inner: SpinLock::new(Inner {
                state: State::Closed,
                told: Told::Nothing,
                local: any,
                remote: any,
                port: None,
                explicit: false,
                peer: None,
                far: None,
                parted: false,
                listener: None,
                shut: Shutdown::empty(),
                fin: false,
                first: false,
                kept_by: None,
                recv: Stream::default(),
                urgent: None,
                mark: None,
                backlog: VecDeque::new(),
                max_backlog: 0,
                deferred: VecDeque::new(),
                pending: VecDeque::new(),
                ip: IpOptions::default(),
                tcp: TcpOptions::default(),
            }),
        })
    }

    pub(crate) fn me(&self) -> Arc<Self> {
        match self.me.upgrade() {
            Some(a) => a,
            None => unreachable!("a method runs on a live socket"),
        }
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    fn family(&self) -> u16 {
        self.common.domain
    }

    /// The other end, when connected (kept until this end closes or is reset).
    pub(super) fn peer(&self) -> Option<Arc<Tcp>> {
        self.inner.lock().peer.clone()
    }

    /// For /proc/net/tcp: local, remote, `TCP_*` state, bytes to send and to read.
    pub fn row(&self) -> (End, End, u8, usize, usize) {
        let i = self.inner.lock();
        let queue = if i.state == State::Listening { i.backlog.len() } else { i.recv.len() };
        let state = self.state_number(&i);
        (i.local, i.remote, state, self.common.wmem.load(Ordering::Relaxed), queue)
    }

    /// TCP_* number of the state.
    fn state_number(&self, i: &Inner) -> u8 {
        match i.state {
            State::Established if i.far.is_some() && i.shut == BOTH => 7,
            State::Established if i.far.is_some() && i.shut.contains(Shutdown::RECEIVE) => 8,
            State::Established => match (i.fin, i.shut.contains(Shutdown::SEND)) {
                (true, true) => 7,
                (true, false) => 8,
                (false, true) => 5,
                (false, false) => 1,
            },
            State::Connecting => 2,
            State::Listening => 10,
            State::Closed | State::Dead => 7,
        }
    }

    pub(super) fn tcp_info_state(&self) -> u8 {
        self.state_number(&self.inner.lock())
    }

    /// There is a connection: the send buffer grows, unless somebody has set its size.
    pub(crate) fn widen(&self) {
        if self.common.buf_lock.load(Ordering::Relaxed) & c::SNDBUF_LOCK == 0 {
            self.common.sndbuf.fetch_max(CONNECTED_SNDBUF, Ordering::Relaxed);
        }
    }

    /// Binds the port of a socket that has none.
    pub(crate) fn bind_to(&self, at: End, explicit: bool) -> Result<()> {
        let (v6only, range) = {
            let i = self.inner.lock();
            (i.ip.v6only, i.ip.ports())
        };
        if v6only && doppel_algo::net::ports::unmapped(&at.ip).is_some() {
            return Err(Errno::EINVAL);
        }
        let ports = PORTS.get();
        let port =
            claim(&ports.tcp, &at, range, !explicit, binding(&self.common, at.ip, v6only, self.me.clone()))?;
        let mut i = self.inner.lock();
        i.local = End { ip: at.ip, port };
        i.port = Some(port);
        i.explicit = explicit;
        Ok(())
    }
}

impl Inner {
    /// What carries the bytes.
    fn transport(&self) -> &dyn Transport {
        transport::of(self.far.as_deref())
    }
}

impl SocketOps for Tcp {
    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, addr: &Addr) -> Result<()> {
        let at = End::from_addr(self.family(), addr)?;
        let free = self.inner.lock().ip.binds_anything();
        check_bind(&self.common, &at, false, free)?;
        {
            let mut i = self.inner.lock();
            if i.state != State::Closed || i.port.is_some() {
                return Err(Errno::EINVAL);
            }
            if at.port == 0 && i.ip.binds_no_port() {
                i.local = at;
                return Ok(());
            }
        }
        self.bind_to(at, true)
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        let (state, port) = {
            let i = self.inner.lock();
            (i.state, i.port)
        };
        if !matches!(state, State::Closed | State::Listening) {
            return Err(Errno::EINVAL);
        }
        if port.is_none() {
            let ip = self.inner.lock().local.ip;
            self.bind_to(End { ip, port: 0 }, false)?;
        }
        let mut i = self.inner.lock();
        let Some(port) = i.port else { return Err(Errno::EINVAL) };
        PORTS.get().tcp.lock().listen(port, self.common.ino).map_err(|_| Errno::EADDRINUSE)?;
        i.max_backlog = usize::try_from(backlog).unwrap_or(c::SOMAXCONN).min(c::SOMAXCONN);
        i.state = State::Listening;
        i.shut = Shutdown::empty();
        drop(i);
        self.listen_far();
        Ok(())
    }

    fn connect(&self, addr: &Addr, nonblock: bool) -> Result<()> {
        if *addr == Addr::Unspec {
            self.disconnect();
            return Ok(());
        }
        let to = End::from_addr(self.family(), addr)?;
        {
            let mut i = self.inner.lock();
            let told = core::mem::replace(&mut i.told, Told::Nothing);
            match (i.state, told) {
                (State::Established, Told::Success) => return Ok(()),
                (State::Established | State::Listening, _) => return Err(Errno::EISCONN),
                (State::Connecting, _) if nonblock => {
                    i.told = told;
                    return Err(Errno::EALREADY);
                }
                (State::Connecting, _) => {
                    drop(i);
                    return self.await_connection();
                }
                (State::Closed, Told::Failure) => {
                    i.shut = Shutdown::empty();
                    drop(i);
                    self.unbind(false);
                    return Err(self.common.take_error().unwrap_or(Errno::ECONNABORTED));
                }
                (State::Closed, _) => {}
                (State::Dead, _) => return Err(Errno::EINVAL),
            }
        }
        self.dial(to, nonblock)
    }

    fn accept(&self, nonblock: bool) -> Result<Arc<dyn SocketOps>> {
        let (s, promoted) = wait(&self.common.rq, nonblock, self.common.recv_deadline(), || {
            let mut i = self.inner.lock();
            if i.state != State::Listening {
                return Some(Err(Errno::EINVAL));
            }
            i.admit();
            if let Some(s) = i.backlog.pop_front() {
                let next = i.pending.pop_front();
                i.backlog.extend(next.clone());
                return Some(Ok((s, next)));
            }
            (i.shut.contains(Shutdown::RECEIVE)).then_some(Err(Errno::EINVAL))
        })?;
        if let Some(client) = promoted.and_then(|p| p.peer()) {
            client.established();
        }
        // The new socket holds the port as well.
        let local = s.inner.lock().local;
        let b = binding(&s.common, local.ip, false, Arc::downgrade(&s));
        PORTS.get().tcp.lock().share(local.port, b);
        s.inner.lock().port = Some(local.port);
        Ok(s)
    }

    fn local(&self) -> Result<Addr> {
        Ok(self.inner.lock().local.show(self.family()))
    }

    fn remote(&self) -> Result<Addr> {
        let i = self.inner.lock();
        // Once both have said that they are done there is no connection any more.
        let over = i.far.is_none() && i.fin && i.shut.contains(Shutdown::SEND);
        if i.state != State::Established || over {
            return Err(Errno::ENOTCONN);
        }
        Ok(i.remote.show(self.family()))
    }

    fn accepted_from(&self) -> Result<Addr> {
        Ok(self.inner.lock().remote.show(self.family()))
    }

    fn send(&self, input: &mut Input<'_>, msg: SendMsg) -> Result<usize> {
        let far = self.far();
        let sent = transport::of(far.as_deref()).send(self, input, &msg);
        if msg.flags.contains(MsgFlags::ZEROCOPY) && sent.is_ok() {
            self.common.copied(msg.flags);
        }
        sent
    }

    fn recv(&self, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        if flags.contains(MsgFlags::OOB) {
            return transport::of(self.far().as_deref()).receive_urgent(self, out, flags);
        }
        if flags.contains(MsgFlags::ERRQUEUE) {
            return self.common.receive_error(out, flags);
        }
        let far = {
            let i = self.inner.lock();
            if i.state == State::Listening {
                return Err(Errno::ENOTCONN);
            }
            i.far.clone()
        };
        if out.remaining() == 0 {
            return Ok(Received::default());
        }
        transport::of(far.as_deref()).receive(self, out, flags)
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        let (listening, peer) = {
            let mut i = self.inner.lock();
            match i.state {
                State::Established => {}
                State::Listening if how.contains(Shutdown::RECEIVE) => {}
                State::Listening => return Ok(()),
                State::Connecting => {
                    drop(i);
                    self.stop_connecting();
                    return Ok(());
                }
                State::Closed | State::Dead => return Err(Errno::ENOTCONN),
            }
            i.transport().shut(how);
            let fin = how.contains(Shutdown::SEND) && !i.shut.contains(Shutdown::SEND);
            i.shut |= how;
            if fin {
                i.first = !(i.fin || i.transport().ended(&i));
            }
            (i.state == State::Listening, if fin { i.peer.clone() } else { None })
        };
        if listening {
            // Stops listening; the port stays bound.
            let waiting: Vec<_> = {
                let listener = self.inner.lock().listener.take();
                self.leave_far(None, listener, true);
                let mut i = self.inner.lock();
                i.state = State::Closed;
                i.shut = Shutdown::empty();
                let mut w = core::mem::take(&mut i.backlog);
                w.extend(core::mem::take(&mut i.deferred).into_iter().map(|(_, s)| s));
                w.extend(core::mem::take(&mut i.pending));
                w.into()
            };
            if let Some(p) = self.inner.lock().port {
                PORTS.get().tcp.lock().update(p, self.common.ino, |b| b.listening = false);
            }
            waiting.iter().for_each(|s| s.turn_away());
        }
        if let Some(p) = peer {
            p.wait_if_first();
            p.finish();
        }
        self.common.wake_all(PollEvents::IN | PollEvents::OUT | PollEvents::RDHUP | PollEvents::HUP);
        Ok(())
    }

    fn poll(&self, table: Option<&mut PollTable>) -> PollEvents {
        self.common.register(table);
        let mut i = self.inner.lock();
        if i.state == State::Listening {
            i.admit();
            return PollEvents::READABLE.when(!i.backlog.is_empty());
        }
        let error = PollEvents::ERR.when(self.common.has_error());
        i.transport().events(self, &i) | error
    }

    fn get_option(&self, level: i32, name: i32) -> Result<Vec<u8>> {
        if level == c::SOL_TCP {
            options::get(self, name)
        } else {
            if ipopts::is_mtu(level, name)
                && let Some(m) = options::measured(self).filter(|m| m.mtu > 0)
            {
                return Ok(m.mtu.to_ne_bytes().to_vec());
            }
            let i = self.inner.lock();
            let peer = (i.state == State::Established).then_some(&i.remote);
            ipopts::get(&i.ip, &self.common, i.port.unwrap_or(0), peer, level, name)
        }
    }

    fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level == c::SOL_TCP {
            return options::set(self, name, value);
        }
        {
            let mut i = self.inner.lock();
            let fixed = i.port.is_some();
            ipopts::set(&mut i.ip, &self.common, fixed, level, name, value)?;
        }
        told::of_address(self);
        Ok(())
    }

    fn listening(&self) -> bool {
        self.inner.lock().state == State::Listening
    }

    fn readable_bytes(&self) -> Result<usize> {
        let i = self.inner.lock();
        if i.state == State::Listening {
            return Err(Errno::EINVAL);
        }
        Ok(i.transport().readable_bytes(self, &i))
    }

    fn unsent_bytes(&self) -> Result<usize> {
        if self.listening() {
            return Err(Errno::EINVAL);
        }
        Ok(transport::of(self.far().as_deref()).unsent_bytes())
    }

    fn at_mark(&self) -> Result<bool> {
        let i = self.inner.lock();
        Ok(i.transport().bytes_before_mark(&i) == Some(0))
    }

    fn switched(&self, option: i32) {
        told::switched(self, option);
        let port = self.inner.lock().port;
        if let (c::SO_REUSEADDR | c::SO_REUSEPORT, Some(port)) = (option, port) {
            let ports = PORTS.get();
            ports.tcp.lock().update(port, self.common.ino, |b| share_anew(b, &self.common));
        }
    }

    fn release(&self) {
        let far = self.far().is_some();
        self.close();
        if far {
            self.linger();
        }
    }
}

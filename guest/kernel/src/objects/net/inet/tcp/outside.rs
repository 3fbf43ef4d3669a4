//! TCP endpoints whose other end is outside the domain: the network service executes them (`net::outside`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_abi_service::net as abi;

use super::transport::Transport;
use super::{BOTH, Inner, State, Tcp, Told, options, told};
use crate::core::sched::PollEvents;
use crate::core::time;
use crate::objects::net::common::wait;
use crate::objects::net::consts::{MsgFlags, SO_OOBINLINE, Shutdown};
use crate::objects::net::inet::{End, is_own, own_address};
use crate::objects::net::outside::{self, Far, Network, Outside};
use crate::objects::net::socket::{Received, SendMsg};
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

const READABLE: PollEvents = PollEvents::READABLE;
const WRITABLE: PollEvents = PollEvents::WRITABLE;

impl Tcp {
    /// The stream outside, if this endpoint has one.
    pub(crate) fn far(&self) -> Option<Arc<Far>> {
        self.inner.lock().far.clone()
    }

    /// Connects to an address outside.
    pub(crate) fn far_dial(&self, network: &Network, to: End, nonblock: bool) -> Result<()> {
        let source = own_address(&to.ip);
        if self.inner.lock().port.is_none() {
            self.bind_to(End { ip: source, port: 0 }, false).map_err(|_| Errno::EADDRNOTAVAIL)?;
        } else if self.inner.lock().local.is_any() {
            self.inner.lock().local.ip = source;
        }
        let number = network.number(self.weak())?;
        let far = network.far(number);
        far.cork(options::is_corked(self));
        let from = {
            let mut i = self.inner.lock();
            i.state = State::Connecting;
            i.shut = Shutdown::empty();
            i.remote = to;
            i.far = Some(far);
            i.local
        };
        network.connect(number, self.weak(), from.into(), to.into(), &told::of_connection(self));
        if nonblock {
            self.inner.lock().told = Told::Success;
            return Err(Errno::EINPROGRESS);
        }
        self.await_connection()
    }

    /// Whether it takes connections from outside.
    fn far_listens(&self) -> bool {
        self.inner.lock().listener.is_some()
    }

    /// Has the service give it connections, if it is bound to what can be reached from outside.
    pub(crate) fn listen_far(&self) {
        let Some(network) = outside::network() else { return };
        let local = self.inner.lock().local;
        let outside = local.is_any() || is_own(&local.ip);
        if !outside || self.far_listens() {
            return;
        }
        // Without a number it takes what comes from inside.
        if let Ok(n) = network.number(self.weak()) {
            self.inner.lock().listener = Some(n);
            self.register_listener(network, n);
        }
    }

    /// Registers the listener, at a new service domain again.
    fn register_listener(&self, network: &Network, n: u32) {
        let (at, backlog) = {
            let i = self.inner.lock();
            (i.local, i.max_backlog)
        };
        network.listen(n, at.into(), backlog, &told::of_listener(self));
    }

    /// Gives up what it has outside.
    pub(crate) fn leave_far(&self, far: Option<Arc<Far>>, listener: Option<u32>, abort: bool) {
        let Some(network) = outside::network() else { return };
        if let Some(f) = far {
            let lingers = matches!(self.common.linger(), (true, 1..));
            network.part(
                f.number(),
                abort || f.available() > 0,
                lingers.then(|| -> Arc<dyn Outside> { self.me() }),
            );
        }
        if let Some(n) = listener {
            network.close(n, true);
        }
    }
}

impl Tcp {
    /// SO_LINGER: has the closing thread wait until all has been sent, a signal comes or the time is over. It is sent
    /// in any case.
    pub(crate) fn linger(&self) {
        let (true, seconds @ 1..) = self.common.linger() else { return };
        let until = time::monotonic_ns().saturating_add(u64::from(seconds) * 1_000_000_000);
        let _ = wait(&self.common.wq, false, Some(until), || self.inner.lock().parted.then_some(Ok(())));
    }
}

impl Outside for Tcp {
    fn connected(&self, result: Result<()>) {
        let Some(network) = outside::network() else { return };
        let far = {
            let mut i = self.inner.lock();
            if i.state != State::Connecting {
                return;
            }
            match result {
                Ok(()) => {
                    i.state = State::Established;
                    i.far.clone()
                }
                Err(_) => i.far.take(),
            }
        };
        let Some(far) = far else { return };
        match result {
            Ok(()) => {
                self.widen();
                self.common.wake_all(WRITABLE);
            }
            Err(e) => {
                network.forget(far.number());
                self.reset(e);
            }
        }
    }

    fn parted(&self) {
        self.inner.lock().parted = true;
        self.common.wake_write(WRITABLE);
    }

    fn accepted(&self, far: Arc<Far>, peer: abi::End) -> bool {
        let Some(network) = outside::network() else { return false };
        let server = self.server();
        network.enter(far.number(), server.weak());
        {
            let mut i = self.inner.lock();
            if i.state != State::Listening || i.shut.contains(Shutdown::RECEIVE) {
                return false;
            }
            {
                let mut s = server.inner.lock();
                (s.ip, s.tcp) = (i.ip.clone(), i.tcp.clone());
                s.state = State::Established;
                s.local = End { ip: own_address(&peer.ip), port: i.local.port };
                s.remote = peer.into();
                s.far = Some(far.clone());
            }
            server.widen();
            i.backlog.push_back(server.clone());
        }
        // Its other options are the listener's, which the service knows.
        far.cork(options::is_corked(&server));
        told::inherited(&server);
        self.common.wake_read(READABLE);
        true
    }

    fn news(&self) {
        let Some(far) = self.far() else { return };
        if let Some(e) = far.take_error() {
            let mut i = self.inner.lock();
            i.shut = BOTH;
            drop(i);
            self.common.set_error(e);
        }
        let hup = PollEvents::RDHUP.when(far.ended());
        let urgent = PollEvents::PRI.when(far.urged());
        self.common.wake_read(READABLE | hup | urgent);
        if far.room() > 0 {
            self.common.wake_write(WRITABLE);
        }
        if !self.common.rq.is_empty() {
            // Whoever polls for edges wants to know of what comes next too.
            far.wait_for_bytes();
        }
    }

    fn stays(&self) -> bool {
        self.far_listens()
    }

    fn again(&self, network: &Network, n: u32) {
        self.register_listener(network, n);
    }

    fn lost(&self) {
        let far = {
            let mut i = self.inner.lock();
            i.listener = None;
            i.far.take()
        };
        if far.is_some() {
            self.reset(Errno::ECONNRESET);
        }
    }
}

impl Transport for Far {
    fn send(&self, s: &Tcp, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
        send(s, self, input, msg)
    }

    fn receive(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        recv(s, self, out, flags)
    }

    fn receive_urgent(&self, s: &Tcp, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
        recv_urgent(s, self, out, flags)
    }

    fn events(&self, s: &Tcp, i: &Inner) -> PollEvents {
        events(s, self, i)
    }

    fn readable_bytes(&self, s: &Tcp, _i: &Inner) -> usize {
        readable_bytes(s, self)
    }

    fn unsent_bytes(&self) -> usize {
        self.unsent()
    }

    fn bytes_before_mark(&self, _i: &Inner) -> Option<usize> {
        self.before_mark()
    }

    fn ended(&self, _i: &Inner) -> bool {
        Self::ended(self)
    }

    fn shut(&self, how: Shutdown) {
        if how.contains(Shutdown::SEND) {
            self.end();
        }
        if how.contains(Shutdown::RECEIVE) {
            self.hang_up();
        }
    }
}

/// Sends all of `input`.
fn send(s: &Tcp, far: &Far, input: &mut Input<'_>, msg: &SendMsg) -> Result<usize> {
    outside::used();
    let nonblock = msg.flags.contains(MsgFlags::DONTWAIT);
    let deadline = s.common.send_deadline();
    loop {
        let room = wait(&s.common.wq, nonblock, deadline, || {
            if let Some(e) = s.common.take_error() {
                return Some(Err(e));
            }
            let (state, shut) = {
                let i = s.inner.lock();
                (i.state, i.shut)
            };
            match state {
                State::Established if !shut.contains(Shutdown::SEND) => {
                    (far.room() > 0 || !waits(|| far.wait_for_room())).then_some(Ok(()))
                }
                State::Connecting => None,
                _ => Some(Err(Errno::EPIPE)),
            }
        });
        if let Err(e) = room {
            return if input.done() > 0 { Ok(input.done()) } else { Err(e) };
        }
        far.send(input, msg.flags)?;
        if input.remaining() == 0 {
            return Ok(input.done());
        }
    }
}

/// Asks to be told, after a look at what has been told already; false if there is no need to wait.
fn waits(ask: impl Fn() -> bool) -> bool {
    if !ask() {
        return false;
    }
    outside::look();
    ask()
}

/// Receives up to what `out` takes.
fn recv(s: &Tcp, far: &Far, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    outside::used();
    let mut r = Received::default();
    let want = out.remaining();
    let nonblock = flags.contains(MsgFlags::DONTWAIT);
    let peek = flags.contains(MsgFlags::PEEK);
    let lowat = s.common.rcvlowat.load(Ordering::Relaxed).max(1) as usize;
    let target = if flags.contains(MsgFlags::WAITALL) { want } else { lowat.min(want) };
    // With MSG_PEEK the bytes stay, so wait until enough are there; never for more than a buffer holds.
    let need = if peek { target.min(abi::BUFFER as usize) } else { 1 };
    let deadline = s.common.recv_deadline();
    while r.len < want {
        match wait(&s.common.rq, nonblock, deadline, || ready(s, far, need)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) if r.len > 0 => break,
            Err(e) => return Err(e),
        }
        // A read stops at the urgent mark; one that starts there passes it.
        let most = match far.before_mark() {
            Some(0) if r.len > 0 => break,
            Some(0) if !peek => {
                far.pass_mark(s.common.on(SO_OOBINLINE));
                continue;
            }
            Some(before @ 1..) => before.min(want - r.len),
            _ => want - r.len,
        };
        let to = if flags.contains(MsgFlags::TRUNC) { None } else { Some(&mut *out) };
        match far.receive(to, most, peek) {
            Ok(n) => r.len += n,
            Err(_) if r.len > 0 => break,
            Err(e) => return Err(e),
        }
        if r.len >= target || peek {
            break;
        }
    }
    Ok(r)
}

/// `Some(Ok(true))` when there are bytes, `Some(Ok(false))` at the end.
fn ready(s: &Tcp, far: &Far, need: usize) -> Option<Result<bool>> {
    let (state, shut) = {
        let i = s.inner.lock();
        (i.state, i.shut)
    };
    let over = far.ended() || shut.contains(Shutdown::RECEIVE);
    let there = readable(s, far);
    if there >= need || (there > 0 && over) {
        return Some(Ok(true));
    }
    if let Some(e) = s.common.take_error() {
        return Some(Err(e));
    }
    if over {
        return Some(Ok(false));
    }
    match state {
        State::Connecting => None,
        State::Established if waits(|| far.wait_for_bytes()) => None,
        // There are some, or the end. That more is wanted has been said.
        State::Established if far.ended() => ready(s, far, need),
        State::Established => (readable(s, far) >= need).then_some(Ok(true)),
        _ => Some(Err(Errno::ENOTCONN)),
    }
}

/// Bytes that can be read: not an urgent one that comes next and is left out.
fn readable(s: &Tcp, far: &Far) -> usize {
    let left_out = far.before_mark() == Some(0) && !s.common.on(SO_OOBINLINE);
    far.available().saturating_sub(left_out.into())
}

/// Receives the urgent byte.
fn recv_urgent(s: &Tcp, far: &Far, out: &mut Output<'_>, flags: MsgFlags) -> Result<Received> {
    if s.common.on(SO_OOBINLINE) {
        return Err(Errno::EINVAL);
    }
    let byte = far.receive_urgent(flags.contains(MsgFlags::PEEK)).ok_or(Errno::EINVAL)?;
    let len = if out.remaining() > 0 { out.write(&[byte])? } else { 0 };
    Ok(Received { len, flags: MsgFlags::OOB, ..Received::default() })
}

/// Bytes before the urgent one, or all that are there (FIONREAD).
fn readable_bytes(s: &Tcp, far: &Far) -> usize {
    let there = far.available();
    far.before_mark().filter(|_| !s.common.on(SO_OOBINLINE)).map_or(there, |before| before.min(there))
}

/// Events that hold for a connection, but for an error.
fn events(s: &Tcp, far: &Far, i: &Inner) -> PollEvents {
    let mut ev = PollEvents::empty();
    let over = i.shut.contains(Shutdown::RECEIVE) || far.ended();
    if over {
        ev |= READABLE | PollEvents::RDHUP;
        if i.shut.contains(Shutdown::SEND) {
            ev |= PollEvents::HUP;
        }
    }
    if i.state == State::Established {
        // Asked for even if there are bytes: who polls for edges may take them without looking for more.
        let least = s.common.rcvlowat.load(Ordering::Relaxed).clamp(1, abi::BUFFER as i32 / 2) as usize;
        if !far.wait_for_bytes() && readable(s, far) >= least {
            ev |= READABLE;
        }
        if far.has_urgent() {
            ev |= PollEvents::PRI;
        }
        // Linux: a third of the buffer.
        let writable = || far.room() >= abi::BUFFER as usize / 3;
        if i.shut.contains(Shutdown::SEND) || writable() || (!far.wait_for_room() && writable()) {
            ev |= WRITABLE;
        }
    }
    ev
}

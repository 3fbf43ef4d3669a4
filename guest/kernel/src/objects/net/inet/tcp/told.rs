//! What the network service is told of a TCP socket's options: all before it makes the socket, a change at once.
//!
//! What means nothing to the host's socket stays here, to be shown again (options.rs).

use alloc::vec::Vec;

use doppel_abi_service::net::SocketOption;
use doppel_algo::net::ports::unmapped;

use super::{State, Tcp};
use crate::objects::net::consts as c;
use crate::objects::net::outside::{self, Setting, algorithms, of_common};
use crate::objects::net::socket::Marks;

/// Options at TCP level that the host's socket has too.
const NAMES: [(i32, SocketOption); 13] = [
    (1, SocketOption::NoDelay),
    (2, SocketOption::MaxSegment),
    (4, SocketOption::KeepIdle),
    (5, SocketOption::KeepInterval),
    (6, SocketOption::KeepCount),
    (7, SocketOption::SynCount),
    (8, SocketOption::Linger2),
    (9, SocketOption::DeferAccept),
    (10, SocketOption::WindowClamp),
    (12, SocketOption::QuickAck),
    (18, SocketOption::UserTimeout),
    (23, SocketOption::FastOpen),
    (25, SocketOption::NotSentLow),
];
/// Those that only a listener has a use for.
const OF_LISTENERS: [SocketOption; 2] = [SocketOption::DeferAccept, SocketOption::FastOpen];

fn known(name: i32) -> Option<SocketOption> {
    NAMES.iter().find(|(n, _)| *n == name).map(|(_, option)| *option)
}

/// What a connection is to have when it is made: what was set.
pub(super) fn of_connection(s: &Tcp) -> Vec<Setting> {
    let mut all = numbers(s);
    all.retain(|(option, _)| !OF_LISTENERS.contains(option));
    all.extend(of_marks(s));
    all
}

/// What connections to a listener are to have. Hops and class depend on who calls ([`inherited`]).
pub(super) fn of_listener(s: &Tcp) -> Vec<Setting> {
    let mut all = numbers(s);
    // As with Linux, connections begin with none.
    all.retain(|(option, _)| *option != SocketOption::Priority);
    all
}

fn numbers(s: &Tcp) -> Vec<Setting> {
    let (set, chosen, discover) = {
        let i = s.inner.lock();
        let set: Vec<_> = i.tcp.numbers().filter_map(|(name, v)| Some((known(name)?, v as u32))).collect();
        (set, i.tcp.congestion().and_then(|name| algorithms().place(name)), i.ip.discovers())
    };
    let mut all = set;
    all.extend(chosen.map(|place| (SocketOption::Congestion, place)));
    all.extend(discover);
    all.extend(of_common(&s.common));
    if s.common.on(c::SO_KEEPALIVE) {
        all.push((SocketOption::KeepAlive, 1));
    }
    all
}

/// Hops and class of packets to the other end, if they were set.
fn of_marks(s: &Tcp) -> Vec<Setting> {
    let i = s.inner.lock();
    if !i.ip.has_marks() {
        return Vec::new();
    }
    let v6 = unmapped(&i.remote.ip).is_none();
    let marks = i.ip.marks(v6, false, Marks::default());
    [
        (SocketOption::Hops, marks.hops.unsigned_abs()),
        (SocketOption::TypeOfService, marks.class.unsigned_abs()),
    ]
    .into()
}

/// Tells of some that have changed, if the service has the socket.
fn tell(s: &Tcp, changed: impl IntoIterator<Item = Setting>) {
    let number = {
        let i = s.inner.lock();
        let far = i.far.as_ref().map(|far| far.number());
        far.or_else(|| i.listener.filter(|_| i.state == State::Listening))
    };
    if let (Some(n), Some(network)) = (number, outside::network()) {
        changed.into_iter().for_each(|(option, value)| network.set(n, option, value));
    }
}

/// An option at TCP level has another value now.
pub(super) fn one(s: &Tcp, name: i32, v: i32) {
    tell(s, known(name).map(|option| (option, v as u32)));
}

/// The algorithm has been chosen.
pub(super) fn congestion(s: &Tcp) {
    let place = s.inner.lock().tcp.congestion().and_then(|name| algorithms().place(name));
    tell(s, place.map(|place| (SocketOption::Congestion, place)));
}

/// An option of SOL_SOCKET has another value now.
pub(super) fn switched(s: &Tcp, name: i32) {
    match name {
        c::SO_KEEPALIVE => tell(s, [(SocketOption::KeepAlive, s.common.on(name).into())]),
        c::SO_SNDBUF | c::SO_RCVBUF => tell(s, of_common(&s.common)),
        c::SO_PRIORITY if !(s.inner.lock().state == State::Listening) => tell(s, of_common(&s.common)),
        _ => {}
    }
}

/// The same of one at IP level.
pub(super) fn of_address(s: &Tcp) {
    let discovers = s.inner.lock().ip.discovers();
    tell(s, discovers);
    marks(s);
}

/// Tells of hops and class that are the listener's: such a class says nothing of the priority.
pub(super) fn inherited(s: &Tcp) {
    marks(s);
    if s.inner.lock().ip.has_marks() {
        tell(s, [(SocketOption::Priority, 0)]);
    }
}

/// Tells of hops and class, which were set.
fn marks(s: &Tcp) {
    if s.far().is_some() {
        tell(s, of_marks(s));
    }
}

//! Sockets that the network service executes (docs/design.md §7, docs/services.md).
//!
//! Key types: [`Network`] (the kernel's end of the channel), [`Far`] (a stream there), [`Grams`] (a datagram socket). No call waits for the service
//! but where a program waits for the network: requests are queued, answers and marks are taken by whoever comes first,
//! a thread that finds nothing to do or PID 1 at the service's event.
//! Lock order: a socket's `inner` → [`Far`]'s ends, or the table of sockets → the link. What an answer brings is carried out without a lock.

mod ahead;
mod far;
pub mod files;
mod grams;
mod link;
mod measure;
mod resume;
mod settings;
pub mod udp;
mod watch;

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use doppel_abi_service::net::{End, Request, SocketOption};
use doppel_abi_service::sleeps;
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;

use crate::Errno;
use crate::core::part::Part;

pub use far::Far;
pub use grams::Grams;
use link::Link;
pub use resume::resumed;
pub use settings::{Setting, algorithms, of_common};
pub(crate) use watch::{SOURCE, Watch, used};

/// A request under way, and whom its answer concerns.
enum Pending {
    Connect(Weak<dyn Outside>),
    Listen,
    Set,
    /// What the host knows of a socket: in which place, and which question that is.
    Measure(u16, u64),
    /// The number is free then, and whoever lingers may go.
    Close(u32, Option<Arc<dyn Outside>>),
}

/// What has a socket in the service.
pub trait Outside: Send + Sync {
    /// The service has marked it: something came, or there is room, or an error.
    fn news(&self);

    /// Whether it outlives a service domain.
    fn stays(&self) -> bool;

    /// Registers it, which stays, with another service domain.
    fn again(&self, network: &Network, n: u32);

    /// The service domain that had it is no more.
    fn lost(&self);

    /// It has got the peer that the service was asked for, or could not.
    fn connected(&self, _result: Result<(), Errno>) {}

    /// The service has sent all that was left when it was closed.
    fn parted(&self) {}

    /// A listener is given a connection; false if it does not listen any more.
    fn accepted(&self, _far: Arc<Far>, _peer: End) -> bool {
        false
    }
}

/// The kernel's end of the channel.
#[derive(Default)]
pub struct Network {
    link: SpinLock<Link>,
    /// By number.
    sockets: SpinLock<BTreeMap<u32, Weak<dyn Outside>>>,
    /// The channel's bell when it was last listened to.
    heard: AtomicU32,
    /// Whether a vCPU has a [`watch::Watch`].
    watched: AtomicBool,
    /// Streams that hold bytes back, and whether there are some.
    held: SpinLock<Vec<u32>>,
    holds: AtomicBool,
    /// Bytes charged for what is to come ([`ahead`]).
    ahead: AtomicU64,
    /// What the host knows of sockets, where that is asked for.
    measures: measure::Measures,
}

/// The domain's.
pub static NETWORK: Part<Network> = Part::new();

/// The network, if this domain has one.
pub fn network() -> Option<&'static Network> {
    channel::is_there().then(|| NETWORK.get())
}

/// PID 1: the service has posted its event.
pub fn event() {
    if let Some(n) = network() {
        n.serve(sleeps::IDLE);
    }
}

/// Things that came, to be carried out without the link's lock.
#[derive(Default)]
struct News {
    /// Requests that are done: with what result.
    done: Vec<(Pending, u16)>,
    /// Connections for listeners: listener, number, the peer.
    accepted: Vec<(u32, u32, End)>,
    /// Sockets that want a look.
    marked: Vec<u32>,
    /// The service domain is another one: what was connected is no more.
    anew: bool,
}

impl Network {
    /// Takes what the service has said and sees to it. It will tell of more in this way ([`sleeps`]).
    fn serve(&self, how: u32) {
        loop {
            let header = channel::header();
            let (bell, calls) = (header.bell.load(Ordering::SeqCst), header.calls.load(Ordering::SeqCst));
            let news = self.link.lock().hear();
            self.carry_out(news);
            self.heard.store(bell, Ordering::SeqCst);
            header.heard.store(calls, Ordering::SeqCst);
            // From here on the service tells; what came before that is taken now.
            if !self.link.lock().sleep(how) {
                return;
            }
        }
    }

    fn carry_out(&self, news: News) {
        if news.anew {
            self.lose();
        }
        for (request, error) in news.done {
            let result = if error == 0 { Ok(()) } else { Err(Errno(error)) };
            match request {
                Pending::Connect(socket) => {
                    if let Some(s) = socket.upgrade() {
                        s.connected(result);
                    }
                }
                Pending::Close(n, lingering) => {
                    self.link.lock().give_back(n);
                    if let Some(t) = lingering {
                        t.parted();
                    }
                }
                Pending::Measure(place, id) => self.measures.answered(place, id, result),
                Pending::Listen | Pending::Set => {}
            }
        }
        for (listener, number, peer) in news.accepted {
            let taken = self.socket(listener).is_some_and(|l| l.accepted(self.far(number), peer));
            if !taken {
                self.close(number, true);
            }
        }
        for n in news.marked {
            if let Some(t) = self.socket(n) {
                t.news();
            }
        }
    }

    fn socket(&self, n: u32) -> Option<Arc<dyn Outside>> {
        self.sockets.lock().get(&n).and_then(Weak::upgrade)
    }

    /// The service domain was replaced: connections are reset, listeners and datagram sockets are registered again.
    fn lose(&self) {
        self.measures.lose();
        for (n, socket) in self.reset_all(true) {
            socket.again(self, n);
        }
        let sockets = self.sockets.lock();
        let used: Vec<u32> = sockets.keys().copied().collect();
        self.link.lock().only(&used);
    }

    /// Ends all that is connected; what outlives a service domain too, unless it is kept and given back.
    fn reset_all(&self, keep: bool) -> Vec<(u32, Arc<dyn Outside>)> {
        let sockets: Vec<_> = self.sockets.lock().iter().map(|(n, t)| (*n, t.upgrade())).collect();
        let mut kept = Vec::new();
        for (n, socket) in sockets {
            match socket {
                Some(s) if keep && s.stays() => kept.push((n, s)),
                gone => {
                    self.sockets.lock().remove(&n);
                    if let Some(s) = gone {
                        s.lost();
                    }
                }
            }
        }
        kept
    }

    /// A thread that has used a socket outside begins to wait: what was held back goes.
    pub fn release(&self) {
        if self.holds.load(Ordering::Relaxed) && self.holds.swap(false, Ordering::SeqCst) {
            // A stream that holds nothing any more is marked for nothing.
            for n in core::mem::take(&mut *self.held.lock()) {
                mark(n);
            }
        }
    }

    /// Queues a request.
    fn ask(&self, pending: Pending, request: Request) {
        self.link.lock().ask(pending, request);
        channel::ring_service();
    }

    /// A number for a socket this kernel makes; ENOBUFS if all are in use.
    pub fn number(&self, socket: Weak<dyn Outside>) -> Result<u32, Errno> {
        let mut sockets = self.sockets.lock();
        let n = self.link.lock().take().ok_or(Errno::ENOBUFS)?;
        channel::socket(n).reset();
        sockets.insert(n, socket);
        Ok(n)
    }

    /// A number the service has no socket for any more: it could not be connected.
    pub fn forget(&self, n: u32) {
        self.sockets.lock().remove(&n);
        self.link.lock().give_back(n);
    }

    /// The stream with this number.
    pub fn far(&self, n: u32) -> Arc<Far> {
        Arc::new(Far::new(n))
    }

    /// Enters who has a connection that was accepted.
    pub fn enter(&self, n: u32, socket: Weak<dyn Outside>) {
        self.sockets.lock().insert(n, socket);
    }

    /// Begins to connect a socket with these options.
    pub fn connect(&self, n: u32, socket: Weak<dyn Outside>, from: End, to: End, options: &[Setting]) {
        self.make(n, options, Pending::Connect(socket), Request::Connect { socket: n, from, to });
    }

    /// Has the service make a socket that is to have these options. It knows them of one at a time before that, so nothing comes
    /// between.
    fn make(&self, n: u32, options: &[Setting], pending: Pending, request: Request) {
        let mut link = self.link.lock();
        for &(option, value) in options {
            link.ask(Pending::Set, Request::Set { socket: n, option, value });
        }
        link.ask(pending, request);
        drop(link);
        channel::ring_service();
    }

    /// Takes connections from now on, which have these options.
    pub fn listen(&self, n: u32, at: End, backlog: usize, options: &[Setting]) {
        let backlog = u16::try_from(backlog).unwrap_or(u16::MAX);
        // Bytes may come with a connection, before a page of its buffer is touched: the service sees by this that it will be.
        channel::touch(n, 0, 1);
        self.make(n, options, Pending::Listen, Request::Listen { socket: n, at, backlog });
    }

    /// Makes a datagram socket.
    pub fn datagrams(&self, n: u32, at: End) {
        self.ask(Pending::Set, Request::Datagrams { socket: n, at });
    }

    /// Makes a socket of ICMP echo.
    pub fn echo(&self, n: u32, at: End) {
        self.ask(Pending::Set, Request::Echo { socket: n, at });
    }

    /// Gives a datagram socket a peer; it is told what became of that.
    pub fn peer(&self, n: u32, socket: Weak<dyn Outside>, to: End) {
        self.ask(Pending::Connect(socket), Request::Peer { socket: n, to });
    }

    /// Takes a datagram socket's peer away.
    pub fn no_peer(&self, n: u32) {
        self.ask(Pending::Set, Request::Peer { socket: n, to: End::default() });
    }

    /// Gives a socket up.
    pub fn close(&self, n: u32, reset: bool) {
        self.part(n, reset, None);
    }

    /// The same; `lingering` is told when all has been sent.
    pub fn part(&self, n: u32, reset: bool, lingering: Option<Arc<dyn Outside>>) {
        self.sockets.lock().remove(&n);
        self.ask(Pending::Close(n, lingering), Request::Close { socket: n, reset });
    }

    /// Sets an option of a socket.
    pub fn set(&self, n: u32, option: SocketOption, value: u32) {
        self.ask(Pending::Set, Request::Set { socket: n, option, value });
    }
}

/// A thread that finds nothing to do looks whether the service has said something.
pub fn look() {
    if let Some(n) = network()
        && link::has_news()
    {
        n.serve(sleeps::IDLE);
    }
}

/// Takes an error the service has told of a socket.
fn take_error(n: u32) -> Option<Errno> {
    match channel::socket(n).error.swap(0, Ordering::AcqRel) {
        0 => None,
        e => Some(Errno(e as u16)),
    }
}

/// A stream holds bytes back until a thread waits.
fn hold(n: u32) {
    if let Some(network) = network() {
        network.held.lock().push(n);
        network.holds.store(true, Ordering::SeqCst);
    }
}

/// Has the service look at a socket.
fn mark(n: u32) {
    channel::to_service().mark(n);
    channel::ring_service();
}

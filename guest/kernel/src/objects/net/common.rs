//! What all sockets have: identity, `socket(7)` options, the pending error, wait queues, blocking.

use crate::core::subject::subject;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use doppel_algo::bpf::Program;
use doppel_algo::net::sockaddr::AF_UNIX;
use doppel_machine::sync::SpinLock;
use doppel_machine::user::bytes_of;

use super::consts::{self as c, DEFAULT_BUF, MsgFlags, SO_PASSCRED};
use super::errqueue::{ErrorQueue, Problem, origin};
use crate::core::sched::{Deadline, PollEvents, PollTable, WaitQueue, wait_until};
use crate::core::time;
use crate::{Errno, Result, kernel};

/// Bookkeeping cost of one message, counted against the sender's buffer as Linux counts it.
pub const MSG_OVERHEAD: usize = 768;

/// Most bytes in flight, whatever buffers were asked for: the memory is the domain's own, but one socket must not
/// take it all.
const MOST_IN_FLIGHT: usize = 64 << 20;

/// Where an on/off option is kept. Those that have a number beyond 64 use one below that no such option has.
const fn bit(so: i32) -> u64 {
    1 << (if so < 64 { so } else { so - 20 })
}

/// State every socket has.
pub struct Common {
    /// AF_*
    pub domain: u16,
    /// SOCK_*
    pub kind: u32,
    /// IPPROTO_*
    pub protocol: i32,
    /// Inode number.
    pub ino: u64,
    /// File-system user of who made it.
    pub uid: u32,
    /// On/off options, a bit for each ([`bit`]).
    switches: AtomicU64,
    /// SO_SNDBUF, as it is counted (twice what was asked).
    pub sndbuf: AtomicUsize,
    /// SO_RCVBUF, likewise.
    pub rcvbuf: AtomicUsize,
    /// SO_RCVLOWAT
    pub rcvlowat: AtomicI32,
    /// SO_PRIORITY
    pub priority: AtomicU32,
    /// SO_MARK
    pub mark: AtomicU32,
    /// SO_BINDTODEVICE: the number of an interface, 0 for none.
    pub device: AtomicU32,
    /// SO_LINGER seconds, or when it is off -1 less these.
    linger: AtomicI64,
    /// SO_BUF_LOCK
    pub buf_lock: AtomicU32,
    /// Options that are only shown again, where any was set.
    kept: SpinLock<BTreeMap<i32, u64>>,
    /// SO_ATTACH_FILTER, a switch too.
    pub filter: SpinLock<Option<Arc<Program>>>,
    /// SO_PEEK_OFF, -1 when off.
    pub peek_off: AtomicI32,
    /// SO_RCVTIMEO in nanoseconds, 0 for none.
    pub rcvtimeo: AtomicU64,
    /// SO_SNDTIMEO, likewise.
    pub sndtimeo: AtomicU64,
    /// SO_ERROR, 0 for none.
    err: AtomicU32,
    /// What is read with MSG_ERRQUEUE.
    pub errors: ErrorQueue,
    /// Receive buffer of the peer, which adds to what may be in flight (TCP).
    pub peer_buf: AtomicUsize,
    /// Bytes sent that the receiver has not taken.
    pub wmem: AtomicUsize,
    /// Woken when something can be read (or accepted), and at errors and hang-ups.
    pub rq: Arc<WaitQueue>,
    /// Woken when something can be written (or the connection is made), and at errors and hang-ups.
    pub wq: Arc<WaitQueue>,
}

impl Common {
    /// Defaults for a new socket of the current process.
    pub fn new(domain: u16, kind: u32, protocol: i32) -> Self {
        Self::of_user(domain, kind, protocol, subject().cred().fsuid)
    }

    /// Defaults for a new socket of this user.
    pub fn of_user(domain: u16, kind: u32, protocol: i32, uid: u32) -> Self {
        Self {
            domain,
            kind,
            protocol,
            ino: kernel().next_id(),
            uid,
            switches: AtomicU64::new(0),
            sndbuf: AtomicUsize::new(DEFAULT_BUF),
            rcvbuf: AtomicUsize::new(DEFAULT_BUF),
            rcvlowat: AtomicI32::new(1),
            priority: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            device: AtomicU32::new(0),
            linger: AtomicI64::new(-1),
            buf_lock: AtomicU32::new(0),
            kept: SpinLock::default(),
            filter: SpinLock::default(),
            peek_off: AtomicI32::new(-1),
            rcvtimeo: AtomicU64::new(0),
            sndtimeo: AtomicU64::new(0),
            err: AtomicU32::new(0),
            errors: ErrorQueue::default(),
            peer_buf: AtomicUsize::new(0),
            wmem: AtomicUsize::new(0),
            rq: Arc::default(),
            wq: Arc::default(),
        }
    }

    /// Queues an error or completion, and wakes who waits for such. When there are too many it is lost.
    pub fn report(&self, p: Problem) {
        self.errors.push(p);
        self.wake_all(PollEvents::ERR);
    }

    /// The same without a wake-up, which is the caller's; it is SO_ERROR too.
    pub fn note(&self, p: Problem) {
        self.replace_error(p.errno);
        self.errors.push(p);
    }

    /// Options an accepted connection takes over from its listener.
    pub fn inherit(&self, from: &Self) {
        self.switches.store(from.switches.load(Ordering::Relaxed), Ordering::Relaxed);
        self.sndbuf.store(from.sndbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        self.rcvbuf.store(from.rcvbuf.load(Ordering::Relaxed), Ordering::Relaxed);
        self.buf_lock.store(from.buf_lock.load(Ordering::Relaxed), Ordering::Relaxed);
        let kept = from.kept.lock().clone();
        *self.kept.lock() = kept;
        let filter = from.filter.lock().clone();
        *self.filter.lock() = filter;
        self.linger.store(from.linger.load(Ordering::Relaxed), Ordering::Relaxed);
        self.rcvtimeo.store(from.rcvtimeo.load(Ordering::Relaxed), Ordering::Relaxed);
        self.sndtimeo.store(from.sndtimeo.load(Ordering::Relaxed), Ordering::Relaxed);
        self.mark.store(from.mark.load(Ordering::Relaxed), Ordering::Relaxed);
        self.device.store(from.device.load(Ordering::Relaxed), Ordering::Relaxed);
        self.rcvlowat.store(from.rcvlowat.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the on/off option `so` is set.
    pub fn on(&self, so: i32) -> bool {
        self.switches.load(Ordering::Relaxed) & bit(so) != 0
    }

    /// An option that was only kept to be shown again.
    pub fn kept(&self, so: i32) -> Option<u64> {
        self.kept.lock().get(&so).copied()
    }

    /// See [`Self::kept`].
    pub fn keep(&self, so: i32, value: u64) {
        self.kept.lock().insert(so, value);
    }

    /// SO_LINGER: whether it is on, and the seconds last set.
    pub fn linger(&self) -> (bool, u32) {
        let l = self.linger.load(Ordering::Relaxed);
        (l >= 0, if l >= 0 { l } else { -1 - l } as u32)
    }

    /// See [`Self::linger`].
    pub fn set_linger(&self, on: bool, seconds: u32) {
        let l = i64::from(seconds);
        self.linger.store(if on { l } else { -1 - l }, Ordering::Relaxed);
    }

    /// Whether closing throws away what was not sent yet.
    pub fn aborts(&self) -> bool {
        self.linger() == (true, 0)
    }

    /// A type of service was set, which says how urgent it is too (SO_PRIORITY).
    pub fn set_class(&self, tos: i32) {
        const PRIORITIES: [u32; 4] = [0, 2, 6, 4];
        self.priority.store(PRIORITIES[(tos >> 3 & 3) as usize], Ordering::Relaxed);
    }

    /// Control messages with the time of arrival, as they were asked for.
    pub fn stamp(&self, at: impl FnOnce() -> u64, control: &mut Vec<(i32, i32, Vec<u8>)>) {
        const RX_SOFTWARE: u64 = 1 << 3;
        const SOFTWARE: u64 = 1 << 4;
        const ASKED: u64 = bit(c::SO_TIMESTAMP) | bit(c::SO_TIMESTAMPNS) | bit(c::SO_TIMESTAMPING);
        if self.switches.load(Ordering::Relaxed) & ASKED == 0 {
            return;
        }
        let at = at();
        let (sec, nsec) = (at / 1_000_000_000, at % 1_000_000_000);
        let new = self.on(c::SO_TIMESTAMP_NEW);
        if self.on(c::SO_TIMESTAMPNS) {
            let name = if new { c::SO_TIMESTAMPNS_NEW } else { c::SO_TIMESTAMPNS };
            control.push((c::SOL_SOCKET, name, bytes_of(&[sec, nsec]).to_vec()));
        } else if self.on(c::SO_TIMESTAMP) {
            let name = if new { c::SO_TIMESTAMP_NEW } else { c::SO_TIMESTAMP };
            control.push((c::SOL_SOCKET, name, bytes_of(&[sec, nsec / 1000]).to_vec()));
        }
        let both = RX_SOFTWARE | SOFTWARE;
        if self.on(c::SO_TIMESTAMPING) && self.kept(c::SO_TIMESTAMPING).is_some_and(|f| f & both == both) {
            let name = if new { c::SO_TIMESTAMPING_NEW } else { c::SO_TIMESTAMPING };
            control.push((c::SOL_SOCKET, name, bytes_of(&[sec, nsec, 0, 0, 0, 0]).to_vec()));
        }
    }

    /// Sets or clears an on/off option.
    pub fn switch(&self, so: i32, on: bool) {
        if on {
            self.switches.fetch_or(bit(so), Ordering::Relaxed);
        } else {
            self.switches.fetch_and(!bit(so), Ordering::Relaxed);
        }
    }

    /// Whether credentials are wanted with messages.
    pub fn passcred(&self) -> bool {
        self.on(SO_PASSCRED)
    }

    /// Records an error for SO_ERROR and the next operation, and wakes everybody.
    pub fn set_error(&self, e: Errno) {
        self.err.store(u32::from(e.0), Ordering::SeqCst);
        self.wake_all(PollEvents::ERR | PollEvents::IN | PollEvents::OUT);
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Option<Errno> {
        if self.err.load(Ordering::SeqCst) == 0 {
            return None;
        }
        match self.err.swap(0, Ordering::SeqCst) {
            0 => None,
            e => Some(Errno(e as u16)),
        }
    }

    /// Whether an error is pending, or something is in the queue of errors.
    pub fn has_error(&self) -> bool {
        self.err.load(Ordering::SeqCst) != 0 || !self.errors.is_empty()
    }

    /// The error pending is now this one.
    pub fn replace_error(&self, e: u32) {
        self.err.store(e, Ordering::SeqCst);
    }

    /// A send with MSG_ZEROCOPY is done, by a copy: the memory is the program's again.
    pub fn copied(&self, flags: MsgFlags) {
        const COPIED: u8 = 1;
        if !flags.contains(MsgFlags::ZEROCOPY) || !self.on(c::SO_ZEROCOPY) {
            return;
        }
        let n = self.errors.next_copy();
        self.report(Problem {
            errno: 0,
            origin: origin::ZEROCOPY,
            kind: 0,
            code: COPIED,
            info: n,
            data: n,
            offender: None,
            to: None,
            payload: Arc::default(),
        });
    }

    /// Wakes readers and pollers.
    pub fn wake_read(&self, events: PollEvents) {
        self.rq.wake_all(events);
    }

    /// Wakes writers and pollers.
    pub fn wake_write(&self, events: PollEvents) {
        self.wq.wake_all(events);
    }

    /// Wakes everybody: state changed.
    pub fn wake_all(&self, events: PollEvents) {
        self.rq.wake_all(events);
        self.wq.wake_all(events);
    }

    /// Registers a poller on both queues.
    pub fn register(&self, table: Option<&mut PollTable>) {
        if let Some(t) = table {
            t.add(&self.rq);
            t.add(&self.wq);
        }
    }

    fn limit(&self) -> usize {
        (self.sndbuf.load(Ordering::Relaxed) + self.peer_buf.load(Ordering::Relaxed)).min(MOST_IN_FLIGHT)
    }

    /// How much may be in flight while poll still says POLLOUT: a quarter of the buffer for AF_UNIX, half for
    /// TCP (Linux: two thirds).
    fn low_water(&self) -> usize {
        if self.domain == AF_UNIX { self.limit() / 4 } else { self.limit() / 2 }
    }

    /// Bytes that may still be sent before the buffer is full; 0 means wait.
    pub fn send_room(&self) -> usize {
        self.limit().saturating_sub(self.wmem.load(Ordering::SeqCst))
    }

    /// Whether poll says POLLOUT.
    pub fn writable(&self) -> bool {
        self.wmem.load(Ordering::SeqCst) <= self.low_water()
    }

    /// Counts bytes that are now in the receiver's queue; under the receiver's lock, so that they are never
    /// uncounted before they are counted.
    pub fn charge(&self, n: usize) {
        self.wmem.fetch_add(n, Ordering::SeqCst);
    }

    /// The receiver took `n` bytes this socket had sent.
    pub fn uncharge(&self, n: usize) {
        let take = |w: usize| Some(w.saturating_sub(n));
        let before = self.wmem.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap_or_default();
        let low = self.low_water();
        if before > low && before.saturating_sub(n) <= low {
            self.wake_write(PollEvents::WRITABLE | PollEvents::WRBAND);
        }
    }

    /// When a receiving call that starts now gives up.
    pub fn recv_deadline(&self) -> Deadline {
        deadline(self.rcvtimeo.load(Ordering::Relaxed))
    }

    /// When a sending call that starts now gives up.
    pub fn send_deadline(&self) -> Deadline {
        deadline(self.sndtimeo.load(Ordering::Relaxed))
    }
}

fn deadline(timeo: u64) -> Deadline {
    (timeo != 0).then(|| time::monotonic_ns().saturating_add(timeo))
}

/// Blocks on `queue` until `cond` gives a result; EAGAIN at once if `nonblock`, or at the deadline; EINTR (not
/// restarted) when a signal ends a wait that has a deadline.
pub fn wait<T>(
    queue: &WaitQueue,
    nonblock: bool,
    deadline: Deadline,
    mut cond: impl FnMut() -> Option<Result<T>>,
) -> Result<T> {
    if let Some(r) = cond() {
        return r;
    }
    if nonblock {
        return Err(Errno::EAGAIN);
    }
    match wait_until(queue, deadline, cond) {
        Ok(r) => r,
        Err(Errno::ETIMEDOUT) => Err(Errno::EAGAIN),
        Err(Errno::ERESTARTSYS) if deadline.is_some() => Err(Errno::EINTR),
        Err(e) => Err(e),
    }
}

//! Changes of names that wait in the domain, under a lease that allows it, and go to the service together, in their order.
//!
//! What waits is certain: a name that this kernel knows to be there is removed, or gets another place where no directory stands.
//! They go when there are many, some seconds after the first one, before anything is asked whose answer could depend on them
//! ([`Volume::flush_names`]), and when the lease is taken back. One batch is under way at a time, so that the service keeps to their
//! order. One that the host refuses all the same is told at the next sync of each open file, and from then on names are asked for.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_abi_service::storage::{Answer, BUFFER, Operation, Request, STEPS, Step};
use doppel_machine::sync::SpinLock;

use super::call::Call;
use super::node::{Node, Volume};
use super::unwritten::{AGE_NS, Failed, LOOK_NS};
use super::{Storage, result};
use crate::core::sched::Mutex;
use crate::core::time;
use crate::{Errno, Result};

/// So many changes are sent though nobody asks for it.
const MANY: usize = 64;
/// No more than so many wait.
const MOST: usize = 1024;

/// A change of names.
pub(super) struct Change {
    pub operation: Operation,
    pub flags: u32,
    pub dir: Arc<Node>,
    pub name: Box<[u8]>,
    pub to: Option<(Arc<Node>, Box<[u8]>)>,
}

/// What waits, and what is under way.
#[derive(Default)]
struct State {
    waits: Vec<Change>,
    /// When the first one of them began to.
    since: u64,
    flight: Option<Flight>,
    /// The lease's giver is told that there are some.
    counted: bool,
}

/// A batch that is under way.
struct Flight {
    call: Call,
    changes: Vec<Change>,
}

/// A volume's changes.
#[derive(Default)]
pub(super) struct Names {
    state: SpinLock<State>,
    /// Who has it sends, so that batches keep their order.
    turn: Mutex<()>,
    /// How many there are.
    pending: AtomicU32,
    /// Names in the volume can be changed: that was done.
    proven: AtomicBool,
    pub failed: Failed,
    /// The lease under which names are not trusted any more, because the host refused a change.
    pub distrusted: AtomicU32,
}

impl Change {
    fn step(&self) -> Step {
        let len = |name: &[u8]| name.len() as u16;
        Step {
            operation: self.operation,
            flags: self.flags,
            node: self.dir.id,
            other: self.to.as_ref().map_or(0, |(to, _)| to.id),
            first: len(&self.name),
            second: self.to.as_ref().map_or(0, |(_, name)| len(name)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.step().size();
        out.extend(self.step().encode());
        out.extend(&self.name);
        self.to.iter().for_each(|(_, name)| out.extend(name));
        out.resize(end, 0);
    }
}

impl Names {
    /// A change was made by asking.
    pub fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.pending.load(Ordering::SeqCst) == 0
    }

    /// Whether something is to be sent by now.
    fn is_due(&self, now: u64) -> bool {
        let state = self.state.lock();
        !state.waits.is_empty() && state.since + AGE_NS <= now
    }
}

impl Volume {
    /// Has a change wait, if it may; false: it is to be asked for. The caller may wait.
    pub(super) fn defer(self: &Arc<Self>, change: Change) -> bool {
        let lease = self.lease();
        if !lease.may_delay() || self.storage.is_closing() || !self.names.proven.load(Ordering::Relaxed) {
            return false;
        }
        let now = time::monotonic_ns();
        let (first, many) = {
            let mut state = self.names.state.lock();
            let first = !core::mem::replace(&mut state.counted, true);
            if first {
                self.leases.begin_file(self.number);
                self.storage.changed.lock().push(self.clone());
            }
            if state.waits.is_empty() {
                state.since = now;
            }
            state.waits.push(change);
            self.names.pending.fetch_add(1, Ordering::SeqCst);
            (first, state.waits.len())
        };
        if first {
            self.storage.unwritten.arm(now + AGE_NS);
        }
        // Who has taken it back waits for the count, or has been seen here.
        if self.lease() != lease || many >= MOST {
            self.flush_names();
        } else if many >= MANY {
            self.storage.hear();
            self.send_behind();
        }
        true
    }

    /// Ends what is answered, and sends what waits if nothing is under way then. Waits for nothing.
    fn send_behind(&self) {
        // Who has the turn sees to it.
        let Some(_turn) = self.names.turn.try_lock() else { return };
        self.land_names();
        if self.names.state.lock().flight.is_none()
            && let Some(call) = self.storage.try_call(super::call::Before::default())
        {
            let flight = self.send_names(call);
            self.names.state.lock().flight = flight;
        }
    }

    /// Sends some of what waits. The caller has the turn, and nothing is under way.
    fn send_names(&self, call: Call) -> Option<Flight> {
        let changes: Vec<Change> = {
            let mut state = self.names.state.lock();
            let count = state.waits.len().min(STEPS);
            state.waits.drain(..count).collect()
        };
        if changes.is_empty() {
            return None;
        }
        let mut bytes = Vec::with_capacity(changes.len() * (Step::BYTES + 32));
        changes.iter().for_each(|change| change.encode(&mut bytes));
        call.fill(&bytes);
        let (a, b) = (changes.len() as u64, bytes.len() as u64);
        call.start(Request { a, b, ..Request::new(Operation::Batch, self.number) });
        Some(Flight { call, changes })
    }

    /// Ends what was sent, if it is answered. The caller has the turn.
    fn land_names(&self) {
        let (flight, answer) = {
            let mut state = self.names.state.lock();
            let Some(answer) = state.flight.as_ref().and_then(|flight| flight.call.answered()) else {
                return;
            };
            (state.flight.take(), answer)
        };
        if let Some(flight) = flight {
            self.end(flight, result(answer));
        }
    }

    /// A batch was answered.
    fn end(&self, flight: Flight, answer: Result<Answer>) {
        let Flight { call, changes } = flight;
        self.tell(answer);
        // Its slot, and directories that nobody else has, are given back without a lock.
        drop(call);
        let gone = {
            let mut state = self.names.state.lock();
            self.names.pending.fetch_sub(changes.len() as u32, Ordering::SeqCst);
            let over = self.names.is_empty() && core::mem::take(&mut state.counted);
            let gone = over.then(|| {
                let mut all = self.storage.changed.lock();
                let at = all.iter().position(|v| core::ptr::eq(Arc::as_ptr(v), self));
                at.map(|at| all.swap_remove(at))
            });
            if over {
                self.leases.end_file(self.number);
            }
            gone
        };
        drop((changes, gone));
    }

    /// What became of a batch.
    fn tell(&self, answer: Result<Answer>) {
        let refused = match answer {
            Ok(answer) => u16::try_from(answer.value).unwrap_or(Errno::EIO.0),
            Err(e) => e.0,
        };
        if refused != 0 {
            // What is known of names may be wrong from here on.
            self.names.distrusted.store(self.given().number(), Ordering::SeqCst);
            self.names.failed.tell(Errno(refused));
        }
    }

    /// Sends all that waits, and waits for that. The caller may wait, and has no slot.
    pub(super) fn flush_names(&self) {
        if self.names.is_empty() {
            return;
        }
        let _turn = self.names.turn.lock();
        while !self.names.is_empty() {
            let flight = self.names.state.lock().flight.take();
            let Some(flight) = flight.or_else(|| self.send_names(self.storage.call())) else { return };
            let answer = flight.call.finish();
            self.end(flight, answer);
        }
    }
}

impl Storage {
    /// Sends all changes of names. The caller may wait, and has no slot.
    pub(super) fn flush_all_names(&self) {
        for volume in self.changed_volumes() {
            volume.flush_names();
        }
    }

    fn changed_volumes(&self) -> Vec<Arc<Volume>> {
        self.changed.lock().clone()
    }

    /// Whether no change waits anywhere.
    pub(super) fn names_are_flushed(&self) -> bool {
        self.changed.lock().is_empty()
    }

    /// Whether changes wait under a lease that is not held any more.
    pub(super) fn names_are_taken_back(&self) -> bool {
        self.changed.lock().iter().any(|volume| !volume.lease().may_delay())
    }

    /// PID 1: ends what was answered, and sends what is due, or all. When it is to look again, if it is.
    pub(super) fn names_behind(&self, now: u64, all: bool) -> Option<u64> {
        let mut next = None;
        for volume in self.changed_volumes() {
            if all || volume.names.is_due(now) || !volume.lease().may_delay() {
                volume.send_behind();
            } else if let Some(_turn) = volume.names.turn.try_lock() {
                volume.land_names();
            }
            let state = volume.names.state.lock();
            let soon = state.flight.is_some() || !volume.lease().may_delay();
            let when = if soon { now + LOOK_NS } else { (state.since + AGE_NS).max(now + LOOK_NS) };
            if state.counted {
                next = Some(next.map_or(when, |next: u64| next.min(when)));
            }
        }
        next
    }
}

impl Node {
    /// A request whose answer may depend on changes of names: they are made first.
    pub(super) fn ordered_call(&self) -> Call {
        self.volume.flush_names();
        self.call()
    }

    /// Has the removal of a name wait that is there, of a file that nobody has in use.
    pub(super) fn unlink_later(&self, name: &[u8]) -> bool {
        let Some(dir) = self.me.upgrade() else { return false };
        let flags = doppel_abi_service::storage::flags::UNUSED;
        let change = Change { operation: Operation::Unlink, flags, dir, name: name.into(), to: None };
        self.volume.defer(change)
    }

    /// The same for another place of a name that is there, where no directory stands, nor a file that somebody has in use.
    pub(super) fn rename_later_to(&self, name: &[u8], to: &Arc<Self>, new_name: &[u8]) -> bool {
        let Some(dir) = self.me.upgrade() else { return false };
        let flags = doppel_abi_service::storage::flags::UNUSED;
        let to = Some((to.clone(), new_name.into()));
        self.volume.defer(Change { operation: Operation::Rename, flags, dir, name: name.into(), to })
    }

    /// What became of changes of names that waited, for an open file.
    pub(super) fn names_failed(&self, file: usize) -> Result<()> {
        self.volume.names.failed.take(file)
    }
}

const _: () = assert!(STEPS * Step::LONGEST <= BUFFER);

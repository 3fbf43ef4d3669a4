//! The rings of an instance, in memory that its program maps.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use super::layout::{Cqe, Offsets, Params, SetupFlags, Sqe};
use crate::memory::PageObject;
use crate::process::async_io::shared::Shared;
use crate::{Errno, Result};

/// Most requests and completions that fit.
const MOST_REQUESTS: u32 = 32768;
const MOST_COMPLETIONS: u32 = 65536;
/// Completions that are kept when the ring is full. What comes beyond is counted as lost: a program that never looks has
/// the kernel keep no more.
const KEPT: usize = 65536;
/// Where a mapping of the descriptor begins for the rings and for the requests.
const AT_COMPLETIONS: u64 = 0x800_0000;
const AT_REQUESTS: u64 = 0x1000_0000;

/// Offsets of words in the rings.
mod at {
    pub const SQ_HEAD: u64 = 0;
    pub const SQ_TAIL: u64 = 4;
    pub const CQ_HEAD: u64 = 64;
    pub const CQ_TAIL: u64 = 68;
    pub const SQ_MASK: u64 = 128;
    pub const CQ_MASK: u64 = 132;
    pub const SQ_ENTRIES: u64 = 136;
    pub const CQ_ENTRIES: u64 = 140;
    pub const DROPPED: u64 = 144;
    pub const SQ_FLAGS: u64 = 148;
    pub const CQ_FLAGS: u64 = 152;
    pub const OVERFLOW: u64 = 156;
    pub const CQES: u64 = 192;
}

/// `IORING_SQ_` flags, which the kernel sets.
const NEED_WAKEUP: u32 = 1;
const CQ_OVERFLOW: u32 = 2;
const TASKRUN: u32 = 4;
/// `IORING_CQ_EVENTFD_DISABLED`, which the program sets.
const NO_COUNTER: u32 = 1;

/// What only the kernel knows of them.
#[derive(Default)]
struct State {
    flags: u32,
    lost: u32,
    kept: VecDeque<Cqe>,
}

/// The rings.
pub struct Rings {
    rings: Shared,
    requests: Shared,
    sq_entries: u32,
    cq_entries: u32,
    /// Where the indices of requests are; none without an array.
    array: Option<u64>,
    /// Changed while `state` is locked, as the next two are.
    sq_head: AtomicU32,
    cq_tail: AtomicU32,
    /// Completions are kept.
    keeps: AtomicBool,
    state: SpinLock<State>,
}

/// Rounds a size as Linux does: EINVAL if it is none, or too large and not to be cut.
fn sized(wanted: u32, most: u32, clamp: bool) -> Result<u32> {
    if wanted == 0 || wanted > most && !clamp {
        return Err(Errno::EINVAL);
    }
    Ok(wanted.min(most).next_power_of_two())
}

impl Rings {
    /// Rings for so many requests; what the program has to know is written into `params`.
    pub fn new(entries: u32, flags: SetupFlags, params: &mut Params) -> Result<Self> {
        let clamp = flags.contains(SetupFlags::CLAMP);
        let sq_entries = sized(entries, MOST_REQUESTS, clamp)?;
        let cq_entries = if flags.contains(SetupFlags::CQSIZE) {
            let n = sized(params.cq_entries, MOST_COMPLETIONS, clamp)?;
            if n < sq_entries {
                return Err(Errno::EINVAL);
            }
            n
        } else {
            2 * sq_entries
        };
        let behind = at::CQES + u64::from(cq_entries) * size_of::<Cqe>() as u64;
        let array = (!flags.contains(SetupFlags::NO_SQARRAY)).then_some(behind);
        let rings = Shared::new(behind + array.map_or(0, |_| u64::from(sq_entries) * 4))?;
        let requests = Shared::new(u64::from(sq_entries) * size_of::<Sqe>() as u64)?;
        let mut state = State::default();
        if flags.contains(SetupFlags::SQPOLL) {
            state.flags = NEED_WAKEUP;
        }
        for (offset, word) in [
            (at::SQ_MASK, sq_entries - 1),
            (at::CQ_MASK, cq_entries - 1),
            (at::SQ_ENTRIES, sq_entries),
            (at::CQ_ENTRIES, cq_entries),
            (at::SQ_FLAGS, state.flags),
        ] {
            rings.store(offset, word)?;
        }
        (params.sq_entries, params.cq_entries) = (sq_entries, cq_entries);
        let words = |list: [u64; 7]| {
            let mut words = [0; 8];
            words.iter_mut().zip(list).for_each(|(w, o)| *w = o as u32);
            words
        };
        let sq = [
            at::SQ_HEAD,
            at::SQ_TAIL,
            at::SQ_MASK,
            at::SQ_ENTRIES,
            at::SQ_FLAGS,
            at::DROPPED,
            array.unwrap_or(0),
        ];
        let cq =
            [at::CQ_HEAD, at::CQ_TAIL, at::CQ_MASK, at::CQ_ENTRIES, at::OVERFLOW, at::CQES, at::CQ_FLAGS];
        params.sq = Offsets { words: words(sq), user: 0 };
        params.cq = Offsets { words: words(cq), user: 0 };
        Ok(Self {
            rings,
            requests,
            sq_entries,
            cq_entries,
            array,
            sq_head: AtomicU32::new(0),
            cq_tail: AtomicU32::new(0),
            keeps: AtomicBool::new(false),
            state: SpinLock::new(state),
        })
    }

    /// What a mapping of the descriptor shows.
    pub fn pages(&self) -> Arc<dyn PageObject> {
        Arc::new(super::super::shared::Joined::new(&[
            (0, &self.rings),
            (AT_COMPLETIONS, &self.rings),
            (AT_REQUESTS, &self.requests),
        ]))
    }

    /// How many requests the program has put into the ring, at most as many as fit.
    pub fn submitted(&self) -> u32 {
        let head = self.sq_head.load(Ordering::SeqCst);
        self.rings.load(at::SQ_TAIL).wrapping_sub(head).min(self.sq_entries)
    }

    /// Takes the next request; none if its index is wrong, which is counted.
    pub fn take(&self) -> Result<Option<Sqe>> {
        let _alone = self.state.lock();
        let head = self.sq_head.load(Ordering::Relaxed);
        let place = head & (self.sq_entries - 1);
        let index = self.array.map_or(place, |array| self.rings.load(array + u64::from(place) * 4));
        let mut sqe = None;
        if index < self.sq_entries {
            sqe = Some(self.requests.read(u64::from(index) * size_of::<Sqe>() as u64));
        } else {
            self.rings.store(at::DROPPED, self.rings.load(at::DROPPED).wrapping_add(1))?;
        }
        let head = head.wrapping_add(1);
        self.sq_head.store(head, Ordering::Release);
        self.rings.store(at::SQ_HEAD, head)?;
        Ok(sqe)
    }

    fn free(&self) -> u32 {
        // The program writes its head: more than is there is nothing to it.
        self.cq_entries.saturating_sub(self.waiting())
    }

    /// Puts a completion where there is room. The state is locked.
    fn put(&self, cqe: &Cqe) -> Result<()> {
        let tail = self.cq_tail.load(Ordering::Relaxed);
        let place = u64::from(tail & (self.cq_entries - 1));
        self.rings.write(at::CQES + place * size_of::<Cqe>() as u64, cqe)?;
        let tail = tail.wrapping_add(1);
        self.cq_tail.store(tail, Ordering::Release);
        self.rings.store(at::CQ_TAIL, tail)
    }

    fn flag(&self, state: &mut State, flag: u32, on: bool) -> Result<()> {
        let flags = if on { state.flags | flag } else { state.flags & !flag };
        if flags != state.flags {
            state.flags = flags;
            self.rings.store(at::SQ_FLAGS, flags)?;
        }
        Ok(())
    }

    /// Adds a completion, or keeps it until there is room.
    pub fn post(&self, cqe: Cqe) -> Result<()> {
        let mut state = self.state.lock();
        if state.kept.is_empty() && self.free() > 0 {
            return self.put(&cqe);
        }
        if state.kept.len() < KEPT {
            state.kept.push_back(cqe);
            self.keeps.store(true, Ordering::SeqCst);
            return self.flag(&mut state, CQ_OVERFLOW, true);
        }
        state.lost = state.lost.wrapping_add(1);
        self.rings.store(at::OVERFLOW, state.lost)
    }

    /// Puts kept completions where there is room now.
    pub fn flush(&self) -> Result<()> {
        if !self.keeps.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut state = self.state.lock();
        while self.free() > 0
            && let Some(cqe) = state.kept.pop_front()
        {
            self.put(&cqe)?;
        }
        let more = !state.kept.is_empty();
        self.keeps.store(more, Ordering::SeqCst);
        self.flag(&mut state, CQ_OVERFLOW, more)
    }

    /// Completions that the program has not taken.
    pub fn waiting(&self) -> u32 {
        let tail = self.cq_tail.load(Ordering::SeqCst);
        tail.wrapping_sub(self.rings.load(at::CQ_HEAD))
    }

    /// Most completions that fit.
    pub fn room(&self) -> u32 {
        self.cq_entries
    }

    /// Whether no request fits any more.
    pub fn is_full(&self) -> bool {
        self.submitted() == self.sq_entries
    }

    /// Whether the program wants its event counter told just now.
    pub fn wants_counter(&self) -> bool {
        self.rings.load(at::CQ_FLAGS) & NO_COUNTER == 0
    }

    /// Says that the program should make a call, so that requests go on. Called under the lock of a file's wait queue.
    pub fn set_work_flag(&self, on: bool) {
        let mut state = self.state.lock();
        // Without memory for a page the domain ends; the flag is a hint.
        let _ = self.flag(&mut state, TASKRUN, on);
    }
}

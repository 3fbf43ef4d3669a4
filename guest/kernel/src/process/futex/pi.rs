//! Priority-inheriting locks: the word holds the owner's thread id. There are no priorities to inherit; the lock
//! is handed to the longest waiter when it is released.

use crate::process::futex::FUTEXES;
use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use super::{Key, Waiter};
use crate::core::sched::{self, Deadline};
use crate::process::task::Thread;
use crate::{Errno, Result};

pub(crate) const WAITERS: u32 = 0x8000_0000;
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
pub(crate) const TID_MASK: u32 = 0x3fff_ffff;

fn tid(t: &Thread) -> u32 {
    t.shown_tid().cast_unsigned() & TID_MASK
}

/// Takes the lock if it is free; `Ok(false)` if it has an owner, with the waiters bit set if `mark`.
fn take(t: &Thread, addr: UserPtr, mark: bool, others: bool) -> Result<bool> {
    loop {
        let v = addr.load_u32()?;
        let owner = v & TID_MASK;
        if owner == 0 {
            let new = tid(t) | (v & OWNER_DIED) | if others { WAITERS } else { 0 };
            if addr.cmpxchg_u32(v, new)? == v {
                return Ok(true);
            }
            continue;
        }
        if owner == tid(t) {
            return Err(Errno::EDEADLK);
        }
        numbers::thread(owner.cast_signed())?;
        if !mark || v & WAITERS != 0 || addr.cmpxchg_u32(v, v | WAITERS)? == v {
            return Ok(false);
        }
    }
}

/// FUTEX_LOCK_PI.
pub fn lock(t: &Arc<Thread>, key: Key, addr: UserPtr, deadline: Deadline) -> Result<u64> {
    let table = &FUTEXES;
    let w = Waiter::new(t, key, super::ANY);
    {
        let mut b = table.bucket(key);
        let others = b.iter().any(|w| *w.key.lock() == key);
        if take(t, addr, true, others)? {
            return Ok(0);
        }
        b.push(w.clone());
    }
    let error = loop {
        if w.woken() {
            return owned(t, key, addr);
        }
        if t.interrupted() {
            break Errno::ERESTARTNOINTR;
        }
        if !sched::park(&**t, deadline) {
            break Errno::ETIMEDOUT;
        }
    };
    if table.unqueue(&w) { Err(error) } else { owned(t, key, addr) }
}

/// After a wake-up: unlock made this thread the owner; a dying owner only woke it.
fn owned(t: &Arc<Thread>, key: Key, addr: UserPtr) -> Result<u64> {
    if addr.load_u32()? & TID_MASK == tid(t) {
        return Ok(0);
    }
    let b = FUTEXES.bucket(key);
    let others = b.iter().any(|w| *w.key.lock() == key);
    if take(t, addr, true, others)? { Ok(0) } else { Err(Errno::ERESTARTNOINTR) }
}

/// FUTEX_WAIT_REQUEUE_PI: waits while the word at `addr` has the value `val`, until a requeue gives it the lock at `lock`.
pub fn wait_requeue(
    t: &Arc<Thread>,
    (key, addr, val): (Key, UserPtr, u32),
    (lock_key, lock): (Key, UserPtr),
    deadline: Deadline,
) -> Result<u64> {
    if key == lock_key {
        return Err(Errno::EINVAL);
    }
    let table = &FUTEXES;
    let w = Waiter::for_lock(t, key, super::ANY, Some(lock_key));
    table.queue(&w, key, addr, val)?;
    let error = loop {
        if w.woken() {
            return owned(t, lock_key, lock);
        }
        if t.interrupted() {
            break Errno::ERESTARTNOINTR;
        }
        if !sched::park(&**t, deadline) {
            break Errno::ETIMEDOUT;
        }
    };
    if !table.unqueue(&w) {
        return owned(t, lock_key, lock);
    }
    // Once it waits for the lock the word has nothing to say any more: the caller looks anew.
    let moved = *w.key.lock() == lock_key;
    Err(if moved && error == Errno::ERESTARTNOINTR { Errno::EAGAIN } else { error })
}

/// FUTEX_CMP_REQUEUE_PI: gives the lock at `lock` to the first waiter of the word at `addr`, and has it and up to `more`
/// others wait for the lock where it is taken. Returns how many were given it or moved.
pub fn requeue(
    (key, addr, val): (Key, UserPtr, u32),
    (lock_key, lock): (Key, UserPtr),
    more: u32,
) -> Result<u64> {
    if key == lock_key {
        return Err(Errno::EINVAL);
    }
    let table = &FUTEXES;
    let (woken, moved) = {
        let (mut a, b) = table.two(key, lock_key);
        if addr.load_u32()? != val {
            return Err(Errno::EAGAIN);
        }
        let concerned = |w: &&Arc<Waiter>| *w.key.lock() == key;
        // All of them, or none is moved: another lock, or a plain wait, is a mistake of the caller.
        let limit = (more as usize).saturating_add(1);
        if a.iter().filter(concerned).take(limit).any(|w| w.lock != Some(lock_key)) {
            return Err(Errno::EINVAL);
        }
        let Some(first) = a.iter().find(concerned).cloned() else { return Ok(0) };
        let others = more > 0 && a.iter().filter(concerned).nth(1).is_some();
        let waits = |w: &Arc<Waiter>| *w.key.lock() == lock_key;
        let queued = b.as_ref().map_or_else(|| a.iter().any(waits), |b| b.iter().any(waits));
        let woken = take(&first.thread, lock, true, others || queued)?;
        let mut moved = Vec::new();
        super::take(&mut a, key, u32::try_from(limit).unwrap_or(u32::MAX), super::ANY, &mut moved);
        let given = woken.then(|| moved.remove(0));
        for w in &moved {
            *w.key.lock() = lock_key;
        }
        let n = moved.len();
        match b {
            Some(mut b) => b.extend(moved),
            None => a.extend(moved),
        }
        (given, n)
    };
    let given = u64::from(woken.is_some());
    if let Some(w) = woken {
        w.wake();
    }
    Ok(given + moved as u64)
}

/// FUTEX_TRYLOCK_PI.
pub fn try_lock(t: &Arc<Thread>, key: Key, addr: UserPtr) -> Result<u64> {
    let b = FUTEXES.bucket(key);
    let others = b.iter().any(|w| *w.key.lock() == key);
    if take(t, addr, false, others)? { Ok(0) } else { Err(Errno::EAGAIN) }
}

/// FUTEX_UNLOCK_PI: hands the lock to the first waiter.
pub fn unlock(t: &Arc<Thread>, key: Key, addr: UserPtr) -> Result<u64> {
    let table = &FUTEXES;
    let next = {
        let mut b = table.bucket(key);
        if addr.load_u32()? & TID_MASK != tid(t) {
            return Err(Errno::EPERM);
        }
        let first = b.iter().position(|w| *w.key.lock() == key);
        let next = first.map(|i| b.remove(i));
        let more = b.iter().any(|w| *w.key.lock() == key);
        let new = next.as_ref().map_or(0, |w| tid(&w.thread) | if more { WAITERS } else { 0 });
        loop {
            let v = addr.load_u32()?;
            if addr.cmpxchg_u32(v, new)? == v {
                break;
            }
        }
        next
    };
    if let Some(w) = next {
        w.wake();
    }
    Ok(0)
}

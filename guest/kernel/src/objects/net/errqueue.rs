//! The queue of errors and completions of a socket, read with MSG_ERRQUEUE (`ip(7)`, IP_RECVERR).
//!
//! Key types: [`Problem`], [`ErrorQueue`] (in every socket's `Common`). An error in the queue is SO_ERROR too, until
//! it is taken from either. Lock order: the queue's lock is taken last.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_algo::net::sockaddr::{AF_INET, Addr, MAX};
use doppel_machine::sync::SpinLock;

use crate::{Errno, Result};

/// Most of them that wait.
const MOST: usize = 128;

/// Who tells of it (`SO_EE_ORIGIN_*`).
pub mod origin {
    /// A router or host of IPv4.
    pub const ICMP: u8 = 2;
    /// Of IPv6.
    pub const ICMP6: u8 = 3;
    /// A send with MSG_ZEROCOPY is done.
    pub const ZEROCOPY: u8 = 5;
}

/// `struct sock_extended_err`, with what it is about.
pub struct Problem {
    /// Error, 0 for a completion.
    pub errno: u32,
    /// One of [`origin`].
    pub origin: u8,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// `ee_info`
    pub info: u32,
    /// `ee_data`
    pub data: u32,
    /// Who has told.
    pub offender: Option<Addr>,
    /// Where it went.
    pub to: Option<Addr>,
    /// What was sent, as far as it is told.
    pub payload: Arc<Vec<u8>>,
}

impl Problem {
    /// The control message's bytes.
    pub(super) fn bytes(&self, family: u16) -> Vec<u8> {
        let mut b = Vec::with_capacity(48);
        b.extend(self.errno.to_ne_bytes());
        b.extend([self.origin, self.kind, self.code, 0]);
        b.extend(self.info.to_ne_bytes());
        b.extend(self.data.to_ne_bytes());
        let mut name = [0; MAX];
        let len = self.offender.as_ref().map_or(0, |a| a.encode(&mut name));
        b.extend(&name[..len.max(if family == AF_INET { 16 } else { 28 })]);
        b
    }
}

/// The queue, made when something is put into it: most sockets have none.
#[derive(Default)]
pub struct ErrorQueue {
    any: AtomicBool,
    queue: SpinLock<Option<Box<Queue>>>,
}

#[derive(Default)]
struct Queue {
    problems: VecDeque<Problem>,
    /// Sends with MSG_ZEROCOPY so far.
    copies: u32,
}

impl ErrorQueue {
    /// Whether something waits.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Forgets all.
    pub fn clear(&self) {
        let all = {
            let mut q = self.queue.lock();
            self.any.store(false, Ordering::Relaxed);
            q.as_mut().map(|q| core::mem::take(&mut q.problems))
        };
        drop(all);
    }

    /// Queues an error or completion. When there are too many it is lost.
    pub(super) fn push(&self, p: Problem) {
        let mut all = self.queue.lock();
        let q = &mut all.get_or_insert_default().problems;
        // Completions in a row are told as one.
        if let Some(last) = q.back_mut().filter(|l| l.origin == origin::ZEROCOPY && l.origin == p.origin)
            && last.data.wrapping_add(1) == p.info
        {
            last.data = p.data;
        } else if q.len() < MOST {
            q.push_back(p);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    /// Takes the oldest, and tells the error of the next; EAGAIN if there is none.
    pub(super) fn pop(&self) -> Result<(Problem, Option<u32>)> {
        let mut all = self.queue.lock();
        let q = &mut all.as_mut().ok_or(Errno::EAGAIN)?.problems;
        let p = q.pop_front().ok_or(Errno::EAGAIN)?;
        self.any.store(!q.is_empty(), Ordering::Relaxed);
        Ok((p, q.front().map(|p| p.errno)))
    }

    /// Counts a send with MSG_ZEROCOPY; value: its number.
    pub(super) fn next_copy(&self) -> u32 {
        let mut q = self.queue.lock();
        let copies = &mut q.get_or_insert_default().copies;
        core::mem::replace(copies, copies.wrapping_add(1))
    }
}

//! Where the bytes of a read go and those of a write come from: user buffers (iovecs) or kernel buffers.
//!
//! Key types: [`Output`] (destination of a read), [`Input`] (source of a write). Both are cursors: an
//! operation may transfer less than asked; the amount done is kept here, so a fault in the middle of a
//! transfer gives the short count Linux gives, and EFAULT only if nothing was moved.

use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use crate::{Errno, Result};

/// One user buffer.
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Start address.
    pub base: UserPtr,
    /// Length in bytes.
    pub len: usize,
}

enum Dst<'a> {
    User { first: IoVec, rest: Vec<IoVec> },
    Kernel(&'a mut [u8]),
}

enum Src<'a> {
    User { first: IoVec, rest: Vec<IoVec> },
    Kernel(&'a [u8]),
}

/// Destination of a read.
pub struct Output<'a> {
    dst: Dst<'a>,
    left: usize,
    done: usize,
}

/// Source of a write.
pub struct Input<'a> {
    src: Src<'a>,
    left: usize,
    done: usize,
}

/// Splits off the next piece of at most `max` bytes of an iovec list (first + reversed rest).
fn next_piece(first: &mut IoVec, rest: &mut Vec<IoVec>, max: usize) -> Option<IoVec> {
    while first.len == 0 {
        *first = rest.pop()?;
    }
    let n = first.len.min(max);
    let piece = IoVec { base: first.base, len: n };
    first.base = first.base.add(n as u64);
    first.len -= n;
    Some(piece)
}

fn split(mut v: Vec<IoVec>) -> (IoVec, Vec<IoVec>, usize) {
    let total = v.iter().map(|i| i.len).sum();
    v.reverse();
    let first = v.pop().unwrap_or(IoVec { base: UserPtr(0), len: 0 });
    (first, v, total)
}

impl<'a> Output<'a> {
    /// One user buffer.
    pub fn user(base: UserPtr, len: usize) -> Self {
        Self { dst: Dst::User { first: IoVec { base, len }, rest: Vec::new() }, left: len, done: 0 }
    }

    /// Several user buffers, already checked not to exceed `SSIZE_MAX` in total.
    pub fn iovecs(v: Vec<IoVec>) -> Self {
        let (first, rest, left) = split(v);
        Self { dst: Dst::User { first, rest }, left, done: 0 }
    }

    /// A kernel buffer.
    pub fn kernel(buf: &'a mut [u8]) -> Self {
        let left = buf.len();
        Self { dst: Dst::Kernel(buf), left, done: 0 }
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Bytes written so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Limits what still fits to `n` bytes (for files that end).
    pub fn truncate(&mut self, n: usize) {
        self.left = self.left.min(n);
    }

    /// Copies as much of `bytes` as fits; returns how much. `EFAULT` only if nothing could be copied;
    /// after a partial fault `remaining()` is 0.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut at = 0;
        while at < bytes.len() && self.left > 0 {
            let max = (bytes.len() - at).min(self.left);
            let n = match &mut self.dst {
                Dst::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    let n = p.base.write_some(&bytes[at..at + p.len]).unwrap_or(0);
                    if n < p.len {
                        self.left = n;
                    }
                    n
                }
                Dst::Kernel(buf) => {
                    buf[self.done..self.done + max].copy_from_slice(&bytes[at..at + max]);
                    max
                }
            };
            self.advance(n);
            at += n;
        }
        if at == 0 && !bytes.is_empty() && self.left == 0 && self.done == 0 {
            Err(Errno::EFAULT)
        } else {
            Ok(at)
        }
    }

    /// Writes `n` zero bytes (or as many as fit).
    pub fn zero(&mut self, n: usize) -> Result<usize> {
        self.pieces(
            n,
            |base, len| base.zero_some(len).unwrap_or(0),
            |buf| {
                buf.fill(0);
                buf.len()
            },
        )
    }

    /// Fills up to `n` bytes piece by piece: `user` for user memory, `kernel` for a kernel buffer; both
    /// return how many bytes they managed (fewer = fault).
    pub fn pieces(
        &mut self,
        n: usize,
        mut user: impl FnMut(UserPtr, usize) -> usize,
        mut kernel: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<usize> {
        let mut at = 0;
        let n = n.min(self.left);
        while at < n && self.left > 0 {
            let max = (n - at).min(self.left);
            let (got, want) = match &mut self.dst {
                Dst::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    (user(p.base, p.len), p.len)
                }
                Dst::Kernel(buf) => (kernel(&mut buf[self.done..self.done + max]), max),
            };
            if got < want {
                self.left = got;
            }
            self.advance(got);
            at += got;
        }
        if at == 0 && n > 0 && self.done == 0 { Err(Errno::EFAULT) } else { Ok(at) }
    }

    fn advance(&mut self, n: usize) {
        self.left -= n;
        self.done += n;
    }
}

impl<'a> Input<'a> {
    /// One user buffer.
    pub fn user(base: UserPtr, len: usize) -> Self {
        Self { src: Src::User { first: IoVec { base, len }, rest: Vec::new() }, left: len, done: 0 }
    }

    /// Several user buffers, already checked not to exceed `SSIZE_MAX` in total.
    pub fn iovecs(v: Vec<IoVec>) -> Self {
        let (first, rest, left) = split(v);
        Self { src: Src::User { first, rest }, left, done: 0 }
    }

    /// A kernel buffer.
    pub fn kernel(buf: &'a [u8]) -> Self {
        Self { left: buf.len(), src: Src::Kernel(buf), done: 0 }
    }

    /// Bytes not yet taken.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Bytes taken so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Limits what is still taken to `n` bytes (file size limits).
    pub fn truncate(&mut self, n: usize) {
        self.left = self.left.min(n);
    }

    /// Fills as much of `buf` as there is; returns how much. `EFAULT` only if nothing could be copied at all;
    /// after a partial fault `remaining()` is 0.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        let n = buf.len().min(self.left);
        while at < n && self.left > 0 {
            let max = (n - at).min(self.left);
            let got = match &mut self.src {
                Src::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    let got = p.base.read_some(&mut buf[at..at + p.len]).unwrap_or(0);
                    if got < p.len {
                        self.left = got;
                    }
                    got
                }
                Src::Kernel(src) => {
                    buf[at..at + max].copy_from_slice(&src[self.done..self.done + max]);
                    max
                }
            };
            self.left -= got;
            self.done += got;
            at += got;
        }
        if at == 0 && n > 0 && self.done == 0 { Err(Errno::EFAULT) } else { Ok(at) }
    }

    /// Appends up to `n` bytes to `v` within its spare capacity; returns how many. Errors as [`Self::read`].
    pub fn append(&mut self, v: &mut Vec<u8>, n: usize) -> Result<usize> {
        let mut at = 0;
        let n = n.min(self.left).min(v.capacity() - v.len());
        while at < n && self.left > 0 {
            let max = (n - at).min(self.left);
            let got = match &mut self.src {
                Src::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    let got = p.base.read_append(v, p.len).unwrap_or(0);
                    if got < p.len {
                        self.left = got;
                    }
                    got
                }
                Src::Kernel(src) => {
                    v.extend_from_slice(&src[self.done..self.done + max]);
                    max
                }
            };
            self.left -= got;
            self.done += got;
            at += got;
        }
        if at == 0 && n > 0 && self.done == 0 { Err(Errno::EFAULT) } else { Ok(at) }
    }

    /// Takes up to `n` bytes piece by piece: `user` copies from user memory, `kernel` from a kernel buffer;
    /// both return how many bytes they managed (fewer = fault).
    pub fn pieces(
        &mut self,
        n: usize,
        mut user: impl FnMut(UserPtr, usize) -> usize,
        mut kernel: impl FnMut(&[u8]) -> usize,
    ) -> Result<usize> {
        let mut at = 0;
        let n = n.min(self.left);
        while at < n && self.left > 0 {
            let max = (n - at).min(self.left);
            let (got, want) = match &mut self.src {
                Src::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    (user(p.base, p.len), p.len)
                }
                Src::Kernel(src) => (kernel(&src[self.done..self.done + max]), max),
            };
            if got < want {
                self.left = got;
            }
            self.left -= got;
            self.done += got;
            at += got;
        }
        if at == 0 && n > 0 && self.done == 0 { Err(Errno::EFAULT) } else { Ok(at) }
    }
}

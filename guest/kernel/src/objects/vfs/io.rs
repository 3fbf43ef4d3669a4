//! Where the bytes of a read go and those of a write come from: user buffers (iovecs) or kernel buffers.
//!
//! Key types: [`Output`] (destination of a read), [`Input`] (source of a write). Both are cursors: an
//! operation may transfer less than asked; the amount done is kept here, so a fault in the middle of a
//! transfer gives the short count Linux gives, and EFAULT only if nothing was moved.

use alloc::vec::Vec;
use core::ops::Range;

use doppel_machine::user::UserPtr;

use crate::memory::before_copies;
use crate::{Errno, Result};

/// One user buffer.
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Start address.
    pub base: UserPtr,
    /// Length in bytes.
    pub len: usize,
}

enum Buffers<K> {
    User { first: IoVec, rest: Vec<IoVec> },
    Kernel(K),
}

/// Part of what is moved, in one place.
pub enum Piece<B> {
    /// User memory: address and length.
    User(UserPtr, usize),
    /// A kernel buffer.
    Kernel(B),
}

/// What both directions share: where the bytes are, and how far the transfer is.
struct Cursor<K> {
    buffers: Buffers<K>,
    left: usize,
    done: usize,
}

/// Destination of a read.
pub struct Output<'a>(Cursor<&'a mut [u8]>);

/// Source of a write.
pub struct Input<'a>(Cursor<&'a [u8]>);

/// Splits off the next piece of at most `max` bytes of an iovec list (first + reversed rest).
#[inline]
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

impl<K> Cursor<K> {
    #[inline]
    fn user(base: UserPtr, len: usize) -> Self {
        Self { buffers: Buffers::User { first: IoVec { base, len }, rest: Vec::new() }, left: len, done: 0 }
    }

    fn iovecs(mut v: Vec<IoVec>) -> Self {
        let left = v.iter().map(|i| i.len).sum();
        v.reverse();
        let first = v.pop().unwrap_or(IoVec { base: UserPtr(0), len: 0 });
        Self { buffers: Buffers::User { first, rest: v }, left, done: 0 }
    }

    fn kernel(buf: K, left: usize) -> Self {
        Self { buffers: Buffers::Kernel(buf), left, done: 0 }
    }

    /// Moves up to `n` bytes, piece by piece. `step` is told how many bytes of them went before, and returns how
    /// many it managed (fewer = fault). `EFAULT` only if nothing could be moved since the transfer began;
    /// after a partial fault nothing is left.
    #[inline]
    fn pieces(
        &mut self,
        n: usize,
        mut step: impl FnMut(usize, Piece<(&mut K, Range<usize>)>) -> usize,
    ) -> Result<usize> {
        let mut at = 0;
        let n = n.min(self.left);
        while at < n && self.left > 0 {
            let max = (n - at).min(self.left);
            let (got, want) = match &mut self.buffers {
                Buffers::User { first, rest } => {
                    let Some(p) = next_piece(first, rest, max) else { break };
                    (step(at, Piece::User(p.base, p.len)), p.len)
                }
                Buffers::Kernel(buf) => (step(at, Piece::Kernel((buf, self.done..self.done + max))), max),
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

impl<'a> Output<'a> {
    /// One user buffer.
    #[inline]
    pub fn user(base: UserPtr, len: usize) -> Self {
        before_copies(base, len);
        Self(Cursor::user(base, len))
    }

    /// Several user buffers, already checked not to exceed `SSIZE_MAX` in total.
    pub fn iovecs(v: Vec<IoVec>) -> Self {
        v.iter().for_each(|i| before_copies(i.base, i.len));
        Self(Cursor::iovecs(v))
    }

    /// A kernel buffer.
    pub fn kernel(buf: &'a mut [u8]) -> Self {
        let left = buf.len();
        Self(Cursor::kernel(buf, left))
    }

    /// Bytes that still fit.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.0.left
    }

    /// Bytes written so far.
    pub fn done(&self) -> usize {
        self.0.done
    }

    /// Limits what still fits to `n` bytes (for files that end).
    pub fn truncate(&mut self, n: usize) {
        self.0.left = self.0.left.min(n);
    }

    /// Fills up to `n` bytes piece by piece: `step` is told how many of them went before, and returns how many
    /// it managed (fewer = fault). Errors as [`Self::write`].
    #[inline]
    pub fn pieces(
        &mut self,
        n: usize,
        mut step: impl FnMut(usize, Piece<&mut [u8]>) -> usize,
    ) -> Result<usize> {
        self.0.pieces(n, |at, piece| match piece {
            Piece::User(to, len) => step(at, Piece::User(to, len)),
            Piece::Kernel((buf, range)) => step(at, Piece::Kernel(&mut buf[range])),
        })
    }

    /// Copies as much of `bytes` as fits; returns how much. `EFAULT` only if nothing could be copied at all;
    /// after a partial fault `remaining()` is 0.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.pieces(bytes.len(), |at, piece| match piece {
            Piece::User(to, len) => to.write_some(&bytes[at..at + len]).unwrap_or(0),
            Piece::Kernel(buf) => {
                buf.copy_from_slice(&bytes[at..at + buf.len()]);
                buf.len()
            }
        })
    }

    /// Writes `n` zero bytes (or as many as fit).
    pub fn zero(&mut self, n: usize) -> Result<usize> {
        self.pieces(n, |_, piece| match piece {
            Piece::User(to, len) => to.zero_some(len).unwrap_or(0),
            Piece::Kernel(buf) => {
                buf.fill(0);
                buf.len()
            }
        })
    }
}

impl<'a> Input<'a> {
    /// One user buffer.
    #[inline]
    pub fn user(base: UserPtr, len: usize) -> Self {
        before_copies(base, len);
        Self(Cursor::user(base, len))
    }

    /// Several user buffers, already checked not to exceed `SSIZE_MAX` in total.
    pub fn iovecs(v: Vec<IoVec>) -> Self {
        v.iter().for_each(|i| before_copies(i.base, i.len));
        Self(Cursor::iovecs(v))
    }

    /// A kernel buffer.
    pub fn kernel(buf: &'a [u8]) -> Self {
        Self(Cursor::kernel(buf, buf.len()))
    }

    /// Bytes not yet taken.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.0.left
    }

    /// Bytes taken so far.
    pub fn done(&self) -> usize {
        self.0.done
    }

    /// Limits what is still taken to `n` bytes (file size limits).
    pub fn truncate(&mut self, n: usize) {
        self.0.left = self.0.left.min(n);
    }

    /// Takes up to `n` bytes piece by piece: `step` is told how many of them went before, and returns how many
    /// it managed (fewer = fault). Errors as [`Self::read`].
    #[inline]
    pub fn pieces(&mut self, n: usize, mut step: impl FnMut(usize, Piece<&[u8]>) -> usize) -> Result<usize> {
        self.0.pieces(n, |at, piece| match piece {
            Piece::User(from, len) => step(at, Piece::User(from, len)),
            Piece::Kernel((buf, range)) => step(at, Piece::Kernel(&buf[range])),
        })
    }

    /// Fills as much of `buf` as there is; returns how much. `EFAULT` only if nothing could be copied at all;
    /// after a partial fault `remaining()` is 0.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.pieces(buf.len(), |at, piece| match piece {
            Piece::User(from, len) => from.read_some(&mut buf[at..at + len]).unwrap_or(0),
            Piece::Kernel(bytes) => {
                buf[at..at + bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
        })
    }

    /// Appends up to `n` bytes to `v` within its spare capacity; returns how many. Errors as [`Self::read`].
    pub fn append(&mut self, v: &mut Vec<u8>, n: usize) -> Result<usize> {
        self.pieces(n.min(v.capacity() - v.len()), |_, piece| match piece {
            Piece::User(from, len) => from.read_append(v, len).unwrap_or(0),
            Piece::Kernel(bytes) => {
                v.extend_from_slice(bytes);
                bytes.len()
            }
        })
    }
}

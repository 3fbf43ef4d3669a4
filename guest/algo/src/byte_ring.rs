//! A byte queue in a ring buffer that grows on demand (pipes).
//!
//! Key type: [`ByteRing`]. Boundary: bytes go in and out through closures that copy piece by piece, so that
//! the source or destination may be memory that can fault.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Smallest buffer that is allocated.
const MIN: usize = 512;

/// A first-in, first-out queue of bytes.
#[derive(Default)]
pub struct ByteRing {
    /// Empty or a power of two long.
    buf: Vec<u8>,
    head: usize,
    len: usize,
}

impl ByteRing {
    /// An empty queue without memory.
    pub const fn new() -> Self {
        Self { buf: Vec::new(), head: 0, len: 0 }
    }

    /// Bytes in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit without more memory.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.buf.len()
    }

    /// Drops the contents and the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Makes room for `extra` more bytes.
    pub fn reserve(&mut self, extra: usize) -> Result<(), TryReserveError> {
        let need = self.len + extra;
        if need <= self.buf.len() {
            return Ok(());
        }
        let size = need.next_power_of_two().max(MIN);
        let mut buf = Vec::new();
        buf.try_reserve_exact(size)?;
        let (a, b) = self.filled(self.len);
        buf.extend_from_slice(a);
        buf.extend_from_slice(b);
        buf.resize(size, 0);
        self.buf = buf;
        self.head = 0;
        Ok(())
    }

    /// The first `n` bytes, as the two pieces they lie in.
    fn filled(&self, n: usize) -> (&[u8], &[u8]) {
        let first = n.min(self.buf.len() - self.head);
        (&self.buf[self.head..self.head + first], &self.buf[..n - first])
    }

    /// Appends up to `n` bytes: `copy` fills the slices it is given and returns how many bytes it managed;
    /// fewer than asked ends the transfer, an error does so if nothing was copied. Room must be reserved.
    #[inline]
    pub fn push_with<E>(
        &mut self,
        n: usize,
        mut copy: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut done = 0;
        while done < n && self.len < self.buf.len() {
            let mask = self.buf.len() - 1;
            let at = (self.head + self.len) & mask;
            let want = (n - done).min(self.buf.len() - at).min(self.buf.len() - self.len);
            match copy(&mut self.buf[at..at + want]) {
                Ok(got) => {
                    self.len += got;
                    done += got;
                    if got < want {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Shows the first `n` bytes (or what there is) to `copy`, which returns how many it took; nothing is
    /// removed. Errors as for [`Self::push_with`].
    pub fn peek_with<E>(
        &self,
        n: usize,
        mut copy: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let (a, b) = self.filled(n.min(self.len));
        let mut done = 0;
        for piece in [a, b] {
            if piece.is_empty() {
                break;
            }
            match copy(piece) {
                Ok(got) => {
                    done += got;
                    if got < piece.len() {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// As [`Self::peek_with`], and removes what `copy` took.
    #[inline]
    pub fn pop_with<E>(
        &mut self,
        n: usize,
        mut copy: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let n = n.min(self.len);
        if n > 0 && n <= self.buf.len() - self.head {
            // In one piece, as nearly always.
            let done = copy(&self.buf[self.head..self.head + n])?;
            self.skip(done);
            return Ok(done);
        }
        let done = self.peek_with(n, copy)?;
        self.skip(done);
        Ok(done)
    }

    /// Puts bytes back in front of the first.
    pub fn push_front(&mut self, bytes: &[u8]) -> Result<(), TryReserveError> {
        self.reserve(bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let size = self.buf.len();
        self.head = (self.head + size - bytes.len()) & (size - 1);
        self.len += bytes.len();
        let first = bytes.len().min(size - self.head);
        self.buf[self.head..self.head + first].copy_from_slice(&bytes[..first]);
        self.buf[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        Ok(())
    }

    /// Removes the first `n` bytes, or what there is.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        let n = n.min(self.len);
        self.len -= n;
        self.head = if self.len == 0 { 0 } else { (self.head + n) & (self.buf.len() - 1) };
    }
}

#[cfg(test)]
mod tests;

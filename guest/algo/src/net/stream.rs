//! A byte queue of reference-counted chunks: the data of a stream socket on its way to the reader.
//!
//! Key type: [`Stream`]. A writer fills a chunk before it is queued (so without any lock); a reader takes
//! ranges of chunks by reference and copies them after it has let go of the lock. Short writes are put
//! together in the last chunk. Each chunk may carry a mark `M` (who sent it, descriptors that travel with it).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Capacity of a chunk made for short writes.
pub const SMALL: usize = 2048;

/// A range of bytes with its mark.
#[derive(Debug)]
pub struct Chunk<M> {
    data: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    /// The mark, taken by whoever reads the first byte.
    pub mark: M,
}

impl<M> Chunk<M> {
    /// A chunk of all of `data`.
    pub fn new(data: Vec<u8>, mark: M) -> Self {
        Self { start: 0, end: data.len(), data: Arc::new(data), mark }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `n` bytes (at most all).
    pub fn skip(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// The first `n` bytes (at most all), sharing the memory.
    pub fn prefix<N>(&self, n: usize, mark: N) -> Chunk<N> {
        Chunk { data: self.data.clone(), start: self.start, end: (self.start + n).min(self.end), mark }
    }

    /// The same bytes with another mark.
    pub fn remark<N>(self, mark: N) -> Chunk<N> {
        Chunk { data: self.data, start: self.start, end: self.end, mark }
    }

    /// The vector behind it if nobody else refers to it and more can be appended without moving it.
    fn extendable(&mut self) -> Option<&mut Vec<u8>> {
        if self.end != self.data.len() {
            return None;
        }
        Arc::get_mut(&mut self.data).filter(|v| v.len() < v.capacity())
    }
}

/// The queue.
#[derive(Debug)]
pub struct Stream<M> {
    chunks: VecDeque<Chunk<M>>,
    len: usize,
    /// An emptied short-write chunk kept for the next short write; nobody else refers to it.
    spare: Option<Arc<Vec<u8>>>,
}

impl<M> Default for Stream<M> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0, spare: None }
    }
}

impl<M> Stream<M> {
    /// Bytes queued.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is queued.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues a chunk; an empty one is dropped.
    pub fn push(&mut self, c: Chunk<M>) {
        if !c.is_empty() {
            self.len += c.len();
            self.chunks.push_back(c);
        }
    }

    /// Puts back what a reader could not deliver.
    pub fn unread(&mut self, c: Chunk<M>) {
        if !c.is_empty() {
            self.len += c.len();
            self.chunks.push_front(c);
        }
    }

    /// Appends through `fill` (which is told how many bytes fit) to the last chunk if `same` accepts its mark
    /// and it has room, otherwise to a new short chunk marked with `mark()`. Returns what `fill` returns, the
    /// number of bytes it appended.
    pub fn append<E>(
        &mut self,
        same: impl FnOnce(&M) -> bool,
        mark: impl FnOnce() -> M,
        fill: impl FnOnce(&mut Vec<u8>, usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some(tail) = self.chunks.back_mut().filter(|t| same(&t.mark))
            && let Some(v) = tail.extendable()
        {
            let before = v.len();
            let room = v.capacity() - before;
            let r = fill(v, room);
            let added = v.len() - before;
            tail.end += added;
            self.len += added;
            return r;
        }
        let mut data = self.spare.take().unwrap_or_else(|| Arc::new(Vec::with_capacity(SMALL)));
        let Some(v) = Arc::get_mut(&mut data) else { unreachable!("a spare chunk is shared") };
        let room = v.capacity();
        let r = fill(v, room);
        if data.is_empty() {
            self.spare = Some(data);
        } else {
            self.push(Chunk { start: 0, end: data.len(), data, mark: mark() });
        }
        r
    }

    /// The first chunk.
    pub fn front(&self) -> Option<&Chunk<M>> {
        self.chunks.front()
    }

    /// The first chunk, for taking its mark.
    pub fn front_mut(&mut self) -> Option<&mut Chunk<M>> {
        self.chunks.front_mut()
    }

    /// The chunks in order (for looking without taking).
    pub fn iter(&self) -> impl Iterator<Item = &Chunk<M>> {
        self.chunks.iter()
    }

    /// The chunks in order, for changing their marks.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Chunk<M>> {
        self.chunks.iter_mut()
    }

    /// Copies from the front into `buf` without taking; returns how many bytes.
    pub fn peek(&self, mut skip: usize, buf: &mut [u8]) -> usize {
        let mut at = 0;
        for c in &self.chunks {
            let b = c.bytes();
            if skip >= b.len() {
                skip -= b.len();
                continue;
            }
            let n = (b.len() - skip).min(buf.len() - at);
            buf[at..at + n].copy_from_slice(&b[skip..skip + n]);
            skip = 0;
            at += n;
            if at == buf.len() {
                break;
            }
        }
        at
    }

    /// Drops `n` bytes from the front; true if that ended the first chunk.
    pub fn consume(&mut self, n: usize) -> bool {
        let mut left = n.min(self.len);
        self.len -= left;
        let mut ended = false;
        while left > 0 {
            let Some(c) = self.chunks.front_mut() else { break };
            let k = left.min(c.len());
            c.skip(k);
            left -= k;
            if c.is_empty() {
                ended = true;
                if let Some(c) = self.chunks.pop_front() {
                    self.keep(c.data);
                }
            }
        }
        ended
    }

    /// Takes the first `max` bytes of the first chunk by reference; the rest of the chunk stays.
    /// The mark of the part taken is what `mark` makes of the chunk's.
    pub fn take<N>(&mut self, max: usize, mark: impl FnOnce(&mut M) -> N) -> Option<Chunk<N>> {
        let c = self.chunks.front_mut()?;
        let m = mark(&mut c.mark);
        let part = c.prefix(max, m);
        self.consume(part.len());
        Some(part)
    }

    /// Drops everything; returns how many bytes that was.
    pub fn clear(&mut self) -> usize {
        self.spare = None;
        self.chunks = VecDeque::new();
        core::mem::take(&mut self.len)
    }

    fn keep(&mut self, mut data: Arc<Vec<u8>>) {
        if self.spare.is_none()
            && data.capacity() == SMALL
            && let Some(v) = Arc::get_mut(&mut data)
        {
            v.clear();
            self.spare = Some(data);
        }
    }
}

#[cfg(test)]
mod tests;

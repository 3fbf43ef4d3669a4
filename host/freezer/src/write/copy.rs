//! Copying the data of a frozen image: in chunks, by two threads, which look for pages of zeros and for those that an ancestor has,
//! checksum the others and write them while they are in their caches.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use doppel_abi_machine::frozen::CHUNK;
use xxhash_rust::xxh3::Xxh3;

use super::compare::{Comparison, Equal};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, hash_page, is_zero};
use crate::scan::{Piece, Plan};

/// Threads that copy.
const COPIERS: usize = 2;

/// Where pieces are read from.
pub(crate) trait Read: Sync {
    /// Reads pieces of one source that lie one behind the other in the image.
    fn read(&self, group: &[Piece], buf: &mut [u8]) -> Result<()>;
}

/// Copies the data.
pub(crate) struct Copier<'a> {
    pub plan: &'a Plan,
    pub file: &'a File,
    pub data_at: u64,
    /// What need not be written.
    pub comparison: Option<Comparison<'a>>,
}

/// What became of a chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    /// Its checksum.
    pub sum: u64,
    /// Bytes written.
    pub bytes: u64,
    /// What ancestors have of it, in order.
    pub equal: Vec<Equal>,
}

/// Room for a chunk, and for what it is compared with.
struct Buffers {
    own: Vec<u8>,
    other: Vec<u8>,
}

impl Copier<'_> {
    /// Copies chunks.
    pub fn all(&self, chunks: &[u64], from: &dyn Read) -> Result<Vec<Chunk>> {
        let next = AtomicUsize::new(0);
        let run = || -> Result<Vec<(usize, Chunk)>> {
            let other = if self.comparison.is_some() { CHUNK as usize } else { 0 };
            let mut buffers = Buffers { own: vec![0u8; CHUNK as usize], other: vec![0u8; other] };
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(&chunk) = chunks.get(i) else { return Ok(done) };
                done.push((i, self.chunk(chunk, from, &mut buffers)?));
            }
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            // What threads the host gives: without any it takes longer.
            let helpers: Vec<_> = (1..COPIERS.min(chunks.len()))
                .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, run).ok())
                .collect();
            let mine = run();
            helpers.into_iter().map(|h| h.join().expect("a copying thread panicked")).chain([mine]).collect()
        });
        let mut done = Vec::new();
        for result in results {
            done.extend(result?);
        }
        done.sort_unstable_by_key(|(i, _)| *i);
        Ok(done.into_iter().map(|(_, chunk)| chunk).collect())
    }

    /// Copies the first `count` chunks, but for those that are known: what became of each, and of how many bytes that was known.
    pub fn rest(&self, count: u64, known: Vec<Option<Chunk>>, from: &dyn Read) -> Result<(Vec<Chunk>, u64)> {
        let mut known = known.into_iter();
        let all: Vec<Option<Chunk>> = (0..count).map(|_| known.next().flatten()).collect();
        let missing: Vec<u64> = (0..count).zip(&all).filter(|(_, k)| k.is_none()).map(|(i, _)| i).collect();
        let bytes = |c: &Chunk| c.bytes + c.equal.iter().map(|e| e.len).sum::<u64>();
        let ahead = all.iter().flatten().map(bytes).sum();
        let mut copied = self.all(&missing, from)?.into_iter();
        Ok((all.into_iter().filter_map(|c| c.or_else(|| copied.next())).collect(), ahead))
    }

    /// Copies one chunk.
    fn chunk(&self, index: u64, source: &dyn Read, buffers: &mut Buffers) -> Result<Chunk> {
        let (from, to) = (index * CHUNK, ((index + 1) * CHUNK).min(self.plan.len));
        let buf = &mut buffers.own;
        let mut filled: Vec<Range<usize>> = Vec::new();
        let first = self.plan.pieces.partition_point(|p| p.to + p.len <= from);
        let here: Vec<Piece> =
            self.plan.pieces[first..].iter().take_while(|p| p.to < to).map(|p| p.cut(from, to)).collect();
        for group in here.chunk_by(|a, b| a.source == b.source && a.to + a.len == b.to) {
            let (start, end) =
                (group[0].to - from, group[group.len() - 1].to + group[group.len() - 1].len - from);
            let range = start as usize..end as usize;
            source.read(group, &mut buf[range.clone()])?;
            filled.push(range);
        }
        let equal = match &self.comparison {
            Some(comparison) => {
                zero_between(buf, &filled);
                comparison.look(from, &buf[..(to - from) as usize], &mut buffers.other)
            }
            None => Vec::new(),
        };
        let (sum, bytes) = self.put(from, buf, &without(filled, from, &equal))?;
        Ok(Chunk { sum, bytes, equal })
    }

    /// Writes the pages of `filled` that are not zero to the chunk that begins at `from`: their checksum, and bytes.
    fn put(&self, from: u64, buf: &[u8], filled: &[Range<usize>]) -> Result<(u64, u64)> {
        let mut hash = Xxh3::new();
        let mut bytes = 0;
        for &Range { start, end } in filled {
            let mut at = start;
            while at < end {
                if is_zero(&buf[at..at + PAGE_BYTES]) {
                    at += PAGE_BYTES;
                    continue;
                }
                let run = at;
                while at < end && (at == run || !is_zero(&buf[at..at + PAGE_BYTES])) {
                    hash_page(&mut hash, at, &buf[at..at + PAGE_BYTES]);
                    at += PAGE_BYTES;
                }
                self.file
                    .write_all_at(&buf[run..at], self.data_at + from + run as u64)
                    .map_err(Error::host("write the frozen image"))?;
                bytes += (at - run) as u64;
            }
        }
        Ok((hash.digest(), bytes))
    }
}

/// Zeros what lies between these ranges, which ascend.
fn zero_between(buf: &mut [u8], filled: &[Range<usize>]) {
    let mut at = 0;
    for range in filled {
        buf[at..range.start].fill(0);
        at = range.end;
    }
    buf[at..].fill(0);
}

/// The ranges of a chunk that begins at `from`, without what an ancestor has.
fn without(filled: Vec<Range<usize>>, from: u64, equal: &[Equal]) -> Vec<Range<usize>> {
    if equal.is_empty() {
        return filled;
    }
    let mut left = Vec::new();
    for range in filled {
        let mut at = range.start;
        for e in equal {
            let (start, end) = ((e.to - from) as usize, (e.to + e.len - from) as usize);
            if start >= range.end || end <= at {
                continue;
            }
            if start > at {
                left.push(at..start);
            }
            at = end;
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ancestors_have_is_left_out() {
        let equal = |to, len| Equal { to, len, file: 1, offset: 0 };
        let filled = vec![0..4096, 8192..20480];
        let left = without(
            filled.clone(),
            1 << 20,
            &[equal((1 << 20) + 4096, 8192), equal((1 << 20) + 16384, 4096)],
        );
        assert_eq!(left, [0..4096, 12288..16384]);
        assert_eq!(without(filled.clone(), 0, &[]), filled);
        assert!(without(filled, 0, &[equal(0, 1 << 20)]).is_empty());
    }
}

//! The page file, copied while its domain still runs, ahead of a freeze.
//!
//! The guest kernel notes meanwhile what is written to it, so that while the domain stands still only that is copied again. The copy
//! lies in the frozen image as the page file does, page by page, holes too: so nothing has to move when it has grown. What an ancestor
//! has is found now, and not written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use doppel_abi_machine::frozen::{CHUNK, HEADER_SIZE, Header, MAX_SEGMENTS, SEGMENT_SIZE, Segment};
use doppel_abi_machine::layout::PAGE;
use rustix::fs::FallocateFlags;

use super::compare::Lookup;
use super::{Chunk, Copier, DomainReader, Shadows, Subject, Unfinished};
use crate::ancestors::Lineage;
use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::scan::{Piece, Plan};

/// Where the data begins: behind room for the largest tables, most of it a hole, as nobody knows yet what the domain's processes will have.
const DATA_AT: u64 = 256 << 20;
// And for the checksums of 8 TiB.
const _: () = assert!(HEADER_SIZE + MAX_SEGMENTS * SEGMENT_SIZE + (8 << 20) * 8 < DATA_AT);

/// A copy of a running domain's page file, at the start of a frozen image's data.
#[derive(Debug)]
pub struct Ahead {
    draft: Draft,
    /// Bytes of the page file that the guest kernel looks after.
    logged: u64,
    /// The whole chunks among these, and where they were copied from.
    chunks: Vec<Chunk>,
    pieces: Vec<Piece>,
}

impl Ahead {
    /// Copies the page file of a running domain, of which the guest kernel notes what is written, to a file beside `to`.
    ///
    /// # Errors
    /// What the host refuses.
    pub fn copy(subject: &Subject<'_>, to: &Path, lineage: Option<&Lineage>) -> Result<Self> {
        let parent = lineage.map(Lookup::of);
        let size =
            rustix::fs::fstat(subject.pagefile).map_err(Error::os("examine the domain's memory"))?.st_size;
        // The domain's word, which is bounded by what it has.
        let count = subject.logged.min(u64::try_from(size).unwrap_or(0)) / CHUNK;
        let mut plan = Plan::default();
        plan.add_page_file(subject, parent.as_ref(), Some(count * CHUNK))?;
        if let Some(parent) = &parent {
            plan.find_candidates(parent);
        }
        let draft = Unfinished::draft(to)?;
        let file = draft.as_file();
        file.set_len(DATA_AT + plan.len).map_err(Error::host("write the frozen image"))?;
        let comparison = parent.as_ref().map(|p| p.comparison(&plan));
        let copier = Copier { plan: &plan, file, data_at: DATA_AT, comparison };
        let source = DomainReader { subject, shadows: Shadows::new() };
        let chunks = copier.all(&(0..count).collect::<Vec<_>>(), &source)?;
        Ok(Self { draft, logged: subject.logged, chunks, pieces: plan.pieces })
    }

    /// Bytes of the page file that were copied.
    pub(crate) fn len(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }

    /// Whether it is of use now that the domain stands still: nobody has stopped noting meanwhile.
    pub(crate) fn is_current(&self, subject: &Subject<'_>) -> bool {
        subject.logged == self.logged
    }

    /// The image that it is the beginning of, now that all is planned, and what need not be copied any more: that to which nothing was
    /// written since. The others are emptied, since pages of zeros are not written.
    pub(crate) fn into_image(
        self,
        plan: &Plan,
        header: Header,
        written: &[Segment],
        to: &Path,
    ) -> Result<(Unfinished, Vec<Option<Chunk>>)> {
        let Self { draft, mut chunks, pieces, .. } = self;
        let mut known = Vec::with_capacity(chunks.len());
        for (index, chunk) in (0..).zip(chunks.drain(..)) {
            let (from, end) = (index * CHUNK, (index + 1) * CHUNK);
            let next = written.partition_point(|s| s.addr + s.len <= from);
            // Its pages are where they were, unless the guest kernel lies.
            let clean = written.get(next).is_none_or(|s| s.addr >= end)
                && within(&pieces, from, end).eq(within(&plan.pieces, from, end));
            if !clean {
                empty(draft.as_file(), DATA_AT + from)?;
            }
            known.push(clean.then_some(chunk));
        }
        Ok((Unfinished::with(draft, DATA_AT, plan, header, to)?, known))
    }
}

/// The runs of pages that pieces have between two offsets, and where from.
fn within(pieces: &[Piece], from: u64, end: u64) -> impl Iterator<Item = Piece> + '_ {
    let first = pieces.partition_point(|p| p.to + p.len <= from);
    pieces[first..].iter().take_while(move |p| p.to < end).map(move |p| p.cut(from, end))
}

/// Empties a chunk of a file.
fn empty(file: &File, at: u64) -> Result<()> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, punch, at, CHUNK)
        .map_err(std::io::Error::from)
        .or_else(|_| zeros(file, at))
        .map_err(Error::host("write the frozen image"))
}

/// On a file system that punches no holes.
fn zeros(file: &File, at: u64) -> std::io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    (0..CHUNK / PAGE).try_for_each(|i| file.write_all_at(&ZEROS, at + i * PAGE))
}

//! What a guest kernel says of its page file while it stands still, or is copied ahead of a freeze: what of a clone's is in the image that
//! it was cloned from, and what was written meanwhile.
//!
//! It is the domain's word, and is checked: what it names must lie in its own page file, and be in its own image, which says itself where.
//! What it makes up can only make its own frozen image wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use doppel_abi_machine::frozen::{MAX_SEGMENTS, PAGEFILE, SEGMENT_SIZE, Segment};
use doppel_abi_machine::layout::{ARENA_MAX, PAGE, PAGEFILE_MAX};
use doppel_abi_machine::{LOG_ON, event};
use doppel_freezer::{FrozenImage, segment};

use crate::Error;
use crate::io::ring::{post, registers};
use crate::run::state::Core;

/// How long a domain may take to begin noting what is written: it stands still for a moment.
const PATIENCE: Duration = Duration::from_secs(6);

/// What it says.
#[derive(Debug, Default)]
pub(crate) struct PageFile {
    /// Runs that are still in the frozen image, with their offsets there.
    pub kept: Vec<Segment>,
    /// Runs that may have been written since it noted that.
    pub written: Vec<Segment>,
    /// Bytes of the page file of which that is known.
    pub logged: u64,
}

/// Has a running domain note what is written to its page file; none if it does not.
pub(crate) fn begin_log(
    core: &Core,
    arena: &File,
    image: Option<&FrozenImage>,
) -> Result<Option<PageFile>, Error> {
    let registers = registers(&core.map);
    registers.log_answer.store(0, Ordering::SeqCst);
    post(&core.map, event::LOG);
    let mut rounds = 0u32;
    core.look_until(PATIENCE, || {
        rounds += 1;
        registers.log_answer.load(Ordering::SeqCst) != 0 || (rounds.is_multiple_of(16) && core.is_dead())
    });
    match registers.log_answer.load(Ordering::SeqCst) {
        LOG_ON => said(core, arena, image).map(Some),
        _ => Ok(None),
    }
}

/// What it says; `image`: what it was made from.
pub(crate) fn said(core: &Core, arena: &File, image: Option<&FrozenImage>) -> Result<PageFile, Error> {
    let registers = registers(&core.map);
    let count = registers.kept_runs.load(Ordering::SeqCst);
    let written = registers.written_runs.load(Ordering::SeqCst);
    // Where nothing is listed there need be no place for it.
    let at = if count == 0 { 0 } else { registers.kept_at.load(Ordering::SeqCst) };
    let size = arena.metadata().map_err(Error::host("examine the domain's memory"))?.len();
    let bad = || Error::State(format!("what domain {} says of its memory makes no sense", core.label()));
    if count > MAX_SEGMENTS || written > count || at > ARENA_MAX || at + count * SEGMENT_SIZE > size {
        return Err(bad());
    }
    let mut bytes = vec![0; usize::try_from(count * SEGMENT_SIZE).map_err(|_| bad())?];
    arena.read_exact_at(&mut bytes, at).map_err(Error::host("read the domain's memory"))?;
    let mut kept: Vec<Segment> = bytes.as_chunks().0.iter().map(segment).collect();
    let written = kept.split_off(kept.len() - usize::try_from(written).map_err(|_| bad())?);
    // Each place of the page file once, so that what is copied is bounded by its size.
    if !sound(&kept) || !sound(&written) {
        return Err(bad());
    }
    let runs: Vec<(u64, u64)> = kept.iter().map(|s| (s.addr, s.len)).collect();
    let kept = match image {
        Some(image) => image.pages_kept(&runs).ok_or_else(bad)?,
        None if runs.is_empty() => Vec::new(),
        None => return Err(bad()),
    };
    Ok(PageFile { kept, written, logged: registers.logged.load(Ordering::SeqCst) })
}

/// Whether these can be runs of pages of a page file, in order.
fn sound(runs: &[Segment]) -> bool {
    let mut before = 0;
    runs.iter().all(|s| {
        let Some(end) = s.addr.checked_add(s.len).filter(|end| *end <= PAGEFILE_MAX) else { return false };
        let placed = s.space == PAGEFILE && s.addr >= before && s.len > 0;
        before = end;
        placed && s.addr.is_multiple_of(PAGE) && s.len.is_multiple_of(PAGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(addr: u64, len: u64) -> Segment {
        Segment { space: PAGEFILE, file: 0, addr, len, offset: 0 }
    }

    #[test]
    fn runs_that_make_no_sense() {
        assert!(sound(&[]) && sound(&[run(0, PAGE), run(PAGE, 3 * PAGE)]));
        for bad in [
            vec![run(0, 2 * PAGE), run(PAGE, PAGE)],
            vec![run(PAGE, PAGE), run(0, PAGE)],
            vec![run(0, 0)],
            vec![run(7, PAGE)],
            vec![run(0, 7)],
            vec![run(u64::MAX - 4095, PAGE)],
            vec![run(PAGEFILE_MAX, PAGE)],
            vec![Segment { space: 1, ..run(0, PAGE) }],
        ] {
            assert!(!sound(&bad), "{bad:?}");
        }
    }
}

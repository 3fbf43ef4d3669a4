//! What of the page file has to be kept: the extents it has, and in a clone what it has still in the image that it was made from.

use doppel_abi_machine::frozen::{CHUNK, PAGEFILE, Segment};

use super::{EXTENTS, Piece, Plan, Source, extents};
use crate::error::{Error, Result};
use crate::open::FrozenImage;
use crate::write::Subject;
use crate::write::compare::{Lookup, continues};

impl Plan {
    /// Adds the page file. With `spread`, each page at its own offset, of so many bytes at least.
    ///
    /// # Errors
    /// What the host refuses.
    pub(crate) fn add_page_file(
        &mut self,
        subject: &Subject<'_>,
        parent: Option<&Lookup<'_>>,
        spread: Option<u64>,
    ) -> Result<()> {
        let own = extents(subject.pagefile).map_err(Error::os(EXTENTS))?;
        let mut kept = subject.kept.to_vec();
        let mut numbers = Vec::new();
        for body in subject.origin.map_or(&[][..], FrozenImage::files) {
            let place = body.place()?;
            numbers.push(parent.and_then(|p| p.ancestors.number_at(place)).map(|(number, _)| number));
        }
        // What the new image can refer to needs no copy.
        let number = |s: &Segment| numbers.get(s.file as usize).copied().flatten();
        let referred: Vec<Segment> =
            kept.iter().filter_map(|s| Some(Segment { file: number(s)?, ..*s })).collect();
        kept.retain(|s| number(s).is_none());
        self.add_pages(&without(&own, &referred), &kept, spread);
        self.refer(referred);
        Ok(())
    }

    /// Its own extents, but for what is still in the image.
    fn add_pages(&mut self, own: &[(u64, u64)], kept: &[Segment], spread: Option<u64>) {
        let there =
            |s: &Segment| Piece { source: Source::Image(s.file), addr: s.offset, len: s.len, to: s.addr };
        // By offset in the page file first.
        let mut pieces: Vec<Piece> = kept.iter().map(there).collect();
        let here = |&(addr, len): &(u64, u64)| Piece { source: Source::PageFile, addr, len, to: addr };
        pieces.extend(without(own, kept).iter().map(here));
        pieces.sort_unstable_by_key(|p| p.to);
        for group in pieces.chunk_by(|a, b| a.to + a.len == b.to) {
            let addr = group[0].to;
            let to = if spread.is_some() { addr } else { self.len };
            let len: u64 = group.iter().map(|p| p.len).sum();
            self.segments.push(Segment { space: PAGEFILE, file: 0, addr, len, offset: to });
            self.pieces.extend(group.iter().map(|p| Piece { to: to + (p.to - addr), ..*p }));
            self.len = to + len;
        }
        if let Some(least) = spread {
            // Chunks of what follows hold nothing of it.
            self.len = self.len.max(least).next_multiple_of(CHUNK);
        }
    }

    /// Adds segments that ancestors have.
    fn refer(&mut self, referred: Vec<Segment>) {
        self.segments.extend(referred);
        self.segments.sort_unstable_by_key(|s| s.addr);
        self.segments.dedup_by(|next, last| {
            let joined = last.file > 0 && continues(last, next);
            if joined {
                last.len += next.len;
            }
            joined
        });
    }
}

/// These runs without what `taken` has; both ascend.
fn without(runs: &[(u64, u64)], taken: &[Segment]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut rest = taken;
    for &(start, len) in runs {
        let (mut at, end) = (start, start + len);
        while at < end {
            rest = &rest[rest.partition_point(|s| s.addr + s.len <= at)..];
            let (stop, next) =
                rest.first().map_or((end, end), |s| (s.addr.clamp(at, end), (s.addr + s.len).min(end)));
            if at < stop {
                left.push((at, stop - at));
            }
            at = if stop < end { next } else { end };
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use doppel_abi_machine::layout::PAGE;

    fn kept(file: u32, addr: u64, len: u64, offset: u64) -> Segment {
        Segment { space: PAGEFILE, file, addr: addr * PAGE, len: len * PAGE, offset: offset * PAGE }
    }

    fn pages(plan: &Plan) -> Vec<(u32, u64, u64, u64)> {
        plan.segments.iter().map(|s| (s.file, s.addr / PAGE, s.len / PAGE, s.offset / PAGE)).collect()
    }

    const OWN: [(u64, u64); 3] = [(0, 2 * PAGE), (10 * PAGE, 10 * PAGE), (30 * PAGE, 2 * PAGE)];

    #[test]
    fn what_the_image_has_still_is_taken_from_there() {
        let mut plan = Plan::default();
        let in_image = [kept(0, 2, 3, 100), kept(1, 12, 2, 200), kept(0, 19, 2, 300), kept(0, 40, 1, 400)];
        plan.add_pages(&OWN, &in_image, None);
        assert_eq!(pages(&plan), [(0, 0, 5, 0), (0, 10, 11, 5), (0, 30, 2, 16), (0, 40, 1, 18)]);
        let pieces: Vec<_> =
            plan.pieces.iter().map(|p| (p.source, p.addr / PAGE, p.len / PAGE, p.to / PAGE)).collect();
        let (here, there) = (Source::PageFile, Source::Image);
        assert_eq!(
            pieces,
            [
                (here, 0, 2, 0),
                (there(0), 100, 3, 2),
                (here, 10, 2, 5),
                (there(1), 200, 2, 7),
                (here, 14, 5, 9),
                (there(0), 300, 2, 14),
                (here, 30, 2, 16),
                (there(0), 400, 1, 18),
            ]
        );
        assert_eq!(plan.len / PAGE, 19);
        let mut spread = Plan::default();
        spread.add_pages(&OWN, &[kept(0, 2, 3, 100)], Some(3 * CHUNK));
        assert!(spread.segments.iter().all(|s| s.addr == s.offset));
        assert_eq!(spread.len, 3 * CHUNK);
        assert_eq!(spread.pieces.iter().map(|p| p.to / PAGE).collect::<Vec<_>>(), [0, 2, 10, 30]);
    }

    #[test]
    fn what_an_ancestor_has_is_referred_to() {
        let mut plan = Plan::default();
        let referred = vec![kept(2, 2, 3, 100), kept(2, 5, 1, 103), kept(1, 12, 2, 200)];
        plan.add_pages(&without(&OWN, &referred), &[], None);
        plan.refer(referred);
        assert_eq!(
            pages(&plan),
            [(0, 0, 2, 0), (2, 2, 4, 100), (0, 10, 2, 2), (1, 12, 2, 200), (0, 14, 6, 4), (0, 30, 2, 10)]
        );
        assert_eq!(plan.len / PAGE, 12);
    }
}

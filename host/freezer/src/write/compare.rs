//! What of a domain's memory its ancestors have: found by comparing, since a domain that was not cloned from them has its own pages.
//!
//! Each place of the new image that can be alike has a [`Candidate`]: the place in an ancestor where the same address of the same
//! address space was, or what its mapping showed before the program wrote there. A candidate is only a guess; content decides. Each
//! run that is referred to costs every clone a mapping, so it must be worth that.

use doppel_abi_machine::frozen::Segment;

use crate::ancestors::{Ancestors, Lineage};
use crate::format::{PAGE_BYTES, is_zero};
use crate::open::FrozenImage;
use crate::scan::{Candidate, Plan};

/// A place of the image that an ancestor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equal {
    /// Offset from the start of the image's data.
    pub to: u64,
    /// Bytes.
    pub len: u64,
    /// Which ancestor.
    pub file: u32,
    /// Where in it.
    pub offset: u64,
}

/// The domain's last image, as a freeze looks things up in it.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    pub image: &'a FrozenImage,
    pub ancestors: &'a Ancestors,
}

impl<'a> Lookup<'a> {
    /// That of a freeze.
    pub fn of(lineage: &'a Lineage) -> Self {
        Self { image: &lineage.image, ancestors: &lineage.ancestors }
    }

    /// What is compared when this is copied.
    pub fn comparison(&self, plan: &'a Plan) -> Comparison<'a> {
        let (image, ancestors) = (self.image, self.ancestors);
        Comparison { image, ancestors, candidates: &plan.candidates, worth: plan.worth() }
    }

    /// The address space of the last image where the memory of `space` may be: itself or, if it is not in there, the first of those
    /// that have most of these bytes, as it may have forked from that since.
    pub fn space_like(&self, space: i32, addr: u64, len: u64) -> i32 {
        let segments = self.image.segments();
        let at = |space: i32| segments.partition_point(|s| s.space < space);
        if space < 0 || segments.get(at(space)).is_some_and(|s| s.space == space) {
            return space;
        }
        let (mut best, mut most, mut next) = (space, 0, at(1));
        while let Some(one) = segments.get(next).map(|s| s.space) {
            let have =
                self.segments_at(one, addr, len).map(|s| (s.addr + s.len).min(addr + len) - s.addr.max(addr));
            let have = have.sum();
            if have > most {
                (best, most) = (one, have);
            }
            next = at(one + 1);
        }
        best
    }

    /// Segments that have something of these bytes.
    fn segments_at(&self, space: i32, addr: u64, len: u64) -> impl Iterator<Item = &Segment> {
        let segments = self.image.segments();
        let first = segments.partition_point(|s| (s.space, s.addr + s.len) <= (space, addr));
        segments[first..].iter().take_while(move |s| s.space == space && s.addr < addr + len)
    }

    /// Candidates for `len` bytes at an address, which come to `to`.
    pub fn of_space(&self, space: i32, addr: u64, len: u64, to: u64, into: &mut Vec<Candidate>) {
        for s in self.segments_at(space, addr, len) {
            let Some(file) = self.ancestors.number_in_parent(s.file) else { continue };
            let (start, end) = (s.addr.max(addr), (s.addr + s.len).min(addr + len));
            into.push(Candidate {
                to: to + (start - addr),
                len: end - start,
                file,
                offset: s.offset + (start - s.addr),
                whole: end - start == len,
            });
        }
    }
}

/// What is compared.
pub(crate) struct Comparison<'a> {
    pub image: &'a FrozenImage,
    pub ancestors: &'a Ancestors,
    /// In order of `to`.
    pub candidates: &'a [Candidate],
    /// So many pages that are not zero make a run worth a mapping of its own; none: nothing does.
    pub worth: Option<u64>,
}

impl Comparison<'_> {
    /// What ancestors have of a chunk that begins at `from`. An ancestor that cannot be read has nothing.
    pub fn look(&self, from: u64, buf: &[u8], other: &mut [u8]) -> Vec<Equal> {
        let to = from + buf.len() as u64;
        let first = self.candidates.partition_point(|c| c.to + c.len <= from);
        let mut found = Vec::new();
        for c in self.candidates[first..].iter().take_while(|c| c.to < to) {
            let (start, end) = (c.to.max(from), (c.to + c.len).min(to));
            let own = &buf[(start - from) as usize..(end - from) as usize];
            let theirs = &mut other[..own.len()];
            let offset = c.offset + (start - c.to);
            let body = &self.image.files()[self.ancestors.body(c.file)];
            if body.read(offset, theirs).is_err() {
                continue;
            }
            let all = c.whole && own.len() as u64 == c.len;
            for (at, len) in alike(own, theirs, all, self.worth) {
                let (to, len) = (start + at as u64, len as u64);
                found.push(Equal { to, len, file: c.file, offset: offset + at as u64 });
            }
        }
        found
    }
}

/// Runs of equal pages that are worth it, as (place, length). A place that is all of a segment needs no mapping more.
fn alike(own: &[u8], theirs: &[u8], whole: bool, worth: Option<u64>) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut at = 0;
    let pages = |at: usize| (&own[at..at + PAGE_BYTES], &theirs[at..at + PAGE_BYTES]);
    while at < own.len() {
        let (begin, mut saved) = (at, 0u64);
        while at < own.len() {
            let (a, b) = pages(at);
            if a != b {
                break;
            }
            saved += u64::from(!is_zero(a));
            at += PAGE_BYTES;
        }
        let all = whole && at - begin == own.len();
        if worth.is_some_and(|worth| saved >= worth) || all && saved > 0 {
            runs.push((begin, at - begin));
        }
        // The page that differs.
        at += PAGE_BYTES;
    }
    runs
}

/// The segments, with what ancestors have cut out of them and referred to. Both ascend, and offsets are such into the data.
pub(crate) fn split(segments: &[Segment], equal: &[Equal]) -> Vec<Segment> {
    let mut all = Vec::with_capacity(segments.len());
    let mut rest = equal;
    for s in segments {
        if s.file > 0 {
            all.push(*s);
            continue;
        }
        let end = s.offset + s.len;
        let part = |from: u64, to: u64| Segment {
            addr: s.addr + (from - s.offset),
            len: to - from,
            offset: from,
            ..*s
        };
        let mut at = s.offset;
        while let Some((e, more)) = rest.split_first().filter(|(e, _)| e.to < end) {
            rest = more;
            if e.to > at {
                all.push(part(at, e.to));
            }
            let theirs = Segment { file: e.file, offset: e.offset, ..part(e.to, e.to + e.len) };
            match all.last_mut().filter(|last| continues(last, &theirs)) {
                Some(last) => last.len += theirs.len,
                None => all.push(theirs),
            }
            at = e.to + e.len;
        }
        if at < end {
            all.push(part(at, end));
        }
    }
    all
}

/// Whether a segment goes on where another ends.
pub(crate) fn continues(a: &Segment, b: &Segment) -> bool {
    (a.space, a.file) == (b.space, b.file) && a.addr + a.len == b.addr && a.offset + a.len == b.offset
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_BYTES as u64;

    #[test]
    fn runs_are_found_if_they_are_worth_it() {
        let mut own = vec![1u8; 64 * PAGE_BYTES];
        let theirs = own.clone();
        assert_eq!(alike(&own, &theirs, false, Some(16)), [(0, own.len())]);
        // A page that differs parts them; what is left of the second is too short.
        own[40 * PAGE_BYTES] = 2;
        own[56 * PAGE_BYTES + 7] = 2;
        assert_eq!(alike(&own, &theirs, false, Some(16)), [(0, 40 * PAGE_BYTES)]);
        let few = vec![1u8; 3 * PAGE_BYTES];
        assert_eq!(alike(&few, &few, false, Some(16)), []);
        assert_eq!(alike(&few, &few, true, Some(16)), [(0, few.len())]);
        assert_eq!(alike(&own, &theirs, false, Some(41)), []);
        assert_eq!(alike(&few, &few, true, None), [(0, few.len())]);
        // Zeros are holes already.
        let zeros = vec![0u8; 64 * PAGE_BYTES];
        assert_eq!(alike(&zeros, &zeros, true, Some(16)), []);
    }

    #[test]
    fn segments_are_split_and_joined() {
        let s = |addr: u64, len: u64, file, offset: u64| Segment {
            space: 3,
            file,
            addr: addr * P,
            len: len * P,
            offset: offset * P,
        };
        let e = |to: u64, len: u64, file, offset: u64| Equal {
            to: to * P,
            len: len * P,
            file,
            offset: offset * P,
        };
        // The second was known to be an ancestor's without being read, and has no place in the data.
        let segments = [s(100, 50, 0, 0), s(150, 10, 2, 7), s(200, 30, 0, 50)];
        let equal = [e(0, 10, 1, 900), e(10, 5, 1, 910), e(20, 30, 1, 500), e(50, 30, 2, 40)];
        let wanted =
            [s(100, 15, 1, 900), s(115, 5, 0, 15), s(120, 30, 1, 500), s(150, 10, 2, 7), s(200, 30, 2, 40)];
        assert_eq!(split(&segments, &equal), wanted);
        assert_eq!(split(&segments, &[]), segments);
    }
}

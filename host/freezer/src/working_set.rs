//! The pages a woken domain touches first: recorded after one wake, read ahead at the next.
//!
//! Kept beside the image (`NAME.touched`), as ranges of addresses and not of the file, since the next hibernation
//! writes a new file. Only advice: a wrong or missing one costs time. Address spaces are counted in order of their
//! pids, which the guest kernel keeps when it starts them anew.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use doppel_abi_machine::frozen::Segment;
use doppel_abi_machine::layout::USER_END;

use crate::error::{Error, Result};
use crate::scan::processes::{children, namespace_pid, pages, private_mappings};

const SUFFIX: &str = "touched";
/// First line of the file.
const TITLE: &str = "doppel touched pages 1";
/// Most ranges that are kept, and most bytes that are read of a file.
const MOST: usize = 1 << 16;
const LONGEST: u64 = 4 << 20;
/// Ranges so close together are one: what lies between is read faster than skipped.
const JOIN: u64 = 64 << 10;

/// A run of touched pages of the address space that is `space`th in order of pids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    space: usize,
    start: u64,
    end: u64,
}

/// Touched pages of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingSet {
    ranges: Vec<Range>,
}

impl WorkingSet {
    /// Where it is kept for an image.
    #[must_use]
    pub fn beside(image: &Path) -> PathBuf {
        image.with_extension(SUFFIX)
    }

    /// The pages that the processes of a running domain have mapped of the frozen image whose files have inode numbers `inodes`.
    /// The host kernel maps up to 16 pages around a touched one; they count too.
    ///
    /// # Errors
    /// If its first process, with host pid `init`, is not there any more.
    pub fn observe(init: i32, inodes: &[u64]) -> Result<Self> {
        let mut processes = Vec::new();
        for pid in children(init)? {
            // Those that end meanwhile have no pages.
            if let Ok(Some(inner)) = namespace_pid(pid) {
                processes.push((inner, pid));
            }
        }
        processes.sort_unstable();
        let mut ranges = Vec::new();
        for (space, (_, pid)) in processes.into_iter().enumerate() {
            if let Ok(found) = touched_by(pid, inodes) {
                ranges.extend(found.into_iter().map(|(at, len)| Range { space, start: at, end: at + len }));
            }
        }
        Ok(Self { ranges: joined(ranges) })
    }

    /// Writes it beside an image.
    ///
    /// # Errors
    /// What the host says.
    pub fn save(&self, image: &Path) -> Result<()> {
        let mut text = format!("{TITLE}\n");
        for r in &self.ranges {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {:x} {:x}", r.space, r.start, r.end);
        }
        let path = Self::beside(image);
        fs::write(&path, text).map_err(Error::host(format!("write {}", path.display())))
    }

    /// Reads what was saved beside an image; none if there is none or it makes no sense.
    #[must_use]
    pub fn load(image: &Path) -> Option<Self> {
        let file = File::open(Self::beside(image)).ok()?;
        let mut lines = BufReader::new(file.take(LONGEST)).lines();
        if lines.next()?.ok()? != TITLE {
            return None;
        }
        let mut ranges = Vec::new();
        for line in lines {
            let line = line.ok()?;
            let mut words = line.split(' ');
            let space = words.next()?.parse().ok()?;
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let end = u64::from_str_radix(words.next()?, 16).ok()?;
            if start >= end || ranges.len() == MOST {
                return None;
            }
            ranges.push(Range { space, start, end });
        }
        Some(Self { ranges })
    }

    /// Bytes it covers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// Where its pages are in an image with these segments: (file, offset, length).
    pub(crate) fn offsets(&self, segments: &[Segment]) -> Vec<(u32, u64, u64)> {
        let processes = segments.iter().position(|s| s.space > 0).map_or(&[][..], |i| &segments[i..]);
        let mut found = Vec::new();
        for (space, of_space) in processes.chunk_by(|a, b| a.space == b.space).enumerate() {
            for r in self.ranges.iter().filter(|r| r.space == space) {
                let first = of_space.partition_point(|s| s.addr + s.len <= r.start);
                for s in of_space[first..].iter().take_while(|s| s.addr < r.end) {
                    let (from, to) = (s.addr.max(r.start), (s.addr + s.len).min(r.end));
                    found.push((s.file, s.offset + (from - s.addr), to - from));
                }
            }
        }
        found
    }
}

/// Pages of `inodes` that are in the page tables of a process: (address, length).
fn touched_by(pid: i32, inodes: &[u64]) -> Result<Vec<(u64, u64)>> {
    const PRESENT: u64 = 1 << 63;
    let failed = || Error::host(format!("read /proc/{pid}/pagemap"));
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(failed())?;
    let mut found = Vec::new();
    for m in private_mappings(pid, USER_END)? {
        let m = m?;
        if inodes.contains(&m.inode) {
            found.extend(pages(&pagemap, m.start, m.end, |e| e & PRESENT != 0).map_err(failed())?);
        }
    }
    Ok(found)
}

/// Ascending ranges, joined where they are close; widest gaps are given up last.
fn joined(ranges: Vec<Range>) -> Vec<Range> {
    let mut gap = JOIN;
    let mut all = ranges;
    loop {
        let mut out: Vec<Range> = Vec::new();
        for r in all {
            match out.last_mut() {
                Some(last) if last.space == r.space && r.start <= last.end.saturating_add(gap) => {
                    last.end = last.end.max(r.end);
                }
                _ => out.push(r),
            }
        }
        if out.len() <= MOST || gap > 1 << 47 {
            out.truncate(MOST);
            return out;
        }
        all = out;
        gap *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(space: usize, start: u64, end: u64) -> Range {
        Range { space, start, end }
    }

    #[test]
    fn close_ranges_are_joined_within_a_space() {
        let all = vec![
            range(0, 0, 0x1000),
            range(0, 0x5000, 0x6000),
            range(0, 0x10_0000, 0x10_1000),
            range(1, 0x10_2000, 0x10_3000),
        ];
        assert_eq!(
            joined(all),
            [range(0, 0, 0x6000), range(0, 0x10_0000, 0x10_1000), range(1, 0x10_2000, 0x10_3000)]
        );
        let many = (0..MOST as u64 * 2).map(|i| range(0, i << 20, (i << 20) + 0x1000)).collect();
        assert!(joined(many).len() <= MOST);
    }

    #[test]
    fn ranges_are_found_in_the_spaces_of_an_image() {
        let segment = |space, addr, len, offset| Segment { space, file: 0, addr, len, offset };
        let segments = [
            segment(-1, 0, 0x4000, 0x1000),
            segment(7, 0x10000, 0x4000, 0x5000),
            segment(7, 0x20000, 0x2000, 0x9000),
            segment(9, 0x10000, 0x1000, 0xb000),
        ];
        let set =
            WorkingSet { ranges: vec![range(0, 0x11000, 0x21000), range(1, 0, 0x100_0000), range(2, 0, 9)] };
        assert_eq!(set.offsets(&segments), [(0, 0x6000, 0x3000), (0, 0x9000, 0x1000), (0, 0xb000, 0x1000)]);
    }

    #[test]
    fn what_is_saved_is_loaded_and_rubbish_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.asleep.frozen");
        assert_eq!(WorkingSet::load(&image), None);
        let set = WorkingSet { ranges: vec![range(0, 0x1000, 0x3000), range(3, 0x5000, 0x6000)] };
        set.save(&image).unwrap();
        assert_eq!(WorkingSet::load(&image), Some(set));
        for bad in ["", "x\n", "doppel touched pages 1\n0 5000\n", "doppel touched pages 1\n0 2000 1000\n"] {
            fs::write(dir.path().join("a.asleep.touched"), bad).unwrap();
            assert_eq!(WorkingSet::load(&image), None, "{bad:?}");
        }
    }
}

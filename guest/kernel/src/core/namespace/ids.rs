//! Maps of user and group ids (`user_namespaces(7)`).
//!
//! Key type: [`IdMap`], which is written once. Ids of the kernel are those of the first namespace.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use doppel_machine::sync::Once;

use crate::{Errno, Result};

/// Most lines of a map.
const MOST: usize = 340;

/// A run of ids: `count` from `first` inside are those from `lower` on outside.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first: u32,
    pub lower: u32,
    pub count: u32,
}

impl Extent {
    fn overlaps(self, other: Self) -> bool {
        let meet = |a: u32, b: u32| a <= b + (other.count - 1) && b <= a + (self.count - 1);
        meet(self.first, other.first) || meet(self.lower, other.lower)
    }
}

/// Which ids of the kernel the ids of a namespace are; empty until it is written.
#[derive(Default)]
pub struct IdMap(Once<Vec<Extent>>);

impl IdMap {
    /// Its lines.
    pub fn extents(&self) -> &[Extent] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    /// Whether it has been written.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Sets it; EPERM if it is set already.
    pub fn set(&self, extents: Vec<Extent>) -> Result<()> {
        self.0.set(extents).map_err(|_| Errno::EPERM)
    }

    /// The kernel's id for an id of the namespace.
    pub fn kernel(&self, id: u32) -> Option<u32> {
        self.kernel_range(id, 1)
    }

    /// The kernel's first id for `count` ids from `id` on, if they lie in one line.
    pub fn kernel_range(&self, id: u32, count: u32) -> Option<u32> {
        let e = self.extents().iter().find(|e| id.wrapping_sub(e.first) < e.count)?;
        let at = id - e.first;
        (count <= e.count - at).then(|| e.lower + at)
    }

    /// The namespace's id for an id of the kernel.
    pub fn shown(&self, kernel: u32) -> Option<u32> {
        let e = self.extents().iter().find(|e| kernel.wrapping_sub(e.lower) < e.count)?;
        Some(e.first + (kernel - e.lower))
    }
}

/// Reads the lines that a program writes; EINVAL for what is no map.
pub fn parse(text: &[u8]) -> Result<Vec<Extent>> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let mut out: Vec<Extent> = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let mut words = line.split_ascii_whitespace().map(|w| w.parse::<u32>().map_err(|_| Errno::EINVAL));
        let mut word = || words.next().unwrap_or(Err(Errno::EINVAL));
        let e = Extent { first: word()?, lower: word()?, count: word()? };
        let whole = |start: u32| start != u32::MAX && start.checked_add(e.count).is_some();
        if words.next().is_some()
            || e.count == 0
            || !whole(e.first)
            || !whole(e.lower)
            || out.len() == MOST
            || out.iter().any(|o| o.overlaps(e))
        {
            return Err(Errno::EINVAL);
        }
        out.push(e);
    }
    Ok(out)
}

/// The lines as /proc shows them, with `lower` for the ids outside.
pub fn text(extents: &[Extent], lower: impl Fn(u32) -> u32) -> String {
    let mut s = String::new();
    for e in extents {
        let line = writeln!(s, "{:10} {:10} {:10}", e.first, lower(e.lower), e.count);
        debug_assert!(line.is_ok());
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> IdMap {
        let m = IdMap::default();
        assert!(m.set(parse(text.as_bytes()).unwrap()).is_ok());
        m
    }

    #[test]
    fn ids_go_both_ways() {
        let m = map("0 1000 10\n20 5 1\n");
        assert_eq!(m.kernel(9), Some(1009));
        assert_eq!(m.kernel(10), None);
        assert_eq!(m.kernel(20), Some(5));
        assert_eq!(m.shown(1000), Some(0));
        assert_eq!(m.shown(1010), None);
        assert_eq!(m.shown(5), Some(20));
    }

    #[test]
    fn a_range_lies_in_one_line() {
        let m = map("0 100 10\n10 110 10\n");
        assert_eq!(m.kernel_range(5, 5), Some(105));
        assert_eq!(m.kernel_range(5, 6), None);
        assert_eq!(m.kernel_range(0, u32::MAX), None);
    }

    #[test]
    fn what_is_no_map() {
        for bad in [
            "",
            "\n",
            "0 0",
            "0 0 0",
            "0 0 1 1",
            "-1 0 1",
            "4294967295 0 1",
            "0 0 1\n\n0 5 1",
            "0 0 10\n9 100 1",
            "0 0 10\n100 9 1",
            "4294967290 0 10",
            "\u{e9} 0 1",
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(Errno::EINVAL), "{bad:?}");
        }
        assert!(parse(&[0xff, b' ', b'0', b' ', b'1']).is_err());
        assert_eq!(parse(b" 0\t1   2").map(|m| m.len()), Ok(1));
    }

    #[test]
    fn a_map_has_340_lines_at_most() {
        let text = |n: u32| (0..n).map(|i| alloc::format!("{i} {i} 1\n")).collect::<String>();
        assert_eq!(parse(text(340).as_bytes()).map(|m| m.len()), Ok(340));
        assert_eq!(parse(text(341).as_bytes()), Err(Errno::EINVAL));
    }

    #[test]
    fn it_is_set_once() {
        let m = map("0 0 1\n");
        assert_eq!(m.set(Vec::new()), Err(Errno::EPERM));
        assert_eq!(text(m.extents(), |n| n + 5), "         0          5          1\n");
    }
}

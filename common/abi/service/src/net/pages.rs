//! Pages of a socket's down buffer, a bit each: whoever touches a page first pays for it, so both sides know which are there.

use super::BUFFER;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a buffer.
pub const PAGES: u32 = BUFFER / PAGE as u32;
/// Pages that stay there at a socket's end, in which most of the next ones end.
pub const FIRST: u32 = 2;
const _: () = assert!(PAGES == u64::BITS, "a bit a page");

/// The pages of `len` bytes from `offset` on, which may go round the end.
#[must_use]
pub fn pages(offset: usize, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
    if last - first + 1 >= PAGES as usize {
        return u64::MAX;
    }
    let ones = (1u64 << (last - first + 1)) - 1;
    ones.rotate_left((first % PAGES as usize) as u32)
}

/// How many bytes these pages have.
#[must_use]
pub fn bytes(pages: u64) -> u64 {
    u64::from(pages.count_ones()) * PAGE as u64
}

/// Pages that lie together: the first of each run, and how many.
pub fn runs(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    core::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let first = pages.trailing_zeros() as usize;
        let count = (pages >> first).trailing_ones() as usize;
        pages &= !self::pages(first * PAGE, count * PAGE);
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn pages_of_a_ring() {
        assert_eq!((pages(0, 0), pages(0, 1), pages(0, 4097), pages(4095, 2)), (0, 1, 3, 3));
        assert_eq!(pages(63 * PAGE, 2 * PAGE), 1 << 63 | 1);
        assert_eq!(pages(320, BUFFER as usize), u64::MAX);
    }

    #[test]
    fn runs_of_pages() {
        let of = |pages| runs(pages).collect::<Vec<_>>();
        assert_eq!((of(0), of(u64::MAX)), (Vec::new(), Vec::from([(0, 64)])));
        assert_eq!(of(1 << 63 | 0b1101), [(0, 1), (2, 2), (63, 1)]);
    }
}

//! Which pages of some bytes are nothing but zeros.

use alloc::vec::Vec;

/// Pages in a row that are zeros, or are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub from: usize,
    /// Behind the last byte.
    pub to: usize,
    /// Whether all of it is zeros.
    pub zeros: bool,
}

/// Splits whole pages of `page` bytes into runs; fewer than `least` pages of zeros beside others count as others.
#[must_use]
pub fn runs(bytes: &[u8], page: usize, least: usize) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for (i, one) in bytes.chunks(page).enumerate() {
        let (from, zeros) = (i * page, is_zero(one));
        match all.last_mut() {
            Some(last) if last.zeros == zeros => last.to = from + one.len(),
            _ => all.push(Run { from, to: from + one.len(), zeros }),
        }
    }
    if all.len() == 1 {
        return all;
    }
    let mut joined: Vec<Run> = Vec::new();
    for mut run in all {
        run.zeros &= run.to - run.from >= least * page;
        match joined.last_mut() {
            Some(last) if last.zeros == run.zeros => last.to = run.to,
            _ => joined.push(run),
        }
    }
    joined
}

/// Whether these bytes are zeros.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|w| u64::from_ne_bytes(*w) == 0) && rest.iter().all(|b| *b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn of(pages: &[u8], least: usize) -> Vec<(usize, usize, bool)> {
        let bytes: Vec<u8> = pages
            .iter()
            .flat_map(|&b| {
                let mut p = vec![0; 16];
                p[9] = b;
                p
            })
            .collect();
        runs(&bytes, 16, least).iter().map(|r| (r.from / 16, r.to / 16, r.zeros)).collect()
    }

    #[test]
    fn all_that_is_there_is_in_one_run() {
        assert_eq!(of(&[], 2), []);
        assert_eq!(of(&[0], 2), [(0, 1, true)]);
        assert_eq!(of(&[1, 2, 3], 2), [(0, 3, false)]);
        assert_eq!(of(&[0, 0, 0], 9), [(0, 3, true)]);
    }

    #[test]
    fn few_zeros_go_with_their_neighbours() {
        assert_eq!(of(&[1, 0, 2, 0, 0, 3], 2), [(0, 3, false), (3, 5, true), (5, 6, false)]);
        assert_eq!(of(&[0, 1, 0], 2), [(0, 3, false)]);
        assert_eq!(of(&[0, 0, 1, 0, 0, 0], 2), [(0, 2, true), (2, 3, false), (3, 6, true)]);
    }
}

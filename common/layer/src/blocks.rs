//! Which blocks of the layer hold which pages of a file.

use alloc::collections::BTreeMap;

/// Runs of pages and where they are. A page that is in none is a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockMap {
    runs: BTreeMap<u64, Run>,
    /// How many all runs have.
    pages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    pages: u64,
    block: u64,
}

impl BlockMap {
    /// Pages `page..page + pages` are in the blocks from `block` on. `freed` is told what holds nothing any more: block, count.
    pub fn put(&mut self, page: u64, pages: u64, block: u64, freed: impl FnMut(u64, u64)) {
        self.cut(page, pages, freed);
        if pages == 0 {
            return;
        }
        self.pages += pages;
        // Runs that follow each other in both are one.
        if let Some((start, run)) = self.runs.range_mut(..page).next_back()
            && start + run.pages == page
            && run.block + run.pages == block
        {
            run.pages += pages;
            return;
        }
        self.runs.insert(page, Run { pages, block });
    }

    /// Pages `page..page + pages` become a hole.
    pub fn cut(&mut self, page: u64, pages: u64, mut freed: impl FnMut(u64, u64)) {
        let mut lost = 0;
        let mut freed = |block, count| {
            lost += count;
            freed(block, count);
        };
        let end = page.saturating_add(pages);
        let before = self.runs.range(..page).next_back().map(|(start, run)| (*start, *run));
        if let Some((start, run)) = before.filter(|(start, run)| start + run.pages > page) {
            let keep = page - start;
            let gone = (run.pages - keep).min(end - page);
            freed(run.block + keep, gone);
            self.runs.insert(start, Run { pages: keep, ..run });
            let left = run.pages - keep - gone;
            if left > 0 {
                self.runs.insert(end, Run { pages: left, block: run.block + keep + gone });
            }
        }
        while let Some((start, run)) = self.runs.range(page..end).next().map(|(start, run)| (*start, *run)) {
            self.runs.remove(&start);
            let gone = run.pages.min(end - start);
            freed(run.block, gone);
            if gone < run.pages {
                self.runs.insert(end, Run { pages: run.pages - gone, block: run.block + gone });
            }
        }
        self.pages -= lost;
    }

    /// The run that holds `page`: its block, and how many pages from here on follow there. Of a hole: none, and how many pages
    /// from here on have nothing; `u64::MAX` if all have.
    #[must_use]
    pub fn find(&self, page: u64) -> (Option<u64>, u64) {
        if let Some((start, run)) = self.runs.range(..=page).next_back()
            && page - start < run.pages
        {
            return (Some(run.block + (page - start)), run.pages - (page - start));
        }
        (None, self.runs.range(page..).next().map_or(u64::MAX, |(start, _)| start - page))
    }

    /// All runs: page, count, block.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.runs.iter().map(|(page, run)| (*page, run.pages, run.block))
    }

    /// The runs that begin at `page` or behind it, and the one that holds it.
    pub fn runs_from(&self, page: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let first = self.runs.range(..=page).next_back().map_or(page, |(start, _)| *start);
        self.runs.range(first..).map(|(page, run)| (*page, run.pages, run.block))
    }

    /// Pages that hold data.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The same by a table.
    #[test]
    fn it_does_what_a_table_does() {
        let mut seed = 1u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (mut map, mut table) = (BlockMap::default(), [0u64; 64]);
        let mut next = 1;
        for _ in 0..4000 {
            let page = random(60);
            let pages = random(64 - page) + 1;
            let old: Vec<u64> = table[page as usize..(page + pages) as usize].to_vec();
            let mut freed = Vec::new();
            let free = |block, count| freed.extend(block..block + count);
            if random(3) == 0 {
                map.cut(page, pages, free);
                table[page as usize..(page + pages) as usize].fill(0);
            } else {
                map.put(page, pages, next, free);
                for i in 0..pages {
                    table[(page + i) as usize] = next + i;
                }
                next += pages;
            }
            let mut lost: Vec<u64> = old.into_iter().filter(|b| *b != 0).collect();
            lost.sort_unstable();
            freed.sort_unstable();
            assert_eq!(freed, lost);
            for (i, block) in (0..).zip(table) {
                let (found, run) = map.find(i);
                assert_eq!(found.unwrap_or(0), block);
                assert!(run > 0);
            }
            assert_eq!(map.pages(), table.iter().filter(|b| **b != 0).count() as u64);
        }
    }
}

//! Pages of a clone's page file that are still in its frozen image: read there, and copied when they are about to be written.
//!
//! Key type: [`Kept`]. A page of the page file belongs to one object, whose lock says who may look at it and who may take it.
//! What programs map is copied before, or when it is touched, so that all see one page. Invariants: what is kept has nothing in the page
//! file; a page that is freed is kept no longer.
//! Lock order: object → kept.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_abi_machine::frozen::{PAGEFILE, Segment};
use doppel_algo::elsewhere::{Elsewhere, Run};
use doppel_machine::pagefile::{self, Place};
use doppel_machine::sync::RwSpin;
use doppel_machine::{boot, frozen};

use super::PAGE;
use crate::{Errno, Result};

/// What of the page file is still in the frozen image.
#[derive(Default)]
pub(super) struct Kept {
    /// Changed only where a clone begins.
    pages: RwSpin<Elsewhere>,
}

impl Kept {
    /// In a clone, before anything runs: all that its image has is there.
    pub fn adopt(&self) {
        let runs = frozen::kept_pages();
        let run = |k: &frozen::Kept| Run { page: k.addr / PAGE, pages: k.len / PAGE, place: k.place / PAGE };
        let Some(all) = Elsewhere::new(runs.iter().map(run)) else {
            panic!("the frozen image's page file is in disorder");
        };
        *self.pages.write() = all;
        self.tell();
    }

    /// Whether nothing is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Most domains are no clones.
        boot::start_info().frozen_tables == 0 || self.pages.read().left() == 0
    }

    /// Of pages `page..page + n` of the page file: where the first ones are that are in one file in a row, and how many.
    #[inline]
    pub fn place(&self, page: u64, n: u64) -> (Place, u64) {
        match self.find(page, n) {
            (Some(place), n) => (Place::Frozen(place * PAGE), n),
            (None, n) => (Place::Own(page * PAGE), n),
        }
    }

    /// The same: where in the frozen image, or not there.
    #[inline]
    pub fn find(&self, page: u64, n: u64) -> (Option<u64>, u64) {
        if self.is_empty() { (None, n) } else { self.pages.read().find(page, page + n) }
    }

    /// Copies pages to the page file: they will be written, or mapped.
    ///
    /// # Errors
    /// EIO: the host cannot read the frozen image, or has no memory.
    pub fn own(&self, mut page: u64, n: u64) -> Result<()> {
        let end = page + n;
        while page < end {
            let (place, n) = self.find(page, end - page);
            if let Some(place) = place {
                if !pagefile::copy_from_frozen(place * PAGE, page * PAGE, (n * PAGE) as usize) {
                    // What was copied of them reads as zeros again: it is kept still.
                    super::punch(page, n);
                    return Err(Errno::EIO);
                }
                self.take(page, n);
            }
            page += n;
        }
        Ok(())
    }

    /// Pages are kept no longer: they are zeros now, or were copied.
    pub fn take(&self, page: u64, n: u64) {
        if !self.is_empty() && self.pages.read().take(page, page + n) > 0 {
            self.tell();
        }
    }

    fn tell(&self) {
        boot::vregs().kept_bytes.store(self.pages.read().left() * PAGE, Ordering::Relaxed);
    }

    /// What is kept.
    pub fn list(&self) -> Vec<Segment> {
        let segment = |r: Run| Segment {
            space: PAGEFILE,
            file: 0,
            addr: r.page * PAGE,
            len: r.pages * PAGE,
            offset: 0,
        };
        self.pages.read().iter().map(segment).collect()
    }
}

//! Pages of an object that are not in memory: read when they are needed, and given up when memory is.
//!
//! A page that is *present* is what counts. One that is not is where the object's [`Store`] has it, or zeros. Only pages that were not
//! changed since they were stored are given up, and none of an object that is mapped.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use doppel_layer::BlockMap;
use doppel_machine::pagefile;
use doppel_machine::sync::SpinLock;

use super::extents::Inner;
use super::object::Change;
use super::{Object, PAGE, Run};
use crate::core::part::Part;
use crate::{Errno, Result};

/// Most pages that are read at once: 256 KiB.
const AT_ONCE: u64 = 64;
/// Most pages of an object that are given up before another one's are.
const A_TURN: u64 = 4096;

/// Where pages are that are not in memory.
pub trait Store: Send + Sync {
    /// Reads whole pages; waits.
    ///
    /// # Errors
    /// What it is that keeps them says.
    fn read(&self, block: u64, bytes: &mut [u8]) -> Result<()>;
}

/// What an object knows of its stored pages.
pub(super) struct Backing {
    store: Arc<dyn Store>,
    /// Which pages are stored, and where. Of a page that is present it may be older.
    map: BlockMap,
    /// Pages are being stored: what was changed is not known to be there yet.
    storing: bool,
    /// Where giving up goes on.
    hand: u64,
}

/// Stored pages that are not present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    page: u64,
    pages: u64,
    block: u64,
}

impl Missing {
    /// Where they begin, in bytes.
    pub fn first_byte(self) -> u64 {
        self.page * PAGE
    }
}

/// What became of pages that were read.
enum Fetched {
    /// They are present, or others are there by now.
    Present,
    /// There is no memory for them: these bytes are from this page on.
    Bytes(Missing, Vec<u8>),
}

impl Inner {
    /// The first pages of `page..end` that are stored and not present; with more behind them that will be needed next if they are
    /// read in a row.
    #[inline]
    pub fn missing(&self, page: u64, end: u64) -> Option<Missing> {
        // Few objects are stored anywhere.
        if self.backing.is_none() { None } else { self.missing_of_stored(page, end) }
    }

    #[inline(never)]
    fn missing_of_stored(&self, page: u64, end: u64) -> Option<Missing> {
        let backing = self.backing.as_ref()?;
        let mut at = page;
        while at < end {
            let (here, n) = self.run(at, end);
            let stop = at + n;
            while !here && at < stop {
                match backing.map.find(at) {
                    (Some(block), stored) => {
                        let in_a_row = at == 0 || self.run(at - 1, at).0;
                        let last = if in_a_row { at + AT_ONCE } else { end.min(at + AT_ONCE) };
                        let (_, absent) = self.run(at, last);
                        return Some(Missing { page: at, pages: stored.min(absent), block });
                    }
                    (None, hole) => at = at.saturating_add(hole),
                }
            }
            at = stop;
        }
        None
    }

    /// Whether a page that is not present is stored, and how many from it on are alike, at most `n`.
    pub fn is_stored(&self, page: u64, n: u64) -> (bool, u64) {
        let found = self.backing.as_ref().map_or((None, n), |b| b.map.find(page));
        (found.0.is_some(), found.1.min(n))
    }

    /// Pages `page..end` are zeros, wherever they were.
    pub fn cut_stored(&mut self, page: u64, end: u64) {
        if let Some(backing) = &mut self.backing {
            backing.map.cut(page, end.saturating_sub(page), |_, _| {});
        }
    }

    /// Pages it has, present or stored.
    pub fn all_pages(&self) -> u64 {
        self.backing.as_ref().map_or(self.pages, |b| self.pages.max(b.map.pages()))
    }

    /// It was not stored, and counts as changed.
    pub fn stored_nothing(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.storing = false;
        }
    }

    /// What was changed is being stored.
    pub fn storing(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.storing = true;
        }
    }
}

impl Object {
    /// An object of `size` bytes of which nothing is present, with pages where `map` says.
    pub fn stored(size: u64, store: Arc<dyn Store>, map: BlockMap) -> Arc<Self> {
        let object = Self::new(size);
        {
            let mut g = object.change();
            g.dirty = Some(Box::default());
            g.backing = Some(Box::new(Backing { store, map, storing: false, hand: 0 }));
        }
        EVICTABLE.add(&object);
        object
    }

    /// These runs are stored now, those with data from a block on.
    pub fn note_stored(self: &Arc<Self>, store: &Arc<dyn Store>, runs: &[(Run, u64)]) {
        let mut g = self.change();
        let new = g.backing.is_none();
        let fresh =
            || Box::new(Backing { store: store.clone(), map: BlockMap::default(), storing: false, hand: 0 });
        let backing = g.backing.get_or_insert_with(fresh);
        backing.storing = false;
        for (run, block) in runs {
            if run.data {
                backing.map.put(run.page, run.pages, *block, |_, _| {});
            } else {
                backing.map.cut(run.page, run.pages, |_, _| {});
            }
        }
        // What has become zeros meanwhile is not stored as such.
        let end = g.size.div_ceil(PAGE);
        g.cut_stored(end, u64::MAX);
        let changed: Vec<_> = g.dirty.as_ref().map_or_else(Vec::new, |d| d.pages.iter().collect());
        for range in changed {
            let (mut page, stop) = (range.start, range.end.min(end));
            while page < stop {
                let (here, n) = g.run(page, stop);
                if !here {
                    g.cut_stored(page, page + n);
                }
                page += n;
            }
        }
        drop(g);
        if new {
            EVICTABLE.add(self);
        }
    }

    /// Locks it for a change at a moment when nothing of what `wanted` finds is missing.
    #[inline]
    pub(super) fn change_with(&self, wanted: impl Fn(&Inner) -> Option<Missing>) -> Result<Change<'_>> {
        loop {
            let g = self.change();
            let Some(missing) = wanted(&g) else { return Ok(g) };
            drop(g);
            self.bring(missing)?;
        }
    }

    /// Brings pages in.
    pub(super) fn bring(&self, missing: Missing) -> Result<()> {
        match self.fetch(missing)? {
            Fetched::Present => Ok(()),
            Fetched::Bytes(..) => Err(Errno::ENOSPC),
        }
    }

    /// Brings pages in, or gives `use_` their bytes from byte `at` on: how many it took.
    pub(super) fn bring_or(
        &self,
        missing: Missing,
        at: u64,
        use_: impl FnOnce(&[u8]) -> Result<usize>,
    ) -> Result<u64> {
        match self.fetch(missing)? {
            Fetched::Present => Ok(0),
            Fetched::Bytes(missing, bytes) => {
                let from = at.saturating_sub(missing.page * PAGE) as usize;
                use_(bytes.get(from..).unwrap_or_default()).map(|n| n as u64)
            }
        }
    }

    /// Reads pages from where they are stored. Nothing that spins is held.
    fn fetch(&self, missing: Missing) -> Result<Fetched> {
        let store = self.inner.read().backing.as_ref().map(|b| b.store.clone());
        let Some(store) = store else { return Ok(Fetched::Present) };
        let mut bytes = alloc::vec![0; (missing.pages * PAGE) as usize];
        if let Err(e) = store.read(missing.block, &mut bytes) {
            // In a clone whose files are all in memory there is nobody to ask, and nothing to be asked.
            let present = self.is_present(missing.page, missing.page + missing.pages);
            return if present { Ok(Fetched::Present) } else { Err(e) };
        }
        let mut g = self.change();
        let end = missing.page + missing.pages;
        let mut page = missing.page;
        while page < end {
            let expected = missing.block + (page - missing.page);
            let (present, n) = g.run(page, end);
            let (stored, same) = g.backing.as_ref().map_or((None, n), |b| b.map.find(page));
            let n = n.min(same);
            if !present && stored == Some(expected) {
                let room = g.ensure(page, page + n);
                // Also what was made present before there was no more room.
                fill(&g, page, &bytes[((page - missing.page) * PAGE) as usize..], n);
                if room.is_err() {
                    return Ok(Fetched::Bytes(missing, bytes));
                }
            }
            page += n;
        }
        Ok(Fetched::Present)
    }

    /// Bytes in pages of `at..at + len` that are neither present nor stored.
    pub fn absent(&self, at: u64, len: u64) -> u64 {
        let g = self.inner.read();
        let (mut page, end) = (at / PAGE, at.saturating_add(len).div_ceil(PAGE));
        let mut absent = 0;
        while page < end {
            let (here, n) = g.run(page, end);
            let (stored, n) = if here { (true, n) } else { g.is_stored(page, n) };
            if !stored {
                absent += n;
            }
            page += n;
        }
        absent.saturating_mul(PAGE)
    }

    /// Whether all its pages are present.
    pub fn is_whole(&self) -> bool {
        let g = self.inner.read();
        g.missing(0, g.size.div_ceil(PAGE)).is_none()
    }

    /// Brings all pages in.
    ///
    /// # Errors
    /// ENOSPC: there is no memory for them; or what the store says.
    pub fn bring_all(&self) -> Result<()> {
        self.change_with(|g| g.missing(0, g.size.div_ceil(PAGE))).map(drop)
    }

    fn is_stored_in(&self, store: &Arc<dyn Store>) -> bool {
        let g = self.inner.read();
        g.backing.as_ref().is_some_and(|backing| Arc::ptr_eq(&backing.store, store))
    }

    /// Gives up all pages that can be brought in again. `in_use`: somebody maps it.
    fn give_up_all(&self, in_use: impl Fn() -> bool) {
        let mut page = 0;
        loop {
            // Others have their turn in between.
            let mut g = self.change();
            let Some(backing) = &g.backing else { return };
            if backing.storing || self.is_written_through() || in_use() {
                return;
            }
            let next = backing.map.runs_from(page).find(|(start, pages, _)| start + pages > page);
            let end = g.size.div_ceil(PAGE);
            let Some((from, stop)) = next
                .map(|(start, pages, _)| (start.max(page), (start + pages).min(end)))
                .filter(|(from, stop)| from < stop)
            else {
                if g.pages == 0 {
                    g.drop_extents(0);
                }
                return;
            };
            page = stop.min(from + A_TURN);
            give_up_clean(&mut g, from, page);
        }
    }

    /// Gives up at most `most` pages; gives how many. `in_use`: somebody maps it.
    fn give_up(&self, most: u64, in_use: impl Fn() -> bool) -> u64 {
        let Some(mut g) = self.try_change() else { return 0 };
        let Some(backing) = &g.backing else { return 0 };
        if backing.storing || self.is_written_through() || in_use() {
            return 0;
        }
        let end = g.size.div_ceil(PAGE);
        let from = backing.hand;
        let stored: Vec<_> = backing.map.runs_from(from).take(AT_ONCE as usize).collect();
        let mut given = 0;
        let mut hand = 0;
        for (start, pages, _) in stored {
            let (mut page, stop) = (start.max(from), (start + pages).min(end));
            while page < stop && given < most {
                let (here, n) = g.run(page, stop);
                let n = n.min(most - given);
                if here {
                    given += give_up_clean(&mut g, page, page + n);
                }
                page += n;
            }
            hand = page;
            if given >= most {
                break;
            }
        }
        if let Some(backing) = &mut g.backing {
            // At the end it begins anew.
            backing.hand = if given == 0 { 0 } else { hand };
        }
        if g.pages == 0 {
            g.drop_extents(0);
        }
        given
    }
}

/// Writes what was read into pages that are present now.
fn fill(g: &Inner, page: u64, bytes: &[u8], pages: u64) {
    let (mut at, end) = (page, page + pages);
    while at < end {
        let (place, n) = g.run_to_write(at, end);
        let Some(place) = place else { return };
        pagefile::write(
            place * PAGE,
            &bytes[((at - page) * PAGE) as usize..((at - page + n) * PAGE) as usize],
        );
        at += n;
    }
}

/// Gives up those of the present pages `page..end` that were not changed; gives how many.
fn give_up_clean(g: &mut Inner, page: u64, end: u64) -> u64 {
    let clean: Vec<_> = g.dirty.as_ref().map_or_else(Vec::new, |dirty| dirty.pages.gaps(page, end));
    let mut given = 0;
    for range in clean {
        given += range.end - range.start;
        g.clear(range.start, range.end);
    }
    given
}

/// Objects whose pages may be given up.
#[derive(Default)]
pub struct Evictable {
    objects: SpinLock<Vec<Weak<Object>>>,
    hand: AtomicUsize,
    /// Nothing may be given up: the domain is being frozen, with all that is in memory.
    off: AtomicBool,
}

/// The domain's.
pub static EVICTABLE: Part<Evictable> = Part::new();

impl Evictable {
    fn add(&self, object: &Arc<Object>) {
        self.objects.lock().push(Arc::downgrade(object));
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Object>> {
        let mut objects = self.objects.lock();
        objects.retain(|object| object.strong_count() > 0);
        objects.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether pages may be given up.
    pub fn allow(&self, allowed: bool) {
        self.off.store(!allowed, Ordering::SeqCst);
    }

    /// What is stored here is not there any more: all pages are present, and stay.
    pub fn forget(&self, store: &Arc<dyn Store>) {
        let gone = |object: &Arc<Object>| {
            let mut g = object.change();
            let here = g.backing.as_ref().is_some_and(|backing| Arc::ptr_eq(&backing.store, store));
            if here {
                g.backing = None;
                g.dirty = None;
            }
            here
        };
        let kept = self.all().into_iter().filter(|object| !gone(object));
        let kept = kept.map(|object| Arc::downgrade(&object)).collect();
        *self.objects.lock() = kept;
    }

    /// Gives up all pages that can be brought in again from here.
    pub fn give_up_all(&self, store: &Arc<dyn Store>) {
        for object in self.all().into_iter().filter(|object| object.is_stored_in(store)) {
            // Its file, and this.
            object.give_up_all(|| Arc::strong_count(&object) > 2);
        }
    }

    /// Gives up pages until `bytes` are free, as far as there are some; true if there were. Waits for nobody: locks may be held.
    pub fn make_room(&self, bytes: u64) -> bool {
        let mut wanted = bytes.div_ceil(PAGE).max(AT_ONCE);
        let mut any = false;
        // Twice around: a turn begins where the last one of an object ended.
        let mut left = self.objects.try_lock().map_or(0, |objects| objects.len() * 2);
        while wanted > 0 && left > 0 && !self.off.load(Ordering::SeqCst) {
            left -= 1;
            let hand = self.hand.load(Ordering::Relaxed);
            let Some(objects) = self.objects.try_lock() else { break };
            let object = objects.get(hand % objects.len().max(1)).and_then(Weak::upgrade);
            drop(objects);
            let given = object.as_ref().map_or(0, |object| {
                // Its file, and this.
                object.give_up(wanted.min(A_TURN), || Arc::strong_count(object) > 2)
            });
            if given < A_TURN {
                self.hand.store(hand.wrapping_add(1), Ordering::Relaxed);
            }
            any |= given > 0;
            wanted = wanted.saturating_sub(given);
        }
        any
    }
}

//! Pages of volumes' files that are kept under leases: which files have some, and how many they are at most.
//!
//! A file whose turn it is loses all its pages, unless it was read since the last turn. They are charged to the domain as those of
//! files in memory are, and go when programs want the memory.

use alloc::collections::BTreeMap;
use alloc::sync::Weak;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::sync::SpinLock;

use super::node::Node;
use crate::objects::pages::page_file;

/// One in so many pages of the domain's memory may be kept.
const PART: u64 = 4;

/// See above.
#[derive(Default)]
pub(super) struct Kept {
    pages: AtomicU64,
    files: SpinLock<Files>,
}

/// Files with pages.
#[derive(Default)]
struct Files {
    by_number: BTreeMap<u64, Weak<Node>>,
    last: u64,
    /// Whose turn it is, or the next one's.
    turn: u64,
}

impl Kept {
    /// Pages that are kept now.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Enters a file; gives its number.
    pub fn enter(&self, file: &Weak<Node>) -> u64 {
        let mut files = self.files.lock();
        files.last += 1;
        let number = files.last;
        files.by_number.insert(number, file.clone());
        number
    }

    /// It has none any more.
    pub fn leave(&self, number: u64) {
        let gone = self.files.lock().by_number.remove(&number);
        drop(gone);
    }

    /// One that had `before` pages has `now`.
    pub fn count(&self, before: u64, now: u64) {
        self.pages.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// How many it may be.
    pub fn most(&self) -> u64 {
        page_file().usage().1 / PART
    }

    /// Makes room for `more` pages; false: there is none but with who asks.
    pub fn make_room(&self, more: u64) -> bool {
        let beyond = (self.pages() + more).saturating_sub(self.most());
        beyond == 0 || self.give_back(beyond)
    }

    /// Gives back so many pages, if there are as many with files that nobody works with; whether there was one.
    pub fn give_back(&self, pages: u64) -> bool {
        let before = self.pages();
        // Who was read lately is spared once.
        let mut looks = 2 * self.files.lock().by_number.len();
        while looks > 0 && before.saturating_sub(self.pages()) < pages {
            looks -= 1;
            let next = self.files.lock().next();
            let Some(file) = next else { break };
            if let Some(file) = file.upgrade() {
                file.drop_pages();
            }
        }
        self.pages() < before
    }
}

impl Files {
    fn next(&mut self) -> Option<Weak<Node>> {
        let next = self.by_number.range(self.turn..).next().or_else(|| self.by_number.iter().next());
        let (number, file) = next.map(|(number, file)| (*number, file.clone()))?;
        self.turn = number + 1;
        Some(file)
    }
}

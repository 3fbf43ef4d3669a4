//! What a volume with a bound takes: a file that all storage services that have the volume share, and what each has under way.

use core::sync::atomic::{AtomicU64, Ordering};

use super::SLOTS;

/// What the files of a volume take, as all services that have it count. A domain does not see it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Used {
    bytes: AtomicU64,
    inodes: AtomicU64,
}

/// Bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes of the host's disk.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Used {
    /// What is used now.
    #[must_use]
    pub fn now(&self) -> Amount {
        Amount { bytes: self.bytes.load(Ordering::SeqCst), inodes: self.inodes.load(Ordering::SeqCst) }
    }

    /// It was counted. Nobody else counts meanwhile.
    pub fn set(&self, to: Amount) {
        self.bytes.store(to.bytes, Ordering::SeqCst);
        self.inodes.store(to.inodes, Ordering::SeqCst);
    }

    /// Takes more, if that stays within `most`; false: it does not, and nothing was taken.
    #[must_use]
    pub fn take(&self, more: Amount, most: Amount) -> bool {
        // What takes nothing needs no room, also where others have taken too much.
        if !add_within(&self.bytes, more.bytes, most.bytes) {
            return false;
        }
        let done = add_within(&self.inodes, more.inodes, most.inodes);
        if !done {
            self.give(Amount { inodes: 0, ..more });
        }
        done
    }

    /// Takes more, whatever that makes.
    pub fn add(&self, more: Amount) {
        self.bytes.fetch_add(more.bytes, Ordering::SeqCst);
        self.inodes.fetch_add(more.inodes, Ordering::SeqCst);
    }

    /// Gives back; never less than nothing is used.
    pub fn give(&self, back: Amount) {
        for (word, n) in [(&self.bytes, back.bytes), (&self.inodes, back.inodes)] {
            let less = |now: u64| Some(now.saturating_sub(n));
            // It cannot fail.
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }
}

fn add_within(word: &AtomicU64, more: u64, most: u64) -> bool {
    let add = |now: u64| now.checked_add(more).filter(|sum| more == 0 || *sum <= most);
    word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
}

/// What requests have taken in advance, by slot: a successor that does one again knows it. A domain does not see it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Charges([Charge; SLOTS as usize]);

/// What one request has taken.
#[repr(C)]
#[derive(Debug)]
struct Charge {
    /// Its ticket; 0: nothing.
    ticket: AtomicU64,
    before: AtomicU64,
    bytes: AtomicU64,
    inodes: AtomicU64,
}

impl Charges {
    /// What the request with this ticket has taken, and what its files took before it.
    #[must_use]
    pub fn get(&self, slot: u16, ticket: u64) -> Option<(Amount, u64)> {
        let charge = self.0.get(usize::from(slot))?;
        let word = |w: &AtomicU64| w.load(Ordering::SeqCst);
        let taken = Amount { bytes: word(&charge.bytes), inodes: word(&charge.inodes) };
        (ticket != 0 && word(&charge.ticket) == ticket).then(|| (taken, word(&charge.before)))
    }

    /// Notes it.
    pub fn set(&self, slot: u16, ticket: u64, taken: Amount, before: u64) {
        let Some(charge) = self.0.get(usize::from(slot)) else { return };
        charge.before.store(before, Ordering::SeqCst);
        charge.bytes.store(taken.bytes, Ordering::SeqCst);
        charge.inodes.store(taken.inodes, Ordering::SeqCst);
        charge.ticket.store(ticket, Ordering::SeqCst);
    }

    /// It is settled.
    pub fn clear(&self, slot: u16) {
        self.0.get(usize::from(slot)).into_iter().for_each(|charge| charge.ticket.store(0, Ordering::SeqCst));
    }
}

// Pinned: docs/services.md.
const _: () = {
    assert!(size_of::<Used>() == 64);
    assert!(size_of::<Charges>() == 2048);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_may_be() {
        let used = Used::default();
        let most = Amount { bytes: 10, inodes: 1 };
        assert!(used.take(Amount { bytes: 10, inodes: 0 }, most));
        assert!(!used.take(Amount { bytes: 1, inodes: 0 }, most));
        used.give(Amount { bytes: 4, inodes: 0 });
        assert!(used.take(Amount { bytes: 1, inodes: 1 }, most));
        assert!(!used.take(Amount { bytes: 1, inodes: 1 }, most), "there are files enough");
        assert_eq!(used.now(), Amount { bytes: 7, inodes: 1 });
        used.add(Amount { bytes: 9, inodes: 0 });
        assert!(used.take(Amount::default(), most), "nothing needs no room");
        used.give(Amount { bytes: 100, inodes: 100 });
        assert_eq!(used.now(), Amount::default());
    }

    #[test]
    fn charges_are_known_by_their_request() {
        let word = || AtomicU64::new(0);
        let none = || Charge { ticket: word(), before: word(), bytes: word(), inodes: word() };
        let charges = Charges(core::array::from_fn(|_| none()));
        assert_eq!(charges.get(3, 0), None);
        let taken = Amount { bytes: 1, inodes: 2 };
        charges.set(3, 9, taken, 5);
        assert_eq!(charges.get(3, 9), Some((taken, 5)));
        assert_eq!((charges.get(3, 8), charges.get(2, 9), charges.get(SLOTS, 9)), (None, None, None));
        charges.clear(3);
        assert_eq!(charges.get(3, 9), None);
    }
}

//! Memory for what a socket has received: which pages of its buffer are there, and who pays for them.
//!
//! Whoever touches a page of a channel first pays for it. A guest kernel touches pages ahead of what comes; which these are the
//! host's kernel knows, so nobody has to believe the domain. Other pages are touched by this service, which counts them for each
//! domain, within the domain's quota; those whose bytes have been taken are given back when that is used up. One that has nothing
//! waiting may always have some, so that no socket waits for another. Bytes of a stream can wait in the host's socket: as long
//! as nothing of it was ever taken, it has a page, what the domain pays for, and 64 KiB while few do.

use std::sync::Arc;

use doppel_abi_service::net::pages::{self, PAGE, PAGES, bytes, pages};
use doppel_abi_service::net::{BUFFER, down_buffer};
use doppel_sys::shared::{self, SharedMap};

use crate::channel::quota::{Account, Left};

/// Buffers of sockets that are no more, given back at once.
const LEFT: usize = 16;
/// Pages that a stream takes at once where something waits.
const STEP: usize = 16;
/// Bytes that may wait of a stream of which nothing was ever taken, in pages that nobody has touched for it. Most are taken at once.
const UNTAKEN: usize = 64 << 10;
/// Pages that the shortest datagrams may need, which come in any case where nothing waits.
const LEAST: u32 = 2;

/// Pages of a socket's down buffer, a bit each.
#[derive(Debug)]
pub(crate) struct Room {
    account: Arc<Account>,
    number: u32,
    /// Those that are counted as this service's.
    there: u64,
    /// Those that the domain has touched first. It has no way to take them back: no call that its filter allows does that to a
    /// channel.
    lent: u64,
    /// Where the first bytes went, and whether any were taken since.
    first: Option<usize>,
    taken: bool,
}

impl Room {
    /// Of the socket with this number.
    pub fn new(account: Arc<Account>, number: u32) -> Self {
        let Left { there, lent } = account.inherit(number);
        Self { account, number, there, lent, first: None, taken: false }
    }

    /// Sees whether its guest kernel touches pages, by the first one of a socket that has received nothing yet.
    pub fn notice(mut self, memory: &SharedMap) {
        self.look(memory, 0, 1);
    }

    /// For how many bytes of a stream there is room at an offset of the down buffer, before which so many wait.
    pub fn stream(&mut self, memory: &SharedMap, (offset, len): (usize, usize), waiting: u32) -> usize {
        if waiting == 0 {
            self.taken |= self.first.is_some_and(|first| first != offset);
            self.first.get_or_insert(offset);
        }
        if self.run(offset, len) < len.min(PAGE) {
            self.look(memory, offset, len);
        }
        let page = pages(offset, 1);
        if len == 0 || self.has() & page != 0 {
            return self.run(offset, len);
        }
        if !self.take(waiting) {
            self.recycle(memory, (offset, 1), waiting);
            if !self.take(waiting) {
                if waiting != 0 {
                    return 0;
                }
                self.account.overdraw_memory(PAGE as u64);
            }
        }
        self.there |= page;
        // One with which nothing waits may be short.
        let steps = if self.taken || waiting != 0 { STEP.min(len.div_ceil(PAGE)) } else { 1 };
        for n in 1..steps {
            let page = pages(offset + n * PAGE, 1);
            if self.has() & page == 0 {
                if !self.take(waiting.max(1) + (n * PAGE) as u32) {
                    break;
                }
                self.there |= page;
            }
        }
        self.run(offset, len)
    }

    /// Takes a page of the quota for a stream of which so many bytes wait.
    fn take(&self, waiting: u32) -> bool {
        let one = PAGE as u64;
        match waiting {
            0 => self.account.take_memory(one),
            _ if self.taken => self.account.take_ahead(one),
            _ => (waiting as usize) < UNTAKEN && self.account.take_first(one),
        }
    }

    /// Whether there is room for a datagram that is so long with its header, at an offset before which so many bytes wait.
    pub fn datagram(&mut self, memory: &SharedMap, (offset, len): (usize, usize), waiting: u32) -> bool {
        if pages(offset, len) & !self.has() != 0 {
            self.look(memory, offset, len);
        }
        let missing = pages(offset, len) & !self.has();
        let mut taken = missing == 0 || self.account.take_memory(bytes(missing));
        if !taken {
            self.recycle(memory, (offset, len), waiting);
            taken = self.account.take_memory(bytes(missing));
        }
        if !taken && waiting == 0 && missing.count_ones() <= LEAST {
            self.account.overdraw_memory(bytes(missing));
            taken = true;
        }
        if taken {
            self.there |= missing;
        }
        taken
    }

    fn has(&self) -> u64 {
        self.there | self.lent
    }

    /// How many of `len` bytes from an offset on lie in pages that are there.
    fn run(&self, offset: usize, len: usize) -> usize {
        let from = u32::try_from(offset / PAGE % PAGES as usize).expect("below 64");
        let run = self.has().rotate_right(from).trailing_ones() as usize;
        (run * PAGE).saturating_sub(offset % PAGE).min(len)
    }

    /// Sees which of the pages of these bytes the domain has touched.
    fn look(&mut self, memory: &SharedMap, offset: usize, len: usize) {
        let wanted = pages(offset, len) & !self.has();
        if wanted == 0 {
            return;
        }
        let (first, last) = (wanted.trailing_zeros() as usize, 63 - wanted.leading_zeros() as usize);
        let mut found = [0; PAGES as usize];
        let from = shared::offset(down_buffer(self.number)) + first * PAGE;
        if memory.resident(from, &mut found[first..=last]).is_ok() {
            let lent = found.iter().enumerate().map(|(n, there)| u64::from(there & 1) << n).sum::<u64>();
            self.lent |= lent & wanted;
            if self.lent != 0 {
                self.account.lent();
            }
        }
    }

    /// Gives back what is not needed: where nothing waits and nothing is about to come, and what others have left.
    fn recycle(&mut self, memory: &SharedMap, (offset, len): (usize, usize), waiting: u32) {
        let (waiting, size) = (waiting as usize, BUFFER as usize);
        let live = pages((offset + size - waiting) % size, waiting) | pages(offset, len);
        self.there = give_back(&self.account, memory, self.number, self.there, !live);
        for (number, Left { there, lent }) in self.account.left(LEFT) {
            let there = give_back(&self.account, memory, number, there, u64::MAX);
            self.account.leave(number, Left { there, lent });
        }
    }

    /// The socket is no more, which has received so many bytes: what it had beyond the first pages is given back, whoever pays,
    /// unless that is little: then the next socket finds it.
    pub fn end(&mut self, memory: &SharedMap, received: u32) {
        let beyond = self.has() & !Left::FIRST;
        if beyond == 0 && (received as usize) < PAGE || self.account.may_leave(beyond.count_ones()) {
            return;
        }
        let first = pages::FIRST as usize * PAGE;
        if memory.free(shared::offset(down_buffer(self.number)) + first, BUFFER as usize - first).is_ok() {
            self.account.give_memory(bytes(self.there & !Left::FIRST));
            self.there &= Left::FIRST;
            self.lent &= Left::FIRST;
        }
    }
}

/// Gives pages of a socket's buffer back to the host, run by run; those that stay, and stay counted.
fn give_back(account: &Account, memory: &SharedMap, number: u32, there: u64, these: u64) -> u64 {
    let mut kept = there;
    for (first, count) in pages::runs(there & these) {
        if memory.free(shared::offset(down_buffer(number)) + first * PAGE, count * PAGE).is_ok() {
            let given = pages(first * PAGE, count * PAGE);
            kept &= !given;
            account.give_memory(bytes(given));
        }
    }
    kept
}

impl Drop for Room {
    fn drop(&mut self) {
        // They are there for the next socket of this number, or to be given back.
        self.account.leave(self.number, Left { there: self.there, lent: self.lent });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::channel::quota::{Pools, Quota};

    const SIZE: u64 = PAGE as u64;

    /// Memory of some sockets, and of a domain that may have so many pages.
    fn of(pages: u64) -> (SharedMap, Arc<Account>) {
        let (file, _bell) = doppel_service::make(doppel_abi_service::net::SIZE).unwrap();
        let memory = SharedMap::new(file.as_fd(), shared::offset(down_buffer(9)) + BUFFER as usize).unwrap();
        let quota = Quota { memory: pages * SIZE, ..Quota::default() };
        (memory, Account::new(quota, Pools::new(1 << 20, 1 << 15, 1 << 30)))
    }

    /// A domain touches these pages of a socket.
    fn touch(memory: &SharedMap, number: u32, pages: std::ops::Range<usize>) {
        for n in pages {
            memory.write(shared::offset(down_buffer(number)) + n * PAGE, &[0]);
        }
    }

    #[test]
    fn what_nobody_takes_is_a_page_and_what_the_domain_has_touched() {
        let (memory, account) = of(63);
        let (mut a, mut b) = (Room::new(account.clone(), 0), Room::new(account.clone(), 1));
        touch(&memory, 0, 0..2);
        assert_eq!(a.stream(&memory, (320, 20 * PAGE), 0), 2 * PAGE - 320);
        assert_eq!(a.stream(&memory, (2 * PAGE, 20 * PAGE), 2 * PAGE as u32 - 320), 0);
        assert_eq!(b.stream(&memory, (320, 20 * PAGE), 0), PAGE - 320);
        assert_eq!(b.stream(&memory, (PAGE, 20 * PAGE), 100), 0);
        assert!(account.take_memory(62 * SIZE), "the domain's own are not counted");
        // What it touches meanwhile is its own as well.
        touch(&memory, 0, 2..5);
        assert_eq!(a.stream(&memory, (2 * PAGE, 20 * PAGE), 2 * PAGE as u32 - 320), 3 * PAGE);
    }

    #[test]
    fn a_stream_that_is_taken_fills_a_quarter_of_the_quota_and_goes_on() {
        let (memory, account) = of(32);
        let (mut a, mut b) = (Room::new(account.clone(), 0), Room::new(account.clone(), 1));
        assert_eq!(a.stream(&memory, (320, 20 * PAGE), 0), PAGE - 320);
        // It has been taken.
        assert_eq!(a.stream(&memory, (PAGE, 20 * PAGE), 0), 7 * PAGE);
        assert_eq!(a.stream(&memory, (8 * PAGE, PAGE), 7 * PAGE as u32), PAGE, "the first is given back");
        assert_eq!(a.stream(&memory, (9 * PAGE, PAGE), 8 * PAGE as u32), 0);
        // The other gets a page all the same, also when the whole quota is used up.
        assert!(account.take_memory(24 * SIZE) && !account.take_memory(1));
        assert_eq!(b.stream(&memory, (100, 10 * PAGE), 0), PAGE - 100);
        assert_eq!(b.stream(&memory, (PAGE, PAGE), 100), 0, "while something waits");
        memory.write(shared::offset(down_buffer(0)) + PAGE, &[7; 100]);
        // What has been taken is given back, and reads as nothing.
        account.give_memory(24 * SIZE);
        assert_eq!(a.stream(&memory, (9 * PAGE, 5 * PAGE), 0), PAGE);
        assert_eq!(a.stream(&memory, (10 * PAGE, 4 * PAGE), PAGE as u32), 4 * PAGE);
        let mut found = [1; 100];
        memory.read(shared::offset(down_buffer(0)) + PAGE, &mut found);
        assert_eq!(found, [0; 100]);
    }

    #[test]
    fn a_datagram_has_all_of_its_pages_or_does_not_come() {
        let (memory, account) = of(8);
        let (mut a, mut b) = (Room::new(account.clone(), 0), Room::new(account.clone(), 1));
        assert!(a.datagram(&memory, (PAGE - 8, 7 * PAGE), 0));
        assert!(!b.datagram(&memory, (0, 3 * PAGE), 0));
        // A short one comes where nothing waits, over the border of pages too.
        touch(&memory, 1, 0..1);
        assert!(b.datagram(&memory, (PAGE - 8, 100), 0));
        assert!(!b.datagram(&memory, (2 * PAGE - 8, 100), 100));
        touch(&memory, 1, 2..3);
        assert!(b.datagram(&memory, (2 * PAGE - 8, 100), 100));
        assert!(b.datagram(&memory, (BUFFER as usize - 8, 100), 0), "round the end");
    }

    #[test]
    fn what_sockets_leave_is_little() {
        let (memory, account) = of(300);
        let held = |number: u32| {
            let mut found = [0; PAGES as usize];
            memory.resident(shared::offset(down_buffer(number)), &mut found).unwrap();
            found.map(|p| usize::from(p & 1)).iter().sum::<usize>()
        };
        // Four leave all of their buffer, 62 pages beyond the first two, the fifth finds that enough.
        for number in 0..5 {
            let mut a = Room::new(account.clone(), number);
            a.lent = u64::MAX;
            a.end(&memory, 0);
        }
        let lent = |number| Room::new(account.clone(), number).lent;
        assert_eq!([3, 4].map(lent), [u64::MAX, 0], "what the next one finds");
        // Of one that ends now two pages stay, whoever has touched the others.
        let mut a = Room::new(account.clone(), 5);
        touch(&memory, 5, 1..4);
        assert!(a.datagram(&memory, (0, 13 * PAGE), 0));
        touch(&memory, 5, 0..64);
        a.end(&memory, 13 * PAGE as u32);
        drop(a);
        assert_eq!(held(5), 2);
        // One is the service's, and counted until somebody needs it.
        assert!(account.take_memory(299 * SIZE) && !account.take_memory(1));
        let mut b = Room::new(account.clone(), 6);
        assert!(b.datagram(&memory, (0, PAGE), 1));
        assert_eq!((held(5), lent(5)), (1, 0));
    }

    #[test]
    fn streams_that_nobody_has_taken_yet_fill_a_64th_of_the_quota() {
        let (memory, account) = of(64 * 20);
        let (mut a, mut b) = (Room::new(account.clone(), 0), Room::new(account.clone(), 1));
        touch(&memory, 0, 0..1);
        let end = |n: usize| (n * PAGE, 40 * PAGE, u32::try_from(n * PAGE).unwrap());
        assert_eq!(a.stream(&memory, (0, 40 * PAGE), 0), PAGE);
        let next = |room: &mut Room, n| {
            let (offset, len, waiting) = end(n);
            room.stream(&memory, (offset, len), waiting)
        };
        assert_eq!((next(&mut a, 1), next(&mut a, 16)), (15 * PAGE, 0));
        assert_eq!(b.stream(&memory, (0, 40 * PAGE), 0), PAGE);
        assert_eq!((next(&mut b, 1), next(&mut b, 5)), (4 * PAGE, 0));
    }
}

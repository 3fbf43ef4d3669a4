//! Memory for what a socket has received: which pages of its buffer are there because of this service.
//!
//! Whoever touches a page of a channel first pays for it. What comes is put there by the service, so it counts what it has
//! touched for each domain, within the domain's quota; pages whose bytes have been taken are given back when that is used up.
//! One that has nothing waiting may always have some, so that no socket waits for another.

use std::sync::Arc;

use doppel_abi_service::net::{BUFFER, down_buffer};
use doppel_sys::shared::SharedMap;

use crate::quota::Account;
use crate::stream::at;

const PAGE: usize = 4096;
const PAGES: usize = BUFFER as usize / PAGE;
/// Buffers of sockets that are no more, given back at once.
const LEFT: usize = 16;
const _: () = assert!(PAGES == 64, "a bit a page");

/// Pages of a socket's down buffer.
#[derive(Debug)]
pub(crate) struct Room {
    account: Arc<Account>,
    number: u32,
    /// A bit a page.
    there: u64,
}

/// The pages of `len` bytes from `offset` on, which may go round the end.
fn pages(offset: usize, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
    if last - first + 1 >= PAGES {
        return u64::MAX;
    }
    let ones = (1u64 << (last - first + 1)) - 1;
    ones.rotate_left(u32::try_from(first % PAGES).expect("below 64"))
}

fn bytes(pages: u64) -> u64 {
    u64::from(pages.count_ones()) * PAGE as u64
}

impl Room {
    /// Of the socket with this number.
    pub fn new(account: Arc<Account>, number: u32) -> Self {
        let there = account.inherit(number);
        Self { account, number, there }
    }

    /// Makes room for bytes at an offset of the down buffer, before which so many wait: for how many there is.
    pub fn make(&mut self, memory: &SharedMap, (offset, len): (usize, usize), waiting: u32) -> usize {
        let wanted = pages(offset, len) & !self.there;
        if wanted == 0 {
            return len;
        }
        if self.account.take_memory(bytes(wanted)) {
            self.there |= wanted;
            return len;
        }
        let waiting = waiting as usize;
        let size = BUFFER as usize;
        let live = pages((offset + size - waiting) % size, waiting);
        self.there = give_back(&self.account, memory, self.number, self.there, !live & !pages(offset, 1));
        for (number, there) in self.account.left(LEFT) {
            let kept = give_back(&self.account, memory, number, there, u64::MAX);
            self.account.leave(number, kept);
        }
        // What there is room for: up to the first page that is one too many.
        let mut room = 0;
        while room < len {
            let page = pages(offset + room, 1);
            if self.there & page == 0 {
                if self.account.take_memory(PAGE as u64) {
                    self.there |= page;
                } else if waiting == 0 && room == 0 {
                    // A datagram needs all of its pages, a stream is content with one.
                    self.account.overdraw_memory(bytes(page));
                    self.there |= page;
                } else {
                    break;
                }
            }
            room += PAGE - (offset + room) % PAGE;
        }
        room.min(len)
    }
}

/// Gives pages of a socket's buffer back to the host, run by run; those that stay, and stay counted.
fn give_back(account: &Account, memory: &SharedMap, number: u32, there: u64, these: u64) -> u64 {
    let (mut kept, mut these) = (there, there & these);
    while these != 0 {
        let first = these.trailing_zeros();
        let run = (these >> first).trailing_ones();
        let mask = if run == 64 { u64::MAX } else { ((1 << run) - 1) << first };
        these &= !mask;
        let from = at(down_buffer(number)) + first as usize * PAGE;
        if memory.free(from, run as usize * PAGE).is_ok() {
            kept &= !mask;
            account.give_memory(bytes(mask));
        }
    }
    kept
}

impl Drop for Room {
    fn drop(&mut self) {
        // They are there for the next socket of this number, or to be given back.
        self.account.leave(self.number, self.there);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::quota::{Pools, Quota};

    #[test]
    fn pages_of_a_ring() {
        assert_eq!((pages(0, 0), pages(0, 1), pages(0, 4097), pages(4095, 2)), (0, 1, 3, 3));
        assert_eq!(pages(63 * PAGE, 2 * PAGE), 1 << 63 | 1);
        assert_eq!(pages(320, BUFFER as usize), u64::MAX);
    }

    #[test]
    fn what_is_received_stays_within_a_quota_and_goes_on() {
        let (file, _bell) = doppel_service::make(doppel_abi_service::net::SIZE).unwrap();
        let memory = SharedMap::new(file.as_fd(), at(down_buffer(1)) + BUFFER as usize).unwrap();
        let quota = Quota { memory: 8 * PAGE as u64, ..Quota::default() };
        let account = Account::new(quota, Pools::new(1 << 20, 1 << 15, 1 << 30));
        let (mut a, mut b) = (Room::new(account.clone(), 0), Room::new(account.clone(), 1));
        // One takes what there is; the other gets a page all the same.
        assert_eq!(a.make(&memory, (0, 10 * PAGE), 0), 8 * PAGE);
        assert_eq!(b.make(&memory, (320, 10 * PAGE), 0), PAGE - 320);
        assert_eq!(b.make(&memory, (PAGE, PAGE), 100), 0, "while something waits");
        memory.write(at(down_buffer(0)), &[7; 100]);
        // What has been taken is given back, and reads as nothing.
        assert_eq!(a.make(&memory, (8 * PAGE, 5 * PAGE), 0), 5 * PAGE);
        let mut found = [1; 100];
        memory.read(at(down_buffer(0)), &mut found);
        assert_eq!(found, [0; 100]);
        // What a socket leaves is counted until it is the next one's, or somebody needs it.
        drop((a, b));
        assert!(!account.take_memory(3 * PAGE as u64));
        let mut c = Room::new(account.clone(), 2);
        assert_eq!(c.make(&memory, (0, 8 * PAGE), 0), 8 * PAGE);
        drop(c);
        assert_eq!(Room::new(account, 2).there, 0xff);
    }
}

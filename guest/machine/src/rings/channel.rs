//! The guest's side of a channel to a service domain (`common/abi/service`), of whatever kind.
//!
//! A channel is mapped at boot, shared, at a fixed address. The service domain is not trusted with more than what it
//! serves: indices are checked (`doppel_ring`), bytes are copied.

use core::sync::atomic::{Ordering, fence};

use doppel_abi_machine::VirtualRegisters;
use doppel_abi_service::{Answers, Bells, ChannelHeader, Requests, layout};

use crate::host::{self, nr};
use crate::memory::pagefile;
use crate::memory::user::{Fault, UserPtr};

/// A channel.
pub struct Channel {
    base: u64,
    size: u64,
    doorbell: i32,
    is_there: fn() -> bool,
}

impl Channel {
    /// The one at `base`, of `size` bytes, whose service is rung by `doorbell`.
    pub(super) const fn new(base: u64, size: u64, doorbell: i32, is_there: fn() -> bool) -> Self {
        Self { base, size, doorbell, is_there }
    }

    /// A structure in it, which is made of atomics.
    pub(super) fn at<T>(&self, offset: u64) -> &'static T {
        // SAFETY: `range` checks that it lies inside the channel, which is mapped for ever; callers in this folder name
        // structures made of atomics, at the offsets their layout is pinned to.
        unsafe { &*(self.range(offset, size_of::<T>()) as *const T) }
    }

    /// The address of a range of its bytes.
    pub(super) fn range(&self, offset: u64, len: usize) -> u64 {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.size);
        assert!((self.is_there)() && fits, "no channel, or outside of it");
        self.base + offset
    }

    /// Its first page.
    pub fn header(&self) -> &'static ChannelHeader {
        self.at(layout::HEADER)
    }

    /// What the guest kernel asks.
    pub fn requests(&self) -> &'static Requests {
        self.at(layout::REQUESTS)
    }

    /// What the service domain says.
    pub fn answers(&self) -> &'static Answers {
        self.at(layout::ANSWERS)
    }

    /// Where the service domain posts events.
    pub fn registers(&self) -> &'static VirtualRegisters {
        self.at(layout::REGISTERS)
    }

    /// Objects the service domain should look at.
    pub fn to_service(&self) -> &'static Bells {
        self.at(layout::TO_SERVICE)
    }

    /// Objects the guest kernel should look at.
    pub fn to_guest(&self) -> &'static Bells {
        self.at(layout::TO_GUEST)
    }

    /// Copies bytes into it.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let to = self.range(offset, bytes.len()) as *mut u8;
        // SAFETY: checked to be inside the channel; the source is the kernel's own.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out of it. What the service domain changes meanwhile is what it could have said.
    pub fn get(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.range(offset, bytes.len()) as *const u8;
        // SAFETY: checked to be inside the channel; the target is the kernel's own.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes out of it into the page file.
    pub fn get_to_pages(&self, offset: u64, to: u64, len: usize) {
        pagefile::take(to, self.range(offset, len), len);
    }

    /// Copies bytes of the page file into it.
    pub fn put_from_pages(&self, offset: u64, from: pagefile::Place, len: usize) {
        pagefile::give(from, self.range(offset, len), len);
    }

    /// Copies user memory into it up to the first fault; returns how many bytes.
    pub fn put_from_user(&self, offset: u64, from: UserPtr, len: usize) -> Result<usize, Fault> {
        let to = self.range(offset, len);
        from.transfer(len, |s| (to, s))
    }

    /// Copies to user memory up to the first fault; returns how many bytes.
    pub fn get_to_user(&self, offset: u64, to: UserPtr, len: usize) -> Result<usize, Fault> {
        let from = self.range(offset, len);
        to.transfer(len, |d| (d, from))
    }

    /// Rings the service domain's doorbell, if it sleeps. What it is to see was stored before.
    pub fn ring(&self) {
        let sleeps = &self.header().service_sleeps;
        fence(Ordering::SeqCst);
        if sleeps.load(Ordering::Relaxed) == 0 || sleeps.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        let one = 1u64;
        // SAFETY: writes 8 bytes from a local to an eventfd. A full counter (EAGAIN) is as good as rung.
        let _ = unsafe {
            host::call(nr::WRITE, [self.doorbell as u64, core::ptr::from_ref(&one) as u64, 8, 0, 0, 0])
        };
    }
}

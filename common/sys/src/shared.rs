//! Memory shared with a hostile peer.
//!
//! [`SharedMap`] maps a memfd and gives out two things only: references to structures made of atomics
//! ([`SharedLayout`]), and transfers between the mapping and a descriptor or a private buffer. The peer
//! may change any byte at any time, so nothing here returns a plain reference to its bytes.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use doppel_abi_machine::session::SessionHeader;
use doppel_abi_machine::{CallCounts, RingHeader, VirtualRegisters};
use doppel_abi_service::{
    Account, Answers, Bells, ChannelHeader, Pulse, Requests, net::SocketHeader, storage::Charges,
    storage::FileEvents, storage::Leases, storage::Ledger, storage::SlotHeader, storage::Used,
};
use rustix::mm::{MapFlags, ProtFlags};

const PAGE: usize = 4096;

/// A structure that may live in memory shared with a hostile peer.
///
/// # Safety
/// Every field (padding aside) must be an atomic, and every bit pattern must be valid.
pub unsafe trait SharedLayout {}

// SAFETY: atomics and padding that nobody reads.
unsafe impl SharedLayout for RingHeader {}
// SAFETY: atomics only.
unsafe impl SharedLayout for VirtualRegisters {}
// SAFETY: atomics only.
unsafe impl SharedLayout for SessionHeader {}
// SAFETY: atomics only.
unsafe impl SharedLayout for ChannelHeader {}
// SAFETY: atomics only.
unsafe impl SharedLayout for Bells {}
// SAFETY: atomics, and padding that nobody reads.
unsafe impl SharedLayout for Requests {}
// SAFETY: as above.
unsafe impl SharedLayout for Answers {}
// SAFETY: as above.
unsafe impl SharedLayout for SocketHeader {}
// SAFETY: atomics, and padding that nobody reads.
unsafe impl SharedLayout for SlotHeader {}
// SAFETY: as above.
unsafe impl SharedLayout for Ledger {}
// SAFETY: atomics only.
unsafe impl SharedLayout for Leases {}
// SAFETY: atomics, and padding that nobody reads.
unsafe impl SharedLayout for FileEvents {}
// SAFETY: atomics, and padding that nobody reads.
unsafe impl SharedLayout for Used {}
// SAFETY: atomics only.
unsafe impl SharedLayout for Charges {}
// SAFETY: atomics only.
unsafe impl SharedLayout for Account {}
// SAFETY: atomics, and padding that nobody reads.
unsafe impl SharedLayout for Pulse {}
// SAFETY: atomics and padding that nobody reads.
unsafe impl SharedLayout for CallCounts {}

/// Place of something in a mapping, of a contract's constants (`common/abi`), which are for 64 bits.
///
/// # Panics
/// Beyond what this machine can address; constants are not.
#[must_use]
pub fn offset(constant: u64) -> usize {
    usize::try_from(constant).expect("inside a mapping")
}

/// A shared, writable mapping of a whole descriptor.
#[derive(Debug)]
pub struct SharedMap {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is by atomics or by the kernel.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps `len` bytes of `fd`, readable and writable.
    ///
    /// The descriptor should be sealed against shrinking, or touching the mapping may raise SIGBUS.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Puts `len` bytes of another descriptor, from `from` on, in the place of those at `offset`; whole pages.
    ///
    /// # Errors
    /// What `mmap` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn overlay(&mut self, offset: usize, len: usize, fd: BorrowedFd<'_>, from: u64) -> io::Result<()> {
        let at = self.at(offset, len);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: replaces pages of our own mapping, into which nobody has a reference: it is borrowed mutably.
        unsafe {
            rustix::mm::mmap(at.as_ptr().cast(), len, both, MapFlags::SHARED | MapFlags::FIXED, fd, from)
        }?;
        Ok(())
    }

    /// Pointer to `len` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not inside the mapping: offsets are the host's own, so that is a bug of ours.
    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len).expect("offset overflows");
        assert!(end <= self.len, "shared access at {offset}+{len} beyond {}", self.len);
        // SAFETY: just checked to be inside the mapping.
        unsafe { self.start.add(offset) }
    }

    /// The structure at `offset`.
    ///
    /// # Panics
    /// If it is not inside the mapping or not aligned.
    #[must_use]
    pub fn get<T: SharedLayout>(&self, offset: usize) -> &T {
        let pointer = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(pointer.is_aligned(), "unaligned shared structure at {offset}");
        // SAFETY: inside the mapping, aligned, and T is made of atomics, so that concurrent change by
        // the peer is no data race; the mapping lives as long as self.
        unsafe { pointer.as_ref() }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: checked to fit; the source is private, so they cannot overlap. A peer that reads at
        // the same time sees some mixture, which the protocol above makes its own problem.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Copies from `offset` to `bytes`, a private buffer that the peer cannot change any more.
    ///
    /// # Panics
    /// If they are not inside the mapping.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: checked to be inside; the target is private, so they cannot overlap. Any mixture of what
        // the peer writes meanwhile is as good as any other: these are bytes without structure.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Gives whole pages back to the host: they read as zeros afterwards, for the peer too.
    ///
    /// # Errors
    /// What `madvise` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn free(&self, offset: usize, len: usize) -> io::Result<()> {
        let start = self.at(offset, len);
        // SAFETY: the range is inside the mapping, to whose bytes no plain reference ever exists; the pages of a memory
        // file that are gone read as zeros.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, rustix::mm::Advice::LinuxRemove) }?;
        Ok(())
    }

    /// Which of `found.len()` pages from `offset` on are there, whoever has touched them: 1 in bit 0 of each byte.
    ///
    /// # Errors
    /// What `mincore` says.
    ///
    /// # Panics
    /// If they are not inside the mapping.
    pub fn resident(&self, offset: usize, found: &mut [u8]) -> io::Result<()> {
        let len = found.len() * PAGE;
        let start = self.at(offset, len);
        // SAFETY: the range is inside the mapping, at whose bytes this does not look; the kernel writes a byte for each page of it.
        let done = unsafe { libc::mincore(start.as_ptr().cast(), len, found.as_mut_ptr()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes all pages out of this process' memory; their bytes stay, and come back when they are touched.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn let_go(&self) -> io::Result<()> {
        // SAFETY: our own mapping, of a file whose bytes this does not change, and no plain reference to them exists.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.len, rustix::mm::Advice::LinuxDontNeed)
        }?;
        Ok(())
    }

    /// Writes `len` bytes at `offset` to a descriptor; the kernel does the reading.
    ///
    /// # Errors
    /// What `write` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn write_to(&self, fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<usize> {
        let from = self.at(offset, len);
        // SAFETY: the range is inside the mapping, and only the kernel looks at it.
        let done = unsafe { libc::write(fd.as_raw_fd(), from.as_ptr().cast(), len) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    /// Reads up to `len` bytes from a descriptor to `offset`.
    ///
    /// # Errors
    /// What `read` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn read_from(&self, fd: impl AsFd, offset: usize, len: usize) -> io::Result<usize> {
        let to = self.at(offset, len);
        // SAFETY: the range is inside the mapping, to which no plain reference ever exists.
        let done = unsafe { libc::read(fd.as_fd().as_raw_fd(), to.as_ptr().cast(), len) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

impl SharedMap {
    /// Writes `len` bytes at `offset` to a file, from the position `position` of that on; the kernel does the reading.
    ///
    /// # Errors
    /// What `pwrite` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn write_to_at(
        &self,
        fd: BorrowedFd<'_>,
        position: u64,
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        let from = self.at(offset, len);
        let position = i64::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the range is inside the mapping, and only the kernel looks at it.
        let done = unsafe { libc::pwrite(fd.as_raw_fd(), from.as_ptr().cast(), len, position) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    /// Reads up to `len` bytes of a file, from the position `position` of that on, to `offset`. `waits`: also those that the host has
    /// to fetch first.
    ///
    /// # Errors
    /// What `pread` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn read_from_at(
        &self,
        fd: BorrowedFd<'_>,
        position: u64,
        offset: usize,
        len: usize,
        waits: bool,
    ) -> io::Result<usize> {
        let to = self.at(offset, len);
        let position = i64::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
        let part = libc::iovec { iov_base: to.as_ptr().cast(), iov_len: len };
        let flags = if waits { 0 } else { libc::RWF_NOWAIT };
        // SAFETY: the range is inside the mapping, to which no plain reference ever exists.
        let done = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, position, flags) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

impl SharedMap {
    /// Reads from a descriptor once: first to `head`, then up to `len` bytes to `offset`. Gives how many bytes came in all.
    ///
    /// # Errors
    /// What `readv` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn read_behind(
        &self,
        fd: impl AsFd,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        let to = self.at(offset, len);
        let parts = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: to.as_ptr().cast(), iov_len: len },
        ];
        // SAFETY: `head` is ours to write, and the range is inside the mapping, to which no plain reference ever exists.
        let done = unsafe { libc::readv(fd.as_fd().as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }

    /// Writes to a descriptor once: `head`, then `len` bytes at `offset`; the kernel does the reading.
    ///
    /// # Errors
    /// What `writev` says.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn write_behind(&self, fd: impl AsFd, head: &[u8], offset: usize, len: usize) -> io::Result<usize> {
        let from = self.at(offset, len);
        let parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: from.as_ptr().cast(), iov_len: len },
        ];
        // SAFETY: both ranges are readable, and only the kernel looks at the second.
        let done = unsafe { libc::writev(fd.as_fd().as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every reference into it borrowed self. munmap of a valid range can
        // only fail for want of memory, in which case the mapping stays: nothing better to do.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
    }
}

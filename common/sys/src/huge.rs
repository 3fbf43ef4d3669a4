//! Huge pages in the host's cache of a file.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::ptr;

use rustix::fs::{Advice as FileAdvice, fadvise};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// A range of addresses of our own, given back on drop.
struct Range(*mut c_void, usize);

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `cached_huge` and nothing refers to it.
        let unmapped = unsafe { munmap(self.0, self.1) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

/// Sees to it, as far as the host can, that the first `count` huge pages of `file` are such in the host's cache too, so that
/// mappings of them cost a page table entry each; says whether all are. The file must not become shorter meanwhile.
///
/// What was read in small pages before, and is not mapped by anybody, is dropped and read again.
///
/// # Errors
/// If the file cannot be mapped.
pub fn cached_huge(file: &File, count: u32) -> io::Result<bool> {
    let huge = HUGE as u64;
    if file.metadata()?.len() < u64::from(count) * huge {
        return Ok(false);
    }
    let mut all = true;
    for at in (0..u64::from(count)).map(|i| i * huge) {
        if !is_huge(file, at)? {
            fadvise(file, at, NonZeroU64::new(huge), FileAdvice::DontNeed)?;
            all &= is_huge(file, at)?;
        }
    }
    Ok(all)
}

/// Touches the first byte of a mapping of the huge page at `offset` and looks whether a page far from it became present too.
fn is_huge(file: &File, offset: u64) -> io::Result<bool> {
    // SAFETY: a new mapping at an address the host chooses touches no other memory.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), 2 * HUGE, ProtFlags::empty(), MapFlags::PRIVATE) }?;
    let range = Range(start, 2 * HUGE);
    let at = range.0.map_addr(|a| a.next_multiple_of(HUGE));
    // SAFETY: `at..at+HUGE` lies inside the range just reserved, which is replaced.
    unsafe {
        mmap(at, HUGE, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED, file, offset)?;
        madvise(at, HUGE, Advice::LinuxHugepage)?;
    }
    // SAFETY: mapped readable, and the file is longer than this.
    unsafe { at.cast::<u8>().read_volatile() };
    let far = at.addr() + HUGE / 2;
    let mut entry = [0u8; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, (far / PAGE * 8) as u64)?;
    // Bit 63: present.
    Ok(u64::from_le_bytes(entry) >> 63 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_files_have_none_and_long_ones_stay_whole() {
        let path = std::env::temp_dir().join(format!("doppel-huge-{}", std::process::id()));
        std::fs::write(&path, "short").unwrap();
        assert!(!cached_huge(&File::open(&path).unwrap(), 1).unwrap());
        let bytes: Vec<u8> = (0..2 * HUGE + 100).map(|i| (i / PAGE) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        // Whether there are huge pages depends on the file system.
        let first = cached_huge(&File::open(&path).unwrap(), 2).unwrap();
        let second = cached_huge(&File::open(&path).unwrap(), 2).unwrap();
        assert!(second || !first);
        assert!(!cached_huge(&File::open(&path).unwrap(), 3).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        std::fs::remove_file(&path).unwrap();
    }
}

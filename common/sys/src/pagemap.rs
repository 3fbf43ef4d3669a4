//! Which pages of a process are in memory, without looking at those that never were (`PAGEMAP_SCAN`, Linux 6.7).

use std::ffi::c_void;
use std::fs::File;
use std::io;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// Most runs that one question is answered with.
const RUNS: usize = 1024;

const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const PFNZERO: u64 = 1 << 5;

/// A run of pages in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Address.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// They are a file's (or shared), not the process' own.
    pub file: bool,
}

/// The host's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Question {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The host's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

struct Scan<'a> {
    question: Question,
    regions: &'a mut [Region; RUNS],
}

// SAFETY: the host reads and writes the question, and as many regions as it says there are, all of which live as long as this; it
// gives how many it has written.
unsafe impl Ioctl for Scan<'_> {
    type Output = (usize, u64);

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Question>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.question.vec = self.regions.as_mut_ptr().expose_provenance() as u64;
        (&raw mut self.question).cast()
    }

    unsafe fn output_from_ptr(count: IoctlOutput, question: *mut c_void) -> rustix::io::Result<Self::Output> {
        // SAFETY: it is the pointer that `as_ptr` gave.
        let walked = unsafe { (*question.cast::<Question>()).walk_end };
        Ok((usize::try_from(count).unwrap_or(0), walked))
    }
}

/// Calls `each` for all runs of pages of `start..end` that are in memory, pages of zeros that nobody wrote excepted, of the process
/// whose `/proc/PID/pagemap` this is.
///
/// # Errors
/// What the host says: `ENOTTY` or `EINVAL` if it cannot.
pub fn present(pagemap: &File, start: u64, end: u64, mut each: impl FnMut(Run)) -> io::Result<()> {
    let mut regions = [Region::default(); RUNS];
    let mut at = start;
    while at < end {
        let question = Question {
            size: size_of::<Question>() as u64,
            start: at,
            end,
            vec_len: RUNS as u64,
            category_inverted: PFNZERO,
            category_mask: PRESENT | PFNZERO,
            return_mask: FILE,
            ..Question::default()
        };
        // SAFETY: the opcode is that of a file of this kind; another kind refuses it.
        let (count, walked) = unsafe { ioctl(pagemap, Scan { question, regions: &mut regions }) }?;
        for r in &regions[..count.min(RUNS)] {
            each(Run { start: r.start, end: r.end, file: r.categories & FILE != 0 });
        }
        if walked <= at {
            break;
        }
        at = walked;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_written_are_own_ones() {
        const PAGE: u64 = 4096;
        let data = vec![1u8; 64 * PAGE as usize];
        let at = (data.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut runs = Vec::new();
        match present(&pagemap, at, at + 60 * PAGE, |run| runs.push(run)) {
            Ok(()) => assert_eq!(runs, [Run { start: at, end: at + 60 * PAGE, file: false }]),
            // An older kernel.
            Err(error) => assert!(matches!(error.raw_os_error(), Some(25 | 22)), "{error}"),
        }
        assert!(present(&File::open("/dev/null").unwrap(), 0, PAGE, |_| {}).is_err());
    }
}

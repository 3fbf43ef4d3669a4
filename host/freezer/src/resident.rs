//! What of a running domain's user memory is in memory, and may be moved to its swap region.

use std::fs::File;

use doppel_abi_machine::layout::{PAGE, USER_END};
use doppel_sys::pagemap;

use crate::error::{Error, Result};
use crate::scan::processes::{pages, private_mappings};

/// Runs of a process' own pages with at most so many untouched ones between them become one: each costs a mapping.
const JOIN: u64 = 16 * PAGE;
/// Most that is looked at of a process page by page, by a host that cannot name those in memory (before Linux 6.7): what lies
/// behind stays where it is.
const MOST: u64 = 8 << 30;

/// A run of pages that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// They are the process' own; otherwise the swap region's, which it has touched.
    pub own: bool,
}

/// What a process has in memory.
#[derive(Debug, Default)]
pub struct Resident {
    /// Its runs, by address.
    pub runs: Vec<Run>,
    /// Bytes of pages, without what lies between joined ones.
    pub bytes: u64,
    /// Bytes that were looked at page by page.
    walked: u64,
}

/// Looks at the private memory of a process, which may be mapped from the swap region with this inode.
///
/// # Errors
/// If it is gone.
pub fn resident(pid: i32, swap: u64) -> Result<Resident> {
    resident_below(pid, swap, USER_END)
}

/// The same of what lies below this address.
fn resident_below(pid: i32, swap: u64, most: u64) -> Result<Resident> {
    let failed = || Error::host(format!("read /proc/{pid}/pagemap"));
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(failed())?;
    let mut all = Resident::default();
    for m in private_mappings(pid, most)? {
        let m = m?;
        let gap = if m.inode == 0 { JOIN } else { 0 };
        let found = all.look(&pagemap, (m.start, m.end)).map_err(failed())?;
        for run in found.into_iter().filter(|run| run.own || m.inode == swap) {
            all.bytes += run.len;
            match all.runs.last_mut() {
                Some(last)
                    if last.own
                        && run.own
                        && last.addr >= m.start
                        && run.addr - (last.addr + last.len) <= gap =>
                {
                    last.len = run.addr + run.len - last.addr;
                }
                _ => all.runs.push(run),
            }
        }
    }
    Ok(all)
}

impl Resident {
    /// What of this range is in memory.
    fn look(&mut self, pagemap: &File, (start, end): (u64, u64)) -> std::io::Result<Vec<Run>> {
        const ENOTTY: i32 = 25;
        const EINVAL: i32 = 22;
        let mut found = Vec::new();
        let each = |r: pagemap::Run| found.push(Run { addr: r.start, len: r.end - r.start, own: !r.file });
        match pagemap::present(pagemap, start, end, each) {
            Err(error) if matches!(error.raw_os_error(), Some(ENOTTY | EINVAL)) => {
                self.walk(pagemap, start, end)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// The same page by page.
    fn walk(&mut self, pagemap: &File, start: u64, end: u64) -> std::io::Result<Vec<Run>> {
        const PRESENT: u64 = 1 << 63;
        const FILE_OR_SHARED: u64 = 1 << 61;
        let end = end.min(start + (MOST - self.walked));
        self.walked += end - start;
        let mut all = Vec::new();
        for (own, kind) in [(true, 0), (false, FILE_OR_SHARED)] {
            let wanted = |e: u64| e & (PRESENT | FILE_OR_SHARED) == PRESENT | kind;
            let runs = pages(pagemap, start, end, wanted)?;
            all.extend(runs.into_iter().map(|(addr, len)| Run { addr, len, own }));
        }
        all.sort_unstable_by_key(|r: &Run| r.addr);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_written_are_found_and_both_ways_agree() {
        let mut data = vec![0u8; 64 * PAGE as usize];
        let at = (data.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
        let first = usize::try_from(at - data.as_ptr().expose_provenance() as u64).unwrap();
        // Two runs with 9 untouched pages between them.
        for page in (0..20).chain(29..60) {
            data[first + page * PAGE as usize] = 1;
        }
        // A test's memory lies where no program of a domain has any.
        let all = resident_below(std::process::id().cast_signed(), u64::MAX, 1 << 47).unwrap();
        let around = |r: &&Run| r.addr <= at && r.addr + r.len >= at + 60 * PAGE;
        assert!(all.runs.iter().find(around).is_some_and(|r| r.own));
        assert!(all.bytes >= 51 * PAGE);
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let ends = (at, at + 60 * PAGE);
        let walked = Resident::default().walk(&pagemap, ends.0, ends.1).unwrap();
        let own: Vec<_> = walked.into_iter().filter(|r| r.own).collect();
        let looked = Resident::default().look(&pagemap, ends).unwrap();
        assert_eq!(own, looked.into_iter().filter(|r| r.own).collect::<Vec<_>>());
        // Somebody may have used the memory before.
        assert!((51..=60).contains(&own.iter().map(|r| r.len / PAGE).sum::<u64>()), "{own:?}");
    }

    #[test]
    fn no_more_is_walked_than_may_be() {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut all = Resident { walked: MOST, ..Resident::default() };
        assert_eq!(all.walk(&pagemap, 0, 1 << 46).unwrap(), []);
    }
}

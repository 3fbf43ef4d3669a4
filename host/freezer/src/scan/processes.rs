//! A domain's processes, and which pages of them are their own, as `/proc` tells.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;

use doppel_abi_machine::layout::{PAGE, USER_END};

use crate::error::{Error, Result};

/// A domain's processes but the first: (pid in its namespace, host pid).
///
/// # Errors
/// If the first is gone, or a process ends meanwhile.
pub fn processes(init: i32) -> Result<Vec<(i32, i32)>> {
    other_processes(init, &BTreeSet::new())
}

/// The same without those whose host pids are `known`.
///
/// # Errors
/// As [`processes`].
pub fn other_processes(init: i32, known: &BTreeSet<i32>) -> Result<Vec<(i32, i32)>> {
    let mut processes = Vec::new();
    for pid in children(init)?.into_iter().filter(|pid| !known.contains(pid)) {
        if let Some(inner) = namespace_pid(pid)? {
            processes.push((inner, pid));
        }
    }
    Ok(processes)
}

/// What of a process' memory is its own, and what comes from a share file.
#[derive(Debug, Default)]
pub struct Own {
    /// Runs of pages in private mappings that belong to the process alone: (address, length).
    pub runs: Vec<(u64, u64)>,
    /// Number of host mappings.
    pub mappings: usize,
    /// Bytes mapped from the share file and not written since.
    pub shared: u64,
    /// In so many mappings.
    pub shared_mappings: usize,
}

/// Looks at the user memory of a process, in which pages of the file with inode `share` are shared.
///
/// # Errors
/// If it is gone.
pub fn own_pages(pid: i32, share: Option<u64>) -> Result<Own> {
    let failed = || Error::host(format!("read /proc/{pid}/pagemap"));
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(failed())?;
    let mut own = Own::default();
    for m in mappings(pid)? {
        let m = m?;
        own.mappings += 1;
        if m.start >= USER_END || !m.private {
            continue;
        }
        let runs = private_pages(&pagemap, m.start, m.end).map_err(failed())?;
        if share == Some(m.inode) {
            own.shared_mappings += 1;
            own.shared += m.end - m.start - runs.iter().map(|r| r.1).sum::<u64>();
        }
        own.runs.extend(runs);
    }
    Ok(own)
}

/// Children of the domain's first process: all its other processes.
pub(crate) fn children(init: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{init}/task/{init}/children");
    let text = std::fs::read_to_string(&path).map_err(Error::host(format!("read {path}")))?;
    Ok(text.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect())
}

/// Whether a process with this host pid counts as one, as in [`processes`]: a zombie does not.
#[must_use]
pub fn is_process(pid: i32) -> bool {
    namespace_pid(pid).is_ok_and(|inner| inner.is_some())
}

/// Whether there is a process with this host pid that has memory still: one that ends loses it before all else.
#[must_use]
pub fn has_memory(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| text.contains("\nVmSize:"))
}

/// The pid a process has in its own namespace; none for a zombie.
pub(crate) fn namespace_pid(pid: i32) -> Result<Option<i32>> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(Error::host(format!("read {path}")))?;
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    if field("State:").is_some_and(|s| s.starts_with(['Z', 'X'])) {
        return Ok(None);
    }
    let inner = field("NSpid:").and_then(|f| f.split_ascii_whitespace().last()?.parse().ok());
    inner
        .map(Some)
        .ok_or_else(|| Error::Request(format!("{path} tells no NSpid; Linux 4.1 or newer is needed")))
}

/// One line of `/proc/PID/maps`.
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub private: bool,
    /// Offset in its file.
    pub offset: u64,
    pub inode: u64,
}

/// The mappings of a process, by address.
pub(crate) fn mappings(pid: i32) -> Result<impl Iterator<Item = Result<Mapping>>> {
    let failed = move || Error::host(format!("read /proc/{pid}/maps"));
    let maps = File::open(format!("/proc/{pid}/maps")).map_err(failed())?;
    Ok(BufReader::new(maps).lines().map(move |line| {
        let line = line.map_err(failed())?;
        parse_mapping(&line).ok_or_else(|| Error::Request(format!("odd line in /proc/{pid}/maps: {line}")))
    }))
}

/// The private ones that begin below this address.
pub(crate) fn private_mappings(pid: i32, below: u64) -> Result<impl Iterator<Item = Result<Mapping>>> {
    let below = mappings(pid)?.take_while(move |m| m.as_ref().map_or(true, |m| m.start < below));
    Ok(below.filter(|m| m.as_ref().map_or(true, |m| m.private)))
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let private = words.next()?.as_bytes().get(3) == Some(&b'p');
    let hex = |s| u64::from_str_radix(s, 16).ok();
    let offset = hex(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(Mapping { start: hex(start)?, end: hex(end)?, private, offset, inode })
}

/// Runs of pages of `start..end` that belong to the process alone.
pub(super) fn private_pages(pagemap: &File, start: u64, end: u64) -> std::io::Result<Vec<(u64, u64)>> {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const FILE_OR_SHARED: u64 = 1 << 61;
    pages(pagemap, start, end, |e| e & PRESENT_OR_SWAPPED != 0 && e & FILE_OR_SHARED == 0)
}

/// Runs of pages of `start..end` whose entries in the page map are `wanted`.
pub(crate) fn pages(
    pagemap: &File,
    start: u64,
    end: u64,
    wanted: impl Fn(u64) -> bool,
) -> std::io::Result<Vec<(u64, u64)>> {
    const ENTRIES: u64 = 8192;
    let mut buf = vec![0u8; (ENTRIES * 8) as usize];
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut at = start;
    while at < end {
        let n = ((end - at) / PAGE).min(ENTRIES);
        let bytes = &mut buf[..(n * 8) as usize];
        pagemap.read_exact_at(bytes, at / PAGE * 8)?;
        for entry in bytes.chunks_exact(8) {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or([0; 8]));
            if wanted(entry) {
                match runs.last_mut() {
                    Some((s, len)) if *s + *len == at => *len += PAGE,
                    _ => runs.push((at, PAGE)),
                }
            }
            at += PAGE;
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines() {
        let m = parse_mapping("7f00-8f00 rw-p 00001000 fe:01 1234 /a b").unwrap();
        assert_eq!((m.start, m.end, m.private, m.offset, m.inode), (0x7f00, 0x8f00, true, 0x1000, 1234));
        assert!(!parse_mapping("1000-2000 r--s 0 00:01 7").unwrap().private);
        assert!(parse_mapping("rubbish").is_none());
    }

    #[test]
    fn own_pages_are_found() {
        let data = vec![1u8; 5 * PAGE as usize];
        let at = (data.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE);
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let runs = private_pages(&pagemap, at, at + 4 * PAGE).unwrap();
        assert_eq!(runs, [(at, 4 * PAGE)]);
    }
}

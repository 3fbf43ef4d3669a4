//! A domain's swap region: how large it is, and its file.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use doppel_abi_machine::{fd, swap};
use doppel_spec::{Kind, Resources, UNBOUNDED};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};

use crate::launch::defaults::{bound_of, host_memory};
use crate::{DomainConfig, Error};

const PAGE: u64 = doppel_abi_machine::layout::PAGE;

/// Bytes for pages in the region of a domain with these resources; 0: it has none.
pub(crate) fn size(kind: Kind, resources: &Resources) -> u64 {
    if kind == Kind::Paene {
        return 0;
    }
    let memory = resources.memory_bytes.filter(|&n| n != UNBOUNDED);
    let wanted = match (resources.memory_swap_bytes.filter(|&n| n > 0), resources.memory_target_bytes) {
        // As Docker: what both have together; without a bound on memory there is nothing it could be more than.
        (Some(both), _) => both.saturating_sub(memory.unwrap_or(0)),
        (None, Some(_)) => memory.or_else(|| bound_of(resources.memory_bytes)).unwrap_or_else(host_memory),
        (None, None) => 0,
    };
    let most = resources.disk_bytes.map_or(swap::SIZE_MAX, |disk| disk / 2).min(swap::SIZE_MAX);
    wanted.min(most) / PAGE * PAGE
}

/// What is left of a bound on the disk for the domain's files: the region counts in full.
pub(crate) fn disk_left(kind: Kind, resources: &Resources) -> Option<u64> {
    resources.disk_bytes.map(|disk| disk - size(kind, resources).min(disk))
}

/// Makes the file of the region that a domain has, if it has one: without a name, sparse, of a size that only we can change.
pub(crate) fn make(config: &DomainConfig) -> Result<Option<File>, Error> {
    let size = size(config.spec.kind, &config.spec.resources);
    if size == 0 {
        return Ok(None);
    }
    let Some(dir) = &config.store else {
        return Err(Error::Config("a swap region needs a store, whose directory it lies in".into()));
    };
    let doing = || format!("make a swap region in {}", dir.display());
    let flags = rustix::fs::statvfs(dir.as_path()).map_err(Error::os(doing()))?.f_flag;
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Error::Config(format!(
            "{} is on a file system mounted noexec, from which memory that holds code cannot be mapped again: leave out \
             --memory-swap and --memory-target, or move the store",
            dir.display()
        )));
    }
    nameless(dir, size + swap::LIST).map(Some).map_err(Error::host(doing()))
}

fn nameless(dir: &Path, size: u64) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_len(size)?;
    Ok(file)
}

/// Opens the region of the domain with this first process; none if it has none. Neither the domain nor anybody in it can put
/// another file there.
pub(crate) fn of(init: i32) -> std::io::Result<Option<File>> {
    let path = format!("/proc/{init}/fd/{}", fd::SWAP);
    match File::options().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes that the region of the domain with this first process takes on the disk.
pub(crate) fn held(init: i32) -> std::io::Result<u64> {
    let file = std::fs::metadata(format!("/proc/{init}/fd/{}", fd::SWAP))?;
    Ok(std::os::unix::fs::MetadataExt::blocks(&file) * 512)
}

/// Bytes for pages in this file.
pub(crate) fn size_of(file: &File) -> std::io::Result<u64> {
    Ok(file.metadata()?.len().saturating_sub(swap::LIST))
}

/// Starts writing what is not on the disk yet of a part of the file, and drops from memory what is there, and nobody has mapped.
/// Gives where to go on; none behind the end.
pub(crate) fn flush(file: &File, at: u64, len: u64) -> std::io::Result<Option<u64>> {
    use rustix::fs::{Advice, SeekFrom, fadvise, seek};
    let at = match seek(file.as_fd(), SeekFrom::Data(at)) {
        Ok(at) => at,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    fadvise(file, at, std::num::NonZeroU64::new(len), Advice::DontNeed)?;
    Ok(Some(at + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_what_memory_and_swap_have_together_without_the_memory() {
        let of = |memory, swap, target, disk| {
            let resources = Resources {
                memory_bytes: memory,
                memory_swap_bytes: swap,
                memory_target_bytes: target,
                disk_bytes: disk,
                ..Resources::default()
            };
            (size(Kind::Para, &resources), disk_left(Kind::Para, &resources))
        };
        let m = |n: u64| n << 20;
        assert_eq!(of(Some(m(64)), None, None, None), (0, None));
        assert_eq!(of(Some(m(64)), Some(m(64)), None, None), (0, None));
        assert_eq!(of(Some(m(64)), Some(m(96) + 5), None, None), (m(32), None));
        assert_eq!(of(Some(m(64)), None, Some(m(16)), None), (m(64), None));
        assert_eq!(of(Some(m(64)), None, Some(m(16)), Some(m(40))), (m(20), Some(m(20))));
        assert_eq!(of(Some(m(64)), Some(u64::MAX), None, None), (swap::SIZE_MAX, None));
        assert!(of(None, None, Some(m(16)), None).0 > 0);
        let paene = Resources { memory_target_bytes: Some(m(16)), ..Resources::default() };
        assert_eq!(size(Kind::Paene, &paene), 0);
    }

    #[test]
    fn a_file_without_a_name_is_flushed_to_its_end() {
        let file = nameless(Path::new("."), 8 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 5 << 20).unwrap();
        let next = flush(&file, 0, 1 << 20).unwrap().unwrap();
        assert!((5 << 20..=6 << 20).contains(&next), "{next}");
        assert_eq!(flush(&file, next, 1 << 20).unwrap(), None);
        assert_eq!(size_of(&file).unwrap(), (8 << 20) - swap::LIST);
    }
}

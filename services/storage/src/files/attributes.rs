//! Operations on attributes, extended ones among them.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use doppel_abi_service::storage::{Amount, Changes, NAME, XATTR, buffer, flags, set, text};
use doppel_sys::shared::offset;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Done, MODE, Result, SECOND_NS, Work, bounds, chown, shared};

/// Extended attributes that a domain may read and change, by the beginnings of their names.
const XATTRS: &[&[u8]] = &[b"user.", b"system.posix_acl_", b"security.capability"];
/// `setxattr(2)`: CREATE and REPLACE.
const HOW: u32 = 3;
/// What has been found where there is no such attribute, and where there is one.
const ABSENT: u64 = 0;
const PRESENT: u64 = 1;
/// Without a bound.
const ALL: Amount = Amount { bytes: u64::MAX, inodes: u64::MAX };

impl Work<'_> {
    pub(super) fn set_attributes(&mut self) -> Result<Done> {
        let r = self.request;
        let mut bytes = [0; Changes::BYTES];
        self.memory().read(offset(text(r.slot)), &mut bytes);
        let changes = Changes::decode(&bytes);
        let has = |bit| r.flags & bit != 0;
        self.nodes().writable(r.node)?;
        let data = has(set::SIZE).then(|| self.data(r.node, true)).transpose()?;
        let file = self.nodes().name(r.node)?;
        if let Some(data) = data {
            shared::check(r.node, &data, changes.size, u64::MAX)?;
            self.charged(r.node, &data, bounds::NOTHING, |_| {
                rustix::fs::ftruncate(&data, changes.size).map(|()| ((), 0))
            })?;
        }
        if has(set::UID) || has(set::GID) {
            let uid = has(set::UID).then(|| Uid::from_raw(changes.uid));
            let gid = has(set::GID).then(|| Gid::from_raw(changes.gid));
            chown(&file, uid, gid)?;
        }
        if has(set::MODE) {
            self.change_mode(&file, changes.mode & MODE)?;
        }
        if has(set::ATIME) || has(set::MTIME) {
            let time = |wanted, nanoseconds| if wanted { timespec(nanoseconds) } else { omitted() };
            let times = Timestamps {
                last_access: time(has(set::ATIME), changes.atime),
                last_modification: time(has(set::MTIME), changes.mtime),
            };
            rustix::fs::utimensat(&file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        self.show(&file, r.node)
    }

    pub(super) fn change_mode(&self, file: &OwnedFd, mode: u32) -> Result<()> {
        self.host.by_name(file.as_fd(), |descriptors, name| {
            rustix::fs::chmodat(descriptors, name, Mode::from_raw_mode(mode), AtFlags::empty())
        })
    }

    pub(super) fn stat_fs(&mut self) -> Result<Done> {
        let file = self.nodes().name(self.request.node)?;
        let s = rustix::fs::fstatfs(&file)?;
        let block = s.f_bsize.cast_unsigned().max(1);
        // A bound is what the file system is for the domain.
        let (most, left) = match self.nodes().quota(self.request.node)? {
            None => (ALL, ALL),
            Some(quota) => {
                let (most, used) = (quota.most(), quota.used());
                let inodes = most.inodes.saturating_sub(used.inodes);
                (most, Amount { bytes: most.bytes.saturating_sub(used.bytes), inodes })
            }
        };
        let words = [
            s.f_type.cast_unsigned(),
            block,
            s.f_blocks.min(most.bytes / block),
            s.f_bfree.min(left.bytes / block),
            s.f_bavail.min(left.bytes / block),
            s.f_files.min(most.inodes),
            s.f_ffree.min(left.inodes),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes);
        Ok(Done::default())
    }

    /// The attribute's name, and a file whose attributes can be reached: a regular one or a directory.
    fn attributed(&self) -> Result<(CString, Arc<OwnedFd>)> {
        let name = CString::new(self.copy(0, self.request.a, NAME)?).map_err(|_| Errno::INVAL)?;
        if !XATTRS.iter().any(|x| name.to_bytes().starts_with(x)) {
            return Err(Errno::OPNOTSUPP);
        }
        Ok((name, self.reachable()?))
    }

    fn reachable(&self) -> Result<Arc<OwnedFd>> {
        let data = self.data(self.request.node, false);
        data.map_err(|e| if e == Errno::INVAL { Errno::OPNOTSUPP } else { e })
    }

    fn buffer(&self) -> usize {
        offset(buffer(self.request.slot))
    }

    pub(super) fn list_xattrs(&mut self) -> Result<Done> {
        let file = self.reachable()?;
        let mut names = vec![0; XATTR];
        let len = rustix::fs::flistxattr(&file, names.as_mut_slice())?;
        let shown: Vec<u8> = names[..len]
            .split_inclusive(|b| *b == 0)
            .filter(|name| XATTRS.iter().any(|x| name.starts_with(x)))
            .flatten()
            .copied()
            .collect();
        self.memory().write(self.buffer(), &shown);
        Ok(Done { value: shown.len() as u64, node: 0 })
    }

    pub(super) fn get_xattr(&mut self) -> Result<Done> {
        let (name, file) = self.attributed()?;
        let mut value = vec![0; XATTR];
        let len = rustix::fs::fgetxattr(&file, &name, value.as_mut_slice())?;
        self.memory().write(self.buffer(), &value[..len]);
        Ok(Done { value: len as u64, node: 0 })
    }

    /// Whether the attribute was there before this changed anything.
    fn had(&mut self, file: &OwnedFd, name: &CString) -> Result<bool> {
        let found = self.found_first(|_| match rustix::fs::fgetxattr(file, name, &mut [0u8; 0][..]) {
            Ok(_) => Ok(PRESENT),
            Err(Errno::NODATA) => Ok(ABSENT),
            Err(e) => Err(e),
        })?;
        Ok(found == PRESENT)
    }

    pub(super) fn set_xattr(&mut self) -> Result<Done> {
        let r = self.request;
        self.nodes().writable(r.node)?;
        let (name, file) = self.attributed()?;
        let len = usize::try_from(r.b).ok().filter(|n| *n <= XATTR).ok_or(Errno::TOOBIG)?;
        let mut value = vec![0; len];
        self.memory().read(self.buffer(), &mut value);
        let room = Amount { bytes: bounds::room_for(0, (name.count_bytes() + len) as u64), inodes: 0 };
        self.charged(r.node, &file, room, |work| work.put_xattr(&file, &name, &value).map(|done| (done, 0)))
    }

    fn put_xattr(&mut self, file: &OwnedFd, name: &CString, value: &[u8]) -> Result<Done> {
        let r = self.request;
        let how = XattrFlags::from_bits_retain(r.flags & HOW);
        if how == XattrFlags::CREATE {
            if self.had(file, name)? {
                return Err(Errno::EXIST);
            }
            return match rustix::fs::fsetxattr(file, name, value, how) {
                Err(Errno::EXIST) if self.before.is_some() => Ok(Done::default()),
                done => done.map(|()| Done::default()),
            };
        }
        if r.flags & !(flags::AGAIN | HOW) != 0 {
            return Err(Errno::INVAL);
        }
        rustix::fs::fsetxattr(file, name, value, how).map(|()| Done::default())
    }

    pub(super) fn remove_xattr(&mut self) -> Result<Done> {
        self.nodes().writable(self.request.node)?;
        let (name, file) = self.attributed()?;
        if !self.had(&file, &name)? {
            return Err(Errno::NODATA);
        }
        let again = self.before.is_some();
        self.charged(self.request.node, &file, bounds::NOTHING, |_| {
            match rustix::fs::fremovexattr(&file, &name) {
                Err(Errno::NODATA) if again => Ok((Done::default(), 0)),
                done => done.map(|()| (Done::default(), 0)),
            }
        })
    }
}

/// A time of modification alone, in nanoseconds since 1970.
pub(super) fn modified(nanoseconds: i64) -> Timestamps {
    Timestamps { last_access: omitted(), last_modification: timespec(nanoseconds) }
}

fn omitted() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }
}

fn timespec(nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: nanoseconds.div_euclid(SECOND_NS), tv_nsec: nanoseconds.rem_euclid(SECOND_NS) }
}

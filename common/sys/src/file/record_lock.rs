//! Record locks of an open file description (`F_OFD_SETLK`, fcntl(2)): they conflict with those of other descriptions and with those of
//! processes, and go when the last descriptor of theirs is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes from the first to the last one; `i64::MAX` as the last means to the end, however far that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

impl Range {
    /// All of a file.
    pub const ALL: Self = Self { start: 0, end: i64::MAX as u64 };

    /// As fcntl(2) has it.
    fn flock(self, kind: libc::c_int) -> io::Result<libc::flock> {
        let (start, end) = (i64::try_from(self.start), i64::try_from(self.end));
        let (Ok(start), Ok(end)) = (start, end) else { return Err(io::ErrorKind::InvalidInput.into()) };
        if start > end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // A length that ends at the last byte there can be is written as 0.
        let len = if end == i64::MAX { 0 } else { end - start + 1 };
        Ok(libc::flock {
            l_type: i16::try_from(kind).map_err(|_| io::ErrorKind::InvalidInput)?,
            l_whence: 0,
            l_start: start,
            l_len: len,
            l_pid: 0,
        })
    }
}

fn kind(exclusive: bool) -> libc::c_int {
    if exclusive { libc::F_WRLCK } else { libc::F_RDLCK }
}

fn call(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: both commands read and write this structure alone, which is theirs during the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Locks a range of a file, in place of what this description has locked there.
///
/// # Errors
/// `EAGAIN`: another one has a lock that conflicts. `EBADF`: the descriptor is not open for writing (exclusive) or reading. What else the
/// host says.
pub fn lock(file: BorrowedFd<'_>, range: Range, exclusive: bool) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut range.flock(kind(exclusive))?)
}

/// Gives up what this description has locked in a range.
///
/// # Errors
/// What the host says.
pub fn unlock(file: BorrowedFd<'_>, range: Range) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut range.flock(libc::F_UNLCK)?)
}

/// The first lock of others that conflicts with one of this range, and whether it is exclusive.
///
/// # Errors
/// What the host says.
pub fn conflict(file: BorrowedFd<'_>, range: Range, exclusive: bool) -> io::Result<Option<(Range, bool)>> {
    let mut lock = range.flock(kind(exclusive))?;
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = lock.l_start.max(0);
    let end = if lock.l_len == 0 { i64::MAX } else { start.saturating_add(lock.l_len - 1) };
    let range = Range { start: start.cast_unsigned(), end: end.cast_unsigned() };
    Ok(Some((range, libc::c_int::from(lock.l_type) == libc::F_WRLCK)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn descriptions_keep_each_other_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (one, other) = (open(), open());
        lock(one.as_fd(), range(10, 19), true).unwrap();
        assert_eq!(lock(other.as_fd(), range(19, 30), false).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(conflict(other.as_fd(), Range::ALL, false).unwrap(), Some((range(10, 19), true)));
        assert_eq!(conflict(one.as_fd(), Range::ALL, true).unwrap(), None);
        lock(other.as_fd(), range(20, i64::MAX as u64), true).unwrap();
        assert_eq!(
            conflict(one.as_fd(), range(25, 26), false).unwrap(),
            Some((range(20, i64::MAX as u64), true))
        );
        unlock(one.as_fd(), range(12, 13)).unwrap();
        lock(other.as_fd(), range(12, 13), true).unwrap();
        let copy = one.try_clone().unwrap();
        drop(one);
        assert!(lock(other.as_fd(), range(10, 10), true).is_err());
        drop(copy);
        lock(other.as_fd(), range(10, 10), true).unwrap();
    }

    #[test]
    fn what_is_no_range_is_refused() {
        let file = tempfile::tempfile().unwrap();
        for bad in [range(2, 1), range(0, u64::MAX), range(u64::MAX, u64::MAX)] {
            assert_eq!(lock(file.as_fd(), bad, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

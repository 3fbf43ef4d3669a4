//! Handles of files: names that stay when files are renamed, and that a later process can open (`name_to_handle_at(2)`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Longest handle in bytes (`MAX_HANDLE_SZ`).
pub const LONGEST: usize = 128;

/// `struct file_handle`.
#[repr(C)]
struct Raw {
    len: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

/// A file's handle, of meaning to its own file system alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Of the file system's.
    pub kind: i32,
    /// How many of the bytes are its.
    pub len: u32,
    /// Its bytes.
    pub bytes: [u8; LONGEST],
}

impl Handle {
    /// That of an open file, O_PATH or not.
    ///
    /// # Errors
    /// What the host says: EOPNOTSUPP of file systems that have no handles.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = Raw { len: u32::try_from(LONGEST).unwrap_or(0), kind: 0, bytes: [0; LONGEST] };
        let mut mount = 0i32;
        // SAFETY: an empty path, a structure with room for as many bytes as it says, and an integer that the kernel fills in.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut raw,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { kind: raw.kind, len: raw.len, bytes: raw.bytes })
    }

    /// Opens the file with these `open(2)` flags. `mount`: a file of its file system that is open, and not with O_PATH.
    ///
    /// # Errors
    /// What the host says: ESTALE if there is no such file any more, EPERM without CAP_DAC_READ_SEARCH.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
        let mut raw = Raw {
            len: self.len.min(u32::try_from(LONGEST).unwrap_or(0)),
            kind: self.kind,
            bytes: self.bytes,
        };
        // SAFETY: the kernel reads the structure.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw mut raw,
                flags | libc::O_CLOEXEC,
            )
        };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_found_by_its_handle_after_a_rename() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let handle = Handle::of(file.as_fd()).unwrap();
        let other = dir.path().join("b");
        std::fs::rename(&path, &other).unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        match handle.open(root.as_fd(), libc::O_PATH) {
            Ok(found) => {
                let found = std::fs::File::from(found);
                assert_eq!(found.metadata().unwrap().ino(), std::fs::metadata(&other).unwrap().ino());
                std::fs::remove_file(&other).unwrap();
                drop((file, found));
                assert_eq!(
                    handle.open(root.as_fd(), libc::O_PATH).unwrap_err().raw_os_error(),
                    Some(libc::ESTALE)
                );
            }
            // Only root may.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}

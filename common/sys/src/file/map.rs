//! A whole file mapped for reading.

use std::fs::File;
use std::io;
use std::ops::Deref;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The bytes of a file. For files that nobody changes in place, such as those of the image store, which are
/// read-only from the moment they have a name.
#[derive(Debug)]
pub struct FileMap {
    start: *mut std::ffi::c_void,
    len: usize,
}

// SAFETY: a read-only mapping that belongs to the process, not to a thread.
unsafe impl Send for FileMap {}
// SAFETY: as above; nobody writes to it.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps all of `file`.
    pub fn new(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if len == 0 {
            return Ok(Self { start: std::ptr::NonNull::dangling().as_ptr(), len });
        }
        // SAFETY: a new private read-only mapping at an address the kernel chooses touches no other memory.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        Ok(Self { start, len })
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start+len` is mapped readable until drop (or dangling and empty), and the file is
        // not changed in place, as the type's contract says.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this is the mapping made by `new`, and nothing can borrow from it any more.
            let unmapped = unsafe { munmap(self.start, self.len) };
            debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
        }
    }
}

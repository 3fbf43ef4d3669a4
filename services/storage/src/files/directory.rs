//! Operations on directories and links as a whole.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use doppel_abi_service::storage::{BUFFER, DirectoryEntry, TARGET, buffer};
use doppel_sys::shared::offset;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;

use super::{Done, Result, Work};

/// Bytes of entries that are read from the host at once.
const ENTRIES: usize = 32 << 10;

impl Work<'_> {
    pub(super) fn read_link(&mut self) -> Result<Done> {
        let mut nodes = self.nodes();
        if nodes.kind_of(self.request.node)? != FileType::Symlink {
            return Err(Errno::INVAL);
        }
        let file = nodes.name(self.request.node)?;
        drop(nodes);
        let target = rustix::fs::readlinkat(&file, c"", Vec::new())?;
        let bytes = target.as_bytes();
        if bytes.len() > TARGET {
            return Err(Errno::NAMETOOLONG);
        }
        self.put(bytes);
        Ok(Done { value: bytes.len() as u64, node: 0 })
    }

    pub(super) fn read_directory(&mut self) -> Result<Done> {
        let r = self.request;
        if self.nodes().kind_of(r.node)? != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        let dir = self.data(r.node, false)?;
        // Its position is one for all who read it.
        let _alone = self.host.lock(std::ptr::from_ref(&*dir).addr() as u64 / 64);
        let mut used = self.entries(&dir)?;
        if used == 0 && r.a == 0 {
            // Nothing is empty. But ext4 says so, once, if it was asked for what is behind the end first, as by a listing that
            // goes on after a predecessor.
            used = self.entries(&dir)?;
        }
        Ok(Done { value: used as u64, node: 0 })
    }

    /// Puts entries into the buffer; gives their bytes.
    fn entries(&self, dir: &OwnedFd) -> Result<usize> {
        let r = self.request;
        rustix::fs::seek(dir, SeekFrom::Start(r.a))?;
        let mut space = vec![MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(dir, &mut space);
        let at = offset(buffer(r.slot));
        let mut used = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let Ok(len) = u8::try_from(name.len()) else { continue };
            // What does not fit is read the next time.
            if used + DirectoryEntry::BYTES + name.len() > BUFFER {
                break;
            }
            let head = DirectoryEntry {
                ino: entry.ino(),
                next: entry.next_entry_cookie(),
                kind: kind_of(entry.file_type()),
                len,
            };
            self.memory().write(at + used, &head.encode());
            self.memory().write(at + used + DirectoryEntry::BYTES, name);
            used += DirectoryEntry::BYTES + name.len();
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(used)
    }
}

/// `d_type`.
fn kind_of(kind: FileType) -> u8 {
    match kind {
        FileType::Unknown => 0,
        kind => u8::try_from(kind.as_raw_mode() >> 12).unwrap_or(0),
    }
}

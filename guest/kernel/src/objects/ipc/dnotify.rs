//! Directory notification (`F_NOTIFY` of `fcntl(2)`): a signal for what happens to a directory and the files in it.
//!
//! Key type: [`Note`], what one process has asked of an open directory. Notes hang on the directory's inode, as the watches
//! of `inotify` do, which tells of the events; `vfs::notify` counts them both. The signal is that of the file's owner
//! (`vfs::sigio`). Lock order: an inode's list of notes → nothing.
#![allow(missing_docs)]

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use doppel_machine::sync::SpinLock;

use crate::objects::vfs::attach::notify::{self, InotifyMask};
use crate::objects::vfs::{File, FileType, Inode};
use crate::{Errno, Result};

bitflags::bitflags! {
    /// `DN_` events that are asked for.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct DnotifyMask: u32 {
        const ACCESS = 1;
        const MODIFY = 2;
        const CREATE = 4;
        const DELETE = 8;
        const RENAME = 0x10;
        const ATTRIB = 0x20;
        const MULTISHOT = 0x8000_0000;
    }
}

#[derive(Clone)]
struct Note {
    file: Weak<File>,
    id: u64,
    pid: i32,
    fd: i32,
    mask: DnotifyMask,
}

/// The notes of a directory, as an attachment of its inode.
#[derive(Default)]
struct Notes(SpinLock<Vec<Note>>);

fn of(inode: &Arc<dyn Inode>) -> Option<Arc<Notes>> {
    inode.attachments().and_then(|a| a.get::<Notes>())
}

/// F_NOTIFY through descriptor `fd`: adds to what the process has asked for, or with no event takes all back.
pub fn set(file: &Arc<File>, fd: i32, mask: DnotifyMask) -> Result<()> {
    if (mask - DnotifyMask::MULTISHOT).is_empty() {
        closed(file);
        return Ok(());
    }
    let inode = file.inode.as_ref().filter(|i| i.kind() == FileType::Directory).ok_or(Errno::ENOTDIR)?;
    let pid = crate::core::subject::pid();
    file.sigio.own(&**file);
    // What never changes has no place for notes, and nothing to tell.
    let Some(notes) = inode.attachments().map(|a| a.get_or_insert(Notes::default)) else { return Ok(()) };
    let mut list = notes.0.lock();
    match list.iter_mut().find(|n| n.id == file.id && n.pid == pid) {
        Some(n) => (n.fd, n.mask) = (fd, n.mask | mask),
        None => {
            list.push(Note { file: Arc::downgrade(file), id: file.id, pid, fd, mask });
            notify::count(1);
        }
    }
    Ok(())
}

/// Something happened to a directory or to a file in it: `mask` is inotify's.
#[cold]
pub fn tell(dir: &Arc<dyn Inode>, mask: InotifyMask) {
    const BITS: [(InotifyMask, DnotifyMask); 8] = [
        (InotifyMask::ACCESS, DnotifyMask::ACCESS),
        (InotifyMask::MODIFY, DnotifyMask::MODIFY),
        (InotifyMask::ATTRIB, DnotifyMask::ATTRIB),
        (InotifyMask::CREATE, DnotifyMask::CREATE),
        (InotifyMask::MOVED_TO, DnotifyMask::CREATE),
        (InotifyMask::DELETE, DnotifyMask::DELETE),
        (InotifyMask::MOVED_FROM, DnotifyMask::DELETE),
        (InotifyMask::MOVED_FROM, DnotifyMask::RENAME),
    ];
    let Some(notes) = of(dir) else { return };
    let bits = BITS.iter().filter(|b| mask.contains(b.0)).fold(DnotifyMask::empty(), |all, b| all | b.1);
    let mut told = Vec::new();
    {
        let mut list = notes.0.lock();
        let before = list.len();
        list.retain(|n| {
            let wanted = n.mask.intersects(bits);
            if wanted {
                told.push(n.clone());
            }
            !wanted || n.mask.contains(DnotifyMask::MULTISHOT)
        });
        notify::uncount(before - list.len());
    }
    for n in told {
        if let Some(file) = n.file.upgrade() {
            file.sigio.tell_message(n.fd);
        }
    }
}

/// The current process has closed a descriptor of the file, which ends what it has asked for by any.
#[cold]
pub fn closed(file: &File) {
    let Some(notes) = file.inode.as_ref().and_then(of) else { return };
    let pid = crate::core::subject::pid();
    let mut list = notes.0.lock();
    let before = list.len();
    list.retain(|n| n.id != file.id || n.pid != pid);
    notify::uncount(before - list.len());
}

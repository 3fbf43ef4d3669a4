//! Directory notification (`F_NOTIFY` of `fcntl(2)`): a signal for what happens to a directory and the files in it.
//!
//! Key type: [`Note`], what one process has asked of an open directory. Notes hang on the directory's inode, as the watches
//! of `inotify` do, which tells of the events; `vfs::notify` counts them both. The signal is that of the file's owner
//! (`vfs::sigio`). Lock order: an inode's list of notes → nothing.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use doppel_machine::sync::SpinLock;

use crate::objects::vfs::attach::notify::{self, event};
use crate::objects::vfs::{File, FileType, Inode};
use crate::{Errno, Result};

/// What is asked for.
mod dn {
    pub const ACCESS: u32 = 1;
    pub const MODIFY: u32 = 2;
    pub const CREATE: u32 = 4;
    pub const DELETE: u32 = 8;
    pub const RENAME: u32 = 0x10;
    pub const ATTRIB: u32 = 0x20;
    pub const MULTISHOT: u32 = 0x8000_0000;
}

#[derive(Clone)]
struct Note {
    file: Weak<File>,
    id: u64,
    pid: i32,
    fd: i32,
    mask: u32,
}

/// The notes of a directory, as an attachment of its inode.
#[derive(Default)]
struct Notes(SpinLock<Vec<Note>>);

fn of(inode: &Arc<dyn Inode>) -> Option<Arc<Notes>> {
    inode.attachments().and_then(|a| a.get::<Notes>())
}

/// F_NOTIFY through descriptor `fd`: adds to what the process has asked for, or with no event takes all back.
pub fn set(file: &Arc<File>, fd: i32, mask: u32) -> Result<()> {
    if mask & !dn::MULTISHOT == 0 {
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
pub fn tell(dir: &Arc<dyn Inode>, mask: u32) {
    const BITS: [(u32, u32); 8] = [
        (event::IN_ACCESS, dn::ACCESS),
        (event::IN_MODIFY, dn::MODIFY),
        (event::IN_ATTRIB, dn::ATTRIB),
        (event::IN_CREATE, dn::CREATE),
        (event::IN_MOVED_TO, dn::CREATE),
        (event::IN_DELETE, dn::DELETE),
        (event::IN_MOVED_FROM, dn::DELETE),
        (event::IN_MOVED_FROM, dn::RENAME),
    ];
    let Some(notes) = of(dir) else { return };
    let bits = BITS.iter().filter(|b| mask & b.0 != 0).fold(0, |all, b| all | b.1);
    let mut told = Vec::new();
    {
        let mut list = notes.0.lock();
        let before = list.len();
        list.retain(|n| {
            let wanted = n.mask & bits != 0;
            if wanted {
                told.push(n.clone());
            }
            !wanted || n.mask & dn::MULTISHOT != 0
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

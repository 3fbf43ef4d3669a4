//! Handles of files: names of theirs that are no way to them (`name_to_handle_at(2)`, `fanotify(7)`).
//!
//! Key type: [`Handle`]. Files in memory have one in tmpfs' layout, which their file system finds them by; all others have one that
//! only compares.

use alloc::sync::{Arc, Weak};

use super::Attachments;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::inode::Inode;

/// `handle_type`: tmpfs' (generation, number), and a number with a generation that only compares.
pub const NODE: i32 = 1;
const COMPARED: i32 = 0x81;

/// A handle: its layout, and up to three words of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Its layout (`handle_type`).
    pub kind: i32,
    len: usize,
    words: [u32; 3],
}

/// Where the directory cache had a file when its handle was given.
struct Alias(Weak<Dentry>);

impl Handle {
    /// One of `len` of these words.
    pub fn new(kind: i32, len: usize, words: [u32; 3]) -> Self {
        Self { kind, len, words }
    }

    /// One that serves to compare files only.
    pub fn compared(ino: u64) -> Self {
        Self { kind: COMPARED, len: 3, words: [ino as u32, (ino >> 32) as u32, 0] }
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.len.min(3)]
    }

    /// The handle of a file in memory, which is at this place; `None` for all others.
    pub fn of(inode: &dyn Inode, at: Option<&Arc<Dentry>>) -> Option<Self> {
        let words = inode.handle()?;
        if let (Some(at), Some(slot)) = (at, inode.attachments()) {
            at.give_handle();
            slot.set(Arc::new(Alias(Arc::downgrade(at))));
        }
        Some(Self::new(NODE, 3, words))
    }
}

/// Where the directory cache had a file when its handle was given, if it still has it.
pub fn alias(inode: &dyn Inode) -> Option<Arc<Dentry>> {
    inode.attachments().and_then(Attachments::get::<Alias>)?.0.upgrade()
}

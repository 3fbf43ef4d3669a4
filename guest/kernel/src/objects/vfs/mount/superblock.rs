//! File systems as such, apart from where they are mounted.
//!
//! Key type: [`Superblock`].

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::namespace::{UserNamespace, user};
use crate::objects::vfs::dentry::{self, Dentry};
use crate::objects::vfs::flags::MountFlags;

/// A file system that mounts show, or parts of which they show.
pub struct Superblock {
    /// Its type.
    pub fstype: &'static str,
    /// Its topmost directory.
    pub root: Arc<Dentry>,
    flags: AtomicU32,
    options: SpinLock<String>,
    /// Who may change it: the user namespace in which it was made.
    pub owner: Arc<UserNamespace>,
}

impl Superblock {
    /// A file system with this root; `options` are its own, as mount tables show them, each with a comma before it.
    pub fn new(
        fstype: &'static str,
        root: Arc<Dentry>,
        flags: MountFlags,
        options: &str,
        owner: &Arc<UserNamespace>,
    ) -> Arc<Self> {
        let flags = AtomicU32::new((flags & MountFlags::SUPERBLOCK).bits());
        Arc::new(Self { fstype, root, flags, options: SpinLock::new(options.into()), owner: owner.clone() })
    }

    /// One of the domain's own, without options.
    pub fn of_domain(fstype: &'static str, root: Arc<Dentry>) -> Arc<Self> {
        Self::new(fstype, root, MountFlags::empty(), "", user::first())
    }

    /// What holds wherever it is mounted.
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes that.
    pub fn set_flags(&self, flags: MountFlags) {
        self.flags.store((flags & MountFlags::SUPERBLOCK).bits(), Ordering::Relaxed);
    }

    /// Changes its own options.
    pub fn set_options(&self, options: String) {
        let old = core::mem::replace(&mut *self.options.lock(), options);
        drop(old);
    }

    /// Its device number.
    pub fn dev(&self) -> u64 {
        self.root.inode().place().0
    }

    /// Its own options alone, each with a comma before it.
    pub fn own_options(&self) -> String {
        self.options.lock().clone()
    }

    /// Its options as mountinfo shows them.
    pub fn shown(&self) -> String {
        let flags = self.flags();
        let mut out = String::from(if flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" });
        for (bit, name) in [
            (MountFlags::SYNCHRONOUS, ",sync"),
            (MountFlags::DIRSYNC, ",dirsync"),
            (MountFlags::MANDLOCK, ",mand"),
            (MountFlags::LAZYTIME, ",lazytime"),
        ] {
            if flags.contains(bit) {
                out.push_str(name);
            }
        }
        out.push_str(&self.options.lock());
        out
    }
}

impl Drop for Superblock {
    /// A cached name and its directory hold each other: nobody else would find them any more.
    fn drop(&mut self) {
        dentry::drop_cached(core::slice::from_ref(&self.root));
    }
}

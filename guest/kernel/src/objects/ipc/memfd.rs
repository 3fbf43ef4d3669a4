//! Anonymous files in memory (`memfd_create(2)`) and seals.
//!
//! A memfd is a nameless file of a tmpfs that is mounted nowhere, so everything that works on files works on it.

use alloc::string::String;
use alloc::sync::Arc;

use crate::core::part::{Lazy, Part};
use crate::objects::pages::Seals;
use crate::objects::rootfs::{self, Node, TmpfsOptions};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, Inode};
use crate::{Errno, Result};

/// The file system of all memfds.
pub(crate) struct MemFs(Arc<Node>);

/// The domain's.
pub(crate) static MEM_FS: Part<Lazy<MemFs>> = Part::new();

impl Default for MemFs {
    fn default() -> Self {
        Self(rootfs::tmpfs(TmpfsOptions { mode: 0o700, inodes: 0, ..TmpfsOptions::default() }))
    }
}

/// A new open file in memory, called `name` in /proc/PID/fd.
pub fn new_file(name: String, mode: u32, uid: u32, gid: u32) -> Result<Arc<File>> {
    let inode = MEM_FS.get().get().0.tmpfile(mode, uid, gid)?;
    let ops = inode.open(OpenFlags::RDWR)?;
    Ok(File::nameless(ops, inode, name, OpenFlags::RDWR | OpenFlags::LARGEFILE))
}

/// Whether a file's seals forbid writing through a new shared mapping.
pub fn write_sealed(file: &File) -> bool {
    let object = file.downcast::<Node>().and_then(Node::object_if_written);
    object.is_some_and(|o| o.seals().intersects(Seals::NO_WRITE))
}

/// F_GET_SEALS; EINVAL if `file` is not in memory.
pub fn seals(file: &File) -> Result<u64> {
    Ok(u64::from(file.downcast::<Node>().ok_or(Errno::EINVAL)?.object()?.seals().bits()))
}

/// F_ADD_SEALS; EINVAL if `file` is not in memory.
pub fn add_seals(file: &File, seals: u64) -> Result<u64> {
    let object = file.downcast::<Node>().ok_or(Errno::EINVAL)?.object()?;
    if !file.writable() {
        return Err(Errno::EPERM);
    }
    let seals = u32::try_from(seals).ok().and_then(Seals::from_bits).ok_or(Errno::EINVAL)?;
    let executable = file.inode.as_ref().is_some_and(|i| i.stat().mode & 0o111 != 0);
    // What may be executed and must stay so must not change either.
    object.add_seals(seals | Seals::CONTENT.when(seals.contains(Seals::EXEC) && executable))?;
    Ok(0)
}

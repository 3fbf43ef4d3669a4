//! File systems that the host wants mounted before the first program runs, and the root's being read-only.

use alloc::string::String;
use alloc::vec::Vec;

use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::names;
use crate::objects::rootfs::tmpfs;
use crate::objects::storage;
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::objects::vfs::kinds::tmpfs_options;
use crate::objects::vfs::mount::vfs;
use crate::{Errno, Result};

/// Mounts a file system: where (directories that are missing are made), its type, its options.
pub(super) fn mount(caller: &Caller, [at, kind, options]: &[Vec<u8>; 3]) -> Result<()> {
    let (flags, data) = split(options)?;
    match kind.as_slice() {
        b"tmpfs" => {
            let root = Dentry::root(tmpfs(tmpfs_options(data.as_bytes())?));
            let at = names::make_dirs(caller, at, 0o755)?;
            vfs().mount(&at, root, "tmpfs", b"tmpfs", flags)
        }
        b"volume" => volume(caller, at, &data, flags),
        _ => Err(Errno::ENODEV),
    }
}

/// Mounts a volume, which may be a single file.
fn volume(caller: &Caller, at: &[u8], data: &str, flags: MountFlags) -> Result<()> {
    let option = |key: &str| data.split(',').find_map(|o| o.strip_prefix(key)?.strip_prefix('='));
    let number = option("index").and_then(|n| n.parse().ok()).ok_or(Errno::EINVAL)?;
    let root = storage::mount(number)?;
    let at = match root.kind() {
        FileType::Directory => names::make_dirs(caller, at, 0o755)?,
        _ => names::make_file(caller, at, 0o644)?,
    };
    let source = option("source").unwrap_or("volume");
    vfs().mount(&at, Dentry::root(root), "volume", source.as_bytes(), flags)
}

/// No program can change the root file system from now on.
pub(super) fn root_read_only() {
    vfs().root().mount().lock_read_only();
}

/// Options as of mount(8): flags, and what is left for the file system.
fn split(options: &[u8]) -> Result<(MountFlags, String)> {
    let text = core::str::from_utf8(options).map_err(|_| Errno::EINVAL)?;
    let (mut flags, mut data) = (MountFlags::RELATIME, Vec::new());
    for option in text.split(',') {
        let (flag, on) = match option {
            "ro" => (MountFlags::RDONLY, true),
            "rw" => (MountFlags::RDONLY, false),
            "nosuid" => (MountFlags::NOSUID, true),
            "suid" => (MountFlags::NOSUID, false),
            "nodev" => (MountFlags::NODEV, true),
            "dev" => (MountFlags::NODEV, false),
            "noexec" => (MountFlags::NOEXEC, true),
            "exec" => (MountFlags::NOEXEC, false),
            "noatime" => (MountFlags::NOATIME, true),
            "relatime" => (MountFlags::RELATIME, true),
            "strictatime" => (MountFlags::RELATIME | MountFlags::NOATIME, false),
            other => {
                data.push(other);
                continue;
            }
        };
        flags.set(flag, on);
    }
    flags.set(
        MountFlags::RELATIME,
        flags.contains(MountFlags::RELATIME) && !flags.contains(MountFlags::NOATIME),
    );
    Ok((flags, data.join(",")))
}

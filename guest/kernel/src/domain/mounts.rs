//! File systems that the host wants mounted before the first program runs, and the root's being read-only.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use crate::domain::devfs::DISK;
use crate::objects::lookup::caller::Caller;
use crate::objects::lookup::names;
use crate::objects::rootfs::{Node, makedev, open_layer, share_layer, tmpfs};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::objects::vfs::kinds::tmpfs_options;
use crate::objects::vfs::mount::vfs;
use crate::objects::{block, storage};
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
        b"layer" => layer(&data),
        b"disk" => disk(caller, at, &data, flags),
        _ => Err(Errno::ENODEV),
    }
}

/// Whether it is no mount, but says where the root file system's changes are kept.
pub(super) fn is_layer([_, kind, _]: &[Vec<u8>; 3]) -> bool {
    kind == b"layer"
}

/// Mounts a volume, which may be a single file.
fn volume(caller: &Caller, at: &[u8], data: &str, flags: MountFlags) -> Result<()> {
    let root = storage::mount(number(data)?)?;
    let at = match root.kind() {
        FileType::Directory => names::make_dirs(caller, at, 0o755)?,
        _ => names::make_file(caller, at, 0o644)?,
    };
    let source = option(data, "source").unwrap_or("volume");
    vfs().mount(&at, Dentry::root(root), "volume", source.as_bytes(), flags)
}

/// Opens the layer in which the root file system's changes are kept.
fn layer(data: &str) -> Result<()> {
    let root: Arc<dyn Any + Send + Sync> = vfs().root().inode().clone();
    let root = root.downcast::<Node>().map_err(|_| Errno::EINVAL)?;
    let limit = option(data, "size").map_or(Ok(0), str::parse).map_err(|_| Errno::EINVAL)?;
    open_layer(&root, number(data)?, limit)?;
    if data.split(',').any(|option| option == "shared") {
        share_layer();
    }
    Ok(())
}

/// Makes a disk the device at this place in /dev.
fn disk(caller: &Caller, at: &[u8], data: &str, flags: MountFlags) -> Result<()> {
    let name = at.strip_prefix(b"/dev/").and_then(|name| core::str::from_utf8(name).ok());
    let name = name.ok_or(Errno::EINVAL)?;
    let (major, minor) = block::attach(name, number(data)?, flags.contains(MountFlags::RDONLY))?;
    let dev = names::make_dirs(caller, b"/dev", 0o755)?;
    names::create_device(
        &dev,
        name.as_bytes(),
        (FileType::BlockDevice as u32 | 0o660, DISK),
        makedev(major, minor),
    )
}

fn option<'a>(data: &'a str, key: &str) -> Option<&'a str> {
    data.split(',').find_map(|o| o.strip_prefix(key)?.strip_prefix('='))
}

/// Which of the domain's volumes it is.
fn number(data: &str) -> Result<u64> {
    option(data, "index").and_then(|n| n.parse().ok()).ok_or(Errno::EINVAL)
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

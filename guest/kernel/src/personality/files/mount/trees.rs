//! Descriptors of trees of mounts: open_tree(2) and move_mount(2).

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::Changer;
use super::attr::{self, TreeFlags};
use crate::objects::filesystems::detached;
use crate::objects::lookup::caller::{Name, Target};
use crate::objects::lookup::open;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::{AtFlags, OpenFlags};
use crate::objects::vfs::mount::attach::Where;
use crate::objects::vfs::mount::attr::Change;
use crate::objects::vfs::mount::vfs;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use alloc::sync::Arc;

impl Changer {
    /// The place that a call with a directory descriptor means: EINVAL for a file without one.
    pub(super) fn target(&self, dir: i32, name: &[u8], flags: AtFlags) -> Result<Path> {
        match self.caller.target(dir, name, flags)? {
            Target::Path(p) => Ok(p),
            Target::File(_) => Err(Errno::EINVAL),
        }
    }
}

/// A tree, changed if it is a copy, as an open file.
fn tree(me: &Changer, at: Path, flags: TreeFlags, change: Option<Change>) -> Result<Arc<File>> {
    let recursive = flags.contains(TreeFlags::RECURSIVE);
    if !flags.contains(TreeFlags::CLONE) {
        if let Some(change) = change {
            vfs().change(&me.space, &at, change)?;
        }
        return open::found(&me.caller, at, OpenFlags::PATH);
    }
    let (tree, root) = vfs().detached_copy(&me.space, &at, recursive)?;
    drop(at);
    if let Some(change) = change {
        vfs().change(&me.space, &root, change)?;
    }
    Ok(detached::open(tree, root))
}

fn open_tree(a: &Args, RawFd(dir): RawFd, UserStr(path): UserStr, flags: Bits<TreeFlags>) -> Result<u64> {
    open_tree_with(a, dir, path, flags, None)
}

fn open_tree_with(
    a: &Args,
    dir: i32,
    path: UserPtr,
    flags: Bits<TreeFlags>,
    attr: Option<(UserPtr, usize)>,
) -> Result<u64> {
    let flags = flags.checked()?;
    if flags.contains(TreeFlags::RECURSIVE) && !flags.contains(TreeFlags::CLONE) && attr.is_none() {
        return Err(Errno::EINVAL);
    }
    let me = Changer::new(a);
    if flags.contains(TreeFlags::CLONE) || attr.is_some() {
        me.check()?;
    }
    let change = match attr {
        Some((p, size)) => attr::read(p, size, flags.contains(TreeFlags::RECURSIVE))?,
        None => None,
    };
    let at = me.target(dir, Name::read(path)?.bytes(), flags.at())?;
    let file = tree(&me, at, flags, change)?;
    anon::insert(a, file, flags.contains(TreeFlags::CLOEXEC))
}

fn open_tree_attr(
    a: &Args,
    RawFd(dir): RawFd,
    UserStr(path): UserStr,
    flags: Bits<TreeFlags>,
    attr: UserPtr,
    size: usize,
) -> Result<u64> {
    let given = !attr.is_null() || size != 0;
    if attr.is_null() && size != 0 {
        return Err(Errno::EINVAL);
    }
    open_tree_with(a, dir, path, flags, given.then_some((attr, size)))
}

bitflags::bitflags! {
    /// Flags of move_mount(2).
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct MoveFlags: u32 {
        const FROM_SYMLINKS = 1;
        const FROM_AUTOMOUNTS = 2;
        const FROM_EMPTY_PATH = 4;
        const TO_SYMLINKS = 0x10;
        const TO_AUTOMOUNTS = 0x20;
        const TO_EMPTY_PATH = 0x40;
        const SET_GROUP = 0x100;
        const BENEATH = 0x200;
    }
}

/// How a name is looked up.
fn lookup(follow: bool, empty: bool) -> AtFlags {
    AtFlags::SYMLINK_NOFOLLOW.when(!follow) | AtFlags::EMPTY_PATH.when(empty)
}

fn move_mount(
    a: &Args,
    RawFd(from_dir): RawFd,
    UserStr(from): UserStr,
    RawFd(to_dir): RawFd,
    UserStr(to): UserStr,
    flags: Bits<MoveFlags>,
) -> Result<u64> {
    let me = Changer::new(a);
    me.check()?;
    let flags = flags.checked()?;
    if flags.contains(MoveFlags::BENEATH | MoveFlags::SET_GROUP) {
        return Err(Errno::EINVAL);
    }
    let has = |f| flags.contains(f);
    let from_how = lookup(has(MoveFlags::FROM_SYMLINKS), has(MoveFlags::FROM_EMPTY_PATH));
    let to_how = lookup(has(MoveFlags::TO_SYMLINKS), has(MoveFlags::TO_EMPTY_PATH));
    let from = me.target(from_dir, Name::read(from)?.bytes(), from_how)?;
    let to = me.target(to_dir, Name::read(to)?.bytes(), to_how)?;
    if has(MoveFlags::SET_GROUP) {
        vfs().set_group(&me.space, &from, &to)?;
    } else {
        let place = if has(MoveFlags::BENEATH) { Where::Beneath } else { Where::Top };
        vfs().move_to(&me.space, &from, &to, place)?;
    }
    Ok(0)
}

/// `open_tree(2)`.
pub(super) const OPEN_TREE: Syscall =
    call!(nr::OPEN_TREE, open_tree(RawFd, UserStr, Bits<TreeFlags>), Full, "");

/// `open_tree_attr(2)`.
pub(super) const OPEN_TREE_ATTR: Syscall = call!(
    nr::OPEN_TREE_ATTR,
    open_tree_attr(RawFd, UserStr, Bits<TreeFlags>, UserPtr, usize),
    Full,
    "attributes as of mount_setattr",
);

/// `move_mount(2)`.
pub(super) const MOVE_MOUNT: Syscall =
    call!(nr::MOVE_MOUNT, move_mount(RawFd, UserStr, RawFd, UserStr, Bits<MoveFlags>), Full, "");

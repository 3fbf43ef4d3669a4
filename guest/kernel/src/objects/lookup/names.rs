//! Changing names: creating, linking, removing, renaming, with the checks and the cache kept in step.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::caller::{Caller, at};
use super::path::Path;
use super::walk::NAME_MAX;
use crate::objects::ipc::fanotify::Entry;
use crate::objects::ipc::inotify::{self, InotifyMask};
use crate::objects::lookup::perm::{self, MAY_EXEC, MAY_WRITE};
use crate::objects::vfs::dentry::{Children, Dentry, MOUNTPOINT, UNLINKED};
use crate::objects::vfs::flags::RenameFlags;
use crate::objects::vfs::inode::{FileType, Inode};
use crate::objects::vfs::mount::vfs;
use crate::{Errno, Result};

/// The group of a new file in `dir`: the directory's, if it is set-group-ID.
pub(crate) fn new_gid(caller: &Caller, dir: &Path) -> u32 {
    let p = dir.inode().perm();
    if p.mode & 0o2000 != 0 { p.gid } else { caller.cred.fsgid }
}

/// Whether names in `dir` may be changed.
fn may_change(caller: &Caller, dir: &Path) -> Result<()> {
    dir.mount().writable()?;
    dir.dentry().alive()?;
    perm::check(&caller.cred, &**dir.inode(), MAY_WRITE | MAY_EXEC)
}

/// Adds a name by `make` and caches it; EEXIST if it is there.
fn add(
    dir: &Path,
    name: &[u8],
    check: impl FnOnce() -> Result<()>,
    make: impl FnOnce(&dyn Inode) -> Result<Arc<dyn Inode>>,
) -> Result<Path> {
    // The root, "." and ".." are always there.
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::EEXIST);
    }
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let d = dir.dentry();
    let mut children = d.children.lock();
    match d.child_locked(&mut children, name) {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    check()?;
    crate::objects::pages::page_file().has_room()?;
    let inode = make(&**d.inode())?;
    let child = d.adopt(&mut children, inode, name);
    if child.kind() == FileType::Directory {
        child.set_complete(&children);
    }
    drop(children);
    crate::objects::vfs::dentry::trim();
    inotify::name_event(d, name, &child, InotifyMask::CREATE, 0);
    Ok(Path::new(dir.mount().clone(), child))
}

/// Creates a file of any kind but symbolic links; `mode` is final.
pub fn create(caller: &Caller, dir: &Path, name: &[u8], mode: u32, rdev: u64) -> Result<Path> {
    let mut mode = mode;
    let gid = new_gid(caller, dir);
    if FileType::from_mode(mode) == Some(FileType::Directory) && dir.inode().perm().mode & 0o2000 != 0 {
        mode |= 0o2000;
    }
    let mode = perm::new_mode(&caller.cred, &**dir.inode(), mode, gid);
    let uid = caller.cred.fsuid;
    add(dir, name, || may_change(caller, dir), |d| d.create(name, mode, uid, gid, rdev))
}

/// Makes the directories of `path` that are missing, the last one with `mode`, and finds that.
pub fn make_dirs(caller: &Caller, path: &[u8], mode: u32) -> Result<Path> {
    let mut dir = caller.base(at::FDCWD, path)?;
    let parts: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|p| !p.is_empty()).collect();
    for (i, part) in parts.iter().enumerate() {
        let mode = if i + 1 == parts.len() { mode } else { 0o755 };
        dir = match caller.walker.resolve(&dir, part, true) {
            Ok(next) => next,
            Err(Errno::ENOENT) => create(caller, &dir, part, FileType::Directory as u32 | mode, 0)?,
            Err(e) => return Err(e),
        };
    }
    if dir.inode().kind() == FileType::Directory { Ok(dir) } else { Err(Errno::ENOTDIR) }
}

/// Finds the file of `path`; if it is missing it is made with `mode`, and so are the directories above it.
pub fn make_file(caller: &Caller, path: &[u8], mode: u32) -> Result<Path> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let dir = make_dirs(caller, if start == 0 { b"." } else { &path[..start] }, 0o755)?;
    match caller.walker.resolve(&dir, &path[start..end], true) {
        Err(Errno::ENOENT) => create(caller, &dir, &path[start..end], FileType::Regular as u32 | mode, 0),
        Ok(file) if file.inode().kind() == FileType::Directory => Err(Errno::EISDIR),
        found => found,
    }
}

/// Creates a regular file of root's for the kernel itself.
pub(crate) fn create_kernel(dir: &Path, name: &[u8], mode: u32) -> Result<Path> {
    let mode = FileType::Regular as u32 | mode;
    add(dir, name, || dir.mount().writable(), |d| d.create(name, mode, 0, 0, 0))
}

/// Makes a device node for the kernel itself, with this mode and group.
pub(crate) fn create_device(dir: &Path, name: &[u8], (mode, gid): (u32, u32), rdev: u64) -> Result<()> {
    add(dir, name, || dir.mount().writable(), |d| d.create(name, mode, 0, gid, rdev)).map(drop)
}

/// Creates a symbolic link.
pub fn symlink(caller: &Caller, dir: &Path, name: &[u8], target: &[u8]) -> Result<Path> {
    let (uid, gid) = (caller.cred.fsuid, new_gid(caller, dir));
    add(dir, name, || may_change(caller, dir), |d| d.symlink(name, target, uid, gid))
}

/// Creates a hard link.
pub fn link(caller: &Caller, from: &Path, dir: &Path, name: &[u8]) -> Result<()> {
    let inode = from.inode();
    add(
        dir,
        name,
        || {
            if !Arc::ptr_eq(from.mount(), dir.mount()) {
                return Err(Errno::EXDEV);
            }
            may_change(caller, dir)?;
            if from.dentry().kind() == FileType::Directory { Err(Errno::EPERM) } else { Ok(()) }
        },
        |d| {
            d.link(name, inode)?;
            Ok(inode.clone())
        },
    )?;
    inotify::inode_event(inode, InotifyMask::ATTRIB);
    Ok(())
}

/// A name in `dir` is to go: EBUSY if something is mounted there. What is mounted there in other namespaces goes with it.
fn leave(dir: &Path, child: &Arc<Dentry>) -> Result<()> {
    if child.has(MOUNTPOINT) { vfs().leave_name(dir.mount().space(), child) } else { Ok(()) }
}

/// Removes a name; of a directory if `rmdir`.
pub fn remove(caller: &Caller, dir: &Path, name: &[u8], rmdir: bool) -> Result<()> {
    let d = dir.dentry();
    let mut children = d.children.lock();
    let child = d.child_locked(&mut children, name)?;
    may_change(caller, dir)?;
    perm::sticky(&caller.cred, &**dir.inode(), &**child.inode())?;
    let is_dir = child.kind() == FileType::Directory;
    match (rmdir, is_dir) {
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        _ => {}
    }
    leave(dir, &child)?;
    let unused = is_unused(&child);
    if rmdir {
        d.inode().rmdir(name, unused)?
    } else {
        d.inode().unlink(name, unused)?
    }
    d.forget(&mut children, name);
    child.set(UNLINKED, true);
    drop(children);
    child.inode().name_changed(unused);
    lost_name(child.inode());
    inotify::name_event(d, name, &child, InotifyMask::DELETE, 0);
    Ok(())
}

/// Whether nobody but the cache and the caller, who may change its name, refers to a name and its file.
fn is_unused(name: &Arc<Dentry>) -> bool {
    Arc::strong_count(name) <= 2 && Arc::strong_count(name.inode()) == 1 + name.inode().own_references()
}

/// Tells watchers of a file that it has a name less.
fn lost_name(inode: &Arc<dyn Inode>) {
    if !crate::objects::vfs::attach::notify::watching() {
        return;
    }
    let is_dir = inode.kind() == FileType::Directory;
    if !is_dir {
        inotify::inode_event(inode, InotifyMask::ATTRIB);
    }
    if is_dir || inode.stat().nlink == 0 {
        inotify::inode_event(inode, InotifyMask::DELETE_SELF);
    }
}

/// Whether `d` is `ancestor` or lies below it.
fn below(d: &Arc<Dentry>, ancestor: &Arc<Dentry>) -> bool {
    let mut at = Some(d.clone());
    while let Some(d) = at {
        if Arc::ptr_eq(&d, ancestor) {
            return true;
        }
        at = d.parent();
    }
    false
}

/// Renames; `flags` as `renameat2(2)` without RENAME_WHITEOUT. `slashes` tells whether slashes followed either name.
pub fn rename(
    caller: &Caller,
    (from, old): (&Path, &[u8]),
    (to, new): (&Path, &[u8]),
    flags: RenameFlags,
    slashes: bool,
) -> Result<()> {
    if !Arc::ptr_eq(from.mount(), to.mount()) {
        return Err(Errno::EXDEV);
    }
    if new.len() > NAME_MAX || old.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let Some((child, victim)) = rename_locked(caller, (from, old), (to, new), flags, slashes)? else {
        return Ok(());
    };
    child.inode().name_changed(false);
    if let Some(victim) = &victim {
        victim.inode().name_changed(false);
    }
    let cookie = crate::objects::vfs::attach::notify::next_cookie();
    let (old, new) = (Entry { dir: from.dentry(), name: old }, Entry { dir: to.dentry(), name: new });
    inotify::rename_event(old, new, &child);
    inotify::name_event(old.dir, old.name, &child, InotifyMask::MOVED_FROM, cookie);
    inotify::name_event(new.dir, new.name, &child, InotifyMask::MOVED_TO, cookie);
    inotify::inode_event(child.inode(), InotifyMask::MOVE_SELF);
    match victim {
        Some(v) if flags.contains(RenameFlags::EXCHANGE) => {
            inotify::inode_event(v.inode(), InotifyMask::MOVE_SELF)
        }
        Some(v) => lost_name(v.inode()),
        None => {}
    }
    Ok(())
}

/// Renames under the locks; gives what was moved and what stood at the new name, or `None` if both names are
/// the same file.
#[allow(clippy::type_complexity)]
fn rename_locked(
    caller: &Caller,
    (from, old): (&Path, &[u8]),
    (to, new): (&Path, &[u8]),
    flags: RenameFlags,
    slashes: bool,
) -> Result<Option<(Arc<Dentry>, Option<Arc<Dentry>>)>> {
    let _one_at_a_time = vfs().rename.lock();
    let (a, b) = (from.dentry(), to.dentry());
    if Arc::ptr_eq(a, b) {
        let mut both = a.children.lock();
        let (child, victim) = prepare(caller, (from, old), (to, new), flags, slashes, &mut both, None)?;
        if is_same(&child, victim.as_ref()) {
            return Ok(None);
        }
        move_name((a, old), (b, new), flags, victim.as_ref())?;
        Dentry::renamed((a, old), (b, new), &child, victim.as_ref(), flags.contains(RenameFlags::EXCHANGE));
        return Ok(Some((child, victim)));
    }
    // Locked by address, so that two renames and the cache never wait for each other in a circle.
    let (mut ca, mut cb);
    if Arc::as_ptr(a) < Arc::as_ptr(b) {
        ca = a.children.lock();
        cb = b.children.lock();
    } else {
        cb = b.children.lock();
        ca = a.children.lock();
    }
    let (child, victim) = prepare(caller, (from, old), (to, new), flags, slashes, &mut ca, Some(&mut cb))?;
    if is_same(&child, victim.as_ref()) {
        return Ok(None);
    }
    move_name((a, old), (b, new), flags, victim.as_ref())?;
    Dentry::renamed((a, old), (b, new), &child, victim.as_ref(), flags.contains(RenameFlags::EXCHANGE));
    Ok(Some((child, victim)))
}

/// Has the file system rename, once all is checked that can be here.
fn move_name(
    (a, old): (&Arc<Dentry>, &[u8]),
    (b, new): (&Arc<Dentry>, &[u8]),
    flags: RenameFlags,
    victim: Option<&Arc<Dentry>>,
) -> Result<()> {
    let unused = victim.is_some_and(is_unused);
    let certain = flags.is_empty() && victim.is_none_or(|v| unused && v.kind() != FileType::Directory);
    if certain && a.inode().rename_later(old, b.inode(), new) {
        return Ok(());
    }
    a.inode().rename(old, b.inode(), new, flags, unused)
}

/// Names of one file: renaming one to the other does nothing.
fn is_same(child: &Arc<Dentry>, victim: Option<&Arc<Dentry>>) -> bool {
    victim.is_some_and(|v| Arc::ptr_eq(v.inode(), child.inode()))
}

/// Finds both names and checks everything that can be checked here.
fn prepare(
    caller: &Caller,
    (from, old): (&Path, &[u8]),
    (to, new): (&Path, &[u8]),
    flags: RenameFlags,
    slashes: bool,
    ca: &mut Children,
    cb: Option<&mut Children>,
) -> Result<(Arc<Dentry>, Option<Arc<Dentry>>)> {
    let (a, b) = (from.dentry(), to.dentry());
    let child = a.child_locked(ca, old)?;
    let victim = match b.child_locked(cb.unwrap_or(ca), new) {
        Ok(v) => Some(v),
        Err(Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    let is_dir = child.kind() == FileType::Directory;
    if slashes && !is_dir {
        return Err(Errno::ENOTDIR);
    }
    match (&victim, flags) {
        (Some(_), f) if f.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST),
        (None, f) if f.contains(RenameFlags::EXCHANGE) => return Err(Errno::ENOENT),
        _ => {}
    }
    if is_dir && below(b, &child) {
        return Err(Errno::EINVAL);
    }
    if let Some(v) = &victim {
        if v.kind() == FileType::Directory && below(a, v) {
            return Err(if flags.contains(RenameFlags::EXCHANGE) { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if !flags.contains(RenameFlags::EXCHANGE) {
            match (is_dir, v.kind() == FileType::Directory) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
        }
    }
    for dir in [from, to] {
        may_change(caller, dir)?;
    }
    perm::sticky(&caller.cred, &**from.inode(), &**child.inode())?;
    if let Some(v) = &victim {
        perm::sticky(&caller.cred, &**to.inode(), &**v.inode())?;
        leave(to, v)?;
    }
    if child.has(MOUNTPOINT) && vfs().mounted_here(from, &child) {
        return Err(Errno::EBUSY);
    }
    // A directory that moves gets a new "..": that is a change of its own.
    if is_dir && !Arc::ptr_eq(a, b) {
        perm::check(&caller.cred, &**child.inode(), MAY_WRITE)?;
    }
    Ok((child, victim))
}

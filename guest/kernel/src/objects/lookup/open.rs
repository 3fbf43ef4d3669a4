//! Opening files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::caller::Caller;
use super::fast::peek;
use super::opener::Opener;
use super::path::Path;
use super::walk::{Found, Last, Walker};
use crate::objects::ipc::fanotify::{self, FanMask};
use crate::objects::ipc::inotify::{self, InotifyMask};
use crate::objects::lookup::perm::{self, MAY_EXEC, MAY_READ, MAY_WRITE};
use crate::objects::vfs::dentry::{Dentry, UNLINKED};
use crate::objects::vfs::devices;
use crate::objects::vfs::file::{File, FileOps};
use crate::objects::vfs::flags::{MountFlags, OpenFlags};
use crate::objects::vfs::inode::{FileType, SetAttr};
use crate::{Errno, Result};

/// An O_PATH descriptor: nothing can be done with it but naming the file.
struct Named;

impl FileOps for Named {
    fn pollable(&self) -> bool {
        false
    }
}

/// What access an open asks for.
fn access(flags: OpenFlags) -> u32 {
    let a = match flags & OpenFlags::ACCMODE {
        OpenFlags::RDONLY => MAY_READ,
        OpenFlags::WRONLY => MAY_WRITE,
        _ => MAY_READ | MAY_WRITE,
    };
    if flags.contains(OpenFlags::TRUNC) { a | MAY_WRITE } else { a }
}

/// Opens `name` relative to `base` for `caller`; `walker` carries its restrictions.
pub fn open(
    caller: &Caller,
    walker: &Walker,
    base: &Path,
    name: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> Result<Arc<File>> {
    if flags.contains(OpenFlags::PATH) {
        return named(walker.resolve(base, name, !flags.contains(OpenFlags::NOFOLLOW))?, flags);
    }
    if flags.contains(OpenFlags::TMPFILE) {
        return tmpfile(caller, walker, base, name, flags, mode);
    }
    if !flags.contains(OpenFlags::CREAT) {
        let p = walker.resolve(base, name, !flags.contains(OpenFlags::NOFOLLOW))?;
        return existing(caller, p, flags);
    }
    if flags.contains(OpenFlags::DIRECTORY) {
        return Err(Errno::EINVAL);
    }
    let follow = !flags.intersects(OpenFlags::NOFOLLOW | OpenFlags::EXCL);
    loop {
        let (dir, last) = match walker.walk(base, name, Last::MayMiss, follow)? {
            Found::Path(_) if flags.contains(OpenFlags::EXCL) => return Err(Errno::EEXIST),
            Found::Path(p) if p.dentry().kind() == FileType::Directory => return Err(Errno::EISDIR),
            Found::Path(p) => return existing(caller, p, flags),
            Found::Name { slash: true, .. } => return Err(Errno::EISDIR),
            Found::Name { dir, name, .. } => (dir, name),
        };
        match create(caller, &dir, &last, flags, mode) {
            // Somebody else made it meanwhile: open theirs.
            Err(Errno::EEXIST) if !flags.contains(OpenFlags::EXCL) => {}
            r => return r,
        }
    }
}

fn create(caller: &Caller, dir: &Path, name: &[u8], flags: OpenFlags, mode: u32) -> Result<Arc<File>> {
    let mode = FileType::Regular as u32 | (mode & 0o7777 & !caller.fs.umask());
    let p = super::names::create(caller, dir, name, mode, 0)?;
    let guard = busy_guard(p.inode(), flags)?;
    let ops = p.inode().open(flags)?;
    inotify::path_event(&p, InotifyMask::OPEN);
    let f = File::new(ops, p.inode().clone(), p, flags);
    *f.guard.lock() = guard;
    Ok(f)
}

/// For a regular file that is opened for writing: ETXTBSY if it is a running program.
fn busy_guard(
    inode: &Arc<dyn crate::objects::vfs::Inode>,
    flags: OpenFlags,
) -> Result<Option<crate::objects::vfs::attach::busy::Guard>> {
    if access(flags) & MAY_WRITE == 0 {
        Ok(None)
    } else {
        crate::objects::vfs::attach::busy::Guard::write(inode.attachments())
    }
}

fn tmpfile(
    caller: &Caller,
    walker: &Walker,
    base: &Path,
    name: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> Result<Arc<File>> {
    if access(flags) & MAY_WRITE == 0 {
        return Err(Errno::EINVAL);
    }
    let dir = walker.resolve(base, name, true)?;
    if dir.dentry().kind() != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    perm::check(&caller.cred, &**dir.inode(), MAY_WRITE | MAY_EXEC)?;
    dir.mount().writable()?;
    let (uid, gid) = (caller.cred.fsuid, super::names::new_gid(caller, &dir));
    let mode = FileType::Regular as u32 | mode & 0o7777 & !caller.fs.umask();
    let mode = perm::new_mode(&caller.cred, &**dir.inode(), mode, gid) & 0o7777;
    let inode = dir.inode().tmpfile(mode, uid, gid)?;
    if flags.contains(OpenFlags::EXCL) {
        inode.never_link();
    }
    let label = alloc::format!("#{}", inode.stat().ino);
    let d = Dentry::make(inode.clone(), Some(dir.dentry().clone()), label.as_bytes());
    d.set(UNLINKED, true);
    let ops = inode.open(flags)?;
    Ok(File::new(ops, inode, Path::new(dir.mount().clone(), d), flags & !OpenFlags::TMPFILE))
}

/// Opens a file without a name once more, through /proc/PID/fd.
fn again(caller: &Caller, f: Arc<File>, flags: OpenFlags) -> Result<Arc<File>> {
    let Some(inode) = f.inode.as_ref().filter(|i| i.kind() == FileType::Regular) else { return Ok(f) };
    perm::check(&caller.cred, &**inode, access(flags))?;
    let guard = busy_guard(inode, flags)?;
    if flags.contains(OpenFlags::TRUNC) {
        inode.set_attr(&SetAttr { size: Some(0), ..SetAttr::default() })?;
    }
    let name = f.anon_name.clone().unwrap_or_default();
    let new = File::nameless(inode.open(flags)?, inode.clone(), name, flags);
    *new.guard.lock() = guard;
    Ok(new)
}

/// An O_PATH descriptor of a place.
fn named(p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    if flags.contains(OpenFlags::DIRECTORY) && p.dentry().kind() != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    Ok(File::new(
        Arc::new(Named),
        p.inode().clone(),
        p,
        flags & (OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW),
    ))
}

/// Opens a place that was found otherwise than by name.
pub(crate) fn found(caller: &Caller, p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    if flags.contains(OpenFlags::PATH) { named(p, flags) } else { existing(caller, p, flags) }
}

/// Opens what was found, if the caller may.
pub fn existing(caller: &Caller, p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    let kind = p.dentry().kind();
    let mut want = access(flags);
    match kind {
        FileType::Symlink => {
            return match p.inode().reopen() {
                Some(f) if f.ops().stat(&f)?.kind() == FileType::Socket => Err(Errno::ENXIO),
                Some(f) if !flags.contains(OpenFlags::NOFOLLOW) => again(caller, f, flags),
                _ if flags.contains(OpenFlags::DIRECTORY) => Err(Errno::ENOTDIR),
                _ => Err(Errno::ELOOP),
            };
        }
        FileType::Directory if want & MAY_WRITE != 0 => return Err(Errno::EISDIR),
        FileType::Directory => {}
        _ if flags.contains(OpenFlags::DIRECTORY) => return Err(Errno::ENOTDIR),
        FileType::Socket => return Err(Errno::ENXIO),
        FileType::CharDevice | FileType::BlockDevice if p.mount().flags().contains(MountFlags::NODEV) => {
            return Err(Errno::EACCES);
        }
        FileType::Regular => {
            if want & MAY_WRITE != 0 {
                p.mount().writable()?;
            }
        }
        _ => want &= !MAY_WRITE | access(flags & !OpenFlags::TRUNC),
    }
    perm::check(&caller.cred, &**p.inode(), want)?;
    if flags.contains(OpenFlags::NOATIME) {
        perm::owner(&caller.cred, &**p.inode())?;
    }
    finish(p, flags)
}

/// Opens what may be opened, if those who are to be asked allow it.
fn finish(p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    if crate::objects::vfs::attach::notify::watching() {
        fanotify::ask(&p, FanMask::OPEN_PERM)?;
    }
    let f = made(p, flags)?;
    if let Some(p) = &f.path {
        inotify::path_event(p, InotifyMask::OPEN);
    }
    Ok(f)
}

/// Opens a place for who is told of what happens to it: nobody is told of this.
pub fn quietly(p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    if p.dentry().kind() == FileType::Regular && access(flags) & MAY_WRITE != 0 {
        p.mount().writable()?;
    }
    let f = made(p, flags)?;
    f.be_quiet();
    Ok(f)
}

/// A new open file of a place.
fn made(p: Path, flags: OpenFlags) -> Result<Arc<File>> {
    let kind = p.dentry().kind();
    let guard = if kind == FileType::Regular { busy_guard(p.inode(), flags)? } else { None };
    if flags.contains(OpenFlags::TRUNC) && kind == FileType::Regular {
        p.inode().set_attr(&SetAttr { size: Some(0), ..SetAttr::default() })?;
        inotify::size_event(&p);
    }
    let ops = match kind {
        FileType::CharDevice => devices::open(p.inode().stat().rdev, flags)?,
        FileType::BlockDevice => devices::open_block(p.inode().stat().rdev, flags)?,
        FileType::Fifo => {
            let slot = p.inode().attachments().ok_or(Errno::ENXIO)?;
            crate::objects::ipc::fifo::open(slot, flags)?
        }
        _ => p.inode().open(flags)?,
    };
    let f = File::new(ops, p.inode().clone(), p, flags);
    if guard.is_some() {
        *f.guard.lock() = guard;
    }
    Ok(f)
}

/// For open calls: opens a regular file or directory that the directory cache leads to. `None` if it must be done the
/// long way.
pub(crate) fn quick(
    me: &impl Opener,
    dirfd: i32,
    name: &[u8],
    flags: OpenFlags,
) -> Option<Result<Arc<File>>> {
    if flags.intersects(OpenFlags::PATH | OpenFlags::EXCL | OpenFlags::NOATIME)
        || flags.contains(OpenFlags::TMPFILE)
    {
        return None;
    }
    let want = access(flags);
    let found = peek(me, dirfd, name, !flags.contains(OpenFlags::NOFOLLOW), |spot, cred| {
        let fits = match spot.dentry.kind() {
            FileType::Regular => {
                !flags.contains(OpenFlags::DIRECTORY) && (want == MAY_READ || spot.mount.writable().is_ok())
            }
            FileType::Directory => want == MAY_READ && !flags.contains(OpenFlags::CREAT),
            _ => false,
        };
        (fits && perm::check(cred, &**spot.dentry.inode(), want).is_ok()).then(|| spot.path())
    });
    match found? {
        Ok(p) => Some(finish(p, flags)),
        Err(_) if flags.contains(OpenFlags::CREAT) => None,
        Err(e) => Some(Err(e)),
    }
}

/// Opens a file for the kernel itself, named from the domain's root.
pub fn open_kernel(name: &[u8]) -> Result<Arc<File>> {
    let w = Walker::kernel();
    let p = w.resolve(w.root(), name, true)?;
    let ops = p.inode().open(OpenFlags::RDONLY)?;
    Ok(File::new(ops, p.inode().clone(), p, OpenFlags::RDONLY))
}

/// Puts `text` into a file for the kernel itself, named from the domain's root; makes it if it is not there.
pub fn put_kernel(name: &[u8], text: &[u8]) -> Result<()> {
    let w = Walker::kernel();
    let p = match w.walk(w.root(), name, Last::MayMiss, true)? {
        Found::Path(p) => p,
        Found::Name { dir, name, .. } => super::names::create_kernel(&dir, &name, 0o644)?,
    };
    if p.dentry().kind() != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    let file = finish(p, OpenFlags::WRONLY | OpenFlags::TRUNC)?;
    file.ops().write(&file, &mut crate::objects::vfs::Input::kernel(text), 0).map(drop)
}

impl File {
    /// Reads at an offset into a kernel buffer; short only at the end of the file.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let mut out = crate::objects::vfs::Output::kernel(&mut buf[done..]);
            let n = self.ops().read(self, &mut out, offset + done as u64)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    /// The whole file, at most `max` bytes (EFBIG beyond).
    pub fn read_all(&self, max: usize) -> Result<Vec<u8>> {
        let mut v = Vec::new();
        let mut buf = alloc::vec![0u8; 4096];
        loop {
            let n = self.read_at(v.len() as u64, &mut buf)?;
            if n == 0 {
                return Ok(v);
            }
            if v.len() + n > max {
                return Err(Errno::EFBIG);
            }
            v.extend_from_slice(&buf[..n]);
        }
    }
}

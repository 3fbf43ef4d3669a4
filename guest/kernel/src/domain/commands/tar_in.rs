//! `tar-in PATH`: unpacks a tar archive from standard input below a directory (`doppel_tar::unpack`).

use alloc::sync::Arc;

use doppel_tar::unpack::{self, Target};
use doppel_tar::{Entry, Kind};

use super::{About, Command, Failure, Outcome};
use crate::objects::lookup::names;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::vfs::flags::{OpenFlags, SetXattr};
use crate::objects::vfs::inode::SetAttr;
use crate::objects::vfs::{File, FileType, Input};
use crate::{Errno, Result};

pub fn run(c: &mut Command<'_>, name: &[u8]) -> Outcome {
    let top = c.find(name, true).about(name)?;
    if top.inode().kind() != FileType::Directory {
        return Err(Failure { what: name.to_vec(), errno: Errno::ENOTDIR });
    }
    let mut below = Below { c, dir: top.clone(), top, file: None, found: None };
    unpack::unpack(&mut below).map_err(|f| Failure { what: f.what, errno: f.errno })
}

/// A directory, and where below it an archive is unpacked just now.
struct Below<'a, 'c> {
    c: &'a Command<'c>,
    top: Path,
    dir: Path,
    /// The file that was made last.
    file: Option<(Path, Arc<File>)>,
    /// What the next hard link leads to.
    found: Option<Path>,
}

impl Below<'_, '_> {
    /// Goes down from the top; makes what is missing if `make`. Links are not followed.
    fn descend(&self, parts: &[&[u8]], make: bool) -> Result<Path> {
        let mut dir = self.top.clone();
        for part in parts {
            dir = match self.c.child(&dir, part) {
                Ok(p) => p,
                Err(Errno::ENOENT) if make => {
                    names::create(&self.c.caller, &dir, part, FileType::Directory as u32 | 0o755, 0)?
                }
                Err(e) => return Err(e),
            };
            match dir.inode().kind() {
                FileType::Directory => {}
                FileType::Symlink => return Err(Errno::ELOOP),
                _ => return Err(Errno::ENOTDIR),
            }
        }
        Ok(dir)
    }

    fn node(&self, name: &[u8], kind: FileType, device: u64) -> Result<Path> {
        names::create(&self.c.caller, &self.dir, name, kind as u32 | 0o600, device)
    }

    fn device(&self, name: &[u8], kind: FileType, (major, minor): (u32, u32)) -> Result<Path> {
        if !self.c.caller.cred.capable(perm::cap::MKNOD) {
            return Err(Errno::EPERM);
        }
        let (major, minor) = (u64::from(major), u64::from(minor));
        let device = (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12;
        self.node(name, kind, device)
    }
}

impl Target for Below<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.c.get_all(buf)
    }

    fn pause(&mut self) -> Result<()> {
        self.c.breathe()
    }

    fn enter(&mut self, names: &[&[u8]], make: bool) -> Result<()> {
        self.dir = self.descend(names, make)?;
        Ok(())
    }

    fn is_directory(&mut self, name: &[u8]) -> Result<Option<bool>> {
        match self.c.child(&self.dir, name) {
            Ok(old) => Ok(Some(old.inode().kind() == FileType::Directory)),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn remove(&mut self, name: &[u8]) -> Result<()> {
        names::remove(&self.c.caller, &self.dir, name, false)
    }

    fn make(&mut self, name: &[u8], entry: &Entry) -> Result<()> {
        match entry.kind {
            Kind::Symlink => drop(names::symlink(&self.c.caller, &self.dir, name, &entry.link)?),
            Kind::Fifo => drop(self.node(name, FileType::Fifo, 0)?),
            Kind::CharDevice => drop(self.device(name, FileType::CharDevice, entry.device)?),
            Kind::BlockDevice => drop(self.device(name, FileType::BlockDevice, entry.device)?),
            Kind::File | Kind::Directory | Kind::HardLink => {
                let made = self.node(name, FileType::Regular, 0)?;
                let file = self.c.open(&made, OpenFlags::WRONLY)?;
                self.file = Some((made, file));
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (_, file) = self.file.as_ref().ok_or(Errno::EBADF)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            done += self.c.patiently(|| file.ops().write(file, &mut Input::kernel(&bytes[done..]), at))?;
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        let (made, _) = self.file.as_ref().ok_or(Errno::EBADF)?;
        made.inode().set_attr(&SetAttr { size: Some(size), ..SetAttr::default() })
    }

    fn find(&mut self, names: &[&[u8]]) -> Result<()> {
        let (name, above) = names.split_last().ok_or(Errno::EINVAL)?;
        self.found = Some(self.c.child(&self.descend(above, false)?, name)?);
        Ok(())
    }

    fn link(&mut self, name: &[u8]) -> Result<()> {
        let from = self.found.take().ok_or(Errno::EBADF)?;
        if self.c.child(&self.dir, name).is_ok_and(|old| !old.same(&from)) {
            self.remove(name)?;
        }
        match names::link(&self.c.caller, &from, &self.dir, name) {
            // It is that already.
            Err(Errno::EEXIST) => Ok(()),
            r => r,
        }
    }

    /// The owner only if the caller may give files away.
    fn set_attributes(&mut self, name: &[u8], e: &Entry) -> Result<()> {
        let path = self.c.child(&self.dir, name)?;
        let (cred, inode) = (&self.c.caller.cred, path.inode());
        let give = cred.capable(perm::cap::CHOWN);
        perm::owner(cred, &**inode)?;
        let mut mode = e.mode;
        if !give && !cred.in_group(inode.perm().gid) {
            mode &= !0o2000;
        }
        for (name, value) in &e.xattrs {
            if name.starts_with(b"user.") || cred.capable(perm::cap::SYS_ADMIN) {
                match inode.setxattr(name, value, SetXattr::Any) {
                    // Not every file system has them, nor every kind of file.
                    Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EPERM) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        inode.set_attr(&SetAttr {
            mode: (e.kind != Kind::Symlink).then_some(mode),
            uid: give.then_some(e.uid),
            gid: give.then_some(e.gid),
            atime: None,
            mtime: Some(e.mtime),
            size: None,
        })
    }
}

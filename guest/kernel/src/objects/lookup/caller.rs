//! What file system calls need to know of their caller, and their common arguments: names, directory
//! descriptors, `AT_` flags.
//!
//! Key types: [`Name`] (a copied path argument), [`Caller`], [`Target`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use super::context::FsContext;
use super::opener::{Opener, opener};
use super::path::Path;
use super::walk::Walker;
use crate::core::subject::Cred;
use crate::objects::vfs::file::File;
use crate::objects::vfs::flags::AtFlags;
use crate::objects::vfs::inode::{Inode, Stat};
use crate::{Errno, Result};

/// The descriptor that stands for the working directory.
#[allow(missing_docs)]
pub mod at {
    pub const FDCWD: i32 = -100;
}

/// Longest path in bytes, with its NUL.
pub const PATH_MAX: usize = 4096;

/// Names up to this length need no allocation.
const SHORT: usize = 128;

/// A path argument, copied from user memory.
pub struct Name {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Name {
    /// Copies a path: ENAMETOOLONG from PATH_MAX on.
    #[inline(always)]
    pub fn read(p: UserPtr) -> Result<Self> {
        let mut n = Self { short: [0; SHORT], len: 0, long: Vec::new() };
        match p.read_cstr(&mut n.short)? {
            Some(len) => n.len = len,
            None => n.long = read_long(p)?,
        }
        Ok(n)
    }

    /// The bytes without the NUL.
    pub fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

#[cold]
fn read_long(p: UserPtr) -> Result<Vec<u8>> {
    read_string(p, PATH_MAX).map_err(|e| if e == Errno::E2BIG { Errno::ENAMETOOLONG } else { e })
}

/// Copies a NUL-terminated string of at most `max` bytes with its NUL; E2BIG if longer.
pub fn read_string(p: UserPtr, max: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunk = [0u8; 256];
    while out.len() < max {
        let n = chunk.len().min(max - out.len());
        match p.add(out.len() as u64).read_cstr(&mut chunk[..n])? {
            Some(len) => {
                out.extend_from_slice(&chunk[..len]);
                return Ok(out);
            }
            None => out.extend_from_slice(&chunk[..n]),
        }
    }
    Err(Errno::E2BIG)
}

/// What a call acts on.
pub enum Target {
    /// A place found by name, or the place of a descriptor.
    Path(Path),
    /// A file without a place (pipe, socket…).
    File(Arc<File>),
}

impl Target {
    /// Attributes.
    pub fn stat(&self) -> Result<Stat> {
        match self {
            Self::Path(p) => Ok(p.inode().stat()),
            Self::File(f) => file_stat(f),
        }
    }

    /// The inode; EINVAL-like `error` if there is none.
    pub fn inode(&self, error: Errno) -> Result<&Arc<dyn Inode>> {
        match self {
            Self::Path(p) => Ok(p.inode()),
            Self::File(f) => f.inode.as_ref().ok_or(error),
        }
    }

    /// EROFS if it lies on a read-only mount.
    pub fn writable(&self) -> Result<()> {
        match self {
            Self::Path(p) => p.mount().writable(),
            Self::File(_) => Ok(()),
        }
    }
}

/// Attributes of an open file.
pub fn file_stat(f: &File) -> Result<Stat> {
    match &f.inode {
        Some(i) => Ok(i.stat()),
        None => f.ops().stat(f),
    }
}

/// Who calls.
pub struct Caller {
    /// Root, working directory, umask.
    pub fs: Arc<FsContext>,
    /// Identity.
    pub cred: Arc<Cred>,
    /// Resolves names for the caller.
    pub walker: Walker,
}

impl Caller {
    /// A thread, which is the calling one.
    pub fn new(me: &impl Opener) -> Self {
        Self::with(me.fs(), me.cred())
    }

    /// The calling thread.
    pub fn current() -> Self {
        let me = opener();
        Self::with(me.fs(), me.cred())
    }

    /// Somebody with this identity, at these places.
    pub fn with(fs: Arc<FsContext>, cred: Arc<Cred>) -> Self {
        let walker = Walker::new(&fs, cred.clone());
        Self { fs, cred, walker }
    }

    /// Where a relative name starts.
    pub fn base(&self, dirfd: i32, name: &[u8]) -> Result<Path> {
        if name.first() == Some(&b'/') {
            return Ok(self.walker.root().clone());
        }
        if dirfd == at::FDCWD {
            return Ok(self.fs.cwd());
        }
        opener().any_file(dirfd)?.path.clone().ok_or(Errno::ENOTDIR)
    }

    /// Finds an existing file.
    pub fn find(&self, dirfd: i32, name: &[u8], follow: bool) -> Result<Path> {
        if name.first() == Some(&b'/') {
            return self.walker.resolve(self.walker.root(), name, follow);
        }
        self.walker.resolve(&self.base(dirfd, name)?, name, follow)
    }

    /// Finds the directory of a name, the name, and whether slashes follow it.
    pub fn parent(&self, dirfd: i32, name: &[u8]) -> Result<(Path, Vec<u8>, bool)> {
        self.walker.parent(&self.base(dirfd, name)?, name)
    }

    /// Attributes of what [`Self::target`] has just found.
    pub fn stat(&self, target: &Target) -> Result<Stat> {
        match target {
            Target::Path(p) if self.walker.just_looked() => Ok(p.inode().seen()),
            _ => target.stat(),
        }
    }

    /// Finds what an `*at` call with `AT_EMPTY_PATH` and `AT_SYMLINK_NOFOLLOW` acts on.
    pub fn target(&self, dirfd: i32, name: &[u8], flags: AtFlags) -> Result<Target> {
        if name.is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            if dirfd == at::FDCWD {
                return Ok(Target::Path(self.fs.cwd()));
            }
            let f = opener().any_file(dirfd)?;
            return Ok(match &f.path {
                Some(p) => Target::Path(p.clone()),
                None => Target::File(f),
            });
        }
        let p = self.find(dirfd, name, !flags.contains(AtFlags::SYMLINK_NOFOLLOW))?;
        // A magic link to a file without a place stands for that file.
        if !flags.contains(AtFlags::SYMLINK_NOFOLLOW)
            && p.dentry().kind() == crate::objects::vfs::FileType::Symlink
            && let Some(f) = p.inode().reopen()
        {
            return Ok(Target::File(f));
        }
        Ok(Target::Path(p))
    }
}

/// Finds `name` from the current process' root or working directory, following symbolic links.
pub fn resolve(name: &[u8]) -> Result<Path> {
    let t = opener();
    let fs = t.fs();
    Walker::new(&fs, t.cred()).resolve(&fs.cwd(), name, true)
}

//! Synthetic file systems: directories and files made up on demand (/proc, /sys).
//!
//! Key types: [`Directory`] (what a directory holds), [`Node`] (one entry), [`SyntheticInode`] (a node as the
//! VFS sees it). Content of a text file is made at the first read, and again when read from the start.
//! Boundary: nothing here knows what the files say; generators get no user memory and take no lock of ours.

use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;

use doppel_machine::sync::SpinLock;

use super::file::{DirSink, Splice};
use super::{File, FileOps, FileType, Inode, Input, Output, Stat, Whence};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::OpenFlags;
use crate::{Errno, Result};

/// Makes the content of a text file.
pub type Generate = Arc<dyn Fn() -> Result<Vec<u8>> + Send + Sync>;
/// Takes what a program writes to a text file in one call.
pub type Accept = Arc<dyn Fn(&[u8]) -> Result<()> + Send + Sync>;

/// What a directory holds.
pub trait Directory: Send + Sync {
    /// The entry `name`.
    fn lookup(&self, name: &[u8]) -> Option<Node>;
    /// Calls `each(cookie, name, type)` for every entry with a cookie above `from`, in ascending order of
    /// cookies (1 or more), until it returns false.
    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool);
    /// Its link count: two, and one for each directory in it, by which programs count them.
    fn links(&self) -> u32 {
        let mut links = 2;
        self.list(0, &mut |_, _, kind| {
            links += u32::from(kind == FileType::Directory);
            true
        });
        links
    }
    /// Owner of the directory and of the files in it.
    fn owner(&self) -> (u32, u32) {
        (0, 0)
    }
    /// Permission bits of the directory.
    fn mode(&self) -> u32 {
        0o555
    }
    /// Whether its names come and go in a tree that is unchanging otherwise.
    fn changes(&self) -> bool {
        false
    }
    /// The process whose directory in /proc it is.
    fn process(&self) -> Option<Weak<dyn Any + Send + Sync>> {
        None
    }
}

/// One entry of a synthetic directory.
pub enum Node {
    /// A directory.
    Dir(Arc<dyn Directory>),
    /// A text file with its permission bits.
    Text {
        /// Permission bits.
        mode: u32,
        /// Content.
        generate: Generate,
        /// Writes, if they are allowed.
        accept: Option<Accept>,
    },
    /// A file with operations of its own.
    File {
        /// Permission bits.
        mode: u32,
        /// Opens it.
        open: Arc<dyn Fn() -> Result<Arc<dyn FileOps>> + Send + Sync>,
    },
    /// A symbolic link with a computed target.
    Link(Arc<dyn Fn() -> Result<Vec<u8>> + Send + Sync>),
    /// A magic link: text for readlink, and the place or open file it really leads to.
    Magic(Arc<dyn MagicLink>),
}

/// A link that leads somewhere by reference, not by name (/proc/PID/{exe,cwd,root,fd/N}).
pub trait MagicLink: Send + Sync {
    /// What readlink shows.
    fn text(&self) -> Result<Vec<u8>>;
    /// The place it leads to, if it has one.
    fn path(&self) -> Option<Path>;
    /// Its permission bits, which only stat shows.
    fn mode(&self) -> u32 {
        0o777
    }
    /// The open file it leads to, if it has no place.
    fn file(&self) -> Option<Arc<File>> {
        None
    }
}

/// A read-only text file.
pub fn text(f: impl Fn() -> Result<String> + Send + Sync + 'static) -> Node {
    Node::Text { mode: 0o444, generate: Arc::new(move || f().map(String::into_bytes)), accept: None }
}

/// A read-only text file with binary content.
pub fn bytes(mode: u32, f: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Node {
    Node::Text { mode, generate: Arc::new(f), accept: None }
}

/// An open text file by itself, for files that add to what one does.
pub(crate) fn open_text(f: impl Fn() -> String + Send + Sync + 'static) -> Arc<dyn FileOps> {
    Arc::new(TextFile {
        of_process: false,
        generate: Arc::new(move || Ok(f().into_bytes())),
        accept: None,
        content: SpinLock::new(None),
    })
}

/// A read-only text file that never changes.
pub fn fixed(s: &'static str) -> Node {
    text(move || Ok(String::from(s)))
}

/// A text file that can be written.
pub fn writable(
    mode: u32,
    f: impl Fn() -> Result<String> + Send + Sync + 'static,
    accept: impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static,
) -> Node {
    Node::Text {
        mode,
        generate: Arc::new(move || f().map(String::into_bytes)),
        accept: Some(Arc::new(accept)),
    }
}

/// A symbolic link to a fixed target.
pub fn link(target: &'static str) -> Node {
    Node::Link(Arc::new(move || Ok(target.as_bytes().to_vec())))
}

impl Node {
    fn kind(&self) -> FileType {
        match self {
            Self::Dir(_) => FileType::Directory,
            Self::Text { .. } | Self::File { .. } => FileType::Regular,
            Self::Link(_) | Self::Magic(_) => FileType::Symlink,
        }
    }
}

/// Names with what makes their nodes.
pub type Entries = Vec<(&'static str, fn() -> Node)>;

/// A directory with fixed entries.
pub struct Fixed(pub Entries);

impl Directory for Fixed {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        self.0.iter().find(|(n, _)| n.as_bytes() == name).map(|(_, f)| f())
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (i, (name, f)) in self.0.iter().enumerate().skip(from as usize) {
            if !each(i as u64 + 1, name.as_bytes(), f().kind()) {
                return;
            }
        }
    }
}

/// A fixed directory as a node.
pub fn dir(entries: Entries) -> Node {
    Node::Dir(Arc::new(Fixed(entries)))
}

/// A node with its place in the tree, which gives its inode number.
pub struct SyntheticInode {
    node: Node,
    ino: u64,
    dev: u64,
    owner: (u32, u32),
    /// Whether names may be cached: the tree never changes its shape.
    unchanging: bool,
    /// Whether it lies in the directory of a process.
    of_process: bool,
}

/// FNV-1a over the parent's number and the name: stable inode numbers without a table.
fn child_ino(parent: u64, name: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325 ^ parent;
    for &b in name {
        h = (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    }
    (h >> 16) | 1 << 32
}

impl SyntheticInode {
    /// The root of a synthetic file system.
    pub fn root(dir: Arc<dyn Directory>, dev: u64) -> Arc<Self> {
        Arc::new(Self {
            node: Node::Dir(dir),
            ino: 1,
            dev,
            owner: (0, 0),
            unchanging: false,
            of_process: false,
        })
    }

    /// The root of one whose names never change, so that other file systems can be mounted in it.
    pub fn static_root(dir: Arc<dyn Directory>, dev: u64) -> Arc<Self> {
        Arc::new(Self {
            node: Node::Dir(dir),
            ino: 1,
            dev,
            owner: (0, 0),
            unchanging: true,
            of_process: false,
        })
    }
}

impl SyntheticInode {
    /// The names that lead from here to the object with a number.
    pub fn names_to(&self, ino: u64) -> Option<Vec<Vec<u8>>> {
        let Node::Dir(d) = &self.node else { return None };
        if ino == self.ino {
            return Some(Vec::new());
        }
        let mut names = Vec::new();
        seek(&**d, self.ino, ino, &mut names).then_some(names)
    }
}

/// Looks for the number `ino` below a directory, whose own is `at`; puts the names that lead there behind `names`.
fn seek(dir: &dyn Directory, at: u64, ino: u64, names: &mut Vec<Vec<u8>>) -> bool {
    let mut dirs = Vec::new();
    let mut found = None;
    dir.list(0, &mut |_, name, kind| {
        if child_ino(at, name) == ino {
            found = Some(name.to_vec());
        } else if kind == FileType::Directory {
            dirs.push(name.to_vec());
        }
        found.is_none()
    });
    if let Some(n) = found {
        names.push(n);
        return true;
    }
    for n in dirs {
        let Some(Node::Dir(d)) = dir.lookup(&n) else { continue };
        let number = child_ino(at, &n);
        names.push(n);
        if seek(&*d, number, ino, names) {
            return true;
        }
        names.pop();
    }
    false
}

impl Inode for SyntheticInode {
    fn stat(&self) -> Stat {
        let (mode, nlink) = match &self.node {
            Node::Dir(d) => (0o040000 | d.mode(), d.links()),
            Node::Text { mode, .. } | Node::File { mode, .. } => (0o100000 | mode, 1),
            Node::Magic(m) => (0o120000 | m.mode(), 1),
            Node::Link(_) => (0o120777, 1),
        };
        let now = crate::core::time::realtime_ns() as i64;
        let owner = match &self.node {
            Node::Dir(d) => d.owner(),
            _ => self.owner,
        };
        Stat {
            dev: self.dev,
            ino: self.ino,
            mode,
            nlink,
            uid: owner.0,
            gid: owner.1,
            blksize: 1024,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            ..Stat::anonymous()
        }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let Node::Dir(d) = &self.node else { return Err(Errno::ENOTDIR) };
        let node = d.lookup(name).ok_or(Errno::ENOENT)?;
        let ino = child_ino(self.ino, name);
        let of_process = self.of_process || d.process().is_some();
        let (dev, unchanging) = (self.dev, self.unchanging);
        Ok(Arc::new(Self { node, ino, dev, owner: d.owner(), unchanging, of_process }))
    }

    fn create(&self, _name: &[u8], _mode: u32, _uid: u32, _gid: u32, _rdev: u64) -> Result<Arc<dyn Inode>> {
        Err(Errno::ENOENT)
    }

    fn readlink(&self) -> Result<Vec<u8>> {
        match &self.node {
            Node::Link(f) => f(),
            Node::Magic(m) => m.text(),
            _ => Err(Errno::EINVAL),
        }
    }

    fn follow(&self) -> Option<Result<Path>> {
        match &self.node {
            Node::Magic(m) => m.path().map(Ok),
            _ => None,
        }
    }

    fn reopen(&self) -> Option<Arc<File>> {
        match &self.node {
            Node::Magic(m) => m.file(),
            _ => None,
        }
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        match &self.node {
            Node::Dir(d) => Ok(Arc::new(DirFile { dir: d.clone(), ino: self.ino })),
            Node::Text { generate, accept, .. } => Ok(Arc::new(TextFile {
                of_process: self.of_process,
                generate: generate.clone(),
                accept: accept.clone(),
                content: SpinLock::new(None),
            })),
            Node::File { open, .. } => open(),
            Node::Link(_) | Node::Magic(_) => Err(Errno::ELOOP),
        }
    }

    fn set_attr(&self, attr: &super::inode::SetAttr) -> Result<()> {
        // O_TRUNC on a writable file is harmless and common (shell redirection).
        if attr.size.is_some() && attr.mode.is_none() && attr.uid.is_none() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn cacheable(&self) -> bool {
        self.unchanging && !matches!(&self.node, Node::Dir(d) if d.changes())
    }
}

/// The process that an open directory of /proc is about.
pub fn process_of(f: &File) -> Option<Weak<dyn Any + Send + Sync>> {
    f.downcast::<DirFile>()?.dir.process()
}

struct DirFile {
    dir: Arc<dyn Directory>,
    ino: u64,
}

impl FileOps for DirFile {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, _file: &File, _out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        Err(Errno::EISDIR)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        seek_to(file.pos.get(), offset, whence, 0)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn readdir(&self, _file: &File, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        if pos == 0 && !sink(self.ino, 1, FileType::Directory, b".") {
            return Ok(());
        }
        if pos <= 1 && !sink(self.ino, 2, FileType::Directory, b"..") {
            return Ok(());
        }
        let ino = self.ino;
        self.dir.list(pos.saturating_sub(2), &mut |cookie, name, kind| {
            sink(child_ino(ino, name), cookie + 2, kind, name)
        });
        Ok(())
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        Ok(())
    }
}

/// Where `lseek(2)` leads from `pos` in a file of `size` bytes.
pub(crate) fn seek_to(pos: u64, offset: i64, whence: Whence, size: u64) -> Result<u64> {
    let base = match whence {
        Whence::Set => 0,
        Whence::Cur => pos,
        Whence::End => size,
        Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
    };
    base.checked_add_signed(offset).ok_or(Errno::EINVAL)
}

struct TextFile {
    /// Whether it is about a process; those do not splice.
    of_process: bool,
    generate: Generate,
    accept: Option<Accept>,
    content: SpinLock<Option<Arc<Vec<u8>>>>,
}

impl FileOps for TextFile {
    fn splice(&self) -> Splice {
        if self.of_process { Splice::Neither } else { Splice::Both }
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let cached = if offset == 0 { None } else { self.content.lock().clone() };
        let content = match cached {
            Some(c) => c,
            None => {
                let c = Arc::new((self.generate)()?);
                *self.content.lock() = Some(c.clone());
                c
            }
        };
        let start = (offset as usize).min(content.len());
        out.write(&content[start..])
    }

    fn write(&self, _file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let accept = self.accept.as_ref().ok_or(Errno::EACCES)?;
        let mut buf = [0u8; 512];
        let n = input.read(&mut buf)?;
        accept(&buf[..n])?;
        Ok(n)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        seek_to(file.pos.get(), offset, whence, 0)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        Ok(())
    }
}

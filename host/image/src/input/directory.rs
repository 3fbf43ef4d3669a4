//! Reads a directory of the host into a [`Tree`]: one file system, symbolic links not followed.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use doppel_abi_image as abi;
use rustix::io::Errno;

use crate::error::IoContext;
use crate::tree::{self, Content, Data, Limits, Meta, Tree, split_xattr};
use crate::{Error, Result};

/// Reads the tree below `root`. Returns it with notes on what was left out. File data is read later, by the
/// writer, which notices a file whose length has changed by then.
pub fn from_dir(root: &Path, limits: Limits) -> Result<(Tree, Vec<String>)> {
    let meta = fs::metadata(root).doing("read", root)?;
    if !meta.is_dir() {
        return Err(Error::source(root.as_os_str().as_bytes(), "is not a directory"));
    }
    let mut walk =
        Walk { tree: Tree::new(limits), notes: Vec::new(), links: HashMap::new(), bytes: 0, dev: meta.dev() };
    walk.tree.nodes[0].meta = walk.attributes(root, &meta)?;
    let mut stack = vec![(root.to_path_buf(), 0)];
    while let Some((path, node)) = stack.pop() {
        walk.directory(&path, node, &mut stack)?;
    }
    Ok((walk.tree, walk.notes))
}

struct Walk {
    tree: Tree,
    notes: Vec<String>,
    /// Nodes of files with several names, by inode number.
    links: HashMap<u64, usize>,
    bytes: u64,
    dev: u64,
}

impl Walk {
    fn directory(&mut self, dir: &Path, node: usize, stack: &mut Vec<(PathBuf, usize)>) -> Result<()> {
        for entry in fs::read_dir(dir).doing("list", dir)? {
            let entry = entry.doing("list", dir)?;
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).doing("read", &path)?;
            let elsewhere = meta.dev() != self.dev;
            if elsewhere && !meta.is_dir() {
                self.notes.push(format!("{}: mounted from elsewhere, left out", path.display()));
                continue;
            }
            let known = self.links.get(&meta.ino()).copied().filter(|_| meta.nlink() > 1 && !meta.is_dir());
            let child = match known {
                Some(child) => child,
                None => {
                    let content = self.content(&path, &meta)?;
                    let attributes = self.attributes(&path, &meta)?;
                    tree::check(path.as_os_str().as_bytes(), &attributes, &content)?;
                    self.tree.push(attributes, content)?
                }
            };
            self.tree.set_child(node, entry.file_name().as_bytes(), child)?;
            if meta.is_dir() && elsewhere {
                self.notes.push(format!("{}: a mount point, taken as an empty directory", path.display()));
            } else if meta.is_dir() {
                stack.push((path, child));
            } else if meta.nlink() > 1 {
                self.links.insert(meta.ino(), child);
            }
        }
        Ok(())
    }

    fn content(&mut self, path: &Path, meta: &Metadata) -> Result<Content> {
        let rdev = || {
            let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            let why = "device number does not fit the format";
            abi::encode_rdev(major, minor).ok_or_else(|| Error::source(path.as_os_str().as_bytes(), why))
        };
        Ok(match meta.mode() & u32::from(abi::S_IFMT) {
            m if m == u32::from(abi::S_IFDIR) => Content::dir(),
            m if m == u32::from(abi::S_IFREG) => {
                self.bytes = self.bytes.saturating_add(meta.len());
                if self.bytes > self.tree.limits().bytes {
                    return Err(self.tree.limits().too_many_bytes());
                }
                Content::File(Data::Host { path: path.to_path_buf(), len: meta.len() })
            }
            m if m == u32::from(abi::S_IFLNK) => {
                Content::Symlink(fs::read_link(path).doing("read", path)?.into_os_string().into_vec())
            }
            m if m == u32::from(abi::S_IFCHR) => Content::Char(rdev()?),
            m if m == u32::from(abi::S_IFBLK) => Content::Block(rdev()?),
            m if m == u32::from(abi::S_IFIFO) => Content::Fifo,
            m if m == u32::from(abi::S_IFSOCK) => Content::Socket,
            _ => return Err(Error::source(path.as_os_str().as_bytes(), "unknown kind of file")),
        })
    }

    fn attributes(&mut self, path: &Path, meta: &Metadata) -> Result<Meta> {
        Ok(Meta {
            mode: (meta.mode() & 0o7777) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            mtime_sec: meta.mtime(),
            mtime_nsec: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
            xattrs: self.xattrs(path)?,
        })
    }

    fn xattrs(&mut self, path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut names = vec![0; 1 << 16]; // the kernel's limit of a list
        let len = match rustix::fs::llistxattr(path, names.as_mut_slice()) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => 0,
            Err(e) => return Err(e).doing("list the extended attributes of", path),
        };
        let mut found = BTreeMap::new();
        for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
            if split_xattr(name).is_none() {
                self.notes.push(format!(
                    "{}: extended attribute {} left out",
                    path.display(),
                    name.escape_ascii()
                ));
                continue;
            }
            let mut value = vec![0; 1 << 16]; // the kernel's limit of a value
            let len = rustix::fs::lgetxattr(path, name, value.as_mut_slice())
                .doing("read an extended attribute of", path)?;
            value.truncate(len);
            found.insert(name.to_vec(), value);
        }
        Ok(found)
    }
}

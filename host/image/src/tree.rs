//! A file tree in memory: names, inodes and where their data is. Every source becomes one of these, and
//! the writer turns it into an image. Hard links are names that share a node.

use std::collections::BTreeMap;
use std::path::PathBuf;

use doppel_abi_image as abi;

use crate::{Error, Result};

/// How much a source may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of file data in total.
    pub bytes: u64,
    /// Files, directories and other nodes in total.
    pub nodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 16 << 30, nodes: 4_000_000 }
    }
}

impl Limits {
    /// The error for too much data.
    pub(crate) const fn too_many_bytes(&self) -> Error {
        Error::TooLarge { limit: self.bytes, unit: "bytes of data", option: "--max-bytes" }
    }

    const fn too_many_nodes(&self) -> Error {
        Error::TooLarge { limit: self.nodes, unit: "files", option: "--max-files" }
    }
}

/// Longest path accepted in a source.
const PATH_MAX: usize = 4095;
/// Most bytes of extended attributes of one node: what the format's 16-bit count can hold.
const XATTR_BYTES_MAX: usize = abi::xattr_area_size(u16::MAX);

/// Most bytes of names, link targets and extended attributes of a tree: they are kept in memory.
const NAMING_MAX: usize = 1 << 30;

/// What every node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, set-id and sticky bits (`0o7777`).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds.
    pub mtime_sec: i64,
    /// Modification time, nanoseconds.
    pub mtime_nsec: u32,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Where the bytes of a regular file are.
#[derive(Clone, Debug)]
pub enum Data {
    /// In memory.
    Bytes(Vec<u8>),
    /// `len` bytes at `offset` of the spool file.
    Spool {
        /// Start.
        offset: u64,
        /// Length.
        len: u64,
    },
    /// A file of the host.
    Host {
        /// Its path.
        path: PathBuf,
        /// Its length when the tree was read.
        len: u64,
    },
}

impl Data {
    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Spool { len, .. } | Self::Host { len, .. } => *len,
        }
    }

    /// Whether there is no data.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Content {
    /// Directory: names and nodes.
    Dir(BTreeMap<Vec<u8>, usize>),
    /// Regular file.
    File(Data),
    /// Symbolic link and its target.
    Symlink(Vec<u8>),
    /// Character device, packed number.
    Char(u32),
    /// Block device, packed number.
    Block(u32),
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

impl Content {
    /// An empty directory.
    #[must_use]
    pub const fn dir() -> Self {
        Self::Dir(BTreeMap::new())
    }

    /// The file-type bits of the mode.
    #[must_use]
    pub const fn type_bits(&self) -> u16 {
        match self {
            Self::Dir(_) => abi::S_IFDIR,
            Self::File(_) => abi::S_IFREG,
            Self::Symlink(_) => abi::S_IFLNK,
            Self::Char(_) => abi::S_IFCHR,
            Self::Block(_) => abi::S_IFBLK,
            Self::Fifo => abi::S_IFIFO,
            Self::Socket => abi::S_IFSOCK,
        }
    }
}

/// An inode of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) meta: Meta,
    pub(crate) content: Content,
}

/// A file tree. Node 0 is the root directory. Replaced nodes stay behind unreferenced.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    limits: Limits,
    /// Bytes of names, link targets and extended attributes so far.
    naming: usize,
}

impl Tree {
    /// A root directory (0755, root, mtime 0) and nothing else.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let meta = Meta { mode: 0o755, ..Meta::default() };
        Self { nodes: vec![Node { meta, content: Content::dir() }], limits, naming: 0 }
    }

    /// The limits the tree was made with.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Puts a node at `path`. Missing parents are made; an entry of the same name is replaced, except that
    /// a directory put over a directory only takes the new attributes. Returns the node's number.
    pub fn insert(&mut self, path: &[u8], meta: Meta, content: Content) -> Result<usize> {
        check(path, &meta, &content)?;
        let names = components(path)?;
        let Some((last, parents)) = names.split_last() else {
            if !matches!(content, Content::Dir(_)) {
                return Err(Error::source(path, "the root must be a directory"));
            }
            self.nodes[0].meta = meta;
            return Ok(0);
        };
        let parent = self.make_parents(path, parents)?;
        if let Some(old) = self.child(parent, last) {
            match (&self.nodes[old].content, &content) {
                (Content::Dir(_), Content::Dir(_)) => {
                    self.nodes[old].meta = meta;
                    return Ok(old);
                }
                (Content::Dir(children), _) if !children.is_empty() => {
                    return Err(Error::source(path, "would replace a directory that is not empty"));
                }
                _ => {}
            }
        }
        let node = self.push(meta, content)?;
        self.set_child(parent, last, node)?;
        Ok(node)
    }

    /// Adds `path` as a further name of the node at `target`.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let mut node = 0;
        for name in components(target)? {
            node = self.child(node, name).ok_or_else(|| {
                Error::source(path, format!("hard link to {}, which is not there", target.escape_ascii()))
            })?;
        }
        if matches!(self.nodes[node].content, Content::Dir(_)) {
            return Err(Error::source(path, "hard link to a directory"));
        }
        let names = components(path)?;
        let (last, parents) =
            names.split_last().ok_or_else(|| Error::source(path, "hard link without a name"))?;
        let parent = self.make_parents(path, parents)?;
        if let Some(old) = self.child(parent, last)
            && matches!(self.nodes[old].content, Content::Dir(_))
        {
            return Err(Error::source(path, "hard link would replace a directory"));
        }
        self.set_child(parent, last, node)
    }

    /// Adds a node that has no name yet.
    pub(crate) fn push(&mut self, meta: Meta, content: Content) -> Result<usize> {
        if self.nodes.len() as u64 >= self.limits.nodes {
            return Err(self.limits.too_many_nodes());
        }
        let attributes: usize = meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        let target = if let Content::Symlink(target) = &content { target.len() } else { 0 };
        self.charge(attributes + target)?;
        self.nodes.push(Node { meta, content });
        Ok(self.nodes.len() - 1)
    }

    /// Gives `node` the name `name` in directory `parent`.
    pub(crate) fn set_child(&mut self, parent: usize, name: &[u8], node: usize) -> Result<()> {
        self.charge(name.len())?;
        if let Content::Dir(children) = &mut self.nodes[parent].content {
            children.insert(name.to_vec(), node);
        }
        Ok(())
    }

    /// Accounts for bytes the tree keeps in memory.
    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.naming += bytes;
        if self.naming > NAMING_MAX {
            return Err(Error::source(b"", "more than 1 GiB of names, link targets and attributes"));
        }
        Ok(())
    }

    fn child(&self, parent: usize, name: &[u8]) -> Option<usize> {
        match &self.nodes[parent].content {
            Content::Dir(children) => children.get(name).copied(),
            _ => None,
        }
    }

    /// The directory that `parents` name, made where missing. Never goes through a symbolic link.
    fn make_parents(&mut self, path: &[u8], parents: &[&[u8]]) -> Result<usize> {
        let mut at = 0;
        for name in parents {
            at = match self.child(at, name) {
                Some(child) => child,
                None => {
                    let node = self.push(Meta { mode: 0o755, ..Meta::default() }, Content::dir())?;
                    self.set_child(at, name, node)?;
                    node
                }
            };
            match self.nodes[at].content {
                Content::Dir(_) => {}
                Content::Symlink(_) => {
                    let why = format!("goes through the symbolic link {}", name.escape_ascii());
                    return Err(Error::source(path, why));
                }
                _ => return Err(Error::source(path, format!("{} is not a directory", name.escape_ascii()))),
            }
        }
        Ok(at)
    }
}

/// The names of a relative path; refuses what could point out of the tree.
fn components(path: &[u8]) -> Result<Vec<&[u8]>> {
    if path.starts_with(b"/") {
        return Err(Error::source(path, "absolute path in an archive"));
    }
    if path.len() > PATH_MAX {
        return Err(Error::source(&path[..80], "path longer than 4095 bytes"));
    }
    if path.contains(&0) {
        return Err(Error::source(path, "NUL in a path"));
    }
    let mut names = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(Error::source(path, "`..` in a path")),
            _ if name.len() > abi::NAME_MAX => {
                return Err(Error::source(path, "name longer than 255 bytes"));
            }
            _ => names.push(name),
        }
    }
    Ok(names)
}

/// Refuses what the format cannot hold.
pub(crate) fn check(path: &[u8], meta: &Meta, content: &Content) -> Result<()> {
    if meta.mtime_nsec > 999_999_999 {
        return Err(Error::source(path, "nanoseconds of the modification time out of range"));
    }
    if let Content::Symlink(target) = content
        && (target.is_empty() || target.len() > PATH_MAX || target.contains(&0))
    {
        return Err(Error::source(path, "impossible target of a symbolic link"));
    }
    let mut total = abi::XattrHeader::SIZE;
    for (name, value) in &meta.xattrs {
        let (_, rest) = split_xattr(name).ok_or_else(|| {
            Error::source(path, format!("extended attribute {} has no known prefix", name.escape_ascii()))
        })?;
        if rest.len() > abi::NAME_MAX || value.len() > usize::from(u16::MAX) {
            return Err(Error::source(
                path,
                format!("extended attribute {} is too long", name.escape_ascii()),
            ));
        }
        total += abi::XattrEntry::SIZE + rest.len() + value.len() + abi::XATTR_ALIGN;
    }
    if total > XATTR_BYTES_MAX {
        return Err(Error::source(path, "more extended attributes than an inode can hold"));
    }
    Ok(())
}

/// Prefix number and rest of an extended attribute's name, if the format knows the prefix.
pub(crate) fn split_xattr(name: &[u8]) -> Option<(u8, &[u8])> {
    abi::XATTR_PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        // The access-control names are whole names, the others are prefixes of one.
        (prefix.ends_with(b".") != rest.is_empty()).then_some((*index, rest))
    })
}

mod layer;
pub(crate) use layer::Layer;

#[cfg(test)]
mod tests;

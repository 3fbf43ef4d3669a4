//! Checks an image as a whole: its digest, and that every inode, name and attribute can be read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use doppel_abi_image as abi;
use doppel_erofs::{Erofs, Inode, Kind};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::IoContext;
use crate::store::{Counts, OpenImage};
use crate::{Error, Result, patch};

/// What a complete check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// What the image holds.
    pub counts: Counts,
    /// Names in all directories, without `.` and `..`.
    pub names: u64,
    /// Files and directories with extended attributes.
    pub with_xattrs: u64,
    /// Files whose mode has set-user-id or set-group-id.
    pub set_id: u64,
}

impl OpenImage {
    /// Reads every byte: the digest must be the recorded one and the whole tree must be sound.
    pub fn verify(&self) -> Result<Inspection> {
        let damaged = |why: String| Error::Damaged { image: self.path.display().to_string(), why };
        let digest = digest(&self.file, &self.path)?;
        if digest != self.record.digest {
            return Err(damaged(format!("its digest is {digest}")));
        }
        let map = doppel_sys::FileMap::new(&self.file).doing("map", &self.path)?;
        verify(&map).map_err(damaged)
    }
}

fn digest(mut file: &File, path: &Path) -> Result<String> {
    file.rewind().doing("read", path)?;
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 18];
    loop {
        match file.read(&mut buf) {
            Ok(0) => return Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect()),
            Ok(n) => hash.update(&buf[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).doing("read", path),
        }
    }
}

/// Walks the whole image. The error is a sentence for people.
pub fn verify(image: &[u8]) -> std::result::Result<Inspection, String> {
    let result = walk(image)?;
    let fs = Erofs::open(image).map_err(|e| e.to_string())?;
    patch::verify(image, &fs, blocks_end(image))?;
    Ok(result)
}

/// Whether another reader, the host's kernel, can be given the file system: the whole tree is sound, and the image has
/// nothing that is not checked here. The error is a sentence for people.
pub fn check_for_mount(image: &[u8]) -> std::result::Result<(), String> {
    let raw = image.get(abi::SUPER_OFFSET..).and_then(|rest| rest.first_chunk::<{ abi::Superblock::SIZE }>());
    let of = abi::Superblock::decode(raw.ok_or("not an EROFS image")?);
    let known = abi::COMPAT_SB_CHKSUM | abi::COMPAT_MTIME | XATTR_FILTER;
    let beyond = of.feature_compat & !known != 0
        || of.sb_extslots != 0
        || of.compr_algs != 0
        || of.devt_slotoff != 0
        || (of.xattr_prefix_count, of.xattr_prefix_start) != (0, 0)
        || of.packed_nid != 0
        || of.xattr_filter_reserved != 0
        || of.reserved != [0; 23];
    if beyond {
        return Err("its superblock has more than is checked before an image is mounted".into());
    }
    walk(image).map(drop)
}

fn walk(image: &[u8]) -> std::result::Result<Inspection, String> {
    let fs = Erofs::open(image).map_err(|e| e.to_string())?;
    let mut walk = Walk {
        fs,
        result: Inspection { counts: Counts::default(), names: 0, with_xattrs: 0, set_id: 0 },
        links: HashMap::new(),
        single: HashSet::new(),
        dirs: HashSet::new(),
        stack: Vec::new(),
    };
    let root = walk.inode(fs.root_nid(), b"/")?;
    walk.count(&root, b"/")?;
    walk.dirs.insert(root.nid);
    walk.stack.push((root, root.nid, b"/".to_vec()));
    while let Some((dir, parent, path)) = walk.stack.pop() {
        walk.directory(&dir, parent, &path)?;
    }
    for (names, inode, path) in walk.links.values() {
        if inode.nlink != *names {
            return Err(at(path, LINKS));
        }
    }
    Ok(walk.result)
}

/// Where the file system ends: what follows is the patch section.
fn blocks_end(image: &[u8]) -> u64 {
    let raw = image[abi::SUPER_OFFSET..].first_chunk().copied().unwrap_or([0; abi::Superblock::SIZE]);
    u64::from(abi::Superblock::decode(&raw).blocks) << abi::BLOCK_BITS
}

fn at(path: &[u8], why: impl std::fmt::Display) -> String {
    format!("{}: {why}", path.escape_ascii())
}

struct Walk<'a> {
    fs: Erofs<'a>,
    result: Inspection,
    /// How many names were seen so far of every file that is no directory and has one; with several to come, itself and the
    /// first of them.
    links: HashMap<u64, (u32, Inode, Vec<u8>)>,
    /// Files with a single name.
    single: HashSet<u64>,
    dirs: HashSet<u64>,
    stack: Vec<(Inode, u64, Vec<u8>)>,
}

/// A hint in each inode about which attributes it has not; feature of newer writers.
const XATTR_FILTER: u32 = 0x4;
/// What is wrong with a file that has other than as many names as it says.
const LINKS: &str = "its link count is wrong";

type Check<T> = std::result::Result<T, String>;

impl Walk<'_> {
    fn inode(&self, nid: u64, path: &[u8]) -> Check<Inode> {
        self.fs.inode(nid).map_err(|e| at(path, e))
    }

    fn directory(&mut self, dir: &Inode, parent: u64, path: &[u8]) -> Check<()> {
        // A name takes at least 13 bytes, so an honest image cannot hold more; one whose directories share
        // blocks could keep us busy for days.
        let most = self.fs.image().len() as u64 / (abi::Dirent::SIZE as u64 + 1);
        let mut entries = Vec::new();
        let mut previous: &[u8] = b"";
        let mut sorted = true;
        let listed = self.fs.readdir(dir, 0, |entry| {
            sorted &= previous < entry.name;
            previous = entry.name;
            entries.push(entry);
            sorted && entries.len() as u64 <= most
        });
        listed.map_err(|e| at(path, e))?;
        if !sorted {
            return Err(at(path, "its names are not sorted"));
        }
        let (mut dot, mut dotdot) = (false, false);
        for entry in entries {
            match entry.name {
                b"." => dot = entry.nid == dir.nid,
                b".." => dotdot = entry.nid == parent,
                name => {
                    self.result.names += 1;
                    if self.result.names > most {
                        return Err(at(path, "directories share blocks"));
                    }
                    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                    let child = [path, slash, name].concat();
                    let inode = self.inode(entry.nid, &child)?;
                    if entry.file_type != abi::file_type_of_mode(inode.mode) {
                        return Err(at(&child, "its directory entry names another kind of file"));
                    }
                    self.child(inode, dir.nid, child)?;
                }
            }
        }
        if dot && dotdot { Ok(()) } else { Err(at(path, "its `.` or `..` is wrong")) }
    }

    fn child(&mut self, inode: Inode, parent: u64, path: Vec<u8>) -> Check<()> {
        if inode.is_dir() {
            if !self.dirs.insert(inode.nid) {
                return Err(at(&path, "is a directory with two names"));
            }
            self.count(&inode, &path)?;
            self.stack.push((inode, parent, path));
            return Ok(());
        }
        // Most have one name, and need no more memory than that they were seen.
        if inode.nlink == 1 {
            return if self.single.insert(inode.nid) {
                self.count(&inode, &path)
            } else {
                Err(at(&path, LINKS))
            };
        }
        if let Some((names, ..)) = self.links.get_mut(&inode.nid) {
            *names = names.saturating_add(1);
            return Ok(());
        }
        self.count(&inode, &path)?;
        self.links.insert(inode.nid, (1, inode, path));
        Ok(())
    }

    /// Checks an inode by itself and counts it.
    fn count(&mut self, inode: &Inode, path: &[u8]) -> Check<()> {
        let counts = &mut self.result.counts;
        match inode.kind {
            Kind::Directory => counts.directories += 1,
            Kind::Regular => {
                counts.files += 1;
                counts.bytes = counts.bytes.saturating_add(inode.size);
                let range = self.fs.data_range(inode).map_err(|e| at(path, e))?;
                if inode.size > 0 && range.is_none() {
                    return Err(at(path, "its data cannot be mapped page by page"));
                }
            }
            Kind::Symlink => {
                counts.symlinks += 1;
                self.fs.symlink(inode).map_err(|e| at(path, e))?;
            }
            _ => counts.special += 1,
        }
        let mut xattrs = 0;
        let read = self.fs.xattrs(inode, |_, _, _| {
            xattrs += 1;
            true
        });
        read.map_err(|e| at(path, e))?;
        self.result.with_xattrs += u64::from(xattrs > 0);
        self.result.set_id += u64::from(inode.kind == Kind::Regular && inode.mode & 0o6000 != 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Writes a [`Tree`] as an EROFS image, front to back, in one canonical form.
//!
//! Layout: superblock and inodes from block 0 on, then the blocks of directories, then the data of regular
//! files, each file contiguous, block-aligned and zero-padded; behind the file system, the patch section. Inodes are 64-byte, in depth-first order of
//! sorted names; the end of a directory and the target of a symbolic link sit behind their inode. Nothing
//! but the tree decides a byte: no build time, a fixed volume id. Format document: `fs/erofs/erofs_fs.h`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use doppel_abi_image as abi;
use sha2::{Digest, Sha256};

use crate::error::IoContext;
use crate::patch::{PatchReport, section};
use crate::store::Counts;
use crate::tree::{Content, Data, Tree, split_xattr};
use crate::watcher::{Step, Watcher};
use crate::{Error, Result};

const BLOCK: usize = abi::BLOCK_SIZE;
/// Where the first inode goes: behind the superblock.
const FIRST_INODE: usize = abi::SUPER_OFFSET + abi::Superblock::SIZE;
/// Volume id of every image: images are told apart by digest.
const UUID: [u8; 16] = *b"doppel-root-v1\0\0";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// SHA-256 of the image, in hexadecimal.
    pub digest: String,
    /// Size of the image in bytes.
    pub size: u64,
    /// What it holds.
    pub counts: Counts,
    /// What was patched; `None` without a patch section.
    pub patches: Option<PatchReport>,
}

/// Where one node goes.
struct Plan {
    node: usize,
    parent: usize,
    offset: usize,
    nlink: u32,
    xattrs: Vec<u8>,
    /// Size of the data in bytes.
    size: u64,
    /// Bytes of the data that sit behind the inode.
    inline: usize,
    /// First block of the rest.
    start: u32,
}

/// Writes the image of `tree` to `out`. `spool` holds the data of [`Data::Spool`] files; `path` is for messages.
/// With `patch`, the patch section follows; `out` must be readable then. `watcher` is told how far it is.
pub fn write(
    tree: &Tree,
    spool: Option<&File>,
    out: &File,
    path: &Path,
    patch: bool,
    watcher: &Watcher,
) -> Result<Written> {
    let mut plans = order(tree)?;
    let meta_len = place(tree, &mut plans)?;
    let blocks = assign_blocks(tree, &mut plans, meta_len / BLOCK)?;
    let nids = nids(tree, &plans);
    let (meta, counts) = metadata(tree, &plans, &nids, meta_len, blocks);
    let mut sink = Sink { out: BufWriter::with_capacity(1 << 20, out), hash: Sha256::new(), at: 0, path };
    sink.put(&meta)?;
    for plan in &plans {
        match &tree.nodes[plan.node].content {
            Content::Dir(_) => {
                let bytes = directory(tree, &nids, plan);
                sink.put(&bytes[..bytes.len() - plan.inline])?;
            }
            Content::Symlink(target) if plan.inline == 0 => sink.put(target)?,
            _ => {}
        }
        sink.pad()?;
    }
    for plan in &plans {
        if let Content::File(data) = &tree.nodes[plan.node].content {
            copy(data, spool, &mut sink)?;
            sink.pad()?;
            watcher.tell(Step::Write { done: sink.at, total: u64::from(blocks) * BLOCK as u64 });
        }
    }
    let patches =
        if patch { Some(append_patches(tree, &plans, &nids, out, &mut sink, watcher)?) } else { None };
    let size = sink.at;
    sink.out.flush().doing("write", path)?;
    let digest = sink.hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(Written { digest, size, counts, patches })
}

/// Scans the files just written, and writes the patch section.
fn append_patches(
    tree: &Tree,
    plans: &[Plan],
    nids: &[u64],
    out: &File,
    sink: &mut Sink<'_>,
    watcher: &Watcher,
) -> Result<PatchReport> {
    let files: Vec<_> = plans
        .iter()
        .filter(|p| matches!(tree.nodes[p.node].content, Content::File(_)) && p.size > 0)
        .map(|p| section::FileExtent {
            nid: nids[p.node],
            offset: u64::from(p.start) * BLOCK as u64,
            len: p.size,
            node: p.node,
        })
        .collect();
    sink.out.flush().doing("write", sink.path)?;
    // Only added to from here on: what is mapped does not change.
    let image = doppel_sys::FileMap::new(out).doing("map", sink.path)?;
    section::write(&image, &files, &|node| path_of(tree, plans, node), watcher, |bytes| sink.put(bytes))
}

/// A path of a file, for people.
fn path_of(tree: &Tree, plans: &[Plan], node: usize) -> String {
    let (mut at, mut path) = (node, String::new());
    while let Some(parent) = plans.iter().find(|p| p.node == at).map(|p| p.parent).filter(|_| at != 0) {
        let Content::Dir(children) = &tree.nodes[parent].content else { break };
        let name = children.iter().find(|(_, child)| **child == at).map(|(name, _)| name.as_slice());
        path = format!("/{}{path}", name.unwrap_or_default().escape_ascii());
        at = parent;
    }
    path
}

/// Depth-first order of the nodes that have a name, with parents and link counts.
fn order(tree: &Tree) -> Result<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::with_capacity(tree.nodes.len());
    let mut seen: Vec<Option<usize>> = vec![None; tree.nodes.len()];
    let mut stack = vec![(0, 0)];
    while let Some((node, parent)) = stack.pop() {
        if let Some(first) = seen[node] {
            plans[first].nlink += 1;
            continue;
        }
        seen[node] = Some(plans.len());
        let Some(entry) = tree.nodes.get(node) else { continue };
        let (nlink, size) = match &entry.content {
            Content::Dir(children) => {
                let is_dir = |n: &&usize| matches!(tree.nodes[**n].content, Content::Dir(_));
                stack.extend(children.values().rev().map(|child| (*child, node)));
                let dirs = children.values().filter(is_dir).count();
                (u32::try_from(dirs + 2).unwrap_or(u32::MAX), directory_size(children) as u64)
            }
            Content::File(data) => (1, data.len()),
            Content::Symlink(target) => (1, target.len() as u64),
            _ => (1, 0),
        };
        let xattrs = xattr_area(&entry.meta.xattrs);
        plans.push(Plan { node, parent, offset: 0, nlink, xattrs, size, inline: 0, start: 0 });
    }
    Ok(plans)
}

/// Gives every inode its place; returns the size of the metadata area, in whole blocks.
fn place(tree: &Tree, plans: &mut [Plan]) -> Result<usize> {
    let mut at = FIRST_INODE;
    for plan in plans {
        let head = abi::ExtendedInode::SIZE + plan.xattrs.len();
        plan.inline = match tree.nodes[plan.node].content {
            Content::Dir(_) | Content::Symlink(_) => (plan.size % BLOCK as u64) as usize,
            _ => 0,
        };
        if head + plan.inline > BLOCK {
            plan.inline = 0;
        }
        let need = head + plan.inline;
        // Inline data must not cross a block; keep the inode in one block too where it fits.
        if need <= BLOCK && at % BLOCK + need > BLOCK {
            at = at.next_multiple_of(BLOCK);
        }
        plan.offset = at;
        at = (at + need).next_multiple_of(abi::SLOT_SIZE);
    }
    Ok(at.next_multiple_of(BLOCK))
}

/// Gives blocks to directories, then to files; returns the number of blocks of the image.
fn assign_blocks(tree: &Tree, plans: &mut [Plan], first: usize) -> Result<u32> {
    let too_large = || Error::source(b"", "the image would be larger than the format allows (16 TiB)");
    let mut next = first as u64;
    for files in [false, true] {
        for plan in plans.iter_mut() {
            if matches!(tree.nodes[plan.node].content, Content::File(_)) != files {
                continue;
            }
            let blocks = (plan.size - plan.inline as u64).div_ceil(BLOCK as u64);
            if blocks > 0 {
                plan.start = u32::try_from(next).map_err(|_| too_large())?;
                next = next.checked_add(blocks).ok_or_else(too_large)?;
            }
        }
    }
    u32::try_from(next).ok().filter(|n| *n < u32::MAX).ok_or_else(too_large)
}

/// Inode number of each node that has a plan.
fn nids(tree: &Tree, plans: &[Plan]) -> Vec<u64> {
    let mut nids = vec![0; tree.nodes.len()];
    for plan in plans {
        nids[plan.node] = (plan.offset / abi::SLOT_SIZE) as u64;
    }
    nids
}

/// Superblock, inodes, extended attributes and inline data.
fn metadata(tree: &Tree, plans: &[Plan], nids: &[u64], len: usize, blocks: u32) -> (Vec<u8>, Counts) {
    let mut meta = vec![0; len];
    let mut counts = Counts::default();
    for (number, plan) in plans.iter().enumerate() {
        let node = &tree.nodes[plan.node];
        let layout = if plan.inline > 0 { abi::LAYOUT_FLAT_INLINE } else { abi::LAYOUT_FLAT_PLAIN };
        let u = match node.content {
            Content::Char(rdev) | Content::Block(rdev) => rdev,
            _ => plan.start,
        };
        let icount = match plan.xattrs.len() {
            0 => 0,
            n => (n - abi::XattrHeader::SIZE) / abi::XATTR_ALIGN + 1,
        };
        let inode = abi::ExtendedInode {
            format: abi::FORMAT_EXTENDED | layout << abi::FORMAT_LAYOUT_SHIFT,
            xattr_icount: icount as u16, // `tree::check` bounds the area
            mode: node.content.type_bits() | (node.meta.mode & 0o7777),
            size: plan.size,
            u,
            ino: u32::try_from(number + 1).unwrap_or(u32::MAX),
            uid: node.meta.uid,
            gid: node.meta.gid,
            mtime: node.meta.mtime_sec.cast_unsigned(),
            mtime_nsec: node.meta.mtime_nsec,
            nlink: plan.nlink,
            ..abi::ExtendedInode::default()
        };
        let mut at = plan.offset;
        let mut put = |bytes: &[u8]| {
            meta[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&inode.encode());
        put(&plan.xattrs);
        match &node.content {
            Content::Dir(_) if plan.inline > 0 => {
                let bytes = directory(tree, nids, plan);
                put(&bytes[bytes.len() - plan.inline..]);
            }
            Content::Symlink(target) if plan.inline > 0 => put(target),
            _ => {}
        }
        counts.add(&node.content);
    }
    let superblock = abi::Superblock {
        magic: abi::MAGIC,
        feature_compat: abi::COMPAT_SB_CHKSUM | abi::COMPAT_MTIME,
        blkszbits: abi::BLOCK_BITS,
        root_nid: (FIRST_INODE / abi::SLOT_SIZE) as u16,
        inos: plans.len() as u64,
        blocks,
        uuid: UUID,
        ..abi::Superblock::default()
    };
    meta[abi::SUPER_OFFSET..FIRST_INODE].copy_from_slice(&superblock.encode());
    let checksum = abi::crc32c(!0, &meta[abi::SUPER_OFFSET..BLOCK]);
    let field = abi::SUPER_OFFSET + abi::Superblock::CHECKSUM_OFFSET;
    meta[field..field + 4].copy_from_slice(&checksum.to_le_bytes());
    (meta, counts)
}

/// The extended-attribute area of an inode: empty, or a header and all attributes.
fn xattr_area(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut area = Vec::new();
    for (name, value) in xattrs {
        let Some((name_index, rest)) = split_xattr(name) else { continue };
        if area.is_empty() {
            area.extend(abi::XattrHeader::default().encode());
        }
        // `tree::check` has bounded both lengths.
        let entry =
            abi::XattrEntry { name_len: rest.len() as u8, name_index, value_size: value.len() as u16 };
        let end = area.len() + entry.total_size();
        area.extend(entry.encode());
        area.extend(rest);
        area.extend(value);
        area.resize(end, 0);
    }
    area
}

/// The entries of a directory, `.` and `..` among them, in the order of bytes that lookup needs.
fn entries(children: &BTreeMap<Vec<u8>, usize>, node: usize, parent: usize) -> Vec<(&[u8], usize)> {
    let names = children.iter().map(|(name, child)| (name.as_slice(), *child));
    let mut all: Vec<_> = [(&b"."[..], node), (&b".."[..], parent)].into_iter().chain(names).collect();
    all.sort_unstable();
    all
}

/// How many of `rest`, at least one, fill the next block of a directory, and the bytes they take.
fn fill(rest: &[(&[u8], usize)]) -> (usize, usize) {
    let (mut count, mut used) = (0, 0);
    for (name, _) in rest {
        let need = abi::Dirent::SIZE + name.len();
        if used + need > BLOCK {
            break;
        }
        used += need;
        count += 1;
    }
    (count, used)
}

/// Bytes a directory takes: full blocks, then what the last one uses.
fn directory_size(children: &BTreeMap<Vec<u8>, usize>) -> usize {
    let entries = entries(children, 0, 0);
    let (mut size, mut rest) = (0usize, entries.as_slice());
    while !rest.is_empty() {
        let (count, used) = fill(rest);
        size = size.next_multiple_of(BLOCK) + used;
        rest = &rest[count..];
    }
    size
}

/// The bytes of a directory.
fn directory(tree: &Tree, nids: &[u64], plan: &Plan) -> Vec<u8> {
    let mut out = Vec::with_capacity(plan.size as usize);
    let Content::Dir(children) = &tree.nodes[plan.node].content else { return out };
    let entries = entries(children, plan.node, plan.parent);
    let mut rest = entries.as_slice();
    while !rest.is_empty() {
        let (block, later) = rest.split_at(fill(rest).0);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
        let mut nameoff = block.len() * abi::Dirent::SIZE;
        for (name, node) in block {
            let file_type = abi::file_type_of_mode(tree.nodes[*node].content.type_bits());
            let dirent = abi::Dirent { nid: nids[*node], nameoff: nameoff as u16, file_type, reserved: 0 };
            out.extend(dirent.encode());
            nameoff += name.len();
        }
        for (name, _) in block {
            out.extend(*name);
        }
        rest = later;
    }
    out
}

/// Copies the data of one regular file, which must have exactly the length it was planned with.
fn copy(data: &Data, spool: Option<&File>, sink: &mut Sink<'_>) -> Result<()> {
    let changed =
        |path: &Path| Error::source(path.as_os_str().as_encoded_bytes(), "changed while it was read");
    match data {
        Data::Bytes(bytes) => sink.put(bytes),
        Data::Spool { offset, len } => {
            let name = Path::new("spool file");
            let mut file = spool.ok_or_else(|| changed(name))?;
            file.seek(SeekFrom::Start(*offset)).doing("read", name)?;
            if sink.stream(&mut file.take(*len), name)? == *len { Ok(()) } else { Err(changed(name)) }
        }
        Data::Host { path, len } => {
            let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits();
            let mut options = File::options();
            let options = options.read(true).custom_flags(nofollow.cast_signed());
            let file = options.open(path).doing("read", path)?;
            // One byte more than planned shows a file that has grown.
            if sink.stream(&mut file.take(len + 1), path)? == *len { Ok(()) } else { Err(changed(path)) }
        }
    }
}

/// The image file, hashed as it is written.
struct Sink<'a> {
    out: BufWriter<&'a File>,
    hash: Sha256,
    at: u64,
    path: &'a Path,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(bytes).doing("write", self.path)
    }

    /// Zeros up to the next block.
    fn pad(&mut self) -> Result<()> {
        let used = (self.at % BLOCK as u64) as usize;
        if used == 0 { Ok(()) } else { self.put(&[0; BLOCK][used..]) }
    }

    fn stream(&mut self, from: &mut impl Read, name: &Path) -> Result<u64> {
        let start = self.at;
        let mut buf = vec![0; 1 << 18];
        loop {
            match from.read(&mut buf) {
                Ok(0) => return Ok(self.at - start),
                Ok(n) => self.put(&buf[..n])?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).doing("read", name),
            }
        }
    }
}

#[cfg(test)]
mod tests;

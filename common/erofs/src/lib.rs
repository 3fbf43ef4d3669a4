//! Reader of uncompressed EROFS images, for the guest kernel and the image tools.
//!
//! The whole image is one byte slice (the guest maps it read-only; tools map or read the file). Nothing
//! is cached and nothing allocated: an [`Inode`] is a small decoded copy that the caller keeps.
//!
//! Boundary: **the image is hostile.** Every offset and length is checked against the slice with checked
//! arithmetic before it is used; a broken image gives [`Error::Corrupt`], never a panic, and every loop is
//! bounded by the image's size. What the reader does *not* promise is that directories form a tree: a
//! hostile image may hold cycles, so whoever walks must bound the walk (as path lookup does).
//!
//! Key types: [`Erofs`] (an opened image), [`Inode`], [`Extent`] (where a byte range lives), [`DirEntry`].
#![no_std]
#![forbid(unsafe_code)]

mod data;
mod dir;
mod inode;
mod xattr;

use core::fmt;

use doppel_abi_image as abi;

pub use data::Extent;
pub use dir::DirEntry;
pub use inode::{Inode, Kind};

/// Why an image, or a part of it, cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no EROFS superblock here.
    NotErofs,
    /// The image is shorter than its superblock says.
    Truncated,
    /// The superblock's checksum is wrong.
    Checksum,
    /// A valid image that uses something Doppel does not read; the text names it.
    Unsupported(&'static str),
    /// The image breaks the format; the text names the rule.
    Corrupt(&'static str),
    /// The operation does not apply to this kind of inode (a caller's mistake, not the image's).
    WrongKind,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotErofs => f.write_str("not an EROFS image"),
            Self::Truncated => f.write_str("image is truncated"),
            Self::Checksum => f.write_str("superblock checksum does not match"),
            Self::Unsupported(what) => write!(f, "unsupported image: {what}"),
            Self::Corrupt(what) => write!(f, "corrupt image: {what}"),
            Self::WrongKind => f.write_str("operation does not apply to this kind of file"),
        }
    }
}

impl core::error::Error for Error {}

/// Result of a reader operation.
pub type Result<T> = core::result::Result<T, Error>;

/// An opened image.
#[derive(Clone, Copy, Debug)]
pub struct Erofs<'a> {
    image: &'a [u8],
    meta: u64,
    xattrs: u64,
    root_nid: u64,
    build_time: (i64, u32),
    uuid: [u8; 16],
    blocks: u32,
}

/// Bytes of an image that begins so; these are a block at least.
///
/// # Errors
/// [`Error::NotErofs`].
pub fn size_of(head: &[u8]) -> Result<u64> {
    let raw = head.get(abi::SUPER_OFFSET..).and_then(|rest| rest.first_chunk::<{ abi::Superblock::SIZE }>());
    let sb = abi::Superblock::decode(raw.ok_or(Error::NotErofs)?);
    if sb.magic == abi::MAGIC { Ok(u64::from(sb.blocks) << abi::BLOCK_BITS) } else { Err(Error::NotErofs) }
}

/// Everything but these incompatible features is refused.
const KNOWN_INCOMPAT: u32 = abi::INCOMPAT_ZERO_PADDING | abi::INCOMPAT_CHUNKED_FILE;

impl<'a> Erofs<'a> {
    /// Checks the superblock and the root directory. Cheap: touches the first block and the root inode.
    pub fn open(image: &'a [u8]) -> Result<Self> {
        let raw = image
            .get(abi::SUPER_OFFSET..)
            .and_then(|rest| rest.first_chunk::<{ abi::Superblock::SIZE }>())
            .ok_or(Error::NotErofs)?;
        let sb = abi::Superblock::decode(raw);
        if sb.magic != abi::MAGIC {
            return Err(Error::NotErofs);
        }
        if sb.blkszbits != abi::BLOCK_BITS {
            return Err(Error::Unsupported("block size is not 4096"));
        }
        if sb.feature_incompat & !KNOWN_INCOMPAT != 0 {
            return Err(Error::Unsupported("compression or another unknown feature"));
        }
        if sb.extra_devices != 0 {
            return Err(Error::Unsupported("data on another device"));
        }
        if sb.dirblkbits != 0 {
            return Err(Error::Unsupported("directory blocks larger than a block"));
        }
        let bytes = u64::from(sb.blocks) << abi::BLOCK_BITS;
        if bytes > image.len() as u64 || image.len() < abi::BLOCK_SIZE {
            return Err(Error::Truncated);
        }
        if sb.feature_compat & abi::COMPAT_SB_CHKSUM != 0 && !checksum_ok(image, sb.checksum) {
            return Err(Error::Checksum);
        }
        let fs = Self {
            image,
            meta: u64::from(sb.meta_blkaddr) << abi::BLOCK_BITS,
            xattrs: u64::from(sb.xattr_blkaddr) << abi::BLOCK_BITS,
            root_nid: u64::from(sb.root_nid),
            build_time: (sb.build_time.cast_signed(), sb.build_time_nsec.min(999_999_999)),
            uuid: sb.uuid,
            blocks: sb.blocks,
        };
        match fs.inode(fs.root_nid)?.kind {
            Kind::Directory => Ok(fs),
            _ => Err(Error::Corrupt("root is not a directory")),
        }
    }

    /// Inode number of the root directory.
    #[must_use]
    pub const fn root_nid(&self) -> u64 {
        self.root_nid
    }

    /// Number of 4096-byte blocks.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Volume id.
    #[must_use]
    pub const fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The bytes of the image.
    #[must_use]
    pub const fn image(&self) -> &'a [u8] {
        self.image
    }

    /// The same without its bytes, for who keeps these elsewhere.
    #[must_use]
    pub const fn detached(&self) -> Erofs<'static> {
        self.attached(&[])
    }

    /// The same with these bytes. If they are not those that it was opened with, what it says of them means nothing.
    #[must_use]
    pub const fn attached<'b>(&self, image: &'b [u8]) -> Erofs<'b> {
        let Self { image: _, meta, xattrs, root_nid, build_time, uuid, blocks } = *self;
        Erofs { image, meta, xattrs, root_nid, build_time, uuid, blocks }
    }

    /// `len` bytes at `offset`, if the image has them.
    fn bytes(&self, offset: u64, len: u64) -> Result<&'a [u8]> {
        let end = offset.checked_add(len).ok_or(Error::Corrupt("offset overflows"))?;
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        range
            .and_then(|(start, end)| self.image.get(start..end))
            .ok_or(Error::Corrupt("points outside the image"))
    }

    /// The `N` bytes of a structure at `offset`.
    fn array<const N: usize>(&self, offset: u64) -> Result<&'a [u8; N]> {
        self.bytes(offset, N as u64)?.first_chunk().ok_or(Error::Corrupt("points outside the image"))
    }
}

/// Whether the CRC-32C over the rest of block 0, its own field taken as zero, is `expected`.
fn checksum_ok(image: &[u8], expected: u32) -> bool {
    let field = abi::SUPER_OFFSET + abi::Superblock::CHECKSUM_OFFSET;
    let (Some(head), Some(tail)) =
        (image.get(abi::SUPER_OFFSET..field), image.get(field + 4..abi::BLOCK_SIZE))
    else {
        return false;
    };
    abi::crc32c(abi::crc32c(abi::crc32c(!0, head), &[0; 4]), tail) == expected
}

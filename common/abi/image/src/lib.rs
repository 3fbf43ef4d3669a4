//! The root-image format: EROFS, as the Linux kernel documents it (`fs/erofs/erofs_fs.h`).
//!
//! Only numbers and layouts live here, so that the reader inside the guest kernel, the writer in the
//! image store and their tests cannot disagree. All integers are little-endian on disk. Every structure
//! has `decode` and `encode` over exactly its on-disk bytes; neither can fail: whether a *value* makes
//! sense is the reader's business.
#![no_std]
#![forbid(unsafe_code)]

mod layout;
pub mod patch;

pub use layout::{ChunkIndex, CompactInode, Dirent, ExtendedInode, Superblock, XattrEntry, XattrHeader};

/// Magic number of the superblock.
pub const MAGIC: u32 = 0xE0F5_E1E2;
/// Byte offset of the superblock in the image.
pub const SUPER_OFFSET: usize = 1024;
/// log2 of the only block size Doppel accepts: files must be mappable page by page.
pub const BLOCK_BITS: u8 = 12;
/// Block size in bytes.
pub const BLOCK_SIZE: usize = 1 << BLOCK_BITS;
/// Inodes are addressed by `nid` in units of this many bytes from the start of the metadata area.
pub const SLOT_SIZE: usize = 32;
/// Shared extended attributes are addressed in units of this many bytes from the shared area.
pub const XATTR_ALIGN: usize = 4;
/// Longest file name.
pub const NAME_MAX: usize = 255;
/// A chunk address that stands for a hole.
pub const NULL_ADDR: u32 = u32::MAX;

/// Compatible feature: the superblock carries a CRC-32C.
pub const COMPAT_SB_CHKSUM: u32 = 0x1;
/// Compatible feature: time stamps are modification times.
pub const COMPAT_MTIME: u32 = 0x2;
/// Incompatible feature: LZ4 data is padded at the front (old mkfs sets it even when nothing is compressed).
pub const INCOMPAT_ZERO_PADDING: u32 = 0x1;
/// Incompatible feature: some files use the chunk layout.
pub const INCOMPAT_CHUNKED_FILE: u32 = 0x4;

/// `i_format` bit 0: the inode is of the extended kind.
pub const FORMAT_EXTENDED: u16 = 0x1;
/// `i_format`: shift of the data layout.
pub const FORMAT_LAYOUT_SHIFT: u16 = 1;
/// `i_format`: mask of the data layout after the shift.
pub const FORMAT_LAYOUT_MASK: u16 = 0x7;
/// `i_format`: every bit that has a meaning.
pub const FORMAT_ALL: u16 = 0xf;

/// Data layout: whole file in consecutive blocks.
pub const LAYOUT_FLAT_PLAIN: u16 = 0;
/// Data layout: compressed, full index. Not supported.
pub const LAYOUT_COMPRESSED_FULL: u16 = 1;
/// Data layout: consecutive blocks, and the last partial block right behind the inode.
pub const LAYOUT_FLAT_INLINE: u16 = 2;
/// Data layout: compressed, compact index. Not supported.
pub const LAYOUT_COMPRESSED_COMPACT: u16 = 3;
/// Data layout: chunks with an address table.
pub const LAYOUT_CHUNK_BASED: u16 = 4;

/// Chunk format: bits holding log2(chunk size) - log2(block size).
pub const CHUNK_BITS_MASK: u16 = 0x1f;
/// Chunk format: the table holds 8-byte [`ChunkIndex`] entries, not 4-byte block numbers.
pub const CHUNK_INDEXES: u16 = 0x20;

/// Directory entry type: unknown.
pub const FT_UNKNOWN: u8 = 0;
/// Directory entry type: regular file.
pub const FT_REG: u8 = 1;
/// Directory entry type: directory.
pub const FT_DIR: u8 = 2;
/// Directory entry type: character device.
pub const FT_CHR: u8 = 3;
/// Directory entry type: block device.
pub const FT_BLK: u8 = 4;
/// Directory entry type: FIFO.
pub const FT_FIFO: u8 = 5;
/// Directory entry type: socket.
pub const FT_SOCK: u8 = 6;
/// Directory entry type: symbolic link.
pub const FT_SYMLINK: u8 = 7;

/// Mask of the file type in a mode.
pub const S_IFMT: u16 = 0o170_000;
/// Mode: socket.
pub const S_IFSOCK: u16 = 0o140_000;
/// Mode: symbolic link.
pub const S_IFLNK: u16 = 0o120_000;
/// Mode: regular file.
pub const S_IFREG: u16 = 0o100_000;
/// Mode: block device.
pub const S_IFBLK: u16 = 0o060_000;
/// Mode: directory.
pub const S_IFDIR: u16 = 0o040_000;
/// Mode: character device.
pub const S_IFCHR: u16 = 0o020_000;
/// Mode: FIFO.
pub const S_IFIFO: u16 = 0o010_000;

/// Name prefixes of extended attributes, with the index that stands for each on disk.
pub const XATTR_PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// The directory-entry type that belongs to a mode.
#[must_use]
pub const fn file_type_of_mode(mode: u16) -> u8 {
    match mode & S_IFMT {
        S_IFREG => FT_REG,
        S_IFDIR => FT_DIR,
        S_IFCHR => FT_CHR,
        S_IFBLK => FT_BLK,
        S_IFIFO => FT_FIFO,
        S_IFSOCK => FT_SOCK,
        S_IFLNK => FT_SYMLINK,
        _ => FT_UNKNOWN,
    }
}

/// Packs a device number as `i_u` holds it (the kernel's `new_encode_dev`); `None` when it does not fit.
#[must_use]
pub const fn encode_rdev(major: u32, minor: u32) -> Option<u32> {
    if major > 0xfff || minor > 0xf_ffff {
        return None;
    }
    Some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// Splits a packed device number into major and minor.
#[must_use]
pub const fn decode_rdev(rdev: u32) -> (u32, u32) {
    ((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

/// CRC-32C (Castagnoli) without the final inversion, as the superblock checksum uses it (seed: all ones).
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    data.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0x82F6_3B78 & 0u32.wrapping_sub(c & 1)))
    })
}

/// Bytes the extended-attribute area behind an inode takes, from `i_xattr_icount`.
#[must_use]
pub const fn xattr_area_size(icount: u16) -> usize {
    if icount == 0 { 0 } else { XattrHeader::SIZE + XATTR_ALIGN * (icount as usize - 1) }
}

#[cfg(test)]
mod tests;

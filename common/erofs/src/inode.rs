//! Inodes: decoding either on-disk kind into one small value.

use doppel_abi_image as abi;

use crate::{Erofs, Error, Result};

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
}

/// Where an inode's data is. All offsets are into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// No data: devices, FIFOs, sockets, empty files.
    Empty,
    /// Consecutive bytes from `start`.
    Plain { start: u64 },
    /// The first `head` bytes are consecutive from `start`, the rest is at `tail`.
    Inline { start: u64, head: u64, tail: u64 },
    /// A table of chunks of `1 << bits` bytes.
    Chunks { table: u64, bits: u32, indexed: bool },
}

/// A decoded inode. Plain data: keep it, copy it; it stays valid as long as the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Number of the inode: its address in the image, and what `st_ino` should show. Hard links share it.
    pub nid: u64,
    /// Kind, as `mode` says.
    pub kind: Kind,
    /// File type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Size in bytes; 0 for devices, FIFOs and sockets. Never above `i64::MAX`.
    pub size: u64,
    /// Modification time, seconds since 1970.
    pub mtime_sec: i64,
    /// Modification time, nanoseconds below 10⁹.
    pub mtime_nsec: u32,
    /// Packed device number of a device, else 0; see [`Inode::device`].
    pub rdev: u32,
    pub(crate) layout: Layout,
    pub(crate) xattr_offset: u64,
    pub(crate) xattr_size: u64,
}

impl Inode {
    /// Major and minor number of a device.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        abi::decode_rdev(self.rdev)
    }

    /// Whether the inode is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Directory)
    }
}

/// The fields both on-disk kinds share.
struct Raw {
    inode_size: u64,
    format: u16,
    xattr_icount: u16,
    mode: u16,
    size: u64,
    u: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    mtime: (i64, u32),
}

impl Erofs<'_> {
    /// Decodes inode `nid`.
    pub fn inode(&self, nid: u64) -> Result<Inode> {
        let offset = nid
            .checked_mul(abi::SLOT_SIZE as u64)
            .and_then(|o| o.checked_add(self.meta))
            .ok_or(Error::Corrupt("inode number overflows"))?;
        let raw = self.raw_inode(offset)?;
        if raw.format & !abi::FORMAT_ALL != 0 {
            return Err(Error::Corrupt("unknown inode format bits"));
        }
        let kind = kind_of(raw.mode)?;
        let has_data = matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink);
        let size = if has_data { raw.size } else { 0 };
        if size > i64::MAX.cast_unsigned() {
            return Err(Error::Corrupt("file size overflows"));
        }
        let xattr_offset = offset + raw.inode_size;
        let xattr_size = abi::xattr_area_size(raw.xattr_icount) as u64;
        let layout = self.layout(&raw, size, xattr_offset + xattr_size)?;
        if kind == Kind::Directory && size > self.image().len() as u64 {
            return Err(Error::Corrupt("directory larger than the image"));
        }
        Ok(Inode {
            nid,
            kind,
            mode: raw.mode,
            uid: raw.uid,
            gid: raw.gid,
            nlink: raw.nlink,
            size,
            mtime_sec: raw.mtime.0,
            mtime_nsec: raw.mtime.1,
            rdev: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { raw.u } else { 0 },
            layout,
            xattr_offset,
            xattr_size,
        })
    }

    fn raw_inode(&self, offset: u64) -> Result<Raw> {
        let format = u16::from_le_bytes(*self.array(offset)?);
        if format & abi::FORMAT_EXTENDED == 0 {
            let i = abi::CompactInode::decode(self.array(offset)?);
            return Ok(Raw {
                inode_size: abi::CompactInode::SIZE as u64,
                format,
                xattr_icount: i.xattr_icount,
                mode: i.mode,
                size: u64::from(i.size),
                u: i.u,
                uid: u32::from(i.uid),
                gid: u32::from(i.gid),
                nlink: u32::from(i.nlink),
                mtime: self.build_time,
            });
        }
        let i = abi::ExtendedInode::decode(self.array(offset)?);
        if i.mtime_nsec > 999_999_999 {
            return Err(Error::Corrupt("nanoseconds out of range"));
        }
        Ok(Raw {
            inode_size: abi::ExtendedInode::SIZE as u64,
            format,
            xattr_icount: i.xattr_icount,
            mode: i.mode,
            size: i.size,
            u: i.u,
            uid: i.uid,
            gid: i.gid,
            nlink: i.nlink,
            mtime: (i.mtime.cast_signed(), i.mtime_nsec),
        })
    }

    /// Checks that all the data a flat layout names lies in the image; `after` is where the inode and its
    /// extended attributes end. A chunk table is checked when it is used.
    fn layout(&self, raw: &Raw, size: u64, after: u64) -> Result<Layout> {
        let layout = (raw.format >> abi::FORMAT_LAYOUT_SHIFT) & abi::FORMAT_LAYOUT_MASK;
        if size == 0 {
            return Ok(Layout::Empty);
        }
        let block = abi::BLOCK_SIZE as u64;
        let start = u64::from(raw.u) << abi::BLOCK_BITS;
        match layout {
            abi::LAYOUT_FLAT_PLAIN => {
                self.bytes(start, size)?;
                Ok(Layout::Plain { start })
            }
            abi::LAYOUT_FLAT_INLINE => {
                let head = (size - 1) / block * block;
                let tail_len = size - head;
                if after % block + tail_len > block {
                    return Err(Error::Corrupt("inline data crosses a block"));
                }
                self.bytes(after, tail_len)?;
                if head > 0 {
                    self.bytes(start, head)?;
                }
                Ok(Layout::Inline { start, head, tail: after })
            }
            abi::LAYOUT_CHUNK_BASED => {
                let format = u16::try_from(raw.u).map_err(|_| Error::Corrupt("unknown chunk format"))?;
                if format & !(abi::CHUNK_BITS_MASK | abi::CHUNK_INDEXES) != 0 {
                    return Err(Error::Unsupported("unknown chunk format"));
                }
                let indexed = format & abi::CHUNK_INDEXES != 0;
                let unit: u64 = if indexed { abi::ChunkIndex::SIZE as u64 } else { 4 };
                let bits = u32::from(abi::BLOCK_BITS) + u32::from(format & abi::CHUNK_BITS_MASK);
                let table = after.next_multiple_of(unit);
                let count = ((size - 1) >> bits) + 1;
                let len = count.checked_mul(unit).ok_or(Error::Corrupt("chunk table overflows"))?;
                self.bytes(table, len)?;
                Ok(Layout::Chunks { table, bits, indexed })
            }
            abi::LAYOUT_COMPRESSED_FULL | abi::LAYOUT_COMPRESSED_COMPACT => {
                Err(Error::Unsupported("compressed file"))
            }
            _ => Err(Error::Corrupt("unknown data layout")),
        }
    }
}

fn kind_of(mode: u16) -> Result<Kind> {
    Ok(match mode & abi::S_IFMT {
        abi::S_IFREG => Kind::Regular,
        abi::S_IFDIR => Kind::Directory,
        abi::S_IFLNK => Kind::Symlink,
        abi::S_IFCHR => Kind::CharDevice,
        abi::S_IFBLK => Kind::BlockDevice,
        abi::S_IFIFO => Kind::Fifo,
        abi::S_IFSOCK => Kind::Socket,
        _ => return Err(Error::Corrupt("unknown file type in a mode")),
    })
}

//! On-disk structures of EROFS. Layout pinned by the asserts below; document: `fs/erofs/erofs_fs.h`.

const fn assert_layouts() {
    assert!(size_of::<Superblock>() == Superblock::SIZE);
    assert!(size_of::<CompactInode>() == CompactInode::SIZE);
    assert!(size_of::<ExtendedInode>() == ExtendedInode::SIZE);
    assert!(size_of::<Dirent>() == Dirent::SIZE);
    assert!(size_of::<XattrHeader>() == XattrHeader::SIZE);
    assert!(size_of::<XattrEntry>() == XattrEntry::SIZE);
    assert!(size_of::<ChunkIndex>() == ChunkIndex::SIZE);
    assert!(core::mem::offset_of!(Superblock, uuid) == 48);
    assert!(core::mem::offset_of!(Superblock, feature_incompat) == 80);
    assert!(core::mem::offset_of!(Superblock, packed_nid) == 96);
    assert!(core::mem::offset_of!(ExtendedInode, mtime) == 32);
    assert!(core::mem::offset_of!(CompactInode, ino) == 20);
}
const _: () = assert_layouts();

/// `N` bytes at a constant offset of a structure's own bytes.
const fn field<const N: usize, const S: usize>(raw: &[u8; S], at: usize) -> [u8; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        out[i] = raw[at + i];
        i += 1;
    }
    out
}

fn put<const N: usize, const S: usize>(raw: &mut [u8; S], at: usize, value: [u8; N]) {
    raw[at..at + N].copy_from_slice(&value);
}

/// The superblock, 128 bytes at [`crate::SUPER_OFFSET`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Superblock {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// CRC-32C of the rest of block 0 from the superblock on, with this field zero.
    pub checksum: u32,
    /// Features an older reader may ignore.
    pub feature_compat: u32,
    /// log2 of the block size.
    pub blkszbits: u8,
    /// Extension slots of 16 bytes after the superblock.
    pub sb_extslots: u8,
    /// Inode number of the root directory.
    pub root_nid: u16,
    /// Number of inodes.
    pub inos: u64,
    /// Seconds of the build time: the mtime of every compact inode.
    pub build_time: u64,
    /// Nanoseconds of the build time.
    pub build_time_nsec: u32,
    /// Blocks in the image.
    pub blocks: u32,
    /// First block of the metadata (inode) area.
    pub meta_blkaddr: u32,
    /// First block of the shared extended attributes.
    pub xattr_blkaddr: u32,
    /// Volume id.
    pub uuid: [u8; 16],
    /// Volume name, padded with NULs.
    pub volume_name: [u8; 16],
    /// Features a reader must know.
    pub feature_incompat: u32,
    /// Compression algorithms in use.
    pub compr_algs: u16,
    /// Further devices that hold data.
    pub extra_devices: u16,
    /// Slot of the device table.
    pub devt_slotoff: u16,
    /// log2(directory block size) - log2(block size).
    pub dirblkbits: u8,
    /// Number of long extended-attribute prefixes.
    pub xattr_prefix_count: u8,
    /// Start of the long prefixes.
    pub xattr_prefix_start: u32,
    /// Inode holding packed fragments.
    pub packed_nid: u64,
    /// Reserved for the extended-attribute filter.
    pub xattr_filter_reserved: u8,
    /// Zero.
    pub reserved: [u8; 23],
}

impl Superblock {
    /// On-disk size.
    pub const SIZE: usize = 128;
    /// Offset of the checksum field.
    pub const CHECKSUM_OFFSET: usize = 4;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            magic: u32::from_le_bytes(field(raw, 0)),
            checksum: u32::from_le_bytes(field(raw, 4)),
            feature_compat: u32::from_le_bytes(field(raw, 8)),
            blkszbits: raw[12],
            sb_extslots: raw[13],
            root_nid: u16::from_le_bytes(field(raw, 14)),
            inos: u64::from_le_bytes(field(raw, 16)),
            build_time: u64::from_le_bytes(field(raw, 24)),
            build_time_nsec: u32::from_le_bytes(field(raw, 32)),
            blocks: u32::from_le_bytes(field(raw, 36)),
            meta_blkaddr: u32::from_le_bytes(field(raw, 40)),
            xattr_blkaddr: u32::from_le_bytes(field(raw, 44)),
            uuid: field(raw, 48),
            volume_name: field(raw, 64),
            feature_incompat: u32::from_le_bytes(field(raw, 80)),
            compr_algs: u16::from_le_bytes(field(raw, 84)),
            extra_devices: u16::from_le_bytes(field(raw, 86)),
            devt_slotoff: u16::from_le_bytes(field(raw, 88)),
            dirblkbits: raw[90],
            xattr_prefix_count: raw[91],
            xattr_prefix_start: u32::from_le_bytes(field(raw, 92)),
            packed_nid: u64::from_le_bytes(field(raw, 96)),
            xattr_filter_reserved: raw[104],
            reserved: field(raw, 105),
        }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        put(&mut raw, 0, self.magic.to_le_bytes());
        put(&mut raw, 4, self.checksum.to_le_bytes());
        put(&mut raw, 8, self.feature_compat.to_le_bytes());
        raw[12] = self.blkszbits;
        raw[13] = self.sb_extslots;
        put(&mut raw, 14, self.root_nid.to_le_bytes());
        put(&mut raw, 16, self.inos.to_le_bytes());
        put(&mut raw, 24, self.build_time.to_le_bytes());
        put(&mut raw, 32, self.build_time_nsec.to_le_bytes());
        put(&mut raw, 36, self.blocks.to_le_bytes());
        put(&mut raw, 40, self.meta_blkaddr.to_le_bytes());
        put(&mut raw, 44, self.xattr_blkaddr.to_le_bytes());
        put(&mut raw, 48, self.uuid);
        put(&mut raw, 64, self.volume_name);
        put(&mut raw, 80, self.feature_incompat.to_le_bytes());
        put(&mut raw, 84, self.compr_algs.to_le_bytes());
        put(&mut raw, 86, self.extra_devices.to_le_bytes());
        put(&mut raw, 88, self.devt_slotoff.to_le_bytes());
        raw[90] = self.dirblkbits;
        raw[91] = self.xattr_prefix_count;
        put(&mut raw, 92, self.xattr_prefix_start.to_le_bytes());
        put(&mut raw, 96, self.packed_nid.to_le_bytes());
        raw[104] = self.xattr_filter_reserved;
        put(&mut raw, 105, self.reserved);
        raw
    }
}

/// The 32-byte inode: 16-bit owners and link count, 32-bit size, no time stamp of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompactInode {
    /// Kind and data layout.
    pub format: u16,
    /// Size of the extended-attribute area; see [`crate::xattr_area_size`].
    pub xattr_icount: u16,
    /// File type and permissions.
    pub mode: u16,
    /// Link count.
    pub nlink: u16,
    /// File size.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// First block, device number or chunk format.
    pub u: u32,
    /// Inode number shown to programs.
    pub ino: u32,
    /// Owner.
    pub uid: u16,
    /// Group.
    pub gid: u16,
    /// Zero.
    pub reserved2: u32,
}

impl CompactInode {
    /// On-disk size.
    pub const SIZE: usize = 32;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            format: u16::from_le_bytes(field(raw, 0)),
            xattr_icount: u16::from_le_bytes(field(raw, 2)),
            mode: u16::from_le_bytes(field(raw, 4)),
            nlink: u16::from_le_bytes(field(raw, 6)),
            size: u32::from_le_bytes(field(raw, 8)),
            reserved: u32::from_le_bytes(field(raw, 12)),
            u: u32::from_le_bytes(field(raw, 16)),
            ino: u32::from_le_bytes(field(raw, 20)),
            uid: u16::from_le_bytes(field(raw, 24)),
            gid: u16::from_le_bytes(field(raw, 26)),
            reserved2: u32::from_le_bytes(field(raw, 28)),
        }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        put(&mut raw, 0, self.format.to_le_bytes());
        put(&mut raw, 2, self.xattr_icount.to_le_bytes());
        put(&mut raw, 4, self.mode.to_le_bytes());
        put(&mut raw, 6, self.nlink.to_le_bytes());
        put(&mut raw, 8, self.size.to_le_bytes());
        put(&mut raw, 12, self.reserved.to_le_bytes());
        put(&mut raw, 16, self.u.to_le_bytes());
        put(&mut raw, 20, self.ino.to_le_bytes());
        put(&mut raw, 24, self.uid.to_le_bytes());
        put(&mut raw, 26, self.gid.to_le_bytes());
        put(&mut raw, 28, self.reserved2.to_le_bytes());
        raw
    }
}

/// The 64-byte inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ExtendedInode {
    /// Kind and data layout.
    pub format: u16,
    /// Size of the extended-attribute area; see [`crate::xattr_area_size`].
    pub xattr_icount: u16,
    /// File type and permissions.
    pub mode: u16,
    /// Zero.
    pub reserved: u16,
    /// File size.
    pub size: u64,
    /// First block, device number or chunk format.
    pub u: u32,
    /// Inode number shown to programs.
    pub ino: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds (two's complement for times before 1970).
    pub mtime: u64,
    /// Modification time, nanoseconds.
    pub mtime_nsec: u32,
    /// Link count.
    pub nlink: u32,
    /// Zero.
    pub reserved2: [u8; 16],
}

impl ExtendedInode {
    /// On-disk size.
    pub const SIZE: usize = 64;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            format: u16::from_le_bytes(field(raw, 0)),
            xattr_icount: u16::from_le_bytes(field(raw, 2)),
            mode: u16::from_le_bytes(field(raw, 4)),
            reserved: u16::from_le_bytes(field(raw, 6)),
            size: u64::from_le_bytes(field(raw, 8)),
            u: u32::from_le_bytes(field(raw, 16)),
            ino: u32::from_le_bytes(field(raw, 20)),
            uid: u32::from_le_bytes(field(raw, 24)),
            gid: u32::from_le_bytes(field(raw, 28)),
            mtime: u64::from_le_bytes(field(raw, 32)),
            mtime_nsec: u32::from_le_bytes(field(raw, 40)),
            nlink: u32::from_le_bytes(field(raw, 44)),
            reserved2: field(raw, 48),
        }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        put(&mut raw, 0, self.format.to_le_bytes());
        put(&mut raw, 2, self.xattr_icount.to_le_bytes());
        put(&mut raw, 4, self.mode.to_le_bytes());
        put(&mut raw, 6, self.reserved.to_le_bytes());
        put(&mut raw, 8, self.size.to_le_bytes());
        put(&mut raw, 16, self.u.to_le_bytes());
        put(&mut raw, 20, self.ino.to_le_bytes());
        put(&mut raw, 24, self.uid.to_le_bytes());
        put(&mut raw, 28, self.gid.to_le_bytes());
        put(&mut raw, 32, self.mtime.to_le_bytes());
        put(&mut raw, 40, self.mtime_nsec.to_le_bytes());
        put(&mut raw, 44, self.nlink.to_le_bytes());
        put(&mut raw, 48, self.reserved2);
        raw
    }
}

/// A directory entry; names follow the entries of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed)]
pub struct Dirent {
    /// Inode number.
    pub nid: u64,
    /// Where the name starts in the block.
    pub nameoff: u16,
    /// One of the `FT_` numbers.
    pub file_type: u8,
    /// Zero.
    pub reserved: u8,
}

impl Dirent {
    /// On-disk size.
    pub const SIZE: usize = 12;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            nid: u64::from_le_bytes(field(raw, 0)),
            nameoff: u16::from_le_bytes(field(raw, 8)),
            file_type: raw[10],
            reserved: raw[11],
        }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        put(&mut raw, 0, { self.nid }.to_le_bytes());
        put(&mut raw, 8, { self.nameoff }.to_le_bytes());
        raw[10] = self.file_type;
        raw[11] = self.reserved;
        raw
    }
}

/// Head of the extended-attribute area behind an inode; shared ids (`u32` each), then entries, follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct XattrHeader {
    /// Bloom filter of names (zero when unused).
    pub name_filter: u32,
    /// Number of shared ids.
    pub shared_count: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

impl XattrHeader {
    /// On-disk size.
    pub const SIZE: usize = 12;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self { name_filter: u32::from_le_bytes(field(raw, 0)), shared_count: raw[4], reserved: field(raw, 5) }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        put(&mut raw, 0, self.name_filter.to_le_bytes());
        raw[4] = self.shared_count;
        put(&mut raw, 5, self.reserved);
        raw
    }
}

/// Head of one extended attribute; the name without its prefix, then the value, follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct XattrEntry {
    /// Bytes of the name after the prefix.
    pub name_len: u8,
    /// Which prefix; see [`crate::XATTR_PREFIXES`].
    pub name_index: u8,
    /// Bytes of the value.
    pub value_size: u16,
}

impl XattrEntry {
    /// On-disk size.
    pub const SIZE: usize = 4;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self { name_len: raw[0], name_index: raw[1], value_size: u16::from_le_bytes([raw[2], raw[3]]) }
    }

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let [low, high] = self.value_size.to_le_bytes();
        [self.name_len, self.name_index, low, high]
    }

    /// Bytes the entry takes with its name and value, rounded up to [`crate::XATTR_ALIGN`].
    #[must_use]
    pub const fn total_size(&self) -> usize {
        (Self::SIZE + self.name_len as usize + self.value_size as usize).next_multiple_of(crate::XATTR_ALIGN)
    }
}

/// One entry of a chunk table of the indexed kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ChunkIndex {
    /// Zero.
    pub advise: u16,
    /// Device that holds the chunk; 0 is the image itself.
    pub device_id: u16,
    /// First block, or [`crate::NULL_ADDR`] for a hole.
    pub blkaddr: u32,
}

impl ChunkIndex {
    /// On-disk size.
    pub const SIZE: usize = 8;

    /// Reads the structure from its bytes.
    #[must_use]
    pub const fn decode(raw: &[u8; Self::SIZE]) -> Self {
        Self {
            advise: u16::from_le_bytes(field(raw, 0)),
            device_id: u16::from_le_bytes(field(raw, 2)),
            blkaddr: u32::from_le_bytes(field(raw, 4)),
        }
    }
}

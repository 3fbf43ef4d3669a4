//! Layout of a frozen image: a domain's memory at a moment when nothing ran (docs/design.md §8, docs/freezer.md).
//!
//! A file of pages: [`Header`], [`Segment`] table, one checksum a [`CHUNK`] of the pages, then, from
//! [`Header::data_at`] on, the pages themselves, mapped by clones where they were. Pages of zeros are holes, and so are those that an
//! *ancestor* has: an image that was there before, to whose file a segment can refer. All numbers are little-endian.
//! Written by the host from what the host kernel says of the domain's processes; the guest kernel of a clone
//! reads header and tables at [`crate::layout::FROZEN_BASE`].

/// `Header::magic`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DOPPELFZ");
/// Version of this format; readers refuse others.
pub const VERSION: u32 = 2;
/// Bytes of page data that one checksum covers.
pub const CHUNK: u64 = 1 << 20;
/// [`Segment::space`] of a piece of the arena; `addr` is the offset in it.
pub const ARENA: i32 = -1;
/// [`Segment::space`] of a piece of the page file; `addr` is the offset in it.
pub const PAGEFILE: i32 = -2;
/// [`Header::layers`] of a domain that sleeps, whose files are in its own layer alone.
pub const OWN_LAYER: u8 = u8::MAX;
/// Most ancestors of one image.
pub const MAX_ANCESTORS: usize = 7;
/// Most segments of one image.
pub const MAX_SEGMENTS: u64 = 4 << 20;

/// First bytes of a frozen image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// [`crate::VERSION`] of the frozen guest kernel.
    pub machine_version: u32,
    /// Checksum of header (with this field 0) and tables.
    pub checksum: u64,
    /// Bytes of header and tables, a multiple of the page size.
    pub tables_len: u64,
    /// Bytes of the whole file.
    pub file_len: u64,
    /// Number of segments; the table follows the header.
    pub segments: u64,
    /// Number of chunk checksums (8 bytes each); they follow the segments.
    pub chunks: u64,
    /// Where the pages begin, a multiple of the page size; what lies before and is no table is a hole.
    pub data_at: u64,
    /// Bytes of pages of this file that are not zero.
    pub data_bytes: u64,
    /// Bytes of segments whose pages are in ancestors.
    pub ancestor_bytes: u64,
    /// Digest of the guest kernel ELF.
    pub kernel: [u8; 32],
    /// Digest of the root image.
    pub image: [u8; 32],
    /// Digest of the host's vDSO, whose code programs may have been in.
    pub vdso: [u8; 32],
    /// CPUID feature words ([`CPU_WORDS`]) and XCR0: the CPU must have all of these.
    pub cpu: [u32; 10],
    /// `StartInfo::vcpus`.
    pub vcpus: u32,
    /// Of a domain that sleeps and has a layer, what tells that as it was then; 0 of others.
    pub layer: u32,
    /// `StartInfo::memory_limit`.
    pub memory_limit: u64,
    /// `StartInfo::arena_size`.
    pub arena_size: u64,
    /// `StartInfo::pagefile_size`.
    pub pagefile_size: u64,
    /// Domain id it had.
    pub domain_id: u64,
    /// `StartInfo::generation` of the frozen domain.
    pub generation: u64,
    /// `VirtualRegisters::monotonic_offset` at the freeze.
    pub monotonic_offset: u64,
    /// Host's CLOCK_MONOTONIC at the freeze, nanoseconds.
    pub host_monotonic_ns: u64,
    /// Wall clock at the freeze, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Boot id of the host.
    pub host_boot: [u8; 16],
    /// Terminal: rows << 16 | columns; 0 without one.
    pub winsize: u32,
    /// [`crate::boot_flags`] of the frozen domain.
    pub boot_flags: u32,
    /// Owner: host uid that ran the domain.
    pub owner: u32,
    /// Length of the name in `names`.
    pub name_len: u8,
    /// Length of the host name that follows it.
    pub hostname_len: u8,
    /// Length of the root image's name that follows that.
    pub image_name_len: u8,
    /// How many files of layers it lies on ([`OWN_LAYER`]); 0: its memory has all files.
    pub layers: u8,
    /// Domain name, host name, image name.
    pub names: [u8; 256],
    /// How many of `ancestors` there are.
    pub ancestor_count: u64,
    /// What tells an ancestor from all other files: the digest (XXH3, 128 bits) of its header and tables, which have checksums of
    /// its pages.
    pub ancestors: [[u8; 16]; MAX_ANCESTORS],
}

/// What [`Header::cpu`] holds: (CPUID leaf, subleaf, register 0..4 = eax ebx ecx edx), then XCR0's low word.
pub const CPU_WORDS: [(u32, u32, u8); 9] = [
    (1, 0, 2),
    (1, 0, 3),
    (7, 0, 1),
    (7, 0, 2),
    (7, 0, 3),
    (7, 1, 0),
    (0x8000_0001, 0, 2),
    (0x8000_0001, 0, 3),
    (0xd, 1, 0),
];

/// A run of saved pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Host pid (in the domain's PID namespace) of the address space, or [`ARENA`], or [`PAGEFILE`].
    pub space: i32,
    /// In which file the pages are: 0 for the image itself, n for its nth ancestor.
    pub file: u32,
    /// Address in the space, or offset.
    pub addr: u64,
    /// Bytes, a multiple of the page size.
    pub len: u64,
    /// Offset of the pages in that file.
    pub offset: u64,
}

/// What of one file of an image a clone has mapped behind [`crate::layout::FROZEN_PAGES_BASE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes; 0: there is none.
    pub len: u64,
    /// Where it lies behind that base.
    pub at: u64,
}

/// The segments of the page file that a clone's host leaves in the image and its ancestors, as long as nobody writes to them: one
/// [`Window`] a file, in order of [`Segment::file`]. What has no window the host copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept([Window; 1 + MAX_ANCESTORS]);

/// What is kept of an image with these segments, among which those of the page file come first.
#[must_use]
pub fn kept(segments: &[Segment]) -> Kept {
    // First and last byte of each.
    let mut bounds = [(u64::MAX, 0u64); 1 + MAX_ANCESTORS];
    for s in segments.iter().take_while(|s| s.space == PAGEFILE) {
        if let Some((start, end)) = bounds.get_mut(s.file as usize) {
            *start = s.offset.min(*start);
            *end = s.offset.saturating_add(s.len).max(*end);
        }
    }
    let mut all = Kept::default();
    let mut at = 0;
    for (window, (start, end)) in all.0.iter_mut().zip(bounds) {
        let len = end.saturating_sub(start);
        if len > 0 && len <= crate::layout::FROZEN_PAGES_MAX - at {
            *window = Window { offset: start, len, at };
            at += len;
        }
    }
    all
}

impl Kept {
    /// The files' windows, with the files' numbers.
    pub fn windows(&self) -> impl Iterator<Item = (u32, Window)> + '_ {
        (0..).zip(self.0).filter(|(_, w)| w.len > 0)
    }

    /// Where a segment lies behind [`crate::layout::FROZEN_PAGES_BASE`], if it is kept.
    #[must_use]
    pub fn place(&self, s: &Segment) -> Option<u64> {
        let window = self.0.get(s.file as usize).filter(|w| w.len > 0 && s.space == PAGEFILE)?;
        Some(window.at + s.offset.checked_sub(window.offset)?)
    }
}

/// Bytes of [`Segment`].
pub const SEGMENT_SIZE: u64 = size_of::<Segment>() as u64;
/// Bytes of [`Header`].
pub const HEADER_SIZE: u64 = size_of::<Header>() as u64;

// Pinned: changing either means a new VERSION.
const _: () = {
    assert!(size_of::<Header>() == 696);
    assert!(size_of::<Segment>() == 32);
};

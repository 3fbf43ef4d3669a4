//! The patch section of a root image: executable text with its system calls made into jumps (docs/design.md §4).
//!
//! It follows the EROFS file system in the image file, page aligned, and is ignored by EROFS readers:
//!
//! ```text
//! | EROFS blocks | patched text and trampolines, page aligned | PatchEntry[count] | pad | PatchFooter (last page) |
//! ```
//!
//! A file's executable segment is stored a second time with its patches applied; the file itself keeps its
//! original bytes, so reads see those. Executable mappings show the copy, and the file's trampolines just below
//! the module's lowest address. Every number here is checked by the reader: an entry that does not fit is
//! ignored, and its file runs unpatched.
//!
//! Each patched site has one 32-byte slot of trampoline code, [`SLOT`]:
//!
//! ```text
//!  0  b8 imm32              mov eax, number          (rule a; five nops 0f 1f 44 00 00 for rule b)
//!  5  48 8d 0d rel32        lea rcx, [return address: the byte after the site's syscall]
//! 12  65 ff 24 25 disp32    jmp gs:[ENTRY_SLOT]
//! 20  cc …                  int3 up to 32
//! ```
//!
//! Rule a: `b8 imm32 0f 05` becomes `e9 rel32 0f 05`, a jump to the slot; the return address is site + 7. Likewise
//! `48 c7 c0 imm32 0f 05` (mov rax, imm32; not negative): two bytes of its operand stay behind the jump, and the
//! return address is site + 9.
//! Rule b: `0f 05` becomes `eb rel8` to five bytes of dead padding holding `e9 rel32` to the slot; the return
//! address is site + 2. rcx is free: the hardware overwrites it too.

/// Bytes of a trampoline slot.
pub const SLOT: u64 = 32;
/// Offset in the per-vCPU block (through GS) of the address of the guest kernel's fast entry.
pub const ENTRY_SLOT: u32 = 48;
/// `PatchFooter::magic`: "DPLPATCH".
pub const PATCH_MAGIC: u64 = u64::from_le_bytes(*b"DPLPATCH");
/// Version of this format.
pub const PATCH_VERSION: u32 = 1;
/// The footer starts this many bytes before the end of the image file.
pub const FOOTER_FROM_END: u64 = 4096;

/// Where the entries are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchFooter {
    /// [`PATCH_MAGIC`].
    pub magic: u64,
    /// [`PATCH_VERSION`].
    pub version: u32,
    /// Number of entries.
    pub count: u32,
    /// Byte offset of the first entry in the image file, 8-byte aligned.
    pub table: u64,
}

/// One patched executable segment; entries are sorted by `nid`, then `segment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchEntry {
    /// The file's EROFS node.
    pub nid: u64,
    /// Offset in the file of the segment, rounded down to a page.
    pub segment: u64,
    /// Bytes of the segment, rounded up to a page.
    pub len: u64,
    /// Image offset of the patched copy (page aligned, `len` bytes).
    pub text: u64,
    /// Image offset of the trampolines (page aligned).
    pub trampolines: u64,
    /// Bytes of the trampolines, rounded up to a page.
    pub trampolines_len: u64,
    /// Distance from where the trampolines are mapped up to where `segment` is mapped, in bytes, a multiple of
    /// the page size and less than 2 GiB.
    pub distance: u64,
    /// System call instructions found.
    pub sites: u32,
    /// Of these, patched by rule a and by rule b; the others trap.
    pub rule_a: u32,
    /// See [`Self::rule_a`].
    pub rule_b: u32,
    /// Always 0.
    pub reserved: u32,
}

// Pinned: docs/images.md.
const _: () = {
    assert!(size_of::<PatchFooter>() == 24);
    assert!(size_of::<PatchEntry>() == 72);
};

impl PatchFooter {
    /// Reads a footer from its bytes; `None` if it is not one.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let w = |at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
        let f = Self { magic: w(0)?, version: w(8)? as u32, count: (w(8)? >> 32) as u32, table: w(16)? };
        (f.magic == PATCH_MAGIC && f.version == PATCH_VERSION).then_some(f)
    }
}

impl PatchEntry {
    /// Bytes of an entry in the image.
    pub const SIZE: usize = 72;

    /// Reads an entry from its bytes.
    pub fn parse(b: &[u8]) -> Option<Self> {
        let w = |i: usize| Some(u64::from_le_bytes(b.get(i * 8..i * 8 + 8)?.try_into().ok()?));
        Some(Self {
            nid: w(0)?,
            segment: w(1)?,
            len: w(2)?,
            text: w(3)?,
            trampolines: w(4)?,
            trampolines_len: w(5)?,
            distance: w(6)?,
            sites: w(7)? as u32,
            rule_a: (w(7)? >> 32) as u32,
            rule_b: w(8)? as u32,
            reserved: (w(8)? >> 32) as u32,
        })
    }

    /// Writes the entry as it stands in the image.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        let pair = |lo: u32, hi: u32| u64::from(lo) | u64::from(hi) << 32;
        let words = [
            self.nid,
            self.segment,
            self.len,
            self.text,
            self.trampolines,
            self.trampolines_len,
            self.distance,
            pair(self.sites, self.rule_a),
            pair(self.rule_b, self.reserved),
        ];
        for (chunk, w) in b.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&w.to_le_bytes());
        }
        b
    }
}

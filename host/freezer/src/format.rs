//! Header and tables of a frozen image as bytes, and what a header says in words.

use std::mem::offset_of;

use doppel_abi_machine::frozen::{ARENA, HEADER_SIZE, Header, MAX_ANCESTORS, PAGEFILE, Segment};
use doppel_abi_machine::layout::{ARENA_MAX, PAGE, PAGEFILE_MAX, USER_END, USER_START};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const PAGE_BYTES: usize = PAGE as usize;

/// Appends fields in order of their offsets; the layouts are pinned in `common/abi/machine`.
struct Out(Vec<u8>);

impl Out {
    fn put(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.extend_from_slice(bytes.as_ref());
    }
}

/// The header as bytes.
pub(crate) fn header_bytes(h: &Header) -> Vec<u8> {
    let mut out = Out(Vec::with_capacity(HEADER_SIZE as usize));
    out.put(h.magic.to_le_bytes());
    out.put(h.version.to_le_bytes());
    out.put(h.machine_version.to_le_bytes());
    for word in [
        h.checksum,
        h.tables_len,
        h.file_len,
        h.segments,
        h.chunks,
        h.data_at,
        h.data_bytes,
        h.ancestor_bytes,
    ] {
        out.put(word.to_le_bytes());
    }
    for digest in [h.kernel, h.image, h.vdso] {
        out.put(digest);
    }
    for word in h.cpu.into_iter().chain([h.vcpus, h.layer]) {
        out.put(word.to_le_bytes());
    }
    for word in [
        h.memory_limit,
        h.arena_size,
        h.pagefile_size,
        h.domain_id,
        h.generation,
        h.monotonic_offset,
        h.host_monotonic_ns,
        h.realtime_ns,
    ] {
        out.put(word.to_le_bytes());
    }
    out.put(h.host_boot);
    for word in [h.winsize, h.boot_flags, h.owner] {
        out.put(word.to_le_bytes());
    }
    out.put([h.name_len, h.hostname_len, h.image_name_len, h.layers]);
    out.put(h.names);
    out.put(h.ancestor_count.to_le_bytes());
    for identity in h.ancestors {
        out.put(identity);
    }
    assert_eq!(out.0.len() as u64, HEADER_SIZE, "Header changed: see docs/freezer.md");
    out.0
}

/// Takes fields in the same order.
struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_at(N);
        self.0 = rest;
        head.try_into().expect("split at its length")
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// A header from its bytes, unchecked.
pub(crate) fn parse_header(bytes: &[u8; HEADER_SIZE as usize]) -> Header {
    let mut i = In(bytes);
    Header {
        magic: i.u64(),
        version: i.u32(),
        machine_version: i.u32(),
        checksum: i.u64(),
        tables_len: i.u64(),
        file_len: i.u64(),
        segments: i.u64(),
        chunks: i.u64(),
        data_at: i.u64(),
        data_bytes: i.u64(),
        ancestor_bytes: i.u64(),
        kernel: i.take(),
        image: i.take(),
        vdso: i.take(),
        cpu: std::array::from_fn(|_| i.u32()),
        vcpus: i.u32(),
        layer: i.u32(),
        memory_limit: i.u64(),
        arena_size: i.u64(),
        pagefile_size: i.u64(),
        domain_id: i.u64(),
        generation: i.u64(),
        monotonic_offset: i.u64(),
        host_monotonic_ns: i.u64(),
        realtime_ns: i.u64(),
        host_boot: i.take(),
        winsize: i.u32(),
        boot_flags: i.u32(),
        owner: i.u32(),
        name_len: i.take::<1>()[0],
        hostname_len: i.take::<1>()[0],
        image_name_len: i.take::<1>()[0],
        layers: i.take::<1>()[0],
        names: i.take(),
        ancestor_count: i.u64(),
        ancestors: std::array::from_fn(|_| i.take()),
    }
}

/// A segment as bytes.
pub(crate) fn segment_bytes(s: &Segment) -> [u8; 32] {
    let mut out = [0; 32];
    out[..4].copy_from_slice(&s.space.to_le_bytes());
    out[4..8].copy_from_slice(&s.file.to_le_bytes());
    for (field, at) in [
        (s.addr, offset_of!(Segment, addr)),
        (s.len, offset_of!(Segment, len)),
        (s.offset, offset_of!(Segment, offset)),
    ] {
        out[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    out
}

/// A segment from its bytes, unchecked.
#[must_use]
pub fn parse_segment(bytes: &[u8; 32]) -> Segment {
    let mut i = In(bytes);
    let space = i32::from_le_bytes(i.take());
    Segment { space, file: i.u32(), addr: i.u64(), len: i.u64(), offset: i.u64() }
}

/// Whether every segment lies where segments may lie; `files` are the headers of the image and of its ancestors.
pub(crate) fn sound(files: &[&Header], segments: &[Segment]) -> bool {
    let h = files[0];
    let within = |at: u64, len: u64, low: u64, high: u64| {
        at.is_multiple_of(PAGE)
            && len.is_multiple_of(PAGE)
            && len > 0
            && at >= low
            && at.checked_add(len).is_some_and(|e| e <= high)
    };
    let placed = segments.iter().all(|s| {
        let (low, high) = match s.space {
            ARENA => (0, h.arena_size),
            PAGEFILE => (0, h.pagefile_size),
            pid if pid > 0 => (USER_START, USER_END),
            _ => return false,
        };
        let Some(file) = files.get(s.file as usize) else { return false };
        within(s.addr, s.len, low, high) && within(s.offset, s.len, file.data_at, file.file_len)
    });
    // Only of those that are placed: sums cannot overflow then.
    let ordered = || {
        segments
            .windows(2)
            .all(|w| w[0].space < w[1].space || w[0].space == w[1].space && w[0].addr + w[0].len <= w[1].addr)
    };
    // Each has pages of its own in the image's file, and of what clones copy in its ancestors' too, so that what is done for all is
    // bounded by the files' lengths. Processes that forked can have the same pages of an ancestor.
    let apart = || {
        let mut ends = [0; 1 + MAX_ANCESTORS];
        segments.iter().filter(|s| s.file == 0 || s.space < 0).all(|s| {
            let end = &mut ends[s.file as usize];
            let behind = s.offset >= *end;
            *end = s.offset + s.len;
            behind
        })
    };
    let bounded = h.arena_size <= ARENA_MAX && h.pagefile_size <= PAGEFILE_MAX;
    let mut identities = h.ancestors[..files.len() - 1].to_vec();
    identities.sort_unstable();
    let different = identities.windows(2).all(|w| w[0] != w[1]);
    different && placed && ordered() && apart() && bounded
}

/// Domain name, host name and root image of a header; none if their lengths make no sense.
pub(crate) fn names(h: &Header) -> Option<[String; 3]> {
    let (a, b, c) = (usize::from(h.name_len), usize::from(h.hostname_len), usize::from(h.image_name_len));
    let text =
        |from: usize, len: usize| Some(String::from_utf8_lossy(h.names.get(from..from + len)?).into_owned());
    Some([text(0, a)?, text(a, b)?, text(a + b, c)?])
}

/// Packs the three names; none if they are too long.
pub(crate) fn pack_names(h: &mut Header, names: [&str; 3]) -> Option<()> {
    let mut at = 0;
    let [a, b, c] = names.map(|n| u8::try_from(n.len()).ok());
    (h.name_len, h.hostname_len, h.image_name_len) = (a?, b?, c?);
    for n in names {
        h.names.get_mut(at..at + n.len())?.copy_from_slice(n.as_bytes());
        at += n.len();
    }
    Some(())
}

/// What a frozen image is, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name of the frozen domain.
    pub domain: String,
    /// Its id.
    pub domain_id: u64,
    /// Its host name.
    pub hostname: String,
    /// File of its root image.
    pub image: String,
    /// How many freezes lie between it and a boot.
    pub generation: u64,
    /// When it was frozen, seconds since 1970.
    pub frozen_at: u64,
    /// vCPUs.
    pub vcpus: u32,
    /// Memory limit in bytes, 0 for none.
    pub memory_limit: u64,
    /// Number of processes.
    pub processes: usize,
    /// Number of segments: what a clone maps.
    pub segments: u64,
    /// Bytes of pages kept, its own and those of ancestors.
    pub data_bytes: u64,
    /// Bytes of those in its own file.
    pub own_bytes: u64,
    /// Bytes of those in files of ancestors.
    pub ancestor_bytes: u64,
    /// How many ancestors it has: older images whose files it needs.
    pub ancestors: u64,
    /// Bytes that the files of these take.
    pub ancestors_used: u64,
    /// Bytes that every clone copies: its guest kernel's memory and shared pages.
    pub copied_bytes: u64,
    /// Digest of the guest kernel, hexadecimal.
    pub kernel: String,
    /// Digest of the root image, hexadecimal.
    pub image_digest: String,
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a page has only zeros.
pub(crate) fn is_zero(page: &[u8]) -> bool {
    // Most pages differ in their first bytes; the rest is compared in words.
    let (head, body, tail) =
        page.split_at_checked(16).map_or((page, &[][..], &[][..]), |(h, b)| (h, b, &[][..]));
    head.iter().chain(tail).all(|&b| b == 0)
        && body.chunks_exact(16).all(|c| u128::from_ne_bytes(c.try_into().unwrap_or([1; 16])) == 0)
}

/// A chunk's checksum covers its pages that are not zero, with their places.
pub(crate) fn hash_page(hash: &mut Xxh3, at: usize, page: &[u8]) {
    hash.update(&(at as u32).to_le_bytes());
    hash.update(page);
}

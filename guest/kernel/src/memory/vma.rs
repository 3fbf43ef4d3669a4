//! One mapping of an address space.

use alloc::sync::Arc;

use doppel_algo::rangemap::Piece;
use doppel_machine::{frozen, host, pagefile};

use super::Mapped;
use super::{PAGE, PageObject, page_up};

/// What is given memory when a hole is touched: one in so many of what there is, within bounds, so that little is lost and
/// the host has no more mappings than it can.
const HOLES: u64 = 1024;
const HOLE_MIN: u64 = 64 << 10;
const HOLE_MAX: u64 = 2 << 20;
/// Lengths of shared mappings whose pages may stay in the frozen image until they are touched. Shorter ones are where programs have
/// calls store their results, which must not be made twice. A longer one could become more mappings than the host allows.
const LAZY: core::ops::RangeInclusive<u64> = 1 << 20..=32 << 30;

bitflags::bitflags! {
    /// What may be done with memory (`PROT_` of `mmap(2)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Prot: u32 {
        /// Reading.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
        /// Running.
        const EXEC = 4;
    }
}

impl Prot {
    /// Data.
    pub const RW: Self = Self::READ.union(Self::WRITE);
    /// Text.
    pub const RX: Self = Self::READ.union(Self::EXEC);
    /// Everything.
    pub const RWX: Self = Self::RW.union(Self::EXEC);

    /// `self` if `on`, else nothing.
    #[must_use]
    pub fn when(self, on: bool) -> Self {
        if on { self } else { Self::empty() }
    }
}

bitflags::bitflags! {
    /// What there is to know of a mapping.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct VmFlags: u32 {
        /// Writes reach the object.
        const SHARED = 1;
        /// Not charged to the commit limit (MAP_NORESERVE, stacks, memory inherited by fork).
        const NO_CHARGE = 2;
        /// Charged to the commit limit.
        const CHARGED = 4;
        /// mlock.
        const LOCKED = 8;
        /// madvise(MADV_DONTFORK).
        const DONTFORK = 16;
        /// madvise(MADV_WIPEONFORK).
        const WIPEONFORK = 32;
        /// madvise(MADV_DONTDUMP).
        const DONTDUMP = 64;
        /// MAP_GROWSDOWN, and the main stack, which does not grow: it is mapped in full.
        const GROWSDOWN = 128;
        /// The main stack.
        const STACK = 256;
        /// The vDSO.
        const VDSO = 512;
        /// Text that shows its patched copy.
        const PATCHED = 1024;
        /// Trampolines of patched text.
        const TRAMPOLINE = 2048;
        /// Some of its private pages are mapped from the frozen image: the host would bring them back where the
        /// program asks for fresh ones.
        const THAWED = 4096;
        /// Private and writable at some time: it may hold pages of its own.
        const WRITTEN = 8192;
        /// mseal: it stays where it is, and as it is.
        const SEALED = 16384;
    }
}

/// What a mapping shows.
#[derive(Clone)]
pub enum Backing {
    /// Private zero pages.
    Anonymous,
    /// A file of the root image, private; data begins at `base` in the image and is `len` bytes.
    Image {
        /// Byte offset of the file's data in the image.
        base: u64,
        /// Size of the file.
        len: u64,
    },
    /// Pages of the page file.
    Pages(Arc<dyn PageObject>),
}

/// One shared mapping of an object that may be written through, however it was cut or forked since.
pub struct WriteGuard(Arc<dyn PageObject>);

impl WriteGuard {
    /// Counts a mapping of `o`: EPERM if its seals forbid writing.
    pub fn new(o: &Arc<dyn PageObject>) -> crate::Result<Arc<Self>> {
        o.writable_map(1)?;
        Ok(Arc::new(Self(o.clone())))
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        // Giving back cannot be refused.
        let _ = self.0.writable_map(-1);
    }
}

/// A mapping: what lies at a range of addresses.
#[derive(Clone)]
pub struct Vma {
    /// What programs may do with it.
    pub prot: Prot,
    /// Protection mprotect may give it.
    pub max_prot: Prot,
    /// See [`VmFlags`].
    pub flags: VmFlags,
    /// What it shows.
    pub backing: Backing,
    /// The mapped file, for its name and to keep it.
    pub file: Option<Arc<dyn Mapped>>,
    /// Counts as a mapping through which the object may be written (seals).
    pub write_guard: Option<Arc<WriteGuard>>,
    /// Offset in the file or object at which the range begins.
    pub offset: u64,
    /// Offset in the file up to which host mappings exist; `u64::MAX` for anonymous memory.
    pub present: u64,
}

impl Vma {
    /// Whether writes reach other mappings.
    pub fn shared(&self) -> bool {
        self.flags.contains(VmFlags::SHARED)
    }

    /// How many of the `len` bytes have host mappings; the rest is behind the end of the file.
    pub fn mapped_len(&self, len: u64) -> u64 {
        self.present.saturating_sub(self.offset).min(len)
    }

    /// Offset up to which the file has pages now.
    pub fn file_end(&self) -> u64 {
        match &self.backing {
            Backing::Anonymous => u64::MAX,
            Backing::Image { len, .. } => page_up(*len),
            Backing::Pages(o) => page_up(o.size()),
        }
    }

    /// Makes the host mapping of `from..to` (offsets relative to the range that begins at `start`).
    pub fn map_host(&self, start: u64, from: u64, to: u64, populate: bool) -> crate::Result<()> {
        if from >= to {
            return Ok(());
        }
        let (at, len) = (start + from, to - from);
        let map = |at, len, b| {
            host::map_user(at, len, self.prot.bits(), b, populate).map_err(|_| crate::Errno::ENOMEM)
        };
        match &self.backing {
            Backing::Anonymous => map(at, len, host::Backing::Anonymous),
            Backing::Image { base, .. } => map(at, len, host::Backing::Image(base + self.offset + from)),
            Backing::Pages(o) if self.may_be_sparse() && o.is_sparse(self.offset + from, len) => {
                let mut at = at;
                super::MISSING.set(true);
                o.map_present(self.offset + from, len, &mut |off, n| {
                    map(at, n, self.page_file(off.unwrap_or(pagefile::size())))?;
                    at += n;
                    Ok(())
                })
            }
            Backing::Pages(o) if self.shared() && LAZY.contains(&len) => {
                let mut at = at;
                o.map_lazily(self.offset + from, len, &mut |off, n| {
                    map(at, n, self.page_file(off.unwrap_or(pagefile::size())))?;
                    at += n;
                    Ok(())
                })
            }
            Backing::Pages(_) => self.map_whole(start, from, to, populate),
        }
    }

    /// As [`Self::map_host`] for pages of an object, all of which get memory in the page file.
    pub fn map_whole(&self, start: u64, from: u64, to: u64, populate: bool) -> crate::Result<()> {
        let Backing::Pages(o) = &self.backing else { return Err(crate::Errno::EFAULT) };
        let mut at = start + from;
        o.map_range(self.offset + from, to - from, &mut |off, n| {
            host::map_user(at, n, self.prot.bits(), self.page_file(off), populate)
                .map_err(|_| crate::Errno::ENOMEM)?;
            at += n;
            Ok(())
        })
    }

    /// How pages of the page file are mapped.
    fn page_file(&self, offset: u64) -> host::Backing {
        if self.shared() {
            host::Backing::PageFileShared(offset)
        } else {
            host::Backing::PageFilePrivate(offset)
        }
    }

    /// Whether pages without memory may wait until they are touched: those of files, and where MAP_NORESERVE says so.
    /// Until then the host maps what lies behind the end of the page file, so that touching them faults (SIGBUS). So it is with
    /// shared pages that are still in the frozen image.
    fn may_be_sparse(&self) -> bool {
        self.file.is_some() || self.flags.contains(VmFlags::NO_CHARGE)
    }

    /// Gives the page at `rel` of the range that begins at `start` and has `len` bytes memory, with some of those that
    /// follow. Shared ones are mapped too; around a private one the program may have pages of its own.
    pub fn fill_hole(&self, start: u64, len: u64, rel: u64) -> crate::Result<()> {
        let Backing::Pages(o) = &self.backing else { return Err(crate::Errno::EFAULT) };
        if !(self.may_be_sparse() || self.shared() && frozen::is_clone()) {
            return Err(crate::Errno::EFAULT);
        }
        let mapped = self.mapped_len(len);
        let chunk = (o.room() / HOLES).next_power_of_two().clamp(HOLE_MIN, HOLE_MAX);
        let from = rel / chunk * chunk;
        let to = (from + chunk).min(mapped);
        let fill = |from: u64, to: u64, map: (u64, u64)| {
            let mut at = from;
            o.map_range(self.offset + from, to - from, &mut |off, n| {
                let (s, e) = (at.max(map.0), (at + n).min(map.1));
                at += n;
                if s >= e {
                    return Ok(());
                }
                let off = off + (s - (at - n));
                host::map_user(start + s, e - s, self.prot.bits(), self.page_file(off), false)
                    .map_err(|_| crate::Errno::ENOMEM)
            })
        };
        let page = (rel, rel + PAGE);
        let whole = fill(from, to, if self.shared() { (from, to) } else { page });
        // Near the limit there may be room for the page alone.
        whole.or_else(|_| fill(page.0, page.1, page))
    }

    fn same_object(&self, o: &Self) -> bool {
        let files = match (&self.file, &o.file) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        files
            && match (&self.backing, &o.backing) {
                (Backing::Anonymous, Backing::Anonymous) => true,
                (Backing::Image { base: a, len: al }, Backing::Image { base: b, len: bl }) => {
                    a == b && al == bl
                }
                (Backing::Pages(a), Backing::Pages(b)) => a.id() == b.id(),
                _ => false,
            }
    }
}

impl Piece for Vma {
    fn tail(&self, delta: u64) -> Self {
        let mut v = self.clone();
        if !matches!(v.backing, Backing::Anonymous) {
            v.offset += delta;
        }
        v
    }

    fn continues(&self, len: u64, next: &Self) -> bool {
        self.prot == next.prot
            && self.max_prot == next.max_prot
            && self.flags == next.flags
            && self.present == next.present
            && self.same_object(next)
            && (matches!(self.backing, Backing::Anonymous) || self.offset + len == next.offset)
    }
}

impl Vma {
    /// Private zero pages.
    pub fn anonymous(prot: Prot, flags: VmFlags) -> Self {
        Self {
            prot,
            max_prot: Prot::RWX,
            flags,
            backing: Backing::Anonymous,
            file: None,
            write_guard: None,
            offset: 0,
            present: u64::MAX,
        }
    }

    /// Pages of an object or a file from `offset` on.
    pub fn object(
        prot: Prot,
        flags: VmFlags,
        backing: Backing,
        file: Option<Arc<dyn Mapped>>,
        offset: u64,
    ) -> Self {
        Self { prot, max_prot: Prot::RWX, flags, backing, file, write_guard: None, offset, present: 0 }
    }

    /// Remembers that it may get pages of its own.
    pub fn note_written(&mut self) {
        if self.prot.contains(Prot::WRITE) && !self.shared() {
            self.flags |= VmFlags::WRITTEN;
        }
    }

    /// Whether it counts against the commit limit when writable.
    pub fn chargeable(&self) -> bool {
        self.prot.contains(Prot::WRITE)
            && !self.flags.intersects(VmFlags::SHARED | VmFlags::NO_CHARGE | VmFlags::CHARGED)
    }
}

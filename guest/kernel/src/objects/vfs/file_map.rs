//! Mappings of files, and of memory shared with children.

use crate::memory::Mapped;
use alloc::sync::Arc;

use crate::memory::vma::{Backing, Prot, VmFlags, Vma, WriteGuard};
use crate::memory::{MapSource, PAGE, page_up};
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::{Errno, Result};

bitflags::bitflags! {
    /// `MAP_` flags of `mmap(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct MapFlags: u32 {
        const SHARED = 1;
        const PRIVATE = 2;
        const SHARED_VALIDATE = 3;
        const TYPE = 0xf;
        const FIXED = 0x10;
        const ANONYMOUS = 0x20;
        const BIT32 = 0x40;
        const GROWSDOWN = 0x100;
        const LOCKED = 0x2000;
        const NORESERVE = 0x4000;
        const POPULATE = 0x8000;
        const NONBLOCK = 0x1_0000;
        const STACK = 0x2_0000;
        const HUGETLB = 0x4_0000;
        const SYNC = 0x8_0000;
        const FIXED_NOREPLACE = 0x10_0000;
        /// Flags MAP_SHARED_VALIDATE knows (`LEGACY_MAP_MASK`).
        const KNOWN = 0x7c07_f9f3;
    }
}

/// Memory shared with children: an unnamed object of the page file.
pub(crate) fn shared_anonymous(prot: Prot, vflags: VmFlags, len: u64) -> Result<Vma> {
    let o = crate::objects::pages::Object::new(len);
    Ok(Vma::object(prot, vflags, Backing::Pages(o), None, 0))
}

/// A mapping of `file` from `offset` on, permissions checked.
pub fn file_vma(file: &Arc<File>, prot: Prot, vflags: VmFlags, offset: u64, _len: u64) -> Result<Vma> {
    if file.flags().contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    if !file.readable() {
        return Err(Errno::EACCES);
    }
    let shared = vflags.contains(VmFlags::SHARED);
    let sealed = shared && crate::objects::ipc::memfd::write_sealed(file);
    let max_prot = if shared && (sealed || !file.writable()) { Prot::RX } else { Prot::RWX };
    if !max_prot.contains(prot) {
        return Err(if sealed { Errno::EPERM } else { Errno::EACCES });
    }
    let keep = Some(file.clone() as Arc<dyn Mapped>);
    let mut v = match file.ops().map(file)? {
        MapSource::Zero if shared => shared_anonymous(prot, vflags, _len)?,
        MapSource::Zero => Vma::anonymous(prot, vflags),
        MapSource::Image { offset: base, len } => {
            Vma::object(prot, vflags, Backing::Image { base, len }, keep, offset)
        }
        MapSource::Pages(o) => Vma::object(prot, vflags, Backing::Pages(o), keep, offset),
    };
    v.max_prot = max_prot;
    if shared
        && max_prot.contains(Prot::WRITE)
        && let Backing::Pages(o) = &v.backing
    {
        match WriteGuard::new(o) {
            Ok(g) => v.write_guard = Some(g),
            Err(e) if prot.contains(Prot::WRITE) => return Err(e),
            // Sealed against writing: it may be read, and never made writable.
            Err(_) => v.max_prot -= Prot::WRITE,
        }
    }
    Ok(v)
}

/// End of the addresses a program may name.
const TASK_SIZE: u64 = (1 << 47) - PAGE;

/// Checks an address range argument: page aligned start, length rounded up, inside the user area.
pub(crate) fn range(addr: u64, len: u64) -> Result<(u64, u64)> {
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let end = addr.checked_add(len).map(page_up).filter(|e| *e <= TASK_SIZE).ok_or(Errno::EINVAL)?;
    Ok((addr, end))
}

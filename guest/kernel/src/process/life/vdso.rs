//! The vDSO: one read-only page of the page file, mapped into every program.

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_algo::vdso_elf::{self, Function};
use doppel_machine::vdso;

use crate::Result;
use crate::core::part::{Lazy, Part};
use crate::memory::{Backing, MapAt, Mm, Prot, VmFlags, Vma, page_up};
use crate::objects::pages::Object;
use crate::objects::vfs::Input;

/// The domain's vDSO image.
pub(crate) struct Vdso {
    pages: Arc<Object>,
    len: u64,
}

/// The domain's.
pub(crate) static VDSO: Part<Lazy<Vdso>> = Part::new();

impl Default for Vdso {
    fn default() -> Self {
        let (code, starts) = vdso::code();
        let ends = starts.iter().skip(1).map(|(_, o)| *o).chain([code.len()]);
        let functions: Vec<Function> = starts
            .iter()
            .zip(ends)
            .map(|(&(name, offset), end)| Function { name, offset, size: end - offset })
            .collect();
        let (image, _) = vdso_elf::build(&code, &functions);
        let len = page_up(image.len() as u64);
        let pages = Object::new(len);
        let written = pages.write(&mut Input::kernel(&image), 0, false, len);
        assert!(written.is_ok_and(|(n, _)| n == image.len()), "no room in the page file for the vDSO");
        Self { pages, len }
    }
}

/// Maps the vDSO into the current space; returns its address.
pub fn map(mm: &Mm) -> Result<u64> {
    let v = VDSO.get().get();
    let vma =
        Vma::object(Prot::RX, VmFlags::VDSO | VmFlags::NO_CHARGE, Backing::Pages(v.pages.clone()), None, 0);
    mm.map(MapAt::Hint(0), v.len, vma, false)
}

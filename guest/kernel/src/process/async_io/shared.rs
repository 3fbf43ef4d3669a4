//! Memory that the kernel and a program share, as rings are.

use alloc::format;
use alloc::sync::Arc;

use crate::Result;
use crate::memory::{Backing, MapAt, Mm, PAGE, Prot, VmFlags, Vma};
use crate::objects::pages::Object;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};

/// Such memory. The program may write all of it at any time: what is read is checked, and read once.
pub struct Shared {
    object: Arc<Object>,
}

/// What /proc/PID/maps shows of it.
struct Named;

impl FileOps for Named {}

impl Shared {
    /// At least `len` bytes, all zeros.
    pub fn new(len: u64) -> Result<Self> {
        let object = Object::new(len.next_multiple_of(PAGE));
        object.reserve(0, object.len(), false)?;
        Ok(Self { object })
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.object.len()
    }

    /// Its pages.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Maps it for the program, at a place that is free; gives the address.
    pub fn map(&self, mm: &Mm, name: &str) -> Result<u64> {
        let file = File::anon(Arc::new(Named), format!("/{name} (deleted)"), OpenFlags::RDWR);
        let pages = Backing::Pages(self.object.clone());
        let vma = Vma::object(Prot::READ | Prot::WRITE, VmFlags::SHARED, pages, Some(file), 0);
        mm.map(MapAt::Hint(0), self.len(), vma, false)
    }

    /// The word at an offset, which is a multiple of four.
    pub fn load(&self, offset: u64) -> u32 {
        self.object.load(offset)
    }

    /// Stores a word; whoever sees it sees what was written before.
    pub fn store(&self, offset: u64, word: u32) -> Result<()> {
        self.object.store(offset, word)
    }

    /// Copies bytes out.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.object.copy_out(offset, bytes);
    }

    /// Copies bytes in.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.object.copy_in(offset, bytes)
    }
}

//! Memory that the kernel and a program share, as rings are.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::memory::{Backing, MapAt, Mm, PAGE, PageObject, Prot, VmFlags, Vma};
use crate::objects::pages::Object;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};
use crate::{Errno, Result};

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
    pub fn size(&self) -> u64 {
        self.object.len()
    }

    /// Maps it for the program, at a place that is free; gives the address.
    pub fn map(&self, mm: &Mm, name: &str) -> Result<u64> {
        let file = File::anon(Arc::new(Named), format!("/{name} (deleted)"), OpenFlags::RDWR);
        let pages = Backing::Pages(self.object.clone());
        let vma = Vma::object(Prot::READ | Prot::WRITE, VmFlags::SHARED, pages, Some(file), 0);
        mm.map(MapAt::Hint(0), self.size(), vma, false)
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

/// Several pieces of such memory as one object, each from an offset on.
pub struct Joined {
    pieces: Vec<(u64, Arc<Object>)>,
}

impl Joined {
    /// Joins them, in the order of their offsets.
    pub fn new(pieces: &[(u64, &Shared)]) -> Self {
        Self { pieces: pieces.iter().map(|(at, s)| (*at, s.object.clone())).collect() }
    }

    /// The piece that has all of these bytes, and where in it; ENOMEM if none has.
    fn find(&self, offset: u64, len: u64) -> Result<(&Object, u64)> {
        let (at, object) = self.pieces.iter().rfind(|(at, _)| *at <= offset).ok_or(Errno::ENOMEM)?;
        if offset - at + len > object.len() {
            return Err(Errno::ENOMEM);
        }
        Ok((object, offset - at))
    }
}

impl PageObject for Joined {
    fn map_range(&self, offset: u64, len: u64, each: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let (object, at) = self.find(offset, len)?;
        object.map_range(at, len, each)
    }

    fn map_lazily(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        let (object, at) = self.find(offset, len)?;
        object.map_lazily(at, len, each)
    }

    fn map_present(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        let (object, at) = self.find(offset, len)?;
        object.map_present(at, len, each)
    }

    fn places(&self, offset: u64, len: u64, each: &mut dyn FnMut(Option<u64>, u64)) {
        match self.find(offset, len) {
            Ok((object, at)) => object.places(at, len, each),
            Err(_) => each(None, len),
        }
    }

    fn note_mapped(&self, offset: u64, len: u64) {
        if let Ok((object, at)) = self.find(offset, len) {
            object.note_mapped(at, len);
        }
    }

    fn is_sparse(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    fn room(&self) -> u64 {
        self.pieces.first().map_or(0, |(_, o)| o.room())
    }

    fn size(&self) -> u64 {
        self.pieces.last().map_or(0, |(at, o)| at + o.len())
    }

    fn id(&self) -> u64 {
        self.pieces.first().map_or(0, |(_, o)| PageObject::id(&**o))
    }
}

//! Memory that the kernel and a program share, as rings are.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::pagefile::{self, Place};
use doppel_machine::user::{Pod, bytes_of, bytes_of_mut, zeroed};

use crate::memory::{Backing, MapAt, Mm, PAGE, PageObject, Prot, VmFlags, Vma};
use crate::objects::pages::{Object, pages_are_watched};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};
use crate::{Errno, Result};

/// Such memory. The program may write all of it at any time: what is read is checked, and read once.
pub struct Shared {
    object: Arc<Object>,
    /// Where it begins in the page file, if it is in one piece there; nobody can punch holes into it, so it stays there.
    place: Option<u64>,
}

/// What /proc/PID/maps shows of it.
struct Named;

impl FileOps for Named {}

impl Shared {
    /// At least `len` bytes, all zeros.
    pub fn new(len: u64) -> Result<Self> {
        let object = Object::new(len.next_multiple_of(PAGE));
        object.reserve(0, object.len(), false)?;
        let place = object.place();
        Ok(Self { object, place })
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.object.len()
    }

    /// Maps it for the program, at a place that is free; gives the address.
    pub fn map(&self, mm: &Mm, name: &str) -> Result<u64> {
        let file = File::anon(Arc::new(Named), format!("/{name} (deleted)"), OpenFlags::RDWR);
        let pages = Backing::Pages(Arc::new(Joined::new(&[(0, self)])));
        let vma = Vma::object(Prot::READ | Prot::WRITE, VmFlags::SHARED, pages, Some(file), 0);
        mm.map(MapAt::Hint(0), self.size(), vma, false)
    }

    /// Where an offset is in the page file, if no lock is needed to know that.
    #[inline]
    fn direct(&self, offset: u64, len: usize) -> Option<u64> {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.object.len());
        let place = self.place.filter(|_| inside && !pages_are_watched())?;
        Some(place + offset)
    }

    /// The word at an offset, which is a multiple of four.
    #[inline]
    pub fn load(&self, offset: u64) -> u32 {
        match self.direct(offset, 4) {
            Some(at) => pagefile::load(Place::Own(at)),
            None => self.object.load(offset),
        }
    }

    /// Stores a word; whoever sees it sees what was written before.
    #[inline]
    pub fn store(&self, offset: u64, word: u32) -> Result<()> {
        match self.direct(offset, 4) {
            Some(at) => pagefile::store(at, word),
            None => self.object.store(offset, word)?,
        }
        Ok(())
    }

    /// Copies a value out; its offset is a multiple of eight.
    #[inline]
    pub fn read<T: Pod>(&self, offset: u64) -> T {
        let mut value = zeroed::<T>();
        let bytes = bytes_of_mut(&mut value);
        match self.direct(offset, bytes.len()) {
            Some(at) => pagefile::read_words(Place::Own(at), bytes),
            None => self.object.copy_out(offset, bytes),
        }
        value
    }

    /// Copies a value in; its offset is a multiple of eight.
    #[inline]
    pub fn write<T: Pod>(&self, offset: u64, value: &T) -> Result<()> {
        let bytes = bytes_of(value);
        match self.direct(offset, bytes.len()) {
            Some(at) => pagefile::write_words(at, bytes),
            None => self.object.copy_in(offset, bytes)?,
        }
        Ok(())
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

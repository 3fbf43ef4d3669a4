//! Mappings of a volume's files. A file that is mapped is read whole into the page file, where all mappings, reads and writes of
//! the domain see the same bytes; what other domains write meanwhile they do not see.
//!
//! What was written through shared mappings goes to the service when a program asks for it (msync, fsync) and when the last such
//! mapping is gone. Nobody says which pages these are, so their sums are compared.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use doppel_abi_service::storage::{BUFFER, Operation, Request};

use super::node::Node;
use super::storage;
use crate::core::sched::can_wait;
use crate::memory::{MapSource, PageObject};
use crate::objects::pages::{Object, PAGE};
use crate::objects::vfs::file::Whence;
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// What is mapped of a file, and its bytes.
pub(super) struct Mapped {
    pub object: Arc<Object>,
    pages: Weak<Pages>,
    use_: Arc<Use>,
    /// The sums of pages as the service has them; none at all: no mapping can change a page.
    sums: Option<Sums>,
}

/// By page: its sum, if that is known; one that is missing is a hole.
type Sums = BTreeMap<u64, Option<u64>>;

/// How a file's mappings may have changed it.
#[derive(Default)]
struct Use {
    /// Shared mappings that may be written through.
    writers: AtomicI64,
    /// There were some since it was written back last.
    written: AtomicBool,
}

/// What mappings hold: the bytes, and the file whose these are.
struct Pages {
    object: Arc<Object>,
    use_: Arc<Use>,
    file: Arc<Node>,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The last mapping is gone, and with it the need for the bytes. Who has the lock at this moment sees to it.
        if let Some(mut held) = self.file.mapped.try_lock() {
            in_use(&mut held);
        }
    }
}

/// What is mapped, if anything still is or has to be written back.
pub(super) fn in_use(held: &mut Option<Mapped>) -> Option<&mut Mapped> {
    let idle = |m: &Mapped| m.pages.strong_count() == 0 && !m.use_.written.load(Ordering::Acquire);
    if held.as_ref().is_some_and(idle) {
        *held = None;
    }
    held.as_mut()
}

impl Mapped {
    /// Brings it in step with a write that the service has done.
    pub fn wrote(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        self.object.write(&mut Input::kernel(bytes), at, false, u64::MAX)?;
        // What was written through mappings in the same pages is not the service's yet.
        let (first, end) = (at / PAGE, (at + bytes.len() as u64).div_ceil(PAGE));
        for page in first..end {
            if let Some(sums) = &mut self.sums {
                sums.insert(page, None);
            }
        }
        Ok(())
    }

    /// Brings it in step with all that the service has, `size` bytes.
    pub fn reload(&mut self, file: &Node, size: u64) -> Result<()> {
        self.object.truncate(size)?;
        self.object.punch(0, size)?;
        load(file, &self.object, size)?;
        if self.sums.is_some() {
            self.sums = Some(sums(&self.object)?);
        }
        Ok(())
    }
}

impl Node {
    /// What `mmap(2)` maps; `writable`: it may be written through.
    pub(super) fn map_pages(&self, writable: bool) -> Result<MapSource> {
        let file = self.me.upgrade().ok_or(Errno::EIO)?;
        let mut held = self.mapped.lock();
        if in_use(&mut held).is_none() {
            let object = Object::new(0);
            let size = self.look().size;
            object.truncate(size)?;
            load(self, &object, size)?;
            *held = Some(Mapped { object, pages: Weak::new(), use_: Arc::default(), sums: None });
        }
        let Some(m) = held.as_mut() else { return Err(Errno::EIO) };
        if writable && m.sums.is_none() {
            m.sums = Some(sums(&m.object)?);
            let storage = self.volume.storage;
            storage.mapped.lock().push(file.clone());
            storage.maps.fetch_add(1, Ordering::SeqCst);
        }
        let pages = m
            .pages
            .upgrade()
            .unwrap_or_else(|| Arc::new(Pages { object: m.object.clone(), use_: m.use_.clone(), file }));
        m.pages = Arc::downgrade(&pages);
        Ok(MapSource::Pages(pages))
    }

    /// Gives the service what was written through mappings.
    pub(super) fn write_back(&self) -> Result<()> {
        self.write_back_held(&mut self.mapped.lock())
    }

    fn write_back_held(&self, held: &mut Option<Mapped>) -> Result<()> {
        let Some(m) = held.as_mut().filter(|m| m.use_.written.load(Ordering::Acquire)) else { return Ok(()) };
        // A mapping that comes after this look says so again.
        if m.use_.writers.load(Ordering::Acquire) == 0 {
            m.use_.written.store(false, Ordering::Release);
        }
        let object = m.object.clone();
        let Some(sums) = &mut m.sums else { return Ok(()) };
        pages(&object, |number, page| {
            let now = Some(sum(page));
            match sums.get(&number) {
                Some(before) if *before == now => return Ok(()),
                None if page.iter().all(|b| *b == 0) => return Ok(()),
                _ => {}
            }
            let call = self.call();
            call.fill(page);
            let (a, b) = (number * PAGE, page.len() as u64);
            call.ask(Request { a, b, ..self.request(Operation::Write) })?;
            self.note(&call);
            sums.insert(number, now);
            Ok(())
        })
    }

    /// The next data or hole from `at` on.
    fn next(&self, at: u64, what: Whence) -> Result<u64> {
        let request = Request { a: at, flags: what as u32, ..self.request(Operation::Seek) };
        self.call().ask(request).map(|answer| answer.value)
    }
}

/// Reads a file into the page file, where there are only zeros yet.
fn load(file: &Node, object: &Object, size: u64) -> Result<()> {
    let mut bytes = alloc::vec![0; BUFFER.min(usize::try_from(size).unwrap_or(BUFFER))];
    let mut at = 0;
    while at < size {
        // Small files are read as they are.
        let data = if size <= BUFFER as u64 { Ok(at) } else { file.next(at, Whence::Data) };
        at = match data {
            Ok(data) if data >= at => data,
            // Nothing but holes is left, or there is less than there was.
            _ => break,
        };
        // Data that ends where it begins is no answer: all that is left is read then.
        let hole = file.next(at, Whence::Hole).ok().filter(|hole| *hole > at).unwrap_or(size).min(size);
        while at < hole {
            let (n, _) = file.call().read(file.id, &mut Output::kernel(&mut bytes), at)?;
            if n == 0 {
                return Ok(());
            }
            object.write(&mut Input::kernel(&bytes[..n]), at, false, u64::MAX)?;
            at += n as u64;
        }
    }
    Ok(())
}

/// Looks at all pages that hold data, by their numbers.
fn pages(object: &Object, mut look: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut bytes = alloc::vec![0; BUFFER];
    let mut at = 0;
    while let Ok(data) = object.seek(at, true) {
        let first = data / PAGE * PAGE;
        let hole = object.seek(data, false).unwrap_or(first + PAGE);
        at = first;
        while at < hole {
            let n = object.read(&mut Output::kernel(&mut bytes), at)?;
            if n == 0 {
                return Ok(());
            }
            for (number, page) in (at / PAGE..).zip(bytes[..n].chunks(PAGE as usize)) {
                look(number, page)?;
            }
            at += (n as u64).next_multiple_of(PAGE);
        }
    }
    Ok(())
}

/// The sum of each page that holds data.
fn sums(object: &Object) -> Result<Sums> {
    let mut all = Sums::new();
    pages(object, |number, page| {
        all.insert(number, Some(sum(page)));
        Ok(())
    })?;
    Ok(all)
}

/// A change of one word changes it; of several words all but surely.
fn sum(page: &[u8]) -> u64 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mix = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = page.as_chunks();
    let whole = words.iter().fold(page.len() as u64, |s, w| mix(s, u64::from_le_bytes(*w)));
    rest.iter().fold(whole, |s, b| mix(s, (*b).into()))
}

/// Mappings are gone: gives the service what was written through those that were the last ones; `all`: the domain ends, through
/// any. The caller holds no lock.
pub fn settle(all: bool) {
    let Some(storage) = storage() else { return };
    if storage.maps.load(Ordering::SeqCst) == 0 {
        return;
    }
    let files = storage.mapped.lock().clone();
    for file in files {
        // PID 1 waits for nobody who may wait for it: what such a one does is lost with its program.
        let held = if can_wait() { Some(file.mapped.lock()) } else { file.mapped.try_lock() };
        let Some(mut held) = held else { continue };
        let done = held.as_ref().is_none_or(|m| m.use_.writers.load(Ordering::Acquire) == 0);
        if done || all {
            // What cannot be written is lost, as on Linux where nobody asks by msync.
            let _ = file.write_back_held(&mut held);
        }
        // Under the lock, so that one who maps it now enters it behind this.
        if in_use(&mut held).is_none() {
            let mut mapped = storage.mapped.lock();
            let before = mapped.len();
            mapped.retain(|f| !Arc::ptr_eq(f, &file));
            storage.maps.fetch_sub((before - mapped.len()) as u32, Ordering::SeqCst);
        }
    }
}

impl PageObject for Pages {
    fn punch(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn writable_map(&self, delta: i64) -> Result<()> {
        self.object.writable_map(delta)?;
        if delta > 0 {
            self.use_.written.store(true, Ordering::Release);
        }
        self.use_.writers.fetch_add(delta, Ordering::AcqRel);
        Ok(())
    }

    fn map_range(&self, offset: u64, len: u64, each: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        self.object.map_range(offset, len, each)
    }

    fn map_present(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        self.object.map_present(offset, len, each)
    }

    fn is_sparse(&self, offset: u64, len: u64) -> bool {
        self.object.is_sparse(offset, len)
    }

    fn room(&self) -> u64 {
        self.object.room()
    }

    fn size(&self) -> u64 {
        self.object.size()
    }

    fn id(&self) -> u64 {
        self.object.id()
    }
}

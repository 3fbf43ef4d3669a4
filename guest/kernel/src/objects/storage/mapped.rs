//! Pages of a volume's files in the domain's memory: of those that are mapped, and of those that are kept under a lease (kept.rs).
//! There is one store for both, so that mappings, reads and writes of the domain see the same bytes. A file that is mapped is
//! there whole; what other domains write meanwhile is not seen.
//!
//! What was written through shared mappings goes to the service when a program asks for it (msync, fsync) and when the last such
//! mapping is gone. Nobody says which pages these are, so their sums are compared.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use doppel_abi_service::storage::{BUFFER, Lease, Operation, Request};
use doppel_algo::byte_ranges::Ranges;
use doppel_layer::Sum;

use super::call::Call;
use super::node::Node;
use super::{Storage, storage};
use crate::core::sched::can_wait;
use crate::memory::{MapSource, PageObject};
use crate::objects::pages::{Object, PAGE};
use crate::objects::vfs::file::Whence;
use crate::objects::vfs::io::Output;
use crate::{Errno, Result};

/// Requests of one thread that are under way at once.
pub(super) const AT_ONCE: usize = 4;
/// Pages that a buffer holds.
pub(super) const MOST: u64 = BUFFER as u64 / PAGE;

/// A file's pages, if there are any.
pub(super) type Held = Option<Box<Mapped>>;

/// What is in memory of a file.
pub(super) struct Mapped {
    pub object: Arc<Object>,
    /// All of it is: what has no page is a hole.
    pub whole: bool,
    /// Under which its pages are worth something without a mapping.
    lease: Lease,
    /// How it is entered among the files with pages that are kept.
    entry: Option<Entry>,
    pages: Weak<Pages>,
    use_: Arc<Use>,
    /// The sums of pages as the service has them; none at all: no mapping can change a page.
    sums: Option<Sums>,
    /// What was written and waits.
    pub unwritten: Ranges,
    /// When that was, in nanoseconds since 1970.
    pub mtime: i64,
}

/// A file among those with pages that are kept.
struct Entry {
    storage: &'static Storage,
    number: u64,
    /// Pages that are counted.
    pages: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.storage.kept.leave(self.number);
        self.storage.kept.count(self.pages, 0);
    }
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
            in_use(&mut held, self.file.lease());
        }
    }
}

/// What is in memory, if anything is mapped or has to be written back, or it is kept under this lease.
pub(super) fn in_use(held: &mut Held, lease: Lease) -> Option<&mut Mapped> {
    if held.as_ref().is_some_and(|m| !m.is_mapped() && !m.is_kept(lease) && m.unwritten.is_empty()) {
        *held = None;
    }
    held.as_deref_mut()
}

impl Mapped {
    /// Nothing of a file of this size.
    pub fn new(size: u64, lease: Lease) -> Result<Box<Self>> {
        let object = Object::new(0);
        object.truncate(size)?;
        Ok(Box::new(Self {
            object,
            whole: false,
            lease,
            entry: None,
            pages: Weak::new(),
            use_: Arc::default(),
            sums: None,
            unwritten: Ranges::default(),
            mtime: 0,
        }))
    }

    /// Whether a mapping has it, or had it and what that has written is to be written back.
    pub fn is_mapped(&self) -> bool {
        self.pages.strong_count() > 0 || self.use_.written.load(Ordering::Acquire)
    }

    /// Whether its pages are worth something under this lease.
    pub fn is_kept(&self, lease: Lease) -> bool {
        lease.is_held() && self.lease == lease
    }

    /// Whether all its bytes from `at` to `end` are here.
    pub fn is_here(&self, at: u64, end: u64) -> bool {
        let end = end.min(self.object.len());
        self.whole || at >= end || self.object.is_present(at / PAGE, end.div_ceil(PAGE))
    }

    /// Counts its pages, if they are kept.
    pub fn count(&mut self, file: &Node) {
        if !self.lease.is_held() {
            return;
        }
        let storage = file.volume.storage;
        let enter = || Entry { storage, number: storage.kept.enter(&file.me), pages: 0 };
        let entry = self.entry.get_or_insert_with(enter);
        let now = self.object.pages();
        storage.kept.count(entry.pages, now);
        entry.pages = now;
    }

    /// Drops all pages, which nothing has mapped.
    pub fn clear(&mut self) -> Result<()> {
        self.whole = false;
        self.object.punch(0, self.object.len())
    }

    /// Brings it in step with a write that the service has done, of `len` bytes of the call's buffer at `at`, after which the file has
    /// `size` bytes.
    pub fn wrote(&mut self, call: &Call, at: u64, len: usize, size: u64) -> Result<()> {
        let (first, end) = (at / PAGE, (at + len as u64).div_ceil(PAGE));
        if self.whole || self.object.is_present(first, end) {
            let put = self.object.put(at, len, true, |place, done, len| call.take_to_pages(done, place, len));
            match put {
                Err(_) if !self.is_mapped() => self.clear()?,
                put => put?,
            }
        } else {
            self.object.punch(first * PAGE, (end - first) * PAGE)?;
        }
        if size > self.object.len() {
            self.object.truncate(size)?;
        }
        // What was written through mappings in the same pages is not the service's yet.
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
        self.whole = false;
        if self.is_mapped() {
            self.load(file)?;
        }
        if self.sums.is_some() {
            self.sums = Some(sums(&self.object)?);
        }
        Ok(())
    }

    /// Reads what is not in memory.
    fn load(&mut self, file: &Node) -> Result<()> {
        let size = self.object.len();
        let mut at = 0;
        while at < size {
            // Small files are read as they are.
            let data = if size <= BUFFER as u64 { Ok(at) } else { file.next(at, Whence::Data) };
            let first = match data {
                Ok(data) if data >= at => data / PAGE,
                // Nothing but holes is left, or there is less than there was.
                _ => break,
            };
            // Data that ends where it begins is no answer: all that is left is read then.
            let hole = file.next(first * PAGE, Whence::Hole).ok().filter(|hole| *hole > at);
            at = hole.unwrap_or(size).min(size);
            self.load_run(file, first, at.div_ceil(PAGE))?;
        }
        self.whole = true;
        Ok(())
    }

    fn load_run(&self, file: &Node, mut page: u64, end: u64) -> Result<()> {
        while page < end {
            let missing = self.object.missing(page, end).min(MOST * AT_ONCE as u64);
            if missing > 0 && file.bring(&self.object, page, missing)?.is_some() {
                return Err(Errno::ENOSPC);
            }
            // What did not come is asked for once more.
            while page < end && self.object.is_present(page, page + 1) {
                page += 1;
            }
        }
        Ok(())
    }
}

impl Node {
    /// Brings pages that are missing into memory, by a few requests at once. If there is no room for the first ones, the call that has
    /// their bytes, and how many these are.
    pub(super) fn bring(&self, object: &Object, page: u64, count: u64) -> Result<Option<(Call, usize)>> {
        let (mut calls, mut asked) = (Vec::with_capacity(AT_ONCE), 0);
        while asked < count && calls.len() < AT_ONCE {
            // Nobody who has a slot waits for another one.
            let call =
                if asked == 0 { Some(self.call()) } else { self.volume.storage.try_call(self.before()) };
            let Some(call) = call else { break };
            let pages = (count - asked).min(MOST);
            let (a, b) = ((page + asked) * PAGE, pages * PAGE);
            call.start(Request { a, b, ..self.request(Operation::Read) });
            calls.push((call, page + asked, pages * PAGE));
            asked += pages;
        }
        let mut done = Ok(None);
        // A slot is not left before its request is answered.
        for (call, first, len) in calls {
            let (len, answer) = (len as usize, call.finish());
            let got = answer.map(|a| usize::try_from(a.value).unwrap_or(usize::MAX).min(len));
            let take = |place, done: usize, len: usize, got: usize| {
                call.take_to_pages(done, place, len.min(got.saturating_sub(done)));
            };
            done = match (done, got) {
                (Ok(None), Ok(got)) => {
                    let put =
                        object.put(first * PAGE, len, false, |place, done, len| take(place, done, len, got));
                    Ok(if put.is_err() && first == page { Some((call, got)) } else { None })
                }
                (Ok(None), Err(e)) => Err(e),
                (done, _) => done,
            };
        }
        done
    }

    /// What `mmap(2)` maps; `writable`: it may be written through.
    pub(super) fn map_pages(&self, writable: bool) -> Result<MapSource> {
        let file = self.me.upgrade().ok_or(Errno::EIO)?;
        let lease = self.lease();
        let mut held = self.lock_alone();
        self.settle(&mut held);
        if in_use(&mut held, lease).is_none() {
            *held = Some(Mapped::new(self.asked().size, lease)?);
        }
        let Some(m) = held.as_mut() else { return Err(Errno::EIO) };
        if !m.whole {
            m.load(self)?;
            m.count(self);
        }
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

    fn write_back_held(&self, held: &mut Held) -> Result<()> {
        let Some(m) = held.as_mut().filter(|m| m.use_.written.load(Ordering::Acquire)) else { return Ok(()) };
        // A mapping that comes after this look says so again.
        if m.use_.writers.load(Ordering::Acquire) == 0 {
            m.use_.written.store(false, Ordering::Release);
        }
        let object = m.object.clone();
        let Some(sums) = &mut m.sums else { return Ok(()) };
        pages(&object, |number, page| {
            let now = Some(Sum::of(0, page));
            match sums.get(&number) {
                Some(before) if *before == now => return Ok(()),
                None if page.iter().all(|b| *b == 0) => return Ok(()),
                _ => {}
            }
            let call = self.call();
            call.fill(page);
            let (a, b) = (number * PAGE, page.len() as u64);
            call.ask(Request { a, b, ..self.request(Operation::Write) })?;
            self.note(&call, true);
            sums.insert(number, now);
            Ok(())
        })
    }

    /// The next data or hole from `at` on.
    fn next(&self, at: u64, what: Whence) -> Result<u64> {
        let request = Request { a: at, flags: what as u32, ..self.request(Operation::Seek) };
        self.call().ask(request).map(|answer| answer.value)
    }

    /// Drops pages that are only kept, if nobody works with them and they were not read since the last time.
    pub(super) fn drop_pages(&self) {
        if self.used.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Some(mut held) = self.mapped.try_lock()
            && held.as_ref().is_some_and(|m| !m.is_mapped())
            && !self.waits.load(Ordering::SeqCst)
        {
            *held = None;
        }
    }
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
        all.insert(number, Some(Sum::of(0, page)));
        Ok(())
    })?;
    Ok(all)
}

/// Mappings are gone: gives the service what was written through those that were the last ones; `all`: the domain ends, through
/// any. The caller holds no lock. False: somebody works with one of the files, and is not waited for.
pub fn settle(all: bool) -> bool {
    let Some(storage) = storage() else { return true };
    if storage.maps.load(Ordering::SeqCst) == 0 {
        return true;
    }
    let mut whole = true;
    let files = storage.mapped.lock().clone();
    for file in files {
        // PID 1 waits for nobody who may wait for it: what such a one does is lost with its program.
        let held = if can_wait() { Some(file.mapped.lock()) } else { file.mapped.try_lock() };
        let Some(mut held) = held else {
            whole = false;
            continue;
        };
        let done = held.as_ref().is_none_or(|m| m.use_.writers.load(Ordering::Acquire) == 0);
        if done || all {
            // What cannot be written is lost, as on Linux where nobody asks by msync.
            let _ = file.write_back_held(&mut held);
        }
        // Under the lock, so that one who maps it now enters it behind this.
        in_use(&mut held, file.lease());
        if held.as_ref().is_none_or(|m| !m.is_mapped()) {
            if let Some(m) = held.as_mut() {
                m.sums = None;
            }
            let mut mapped = storage.mapped.lock();
            let before = mapped.len();
            mapped.retain(|f| !Arc::ptr_eq(f, &file));
            storage.maps.fetch_sub((before - mapped.len()) as u32, Ordering::SeqCst);
        }
    }
    whole
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

    fn map_lazily(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        self.object.map_lazily(offset, len, each)
    }

    fn map_present(
        &self,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(Option<u64>, u64) -> Result<()>,
    ) -> Result<()> {
        self.object.map_present(offset, len, each)
    }

    fn places(&self, offset: u64, len: u64, each: &mut dyn FnMut(Option<u64>, u64)) {
        self.object.places(offset, len, each);
    }

    fn note_mapped(&self, offset: u64, len: u64) {
        self.object.note_mapped(offset, len);
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

//! A disk that is open.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::map::{OF_PAGE, Part, State};
use crate::{BLOCK, DATA_AT, File, Header, MAP_AT, MOST_LAYERS, map_bytes};

/// A layer, and the file with its live map, if there is one: that counts then.
#[derive(Debug)]
pub struct Layer<F> {
    /// What it is.
    pub header: Header,
    /// Its file.
    pub file: F,
    /// The file of its live map.
    pub live: Option<F>,
}

/// A disk: its layers, the topmost first.
#[derive(Debug)]
pub struct Stack<F> {
    layers: Vec<Layer<F>>,
    /// None: it is only read.
    writes: Option<Writes>,
}

#[derive(Debug)]
struct Writes {
    /// Who changes where blocks are.
    change: Mutex<()>,
    /// Who flushes.
    flush: Mutex<()>,
    /// Pages of the map that may differ from the layer's own. Whoever was here before has left no list.
    dirty: Vec<AtomicBool>,
    /// A sync has failed: nobody knows what is on the disk.
    failed: AtomicBool,
}

/// Where a block is, all layers considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Zero,
    In(usize),
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    // It protects nothing that could be half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<F: File> Layer<F> {
    /// Reads what a layer is from its file.
    ///
    /// # Errors
    /// It is none, or what the host says.
    pub fn open(file: F, live: Option<F>) -> io::Result<Self> {
        let mut bytes = [0; Header::BYTES];
        file.read(0, &mut bytes)?;
        let header = Header::decode(&bytes).map_err(wrong)?;
        Ok(Self { header, file, live })
    }

    fn map(&self) -> &F {
        self.live.as_ref().unwrap_or(&self.file)
    }
}

impl<F: File> Stack<F> {
    /// A disk of these layers, the topmost first. If it is written to, that one has a live map.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn new(layers: Vec<Layer<F>>, read_only: bool) -> io::Result<Self> {
        let Some(top) = layers.first() else { return Err(wrong("a disk without layers")) };
        let below = layers.iter().skip(1).map(|layer| Some(layer.header.id)).chain([None]);
        if layers.len() > MOST_LAYERS || !layers.iter().map(|layer| layer.header.below).eq(below) {
            return Err(wrong("layers that do not belong together"));
        }
        if !read_only && top.live.is_none() {
            return Err(wrong("a disk that is written to without a live map"));
        }
        let pages = map_bytes(top.header.size) / BLOCK;
        let writes = (!read_only).then(|| Writes {
            change: Mutex::default(),
            flush: Mutex::default(),
            dirty: (0..pages).map(|_| AtomicBool::new(true)).collect(),
            failed: AtomicBool::new(false),
        });
        Ok(Self { layers, writes })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.layers.first().map_or(0, |top| top.header.size)
    }

    fn top(&self) -> &Layer<F> {
        // There is one: `new` has looked.
        &self.layers[0]
    }

    /// Where these blocks are: at most some pages of the map.
    fn places(&self, first: u64, count: u64) -> io::Result<Vec<Place>> {
        let mut found = vec![None; usize::try_from(count).unwrap_or(0)];
        for (i, layer) in self.layers.iter().enumerate() {
            let part = Part::read(layer.map(), first, count)?;
            let mut open = false;
            for (block, place) in part.blocks().zip(&mut found).filter(|(_, place)| place.is_none()) {
                *place = match part.get(block) {
                    State::Data => Some(Place::In(i)),
                    State::Zero => Some(Place::Zero),
                    State::Hole if block * BLOCK >= layer.header.visible => Some(Place::Zero),
                    State::Hole => None,
                };
                open |= place.is_none();
            }
            if !open {
                break;
            }
        }
        Ok(found.into_iter().map(|place| place.unwrap_or(Place::Zero)).collect())
    }

    /// Reads `len` bytes from `at` on, inside the disk: calls `piece` with where they are, how many bytes came before, and how
    /// many there are; no file: they are zeros.
    ///
    /// # Errors
    /// What the host or `piece` says.
    pub fn read<E: From<io::Error>>(
        &self,
        at: u64,
        len: usize,
        mut piece: impl FnMut(Option<(&F, u64)>, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let (first, end) = (at / BLOCK, (at + len as u64).div_ceil(BLOCK));
        let places = self.places(first, end - first)?;
        let mut done = 0;
        while done < len {
            let from = at + done as u64;
            let n = usize::try_from(from / BLOCK - first).unwrap_or(usize::MAX);
            let place = places[n];
            let same = places[n..].iter().take_while(|p| **p == place).count() as u64;
            let to = ((from / BLOCK + same) * BLOCK).min(at + len as u64);
            let part = usize::try_from(to - from).unwrap_or(usize::MAX);
            let file = match place {
                Place::Zero => None,
                Place::In(i) => Some((&self.layers[i].file, DATA_AT + from)),
            };
            piece(file, done, part)?;
            done += part;
        }
        Ok(())
    }

    /// Reads into private memory.
    ///
    /// # Errors
    /// What the host says.
    pub fn read_to(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let len = bytes.len();
        self.read(at, len, |file, done, part| {
            let bytes = &mut bytes[done..done + part];
            match file {
                Some((file, at)) => file.read(at, bytes),
                None => {
                    bytes.fill(0);
                    Ok(())
                }
            }
        })
    }

    fn writes(&self) -> io::Result<&Writes> {
        self.writes.as_ref().ok_or_else(|| io::Error::from(Errno::ROFS))
    }

    /// Writes `len` bytes at `at`, inside the disk: calls `put` with the file, the position in it and how many bytes there are, which
    /// gives how many it has written. Gives how many of these are on the disk.
    ///
    /// # Errors
    /// What the host or `put` says.
    pub fn write<E: From<io::Error>>(
        &self,
        at: u64,
        len: usize,
        mut put: impl FnMut(&F, u64, usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let writes = self.writes()?;
        let (top, end) = (self.top(), at + len as u64);
        let (first, behind) = (at / BLOCK, end.div_ceil(BLOCK));
        if len == 0 {
            return Ok(0);
        }
        let is_data = |part: &Part| part.blocks().all(|block| part.get(block) == State::Data);
        if is_data(&Part::read(top.map(), first, behind - first)?) {
            return put(&top.file, DATA_AT + at, len);
        }
        let _changes = lock(&writes.change);
        let mut part = Part::read(top.map(), first, behind - first)?;
        let last = behind - 1;
        let in_part = [(first, !at.is_multiple_of(BLOCK)), (last, !end.is_multiple_of(BLOCK))];
        for (n, (block, _)) in in_part.iter().enumerate().filter(|(_, (_, in_part))| *in_part) {
            let again = n == 1 && last == first && in_part[0].1;
            if !again && part.get(*block) != State::Data {
                self.copy_up(*block)?;
            }
        }
        let done = put(&top.file, DATA_AT + at, len)?.min(len);
        let reached = at + done as u64;
        // Of a block that is not whole the rest is there only if it was copied: it is the first or the last one.
        let whole = if done == len { behind } else { reached / BLOCK };
        let mut changed = false;
        for block in first..whole {
            changed |= part.set(block, State::Data);
        }
        if changed {
            part.write(top.map())?;
            writes.changed(first, whole);
        }
        let written = (whole * BLOCK).min(reached).saturating_sub(at);
        match usize::try_from(written).unwrap_or(0) {
            0 => Err(io::Error::from(Errno::NOSPC).into()),
            n => Ok(n),
        }
    }

    /// Puts what a block is by the layers below into the topmost one, where nothing says yet that it is there.
    fn copy_up(&self, block: u64) -> io::Result<()> {
        let mut bytes = [0; BLOCK as usize];
        self.read_to(block * BLOCK, &mut bytes)?;
        self.top().file.write(DATA_AT + block * BLOCK, &bytes)
    }

    /// Makes bytes zero, inside the disk; whole blocks take no room then.
    ///
    /// # Errors
    /// What the host says.
    pub fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        let (first, behind) = (at.div_ceil(BLOCK), end / BLOCK);
        if first >= behind {
            return self.write_zeros(at, end);
        }
        self.write_zeros(at, first * BLOCK)?;
        let mut block = first;
        while block < behind {
            let count = (OF_PAGE - block % OF_PAGE).min(behind - block);
            self.zero_blocks(block, count)?;
            block += count;
        }
        self.write_zeros(behind * BLOCK, end)
    }

    fn write_zeros(&self, at: u64, end: u64) -> io::Result<()> {
        // Less than two blocks.
        let zeros = vec![0; usize::try_from(end - at).unwrap_or(0)];
        let mut done = 0;
        while done < zeros.len() {
            done += self.write(at + done as u64, zeros.len() - done, |file, at, n| {
                file.write(at, &zeros[..n]).map(|()| n)
            })?;
        }
        Ok(())
    }

    /// Of one page of the map.
    fn zero_blocks(&self, first: u64, count: u64) -> io::Result<()> {
        let writes = self.writes()?;
        let _changes = lock(&writes.change);
        let places = self.places(first, count)?;
        let top = self.top();
        let mut part = Part::read(top.map(), first, count)?;
        let (mut changed, mut punched) = (false, false);
        for (block, place) in part.blocks().zip(places) {
            // Where nothing is there is nothing to say.
            if place != Place::Zero {
                punched |= place == Place::In(0);
                changed |= part.set(block, State::Zero);
            }
        }
        if changed {
            part.write(top.map())?;
            writes.changed(first, first + count);
        }
        if punched {
            // It only takes room.
            let _ = top.file.punch(DATA_AT + first * BLOCK, count * BLOCK);
        }
        Ok(())
    }

    /// Puts all that layers below have into the topmost one, which then needs none of them.
    ///
    /// # Errors
    /// What the host says. The disk is as before then.
    pub fn flatten(&mut self) -> io::Result<()> {
        let blocks = self.size() / BLOCK;
        let mut first = 0;
        while first < blocks {
            let count = (OF_PAGE - first % OF_PAGE).min(blocks - first);
            self.take_over(first, count)?;
            first += count;
        }
        self.flush()?;
        let top = self.top();
        let header = Header { below: None, visible: 0, ..top.header };
        top.file.write(0, &header.encode())?;
        top.file.sync()?;
        self.layers.truncate(1);
        if let Some(top) = self.layers.first_mut() {
            top.header = header;
        }
        Ok(())
    }

    /// Of one page of the map.
    fn take_over(&self, first: u64, count: u64) -> io::Result<()> {
        let writes = self.writes()?;
        let _changes = lock(&writes.change);
        let places = self.places(first, count)?;
        let top = self.top();
        let mut part = Part::read(top.map(), first, count)?;
        let mut changed = false;
        for (block, place) in part.blocks().zip(places) {
            if matches!(place, Place::In(1..)) {
                self.copy_up(block)?;
                changed |= part.set(block, State::Data);
            }
        }
        if changed {
            part.write(top.map())?;
            writes.changed(first, first + count);
        }
        Ok(())
    }

    /// All that was written and answered before survives a power cut from here on.
    ///
    /// # Errors
    /// What the host says. Once the host could not sync it fails for good.
    pub fn flush(&self) -> io::Result<()> {
        let Some(writes) = &self.writes else { return Ok(()) };
        let _flushes = lock(&writes.flush);
        if writes.failed.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier sync of the disk has failed"));
        }
        // Who changes a page from here on marks it again.
        let dirty = writes.dirty.iter().enumerate().filter(|(_, dirty)| dirty.swap(false, Ordering::SeqCst));
        let dirty: Vec<usize> = dirty.map(|(page, _)| page).collect();
        self.flush_pages(writes, &dirty).inspect_err(|_| {
            dirty.iter().for_each(|page| writes.dirty[*page].store(true, Ordering::SeqCst));
        })
    }

    fn flush_pages(&self, writes: &Writes, dirty: &[usize]) -> io::Result<()> {
        let top = self.top();
        // What could not be written is clean for the host all the same, so the next sync would tell nothing of it.
        let sync = || top.file.sync().inspect_err(|_| writes.failed.store(true, Ordering::SeqCst));
        let (mut now, mut own) = ([0; BLOCK as usize], [0; BLOCK as usize]);
        let mut news: Vec<(u64, [u8; BLOCK as usize])> = Vec::new();
        for at in dirty.iter().map(|page| MAP_AT + *page as u64 * BLOCK) {
            top.map().read(at, &mut now)?;
            top.file.read(at, &mut own)?;
            if now != own {
                news.push((at, now));
            }
        }
        // The blocks that these pages name are in the file, and are on the disk then.
        sync()?;
        if news.is_empty() {
            return Ok(());
        }
        for (at, page) in &news {
            top.file.write(*at, page)?;
        }
        sync()
    }
}

impl Writes {
    /// The map has changed at these blocks.
    fn changed(&self, first: u64, behind: u64) {
        for page in first / OF_PAGE..behind.div_ceil(OF_PAGE) {
            if let Some(dirty) = usize::try_from(page).ok().and_then(|page| self.dirty.get(page)) {
                dirty.store(true, Ordering::SeqCst);
            }
        }
    }
}

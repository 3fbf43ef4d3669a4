//! One domain's channel, from the service domain's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use doppel_abi_machine::{VirtualRegisters, event};
use doppel_abi_service::{Answers, Bells, ChannelHeader, ENTRIES, MAGIC, Requests, VERSION, layout, sleeps};
use doppel_ring::{Broken, Consumer, Entry, Producer};
use doppel_sys::shared::{SharedLayout, SharedMap};
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::futex;

/// Makes a channel of `size` bytes: its memory file, and the doorbell of the service domain.
///
/// # Errors
/// What the host says.
pub fn make(size: u64) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("doppel-channel", flags)?;
    rustix::fs::ftruncate(&memory, size)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let map = SharedMap::new(memory.as_fd(), PAGE)?;
    let header: &ChannelHeader = map.get(0);
    header.version.store(VERSION, Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Release);
    let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok((memory, doorbell))
}

/// How often a service domain has begun to serve the channel in this memory, as that says: the domain may have written it.
///
/// # Errors
/// What the host says.
pub fn epoch(memory: BorrowedFd<'_>) -> io::Result<u32> {
    let mut word = [0; 4];
    let at = layout::HEADER + std::mem::offset_of!(ChannelHeader, epoch) as u64;
    match rustix::io::pread(memory, &mut word, at)? {
        4 => Ok(u32::from_le_bytes(word)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

const PAGE: usize = 4096;

/// A service domain's end of a channel.
#[derive(Debug)]
pub struct Channel {
    map: Arc<SharedMap>,
    doorbell: OwnedFd,
    /// The supervisor's, for news of a hibernated domain.
    bell: Option<Arc<OwnedFd>>,
    epoch: u32,
    /// The guest kernel has begun this epoch.
    agreed: bool,
    requests: Consumer,
    answers: Producer,
    /// The last answer found no room: before there is some, nothing is heard.
    full: bool,
    /// Something was published or marked since the guest kernel was last woken.
    news: bool,
    /// Whether a program may wait for some of them.
    calls: bool,
    /// How often there were news; what the header's bell says.
    count: u32,
    /// The guest kernel was to look at the last news by itself.
    owed: bool,
}

pub(crate) fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("a 64-bit host")
}

impl Channel {
    /// Opens the channel in `memory`, which was made by [`make`] with this size, and begins a new epoch. The eventfd
    /// `bell` is rung when there is news for a domain that is hibernated.
    ///
    /// # Errors
    /// What the host says; or that the file is no sealed channel of this size.
    pub fn open(
        memory: &OwnedFd,
        doorbell: OwnedFd,
        bell: Option<Arc<OwnedFd>>,
        size: u64,
    ) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(memory)?;
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a channel: {what}"));
        if !seals.contains(SealFlags::SHRINK) || rustix::fs::fstat(memory)?.st_size.cast_unsigned() != size {
            return Err(bad("its size"));
        }
        let map = Arc::new(SharedMap::new(memory.as_fd(), at(size))?);
        let header: &ChannelHeader = map.get(at(layout::HEADER));
        if header.magic.load(Ordering::Acquire) != MAGIC || header.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(bad("its magic or version"));
        }
        // Never 0, and another than the last one, whatever the guest kernel has made of it.
        let epoch = header.epoch.load(Ordering::Relaxed).wrapping_add(1).max(1);
        header.epoch.store(epoch, Ordering::SeqCst);
        let count = header.bell.load(Ordering::Relaxed);
        let mut c = Self {
            map,
            doorbell,
            bell,
            epoch,
            agreed: false,
            requests: Consumer::default(),
            answers: Producer::default(),
            full: false,
            news: false,
            calls: false,
            count,
            owed: false,
        };
        c.announce();
        Ok(c)
    }

    /// What the guest kernel rings when it wants to be heard while the service domain sleeps.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// The memory, for buffers.
    #[must_use]
    pub fn memory(&self) -> &SharedMap {
        &self.map
    }

    /// The memory, for who moves data while others use the channel.
    #[must_use]
    pub fn share(&self) -> Arc<SharedMap> {
        self.map.clone()
    }

    /// A structure in the memory.
    #[must_use]
    pub fn get<T: SharedLayout>(&self, offset: u64) -> &T {
        self.map.get(at(offset))
    }

    fn header(&self) -> &ChannelHeader {
        self.get(layout::HEADER)
    }

    /// Whether the guest kernel has begun this epoch. Before that nothing in the rings means anything.
    pub fn agreed(&mut self) -> bool {
        self.agreed = self.agreed || self.header().guest_epoch.load(Ordering::Acquire) == self.epoch;
        self.agreed
    }

    /// Takes at most `most` requests, in order.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn hear(&mut self, most: usize) -> Result<Vec<Entry>, Broken> {
        let mut heard = Vec::new();
        if !self.agreed() {
            return Ok(heard);
        }
        let requests: &Requests = self.map.get(at(layout::REQUESTS));
        let ring = requests.ring();
        while heard.len() < most
            && let Some(entry) = self.requests.pop(&ring)?
        {
            heard.push(entry);
        }
        if self.requests.release(&ring) {
            self.news = true;
        }
        Ok(heard)
    }

    /// Takes the next request.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn hear_one(&mut self) -> Result<Option<Entry>, Broken> {
        if !self.agreed() {
            return Ok(None);
        }
        let requests: &Requests = self.map.get(at(layout::REQUESTS));
        let ring = requests.ring();
        let heard = self.requests.pop(&ring)?;
        if heard.is_some() && self.requests.release(&ring) {
            self.news = true;
        }
        Ok(heard)
    }

    /// Takes all marks.
    pub fn marked(&mut self, look: impl FnMut(u32)) {
        if self.agreed() {
            self.map.get::<Bells>(at(layout::TO_SERVICE)).take(look);
        }
    }

    /// Whether there is something to hear, for who does not sleep. One that does not take its answers says nothing.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn speaks(&mut self) -> Result<bool, Broken> {
        if !self.agreed() {
            return Ok(false);
        }
        if self.full {
            let answers: &Answers = self.map.get(at(layout::ANSWERS));
            return Ok(self.answers.room(&answers.ring())? > 0);
        }
        let requests: &Requests = self.map.get(at(layout::REQUESTS));
        let bells: &Bells = self.map.get(at(layout::TO_SERVICE));
        Ok(bells.any() || self.requests.waiting(&requests.ring())? > 0)
    }

    /// Asks for the doorbell; false if there is something to hear now. Whoever sleeps owes nobody a wake-up.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn sleep(&mut self) -> Result<bool, Broken> {
        self.insist();
        if self.full {
            // What it says of room is of no interest: the doorbell is not asked for yet.
            let answers: &Answers = self.map.get(at(layout::ANSWERS));
            let _ = self.answers.sleep(&answers.ring())?;
        }
        self.header().service_sleeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(!self.speaks()?)
    }

    /// The service domain is awake: the doorbell need not be rung.
    pub fn stay_awake(&self) {
        self.header().service_sleeps.store(0, Ordering::Relaxed);
    }

    /// Clears the doorbell.
    pub fn rung(&self) {
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
    }

    /// Puts an answer into the ring; false if it is full. It is seen after [`Self::wake`]. Only a `call` wakes a domain that is
    /// hibernated.
    ///
    /// # Errors
    /// The guest kernel broke the protocol.
    pub fn answer(&mut self, entry: &Entry, call: bool) -> Result<bool, Broken> {
        let answers: &Answers = self.map.get(at(layout::ANSWERS));
        let fits = self.answers.push(&answers.ring(), entry)?;
        self.news |= fits;
        self.calls |= fits && call;
        self.full = !fits;
        Ok(fits)
    }

    /// Marks an object for the guest kernel. It is seen after [`Self::wake`].
    pub fn mark(&mut self, object: u32) {
        let bells: &Bells = self.map.get(at(layout::TO_GUEST));
        bells.mark(object);
        (self.news, self.calls) = (true, true);
    }

    /// Tells the guest kernel of the epoch, whoever was to wake it before: that one may have died meanwhile.
    fn announce(&mut self) {
        self.count = self.count.wrapping_add(1);
        let header = self.header();
        header.bell.store(self.count, Ordering::SeqCst);
        match header.guest_sleeps.swap(sleeps::NOT, Ordering::AcqRel) {
            sleeps::HIBERNATED => ring(self.bell.as_deref()),
            _ => {
                // Whoever sleeps there may look at nothing else.
                let _ = futex::wake(&header.bell, futex::Flags::empty(), i32::MAX.unsigned_abs());
                self.post();
            }
        }
    }

    /// Publishes, and wakes the guest kernel if there is news for it and it sleeps.
    pub fn wake(&mut self) {
        if !std::mem::take(&mut self.news) {
            return;
        }
        let answers: &Answers = self.map.get(at(layout::ANSWERS));
        // All news wake by one word, so the ring's own is not looked at.
        let _ = self.answers.publish(&answers.ring());
        self.count = self.count.wrapping_add(1);
        if std::mem::take(&mut self.calls) {
            self.header().calls.fetch_add(1, Ordering::SeqCst);
        }
        let header = self.header();
        header.bell.store(self.count, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        match header.guest_sleeps.load(Ordering::Relaxed) {
            sleeps::NOT => {}
            sleeps::SOON => self.owed = true,
            _ => self.rouse(),
        }
    }

    /// Wakes a guest kernel that was to look at news by itself, but has not.
    pub fn insist(&mut self) {
        if std::mem::take(&mut self.owed) && self.has_untaken() {
            self.rouse();
        }
    }

    fn has_untaken(&self) -> bool {
        let answers: &Answers = self.map.get(at(layout::ANSWERS));
        let bells: &Bells = self.map.get(at(layout::TO_GUEST));
        bells.any() || self.answers.room(&answers.ring()).is_ok_and(|n| (n as usize) < ENTRIES)
    }

    /// Wakes the guest kernel if it wants to be woken: the vCPU that sleeps on the bell, or by an event.
    fn rouse(&self) {
        let header = self.header();
        if header.guest_sleeps.load(Ordering::Relaxed) == sleeps::HIBERNATED && !header.is_called() {
            return;
        }
        match header.guest_sleeps.swap(sleeps::NOT, Ordering::AcqRel) {
            sleeps::NOT => return,
            sleeps::HIBERNATED => return ring(self.bell.as_deref()),
            _ => {}
        }
        // Who was about to sleep there finds another number; but it may also just have left, and then nobody looks.
        let watched = header.watched.load(Ordering::SeqCst) != 0;
        if !watched || !matches!(futex::wake(&header.bell, futex::Flags::empty(), 1), Ok(1..)) {
            self.post();
        }
    }

    /// Posts the event (docs/machine-interface.md).
    fn post(&self) {
        let registers: &VirtualRegisters = self.get(layout::REGISTERS);
        registers.pending.fetch_or(event::NETWORK, Ordering::SeqCst);
        registers.event_seq.fetch_add(1, Ordering::SeqCst);
        // The only possible failure is an unmapped word, and ours is mapped.
        let _ = futex::wake(&registers.event_seq, futex::Flags::empty(), i32::MAX.unsigned_abs());
    }
}

fn ring(bell: Option<&OwnedFd>) {
    if let Some(bell) = bell {
        // A counter that is full is as good as rung.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

//! A service domain's heartbeat. It beats at every step of work and rests with it, so an idle one costs nobody anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use doppel_abi_service::Pulse;
use doppel_sys::shared::SharedMap;
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

const SIZE: usize = 4096;
/// At work, though it has not said so yet.
pub(crate) const BORN: u32 = 1;

/// The heartbeat, as both sides have it.
#[derive(Debug)]
pub struct Heartbeat {
    file: OwnedFd,
    map: SharedMap,
    /// An eventfd: the service domain's answer to a supervisor that sleeps.
    alarm: OwnedFd,
    /// The service domain's own count, and when its step of work began.
    count: u32,
    begun: Option<Instant>,
}

impl Heartbeat {
    /// Makes one.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("doppel-heart", flags)?;
        rustix::fs::ftruncate(&file, SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::open(file, rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
    }

    /// The one in `file`, with this alarm.
    ///
    /// # Errors
    /// What the host says.
    pub fn open(file: OwnedFd, alarm: OwnedFd) -> io::Result<Self> {
        let map = SharedMap::new(file.as_fd(), SIZE)?;
        Ok(Self { file, map, alarm, count: BORN, begun: None })
    }

    /// The one of a service domain that another process has started, as was taken from that.
    ///
    /// # Errors
    /// What the host says, or if it is none.
    pub fn taken(file: OwnedFd, alarm: OwnedFd) -> io::Result<Self> {
        crate::check_memory(&file, SIZE as u64)?;
        crate::check_bell(&alarm)?;
        Self::open(file, alarm)
    }

    /// The memory file.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Readable when the service domain works again, after [`Self::sleep`].
    #[must_use]
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    fn pulse(&self) -> &Pulse {
        self.map.get(0)
    }

    /// The service domain: another step of work.
    pub fn beat(&mut self) {
        self.count = (self.count | 1).wrapping_add(2);
        self.measure(true);
        self.say();
        let pulse = self.pulse();
        fence(Ordering::SeqCst);
        if pulse.watcher_sleeps.load(Ordering::Relaxed) != 0
            && pulse.watcher_sleeps.swap(0, Ordering::AcqRel) != 0
        {
            self.rouse();
        }
    }

    /// The service domain: it waits for work.
    pub fn rest(&mut self) {
        self.count = (self.count | 1).wrapping_add(1);
        self.measure(false);
        self.say();
    }

    /// A step of work is done; another one begins if it goes on.
    fn measure(&mut self, goes_on: bool) {
        let now = Instant::now();
        let begun = std::mem::replace(&mut self.begun, goes_on.then_some(now));
        let Some(step) = begun.map(|begun| now.saturating_duration_since(begun)) else { return };
        let (word, micros) = (&self.pulse().longest, u32::try_from(step.as_micros()).unwrap_or(u32::MAX));
        // Nobody else writes it.
        if micros > word.load(Ordering::Relaxed) {
            word.store(micros, Ordering::Relaxed);
        }
    }

    /// The supervisor: the longest step that the service domain says it has taken, waits for a CPU included.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.pulse().longest.load(Ordering::Relaxed).into())
    }

    fn say(&self) {
        self.pulse().count.store(self.count, Ordering::Release);
    }

    /// The supervisor, before it starts another service domain.
    pub fn begin(&self) {
        self.pulse().longest.store(0, Ordering::Relaxed);
        self.pulse().count.store(BORN, Ordering::SeqCst);
    }

    /// The supervisor: what the heart says.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.pulse().count.load(Ordering::Acquire)
    }

    /// The supervisor: it sleeps from now on, unless this is not what the heart says any more; false then.
    #[must_use]
    pub fn sleep(&self, seen: u32) -> bool {
        // An old alarm would end the sleep at once; nothing to read is as good.
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        self.pulse().watcher_sleeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.count() == seen
    }

    /// Wakes a supervisor that sleeps.
    pub fn rouse(&self) {
        // A counter that is full is as good as rung.
        let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
    }
}

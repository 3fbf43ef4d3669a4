//! What of a running domain may be used from any thread: stopping it, freezing it, looking at its memory.
//!
//! [`Core`] outlives the [`crate::Domain`] by as long as somebody works with it. Lock order: `share`, then `stops`; `sessions` and `paging` alone.
//!
//! Descriptors: the host keeps the process descriptor and the doorbell of a domain, nothing else. Its arena and page
//! file are opened through `/proc/PID/fd` when a freeze wants them: the first process holds them for ever, since the
//! filter permits no call that closes, makes or moves descriptors.

use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use doppel_abi_machine::{event, fd, layer_files, state};
use doppel_disks::InUse;
use doppel_freezer::Parent;
use doppel_sys::child::Child;
use doppel_sys::shared::SharedMap;
use doppel_volumes::Held;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use crate::freeze::frozen::Resume;
use crate::freeze::share::{self, Member};
use crate::io::ring::{post, registers};
use crate::launch::config::check_memory;
use crate::limits::cgroup::View;
use crate::limits::group_limits::limits;
use crate::lock::lock;
use crate::paging::Paging;
use crate::registry::record::{Record, Recorded};
use crate::session::slots::Slots;
use crate::{DomainStats, Error, Kind, Resources};

/// How long a domain may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// The same for one with a layer or volumes, which writes what it has changed first.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// A domain's processes and memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub child: Child,
    pub map: SharedMap,
    /// Its name; one that was made ready before it was wanted gets it late.
    pub label: Mutex<String>,
    pub id: u64,
    pub born: Born,
    /// Host name; a held clone gets it late.
    pub hostname: Mutex<String>,
    /// What of it is files of the host; one that is held gets it late.
    pub files: Mutex<HostFiles>,
    /// The images that it was last frozen to, the newest first.
    pub parents: Mutex<Vec<Parent>>,
    /// Its part in page sharing.
    pub share: Mutex<Option<Member>>,
    /// What leaves its memory, if it has a swap region.
    pub paging: Mutex<Option<Paging>>,
    /// Held by who has the domain stand still.
    pub stops: Mutex<()>,
    /// It was ended because its memory is in a frozen image.
    pub asleep: AtomicBool,
    /// It stands still until somebody wants it to go on.
    pub paused: AtomicBool,
    /// Its end is wanted.
    pub killed: AtomicBool,
    /// Which session slots are taken, and who waits for news of sessions.
    pub sessions: Mutex<Slots>,
    /// How many work with it elsewhere whom its end has to wait for.
    pub guests: Guests,
    /// Its control group, as long as the domain is there.
    pub group: Option<View>,
    /// What is written down of it for a successor of this process.
    pub record: Option<Recorded>,
}

/// See [`Core::receive`].
#[derive(Debug, Default)]
pub(crate) struct Guests {
    count: Mutex<usize>,
    left: Condvar,
}

/// Keeps a domain from being given up.
#[derive(Debug)]
pub(crate) struct Guest(Arc<Core>);

impl Deref for Guest {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        *lock(&self.0.guests.count) -= 1;
        self.0.guests.left.notify_all();
    }
}

/// What a freeze has to know of a domain's birth.
#[derive(Debug)]
pub(crate) struct Born {
    pub kind: Kind,
    pub resume: Option<Resume>,
    pub kernel: [u8; 32],
    pub image: PathBuf,
    pub generation: u64,
    pub vcpus: u32,
    pub memory_limit: AtomicU64,
    pub boot_flags: u32,
    pub owner: u32,
    pub freeze_to: Option<PathBuf>,
    pub freeze_stop: bool,
    /// It was given a channel to a storage service.
    pub storage: bool,
}

/// What of a domain is files of the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFiles {
    /// Its volumes and disks, as people name them.
    pub volumes: Vec<String>,
    /// What is kept of its volumes when it is frozen, if that can be.
    pub held: Option<Held>,
    /// Directory of the layer that is kept.
    pub layer: Option<PathBuf>,
    /// Its disks, which are whoever's who runs it.
    pub disks: Option<Weak<InUse>>,
}

impl HostFiles {
    /// Its disks, unless whoever ran it is gone.
    pub fn disks(&self) -> Result<Option<Arc<InUse>>, Error> {
        self.disks.as_ref().map(|disks| disks.upgrade().ok_or_else(ended)).transpose()
    }
}

/// The domain standing still; goes on when dropped, if it is to.
pub(crate) struct Stopped<'a> {
    pub core: &'a Core,
    pub go_on: bool,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if self.go_on {
            post(&self.core.map, event::THAW);
            self.core.wait_thawed();
            self.core.stopped();
        }
    }
}

impl Core {
    /// Its name.
    pub fn label(&self) -> String {
        lock(&self.label).clone()
    }

    /// Kills every process of the domain; one that is dead already is no error.
    pub fn kill(&self) -> Result<(), Error> {
        match rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(Error::os("kill the domain")(error)),
        }
        // On v1 what stands still does not even die. Who has it stop just now sees to that.
        self.killed.store(true, Ordering::SeqCst);
        if self.born.kind == Kind::Paene
            && let Ok(turn) = self.stops.try_lock()
        {
            self.thaw(turn);
        }
        Ok(())
    }

    /// Has it end by itself, which it does when it has written its layer; kills one that takes longer.
    pub fn shut_down(&self, grace: Duration) {
        post(&self.map, event::SHUTDOWN);
        let over = || matches!(self.state(), state::EXITED | state::PANICKED) || self.is_dead();
        if !self.look_until(grace, over) {
            // One that is left alive is seen not to end.
            let _ = self.kill();
        }
    }

    /// Whether its guest kernel, or its attendant, has something to write when the domain ends.
    pub fn writes_at_its_end(&self) -> bool {
        let files = lock(&self.files);
        match self.born.kind {
            Kind::Para => files.layer.is_some(),
            Kind::Paene => files.disks.is_some(),
        }
    }

    /// Writes something down for a successor.
    pub fn note(&self, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
        self.record.as_ref().map_or(Ok(()), |record| record.change(change))
    }

    /// Whether it is stopped by its guest kernel.
    pub fn stands_still(&self) -> bool {
        self.state() == state::FROZEN
    }

    fn state(&self) -> u32 {
        registers(&self.map).state.load(Ordering::Acquire)
    }

    pub fn is_dead(&self) -> bool {
        let mut ended = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut ended, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    /// Waits until it is dead, whoever's child it is.
    pub fn wait_dead(&self) -> Result<(), Error> {
        let mut ended = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut ended, None) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::os("wait for the domain's end")(error)),
            }
        }
    }

    /// Waits until `over`; false if that takes too long. Looks often at first: most waits take a tenth of a
    /// millisecond.
    pub fn look_until(&self, patience: Duration, mut over: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        loop {
            if over() {
                return true;
            }
            let waited = begun.elapsed();
            if waited > patience {
                return false;
            }
            std::thread::sleep((waited / 8).clamp(Duration::from_micros(20), Duration::from_millis(5)));
        }
    }

    /// Waits until the domain has gone on after a stop; only a broken guest kernel takes longer than this does.
    fn wait_thawed(&self) {
        self.look_until(Duration::from_secs(1), || self.state() != state::FROZEN || self.is_dead());
    }

    /// Has the guest kernel stop everything, with its files in memory, and waits for it.
    pub fn stop(&self) -> Result<Stopped<'_>, Error> {
        self.stop_with(layer_files::IN_MEMORY)
    }

    /// The same with the files of its layer where it is said ([`layer_files`]).
    pub fn stop_with(&self, files: u32) -> Result<Stopped<'_>, Error> {
        let turn = lock(&self.stops);
        if self.paused.load(Ordering::SeqCst) {
            return Ok(Stopped { core: self, go_on: false, _turn: turn });
        }
        let wanted = &registers(&self.map).layer_stays;
        wanted.store(files, Ordering::SeqCst);
        let standing = self.stop_now(turn);
        // Who stops it for something else needs nothing of this.
        wanted.store(layer_files::IN_MEMORY, Ordering::SeqCst);
        standing
    }

    fn stop_now<'a>(&'a self, turn: MutexGuard<'a, ()>) -> Result<Stopped<'a>, Error> {
        // Should this process die meanwhile, its successor lets the domain go on.
        self.note(|r| r.stopping = true)?;
        let registers = registers(&self.map);
        // The last time it stopped must be over.
        self.wait_thawed();
        let failures = registers.stop_failures.load(Ordering::SeqCst);
        post(&self.map, event::FREEZE);
        let failed = || registers.stop_failures.load(Ordering::SeqCst) != failures;
        let mut rounds = 0u32;
        let over = || {
            rounds += 1;
            matches!(self.state(), state::FROZEN | state::EXITED | state::PANICKED)
                || failed()
                || (rounds.is_multiple_of(16) && self.is_dead())
        };
        let writes = self.writes_at_its_end() || lock(&self.files).held.is_some();
        let patience = if writes { WRITE_PATIENCE } else { STOP_PATIENCE };
        let done = self.look_until(patience, over);
        match self.state() {
            // From here on, dropping it lets the domain go on.
            state::FROZEN => Ok(Stopped { core: self, go_on: true, _turn: turn }),
            state::EXITED | state::PANICKED => Err(ended()),
            _ if done && !failed() => Err(ended()),
            _ => {
                // Should it stop after all, it must not stay so.
                post(&self.map, event::THAW);
                self.stopped();
                Err(Error::State("the domain's programs do not stop; try again".into()))
            }
        }
    }

    /// It goes on after a stop.
    fn stopped(&self) {
        // If that cannot be written, a successor stops it once more.
        let _ = self.note(|r| r.stopping = false);
    }

    /// Stops it for a moment: it goes on although whoever had it stop has died.
    pub fn settle(&self) -> Result<(), Error> {
        if self.born.kind == Kind::Paene {
            let Some(group) = self.group.as_ref().filter(|_| !self.paused.load(Ordering::SeqCst)) else {
                return Ok(());
            };
            group.pause(false).map_err(Error::host("let the domain go on"))?;
            self.stopped();
            return Ok(());
        }
        self.stop().map(drop)
    }

    /// Has the domain stand still until [`Self::unpause`].
    pub fn pause(&self) -> Result<(), Error> {
        if self.born.kind == Kind::Paene {
            let paused = self.pause_group();
            // Who killed it meanwhile could not let it go on, and so die.
            if self.killed.load(Ordering::SeqCst) {
                self.unpause();
            }
            return paused;
        }
        let mut standing = self.stop()?;
        self.note(|r| (r.paused, r.stopping) = (true, false))?;
        standing.go_on = false;
        self.paused.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// The same by its control group, for one without a guest kernel.
    fn pause_group(&self) -> Result<(), Error> {
        let Some(group) = &self.group else {
            return Err(Error::Unsupported(
                "this paene domain runs without a control group, by which it would be paused".into(),
            ));
        };
        let _turn = lock(&self.stops);
        self.note(|r| r.stopping = true)?;
        group.pause(true).map_err(Error::host("pause the domain"))?;
        self.paused.store(true, Ordering::SeqCst);
        if self.look_until(STOP_PATIENCE, || {
            group.is_still() || self.killed.load(Ordering::SeqCst) || self.is_dead()
        }) {
            self.note(|r| (r.paused, r.stopping) = (true, false))?;
            return Ok(());
        }
        self.paused.store(false, Ordering::SeqCst);
        group.pause(false).map_err(Error::host("let the domain go on"))?;
        self.stopped();
        Err(Error::State("the domain's programs do not stop; try again".into()))
    }

    /// Lets it go on; nothing if it is not paused. Waits for whoever has it stop just now.
    pub fn unpause(&self) {
        self.thaw(lock(&self.stops));
    }

    fn thaw(&self, _turn: MutexGuard<'_, ()>) {
        if self.paused.swap(false, Ordering::SeqCst) {
            // Before it does: a successor does so again.
            let _ = self.note(|r| (r.paused, r.stopping) = (false, true));
            if self.born.kind == Kind::Paene {
                // Without its group there is nothing left of it.
                let _ = self.group.as_ref().map(|group| group.pause(false));
                self.stopped();
                return;
            }
            post(&self.map, event::THAW);
            self.wait_thawed();
            self.stopped();
        }
    }

    /// Refuses a balloon's target that its programs could reach only by ending: without a swap region nothing takes away what
    /// they have.
    fn check_target(&self, target: Option<u64>) -> Result<(), Error> {
        check_memory(target)?;
        let registers = registers(&self.map);
        let used = registers.memory_used.load(Ordering::Relaxed);
        // One that stands already is no new demand: the guest kernel's own memory may have grown beyond it.
        let stands = |target| target == registers.memory_target.load(Ordering::Relaxed);
        let stays = self.born.kind == Kind::Para && lock(&self.paging).is_none();
        match target {
            Some(target) if stays && target < used && !stands(target) => Err(Error::Config(format!(
                "a memory target of {} MiB is below the {} MiB that {} uses, of which nothing can be taken back, because it was \
                 started without a swap region (--memory-swap, or a target): nothing is changed",
                target >> 20,
                used.div_ceil(1 << 20),
                self.label()
            ))),
            _ => Ok(()),
        }
    }

    /// Changes the memory its programs may have and the balloon's target; the guest kernel follows when it next
    /// looks, and takes nothing away from a program that has more.
    ///
    /// # Errors
    /// If a value is below [`crate::LEAST_MEMORY`], or the target below what is used.
    pub fn set_memory(&self, limit: Option<u64>, target: Option<u64>) -> Result<(), Error> {
        check_memory(limit)?;
        self.check_target(target)?;
        self.born.memory_limit.store(limit.unwrap_or(0), Ordering::Relaxed);
        let registers = registers(&self.map);
        registers.memory_limit.store(limit.unwrap_or(0), Ordering::Relaxed);
        registers.memory_target.store(target.unwrap_or(0), Ordering::Relaxed);
        if let Some(paging) = lock(&self.paging).as_mut() {
            paging.aim(target);
        }
        post(&self.map, event::MEMORY);
        Ok(())
    }

    /// Changes the limits of its control group; what is none stays.
    ///
    /// # Errors
    /// If it has none, or the host says so, for example that more memory is in use.
    pub fn limit(&self, wanted: &Resources) -> Result<(), Error> {
        check_memory(wanted.memory_bytes)?;
        self.check_target(wanted.memory_target_bytes)?;
        let Some(group) = &self.group else {
            return Err(Error::Unsupported(
                "this domain runs without a control group, so without limits".into(),
            ));
        };
        let born = &self.born;
        let all = limits(born.kind, born.vcpus, wanted);
        group.set_limits(&all).map_err(Error::host("change the limits"))
    }

    /// Somebody works with it whose work has to be done (a freeze that has let the domain go on, an answer), although
    /// the domain may end meanwhile: giving it up waits until this is dropped.
    pub fn receive(self: &Arc<Self>) -> Guest {
        *lock(&self.guests.count) += 1;
        Guest(self.clone())
    }

    /// Waits until all of these are gone.
    pub fn see_off(&self) {
        let mut count = lock(&self.guests.count);
        while *count > 0 {
            count = self.guests.left.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Bytes of memory that are its programs' own, as its control group counts them, which costs the same whatever the
    /// domain does; none without a group.
    pub fn counted_memory(&self) -> Option<u64> {
        let group = self.group.as_ref()?;
        if self.born.kind == Kind::Paene { group.usage().memory_bytes } else { group.anonymous() }
    }

    /// Its memory as it is now.
    pub fn stats(&self) -> Result<DomainStats, Error> {
        if self.born.kind == Kind::Paene {
            let usage = self.group.as_ref().map(View::usage).unwrap_or_default();
            return Ok(DomainStats {
                name: self.label(),
                pid: self.child.pid,
                processes: usage.tasks.unwrap_or(0) as usize,
                private_bytes: usage.memory_bytes.unwrap_or(0),
                shared_bytes: 0,
                saved_bytes: 0,
                kernel_bytes: 0,
                pages_bytes: 0,
                image_bytes: 0,
                sharing: None,
            });
        }
        let stats = share::stats(self.label(), self.child.pid, lock(&self.share).as_ref())?;
        Ok(DomainStats {
            kernel_bytes: self.file_bytes(fd::ARENA),
            pages_bytes: self.file_bytes(fd::PAGEFILE),
            image_bytes: registers(&self.map).kept_bytes.load(Ordering::Relaxed),
            ..stats
        })
    }

    /// What one of its memory files takes; nothing of one that ends.
    fn file_bytes(&self, number: i32) -> u64 {
        let path = format!("/proc/{}/fd/{number}", self.child.pid);
        std::fs::metadata(path).map_or(0, |m| m.blocks() * 512)
    }
}

pub(crate) fn ended() -> Error {
    Error::Ended("the domain ended before it could be frozen".into())
}

//! Freezing a running domain: from outside, or as its own programs ask; rounds of page sharing.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_machine::frozen::OWN_LAYER;
use doppel_abi_machine::{NEVER_DUE, boot_flags, event, fd, layer_files};
use doppel_freezer::{Ahead, Lineage, Parent, Subject};

use crate::freeze::frozen::{FreezeReport, image_digest};
use crate::freeze::kept;
use crate::freeze::shadow;
use crate::freeze::share::Member;
use crate::io::ring::{post, registers};
use crate::launch::config::{no_freeze, no_hibernation};
use crate::lock::lock;
use crate::paging::region;
use crate::run::state::{Core, HostFiles, Stopped, ended};
use crate::{Error, Kind};

/// From how many bytes of the page file on it is copied ahead: what is less takes a few milliseconds.
const WORTH_AHEAD: u64 = 4 << 20;
const EPERM: i32 = 1;
const EIO: i32 = 5;
/// So many images that a domain was frozen to are remembered, should the newest be removed.
const PARENTS: usize = 3;

/// How a domain is frozen.
#[derive(Clone, Copy, Debug)]
struct Freezing {
    /// It ends with that.
    stop: bool,
    /// Its image does not refer to another.
    whole: bool,
    /// Not if it has something to do by itself before so much time is over.
    least: Duration,
}

/// A domain whose memory is being written.
struct Frozen<'a> {
    standing: Option<Stopped<'a>>,
    /// It will not go on.
    stop: bool,
    /// See [`Core::freeze_for`].
    ask: &'a Cell<bool>,
    shadows: Option<shadow::Shadows<'a>>,
}

impl Frozen<'_> {
    /// It goes on; what was to lie beside the image goes.
    fn failed(&mut self, error: doppel_freezer::Error, to: &Path, beside: &[&Path]) -> Error {
        let ended_meanwhile = self.shadows.as_ref().is_some_and(shadow::Shadows::any_gone);
        self.thaw(false);
        // Nobody refers to these, but an image that the domain woke from; the next one of that name replaces them.
        for dir in beside.iter().filter(|_| !to.exists()) {
            let _ = std::fs::remove_dir_all(dir);
        }
        if ended_meanwhile { ended() } else { error.into() }
    }

    fn thaw(&mut self, written: bool) {
        let Some(standing) = self.standing.take() else { return };
        if self.ask.replace(false) && !written {
            registers(&standing.core.map).freeze_error.store(EIO, Ordering::SeqCst);
        }
    }
}

impl doppel_freezer::Standing for Frozen<'_> {
    fn leave(&mut self, load: &doppel_freezer::Load) -> Option<doppel_freezer::Shadows> {
        // A program that asks may end as soon as it goes on, and its domain, and all that the shadows keep.
        let Some(Stopped { core, go_on: true, .. }) = self.standing else { return None };
        if self.stop || self.ask.get() || !shadow::room(core, load) {
            return None;
        }
        let mut shadows = shadow::Shadows::cast(core)?;
        let of = shadows.of(&load.pids)?;
        self.shadows = Some(shadows);
        self.standing = None;
        Some(of)
    }

    fn go_on(&mut self, written: bool) {
        if !self.stop {
            self.thaw(written);
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn in_the_way(error: impl std::fmt::Display) -> Error {
    Error::State(error.to_string())
}

/// What tells the layer in this directory as it is now, if there is one.
fn state_of(layer: Option<&Path>) -> Result<u32, Error> {
    layer.map_or(Ok(0), doppel_layers::state).map_err(in_the_way)
}

impl Core {
    /// Stops the domain, writes its memory to the frozen image `to`, and lets it go on, or ends it if `stop`. Unless it is to be `whole`
    /// the image refers to the last one.
    pub fn freeze(&self, to: &Path, stop: bool, whole: bool) -> Result<FreezeReport, Error> {
        self.freeze_for(to, Freezing { stop, whole, least: Duration::ZERO }, &Cell::new(false))
    }

    /// Hibernates it, unless it has something to do by itself before so much time is over.
    pub fn hibernate(&self, to: &Path, least: Duration) -> Result<FreezeReport, Error> {
        self.freeze_for(to, Freezing { stop: true, whole: false, least }, &Cell::new(false))
    }

    /// As [`Self::freeze`]; `ask`: a program of the domain waits for the outcome and has not been told it yet.
    fn freeze_for(&self, to: &Path, how: Freezing, ask: &Cell<bool>) -> Result<FreezeReport, Error> {
        let Freezing { stop, whole, least } = how;
        let begun = Instant::now();
        let files = lock(&self.files).clone();
        self.check_freeze(&files, stop, to)?;
        let born = &self.born;
        let image = image_digest(&born.image)?;
        let (arena, pagefile) = (self.reopen(fd::ARENA)?, self.reopen(fd::PAGEFILE)?);
        let hostname = lock(&self.hostname).clone();
        let swap = region::of(self.child.pid).map_err(Error::host("open the domain's swap region"))?;
        doppel_freezer::prepare()?;
        let own = stop && doppel_freezer::is_of_sleeper(to);
        let beside = doppel_freezer::FrozenImage::layers_beside(to);
        let stays = files.layer.as_deref().filter(|dir| own || doppel_layers::can_share(dir, &beside));
        let disks = files.disks()?;
        let cut = disks.iter().map(|disks| disks.prepare(own)).next().transpose().map_err(in_the_way)?;
        let share = lock(&self.share);
        let lineage = self.lineage(to, whole);
        let origin = born.resume.as_ref().map(|r| &*r.image);
        let (name, image_path) = (self.label(), born.image.to_string_lossy());
        let subject = Subject {
            pid: self.child.pid,
            arena: arena.as_fd(),
            pagefile: pagefile.as_fd(),
            origin,
            kept: &[],
            written: &[],
            logged: 0,
            share: share.as_ref().map(Member::file),
            swap: swap.as_ref(),
            kernel: born.kernel,
            image,
            image_path: &image_path,
            name: &name,
            hostname: &hostname,
            domain_id: self.id,
            generation: born.generation,
            vcpus: born.vcpus,
            memory_limit: 0,
            monotonic_offset: 0,
            boot_flags: born.boot_flags | if files.held.is_some() { boot_flags::VOLUMES } else { 0 },
            winsize: 0,
            owner: born.owner,
            layer: 0,
            layers: 0,
        };
        let ahead = if stop { None } else { self.copy_ahead(&subject, to, lineage.as_ref(), &arena)? };
        let asked = Instant::now();
        let may_stay = if stays.is_some() { layer_files::MAY_STAY } else { layer_files::IN_MEMORY };
        let standing = self.stop_with(may_stay)?;
        self.check_still(least)?;
        let stopped = asked.elapsed();
        let map = &self.map;
        let layer = state_of(files.layer.as_deref().filter(|_| stop))?;
        let layers = self.keep_files(stays, own, &beside)?;
        let volumes = doppel_freezer::FrozenImage::volumes_beside(to);
        files.held.as_ref().map_or(Ok(()), |held| held.keep(&volumes, own)).map_err(in_the_way)?;
        cut.map_or(Ok(()), |cut| cut.keep(&volumes)).map_err(in_the_way)?;
        let said = kept::said(self, &arena, origin)?;
        let subject = Subject {
            kept: &said.kept,
            written: &said.written,
            logged: said.logged,
            memory_limit: born.memory_limit.load(Ordering::Relaxed),
            monotonic_offset: registers(map).monotonic_offset.load(Ordering::Relaxed),
            winsize: registers(map).winsize.load(Ordering::Relaxed),
            layer,
            layers,
            ..subject
        };
        let mut frozen = Frozen { standing: Some(standing), stop, ask, shadows: None };
        let report = doppel_freezer::freeze(&subject, to, lineage, ahead, &mut frozen);
        let report = report.map_err(|error| frozen.failed(error, to, &[&beside, &volumes]))?;
        self.bear(Parent { path: to.to_owned(), identity: report.identity });
        if stop {
            self.fall_asleep(&mut frozen)?;
        }
        Ok(FreezeReport { due_in_ms: self.due_in().map(ms), ..FreezeReport::new(begun, stopped, &report) })
    }

    /// Ends it: its memory is in its image.
    fn fall_asleep(&self, frozen: &mut Frozen<'_>) -> Result<(), Error> {
        self.note(|r| r.asleep = true)?;
        self.asleep.store(true, Ordering::SeqCst);
        self.kill()?;
        if let Some(mut standing) = frozen.standing.take() {
            standing.go_on = false;
        }
        Ok(())
    }

    /// Copies its page file while it runs, if there is so much that this is worth it, and the guest kernel notes what is written.
    fn copy_ahead(
        &self,
        subject: &Subject<'_>,
        to: &Path,
        lineage: Option<&Lineage>,
        arena: &File,
    ) -> Result<Option<Ahead>, Error> {
        let doing = "examine the domain's memory";
        let own = rustix::fs::fstat(subject.pagefile).map_err(|e| Error::host(doing)(e.into()))?.st_blocks;
        let mut copied = u64::try_from(own).unwrap_or(0) * 512;
        if lineage.is_none() {
            // What is still in the image that it was made from.
            copied = copied.saturating_add(registers(&self.map).kept_bytes.load(Ordering::Relaxed));
        }
        if copied < WORTH_AHEAD || self.paused.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let Some(said) = kept::begin_log(self, arena, subject.origin)? else { return Ok(None) };
        let subject = Subject { kept: &said.kept, logged: said.logged, ..*subject };
        Ok(Some(Ahead::copy(&subject, to, lineage)?))
    }

    /// What the image `to` may refer to, unless it is to be whole: the newest there is of what the domain was frozen to, or else what it
    /// was made from.
    fn lineage(&self, to: &Path, whole: bool) -> Option<Lineage> {
        if whole {
            return None;
        }
        let origin = self.born.resume.as_ref().map(|r| Parent::of(&r.image));
        let parents = lock(&self.parents).clone();
        parents.iter().chain(&origin).find_map(|parent| Lineage::prepare(parent, to))
    }

    /// The next image may refer to this one.
    fn bear(&self, parent: Parent) {
        let parents = {
            let mut parents = lock(&self.parents);
            parents.retain(|p| p.path != parent.path);
            parents.insert(0, parent);
            parents.truncate(PARENTS);
            parents.clone()
        };
        // Without the note a successor of this process does not know of it.
        let _ = self.note(|r| r.parents = parents);
    }

    /// Of one that stands still: how long until it has something to do by itself; none: only what comes from outside wakes it. What
    /// a guest kernel says that lies concerns its own domain.
    fn due_in(&self) -> Option<Duration> {
        let registers = registers(&self.map);
        let due = registers.next_due.load(Ordering::SeqCst);
        let offset = registers.monotonic_offset.load(Ordering::Relaxed);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::try_from(now).map_or(0, ns).wrapping_add(offset);
        (due != 0 && due != NEVER_DUE).then(|| Duration::from_nanos(due.saturating_sub(now)))
    }

    /// Refuses one that would have to go on too soon, or has been hibernated meanwhile.
    fn check_still(&self, least: Duration) -> Result<(), Error> {
        if self.asleep.load(Ordering::SeqCst) {
            return Err(ended());
        }
        match self.due_in().filter(|due| *due < least) {
            Some(due) if due.is_zero() => Err(Error::State("its programs are not idle".into())),
            Some(due) => Err(Error::State(format!("a timer of it is due in {:.1} s", due.as_secs_f64()))),
            None => Ok(()),
        }
    }

    /// Refuses what cannot be frozen, or not with its end.
    fn check_freeze(&self, files: &HostFiles, stop: bool, to: &Path) -> Result<(), Error> {
        if self.born.kind == Kind::Paene {
            return Err(Error::Unsupported(format!(
                "{} is a paene domain, whose programs run on the host's kernel: only para domains can be frozen, cloned \
                 and hibernated",
                self.label()
            )));
        }
        if !files.volumes.is_empty() && files.held.is_none() {
            return Err(no_freeze(&files.volumes));
        }
        // Who runs it alone has no place to note whose memory it is.
        if stop && files.layer.is_some() && self.record.is_none() {
            return Err(no_hibernation());
        }
        if to.exists() && !(stop && self.woke_from(to)) {
            return Err(Error::Config(format!("{} exists; remove it or choose another name", to.display())));
        }
        Ok(())
    }

    /// Keeps what is on a disk now that the domain writes, as long as this file is there; gives its name in the store. The domain stands
    /// still meanwhile.
    pub fn keep_disk(&self, disk: &str, needed_by: &Path) -> Result<String, Error> {
        if self.born.kind == Kind::Paene {
            return Err(Error::State(format!(
                "{}, which writes to disk {disk:?}, is a paene domain: the disk can be copied when that has ended",
                self.label()
            )));
        }
        let disks = lock(&self.files).disks()?;
        let none = || Error::State(format!("{} does not write to a disk {disk:?}", self.label()));
        let disks = disks.ok_or_else(none)?;
        let cut = disks.prepare_one(disk).map_err(in_the_way)?.ok_or_else(none)?;
        let standing = self.stop_with(layer_files::AS_THEY_ARE)?;
        if self.asleep.load(Ordering::SeqCst) {
            return Err(ended());
        }
        cut.keep_one(disk, needed_by, move || drop(standing)).map_err(in_the_way)
    }

    /// Keeps what of the domain's files is in the layer in this directory alone, for its clones, or for itself if the layer is to be its
    /// `own`: `Header::layers` of the frozen image.
    fn keep_files(&self, layer: Option<&Path>, own: bool, beside: &Path) -> Result<u8, Error> {
        match (layer, registers(&self.map).layer_end.load(Ordering::SeqCst)) {
            (None, _) | (_, 0) => Ok(0),
            _ if own => Ok(OWN_LAYER),
            (Some(dir), end) => doppel_layers::share(dir, end, beside).map_err(in_the_way),
        }
    }

    /// A memory file of the domain.
    fn reopen(&self, number: i32) -> Result<File, Error> {
        let path = format!("/proc/{}/fd/{number}", self.child.pid);
        let file = File::open(path).map_err(|error| match error.kind() {
            // It has just died.
            std::io::ErrorKind::NotFound => ended(),
            _ => Error::host("open the domain's memory")(error),
        })?;
        // The number of a process that has been reaped may belong to another.
        if self.is_dead() {
            return Err(ended());
        }
        Ok(file)
    }

    /// Whether it is this image that the domain woke from.
    fn woke_from(&self, path: &Path) -> bool {
        self.born.resume.as_ref().is_some_and(|r| r.wake && r.image.path() == path)
    }

    /// Serves a program that has asked for its domain to be frozen: what became of it; none if it may not ask.
    pub fn freeze_itself(&self) -> Option<Result<(), Error>> {
        let ask = Cell::new(true);
        let Some(to) = &self.born.freeze_to else {
            self.refuse_freeze(EPERM);
            return None;
        };
        let how = Freezing { stop: self.born.freeze_stop, whole: false, least: Duration::ZERO };
        let result = self
            .freeze_for(to, how, &ask)
            .map(drop)
            .map_err(|error| Error::State(format!("domain {} cannot freeze itself: {error}", self.label())));
        // The program gets a number only.
        if result.is_err() && ask.get() {
            self.refuse_freeze(EIO);
        }
        // If that cannot be written, a successor serves it again, which fails.
        let asked = registers(&self.map).freeze_requests.load(Ordering::Acquire);
        let _ = self.note(|r| r.served = asked);
        Some(result)
    }

    /// Tells the program that has asked that its domain is not frozen, and an errno.
    pub fn refuse_freeze(&self, errno: i32) {
        registers(&self.map).freeze_error.store(errno, Ordering::SeqCst);
        post(&self.map, event::KERNEL);
    }

    /// One round of page sharing. What does not succeed is tried again in a later one.
    pub fn share_round(&self) {
        let mut share = lock(&self.share);
        let Some(member) = share.as_mut() else { return };
        let found = member.look();
        if found.is_empty() {
            return;
        }
        if let Ok(standing) = self.stop() {
            let begun = Instant::now();
            if member.offer(&self.map, &found) > 0 {
                post(&self.map, event::SHARE);
            }
            drop(standing);
            member.paused(begun.elapsed());
        }
    }

    /// When a round of page sharing is due; never if it does not share.
    pub fn share_due(&self) -> Option<Instant> {
        // While a round runs none is due.
        self.share.try_lock().ok()?.as_ref().map(Member::due)
    }
}

//! Who has a volume while domains run: somebody alone, whose domain may keep what it knows of the files, or several.
//!
//! Each has a lock on the volume's file `lock`: an exclusive one who is alone, else a shared one. Locks are taken and changed under the
//! store's own lock, so that none is lost in between. Who finds somebody alone *pokes*: it opens the file for writing and closes it.
//! The other one is told by inotify, takes back what its domain keeps, and shares from then on; it looks once a second whether it is
//! alone again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_storage::{Keeps, Lessor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, IoContext, Result};
use crate::store::VolumeStore;

/// How long somebody who is alone may take to let others in.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a domain may take to write what it has kept: one that takes longer is waited for no more.
const WRITES: Duration = Duration::from_secs(5);
/// The same for one that is about to be killed.
const LAST: Duration = Duration::from_millis(500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);
/// So many tries come between two pokes.
const POKES: u32 = 100;
/// Between two looks whether one is alone again.
const LOOK: Duration = Duration::from_secs(1);

/// The volumes that one domain has while it runs. They are not removed as long as this is held.
#[derive(Debug, Default)]
pub struct Leases {
    /// Those that it shares whatever others do.
    _shared: Vec<Lock>,
    /// Numbers of those that it may have alone.
    alone: Vec<u64>,
    lessor: Option<Lessor>,
    /// Its end ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The lock of one volume.
#[derive(Debug)]
struct Lock {
    /// The domain's number of the volume.
    number: u64,
    file: File,
    alone: bool,
    /// When it was changed, or that was tried.
    changed: Instant,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that is just being made has a copy of the descriptor, with which the lock would stay.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, its locks are gone.
            let _ = thread.join();
        }
    }
}

impl Leases {
    /// Gives the volumes up.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// The domain is about to be killed: has it write what it keeps, for a moment at most. It keeps nothing any more.
    pub fn settle(&self) {
        let Some(lessor) = &self.lessor else { return };
        self.alone.iter().for_each(|number| lessor.take_back(*number));
        let begun = Instant::now();
        while !self.alone.iter().all(|number| lessor.is_written(*number)) && begun.elapsed() < LAST {
            std::thread::sleep(PAUSE);
        }
    }
}

impl VolumeStore {
    /// Holds those of a domain's sources, in their order, that are volumes of this store. Who has one alone is asked to share it.
    /// With a lessor the domain keeps what it knows of those that nobody else has.
    ///
    /// # Errors
    /// There is no such volume, somebody does not share it, or what the host says.
    pub fn hold(&self, sources: &[PathBuf], lessor: Option<Lessor>) -> Result<Leases> {
        let mut found: Vec<(u64, String, bool)> = Vec::new();
        for (number, source) in (0..).zip(sources) {
            if let Some((name, whole)) = self.named(source) {
                found.push((number, name, whole));
            }
        }
        let twice = |name: &str| found.iter().filter(|f| f.1 == name).count() > 1;
        let (mut shared, mut alone) = (Vec::new(), Vec::new());
        for (number, name, whole) in &found {
            match &lessor {
                Some(_) if *whole && !twice(name) => alone.push((*number, name)),
                _ => shared.push(self.enter(name, *number, false, || {})?),
            }
        }
        let mut leases =
            Leases { _shared: shared, alone: Vec::new(), lessor: None, stop: None, thread: None };
        if let Some(lessor) = lessor.filter(|_| !alone.is_empty()) {
            let watch = Watch::begin(self, lessor.clone(), &alone)?;
            leases.alone = alone.into_iter().map(|(number, _)| number).collect();
            leases.lessor = Some(lessor);
            let (stop, theirs) = UnixStream::pair().doing("make a socket for", &self.root)?;
            let work = move || watch.run(&theirs);
            let made = doppel_sys::signal::spawn_blocked("volumes", work);
            leases.thread = Some(made.doing("start a thread for", &self.root)?);
            leases.stop = Some(stop);
        }
        Ok(leases)
    }

    /// Which volume a path on this host is of, and whether it is all of it.
    pub(crate) fn named(&self, source: &Path) -> Option<(String, bool)> {
        let below = source.strip_prefix(&self.root).ok()?;
        let name = below.iter().next()?.to_str()?;
        Some((name.to_owned(), source == self.path(name)))
    }

    /// Takes a volume's lock: alone, if that is wanted and nobody else has it. `meanwhile` is done between two tries.
    fn enter(&self, name: &str, number: u64, alone: bool, mut meanwhile: impl FnMut()) -> Result<Lock> {
        let begun = Instant::now();
        for tries in 0.. {
            if let Some(lock) = self.try_enter(name, number, alone)? {
                return Ok(lock);
            }
            if begun.elapsed() > PATIENCE {
                break;
            }
            if tries % POKES == 0 {
                let path = self.lock_of(name);
                drop(File::options().write(true).open(&path).doing("open", &path)?);
            }
            meanwhile();
            std::thread::sleep(PAUSE);
        }
        Err(Error::InUse { name: name.to_owned(), users: self.get(name)?.users })
    }

    /// The same, if nobody is alone there.
    fn try_enter(&self, name: &str, number: u64, alone: bool) -> Result<Option<Lock>> {
        let _lock = self.lock()?;
        self.get(name)?;
        let path = self.lock_of(name);
        let file = File::open(&path).doing("open", &path)?;
        for alone in [true, false].into_iter().filter(|a| alone || !a) {
            if try_lock(&file, alone).doing("lock", &path)? {
                return Ok(Some(Lock { number, file, alone, changed: Instant::now() }));
            }
        }
        Ok(None)
    }
}

/// Takes a lock if nobody has one that forbids it.
pub(crate) fn try_lock(file: &File, alone: bool) -> io::Result<bool> {
    let how =
        if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// A domain's volumes that it may have alone.
struct Watch {
    store: VolumeStore,
    lessor: Lessor,
    inotify: OwnedFd,
    /// By the number of the watch.
    locks: BTreeMap<i32, Lock>,
}

impl Watch {
    fn begin(store: &VolumeStore, lessor: Lessor, wanted: &[(u64, &String)]) -> Result<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags).doing("watch", &store.root)?;
        let mut all = Self { store: store.clone(), lessor, inotify, locks: BTreeMap::new() };
        for (number, name) in wanted {
            let path = store.lock_of(name);
            // A predecessor may have given it, and others may have come since.
            all.lessor.take_back(*number);
            // Before it is locked: whoever finds that, pokes.
            let watch =
                inotify::add_watch(&all.inotify, &path, WatchFlags::CLOSE_WRITE).doing("watch", &path)?;
            // Somebody may wait for one that is had while this waits for theirs.
            let lock = store.enter(name, *number, true, || {
                all.let_others_in(|| false);
            })?;
            if lock.alone {
                all.lessor.give(lock.number, Keeps::Writes);
            } else {
                // What was kept is written now, but nobody waits for that.
                let _ = all.lessor.is_written(lock.number);
            }
            all.locks.insert(watch, lock);
        }
        Ok(all)
    }

    fn run(mut self, stop: &UnixStream) {
        loop {
            let shares = self.locks.values().any(|lock| !lock.alone);
            if wait(&[stop, &self.inotify], shares.then_some(LOOK))
                || self.let_others_in(|| wait(&[stop], Some(PAUSE)))
            {
                return;
            }
            // Who was let in takes a moment.
            let waited = |lock: &&mut Lock| !lock.alone && lock.changed.elapsed() >= LOOK;
            for lock in self.locks.values_mut().filter(waited) {
                change(&self.store, lock, true);
                if lock.alone {
                    self.lessor.give(lock.number, Keeps::Writes);
                }
            }
        }
    }

    /// Shares what others have poked. `pause` waits a little; true: it is over.
    fn let_others_in(&mut self, pause: impl Fn() -> bool) -> bool {
        for watch in self.poked() {
            let Some(lock) = self.locks.get_mut(&watch).filter(|lock| lock.alone) else { continue };
            self.lessor.take_back(lock.number);
            let begun = Instant::now();
            while !self.lessor.is_written(lock.number) && begun.elapsed() < WRITES {
                if pause() {
                    return true;
                }
            }
            change(&self.store, lock, false);
        }
        false
    }

    /// Watches whose files others have poked.
    fn poked(&self) -> Vec<i32> {
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(&self.inotify, &mut space);
        let mut all = Vec::new();
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::CLOSE_WRITE) && !all.contains(&event.wd()) {
                all.push(event.wd());
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        all
    }
}

/// Shares a lock, or tries to have it alone.
fn change(store: &VolumeStore, lock: &mut Lock, alone: bool) {
    // A store that cannot be locked is left as it is.
    lock.changed = Instant::now();
    let Ok(_lock) = store.lock() else { return };
    lock.alone = alone && try_lock(&lock.file, true).unwrap_or(false);
    if !lock.alone {
        // Nobody can be alone now, so it is had; also by who had it before, who has lost it by trying.
        let _ = try_lock(&lock.file, false);
    }
}

/// Waits until one of these has something to read; true: the first one.
fn wait(fds: &[&dyn std::os::fd::AsFd], time: Option<Duration>) -> bool {
    let mut all: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    let time = time.and_then(|t| Timespec::try_from(t).ok());
    match poll(&mut all, time.as_ref()) {
        Ok(1..) => !all[0].revents().is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Map;
    use std::os::fd::AsFd;

    use doppel_abi_service::storage::{LEASES, Lease, Leases as Words, SIZE};
    use doppel_sys::shared::{SharedMap, offset};

    use super::*;

    /// A domain that has a volume, and what it is told of that.
    struct Domain {
        words: SharedMap,
        leases: Leases,
    }

    impl Domain {
        fn begin(store: &VolumeStore, sources: &[PathBuf]) -> Self {
            let (memory, _) = doppel_service::make(SIZE).unwrap();
            let lessor = Lessor::new(memory.as_fd()).unwrap();
            let leases = store.hold(sources, Some(lessor)).unwrap();
            Self { words: SharedMap::new(memory.as_fd(), offset(SIZE)).unwrap(), leases }
        }

        fn words(&self) -> &Words {
            self.words.get(offset(LEASES))
        }

        fn lease(&self, volume: u64) -> Lease {
            self.words().lease(volume)
        }
    }

    fn store(names: &[&str]) -> (tempfile::TempDir, VolumeStore, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let store = VolumeStore::of(dir.path());
        let make = |name: &&str| store.create(Some(name), Map::new()).unwrap().path;
        let paths = names.iter().map(make).collect();
        (dir, store, paths)
    }

    fn wait_for(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end);
            std::thread::sleep(PAUSE);
        }
    }

    #[test]
    fn who_is_alone_has_a_lease_until_others_come() {
        let (_dir, store, paths) = store(&["data", "more"]);
        let one = Domain::begin(&store, &["/etc".into(), paths[0].clone(), paths[1].clone()]);
        assert!(!one.lease(0).is_held() && one.lease(1).may_delay() && one.lease(2).is_held());
        let first = one.lease(1);
        // One that keeps nothing.
        let two = store.hold(&paths[..1], None).unwrap();
        assert!(!one.lease(1).is_held() && one.lease(2).is_held());
        drop(two);
        wait_for(|| one.lease(1).is_held());
        assert_ne!(one.lease(1), first);
        let three = Domain::begin(&store, &paths);
        assert!((0..3).all(|n| !one.lease(n).is_held() && !three.lease(n).is_held()));
        drop(one);
        wait_for(|| (0..2).all(|n| three.lease(n).is_held()));
    }

    #[test]
    fn what_was_kept_is_written_before_others_come() {
        let (_dir, store, paths) = store(&["data"]);
        let one = Domain::begin(&store, &paths);
        one.words().begin_file(0);
        let other = std::thread::Builder::new();
        std::thread::scope(|scope| {
            let two = other.spawn_scoped(scope, || Domain::begin(&store, &paths)).unwrap();
            wait_for(|| !one.lease(0).is_held());
            std::thread::sleep(20 * PAUSE);
            assert!(!two.is_finished());
            one.words().end_file(0);
            assert!(!two.join().unwrap().lease(0).is_held());
        });
    }

    #[test]
    fn who_is_killed_is_waited_for_a_moment() {
        let (_dir, store, paths) = store(&["data"]);
        let one = Domain::begin(&store, &paths);
        one.words().begin_file(0);
        std::thread::scope(|scope| {
            let settled = std::thread::Builder::new().spawn_scoped(scope, || one.leases.settle()).unwrap();
            wait_for(|| !one.lease(0).is_held());
            assert!(!settled.is_finished());
            one.words().end_file(0);
        });
        one.words().begin_file(0);
        let begun = Instant::now();
        one.leases.settle();
        assert!(begun.elapsed() >= LAST && begun.elapsed() < 10 * LAST);
    }

    #[test]
    fn a_successor_takes_back_what_is_not_had_alone_any_more() {
        let (_dir, store, paths) = store(&["data"]);
        let (memory, _) = doppel_service::make(SIZE).unwrap();
        let lessor = || Some(Lessor::new(memory.as_fd()).unwrap());
        let words = SharedMap::new(memory.as_fd(), offset(SIZE)).unwrap();
        let held = || words.get::<Words>(offset(LEASES)).lease(0).is_held();
        drop(store.hold(&paths, lessor()).unwrap());
        assert!(held(), "the domain goes on");
        let other = store.hold(&paths, None).unwrap();
        let _successor = store.hold(&paths, lessor()).unwrap();
        assert!(!held());
        drop(other);
        wait_for(held);
    }

    #[test]
    fn a_copy_of_its_descriptor_does_not_keep_a_lock() {
        let (_dir, store, _paths) = store(&["data"]);
        let lock = store.enter("data", 0, true, || {}).unwrap();
        let _copy = lock.file.try_clone().unwrap();
        let file = File::open(store.lock_of("data")).unwrap();
        assert!(!try_lock(&file, true).unwrap());
        drop(lock);
        assert!(try_lock(&file, true).unwrap());
    }

    #[test]
    fn a_part_of_a_volume_or_one_at_two_places_is_never_had_alone() {
        let (_dir, store, paths) = store(&["data"]);
        std::fs::create_dir(paths[0].join("part")).unwrap();
        let part = Domain::begin(&store, &[paths[0].join("part")]);
        assert!(!part.lease(0).is_held());
        let whole = Domain::begin(&store, &paths);
        assert!(!whole.lease(0).is_held());
        drop((part, whole));
        let twice = Domain::begin(&store, &[paths[0].clone(), paths[0].clone()]);
        assert!(!twice.lease(0).is_held() && !twice.lease(1).is_held());
        assert!(matches!(store.remove("data"), Err(Error::InUse { .. })));
    }
}

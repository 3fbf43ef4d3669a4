//! What a process that runs domains is to the others of its host: who it is, which ids and names are its own, and
//! where its domains can be asked.
//!
//! ```text
//! /run/doppel/holders/PID-N        locked (flock) by the process as long as it runs domains
//! /run/doppel/holders/PID-N.sock   where it is asked
//! /run/doppel/ids/BLOCK            -> PID-N: its domains have ids BLOCK*64..BLOCK*64+64
//! /run/doppel/names/NAME           -> PID-N: its domain has this name
//! ```
//! The links point nowhere; only their text counts. All of it belongs to the process and not to a domain, so that a
//! domain without a name costs no file. The lock dies with the process: whose lock is free has left things over,
//! which a later start sweeps, along with the control groups.
//!
//! Lock order: `HOLDER`, then `ids`, then the locks of the files `next`, a holder's own, `sweep`.

pub mod adopt;
pub mod identity;
pub mod messages;
pub mod record;
pub mod requests;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use doppel_confine::limits::UID_COUNT;
use rustix::fs::FlockOperation;

use crate::Error;
use crate::lock::lock;
use crate::run::state::Core;

/// Ids of a block.
const BLOCK: u32 = 64;
/// So many holders a start looks at for ones that have died; every 64th looks at all.
const FEW: usize = 64;

/// Domains by name, for those who ask.
pub(crate) type DomainsByName = Arc<Mutex<HashMap<String, Weak<Core>>>>;

/// This process, as long as it runs domains.
#[derive(Debug)]
pub(crate) struct Registry {
    base: PathBuf,
    name: String,
    // Held for its lock. Says where records are of domains that outlive this process, if any do.
    lock: File,
    /// Where it is asked, from its first domain on: that domain need not wait for a thread that it does not need.
    listener: OnceLock<Result<UnixListener, String>>,
    doors: DomainsByName,
    ids: Mutex<Ids>,
    /// Names of those that were taken over ([`Registry::take_over`]).
    names: Mutex<HashSet<String>>,
}

/// Blocks of ids that are this process' own.
#[derive(Debug, Default)]
struct Ids {
    /// Ids in use, by block.
    used: HashMap<u32, u32>,
    /// The next id to give out; none if the last block is used up.
    next: Option<u32>,
    /// Blocks that were taken over, each counted as one more in use until all of their domains have been found.
    taken: Vec<u32>,
}

static HOLDER: Mutex<Weak<Registry>> = Mutex::new(Weak::new());

impl Registry {
    /// This process' own, which lasts as long as somebody has it.
    pub fn get() -> Result<Arc<Self>, Error> {
        let mut holder = lock(&HOLDER);
        if let Some(holder) = holder.upgrade() {
            return Ok(holder);
        }
        let fresh = Self::new(&runtime_dir())?;
        *holder = Arc::downgrade(&fresh);
        Ok(fresh)
    }

    fn new(base: &Path) -> Result<Arc<Self>, Error> {
        let failed = |doing: &str| Error::host(format!("{doing} in {}", base.display()));
        make_base(base).map_err(failed("make a directory of our own"))?;
        for dir in ["holders", "ids", "names"] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(base.join(dir));
            made.and_then(|()| check_own(&base.join(dir), 0o077)).map_err(failed("make directories"))?;
        }
        let (name, file) = enroll(base).map_err(failed("enroll this process"))?;
        sweep(base, &name, FEW);
        Ok(Arc::new(Self {
            base: base.into(),
            name,
            lock: file,
            listener: OnceLock::new(),
            doors: DomainsByName::default(),
            ids: Mutex::default(),
            names: Mutex::default(),
        }))
    }

    /// Becomes what another process was, which has died: what it had claimed is ours, to be given back by
    /// [`Self::release_unused`] as far as no domain has it.
    pub fn take_over(name: &str) -> Result<Arc<Self>, Error> {
        Self::take_over_in(&runtime_dir(), name)
    }

    fn take_over_in(base: &Path, name: &str) -> Result<Arc<Self>, Error> {
        let failed = || Error::host(format!("take over {name} in {}", base.display()));
        if name.is_empty() || name.contains('/') {
            return Err(failed()(io::ErrorKind::InvalidInput.into()));
        }
        let path = base.join("holders").join(name);
        let lock = loop {
            let file = open_private(&path).map_err(failed())?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| failed()(e.into()))?;
            // A sweep may have removed it before it was locked.
            if file.metadata().map_err(failed())?.nlink() > 0 {
                break file;
            }
        };
        let socket = socket_path(base, name);
        let _ = fs::remove_file(&socket);
        let blocks = links_of(base, "ids", name).filter_map(|link| link.file_name()?.to_str()?.parse().ok());
        let taken: Vec<u32> = blocks.collect();
        let ids = Ids { used: taken.iter().map(|block| (*block, 1)).collect(), next: None, taken };
        let names =
            links_of(base, "names", name).filter_map(|link| Some(link.file_name()?.to_str()?.to_owned()));
        let names = Mutex::new(names.collect());
        let holder = Self {
            base: base.into(),
            name: name.into(),
            lock,
            listener: OnceLock::new(),
            doors: DomainsByName::default(),
            ids: Mutex::new(ids),
            names,
        };
        holder.listen();
        Ok(Arc::new(holder))
    }

    /// Lets this process be asked, if it cannot be yet.
    pub fn listen(&self) {
        self.listener.get_or_init(|| {
            let socket = socket_path(&self.base, &self.name);
            requests::listen(&socket, self.doors.clone()).map_err(|e| e.to_string())
        });
    }

    /// Notes whose an id and a name are that were taken over.
    pub fn retake(&self, id: u32, name: Option<&str>) {
        *lock(&self.ids).used.entry(id / BLOCK).or_default() += 1;
        if let Some(name) = name {
            lock(&self.names).remove(name);
        }
    }

    /// Gives back what was taken over and no domain has.
    pub fn release_unused(&self) {
        for name in std::mem::take(&mut *lock(&self.names)) {
            self.give_name(&name);
        }
        let mut ids = lock(&self.ids);
        for block in std::mem::take(&mut ids.taken) {
            self.give_one(&mut ids, block);
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says that records in `dir` tell of its domains, and that those outlive this process: nobody sweeps what it has
    /// claimed while one of them may live.
    pub fn kept_in(&self, dir: &Path) -> Result<(), Error> {
        let failed = || Error::host(format!("note where records are in {}", self.base.display()));
        if self.lock.metadata().map_err(failed())?.len() == 0 {
            self.lock.write_all_at(dir.as_os_str().as_encoded_bytes(), 0).map_err(failed())?;
        }
        Ok(())
    }

    /// Why its domains cannot be asked, if so.
    pub fn deaf(&self) -> Option<&str> {
        self.listener.get()?.as_ref().err().map(String::as_str)
    }

    /// Lets a domain be asked under its name.
    pub fn open_door(&self, core: &Arc<Core>) {
        lock(&self.doors).insert(core.label(), Arc::downgrade(core));
        self.listen();
    }

    /// No longer.
    pub fn close_door(&self, label: &str) {
        lock(&self.doors).remove(label);
    }

    /// An id that no other domain of this host has.
    pub fn take_id(&self) -> Result<u32, Error> {
        let mut ids = lock(&self.ids);
        let id = match ids.next {
            Some(id) => id,
            None => {
                let block = self
                    .claim_block()
                    .map_err(Error::host(format!("claim ids in {}", self.base.display())))?;
                // Id 0 is nobody's.
                (block * BLOCK).max(1)
            }
        };
        ids.next = (!(id + 1).is_multiple_of(BLOCK)).then_some(id + 1);
        *ids.used.entry(id / BLOCK).or_default() += 1;
        Ok(id)
    }

    /// Gives an id back; its block is given up with the last one.
    pub fn give_id(&self, id: u32) {
        self.give_one(&mut lock(&self.ids), id / BLOCK);
    }

    /// One less of a block is in use; the last of it gives the block back.
    fn give_one(&self, ids: &mut Ids, block: u32) {
        let current = ids.next.is_some_and(|next| next / BLOCK == block);
        let Some(used) = ids.used.get_mut(&block) else { return };
        *used -= 1;
        if *used == 0 && !current {
            ids.used.remove(&block);
            // If it cannot be removed it is swept with this process.
            let _ = fs::remove_file(self.base.join("ids").join(block.to_string()));
        }
    }

    fn claim_block(&self) -> io::Result<u32> {
        let mut next = open_private(&self.base.join("next"))?;
        rustix::fs::flock(&next, FlockOperation::LockExclusive)?;
        let mut text = String::new();
        next.read_to_string(&mut text)?;
        let mut block: u32 = text.trim().parse().unwrap_or(0);
        loop {
            block = (block + 1) % (UID_COUNT / BLOCK);
            if self.claim(&self.base.join("ids").join(block.to_string()))? {
                break;
            }
        }
        next.rewind()?;
        next.write_all(format!("{block:<10}").as_bytes())?;
        if block.is_multiple_of(64) {
            sweep(&self.base, &self.name, usize::MAX);
        }
        Ok(block)
    }

    /// Claims a name; false if another domain has it.
    pub fn claim_name(&self, name: &str) -> Result<bool, Error> {
        let claimed = self.claim(&self.base.join("names").join(name));
        claimed.map_err(Error::host(format!("claim a name in {}", self.base.display())))
    }

    /// Gives a name back.
    pub fn give_name(&self, name: &str) {
        // If it cannot be removed it is swept with this process.
        let _ = fs::remove_file(self.base.join("names").join(name));
    }

    /// Makes a link to this process, unless a living one has it.
    fn claim(&self, link: &Path) -> io::Result<bool> {
        for _ in 0..2 {
            match symlink(&self.name, link) {
                Ok(()) => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            let Ok(other) = fs::read_link(link) else { continue };
            match other.to_str() {
                // What is wanted of it is free as soon as its processes have gone.
                Some(other) if other != self.name => {
                    sweep_one(&self.base, other, &mut Patience { for_ends: true, ..Patience::default() });
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(Ok(listener)) = self.listener.get() {
            // Ends the thread that waits there.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        // What cannot be removed is at least unlocked next, and swept later.
        for block in lock(&self.ids).used.keys() {
            let _ = fs::remove_file(self.base.join("ids").join(block.to_string()));
        }
        let _ = fs::remove_file(socket_path(&self.base, &self.name));
        let _ = fs::remove_file(self.base.join("holders").join(&self.name));
    }
}

/// Makes and locks a file of our own.
fn enroll(base: &Path) -> io::Result<(String, File)> {
    let pid = std::process::id();
    for n in 0.. {
        let name = format!("{pid}-{n}");
        let path = base.join("holders").join(&name);
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => file,
            // Of an earlier process with this number, or of one in another PID namespace.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        };
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // A sweep may have taken it for left over before it was locked.
        if file.metadata()?.nlink() > 0 {
            return Ok((name, file));
        }
    }
    unreachable!("numbers do not run out")
}

/// What a sweep waits for.
#[derive(Default)]
struct Patience {
    /// Sweeps of other processes.
    for_others: bool,
    /// Ends of domains, until that was in vain once: some may go on for ever, whose directory somebody has removed.
    for_ends: bool,
}

/// Removes what processes left behind that died suddenly, looking at `most` of them at most.
fn sweep(base: &Path, own: &str, most: usize) {
    let Ok(entries) = fs::read_dir(base.join("holders")) else { return };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    // A start waits for nobody: what others leave is found again by the next one.
    let mut patience = Patience { for_others: most == usize::MAX, ..Patience::default() };
    for name in names.filter(|n| !n.ends_with(".sock") && n != own).take(most) {
        sweep_one(base, &name, &mut patience);
    }
}

/// Removes what one process left behind, if it is dead. What fails here is tried again by a later sweep.
fn sweep_one(base: &Path, name: &str, patience: &mut Patience) {
    let path = base.join("holders").join(name);
    // A link to a process without a file is left over for certain, but made before its sweep was complete.
    let file = match OpenOptions::new().read(true).open(&path) {
        Ok(file) => {
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return;
            }
            let mut records = Vec::new();
            if (&file).read_to_end(&mut records).is_err() {
                return;
            }
            // Its domains may have outlived it, and wait for its successor.
            let records = PathBuf::from(OsString::from_vec(records));
            if !records.as_os_str().is_empty() && record::any_lives(&records, name) {
                return;
            }
            Some(file)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return,
    };
    // A link that another process sweeps and claims meanwhile would be removed here otherwise.
    let Ok(sweeping) = open_private(&base.join("sweep")) else { return };
    let lock = match patience.for_others {
        true => FlockOperation::LockExclusive,
        // They do what was to be done.
        false => FlockOperation::NonBlockingLockExclusive,
    };
    if rustix::fs::flock(&sweeping, lock).is_err() {
        return;
    }
    let mut all_gone = true;
    for link in links_of(base, "ids", name) {
        let block = link.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
        if let Some(block) = block {
            let gone =
                crate::limits::cgroup::remove_left_over(|id| id / BLOCK == block, &mut patience.for_ends);
            all_gone &= gone;
            if !gone {
                // Thousands of processes take a while to die: found again by the next start.
                continue;
            }
        }
        let _ = fs::remove_file(link);
    }
    for link in links_of(base, "names", name) {
        let _ = fs::remove_file(link);
    }
    let _ = fs::remove_file(socket_path(base, name));
    // Last, so that it is found again if this is interrupted.
    if all_gone {
        let _ = fs::remove_file(path);
    }
    drop(file);
}

/// Links of a directory that lead to this process.
fn links_of(base: &Path, dir: &str, name: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(base.join(dir)).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(move |p| fs::read_link(p).is_ok_and(|to| to == Path::new(name)))
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn socket_path(base: &Path, holder: &str) -> PathBuf {
    base.join("holders").join(format!("{holder}.sock"))
}

/// Where the domain of this name can be asked, if it runs here.
pub(crate) fn socket_of(label: &str) -> Option<PathBuf> {
    let base = runtime_dir();
    let of = |link: PathBuf| fs::read_link(link).ok()?.into_os_string().into_string().ok();
    let id = || label.strip_prefix('d')?.parse::<u32>().ok();
    let holder = of(base.join("names").join(label))
        .or_else(|| of(base.join("ids").join((id()? / BLOCK).to_string())))?;
    Some(socket_path(&base, &holder))
}

/// Where processes that run domains can be asked.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let entries = fs::read_dir(runtime_dir().join("holders"));
    // Without the directory none has ever run.
    let paths = entries.into_iter().flatten().flatten().map(|e| e.path());
    paths.filter(|p| p.extension().is_some_and(|e| e == "sock")).collect()
}

/// Makes the directory, if it is not there: anybody may go through root's, where the supervisor's socket is.
fn make_base(base: &Path) -> io::Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mode = if root { 0o755 } else { 0o700 };
    fs::DirBuilder::new().recursive(true).mode(mode).create(base)?;
    check_base(base)
}

/// Whether it is ours: elsewhere anybody may have made one of that name.
fn check_base(base: &Path) -> io::Result<()> {
    check_own(base, if rustix::process::geteuid().is_root() { 0o022 } else { 0o077 })
}

fn check_own(dir: &Path, not: u32) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let us = rustix::process::geteuid().as_raw();
    let why = if !meta.is_dir() {
        "is no directory".to_owned()
    } else if meta.uid() != us {
        format!("belongs to user {}, not to {us}", meta.uid())
    } else if meta.mode() & not != 0 {
        format!("has mode {:o}: others can get at it", meta.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let text = format!("{} {why}: remove it, or set XDG_RUNTIME_DIR", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether the process at the other end is ours, or root's.
pub(crate) fn check_peer(stream: &std::os::unix::net::UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if peer.is_root() || peer == rustix::process::geteuid() {
        return Ok(());
    }
    let text = format!("the process at the other end is of user {}", peer.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether what is noted there is to be believed; one that is not there says nothing.
pub(crate) fn check() -> io::Result<()> {
    match check_base(&runtime_dir()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        checked => checked,
    }
}

/// Where all this is noted.
fn runtime_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run/doppel".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("doppel"),
        None => std::env::temp_dir().join(format!("doppel-{}", rustix::process::geteuid().as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(base: &Path, dir: &str) -> usize {
        fs::read_dir(base.join(dir)).unwrap().count()
    }

    #[test]
    fn what_was_taken_over_stays_until_all_domains_are_found() {
        let base = tempfile();
        let one = Registry::new(&base).unwrap();
        let (spare, domain) = (one.take_id().unwrap(), one.take_id().unwrap());
        assert_eq!(spare / BLOCK, domain / BLOCK);
        let name = one.name().to_owned();
        // As if it had died: its links stay.
        rustix::fs::flock(&one.lock, FlockOperation::Unlock).unwrap();
        let next = Registry::take_over_in(&base, &name).unwrap();
        next.retake(spare, None);
        next.give_id(spare);
        assert_eq!(count(&base, "ids"), 1, "another domain of the block lives, and is found next");
        next.retake(domain, None);
        next.release_unused();
        assert_eq!(count(&base, "ids"), 1);
        next.give_id(domain);
        assert_eq!(count(&base, "ids"), 0);
        drop((one, next));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn ids_and_names_are_unique_until_given_back() {
        let base = tempfile();
        let (one, two) = (Registry::new(&base).unwrap(), Registry::new(&base).unwrap());
        let ids: Vec<u32> = (0..100).map(|_| one.take_id().unwrap()).collect();
        assert!(ids.windows(2).all(|w| w[0] < w[1]));
        assert!(!ids.contains(&two.take_id().unwrap()));
        assert_eq!(count(&base, "ids"), 3);
        for id in ids {
            one.give_id(id);
        }
        // The first block is done with, the second is not used up.
        assert_eq!(count(&base, "ids"), 2);
        assert!(one.claim_name("web").unwrap() && !two.claim_name("web").unwrap());
        assert!(!one.claim_name("web").unwrap());
        one.give_name("web");
        assert!(two.claim_name("web").unwrap());
        two.give_name("web");
        drop((one, two));
        assert_eq!(["holders", "ids", "names"].map(|d| count(&base, d)), [0, 0, 0]);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_dead_process_leaves_nothing() {
        let base = tempfile();
        drop(Registry::new(&base).unwrap());
        fs::write(base.join("holders/77-0"), "").unwrap();
        fs::write(base.join("holders/77-0.sock"), "").unwrap();
        symlink("77-0", base.join("names/old")).unwrap();
        symlink("77-0", base.join("ids/262143")).unwrap();
        let holder = Registry::new(&base).unwrap();
        assert_eq!(["holders", "ids", "names"].map(|d| count(&base, d)), [1, 0, 0]);
        holder.listen();
        assert_eq!(count(&base, "holders"), 2);
        // One whose sweep was interrupted.
        symlink("78-0", base.join("names/older")).unwrap();
        assert!(holder.claim_name("older").unwrap());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn what_others_made_or_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile();
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Registry::new(&base).unwrap_err().to_string();
        assert!(refused.contains("mode 777"), "{refused}");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
        let link = tempfile();
        symlink(&base, &link).unwrap();
        assert!(Registry::new(&link).unwrap_err().to_string().contains("no directory"));
        fs::create_dir(base.join("holders")).unwrap();
        fs::set_permissions(base.join("holders"), fs::Permissions::from_mode(0o707)).unwrap();
        assert!(Registry::new(&base).is_err());
        if rustix::process::geteuid().is_root() {
            fs::remove_dir(base.join("holders")).unwrap();
            std::os::unix::fs::chown(&base, Some(65534), None).unwrap();
            assert!(Registry::new(&base).unwrap_err().to_string().contains("user 65534"));
        }
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn what_a_process_had_is_its_successors() {
        let base = tempfile();
        let first = Registry::new(&base).unwrap();
        let (name, id) = (first.name().to_owned(), first.take_id().unwrap());
        assert!(first.claim_name("web").unwrap() && first.claim_name("idle").unwrap());
        let records = base.join("records");
        fs::create_dir(&records).unwrap();
        fs::write(records.join("1"), "unreadable: a domain that may live").unwrap();
        first.kept_in(&records).unwrap();
        // As when it dies: its lock is free, and nothing else is done.
        let unlocked = File::open(base.join("holders").join(&name)).unwrap();
        rustix::fs::flock(&first.lock, FlockOperation::Unlock).unwrap();
        std::mem::forget(first);
        let other = Registry::new(&base).unwrap();
        assert!(!other.claim_name("web").unwrap() && count(&base, "ids") == 1);
        drop(unlocked);
        let second = Registry::take_over_in(&base, &name).unwrap();
        second.retake(id, Some("web"));
        second.release_unused();
        assert!(!other.claim_name("web").unwrap() && other.claim_name("idle").unwrap());
        second.give_id(id);
        assert_eq!(count(&base, "ids"), 0);
        second.give_name("web");
        drop(second);
        assert!(other.claim_name("web").unwrap());
        drop(other);
        fs::remove_dir_all(&base).unwrap();
    }

    fn tempfile() -> PathBuf {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::env::temp_dir().join(format!("doppel-holder-{}-{n}", std::process::id()))
    }
}

//! The directory cache: names that were looked up, as a tree of [`Dentry`]s over the inodes.
//!
//! A directory's names are held strongly, and each child holds its parent, so a cached name stays until it is
//! unlinked or [`prune`] drops it. Names known to be absent are kept too, where only this cache makes names
//! ([`Inode::in_memory`]). Where others may make them as well ([`Inode::shared`]) both are true under the lease they were found
//! under, and are looked up again without one. The tree is shielded (`doppel_machine::shield`): walks read it without locks or
//! counts (`lookup::fast`). Names change only under their directory's `children` lock, which is also held over the inode
//! operation that makes the change, so cache and file system never disagree.
//! Lock order: rename lock → children (of two directories: by address) → inode → shield.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use doppel_algo::nametable::{NameTable, name_hash};
use doppel_machine::shield::{self, Reading, Shielded, Writing};

use super::inode::{FileType, Inode};
use crate::core::sched::Mutex;
use crate::{Errno, Result};

/// The name is gone (unlinked, or its directory was).
pub(crate) const UNLINKED: u32 = 1;
/// Something is mounted here.
pub(crate) const MOUNTPOINT: u32 = 2;
/// Looked up since the last [`prune`].
const USED: u32 = 4;
/// A handle names this directory: [`prune`] spares it, for its place could not be found again.
const HANDLED: u32 = 8;

/// The right to change the names of a directory.
#[derive(Default)]
pub(crate) struct Children {
    /// The lease under which names were looked up last.
    lease: u32,
}

/// A name: most are short and need no memory of their own.
pub(crate) enum Name {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

const SHORT: usize = 30;

impl Name {
    fn new(name: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..name.len()) {
            Some(s) => {
                s.copy_from_slice(name);
                Self::Short(name.len() as u8, short)
            }
            None => Self::Long(name.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(n, s) => &s[..usize::from(*n)],
            Self::Long(n) => n,
        }
    }
}

struct Link {
    parent: Option<Arc<Dentry>>,
    name: Name,
}

/// What the cache knows of a name.
pub(crate) enum Entry {
    Child(Arc<Dentry>),
    /// There is no such name: as long as this is the lease.
    Absent(Name, u32),
}

/// A name in a directory, with the inode it stands for.
pub struct Dentry {
    inode: Arc<dyn Inode>,
    kind: FileType,
    cacheable: bool,
    in_memory: bool,
    shared: bool,
    flags: AtomicU32,
    /// The lease under which its name was found in its directory ([`Dentry::lease`]).
    found: AtomicU32,
    /// The lease under which all names in it are known; 0: some may not be.
    complete: AtomicU32,
    link: Shielded<Link>,
    entries: Shielded<NameTable<Entry>>,
    /// Held over every change of names in this directory.
    pub(crate) children: Mutex<Children>,
}

/// Number of dentries the cache holds.
fn cached() -> &'static AtomicUsize {
    &super::mount::vfs().cached
}

impl Dentry {
    /// The root of a file system.
    pub fn root(inode: Arc<dyn Inode>) -> Arc<Self> {
        Self::make(inode, None, b"")
    }

    pub(crate) fn make(inode: Arc<dyn Inode>, parent: Option<Arc<Self>>, name: &[u8]) -> Arc<Self> {
        let kind = inode.kind();
        let cacheable = inode.cacheable();
        let in_memory = inode.in_memory();
        let shared = inode.shared();
        Arc::new(Self {
            inode,
            kind,
            cacheable,
            in_memory,
            shared,
            flags: AtomicU32::new(USED),
            found: AtomicU32::new(0),
            complete: AtomicU32::new(0),
            link: Shielded::new(Link { parent, name: Name::new(name) }),
            entries: Shielded::default(),
            children: Mutex::default(),
        })
    }

    /// The inode.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.inode
    }

    /// The kind of file.
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// Whether others change its names ([`Inode::shared`]).
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Under which lease what is known of names in it is true; none: they are to be looked up. Where only this kernel changes names
    /// it is always 0.
    #[inline]
    pub(crate) fn lease(&self) -> Option<u32> {
        if self.shared { Some(self.inode.lease_number()).filter(|n| *n != 0) } else { Some(0) }
    }

    /// Under which lease its name was found.
    #[inline]
    pub(crate) fn found(&self) -> u32 {
        self.found.load(Ordering::Acquire)
    }

    /// A directory that was made under a lease: all names in it are known.
    pub(crate) fn set_complete(&self, children: &Children) {
        self.complete.store(children.lease, Ordering::Release);
    }

    /// Whether its inode is one of a file system in memory ([`Inode::in_memory`]).
    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// The directory it is in; `None` for the root of a file system.
    pub fn parent(&self) -> Option<Arc<Self>> {
        self.link.get(&shield::read()).parent.clone()
    }

    /// As [`Self::parent`], for a walk.
    pub(crate) fn parent_in<'g>(&'g self, r: &'g Reading) -> Option<&'g Arc<Self>> {
        self.link.get(r).parent.as_ref()
    }

    /// Its name in that directory.
    pub fn name(&self) -> Vec<u8> {
        self.link.get(&shield::read()).name.bytes().to_vec()
    }

    /// What the cache knows of a name in this directory.
    #[inline]
    pub(crate) fn known<'g>(&'g self, r: &'g Reading, hash: u32, name: &[u8]) -> Option<&'g Entry> {
        self.entries.get(r).find(hash, |e| match e {
            Entry::Child(c) => c.link.get(r).name.bytes() == name,
            Entry::Absent(n, _) => n.bytes() == name,
        })
    }

    /// A walk came by: [`prune`] is to spare it once.
    #[inline]
    pub(crate) fn mark_used(&self) {
        if self.flags.load(Ordering::Relaxed) & USED == 0 {
            self.flags.fetch_or(USED, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    pub(crate) fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        }
    }

    /// A handle is given for the file it stands for.
    pub(crate) fn give_handle(&self) {
        if self.kind == FileType::Directory {
            self.set(HANDLED, true);
        }
    }

    /// Whether the name is gone.
    pub fn unlinked(&self) -> bool {
        self.has(UNLINKED)
    }

    /// The child called `name`.
    pub fn child(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        if let Some(known) = self.look(name) {
            return known;
        }
        if !self.cacheable {
            return Ok(Self::make(self.inode.lookup(name)?, Some(self.clone()), name));
        }
        let c = self.child_locked(&mut self.children.lock(), name);
        trim();
        c
    }

    /// What the cache says: the child, or ENOENT.
    fn look(&self, name: &[u8]) -> Option<Result<Arc<Self>>> {
        let lease = self.lease()?;
        Some(match self.known(&shield::read(), name_hash(name), name) {
            Some(Entry::Child(c)) if c.found() == lease => {
                c.mark_used();
                Ok(c.clone())
            }
            Some(Entry::Absent(_, found)) if *found == lease => Err(Errno::ENOENT),
            None if lease != 0 && self.complete.load(Ordering::Acquire) == lease => Err(Errno::ENOENT),
            _ => return None,
        })
    }

    /// The child that has or had this name.
    fn known_child(&self, name: &[u8]) -> Option<Arc<Self>> {
        match self.known(&shield::read(), name_hash(name), name)? {
            Entry::Child(c) => Some(c.clone()),
            Entry::Absent(..) => None,
        }
    }

    /// As [`Self::child`], with this directory's `children` locked by the caller.
    pub(crate) fn child_locked(self: &Arc<Self>, children: &mut Children, name: &[u8]) -> Result<Arc<Self>> {
        children.lease = self.lease().unwrap_or(0);
        if let Some(known) = self.look(name) {
            return known;
        }
        match (self.inode.lookup(name), self.known_child(name)) {
            (Ok(inode), Some(known)) if Arc::ptr_eq(&inode, &known.inode) => {
                known.found.store(children.lease, Ordering::Release);
                known.mark_used();
                Ok(known)
            }
            (Ok(inode), Some(_)) => {
                // Others have put another file there.
                self.forget(children, name);
                Ok(self.adopt(children, inode, name))
            }
            (Err(Errno::ENOENT), Some(_)) => {
                self.forget(children, name);
                Err(Errno::ENOENT)
            }
            (Err(e), Some(_)) => Err(e),
            (Ok(inode), None) => Ok(self.adopt(children, inode, name)),
            (Err(e), None) => {
                if e == Errno::ENOENT && self.keeps_absent(children.lease) {
                    let entry = Entry::Absent(Name::new(name), children.lease);
                    let old = self.put(&mut shield::write(), name, entry);
                    drop(old);
                }
                Err(e)
            }
        }
    }

    /// Whether it is worth something that a name was found to be absent under a lease.
    fn keeps_absent(&self, lease: u32) -> bool {
        self.cacheable && (self.in_memory || lease != 0) && !self.unlinked()
    }

    /// Puts what is known of a name into the cache; gives what was known before, to be dropped outside the guard.
    fn put(&self, w: &mut Writing, name: &[u8], entry: Entry) -> Option<Entry> {
        let hash = name_hash(name);
        let old = self.cut(w, name);
        self.entries.get_mut(w).insert(hash, entry);
        cached().fetch_add(1, Ordering::Relaxed);
        old
    }

    /// Takes what is known of a name out of the cache.
    fn cut(&self, w: &mut Writing, name: &[u8]) -> Option<Entry> {
        let hash = name_hash(name);
        let target = match self.entries.get(w).find(hash, |e| match e {
            Entry::Child(c) => c.link.get(w).name.bytes() == name,
            Entry::Absent(n, _) => n.bytes() == name,
        })? {
            Entry::Child(c) => Some(Arc::as_ptr(c)),
            Entry::Absent(..) => None,
        };
        let old = self.entries.get_mut(w).remove(hash, |e| match (e, target) {
            (Entry::Child(c), Some(t)) => core::ptr::eq(Arc::as_ptr(c), t),
            (Entry::Absent(n, _), None) => n.bytes() == name,
            _ => false,
        });
        cached().fetch_sub(usize::from(old.is_some()), Ordering::Relaxed);
        old
    }

    /// Caches a new name.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        children: &mut Children,
        inode: Arc<dyn Inode>,
        name: &[u8],
    ) -> Arc<Self> {
        let c = Self::make(inode, Some(self.clone()), name);
        c.found.store(children.lease, Ordering::Relaxed);
        if self.cacheable && !self.unlinked() {
            let old = self.put(&mut shield::write(), name, Entry::Child(c.clone()));
            drop(old);
        }
        c
    }

    /// Takes a name out of the cache because it is no more.
    pub(crate) fn forget(&self, children: &mut Children, name: &[u8]) {
        let old = {
            let w = &mut shield::write();
            let old = self.cut(w, name);
            if let Some(Entry::Child(c)) = &old {
                c.set(UNLINKED, true);
                if self.keeps_absent(children.lease) {
                    self.put(w, name, Entry::Absent(Name::new(name), children.lease));
                }
            }
            old
        };
        drop(old);
    }

    /// Brings the cache in step with a rename of `child` from `old` in `a` to `new` in `b`, where `victim` stood;
    /// the two change places if `swap`. The caller holds both directories' `children`. One step for all walks.
    pub(crate) fn renamed(
        (a, old): (&Arc<Self>, &[u8]),
        (b, new): (&Arc<Self>, &[u8]),
        child: &Arc<Self>,
        victim: Option<&Arc<Self>>,
        swap: bool,
    ) {
        let mut garbage: [Option<Entry>; 2] = [None, None];
        let mut links: Vec<Link> = Vec::new();
        {
            let w = &mut shield::write();
            garbage[0] = a.cut(w, old);
            garbage[1] = b.cut(w, new);
            let mut place = |w: &mut Writing, d: &Arc<Self>, dir: &Arc<Self>, name: &[u8]| {
                let link = Link { parent: Some(dir.clone()), name: Name::new(name) };
                links.push(core::mem::replace(d.link.get_mut(w), link));
                if dir.cacheable && !dir.unlinked() {
                    dir.put(w, name, Entry::Child(d.clone()));
                }
            };
            place(w, child, b, new);
            match victim {
                Some(v) if swap => place(w, v, a, old),
                Some(v) => v.set(UNLINKED, true),
                None => {}
            }
            // The lease under which both names were looked up.
            let lease = child.found();
            if !swap && lease != 0 && a.keeps_absent(lease) {
                a.put(w, old, Entry::Absent(Name::new(old), lease));
            }
        }
        drop((garbage, links));
    }

    /// Whether it is one of the directories of proc and sysfs that are there for other file systems only, and always empty.
    pub(crate) fn is_made_for_mounts(&self) -> bool {
        const NAMES: [&[u8]; 9] = [
            b"/sys/fs/binfmt_misc",
            b"/fs/bpf",
            b"/fs/cgroup",
            b"/fs/fuse/connections",
            b"/fs/pstore",
            b"/kernel/config",
            b"/kernel/debug",
            b"/kernel/security",
            b"/kernel/tracing",
        ];
        NAMES.contains(&self.name_in_tree().as_slice())
    }

    /// Its name from the root of its file system.
    pub(crate) fn name_in_tree(&self) -> Vec<u8> {
        let r = shield::read();
        let (mut parts, mut at) = (Vec::new(), self);
        while let Some(parent) = at.parent_in(&r) {
            parts.push(at.link.get(&r).name.bytes());
            at = parent;
        }
        let mut out = Vec::new();
        for p in parts.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(p);
        }
        if out.is_empty() {
            // What is no part of a tree has a name of its own.
            match at.link.get(&r).name.bytes() {
                b"" => out.push(b'/'),
                own => out.extend_from_slice(own),
            }
        }
        out
    }

    /// Whether it is `above`, or lies below that.
    pub(crate) fn is_in(&self, above: &Arc<Self>) -> bool {
        let r = shield::read();
        let mut at = self;
        while !core::ptr::eq(at, Arc::as_ptr(above)) {
            match at.parent_in(&r) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        true
    }

    /// Keeps a name that something is mounted on where names are not kept, with those of the directories above it: else walks
    /// would come by another.
    pub(crate) fn pin(self: &Arc<Self>) {
        let mut at = self.clone();
        while let Some(parent) = at.parent().filter(|p| !p.cacheable) {
            let name = at.name();
            let old = {
                let w = &mut shield::write();
                let known = parent.entries.get(w).find(name_hash(&name), |e| match e {
                    Entry::Child(c) => Arc::ptr_eq(c, &at),
                    Entry::Absent(..) => false,
                });
                if known.is_some() { None } else { parent.put(w, &name, Entry::Child(at.clone())) }
            };
            drop(old);
            at = parent;
        }
    }

    /// Undoes [`Self::pin`], as far as nothing else is mounted there.
    pub(crate) fn unpin(self: &Arc<Self>) {
        let mut at = self.clone();
        while let Some(parent) = at.parent().filter(|p| !p.cacheable) {
            if at.has(MOUNTPOINT) || !at.entries.get(&shield::read()).is_empty() {
                return;
            }
            let name = at.name();
            let old = parent.cut(&mut shield::write(), &name);
            drop(old);
            at = parent;
        }
    }

    /// ENOENT in a directory that was removed.
    pub(crate) fn alive(&self) -> Result<()> {
        if self.unlinked() { Err(Errno::ENOENT) } else { Ok(()) }
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        // A chain of removed directories could be long: unwind it without recursion.
        let mut parent = self.link.exclusive().parent.take();
        while let Some(mut p) = parent.and_then(Arc::into_inner) {
            parent = p.link.exclusive().parent.take();
        }
    }
}

/// Most names kept.
const CACHE_MAX: usize = 24_000;

/// Prunes the cache if it has grown too large. The caller holds no dentry's lock.
pub(crate) fn trim() {
    if cached().load(Ordering::Relaxed) > CACHE_MAX {
        prune(&super::mount::vfs().root_dentries());
    }
}

/// Drops all cached names that nobody holds.
pub(super) fn drop_unused() {
    drop_cached(&super::mount::vfs().root_dentries());
}

/// Drops what is only cached below these.
pub(super) fn drop_cached(roots: &[Arc<Dentry>]) {
    // The first time forgets who was looked up; then a directory goes one time after the last name in it.
    let mut before = usize::MAX;
    prune(roots);
    while cached().load(Ordering::Relaxed) < before {
        before = cached().load(Ordering::Relaxed);
        prune(roots);
    }
}

/// Drops cached names that nobody holds and nobody looked up since the last time, leaves first, and all names known
/// to be absent.
fn prune(roots: &[Arc<Dentry>]) {
    let mut stack: Vec<Arc<Dentry>> = roots.to_vec();
    while let Some(d) = stack.pop() {
        // Whoever changes names there looks after the cache by itself.
        let Some(children) = d.children.try_lock() else { continue };
        let mut w = shield::write();
        let mut doomed: Vec<*const Dentry> = Vec::new();
        for e in d.entries.get(&w).iter() {
            let Entry::Child(c) = e else { continue };
            let used = c.flags.fetch_and(!USED, Ordering::Relaxed) & (USED | MOUNTPOINT | HANDLED) != 0;
            if !used && Arc::strong_count(c) == 1 && c.entries.get(&w).is_empty() {
                doomed.push(Arc::as_ptr(c));
            } else if c.kind == FileType::Directory {
                stack.push(c.clone());
            }
        }
        doomed.sort_unstable();
        if !doomed.is_empty() {
            d.complete.store(0, Ordering::Release);
        }
        let dead = d
            .entries
            .get_mut(&mut w)
            .extract(|e| matches!(e, Entry::Child(c) if doomed.binary_search(&Arc::as_ptr(c)).is_err()));
        drop(w);
        drop(children);
        cached().fetch_sub(dead.len(), Ordering::Relaxed);
    }
}

//! How mounts hang together.
//!
//! Key type: [`Tree`], of all mounts of all namespaces; [`super::vfs`] keeps it behind a lock. Walks do not look here: what is changed
//! is shown to them by [`Tree::show`].

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::{arena, shield};

use super::groups::Group;
use super::index;
use super::space::Space;
use super::{Mount, MountNamespace, vfs};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::dentry::{Dentry, MOUNTPOINT};
use crate::{Errno, Result};

/// One mount in its tree.
pub(crate) struct Node {
    pub mount: Arc<Mount>,
    /// What it is mounted on; 0 at the top of a tree.
    pub parent: u64,
    pub point: Option<Arc<Dentry>>,
    /// What is mounted on it.
    pub children: BTreeSet<u64>,
    /// Its peer group; 0: it is not shared.
    pub group: u64,
    /// The peer group it gets mounts from; 0: it is no slave.
    pub master: u64,
    pub unbindable: bool,
}

/// All mounts.
#[derive(Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<u64, Node>,
    pub(super) groups: BTreeMap<u64, Group>,
    /// Namespaces, and what is at the bottom of each.
    spaces: BTreeMap<u64, (Arc<Space>, u64)>,
    /// How many mounts are on a name, by its address.
    points: BTreeMap<usize, usize>,
}

impl Tree {
    /// A new mount, at the top of a tree of its own, as a slave of `master` if that is a group.
    pub(super) fn add(&mut self, mount: Arc<Mount>, master: u64) -> u64 {
        let id = mount.id;
        let node = Node {
            mount,
            parent: 0,
            point: None,
            children: BTreeSet::new(),
            group: 0,
            master,
            unbindable: false,
        };
        self.nodes.insert(id, node);
        self.enslave(id, master);
        id
    }

    /// The mount with this number. EINVAL if it was unmounted.
    pub(crate) fn node(&self, id: u64) -> Result<&Node> {
        self.nodes.get(&id).ok_or(Errno::EINVAL)
    }

    pub(super) fn node_mut(&mut self, id: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&id)
    }

    pub(crate) fn mount(&self, id: u64) -> Result<&Arc<Mount>> {
        self.node(id).map(|n| &n.mount)
    }

    /// All mounts, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Mount>> {
        self.nodes.values().map(|n| n.mount.clone()).collect()
    }

    /// The mounts of a namespace, oldest first, above this number.
    pub(crate) fn of_space(&self, space: u64, above: u64) -> impl DoubleEndedIterator<Item = &Node> {
        self.nodes.range(above.saturating_add(1)..).map(|(_, n)| n).filter(move |n| n.mount.space() == space)
    }

    /// Whether a file system is mounted anywhere.
    pub(crate) fn shows(&self, is: impl Fn(&Mount) -> bool) -> Option<&Arc<Mount>> {
        self.nodes.values().map(|n| &n.mount).find(|m| is(m))
    }

    /// A mount and all below it, each before what is mounted on it.
    pub(super) fn subtree(&self, top: u64) -> Vec<u64> {
        let (mut out, mut next) = (alloc::vec![top], 0);
        while let Some(id) = out.get(next) {
            if let Some(n) = self.nodes.get(id) {
                out.extend(&n.children);
            }
            next += 1;
        }
        out
    }

    /// What is mounted on this name of a mount.
    pub(super) fn child_at(&self, parent: u64, point: &Arc<Dentry>) -> Option<u64> {
        let parent = self.nodes.get(&parent)?;
        if !point.has(MOUNTPOINT) {
            return None;
        }
        let r = shield::read();
        let found = vfs().index.get(&r).find_id(&r, &parent.mount, point);
        drop(r);
        // What is being built is not shown yet.
        found.or_else(|| {
            let here = |c: &&u64| {
                let n = self.nodes.get(c);
                n.and_then(|n| n.point.as_ref()).is_some_and(|p| Arc::ptr_eq(p, point))
            };
            if parent.mount.space() == 0 { parent.children.iter().find(here).copied() } else { None }
        })
    }

    /// Hangs a mount that is at the top of a tree on a name of another.
    pub(super) fn hang(&mut self, id: u64, parent: u64, point: &Arc<Dentry>) {
        if let Some(n) = self.nodes.get_mut(&id) {
            n.parent = parent;
            n.point = Some(point.clone());
        }
        if let Some(p) = self.nodes.get_mut(&parent) {
            p.children.insert(id);
        }
        *self.points.entry(Arc::as_ptr(point).addr()).or_default() += 1;
        point.set(MOUNTPOINT, true);
        point.pin();
    }

    /// Takes a mount from where it hangs.
    pub(super) fn unhang(&mut self, id: u64) {
        let Some(n) = self.nodes.get_mut(&id) else { return };
        let parent = core::mem::take(&mut n.parent);
        let Some(point) = n.point.take() else { return };
        if let Some(p) = self.nodes.get_mut(&parent) {
            p.children.remove(&id);
        }
        let key = Arc::as_ptr(&point).addr();
        if let Some(count) = self.points.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.points.remove(&key);
                point.set(MOUNTPOINT, false);
                point.unpin();
            }
        }
    }

    /// Shows walks where these mounts are now; the tree lets go of those that hang nowhere and are of no namespace
    /// only when they are dropped.
    pub(super) fn show(&self, ids: &[u64]) {
        let known = |id: &u64| self.nodes.get(id).map(|n| n.mount.clone());
        self.show_all(ids.iter().filter_map(known).collect());
    }

    pub(super) fn show_all(&self, mounts: Vec<Arc<Mount>>) {
        let place = |m: Arc<Mount>| {
            let n = self.nodes.get(&m.id);
            let at = n.and_then(|n| {
                let parent = self.nodes.get(&n.parent)?.mount.clone();
                Some(Path::new(parent, n.point.clone()?))
            });
            (m, at)
        };
        let mut moves: Vec<_> = mounts.into_iter().map(place).collect();
        index::place(&mut shield::write(), &mut moves);
    }

    /// Takes a mount out of all.
    pub(super) fn remove(&mut self, id: u64) -> Option<Arc<Mount>> {
        self.unhang(id);
        self.leave(id);
        self.leave_master(id);
        let n = self.nodes.remove(&id)?;
        self.set_space(&n.mount, 0);
        Some(n.mount)
    }

    /// A namespace with this at the top of its tree.
    pub(super) fn own(&mut self, namespace: &Arc<MountNamespace>, top: u64) {
        let number = namespace.number;
        self.spaces.insert(number, (Arc::clone(namespace), top));
        self.settle(top, number);
    }

    /// The topmost mount of a namespace.
    pub(crate) fn top(&self, space: u64) -> Option<u64> {
        self.spaces.get(&space).map(|s| s.1)
    }

    /// A namespace is gone.
    pub(super) fn disown(&mut self, space: u64) {
        self.spaces.remove(&space);
    }

    pub(crate) fn namespace(&self, space: u64) -> Option<&Arc<Space>> {
        self.spaces.get(&space).map(|s| &s.0)
    }

    pub(super) fn set_space(&self, mount: &Mount, space: u64) {
        let old = mount.space.swap(space, Ordering::Relaxed);
        if old == space {
            return;
        }
        if let Some(n) = self.namespace(old) {
            n.count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(n) = self.namespace(space) {
            n.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A tree is in this namespace from now on.
    pub(super) fn settle(&self, top: u64, space: u64) {
        for id in self.subtree(top) {
            if let Some(n) = self.nodes.get(&id) {
                self.set_space(&n.mount, space);
            }
        }
    }

    /// Whether so many more mounts may be in a namespace: ENOSPC if not.
    pub(super) fn room(&self, space: u64, more: usize) -> Result<()> {
        let most = vfs().most.load(Ordering::Relaxed);
        let has = self.namespace(space).map_or(0, |n| n.count.load(Ordering::Relaxed));
        if has.saturating_add(more) > most { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// ENOMEM when kernel memory is nearly used up.
    pub(super) fn memory(&self) -> Result<()> {
        if arena::low() { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Whether a place lies below another, through mount points.
    pub(crate) fn reachable(&self, mut id: u64, mut at: Arc<Dentry>, root: (u64, &Arc<Dentry>)) -> bool {
        while id != root.0 {
            let Some((n, point)) = self.nodes.get(&id).and_then(|n| Some((n, n.point.clone()?))) else {
                return false;
            };
            (id, at) = (n.parent, point);
        }
        at.is_in(root.1)
    }

    /// The namespaces of these mounts have changed.
    pub(super) fn tell(&self, spaces: impl IntoIterator<Item = u64>) {
        let mut spaces: Vec<u64> = spaces.into_iter().collect();
        spaces.sort_unstable();
        spaces.dedup();
        for n in spaces.into_iter().filter_map(|s| self.namespace(s)) {
            n.tell();
        }
    }
}

impl Tree {
    /// Whether something that stays in place hides more of a mount than empty directories.
    pub(crate) fn covered(&self, n: &Node) -> bool {
        use crate::objects::vfs::flags::MountLocks;
        n.children.iter().filter_map(|c| self.nodes.get(c)).any(|c| {
            let locked = c.mount.locks().contains(MountLocks::IN_PLACE);
            locked && !c.point.as_ref().is_some_and(|p| p.is_made_for_mounts())
        })
    }
}

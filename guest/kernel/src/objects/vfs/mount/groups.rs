//! Peer groups and masters of mounts (`mount_namespaces(7)`).
//!
//! Key type: [`Group`]. A mount is shared if it is in a group; it is a slave if it gets mounts from one. Who leaves a group as its last
//! hands the group's slaves to the master that the group had.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::tree::Tree;
use crate::objects::vfs::flags::MountFlags;

/// Mounts that get each other's mounts.
#[derive(Default)]
pub(crate) struct Group {
    pub members: BTreeSet<u64>,
    /// Who gets theirs, and gives none back.
    pub slaves: BTreeSet<u64>,
}

impl Tree {
    /// A number for a new group: the lowest that is free, as programs show it.
    fn new_group(&mut self) -> u64 {
        let mut free = 1;
        for taken in self.groups.keys() {
            if *taken != free {
                break;
            }
            free += 1;
        }
        self.groups.insert(free, Group::default());
        free
    }

    /// Makes a mount the first of a new group, unless it is in one: whether it was made so.
    pub(super) fn share(&mut self, id: u64) -> bool {
        if self.node(id).map_or(true, |n| n.group != 0) {
            return false;
        }
        let group = self.new_group();
        self.join(id, group);
        true
    }

    /// Makes a mount, which is in no group, a member of this one.
    pub(super) fn join(&mut self, id: u64, group: u64) {
        if group == 0 {
            return;
        }
        if let Some(n) = self.node_mut(id) {
            n.group = group;
            n.unbindable = false;
        }
        self.groups.entry(group).or_default().members.insert(id);
    }

    /// Makes a mount, which is a slave of none, one of this group.
    pub(super) fn enslave(&mut self, id: u64, master: u64) {
        if let Some(n) = self.node_mut(id) {
            n.master = master;
        }
        if master != 0 {
            self.groups.entry(master).or_default().slaves.insert(id);
        }
    }

    /// Takes a mount out of its group; gives the group from which it would get mounts as its slave: the same if it has other
    /// members, else the master it had.
    pub(super) fn leave(&mut self, id: u64) -> u64 {
        let Some(n) = self.node_mut(id) else { return 0 };
        let (group, master) = (core::mem::take(&mut n.group), n.master);
        let Some(g) = self.groups.get_mut(&group) else { return master };
        g.members.remove(&id);
        if !g.members.is_empty() {
            return group;
        }
        let slaves = self.groups.remove(&group).map(|g| g.slaves).unwrap_or_default();
        for s in slaves {
            self.enslave(s, master);
        }
        master
    }

    /// Frees a mount of its master.
    pub(super) fn leave_master(&mut self, id: u64) {
        let Some(n) = self.node_mut(id) else { return };
        let master = core::mem::take(&mut n.master);
        if let Some(g) = self.groups.get_mut(&master) {
            g.slaves.remove(&id);
        }
    }

    /// Makes a mount shared, a slave, private or unbindable; `kind` is one of these.
    pub(super) fn set_kind(&mut self, id: u64, kind: MountFlags) {
        if kind == MountFlags::SHARED {
            self.share(id);
            if let Some(n) = self.node_mut(id) {
                n.unbindable = false;
            }
            return;
        }
        if self.node(id).is_ok_and(|n| n.group != 0) {
            let master = self.leave(id);
            if self.node(id).is_ok_and(|n| n.master != master) {
                self.leave_master(id);
                self.enslave(id, master);
            }
        }
        if kind == MountFlags::SLAVE {
            return;
        }
        self.leave_master(id);
        if let Some(n) = self.node_mut(id) {
            n.unbindable = kind == MountFlags::UNBINDABLE;
        }
    }

    /// All mounts that get what is mounted on this one, itself not among them.
    pub(super) fn receivers(&self, id: u64) -> Vec<u64> {
        let Ok(start) = self.node(id).map(|n| n.group) else { return Vec::new() };
        let (mut out, mut seen, mut next) = (Vec::new(), BTreeSet::from([start]), alloc::vec![start]);
        while let Some(group) = next.pop() {
            let Some(g) = self.groups.get(&group) else { continue };
            out.extend(g.members.iter().copied().filter(|m| *m != id));
            for s in &g.slaves {
                match self.node(*s).map_or(0, |n| n.group) {
                    0 => out.push(*s),
                    own if seen.insert(own) => next.push(own),
                    _ => {}
                }
            }
        }
        out
    }
}

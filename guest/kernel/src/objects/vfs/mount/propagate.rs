//! What is mounted on a shared mount appears at its peers and their slaves too.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::copy::How;
use super::tree::Tree;
use crate::Result;
use crate::objects::vfs::dentry::Dentry;

/// Copies that are to be mounted on other mounts: the top of each, and that mount.
#[derive(Default)]
pub(super) struct Copies {
    pub list: Vec<(u64, u64)>,
    /// How many mounts each namespace gets.
    coming: BTreeMap<u64, usize>,
}

impl Tree {
    /// Copies the tree `source`, whose mounts are all shared, for all who get what is mounted on the name `point` of the mount `on`.
    /// What was copied before an error is in `out` too.
    pub(super) fn copies(
        &mut self,
        on: u64,
        point: &Arc<Dentry>,
        source: u64,
        out: &mut Copies,
    ) -> Result<()> {
        let group = self.node(on)?.group;
        let mut seen = BTreeSet::from([group]);
        // Groups to be served, and whose slaves' copies hang on which source.
        let mut next = alloc::vec![(group, source)];
        let peers = self.sees(group, point, on);
        for peer in peers {
            self.copy_for(peer, source, How::Peer, out)?;
        }
        while let Some((group, source)) = next.pop() {
            let slaves = self.groups.get(&group).map(|g| g.slaves.clone()).unwrap_or_default();
            for slave in slaves {
                let Ok(n) = self.node(slave) else { continue };
                let own = n.group;
                if n.mount.space() == 0 {
                    continue;
                }
                if own == 0 {
                    if point.is_in(&n.mount.root) {
                        self.copy_for(slave, source, How::Slave, out)?;
                    }
                } else if seen.insert(own) {
                    let mut first = None;
                    for member in self.sees(own, point, 0) {
                        let (from, how) = first.map_or((source, How::SharedSlave), |f| (f, How::Peer));
                        let copy = self.copy_for(member, from, how, out)?;
                        first.get_or_insert(copy);
                    }
                    next.push((own, first.unwrap_or(source)));
                }
            }
        }
        Ok(())
    }

    /// The members of a group that have this name, but for one, and for those that are being made.
    fn sees(&self, group: u64, point: &Arc<Dentry>, but: u64) -> Vec<u64> {
        let sees = |m: &u64| {
            *m != but && self.mount(*m).is_ok_and(|mount| mount.space() != 0 && point.is_in(&mount.root))
        };
        let members = self.groups.get(&group).into_iter().flat_map(|g| &g.members);
        members.copied().filter(sees).collect()
    }

    fn copy_for(&mut self, on: u64, source: u64, how: How, out: &mut Copies) -> Result<u64> {
        let root = self.mount(source)?.root.clone();
        let copied = self.copy_tree(source, &root, how, true)?;
        out.list.push((copied.top, on));
        let space = self.mount(on)?.space();
        let coming = out.coming.entry(space).or_default();
        *coming += copied.of.len();
        self.room(space, *coming)?;
        Ok(copied.top)
    }
}

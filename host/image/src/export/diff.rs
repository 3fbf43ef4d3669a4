//! How a tree of files differs from another one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use doppel_erofs::Kind;

use crate::Result;
use crate::export::view::{Id, Item, View};
use crate::export::{Difference, enter};

/// Paths of `new` that are not what they are in `old`, a directory before what is below it.
pub(super) fn differences(old: &dyn View, new: &dyn View) -> Result<Vec<(Difference, Vec<u8>)>> {
    let mut walk = Walk { old, new, found: Vec::new(), entered: HashSet::new() };
    walk.directory(b"", Some(&old.root()?), &new.root()?)?;
    Ok(walk.found)
}

struct Walk<'a> {
    old: &'a dyn View,
    new: &'a dyn View,
    found: Vec<(Difference, Vec<u8>)>,
    entered: HashSet<Id>,
}

impl Walk<'_> {
    /// Everything below a directory. Each level makes the path longer, whose length is bounded.
    fn directory(&mut self, path: &[u8], old: Option<&Item>, new: &Item) -> Result<()> {
        enter(&mut self.entered, new.id, path)?;
        let before = match old.filter(|old| old.kind == Kind::Directory) {
            Some(old) => self.old.list(old)?,
            None => Vec::new(),
        };
        let before: BTreeMap<Vec<u8>, Item> = before.into_iter().collect();
        let after: BTreeMap<Vec<u8>, Item> = self.new.list(new)?.into_iter().collect();
        let names: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
        for name in names {
            match after.get(name) {
                Some(new) => self.file(below(path, name), before.get(name), new)?,
                None => self.found.push((Difference::Deleted, below(path, name))),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: Vec<u8>, old: Option<&Item>, new: &Item) -> Result<()> {
        let at = self.found.len();
        let (difference, differs) = match old {
            None => (Difference::Added, true),
            Some(old) => (Difference::Changed, self.differs(old, new)?),
        };
        self.found.push((difference, path.clone()));
        if new.kind == Kind::Directory {
            self.directory(&path, old, new)?;
        }
        if !differs && self.found.len() == at + 1 {
            self.found.pop();
        }
        Ok(())
    }

    fn differs(&self, old: &Item, new: &Item) -> Result<bool> {
        let attributes = |item: &Item| (item.kind, item.mode, item.uid, item.gid, item.device);
        let is_dir = new.kind == Kind::Directory;
        let changed = |item: &Item| (item.mtime_sec, item.mtime_nsec, item.size);
        if attributes(old) != attributes(new) || !is_dir && changed(old) != changed(new) {
            return Ok(true);
        }
        let sorted = |mut all: Vec<(Vec<u8>, Vec<u8>)>| {
            all.sort_unstable();
            all
        };
        if sorted(self.old.xattrs(old)?) != sorted(self.new.xattrs(new)?) {
            return Ok(true);
        }
        Ok(match new.kind {
            Kind::Regular => old.id != new.id || !self.new.is_unchanged(new),
            Kind::Symlink => self.old.target(old)? != self.new.target(new)?,
            _ => false,
        })
    }
}

fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

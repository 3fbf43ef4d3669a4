//! Applies one layer of an OCI image over a tree: entries replace what is there, whiteouts remove it.
//!
//! `.wh.NAME` removes NAME, `.wh..wh..opq` everything in its directory, as it was *below* this layer: what the layer
//! itself brings stays, whatever the order. Parents that are symbolic links of lower layers are followed inside the
//! tree (an image with `/lib -> usr/lib` gets files under `lib/`); one that this layer brought, or that leads above the
//! root, is refused.

use std::collections::{BTreeSet, HashMap};

use super::{Content, Limits, Meta, Tree, check, components};
use crate::{Error, Result};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..opq";
/// Most symbolic links on the way to one entry, as in Linux.
const HOPS: usize = 40;
/// Deepest directory: what the longest path could name.
const DEPTH: usize = 2048;

/// A layer being applied.
pub(crate) struct Layer<'a> {
    tree: &'a mut Tree,
    /// Names this layer brought, by directory; directories on the way to them count.
    brought: HashMap<usize, BTreeSet<Vec<u8>>>,
}

impl<'a> Layer<'a> {
    pub(crate) fn new(tree: &'a mut Tree) -> Self {
        Self { tree, brought: HashMap::new() }
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.tree.limits()
    }

    /// Puts a node at `path`, or does what the whiteout there says.
    pub(crate) fn put(&mut self, path: &[u8], meta: Meta, content: Content) -> Result<()> {
        check(path, &meta, &content)?;
        let names = components(path)?;
        let Some((last, parents)) = names.split_last() else {
            return self.tree.insert(path, meta, content).map(|_| ());
        };
        if names.iter().any(|n| n.starts_with(b".wh..wh.") && !n.ends_with(b".wh..opq")) {
            return Ok(()); // bookkeeping of AUFS, which old images carry
        }
        if parents.iter().any(|n| n.starts_with(WHITEOUT)) {
            return Err(Error::source(path, "an entry below a whiteout"));
        }
        if let Some(hidden) = last.strip_prefix(WHITEOUT) {
            return self.whiteout(path, parents, hidden);
        }
        let Some(parent) = self.directory(path, parents, true)? else { return Ok(()) };
        if let Some(old) = self.tree.child(parent, last)
            && matches!(self.tree.nodes[old].content, Content::Dir(_))
        {
            if matches!(content, Content::Dir(_)) {
                self.tree.nodes[old].meta = meta;
                self.bring(parent, last);
                return Ok(());
            }
            self.may_replace(path, parent, last)?;
        }
        let node = self.tree.push(meta, content)?;
        self.bring(parent, last);
        self.tree.set_child(parent, last, node)
    }

    /// Adds `path` as a further name of what is at `target`.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let missing =
            || Error::source(path, format!("hard link to {}, which is not there", target.escape_ascii()));
        let to = components(target)?;
        let (to_last, to_parents) = to.split_last().ok_or_else(missing)?;
        let dir = self.directory(target, to_parents, false)?.ok_or_else(missing)?;
        let node = self.tree.child(dir, to_last).ok_or_else(missing)?;
        if matches!(self.tree.nodes[node].content, Content::Dir(_)) {
            return Err(Error::source(path, "hard link to a directory"));
        }
        let names = components(path)?;
        let (last, parents) =
            names.split_last().ok_or_else(|| Error::source(path, "hard link without a name"))?;
        if names.iter().any(|n| n.starts_with(WHITEOUT)) {
            return Err(Error::source(path, "a whiteout that is a hard link"));
        }
        let Some(parent) = self.directory(path, parents, true)? else { return Ok(()) };
        self.may_replace(path, parent, last)?;
        self.bring(parent, last);
        self.tree.set_child(parent, last, node)
    }

    fn whiteout(&mut self, path: &[u8], parents: &[&[u8]], hidden: &[u8]) -> Result<()> {
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::source(path, "a whiteout of no name"));
        }
        let Some(dir) = self.directory(path, parents, false)? else { return Ok(()) };
        if hidden == OPAQUE {
            self.prune(dir);
            return Ok(());
        }
        match self.tree.child(dir, hidden) {
            Some(child) if self.is_brought(dir, hidden) => self.prune(child),
            Some(_) => {
                if let Content::Dir(children) = &mut self.tree.nodes[dir].content {
                    children.remove(hidden);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Removes what is below `node` and was not brought by this layer.
    fn prune(&mut self, node: usize) {
        let mut todo = vec![node];
        while let Some(dir) = todo.pop() {
            let brought = self.brought.get(&dir);
            if let Content::Dir(children) = &mut self.tree.nodes[dir].content {
                children.retain(|name, _| brought.is_some_and(|b| b.contains(name)));
                todo.extend(children.values());
            }
        }
    }

    fn bring(&mut self, dir: usize, name: &[u8]) {
        let names = self.brought.entry(dir).or_default();
        if !names.contains(name) {
            names.insert(name.to_vec());
        }
    }

    fn is_brought(&self, dir: usize, name: &[u8]) -> bool {
        self.brought.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// Refuses to put something else over a directory of this same layer that is not empty.
    fn may_replace(&self, path: &[u8], parent: usize, name: &[u8]) -> Result<()> {
        let Some(old) = self.tree.child(parent, name) else { return Ok(()) };
        match &self.tree.nodes[old].content {
            Content::Dir(children) if !children.is_empty() && self.is_brought(parent, name) => {
                Err(Error::source(path, "would replace a directory that is not empty"))
            }
            _ => Ok(()),
        }
    }

    /// The directory that `parents` name, made where missing if `make`; else `None` where one is missing.
    fn directory(&mut self, path: &[u8], parents: &[&[u8]], make: bool) -> Result<Option<usize>> {
        let refuse = |why: String| Err(Error::source(path, why));
        // The way from the root, and the names still to go, the next one last.
        let mut way = vec![0];
        let mut rest: Vec<Vec<u8>> = parents.iter().rev().map(|n| n.to_vec()).collect();
        let mut hops = 0;
        while let Some(name) = rest.pop() {
            let at = way.last().copied().unwrap_or(0);
            match name.as_slice() {
                b"" | b"." => continue,
                b".." if way.len() > 1 => {
                    way.pop();
                    continue;
                }
                b".." => return refuse("goes through a symbolic link that leads out of the image".into()),
                _ => {}
            }
            let child = match self.tree.child(at, &name) {
                Some(child) => child,
                None if !make => return Ok(None),
                None => {
                    let node = self.tree.push(Meta { mode: 0o755, ..Meta::default() }, Content::dir())?;
                    self.tree.set_child(at, &name, node)?;
                    node
                }
            };
            match &self.tree.nodes[child].content {
                Content::Dir(_) => {
                    if make {
                        self.bring(at, &name);
                    }
                    way.push(child);
                }
                Content::Symlink(_) if self.is_brought(at, &name) => {
                    return refuse(format!("goes through the symbolic link {}", name.escape_ascii()));
                }
                Content::Symlink(target) => {
                    hops += 1;
                    if hops > HOPS {
                        return refuse("goes through too many symbolic links".into());
                    }
                    if target.starts_with(b"/") {
                        way.truncate(1);
                    }
                    rest.extend(target.split(|b| *b == b'/').rev().map(<[u8]>::to_vec));
                }
                _ if !make => return Ok(None),
                _ => return refuse(format!("{} is not a directory", name.escape_ascii())),
            }
            if way.len() > DEPTH {
                return refuse("is deeper than any path can name".into());
            }
        }
        Ok(way.last().copied())
    }
}

#[cfg(test)]
mod tests;

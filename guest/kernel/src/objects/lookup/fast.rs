//! Walking names that the directory cache knows, without a lock or a count: the quick part of path resolution.
//!
//! Key types: [`Spot`] (a place, borrowed from the shielded tree), [`FastWalk`] (how far a walk got). What the cache does
//! not know, magic links, trailing slashes and every error but ENOENT are left to walk.rs, which goes on from where
//! the fast walk stopped.
//! Boundary: everything here happens under one [`Reading`], so nothing may block or take a guard. What is called
//! under it may take leaf locks of inodes only; [`peek`] therefore offers only places of file systems in memory, and of those whose
//! names are kept under a lease.

use alloc::sync::Arc;

use doppel_algo::nametable::name_hash;
use doppel_machine::shield::{self, Reading};

use super::caller::at::FDCWD;
use super::opener::Opener;
use super::path::Path;
use super::walk::{LINKS_MAX, Last, NAME_MAX, skip};
use crate::core::subject::Cred;
use crate::objects::lookup::perm::{self, MAY_EXEC};
use crate::objects::vfs::dentry::{Dentry, Entry, MOUNTPOINT};
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::inode::FileType;
use crate::objects::vfs::mount::{Mount, vfs};
use crate::{Errno, Result};

/// A place, for as long as the guard is held.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'g> {
    pub mount: &'g Arc<Mount>,
    pub dentry: &'g Arc<Dentry>,
}

impl<'g> Spot<'g> {
    pub(crate) fn of(p: &'g Path) -> Self {
        Self { mount: p.mount(), dentry: p.dentry() }
    }

    pub(crate) fn is(self, other: Self) -> bool {
        Arc::ptr_eq(self.dentry, other.dentry) && Arc::ptr_eq(self.mount, other.mount)
    }

    /// The place to keep.
    pub(crate) fn path(self) -> Path {
        Path::new(self.mount.clone(), self.dentry.clone())
    }

    /// The directory above, through mount points; itself at the root of everything.
    fn up(self, r: &'g Reading) -> Self {
        let mut at = self;
        while Arc::ptr_eq(at.dentry, &at.mount.root) {
            match at.mount.at_in(r) {
                Some(p) => at = Self::of(p),
                None => return self,
            }
        }
        at.dentry.parent_in(r).map_or(self, |dentry| Self { mount: at.mount, dentry })
    }

    /// Through what is mounted here.
    fn down(self, r: &'g Reading) -> Self {
        let mut at = self;
        if at.dentry.has(MOUNTPOINT) {
            while let Some(mount) = vfs().mounted_in(r, at.mount, at.dentry) {
                at = Self { mount, dentry: &mount.root };
            }
        }
        at
    }
}

/// How far a fast walk got.
pub(crate) enum FastWalk<'g> {
    /// To the end.
    There(Spot<'g>),
    /// Here; the rest of the name starts at this position.
    Part(Spot<'g>, usize),
    /// A name is known to be absent.
    Missing,
}

/// Symbolic links that lead through each other in one fast walk: each takes a frame of the kernel's stack.
const DEPTH_MAX: u32 = 6;

/// Who walks, and what was spent on it.
pub(crate) struct FastWalker<'g> {
    pub r: &'g Reading,
    pub root: Spot<'g>,
    /// Whose permission to search is checked, if anybody's.
    pub cred: Option<&'g Cred>,
    /// Symbolic links followed so far.
    pub links: u32,
    pub depth: u32,
}

impl<'g> FastWalker<'g> {
    /// Where a symbolic link in the directory `at` leads, if the cache knows.
    fn follow(&mut self, at: Spot<'g>, link: &'g Arc<Dentry>) -> Option<Spot<'g>> {
        let target = link.inode().link_text().filter(|_| link.in_memory() || link.is_shared())?;
        let follows = !at.mount.flags().contains(MountFlags::NOSYMFOLLOW);
        if self.links >= LINKS_MAX || self.depth >= DEPTH_MAX || !follows {
            return None;
        }
        self.links += 1;
        self.depth += 1;
        let from = if target.first()? == &b'/' { self.root } else { at };
        let end = self.fast_walk(from, (target, 0), (Last::Exists, true));
        self.depth -= 1;
        match end {
            FastWalk::There(spot) => {
                link.inode().touch_atime();
                Some(spot)
            }
            _ => None,
        }
    }

    /// Walks `text` from `pos` on, starting at `at`.
    pub(crate) fn fast_walk(
        &mut self,
        mut at: Spot<'g>,
        (text, mut pos): (&[u8], usize),
        (last, follow): (Last, bool),
    ) -> FastWalk<'g> {
        let (r, root) = (self.r, self.root);
        loop {
            let start = skip(text, pos, true);
            let end = skip(text, start, false);
            let part = &text[start..end];
            let is_last = end == text.len();
            // Names that others may change are true under the lease they were found under.
            let lease = if at.dentry.in_memory() { Some(0) } else { at.dentry.lease().filter(|n| *n != 0) };
            let Some(lease) = lease.filter(|_| at.dentry.kind() == FileType::Directory) else {
                return FastWalk::Part(at, start);
            };
            // An end in slashes, or nothing but slashes, asks for a directory: not here.
            if part.is_empty() || part.len() > NAME_MAX {
                return FastWalk::Part(at, start);
            }
            if !is_last && skip(text, end, true) == text.len() || is_last && last == Last::Name {
                return FastWalk::Part(at, start);
            }
            if let Some(c) = self.cred
                && perm::check(c, &**at.dentry.inode(), MAY_EXEC).is_err()
            {
                return FastWalk::Part(at, start);
            }
            match part {
                b"." => {}
                b".." if at.is(root) => {}
                b".." => at = at.up(r),
                _ => match at.dentry.known(r, name_hash(part), part) {
                    Some(Entry::Child(c)) if c.found() == lease => {
                        c.mark_used();
                        at = if c.kind() == FileType::Symlink && (!is_last || follow) {
                            let links = self.links;
                            match self.follow(at, c) {
                                Some(spot) => spot,
                                None => {
                                    self.links = links;
                                    return FastWalk::Part(at, start);
                                }
                            }
                        } else {
                            Spot { mount: at.mount, dentry: c }.down(r)
                        };
                    }
                    Some(Entry::Absent(_, found))
                        if *found == lease && (!is_last || last == Last::Exists) =>
                    {
                        return FastWalk::Missing;
                    }
                    _ => return FastWalk::Part(at, start),
                },
            }
            if is_last {
                return FastWalk::There(at);
            }
            pos = end;
        }
    }
}

/// For a system call that only looks at a file that exists: finds it in the cache and has `look` look at it. `None`
/// if that cannot be done so, or `look` gives `None`.
pub(crate) fn peek<R>(
    me: &impl Opener,
    dirfd: i32,
    name: &[u8],
    follow: bool,
    look: impl FnOnce(Spot<'_>, &Cred) -> Option<R>,
) -> Option<Result<R>> {
    let absolute = name.first()? == &b'/';
    let dir = if absolute || dirfd == FDCWD { None } else { Some(me.peek_file(dirfd)?) };
    let r = shield::read();
    let (root, cwd) = me.peek_fs(&r)?.places_in(&r);
    let base = match &dir {
        Some(f) => f.path.as_ref()?,
        None if absolute => root,
        None => cwd,
    };
    let cred = me.peek_cred(&r);
    let asked = (!perm::may_search_all(cred)).then_some(cred);
    let mut g = FastWalker { r: &r, root: Spot::of(root), cred: asked, links: 0, depth: 0 };
    match g.fast_walk(Spot::of(base), (name, 0), (Last::Exists, follow)) {
        FastWalk::There(spot) if spot.dentry.in_memory() || spot.dentry.is_shared() => {
            look(spot, cred).map(Ok)
        }
        FastWalk::Missing => Some(Err(Errno::ENOENT)),
        _ => None,
    }
}

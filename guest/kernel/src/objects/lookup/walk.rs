//! Path resolution (`path_resolution(7)`, `openat2(2)`).
//!
//! Key types: [`Walker`] (who resolves, from which root, under which restrictions), [`Found`] (where a walk
//! ended). Names the cache knows are walked by fast.rs; what remains is done here, one component at a time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::shield;

use super::context::FsContext;
use super::fast::{FastWalk, FastWalker, Spot};
use super::path::Path;
use crate::core::subject::Cred;
use crate::objects::lookup::perm::{self, MAY_EXEC};
use crate::objects::vfs::dentry::{Dentry, MOUNTPOINT};
use crate::objects::vfs::flags::{MountFlags, Resolve};
use crate::objects::vfs::inode::{FileType, Inode};
use crate::objects::vfs::mount::{Mount, vfs};
use crate::{Errno, Result};

/// Longest name of one component.
pub const NAME_MAX: usize = 255;
/// Most symbolic links followed in one walk.
pub(crate) const LINKS_MAX: u32 = 40;

/// What a walk should do about the last component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// It must exist.
    Exists,
    /// It may be missing in an existing directory (open with O_CREAT).
    MayMiss,
    /// Do not look at it: give its directory and its name (mkdir, unlink, rename).
    Name,
}

/// Where a walk ended.
pub enum Found {
    /// At something that exists.
    Path(Path),
    /// At a name in a directory.
    Name {
        /// The directory.
        dir: Path,
        /// The last component; empty for the root, may be "." or "..".
        name: Vec<u8>,
        /// Whether slashes followed it.
        slash: bool,
    },
}

/// Where one component leads.
enum Step {
    /// Nowhere: ".".
    Stay,
    /// Into a name of the same mount.
    Into(Arc<Dentry>),
    /// Elsewhere: up, or through a mount point.
    To(Path),
}

/// Where a symbolic link leads.
enum Link {
    /// To a place, bypassing its text (a magic link).
    To(Path),
    /// It stands for a file without a place, which opening it opens again.
    Itself,
    /// By this name.
    Text(Vec<u8>),
}

/// Resolves names for somebody.
pub struct Walker {
    root: Path,
    /// Whose permission to search directories is checked; `None` may search all.
    cred: Option<Arc<Cred>>,
    /// Of `openat2`.
    restrict: Resolve,
    /// See [`Self::just_looked`].
    looked: AtomicBool,
}

impl Walker {
    /// For a process.
    pub fn new(fs: &FsContext, cred: Arc<Cred>) -> Self {
        // Who may search every directory need not be asked again.
        let cred = (!perm::may_search_all(&cred)).then_some(cred);
        Self { root: fs.root(), cred, restrict: Resolve::empty(), looked: AtomicBool::new(false) }
    }

    /// For the kernel itself: everything is allowed.
    pub fn kernel() -> Self {
        Self {
            root: vfs().root().clone(),
            cred: None,
            restrict: Resolve::empty(),
            looked: AtomicBool::new(false),
        }
    }

    /// Where absolute names start.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// With `openat2` restrictions, starting at `base`.
    #[must_use]
    pub fn restricted(mut self, restrict: Resolve, base: &Path) -> Self {
        self.restrict = restrict;
        if restrict.intersects(Resolve::IN_ROOT | Resolve::BENEATH) {
            self.root = base.clone();
        }
        self
    }

    /// Whether the last walk ended at a name that was looked up by it where others may change files: its attributes are those of
    /// this moment.
    pub fn just_looked(&self) -> bool {
        self.looked.load(Ordering::Relaxed)
    }

    /// Finds something that exists; the last component's link is followed if `follow`.
    pub fn resolve(&self, base: &Path, name: &[u8], follow: bool) -> Result<Path> {
        match self.walk(base, name, Last::Exists, follow)? {
            Found::Path(p) => Ok(p),
            Found::Name { .. } => Err(Errno::ENOENT),
        }
    }

    /// Finds the directory of the last component: `(directory, name, whether slashes followed)`.
    pub fn parent(&self, base: &Path, name: &[u8]) -> Result<(Path, Vec<u8>, bool)> {
        match self.walk(base, name, Last::Name, false)? {
            Found::Name { dir, name, slash } => Ok((dir, name, slash)),
            Found::Path(p) => Ok((p, Vec::new(), true)),
        }
    }

    /// Walks `name` from `base` (or the root, if it is absolute).
    pub fn walk(&self, base: &Path, name: &[u8], last: Last, follow: bool) -> Result<Found> {
        if name.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut links = 0;
        let mut owned: Option<Vec<u8>> = None;
        let mut pos = 0;
        let mut at = if name[0] == b'/' { self.jump_to_root()? } else { base.clone() };
        loop {
            let text: &[u8] = owned.as_deref().unwrap_or(name);
            self.looked.store(false, Ordering::Relaxed);
            if self.restrict.is_empty() {
                match self.fast_walk(&mut at, (text, pos), (last, follow), &mut links)? {
                    None => return Ok(Found::Path(at)),
                    Some(rest) => pos = rest,
                }
            }
            let start = skip(text, pos, true);
            if start == text.len() {
                // Only slashes were left: the place itself, which must be a directory.
                self.must_be_dir(&at)?;
                return Ok(match last {
                    Last::Name => Found::Name { dir: at, name: Vec::new(), slash: true },
                    _ => Found::Path(at),
                });
            }
            let end = skip(text, start, false);
            let part = &text[start..end];
            let next = skip(text, end, true);
            let is_last = next == text.len();
            let slash = is_last && end < text.len();
            if is_last && last == Last::Name {
                self.enter(&at)?;
                if part.len() > NAME_MAX {
                    return Err(Errno::ENAMETOOLONG);
                }
                return Ok(Found::Name { dir: at, name: part.to_vec(), slash });
            }
            let step = match self.step(&at, part) {
                Ok(s) => s,
                Err(Errno::ENOENT) if is_last && last == Last::MayMiss => {
                    at.dentry().alive()?;
                    return Ok(Found::Name { dir: at, name: part.to_vec(), slash });
                }
                Err(e) => return Err(e),
            };
            if let Step::Into(child) = &step
                && child.kind() == FileType::Symlink
                && (!is_last || follow || slash)
            {
                match self.follow(at.mount(), child, is_last, &mut links)? {
                    Link::To(place) if is_last => return self.arrived(place, slash),
                    Link::To(place) => (at, pos) = (place, next),
                    Link::Itself => return Ok(Found::Path(Path::new(at.mount().clone(), child.clone()))),
                    Link::Text(mut target) => {
                        if target.first() == Some(&b'/') {
                            at = self.jump_to_root()?;
                        }
                        target.extend_from_slice(&text[end..]);
                        if target.is_empty() {
                            return Err(Errno::ENOENT);
                        }
                        (owned, pos) = (Some(target), 0);
                    }
                }
                continue;
            }
            match step {
                Step::Into(child) => at.descend(child),
                Step::To(place) => at = place,
                Step::Stay => {}
            }
            if is_last {
                return self.arrived(at, slash);
            }
            pos = next;
        }
    }

    /// The end of a walk: a directory, if slashes follow its name.
    fn arrived(&self, at: Path, slash: bool) -> Result<Found> {
        if slash {
            self.must_be_dir(&at)?;
        }
        Ok(Found::Path(at))
    }

    /// Where a symbolic link leads, one of `links` followed so far.
    fn follow(&self, from: &Mount, link: &Dentry, is_last: bool, links: &mut u32) -> Result<Link> {
        let stays = from.flags().contains(MountFlags::NOSYMFOLLOW);
        if stays || self.restrict.contains(Resolve::NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        *links += 1;
        if *links > LINKS_MAX {
            return Err(Errno::ELOOP);
        }
        let inode = link.inode();
        if let Some(target) = inode.follow() {
            if self.restrict.intersects(Resolve::NO_MAGICLINKS | Resolve::BENEATH | Resolve::IN_ROOT) {
                return Err(Errno::ELOOP);
            }
            return target.map(Link::To);
        }
        if is_last && inode.reopen().is_some() {
            return Ok(Link::Itself);
        }
        let target = inode.readlink()?;
        inode.touch_atime();
        Ok(Link::Text(target))
    }

    /// Goes from `at` as far as the directory cache leads; gives where the rest of the name starts, if any is left.
    fn fast_walk(
        &self,
        at: &mut Path,
        text: (&[u8], usize),
        how: (Last, bool),
        links: &mut u32,
    ) -> Result<Option<usize>> {
        let r = shield::read();
        let root = Spot::of(&self.root);
        let mut g = FastWalker { r: &r, root, cred: self.cred.as_deref(), links: *links, depth: 0 };
        let (there, rest) = match g.fast_walk(Spot::of(at), text, how) {
            FastWalk::There(spot) => (spot, None),
            FastWalk::Part(spot, rest) => (spot, Some(rest)),
            FastWalk::Missing => return Err(Errno::ENOENT),
        };
        *links = g.links;
        let moved = (!there.is(Spot::of(at))).then(|| there.path());
        drop(r);
        if let Some(p) = moved {
            *at = p;
        }
        Ok(rest)
    }

    fn jump_to_root(&self) -> Result<Path> {
        if self.restrict.contains(Resolve::BENEATH) { Err(Errno::EXDEV) } else { Ok(self.root.clone()) }
    }

    fn must_be_dir(&self, at: &Path) -> Result<()> {
        if at.dentry().kind() == FileType::Directory { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Checks that `at` is a directory that may be searched.
    fn enter(&self, at: &Path) -> Result<()> {
        self.must_be_dir(at)?;
        match &self.cred {
            Some(c) => perm::check(c, &**at.inode(), MAY_EXEC),
            None => Ok(()),
        }
    }

    /// One component.
    fn step(&self, at: &Path, name: &[u8]) -> Result<Step> {
        self.enter(at)?;
        match name {
            b"." => return Ok(Step::Stay),
            b".." => {
                if at.same(&self.root) {
                    let beneath = self.restrict.contains(Resolve::BENEATH);
                    return if beneath { Err(Errno::EXDEV) } else { Ok(Step::Stay) };
                }
                let up = at.parent().unwrap_or_else(|| at.clone());
                return self.same_device(at, up);
            }
            _ => {}
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let d = at.dentry().child(name)?;
        if !d.has(MOUNTPOINT) {
            self.looked.store(at.dentry().lease().is_none(), Ordering::Relaxed);
            return Ok(Step::Into(d));
        }
        let mut p = Path::new(at.mount().clone(), d);
        while let Some(m) = vfs().mounted_on(&p) {
            p = m;
        }
        self.same_device(at, p)
    }

    fn same_device(&self, from: &Path, to: Path) -> Result<Step> {
        if self.restrict.contains(Resolve::NO_XDEV) && !Arc::ptr_eq(from.mount(), to.mount()) {
            return Err(Errno::EXDEV);
        }
        Ok(Step::To(to))
    }
}

/// The first position at or behind `pos` that is not (or is) a slash.
pub(crate) fn skip(text: &[u8], pos: usize, slashes: bool) -> usize {
    text[pos..].iter().position(|&b| (b == b'/') != slashes).map_or(text.len(), |i| pos + i)
}

/// Mounts a new file system on an existing directory, named from the root (boot).
pub fn mount_at(
    path: &[u8],
    root: Arc<dyn Inode>,
    fstype: &'static str,
    source: &[u8],
    flags: MountFlags,
) -> Result<()> {
    let at = Walker::kernel().resolve(vfs().root(), path, true)?;
    vfs().mount(&at, Dentry::root(root), fstype, source, flags)
}

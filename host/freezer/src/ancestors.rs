//! What a frozen image may refer to instead of writing it: the files of the domain's last image and of that one's ancestors.
//!
//! An image has its ancestors' files under names of its own, as hard links in the directory `NAME.ancestors`, called by their
//! identities. So the file system counts who needs a file, in one step that nothing can interrupt: a file goes with the last
//! image that has it, and an image that is removed by its name stays for those. Links are made before an image gets its name and
//! removed after it has lost it: whoever is killed between leaves links too many, which [`sweep`] finds, and never an image without
//! its pages. Whoever makes an image has the directory locked, so that nobody sweeps it meanwhile. A file that can have no more
//! names is copied ([`copies`]).

mod copies;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use doppel_abi_machine::frozen::{MAX_ANCESTORS, Segment};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::hex;
use crate::open::{Body, FrozenImage, Identity};

/// An ancestor of which less than one part in so many is needed is not referred to: what is needed of it is copied, and its file can go.
const NEEDED: u64 = 4;

/// The image that a domain was last frozen to, or made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its file, when it was made.
    pub path: PathBuf,
    /// What tells it from another that is there now.
    pub identity: Identity,
}

impl Parent {
    /// That of an image.
    #[must_use]
    pub fn of(image: &FrozenImage) -> Self {
        Self { path: image.path().to_owned(), identity: image.identity() }
    }

    /// Opens it; none if it is not there any more, or not sound.
    fn open(&self) -> Option<FrozenImage> {
        let image = FrozenImage::open_unchecked(&self.path).ok()?;
        (image.identity() == self.identity).then_some(image)
    }
}

/// A file that can be referred to.
#[derive(Debug)]
struct Ancestor {
    /// Which of the parent's files.
    body: usize,
    identity: Identity,
    place: (u64, u64),
    /// Where its pages are.
    data: Range<u64>,
}

/// What a new image may refer to.
#[derive(Debug)]
pub(crate) struct Ancestors {
    all: Vec<Ancestor>,
}

impl Ancestors {
    /// The number that a new image has for a file of its parent; none if it cannot refer to it.
    pub fn number_in_parent(&self, file: u32) -> Option<u32> {
        let at = self.all.iter().position(|a| a.body == file as usize)?;
        u32::try_from(at + 1).ok()
    }

    /// That for the file in this place (device and inode number), and where its pages are.
    pub fn number_at(&self, place: (u64, u64)) -> Option<(u32, Range<u64>)> {
        let at = self.all.iter().position(|a| a.place == place)?;
        Some((u32::try_from(at + 1).ok()?, self.all[at].data.clone()))
    }

    /// Which of its parent's files has this number.
    pub fn body(&self, number: u32) -> usize {
        self.all[number as usize - 1].body
    }

    /// Numbers those that are needed from 1 on, in the segments too, and gives their identities.
    pub fn keep_needed(&self, segments: &mut [Segment]) -> Vec<Identity> {
        let needed: Vec<u32> =
            (1..).take(self.all.len()).filter(|n| segments.iter().any(|s| s.file == *n)).collect();
        for s in segments.iter_mut().filter(|s| s.file > 0) {
            s.file =
                needed.iter().position(|n| *n == s.file).and_then(|n| u32::try_from(n + 1).ok()).unwrap_or(0);
        }
        needed.iter().map(|n| self.all[*n as usize - 1].identity).collect()
    }
}

/// The ancestors' directory of an image that is being made.
#[derive(Debug)]
pub(crate) struct Links {
    dir: PathBuf,
    /// Locked as long as it is open.
    open: File,
    made: Vec<PathBuf>,
    keep: bool,
}

impl Links {
    /// Makes and locks it, for the image that is to be `image`.
    fn new(image: &Path) -> io::Result<Self> {
        let dir = FrozenImage::ancestors_beside(image);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let open = File::open(&dir)?;
        rustix::fs::flock(&open, FlockOperation::LockShared)?;
        // Somebody may have swept it away before it was locked.
        if fs::metadata(&dir)?.ino() != open.metadata()?.ino() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { dir, open, made: Vec::new(), keep: false })
    }

    /// Gives a file a name in it, or a copy of the file.
    fn add(&mut self, body: &Body, identity: &Identity, link: copies::Link) -> io::Result<()> {
        let name = self.dir.join(hex(identity));
        let images = self.dir.parent().unwrap_or(Path::new("."));
        match copies::link_or_copy(link, images, body, identity, &name) {
            Ok(()) => self.made.push(name),
            // One that was there before needs it: the image that this one replaces, if it is the same file.
            Err(rustix::io::Errno::EXIST) => {
                let (there, here) = (fs::metadata(&name)?, body.file.metadata()?);
                if (there.dev(), there.ino()) != (here.dev(), here.ino()) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Makes the names last: the image is about to be named.
    pub fn sync(&self) -> io::Result<()> {
        self.open.sync_all()
    }

    /// The image has its name, and needs these.
    pub fn done(mut self, needed: &[Identity]) {
        self.keep = true;
        // What cannot be removed now is found later.
        let _ = only(&self.dir, needed);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for path in &self.made {
            let _ = fs::remove_file(path);
        }
        // Unless another image needs something in it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes what is not one of these, and the directory if that is all.
fn only(dir: &Path, needed: &[Identity]) -> io::Result<()> {
    let needed: Vec<String> = needed.iter().map(|i| hex(i)).collect();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !needed.iter().any(|n| entry.file_name() == n.as_str()) {
            fs::remove_file(entry.path())?;
        }
    }
    if needed.is_empty() { fs::remove_dir(dir) } else { Ok(()) }
}

/// What a freeze has of its domain's parent: it is looked at before the domain stands still.
#[derive(Debug)]
pub struct Lineage {
    pub(crate) image: FrozenImage,
    pub(crate) ancestors: Ancestors,
    pub(crate) links: Links,
}

impl Lineage {
    /// Opens the parent of an image that is to be `to`, and links what that may refer to; none if there is nothing: the parent is gone,
    /// or another's, or kept elsewhere. An image without ancestors is as good.
    #[must_use]
    pub fn prepare(parent: &Parent, to: &Path) -> Option<Self> {
        Self::prepare_by(copies::link, parent, to)
    }

    fn prepare_by(link: copies::Link, parent: &Parent, to: &Path) -> Option<Self> {
        if parent.path.parent() != to.parent() {
            return None;
        }
        let image = parent.open()?;
        if image.file().metadata().ok()?.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut links = Links::new(to).ok()?;
        let mut all = Vec::new();
        for body in worth_it(&image) {
            let file = &image.files()[body];
            let (place, identity) = (file.place().ok()?, file.identity());
            // One that has no name any more cannot get another.
            if links.add(file, &identity, link).is_ok() {
                let data = file.header.data_at..file.header.file_len;
                all.push(Ancestor { body, identity, place, data });
            }
        }
        (!all.is_empty()).then_some(Self { image, ancestors: Ancestors { all }, links })
    }
}

/// Which files of an image another may refer to: itself, and those of its ancestors of which it needs much, the most needed first.
fn worth_it(image: &FrozenImage) -> Vec<usize> {
    let files = image.files();
    let mut needed = vec![0u64; files.len()];
    for s in image.segments() {
        needed[s.file as usize] += s.len;
    }
    let much = |n: usize| needed[n].saturating_mul(NEEDED) >= files[n].used();
    let mut all: Vec<usize> = (0..files.len()).filter(|&n| n == 0 || much(n)).collect();
    all.sort_by_key(|&n| std::cmp::Reverse(needed[n]));
    all.truncate(MAX_ANCESTORS);
    all
}

/// Forgets the ancestors of an image that has lost its name or needs them no more.
pub(crate) fn forget(image: &Path) -> Result<()> {
    let dir = FrozenImage::ancestors_beside(image);
    settle(&dir).map_err(Error::host(format!("remove {}", dir.display())))
}

/// Removes what an interrupted freeze, removal or flattening has left in a directory of images: links that no image needs.
pub(crate) fn sweep(images: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(images) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let dir = entry?.path();
        if dir.extension().is_some_and(|e| e == "ancestors") {
            settle(&dir)?;
        }
    }
    copies::sweep(images)
}

/// Removes those links that the image beside this directory does not need. Whoever is making that image does it itself.
fn settle(dir: &Path) -> io::Result<()> {
    let gone = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) };
    let open = match File::open(dir) {
        Ok(open) => open,
        Err(e) => return gone(e),
    };
    if rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    let image = dir.with_extension("frozen");
    if !image.try_exists()? {
        return only(dir, &[]).or_else(gone);
    }
    // One that is damaged keeps what it has.
    let Ok(body) = Body::open(&image, None) else { return Ok(()) };
    only(dir, &body.header.ancestors[..body.header.ancestor_count as usize]).or_else(gone)
}

#[cfg(test)]
mod tests;

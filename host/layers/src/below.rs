//! Files that several layers have in common: what a domain had written when it was frozen.
//!
//! A frozen image has them in a directory beside it, as hard links called 0, 1, …, the lowest first; a clone's layer has them in `below/`.
//! What a domain writes to its layer later lies behind what they share. So a file goes when the last one goes that has a link to it.
//!
//! Beside the links a file `stack` says how these are one layer: where reading begins (the superblocks as they were, which the domain that
//! goes on overwrites), and up to which byte each link has what none below it has. So a clone's layer is read without its memory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use doppel_abi_service::storage::SHARED;
use doppel_layer::{BLOCK, SUPERBLOCKS};
use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;

use crate::error::{Error, IoContext, Result};
use crate::store::file;

/// Most files that a layer may lie on.
const MOST: usize = 8;
/// The file that says how they are one layer.
const STACK: &str = "stack";
/// Bytes of the superblocks.
const HEAD: usize = (SUPERBLOCKS * BLOCK) as usize;
const WORD: usize = size_of::<u64>();

/// What the file `stack` says: a layer's first bytes, and the end of each link, the lowest first.
#[derive(Debug)]
pub(crate) struct StackRecord {
    pub head: Vec<u8>,
    ends: Vec<u64>,
}

impl StackRecord {
    /// That of a directory of links; none: somebody made it who did not know of it.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(STACK);
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.doing("read", &path)?,
        };
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "it is cut short");
        let (head, ends) = bytes.split_at_checked(HEAD).ok_or_else(cut).doing("read", &path)?;
        let (ends, rest) = ends.as_chunks::<WORD>();
        if !rest.is_empty() || ends.len() != links(dir).len() {
            return Err(cut()).doing("read", &path);
        }
        Ok(Some(Self { head: head.to_vec(), ends: ends.iter().map(|e| u64::from_le_bytes(*e)).collect() }))
    }

    /// That of the first `end` bytes of the layer in this directory, which nobody writes just now.
    fn of(dir: &Path, end: u64) -> Result<Option<Self>> {
        let mut ends = Vec::new();
        if below(dir).exists() {
            let Some(under) = Self::read(&below(dir))? else { return Ok(None) };
            ends = under.ends;
        }
        ends.push(end);
        let (path, mut head) = (file(dir), vec![0; HEAD]);
        File::open(&path).and_then(|log| log.read_exact_at(&mut head, 0)).doing("read", &path)?;
        Ok(Some(Self { head, ends }))
    }

    fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(STACK);
        let mut bytes = self.head.clone();
        bytes.extend(self.ends.iter().flat_map(|end| end.to_le_bytes()));
        let written = || {
            let mut file = File::options().create_new(true).write(true).mode(0o600).open(&path)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        written().doing("make", &path)
    }
}

/// The files of a para domain's layer as one, to be read while no domain runs on it.
#[derive(Debug)]
pub struct Stack {
    top: File,
    /// Each has what is before this byte, and that none before it has.
    below: Vec<(u64, File)>,
}

impl Stack {
    /// That of the layer in this directory, which has this name.
    pub(crate) fn open(dir: &Path, name: &str) -> Result<Self> {
        let open = |path: &Path| File::open(path).doing("open", path);
        let (top, under) = (open(&file(dir))?, below(dir));
        if !under.exists() {
            return Ok(Self { top, below: Vec::new() });
        }
        let said = StackRecord::read(&under)?.ok_or_else(|| Error::Unsaid(name.to_owned()))?;
        let files = links(&under).iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        Ok(Self { top, below: said.ends.into_iter().zip(files).collect() })
    }
}

impl FileExt for Stack {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        // Where reading begins each layer says itself.
        let (file, end) = match self.below.iter().find(|(end, _)| at < *end) {
            _ if at < HEAD as u64 && !self.below.is_empty() => (&self.top, HEAD as u64),
            Some((end, file)) => (file, *end),
            None => (&self.top, u64::MAX),
        };
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buf.len());
        file.read_at(&mut buf[..most], at)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// Where a layer has links to the files that it lies on.
pub(crate) fn below(dir: &Path) -> PathBuf {
    dir.join("below")
}

/// The links in a directory, the lowest first.
pub(crate) fn links(dir: &Path) -> Vec<PathBuf> {
    (0..MOST).map(|i| dir.join(i.to_string())).take_while(|path| path.exists()).collect()
}

/// The files of the para domain's layer in this directory, as a storage service is given them: the one that is written, then those that
/// it lies on.
#[must_use]
pub fn files(dir: &Path) -> Vec<PathBuf> {
    [file(dir)].into_iter().chain(links(&below(dir))).collect()
}

/// Whether what the layer in this directory has can be kept in a directory that is made beside that file.
#[must_use]
pub fn can_share(dir: &Path, beside: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let there = beside.parent().and_then(device);
    there.is_some() && there == device(&file(dir)) && links(&below(dir)).len() + 1 < MOST
}

/// Keeps the first `end` bytes of the layer in this directory in a new directory; gives how many files these are. What is there already is
/// replaced. From here on a storage service lets nobody change them; without the rights of root only the domain's kernel sees to that.
///
/// # Errors
/// What the host says.
pub fn share(dir: &Path, end: u64, to: &Path) -> Result<u8> {
    let all: Vec<_> = links(&below(dir)).into_iter().chain([file(dir)]).collect();
    if to.exists() {
        fs::remove_dir_all(to).doing("remove", to)?;
    }
    link(&all, to)?;
    if let Some(stack) = StackRecord::of(dir, end)? {
        stack.write(to)?;
    }
    let synced = || {
        let log = File::open(file(dir))?;
        match fsetxattr(&log, SHARED, &end.to_le_bytes(), XattrFlags::empty()) {
            // Not root, or a file system without attributes.
            Err(Errno::PERM | Errno::OPNOTSUPP) => {}
            done => done?,
        }
        log.sync_all()?;
        File::open(to)?.sync_all()?;
        Ok::<_, io::Error>(())
    };
    synced().doing("sync", to)?;
    Ok(u8::try_from(all.len()).unwrap_or(0))
}

/// Makes what a new layer lies on: the same that a frozen image keeps in a directory. Gives what the layer begins with, if that is known.
pub(crate) fn link_all(from: &Path, to: &Path) -> Result<Option<Vec<u8>>> {
    link(&links(from), to)?;
    let stack = StackRecord::read(from)?;
    if let Some(stack) = &stack {
        stack.write(to)?;
    }
    Ok(stack.map(|stack| stack.head))
}

/// Makes a directory with links to these files.
fn link(files: &[PathBuf], to: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(to).doing("make", to)?;
    for (i, from) in files.iter().enumerate() {
        fs::hard_link(from, to.join(i.to_string())).doing("link", from)?;
    }
    Ok(())
}

/// Whether what the layer in this directory has is somebody else's too, and must stay as it is.
#[must_use]
pub fn is_shared(dir: &Path) -> bool {
    fs::metadata(file(dir)).is_ok_and(|meta| meta.nlink() > 1)
}

#[cfg(test)]
mod tests;

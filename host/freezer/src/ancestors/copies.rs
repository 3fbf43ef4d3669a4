//! Copies of ancestors' files that have as many names as the file system lets a file have: 65,000 on ext4, while a hundred thousand
//! hibernated domains may have been cloned from one image.
//!
//! They lie in the directory `copies` beside the images, called by their identity and a number. An image has a name of its own
//! for a copy, as it has for an original, and cannot tell them apart. One that nobody else has a name for is swept.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use crate::draft::Draft;
use crate::format::hex;
use crate::open::{Body, Identity, data};

/// Where they are, in a directory of images.
const DIR: &str = "copies";
/// At most so many of one file.
const MOST: usize = 4096;

/// Gives what is there under `from` another name; tests have a file system that gives few.
pub(super) type Link = fn(from: &Path, to: &Path) -> Result<(), Errno>;

/// As `link(2)`; `from` may be a link of `/proc` to an open file.
pub(super) fn link(from: &Path, to: &Path) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

/// Gives a file the name `to`, or a copy of it if it can have no more; `images` is the directory that it is an image of.
pub(super) fn link_or_copy(
    link: Link,
    images: &Path,
    body: &Body,
    identity: &Identity,
    to: &Path,
) -> Result<(), Errno> {
    match link(Path::new(&format!("/proc/self/fd/{}", body.file.as_raw_fd())), to) {
        Err(Errno::MLINK) => {}
        done => return done,
    }
    let failed = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let dir = images.join(DIR);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    for number in 0..MOST {
        let copy = dir.join(format!("{}-{number}", hex(identity)));
        match link(&copy, to) {
            Err(Errno::MLINK) => continue,
            Err(Errno::NOENT) => {}
            done => return done,
        }
        // Its first name is the one that is wanted: nobody sweeps it before that.
        let draft = copied(body, images).map_err(failed)?;
        let own = format!("/proc/self/fd/{}", draft.as_file().as_raw_fd());
        link(Path::new(&own), to)?;
        // Another freeze may have made one meanwhile; both are good.
        return match link(Path::new(&own), &copy) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => fs::remove_file(to).map_err(failed).and(Err(e)),
        };
    }
    Err(Errno::MLINK)
}

/// Removes those copies that no image has a name for.
pub(super) fn sweep(images: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(images.join(DIR)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if fs::metadata(&path)?.nlink() == 1 {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The same bytes and holes in a file of its own.
fn copied(body: &Body, images: &Path) -> io::Result<Draft> {
    let draft = Draft::new(images)?;
    let (old, new): (&File, &File) = (&body.file, draft.as_file());
    if rustix::fs::ioctl_ficlone(new, old).is_err() {
        let end = body.header.file_len;
        new.set_len(end)?;
        let mut at = 0;
        while let Some(run) = data(old, at, end)? {
            let (mut from, mut to) = (run.start, run.start);
            while from < run.end {
                let len = usize::try_from(run.end - from).unwrap_or(usize::MAX);
                if rustix::fs::copy_file_range(old, Some(&mut from), new, Some(&mut to), len)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            at = run.end;
        }
    }
    new.sync_data()?;
    Ok(draft)
}

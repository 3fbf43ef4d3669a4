//! Unpacking an archive below a directory of some file system.
//!
//! Names are taken apart here: none leaves the directory, and no symbolic link below it is followed, neither one that was
//! there nor one from the archive. What stands in the way of an entry is replaced, directories excepted.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::errno::{Errno, Result};

use crate::{BLOCK, Bad, Entry, Kind, Next, Reader, components, extension_buffer, padding};

/// Bytes of a file that are moved at a time.
const CHUNK: usize = 32 << 10;
const INPUT: &[u8] = b"standard input";

/// The archive's bytes, and the directory below which it is unpacked. One directory is the current one; a name is one
/// component, in it. No method follows a symbolic link below the top.
pub trait Target {
    /// Fills `buf` with the archive's next bytes; less only at its end.
    ///
    /// # Errors
    /// As `read(2)`.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize>;

    /// Lets others go on, between two pieces of work.
    ///
    /// # Errors
    /// If it is to end.
    fn pause(&mut self) -> Result<()>;

    /// Makes the directory of these names, from the top on, the current one; with `make` those that are missing, too.
    ///
    /// # Errors
    /// As `openat(2)` and `mkdirat(2)`.
    fn enter(&mut self, names: &[&[u8]], make: bool) -> Result<()>;

    /// Whether this name is a directory's; `None` if it is nobody's.
    ///
    /// # Errors
    /// As `fstatat(2)`.
    fn is_directory(&mut self, name: &[u8]) -> Result<Option<bool>>;

    /// Removes what has this name, which is no directory.
    ///
    /// # Errors
    /// As `unlinkat(2)`.
    fn remove(&mut self, name: &[u8]) -> Result<()>;

    /// Makes what `entry` is: an empty file, a symbolic link, a device, a pipe. What is written goes into the last file.
    ///
    /// # Errors
    /// As `mknodat(2)` and `symlinkat(2)`.
    fn make(&mut self, name: &[u8], entry: &Entry) -> Result<()>;

    /// Writes into the file that was made last.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Gives the file that was made last its size.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    fn set_size(&mut self, size: u64) -> Result<()>;

    /// Finds what the next hard link is another name of: that of `names`, from the top on.
    ///
    /// # Errors
    /// As `openat(2)`.
    fn find(&mut self, names: &[&[u8]]) -> Result<()>;

    /// Gives what was found another name, in place of what has that.
    ///
    /// # Errors
    /// As `linkat(2)`.
    fn link(&mut self, name: &[u8]) -> Result<()>;

    /// Gives what has this name the attributes that its entry says.
    ///
    /// # Errors
    /// As `fchownat(2)`, `fsetxattr(2)`, `fchmodat(2)` and `utimensat(2)`.
    fn set_attributes(&mut self, name: &[u8], entry: &Entry) -> Result<()>;
}

/// What went wrong, with which file.
#[derive(Debug)]
pub struct Failure {
    /// Its name, or what is wrong with the archive.
    pub what: Vec<u8>,
    /// The error.
    pub errno: Errno,
}

type Outcome = core::result::Result<(), Failure>;

/// Says which file an error is about.
fn about(what: &[u8]) -> impl FnOnce(Errno) -> Failure + '_ {
    move |errno| Failure { what: what.to_vec(), errno }
}

fn broken(bad: Bad) -> Failure {
    Failure { what: bad.to_string().into_bytes(), errno: Errno::EINVAL }
}

/// Unpacks an archive.
///
/// # Errors
/// What is wrong with the archive, or what the file system says of a name in it.
pub fn unpack(target: &mut dyn Target) -> Outcome {
    let mut reader = Reader::default();
    // Directories get their attributes last: they may not be writable then, and their times change until then.
    let mut dirs = Vec::new();
    loop {
        let mut block = [0; BLOCK];
        match target.read(&mut block).map_err(about(INPUT))? {
            // Some archives have no end mark.
            0 => break,
            BLOCK => {}
            _ => return Err(broken(Bad::Checksum)),
        }
        match reader.block(&block).map_err(broken)? {
            Next::Header => {}
            Next::End => break,
            Next::Extension(size) => {
                let mut data = extension_buffer(size);
                take(target, &mut data)?;
                skip(target, padding(size))?;
                reader.extension(&data).map_err(broken)?;
            }
            Next::Entry(entry) => {
                place(target, &entry)?;
                if entry.kind == Kind::Directory {
                    dirs.push(entry);
                }
            }
        }
        target.pause().map_err(about(INPUT))?;
    }
    // A directory may be closed to whoever unpacks from when it has its attributes: the deepest come first.
    let names = |entry: &Entry| components(&entry.path).map_or(0, |parts| parts.len());
    dirs.sort_by_key(names);
    for entry in dirs.iter().rev() {
        let parts = components(&entry.path).map_err(broken)?;
        if let Some((last, above)) = parts.split_last() {
            let dressed = target.enter(above, false).and_then(|()| target.set_attributes(last, entry));
            dressed.map_err(about(&entry.path))?;
        }
    }
    // The writer may have padded it further.
    let mut rest = vec![0; CHUNK];
    while target.read(&mut rest).map_err(about(INPUT))? > 0 {}
    Ok(())
}

/// Takes exactly so many bytes of the archive.
fn take(target: &mut dyn Target, buf: &mut [u8]) -> Outcome {
    if target.read(buf).map_err(about(INPUT))? == buf.len() {
        return Ok(());
    }
    Err(Failure { what: b"the archive ends in the middle".to_vec(), errno: Errno::EINVAL })
}

/// Passes over less than a block.
fn skip(target: &mut dyn Target, n: usize) -> Outcome {
    take(target, &mut [0; BLOCK][..n])
}

/// Puts an entry where its name says; directories get their attributes later.
fn place(target: &mut dyn Target, entry: &Entry) -> Outcome {
    let path = &entry.path;
    let parts = components(path).map_err(|bad| Failure { what: path.clone(), ..broken(bad) })?;
    let Some((last, above)) = parts.split_last() else {
        // The directory itself: its attributes are not the archive's to say.
        return Ok(());
    };
    if entry.kind == Kind::Directory {
        return target.enter(&parts, true).map_err(about(path));
    }
    target.enter(above, true).map_err(about(path))?;
    match target.is_directory(last).map_err(about(path))? {
        Some(true) => return Err(about(path)(Errno::EISDIR)),
        Some(false) if entry.kind != Kind::HardLink => target.remove(last).map_err(about(path))?,
        Some(false) | None => {}
    }
    if entry.kind == Kind::HardLink {
        let from =
            components(&entry.link).map_err(|bad| Failure { what: entry.link.clone(), ..broken(bad) })?;
        if from.is_empty() {
            return Err(about(&entry.link)(Errno::EINVAL));
        }
        target.find(&from).map_err(about(&entry.link))?;
        return target.link(last).map_err(about(path));
    }
    target.make(last, entry).map_err(about(path))?;
    if entry.kind == Kind::File {
        content(target, entry)?;
    }
    target.set_attributes(last, entry).map_err(about(path))
}

/// The bytes of a file; long runs of zeros become holes.
fn content(target: &mut dyn Target, entry: &Entry) -> Outcome {
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < entry.size {
        let n = buf.len().min(usize::try_from(entry.size - at).unwrap_or(usize::MAX));
        take(target, &mut buf[..n])?;
        if buf[..n].iter().any(|&b| b != 0) {
            target.write(at, &buf[..n]).map_err(about(&entry.path))?;
        }
        at += n as u64;
        target.pause().map_err(about(&entry.path))?;
    }
    target.set_size(entry.size).map_err(about(&entry.path))?;
    skip(target, padding(entry.size))
}

#[cfg(test)]
mod tests;

//! Directories and files of the host that the container is given: its volumes.
//!
//! Each is opened while the attendant sees what the host sees, as a mount of its own without what is mounted below it, whose
//! owners the container has as the host has them: id for id, as far as there are ids. It is put where libcontainer, which
//! sees no more than the attendant does by then, finds it to bind.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::failure::{Failure, cannot};
use crate::program::request::Request;
use crate::root::owners::Owners;
use crate::root::tree::RUN;

/// Type of a mount that is a volume.
const BIND: &str = "bind";
/// The last option of one: where it is on the host. What follows may have commas.
const SOURCE: &[u8] = b"source=";

/// One that is open.
#[derive(Debug)]
pub(crate) struct Volume {
    mount: OwnedFd,
    directory: bool,
    /// Where the container has it.
    target: OsString,
    options: Vec<String>,
}

/// What libcontainer is to bind.
#[derive(Debug)]
pub(crate) struct Bind {
    pub source: PathBuf,
    pub target: OsString,
    pub options: Vec<String>,
}

/// Whether a mount that is asked for, by its type, is a volume.
pub(crate) fn is_volume(kind: &OsStr) -> bool {
    kind == BIND
}

/// Opens those that are asked for, in their order.
pub(crate) fn open(request: &Request, owners: Owners) -> Result<Vec<Volume>, Failure> {
    let asked: Vec<_> = request.mounts.iter().filter(|[_, kind, _]| is_volume(kind)).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let users =
        doppel_sys::namespace::users(owners.first, owners.count).map_err(cannot("make a user namespace"))?;
    let one = |[target, _, options]: &[OsString; 3]| {
        let (options, source) = split(options).ok_or("a volume without a source")?;
        let about =
            |doing: &str| format!("{doing} {}, which is to be {}", source.display(), target.display());
        // Whoever resolved the path has seen what is mounted: there is no link in it.
        let path = OFlags::PATH | OFlags::CLOEXEC;
        let found = openat2(CWD, source, path, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|e| format!("cannot {}: {e}", about("open")))?;
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = open_tree(&found, "", flags).map_err(|e| format!("cannot {}: {e}", about("open")))?;
        let kind = rustix::fs::fstat(&mount).map_err(|e| format!("cannot {}: {e}", about("examine")))?;
        let directory = FileType::from_raw_mode(kind.st_mode).is_dir();
        let read_only =
            options.iter().rev().find(|o| matches!(o.as_str(), "ro" | "rw")).is_some_and(|o| o == "ro");
        doppel_sys::namespace::map_owners(mount.as_fd(), users.as_fd(), read_only).map_err(|e| {
            format!(
                "cannot {} (the file system must know idmapped mounts): {e}",
                about("map the owners of files of")
            )
        })?;
        Ok(Volume { mount, directory, target: target.clone(), options })
    };
    asked.into_iter().map(one).collect()
}

/// Options, and the source behind them.
pub(crate) fn split(options: &OsStr) -> Option<(Vec<String>, &Path)> {
    let bytes = options.as_bytes();
    let mut rest = bytes;
    let mut words = Vec::new();
    loop {
        if let Some(source) = rest.strip_prefix(SOURCE) {
            return Some((words, Path::new(OsStr::from_bytes(source))));
        }
        let comma = rest.iter().position(|b| *b == b',')?;
        words.push(String::from_utf8_lossy(&rest[..comma]).into_owned());
        rest = &rest[comma + 1..];
    }
}

/// Puts them where libcontainer finds them, in the attendant's own view ([`crate::root::tree::view`]).
pub(crate) fn place(volumes: Vec<Volume>) -> Result<Vec<Bind>, Failure> {
    let dir = Path::new(RUN).join("volumes");
    fs::DirBuilder::new().mode(0o711).create(&dir).map_err(cannot("make a directory"))?;
    let one = |(place, volume): (usize, Volume)| {
        let source = dir.join(place.to_string());
        let made = match volume.directory {
            true => fs::create_dir(&source),
            false => File::create(&source).map(drop),
        };
        made.map_err(cannot("make a place for a volume"))?;
        move_mount(&volume.mount, "", CWD, &source, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(cannot("mount a volume"))?;
        Ok(Bind { source, target: volume.target, options: volume.options })
    };
    volumes.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_have_commas() {
        let (options, source) = split(OsStr::new("ro,noexec,source=/a,source=b")).unwrap();
        assert_eq!((options.len(), source), (2, Path::new("/a,source=b")));
        assert!(split(OsStr::new("ro")).is_none());
    }
}

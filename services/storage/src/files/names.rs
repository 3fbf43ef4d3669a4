//! Operations on names: found, made, changed, taken.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use doppel_abi_service::storage::{Operation, SECOND, TARGET, flags};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Uid};
use rustix::io::Errno;

use super::{BENEATH, Done, MODE, Result, Work, bounds, chown, open_name, statx};
use crate::nodes::Identity;

/// `renameat2(2)`: NOREPLACE and EXCHANGE.
const RENAME: u32 = 3;
/// What has been found where nothing is.
const NOTHING: u64 = 0;

/// Bytes of the host's disk that a file takes.
fn bytes(s: &Statx) -> u64 {
    s.stx_blocks.saturating_mul(512)
}

impl Work<'_> {
    pub(super) fn look_up(&mut self) -> Result<Done> {
        let r = self.request;
        let name = self.first()?;
        let dir = self.directory(r.node)?;
        let s = self.there(&dir, &name)?;
        let known = self.nodes().again(&self.found(r.node, &name, &s))?;
        if let Some(node) = known {
            self.show_attributes(&s);
            return Ok(Done { value: 0, node });
        }
        let file = open_name(&dir, &name)?;
        let s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        self.given(r.node, &name, file, &s, false)
    }

    /// A directory as one that names are looked up in.
    fn directory(&self, node: u64) -> Result<std::sync::Arc<OwnedFd>> {
        let mut nodes = self.nodes();
        if nodes.kind_of(node)? != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        nodes.name(node)
    }

    /// EXDEV if the request's two files are in two volumes.
    fn is_one_volume(&self) -> Result<()> {
        let nodes = self.nodes();
        let one = nodes.volume_of(self.request.node)? == nodes.volume_of(self.request.other)?;
        if one { Ok(()) } else { Err(Errno::XDEV) }
    }

    /// What is there by this name; what is mounted there is not.
    fn there(&self, dir: &OwnedFd, name: &CStr) -> Result<Statx> {
        let s = statx(dir.as_fd(), name, AtFlags::empty())?;
        if self.nodes().is_inside(self.request.node, &s)? { Ok(s) } else { Err(Errno::XDEV) }
    }

    /// The file that a name leads to, as a word for the slot.
    fn word(s: &Result<Statx>) -> Result<u64> {
        match s {
            // The volume does not matter here.
            Ok(s) => Ok(Identity::of(0, s).word().max(1)),
            Err(Errno::NOENT) => Ok(NOTHING),
            Err(e) => Err(*e),
        }
    }

    /// The word of what has this name now.
    fn named(&self, dir: &OwnedFd, name: &CStr) -> Result<u64> {
        Self::word(&self.there(dir, name))
    }

    /// Makes a name, unless it is there: with `make`, if a predecessor has not. What it is said to be may be missing then.
    fn make_once(
        &mut self,
        dir: &OwnedFd,
        name: &CStr,
        make: impl FnOnce() -> Result<Option<OwnedFd>>,
    ) -> Result<Option<OwnedFd>> {
        if self.found_first(|work| work.named(dir, name))? != NOTHING {
            return Err(Errno::EXIST);
        }
        let made = match make() {
            Err(Errno::EXIST) if self.before.is_some() => Ok(None),
            made => made,
        };
        self.made = made.is_ok();
        made
    }

    pub(super) fn make(&mut self) -> Result<Done> {
        let r = self.request;
        let mode = u32::try_from(r.b).map_err(|_| Errno::INVAL)?;
        let kind = FileType::from_raw_mode(mode);
        self.nodes().writable(r.node)?;
        let name = self.first()?;
        let dir = self.directory(r.node)?;
        self.charged(r.node, &dir, bounds::NEW, |work| {
            let (done, s) = work.make_in(&dir, &name, kind, mode)?;
            Ok((done, bytes(&s)))
        })
    }

    fn make_in(&mut self, dir: &OwnedFd, name: &CStr, kind: FileType, mode: u32) -> Result<(Done, Statx)> {
        let (r, bits) = (self.request, Mode::from_raw_mode(mode & MODE));
        let made = self.make_once(dir, name, || match kind {
            FileType::Directory => rustix::fs::mkdirat(dir, name, bits).map(|()| None),
            FileType::RegularFile => {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat2(dir, name, how, bits, BENEATH).map(Some)
            }
            FileType::Fifo | FileType::Socket => rustix::fs::mknodat(dir, name, kind, bits, 0).map(|()| None),
            // Devices.
            _ => Err(Errno::PERM),
        })?;
        let writes = made.is_some();
        let file = made.map_or_else(|| open_name(dir, name), Ok)?;
        let s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        if FileType::from_raw_mode(s.stx_mode.into()) != kind {
            return Err(Errno::EXIST);
        }
        let mut s = self.own(&file, s)?;
        // A change of owner takes some bits away, mkdir(2) does not give them, and a directory's group may add one.
        if u32::from(s.stx_mode) & MODE != mode & MODE {
            self.change_mode(&file, mode & MODE)?;
            s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        }
        Ok((self.given(r.node, name, file, &s, writes)?, s))
    }

    /// Gives a new file its owner.
    fn own(&self, file: &OwnedFd, s: Statx) -> Result<Statx> {
        let r = self.request;
        if (s.stx_uid, s.stx_gid) == (r.c, r.d) {
            return Ok(s);
        }
        let (uid, gid) = (Uid::from_raw(r.c), Gid::from_raw(r.d));
        chown(file, Some(uid), Some(gid))?;
        statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)
    }

    pub(super) fn make_symlink(&mut self) -> Result<Done> {
        let r = self.request;
        self.nodes().writable(r.node)?;
        let name = self.first()?;
        let target = CString::new(self.copy(SECOND, r.b, TARGET)?).map_err(|_| Errno::INVAL)?;
        let dir = self.directory(r.node)?;
        self.charged(r.node, &dir, bounds::NEW, |work| {
            work.make_once(&dir, &name, || rustix::fs::symlinkat(&target, &dir, &name).map(|()| None))?;
            let file = open_name(&dir, &name)?;
            let s = work.own(&file, statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?)?;
            Ok((work.given(r.node, &name, file, &s, false)?, bytes(&s)))
        })
    }

    pub(super) fn link(&mut self) -> Result<Done> {
        let r = self.request;
        self.is_one_volume()?;
        self.nodes().writable(r.other)?;
        let name = self.first()?;
        let dir = self.directory(r.other)?;
        let file = self.nodes().name(r.node)?;
        let host = self.host;
        self.charged(r.node, &dir, bounds::NAME, |work| {
            let made = work.make_once(&dir, &name, || {
                let made = host.by_name(file.as_fd(), |descriptors, from| {
                    rustix::fs::linkat(descriptors, from, &dir, &name, AtFlags::SYMLINK_FOLLOW)
                });
                made.map(|()| None)
            });
            made.map(|_| ((), 0))
        })?;
        let s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        self.nodes().named(&s, r.other, name.to_bytes());
        self.show_attributes(&s);
        Ok(Done { value: 0, node: r.node })
    }

    pub(super) fn make_nameless(&mut self) -> Result<Done> {
        let r = self.request;
        self.nodes().writable(r.node)?;
        let dir = self.directory(r.node)?;
        let mode = u32::try_from(r.b).unwrap_or(0) & MODE;
        let how = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        self.charged(r.node, &dir, bounds::NEW, |work| {
            let file = rustix::fs::openat(&dir, c".", how, Mode::from_raw_mode(mode))?;
            let mut s = work.own(&file, statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?)?;
            if u32::from(s.stx_mode) & MODE != mode {
                work.change_mode(&file, mode)?;
                s = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?;
            }
            Ok((work.given(r.node, c"", file, &s, false)?, bytes(&s)))
        })
    }

    /// What loses its name stays findable if a program has it in use.
    fn keep(&self, dir: &OwnedFd, name: &CStr, s: &Statx) -> Result<()> {
        if self.request.flags & flags::UNUSED != 0 {
            return Ok(());
        }
        self.nodes().losing(s, || open_name(dir, name))
    }

    pub(super) fn remove(&mut self) -> Result<Done> {
        let r = self.request;
        self.nodes().writable(r.node)?;
        let name = self.first()?;
        let dir = self.directory(r.node)?;
        let s = self.there(&dir, &name);
        let now = Self::word(&s)?;
        let first = self.found_first(|_| Ok(now))?;
        let Ok(s) = s else {
            return if first == NOTHING { Err(Errno::NOENT) } else { Ok(Done::default()) };
        };
        if self.before.is_some() && now != first {
            // It is gone, and has been made anew; or was not there, when a predecessor looked.
            return if first == NOTHING { Err(Errno::NOENT) } else { Ok(Done::default()) };
        }
        self.loses_name(&s);
        self.keep(&dir, &name, &s)?;
        let lost = self.lost(r.node, &dir, &name, &s)?;
        let how = if r.operation == Operation::RmDir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&dir, &name, how).inspect_err(|_| self.nodes().kept(&s))?;
        self.is_gone(lost, &s);
        Ok(Done::default())
    }

    pub(super) fn rename(&mut self) -> Result<Done> {
        let r = self.request;
        let how = r.flags & !(flags::AGAIN | flags::UNUSED);
        if how & !RENAME != 0 || how == RENAME {
            return Err(Errno::INVAL);
        }
        self.is_one_volume()?;
        self.nodes().writable(r.node)?;
        let (old, new) = (self.first()?, self.second()?);
        let (from, to) = (self.directory(r.node)?, self.directory(r.other)?);
        let (s, victim) = (self.there(&from, &old), self.there(&to, &new));
        let now = Self::word(&s)?;
        let first = self.found_first(|_| Ok(now))?;
        if first == NOTHING {
            return Err(Errno::NOENT);
        }
        let s = match s {
            Ok(s) if self.before.is_none() || now == first => s,
            // A predecessor has renamed it.
            _ => {
                if let Ok(renamed) = victim {
                    self.nodes().named(&renamed, r.other, new.to_bytes());
                }
                return Ok(Done::default());
            }
        };
        let how = RenameFlags::from_bits_retain(how);
        self.moves(&s);
        if let Ok(victim) = &victim {
            if how.is_empty() { self.loses_name(victim) } else { self.moves(victim) }
        }
        // An exchange takes no name away, and who may not replace does not.
        let loses = victim.as_ref().ok().filter(|_| how.is_empty());
        let mut lost = None;
        if let Some(victim) = loses {
            self.keep(&to, &new, victim)?;
            lost = self.lost(r.other, &to, &new, victim)?;
        }
        let renamed = self.charged(r.other, &to, bounds::NOTHING, |_| {
            rustix::fs::renameat_with(&from, &old, &to, &new, how).map(|()| ((), 0))
        });
        if let Err(e) = renamed {
            loses.into_iter().for_each(|victim| self.nodes().kept(victim));
            return Err(e);
        }
        if let Some(victim) = loses {
            self.is_gone(lost, victim);
        }
        let mut nodes = self.nodes();
        nodes.named(&s, r.other, new.to_bytes());
        if let (Ok(victim), RenameFlags::EXCHANGE) = (&victim, how) {
            nodes.named(victim, r.node, old.to_bytes());
        }
        Ok(Done::default())
    }
}

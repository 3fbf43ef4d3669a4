//! /proc/PID/{uid_map,gid_map,projid_map,setgroups} (`user_namespaces(7)`).
//!
//! Key type: [`MapFile`]. Who opened a file counts for what may be written, not only who writes.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::core::namespace::ids::{self, Extent, IdMap};
use crate::core::namespace::user::UserNamespace;
use crate::core::subject::Cred;
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::synthetic::{Node, seek_to};
use crate::objects::vfs::{File, FileOps, Input, Output, Whence};
use crate::process::task::{Process, current};
use crate::{Errno, Result};

const SETGID: u32 = 6;
const SETUID: u32 = 7;
const SYS_ADMIN: u32 = 21;
const SETFCAP: u32 = 31;
/// Writes must be shorter.
const PAGE: usize = 4096;
/// No id.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Users,
    Groups,
    Projects,
    Setgroups,
}

/// The file of that name of a process.
pub(super) fn node(name: &str, p: Weak<Process>) -> Option<Node> {
    let what = match name {
        "uid_map" => What::Users,
        "gid_map" => What::Groups,
        "projid_map" => What::Projects,
        "setgroups" => What::Setgroups,
        _ => return None,
    };
    Some(Node::File {
        mode: 0o644,
        open: Arc::new(move || {
            let of = p.upgrade().ok_or(Errno::ESRCH)?.cred().user.clone();
            Ok(Arc::new(MapFile { what, of, by: current().cred() }) as Arc<dyn FileOps>)
        }),
    })
}

/// An open one.
struct MapFile {
    what: What,
    of: Arc<UserNamespace>,
    by: Arc<Cred>,
}

impl MapFile {
    fn map(&self) -> &IdMap {
        match self.what {
            What::Users => &self.of.uids,
            What::Groups => &self.of.gids,
            What::Projects | What::Setgroups => &self.of.projects,
        }
    }

    /// One of the kernel's ids in a namespace.
    fn shown(&self, ns: &UserNamespace, id: u32) -> Option<u32> {
        match self.what {
            What::Users => ns.shown_uid(id),
            What::Groups => ns.shown_gid(id),
            What::Projects | What::Setgroups if ns.is_first() => Some(id),
            What::Projects | What::Setgroups => ns.projects.shown(id),
        }
    }

    fn text(&self) -> Vec<u8> {
        if self.what == What::Setgroups {
            return if self.of.setgroups() { b"allow\n".to_vec() } else { b"deny\n".to_vec() };
        }
        // The ids outside as the reader has them; who is inside sees those of the parent.
        let reader = &self.by.user;
        let lower = if Arc::ptr_eq(reader, &self.of) { self.of.above().unwrap_or(reader) } else { reader };
        let extents = self.of.extents(self.map());
        ids::text(extents, |id| self.shown(lower, id).unwrap_or(NONE)).into_bytes()
    }

    /// EPERM unless the map may be written at all, and by this opener.
    fn may_write(&self) -> Result<()> {
        let above = self.of.above().ok_or(Errno::EPERM)?;
        let reader = &self.by.user;
        if !Arc::ptr_eq(reader, &self.of) && !Arc::ptr_eq(reader, above) || self.map().is_set() {
            return Err(Errno::EPERM);
        }
        let free = self.what == What::Projects;
        if free || self.by.capable_in(&self.of, SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether root above may be among the ids: who made the namespace could set file capabilities.
    fn may_map_root(&self, above: &UserNamespace, extents: &[Extent]) -> bool {
        if self.what != What::Users || extents.iter().all(|e| e.lower != 0) {
            return true;
        }
        if Arc::ptr_eq(&self.by.user, &self.of) {
            self.of.parent_could_setfcap()
        } else {
            self.by.capable_in(above, SETFCAP)
        }
    }

    /// Whether these ids may be in the map: any with CAP_SETUID or CAP_SETGID above, without it one's own.
    fn may_map(&self, above: &UserNamespace, extents: &[Extent]) -> bool {
        if !self.may_map_root(above, extents) {
            return false;
        }
        let cap = match self.what {
            What::Users => SETUID,
            What::Groups => SETGID,
            What::Projects | What::Setgroups => return true,
        };
        if let [Extent { lower, count: 1, .. }] = extents
            && self.of.owner_uid() == self.by.euid
        {
            let own = match self.what {
                What::Users => above.kernel_uid(*lower) == Some(self.by.euid),
                _ => !self.of.setgroups() && above.kernel_gid(*lower) == Some(self.by.egid),
            };
            if own {
                return true;
            }
        }
        current().cred().capable_in(above, cap) && self.by.capable_in(above, cap)
    }

    fn write_map(&self, text: &[u8]) -> Result<()> {
        self.may_write()?;
        let mut extents = ids::parse(text)?;
        let above = self.of.above().ok_or(Errno::EPERM)?;
        if !self.may_map(above, &extents) {
            return Err(Errno::EPERM);
        }
        for e in &mut extents {
            e.lower = self.kernel_range(above, *e).ok_or(Errno::EPERM)?;
        }
        self.map().set(extents)
    }

    /// The kernel's ids for a line's ids above.
    fn kernel_range(&self, above: &UserNamespace, e: Extent) -> Option<u32> {
        if above.is_first() {
            return Some(e.lower);
        }
        let map = match self.what {
            What::Users => &above.uids,
            What::Groups => &above.gids,
            What::Projects | What::Setgroups => &above.projects,
        };
        map.kernel_range(e.lower, e.count)
    }

    fn write_setgroups(&self, text: &[u8]) -> Result<()> {
        if !self.by.capable_in(&self.of, SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        match text.trim_ascii_end() {
            b"allow" if self.of.setgroups() => Ok(()),
            b"allow" => Err(Errno::EPERM),
            b"deny" => self.of.deny_setgroups(),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl FileOps for MapFile {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let text = self.text();
        let start = usize::try_from(offset).map_or(text.len(), |o| o.min(text.len()));
        out.write(&text[start..])
    }

    fn write(&self, _file: &File, input: &mut Input<'_>, offset: u64) -> Result<usize> {
        let most = if self.what == What::Setgroups { 8 } else { PAGE };
        if offset != 0 || input.remaining() >= most {
            return Err(Errno::EINVAL);
        }
        let mut text = alloc::vec![0; input.remaining()];
        let n = input.read(&mut text)?;
        match self.what {
            What::Setgroups => self.write_setgroups(&text[..n])?,
            _ => self.write_map(&text[..n])?,
        }
        Ok(n)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        seek_to(file.pos.get(), offset, whence, 0)
    }

    fn pollable(&self) -> bool {
        false
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        Ok(())
    }
}

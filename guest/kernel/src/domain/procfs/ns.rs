//! /proc/PID/ns: the namespaces of a process.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::core::namespace::{Kind, Namespace};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::synthetic::{Directory, MagicLink, Node};
use crate::objects::vfs::{File, FileType};
use crate::process::namespaces::nsfs;
use crate::process::task::{Process, Thread, current, remote};
use crate::{Errno, Result};

/// The directory of a process, or of a thread under task/.
pub(super) fn dir(p: Weak<Process>, t: Option<Weak<Thread>>) -> Node {
    Node::Dir(Arc::new(NsDir { p, t }))
}

#[derive(Clone)]
struct NsDir {
    p: Weak<Process>,
    t: Option<Weak<Thread>>,
}

/// Names, kinds, and whether it is that of the children to come.
const NAMES: [(&str, Kind, bool); 10] = [
    ("cgroup", Kind::Cgroup, false),
    ("ipc", Kind::Ipc, false),
    ("mnt", Kind::Mount, false),
    ("net", Kind::Net, false),
    ("pid", Kind::Pid, false),
    ("pid_for_children", Kind::Pid, true),
    ("time", Kind::Time, false),
    ("time_for_children", Kind::Time, true),
    ("user", Kind::User, false),
    ("uts", Kind::Uts, false),
];

impl Directory for NsDir {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let (_, kind, for_children) = *NAMES.iter().find(|(n, ..)| n.as_bytes() == name)?;
        Some(Node::Magic(Arc::new(NsLink { of: self.clone(), kind, for_children })))
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (i, (n, ..)) in NAMES.iter().enumerate().skip(from as usize) {
            if !each(i as u64 + 1, n.as_bytes(), FileType::Symlink) {
                return;
            }
        }
    }

    fn owner(&self) -> (u32, u32) {
        self.p.upgrade().map_or((0, 0), |p| {
            let c = p.cred();
            (c.euid, c.egid)
        })
    }

    fn mode(&self) -> u32 {
        0o511
    }
}

struct NsLink {
    of: NsDir,
    kind: Kind,
    for_children: bool,
}

impl NsLink {
    /// The namespace, if the caller may look into the process: EACCES if not.
    fn namespace(&self) -> Result<Arc<dyn Namespace>> {
        let p = self.of.p.upgrade().ok_or(Errno::ESRCH)?;
        let t = self.of.t.as_ref().and_then(Weak::upgrade);
        remote::may_access(&current().process, &p).map_err(|_| Errno::EACCES)?;
        nsfs::of(&p, t.as_deref(), self.kind, self.for_children).ok_or(Errno::ENOENT)
    }
}

impl MagicLink for NsLink {
    fn text(&self) -> Result<Vec<u8>> {
        Ok(nsfs::text(&*self.namespace()?).into_bytes())
    }

    fn path(&self) -> Option<Path> {
        None
    }

    fn file(&self) -> Option<Arc<File>> {
        self.namespace().ok().map(nsfs::open)
    }
}

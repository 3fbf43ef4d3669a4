//! The mounts of a namespace as text: /proc/PID/mounts, mountinfo and mountstats.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::space::Space;
use super::tree::{Node, Tree};
use super::{Mount, vfs};
use crate::Result;
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::lookup::path::Path;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::{File, FileOps, Output, Whence};

/// An open table: its text, and whether the mounts have changed since it was last asked.
pub(crate) struct Table {
    text: Arc<dyn FileOps>,
    space: Arc<Space>,
    seen: AtomicU64,
}

impl Table {
    /// `text` shows the mounts of `space`.
    pub(crate) fn new(text: Arc<dyn FileOps>, space: Arc<Space>) -> Arc<Self> {
        let seen = AtomicU64::new(space.changes());
        Arc::new(Self { text, space, seen })
    }
}

impl FileOps for Table {
    fn read(&self, file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        self.text.read(file, out, offset)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        self.text.seek(file, offset, whence)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.space.changed);
        }
        let now = self.space.changes();
        let ready = PollEvents::READABLE;
        if self.seen.swap(now, Ordering::SeqCst) == now {
            ready
        } else {
            ready | PollEvents::PRI | PollEvents::ERR
        }
    }
}

/// Names of the flags of a mount, each with a comma before it.
pub(crate) fn flag_names(flags: MountFlags) -> String {
    let mut out = String::new();
    for (bit, name) in [
        (MountFlags::NOSUID, ",nosuid"),
        (MountFlags::NODEV, ",nodev"),
        (MountFlags::NOEXEC, ",noexec"),
        (MountFlags::NOATIME, ",noatime"),
        (MountFlags::NODIRATIME, ",nodiratime"),
        (MountFlags::RELATIME, ",relatime"),
        (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
    ] {
        if flags.contains(bit) {
            out.push_str(name);
        }
    }
    out
}

fn access(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

/// Where a mount is, seen from `root`; none if it cannot be seen from there.
pub(crate) fn point(m: &Arc<Mount>, root: &Path) -> Option<Vec<u8>> {
    Path::new(m.clone(), m.root.clone()).name_from(root)
}

/// What part of its file system a mount shows.
pub(crate) fn root_name(m: &Mount) -> Vec<u8> {
    let mut name = m.root.name_in_tree();
    if m.root.unlinked() {
        name.extend_from_slice(b"//deleted");
    }
    name
}

/// One row for each mount that can be seen from `root`.
fn rows(space: &Space, root: &Path, row: impl Fn(&Tree, &Node, &str) -> String) -> String {
    let tree = vfs().tree();
    let mut out = String::new();
    for n in tree.of_space(space.number, 0) {
        if let Some(at) = point(&n.mount, root) {
            out += &row(&tree, n, &escape(&at));
        }
    }
    out
}

/// /proc/PID/mounts.
pub(crate) fn mounts_text(space: &Space, root: &Path) -> String {
    rows(space, root, |_, n, at| {
        let m = &n.mount;
        let (flags, shown) = (m.flags(), m.sb.shown());
        let read_only = m.writable().is_err();
        let of_system = shown.get(2..).unwrap_or_default();
        let own = m.sb.own_options();
        let system = of_system.strip_suffix(own.as_str()).unwrap_or_default();
        let (source, names) = (escape(&m.source), flag_names(flags));
        format!("{source} {at} {} {}{system}{names}{own} 0 0\n", m.fstype(), access(read_only))
    })
}

/// /proc/PID/mountinfo.
pub(crate) fn mountinfo_text(space: &Space, root: &Path) -> String {
    rows(space, root, |tree, n, at| {
        let m = &n.mount;
        let dev = m.sb.dev();
        let flags = m.flags();
        let parent = if n.parent == 0 { m.id } else { n.parent };
        let names = flag_names(flags);
        let (major, minor) = crate::objects::vfs::devices::split(dev);
        format!(
            "{} {parent} {major}:{minor} {} {at} {}{names}{} - {} {} {}\n",
            m.id,
            escape(&root_name(m)),
            access(flags.contains(MountFlags::RDONLY)),
            tags(tree, n, root),
            m.fstype(),
            escape(&m.source),
            m.sb.shown(),
        )
    })
}

/// /proc/PID/mountstats.
pub(crate) fn mountstats_text(space: &Space, root: &Path) -> String {
    rows(space, root, |_, n, at| {
        let m = &n.mount;
        format!("device {} mounted on {at} with fstype {}\n", escape(&m.source), m.fstype())
    })
}

/// How a mount propagates.
fn tags(tree: &Tree, n: &Node, root: &Path) -> String {
    let mut out = String::new();
    if n.group != 0 {
        out += &format!(" shared:{}", n.group);
    }
    if n.master != 0 {
        out += &format!(" master:{}", n.master);
        let from = tree.dominating(n, root);
        if from != 0 && from != n.master {
            out += &format!(" propagate_from:{from}");
        }
    }
    if n.unbindable {
        out += " unbindable";
    }
    out
}

impl Tree {
    /// The nearest group that a slave gets mounts from of which a member can be seen from `root`; 0: there is none.
    pub(crate) fn dominating(&self, n: &Node, root: &Path) -> u64 {
        let space = n.mount.space();
        let mut group = n.master;
        // No group is its own master; this ends even if that were wrong.
        for _ in 0..self.groups.len() {
            let Some(g) = self.groups.get(&group) else { break };
            let seen =
                |id: &u64| self.mount(*id).is_ok_and(|m| m.space() == space && point(m, root).is_some());
            if g.members.iter().any(seen) {
                return group;
            }
            group = g.members.first().and_then(|id| self.node(*id).ok()).map_or(0, |n| n.master);
        }
        0
    }
}

/// Space, tab, newline, backslash and number sign as octal, as the mount tables have them.
pub(crate) fn escape(name: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' => out += &format!("\\{:03o}", u32::from(c)),
            _ => out.push(c),
        }
    }
    out
}

//! The files that stand for namespaces: /proc/PID/ns/* and what ioctl_nsfs(2) opens.
//!
//! An open one keeps its namespace alive.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use super::numbers;
use crate::core::namespace::pid::PidNamespace;
use crate::core::namespace::{Kind, Namespace};
use crate::objects::vfs::attr::Stat;
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps};
use crate::process::task::{Process, TASKS, Thread, current, current_ref};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

/// The device number of these files.
const DEVICE: u64 = 4;
const NS_GET_USERNS: u32 = 0xb701;
const NS_GET_PARENT: u32 = 0xb702;
const NS_GET_NSTYPE: u32 = 0xb703;
const NS_GET_OWNER_UID: u32 = 0xb704;
const NS_GET_PID_FROM_PIDNS: u32 = 0x8004_b706;
const NS_GET_TGID_FROM_PIDNS: u32 = 0x8004_b707;
const NS_GET_TGID_IN_PIDNS: u32 = 0x8004_b709;

/// What such a file refers to.
pub struct NsFile {
    ns: Arc<dyn Namespace>,
}

impl NsFile {
    /// The namespace.
    pub fn namespace(&self) -> &Arc<dyn Namespace> {
        &self.ns
    }
}

/// What readlink says of a namespace.
pub fn text(ns: &dyn Namespace) -> String {
    format!("{}:[{}]", ns.kind().name(), ns.number())
}

/// An open file that stands for a namespace.
pub fn open(ns: Arc<dyn Namespace>) -> Arc<File> {
    let name = text(&*ns);
    File::anon(Arc::new(NsFile { ns }), name, OpenFlags::RDONLY)
}

/// A descriptor of the calling thread for it.
pub fn descriptor(ns: Arc<dyn Namespace>) -> Result<u64> {
    let fd = current_ref().files().insert(open(ns), true)?;
    Ok(u64::from(fd.unsigned_abs()))
}

/// The one of a kind that a process has, as its thread `t` sees it.
pub fn of(p: &Process, t: Option<&Thread>, kind: Kind, for_children: bool) -> Option<Arc<dyn Namespace>> {
    match kind {
        Kind::User => Some(t.map_or_else(|| p.cred(), Thread::cred).user.clone()),
        Kind::Pid if !for_children => Some(numbers::of(p).clone()),
        // There is none before its first process.
        Kind::Pid if t?.namespaces.load().pid_for_children.init() == 0 => None,
        _ => t?.namespaces.load().get(kind, for_children),
    }
}

impl FileOps for NsFile {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn pollable(&self) -> bool {
        false
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Stat { dev: DEVICE, ino: self.ns.number(), mode: 0o100_444, ..Stat::anonymous() })
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        let me = current().cred();
        match cmd {
            NS_GET_USERNS => {
                // Only what the caller's own user namespace is or is above of.
                let owner = self.ns.owner().filter(|o| o.is_within(&me.user)).ok_or(Errno::EPERM)?;
                descriptor(owner)
            }
            NS_GET_PARENT => match self.ns.kind() {
                Kind::User | Kind::Pid => descriptor(visible_parent(&*self.ns)?),
                _ => Err(Errno::EINVAL),
            },
            NS_GET_NSTYPE => Ok(u64::from(self.ns.kind().flag())),
            NS_GET_OWNER_UID => {
                let any: &dyn core::any::Any = &*self.ns;
                let user =
                    any.downcast_ref::<crate::core::namespace::UserNamespace>().ok_or(Errno::EINVAL)?;
                UserPtr(arg).write(&me.user.uid(user.owner_uid()))?;
                Ok(0)
            }
            NS_GET_PID_FROM_PIDNS..=NS_GET_TGID_IN_PIDNS => self.translate(cmd, arg as i32),
            _ => Err(Errno::ENOTTY),
        }
    }
}

impl NsFile {
    /// The number that a process or thread has in the caller's PID namespace, of its number in this one, or the other way
    /// round.
    fn translate(&self, cmd: u32, number: i32) -> Result<u64> {
        let any: &dyn core::any::Any = &*self.ns;
        let there = any.downcast_ref::<PidNamespace>().ok_or(Errno::EINVAL)?;
        let from = matches!(cmd, NS_GET_PID_FROM_PIDNS | NS_GET_TGID_FROM_PIDNS);
        let named = if from { there.kernel(number).ok_or(Errno::ESRCH)? } else { numbers::kernel(number)? };
        let thread = TASKS.thread(named)?;
        let whole = matches!(cmd, NS_GET_TGID_FROM_PIDNS | NS_GET_TGID_IN_PIDNS);
        let kernel = if whole { thread.process.pid } else { named };
        let shown = if from { numbers::shown(kernel) } else { there.shown(kernel) };
        if shown == 0 { Err(Errno::ESRCH) } else { Ok(u64::from(shown.unsigned_abs())) }
    }
}

/// The parent of a namespace, if the caller may know it: EPERM if it is none of its own or below.
fn visible_parent(ns: &dyn Namespace) -> Result<Arc<dyn Namespace>> {
    let parent = ns.parent().ok_or(Errno::EPERM)?;
    let top = of(&current().process, Some(&current()), ns.kind(), false);
    let mut at = Some(parent.clone());
    while let Some(one) = at {
        if top.as_ref().is_some_and(|t| t.number() == one.number()) {
            return Ok(parent);
        }
        at = one.parent();
    }
    Err(Errno::EPERM)
}

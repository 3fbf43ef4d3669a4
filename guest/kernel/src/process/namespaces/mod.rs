//! The namespaces of threads (`namespaces(7)`), but for the user namespace, which belongs to the identity.
//!
//! Key type: [`Namespaces`], which threads share until one of them asks for other ones. enter.rs: unshare and setns;
//! nsfs.rs: the files of /proc/PID/ns.

pub mod enter;
pub mod init;
pub mod nsfs;
pub mod numbers;
pub mod single;
pub mod uts;

use alloc::sync::Arc;

use crate::core::namespace::pid::{self, PidNamespace};
use crate::core::namespace::{Kind, Namespace, UserNamespace};
use crate::core::part::Part;
use crate::objects::ipc::sysv::namespace::{self as ipc, Ipc};
use crate::objects::lookup::context::FsContext;
use crate::objects::vfs::mount::MountNamespace;
use crate::process::life::flags::CloneFlags;
use crate::process::namespaces::single::Single;
use crate::process::namespaces::uts::Uts;
use crate::{Errno, Result};

/// One namespace of each kind. It never changes: who wants others gets a new one.
#[derive(Clone)]
pub struct Namespaces {
    /// Host and domain name.
    pub uts: Arc<Uts>,
    /// System V objects and message queues.
    pub ipc: Arc<Ipc>,
    /// Numbers of the processes its children make.
    pub pid_for_children: Arc<PidNamespace>,
    /// Where /proc/PID/cgroup starts.
    pub cgroup: Arc<Single>,
    /// Offsets of clocks.
    pub time: Arc<Single>,
    /// Offsets of clocks of the processes that will be made.
    pub time_for_children: Arc<Single>,
    /// Interfaces, addresses, ports: a domain has one of them.
    pub net: Arc<Single>,
    /// Mounts.
    pub mounts: Arc<MountNamespace>,
}

/// Those a domain starts with.
pub struct First(pub(crate) Arc<Namespaces>);

/// The domain's.
pub static FIRST: Part<First> = Part::new();

impl Default for First {
    fn default() -> Self {
        let single = |kind| Arc::new(Single::first(kind));
        let time = single(Kind::Time);
        Self(Arc::new(Namespaces {
            uts: Arc::new(Uts::first()),
            ipc: ipc::first().clone(),
            pid_for_children: pid::first().clone(),
            cgroup: single(Kind::Cgroup),
            time: time.clone(),
            time_for_children: time,
            net: single(Kind::Net),
            mounts: MountNamespace::first(),
        }))
    }
}

impl Namespaces {
    /// These with new ones where `flags` say so, which belong to `user`. `fs` is the root and working directory of who
    /// will have them: a new mount namespace moves them to its own mounts. The caller has checked CAP_SYS_ADMIN in `user`.
    pub(crate) fn copy(
        &self,
        flags: CloneFlags,
        user: &Arc<UserNamespace>,
        fs: &FsContext,
    ) -> Result<Arc<Self>> {
        let mut new = self.clone();
        // These are not there yet.
        const MISSING: CloneFlags = CloneFlags::NEWTIME.union(CloneFlags::NEWNET);
        if flags.intersects(MISSING) {
            return Err(Errno::EPERM);
        }
        if flags.contains(CloneFlags::NEWNS) {
            new.mounts = self.mounts.copy(user, fs)?;
        }
        if flags.contains(CloneFlags::NEWUTS) {
            new.uts = Uts::copy(&self.uts, user)?;
        }
        if flags.contains(CloneFlags::NEWIPC) {
            new.ipc = Ipc::new(user)?;
        }
        if flags.contains(CloneFlags::NEWCGROUP) {
            new.cgroup = Single::new(Kind::Cgroup, user)?;
        }
        if flags.contains(CloneFlags::NEWPID) {
            new.pid_for_children = PidNamespace::new(&self.pid_for_children, user)?;
        }
        Ok(Arc::new(new))
    }

    /// The one of a kind that /proc/PID/ns shows, if it is among these.
    pub fn get(&self, kind: Kind, for_children: bool) -> Option<Arc<dyn Namespace>> {
        Some(match kind {
            Kind::Uts => self.uts.clone(),
            Kind::Ipc => self.ipc.clone(),
            Kind::Pid => self.pid_for_children.clone(),
            Kind::Cgroup => self.cgroup.clone(),
            Kind::Time if for_children => self.time_for_children.clone(),
            Kind::Time => self.time.clone(),
            Kind::Net => self.net.clone(),
            Kind::Mount => self.mounts.clone(),
            Kind::User => return None,
        })
    }
}

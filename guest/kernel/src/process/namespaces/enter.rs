//! Getting into other namespaces: unshare(2), setns(2), and the part of clone(2) that makes new ones.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use doppel_machine::shield;

use super::Namespaces;
use super::nsfs::{NsFile, of};
use super::numbers;
use super::single::Single;
use super::uts::Uts;
use crate::core::namespace::pid::PidNamespace;
use crate::core::namespace::{Kind, Namespace, UserNamespace};
use crate::core::subject::{ALL_CAPS, Cred};
use crate::objects::ipc::sysv::namespace::Ipc;
use crate::objects::ipc::sysv::sem;
use crate::objects::lookup::context::FsContext;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::File;
use crate::objects::vfs::mount::MountNamespace;
use crate::process::descriptors::pidfd::PidFd;
use crate::process::life::flags::CloneFlags;
use crate::process::task::{Process, Thread, cred, remote};
use crate::{Errno, Result};

const SYS_ADMIN: u32 = 21;
const SYS_CHROOT: u32 = 18;

/// Gives an identity all capabilities of another user namespace.
pub(crate) fn enter_user(c: &mut Cred, user: Arc<UserNamespace>) {
    c.securebits = 0;
    c.cap_inheritable = 0;
    c.cap_permitted = ALL_CAPS;
    c.cap_effective = ALL_CAPS;
    c.cap_bounding = ALL_CAPS;
    c.cap_ambient = 0;
    c.user = user;
}

/// The identity and the namespaces of a thread that `flags` ask for, made of those of `t`, which calls. `fs` is where the
/// new thread will be.
pub(crate) fn make(t: &Thread, flags: CloneFlags, fs: &FsContext) -> Result<(Arc<Cred>, Arc<Namespaces>)> {
    let (mut cred, old) = (t.cred(), t.namespaces.load());
    if !flags.intersects(CloneFlags::NAMESPACES) {
        return Ok((cred, old));
    }
    if flags.contains(CloneFlags::NEWUSER) {
        if t.fs().root().parent().is_some() {
            // The caller's root is not that of its mounts.
            return Err(Errno::EPERM);
        }
        let mut new = (*cred).clone();
        enter_user(&mut new, UserNamespace::new(&cred)?);
        cred = Arc::new(new);
    }
    let others = flags & CloneFlags::NAMESPACES.difference(CloneFlags::NEWUSER);
    if others.is_empty() {
        return Ok((cred, old));
    }
    if !cred.has(SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    // Only one step down at a time: the children's namespace is not the own one any more.
    if others.contains(CloneFlags::NEWPID) && !Arc::ptr_eq(&old.pid_for_children, numbers::of(&t.process)) {
        return Err(Errno::EINVAL);
    }
    let new = old.copy(others, &cred.user, fs)?;
    Ok((cred, new))
}

/// Gives the calling thread other namespaces.
fn install(t: &Thread, new: Arc<Namespaces>) {
    if !Arc::ptr_eq(&t.namespaces.load().ipc, &new.ipc) {
        // What it has done to the old semaphores is undone, as by its end.
        sem::process_exit(t.process.pid);
    }
    let mut w = shield::write();
    let old = core::mem::replace(t.namespaces.get_mut(&mut w), new);
    drop(w);
    drop(old);
}

/// Whether the calling thread is alone in its process.
fn is_alone(t: &Thread) -> bool {
    t.process.threads.lock().len() == 1
}

/// unshare(2): all of it, or nothing.
pub(crate) fn unshare(t: &Thread, flags: CloneFlags) -> Result<()> {
    const KNOWN: CloneFlags = CloneFlags::NAMESPACES
        .union(CloneFlags::FS)
        .union(CloneFlags::FILES)
        .union(CloneFlags::SYSVSEM)
        .union(CloneFlags::THREAD)
        .union(CloneFlags::SIGHAND)
        .union(CloneFlags::VM);
    let mut flags = flags;
    if flags.contains(CloneFlags::NEWUSER) {
        flags |= CloneFlags::THREAD | CloneFlags::FS;
    }
    if flags.contains(CloneFlags::NEWNS) {
        flags |= CloneFlags::FS;
    }
    if !KNOWN.contains(flags) {
        return Err(Errno::EINVAL);
    }
    let lonely = CloneFlags::THREAD | CloneFlags::SIGHAND | CloneFlags::VM;
    if flags.intersects(lonely) && !is_alone(t)
        || flags.intersects(CloneFlags::SIGHAND | CloneFlags::VM) && t.process.signals.are_shared()
        || flags.contains(CloneFlags::VM) && t.space().thread_count() != 1
    {
        return Err(Errno::EINVAL);
    }
    let fs = flags.contains(CloneFlags::FS).then(|| Arc::new(t.fs().fork()));
    let place = fs.clone().unwrap_or_else(|| t.fs());
    let (new_cred, new) = make(t, flags, &place)?;
    // Nothing fails from here on.
    if let Some(fs) = fs {
        t.take_fs(fs);
    }
    if flags.contains(CloneFlags::FILES) {
        t.unshare_files();
    }
    if flags.intersects(CloneFlags::NAMESPACES) {
        install(t, new);
    }
    if flags.contains(CloneFlags::NEWUSER) {
        cred::install(t, new_cred);
    }
    Ok(())
}

/// What setns gathers before anything changes.
struct Change {
    cred: Arc<Cred>,
    entered_user: bool,
    namespaces: Namespaces,
    /// Where root and working directory will be.
    entrance: Option<Path>,
}

/// setns(2) with an open file of nsfs or a process descriptor.
pub(crate) fn setns(t: &Thread, file: &File, flags: CloneFlags) -> Result<()> {
    let targets: Vec<Arc<dyn Namespace>> = if let Some(f) = file.downcast::<NsFile>() {
        if !flags.is_empty() && flags.bits() != u64::from(f.namespace().kind().flag()) {
            return Err(Errno::EINVAL);
        }
        alloc::vec![f.namespace().clone()]
    } else if let Some(p) = file.downcast::<PidFd>() {
        if flags.is_empty() || !CloneFlags::NAMESPACES.contains(flags) {
            return Err(Errno::EINVAL);
        }
        of_process(t, p.process(), flags)?
    } else {
        return Err(Errno::EINVAL);
    };
    let mut change = Change {
        cred: t.cred(),
        entered_user: false,
        namespaces: (*t.namespaces.load()).clone(),
        entrance: None,
    };
    for target in targets {
        change.add(t, target)?;
    }
    install(t, Arc::new(change.namespaces));
    if let Some(p) = change.entrance {
        let fs = t.fs();
        fs.set_root(p.clone());
        fs.set_cwd(p);
    }
    if change.entered_user {
        cred::install(t, change.cred);
    }
    Ok(())
}

/// Those of a process, in the order in which they are entered: the user namespace first.
fn of_process(t: &Thread, p: &Arc<Process>, flags: CloneFlags) -> Result<Vec<Arc<dyn Namespace>>> {
    const ORDER: [Kind; Kind::COUNT] =
        [Kind::User, Kind::Mount, Kind::Uts, Kind::Ipc, Kind::Pid, Kind::Cgroup, Kind::Net, Kind::Time];
    let leader = p.threads().first().cloned().ok_or(Errno::ESRCH)?;
    remote::may_access(&t.process, p)?;
    let wanted = ORDER.into_iter().filter(|k| flags.bits() & u64::from(k.flag()) != 0);
    wanted.map(|k| of(p, Some(&leader), k, false).ok_or(Errno::ESRCH)).collect()
}

/// A namespace as the type it is.
fn cast<T: Namespace>(ns: Arc<dyn Namespace>) -> Result<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = ns;
    any.downcast().map_err(|_| Errno::EINVAL)
}

impl Change {
    /// Adds one namespace.
    fn add(&mut self, t: &Thread, ns: Arc<dyn Namespace>) -> Result<()> {
        if ns.kind() == Kind::User {
            return self.add_user(t, cast(ns)?);
        }
        let me = t.cred();
        let owner = ns.owner().ok_or(Errno::EINVAL)?;
        if !me.capable_in(&owner, SYS_ADMIN) || !me.capable_in(&self.cred.user, SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let new = &mut self.namespaces;
        match ns.kind() {
            Kind::Uts => new.uts = cast::<Uts>(ns)?,
            Kind::Ipc => new.ipc = cast::<Ipc>(ns)?,
            Kind::Cgroup => new.cgroup = cast::<Single>(ns)?,
            Kind::Pid => {
                let pid = cast::<PidNamespace>(ns)?;
                if !pid.is_within(numbers::of(&t.process)) {
                    return Err(Errno::EINVAL);
                }
                new.pid_for_children = pid;
            }
            Kind::Mount => {
                if !me.has(SYS_CHROOT) {
                    return Err(Errno::EPERM);
                }
                if !t.fs_is_own() {
                    return Err(Errno::EINVAL);
                }
                new.mounts = cast::<MountNamespace>(ns)?;
                self.entrance = Some(new.mounts.entrance().ok_or(Errno::EINVAL)?);
            }
            // There is one of each of these, so it is the caller's already.
            _ => {}
        }
        Ok(())
    }

    fn add_user(&mut self, t: &Thread, user: Arc<UserNamespace>) -> Result<()> {
        let me = t.cred();
        if Arc::ptr_eq(&user, &me.user) || !is_alone(t) || !t.fs_is_own() {
            return Err(Errno::EINVAL);
        }
        if !me.capable_in(&user, SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let mut new = (*me).clone();
        enter_user(&mut new, user);
        (self.cred, self.entered_user) = (Arc::new(new), true);
        Ok(())
    }
}

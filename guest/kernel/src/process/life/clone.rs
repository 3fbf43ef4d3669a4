//! Making processes and threads: clone, clone3, fork, vfork (`clone(2)`).
//!
//! A new address space is a host process cloned by the calling vCPU, with no lock held; its first vCPU finds
//! the child thread on the run queue of the new [`Space`]. A vfork child runs in its parent's space until exec.

pub(crate) use super::flags::CloneFlags;
use super::vfork::Vfork;
use crate::core::events::{Kind, record};
use crate::core::namespace::pid::Numbers;
use crate::process::task::SPACES;
use crate::process::task::SPARES;
use crate::process::task::TASKS;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use doppel_machine::arena;
use doppel_machine::cpu;
use doppel_machine::task::UserContext;
use doppel_machine::user::UserPtr;

use crate::core::sched::wait_until_uninterruptible;
use crate::objects::lookup::context::FsContext;
use crate::objects::vfs::FdTable;
use crate::process::namespaces::{Namespaces, enter, numbers};
use crate::process::ptrace;
use crate::process::task::Space;
use crate::process::task::table::PID_MAX;
use crate::process::task::{Cred, Process, Thread, current, current_ref};
use crate::{Errno, Result};

/// Most ids that clone3's `set_tid` may give: one for each PID namespace above the child.
pub(crate) const SET_TID_MAX: usize = 32;

/// What a clone asks for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) flags: CloneFlags,
    pub(crate) exit_signal: i32,
    pub(crate) stack: u64,
    pub(crate) parent_tid: u64,
    pub(crate) child_tid: u64,
    pub(crate) pidfd: u64,
    pub(crate) tls: u64,
    /// The thread ids asked for, the deepest PID namespace's first, 0 behind the last.
    pub(crate) tids: [i32; SET_TID_MAX],
    pub(crate) tids_count: usize,
}

pub(crate) fn check(r: &Request) -> Result<()> {
    let f = r.flags;
    let has = |bit| f.contains(bit);
    let needs = |bit, other| has(bit) && !has(other);
    // A new mount or user namespace cannot share the root directory (copy_process in Linux).
    let alone = has(CloneFlags::FS) && f.intersects(CloneFlags::NEWNS | CloneFlags::NEWUSER);
    if alone
        || needs(CloneFlags::THREAD, CloneFlags::SIGHAND)
        || needs(CloneFlags::SIGHAND, CloneFlags::VM)
        || has(CloneFlags::CLEAR_SIGHAND) && has(CloneFlags::SIGHAND)
        || has(CloneFlags::PIDFD) && (has(CloneFlags::THREAD) || has(CloneFlags::DETACHED))
        || has(CloneFlags::PIDFD) && has(CloneFlags::PARENT_SETTID) && r.pidfd == r.parent_tid
        || has(CloneFlags::THREAD) && f.intersects(CloneFlags::NEWUSER | CloneFlags::NEWPID)
        || has(CloneFlags::NEWIPC) && has(CloneFlags::SYSVSEM)
    {
        return Err(Errno::EINVAL);
    }
    if arena::low() {
        record(Kind::KernelFull, [0; 3]);
        return Err(Errno::ENOMEM);
    }
    Ok(())
}

/// The registers a child starts with.
fn child_regs(parent: &Thread, r: &Request) -> Result<UserContext> {
    let mut regs = parent.task.regs();
    regs.rax = 0;
    regs.orig_rax = u64::MAX;
    regs.fs_base = if r.flags.contains(CloneFlags::SETTLS) { r.tls } else { parent.task.fs_base() };
    if r.stack != 0 {
        regs.rsp = r.stack;
    }
    if regs.fs_base >= doppel_abi_machine::layout::USER_END {
        return Err(Errno::EPERM);
    }
    Ok(regs)
}

/// The descriptors of a child: its process', its parent's, or a copy.
fn child_files(parent: &Thread, process: &Process, flags: CloneFlags) -> Arc<FdTable> {
    if !flags.contains(CloneFlags::THREAD) {
        process.files()
    } else if flags.contains(CloneFlags::FILES) {
        parent.files().clone()
    } else {
        Arc::new(parent.files().fork())
    }
}

/// What a child has from its parent, and where its number is to be stored.
fn inherit(parent: &Thread, child: &Thread, r: &Request) {
    child.attrs.inherit(&parent.attrs);
    child.seccomp.inherit(&parent.seccomp);
    let keyrings = parent.keyrings.lock();
    *child.keyrings.lock() = if r.flags.contains(CloneFlags::THREAD) {
        keyrings.of_thread(&child.cred())
    } else {
        keyrings.of_process()
    };
    drop(keyrings);
    if parent.has_own_fs() && r.flags.contains(CloneFlags::THREAD) {
        child.set_own_fs(if r.flags.contains(CloneFlags::FS) {
            parent.fs()
        } else {
            Arc::new(parent.fs().fork())
        });
    }
    if r.flags.contains(CloneFlags::CHILD_CLEARTID) {
        child.clear_child_tid.store(r.child_tid, Ordering::Relaxed);
    }
    if r.flags.contains(CloneFlags::CHILD_SETTID) {
        child.set_child_tid.store(r.child_tid, Ordering::Relaxed);
    }
}

/// Stores the child's number and a descriptor of it where the parent wants them.
fn tell_parent(parent: &Thread, child: &Arc<Process>, tid: i32, r: &Request) -> Result<()> {
    if r.flags.contains(CloneFlags::PARENT_SETTID) {
        // Linux does not look whether this works.
        let _ = UserPtr(r.parent_tid).write(&tid);
    }
    if r.flags.contains(CloneFlags::PIDFD) {
        let fd = crate::process::descriptors::pidfd::open(child)?;
        if let Err(e) = UserPtr(r.pidfd).write(&fd) {
            // Another thread may have closed it already; then there is nothing to undo.
            let _ = parent.files().close(fd);
            return Err(e.into());
        }
    }
    Ok(())
}

pub(crate) fn clone(parent: &Arc<Thread>, r: Request) -> Result<u64> {
    check(&r)?;
    let process = &parent.process;
    if r.flags.contains(CloneFlags::PARENT) && numbers::is_init(process) {
        // Nobody else would reap them.
        return Err(Errno::EINVAL);
    }
    // Before anything is copied: a fork bomb fails cheaply. Forks at the same moment may all pass; the host's
    // control group bounds those.
    if let Some(most) = doppel_machine::boot::task_limit().filter(|most| TASKS.tasks() >= *most) {
        record(Kind::TasksRefused, [most as u64, 0, 0]);
        return Err(Errno::EAGAIN);
    }
    let own = Own::new(parent, r.flags)?;
    let (tid, numbers) = own.number(&r)?;
    let vfork = r.flags.contains(CloneFlags::VFORK);
    let regs = child_regs(parent, &r)?;
    let share_vm = r.flags.contains(CloneFlags::VM);
    let space = if share_vm { parent.space() } else { Space::new(parent.space().mm.fork()?) };
    if !share_vm {
        space.owner.store(tid, Ordering::Relaxed);
    }
    let child_process = if r.flags.contains(CloneFlags::THREAD) {
        process.clone()
    } else {
        new_process(parent, tid, &numbers, &space, &r, &own)?
    };
    let signals = parent.signals.fork();
    if share_vm && !vfork {
        signals.clear_altstack();
    }
    let child = Thread::new(
        tid,
        numbers,
        child_process.clone(),
        own.cred.clone(),
        own.namespaces.clone(),
        Some(child_files(parent, &child_process, r.flags)),
        space.clone(),
        regs,
        parent.task.xstate(),
        *parent.comm.lock(),
        signals,
    );
    inherit(parent, &child, &r);
    let done = vfork.then(|| Arc::new(Vfork::default()));
    *child.vfork_done.lock() = done.clone();

    let shown = numbers::shown_to(process, tid);
    tell_parent(parent, &child_process, shown, &r)?;
    ptrace::inherit(parent, &child, vfork, r.exit_signal);
    publish(&child, process, &child_process, r.flags);
    if own.namespaces.pid_for_children.has_ended() {
        // The first process of its namespace has looked for those to end already.
        super::ending::end_process(&child_process, crate::process::signal::sig::SIGKILL);
    }
    let kind = if r.flags.contains(CloneFlags::THREAD) { Kind::ThreadStart } else { Kind::ProcessStart };
    record(kind, [tid as u64, r.flags.bits(), 0]);

    space.thread_added();
    space.enqueue(child.clone());
    if !share_vm && let Err(e) = start_space(&space, false) {
        // Nobody has seen the child run; take it back.
        record(Kind::HostRefused, [u64::from(e.0), 0, 0]);
        super::exit::abandon(&child);
        return Err(e);
    }
    drop(child);
    let told = parent.ptrace.tracer().map_or(tid, |q| numbers::shown_to(&q, tid));
    ptrace::clone_event(parent, vfork, r.exit_signal, told);
    if let Some(d) = done {
        // Who must end does not wait: the child may be a thread of this process, and wait for that itself.
        let over = || d.done.load(Ordering::SeqCst) || parent.exiting.load(Ordering::SeqCst);
        wait_until_uninterruptible(&d.queue, || over().then_some(()));
        ptrace::vfork_done(parent, told);
    }
    Ok(shown as u64)
}

impl Vfork {
    /// Lets the parent go on.
    pub fn complete(&self) {
        self.done.store(true, Ordering::SeqCst);
        self.queue.notify_all();
    }
}

/// Who a child is, and where.
struct Own {
    cred: Arc<Cred>,
    namespaces: Arc<Namespaces>,
    fs: Arc<FsContext>,
}

impl Own {
    fn new(parent: &Thread, flags: CloneFlags) -> Result<Self> {
        let fs = parent.fs();
        let shared = flags.intersects(CloneFlags::FS | CloneFlags::THREAD);
        let fs = if shared { fs } else { Arc::new(fs.fork()) };
        let (cred, namespaces) = enter::make(parent, flags, &fs)?;
        let elsewhere = !Arc::ptr_eq(&namespaces.pid_for_children, numbers::of(&parent.process));
        if flags.contains(CloneFlags::THREAD) && elsewhere {
            return Err(Errno::EINVAL);
        }
        Ok(Self { cred, namespaces, fs })
    }

    /// Whether ids for the child may be chosen: one at most for each PID namespace, each valid, with CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE there.
    fn may_choose(&self, chosen: &[i32]) -> Result<()> {
        const CAP_SYS_ADMIN: u32 = 21;
        const CAP_CHECKPOINT_RESTORE: u32 = 40;
        let mut pid = Some(&self.namespaces.pid_for_children);
        for n in chosen {
            let ns = pid.ok_or(Errno::EINVAL)?;
            let there = *n == 1 || ns.init() != 0;
            if !(1..PID_MAX).contains(n) || !there {
                return Err(Errno::EINVAL);
            }
            let me = current_ref().cred();
            if ![CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE].iter().any(|c| me.capable_in(ns.user(), *c)) {
                return Err(Errno::EPERM);
            }
            pid = ns.above();
        }
        Ok(())
    }

    /// The kernel's number of the child, and those it has below the first PID namespace.
    fn number(&self, r: &Request) -> Result<(i32, Option<Arc<Numbers>>)> {
        let chosen = &r.tids[..r.tids_count];
        let pid = &self.namespaces.pid_for_children;
        self.may_choose(chosen)?;
        let below = (pid.level() as usize).min(chosen.len());
        let kernel = match chosen.get(below) {
            Some(n) if TASKS.is_free(*n) => *n,
            Some(_) => return Err(Errno::EEXIST),
            None => TASKS.alloc_pid()?,
        };
        let numbers = if pid.is_first() { None } else { Some(Numbers::new(pid, kernel, &chosen[..below])?) };
        Ok((kernel, numbers))
    }
}

fn new_process(
    parent: &Arc<Thread>,
    pid: i32,
    numbers: &Option<Arc<Numbers>>,
    space: &Arc<Space>,
    r: &Request,
    own: &Own,
) -> Result<Arc<Process>> {
    let p = &parent.process;
    let nproc = p.rlimit(crate::process::task::Resource::Nproc);
    let cred = own.cred.clone();
    if cred.ruid != 0 && TASKS.processes.lock().len() as u64 >= nproc {
        record(Kind::ProcessesRefused, [nproc, 0, 0]);
        return Err(Errno::EAGAIN);
    }
    let files = if r.flags.contains(CloneFlags::FILES) {
        parent.files().clone()
    } else {
        Arc::new(parent.files().fork())
    };
    let signals = p.signals.fork(r.flags.contains(CloneFlags::SIGHAND));
    if r.flags.contains(CloneFlags::CLEAR_SIGHAND) {
        signals.exec();
    }
    let real_parent = if r.flags.contains(CloneFlags::PARENT) {
        p.parent().unwrap_or_else(|| p.clone())
    } else {
        p.clone()
    };
    let child = Process::new(
        pid,
        numbers.clone(),
        Arc::downgrade(&real_parent),
        p.pgid(),
        p.group.lock().clone(),
        p.session(),
        space.clone(),
        files,
        own.fs.clone(),
        cred,
        signals,
        *p.rlimits.lock(),
    );
    // A sibling tells its parent's parent in the way of its maker.
    let exit_signal = if r.flags.contains(CloneFlags::PARENT) {
        p.exit_signal.load(Ordering::Relaxed)
    } else {
        r.exit_signal
    };
    child.exit_signal.store(exit_signal, Ordering::Relaxed);
    child.made_by.store(current().tid(), Ordering::Relaxed);
    *child.exe.lock() = p.exe.lock().clone();
    (*child.cmdline.lock()).clone_from(&p.cmdline.lock());
    (*child.environ.lock()).clone_from(&p.environ.lock());
    (*child.auxv.lock()).clone_from(&p.auxv.lock());
    child.dumpable.store(p.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
    child.no_new_privs.store(p.no_new_privs.load(Ordering::Relaxed), Ordering::Relaxed);
    child.attrs.inherit(&p.attrs);
    child.oom_score_adj.store(p.oom_score_adj.load(Ordering::Relaxed), Ordering::Relaxed);
    child.nice.store(p.nice.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(child)
}

/// Enters the child in the tables.
fn publish(child: &Arc<Thread>, parent: &Arc<Process>, process: &Arc<Process>, flags: CloneFlags) {
    process.threads.lock().push(child.clone());
    TASKS.threads.lock().insert(child.tid(), child.clone());
    if !flags.contains(CloneFlags::THREAD) {
        TASKS.processes.lock().insert(process.pid, process.clone());
        let real_parent = process.parent().unwrap_or_else(|| parent.clone());
        real_parent.children.lock().push(process.clone());
    } else if process.group_exit.lock().is_some() {
        // exit_group ran while this thread was being made.
        child.exiting.store(true, Ordering::SeqCst);
        child.task.post_work();
    }
}

/// Starts the host process of a new space.
pub fn start_space(space: &Arc<Space>, from_init: bool) -> Result<()> {
    space
        .add_vcpu(|idle| cpu::spawn_space(idle, from_init).map(drop))
        .ok_or(Errno::EAGAIN)?
        .map_err(|e| if e.0 == 12 { Errno::ENOMEM } else { Errno::EAGAIN })
}

/// Starts the spaces that exec asked for; runs on PID 1, whose own memory is empty.
pub fn spawn_requested_spaces() {
    let requests = core::mem::take(&mut *SPACES.requests.lock());
    for space in requests {
        if start_space(&space, true).is_err() {
            // The host has no room for one more process: the exec that waits for it cannot go back.
            super::exit::end_space(&space);
        }
    }
    SPARES.refill();
}

//! Guest threads.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use doppel_machine::cpu::{self, ThreadObject};
use doppel_machine::shield::{self, Shielded};
use doppel_machine::sync::SpinLock;
use doppel_machine::task::{Task, UserContext};
use doppel_machine::user::UserPtr;
use doppel_machine::xstate::XSave;

use super::{Cred, Process, Space};
use crate::core::namespace::pid::Numbers;
use crate::core::sched::{Entity, Runnable};
use crate::objects::lookup::context::FsContext;
use crate::objects::vfs::fdtable::{FdTable, FileRef, Files, FilesRef};
use crate::objects::vfs::flags::OpenFlags;
use crate::process::keys::Keyrings;
use crate::process::namespaces::Namespaces;
use crate::process::signal::ThreadSignals;
use crate::process::time::used::ThreadUse;
use crate::{Errno, Result, kernel};

/// A guest thread: scheduled by the guest kernel on the vCPUs of its space.
pub struct Thread {
    /// Registers and kernel stack.
    pub task: Task,
    /// Thread id; a thread that executes a program takes its leader's.
    pub tid: AtomicI32,
    /// Its numbers below the first PID namespace.
    numbers: Option<Arc<Numbers>>,
    /// The thread group.
    pub process: Arc<Process>,
    /// Its identity. Threads of a process may differ (glibc keeps them the same).
    pub cred: Shielded<Arc<Cred>>,
    /// Its namespaces. /proc shows the leader's.
    pub namespaces: Shielded<Arc<Namespaces>>,
    /// Its descriptors; for the thread itself. Others see those of the process.
    pub files: Files,
    /// The scheduler's part of it, with the space it runs in: its process' space, except in the middle of exec.
    pub(super) entity: Entity<Thread>,
    /// Signal mask, pending signals, alternate stack.
    pub signals: ThreadSignals,
    /// Name (`prctl(PR_SET_NAME)`), NUL padded.
    pub comm: SpinLock<[u8; 16]>,
    /// Address to clear and wake when the thread ends (set_tid_address).
    pub clear_child_tid: AtomicU64,
    /// Head of the robust futex list and its length argument.
    pub robust_list: AtomicU64,
    /// Set once the thread must end: it never returns to its program.
    pub exiting: AtomicBool,
    /// Scheduling attributes, timer slack.
    pub attrs: super::attrs::ThreadAttrs,
    /// Whether its system calls are logged (`--trace`).
    logged: bool,
    /// seccomp mode and filters.
    pub seccomp: crate::process::filters::Seccomp,
    /// The keyrings it holds.
    pub keyrings: SpinLock<Keyrings>,
    /// Its tracer, if any.
    pub ptrace: crate::process::ptrace::state::Traced,
    /// Root, working directory and umask of its own, after unshare(CLONE_FS) in a process with other threads.
    own_fs: SpinLock<Option<Arc<FsContext>>>,
    has_own_fs: AtomicBool,
    /// What restart_syscall continues, if anything.
    pub restart: SpinLock<Option<Restart>>,
    /// Address to write the thread id to when the thread starts (CLONE_CHILD_SETTID).
    pub set_child_tid: AtomicU64,
    /// A worker (remote.rs): runs its start hook and ends; it has no program and is in no table.
    worker: AtomicBool,
    /// What the thread does first, before it enters its program.
    pub start: SpinLock<Option<StartHook>>,
    /// For vfork: the parent waits until this thread's process execs or exits.
    pub vfork_done: SpinLock<Option<Arc<crate::process::life::vfork::Vfork>>>,
    /// CPU time.
    pub used: ThreadUse,
    /// Number of the system call being served plus 1, 0 when none (for /proc and tracing).
    pub in_syscall: AtomicU32,
}

/// See [`Thread::start`].
pub type StartHook = Box<dyn FnOnce(&Arc<Thread>) + Send + Sync>;

/// State of a system call that continues through restart_syscall (nanosleep, poll with a timeout…).
pub type Restart = Box<dyn FnMut() -> Result<u64> + Send + Sync>;

impl ThreadObject for Thread {
    fn task(&self) -> &Task {
        &self.task
    }
}

impl Thread {
    /// A new thread of `process` that will start at `ctx`.
    /// `files` is none for a worker.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        tid: i32,
        numbers: Option<Arc<Numbers>>,
        process: Arc<Process>,
        cred: Arc<Cred>,
        namespaces: Arc<Namespaces>,
        files: Option<Arc<FdTable>>,
        space: Arc<Space>,
        ctx: UserContext,
        xstate: Box<XSave>,
        comm: [u8; 16],
        signals: ThreadSignals,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            task: Task::new(ctx, xstate),
            tid: AtomicI32::new(tid),
            numbers,
            process,
            cred: Shielded::new(cred),
            namespaces: Shielded::new(namespaces),
            files: Files::new(files),
            entity: Entity::new(me.clone(), space),
            signals,
            comm: SpinLock::new(comm),
            clear_child_tid: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            exiting: AtomicBool::new(false),
            attrs: super::attrs::ThreadAttrs::default(),
            logged: kernel().trace,
            seccomp: crate::process::filters::Seccomp::default(),
            keyrings: SpinLock::default(),
            ptrace: crate::process::ptrace::state::Traced::default(),
            own_fs: SpinLock::new(None),
            has_own_fs: AtomicBool::new(false),
            restart: SpinLock::new(None),
            set_child_tid: AtomicU64::new(0),
            worker: AtomicBool::new(false),
            start: SpinLock::new(None),
            vfork_done: SpinLock::new(None),
            used: ThreadUse::default(),
            in_syscall: AtomicU32::new(0),
        })
    }

    /// The thread id.
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Its number as it sees it itself: in its own PID namespace.
    #[inline]
    pub fn shown_tid(&self) -> i32 {
        self.numbers().map_or_else(|| self.tid(), |n| n.shown())
    }

    /// Its numbers below the first PID namespace, if it is there: those of its process once it has taken its leader's.
    pub fn numbers(&self) -> Option<&Arc<Numbers>> {
        let leads = self.tid() == self.process.pid;
        if leads { self.process.numbers.as_ref() } else { self.numbers.as_ref() }
    }

    /// Its identity.
    pub fn cred(&self) -> Arc<Cred> {
        self.cred.load()
    }

    /// Whether somebody wants to see its system calls.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.logged || self.ptrace.flags() != 0 || self.seccomp.active()
    }

    /// The descriptors of this thread, which is the calling one.
    pub fn files(&self) -> FilesRef<'_> {
        match self.files.table() {
            Some(t) => t,
            None => panic!("a worker of {} uses descriptors", kernel().name()),
        }
    }

    /// The open file behind `fd` of this thread, which is the calling one. EBADF also for O_PATH descriptors.
    #[inline]
    pub fn file(&self, fd: i32) -> Result<FileRef<'_>> {
        let file = usize::try_from(fd).ok().and_then(|i| self.files.get(i)).ok_or(Errno::EBADF)?;
        if file.flags().contains(OpenFlags::PATH) { Err(Errno::EBADF) } else { Ok(file) }
    }

    /// As [`Self::file`], also for O_PATH descriptors.
    pub fn raw_file(&self, fd: i32) -> Result<FileRef<'_>> {
        usize::try_from(fd).ok().and_then(|i| self.files.get(i)).ok_or(Errno::EBADF)
    }

    /// As [`Self::file`], counted, and also for O_PATH descriptors.
    pub fn any_file(&self, fd: i32) -> Result<Arc<crate::objects::vfs::File>> {
        let i = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.files.get(i).map(|f| f.clone()).ok_or(Errno::EBADF)
    }

    /// Gives this thread, which is the calling one, a table of its own: a copy of the one it shared. /proc shows
    /// the leader's.
    pub fn unshare_files(&self) {
        let own = Arc::new(self.files().fork());
        if self.tid() == self.process.pid {
            *self.process.files.lock() = own.clone();
        }
        // The old table lives on with those who share it.
        drop(self.files.replace(Some(own)));
    }

    /// Root, working directory and umask: its process', unless it has its own.
    pub fn fs(&self) -> Arc<FsContext> {
        let own = if self.has_own_fs.load(Ordering::Acquire) { self.own_fs.lock().clone() } else { None };
        own.unwrap_or_else(|| self.process.fs())
    }

    /// Gives it an own root, working directory and umask.
    pub fn set_own_fs(&self, fs: Arc<FsContext>) {
        *self.own_fs.lock() = Some(fs);
        self.has_own_fs.store(true, Ordering::Release);
    }

    /// As [`Self::set_own_fs`], for the calling thread: those of the process, if it has no other threads.
    pub fn take_fs(&self, fs: Arc<FsContext>) {
        if self.has_own_fs() || self.process.threads.lock().len() > 1 {
            self.set_own_fs(fs);
        } else {
            self.process.fs.set(fs);
        }
    }

    /// Whether no other process shares root, working directory and umask of this thread, which is alone in its own.
    pub fn fs_is_own(&self) -> bool {
        self.has_own_fs() || Arc::strong_count(self.process.fs.get(&shield::read())) == 1
    }

    /// Whether it has its own.
    pub fn has_own_fs(&self) -> bool {
        self.has_own_fs.load(Ordering::Acquire)
    }

    /// Marks a thread that has not run yet as a worker.
    pub(super) fn make_worker(&self) {
        self.worker.store(true, Ordering::Relaxed);
    }

    /// Whether this is a worker.
    pub(crate) fn is_worker(&self) -> bool {
        self.worker.load(Ordering::Relaxed)
    }

    /// The space it runs in.
    pub fn space(&self) -> Arc<Space> {
        self.entity.space()
    }

    /// Looks at the space it runs in, which costs less than taking a reference to it.
    #[inline]
    pub fn with_space<R>(&self, f: impl FnOnce(&Space) -> R) -> R {
        self.entity.with_space(f)
    }

    /// Number of the space it runs in.
    pub fn space_id(&self) -> u64 {
        self.entity.space_id()
    }

    /// Moves the thread to another space (exec): it continues there when next resumed.
    pub fn set_space(&self, space: Arc<Space>) {
        self.entity.set_space(space);
    }

    /// Makes it runnable if it waits.
    pub fn unpark(&self) {
        self.entity.unpark();
    }

    /// Whether a blocking call should give up: a deliverable signal is pending, the thread must end, stop or
    /// be frozen.
    pub fn interrupted(&self) -> bool {
        self.is_interrupted()
    }

    /// Makes the thread notice something new (a signal, an exit request): interrupts its program or its wait.
    pub fn notify(&self) {
        self.task.post_work();
        self.unpark();
    }

    /// Writes to the program's memory are done by the thread itself; this clears `clear_child_tid` and wakes.
    pub fn take_clear_child_tid(&self) -> Option<UserPtr> {
        let p = self.clear_child_tid.swap(0, Ordering::Relaxed);
        (p != 0).then_some(UserPtr(p))
    }
}

/// The current thread. Panics on an idle vCPU, where no system call can run.
pub fn current() -> Arc<Thread> {
    let t: Arc<dyn Any + Send + Sync> = cpu::current();
    match t.downcast::<Thread>() {
        Ok(t) => t,
        Err(_) => panic!("no current thread on an idle vCPU of {}", kernel().name()),
    }
}

/// The current thread, borrowed by the code that runs as it. Panics as [`current`].
pub fn current_ref() -> cpu::CurrentRef<Thread> {
    match cpu::current_as() {
        Some(t) => t,
        None => panic!("no current thread on an idle vCPU of {}", kernel().name()),
    }
}

/// The current thread, if one runs: `None` on an idle vCPU and in PID 1's loop.
pub fn try_current() -> Option<Arc<Thread>> {
    let t: Arc<dyn Any + Send + Sync> = cpu::current();
    t.downcast::<Thread>().ok()
}

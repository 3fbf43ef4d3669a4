//! Guest processes.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use doppel_machine::cpu;
use doppel_machine::shield::Shielded;
use doppel_machine::sync::SpinLock;

use super::Thread;
use crate::core::namespace::pid::Numbers;
use crate::core::sched::WaitQueue;
use crate::core::subject::{Cred, Resource, Rlimits};
use crate::objects::lookup::context::FsContext;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::FdTable;
use crate::process::signal::ProcessSignals;
use crate::process::task::Space;
use crate::process::time::timers::ProcessTimers;

/// What a process was started for, which is told of its end.
pub trait Carried: Send + Sync {
    /// The process has ended with this wait status.
    fn ended(&self, status: i32);
}

/// A session's controlling terminal, or what is left of it after a hang-up.
pub trait ControllingTerminal: Any + Send + Sync {
    /// The leader of the session exits.
    fn leader_exits(&self);
}

/// A session (`setsid(2)`) with its controlling terminal.
pub struct Session {
    /// Session id.
    pub sid: i32,
    /// Its numbers below the first PID namespace.
    pub numbers: Option<Arc<Numbers>>,
    /// The controlling terminal, set by the tty layer.
    pub tty: SpinLock<Option<Arc<dyn ControllingTerminal>>>,
}

/// A guest process: a group of threads with common memory, files and signal handlers.
pub struct Process {
    /// Process id: its number in the first PID namespace.
    pub pid: i32,
    /// Its numbers in others, if it is not in the first.
    pub numbers: Option<Arc<Numbers>>,
    /// Itself, for handing out references.
    pub me: Weak<Process>,
    /// Parent; the domain's pid 1 and the programs of sessions have none.
    parent: SpinLock<Weak<Process>>,
    /// Its pid, 0 if there is none.
    ppid: AtomicI32,
    /// Children not yet reaped.
    pub children: SpinLock<Vec<Arc<Process>>>,
    /// The thread that made it (`__WNOTHREAD`).
    pub made_by: AtomicI32,
    /// Live threads; the leader first while it lives.
    pub threads: SpinLock<Vec<Arc<Thread>>>,
    /// Process group id.
    pub pgid: AtomicI32,
    /// Keeps the numbers of the group's first process taken.
    pub group: SpinLock<Option<Arc<Numbers>>>,
    /// Session.
    pub session: SpinLock<Arc<Session>>,
    /// Memory.
    pub space: SpinLock<Arc<Space>>,
    /// Descriptors.
    pub files: SpinLock<Arc<FdTable>>,
    /// Root and working directory, umask.
    pub fs: Shielded<Arc<FsContext>>,
    /// Identity.
    pub cred: Shielded<Arc<Cred>>,
    /// Handlers and process-directed pending signals.
    pub signals: ProcessSignals,
    /// setitimer and timer_create timers.
    pub timers: ProcessTimers,
    /// RLIMIT_FSIZE's soft value, kept here for speed.
    pub size_limit: AtomicU64,
    /// Resource limits.
    pub rlimits: SpinLock<Rlimits>,
    /// The executed file, and what /proc shows of it.
    pub exe: SpinLock<Option<Path>>,
    /// argv as one block of NUL-terminated strings.
    pub cmdline: SpinLock<Vec<u8>>,
    /// Environment at exec, likewise.
    pub environ: SpinLock<Vec<u8>>,
    /// Auxiliary vector at exec, raw.
    pub auxv: SpinLock<Vec<u8>>,
    /// Whether the process has executed since fork (setpgid's EACCES rule).
    pub did_exec: AtomicBool,
    /// Signal sent to the parent at exit (SIGCHLD, or what clone asked for).
    pub exit_signal: AtomicI32,
    /// Wait status once all threads are gone: a zombie.
    pub exit_status: SpinLock<Option<i32>>,
    /// Status every thread ends with, once exit_group or a fatal signal decided it.
    pub group_exit: SpinLock<Option<i32>>,
    /// Woken when a child changes state.
    pub child_wait: Arc<WaitQueue>,
    /// Woken when this process exits (pidfd).
    pub exit_wait: Arc<WaitQueue>,
    /// The session it was started for (`crate::domain::sessions`), until it exits.
    pub exec: SpinLock<Option<Arc<dyn Carried>>>,
    /// The threads it traces.
    pub tracer: crate::process::ptrace::state::Tracer,
    /// prctl(PR_SET_PDEATHSIG), PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, no_new_privs.
    pub pdeathsig: AtomicI32,
    /// See `prctl(2)`.
    pub subreaper: AtomicBool,
    /// See `prctl(2)`.
    pub dumpable: AtomicI32,
    /// See `prctl(2)`.
    pub no_new_privs: AtomicBool,
    /// Personality, transparent huge pages.
    pub attrs: super::attrs::ProcessAttrs,
    /// nice value.
    pub nice: AtomicI32,
    /// /proc/PID/oom_score_adj.
    pub oom_score_adj: AtomicI32,
    /// Name of the last thread, for a zombie.
    pub last_comm: SpinLock<[u8; 16]>,
    /// Monotonic time of its start, nanoseconds.
    pub start_ns: u64,
    /// Its core file, while it is written.
    pub dump: crate::process::coredump::state::Dump,
    /// CPU time.
    pub used: crate::process::time::used::ProcessUse,
    /// Largest memory in bytes: of an ended process, and of reaped children.
    pub max_rss: AtomicU64,
    /// See [`Self::max_rss`].
    pub child_max_rss: AtomicU64,
}

impl Process {
    /// The first process of a domain, or the copy `fork` makes; clone.rs fills in the rest.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        pid: i32,
        numbers: Option<Arc<Numbers>>,
        parent: Weak<Process>,
        pgid: i32,
        group: Option<Arc<Numbers>>,
        session: Arc<Session>,
        space: Arc<Space>,
        files: Arc<FdTable>,
        fs: Arc<FsContext>,
        cred: Arc<Cred>,
        signals: ProcessSignals,
        rlimits: Rlimits,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            pid,
            numbers,
            me: me.clone(),
            ppid: AtomicI32::new(parent.upgrade().map_or(0, |p| p.pid)),
            parent: SpinLock::new(parent),
            children: SpinLock::default(),
            made_by: AtomicI32::new(0),
            threads: SpinLock::default(),
            pgid: AtomicI32::new(pgid),
            group: SpinLock::new(group),
            session: SpinLock::new(session),
            space: SpinLock::new(space),
            files: SpinLock::new(files),
            fs: Shielded::new(fs),
            cred: Shielded::new(cred),
            signals,
            timers: ProcessTimers::default(),
            size_limit: AtomicU64::new(rlimits[Resource::Fsize].cur),
            rlimits: SpinLock::new(rlimits),
            exe: SpinLock::new(None),
            cmdline: SpinLock::default(),
            environ: SpinLock::default(),
            auxv: SpinLock::default(),
            did_exec: AtomicBool::new(false),
            exit_signal: AtomicI32::new(17),
            exit_status: SpinLock::new(None),
            group_exit: SpinLock::new(None),
            child_wait: Arc::default(),
            exit_wait: Arc::default(),
            exec: SpinLock::default(),
            tracer: crate::process::ptrace::state::Tracer::default(),
            pdeathsig: AtomicI32::new(0),
            subreaper: AtomicBool::new(false),
            dumpable: AtomicI32::new(1),
            no_new_privs: AtomicBool::new(false),
            attrs: super::attrs::ProcessAttrs::default(),
            nice: AtomicI32::new(0),
            oom_score_adj: AtomicI32::new(0),
            last_comm: SpinLock::new([0; 16]),
            start_ns: crate::core::time::monotonic_ns(),
            dump: crate::process::coredump::state::Dump::default(),
            used: crate::process::time::used::ProcessUse::default(),
            max_rss: AtomicU64::new(0),
            child_max_rss: AtomicU64::new(0),
        })
    }

    /// Process group id.
    pub fn pgid(&self) -> i32 {
        self.pgid.load(Ordering::Relaxed)
    }

    /// Session.
    pub fn session(&self) -> Arc<Session> {
        self.session.lock().clone()
    }

    /// Descriptors.
    pub fn files(&self) -> Arc<FdTable> {
        self.files.lock().clone()
    }

    /// Root, working directory, umask.
    pub fn fs(&self) -> Arc<FsContext> {
        self.fs.load()
    }

    /// Identity of its leader, which others see.
    pub fn cred(&self) -> Arc<Cred> {
        self.cred.load()
    }

    /// Identity with which it acts on others: the calling thread's, if that is one of its own.
    pub fn acting_cred(&self) -> Arc<Cred> {
        let me: Option<cpu::CurrentRef<Thread>> = cpu::current_as();
        me.filter(|t| core::ptr::eq(&*t.process, self)).map_or_else(|| self.cred(), |t| t.cred())
    }

    /// Memory.
    pub fn space(&self) -> Arc<Space> {
        self.space.lock().clone()
    }

    /// Parent process, if it lives.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.parent.lock().upgrade()
    }

    /// Gives it another parent (the old one has exited).
    pub fn set_parent(&self, parent: &Arc<Process>) {
        *self.parent.lock() = Arc::downgrade(parent);
        self.ppid.store(parent.pid, Ordering::Relaxed);
    }

    /// Pid of the parent, 0 if there is none.
    pub fn ppid(&self) -> i32 {
        self.ppid.load(Ordering::Relaxed)
    }

    /// A snapshot of the live threads.
    pub fn threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().clone()
    }

    /// Soft value of a resource limit.
    pub fn rlimit(&self, resource: Resource) -> u64 {
        self.rlimits.lock()[resource].cur
    }

    /// Whether it has exited and waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        self.exit_status.lock().is_some()
    }
}

//! A domain's first process: forked, confined step by step, turned into the guest kernel.
//!
//! The child runs in our memory on a stack of its own while the calling thread waits (as with `vfork`): a copy of
//! our memory would cost more than all the rest, and grow with the number of domains. Other threads of ours go on
//! meanwhile and may hold any lock. So everything it needs is prepared before, and between `clone3` and `execveat`
//! it makes raw system calls only: no allocation, no locks, no libc state but `errno`. It leaves word of a failing
//! step in the memory it was given.

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec};

mod steps;

use steps::{Prepared, STEPS, run};

use crate::signal::Blocked;

/// What the child becomes.
#[derive(Debug)]
pub struct ChildPlan<'a> {
    /// The executable, a static ELF.
    pub executable: BorrowedFd<'a>,
    /// Its argument strings (shown by `ps`); the environment is empty.
    pub arguments: &'a [CString],
    /// Its descriptors 0, 1, 2…; it has no others.
    pub descriptors: &'a [BorrowedFd<'a>],
    /// `CLONE_NEW*` flags.
    pub namespaces: u64,
    /// Namespaces of an earlier child to join, its empty root among them; `namespaces` then has none of their kinds.
    pub join: Option<&'a Namespaces>,
    /// Whether `namespaces` has a new user namespace, in which `uid` and `gid` map to themselves, or 0 to them if it is
    /// privileged.
    pub user_namespace: bool,
    /// The child is one of ours and keeps our user, capabilities and root file system, of which it has
    /// a view of its own if it has a mount namespace: it confines others, or itself ([`confine`]). `join` means nothing then, nor do `uid` and `gid` without a user namespace.
    pub privileged: bool,
    /// Host user id.
    pub uid: u32,
    /// Host group id.
    pub gid: u32,
    /// Cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Cgroup v1 `tasks` files to join by writing "0".
    pub cgroup_tasks: &'a [BorrowedFd<'a>],
    /// `(RLIMIT_*, value)`, soft and hard alike.
    pub limits: &'a [(u32, u64)],
    /// Guesses of the CPU (`PR_SPEC_*`) that it and what it starts shall never have made again, where the host can do so.
    pub speculation: &'a [u64],
    /// Kill the child when the calling *thread* ends.
    pub tied: bool,
    /// `oom_score_adj`, in decimal.
    pub oom_score_adj: &'a CStr,
}

/// Namespaces of a child that others may join: all but the PID and cgroup namespaces.
#[derive(Debug)]
pub struct Namespaces {
    files: [OwnedFd; 4],
}

impl Namespaces {
    /// `CLONE_NEW*` flags of these: mount, UTS, IPC, network.
    pub const FLAGS: u64 = CLONE_NEWNS | 0x0400_0000 | 0x0800_0000 | 0x4000_0000;

    /// New ones, made by a thread that ends with that: for a child that will come while other things are done. The mount
    /// namespace has an empty read-only root.
    ///
    /// # Errors
    /// If there is no thread. The step that failed, for instance since we are not root, comes from the thread.
    pub fn begin() -> io::Result<JoinHandle<Result<Self, SpawnError>>> {
        crate::signal::spawn_blocked("namespaces", || {
            steps::leave_namespaces(Self::FLAGS).map_err(step_failed)?;
            let files = Self::open("/proc/thread-self/ns");
            // The root that is left is this thread's own, so nobody else loses theirs.
            steps::empty_root().map_err(step_failed)?;
            let failed = |error| SpawnError { step: "look at its namespaces", error };
            files.map(|files| Self { files }).map_err(failed)
        })
    }

    fn open(dir: &str) -> io::Result<[OwnedFd; 4]> {
        let open = |kind: &str| std::fs::File::open(format!("{dir}/{kind}")).map(OwnedFd::from);
        Ok([open("uts")?, open("ipc")?, open("net")?, open("mnt")?])
    }

    /// Those of a child that runs.
    ///
    /// # Errors
    /// If the child is gone, or we may not look at it.
    pub fn of(child: &Child) -> io::Result<Self> {
        let files = Self::open(&format!("/proc/{}/ns", child.pid))?;
        // A process that has died and been reaped may have given its number to another.
        let mut ended = [PollFd::new(&child.pidfd, PollFlags::IN)];
        if rustix::event::poll(&mut ended, Some(&Timespec::default()))? > 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self { files })
    }
}

/// A running child.
#[derive(Debug)]
pub struct Child {
    /// Its process id in our PID namespace.
    pub pid: i32,
    /// Its process descriptor.
    pub pidfd: OwnedFd,
}

/// Which step failed, and how.
#[derive(Debug)]
pub struct SpawnError {
    /// What could not be done.
    pub step: &'static str,
    /// Why.
    pub error: io::Error,
}

impl std::fmt::Display for SpawnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.error)
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_NEWNS: u64 = 0x0002_0000;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Bytes of stack for the child.
const STACK: usize = 64 << 10;

/// A pipe that nobody writes to. Only this process holds its reading end: a child sees by its writing end whether
/// the process still lives.
fn life() -> io::Result<&'static (OwnedFd, OwnedFd)> {
    static LIFE: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();
    if let Some(life) = LIFE.get() {
        return Ok(life);
    }
    let fresh = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // If another thread was faster, its pipe is used and ours closed.
    Ok(LIFE.get_or_init(|| fresh))
}

/// `clone3`; the child calls `run(argument)` on the stack that `args` has. Returns what the call does in the parent.
///
/// # Safety
/// `run` may only do what a `vfork`ed child may, and the memory behind `args` and `argument` must live until the
/// child has executed or ended.
unsafe fn clone_to(args: &CloneArgs, run: extern "C" fn(*mut c_void) -> !, argument: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: the child gets registers as they are but the result and the stack, whose end is aligned; it never
    // returns. In the parent only the call's own registers change.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {argument}",
            "call {run}",
            "ud2",
            "2:",
            argument = in(reg) argument,
            run = in(reg) run,
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

extern "C" fn child(prepared: *mut c_void) -> ! {
    // SAFETY: `spawn` passes it, and does not touch it until this has executed or ended.
    run(unsafe { &mut *prepared.cast::<Prepared<'_>>() })
}

/// Forks, confines and executes; returns once the guest kernel runs in the child.
///
/// # Errors
/// The step that failed; no child is left then.
pub fn spawn(plan: &ChildPlan<'_>) -> Result<Child, SpawnError> {
    if plan.namespaces & CLONE_NEWNS == 0 && plan.join.is_none() && !plan.privileged {
        // The child would take the root file system away from everyone.
        return Err(SpawnError {
            step: "make an empty root file system without a mount namespace",
            error: io::ErrorKind::InvalidInput.into(),
        });
    }
    let (reader, writer) =
        life().map_err(|error| SpawnError { step: "prepare the domain's process", error })?;
    let mut argv: Vec<*const libc::c_char> = plan.arguments.iter().map(|a| a.as_ptr()).collect();
    argv.push(ptr::null());
    let inside = |id: u32| if plan.privileged { 0 } else { id };
    let map = |id: u32| CString::new(format!("{} {id} 1", inside(id))).unwrap_or_default();
    let mut prepared = Prepared {
        plan,
        argv,
        uid_map: map(plan.uid),
        gid_map: map(plan.gid),
        life: writer.as_raw_fd(),
        life_reader: reader.as_raw_fd(),
        failure: None,
    };
    // Aligned as stacks are.
    let mut stack = vec![0u128; STACK / size_of::<u128>()];

    let mut pidfd: RawFd = -1;
    let into = if plan.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 };
    let args = CloneArgs {
        flags: plan.namespaces | CLONE_VM | CLONE_VFORK | CLONE_PIDFD | into,
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.as_mut_ptr().expose_provenance() as u64,
        stack_size: STACK as u64,
        cgroup: plan.cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..CloneArgs::default()
    };
    // No handler of ours runs in the child.
    let blocked = Blocked::all();
    // SAFETY: the child makes raw system calls only, on memory prepared above, which stays: CLONE_VFORK has us wait
    // until it has executed or ended.
    let pid = unsafe { clone_to(&args, child, (&raw mut prepared).cast()) };
    drop(blocked);
    if pid < 0 {
        return Err(SpawnError {
            step: "create the domain's first process with its namespaces",
            error: io::Error::from_raw_os_error(i32::try_from(-pid).unwrap_or(0)),
        });
    }
    if !plan.user_namespace && !plan.privileged {
        // Its change of user id made our memory, which was its own too, undumpable: our files in /proc would be
        // another's. It cannot fail.
        // SAFETY: changes no memory.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = i32::try_from(pid).expect("pids fit in an int");
    // SAFETY: the child wrote to it behind the compiler's back, and does so no more.
    let failure = unsafe { (&raw const prepared.failure).read_volatile() };
    let Some((step, errno)) = failure else { return Ok(Child { pid, pidfd }) };
    // It is ending by itself; it is reaped here, so errors say "gone already".
    let _ = rustix::process::waitid(
        rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
        rustix::process::WaitIdOptions::EXITED,
    );
    Err(step_failed((step, errno)))
}

fn step_failed((step, errno): steps::Failure) -> SpawnError {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    SpawnError {
        step: STEPS.get(step).copied().unwrap_or("set up the domain's process"),
        error: io::Error::from_raw_os_error(errno),
    }
}

/// Has this process, a privileged child, take steps that others are born with: a mount namespace with an empty
/// root, none but the `kept` capabilities (bit n for number n; none at all for another user), another user and group if given,
/// `no_new_privs`, and, if it is `tied`, an end with the parent's.
///
/// # Errors
/// The step that failed; or that there are several threads, of which it would be one.
pub fn confine(ids: Option<(u32, u32)>, kept: u64, tied: bool) -> Result<(), SpawnError> {
    let alone = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if !matches!(alone, Ok(1)) {
        let error = io::Error::other("it has several threads");
        return Err(SpawnError { step: "confine this process", error });
    }
    steps::confine(ids, kept, tied).map_err(step_failed)
}

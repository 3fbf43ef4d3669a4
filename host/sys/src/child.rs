//! A domain's first process: forked, confined step by step, turned into the guest kernel.
//!
//! The child shares nothing but a copy of our memory, and other threads of ours may have held any lock
//! at the moment of the fork. So everything it needs is prepared before, and between `clone3` and
//! `execveat` it makes raw system calls only: no allocation, no locks, no libc state.
//! A failing step is reported through a close-on-exec pipe, whose end-of-file means success.

use std::ffi::{CStr, CString};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

mod steps;

use steps::{Prepared, STEPS, run};

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
    /// Whether `namespaces` has a new user namespace, in which `uid` and `gid` map to themselves.
    pub user_namespace: bool,
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
    /// `oom_score_adj`, in decimal.
    pub oom_score_adj: &'a CStr,
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

/// Forks, confines and executes; returns once the guest kernel runs in the child.
///
/// The child is killed when the calling *thread* ends.
///
/// # Errors
/// The step that failed; no child is left then.
pub fn spawn(plan: &ChildPlan<'_>) -> Result<Child, SpawnError> {
    if plan.namespaces & CLONE_NEWNS == 0 {
        // The child would take the root file system away from everyone.
        return Err(SpawnError {
            step: "make an empty root file system without a mount namespace",
            error: io::ErrorKind::InvalidInput.into(),
        });
    }
    let prepare =
        |error: rustix::io::Errno| SpawnError { step: "prepare the domain's process", error: error.into() };
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(prepare)?;
    let mut argv: Vec<*const libc::c_char> = plan.arguments.iter().map(|a| a.as_ptr()).collect();
    argv.push(ptr::null());
    let map = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
    let mut prepared = Prepared {
        plan,
        argv,
        uid_map: map(plan.uid),
        gid_map: map(plan.gid),
        report: writer.as_raw_fd(),
        report_reader: reader.as_raw_fd(),
    };

    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: plan.namespaces | CLONE_PIDFD | if plan.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 },
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: plan.cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM this is a fork. The child runs `run`, which only makes raw system calls
    // on memory prepared above, and never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid == 0 {
        run(&mut prepared);
    }
    if pid < 0 {
        return Err(SpawnError {
            step: "create the domain's first process with its namespaces",
            error: io::Error::last_os_error(),
        });
    }
    drop(writer);
    // SAFETY: CLONE_PIDFD stored a new descriptor, which nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = i32::try_from(pid).expect("pids fit in an int");

    let mut report = [0u8; 8];
    let mut reader = std::fs::File::from(reader);
    let problem = match reader.read(&mut report) {
        Ok(0) => return Ok(Child { pid, pidfd }),
        Ok(8) => {
            let [s0, s1, s2, s3, e0, e1, e2, e3] = report;
            let step = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).unwrap_or(usize::MAX);
            SpawnError {
                step: STEPS.get(step).copied().unwrap_or("set up the domain's process"),
                error: io::Error::from_raw_os_error(i32::from_le_bytes([e0, e1, e2, e3])),
            }
        }
        Ok(_) => {
            SpawnError { step: "set up the domain's process", error: io::ErrorKind::UnexpectedEof.into() }
        }
        Err(error) => SpawnError { step: "hear from the domain's process", error },
    };
    // It is ending by itself or must end now; either way it is reaped here, so errors say "gone already".
    let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
    let _ = rustix::process::waitid(
        rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
        rustix::process::WaitIdOptions::EXITED,
    );
    Err(problem)
}

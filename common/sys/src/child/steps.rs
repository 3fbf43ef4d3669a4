//! The child's side of a domain's birth: one confining step after the other.
//!
//! Runs between `clone3` and `execveat` in the memory of a process that has other threads: raw system calls only,
//! on memory that the parent prepared. No allocation, no locks, no panics.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use super::{CLONE_NEWNS, ChildPlan};

/// Steps of the child, in order; the text completes "cannot …".
pub(super) const STEPS: &[&str] = &[
    "reset signals",
    "join the domain's control groups",
    "set oom_score_adj",
    "map the user into its user namespace",
    "start a session",
    "make an empty root file system",
    "drop capabilities",
    "take the domain's user id",
    "set no_new_privs",
    "arrange descriptors",
    "set resource limits",
    "tie the domain's life to this process",
    "execute the guest kernel",
    "join namespaces",
    "keep the CPU from guessing",
    "make namespaces",
];
const SIGNALS: u32 = 0;
const CGROUP: u32 = 1;
const OOM: u32 = 2;
const USER_MAP: u32 = 3;
const SESSION: u32 = 4;
const ROOT: u32 = 5;
const CAPABILITIES: u32 = 6;
const IDENTITY: u32 = 7;
const NO_NEW_PRIVS: u32 = 8;
const DESCRIPTORS: u32 = 9;
const LIMITS: u32 = 10;
const LIFE: u32 = 11;
const EXECUTE: u32 = 12;
const JOIN: u32 = 13;
const SPECULATION: u32 = 14;
const NAMESPACES: u32 = 15;

/// Descriptors are first moved here and above, so that no move overwrites a source.
const PARKING: RawFd = 64;
/// Most descriptors a child has.
const MOST_DESCRIPTORS: usize = 32;
const CLOSE_RANGE_CLOEXEC: u32 = 4;
/// Of `linux/prctl.h`.
const PR_SET_SPECULATION_CTRL: u32 = 53;
const PR_SPEC_FORCE_DISABLE: u32 = 8;

/// Everything the child needs, in the form in which system calls take it.
pub(super) struct Prepared<'a> {
    pub plan: &'a ChildPlan<'a>,
    pub argv: Vec<*const libc::c_char>,
    pub uid_map: CString,
    pub gid_map: CString,
    /// See `super::life`.
    pub life: RawFd,
    pub life_reader: RawFd,
    /// The step that failed, and why.
    pub failure: Option<Failure>,
}

/// A raw system call: arguments are integers or addresses of memory that outlives the call.
macro_rules! call {
    ($step:expr, $number:ident $(, $arg:expr)* $(,)?) => {{
        // SAFETY: runs in the forked child on memory of its own; each pointer passed is valid for what
        // the call does with it (strings are NUL-terminated constants or prepared CStrings).
        let result = unsafe { libc::syscall(libc::$number $(, $arg.word())*) };
        if result < 0 { Err(($step, errno())) } else { Ok(result) }
    }};
}

/// The child: never returns.
pub(super) fn run(prepared: &mut Prepared<'_>) -> ! {
    let failure = match confine_and_execute(prepared) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    // SAFETY: a field of a structure that is exclusively ours; the parent reads it when this process has ended.
    unsafe { (&raw mut prepared.failure).write_volatile(Some(failure)) };
    loop {
        let _ = call!(LIFE, SYS_exit_group, 125);
    }
}

/// An argument of a raw system call, widened to a whole register.
trait Word {
    fn word(self) -> usize;
}

macro_rules! integer_words {
    ($($t:ty),*) => {$(
        impl Word for $t {
            fn word(self) -> usize { self as usize }
        }
    )*};
}

integer_words!(i32, u32, i64, u64, usize);

impl<T> Word for *const T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

fn errno() -> i32 {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// Step and errno.
pub(super) type Failure = (u32, i32);

/// There is no value of it: success is a process that runs something else.
enum Never {}

/// The steps that a process of ours takes itself once it has opened what it needs.
pub(super) fn confine(ids: Option<(u32, u32)>, kept: u64, tied: bool) -> Result<(), Failure> {
    // Its own, whoever called this: the host's root must not go.
    call!(ROOT, SYS_unshare, CLONE_NEWNS)?;
    empty_root()?;
    drop_privileges(ids, kept)?;
    if tied {
        // Cleared by the change of user id. Whoever is to see the parent's end before this sees it otherwise.
        call!(LIFE, SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)?;
    }
    Ok(())
}

fn confine_and_execute(p: &mut Prepared<'_>) -> Result<Never, Failure> {
    let plan = p.plan;
    // Only the parent holds the reading end, so that its death shows as POLLERR.
    call!(LIFE, SYS_close, p.life_reader)?;
    reset_signals()?;
    for tasks in plan.cgroup_tasks {
        call!(CGROUP, SYS_write, tasks.as_raw_fd(), c"0".as_ptr(), 1)?;
    }
    write_file(OOM, c"/proc/self/oom_score_adj", plan.oom_score_adj)?;
    if plan.user_namespace {
        write_file(USER_MAP, c"/proc/self/setgroups", c"deny")?;
        write_file(USER_MAP, c"/proc/self/uid_map", &p.uid_map)?;
        write_file(USER_MAP, c"/proc/self/gid_map", &p.gid_map)?;
    }
    forswear(plan.speculation)?;
    call!(SESSION, SYS_setsid)?;
    call!(SESSION, SYS_personality, 0)?;
    match plan.join {
        _ if plan.privileged && plan.namespaces & CLONE_NEWNS == 0 => {}
        _ if plan.privileged => own_view()?,
        // The mount namespace's root becomes the child's root and working directory.
        Some(namespaces) => {
            for file in &namespaces.files {
                call!(JOIN, SYS_setns, file.as_raw_fd(), 0)?;
            }
        }
        None => empty_root()?,
    }
    if !plan.privileged {
        drop_privileges((!plan.user_namespace).then_some((plan.uid, plan.gid)), 0)?;
    }
    let executable = arrange_descriptors(p)?;
    set_limits(plan.limits)?;
    // After the change of user id, which clears it.
    if plan.tied {
        tie_to_parent(p.life)?;
    }
    let environment = [ptr::null::<libc::c_char>()];
    let (argv, envp) = (p.argv.as_ptr(), environment.as_ptr());
    call!(EXECUTE, SYS_execveat, executable, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH)?;
    Err((EXECUTE, libc::ENOEXEC))
}

fn reset_signals() -> Result<(), Failure> {
    // struct sigaction of the kernel: handler SIG_DFL, no flags, no restorer, empty mask.
    let default = [0u64; 4];
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            call!(SIGNALS, SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<u64>(), 8)?;
        }
    }
    let none = 0u64;
    call!(SIGNALS, SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, ptr::null::<u64>(), 8)?;
    Ok(())
}

fn write_file(step: u32, path: &CStr, text: &CStr) -> Result<(), Failure> {
    let fd = call!(step, SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC)?;
    call!(step, SYS_write, fd, text.as_ptr(), text.count_bytes())?;
    call!(step, SYS_close, fd)?;
    Ok(())
}

/// Gives the calling thread new namespaces of these kinds, and what it must not share for that.
pub(super) fn leave_namespaces(kinds: u64) -> Result<(), Failure> {
    call!(NAMESPACES, SYS_unshare, kinds)?;
    Ok(())
}

/// Leaves the process in a mount namespace whose only mount is an empty read-only tmpfs.
pub(super) fn empty_root() -> Result<(), Failure> {
    let none = ptr::null::<libc::c_char>();
    // Nothing done here may show in the host's mount namespace.
    let private = libc::MS_REC | libc::MS_PRIVATE;
    call!(ROOT, SYS_mount, none, c"/".as_ptr(), none, private, none)?;
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let options = c"size=4k,nr_inodes=2,mode=555".as_ptr();
    // Any existing directory would do as a mount point; /proc is there, as it was just used.
    call!(ROOT, SYS_mount, c"doppel".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), flags, options)?;
    call!(ROOT, SYS_chdir, c"/proc".as_ptr())?;
    if call!(ROOT, SYS_pivot_root, c".".as_ptr(), c".".as_ptr()).is_ok() {
        call!(ROOT, SYS_umount2, c".".as_ptr(), libc::MNT_DETACH)?;
    } else {
        // The host runs from its initial RAM disk, which cannot be pivoted away: cover it instead.
        call!(ROOT, SYS_mount, c".".as_ptr(), c"/".as_ptr(), none, libc::MS_MOVE, none)?;
        call!(ROOT, SYS_chroot, c".".as_ptr())?;
    }
    call!(ROOT, SYS_chdir, c"/".as_ptr())?;
    Ok(())
}

/// What is mounted from now on shows nowhere else, and what is mounted elsewhere not here.
fn own_view() -> Result<(), Failure> {
    let none = ptr::null::<libc::c_char>();
    call!(ROOT, SYS_mount, none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none)?;
    Ok(())
}

/// Leaves the process with these capabilities at most (bit n for number n), for ever, and as this user and group. Who becomes
/// another user keeps none.
fn drop_privileges(ids: Option<(u32, u32)>, kept: u64) -> Result<(), Failure> {
    for capability in (0..64).filter(|n| kept >> n & 1 == 0) {
        match call!(CAPABILITIES, SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0) {
            Ok(_) => {}
            // Beyond the last capability of this kernel.
            Err((_, libc::EINVAL)) => break,
            Err(failure) => return Err(failure),
        }
    }
    // NOROOT and NO_CAP_AMBIENT_RAISE, both locked: no uid ever means capabilities again.
    call!(CAPABILITIES, SYS_prctl, libc::PR_SET_SECUREBITS, 0x03 | 0xc0, 0, 0, 0)?;
    if let Some((uid, gid)) = ids {
        call!(IDENTITY, SYS_setgroups, 0, ptr::null::<libc::gid_t>())?;
        call!(IDENTITY, SYS_setresgid, gid, gid, gid)?;
        call!(IDENTITY, SYS_setresuid, uid, uid, uid)?;
    }
    // _LINUX_CAPABILITY_VERSION_3 for this thread, then two sets of (effective, permitted, inheritable), the last one empty.
    let header = [0x2008_0522u32, 0];
    let kept = if ids.is_some() { 0 } else { kept };
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let sets = [low, low, 0, high, high, 0];
    call!(CAPABILITIES, SYS_capset, header.as_ptr(), sets.as_ptr())?;
    call!(NO_NEW_PRIVS, SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    Ok(())
}

fn arrange_descriptors(p: &mut Prepared<'_>) -> Result<i64, Failure> {
    let descriptors = p.plan.descriptors;
    let park = |fd: RawFd| call!(DESCRIPTORS, SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, PARKING);
    let executable = park(p.plan.executable.as_raw_fd())?;
    // The old number may be overwritten below.
    p.life = park(p.life)? as RawFd;
    let mut parked = [0i64; MOST_DESCRIPTORS];
    if descriptors.len() > parked.len() {
        return Err((DESCRIPTORS, libc::EINVAL));
    }
    for (slot, fd) in parked.iter_mut().zip(descriptors) {
        *slot = park(fd.as_raw_fd())?;
    }
    // Everything is closed on exec, wherever it came from, except the copies made next.
    call!(DESCRIPTORS, SYS_close_range, 0, u32::MAX, CLOSE_RANGE_CLOEXEC)?;
    for (target, fd) in parked.iter().take(descriptors.len()).enumerate() {
        call!(DESCRIPTORS, SYS_dup3, *fd, target, 0)?;
    }
    Ok(executable)
}

fn set_limits(limits: &[(u32, u64)]) -> Result<(), Failure> {
    for (resource, value) in limits {
        let mut old = [0u64; 2];
        call!(LIMITS, SYS_prlimit64, 0, *resource, ptr::null::<u64>(), old.as_mut_ptr())?;
        let value = (*value).min(old[1]);
        let new = [value, value];
        call!(LIMITS, SYS_prlimit64, 0, *resource, new.as_ptr(), ptr::null::<u64>())?;
    }
    Ok(())
}

/// Ends these guesses of the CPU in this process and all it starts. A host whose CPUs do not make them, or that was booted
/// without such controls, refuses: there is nothing to be had then.
fn forswear(guesses: &[u64]) -> Result<(), Failure> {
    for guess in guesses {
        match call!(SPECULATION, SYS_prctl, PR_SET_SPECULATION_CTRL, *guess, PR_SPEC_FORCE_DISABLE, 0, 0) {
            Ok(_) | Err((_, libc::ENODEV | libc::ENXIO | libc::EPERM | libc::EINVAL)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Makes the host kill this process when the parent's thread ends.
fn tie_to_parent(life: RawFd) -> Result<(), Failure> {
    call!(LIFE, SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)?;
    // If the parent died before that, nobody holds the reading end any more.
    let mut poll = libc::pollfd { fd: life, events: 0, revents: 0 };
    call!(LIFE, SYS_poll, &raw mut poll, 1, 0)?;
    if poll.revents & libc::POLLERR != 0 {
        return Err((LIFE, libc::ESRCH));
    }
    Ok(())
}

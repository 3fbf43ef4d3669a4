//! Process descriptors (`pidfd_open(2)`): readable once the process has exited.

use alloc::format;
use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;

use crate::fs::file::{Splice, flags, poll};
use crate::fs::{File, FileOps};
use crate::sched::PollTable;
use crate::syscall::Arg::{Fd, Hex, Int};
use crate::syscall::Support::Full;
use crate::syscall::{Args, Syscall, call};
use crate::task::Process;
use crate::task::current_ref;
use crate::{Errno, Result, kernel};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call(nr::PIDFD_OPEN, sys_pidfd_open, Full, &[Int, Hex], ""),
    call(nr::PIDFD_GETFD, sys_pidfd_getfd, Full, &[Fd, Int, Hex], ""),
];

/// What a process descriptor refers to.
pub struct PidFd {
    process: Arc<Process>,
}

impl PidFd {
    /// The process.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl FileOps for PidFd {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> u32 {
        if let Some(t) = table {
            t.add(&self.process.exit_wait);
        }
        if self.process.is_zombie() { poll::POLLIN | poll::POLLRDNORM } else { 0 }
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        let pid = if self.process.is_zombie() { -1 } else { self.process.pid };
        out.push_str(&format!("Pid:\t{pid}\nNSpid:\t{pid}\n"));
    }
}

/// A new descriptor of the calling thread for `target`.
pub fn open(target: &Arc<Process>) -> Result<i32> {
    open_with(target, 0)
}

fn open_with(target: &Arc<Process>, extra: u32) -> Result<i32> {
    let ops = Arc::new(PidFd { process: target.clone() });
    current_ref().files().insert(File::anon(ops, "anon_inode:[pidfd]".into(), flags::O_RDWR | extra), true)
}

/// The process behind a descriptor of the calling thread; EBADF if it is no process descriptor.
pub fn process_of(fd: i32) -> Result<Arc<Process>> {
    let thread = current_ref();
    let file = thread.file(fd)?;
    file.downcast::<PidFd>().map(|p| p.process.clone()).ok_or(Errno::EBADF)
}

/// The pid behind a descriptor of the calling thread.
pub fn pid_of(fd: i32) -> Result<i32> {
    process_of(fd).map(|p| p.pid)
}

fn sys_pidfd_open(args: &Args) -> Result<u64> {
    /// PIDFD_NONBLOCK
    const ALLOWED: u32 = flags::O_NONBLOCK;
    let (pid, f) = (args.i32(0), args.u32(1));
    if f & !ALLOWED != 0 || pid <= 0 {
        return Err(Errno::EINVAL);
    }
    let target = kernel().process(pid).map_err(|e| {
        // A thread that leads no group.
        if kernel().thread(pid).is_ok() { Errno::EINVAL } else { e }
    })?;
    let fd = open_with(&target, f & flags::O_NONBLOCK)?;
    Ok(u64::from(fd.unsigned_abs()))
}

fn sys_pidfd_getfd(args: &Args) -> Result<u64> {
    if args.u32(2) != 0 {
        return Err(Errno::EINVAL);
    }
    let target = process_of(args.i32(0))?;
    let (mine, theirs) = (args.thread.cred(), target.cred());
    let same = [theirs.ruid, theirs.euid, theirs.suid].iter().all(|u| *u == mine.fsuid);
    if !same && !mine.capable(CAP_SYS_PTRACE) {
        return Err(Errno::EPERM);
    }
    if target.is_zombie() {
        return Err(Errno::ESRCH);
    }
    let file = target.files().get(args.i32(1))?;
    let fd = args.thread.files().insert(file, true)?;
    Ok(u64::from(fd.unsigned_abs()))
}

const CAP_SYS_PTRACE: u32 = 19;

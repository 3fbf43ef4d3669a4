//! What making a container of the host's own namespaces takes besides `rustix`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Shows the owners of files below a mount that is not attached yet as a user namespace maps them, and the files without
/// devices and, if said so, read-only.
///
/// # Errors
/// What the host says: the file system must allow it (EROFS does from Linux 5.19 on, ext4 from 5.12 on).
pub fn map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let user_namespace = u64::try_from(users.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let only = if read_only { MOUNT_ATTR_RDONLY } else { 0 };
    let set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | only;
    set_attributes(mount, &MountAttr { set, user_namespace, ..MountAttr::default() })
}

/// Shows files below a mount that is not attached yet without devices and set-user-ID bits, and, if said so, read-only.
///
/// # Errors
/// What the host says.
pub fn restrict(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let only = if read_only { MOUNT_ATTR_RDONLY } else { 0 };
    set_attributes(
        mount,
        &MountAttr { set: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | only, ..MountAttr::default() },
    )
}

fn set_attributes(mount: BorrowedFd<'_>, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: an empty path and a structure of that size, both of which the kernel only reads.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A user namespace in which ids from 0 on are ours from `first` on, `count` of them.
///
/// # Errors
/// What the host says.
pub fn users(first: u32, count: u32) -> io::Result<OwnedFd> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: as fork: no memory is shared. The child makes one call again and again, and touches nothing.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        loop {
            // SAFETY: takes no argument; a signal ends the process.
            unsafe { libc::syscall(libc::SYS_pause) };
        }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let map = format!("0 {first} {count}");
    let made = ["uid_map", "gid_map"]
        .iter()
        .try_for_each(|file| std::fs::write(format!("/proc/{pid}/{file}"), &map))
        .and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
    let pid = i32::try_from(pid).expect("pids fit in an int");
    // SAFETY: a child of ours that nobody has reaped yet; both only fail without one.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    made.map(OwnedFd::from)
}

/// Has the calling thread alone see files as a process does, whose mount namespace and root directory it gets.
///
/// # Errors
/// What the host says.
pub fn enter_mounts(process: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: gives this thread a working directory and root of its own; no memory is touched.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: changes what names mean, no memory.
    let done = unsafe { libc::setns(process.as_raw_fd(), libc::CLONE_NEWNS) };
    if done != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Switches on the loopback device of the calling thread's network namespace.
///
/// # Errors
/// What the host says.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).expect("a bit of a short");
    // SAFETY: the kernel reads the structure.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Who returns from [`join_and_fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old one; the child's process id.
    Parent(i32),
}

/// Goes over to the user, mount, UTS, IPC, network, cgroup, time and PID namespaces of a process, all or none, and
/// forks, as it takes to get into the last of them. For a process with one thread.
///
/// # Errors
/// What the host says; or that the process has several threads, whose locks the child would find taken for ever.
pub fn join_and_fork(process: BorrowedFd<'_>) -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads does not fork"));
    }
    let all = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWTIME;
    // SAFETY: changes what names mean, no memory.
    if unsafe { libc::setns(process.as_raw_fd(), all) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: there is no other thread, so the child is whole.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        pid if pid > 0 => Ok(Forked::Parent(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the terminal that standard input is the calling process' own; it must lead a session.
///
/// # Errors
/// What the host says.
pub fn take_terminal() -> io::Result<()> {
    // SAFETY: takes an integer.
    let done = unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

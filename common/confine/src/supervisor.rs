//! What our own privileged processes keep of root's rights: the supervisor, keepers, and attendants of paene domains.
//!
//! They start domains, mount images, make namespaces and control groups, and read hostile memory. Whoever took one over would
//! have what is listed here, and no way to the host's kernel that none of them needs: modules, kexec, raw I/O, clocks, swap,
//! keyrings, io_uring, userfaultfd, perf. Everything they start inherits the list, so it has all that a container's programs
//! may call ([`crate::container`]), whose own filter says less.

use doppel_abi_linux::syscalls::nr;

use crate::bpf::{Instruction, program};
use crate::container;

/// A capability that is kept.
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// What for.
    pub why: &'static str,
}

pub(crate) const fn capability(number: u32, name: &'static str, why: &'static str) -> Capability {
    Capability { number, name, why }
}

/// Capabilities that are kept; the bounding set has no others.
pub const CAPABILITIES: &[Capability] = &[
    capability(0, "CAP_CHOWN", "the socket's group; owners of unpacked images and of a container's layer"),
    capability(
        1,
        "CAP_DAC_OVERRIDE",
        "files of domains' processes in /proc, control groups, a container's layer",
    ),
    capability(2, "CAP_DAC_READ_SEARCH", "the same, for reading"),
    capability(3, "CAP_FOWNER", "modes, times and attributes of unpacked images"),
    capability(4, "CAP_FSETID", "set-group-ID bits of unpacked images"),
    capability(5, "CAP_KILL", "signals to domains, which are other users"),
    capability(6, "CAP_SETGID", "a domain's group id"),
    capability(7, "CAP_SETUID", "a domain's user id"),
    capability(8, "CAP_SETPCAP", "an empty bounding set for domains"),
    capability(10, "CAP_NET_BIND_SERVICE", "ports below 1024 that are published"),
    capability(12, "CAP_NET_ADMIN", "a container's network device"),
    capability(18, "CAP_SYS_CHROOT", "entering a container's mount namespace"),
    capability(
        19,
        "CAP_SYS_PTRACE",
        "reading a domain's memory to freeze it, and taking its descriptors over",
    ),
    capability(21, "CAP_SYS_ADMIN", "namespaces, mounts, loop devices, device rules of control groups"),
    capability(23, "CAP_SYS_NICE", "the arbiter's thread comes before domains"),
    capability(24, "CAP_SYS_RESOURCE", "limits and oom_score_adj of domains"),
    capability(27, "CAP_MKNOD", "device files of unpacked images, as overlay's marks of what is removed"),
    capability(31, "CAP_SETFCAP", "file capabilities of unpacked images; user namespaces of containers"),
];

/// Those that an attendant keeps when its container runs: it signals the container's processes, and its helpers enter the
/// container's namespaces to start further programs.
pub const ATTENDANT: &[Capability] = &[
    capability(1, "CAP_DAC_OVERRIDE", "files of the container's processes in /proc"),
    capability(2, "CAP_DAC_READ_SEARCH", "the same, for reading"),
    capability(5, "CAP_KILL", "signals"),
    capability(6, "CAP_SETGID", "the program's groups"),
    capability(7, "CAP_SETUID", "the program's user"),
    capability(8, "CAP_SETPCAP", "the program's bounding set"),
    capability(18, "CAP_SYS_CHROOT", "entering the mount namespace"),
    capability(19, "CAP_SYS_PTRACE", "the same: its processes are other users"),
    capability(21, "CAP_SYS_ADMIN", "entering namespaces"),
    capability(24, "CAP_SYS_RESOURCE", "limits and oom_score_adj"),
];

/// What domains and their network service call most, so that it costs least there.
const HOT: &[u32] = &[
    nr::FUTEX,
    nr::FUTEX_WAITV,
    nr::WRITE,
    nr::MMAP,
    nr::MUNMAP,
    nr::MPROTECT,
    nr::MADVISE,
    nr::READ,
    nr::EPOLL_WAIT,
    nr::SENDTO,
    nr::RECVFROM,
    nr::SENDMSG,
    nr::RECVMSG,
];

/// What they need beyond what a container's programs may call.
const MORE: &[u32] = &[
    // Loop devices.
    nr::IOCTL,
    // Processes with namespaces of their own, and sockets of the host's network.
    nr::CLONE,
    nr::CLONE3,
    nr::SOCKET,
    nr::UNSHARE,
    nr::SETNS,
    nr::PERSONALITY,
    nr::SETHOSTNAME,
    nr::SETDOMAINNAME,
    // Images and layers.
    nr::PIVOT_ROOT,
    nr::MOUNT,
    nr::UMOUNT2,
    nr::OPEN_TREE,
    nr::MOVE_MOUNT,
    nr::FSOPEN,
    nr::FSCONFIG,
    nr::FSMOUNT,
    nr::FSPICK,
    nr::MOUNT_SETATTR,
    // Device rules of control groups are programs on v2.
    nr::BPF,
    // A domain's memory and descriptors when another keeper takes it over.
    nr::PIDFD_GETFD,
    nr::KCMP,
    nr::PROCESS_MADVISE,
];

/// Calls that are allowed, the hottest first.
fn allowed() -> Vec<u32> {
    HOT.iter().chain(container::ALLOWED).chain(MORE).copied().collect()
}

/// The program for seccomp. What is not on the list fails with EPERM.
#[must_use]
pub fn filter() -> Vec<Instruction> {
    program(&[], &allowed(), &[])
}

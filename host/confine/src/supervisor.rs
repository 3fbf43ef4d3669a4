//! What our own privileged processes keep of root's rights: the supervisor, keepers, and attendants of paene domains.
//!
//! They start domains, mount images, make namespaces and control groups, and read hostile memory. Whoever took one over would
//! have what is listed here, and no way to the host's kernel that none of them needs: modules, kexec, raw I/O, clocks, swap,
//! keyrings, io_uring, userfaultfd, perf. Everything they start inherits the list, so it has all that a container's programs
//! may call ([`crate::container`]), whose own filter says less.

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

const fn capability(number: u32, name: &'static str, why: &'static str) -> Capability {
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
const HOT: &[(u32, &str)] = &[
    (202, "futex"),
    (449, "futex_waitv"),
    (1, "write"),
    (9, "mmap"),
    (11, "munmap"),
    (10, "mprotect"),
    (28, "madvise"),
    (0, "read"),
    (232, "epoll_wait"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
];

/// What they need beyond what a container's programs may call.
const MORE: &[(u32, &str)] = &[
    // Processes with namespaces of their own, and sockets of the host's network.
    (56, "clone"),
    (435, "clone3"),
    (41, "socket"),
    (272, "unshare"),
    (308, "setns"),
    (135, "personality"),
    (170, "sethostname"),
    (171, "setdomainname"),
    // Images and layers.
    (155, "pivot_root"),
    (165, "mount"),
    (166, "umount2"),
    (428, "open_tree"),
    (429, "move_mount"),
    (430, "fsopen"),
    (431, "fsconfig"),
    (432, "fsmount"),
    (433, "fspick"),
    (442, "mount_setattr"),
    // Device rules of control groups are programs on v2.
    (321, "bpf"),
    // A domain's memory and descriptors when another keeper takes it over.
    (438, "pidfd_getfd"),
    (312, "kcmp"),
    (440, "process_madvise"),
];

/// Calls that are allowed, the hottest first.
fn allowed() -> Vec<(u32, &'static str)> {
    HOT.iter().chain(container::ALLOWED).chain(MORE).copied().collect()
}

/// The program for seccomp. What is not on the list fails with EPERM.
#[must_use]
pub fn filter() -> Vec<Instruction> {
    program(&[], &allowed(), &[])
}

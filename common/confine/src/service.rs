//! What a service domain's process may ask of the host, and what it is born with.
//!
//! It runs code of ours alone, so calls may come from any instruction; what it has open and mapped before it is confined
//! stays. After that it cannot open a file, make executable memory, start a process or thread, or leave.

use doppel_abi_linux::syscalls::nr;

use crate::bpf::{Instruction, program};
use crate::limits::Limit;
use crate::supervisor::Capability;
use crate::{Check, Rule, Site, Test};

/// `CLONE_NEW*` flags of its process: cgroup, UTS, IPC and PID namespaces. It makes its mount namespace when it has opened
/// what it needs; it speaks for the host, so that its network namespace is the host's.
pub const NAMESPACES: u64 = 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000;
/// When the host runs out of memory it goes after domains, and before what is not ours.
pub const OOM_SCORE_ADJ: i32 = 100;
/// `RLIMIT_NPROC`.
pub const NPROC: u32 = 6;

/// Limits it is born with, but for NPROC of one that has several threads, which it sets when it has them. That of descriptors is the host's: a connection is one.
pub const LIMITS: &[Limit] = &[
    Limit {
        resource: 4,
        name: "CORE",
        value: 1,
        why: "no core dumps, by pipes neither: what domains send is in its memory",
    },
    Limit { resource: NPROC, name: "NPROC", value: 0, why: "no process or thread" },
    Limit { resource: 8, name: "MEMLOCK", value: 0, why: "no locked memory" },
    Limit { resource: 12, name: "MSGQUEUE", value: 0, why: "no message queues" },
    Limit { resource: 13, name: "NICE", value: 0, why: "no priority above the default" },
    Limit { resource: 14, name: "RTPRIO", value: 0, why: "no real-time priority" },
];

/// One kind of service domain.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The calls of its own work, hottest first. Everything but these and [`COMMON`] fails with EPERM.
    pub own: &'static [Rule],
    /// Its threads: most tasks of its control group.
    pub tasks: u32,
    /// What it keeps of root's rights, if root starts it.
    pub capabilities: &'static [Capability],
}

impl Service {
    /// All calls it may make: those of its own work, then the common ones.
    #[must_use]
    pub fn allowed(&self) -> Vec<Rule> {
        [self.own, COMMON].concat()
    }

    /// The program for seccomp.
    #[must_use]
    pub fn filter(&self) -> Vec<Instruction> {
        program(&self.allowed(), &[], &[])
    }
}

/// The network service: it has no rights and speaks for the host.
pub const NETWORK: Service = Service { own: OWN, tasks: 1, capabilities: &[] };

/// SIGABRT.
const ABORT: u64 = 6;
/// Everything of `prot` but reading and writing.
pub(crate) const NOT_READ_WRITE: u64 = !3;
/// `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const SOCKET_FLAGS: u64 = 0x80800;
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;

pub(crate) const fn one_of(arg: u8, name: &'static str, values: &'static [u32]) -> Check {
    Check { arg, name, test: Test::OneOf(values) }
}

pub(crate) const fn is(arg: u8, name: &'static str, value: u64) -> Check {
    Check { arg, name, test: Test::Is(value) }
}

const fn kind(value: u64) -> Check {
    Check { arg: 1, name: "type", test: Test::Masked { mask: !SOCKET_FLAGS, value } }
}

/// AF_INET, AF_INET6.
const INTERNET: Check = one_of(0, "domain", &[2, 10]);

pub(crate) const fn rule(
    number: u32,
    any_of: &'static [&'static [Check]],
    arguments: &'static str,
    why: &'static str,
) -> Rule {
    Rule { number, site: Site::Gate, any_of, arguments, why }
}

pub(crate) const fn any(number: u32, why: &'static str) -> Rule {
    rule(number, &[], "any", why)
}

/// What the network service does.
const OWN: &[Rule] = &[
    any(nr::READ, "streams, from the host's socket into a channel; doorbells"),
    any(nr::WRITE, "streams, from a channel to the host's socket; bells; the log"),
    any(nr::EPOLL_WAIT, "wait for work"),
    any(nr::EPOLL_CTL, "sockets and doorbells to wait for"),
    any(nr::FUTEX, "wake a vCPU or a supervisor that sleeps on a word they share"),
    any(nr::PREAD64, "the host's load, whose file is open"),
    any(nr::SENDTO, "datagrams; the log of rules; which addresses are the host's"),
    any(nr::RECVFROM, "datagrams; the host's addresses"),
    any(nr::SENDMSG, "datagrams with a source"),
    any(nr::RECVMSG, "orders of the supervisor, with descriptors"),
    any(nr::CLOSE, "sockets that have ended"),
    any(nr::ACCEPT, "callers at published ports"),
    rule(
        nr::SOCKET,
        &[
            &[INTERNET, kind(STREAM), one_of(2, "protocol", &[0, 6])],
            // IP, UDP, ICMP, ICMPv6
            &[INTERNET, kind(DATAGRAM), one_of(2, "protocol", &[0, 17, 1, 58])],
        ],
        "domain AF_INET or AF_INET6; type SOCK_STREAM for TCP, SOCK_DGRAM for UDP and ICMP echo",
        "a domain's sockets; no raw, packet, netlink or local ones",
    ),
    any(nr::CONNECT, "a domain's connections, by its rules"),
    any(nr::BIND, "a port of the host's choice for datagrams"),
    any(nr::SHUTDOWN, "half-close"),
    any(nr::GETSOCKNAME, "what the host has chosen"),
    any(nr::GETPEERNAME, "who calls"),
    rule(
        nr::SOCKETPAIR,
        &[&[is(0, "domain", 1), kind(STREAM), is(2, "protocol", 0)]],
        "domain AF_UNIX, type SOCK_STREAM",
        "a connection between two domains",
    ),
    rule(
        nr::SETSOCKOPT,
        &[
            // REUSEADDR, BROADCAST, SNDBUF, RCVBUF, KEEPALIVE, OOBINLINE, PRIORITY, LINGER, REUSEPORT, BUF_LOCK
            &[is(1, "level", 1), one_of(2, "option", &[2, 6, 7, 8, 9, 10, 12, 13, 15, 72])],
            // TOS, TTL, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, BIND_ADDRESS_NO_PORT
            &[is(1, "level", 0), one_of(2, "option", &[1, 2, 8, 10, 11, 12, 13, 24])],
            // NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP, QUICKACK,
            // CONGESTION, USER_TIMEOUT, FASTOPEN, NOTSENT_LOWAT
            &[is(1, "level", 6), one_of(2, "option", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 18, 23, 25])],
            // UNICAST_HOPS, MTU_DISCOVER, RECVERR, V6ONLY, RECVPKTINFO, RECVHOPLIMIT, RECVTCLASS, TCLASS
            &[is(1, "level", 41), one_of(2, "option", &[16, 23, 25, 26, 49, 51, 66, 67])],
        ],
        "those of SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP and IPPROTO_IPV6 that domains may set; no filters, marks, devices, ULPs or tables",
        "a domain's socket options",
    ),
    any(nr::GETSOCKOPT, "errors of connections"),
    rule(
        nr::FCNTL,
        // DUPFD_CLOEXEC, GETFD, SETFD, GETFL, SETFL, GET_SEALS
        &[&[one_of(1, "command", &[1030, 1, 2, 3, 4, 1034])]],
        "command F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL or F_GET_SEALS",
        "flags of sockets; whether a channel is sealed",
    ),
    rule(
        nr::IOCTL,
        // FIONBIO, FIONREAD, SIOCOUTQ, SIOCATMARK
        &[&[one_of(1, "request", &[0x5421, 0x541b, 0x5411, 0x8905])]],
        "request FIONBIO, FIONREAD, SIOCOUTQ or SIOCATMARK",
        "sockets that do not block; what waits in them",
    ),
    any(nr::MINCORE, "which pages of a buffer a domain has touched"),
];

/// What any service domain's process does with its memory, and as it begins and ends. None of it is hot.
const COMMON: &[Rule] = &[
    any(nr::FSTAT, "whether a channel has its size"),
    rule(
        nr::MMAP,
        &[&[Check { arg: 2, name: "prot", test: Test::Masked { mask: NOT_READ_WRITE, value: 0 } }]],
        "prot of READ, WRITE",
        "channels; memory of its own",
    ),
    any(nr::MUNMAP, "channels that are closed; memory of its own"),
    any(nr::MREMAP, "memory of its own"),
    any(nr::BRK, "memory of its own"),
    rule(
        nr::MADVISE,
        // DONTNEED, REMOVE, FREE
        &[&[one_of(2, "advice", &[4, 9, 8])]],
        "advice DONTNEED, REMOVE or FREE",
        "give buffers of a channel back",
    ),
    any(nr::GETRANDOM, "seeds of tables"),
    any(nr::CLOCK_GETTIME, "time, where the host's kernel has to be asked for it"),
    any(nr::RESTART_SYSCALL, "goes on after it was stopped"),
    any(nr::RT_SIGACTION, "a crash ends it"),
    any(nr::RT_SIGPROCMASK, "abort"),
    any(nr::RT_SIGRETURN, "a crash ends it"),
    any(nr::SIGALTSTACK, "end"),
    any(nr::GETPID, "abort"),
    any(nr::GETTID, "abort"),
    rule(
        nr::TGKILL,
        &[&[is(2, "signal", ABORT)]],
        "signal SIGABRT",
        "abort; nobody else is in its PID namespace",
    ),
    any(nr::EXIT, "end"),
    any(nr::EXIT_GROUP, "end"),
];

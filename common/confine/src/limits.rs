//! Resource limits and namespaces of domain processes.

/// A resource limit, soft and hard alike.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// `RLIMIT_*` number.
    pub resource: u32,
    /// Its name.
    pub name: &'static str,
    /// The value; lowered to the host's own hard limit where that is less.
    pub value: u64,
    /// Why.
    pub why: &'static str,
}

/// Most host processes and threads of one domain.
pub const MAX_TASKS: u64 = 4096;

/// Limits set in the domain's first process; every other process inherits them.
pub const LIMITS: &[Limit] = &[
    Limit { resource: 1, name: "FSIZE", value: 0, why: "no file may grow" },
    Limit { resource: 3, name: "STACK", value: 8 << 20, why: "fixes the address-space layout" },
    Limit {
        resource: 4,
        name: "CORE",
        value: 1,
        why: "no core dumps of guest memory: with 0 the host would still make one for a pipe (core_pattern)",
    },
    Limit { resource: 6, name: "NPROC", value: MAX_TASKS, why: "bounds processes and threads" },
    Limit {
        resource: 7,
        name: "NOFILE",
        value: 5,
        why: "no descriptor beyond the five it is born with (6 in a clone, 7 in one that shares)",
    },
    Limit { resource: 8, name: "MEMLOCK", value: 0, why: "no locked memory" },
    Limit { resource: 11, name: "SIGPENDING", value: 4096, why: "bounds queued host signals" },
    Limit { resource: 12, name: "MSGQUEUE", value: 0, why: "no message queues" },
    Limit { resource: 13, name: "NICE", value: 0, why: "no priority above the default" },
    Limit { resource: 14, name: "RTPRIO", value: 0, why: "no real-time priority" },
];

/// `CLONE_NEW*` flags of a domain's first process: cgroup, UTS, IPC, PID, network and mount namespaces.
pub const NAMESPACES: u64 = 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000 | 0x0002_0000;
/// Those of a paene domain's attendant: PID and mount namespaces. The others are its container's, made by it.
pub const ATTENDANT_NAMESPACES: u64 = 0x2000_0000 | 0x0002_0000;
/// `CLONE_NEWUSER`, added when the caller is not root.
pub const USER_NAMESPACE: u64 = 0x1000_0000;

/// Host uid and gid of service domains.
pub const SERVICE_UID: u32 = FIRST_UID - 1;
/// First host uid and gid of domains: domain id N runs as `FIRST_UID + N`.
pub const FIRST_UID: u32 = 0x7000_0000;
/// How many domain ids (and host uids) there are.
pub const UID_COUNT: u32 = 0x0100_0000;

/// Guesses of the CPU that a process can forswear (`PR_SPEC_*` of `linux/prctl.h`): where indirect branches go, and that a
/// load does not overlap an earlier store.
pub const INDIRECT_BRANCH: u64 = 1;
/// See [`INDIRECT_BRANCH`].
pub const STORE_BYPASS: u64 = 0;

/// `oom_score_adj` of domain processes: when the host runs out of memory, domains go before services.
pub const OOM_SCORE_ADJ: i32 = 300;

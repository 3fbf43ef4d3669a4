//! The allow-list: every host system call a domain can reach, as data.
//!
//! The order is the order of the comparisons in the filter, so the hottest calls come first.
//! A program can jump to the gate with any registers it likes, so each rule must be harmless to
//! everything outside the domain for *all* argument values it lets through.

use doppel_abi_linux::syscalls::nr;
use doppel_abi_machine::frozen::MAX_ANCESTORS;
use doppel_abi_machine::{KICK_SIGNAL, clone_flags, fd};

/// What a domain may ring.
const DOORBELLS: [u32; 3] = [fd::DOORBELL as u32, fd::NETWORK_DOORBELL as u32, fd::STORAGE_DOORBELL as u32];

/// One test of one argument of a system call (all 64 bits unless said otherwise).
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// Equals the value.
    Is(u64),
    /// The low 32 bits equal the value (for `int` arguments that are legitimately negative).
    LowIs(u32),
    /// Is one of these.
    OneOf(&'static [u32]),
    /// `argument & mask == value`: with `mask = !optional`, "these flags exactly, those at will".
    Masked {
        /// Bits to look at.
        mask: u64,
        /// What they must be.
        value: u64,
    },
}

/// A test applied to an argument.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Argument index, 0 to 5.
    pub arg: u8,
    /// Name of the argument, for listings.
    pub name: &'static str,
    /// The test.
    pub test: Test,
}

/// Which instruction may issue the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The one host-call gate.
    Gate,
    /// The one signal-return site.
    Sigreturn,
}

/// One allowed system call.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Number on x86-64.
    pub number: u32,
    /// From where.
    pub site: Site,
    /// Alternatives, of which one must hold entirely; none at all means any arguments.
    pub any_of: &'static [&'static [Check]],
    /// The arguments in words, for listings.
    pub arguments: &'static str,
    /// Why the guest kernel needs it and why that is safe for the host.
    pub why: &'static str,
}

/// Memory protections: read, write and execute, in any combination.
const ANY_PROT: Check = flags(2, "prot", 0, 7);
const READ_EXEC: Check = flags(2, "prot", 0, 5);

const MAP_SHARED: u64 = 0x01;
const MAP_PRIVATE: u64 = 0x02;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;

const CLONE: &[u32] =
    &[clone_flags::SPACE_FROM_INIT as u32, clone_flags::SPACE as u32, clone_flags::VCPU as u32];

/// `required` set, `optional` as liked, nothing else.
const fn flags(arg: u8, name: &'static str, required: u64, optional: u64) -> Check {
    Check { arg, name, test: Test::Masked { mask: !optional, value: required } }
}

/// `mmap` of one descriptor, shared or private (`how`), at a fixed address.
const fn map_of(fd: i32, how: u64, prot: Check) -> [Check; 3] {
    [is(4, "fd", fd as u64), map_flags(how), prot]
}

const fn map_flags(how: u64) -> Check {
    flags(3, "flags", MAP_FIXED | how, MAP_NORESERVE | MAP_POPULATE)
}

/// Descriptors of a clone's frozen image and of its ancestors.
const IMAGES: [u32; 1 + MAX_ANCESTORS] = {
    let mut all = [fd::FROZEN as u32; 1 + MAX_ANCESTORS];
    let mut n = 0;
    while n < MAX_ANCESTORS {
        all[n + 1] = fd::ANCESTORS as u32 + n as u32;
        n += 1;
    }
    all
};

const fn is(arg: u8, name: &'static str, value: u64) -> Check {
    Check { arg, name, test: Test::Is(value) }
}

const fn one_of(arg: u8, name: &'static str, values: &'static [u32]) -> Check {
    Check { arg, name, test: Test::OneOf(values) }
}

/// A clock of CPU time of a process by number: a negative `int` whose low three bits are the kind. The others of that
/// form, of threads and descriptors, have bits that these have not.
const fn process_clock(kind: u64) -> Check {
    Check { arg: 0, name: "clock", test: Test::Masked { mask: !0x7fff_fff8, value: !0x7fff_ffff | kind } }
}

const fn any(number: u32, arguments: &'static str, why: &'static str) -> Rule {
    Rule { number, site: Site::Gate, any_of: &[], arguments, why }
}

/// The allow-list, hottest first.
pub const ALLOWED: &[Rule] = &[
    Rule {
        number: nr::FUTEX,
        site: Site::Gate,
        // WAIT, WAKE, WAIT_BITSET, each with or without FUTEX_PRIVATE_FLAG; no other flag.
        any_of: &[&[one_of(1, "op", &[128, 129, 137, 0, 1, 9])]],
        arguments: "op WAIT, WAKE or WAIT_BITSET, private or shared",
        why: "idle and notify; no requeue, no PI: only words in the domain's own memory",
    },
    Rule {
        number: nr::FUTEX_WAITV,
        site: Site::Gate,
        any_of: &[&[is(1, "nr", 2), is(2, "flags", 0), is(4, "clock", 1)]],
        arguments: "two words, no flags, CLOCK_MONOTONIC",
        why: "idle until the domain or one of its services notifies; only words it has mapped",
    },
    Rule {
        number: nr::WRITE,
        site: Site::Gate,
        any_of: &[&[one_of(0, "fd", &DOORBELLS), is(2, "count", 8)]],
        arguments: "fd doorbell, the host's, the network service's or the storage service's, 8 bytes",
        why: "ring a doorbell: adds to an eventfd, which the host or the service reads and zeroes",
    },
    Rule {
        number: nr::MMAP,
        site: Site::Gate,
        any_of: &[
            &[
                flags(3, "flags", MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE, MAP_NORESERVE | MAP_POPULATE),
                Check { arg: 4, name: "fd", test: Test::LowIs(u32::MAX) },
                ANY_PROT,
            ],
            &map_of(fd::PAGEFILE, MAP_SHARED, ANY_PROT),
            &map_of(fd::PAGEFILE, MAP_PRIVATE, ANY_PROT),
            &map_of(fd::IMAGE, MAP_PRIVATE, ANY_PROT),
            &map_of(fd::IMAGE, MAP_SHARED, READ_EXEC),
            &[one_of(4, "fd", &IMAGES), map_flags(MAP_PRIVATE), ANY_PROT],
            &map_of(fd::SHARE, MAP_PRIVATE, ANY_PROT),
            &map_of(fd::SWAP, MAP_PRIVATE, ANY_PROT),
            &map_of(fd::SWAP, MAP_SHARED, ANY_PROT),
        ],
        arguments: "MAP_FIXED and: anonymous private | page file or swap region | image (shared only without PROT_WRITE) | frozen image, an ancestor of it, or share file, private",
        why: "map pages: own memory, own page file and swap region, or root image, frozen image with its ancestors and share file, which are open read-only",
    },
    any(nr::MUNMAP, "any", "unmap pages of its own address space"),
    Rule {
        number: nr::MPROTECT,
        site: Site::Gate,
        any_of: &[&[ANY_PROT]],
        arguments: "prot of READ, WRITE, EXEC",
        why: "protect pages of its own address space; no growing flags, no protection keys",
    },
    Rule {
        number: nr::MADVISE,
        site: Site::Gate,
        // Not REMOVE: what a domain has touched of its channel must stay its own (services/net/src/channel/room.rs).
        any_of: &[&[one_of(2, "advice", &[4, 8, 18, 19, 22, 23, 25])]],
        arguments: "advice DONTNEED, FREE, WIPEONFORK, KEEPONFORK, POPULATE_READ, POPULATE_WRITE or COLLAPSE",
        why: "give memory back, fill it, huge pages for the arena; no advice that merges, breaks or evicts pages of others",
    },
    Rule {
        number: nr::MREMAP,
        site: Site::Gate,
        // MAYMOVE, FIXED, DONTUNMAP
        any_of: &[&[flags(3, "flags", 0, 7)]],
        arguments: "flags of MAYMOVE, FIXED, DONTUNMAP",
        why: "the program's mremap, within its own address space",
    },
    Rule {
        number: nr::TGKILL,
        site: Site::Gate,
        any_of: &[&[is(2, "sig", KICK_SIGNAL as u64)]],
        arguments: "sig KICK_SIGNAL",
        why: "kick a vCPU; own PID namespace and own uid leave nobody else to kick",
    },
    Rule {
        number: nr::CLONE,
        site: Site::Gate,
        any_of: &[&[one_of(0, "flags", CLONE)]],
        arguments: "three exact flag words: space, space as sibling, vCPU",
        why: "new address spaces and vCPUs; no new namespaces; bounded by pids limit",
    },
    Rule {
        number: nr::WAIT4,
        site: Site::Gate,
        // WNOHANG, __WALL
        any_of: &[&[flags(2, "options", 0, 0x4000_0001)]],
        arguments: "options of WNOHANG, __WALL",
        why: "reap address spaces; sees children only",
    },
    any(nr::EXIT_GROUP, "any", "end an address space"),
    Rule {
        number: nr::FALLOCATE,
        site: Site::Gate,
        // PUNCH_HOLE | KEEP_SIZE
        any_of: &[&[
            one_of(0, "fd", &[fd::PAGEFILE as u32, fd::ARENA as u32, fd::SWAP as u32]),
            is(1, "mode", 3),
        ]],
        arguments: "fd page file, arena or swap region, PUNCH_HOLE|KEEP_SIZE",
        why: "give pages of its own files back to the host; never grows a file",
    },
    Rule {
        number: nr::CLOCK_GETTIME,
        site: Site::Gate,
        any_of: &[&[is(0, "clock", 3)], &[process_clock(0)], &[process_clock(1)], &[process_clock(2)]],
        arguments: "clock CLOCK_THREAD_CPUTIME_ID, or the CPU time of a process by its number",
        why: "CPU time; own PID namespace leaves no other process to ask about",
    },
    any(nr::SIGALTSTACK, "any", "the host signal stack of a vCPU; thread-local"),
    Rule {
        number: nr::MEMBARRIER,
        site: Site::Gate,
        // QUERY, PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED
        any_of: &[&[one_of(0, "cmd", &[8, 16, 0])]],
        arguments: "cmd QUERY, PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED",
        why: "the program's membarrier; private commands interrupt own threads only",
    },
    Rule {
        number: nr::RT_SIGRETURN,
        site: Site::Sigreturn,
        any_of: &[],
        arguments: "any, from the sigreturn site only",
        why: "return from a host signal; restores user registers only",
    },
];

//! What the storage service's process may ask of the host ([`crate::service`]).
//!
//! The directories it was given are all that it can reach: each is a mount of its own, above which nothing is, and so is the
//! directory of its own descriptors; its root is empty.

use doppel_abi_linux::syscalls::nr;

use crate::service::{NOT_READ_WRITE, Service, any, is, one_of, rule};
use crate::supervisor::{Capability, capability};
use crate::{Check, Rule, Test};

/// Threads, of which one waits for work, and one takes its place if what that does takes long.
pub const THREADS: u32 = 24;

/// The storage service.
pub const STORAGE: Service = Service { own: OWN, tasks: THREADS, capabilities: CAPABILITIES };

/// What it keeps of root's rights: a domain's root is its files' owner, whoever that is on the host.
const CAPABILITIES: &[Capability] = &[
    capability(0, "CAP_CHOWN", "owners, as a domain's root gives them"),
    capability(1, "CAP_DAC_OVERRIDE", "files of any owner: the guest kernel has checked who asks"),
    capability(2, "CAP_DAC_READ_SEARCH", "files by their handles, after another service domain"),
    capability(3, "CAP_FOWNER", "modes, times and attributes of files of any owner"),
    capability(4, "CAP_FSETID", "set-group-ID bits of files of any group"),
];

/// Events of inotify(7): MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF.
const CHANGES: u64 = 0xfce;

/// What the storage service does.
const OWN: &[Rule] = &[
    any(nr::PREADV2, "bytes of files"),
    any(nr::PWRITE64, "bytes of files"),
    any(nr::STATX, "attributes"),
    any(nr::OPENAT2, "a name of a directory, beneath it and without links"),
    any(nr::OPENAT, "a file it has by a descriptor that names it alone, by its directory of descriptors"),
    any(nr::CLOSE, "files that nobody uses"),
    any(nr::EPOLL_WAIT, "wait for work"),
    any(nr::EPOLL_CTL, "doorbells to wait for"),
    any(nr::FUTEX, "wake a vCPU or a supervisor that sleeps on a word they share"),
    any(nr::READ, "doorbells"),
    any(nr::WRITE, "bells; the log"),
    any(nr::GETDENTS64, "directories"),
    any(nr::LSEEK, "directories; data and holes"),
    any(nr::READLINKAT, "symbolic links"),
    any(nr::FSYNC, "what is to survive a power cut"),
    any(nr::FDATASYNC, "the same"),
    any(nr::SYNCFS, "the same of a whole file system"),
    any(nr::FTRUNCATE, "sizes"),
    any(nr::FALLOCATE, "room, holes"),
    any(nr::MKNODAT, "regular files, FIFOs and sockets; devices take a right it does not have"),
    any(nr::MKDIRAT, "directories"),
    any(nr::SYMLINKAT, "symbolic links"),
    any(nr::LINKAT, "hard links"),
    any(nr::UNLINKAT, "names that go"),
    any(nr::RENAMEAT2, "names that change"),
    any(nr::FCHMODAT, "modes"),
    any(nr::FCHOWNAT, "owners"),
    any(nr::UTIMENSAT, "times"),
    any(nr::FSTATFS, "room in the file system"),
    any(nr::FGETXATTR, "extended attributes"),
    any(nr::FSETXATTR, "extended attributes"),
    any(nr::FLISTXATTR, "extended attributes"),
    any(nr::FREMOVEXATTR, "extended attributes"),
    any(nr::NAME_TO_HANDLE_AT, "how a file is found again"),
    any(nr::OPEN_BY_HANDLE_AT, "a file that is found again"),
    any(nr::PREAD64, "the host's load, whose file is open"),
    any(nr::RECVMSG, "orders of the supervisor, with descriptors"),
    any(nr::SENDMSG, "descriptors of files without names, for a successor"),
    any(nr::FLOCK, "locks of files"),
    rule(
        nr::INOTIFY_INIT1,
        &[&[is(0, "flags", 0x80800)]],
        "flags IN_NONBLOCK and IN_CLOEXEC",
        "what others change in files that a domain watches",
    ),
    rule(
        nr::INOTIFY_ADD_WATCH,
        &[&[Check { arg: 2, name: "mask", test: Test::Masked { mask: !CHANGES, value: 0 } }]],
        "events of changes, not of reads",
        "the same, of a file it has by a descriptor that names it alone: its directory of descriptors is its working directory",
    ),
    any(nr::INOTIFY_RM_WATCH, "files that a domain watches no more"),
    rule(
        nr::FCNTL,
        // GETFD, GET_SEALS, OFD_GETLK, OFD_SETLK
        &[&[one_of(1, "command", &[1, 1034, 36, 37])]],
        "command F_GETFD, F_GET_SEALS, F_OFD_GETLK or F_OFD_SETLK",
        "whether a channel is sealed; locks of ranges of files",
    ),
    rule(
        nr::MPROTECT,
        &[&[Check { arg: 2, name: "prot", test: Test::Masked { mask: NOT_READ_WRITE, value: 0 } }]],
        "prot of READ, WRITE",
        "memory of its threads",
    ),
];

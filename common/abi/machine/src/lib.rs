//! The machine interface: what the host offers a guest kernel, as layouts and numbers (docs/design.md §3).
//!
//! Both sides include this crate: `host/domain` builds a domain to it, `guest/machine` runs on it.
//! Everything here is shared memory or a boot-time contract, so every layout is pinned by an assert;
//! `docs/machine-interface.md` explains it.
//!
//! Trust: the host never believes a byte that a domain can write ([`VirtualRegisters`], [`RingHeader`],
//! ring data); it copies once and checks the copy.
#![no_std]
#![forbid(unsafe_code)]

pub mod builtin;
pub mod events;
pub mod frozen;
pub mod session;

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Fixed virtual addresses, the same in every process of every domain (docs/design.md §5, §8).
///
/// They lie in one 512 GiB region above all guest user memory, and what every process touches in one GiB of it, so
/// that they share page tables: making and freeing these is a good part of a fork.
pub mod layout {
    /// End of guest user memory (exclusive) and the start of the guest kernel's region.
    pub const USER_END: u64 = 0x7e80_0000_0000;
    /// Lowest address a guest program may map.
    pub const USER_START: u64 = 0x1_0000;
    /// Link address of the guest kernel ELF; it may use up to 128 MiB from here.
    pub const KERNEL_BASE: u64 = 0x7e80_0000_0000;
    /// The table of the guest kernel's functions (`doppel_unwind::kernel`), read-only, behind the kernel in its file.
    pub const SYMBOLS_BASE: u64 = KERNEL_BASE + (128 << 20);
    /// Where the guest kernel moves the host's vvar and vdso pages, so that their address is fixed: before the
    /// control area, in the same 2 MiB as its start.
    pub const HOST_VDSO_BASE: u64 = 0x7e80_1000_0000;
    /// The control area: start info, virtual registers, boot data, console rings, sessions.
    pub const CONTROL_BASE: u64 = HOST_VDSO_BASE + 0x4_0000;
    /// The arena: guest-kernel heap shared by all processes of a domain.
    pub const ARENA_BASE: u64 = 0x7e80_2000_0000;
    /// Largest arena in bytes.
    pub const ARENA_MAX: u64 = 16 << 30;
    /// The page file window: tmpfs, shared and cached file pages.
    pub const PAGEFILE_BASE: u64 = 0x7e90_0000_0000;
    /// Largest page file in bytes.
    pub const PAGEFILE_MAX: u64 = 256 << 30;
    /// The root image, read-only.
    pub const IMAGE_BASE: u64 = 0x7ed0_0000_0000;
    /// Largest root image in bytes.
    pub const IMAGE_MAX: u64 = 64 << 30;
    /// Header and tables of the frozen image a clone was made from, read-only.
    pub const FROZEN_BASE: u64 = 0x7ee0_0000_0000;
    /// Largest size of these tables in bytes.
    pub const FROZEN_MAX: u64 = 1 << 30;
    /// What the frozen image a clone was made from has of the page file, read-only ([`super::frozen::kept`]).
    pub const FROZEN_PAGES_BASE: u64 = FROZEN_BASE + FROZEN_MAX;
    /// Largest size of that in bytes.
    pub const FROZEN_PAGES_MAX: u64 = NETWORK_BASE - FROZEN_PAGES_BASE;
    /// The channel to the network service (`common/abi/service`).
    pub const NETWORK_BASE: u64 = 0x7ef0_0000_0000;
    /// The channel to the storage service.
    pub const STORAGE_BASE: u64 = 0x7ef8_0000_0000;
    /// Where a process maps a part of the swap region while it copies to it; at most [`super::swap::WINDOW`] bytes.
    pub const SWAP_BASE: u64 = 0x7eff_0000_0000;
    /// End (exclusive) of the guest kernel's region.
    pub const KERNEL_END: u64 = 0x7f00_0000_0000;
    /// Size of a page in bytes.
    pub const PAGE: u64 = 4096;
}

/// Descriptor numbers a domain is born with; it has no others and cannot make any.
pub mod fd {
    /// Control area (memfd, sealed against resizing).
    pub const CONTROL: i32 = 0;
    /// Arena (memfd).
    pub const ARENA: i32 = 1;
    /// Page file (memfd).
    pub const PAGEFILE: i32 = 2;
    /// Root image (regular file, opened read-only).
    pub const IMAGE: i32 = 3;
    /// Doorbell: an eventfd; writing 1 tells the host to look at the rings and the virtual registers.
    pub const DOORBELL: i32 = 4;
    /// Frozen image (regular file, opened read-only); only in clones.
    pub const FROZEN: i32 = 5;
    /// Share file (memfd, opened read-only): pages that clones of the same image have in common; only in clones
    /// that share.
    pub const SHARE: i32 = 6;
    /// Channel to the network service (memfd, see `common/abi/service`); only in domains with a network.
    pub const NETWORK: i32 = 7;
    /// The network service's doorbell: an eventfd.
    pub const NETWORK_DOORBELL: i32 = 8;
    /// Where a paene domain's attendant keeps its control area, since it has streams at the lowest numbers.
    pub const ATTENDANT_CONTROL: i32 = 9;
    /// Channel to the storage service (memfd, see `common/abi/service`); only in domains with volumes.
    pub const STORAGE: i32 = 10;
    /// The storage service's doorbell: an eventfd.
    pub const STORAGE_DOORBELL: i32 = 11;
    /// Swap region (regular file without a name, see [`super::swap`]); only in domains that have one.
    pub const SWAP: i32 = 12;
    /// The first of [`super::frozen::MAX_ANCESTORS`] for the ancestors of a clone's frozen image (regular files, opened read-only),
    /// in the order of its header; only in clones of an image that has some.
    pub const ANCESTORS: i32 = 13;
    /// One more than the highest number that any domain has.
    pub const END: i32 = ANCESTORS + super::frozen::MAX_ANCESTORS as i32;
}

/// The swap region: a file of [`StartInfo::swap_size`] bytes for pages, and behind them a list that the host writes.
///
/// The list says which pages are to leave memory: a count (8 bytes), then, [`swap::ENTRIES`] bytes behind the start, so many
/// [`frozen::Segment`]s, whose offset is [`swap::OWN`] or [`swap::SHOWN`].
pub mod swap {
    /// Where the entries begin in the list.
    pub const ENTRIES: u64 = 64;
    /// Most entries of one list.
    pub const MOST: u64 = 2046;
    /// Bytes of the list.
    pub const LIST: u64 = 64 << 10;
    /// Pages of the process' own.
    pub const OWN: u64 = 1;
    /// Pages of the region that it has touched since they went there.
    pub const SHOWN: u64 = 0;
    /// Most of the region that a process maps at [`super::layout::SWAP_BASE`].
    pub const WINDOW: u64 = 1 << 20;
    /// Largest region in bytes.
    pub const SIZE_MAX: u64 = 256 << 30;
}

/// Name (`argv[0]`) under which our own program plays the guest kernel's part of this interface: for a paene domain, whose
/// programs run on the host's kernel (`host/paene`).
pub const ATTENDANT: &str = "doppel-paene";
/// Word of its arguments: the image's files are to be taken from where they are unpacked in the store.
pub const UNPACKED: &str = "unpacked";

/// Host signal used to make a vCPU enter the guest kernel (SIGURG: harmless where no handler is set).
pub const KICK_SIGNAL: i32 = 23;

/// `clone` flag words the host filter allows, exactly.
pub mod clone_flags {
    /// A new address space from PID 1 of the domain: `CLONE_FS|FILES|PARENT_SETTID | SIGCHLD`. Descriptors are the
    /// same in all processes of a domain and never change, so one table serves them all.
    pub const SPACE_FROM_INIT: u64 = 0x200 | 0x400 | 0x10_0000 | 17;
    /// A new address space, child of PID 1: the same with `CLONE_PARENT`.
    pub const SPACE: u64 = SPACE_FROM_INIT | 0x8000;
    /// A vCPU: `CLONE_VM|FS|FILES|SIGHAND|THREAD|SYSVSEM|PARENT_SETTID`.
    pub const VCPU: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x10_0000;
}

/// `StartInfo::magic`: "DOPPEL\0\1".
pub const START_MAGIC: u64 = u64::from_le_bytes(*b"DOPPEL\0\x01");
/// Version of this interface; both sides must agree exactly.
pub const VERSION: u32 = 19;

/// Offsets inside the control area, in bytes.
pub mod control {
    /// [`super::StartInfo`]; mapped read-only in the guest after boot.
    pub const START_INFO: u64 = 0;
    /// [`super::VirtualRegisters`].
    pub const VREGS: u64 = 4096;
    /// [`super::CallCounts`], on the same page.
    pub const CALLS: u64 = VREGS + 2048;
    /// Seccomp program: an array of `struct sock_filter` (8 bytes each).
    pub const FILTER: u64 = 2 * 4096;
    /// Room for the seccomp program in bytes.
    pub const FILTER_MAX: u64 = 2 * 4096;
    /// [`super::BootArgs`] followed by its strings.
    pub const BOOT_ARGS: u64 = 4 * 4096;
    /// Room for boot arguments and strings in bytes (ARG_MAX-like limit on command and environment).
    pub const BOOT_ARGS_MAX: u64 = 252 * 4096;
    /// Headers of the console rings, [`super::CONSOLE_RINGS`] of them, [`super::RING_HEADER_STRIDE`] bytes apart: on one page,
    /// since every domain touches them all.
    pub const RINGS: u64 = 256 * 4096;
    /// Their data, [`super::RING_BYTES`] each.
    pub const RINGS_DATA: u64 = RINGS + 4096;
    /// What [`super::event::SHARE`] asks for: a count (8 bytes), then, [`SHARE_ENTRIES`] bytes behind the start,
    /// so many [`super::frozen::Segment`]s, whose offset is one in the share file or [`SHARE_ZERO`].
    pub const SHARE_LIST: u64 = RINGS_DATA + super::CONSOLE_RINGS as u64 * super::RING_BYTES as u64;
    /// Where the entries begin in the list.
    pub const SHARE_ENTRIES: u64 = 64;
    /// Most entries of one list.
    pub const SHARE_MAX: u64 = 512;
    /// Offset that stands for fresh pages of zeros.
    pub const SHARE_ZERO: u64 = u64::MAX;
    /// The answer to [`super::event::SHADOW`]: for each shadow two host pids (4 bytes each) in the domain's PID
    /// namespace, the process' and the shadow's.
    pub const SHADOWS: u64 = SHARE_LIST + 5 * 4096;
    /// Most shadows.
    pub const SHADOWS_MAX: u64 = 4096;
    /// The slots of sessions (see [`super::session`]).
    pub const SESSIONS: u64 = SHADOWS + SHADOWS_MAX * 8;
    /// Size of the control area in bytes; what nobody touches costs nothing.
    pub const SIZE: u64 = SESSIONS + super::session::SESSIONS as u64 * super::session::SESSION_STRIDE;
}

/// Start info: written by the host before boot, read-only afterwards.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StartInfo {
    /// [`START_MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Most vCPUs a guest process may use (`--cpus`), 1 or more.
    pub vcpus: u32,
    /// Domain id, unique on the host.
    pub domain_id: u64,
    /// How many clones lie between this domain and its first ancestor.
    pub generation: u64,
    /// Commit limit in bytes (`--memory`), 0 = none.
    pub memory_limit: u64,
    /// Size of the arena memfd in bytes.
    pub arena_size: u64,
    /// Size of the page file memfd in bytes.
    pub pagefile_size: u64,
    /// Size of the root image in bytes.
    pub image_size: u64,
    /// Number of 8-byte instructions in the seccomp program at [`control::FILTER`].
    pub filter_len: u32,
    /// Bytes of boot arguments at [`control::BOOT_ARGS`].
    pub boot_args_len: u32,
    /// Fresh host randomness, the seed of the guest's generator.
    pub seed: [u8; 32],
    /// Physical memory the domain is told of when it has no limit, in bytes.
    pub host_memory: u64,
    /// Wall clock of the boot, nanoseconds since 1970 (for boot_id and btime).
    pub boot_realtime_ns: u64,
    /// Bytes of header and tables of the frozen image at [`fd::FROZEN`] (see [`frozen`]); 0: boot anew.
    pub frozen_tables: u64,
    /// [`resume_flags`].
    pub resume_flags: u32,
    /// Which clone of its frozen image this is, from 1 on; 0 in a domain that was booted or woken.
    pub clone_index: u32,
    /// 1: there is a channel to the network service, whose page of virtual registers is used.
    pub network: u32,
    /// IPv4 address of the domain in its virtual network.
    pub ip4: [u8; 4],
    /// IPv6 address there.
    pub ip6: [u8; 16],
    /// 1: there is a channel to the storage service.
    pub storage: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of the swap region at [`fd::SWAP`] that are for pages; 0: there is none.
    pub swap_size: u64,
}

/// Flags of [`StartInfo::resume_flags`].
pub mod resume_flags {
    /// Keep the identity: a hibernated domain wakes. Otherwise this is a clone and gets a new one.
    pub const WAKE: u32 = 1;
    /// Make everything ready, say [`super::state::HELD`], and wait for [`super::event::GO`] before the first program
    /// runs: of a clone, or of a domain that boots. Arguments and host name are taken from the boot arguments as they
    /// are then.
    pub const HOLD: u32 = 2;
    /// With [`WAKE`]: the channel to the network service is the one it had; connections go on.
    pub const SAME_NETWORK: u32 = 4;
}

/// Flags of [`BootArgs`].
pub mod boot_flags {
    /// Console ring 0/1 is a terminal (`-t`): the program gets it as its controlling tty.
    pub const TTY: u32 = 1;
    /// Standard input is connected (`-i`); otherwise it is empty.
    pub const STDIN: u32 = 2;
    /// Print every system call on the log ring as strace does (`--trace`).
    pub const TRACE: u32 = 4;
    /// Map executables as they are in the image, without patched system calls (`--no-patch`).
    pub const NO_PATCH: u32 = 8;
    /// In a session: the arguments name a built-in command of the guest kernel instead of a program.
    pub const BUILTIN: u32 = 16;
    /// vCPUs sleep as soon as they have nothing to do: to measure what it is worth that they do not.
    pub const NO_POLLING: u32 = 32;
    /// The root file system is mounted read-only, for good, once all is mounted (`--read-only`).
    pub const READ_ONLY: u32 = 64;
    /// In a frozen image: the domain had volumes, which its clones need, too.
    pub const VOLUMES: u32 = 128;
    /// The level up to which events are kept from the start, as [`crate::events::Level::from_flags`] finds it (`--events`).
    pub const EVENTS: u32 = 7 << 8;
}

/// What to run: header, supplementary group ids of four bytes, then NUL-terminated strings: argv…, envp…, clone
/// arguments…, cwd, hostname, and of each file system to mount beforehand, in this order: where, its type, its options as
/// `mount(2)` takes them; then further lines of `/etc/hosts`.
///
/// In a clone the program is an additional one, started beside what was frozen; it may be missing (`argc` 0).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BootArgs {
    /// Number of arguments.
    pub argc: u32,
    /// Number of environment strings.
    pub envc: u32,
    /// User id the program starts with.
    pub uid: u32,
    /// Group id the program starts with.
    pub gid: u32,
    /// [`boot_flags`].
    pub flags: u32,
    /// Initial terminal size: rows << 16 | columns.
    pub winsize: u32,
    /// Number of clone arguments (`/sys/doppel/args`).
    pub clone_args: u32,
    /// Number of supplementary groups the program starts with.
    pub groups: u32,
    /// Number of file systems to mount; none in clones and sessions.
    pub mounts: u32,
    /// Number of further lines of `/etc/hosts`; none in clones and sessions.
    pub hosts: u32,
}

/// Bits of [`VirtualRegisters::pending`]: event channels the host posts.
pub mod event {
    /// A console input ring has data or was closed.
    pub const CONSOLE_IN: u64 = 1 << 0;
    /// A console output ring has room again.
    pub const CONSOLE_OUT: u64 = 1 << 1;
    /// [`super::VirtualRegisters::winsize`] changed.
    pub const WINCH: u64 = 1 << 2;
    /// [`super::VirtualRegisters::signals`] holds signals for guest pid 1.
    pub const SIGNAL: u64 = 1 << 3;
    /// The domain should stop: terminate every process.
    pub const SHUTDOWN: u64 = 1 << 4;
    /// Stop every vCPU and say [`super::state::FROZEN`].
    pub const FREEZE: u64 = 1 << 5;
    /// Go on after [`super::state::FROZEN`].
    pub const THAW: u64 = 1 << 6;
    /// Go on after [`super::state::HELD`], with the boot arguments that are there now.
    pub const GO: u64 = 1 << 7;
    /// While it stands still: map the pages of [`super::control::SHARE_LIST`] from the share file.
    pub const SHARE: u64 = 1 << 8;
    /// The sessions whose bits are set in [`super::VirtualRegisters::sessions`] want something.
    pub const SESSION: u64 = 1 << 9;
    /// [`super::VirtualRegisters::memory_limit`] or `memory_target` changed.
    pub const MEMORY: u64 = 1 << 10;
    /// The network service has news in its channel. It posts this itself.
    pub const NETWORK: u64 = 1 << 11;
    /// While it stands still: leave a shadow of each process, a copy that keeps its memory as it is now, list them at
    /// [`super::control::SHADOWS`], and answer in [`super::VirtualRegisters::shadows`].
    pub const SHADOW: u64 = 1 << 12;
    /// The list behind the swap region (see [`super::swap`]) is a new one, of the number
    /// [`super::VirtualRegisters::swap_round`]: these pages should leave memory.
    pub const SWAP: u64 = 1 << 13;
    /// The host copies the page file ahead of a freeze: note what is written to it from now on, list what of it is still in the frozen
    /// image of a clone as at a freeze, and answer in [`super::VirtualRegisters::log_answer`].
    pub const LOG: u64 = 1 << 14;
    /// Used inside the guest: a request for PID 1 (new address space, timer) was queued.
    pub const KERNEL: u64 = 1 << 63;
}

/// Values of [`VirtualRegisters::state`].
pub mod state {
    /// Not yet running guest programs.
    pub const BOOTING: u32 = 0;
    /// Guest pid 1 runs.
    pub const RUNNING: u32 = 1;
    /// Guest pid 1 has exited; `exit_status` is set.
    pub const EXITED: u32 = 2;
    /// The guest kernel found itself broken; the log ring says why.
    pub const PANICKED: u32 = 3;
    /// Every vCPU is parked and no kernel lock is held: the host may save or share the memory.
    pub const FROZEN: u32 = 4;
    /// A domain that was asked to hold ([`super::resume_flags::HOLD`]) is ready to go.
    pub const HELD: u32 = 5;
}

/// Virtual registers: one page shared both ways (Denali §3.1).
///
/// Host to guest: set bits in `pending`, add 1 to `event_seq`, `FUTEX_WAKE` on it (shared, not private).
/// Guest to host: change state, write the doorbell.
#[repr(C)]
#[derive(Debug)]
pub struct VirtualRegisters {
    /// Event bitmap, [`event`]; the guest takes all of it at once.
    pub pending: AtomicU64,
    /// Futex word: bumped after every change to `pending`.
    pub event_seq: AtomicU32,
    /// [`state`].
    pub state: AtomicU32,
    /// Wait status of guest pid 1 as `wait4` gives it (exit code << 8 | signal).
    pub exit_status: AtomicI32,
    /// Terminal size: rows << 16 | columns.
    pub winsize: AtomicU32,
    /// Signals for guest pid 1, bit n-1 for signal n; the guest takes all of it at once.
    pub signals: AtomicU64,
    /// Generation counter, bumped in every clone before its first instruction.
    pub generation: AtomicU64,
    /// Nanoseconds added to the host's CLOCK_MONOTONIC to give the domain's.
    pub monotonic_offset: AtomicU64,
    /// Number of the exit reason when an address space died abnormally: host wait status.
    pub crash_status: AtomicI32,
    /// Host pid (in the domain's PID namespace) of that address space.
    pub crash_pid: AtomicI32,
    /// Bumped by the guest, then the doorbell: a program asks to be frozen (`/sys/power/state`).
    pub freeze_requests: AtomicU32,
    /// The host's answer to a request it does not grant: an errno; 0 while there is none.
    pub freeze_error: AtomicI32,
    /// Bytes of boot arguments written before [`event::GO`].
    pub late_args_len: AtomicU32,
    /// Bumped by the guest, then the doorbell: at [`event::FREEZE`] the vCPUs did not stop, and it goes on.
    pub stop_failures: AtomicU32,
    /// Which sessions [`event::SESSION`] is for, bit n of word w for session 64 w + n; the guest takes all at once.
    pub sessions: [AtomicU64; session::SESSIONS / 64],
    /// Commit limit in bytes, 0 = none: [`StartInfo::memory_limit`] until the host changes it.
    pub memory_limit: AtomicU64,
    /// The balloon's target in bytes, 0 = none: the guest kernel gives back what it can do without, and, if there is a swap
    /// region, the host has it move pages there. Programs can have more, up to the limit.
    pub memory_target: AtomicU64,
    /// The answer to [`event::SHADOW`]: 1 more than there are shadows, [`NO_SHADOWS`] if not all could be made. 0 before.
    pub shadows: AtomicU32,
    /// Futex word: bumped by the host when it needs the shadows no longer.
    pub shadows_end: AtomicU32,
    /// Most processes and threads of programs (`--pids-limit`), 0 = none; the host may change it at any time.
    pub task_limit: AtomicU32,
    /// The host's at [`event::FREEZE`]: what of the domain's layer has to be in memory when it stands still ([`layer_files`]).
    pub layer_stays: AtomicU32,
    /// What counts against `memory_limit` and `memory_target`, in bytes: the guest kernel says it with each change.
    pub memory_used: AtomicU64,
    /// The answer to `layer_stays` once it is frozen: bytes of the layer's file that its memory refers to. 0: all files are in memory.
    pub layer_end: AtomicU64,
    /// Bytes of the swap region that hold pages: the guest kernel says it, for stats.
    pub swap_used: AtomicU64,
    /// Number of the newest list of [`event::SWAP`].
    pub swap_round: AtomicU32,
    /// The guest's: number of the newest list that is done with.
    pub swap_done: AtomicU32,
    /// Said with [`state::FROZEN`]: when the domain has something to do by itself, on its monotonic clock in nanoseconds; 1 if it
    /// has just now, [`NEVER_DUE`] if only something from outside will wake it. 0 before.
    pub next_due: AtomicU64,
    /// Said with [`state::FROZEN`] and after [`event::LOG`]: how many [`frozen::Segment`]s there are at `kept_at`. First, in order, come
    /// the runs of a clone's page file that are still in its frozen image; then `written_runs`. Only `addr` and `len` say something.
    pub kept_runs: AtomicU64,
    /// Where in the arena they are.
    pub kept_at: AtomicU64,
    /// Said with [`state::FROZEN`]: how many of them are runs of the page file that may have been written since [`event::LOG`].
    pub written_runs: AtomicU64,
    /// Bytes of the page file about which `written_runs` says anything; what lies behind may have been written. 0: nothing is known.
    pub logged: AtomicU64,
    /// Bytes of the page file that are still in the frozen image: the guest kernel says it, for stats.
    pub kept_bytes: AtomicU64,
    /// The answer to [`event::LOG`]: [`LOG_ON`] or [`LOG_REFUSED`]. 0 before.
    pub log_answer: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
}

/// See [`VirtualRegisters::layer_stays`].
pub mod layer_files {
    /// All files, and what was noted of them is in the layer too.
    pub const IN_MEMORY: u32 = 0;
    /// They may stay in the layer, of which the host keeps what there is.
    pub const MAY_STAY: u32 = 1;
    /// As they are: the domain only stands still, and nobody takes its memory.
    pub const AS_THEY_ARE: u32 = 2;
}

/// See [`VirtualRegisters::log_answer`]: it is noted what is written.
pub const LOG_ON: u32 = 1;
/// See [`VirtualRegisters::log_answer`]: it is not; the domain did not stop for it.
pub const LOG_REFUSED: u32 = 2;

/// See [`VirtualRegisters::next_due`].
pub const NEVER_DUE: u64 = u64::MAX;

/// See [`VirtualRegisters::shadows`].
pub const NO_SHADOWS: u32 = u32::MAX;

/// Counters of [`CallCounts`].
pub const CALL_COUNTERS: usize = 32;

/// How many system calls the guest kernel has served: the sum of all counters, modulo 2^64. Each vCPU counts in one,
/// without care for others that have the same. What a domain says here counts in its own accounts only.
#[repr(C)]
#[derive(Debug)]
pub struct CallCounts {
    /// The counters.
    pub counters: [CallCount; CALL_COUNTERS],
}

/// A counter on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CallCount(pub AtomicU64);

/// Console rings: index of each.
pub mod ring {
    /// Standard input or terminal input; the host produces.
    pub const STDIN: usize = 0;
    /// Standard output or terminal output; the guest produces.
    pub const STDOUT: usize = 1;
    /// Standard error; the guest produces.
    pub const STDERR: usize = 2;
    /// Kernel log and `--trace` lines; the guest produces.
    pub const LOG: usize = 3;
}

/// The limit of a domain's control group for the limit of its programs' memory, in bytes: the guest kernel's own memory (page
/// tables, stacks, its heap) comes on top, so that programs get ENOMEM from it before the host kills anything.
#[must_use]
pub const fn group_limit(guest: u64) -> u64 {
    guest.saturating_add(guest / 8).saturating_add(64 << 20)
}

/// Number of console rings.
pub const CONSOLE_RINGS: usize = 4;
/// Data bytes of one ring, a power of two.
pub const RING_BYTES: u32 = 64 << 10;
/// Distance between the headers of console rings in bytes.
pub const RING_HEADER_STRIDE: u64 = 256;
/// Distance between a session's rings in bytes: a header page, then the data.
pub const RING_STRIDE: u64 = 4096 + RING_BYTES as u64;
/// Offset of the data from the start of a session's ring.
pub const RING_DATA: u64 = 4096;

/// A byte ring between host and guest.
///
/// `head` counts bytes produced, `tail` bytes consumed, both modulo 2^32; position = count & (RING_BYTES-1).
/// Each side keeps a private copy of its own index and treats the other's as hostile: a fill level
/// `head - tail` above [`RING_BYTES`] is a broken peer.
///
/// Sleeping: the consumer sets `consumer_waits`, fences (SeqCst) and looks again; a producer that finds it
/// set after publishing clears it and notifies (doorbell or event). `producer_waits` likewise for room.
#[repr(C)]
#[derive(Debug)]
pub struct RingHeader {
    /// Bytes produced.
    pub head: AtomicU32,
    /// 1 once the producer will write no more.
    pub closed: AtomicU32,
    /// 1 while the producer waits for room.
    pub producer_waits: AtomicU32,
    _pad0: [u32; 13],
    /// Bytes consumed.
    pub tail: AtomicU32,
    /// 1 once the consumer will read no more: writes fail with EPIPE.
    pub hung_up: AtomicU32,
    /// 1 while the consumer sleeps.
    pub consumer_waits: AtomicU32,
    _pad1: [u32; 13],
}

// Pinned layouts: docs/machine-interface.md.
const _: () = {
    assert!(size_of::<StartInfo>() == 176);
    assert!(size_of::<BootArgs>() == 40);
    assert!(size_of::<VirtualRegisters>() == 208);
    assert!(size_of::<RingHeader>() == 128);
    assert!(size_of::<RingHeader>() as u64 <= RING_HEADER_STRIDE);
    assert!(CONSOLE_RINGS as u64 * RING_HEADER_STRIDE <= control::RINGS_DATA - control::RINGS);
    assert!(control::VREGS + size_of::<VirtualRegisters>() as u64 <= control::CALLS);
    assert!(control::CALLS + size_of::<CallCounts>() as u64 == control::FILTER);
    assert!(RING_BYTES.is_power_of_two());
    assert!(control::SHARE_LIST + control::SHARE_ENTRIES + control::SHARE_MAX * 32 <= control::SHADOWS);
    assert!(control::SESSIONS.is_multiple_of(4096));
    assert!(layout::CONTROL_BASE + control::SIZE <= layout::ARENA_BASE);
    assert!(swap::ENTRIES + swap::MOST * size_of::<frozen::Segment>() as u64 <= swap::LIST);
    assert!(swap::LIST <= swap::WINDOW && layout::SWAP_BASE + swap::WINDOW <= layout::KERNEL_END);
};

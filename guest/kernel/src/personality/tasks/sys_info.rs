//! System calls that tell about the system: uname, sysinfo and others.

use crate::memory::swap::REGION;
use crate::objects::pages;
use crate::personality::args::{Number, Request, UserStr};
use crate::process::task::TASKS;
use crate::process::task::load;
use core::sync::atomic::Ordering;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::pod_struct;

use crate::core::numbers::numbers;
use crate::core::time;
use crate::personality::Support::{Full, Partial, Stub};
use crate::personality::{Args, Syscall, call};
use crate::process::task::attrs::all_cpus;
use crate::process::task::version::{RELEASE, VERSION, memory};
use crate::{Errno, Result, kernel};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::UNAME, sys_uname(UserPtr), Full, ""),
    call!(nr::SYSINFO, sys_sysinfo(UserPtr), Full, "load averages are 0"),
    call!(nr::SETHOSTNAME, sys_sethostname(UserStr, i32), Full, ""),
    call!(nr::SETDOMAINNAME, sys_setdomainname(UserStr, i32), Full, ""),
    call!(
        nr::GETCPU,
        sys_getcpu(UserPtr, UserPtr, UserPtr),
        Partial,
        "the lowest CPU of the thread's affinity"
    ),
    call!(nr::PERSONALITY, sys_personality(Request), Partial, "kept, without effect"),
    call!(nr::SYSLOG, sys_syslog(Number<LogAction>, UserPtr, i32), Stub, "the log is empty"),
];
/// Longest host or domain name.
const NAME_MAX: usize = 64;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYSLOG: u32 = 34;

fn sys_uname(args: &Args, out: UserPtr) -> Result<u64> {
    const FIELD: usize = 65;
    let mut buf = [0u8; 6 * FIELD];
    let uts = args.thread.namespaces.load().uts.clone();
    let (host, domain) = (uts.host().lock().clone(), uts.domain().lock().clone());
    let fields: [&[u8]; 6] = [b"Linux", &host, RELEASE.as_bytes(), VERSION.as_bytes(), b"x86_64", &domain];
    for (i, f) in fields.iter().enumerate() {
        let n = f.len().min(NAME_MAX);
        buf[i * FIELD..i * FIELD + n].copy_from_slice(&f[..n]);
    }
    out.write_bytes(&buf)?;
    Ok(0)
}

/// Reads a new name for sethostname and setdomainname.
fn read_name(args: &Args, user_name: UserPtr, len: i32) -> Result<alloc::vec::Vec<u8>> {
    if !args.thread.cred().capable_in(args.thread.namespaces.load().uts.user(), CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
    if len > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let mut name = alloc::vec![0; len];
    user_name.read_bytes(&mut name)?;
    Ok(name)
}

fn sys_sethostname(args: &Args, UserStr(name): UserStr, len: i32) -> Result<u64> {
    let name = read_name(args, name, len)?;
    *args.thread.namespaces.load().uts.host().lock() = name;
    Ok(0)
}

fn sys_setdomainname(args: &Args, UserStr(name): UserStr, len: i32) -> Result<u64> {
    let name = read_name(args, name, len)?;
    *args.thread.namespaces.load().uts.domain().lock() = name;
    Ok(0)
}

pod_struct! {
    /// `struct sysinfo`.
    pub struct Sysinfo {
        /// Seconds since boot.
        pub uptime: i64,
        /// Load averages, fixed point.
        pub loads: [u64; 3],
        /// Memory of the domain.
        pub totalram: u64,
        /// Memory not in use.
        pub freeram: u64,
        /// Shared memory in use.
        pub sharedram: u64,
        /// Buffers.
        pub bufferram: u64,
        /// Swap.
        pub totalswap: u64,
        /// Swap not in use.
        pub freeswap: u64,
        /// Threads, as Linux counts here.
        pub procs: u16,
        /// Padding.
        pub pad: u16,
        /// Padding.
        pub pad2: u32,
        /// High memory.
        pub totalhigh: u64,
        /// High memory not in use.
        pub freehigh: u64,
        /// Unit of the sizes in bytes.
        pub mem_unit: u32,
        /// Padding.
        pub pad3: u32,
    }
}

fn sys_sysinfo(_: &Args, out: UserPtr) -> Result<u64> {
    let (total, used) = memory();
    let threads = TASKS.threads.lock().len();
    let (swapped, swap) = REGION.usage();
    let s = Sysinfo {
        uptime: (time::monotonic_ns().saturating_sub(kernel().boot_ns) / 1_000_000_000).cast_signed(),
        loads: load::load_averages().map(|h| h * 65_536 / 100),
        totalram: total,
        freeram: total - used,
        sharedram: pages::page_file().usage().0 * pages::PAGE,
        totalswap: swap,
        freeswap: swap - swapped,
        procs: u16::try_from(threads).unwrap_or(u16::MAX),
        mem_unit: 1,
        ..Sysinfo::default()
    };
    out.write(&s)?;
    Ok(0)
}

fn sys_getcpu(args: &Args, user_cpu: UserPtr, node: UserPtr, _cache: UserPtr) -> Result<u64> {
    let cpu = (args.thread.attrs.sched.lock().affinity & all_cpus()).trailing_zeros();
    for (p, v) in [(user_cpu, cpu), (node, 0)] {
        if !p.is_null() {
            p.write(&v)?;
        }
    }
    Ok(0)
}

fn sys_personality(args: &Args, Request(persona): Request) -> Result<u64> {
    let p = &args.thread.process.attrs.personality;
    let old = p.load(Ordering::Relaxed);
    if persona != u32::MAX {
        p.store(persona, Ordering::Relaxed);
    }
    Ok(u64::from(old))
}

numbers! {
    /// `SYSLOG_ACTION_` numbers of `syslog(2)`.
    enum LogAction {
        Close = 0,
        Open = 1,
        Read = 2,
        ReadAll = 3,
        ReadClear = 4,
        Clear = 5,
        ConsoleOff = 6,
        ConsoleOn = 7,
        ConsoleLevel = 8,
        SizeUnread = 9,
        SizeBuffer = 10,
    }
}

fn sys_syslog(args: &Args, action: Number<LogAction>, _buffer: UserPtr, _len: i32) -> Result<u64> {
    let action = action.get()?;
    match action {
        // Open and close do nothing; reading all and the two sizes find an empty buffer.
        LogAction::Open
        | LogAction::Close
        | LogAction::ReadAll
        | LogAction::SizeUnread
        | LogAction::SizeBuffer => Ok(0),
        _ if !args.thread.cred().capable(CAP_SYSLOG) => Err(Errno::EPERM),
        // Reading would wait for a message that never comes.
        LogAction::Read => Err(Errno::EAGAIN),
        _ => Ok(0),
    }
}

//! Boot of the domain's first process, and the data it was given.
//!
//! The host starts this ELF with the descriptors of `common/abi/machine::fd`. Until the filter is installed this is
//! trusted code; it maps the shared areas, moves the host's vDSO to its fixed address, installs signal
//! handlers and the filter, and becomes the first vCPU.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use doppel_abi_machine::{BootArgs, START_MAGIC, VERSION, control, event, fd, layout, state};

use doppel_abi_service::{layout as channel, net, storage};

use crate::cpu::ThreadObject;
use crate::host::{self, nr};
pub use crate::rings::control::{
    image, memory_limit, report_panic, start_info, task_limit, vregs, wake_init,
};
use crate::sync::SpinLock;
use crate::trap::Personality;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MAP_FIXED: u64 = 0x10;

/// What to run.
pub struct BootData {
    /// Fixed part.
    pub args: BootArgs,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// argv.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// What a clone was given.
    pub clone_args: Vec<Vec<u8>>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Host name.
    pub hostname: Vec<u8>,
    /// File systems to mount: where, type, options.
    pub mounts: Vec<[Vec<u8>; 3]>,
    /// Further lines of `/etc/hosts`.
    pub hosts: Vec<Vec<u8>>,
}

/// Parses the boot arguments.
pub fn boot_data() -> BootData {
    parse_args(control::BOOT_ARGS, start_info().boot_args_len, control::BOOT_ARGS_MAX)
}

/// Says [`state::HELD`] and waits for one of these events; returns the boot arguments as they are then.
pub fn held(until: u64) -> BootData {
    let v = vregs();
    v.state.store(state::HELD, Ordering::SeqCst);
    host::ring_doorbell();
    loop {
        let seen = v.event_seq.load(Ordering::SeqCst);
        if v.pending.load(Ordering::SeqCst) & until != 0 {
            break;
        }
        host::futex_wait(&v.event_seq, seen, None);
    }
    v.pending.fetch_and(!event::GO, Ordering::SeqCst);
    let len = v.late_args_len.load(Ordering::Acquire);
    parse_args(control::BOOT_ARGS, len, control::BOOT_ARGS_MAX)
}

/// Parses arguments that lie at `offset` in the control area.
pub(crate) fn parse_args(offset: u64, len: u32, room: u64) -> BootData {
    let at = layout::CONTROL_BASE + offset;
    let len = len as usize;
    assert!(
        offset + room <= control::SIZE && len >= size_of::<BootArgs>() && len as u64 <= room,
        "boot arguments: bad length"
    );
    // SAFETY: inside the mapped control area; the host wrote it before boot, before it let a held clone go, or before
    // it asked for a session, and does not change it afterwards.
    let (args, bytes) = unsafe {
        let args = (at as *const BootArgs).read();
        let p = (at as *const u8).add(size_of::<BootArgs>());
        (args, core::slice::from_raw_parts(p, len - size_of::<BootArgs>()))
    };
    let (groups, bytes) = bytes.split_at((args.groups as usize).saturating_mul(4).min(bytes.len()));
    let groups = groups.as_chunks().0.iter().map(|g| u32::from_le_bytes(*g)).collect();
    let mut strings = bytes.split(|&b| b == 0).map(<[u8]>::to_vec);
    let mut take = |n: u32| (0..n).map(|_| strings.next().unwrap_or_default()).collect::<Vec<_>>();
    let argv = take(args.argc);
    let envp = take(args.envc);
    let clone_args = take(args.clone_args);
    let cwd = take(1).pop().unwrap_or_default();
    let hostname = take(1).pop().unwrap_or_default();
    let mounts = take(args.mounts.saturating_mul(3)).as_chunks().0.to_vec();
    let hosts = take(args.hosts);
    BootData { args, groups, argv, envp, clone_args, cwd, hostname, mounts, hosts }
}

/// Maps a descriptor shared at a fixed address.
unsafe fn map_shared(addr: u64, len: u64, prot: u64, fd: i32, off: u64, flags: u64) {
    // SAFETY: forwarded: the range is unused or replaced on purpose.
    let r = unsafe { host::call(nr::MMAP, [addr, len, prot, MAP_SHARED | flags, fd as u64, off]) };
    assert!(r.is_ok(), "boot: mapping {addr:#x} failed: {r:?}");
}

/// How the kernel above starts: each returns it with the first idle thread. The heap is ready by then.
pub struct Start {
    /// Builds a kernel.
    pub make: fn() -> (&'static dyn Personality, Arc<dyn ThreadObject>),
    /// Continues with the one that the arena of a frozen domain holds.
    pub resume: fn() -> (&'static dyn Personality, Arc<dyn ThreadObject>),
}

/// Boots: called once by the ELF's start code with the initial stack of `execve(2)`.
///
/// # Safety
/// `stack` must be the initial stack pointer of this process; nothing else may run yet.
pub unsafe fn boot(stack: *const u64, start: &Start) -> ! {
    // SAFETY: boot runs alone; the ranges are the fixed layout, free in a fresh process.
    unsafe {
        let f = MAP_FIXED_NOREPLACE;
        map_shared(layout::CONTROL_BASE, control::SIZE, PROT_READ | PROT_WRITE, fd::CONTROL, 0, f);
        let si = start_info();
        assert!(si.magic == START_MAGIC && si.version == VERSION, "boot: host and guest kernel do not match");
        map_shared(layout::ARENA_BASE, si.arena_size, PROT_READ | PROT_WRITE, fd::ARENA, 0, f);
        map_shared(layout::PAGEFILE_BASE, si.pagefile_size, PROT_READ | PROT_WRITE, fd::PAGEFILE, 0, f);
        if si.network != 0 {
            let all = PROT_READ | PROT_WRITE;
            map_shared(layout::NETWORK_BASE, net::SIZE, all, fd::NETWORK, 0, f);
            // The network service posts events too, so the registers are in its channel.
            let registers = layout::CONTROL_BASE + control::VREGS;
            map_shared(registers, layout::PAGE, all, fd::NETWORK, channel::REGISTERS, MAP_FIXED);
        }
        if si.storage != 0 {
            let all = PROT_READ | PROT_WRITE;
            map_shared(layout::STORAGE_BASE, storage::SIZE, all, fd::STORAGE, 0, f);
        }
        let image = si.image_size.next_multiple_of(layout::PAGE);
        map_shared(layout::IMAGE_BASE, image, PROT_READ, fd::IMAGE, 0, f);
        if si.frozen_tables == 0 {
            crate::memory::arena::init(si.arena_size);
        } else {
            crate::memory::arena::adopt();
            // Only pages of zeros are missing in the arena: the host has filled it. Those of the page file stay in the image.
            let (prot, flags) = (PROT_READ, MAP_PRIVATE | f);
            let r = host::call(
                nr::MMAP,
                [layout::FROZEN_BASE, si.frozen_tables, prot, flags, fd::FROZEN as u64, 0],
            );
            assert!(r.is_ok(), "boot: mapping the frozen image's tables failed: {r:?}");
            crate::memory::frozen::map_pages();
        }
        move_vdso(stack);
        crate::trap::install_handlers();
        leave_stack(stack);
        // From here on the start info is constant.
        map_shared(layout::CONTROL_BASE, control::VREGS, PROT_READ, fd::CONTROL, 0, MAP_FIXED);
    }
    let resumed = start_info().frozen_tables != 0;
    let shared: &'static SpinLock<Vec<usize>> = if resumed {
        // SAFETY: the domain was frozen after its boot had stored the address below.
        unsafe { &*(crate::memory::arena::root(crate::memory::arena::ROOT_MACHINE) as *const _) }
    } else {
        Box::leak(Box::default())
    };
    crate::memory::arena::set_root(crate::memory::arena::ROOT_MACHINE, core::ptr::from_ref(shared) as u64);
    crate::cpu::set_free_blocks(shared);
    let (personality, idle) = if resumed { (start.resume)() } else { (start.make)() };
    crate::trap::set_personality(personality);
    install_filter();
    crate::cpu::become_first_vcpu(idle, 1)
}

/// Names the process as its argument says.
///
/// # Safety
/// `stack` must be the initial stack pointer of this process.
unsafe fn leave_stack(stack: *const u64) {
    const PR_SET_NAME: u64 = 15;
    STACK.store(stack as u64, Ordering::Relaxed);
    // SAFETY: argv[0] follows argc; PR_SET_NAME reads at most 16 bytes of a string.
    unsafe {
        let _ = host::call(nr::PRCTL, [PR_SET_NAME, *stack.add(1), 0, 0, 0, 0]);
    }
}

/// End (exclusive) of what the host lets a process map with four levels of page tables.
const HOST_USER_END: u64 = (1 << 47) - layout::PAGE;

/// The initial stack, until it is given back.
static STACK: AtomicU64 = AtomicU64::new(0);

/// Gives back the initial stack of the domain's first process: nothing uses it after boot, and it costs three page
/// tables, in each process forked from this one too. `ps` shows them all by their thread name from then on.
pub fn drop_initial_stack() {
    let stack = STACK.swap(0, Ordering::Relaxed);
    if stack != 0 {
        // Where it ends is not known; nothing else is mapped near.
        let from = (stack & !(layout::PAGE - 1)) - (1 << 20);
        // One stack in 16,384 lies so high that this is behind the last user address, which the host refuses.
        let to = (from + (2 << 20)).min(HOST_USER_END);
        // SAFETY: this code runs on a stack in the arena, and boot kept no reference to the initial one.
        let r = unsafe { host::call(nr::MUNMAP, [from, to - from, 0, 0, 0, 0]) };
        assert!(r.is_ok(), "boot: giving back the initial stack failed: {r:?}");
    }
}

/// Finds the vDSO through the auxiliary vector, moves it and its data pages to the fixed address.
unsafe fn move_vdso(stack: *const u64) {
    const AT_SYSINFO_EHDR: u64 = 33;
    // SAFETY: the initial stack is argc, argv, NULL, envp, NULL, auxv as execve(2) lays it out.
    let vdso = unsafe {
        let mut p = stack.add(1 + *stack as usize + 1);
        while *p != 0 {
            p = p.add(1);
        }
        p = p.add(1);
        loop {
            match *p {
                0 => break 0,
                AT_SYSINFO_EHDR => break *p.add(1),
                _ => p = p.add(2),
            }
        }
    };
    assert!(vdso != 0, "boot: the host gives no vDSO");
    let base = layout::HOST_VDSO_BASE + 32 * layout::PAGE;
    let mv = |from: u64, to: u64, len: u64| {
        // SAFETY: boot runs alone and nothing refers to these pages yet.
        unsafe { host::call(nr::MREMAP, [from, len, len, 3, to, 0]) }.is_ok()
    };
    // The host moves such a mapping only whole, so the right length is the one it accepts.
    let whole = |start: &dyn Fn(u64) -> (u64, u64)| {
        (1..=16).find(|&n| {
            let (from, to) = start(n * layout::PAGE);
            mv(from, to, n * layout::PAGE)
        })
    };
    assert!(whole(&|_| (vdso, base)).is_some(), "boot: cannot move the vDSO");
    // Its data pages lie directly below it, as one or two mappings depending on the host kernel.
    let mut below = 0;
    for _ in 0..2 {
        match whole(&|len| (vdso - below - len, base - below - len)) {
            Some(pages) => below += pages * layout::PAGE,
            None => break,
        }
    }
    assert!(below > 0, "boot: no vDSO data pages");
    // SAFETY: the moved vDSO is a valid ELF image mapped at base.
    let f = unsafe { find_symbol(base, b"__vdso_clock_gettime") };
    assert!(f != 0, "boot: the vDSO has no clock_gettime");
    crate::clock::set_vdso(f);
}

/// Looks up a function in a mapped, position-independent ELF image by its dynamic symbol table.
unsafe fn find_symbol(base: u64, name: &[u8]) -> u64 {
    // SAFETY: the caller vouches for the image; layouts are those of elf(5).
    unsafe {
        let rd16 = |a: u64| (a as *const u16).read_unaligned();
        let rd32 = |a: u64| (a as *const u32).read_unaligned();
        let rd64 = |a: u64| (a as *const u64).read_unaligned();
        let (phoff, phnum) = (rd64(base + 32), u64::from(rd16(base + 56)));
        let (mut load, mut dynamic) = (0u64, 0u64);
        for i in 0..phnum {
            let ph = base + phoff + i * 56;
            match rd32(ph) {
                1 => load = base.wrapping_sub(rd64(ph + 16)).wrapping_add(rd64(ph + 8)),
                2 => dynamic = rd64(ph + 16),
                _ => {}
            }
        }
        let (mut sym, mut strtab, mut hash, mut gnu) = (0u64, 0u64, 0u64, 0u64);
        let mut d = load.wrapping_add(dynamic);
        while rd64(d) != 0 {
            let v = load.wrapping_add(rd64(d + 8));
            match rd64(d) {
                6 => sym = v,
                5 => strtab = v,
                4 => hash = v,
                0x6fff_fef5 => gnu = v,
                _ => {}
            }
            d += 16;
        }
        // The string table follows the symbol table in a vDSO, which bounds the number of symbols when there
        // is no DT_HASH.
        let count = if hash != 0 {
            u64::from(rd32(hash + 4))
        } else if gnu != 0 {
            strtab.saturating_sub(sym) / 24
        } else {
            0
        };
        for i in 0..count {
            let s = sym + i * 24;
            let n = strtab + u64::from(rd32(s));
            let matches = name.iter().enumerate().all(|(k, &b)| *((n + k as u64) as *const u8) == b)
                && *((n + name.len() as u64) as *const u8) == 0;
            if matches && rd16(s + 6) != 0 {
                return load.wrapping_add(rd64(s + 8));
            }
        }
        0
    }
}

/// Installs the host filter: from here on only the gate may call the host.
#[inline(never)]
fn install_filter() {
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    const SECCOMP_SET_MODE_FILTER: u64 = 1;
    let len = start_info().filter_len;
    if len == 0 {
        panic!("boot: the host gave no filter");
    }
    const MADV_REMOVE: u64 = 9;
    let at = layout::CONTROL_BASE + control::FILTER;
    // On the host's stack for the first process, which has room and goes too: so its pages can be given back while
    // that is still allowed. SAFETY: inside the control area; any bytes are valid numbers.
    let copy = unsafe { (at as *const [u64; (control::FILTER_MAX / 8) as usize]).read() };
    let prog = [u64::from(len), copy.as_ptr() as u64];
    // SAFETY: nothing reads the program there any more; prog is a valid sock_fprog (16 bytes: u16 length padded,
    // pointer).
    unsafe {
        // If it cannot be given back, it stays.
        let _ = host::call(nr::MADVISE, [at, control::FILTER_MAX, MADV_REMOVE, 0, 0, 0]);
        let r = host::call(nr::PRCTL, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]);
        assert!(r.is_ok(), "boot: no_new_privs failed");
        let r = host::call(nr::SECCOMP, [SECCOMP_SET_MODE_FILTER, 0, prog.as_ptr() as u64, 0, 0, 0]);
        assert!(r.is_ok(), "boot: installing the filter failed: {r:?}");
    }
}

/// Keeps the address of the kernel object, for clones to find it.
pub fn keep_kernel<K: Sync>(kernel: &'static K) {
    crate::memory::arena::set_root(crate::memory::arena::ROOT_KERNEL, core::ptr::from_ref(kernel) as u64);
}

/// The kernel object that [`keep_kernel`] kept, in a domain made from a frozen image.
///
/// The type must be the same; the host sees to it that the guest kernel is.
pub fn kept_kernel<K: Sync>() -> &'static K {
    let at = crate::memory::arena::root(crate::memory::arena::ROOT_KERNEL);
    assert!(at != 0 && start_info().frozen_tables != 0, "no frozen kernel to continue");
    // SAFETY: the same kernel ELF stored it before the freeze, and the arena is mapped where it was.
    unsafe { &*(at as *const K) }
}

//! The files at the top of /proc.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::x86_64::__cpuid;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use doppel_machine::{arena, boot};

use super::super::synthetic::{Node, fixed, link, text};
use super::empty;
use crate::sched::PARKED;
use crate::task::Process;
use crate::{kernel, time};

/// Entries of the root besides processes.
pub fn entries() -> Vec<(&'static str, fn() -> Node)> {
    alloc::vec![
        ("bus", empty),
        ("cgroups", || fixed(CGROUPS)),
        ("cmdline", || fixed("doppel\n")),
        ("consoles", || fixed("tty0                 -WU (EC p  )    4:1\n")),
        ("cpuinfo", || text(|| Ok(cpuinfo()))),
        ("crypto", || fixed("")),
        ("devices", || fixed(
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n136 pts\n\nBlock devices:\n"
        )),
        ("diskstats", || fixed("")),
        ("driver", empty),
        ("filesystems", || fixed(
            "nodev\tproc\nnodev\tsysfs\nnodev\ttmpfs\nnodev\tdevtmpfs\nnodev\tdevpts\nnodev\toverlay\nnodev\tcgroup2\n"
        )),
        ("interrupts", || fixed("")),
        ("loadavg", || text(|| Ok(loadavg()))),
        ("locks", || fixed("")),
        ("meminfo", || text(|| Ok(meminfo()))),
        ("misc", || fixed("")),
        ("modules", || fixed("")),
        ("mounts", || link("self/mounts")),
        ("partitions", || fixed("major minor  #blocks  name\n\n")),
        ("softirqs", || fixed("")),
        ("stat", || text(|| Ok(stat()))),
        ("swaps", || fixed("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
        ("sysvipc", empty),
        ("uptime", || text(|| Ok(uptime()))),
        ("version", || text(|| Ok(version_line()))),
        ("vmstat", || text(|| Ok(format!(
            "nr_free_pages {}\nnr_zone_inactive_anon 0\npgfault 0\npgmajfault 0\npswpin 0\npswpout 0\noom_kill 0\n",
            memory().1 / 4096
        )))),
        ("zoneinfo", || fixed("")),
    ]
}

fn version_line() -> String {
    format!(
        "Linux version {} (doppel@doppel) {}\n",
        crate::task::sys_info::RELEASE,
        crate::task::sys_info::VERSION
    )
}

/// The JVM wants rows for the controllers it may use.
const CGROUPS: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\nblkio\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n";

/// Total and free memory of the domain in bytes.
pub fn memory() -> (u64, u64) {
    let si = boot::start_info();
    let total = if si.memory_limit != 0 { si.memory_limit } else { si.host_memory };
    let used = committed() + shared_pages() + arena::usage().0;
    (total, total.saturating_sub(used))
}

/// Bytes of private memory charged to the domain.
fn committed() -> u64 {
    crate::task::current().space().mm.committed()
}

/// Bytes of the page file in use.
fn shared_pages() -> u64 {
    crate::fs::pages::page_file().usage().0 * 4096
}

fn put(s: &mut String, args: core::fmt::Arguments<'_>) {
    let r = s.write_fmt(args);
    debug_assert!(r.is_ok());
}

fn meminfo() -> String {
    let (total, free) = memory();
    let shmem = shared_pages();
    let slab = arena::usage().0;
    let mut s = String::new();
    let rows = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free),
        ("Buffers", 0),
        ("Cached", shmem),
        ("SwapCached", 0),
        ("Active", total - free),
        ("Inactive", 0),
        ("Active(anon)", 0),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", committed()),
        ("Mapped", 0),
        ("Shmem", shmem),
        ("KReclaimable", 0),
        ("Slab", slab),
        ("SReclaimable", 0),
        ("SUnreclaim", slab),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", total),
        ("Committed_AS", total - free),
        ("VmallocTotal", 0),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("AnonHugePages", 0),
    ];
    for (name, bytes) in rows {
        let label = format!("{name}:");
        put(&mut s, format_args!("{label:<15} {:>8} kB\n", bytes / 1024));
    }
    s.push_str("HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\nHugepagesize:       2048 kB\nHugetlb:               0 kB\n");
    s
}

fn uptime() -> String {
    let up = time::monotonic_ns().saturating_sub(kernel().boot_ns) / 10_000_000;
    let idle = (up * u64::from(kernel().vcpu_limit)).saturating_sub(total_cpu_ns() / 10_000_000);
    format!("{}.{:02} {}.{:02}\n", up / 100, up % 100, idle / 100, idle % 100)
}

/// CPU nanoseconds of all processes that still have an entry.
fn total_cpu_ns() -> u64 {
    let one = |p: &Process| crate::time::cpu::process_ns(p) + p.child_cpu_ns.load(Ordering::Relaxed);
    kernel().all_processes().iter().map(|p| one(p)).sum()
}

/// Threads that run or could run, and all threads.
fn thread_counts() -> (usize, usize) {
    let threads = kernel().threads.lock();
    (threads.values().filter(|t| t.park.load(Ordering::Relaxed) != PARKED).count(), threads.len())
}

fn loadavg() -> String {
    let (running, all) = thread_counts();
    let last = kernel().processes.lock().keys().next_back().copied().unwrap_or(1);
    format!("0.00 0.00 0.00 {running}/{all} {last}\n")
}

fn stat() -> String {
    let cpus = kernel().vcpu_limit;
    let user = total_cpu_ns() / 10_000_000;
    let up = time::monotonic_ns().saturating_sub(kernel().boot_ns) / 10_000_000;
    let idle = (up * u64::from(cpus)).saturating_sub(user);
    let mut s = format!("cpu  {user} 0 0 {idle} 0 0 0 0 0 0\n");
    for i in 0..cpus {
        let n = u64::from(cpus);
        put(&mut s, format_args!("cpu{i} {} 0 0 {} 0 0 0 0 0 0\n", user / n, idle / n));
    }
    let (running, _) = thread_counts();
    let btime = boot::start_info().boot_realtime_ns / 1_000_000_000;
    put(
        &mut s,
        format_args!(
            "intr 0\nctxt 0\nbtime {btime}\nprocesses {}\nprocs_running {running}\nprocs_blocked 0\nsoftirq 0\n",
            kernel().forks()
        ),
    );
    s
}

/// Text of a CPUID leaf's registers.
fn brand() -> String {
    let mut b = Vec::new();
    if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004u32 {
            let r = __cpuid(leaf);
            for w in [r.eax, r.ebx, r.ecx, r.edx] {
                b.extend_from_slice(&w.to_le_bytes());
            }
        }
    }
    let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
    String::from(String::from_utf8_lossy(&b[..end]).trim())
}

/// Feature names by leaf, register and bit, for what programs look for.
const FLAGS: &[(u32, u8, u8, &str)] = &[
    (1, 3, 0, "fpu"),
    (1, 3, 4, "tsc"),
    (1, 3, 8, "cx8"),
    (1, 3, 15, "cmov"),
    (1, 3, 19, "clflush"),
    (1, 3, 23, "mmx"),
    (1, 3, 24, "fxsr"),
    (1, 3, 25, "sse"),
    (1, 3, 26, "sse2"),
    (1, 3, 28, "ht"),
    (1, 2, 0, "pni"),
    (1, 2, 1, "pclmulqdq"),
    (1, 2, 9, "ssse3"),
    (1, 2, 12, "fma"),
    (1, 2, 13, "cx16"),
    (1, 2, 19, "sse4_1"),
    (1, 2, 20, "sse4_2"),
    (1, 2, 22, "movbe"),
    (1, 2, 23, "popcnt"),
    (1, 2, 25, "aes"),
    (1, 2, 26, "xsave"),
    (1, 2, 28, "avx"),
    (1, 2, 29, "f16c"),
    (1, 2, 30, "rdrand"),
    (1, 2, 31, "hypervisor"),
    (7, 1, 0, "fsgsbase"),
    (7, 1, 3, "bmi1"),
    (7, 1, 5, "avx2"),
    (7, 1, 8, "bmi2"),
    (7, 1, 9, "erms"),
    (7, 1, 16, "avx512f"),
    (7, 1, 17, "avx512dq"),
    (7, 1, 18, "rdseed"),
    (7, 1, 19, "adx"),
    (7, 1, 21, "avx512ifma"),
    (7, 1, 23, "clflushopt"),
    (7, 1, 24, "clwb"),
    (7, 1, 28, "avx512cd"),
    (7, 1, 29, "sha_ni"),
    (7, 1, 30, "avx512bw"),
    (7, 1, 31, "avx512vl"),
    (7, 2, 1, "avx512vbmi"),
    (7, 2, 6, "avx512_vbmi2"),
    (7, 2, 8, "gfni"),
    (7, 2, 9, "vaes"),
    (7, 2, 10, "vpclmulqdq"),
    (7, 2, 11, "avx512_vnni"),
    (7, 2, 12, "avx512_bitalg"),
    (7, 2, 14, "avx512_vpopcntdq"),
    (7, 2, 22, "rdpid"),
    (0x8000_0001, 3, 11, "syscall"),
    (0x8000_0001, 3, 20, "nx"),
    (0x8000_0001, 3, 27, "rdtscp"),
    (0x8000_0001, 3, 29, "lm"),
    (0x8000_0001, 2, 0, "lahf_lm"),
    (0x8000_0001, 2, 5, "abm"),
];

fn cpuinfo() -> String {
    let id = __cpuid(0);
    let mut vendor = Vec::new();
    for w in [id.ebx, id.edx, id.ecx] {
        vendor.extend_from_slice(&w.to_le_bytes());
    }
    let vendor = String::from_utf8_lossy(&vendor).into_owned();
    let sig = __cpuid(1).eax;
    let family = (sig >> 8 & 0xf) + (sig >> 20 & 0xff);
    let model = (sig >> 4 & 0xf) | (sig >> 12 & 0xf0);
    let mut flags = String::new();
    for (leaf, reg, bit, name) in FLAGS {
        let r = core::arch::x86_64::__cpuid_count(*leaf, 0);
        let word = [r.eax, r.ebx, r.ecx, r.edx][usize::from(*reg)];
        if word & (1 << bit) != 0 {
            put(&mut flags, format_args!(" {name}"));
        }
    }
    let cpus = kernel().vcpu_limit;
    let brand = brand();
    let mut s = String::new();
    for i in 0..cpus {
        put(
            &mut s,
            format_args!(
                "processor\t: {i}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {brand}\nstepping\t: {}\nmicrocode\t: 0x1\ncpu MHz\t\t: 2000.000\ncache size\t: 32768 KB\n",
                sig & 0xf
            ),
        );
        put(
            &mut s,
            format_args!(
                "physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {i}\ncpu cores\t: {cpus}\napicid\t\t: {i}\ninitial apicid\t: {i}\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t:{flags}\nbugs\t\t:\nbogomips\t: 4000.00\nclflush size\t: 64\ncache_alignment\t: 64\naddress sizes\t: 46 bits physical, 48 bits virtual\npower management:\n\n",
                id.eax
            ),
        );
    }
    s
}

//! The files at the top of /proc.

use crate::memory::swap::REGION;
use crate::process::keys::{self, KEYS};
use crate::process::task::load::{load_averages, thread_counts, total_cpu_ns};
use crate::process::task::{TASKS, try_current};
use crate::process::time::cpu;
use alloc::format;
use alloc::string::String;

use doppel_machine::{arena, boot};

use super::empty;
use super::put::put;
use crate::core::time;
use crate::domain::sysblock;
use crate::kernel;
use crate::objects::vfs::synthetic::{Entries, fixed, link, text};

/// Entries of the root besides processes.
pub fn entries() -> Entries {
    alloc::vec![
        ("bus", empty),
        ("cgroups", || fixed(CGROUPS)),
        ("cmdline", || fixed("doppel\n")),
        ("consoles", || fixed("tty0                 -WU (EC p  )    4:1\n")),
        ("cpuinfo", || text(|| Ok(super::cpuinfo::cpuinfo()))),
        ("crypto", || fixed("")),
        ("devices", || fixed(
            "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n 10 misc\n136 pts\n\nBlock devices:\n  7 loop\n254 virtblk\n"
        )),
        ("diskstats", || text(|| Ok(sysblock::diskstats()))),
        ("driver", empty),
        ("filesystems", || fixed(
            "nodev\tproc\nnodev\tsysfs\nnodev\ttmpfs\nnodev\tdevtmpfs\nnodev\tdevpts\nnodev\tcgroup2\nnodev\tmqueue\nnodev\tramfs\n\terofs\n\tdoppelfs\n"
        )),
        ("interrupts", || fixed("")),
        ("key-users", || text(|| Ok(KEYS.with(|s| s.list_users())))),
        ("keys", || text(|| Ok(try_current().map_or_else(String::new, |t| keys::call(&t, |c| c.list()))))),
        ("loadavg", || text(|| Ok(loadavg()))),
        ("locks", || text(|| Ok(super::locks::text(
            TASKS.all_processes().iter().map(|p| (p.pid, p.files()))
        )))),
        ("meminfo", || text(|| Ok(meminfo()))),
        ("misc", || fixed("")),
        ("modules", || fixed("")),
        ("mounts", || link("self/mounts")),
        ("partitions", || text(|| Ok(sysblock::partitions()))),
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
        crate::process::task::version::RELEASE,
        crate::process::task::version::VERSION
    )
}

/// The JVM wants rows for the controllers it may use.
const CGROUPS: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\nblkio\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n";

/// Total and free memory of the domain in bytes.
pub fn memory() -> (u64, u64) {
    let limit = boot::memory_limit();
    let total = if limit != 0 { limit } else { boot::start_info().host_memory };
    let used = committed() + arena::usage().0;
    (total, total.saturating_sub(used))
}

/// Bytes of memory charged to the domain: private mappings and pages of the page file.
fn committed() -> u64 {
    crate::process::task::current().space().mm.committed()
}

/// Bytes of the page file in use.
fn shared_pages() -> u64 {
    crate::objects::pages::page_file().usage().0 * 4096
}

fn meminfo() -> String {
    let (total, free) = memory();
    let kept = crate::objects::storage::kept_bytes();
    let shmem = shared_pages().saturating_sub(kept);
    let slab = arena::usage().0;
    let (swapped, swap) = REGION.usage();
    let mut s = String::new();
    let rows = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free + kept),
        ("Buffers", 0),
        ("Cached", shmem + kept),
        ("SwapCached", 0),
        ("Active", total - free),
        ("Inactive", 0),
        ("Active(anon)", 0),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", swap),
        ("SwapFree", swap - swapped),
        ("Dirty", crate::objects::storage::unwritten_bytes()),
        ("Writeback", 0),
        ("AnonPages", committed().saturating_sub(shmem + kept)),
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

fn loadavg() -> String {
    let (running, all) = thread_counts();
    let last = TASKS.processes.lock().keys().next_back().copied().unwrap_or(1);
    let [a, b, c] = load_averages();
    let show = |v: u64| format!("{}.{:02}", v / 100, v % 100);
    format!("{} {} {} {running}/{all} {last}\n", show(a), show(b), show(c))
}

fn stat() -> String {
    let cpus = kernel().vcpu_limit;
    let used = cpu::domain_times();
    let up = time::monotonic_ns().saturating_sub(kernel().boot_ns) * u64::from(cpus);
    let stolen = cpu::stolen_ns().min(up.saturating_sub(used.total()));
    let idle = up.saturating_sub(used.total() + stolen);
    let [user, system, idle, steal] = [used.user, used.system, idle, stolen].map(|ns| ns / 10_000_000);
    let mut s = format!("cpu  {user} 0 {system} {idle} 0 0 0 {steal} 0 0\n");
    for i in 0..cpus {
        let n = u64::from(cpus);
        put(
            &mut s,
            format_args!("cpu{i} {} 0 {} {} 0 0 0 {} 0 0\n", user / n, system / n, idle / n, steal / n),
        );
    }
    let (running, _) = thread_counts();
    let btime = boot::start_info().boot_realtime_ns / 1_000_000_000;
    put(
        &mut s,
        format_args!(
            "intr 0\nctxt 0\nbtime {btime}\nprocesses {}\nprocs_running {running}\nprocs_blocked 0\nsoftirq 0\n",
            TASKS.forks()
        ),
    );
    s
}

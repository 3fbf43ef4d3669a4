//! /sys/fs/cgroup: the domain as the root of a cgroup v2 hierarchy, with its own limits (`--cpus`, `--memory`, `--pids-limit`).
//!
//! Language runtimes find it through /proc/self/mountinfo and read their limits from it. Read-only: there are no
//! groups inside a domain.

use crate::core::subject::shown_pid;
use crate::process::task::TASKS;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use doppel_machine::boot;

use super::procfs::{cpu_list, memory};
use crate::kernel;
use crate::objects::vfs::Inode;
use crate::objects::vfs::synthetic::{Entries, Fixed, Node, SyntheticInode, fixed, text};
use crate::process::time::cpu::domain_times;

/// Root inode of a cgroup2 file system.
pub fn root(dev: u64) -> Arc<dyn Inode> {
    SyntheticInode::root(Arc::new(Fixed(entries())), dev)
}

fn used() -> u64 {
    let (total, free) = memory();
    total - free
}

fn entries() -> Entries {
    alloc::vec![
        ("cgroup.controllers", || fixed("cpuset cpu memory pids\n") as Node),
        ("cgroup.events", || fixed("populated 1\nfrozen 0\n")),
        ("cgroup.freeze", || fixed("0\n")),
        ("cgroup.max.depth", || fixed("max\n")),
        ("cgroup.max.descendants", || fixed("max\n")),
        ("cgroup.procs", || text(|| Ok(lines(TASKS.processes.lock().keys())))),
        ("cgroup.stat", || fixed("nr_descendants 0\nnr_dying_descendants 0\n")),
        ("cgroup.subtree_control", || fixed("\n")),
        ("cgroup.threads", || text(|| Ok(lines(TASKS.threads.lock().keys())))),
        ("cgroup.type", || fixed("domain\n")),
        ("cpu.max", || text(|| Ok(format!("{} 100000\n", u64::from(kernel().vcpu_limit) * 100_000)))),
        ("cpu.max.burst", || fixed("0\n")),
        ("cpu.pressure", || fixed(PRESSURE)),
        ("cpu.stat", || text(|| {
            let used = domain_times();
            let (user, system) = (used.user / 1000, used.system / 1000);
            Ok(format!(
                "usage_usec {}\nuser_usec {user}\nsystem_usec {system}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
                user + system
            ))
        })),
        ("cpu.weight", || fixed("100\n")),
        ("cpu.weight.nice", || fixed("0\n")),
        ("cpuset.cpus", || fixed("\n")),
        ("cpuset.cpus.effective", || text(|| Ok(cpu_list(kernel().vcpu_limit) + "\n"))),
        ("cpuset.mems", || fixed("\n")),
        ("cpuset.mems.effective", || fixed("0\n")),
        ("io.pressure", || fixed(PRESSURE)),
        ("io.stat", || fixed("")),
        ("memory.current", || text(|| Ok(format!("{}\n", used())))),
        ("memory.events", || fixed("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n")),
        ("memory.high", || fixed("max\n")),
        ("memory.low", || fixed("0\n")),
        ("memory.max", || text(|| {
            let limit = boot::memory_limit();
            Ok(if limit == 0 { "max\n".to_string() } else { format!("{limit}\n") })
        })),
        ("memory.min", || fixed("0\n")),
        ("memory.oom.group", || fixed("0\n")),
        ("memory.peak", || text(|| Ok(format!("{}\n", used())))),
        ("memory.pressure", || fixed(PRESSURE)),
        ("memory.stat", || text(|| {
            Ok(format!(
                "anon {}\nfile 0\nkernel 0\nkernel_stack 0\npagetables 0\nsock 0\nshmem 0\nslab 0\ninactive_anon 0\nactive_anon 0\ninactive_file 0\nactive_file 0\nunevictable 0\npgfault 0\npgmajfault 0\n",
                used()
            ))
        })),
        ("memory.swap.current", || fixed("0\n")),
        ("memory.swap.max", || fixed("0\n")),
        ("pids.current", || text(|| Ok(format!("{}\n", TASKS.tasks())))),
        ("pids.max", || text(|| Ok(
            boot::task_limit().map_or("max\n".to_string(), |most| format!("{most}\n"))
        ))),
    ]
}

const PRESSURE: &str =
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

fn lines<'a>(ids: impl Iterator<Item = &'a i32>) -> String {
    ids.map(|p| shown_pid(*p).to_string() + "\n").collect()
}

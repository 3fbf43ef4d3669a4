//! /sys: what language runtimes and tools read of the machine, showing the domain's own CPUs and limits.

use crate::domain::freezer::FREEZER;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::procfs::cpu_list;
use doppel_machine::boot;

use super::{sysblock, sysnet};
use crate::core::sched::{PollEvents, PollTable};
use crate::objects::vfs::synthetic::{Directory, Node, SyntheticInode, bytes, dir, fixed, seek_to, text};
use crate::objects::vfs::{File, FileOps, FileType, Inode, Input, Output, Whence};
use crate::{Errno, Result, kernel};

/// Root inode of a sys file system.
pub fn root(dev: u64) -> Arc<dyn Inode> {
    let top = alloc::vec![
        ("block", (|| sysblock::links("../")) as fn() -> Node),
        ("bus", empty),
        ("class", || dir(alloc::vec![
            ("net", sysnet::links as fn() -> Node),
            ("tty", empty),
            ("block", || sysblock::links("../../"))
        ])),
        ("dev", || dir(alloc::vec![("block", empty as fn() -> Node), ("char", empty)])),
        ("devices", || dir(alloc::vec![
            ("system", || dir(alloc::vec![("cpu", || Node::Dir(Arc::new(Cpus))), ("node", node),])),
            ("virtual", || dir(alloc::vec![
                ("net", sysnet::devices as fn() -> Node),
                ("block", sysblock::devices)
            ]))
        ])),
        ("firmware", empty),
        ("fs", || dir(alloc::vec![("cgroup", empty as fn() -> Node)])),
        ("kernel", || dir(alloc::vec![("mm", || dir(alloc::vec![
            ("hugepages", empty as fn() -> Node),
            ("transparent_hugepage", thp),
        ]))])),
        ("module", empty),
        ("doppel", doppel),
        ("power", || dir(alloc::vec![("state", power_state)])),
    ];
    SyntheticInode::static_root(Arc::new(crate::objects::vfs::synthetic::Fixed(top)), dev)
}

/// Writing "freeze" freezes the domain; the write returns once in the original and once in each clone.
#[derive(Default)]
struct PowerState {
    /// Whether its line has been read. The file is a stream: its writes wait, which seekable files must not.
    told: AtomicBool,
}

impl FileOps for PowerState {
    fn read(&self, _file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        if self.told.swap(true, Ordering::Relaxed) { Ok(0) } else { out.write(b"freeze\n") }
    }

    fn write(&self, _file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let mut text = [0; 16];
        let n = input.read(&mut text)?;
        match text[..n].trim_ascii() {
            b"freeze" => FREEZER.request().map(|()| n),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn power_state() -> Node {
    Node::File { mode: 0o644, open: Arc::new(|| Ok(Arc::new(PowerState::default()))) }
}

/// What this domain is: which generation, which clone, with which arguments.
fn doppel() -> Node {
    dir(alloc::vec![
        (
            "args",
            (|| bytes(0o444, || {
                let lines = FREEZER.args();
                Ok(lines.iter().flat_map(|a| a.iter().copied().chain([b'\n'])).collect())
            })) as fn() -> Node
        ),
        ("clone_index", || text(|| Ok(format!("{}\n", boot::start_info().clone_index)))),
        ("domain_id", || text(|| Ok(format!("{}\n", boot::start_info().domain_id)))),
        ("generation", || Node::File { mode: 0o444, open: Arc::new(|| Ok(Arc::new(Generation::default()))) }),
    ])
}

/// The generation counter: polls with POLLPRI and POLLERR after the domain has gone on since the last read.
#[derive(Default)]
struct Generation {
    seen: AtomicU64,
}

impl FileOps for Generation {
    fn read(&self, _file: &File, out: &mut Output<'_>, offset: u64) -> Result<usize> {
        let now = boot::start_info().generation;
        self.seen.store(now, Ordering::Relaxed);
        let text = format!("{now}\n");
        match text.as_bytes().get(offset as usize..) {
            Some(rest) => out.write(rest),
            None => Ok(0),
        }
    }

    fn seekable(&self) -> bool {
        true
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        seek_to(file.pos.get(), offset, whence, 0)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(FREEZER.queue());
        }
        let readable = PollEvents::READABLE;
        if self.seen.load(Ordering::Relaxed) == boot::start_info().generation {
            readable
        } else {
            readable | PollEvents::PRI | PollEvents::ERR
        }
    }
}

fn empty() -> Node {
    dir(Vec::new())
}

fn node() -> Node {
    dir(alloc::vec![
        ("has_cpu", || fixed("0\n") as Node),
        ("has_memory", || fixed("0\n")),
        ("node0", || dir(alloc::vec![
            ("cpulist", || text(|| Ok(cpu_list(kernel().vcpu_limit) + "\n"))),
            ("cpumap", || text(|| Ok(cpu_map()))),
            ("distance", || fixed("10\n")),
            ("meminfo", || text(|| {
                let (total, free) = super::procfs::memory();
                Ok(format!(
                    "Node 0 MemTotal: {:>14} kB\nNode 0 MemFree: {:>15} kB\n",
                    total / 1024,
                    free / 1024
                ))
            })),
        ])),
        ("online", || fixed("0\n")),
        ("possible", || fixed("0\n")),
    ])
}

fn thp() -> Node {
    dir(alloc::vec![
        ("defrag", || fixed("always defer defer+madvise [madvise] never\n") as Node),
        ("enabled", || fixed("always [madvise] never\n")),
        ("hpage_pmd_size", || fixed("2097152\n")),
        ("shmem_enabled", || fixed("always within_size advise [never] deny force\n")),
    ])
}

fn cpu_map() -> String {
    let n = kernel().vcpu_limit.min(32);
    let mask = if n == 32 { u32::MAX } else { (1 << n) - 1 };
    format!("{mask:x}\n")
}

/// devices/system/cpu.
struct Cpus;

const CPU_FILES: [&str; 7] =
    ["isolated", "kernel_max", "offline", "online", "possible", "present", "vulnerabilities"];

impl Directory for Cpus {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let list = || text(|| Ok(cpu_list(kernel().vcpu_limit) + "\n"));
        Some(match name {
            b"online" | b"possible" | b"present" => list(),
            b"offline" | b"isolated" => fixed("\n"),
            b"kernel_max" => fixed("8191\n"),
            b"vulnerabilities" => empty(),
            _ => {
                let n: u32 = core::str::from_utf8(name.strip_prefix(b"cpu")?).ok()?.parse().ok()?;
                (n < kernel().vcpu_limit).then(|| cpu(n))?
            }
        })
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let fixed = CPU_FILES.iter().map(|n| {
            ((*n).to_string(), if *n == "vulnerabilities" { FileType::Directory } else { FileType::Regular })
        });
        let cpus = (0..kernel().vcpu_limit).map(|i| (format!("cpu{i}"), FileType::Directory));
        for (i, (name, kind)) in fixed.chain(cpus).enumerate().skip(from as usize) {
            if !each(i as u64 + 1, name.as_bytes(), kind) {
                return;
            }
        }
    }
}

/// One CPU: its topology and caches, as one socket of single-threaded cores.
fn cpu(n: u32) -> Node {
    Node::Dir(Arc::new(Cpu(n)))
}

struct Cpu(u32);

impl Directory for Cpu {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let n = self.0;
        match name {
            b"topology" => Some(Node::Dir(Arc::new(Values(alloc::vec![
                ("core_cpus", format!("{:x}\n", 1u64 << n.min(63))),
                ("core_cpus_list", format!("{n}\n")),
                ("core_id", format!("{n}\n")),
                ("core_siblings", cpu_map()),
                ("core_siblings_list", cpu_list(kernel().vcpu_limit) + "\n"),
                ("die_id", "0\n".to_string()),
                ("package_cpus", cpu_map()),
                ("package_cpus_list", cpu_list(kernel().vcpu_limit) + "\n"),
                ("physical_package_id", "0\n".to_string()),
                ("thread_siblings", format!("{:x}\n", 1u64 << n.min(63))),
                ("thread_siblings_list", format!("{n}\n")),
            ])))),
            b"cache" => Some(Node::Dir(Arc::new(Caches(n)))),
            b"online" => Some(fixed("1\n")),
            _ => None,
        }
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let entries = [
            ("cache", FileType::Directory),
            ("online", FileType::Regular),
            ("topology", FileType::Directory),
        ];
        for (i, (name, kind)) in entries.iter().enumerate().skip(from as usize) {
            if !each(i as u64 + 1, name.as_bytes(), *kind) {
                return;
            }
        }
    }
}

/// Files with given contents.
struct Values(Vec<(&'static str, String)>);

impl Directory for Values {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let v = self.0.iter().find(|(n, _)| n.as_bytes() == name)?.1.clone();
        Some(text(move || Ok(v.clone())))
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (i, (name, _)) in self.0.iter().enumerate().skip(from as usize) {
            if !each(i as u64 + 1, name.as_bytes(), FileType::Regular) {
                return;
            }
        }
    }
}

/// cacheN/index0..3: typical sizes; exact ones do not matter to programs, their presence does.
struct Caches(u32);

const CACHES: [(&str, &str, &str, bool); 4] = [
    ("1", "Data", "32K", false),
    ("1", "Instruction", "32K", false),
    ("2", "Unified", "1024K", false),
    ("3", "Unified", "32768K", true),
];

impl Directory for Caches {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let i: usize = core::str::from_utf8(name.strip_prefix(b"index")?).ok()?.parse().ok()?;
        let (level, kind, size, shared) = *CACHES.get(i)?;
        let sharing = if shared { cpu_list(kernel().vcpu_limit) } else { self.0.to_string() };
        Some(Node::Dir(Arc::new(Values(alloc::vec![
            ("coherency_line_size", "64\n".to_string()),
            ("id", format!("{}\n", if shared { 0 } else { self.0 })),
            ("level", format!("{level}\n")),
            ("number_of_sets", "64\n".to_string()),
            ("shared_cpu_list", sharing + "\n"),
            ("shared_cpu_map", cpu_map()),
            ("size", format!("{size}\n")),
            ("type", format!("{kind}\n")),
            ("ways_of_associativity", "8\n".to_string()),
        ]))))
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for i in from as usize..CACHES.len() {
            if !each(i as u64 + 1, format!("index{i}").as_bytes(), FileType::Directory) {
                return;
            }
        }
    }
}

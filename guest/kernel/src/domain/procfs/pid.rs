//! /proc/PID and /proc/PID/task/TID.

use crate::core::namespace::pid::PidNamespace;
use crate::core::sched::runnable::Runnable;
use crate::objects::vfs::flags::OpenFlags;
use crate::process::task::TASKS;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::Ordering;

use super::put::put;
use super::{net, waiting};
use crate::objects::lookup::opener::Opener;
use crate::objects::lookup::path::Path;
use crate::objects::vfs::attach::Attachments;
use crate::objects::vfs::attach::locks::Locks;
use crate::objects::vfs::mount::space::Space;
use crate::objects::vfs::mount::table;
use crate::objects::vfs::synthetic::{Directory, MagicLink, Node, bytes, fixed, open_text, text, writable};
use crate::objects::vfs::{File, FileOps, FileType};
use crate::process::task::{Process, Thread, current, remote};
use crate::process::time::used::Times;
use crate::{Errno, Result, kernel, memory};

/// The directory of a process, if it exists (threads too: /proc/TID is found but not listed).
pub fn process_dir(pid: i32, ns: &Arc<PidNamespace>) -> Option<Node> {
    let pid = ns.kernel(pid)?;
    let p = match TASKS.process(pid) {
        Ok(p) => p,
        Err(_) => TASKS.thread(pid).ok()?.process.clone(),
    };
    let main = p.threads().first().cloned();
    Some(Node::Dir(Arc::new(PidDir {
        p: Arc::downgrade(&p),
        t: main.as_ref().map(Arc::downgrade),
        task: false,
        ns: ns.clone(),
    })))
}

/// One process, or one thread under task/.
struct PidDir {
    p: Weak<Process>,
    t: Option<Weak<Thread>>,
    task: bool,
    /// Whose numbers it shows.
    ns: Arc<PidNamespace>,
}

/// Names in the directory with their types; the index is the cookie.
const ENTRIES: &[(&str, FileType)] = {
    use FileType::{Directory as D, Regular as R, Symlink as L};
    &[
        ("attr", D),
        ("auxv", R),
        ("cgroup", R),
        ("children", R),
        ("cmdline", R),
        ("comm", R),
        ("coredump_filter", R),
        ("cpuset", R),
        ("cwd", L),
        ("environ", R),
        ("exe", L),
        ("fd", D),
        ("fdinfo", D),
        ("gid_map", R),
        ("io", R),
        ("limits", R),
        ("maps", R),
        ("mem", R),
        ("mountinfo", R),
        ("mounts", R),
        ("mountstats", R),
        ("net", D),
        ("ns", D),
        ("oom_adj", R),
        ("oom_score", R),
        ("oom_score_adj", R),
        ("personality", R),
        ("projid_map", R),
        ("root", L),
        ("sched", R),
        ("schedstat", R),
        ("setgroups", R),
        ("smaps", R),
        ("smaps_rollup", R),
        ("stack", R),
        ("stat", R),
        ("statm", R),
        ("status", R),
        ("syscall", R),
        ("task", D),
        ("timers", R),
        ("timerslack_ns", R),
        ("uid_map", R),
        ("wchan", R),
    ]
};

impl Directory for PidDir {
    fn process(&self) -> Option<Weak<dyn Any + Send + Sync>> {
        (!self.task).then(|| self.p.clone() as Weak<dyn Any + Send + Sync>)
    }

    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let name = core::str::from_utf8(name).ok()?;
        self.p.upgrade()?;
        self.entry(name)
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (i, (name, kind)) in ENTRIES.iter().enumerate().skip(from as usize) {
            if self.task && *name == "task" || !self.task && *name == "children" {
                continue;
            }
            if !each(i as u64 + 1, name.as_bytes(), *kind) {
                return;
            }
        }
    }

    fn owner(&self) -> (u32, u32) {
        owner_of(&self.p)
    }
}

/// Whose the files of a process are.
fn owner_of(p: &Weak<Process>) -> (u32, u32) {
    p.upgrade().map_or((0, 0), |p| {
        let c = p.cred();
        (c.euid, c.egid)
    })
}

impl PidDir {
    /// A text file made from the process.
    fn of(&self, f: fn(&Process) -> Result<String>) -> Node {
        let p = self.p.clone();
        text(move || f(&*p.upgrade().ok_or(Errno::ESRCH)?))
    }

    /// Which kinds of memory go into a core file.
    fn core_filter(&self) -> Node {
        const KINDS: u32 = 0x1ff;
        let (p, q) = (self.p.clone(), self.p.clone());
        let filter = |p: &Weak<Process>| p.upgrade().ok_or(Errno::ESRCH);
        writable(
            0o644,
            move || Ok(format!("{:08x}\n", filter(&p)?.attrs.core_filter.load(Ordering::Relaxed))),
            move |b| {
                let text = core::str::from_utf8(b).map_err(|_| Errno::EINVAL)?.trim_ascii_end();
                let v = match (text.strip_prefix("0x").or(text.strip_prefix("0X")), text.strip_prefix('0')) {
                    (Some(hex), _) => u32::from_str_radix(hex, 16),
                    (None, Some(octal)) if !octal.is_empty() => u32::from_str_radix(octal, 8),
                    _ => text.parse(),
                };
                let v = v.map_err(|_| Errno::EINVAL)?;
                filter(&q)?.attrs.core_filter.store(v & KINDS, Ordering::Relaxed);
                Ok(())
            },
        )
    }

    /// A text file made from the process and, if it still runs, the thread.
    fn of_thread(&self, f: fn(&Process, Option<&Thread>, &PidNamespace) -> Result<String>) -> Node {
        let (p, t, ns) = (self.p.clone(), self.t.clone(), self.ns.clone());
        text(move || {
            let t = t.as_ref().and_then(Weak::upgrade);
            f(&*p.upgrade().ok_or(Errno::ESRCH)?, t.as_deref(), &ns)
        })
    }

    /// A file about where the thread waits.
    fn waits(&self, mode: u32, f: fn(&Thread) -> Result<String>) -> Node {
        let t = self.t.clone();
        bytes(mode, move || {
            f(&*t.as_ref().and_then(Weak::upgrade).ok_or(Errno::ESRCH)?).map(String::into_bytes)
        })
    }

    fn block(&self, mode: u32, f: fn(&Arc<Process>) -> Vec<u8>) -> Node {
        let p = self.p.clone();
        bytes(mode, move || Ok(f(&p.upgrade().ok_or(Errno::ESRCH)?)))
    }

    fn magic(&self, f: fn(&Process) -> Option<Path>) -> Node {
        Node::Magic(Arc::new(PathLink { p: self.p.clone(), f }))
    }

    fn entry(&self, name: &str) -> Option<Node> {
        Some(match name {
            "auxv" => self.block(0o400, |p| p.auxv.lock().clone()),
            "cmdline" => self.block(0o444, super::title::command_line),
            "environ" => self.block(0o400, |p| p.environ.lock().clone()),
            "comm" => self.comm(),
            "coredump_filter" => self.core_filter(),
            "cwd" => self.magic(|p| Some(p.fs().cwd())),
            "root" => self.magic(|p| Some(p.fs().root())),
            "exe" => self.magic(|p| p.exe.lock().clone()),
            "fd" => Node::Dir(Arc::new(FdDir { p: self.p.clone(), info: false })),
            "fdinfo" => Node::Dir(Arc::new(FdDir { p: self.p.clone(), info: true })),
            "mem" => {
                let p = self.p.clone();
                Node::File {
                    mode: 0o600,
                    open: Arc::new(move || Ok(Arc::new(super::mem::MemFile::new(p.clone())))),
                }
            }
            "attr" => crate::objects::vfs::synthetic::dir(alloc::vec![
                ("current", || fixed("unconfined\n") as Node),
                ("exec", || fixed("")),
                ("prev", || fixed("unconfined\n")),
            ]),
            "children" if self.task => {
                let ns = self.ns.clone();
                let p = self.p.clone();
                text(move || {
                    let p = p.upgrade().ok_or(Errno::ESRCH)?;
                    let children: Vec<i32> = p.children.lock().iter().map(|c| c.pid).collect();
                    Ok(children.into_iter().map(|c| format!("{} ", ns.shown(c))).collect())
                })
            }
            "limits" => self.of(|p| Ok(limits(p))),
            "maps" => self.of(|p| Ok(memory::maps_text(&p.space().mm))),
            "smaps" => self.of(|p| Ok(memory::smaps_text(&p.space().mm))),
            "smaps_rollup" => self.of(|p| Ok(memory::smaps_rollup_text(&p.space().mm))),
            "mounts" => self.mount_table(table::mounts_text),
            "mountinfo" => self.mount_table(table::mountinfo_text),
            "mountstats" => self.mount_table(table::mountstats_text),
            "net" => net::dir_node(),
            "ns" => super::ns::dir(self.p.clone(), self.t.clone()),
            "oom_score_adj" => self.oom_score_adj(),
            "sched" => self.of_thread(|p, _, ns| {
                Ok(format!("{} ({}, #threads: {})\n", comm_of(p), ns.shown(p.pid), p.threads().len()))
            }),
            "schedstat" => self.of_thread(|_, t, _| {
                Ok(format!("{} 0 0\n", t.map_or(0, crate::process::time::cpu::thread_ns)))
            }),
            "stack" => self.waits(0o400, waiting::stack),
            "stat" if self.task => self.of_thread(|p, t, ns| {
                stat(p, t, ns, t.map_or_else(Times::default, crate::process::time::cpu::thread_times))
            }),
            "stat" => self.of_thread(|p, t, ns| stat(p, t, ns, crate::process::time::cpu::process_times(p))),
            "statm" => self.of(|p| Ok(statm(p))),
            "status" => self.of_thread(super::status::status),
            "uid_map" | "gid_map" | "projid_map" | "setgroups" => super::ids::node(name, self.p.clone())?,
            "wchan" => self.waits(0o444, waiting::wchan),
            "task" if !self.task => Node::Dir(Arc::new(TaskDir { p: self.p.clone(), ns: self.ns.clone() })),
            _ => return constant(name),
        })
    }

    /// A file that shows the mounts the process sees and tells of their changes.
    fn mount_table(&self, f: fn(&Space, &Path) -> String) -> Node {
        let (p, t) = (self.p.clone(), self.t.clone());
        let open = move || -> Result<Arc<dyn FileOps>> {
            let p = p.upgrade().ok_or(Errno::EINVAL)?;
            let t = t.as_ref().and_then(Weak::upgrade).ok_or(Errno::EINVAL)?;
            let space: Arc<Space> = Arc::clone(&t.mounts());
            let root = if p.threads().first().is_some_and(|l| Arc::ptr_eq(l, &t)) { p.fs() } else { t.fs() };
            let (root, shown) = (root.root(), space.clone());
            Ok(table::Table::new(open_text(move || f(&shown, &root)), space))
        };
        Node::File { mode: 0o444, open: Arc::new(open) }
    }

    fn oom_score_adj(&self) -> Node {
        let (p, q) = (self.p.clone(), self.p.clone());
        writable(
            0o644,
            move || {
                Ok(format!("{}\n", p.upgrade().ok_or(Errno::ESRCH)?.oom_score_adj.load(Ordering::Relaxed)))
            },
            move |b| {
                let v = parse_int(b).filter(|v| (-1000..=1000).contains(v)).ok_or(Errno::EINVAL)?;
                q.upgrade().ok_or(Errno::ESRCH)?.oom_score_adj.store(v as i32, Ordering::Relaxed);
                Ok(())
            },
        )
    }

    fn comm(&self) -> Node {
        let (t, u) = (self.t.clone(), self.t.clone());
        let get = |t: &Option<Weak<Thread>>| t.as_ref().and_then(Weak::upgrade).ok_or(Errno::ESRCH);
        writable(
            0o644,
            move || Ok(format!("{}\n", comm_text(&get(&t)?.comm.lock()))),
            move |b| {
                let b = b.strip_suffix(b"\n").unwrap_or(b);
                let mut c = [0; 16];
                let n = b.len().min(15);
                c[..n].copy_from_slice(&b[..n]);
                *get(&u)?.comm.lock() = c;
                Ok(())
            },
        )
    }
}

/// A decimal number with optional sign and trailing newline.
pub fn parse_int(b: &[u8]) -> Option<i64> {
    core::str::from_utf8(b).ok()?.trim().parse().ok()
}

/// A thread's name as text.
pub fn comm_text(c: &[u8; 16]) -> String {
    let n = c.iter().position(|&b| b == 0).unwrap_or(16);
    String::from_utf8_lossy(&c[..n]).into_owned()
}

/// The leader's name; a zombie keeps what it was last called.
pub fn comm_of(p: &Process) -> String {
    match p.threads().first() {
        Some(t) => comm_text(&t.comm.lock()),
        None => comm_text(&p.last_comm.lock()),
    }
}

/// State letter of a process or thread.
pub fn state(p: &Process, t: Option<&Thread>) -> char {
    if p.is_zombie() {
        return 'Z';
    }
    let traced = match t {
        Some(t) => t.ptrace.is_stopped(),
        None => p.threads().first().is_some_and(|t| t.ptrace.is_stopped()),
    };
    if traced {
        return 't';
    }
    if p.signals.is_stopped() {
        return 'T';
    }
    let one = |t: &Thread| !t.entity().waits();
    let runs = match t {
        Some(t) => one(t),
        None => p.threads().iter().any(|t| one(t)),
    };
    if runs { 'R' } else { 'S' }
}

/// Nanoseconds as clock ticks of 10 ms.
fn ticks(ns: u64) -> u64 {
    ns / 10_000_000
}

fn stat(p: &Process, t: Option<&Thread>, ns: &PidNamespace, used: Times) -> Result<String> {
    let v = memory::vm_stats(&p.space().mm);
    // Addresses are for those who may look into the process.
    let may = remote::may_access(&current().process, p).is_ok();
    let a = if may { p.space().mm.areas() } else { memory::Areas::default() };
    let id = ns.shown(t.map_or(p.pid, Thread::tid));
    let name = t.map_or_else(|| comm_of(p), |t| comm_text(&t.comm.lock()));
    let session = p.session();
    let (tty_nr, tpgid) = crate::terminals::controlling_numbers(&session);
    let tpgid = if tpgid > 0 { ns.shown(tpgid) } else { tpgid };
    let nice = p.nice.load(Ordering::Relaxed);
    let (ignored, caught) = p.signals.ignored_and_caught();
    let (pending, blocked) = t.map_or((0, 0), |t| (t.signals.pending(), t.signals.mask()));
    let children = p.used.children();
    let mut s = String::new();
    put(
        &mut s,
        format_args!(
            "{id} ({name}) {} {} {} {} {tty_nr} {tpgid} 4194304 0 0 0 0 ",
            state(p, t),
            p.parent().map_or(0, |q| ns.shown(q.pid)),
            ns.shown(p.pgid()),
            ns.shown(session.sid)
        ),
    );
    put(
        &mut s,
        format_args!(
            "{} {} {} {} {} {nice} {} 0 {} {} {} 18446744073709551615 ",
            ticks(used.user),
            ticks(used.system),
            ticks(children.user),
            ticks(children.system),
            20 + nice,
            p.threads().len().max(1),
            ticks(p.start_ns.saturating_sub(kernel().boot_ns)),
            v.size,
            v.resident / 4096
        ),
    );
    put(
        &mut s,
        format_args!(
            "{} {} {} 0 0 {} {} {} {} 0 0 0 {} 0 0 0 0 0 0 {} {} {} {} {} {} {} {}\n",
            a.start_code.max(1),
            a.end_code.max(1),
            v.stack_start,
            pending & 0x7fff_ffff,
            blocked & 0x7fff_ffff,
            ignored & 0x7fff_ffff,
            caught & 0x7fff_ffff,
            p.exit_signal.load(Ordering::Relaxed),
            a.start_data,
            a.end_data,
            a.start_brk,
            a.arg_start,
            a.arg_end,
            a.env_start,
            a.env_end,
            p.exit_status.lock().unwrap_or(0)
        ),
    );
    Ok(s)
}

/// "0" or "0-3".
pub fn cpu_list(n: u32) -> String {
    if n <= 1 { "0".to_string() } else { format!("0-{}", n - 1) }
}

/// Files that say the same of all processes.
fn constant(name: &str) -> Option<Node> {
    Some(match name {
        "cgroup" => fixed("0::/\n"),
        "cpuset" => fixed("/\n"),
        "timers" => fixed(""),
        "io" => fixed(
            "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n",
        ),
        "oom_adj" | "oom_score" => fixed("0\n"),
        "personality" => fixed("00000000\n"),
        "syscall" => fixed("running\n"),
        "timerslack_ns" => fixed("50000\n"),
        _ => return None,
    })
}

fn statm(p: &Process) -> String {
    let v = memory::vm_stats(&p.space().mm);
    let page = |b: u64| b / 4096;
    format!(
        "{} {} {} {} 0 {} 0\n",
        page(v.size),
        page(v.resident),
        page(v.shared),
        page(v.text),
        page(v.data)
    )
}

fn limits(p: &Process) -> String {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let show = |v: u64| if v == u64::MAX { "unlimited".to_string() } else { v.to_string() };
    let mut s = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (l, (name, unit)) in p.rlimits.lock().iter().zip(NAMES) {
        put(&mut s, format_args!("{name:<25} {:<20} {:<20} {unit:<10}\n", show(l.cur), show(l.max)));
    }
    s
}

/// exe, cwd, root.
struct PathLink {
    p: Weak<Process>,
    f: fn(&Process) -> Option<Path>,
}

impl MagicLink for PathLink {
    fn text(&self) -> Result<Vec<u8>> {
        Ok(self.path().ok_or(Errno::ENOENT)?.name())
    }

    fn path(&self) -> Option<Path> {
        self.p.upgrade().and_then(|p| (self.f)(&p))
    }
}

/// fd/N.
struct FdLink {
    pub(crate) file: Arc<File>,
}

impl MagicLink for FdLink {
    fn text(&self) -> Result<Vec<u8>> {
        match (&self.file.path, &self.file.anon_name) {
            (Some(p), _) => Ok(p.name()),
            (None, Some(n)) => Ok(n.clone().into_bytes()),
            (None, None) => Err(Errno::ENOENT),
        }
    }

    fn path(&self) -> Option<Path> {
        self.file.path.clone()
    }

    fn file(&self) -> Option<Arc<File>> {
        Some(self.file.clone())
    }

    /// How it is open.
    fn mode(&self) -> u32 {
        0o100 | u32::from(self.file.readable()) << 8 | u32::from(self.file.writable()) << 7
    }
}

struct FdDir {
    p: Weak<Process>,
    info: bool,
}

impl Directory for FdDir {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let fd: i32 = core::str::from_utf8(name).ok()?.parse().ok()?;
        let p = self.p.upgrade()?;
        let file = p.files().get(fd).ok()?;
        if !self.info {
            return Some(Node::Magic(Arc::new(FdLink { file })));
        }
        let cloexec = p.files().cloexec(fd).ok()?;
        let pid = p.pid;
        Some(text(move || {
            let flags = (file.flags() | OpenFlags::CLOEXEC.when(cloexec)).bits();
            let mut s =
                format!("pos:\t{}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{}\n", file.pos.get(), file.id);
            file.ops().fdinfo(&file, &mut s);
            if let Some(l) = file.attachments().and_then(Attachments::get::<Locks>) {
                l.describe(file.id, pid, &mut s);
            }
            Ok(s)
        }))
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let Some(p) = self.p.upgrade() else { return };
        let kind = if self.info { FileType::Regular } else { FileType::Symlink };
        for (fd, _) in p.files().list() {
            let cookie = fd as u64 + 1;
            if cookie > from && !each(cookie, fd.to_string().as_bytes(), kind) {
                return;
            }
        }
    }

    fn owner(&self) -> (u32, u32) {
        owner_of(&self.p)
    }

    fn mode(&self) -> u32 {
        // Open files are nobody else's business; `fdinfo` is as Linux has it.
        if self.info { 0o555 } else { 0o500 }
    }
}

struct TaskDir {
    p: Weak<Process>,
    ns: Arc<PidNamespace>,
}

impl Directory for TaskDir {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let tid = self.ns.kernel(super::parse_pid(name)?)?;
        let p = self.p.upgrade()?;
        let t = p.threads().into_iter().find(|t| t.tid() == tid)?;
        Some(Node::Dir(Arc::new(PidDir {
            p: self.p.clone(),
            t: Some(Arc::downgrade(&t)),
            task: true,
            ns: self.ns.clone(),
        })))
    }

    fn links(&self) -> u32 {
        2 + self.p.upgrade().map_or(0, |p| p.threads.lock().len() as u32)
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let Some(p) = self.p.upgrade() else { return };
        let mut tids: Vec<i32> = p.threads().iter().map(|t| self.ns.shown(t.tid())).collect();
        tids.sort_unstable();
        for tid in tids {
            if tid as u64 > from && !each(tid as u64, tid.to_string().as_bytes(), FileType::Directory) {
                return;
            }
        }
    }
}

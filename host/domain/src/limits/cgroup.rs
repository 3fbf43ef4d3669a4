//! One control group per domain, on v2, v1 and hybrid hosts.
//!
//! A domain's first process must be *born* in its group: on v2 by `CLONE_INTO_CGROUP`, on v1 by writing
//! "0" to `tasks` itself. Moving another process, which is what libraries for this offer, takes a
//! host-wide lock and an RCU grace period (milliseconds) for each hierarchy. So this module only makes
//! directories, writes limits, and hands out the descriptors for that birth.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use doppel_confine::limits::MAX_TASKS;
use doppel_spec::{NO_PIDS_LIMIT, Resources};

use crate::limits::arbiter::ArbiterEntry;
use crate::limits::short_file::brief;

mod io_limits;
mod service;

pub use service::ServiceGroups;

/// Controllers a domain is put under.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
/// The same for a domain that is accounted for: v1 and v2 count in different ones.
const ACCOUNTED: [&str; 6] = ["memory", "cpu", "pids", "cpuacct", "blkio", "io"];
/// Directory of all domains in each hierarchy.
const PARENT: &str = "doppel";
/// And of all service domains, beside it: what bounds all domains together does not keep one from being replaced.
const SERVICES_PARENT: &str = "doppel-services";
/// Period of the CPU quota of a limit.
const CPU_PERIOD: Duration = Duration::from_millis(100);
/// What a process or group weighs on v1.
const SHARES: u64 = 1024;
/// What a group weighs on v2, and in [`Resources::cpu_weight`].
pub(crate) const WEIGHT: u32 = 100;

/// And for one that cannot stop by itself: on v1 there is a hierarchy for that. Its programs see their groups, and a Java
/// runtime heeds none on v1 if it does not find this one of CPUs too.
const PAUSED: [&str; 8] = ["memory", "cpu", "pids", "cpuacct", "blkio", "io", "freezer", CPUSET];
const CPUSET: &str = "cpuset";

/// And for a service domain, which all that use it pay for in CPU time.
const SERVICES: [&str; 2] = ["memory", "pids"];

/// Which controllers a domain is put under.
#[derive(Clone, Copy, Debug)]
enum Extent {
    Limits,
    Accounts,
    Pauses,
    Services,
}

impl Extent {
    fn controllers(self) -> &'static [&'static str] {
        match self {
            Self::Limits => &CONTROLLERS,
            Self::Accounts => &ACCOUNTED,
            Self::Pauses => &PAUSED,
            Self::Services => &SERVICES,
        }
    }
}

/// Limits of a domain's control group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Bytes of host memory; the most there can be is no bound.
    pub memory: Option<u64>,
    /// The same if nobody has asked for a limit: as far as the host can do it.
    pub by_default: Option<u64>,
    /// The rest, as it is asked for, but for the number of tasks, which is the group's. Its `memory_bytes` is the domain's own.
    pub resources: Resources,
    /// It is accounted for.
    pub account: bool,
    /// It cannot stop by itself.
    pub pauses: bool,
    /// It is no domain, but serves some.
    pub service: bool,
    /// A storage service keeps the limits of its block I/O too, where the host cannot.
    pub served: bool,
}

impl Limits {
    fn extent(&self) -> Extent {
        let r = &self.resources;
        let block_io = r.io_weight.is_some() || !r.io_devices.is_empty();
        match (self.account || block_io, self.pauses) {
            _ if self.service => Extent::Services,
            (_, true) => Extent::Pauses,
            (true, false) => Extent::Accounts,
            (false, false) => Extent::Limits,
        }
    }

    /// The directory of its group.
    fn parent(&self) -> &'static str {
        if self.service { SERVICES_PARENT } else { PARENT }
    }

    /// The controllers that cannot be missing.
    fn needed(&self) -> impl Iterator<Item = &'static str> {
        let r = &self.resources;
        let needed = [
            (self.memory.is_some_and(|n| n < u64::MAX) || r.memory_reservation_bytes.is_some(), "memory"),
            (r.cpus.is_some() || r.cpu_weight.is_some(), "cpu"),
            (r.pids.is_some_and(|n| n != NO_PIDS_LIMIT), "pids"),
        ];
        needed.into_iter().filter_map(|(needed, controller)| needed.then_some(controller))
    }
}

/// What a control group has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Host memory in use now, in bytes.
    pub memory_bytes: Option<u64>,
    /// Most host memory ever in use, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Processes killed because the group's memory limit was reached.
    pub oom_kills: Option<u64>,
    /// CPU time in microseconds.
    pub cpu_us: Option<u64>,
    /// Processes and threads there are.
    pub tasks: Option<u32>,
    /// Bytes read from block devices.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to them.
    pub io_write_bytes: Option<u64>,
}

/// The control group hierarchy of this host: `v2`, `v1` or `none`.
#[must_use]
pub fn cgroups() -> &'static str {
    match Hierarchies::find(Extent::Limits) {
        Ok(Hierarchies::V2(_)) => "v2",
        Ok(Hierarchies::V1(_)) => "v1",
        Err(_) => "none",
    }
}

/// The hierarchies of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hierarchies {
    /// Controllers on the unified hierarchy, mounted here.
    V2(PathBuf),
    /// Controllers on hierarchies of their own, without repetition.
    V1(Vec<(&'static str, PathBuf)>),
}

impl Hierarchies {
    /// Those of this host, as many as are wanted; looked for until there are some.
    fn find(extent: Extent) -> io::Result<Self> {
        static FOUND: [OnceLock<Hierarchies>; 4] = [const { OnceLock::new() }; 4];
        let cell = &FOUND[extent as usize];
        if let Some(found) = cell.get() {
            return Ok(found.clone());
        }
        Self::look(extent.controllers()).map(|found| cell.get_or_init(|| found).clone())
    }

    fn look(wanted: &[&'static str]) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let found = Self::parse(&mounts, wanted, |root| {
            fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|all| CONTROLLERS.iter().any(|c| has_word(&all, c)))
        });
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no control group hierarchy is mounted"))
    }

    /// From the text of `/proc/mounts`; `has_controllers` tells whether a v2 mount has any (on hybrid
    /// hosts it has none).
    fn parse(mounts: &str, wanted: &[&'static str], has_controllers: impl Fn(&Path) -> bool) -> Option<Self> {
        let mut v1: Vec<(&'static str, PathBuf)> = Vec::new();
        let mut v2 = None;
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(path), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let path = PathBuf::from(path);
            match kind {
                "cgroup2" if v2.is_none() && has_controllers(&path) => v2 = Some(path),
                "cgroup" => {
                    for &controller in wanted {
                        let mine = options.split(',').any(|o| o == controller);
                        if mine && !v1.iter().any(|(c, p)| *c == controller || *p == path) {
                            v1.push((controller, path.clone()));
                        }
                    }
                }
                _ => {}
            }
        }
        match v2 {
            Some(root) => Some(Self::V2(root)),
            None if v1.is_empty() => None,
            None => Some(Self::V1(v1)),
        }
    }
}

/// Most tasks of all domains together: three of four that the host can have.
#[must_use]
pub fn all_tasks() -> u64 {
    let of = |file: &str| fs::read_to_string(format!("/proc/sys/kernel/{file}")).ok()?.trim().parse().ok();
    let host: u64 = ["pid_max", "threads-max"].iter().filter_map(|file| of(file)).min().unwrap_or(32768);
    host / 4 * 3
}

/// Most tasks of all domains together as it is set; none if it is not.
#[must_use]
pub fn tasks_bound() -> Option<u64> {
    let parent = match Hierarchies::find(Extent::Limits).ok()? {
        Hierarchies::V2(root) => root,
        Hierarchies::V1(roots) => roots.into_iter().find(|(c, _)| *c == "pids")?.1,
    };
    fs::read_to_string(parent.join(PARENT).join("pids.max")).ok()?.trim().parse().ok()
}

/// A domain's control group; removed when dropped, by which time the domain must be dead.
#[derive(Debug)]
pub(crate) struct Cgroup {
    view: View,
    /// Of a domain that is accounted for.
    seat: Option<ArbiterEntry>,
}

/// The same for those who may look at it and change it as long as it is there.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Controller and directory: on v2 the same directory for all.
    dirs: Vec<(&'static str, PathBuf)>,
    v2: bool,
}

/// Descriptors through which the first process is born in the group.
#[derive(Debug, Default)]
pub(crate) struct Birth {
    v2: Option<File>,
    tasks: Vec<File>,
}

impl Birth {
    /// For `CLONE_INTO_CGROUP`.
    pub fn cgroup_dir(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(AsFd::as_fd)
    }

    /// `tasks` files to write "0" to.
    pub fn tasks(&self) -> Vec<BorrowedFd<'_>> {
        self.tasks.iter().map(AsFd::as_fd).collect()
    }
}

impl Cgroup {
    /// Makes the group and sets its limits.
    pub fn create(name: &str, limits: Limits) -> io::Result<Self> {
        Self::create_in(Hierarchies::find(limits.extent())?, name, limits)
    }

    fn create_in(hierarchies: Hierarchies, name: &str, limits: Limits) -> io::Result<Self> {
        let wanted = limits.extent().controllers();
        let above = limits.parent();
        let (dirs, v2) = match hierarchies {
            Hierarchies::V2(root) => {
                let parent = root.join(above);
                make_dir(&parent)?;
                let path = root.join("cgroup.controllers");
                let all = fs::read_to_string(&path).map_err(|e| at(&path, e))?;
                let ours: Vec<_> = wanted.iter().copied().filter(|c| has_word(&all, c)).collect();
                for dir in [&root, &parent] {
                    enable_controllers(dir, &ours)?;
                }
                (ours.into_iter().map(|c| (c, parent.join(name))).collect(), true)
            }
            Hierarchies::V1(roots) => {
                let dirs = roots.into_iter().map(|(c, root)| (c, root.join(above).join(name))).collect();
                (dirs, false)
            }
        };
        for controller in limits.needed() {
            let dirs: &Vec<(&str, PathBuf)> = &dirs;
            if !dirs.iter().any(|(c, _)| *c == controller) {
                let text = format!("this host has no {controller} controller");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        }
        // From here on, dropping removes what was made.
        let mut group = Self { view: View { dirs, v2 }, seat: None };
        for (controller, dir) in &group.dirs {
            fs::create_dir_all(dir).map_err(|e| at(dir, e))?;
            if *controller == CPUSET && !v2 {
                dir.parent().map_or(Ok(()), fill_cpuset).and_then(|()| fill_cpuset(dir))?;
            }
        }
        let mut limits = limits;
        limits.resources.pids.get_or_insert(u32::try_from(MAX_TASKS).unwrap_or(u32::MAX));
        if !limits.service {
            group.bound_all()?;
        }
        group.set_limits(&limits)?;
        group.weigh_parent();
        if limits.account {
            group.seat = Some(ArbiterEntry::take(group.view(), &limits));
        }
        Ok(group)
    }

    /// The group of this name that another process has made with such limits.
    pub fn adopt(name: &str, limits: &Limits) -> io::Result<Self> {
        let found = Self::adopt_in(limits.parent(), name, limits);
        match found {
            // Older programs have those of service domains among the domains'.
            Err(e) if limits.service && e.kind() == io::ErrorKind::NotFound => {
                Self::adopt_in(PARENT, name, limits)
            }
            found => found,
        }
    }

    fn adopt_in(above: &str, name: &str, limits: &Limits) -> io::Result<Self> {
        let wanted = limits.extent().controllers();
        let (dirs, v2): (Vec<(&'static str, PathBuf)>, bool) = match Hierarchies::find(limits.extent())? {
            Hierarchies::V2(root) => {
                let dir = root.join(above).join(name);
                let path = dir.join("cgroup.controllers");
                let all = fs::read_to_string(&path).map_err(|e| at(&path, e))?;
                let has = |c: &&str| has_word(&all, c);
                (wanted.iter().copied().filter(has).map(|c| (c, dir.clone())).collect(), true)
            }
            Hierarchies::V1(roots) => {
                let dirs = roots.into_iter().map(|(c, root)| (c, root.join(above).join(name)));
                (dirs.filter(|(_, dir)| dir.exists()).collect(), false)
            }
        };
        if dirs.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut group = Self { view: View { dirs, v2 }, seat: None };
        if limits.account {
            // Of what the other's arbiter has done to it nothing is left.
            let weight = limits.resources.cpu_weight.unwrap_or(WEIGHT);
            group.unlimit_cpu(limits.resources.cpus)?;
            group.weigh_cpu(f64::from(weight))?;
            crate::limits::arbiter::let_run(&group.tasks());
            group.seat = Some(ArbiterEntry::take(group.view(), limits));
        }
        Ok(group)
    }

    /// For those who may only look and change.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Its limits were changed ([`View::set_limits`]).
    pub fn limited(&self, limits: &Limits) {
        if let Some(seat) = &self.seat {
            seat.change(limits);
        }
    }
}

impl Deref for Cgroup {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl View {
    /// Its name.
    pub fn name(&self) -> Option<String> {
        self.dirs.first().and_then(|(_, dir)| Some(dir.file_name()?.to_str()?.to_owned()))
    }

    /// Has all processes of the group stand still, or go on; whether they do, [`Self::is_still`] says.
    pub fn pause(&self, still: bool) -> io::Result<()> {
        let (path, text) = match (self.freezer(), still) {
            (Some(dir), true) if self.v2 => (dir.join("cgroup.freeze"), "1"),
            (Some(dir), false) if self.v2 => (dir.join("cgroup.freeze"), "0"),
            (Some(dir), true) => (dir.join("freezer.state"), "FROZEN"),
            (Some(dir), false) => (dir.join("freezer.state"), "THAWED"),
            (None, _) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this host has no freezer controller",
                ));
            }
        };
        fs::write(&path, text).map_err(|e| at(&path, e))
    }

    /// Whether they stand still.
    pub fn is_still(&self) -> bool {
        let Some(dir) = self.freezer() else { return false };
        let (file, text) = if self.v2 { ("cgroup.events", "frozen 1") } else { ("freezer.state", "FROZEN") };
        fs::read_to_string(dir.join(file)).is_ok_and(|all| all.lines().any(|l| l == text))
    }

    fn freezer(&self) -> Option<&Path> {
        let found = if self.v2 { self.dirs.first() } else { self.dirs.iter().find(|(c, _)| *c == "freezer") };
        found.map(|(_, dir)| dir.as_path())
    }

    /// On v1, processes of the host usually sit in the root group, where each weighs as much as a whole
    /// group. So that a domain weighs as much as one of them, the parent of all domains weighs as much as
    /// there are domains, but no more than one a CPU: idle ones count as well, and their weight goes to those that
    /// are busy.
    fn weigh_parent(&self) {
        let Some((_, dir)) = self.dirs.iter().find(|(c, _)| !self.v2 && *c == "cpu") else { return };
        let Some(parent) = dir.parent() else { return };
        let Ok(meta) = fs::metadata(parent) else { return };
        let most = rustix::thread::sched_getaffinity(None).map_or(1, |set| u64::from(set.count()));
        let domains = meta.nlink().saturating_sub(2).clamp(1, most.max(1));
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        // A matter of fairness only: if another process wrote something else meanwhile, whoever starts or ends next
        // sets it again.
        if WRITTEN.swap(domains, Ordering::Relaxed) != domains {
            let _ = fs::write(parent.join("cpu.shares"), (domains * SHARES).to_string());
        }
    }

    /// Bounds the tasks of all domains together, so that the host keeps some for itself and for what serves them. What an
    /// administrator has set lower stays.
    fn bound_all(&self) -> io::Result<()> {
        static DONE: AtomicBool = AtomicBool::new(false);
        let Some((_, dir)) = self.dirs.iter().find(|(c, _)| *c == "pids") else { return Ok(()) };
        let (Some(parent), false) = (dir.parent(), DONE.load(Ordering::Relaxed)) else { return Ok(()) };
        let path = parent.join("pids.max");
        let now = match fs::read_to_string(&path) {
            // A hierarchy without this controller, or the root of one.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            now => now.map_err(|e| at(&path, e))?,
        };
        let most = all_tasks();
        if now.trim().parse::<u64>().map_or(true, |now| now > most) {
            fs::write(&path, most.to_string()).map_err(|e| at(&path, e))?;
        }
        DONE.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Changes limits; those that are none stay. Less memory takes as long as there is memory to take back.
    pub fn set_limits(&self, limits: &Limits) -> io::Result<()> {
        let resources = &limits.resources;
        for (controller, dir) in &self.dirs {
            let write = |file: &str, value: &str| put(dir, file, value);
            let is = |c: &str| *controller == c;
            if is("pids")
                && let Some(most) = resources.pids
            {
                let most = if most == NO_PIDS_LIMIT { MAX_TASKS } else { u64::from(most).min(MAX_TASKS) };
                write("pids.max", &most.to_string())?;
            }
            if is("memory") {
                if let Some(bytes) = limits.memory.or(limits.by_default) {
                    self.limit_memory(dir, bytes, limits.pauses)?;
                }
                if let Some(bytes) = resources.memory_reservation_bytes {
                    let file = if self.v2 { "memory.low" } else { "memory.soft_limit_in_bytes" };
                    write(file, &bytes.to_string())?;
                }
            }
            if is("cpu") {
                if let Some(cpus) = limits.resources.cpus {
                    self.limit_cpu(cpus, CPU_PERIOD)?;
                }
                if let Some(weight) = resources.cpu_weight {
                    self.weigh_cpu(f64::from(weight))?;
                }
            }
        }
        let done = |done: io::Result<()>| match done {
            Err(e) if e.kind() == io::ErrorKind::Unsupported && limits.served => Ok(()),
            done => done,
        };
        done(resources.io_weight.map_or(Ok(()), |weight| self.weigh_io(weight)))?;
        resources.io_devices.iter().try_for_each(|device| done(self.limit_io(device)))
    }

    /// Gives it such a weight in the division of CPU time.
    pub fn weigh_cpu(&self, weight: f64) -> io::Result<()> {
        if self.v2 {
            return self.write("cpu", "cpu.weight", &weight.round().clamp(1.0, 10_000.0).to_string());
        }
        let shares = (weight * SHARES as f64 / f64::from(WEIGHT)).max(2.0) as u64;
        self.write("cpu", "cpu.shares", &shares.to_string())
    }

    /// Lets its tasks use so many CPUs in every such period.
    pub fn limit_cpu(&self, cpus: f64, period: Duration) -> io::Result<()> {
        let period = period.as_micros();
        let quota = quota(cpus, period);
        if self.v2 {
            return self.write("cpu", "cpu.max", &format!("{quota} {period}"));
        }
        self.write("cpu", "cpu.cfs_period_us", &period.to_string())?;
        self.write("cpu", "cpu.cfs_quota_us", &quota.to_string())
    }

    /// Takes a quota back but for the domain's own limit.
    pub fn unlimit_cpu(&self, most: Option<f64>) -> io::Result<()> {
        match (most, self.v2) {
            (Some(cpus), _) => self.limit_cpu(cpus, CPU_PERIOD),
            (None, true) => self.write("cpu", "cpu.max", "max"),
            (None, false) => self.write("cpu", "cpu.cfs_quota_us", "-1"),
        }
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        let Some((_, dir)) = self.dirs.iter().find(|(c, _)| *c == controller) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("no {controller} controller")));
        };
        put(dir, file, value)
    }

    /// CPU time its tasks have used, in nanoseconds.
    pub fn cpu_time(&self) -> Option<u64> {
        cpu_time(self.accounts()?)
    }

    /// CPU time that all domains of the host have used.
    pub fn domains_cpu_time(&self) -> Option<u64> {
        cpu_time(self.accounts()?.parent()?)
    }

    /// CPU time that all of the host has used.
    pub fn host_cpu_time(&self) -> Option<u64> {
        cpu_time(self.accounts()?.parent()?.parent()?)
    }

    /// Where CPU time is counted.
    fn accounts(&self) -> Option<&Path> {
        let (controller, file) = if self.v2 { ("cpu", "cpu.stat") } else { ("cpuacct", "cpuacct.usage") };
        let own = self.dirs.iter().find(|(c, _)| *c == controller);
        // Controllers may share a hierarchy: else the first directory with such a file has it.
        own.or_else(|| self.dirs.iter().find(|(_, dir)| dir.join(file).exists()))
            .map(|(_, dir)| dir.as_path())
    }

    /// Its tasks: processes and threads.
    pub fn tasks(&self) -> Vec<u32> {
        let file = if self.v2 { "cgroup.threads" } else { "tasks" };
        let text = self.dirs.first().and_then(|(_, dir)| fs::read_to_string(dir.join(file)).ok());
        text.unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// `alone`: who goes beyond is killed, and none beside it.
    fn limit_memory(&self, dir: &Path, bytes: u64, alone: bool) -> io::Result<()> {
        let write = |file: &str, value: &str| put(dir, file, value);
        let most = match bytes {
            u64::MAX if self.v2 => "max".to_owned(),
            u64::MAX => "-1".to_owned(),
            bytes => bytes.to_string(),
        };
        if self.v2 {
            write("memory.max", &most)?;
            // One process killed is the end of a guest kernel anyway; an attendant reports how its programs end.
            write("memory.oom.group", if alone { "0" } else { "1" })?;
            // Kernels without swap accounting have no such file, nor any need of it.
            return if dir.join("memory.swap.max").exists() { write("memory.swap.max", "0") } else { Ok(()) };
        }
        let swap = "memory.memsw.limit_in_bytes";
        if !dir.join(swap).exists() {
            return write("memory.limit_in_bytes", &most);
        }
        // Memory with swap can never be limited to less than memory: growing goes the other way round.
        let first = write("memory.limit_in_bytes", &most);
        write(swap, &most)?;
        first.or_else(|_| write("memory.limit_in_bytes", &most))
    }

    /// Its directories, one in each hierarchy.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        let few = if self.v2 { 1 } else { self.dirs.len() };
        self.dirs.iter().take(few).map(|(_, dir)| dir.as_path())
    }

    /// Bytes of memory of its processes' own, without files.
    pub fn anonymous(&self) -> Option<u64> {
        let (_, dir) = self.dirs.iter().find(|(c, _)| *c == "memory")?;
        let name = if self.v2 { "anon " } else { "rss " };
        let text = fs::read_to_string(dir.join("memory.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Bytes that are charged to the group just now, page cache too; what `memory.stat` says may be seconds old.
    pub fn charged(&self) -> Option<u64> {
        let (_, dir) = self.dirs.iter().find(|(c, _)| *c == "memory")?;
        let name = if self.v2 { "memory.current" } else { "memory.usage_in_bytes" };
        fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
    }

    /// Opens what the first process needs to be born in the group.
    pub fn birth(&self) -> io::Result<Birth> {
        let mut birth = Birth::default();
        for (_, dir) in &self.dirs {
            if self.v2 {
                birth.v2 = Some(File::open(dir).map_err(|e| at(dir, e))?);
            } else {
                let tasks = dir.join("tasks");
                birth.tasks.push(OpenOptions::new().write(true).open(&tasks).map_err(|e| at(&tasks, e))?);
            }
        }
        Ok(birth)
    }

    /// What the group has counted so far; absent figures are unknown to this host.
    pub fn usage(&self) -> Usage {
        let read = |controller: &str, v1: &str, v2: &str| -> Option<String> {
            let file = if self.v2 { v2 } else { v1 };
            let own = self.dirs.iter().find(|(c, _)| *c == controller);
            // Controllers may share a hierarchy: else the first directory with such a file has it.
            own.into_iter().chain(&self.dirs).find_map(|(_, dir)| fs::read_to_string(dir.join(file)).ok())
        };
        let number = |text: Option<String>| text.and_then(|t| t.trim().parse::<u64>().ok());
        let line = |text: &Option<String>, name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
            text.as_ref().and_then(|t| t.lines().find_map(of))
        };
        let events = read("memory", "memory.oom_control", "memory.events");
        let cpu_us = self.cpu_time().map(|ns| ns / 1000);
        let io = read("blkio", "blkio.throttle.io_service_bytes", "io.stat");
        let io_sum = |v1: &str, v2: &str| {
            let words = io.as_ref()?.split_whitespace().collect::<Vec<_>>();
            let of_v1 = words.windows(2).filter(|w| w[0] == v1).filter_map(|w| w[1].parse::<u64>().ok());
            let of_v2 = words.iter().filter_map(|w| w.strip_prefix(v2)?.parse::<u64>().ok());
            Some(if self.v2 { of_v2.sum() } else { of_v1.sum() })
        };
        Usage {
            memory_bytes: number(read("memory", "memory.usage_in_bytes", "memory.current")),
            memory_peak_bytes: number(read("memory", "memory.max_usage_in_bytes", "memory.peak")),
            oom_kills: line(&events, "oom_kill "),
            cpu_us,
            tasks: number(read("pids", "pids.current", "pids.current")).and_then(|n| u32::try_from(n).ok()),
            io_read_bytes: io_sum("Read", "rbytes="),
            io_write_bytes: io_sum("Write", "wbytes="),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.seat = None;
        for (_, dir) in &self.dirs {
            remove_dir(dir);
        }
        self.weigh_parent();
    }
}

/// Removes the control groups of domains whose process died suddenly, by their ids.
/// False if one is left, because its processes are not gone yet. `patient`: a moment is waited for that, until it was in
/// vain once: they may go on for ever.
pub(crate) fn remove_left_over(is_one: impl Fn(u32) -> bool, patient: &mut bool) -> bool {
    groups_of(is_one).iter().fold(true, |gone, dir| {
        if *patient {
            remove_dir(dir);
        } else {
            // It is found again.
            let _ = fs::remove_dir(dir);
        }
        let left = dir.exists();
        *patient &= !left;
        gone & !left
    })
}

/// Processes and threads in groups of this domain.
pub(crate) fn tasks_of(id: u32) -> Vec<i32> {
    let tasks = |dir: &PathBuf| {
        // v1, v2
        let text = fs::read_to_string(dir.join("tasks"));
        text.or_else(|_| fs::read_to_string(dir.join("cgroup.procs"))).unwrap_or_default()
    };
    let texts: Vec<String> = groups_of(|one| one == id).iter().map(tasks).collect();
    texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.parse().ok()).collect()
}

/// Control groups of domains, by their ids.
fn groups_of(is_one: impl Fn(u32) -> bool) -> Vec<PathBuf> {
    let dirs = match Hierarchies::find(Extent::Pauses) {
        Ok(Hierarchies::V2(root)) => vec![root],
        Ok(Hierarchies::V1(roots)) => roots.into_iter().map(|(_, root)| root).collect(),
        Err(_) => Vec::new(),
    };
    let entries = dirs.iter().filter_map(|root| fs::read_dir(root.join(PARENT)).ok()).flatten().flatten();
    let of_one = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        // d7, d7-name
        let id = name.to_str().and_then(|n| n.strip_prefix('d')?.split('-').next()?.parse().ok());
        id.is_some_and(&is_one)
    };
    entries.filter(of_one).map(|entry| entry.path()).collect()
}

/// Removes a group, waiting a moment for its last processes to be gone.
fn remove_dir(dir: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Removed, or never made; anything else is left for the sweep.
            _ => return,
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|w| w == word)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(dir, error)),
        _ => Ok(()),
    }
}

/// Hands controllers down to the children of a v2 group, those that it does not hand down yet.
fn enable_controllers(dir: &Path, controllers: &[&str]) -> io::Result<()> {
    let path = dir.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&path).map_err(|e| at(&path, e))?;
    for controller in controllers {
        if !has_word(&enabled, controller) {
            fs::write(&path, format!("+{controller}")).map_err(|e| match e.kind() {
                // As in a container, which sees its own group as the root of all.
                io::ErrorKind::ResourceBusy => {
                    let why =
                        "it has processes itself, so it cannot limit groups below it: move them into one";
                    io::Error::new(e.kind(), format!("control group {}: {why}", dir.display()))
                }
                _ => at(&path, e),
            })?;
        }
    }
    Ok(())
}

/// Gives a new group of v1 the CPUs and memory of the one above: until it has some it can have no processes.
fn fill_cpuset(dir: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (path, above) = (dir.join(file), dir.join("..").join(file));
        let read = |path: &Path| fs::read_to_string(path).map_err(|e| at(path, e));
        if read(&path)?.trim().is_empty() {
            fs::write(&path, read(&above)?.trim()).map_err(|e| at(&path, e))?;
        }
    }
    Ok(())
}

/// Microseconds of CPU time in each period; the kernel's least is 1,000.
fn quota(cpus: f64, period: u128) -> u64 {
    ((cpus * period as f64) as u64).max(1_000)
}

/// What a group's file says of CPU time, in nanoseconds.
fn cpu_time(dir: &Path) -> Option<u64> {
    if let Some(text) = brief(dir.join("cpuacct.usage")) {
        return text.trim().parse().ok();
    }
    let text = brief(dir.join("cpu.stat"))?;
    let us: u64 = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?.trim().parse().ok()?;
    us.checked_mul(1000)
}

/// Writes a group's file.
fn put(dir: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, value).map_err(|e| at(&path, e))
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;

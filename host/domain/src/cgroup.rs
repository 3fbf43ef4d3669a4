//! One control group per domain, on v2, v1 and hybrid hosts.
//!
//! A domain's first process must be *born* in its group: on v2 by `CLONE_INTO_CGROUP`, on v1 by writing
//! "0" to `tasks` itself. Moving another process, which is what libraries for this offer, takes a
//! host-wide lock and an RCU grace period (milliseconds) for each hierarchy. So this module only makes
//! directories, writes limits, and hands out the descriptors for that birth.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use doppel_confine::limits::MAX_TASKS;

/// Controllers a domain is put under.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];
/// Directory of all domains in each hierarchy.
const PARENT: &str = "doppel";
/// Period of the CPU quota in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// What a process or group weighs on v1.
const SHARES: u64 = 1024;

/// Limits of a domain's control group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Bytes of host memory.
    pub memory: Option<u64>,
    /// CPUs.
    pub cpus: Option<f64>,
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
}

/// The hierarchies of this host.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchies {
    /// Controllers on the unified hierarchy, mounted here.
    V2(PathBuf),
    /// Controllers on hierarchies of their own; in `CONTROLLERS`' order, without repetition.
    V1(Vec<(&'static str, PathBuf)>),
}

impl Hierarchies {
    fn find() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let found = Self::parse(&mounts, |root| {
            fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|all| CONTROLLERS.iter().any(|c| has_word(&all, c)))
        });
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no control group hierarchy is mounted"))
    }

    /// From the text of `/proc/mounts`; `has_controllers` tells whether a v2 mount has any (on hybrid
    /// hosts it has none).
    fn parse(mounts: &str, has_controllers: impl Fn(&Path) -> bool) -> Option<Self> {
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
                    for controller in CONTROLLERS {
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

/// A domain's control group; removed when dropped, by which time the domain must be dead.
#[derive(Debug)]
pub(crate) struct Cgroup {
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
        Self::create_in(Hierarchies::find()?, name, limits)
    }

    fn create_in(hierarchies: Hierarchies, name: &str, limits: Limits) -> io::Result<Self> {
        let (dirs, v2) = match hierarchies {
            Hierarchies::V2(root) => {
                let parent = root.join(PARENT);
                make_dir(&parent)?;
                let path = root.join("cgroup.controllers");
                let all = fs::read_to_string(&path).map_err(|e| at(&path, e))?;
                let ours: Vec<_> = CONTROLLERS.into_iter().filter(|c| has_word(&all, c)).collect();
                for dir in [&root, &parent] {
                    enable_controllers(dir, &ours)?;
                }
                (ours.into_iter().map(|c| (c, parent.join(name))).collect(), true)
            }
            Hierarchies::V1(roots) => {
                let dirs = roots.into_iter().map(|(c, root)| (c, root.join(PARENT).join(name))).collect();
                (dirs, false)
            }
        };
        for (wanted, controller) in [(limits.memory.is_some(), "memory"), (limits.cpus.is_some(), "cpu")] {
            let dirs: &Vec<(&str, PathBuf)> = &dirs;
            if wanted && !dirs.iter().any(|(c, _)| *c == controller) {
                let text = format!("this host has no {controller} controller");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        }
        // From here on, dropping removes what was made.
        let group = Self { dirs, v2 };
        for (_, dir) in &group.dirs {
            fs::create_dir_all(dir).map_err(|e| at(dir, e))?;
        }
        group.set_limits(limits)?;
        group.weigh_parent();
        Ok(group)
    }

    /// On v1, processes of the host usually sit in the root group, where each weighs as much as a whole
    /// group. So that a domain weighs as much as one of them, the parent of all domains weighs as much as
    /// there are domains, within reason: idle ones count as well.
    fn weigh_parent(&self) {
        let Some((_, dir)) = self.dirs.iter().find(|(c, _)| !self.v2 && *c == "cpu") else { return };
        let Some(parent) = dir.parent() else { return };
        let Ok(meta) = fs::metadata(parent) else { return };
        let most = 4 * rustix::thread::sched_getaffinity(None).map_or(1, |set| u64::from(set.count()));
        let domains = meta.nlink().saturating_sub(2).clamp(1, most.max(1));
        // A matter of fairness only: whoever starts or ends next sets it again.
        let _ = fs::write(parent.join("cpu.shares"), (domains * SHARES).to_string());
    }

    fn set_limits(&self, limits: Limits) -> io::Result<()> {
        for (controller, dir) in &self.dirs {
            let write = |file: &str, value: &str| {
                let path = dir.join(file);
                fs::write(&path, value).map_err(|e| at(&path, e))
            };
            let is = |c: &str| *controller == c;
            if is("pids") {
                write("pids.max", &MAX_TASKS.to_string())?;
            }
            if is("memory")
                && let Some(bytes) = limits.memory
            {
                let (hard, swap) = if self.v2 {
                    ("memory.max", ("memory.swap.max", 0))
                } else {
                    ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", bytes))
                };
                write(hard, &bytes.to_string())?;
                // Kernels without swap accounting have no such file, nor any need of it.
                if dir.join(swap.0).exists() {
                    write(swap.0, &swap.1.to_string())?;
                }
                if self.v2 {
                    // One process killed is the end of the domain anyway.
                    write("memory.oom.group", "1")?;
                }
            }
            if is("cpu")
                && let Some(cpus) = limits.cpus
            {
                let quota = quota(cpus);
                if self.v2 {
                    write("cpu.max", &format!("{quota} {CPU_PERIOD}"))?;
                } else {
                    write("cpu.cfs_period_us", &CPU_PERIOD.to_string())?;
                    write("cpu.cfs_quota_us", &quota.to_string())?;
                }
            }
        }
        Ok(())
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
        let read = |v1: &str, v2: &str| -> Option<String> {
            let (_, dir) = self.dirs.iter().find(|(c, _)| *c == "memory")?;
            fs::read_to_string(dir.join(if self.v2 { v2 } else { v1 })).ok()
        };
        let number = |text: Option<String>| text.and_then(|t| t.trim().parse().ok());
        let events = read("memory.oom_control", "memory.events");
        let oom_kills = events.and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("oom_kill ").and_then(|n| n.trim().parse().ok()))
        });
        Usage {
            memory_bytes: number(read("memory.usage_in_bytes", "memory.current")),
            memory_peak_bytes: number(read("memory.max_usage_in_bytes", "memory.peak")),
            oom_kills,
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (_, dir) in &self.dirs {
            remove_dir(dir);
        }
        self.weigh_parent();
    }
}

/// Removes the control group of a domain whose process died suddenly.
pub(crate) fn remove_left_over(name: &str) {
    let dirs = match Hierarchies::find() {
        Ok(Hierarchies::V2(root)) => vec![root],
        Ok(Hierarchies::V1(roots)) => roots.into_iter().map(|(_, root)| root).collect(),
        // Without hierarchies there is nothing to remove.
        Err(_) => return,
    };
    for root in dirs {
        remove_dir(&root.join(PARENT).join(name));
    }
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
            fs::write(&path, format!("+{controller}")).map_err(|e| at(&path, e))?;
        }
    }
    Ok(())
}

/// Microseconds of CPU time in each period; the kernel's least is 1,000.
fn quota(cpus: f64) -> u64 {
    ((cpus * CPU_PERIOD as f64) as u64).max(1_000)
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;

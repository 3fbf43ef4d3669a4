//! Control groups of service domains: a bound on the memory that a process which serves many may use.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use doppel_service::{Group, Groups};

use super::{Birth, Cgroup, Extent, Hierarchies, Limits, PARENT, SERVICES_PARENT};

/// Makes one for each service domain that this process starts: `net-PID-N`, apart from those of domains.
#[derive(Debug, Default)]
pub struct ServiceGroups(());

/// How many this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

impl ServiceGroups {
    /// Those of this host, if this process may make control groups. What others have left that died is removed.
    #[must_use]
    pub fn of_host() -> Option<Arc<dyn Groups>> {
        let (Ok(hierarchies), true) =
            (Hierarchies::find(Extent::Services), rustix::process::geteuid().is_root())
        else {
            return None;
        };
        sweep(&hierarchies);
        Some(Arc::new(Self(())))
    }
}

impl Groups for ServiceGroups {
    fn make(&self, tasks: u32) -> io::Result<Box<dyn Group>> {
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("net-{}-{n}", std::process::id());
        let group = Cgroup::create(&name, limits(tasks))?;
        Ok(Box::new(ServiceGroup { birth: group.birth()?, name, _group: group }))
    }

    fn adopt(&self, name: &str) -> io::Result<Box<dyn Group>> {
        let group = Cgroup::adopt(name, &limits(1)).map_err(io::Error::other)?;
        Ok(Box::new(ServiceGroup { birth: group.birth()?, name: name.to_owned(), _group: group }))
    }
}

fn limits(tasks: u32) -> Limits {
    let mut limits = Limits { memory: Some(most_memory()), service: true, ..Limits::default() };
    limits.resources.pids = Some(tasks);
    limits
}

/// Half of the host's: the buffers of as many connections as it can have open fit, and the host is not brought down by
/// one that has gone mad.
fn most_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit)) / 2
}

#[derive(Debug)]
struct ServiceGroup {
    birth: Birth,
    name: String,
    _group: Cgroup,
}

impl Group for ServiceGroup {
    fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.birth.cgroup_dir()
    }

    fn tasks(&self) -> Vec<BorrowedFd<'_>> {
        self.birth.tasks()
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Removes groups that keepers have left which are no more.
fn sweep(hierarchies: &Hierarchies) {
    let roots: Vec<PathBuf> = match hierarchies {
        Hierarchies::V2(root) => vec![root.clone()],
        Hierarchies::V1(roots) => roots.iter().map(|(_, root)| root.clone()).collect(),
    };
    // Older programs had them among the domains'.
    let parents = roots.iter().flat_map(|root| [PARENT, SERVICES_PARENT].map(|parent| root.join(parent)));
    for entry in parents.filter_map(|parent| std::fs::read_dir(parent).ok()).flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("net-")?.split('-').next()?.parse::<i32>().ok());
        let gone = |pid| {
            let there = rustix::process::Pid::from_raw(pid).map(rustix::process::test_kill_process);
            there == Some(Err(rustix::io::Errno::SRCH))
        };
        if pid.is_some_and(gone) {
            // One whose process goes on without its keeper stays, and nobody waits for it.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

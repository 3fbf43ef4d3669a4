//! A service domain's process: started with little, and left with less by itself (`doppel_confine::service`).
//!
//! Its program needs the host's file system to be loaded, and then to open what it works with. So it is started as who
//! starts it, in namespaces of its own, and calls [`confine`] before it hears a word from anybody.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use doppel_confine::limits::{SERVICE_UID, USER_NAMESPACE};
use doppel_confine::service::{LIMITS, NAMESPACES, OOM_SCORE_ADJ, filter};
use doppel_sys::child::{self, ChildPlan};
use rustix::process::Signal;

/// Control groups for service domains; each process has one of its own, so that what a dead one has left in memory is
/// no burden for its successor.
pub trait Groups: Send + Sync + std::fmt::Debug {
    /// Makes one.
    ///
    /// # Errors
    /// What the host says; the service domain then has none.
    fn make(&self) -> io::Result<Box<dyn Group>>;
}

/// One of them; removed when it is dropped, after its process' end.
pub trait Group: Send + std::fmt::Debug {
    /// Directory of the unified hierarchy to be born in.
    fn directory(&self) -> Option<BorrowedFd<'_>>;
    /// `tasks` files of the others to join.
    fn tasks(&self) -> Vec<BorrowedFd<'_>>;
}

/// How service domains are started.
#[derive(Debug)]
pub struct Program {
    executable: File,
    arguments: Vec<CString>,
    groups: Option<Box<dyn Groups>>,
}

impl Program {
    /// With this executable file and these arguments, the program's name among them.
    ///
    /// # Errors
    /// If there is no such file, or an argument that cannot be one.
    pub fn new<'a>(
        executable: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = &'a OsStr>,
    ) -> io::Result<Self> {
        let executable = File::open(executable)?;
        let arguments =
            arguments.into_iter().map(|a| CString::new(a.as_bytes())).collect::<Result<_, _>>()?;
        Ok(Self { executable, arguments, groups: None })
    }

    /// In these control groups.
    #[must_use]
    pub fn in_groups(mut self, groups: Option<Box<dyn Groups>>) -> Self {
        self.groups = groups;
        self
    }

    /// Starts one, with `control` as its standard input.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(&self, control: BorrowedFd<'_>) -> io::Result<Process> {
        // Without one it can use more of the host's memory than it should, and does what it is for.
        let group = self.groups.as_ref().and_then(|groups| {
            groups
                .make()
                .inspect_err(|e| eprintln!("doppel: a service domain without control group: {e}"))
                .ok()
        });
        let root = rustix::process::geteuid().is_root();
        let errors = io::stderr();
        let limits: Vec<_> = LIMITS.iter().map(|l| (l.resource, l.value)).collect();
        let oom_score_adj = CString::new(OOM_SCORE_ADJ.to_string()).unwrap_or_default();
        let child = child::spawn(&ChildPlan {
            executable: self.executable.as_fd(),
            arguments: &self.arguments,
            descriptors: &[control, errors.as_fd(), errors.as_fd()],
            namespaces: if root { NAMESPACES } else { NAMESPACES | USER_NAMESPACE },
            join: None,
            user_namespace: !root,
            privileged: true,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            cgroup: group.as_ref().and_then(|g| g.directory()),
            cgroup_tasks: &group.as_ref().map(|g| g.tasks()).unwrap_or_default(),
            limits: &limits,
            tied: true,
            oom_score_adj: &oom_score_adj,
        })
        .map_err(io::Error::other)?;
        Ok(Process { child, _group: group })
    }
}

/// A service domain's process, until it has been waited for.
#[derive(Debug)]
pub struct Process {
    child: child::Child,
    _group: Option<Box<dyn Group>>,
}

impl Process {
    /// Its process id.
    ///
    /// # Panics
    /// Never: there is no process 0.
    #[must_use]
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.child.pid).expect("a process")
    }

    /// Kills it.
    pub fn kill(&self) {
        // One that has ended by itself is as good.
        let _ = rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL);
    }
}

/// Confines this process, which [`Program::start`] has started, for the rest of its life.
///
/// # Errors
/// The step that failed.
pub fn confine() -> io::Result<()> {
    // An ordinary user has no other id to give, and a user namespace of his without it.
    let ids = is_mapped(&std::fs::read_to_string("/proc/self/uid_map")?, SERVICE_UID)
        .then_some((SERVICE_UID, SERVICE_UID));
    child::confine(ids).map_err(io::Error::other)?;
    let program: Vec<[u8; 8]> = filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install(&program)
}

/// Whether there is such a user, by the text of `uid_map`: first id inside, first outside, how many.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|n| n.parse::<u64>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&u64::from(id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_there_are() {
        assert!(is_mapped("         0          0 4294967295\n", SERVICE_UID));
        assert!(!is_mapped("         0       1000          1\n", SERVICE_UID));
        assert!(is_mapped("0 1000 1\n1 100000 4294967294\n", SERVICE_UID));
        assert!(!is_mapped("", SERVICE_UID));
    }
}

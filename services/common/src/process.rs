//! A service domain's process: started with little, and left with less by itself (`doppel_confine::service`).
//!
//! Its program needs the host's file system to be loaded, and then to open what it works with. So it is started as who
//! starts it, in namespaces of its own, and calls [`confine`] before it hears a word from anybody.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use doppel_confine::limits::{SERVICE_UID, USER_NAMESPACE};
use doppel_confine::service::{LIMITS, NAMESPACES, NPROC, OOM_SCORE_ADJ, Service};
use doppel_sys::child::{self, ChildPlan};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Resource, Rlimit, Signal, WaitOptions, WaitStatus};

use crate::Born;

/// Control groups for service domains; each process has one of its own, so that what a dead one has left in memory is
/// no burden for its successor.
pub trait Groups: Send + Sync + std::fmt::Debug {
    /// Makes one for so many threads.
    ///
    /// # Errors
    /// What the host says; the service domain then has none.
    fn make(&self, tasks: u32) -> io::Result<Box<dyn Group>>;

    /// The one with this name, of a process that another one has started.
    ///
    /// # Errors
    /// If there is none.
    fn adopt(&self, name: &str) -> io::Result<Box<dyn Group>>;
}

/// One of them; removed when it is dropped, after its process' end.
pub trait Group: Send + Sync + std::fmt::Debug {
    /// Directory of the unified hierarchy to be born in.
    fn directory(&self) -> Option<BorrowedFd<'_>>;
    /// `tasks` files of the others to join.
    fn tasks(&self) -> Vec<BorrowedFd<'_>>;
    /// By which it is found again.
    fn name(&self) -> &str;
}

/// How service domains are started.
#[derive(Debug)]
pub struct Program {
    executable: File,
    arguments: Vec<CString>,
    groups: Option<Arc<dyn Groups>>,
    tasks: u32,
    outlives: bool,
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
        Ok(Self { executable, arguments, groups: None, tasks: 1, outlives: false })
    }

    /// In these control groups.
    #[must_use]
    pub fn in_groups(mut self, groups: Option<Arc<dyn Groups>>) -> Self {
        self.groups = groups;
        self
    }

    /// As this service, whose threads it may have. One that is not said to be one has a single thread.
    #[must_use]
    pub fn of(mut self, service: &Service) -> Self {
        self.tasks = service.tasks;
        self
    }

    /// Its processes do not end with the one that starts them, which knows how another one finds them.
    #[must_use]
    pub fn outliving(mut self, outlives: bool) -> Self {
        self.outlives = outlives;
        self
    }

    /// The control groups.
    #[must_use]
    pub fn groups(&self) -> Option<Arc<dyn Groups>> {
        self.groups.clone()
    }

    /// Whether it is the file that is there by now.
    ///
    /// # Errors
    /// If none is there.
    pub fn is(&self, executable: &Path) -> io::Result<bool> {
        Ok(identity(&self.executable.metadata()?) == identity(&std::fs::metadata(executable)?))
    }

    /// Starts one, with `control` as its standard input, and `more` from descriptor 3 on.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(&self, control: BorrowedFd<'_>, more: &[BorrowedFd<'_>]) -> io::Result<Process> {
        // Without one it can use more of the host's memory than it should, and does what it is for.
        let group = self.groups.as_ref().and_then(|groups| {
            groups
                .make(self.tasks)
                .inspect_err(|e| crate::say(format_args!("a service domain without control group: {e}")))
                .ok()
        });
        let root = rustix::process::geteuid().is_root();
        let errors = io::stderr();
        let descriptors: Vec<_> =
            [control, errors.as_fd(), errors.as_fd()].into_iter().chain(more.iter().copied()).collect();
        let limits: Vec<_> = LIMITS
            .iter()
            .filter(|l| self.tasks == 1 || l.resource != NPROC)
            .map(|l| (l.resource, l.value))
            .collect();
        let oom_score_adj = CString::new(OOM_SCORE_ADJ.to_string()).unwrap_or_default();
        let child = child::spawn(&ChildPlan {
            executable: self.executable.as_fd(),
            arguments: &self.arguments,
            descriptors: &descriptors,
            namespaces: if root { NAMESPACES } else { NAMESPACES | USER_NAMESPACE },
            join: None,
            user_namespace: !root,
            privileged: true,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            cgroup: group.as_ref().and_then(|g| g.directory()),
            cgroup_tasks: &group.as_ref().map(|g| g.tasks()).unwrap_or_default(),
            limits: &limits,
            speculation: &[],
            tied: !self.outlives,
            oom_score_adj: &oom_score_adj,
        })
        .map_err(io::Error::other)?;
        Ok(Process { child, is_ours: true, group })
    }
}

/// What tells a file from others, and from itself once it was written again.
fn identity(m: &std::fs::Metadata) -> (u64, u64, i64, i64) {
    (m.dev(), m.ino(), m.ctime(), m.ctime_nsec())
}

/// A service domain's process, until it has been waited for.
#[derive(Debug)]
pub struct Process {
    child: child::Child,
    /// It is a child of this process.
    is_ours: bool,
    group: Option<Box<dyn Group>>,
}

impl Process {
    /// One that another process has started, which is no more; none if it has ended as well.
    ///
    /// # Errors
    /// What the host says.
    pub fn adopt(born: Born, group: Option<Box<dyn Group>>) -> io::Result<Option<Self>> {
        let Some(pidfd) = born.open()? else { return Ok(None) };
        Ok(Some(Self { child: child::Child { pid: born.pid(), pidfd }, is_ours: false, group }))
    }

    /// How another process finds it.
    ///
    /// # Errors
    /// If it has ended.
    pub fn born(&self) -> io::Result<Born> {
        Born::of(self.child.pid)
    }

    /// Its control group's name, if it has one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_ref().map(|group| group.name())
    }

    /// A copy of a descriptor of its.
    ///
    /// # Errors
    /// What the host says.
    pub fn take(&self, number: RawFd) -> io::Result<OwnedFd> {
        crate::take(self.child.pidfd.as_fd(), number)
    }

    /// Whether it runs the program that is there by now.
    ///
    /// # Errors
    /// If none is there, or the process has ended.
    pub fn is_of(&self, executable: &Path) -> io::Result<bool> {
        let its = std::fs::metadata(format!("/proc/{}/exe", self.child.pid))?;
        Ok(identity(&its) == identity(&std::fs::metadata(executable)?))
    }

    /// Its process id.
    ///
    /// # Panics
    /// Never: there is no process 0.
    #[must_use]
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.child.pid).expect("a process")
    }

    /// What it uses; none once it has ended.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.pid)).ok()?;
        Usage::parse(&stat)
    }

    /// Waits until it has ended, and says how, as far as that is known. One that is stopped is killed: nobody who calls would be
    /// answered. Of one that is not ours only its watchdog sees that.
    pub fn wait(&self) -> Option<String> {
        if !self.is_ours {
            let mut fds = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
            // A signal ends the wait early.
            while rustix::event::poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
            return None;
        }
        loop {
            match rustix::process::waitpid(Some(self.pid()), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => self.kill(),
                Err(rustix::io::Errno::INTR) | Ok(None) => {}
                // Nothing but a child of ours can be waited for, so this is its end.
                Ok(Some((_, status))) => return Some(described(status)),
                Err(_) => return None,
            }
        }
    }

    /// Whether it has ended, if it did before so long.
    #[must_use]
    pub fn ends_within(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).expect("a moment");
        let mut fds = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
        // A signal ends the wait early.
        matches!(rustix::event::poll(&mut fds, Some(&time)), Ok(1..))
    }

    /// Kills it.
    pub fn kill(&self) {
        // One that has ended by itself is as good.
        let _ = rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL);
    }
}

/// How a process ended, in words.
fn described(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (_, Some(signal)) => format!("it was killed by signal {signal}"),
        _ => "it ended".to_owned(),
    }
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time so far.
    pub cpu: Duration,
    /// Memory that is resident, its part of channels included, in bytes.
    pub memory: u64,
}

impl Usage {
    /// From `/proc/PID/stat`.
    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may have anything in it. Then the 3rd field; 14, 15 and 24 are wanted.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).map(|n| n.parse::<u64>().ok());
        let ticks = fields.next()?? + fields.next()??;
        let pages = fields.nth(8)??;
        Some(Self { cpu: Duration::from_millis(ticks * TICK), memory: pages * PAGE })
    }
}

/// Milliseconds of CPU time in a tick, and bytes of a page, as the host tells of them on x86-64.
const TICK: u64 = 10;
const PAGE: u64 = 4096;

/// Confines this process, which [`Program::start`] has started, to what this service needs, for the rest of its life; `outlives`:
/// that is not its parent's.
///
/// # Errors
/// The step that failed.
pub fn confine(service: &Service, outlives: bool) -> io::Result<()> {
    confine_with(service, outlives, || Ok(()))
}

/// The same of a process that has several threads; `start` starts them, and returns when they are about to wait for work. They have what
/// this thread has.
///
/// # Errors
/// The step that failed.
pub fn confine_with(
    service: &Service,
    outlives: bool,
    start: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    // Who is not root has no rights to keep.
    let root = rustix::process::geteuid().is_root();
    let wanted = service.capabilities.iter().filter(|_| root).fold(0, |all, c| all | 1 << c.number);
    // Who started it may have been left with fewer.
    let kept = wanted & doppel_sys::privileges::held()?;
    // An ordinary user has no other id to give, and a user namespace of his without it.
    // One that keeps rights is root, of its own files' owners, as far as these go.
    let ids = (wanted == 0 && is_mapped(&std::fs::read_to_string("/proc/self/uid_map")?, SERVICE_UID))
        .then_some((SERVICE_UID, SERVICE_UID));
    child::confine(ids, kept, !outlives).map_err(io::Error::other)?;
    start()?;
    rustix::process::setrlimit(Resource::Nproc, Rlimit { current: Some(0), maximum: Some(0) })?;
    let program: Vec<[u8; 8]> = service.filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install_for_all(&program)
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
    fn what_the_host_says_of_a_process() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194560 10 0 0 0 7 5 0 0 20 0 1 0 100 9999 3 0";
        let expected = Usage { cpu: Duration::from_millis(120), memory: 3 * PAGE };
        assert_eq!(Usage::parse(line), Some(expected));
        assert_eq!(Usage::parse("42 (x) S 1"), None);
    }

    #[test]
    fn users_there_are() {
        assert!(is_mapped("         0          0 4294967295\n", SERVICE_UID));
        assert!(!is_mapped("         0       1000          1\n", SERVICE_UID));
        assert!(is_mapped("0 1000 1\n1 100000 4294967294\n", SERVICE_UID));
        assert!(!is_mapped("", SERVICE_UID));
    }
}

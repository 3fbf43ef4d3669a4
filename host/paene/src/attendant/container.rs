//! The container, made by libcontainer.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libcontainer::container::Container as Inner;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::attendant::groups::{self, Group};
use crate::attendant::signals::send;
use crate::disks::{DiskLink, Disks};
use crate::failure::{Failure, cannot};
use crate::network::{Link, names};
use crate::program::request::Request;
use crate::program::streams::Theirs;
use crate::program::talk::{self, Message, Stage};
use crate::program::{bundle, start};
use crate::root::layer::{self, Layer};
use crate::root::lower::Lower;
use crate::root::owners::Owners;
use crate::root::tree::{self, Quota};
use crate::root::volumes;

/// A container with its first process, which waits to become the program or is it.
pub(crate) struct Container {
    inner: Inner,
    pid: Pid,
    process: OwnedFd,
    report: OwnedFd,
    /// Who moves its packets.
    network: Option<Pid>,
    disks: Option<Disks>,
}

/// What the first process said before it was the program.
#[derive(Debug, Default)]
pub(crate) struct Started {
    pub terminal: Option<OwnedFd>,
    pub failed: Option<(Stage, i32)>,
}

/// Becomes the program where libcontainer would execute one: after its namespaces, mounts, user and capabilities.
#[derive(Clone)]
struct Become {
    request: Arc<Request>,
    report: Arc<OwnedFd>,
}

impl Executor for Become {
    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        std::process::exit(start::become_it(&self.request, &self.report).into())
    }

    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        // Whether the program can be executed is said when it is.
        Ok(())
    }
}

/// Makes the container of a domain.
pub(crate) fn make(
    request: &Request,
    owners: Owners,
    image: &Lower,
    quota: Quota,
    groups: &[PathBuf],
    theirs: Theirs,
    (link, disks): (Option<&Link>, Option<&DiskLink>),
) -> Result<Container, Failure> {
    // Before they are out of sight.
    let disks = Disks::open(request, disks, owners)?;
    let volumes = volumes::open(request, owners)?;
    let kept = Layer::open(request, owners, image)?;
    let groups = groups.iter().map(|dir| Group::open(dir)).collect::<Result<Vec<_>, _>>()?;
    tree::view()?;
    let volumes = volumes::place(volumes)?;
    let rootfs = tree::make(image, kept.as_ref(), quota, owners)?;
    layer::as_root(kept.as_ref(), owners, || furnish(&rootfs, request, owners, link))??;
    let dir = Path::new(tree::RUN).join("bundle");
    bundle::write(&dir, &rootfs, request, owners, &volumes).map_err(cannot("describe the container"))?;
    let (report, theirs_report) = talk::pair().map_err(cannot("make a socket"))?;
    let executor = Become { request: Arc::new(request.clone()), report: Arc::new(theirs_report) };
    let build = || {
        ContainerBuilder::new("domain".to_owned(), SyscallType::default())
            .with_root_path(Path::new(tree::RUN).join("state"))?
            .with_executor(executor)
            .with_stdin(theirs.stdin)
            .with_stdout(theirs.stdout)
            .with_stderr(theirs.stderr)
            .as_init(&dir)
            .with_systemd(false)
            .with_detach(true)
            .build()
    };
    let inner = build().map_err(|error| format!("cannot make the container: {}", words(&error)))?;
    let pid = inner.pid().and_then(|p| Pid::from_raw(p.as_raw())).ok_or("the container has no process")?;
    let process =
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(cannot("watch the container"))?;
    groups::show(groups, process.as_fd(), owners)?;
    disks.as_ref().map_or(Ok(()), |disks| disks.show(process.as_fd(), owners))?;
    let packets = devices(process.as_fd(), link)?;
    // An id of the domain's that its programs have no use for: the last one is what unknown ids look like.
    let user = owners.first + owners.count - 2;
    let network = match (link, packets) {
        (Some(link), Some(packets)) => {
            Some(link.serve(&packets, user).map_err(cannot("start who moves the domain's packets"))?)
        }
        _ => None,
    };
    Ok(Container { inner, pid, process, report, network, disks })
}

/// Makes what a container finds in its root file system.
fn furnish(rootfs: &Path, request: &Request, owners: Owners, link: Option<&Link>) -> Result<(), Failure> {
    // The program says if it is not there.
    let _ = tree::make_directory(rootfs, Path::new(&request.program.cwd), owners);
    if link.is_none() && request.hosts.is_empty() {
        return Ok(());
    }
    let more: Vec<_> = request.hosts.iter().map(|line| line.to_string_lossy()).collect();
    names::write(rootfs, owners, link.map(|l| &l.addresses), &request.hostname.to_string_lossy(), &more)
        .map_err(cannot("write /etc/resolv.conf and /etc/hosts"))
}

/// Switches on the loopback device of the container, and makes the other one, whose packets are returned.
fn devices(process: BorrowedFd<'_>, link: Option<&Link>) -> Result<Option<OwnedFd>, Failure> {
    let go = || {
        let net = rustix::thread::ThreadNameSpaceType::NETWORK;
        rustix::thread::move_into_thread_name_spaces(process, net)
            .map_err(cannot("enter the network namespace"))?;
        doppel_sys::namespace::loopback_up().map_err(cannot("switch on the loopback device"))?;
        // Whoever is in there may ask for echoes, as in Docker and para domains.
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").map_err(cannot("allow echoes"))?;
        link.map(Link::device).transpose().map_err(cannot("make a network device (/dev/net/tun)"))
    };
    // On a thread, which is over before anything forks: it ends in the container's namespace.
    std::thread::scope(|scope| {
        std::thread::Builder::new().spawn_scoped(scope, go).map(|thread| thread.join())
    })
    .map_err(cannot("start a thread"))?
    .map_err(|_| "cannot make network devices")?
}

/// An error and what is behind it.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

impl Container {
    /// Lets the first process go, and waits until it is the program, or is not.
    pub fn start(&self) -> Result<Started, Failure> {
        self.inner
            .clone()
            .start()
            .map_err(|error| format!("cannot start the container: {}", words(&error)))?;
        let mut started = Started::default();
        while let Some(word) = Message::hear(&self.report).map_err(cannot("hear of the program"))? {
            match word {
                Message::Terminal(fd) => started.terminal = Some(fd),
                Message::Failed(stage, errno) => started.failed = Some((stage, errno)),
                Message::Process(_) | Message::Started | Message::Ended(_) => {}
            }
        }
        Ok(started)
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid, false, signal);
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Who moves its packets, if it has a network.
    pub fn network(&self) -> Option<Pid> {
        self.network
    }

    /// Its disks, if it has some.
    pub fn disks(&self) -> Option<&Disks> {
        self.disks.as_ref()
    }

    /// All its processes have ended: what they have written is on its disks when this returns.
    pub fn finish_disks(&mut self) -> io::Result<()> {
        self.disks.take().map_or(Ok(()), Disks::finish)
    }

    /// Its first process.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

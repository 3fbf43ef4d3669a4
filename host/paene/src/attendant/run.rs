//! The attendant: makes the container, runs the domain's program in it, and speaks with the host in the guest kernel's place.
//!
//! One loop over descriptors. The host's events come by futex, on which a second thread waits (and does nothing else: it
//! takes no locks). That thread begins when the container is made: libcontainer forks, and has no other thread to mind.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::{StartInfo, UNPACKED, VirtualRegisters, control, event, fd, layout, ring, state};
use doppel_sys::shared::{SharedMap, offset};
use doppel_sys::signal::SignalFd;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitOptions};
use rustix::thread::futex;

use crate::attendant::confined;
use crate::attendant::container::{self, Container};
use crate::attendant::host::Host;
use crate::attendant::session::Session;
use crate::attendant::signals::signals;
use crate::disks::{DiskLink, Disks};
use crate::failure::{Failure, cannot};
use crate::network::{Addresses, Link};
use crate::program::request;
use crate::program::ring::Ring;
use crate::program::start::set_size;
use crate::program::streams::Streams;
use crate::program::talk::Stage;
use crate::root::lower::{Form, Lower};
use crate::root::owners::{CLAIMS, Owners};
use crate::root::tree::{self, Quota};

/// SIGCHLD.
const CHILD: i32 = 17;
/// The attendant goes last of a domain when memory runs out; the first of these that the host permits.
const OOM_SCORES: [&str; 2] = ["-500", "0"];
/// Exit code for a domain that could not be made.
const TOOL_ERROR: i32 = 125;

/// A field of the start info.
fn start_info<const N: usize>(map: &SharedMap, field: usize) -> [u8; N] {
    let mut bytes = [0; N];
    map.read(offset(control::START_INFO) + field, &mut bytes);
    bytes
}

/// The attendant of the domain with this name; `args` are the limits of its layer, bytes and files, how the image is to be there, then the directories of
/// its control groups.
pub(crate) fn run(_name: &OsStr, args: impl Iterator<Item = OsString>) -> ExitCode {
    let Ok(Born { host, image, link, disks }) = born() else { return ExitCode::FAILURE };
    let (quota, form, groups) = wanted(args);
    let ended = confined::unless_inherited().map_err(cannot("give up rights that are not needed"));
    match ended.and_then(|()| attend(&host, &image, quota, form, &groups, (link.as_ref(), disks.as_ref()))) {
        Ok(status) => host.ended(status),
        Err(why) => {
            host.log(&why);
            host.ended(TOOL_ERROR << 8);
        }
    }
    // As a guest kernel does: how it ended is in memory that goes with this process, so the host ends it when it has seen
    // that. Nobody may be there to see it just now.
    loop {
        std::thread::park();
    }
}

fn wanted(mut args: impl Iterator<Item = OsString>) -> (Quota, Form, Vec<PathBuf>) {
    let mut number = || args.next().and_then(|a| a.to_str()?.parse().ok()).unwrap_or(0);
    let quota = Quota { bytes: number(), inodes: number() };
    let form = if args.next().is_some_and(|word| word == UNPACKED) { Form::Unpacked } else { Form::Any };
    (quota, form, args.map(PathBuf::from).collect())
}

/// What an attendant is born with.
struct Born {
    host: Host,
    image: File,
    link: Option<Link>,
    disks: Option<DiskLink>,
}

/// Takes over what the attendant is born with: `common/abi/machine`'s descriptors in the place of standard streams.
fn born() -> io::Result<Born> {
    let [image, doorbell, _, _, network, its_doorbell, unused, storage, storages_doorbell] =
        doppel_sys::inherited::next_to_streams();
    drop(unused);
    // Where whoever takes this domain over looks for it.
    let control = rustix::io::fcntl_dupfd_cloexec(io::stdin(), fd::ATTENDANT_CONTROL)?;
    if control.as_raw_fd() != fd::ATTENDANT_CONTROL {
        return Err(io::Error::other("it was born with other descriptors"));
    }
    let mut map = SharedMap::new(control.as_fd(), offset(control::SIZE))?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let ip4 = Ipv4Addr::from(start_info::<4>(&map, std::mem::offset_of!(StartInfo, ip4)));
    let link = match (network, its_doorbell) {
        // Who has disks and no network has something else at these numbers.
        (Ok(memory), Ok(doorbell)) if !ip4.is_unspecified() => {
            // Registers are where the service posts events too.
            let (at, page) = (offset(control::VREGS), offset(layout::PAGE));
            map.overlay(at, page, memory.as_fd(), doppel_abi_service::layout::REGISTERS)?;
            let ip6 = Ipv6Addr::from(start_info::<16>(&map, std::mem::offset_of!(StartInfo, ip6)));
            let addresses = Addresses::in_channel(&memory, Addresses::new(ip4, ip6))?;
            Some(Link { memory, doorbell, addresses })
        }
        _ => None,
    };
    let disks = match (storage, storages_doorbell) {
        (Ok(memory), Ok(doorbell)) => Some(DiskLink { memory, doorbell }),
        _ => None,
    };
    let host = Host { map: Arc::new(map), doorbell: doorbell?, _control: control };
    Ok(Born { host, image: File::from(image?), link, disks })
}

fn attend(
    host: &Host,
    image: &File,
    quota: Quota,
    form: Form,
    groups: &[PathBuf],
    links: (Option<&Link>, Option<&DiskLink>),
) -> Result<i32, Failure> {
    let len = u32::from_le_bytes(start_info(&host.map, std::mem::offset_of!(StartInfo, boot_args_len)));
    let request = request::read(&host.map, offset(control::BOOT_ARGS), len, control::BOOT_ARGS_MAX)
        .ok_or("the boot arguments are none")?;
    let rings = [ring::STDIN, ring::STDOUT, ring::STDERR].map(Ring::console);
    let (mut streams, theirs) = Streams::new(rings, &request).map_err(cannot("make streams"))?;
    // Before the container, so that no end is missed.
    let children = SignalFd::new(&[CHILD]).map_err(cannot("watch processes"))?;
    // Held as long as this process lives.
    let (owners, _claim) =
        Owners::claim(Path::new(CLAIMS)).map_err(cannot("claim users for the container"))?;
    tree::see_processes()?;
    let lower = Lower::open(image, owners, form)?;
    let container = container::make(&request, owners, &lower, quota, groups, theirs, links)?;
    // What the container was made with is behind us; its processes have their own.
    if !OOM_SCORES.iter().any(|score| fs::write("/proc/self/oom_score_adj", score).is_ok()) {
        return Err("cannot set oom_score_adj".to_owned());
    }
    let started = container.start()?;
    if let Some(master) = started.terminal {
        streams.terminal(master, &request).map_err(cannot("use the terminal"))?;
    }
    if let Some((stage, errno)) = started.failed {
        let why = doppel_abi_linux::errno::Errno(u16::try_from(errno).unwrap_or_default()).words();
        let what = match stage {
            Stage::Enter => format!("cannot start the program: {why}"),
            Stage::Directory => format!("cannot start in {}: {why}", request.program.cwd.to_string_lossy()),
            Stage::Execute => {
                format!(
                    "cannot run {}: {why}",
                    request.program.argv.first().map_or("".into(), |a| a.to_string_lossy())
                )
            }
        };
        host.log(&what);
    } else {
        host.registers().state.store(state::RUNNING, Ordering::Release);
        host.ring();
    }
    // Before there is another thread, which would keep what it has.
    confined::further().map_err(cannot("give up rights that are not needed"))?;
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(cannot("make an event"))?;
    let wake = Arc::new(wake);
    listen(host.map.clone(), wake.clone()).map_err(cannot("start a thread"))?;
    container.disks().map_or(Ok(()), Disks::keep_flushed).map_err(cannot("start a thread"))?;
    Attendant { host, container, streams, children, wake, sessions: BTreeMap::new(), status: None }.keep()
}

/// Passes the host's events on to a descriptor.
fn listen(map: Arc<SharedMap>, wake: Arc<OwnedFd>) -> io::Result<()> {
    doppel_sys::signal::spawn_blocked("events", move || {
        let registers: &VirtualRegisters = map.get(offset(control::VREGS));
        loop {
            let seen = registers.event_seq.load(Ordering::SeqCst);
            if registers.pending.load(Ordering::SeqCst) != 0 {
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            }
            // Any outcome is followed by another look.
            let _ = futex::wait(&registers.event_seq, futex::Flags::empty(), seen, None);
        }
    })
    .map(drop)
}

struct Attendant<'a> {
    host: &'a Host,
    container: Container,
    streams: Streams,
    children: SignalFd,
    wake: Arc<OwnedFd>,
    sessions: BTreeMap<usize, Session>,
    /// How the program ended.
    status: Option<i32>,
}

impl Attendant<'_> {
    /// Runs until the program has ended and its output is in the rings; its wait status.
    fn keep(mut self) -> Result<i32, Failure> {
        let mut more = false;
        loop {
            self.wait(more).map_err(cannot("wait"))?;
            self.heed();
            self.reap().map_err(cannot("wait for processes"))?;
            let done = self.streams.pump(&self.host.map);
            more = done.more;
            let mut tell = done.tell;
            for session in self.sessions.values_mut() {
                let done = session.step(self.host);
                more |= done.more;
                tell |= done.tell;
            }
            self.sessions.retain(|_, s| !s.is_over());
            if tell {
                self.host.ring();
            }
            if let Some(status) = self.status
                && !more
                && !self.streams.is_full()
            {
                tree::let_go();
                if let Err(error) = self.container.finish_disks() {
                    self.host.log(&format!("what programs wrote to disks last may be lost: {error}"));
                }
                return Ok(status);
            }
        }
    }

    fn wait(&self, more: bool) -> Result<(), rustix::io::Errno> {
        let wake: (BorrowedFd<'_>, _) = (self.wake.as_fd(), PollFlags::IN);
        let fixed = [wake, (self.children.as_fd(), PollFlags::IN)];
        let sessions = self.sessions.values().flat_map(Session::interests);
        let all = fixed.into_iter().chain(self.streams.interests()).chain(sessions);
        let mut fds: Vec<PollFd<'_>> = all.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)).collect();
        let most = more.then(Timespec::default);
        match rustix::event::poll(&mut fds, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        // Only empties the counter.
        let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        Ok(())
    }

    /// Does what the host asks for.
    fn heed(&mut self) {
        let registers = self.host.registers();
        let events = registers.pending.swap(0, Ordering::SeqCst);
        if events & event::SIGNAL != 0 {
            let set = registers.signals.swap(0, Ordering::SeqCst);
            for signal in signals(set) {
                self.container.signal(signal);
            }
        }
        if events & event::WINCH != 0
            && let Some(master) = self.streams.master()
        {
            // It may be hung up by now.
            let _ = set_size(master, registers.winsize.load(Ordering::Acquire));
        }
        if events & event::SHUTDOWN != 0 {
            self.container.signal(Signal::KILL);
        }
        if events & event::SESSION != 0 {
            for (word, wanting) in registers.sessions.iter().enumerate() {
                let set = wanting.swap(0, Ordering::SeqCst);
                for bit in (0..64).filter(|b| set & (1 << b) != 0) {
                    self.attend_to(word * 64 + bit);
                }
            }
        }
    }

    fn attend_to(&mut self, slot: usize) {
        if let Some(session) = self.sessions.get_mut(&slot) {
            session.heed(self.host);
        } else if let Some(session) = Session::begin(slot, self.host, self.container.process()) {
            self.sessions.insert(slot, session);
        }
    }

    /// Notes which processes have ended.
    fn reap(&mut self) -> Result<(), rustix::io::Errno> {
        // One signal may stand for several.
        while self.children.next().ok().flatten().is_some() {}
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.container.pid() => self.status = Some(status.as_raw()),
                Ok(Some((pid, _))) if Some(pid) == self.container.network() => {
                    self.host.log("the domain's network has ended: who moves its packets is gone");
                }
                Ok(Some((pid, _))) if Some(pid) == self.container.disks().map(Disks::helper) => {
                    self.host.log("the domain ends, as who serves its disks has ended");
                    self.container.signal(Signal::KILL);
                }
                // A session's helper, which has said all there was.
                Ok(Some(_)) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

//! The supervisor's side: starts the process, attaches domains, and replaces what has died or hangs.
//!
//! All that a successor needs is kept: channels, doorbells, the memory of nodes, the volumes' roots, and files that a domain has in use
//! which have no name any more. One that cannot begin is tried again, less and less often; who has not been served yet is told why
//! ([`failing`]).

mod failing;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Ledger, SIZE, Traffic, VOLUMES};
use doppel_service::{Calls, Groups, Heartbeat, Process, Program, Watchdog};
use doppel_sys::shared::SharedMap;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::PidfdFlags;

use crate::lessor::{Keeps, Lessor};
use crate::manager::failing::Failing;
use crate::nodes::{self, LOCKED, PINNED};
use crate::said::Said;
use crate::serve::{ORDERS, Order, Terms};
use crate::throttle::Limits;
use crate::volume::Volume;

/// The hidden command of a program that is the storage service's process, with [`crate::serve()`] on its standard input.
pub const SERVICE: &str = "storage-service";
/// Its option: it must not poll.
const NO_POLLING: &str = "--no-polling";
/// How long a process may take to make room for an order, and we to make room for what it says.
const ROOM: Duration = Duration::from_secs(5);

/// Runs a storage service.
#[derive(Debug)]
pub struct Manager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    program: Program,
    heart: Arc<Heartbeat>,
    calls: Arc<Calls>,
    state: Mutex<State>,
    /// A process has begun, or it is known that none can, or there is no manager any more.
    changed: Condvar,
    /// An eventfd: whoever waits for domains to be served is to look again.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Arc<Process>>,
    control: Option<Arc<OwnedFd>>,
    starts: u64,
    members: BTreeMap<u64, Member>,
    last_key: u64,
    /// Whether the process serves, and why not.
    failing: Failing,
    /// The manager is gone: nobody is to be replaced.
    over: bool,
}

/// A domain that is served.
#[derive(Debug)]
struct Member {
    memory: Arc<OwnedFd>,
    doorbell: Arc<OwnedFd>,
    nodes: OwnedFd,
    volumes: Vec<Volume>,
    limits: Limits,
    /// Files that a successor could not find again, by node.
    pinned: BTreeMap<u64, OwnedFd>,
    /// Disks of which the process has not said yet that it has switched them.
    switching: BTreeSet<u64>,
    /// What its channel said before it was served; none: it goes on.
    before: Option<u32>,
    /// Why it is not served, and will not be.
    failure: Option<String>,
}

/// A process, and what has to do with it until it ends.
type Running = (Arc<Process>, Arc<OwnedFd>, Option<Watchdog>);

/// How a storage service is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// Its process; none: it could not be started.
    pub pid: Option<i32>,
    /// Processes that were started.
    pub starts: u64,
    /// Domains that it serves.
    pub domains: usize,
    /// CPU time of the process in seconds.
    pub cpu_seconds: f64,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Its longest step, waits for a CPU included; what waits for a device is none.
    pub longest_step_seconds: f64,
}

/// A domain's volumes; dropped, it has none any more.
#[derive(Debug)]
pub struct Attachment {
    shared: Arc<Shared>,
    key: u64,
    /// The channel's memory file.
    pub memory: Arc<OwnedFd>,
    /// The service's doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// Begins with the ledger.
    records: SharedMap,
}

/// Memory and doorbell of a channel, for [`Manager::resume`]: of a domain that is made before it is known what it will have.
///
/// # Errors
/// What the host says.
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    doppel_service::make(SIZE)
}

impl Manager {
    /// Starts a storage service by the command [`SERVICE`] of the program that runs, in a control group of these. It ends with
    /// the manager.
    ///
    /// # Errors
    /// What the host says.
    pub fn of_this_program(groups: Option<Arc<dyn Groups>>) -> io::Result<Self> {
        let name = std::env::args_os().next().unwrap_or_default();
        let option = (!doppel_service::may_poll()).then_some(OsStr::new(NO_POLLING));
        let arguments = [name.as_os_str(), OsStr::new(SERVICE)].into_iter().chain(option);
        let program = Program::new(Path::new("/proc/self/exe"), arguments)?;
        Self::start(program.in_groups(groups))
    }

    /// Starts a storage service with this program, whose standard input becomes its orders' socket.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(program: Program) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            program: program.of(&doppel_confine::STORAGE),
            heart: Arc::new(Heartbeat::new()?),
            calls: Arc::new(Calls::new()?),
            state: Mutex::default(),
            changed: Condvar::new(),
            bell: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let mut running: io::Result<Running> = Ok(shared.replace()?);
        let kept = shared.clone();
        let thread = doppel_sys::signal::spawn_blocked("storage", move || {
            loop {
                let started = Instant::now();
                let why = match running {
                    Ok((process, control, watchdog)) => {
                        kept.keep_until_end(&process, &control);
                        let why = process.wait();
                        drop(watchdog);
                        why
                    }
                    Err(error) => Some(error.to_string()),
                };
                if !kept.pause(why, started.elapsed()) {
                    return;
                }
                running = kept.replace();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Gives a domain volumes, by which it names them 0, 1, ….
    ///
    /// # Errors
    /// Too many of them, or what the host says.
    pub fn attach(&self, volumes: Vec<Volume>) -> io::Result<Attachment> {
        self.attach_in(volumes, nodes::memory()?)
    }

    /// The same, with what the service knows of files in a file of [`crate::nodes_file`].
    ///
    /// # Errors
    /// As above.
    pub fn attach_in(&self, volumes: Vec<Volume>, nodes: OwnedFd) -> io::Result<Attachment> {
        self.attach_by(volumes, channel()?, nodes)
    }

    /// The same for a domain that has its end of a channel already, which was made with [`channel`].
    ///
    /// # Errors
    /// It is no channel, or as above.
    pub fn attach_by(
        &self,
        volumes: Vec<Volume>,
        (memory, doorbell): (OwnedFd, OwnedFd),
        nodes: OwnedFd,
    ) -> io::Result<Attachment> {
        self.shared.lock().failing.check()?;
        doppel_service::check_memory(&memory, SIZE)?;
        doppel_service::check_bell(&doorbell)?;
        let before = doppel_service::epoch(memory.as_fd())?;
        self.add(volumes, (memory, doorbell), nodes, Some(before))
    }

    /// Serves a domain that was attached in a process that has died, with the same volumes and that file; files without names are
    /// lost (ESTALE). It waits as long as the service cannot begin.
    ///
    /// # Errors
    /// It is no channel, or as above.
    pub fn resume(
        &self,
        volumes: Vec<Volume>,
        (memory, doorbell): (OwnedFd, OwnedFd),
        nodes: OwnedFd,
    ) -> io::Result<Attachment> {
        doppel_service::check_memory(&memory, SIZE)?;
        doppel_service::check_bell(&doorbell)?;
        self.add(volumes, (memory, doorbell), nodes, None)
    }

    fn add(
        &self,
        volumes: Vec<Volume>,
        (memory, doorbell): (OwnedFd, OwnedFd),
        nodes: OwnedFd,
        before: Option<u32>,
    ) -> io::Result<Attachment> {
        if volumes.len() as u64 > VOLUMES {
            let text = format!("{} volumes: a domain has at most {VOLUMES}", volumes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (memory, doorbell) = (Arc::new(memory), Arc::new(doorbell));
        let records = SharedMap::new(nodes.as_fd(), size_of::<Ledger>())?;
        // A hang is found later then.
        let _ = self.shared.calls.add(doorbell.as_fd());
        let mut state = self.shared.lock();
        state.last_key += 1;
        let key = state.last_key;
        let member = Member {
            memory: memory.clone(),
            doorbell: doorbell.clone(),
            nodes,
            volumes,
            limits: Limits::default(),
            pinned: BTreeMap::new(),
            switching: BTreeSet::new(),
            before,
            failure: None,
        };
        // One that has died is replaced, and its successor is told of all members.
        let _ = state.tell(key, &member);
        state.members.insert(key, member);
        drop(state);
        Ok(Attachment { shared: self.shared.clone(), key, memory, doorbell, records })
    }

    /// Process id of the process that serves now.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.shared.lock().process.as_ref().map(|p| p.pid().as_raw_nonzero().get())
    }

    /// An eventfd that is rung when whoever waits for domains to be served is to look again ([`Attachment::has_begun`],
    /// [`Attachment::failure`]).
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// The bell was heard.
    pub fn heard(&self) {
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        let state = self.shared.lock();
        let usage = state.process.as_ref().and_then(|p| p.usage()).unwrap_or_default();
        Health {
            pid: state.process.as_ref().map(|p| p.pid().as_raw_nonzero().get()),
            starts: state.starts,
            domains: state.members.len(),
            cpu_seconds: usage.cpu.as_secs_f64(),
            memory_bytes: usage.memory,
            longest_step_seconds: self.shared.heart.longest().as_secs_f64(),
        }
    }
}

impl Attachment {
    /// Who gives the domain leases. A predecessor may have given some.
    ///
    /// # Errors
    /// What the host says.
    pub fn lessor(&self) -> io::Result<Lessor> {
        Lessor::new(self.memory.as_fd())
    }

    /// The domain keeps for a second what it has read of these volumes, although others may change them.
    ///
    /// # Errors
    /// What the host says.
    pub fn keep_recent(&self, mut volumes: impl Iterator<Item = u64>) -> io::Result<()> {
        let Some(first) = volumes.next() else { return Ok(()) };
        let lessor = self.lessor()?;
        std::iter::once(first).chain(volumes).for_each(|volume| lessor.give(volume, Keeps::Recent));
        Ok(())
    }

    /// The domain has these limits from here on.
    pub fn limit(&self, limits: Limits) {
        let mut state = self.shared.lock();
        // A successor is told when it begins.
        let _ = state.send(&Order::Limit { key: self.key, limits: limits.clone() }, &[]);
        state.members.get_mut(&self.key).into_iter().for_each(|member| member.limits = limits.clone());
    }

    /// What was done for the domain so far; it never goes down.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.records.get::<Ledger>(0).traffic()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        let process = state.process.take();
        drop(state);
        self.shared.changed.notify_all();
        if let Some(process) = process {
            process.kill();
        }
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, nobody waits.
            let _ = thread.join();
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.shared.calls.remove(self.doorbell.as_fd());
        let mut state = self.shared.lock();
        state.members.remove(&self.key);
        // One that is dead has forgotten it.
        let _ = state.send(&Order::Detach { key: self.key }, &[]);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What it protects is whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process, and tells it of all domains.
    fn replace(&self) -> io::Result<Running> {
        let mut state = self.lock();
        // Nobody would end it.
        if state.over {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let flags = SocketFlags::CLOEXEC;
        state.failing.starts();
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Either is as good as dead for the other if it takes none.
        set_socket_timeout(&ours, Timeout::Send, Some(ROOM))?;
        set_socket_timeout(&theirs, Timeout::Send, Some(ROOM))?;
        self.heart.begin();
        let process = Arc::new(self.program.start(theirs.as_fd(), &[])?);
        let ours = Arc::new(ours);
        state.control = Some(ours.clone());
        state.process = Some(process.clone());
        state.starts += 1;
        let files = [self.heart.file(), self.heart.alarm(), self.calls.bell()];
        let begun = state.send(&Order::Begin { version: ORDERS }, &files);
        // From here on whoever speaks to one that hangs is not kept waiting.
        let watchdog = Watchdog::of("storage service", &self.heart, &self.calls, process.pid());
        let told =
            begun.and_then(|()| state.members.iter().try_for_each(|(key, member)| state.tell(*key, member)));
        if let Err(error) = told {
            doppel_service::say(format_args!("a storage service cannot be told what to do: {error}"));
            process.kill();
        }
        // It begins with the files that there are by now.
        state.members.values_mut().for_each(|member| member.switching.clear());
        self.changed.notify_all();
        Ok((process, ours, watchdog))
    }

    /// Keeps what a process has pinned, until it has ended and all that it has said is heard.
    fn keep_until_end(&self, process: &Process, control: &OwnedFd) {
        let Ok(end) = rustix::process::pidfd_open(process.pid(), PidfdFlags::empty()) else { return };
        loop {
            let mut fds = [PollFd::new(control, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
            // A signal ends the wait early.
            let _ = rustix::event::poll(&mut fds, None);
            let ended = fds[1].revents().contains(PollFlags::IN);
            // What was said before the end is there when that is seen.
            while let Ok(Some((said, file))) = hear(control) {
                self.heard(said, file);
            }
            if ended {
                return;
            }
            if fds[0].revents().contains(PollFlags::HUP) {
                // Its end comes, or the watchdog's.
                let _ = rustix::event::poll(&mut [PollFd::new(&end, PollFlags::IN)], None);
                return;
            }
        }
    }
}

/// What a process has said, and the descriptor that came with it; none: nothing more.
fn hear(control: &OwnedFd) -> io::Result<Option<(Said, Option<OwnedFd>)>> {
    let Some(packet) = doppel_service::receive_some(control.as_fd(), Said::LONGEST)? else { return Ok(None) };
    let said =
        Said::decode(&packet.bytes).ok_or_else(|| io::Error::other("a storage service says nothing"))?;
    Ok(Some((said, packet.descriptors.into_iter().next())))
}

impl State {
    /// Keeps a domain's file.
    fn pin(&mut self, key: u64, node: u64, file: OwnedFd) {
        // Of a domain that has left there is nothing to keep.
        let Some(member) = self.members.get_mut(&key) else { return };
        // The service keeps to the bound, unless it has been taken over.
        if member.pinned.len() < PINNED + LOCKED {
            member.pinned.insert(node, file);
        }
    }

    /// Keeps it no more.
    fn unpin(&mut self, key: u64, node: u64) {
        if let Some(member) = self.members.get_mut(&key) {
            member.pinned.remove(&node);
        }
    }

    fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
        // Before it is served.
        let pinned: Vec<_> = member.pinned.iter().collect();
        for some in pinned.chunks(doppel_service::DESCRIPTORS) {
            let nodes = some.iter().map(|(node, _)| **node).collect();
            let files: Vec<_> = some.iter().map(|(_, file)| file.as_fd()).collect();
            self.send(&Order::Pinned { key, nodes }, &files)?;
        }
        for (volume, disk) in
            member.volumes.iter().enumerate().filter_map(|(i, v)| Some((i, v.disk.as_ref()?)))
        {
            self.send(&Order::Disk { key, volume, live: disk.live.is_some() }, &disk.descriptors())?;
        }
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd(), member.nodes.as_fd()];
        for volume in &member.volumes {
            descriptors.push(volume.root.as_fd());
            descriptors.extend(volume.bound.iter().filter_map(|bound| bound.used.as_ref()).map(AsFd::as_fd));
        }
        let volumes = member.volumes.iter().map(Terms::of).collect();
        self.send(&Order::Attach { key, volumes, limits: member.limits.clone() }, &descriptors)
    }

    fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        doppel_service::send_packet(control.as_fd(), &serde_json::to_vec(order)?, descriptors)
    }
}

//! The supervisor's side: starts the process, attaches domains, and replaces what has died.
//!
//! All that a successor needs is kept: channels, doorbells, the memory of nodes, the volumes' directories.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{SIZE, VOLUMES};
use doppel_service::{Groups, Process, Program};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::nodes;
use crate::serve::{DESCRIPTORS, ORDERS, Order};
use crate::volume::Volume;

/// The hidden command of a program that is the storage service's process, with [`crate::serve()`] on its standard input.
pub const SERVICE: &str = "storage-service";
/// Its option: it must not poll.
const NO_POLLING: &str = "--no-polling";
/// Processes that die faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// How long a process may take to make room for an order.
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Arc<Process>>,
    control: Option<OwnedFd>,
    members: BTreeMap<u64, Member>,
    last_key: u64,
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
        Self::start(Program::new(Path::new("/proc/self/exe"), arguments)?.in_groups(groups))
    }

    /// Starts a storage service with this program, whose standard input becomes its orders' socket.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(program: Program) -> io::Result<Self> {
        let shared = Arc::new(Shared { program, state: Mutex::default() });
        let mut running = Some(shared.replace()?);
        let kept = shared.clone();
        let thread = doppel_sys::signal::spawn_blocked("storage", move || {
            loop {
                let begun = Instant::now();
                if let Some(process) = running.take() {
                    process.wait();
                }
                if kept.lock().over {
                    return;
                }
                if begun.elapsed() < STEADY {
                    std::thread::sleep(STEADY);
                }
                running = kept
                    .replace()
                    .inspect_err(|e| doppel_service::say(format_args!("cannot start a storage service: {e}")))
                    .ok();
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
        let (memory, doorbell) = doppel_service::make(SIZE)?;
        self.add(volumes, memory, doorbell, nodes)
    }

    /// Goes on with a domain that was attached in a process that has died: with its channel and doorbell, as the domain has
    /// them, the same volumes, and that file.
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
        self.add(volumes, memory, doorbell, nodes)
    }

    fn add(
        &self,
        volumes: Vec<Volume>,
        memory: OwnedFd,
        doorbell: OwnedFd,
        nodes: OwnedFd,
    ) -> io::Result<Attachment> {
        if volumes.len() as u64 > VOLUMES {
            let text = format!("{} volumes: a domain has at most {VOLUMES}", volumes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (memory, doorbell) = (Arc::new(memory), Arc::new(doorbell));
        let mut state = self.shared.lock();
        state.last_key += 1;
        let key = state.last_key;
        let member = Member { memory: memory.clone(), doorbell: doorbell.clone(), nodes, volumes };
        // One that has died is replaced, and its successor is told of all members.
        let _ = state.tell(key, &member);
        state.members.insert(key, member);
        drop(state);
        Ok(Attachment { shared: self.shared.clone(), key, memory, doorbell })
    }

    /// Process id of the process that serves now.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.shared.lock().process.as_ref().map(|p| p.pid().as_raw_nonzero().get())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        let process = state.process.take();
        drop(state);
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
    fn replace(&self) -> io::Result<Arc<Process>> {
        let mut state = self.lock();
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // One that takes none is as good as dead.
        set_socket_timeout(&ours, Timeout::Send, Some(ROOM))?;
        let process = Arc::new(self.program.start(theirs.as_fd(), &[])?);
        state.control = Some(ours);
        state.process = Some(process.clone());
        let told = state
            .send(&Order::Begin { version: ORDERS }, &[])
            .and_then(|()| state.members.iter().try_for_each(|(key, member)| state.tell(*key, member)));
        if let Err(error) = told {
            doppel_service::say(format_args!("a storage service cannot be told what to do: {error}"));
            process.kill();
        }
        Ok(process)
    }
}

impl State {
    fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
        let read_only = member.volumes.iter().map(|v| v.read_only).collect();
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd(), member.nodes.as_fd()];
        descriptors.extend(member.volumes.iter().map(|v| v.root.as_fd()));
        self.send(&Order::Attach { key, read_only }, &descriptors)
    }

    fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let bytes = serde_json::to_vec(order)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        rustix::net::sendmsg(control, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

//! One shard: a service domain's process, those it serves, and the thread that replaces it when it has ended.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_service::{Calls, Heart, Process, Program, Watchdog};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::ledger::Ledger;
use crate::manager::Health;
use crate::manager::Wanted;
use crate::resolver;
use crate::serve::{DESCRIPTORS, ORDERS, Order, PACKET};

/// Service domains that die faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// How long one is given to begin.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const GLANCE: Duration = Duration::from_millis(1);
/// How long a service domain is given to let go of sockets.
const LET_GO: Duration = Duration::from_millis(500);

/// A shard, for all that have to do with it; its service domain ends when the last of them has gone.
#[derive(Debug)]
pub(crate) struct Shard {
    state: Mutex<State>,
    /// Another service domain has been started.
    started: Condvar,
    /// Who waits for the service domain's end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct State {
    program: Arc<Program>,
    /// The service domain's process, if one could be started.
    process: Option<Arc<Process>>,
    /// How many have been started, and how many of them in the place of one that was to be replaced.
    starts: u64,
    upgrades: u64,
    control: OwnedFd,
    pub ledger: Arc<Ledger>,
    heart: Arc<Heart>,
    calls: Arc<Calls>,
    /// Rung when there is news for a hibernated domain.
    bell: OwnedFd,
    /// The service domain's end of the log.
    log: OwnedFd,
    pub members: BTreeMap<u64, Member>,
}

/// A domain that is served.
#[derive(Debug)]
pub(crate) struct Member {
    pub wanted: Wanted,
    pub memory: Arc<OwnedFd>,
    pub doorbell: Arc<OwnedFd>,
    pub sockets: Vec<OwnedFd>,
}

pub(crate) fn ip4(key: u64) -> Ipv4Addr {
    let [.., high, low] = key.to_be_bytes();
    Ipv4Addr::new(10, 88, high, low)
}

pub(crate) fn ip6(key: u64) -> Ipv6Addr {
    let low = u16::try_from(key).expect("keys are the last two bytes of an address");
    Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, low)
}

impl Shard {
    /// Starts a service domain, which rings this bell and writes to this log.
    pub fn start(program: Arc<Program>, bell: OwnedFd, log: OwnedFd) -> io::Result<Arc<Self>> {
        let (child, control) = spawn(&program)?;
        let (ledger, heart, calls) = (Ledger::new()?, Arc::new(Heart::new()?), Arc::new(Calls::new()?));
        heart.begin();
        let child = Arc::new(child);
        let state = State {
            program,
            process: Some(child.clone()),
            starts: 1,
            upgrades: 0,
            control,
            ledger,
            heart,
            calls,
            log,
            bell,
            members: BTreeMap::new(),
        };
        let watchdog = state.inform(&child);
        let shard =
            Arc::new(Self { state: Mutex::new(state), started: Condvar::new(), thread: Mutex::default() });
        let watched = Arc::downgrade(&shard);
        let thread = doppel_sys::signal::spawn_blocked("network", move || {
            let mut running = Some((child, watchdog));
            loop {
                let begun = Instant::now();
                // One that could not be started has ended as soon as it began.
                if let Some((child, watchdog)) = running.take() {
                    child.wait();
                    drop(watchdog);
                }
                if begun.elapsed() < STEADY && watched.strong_count() > 0 {
                    std::thread::sleep(STEADY);
                }
                let Some(shard) = watched.upgrade() else { return };
                let next = shard.lock().replace();
                shard.started.notify_all();
                running = next
                    .inspect_err(|error| {
                        doppel_service::say(format_args!("cannot start a network service: {error}"))
                    })
                    .ok();
            }
        })?;
        *shard.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(shard)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // What it protects is whole at any moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the service domain replaced by one of this program, as if it had died; returns when that has been told of all
    /// domains.
    pub fn upgrade(&self, program: Arc<Program>) -> io::Result<()> {
        let mut state = self.lock();
        let before = state.starts;
        state.program = program;
        state.upgrades += 1;
        if let Some(process) = &state.process {
            process.kill();
        }
        let replaced = self.started.wait_timeout_while(state, PATIENCE, |s| s.starts == before);
        let (state, _) = replaced.unwrap_or_else(PoisonError::into_inner);
        match state.starts == before {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "the network service is not replaced")),
            false => Ok(()),
        }
    }

    /// How it is.
    pub fn health(&self) -> Health {
        let state = self.lock();
        let usage = state.process.as_ref().and_then(|p| p.usage()).unwrap_or_default();
        Health {
            pid: state.process.as_ref().map(|p| p.pid().as_raw_nonzero().get()),
            starts: state.starts,
            restarts: state.starts.saturating_sub(1 + state.upgrades),
            domains: state.members.len(),
            cpu_seconds: usage.cpu.as_secs_f64(),
            memory_bytes: usage.memory,
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = state.process.take() {
            process.kill();
        }
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // It was the last that had to do with this itself if it is the one that runs.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // The control group goes with the process, before ours may end. It does not panic; and if it did, nobody waits.
            let _ = thread.join();
        }
    }
}

impl Member {
    /// What the service domain waits for because of it.
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd).chain([self.doorbell.as_fd()])
    }
}

impl State {
    /// Serves a domain.
    pub fn enlist(&mut self, key: u64, member: Member) {
        for source in member.sources() {
            // A hang is then found later.
            let _ = self.calls.add(source);
        }
        // One that has died is replaced, and its successor is told of all members.
        let _ = self.tell(key, &member);
        self.members.insert(key, member);
    }

    /// Serves it no more; gives what it had.
    pub fn dismiss(&mut self, key: u64) -> Option<Member> {
        let member = self.members.remove(&key)?;
        member.sources().for_each(|source| self.calls.remove(source));
        Some(member)
    }

    fn replace(&mut self) -> io::Result<(Arc<Process>, Option<Watchdog>)> {
        self.heart.begin();
        // Its control group is removed when nobody waits for that any more.
        let _ended = self.process.take();
        let (child, control) = spawn(&self.program)?;
        let child = Arc::new(child);
        (self.process, self.control) = (Some(child.clone()), control);
        self.starts += 1;
        let watchdog = self.inform(&child);
        Ok((child, watchdog))
    }

    /// Tells a service domain that has just been started what it is to know. One that is not to be told is ended, and
    /// another is tried: whoever has started it waits for that.
    fn inform(&self, child: &Process) -> Option<Watchdog> {
        let begun = self.begin();
        // From here on whoever speaks to one that hangs is not kept waiting.
        let watchdog = self.watch(child);
        let told = begun.and_then(|()| self.members.iter().try_for_each(|(key, m)| self.tell(*key, m)));
        if let Err(error) = told {
            doppel_service::say(format_args!("a network service cannot be told what to do: {error}"));
            child.kill();
        }
        watchdog
    }

    /// Has a service domain watched that has been told to begin. Without a watchdog it is only not found if it hangs.
    fn watch(&self, child: &Process) -> Option<Watchdog> {
        Watchdog::new(self.heart.clone(), self.calls.clone(), child.pid())
            .inspect_err(|error| {
                doppel_service::say(format_args!("a network service is not watched: {error}"))
            })
            .ok()
    }

    /// What a service domain is told first.
    fn begin(&self) -> io::Result<()> {
        let heart = &self.heart;
        let files = [
            self.ledger.file(),
            self.bell.as_fd(),
            self.log.as_fd(),
            heart.file(),
            heart.alarm(),
            self.calls.bell(),
        ];
        self.send(&Order::Begin { version: ORDERS }, &files)
    }

    /// Waits until the service domain has let go of a domain's sockets; not for ever, if it does not answer.
    pub fn await_detached(&self, key: u64) {
        let end = Instant::now() + LET_GO;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut fds, Some(&left)), Ok(1..)) {
                return;
            }
            let mut said = [0; 8];
            match rustix::net::recv(&self.control, &mut said, RecvFlags::DONTWAIT) {
                // An answer that came after its wait was over.
                Ok((8, _)) if u64::from_ne_bytes(said) != key => {}
                _ => return,
            }
        }
    }

    fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
        let wanted = &member.wanted;
        let order = Order::Attach {
            key,
            network: wanted.network.clone(),
            name: wanted.name.clone(),
            ip4: ip4(key),
            ip6: ip6(key),
            rules: wanted.rules.clone(),
            ports: wanted.published.iter().map(|p| (p.port, p.protocol)).collect(),
            resolver: wanted.resolver.or_else(resolver::of_host),
            quota: wanted.quota,
        };
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd()];
        descriptors.extend(member.sockets.iter().map(AsFd::as_fd));
        self.send(&order, &descriptors)
    }

    pub fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.control.as_fd(), order, descriptors)
    }
}

fn send(control: BorrowedFd<'_>, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = packet(order)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts = [IoSlice::new(&bytes)];
    rustix::net::sendmsg(control, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Has one of a program that is to be used from now on begin, and end: whether it can at all, and understands us.
pub(crate) fn try_out(program: &Program) -> io::Result<()> {
    let (child, control) = spawn(program)?;
    let (ledger, heart, calls) = (Ledger::new()?, Heart::new()?, Calls::new()?);
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    let (_read, log) = pair(SocketFlags::NONBLOCK)?;
    heart.begin();
    let files = [ledger.file(), bell.as_fd(), log.as_fd(), heart.file(), heart.alarm(), calls.bell()];
    let begun = send(control.as_fd(), &Order::Begin { version: ORDERS }, &files);
    let end = Instant::now() + PATIENCE;
    // It rests when it has taken what it was told.
    while begun.is_ok()
        && !heart.count().is_multiple_of(2)
        && Instant::now() < end
        && !child.ends_within(GLANCE)
    {}
    let rests = heart.count().is_multiple_of(2);
    child.kill();
    child.wait();
    match (begun, rests) {
        (Ok(()), true) => Ok(()),
        (Err(e), _) => Err(e),
        (Ok(()), false) => {
            Err(io::Error::other("a service of that program does not begin; its log says more"))
        }
    }
}

pub(crate) fn packet(order: &Order) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(order)?;
    if bytes.len() > PACKET {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many rules for one domain"));
    }
    Ok(bytes)
}

/// Two ends of a socket of packets.
pub(crate) fn pair(flags: SocketFlags) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | flags;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn spawn(program: &Program) -> io::Result<(Process, OwnedFd)> {
    let (ours, theirs) = pair(SocketFlags::empty())?;
    Ok((program.start(theirs.as_fd())?, ours))
}

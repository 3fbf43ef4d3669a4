//! One shard: a service domain's process, those it serves, and the thread that replaces it when it has ended.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doppel_service::{Process, Program, Watchdog};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;

use crate::flow::live::FlowPage;
use crate::manager::records::{Record, Slot};
use crate::manager::resources::{self, ServiceResources};
use crate::manager::{EndpointSpec, Health};
use crate::names::resolver;
use crate::service::serve::{Descriptors, HeldDescriptors, ORDERS, Order, PACKET, ToldFlows};

/// Service domains that die faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// How long one is given to begin.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const GLANCE: Duration = Duration::from_millis(1);
/// Longest of a service domain's answers.
const ANSWER: usize = PACKET;
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
    /// It is one that another supervisor has started.
    adopted: bool,
    /// How many have been started, and how many of them in the place of one that was to be replaced.
    starts: u64,
    upgrades: u64,
    control: Option<OwnedFd>,
    pub gear: ServiceResources,
    /// It was taken over from another supervisor.
    goes_on: bool,
    kept: Option<Slot>,
    pub members: BTreeMap<u64, Member>,
    /// How often it was asked for flows.
    questions: u64,
}

/// A domain that is served.
#[derive(Debug)]
pub(crate) struct Member {
    pub wanted: EndpointSpec,
    pub memory: Arc<OwnedFd>,
    pub doorbell: Arc<OwnedFd>,
    pub sockets: Vec<OwnedFd>,
    /// Its first process, once it runs.
    pub process: Option<OwnedFd>,
}

pub(crate) fn ip4(key: u64) -> Ipv4Addr {
    let [.., high, low] = key.to_be_bytes();
    Ipv4Addr::new(10, 88, high, low)
}

pub(crate) fn ip6(key: u64) -> Ipv6Addr {
    let low = u16::try_from(key).expect("keys are the last two bytes of an address");
    Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, low)
}

/// A service domain that is there, and who watches it.
type Running = (Arc<Process>, Option<Watchdog>);

impl Shard {
    /// Starts a service domain with this program. `kept`: where it is written down that it outlives us.
    pub fn start(program: Arc<Program>, kept: Option<Slot>) -> io::Result<Arc<Self>> {
        let mut state = State::new(program, ServiceResources::new()?, kept);
        let running = state.replace()?;
        Self::run(state, Some(running))
    }

    /// Takes the service domain over that another process has written down there; one that has ended, or is not to be
    /// taken over, is replaced.
    pub fn adopt(program: Arc<Program>, slot: Slot, record: &Record) -> io::Result<Arc<Self>> {
        let group = record.group.as_deref().zip(program.groups());
        let group = group.and_then(|(name, groups)| groups.adopt(name).ok());
        let process = record.process.map(|born| Process::adopt(born, group)).transpose()?.flatten();
        let taken = process.and_then(|process| {
            let taken = if record.orders == ORDERS {
                ServiceResources::take(&process)
            } else {
                Err(io::Error::other("it understands other orders"))
            };
            let taken = taken.inspect_err(|error| {
                doppel_service::say(format_args!("a network service is not taken over: {error}"));
                process.kill();
                process.wait();
            });
            Some((process, taken.ok()?))
        });
        let Some((process, (gear, control))) = taken else {
            let mut state = State::new(program, ServiceResources::new()?, Some(slot));
            (state.starts, state.upgrades) = (record.starts, record.upgrades);
            let running = state.replace().inspect_err(cannot_start).ok();
            return Self::run(state, running);
        };
        let process = Arc::new(process);
        let mut state = State::new(program, gear, Some(slot));
        (state.starts, state.upgrades) = (record.starts, record.upgrades);
        (state.process, state.control) = (Some(process.clone()), Some(control));
        (state.adopted, state.goes_on) = (true, true);
        let watchdog = state.watch(&process);
        state.resume();
        Self::run(state, Some((process, watchdog)))
    }

    fn run(state: State, mut running: Option<Running>) -> io::Result<Arc<Self>> {
        let shard =
            Arc::new(Self { state: Mutex::new(state), started: Condvar::new(), thread: Mutex::default() });
        let watched = Arc::downgrade(&shard);
        let thread = doppel_sys::signal::spawn_blocked("network", move || {
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
                running = next.inspect_err(cannot_start).ok();
            }
        })?;
        *shard.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(shard)
    }

    /// Whether its service domain runs the program that is there; none: it has none.
    pub fn is_of(&self, program: &Path) -> Option<io::Result<bool>> {
        self.lock().process.as_ref().map(|process| process.is_of(program))
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
            longest_step_seconds: state.gear.heart.longest().as_secs_f64(),
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
        let kept = state.kept.take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // The control group goes with the process, before ours may end. It does not panic; and if it did, nobody waits.
            let _ = thread.join();
        }
        kept.iter().for_each(Slot::forget);
    }
}

fn cannot_start(error: &io::Error) {
    doppel_service::say(format_args!("cannot start a network service: {error}"));
}

impl Member {
    /// How a service domain is told of it.
    pub fn order(&self, key: u64) -> Order {
        let wanted = &self.wanted;
        let (ip4, ip6) = wanted.addresses(key);
        Order::Attach {
            key,
            networks: wanted.networks(),
            internal: wanted.internal,
            name: wanted.name.clone(),
            ip4,
            ip6,
            rules: wanted.rules.clone(),
            ports: wanted.published.iter().map(|p| (p.port, p.protocol)).collect(),
            resolver: wanted.resolver.or_else(resolver::of_host),
            quota: wanted.quota,
        }
    }

    /// What the service domain waits for because of it.
    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd).chain([self.doorbell.as_fd()])
    }
}

impl State {
    fn new(program: Arc<Program>, gear: ServiceResources, kept: Option<Slot>) -> Self {
        let (process, control, members) = (None, None, BTreeMap::new());
        let (adopted, goes_on) = (false, false);
        Self {
            program,
            process,
            adopted,
            starts: 0,
            upgrades: 0,
            control,
            gear,
            goes_on,
            kept,
            members,
            questions: 0,
        }
    }

    /// Serves a domain.
    pub fn enlist(&mut self, key: u64, member: Member) {
        // One that has died is replaced, and its successor is told of all members.
        let _ = self.tell(key, &member);
        self.enter(key, member);
    }

    /// Notes a domain that it serves already.
    pub fn enter(&mut self, key: u64, member: Member) {
        for source in member.sources() {
            // A hang is then found later.
            let _ = self.gear.calls.add(source);
        }
        self.members.insert(key, member);
    }

    /// Serves it no more; gives what it had.
    pub fn dismiss(&mut self, key: u64) -> Option<Member> {
        let member = self.members.remove(&key)?;
        member.sources().for_each(|source| self.gear.calls.remove(source));
        Some(member)
    }

    /// Starts a service domain, in the place of the last one if there was one.
    fn replace(&mut self) -> io::Result<Running> {
        self.gear.heart.begin();
        // Its control group is removed when nobody waits for that any more.
        let _ended = self.process.take();
        self.adopted = false;
        let life = self.kept.as_ref().map(Slot::life);
        let (child, control) = spawn(&self.program, &self.gear, life)?;
        let child = Arc::new(child);
        self.starts += 1;
        // Before it is told of anybody: a successor of ours must know of it, or it serves nobody.
        if let Some(slot) = &self.kept
            && let Err(error) = Record::of(&child, self.starts, self.upgrades).and_then(|r| slot.write(&r))
        {
            child.kill();
            child.wait();
            return Err(error);
        }
        (self.process, self.control) = (Some(child.clone()), Some(control));
        let watchdog = self.inform(&child);
        Ok((child, watchdog))
    }

    /// Goes on with a service domain that another supervisor has started.
    fn resume(&mut self) {
        let Some(life) = self.kept.as_ref().map(Slot::life) else { return };
        // As for other orders: one that does not take it is replaced.
        let _ = self.send(&Order::Resume, &[life]);
    }

    /// Whether its counts are those of another supervisor's shard.
    pub fn goes_on_counting(&self) -> bool {
        self.goes_on
    }

    /// What it has of a domain that another supervisor has attached; none if it does not serve that.
    pub fn claim(&self, key: u64) -> Option<Descriptors> {
        if !self.adopted || self.send(&Order::Claim { key }, &[]).is_err() {
            return None;
        }
        let held = self.await_said(PATIENCE, |said| {
            // What others asked for who are no more is answered, too.
            serde_json::from_slice::<HeldDescriptors>(said).ok().filter(|held| held.key == key)
        });
        if held.is_none() {
            self.give_up();
        }
        held?.descriptors
    }

    /// Flows of a domain's sockets from this number on, as the service domain says; none if it does not.
    pub fn flows(&mut self, key: u64, from: u32) -> Option<FlowPage> {
        self.questions += 1;
        let question = self.questions;
        self.send(&Order::Flows { key, question, from }, &[]).ok()?;
        self.await_said(LET_GO, |said| {
            serde_json::from_slice::<ToldFlows>(said).ok().filter(|told| told.question == question)
        })
        .map(|told| told.page)
    }

    /// All domains that there are have been claimed.
    pub fn claimed(&self) {
        if self.adopted {
            // As for other orders.
            let _ = self.send(&Order::Claimed, &[]);
        }
    }

    /// A copy of a descriptor of the service domain's.
    pub fn take(&self, number: RawFd) -> io::Result<OwnedFd> {
        self.process.as_ref().ok_or(io::ErrorKind::NotFound)?.take(number)
    }

    /// Ends the service domain, which is not what it should be; another one takes its place.
    pub fn give_up(&self) {
        if let Some(process) = &self.process {
            process.kill();
            // What it has is free then, or is so soon.
            let _ = process.ends_within(PATIENCE);
        }
    }

    /// A domain's first process is this one.
    pub fn runs(&mut self, key: u64, process: OwnedFd) {
        let Some(member) = self.members.get_mut(&key).filter(|_| self.kept.is_some()) else { return };
        let process = member.process.insert(process);
        // As for other orders.
        let _ = send(self.control.as_ref(), &Order::Runs { key }, &[process.as_fd()]);
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

    /// Has a service domain watched that has been told to begin.
    fn watch(&self, child: &Process) -> Option<Watchdog> {
        Watchdog::of("network service", &self.gear.heart, &self.gear.calls, child.pid())
    }

    /// What a service domain is told first.
    fn begin(&self) -> io::Result<()> {
        self.send(&Order::Begin { version: ORDERS }, &self.gear.files())
    }

    /// Waits until the service domain has let go of a domain's sockets; not for ever, if it does not answer.
    pub fn await_detached(&self, key: u64) {
        // An answer that came after its wait was over is another one's.
        self.await_said(LET_GO, |said| (*said == key.to_ne_bytes()).then_some(()));
    }

    /// Waits until the service domain says what is waited for; none if it does not, or has ended.
    fn await_said<T>(&self, patience: Duration, mut is_it: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let control = self.control.as_ref()?;
        let end = Instant::now() + patience;
        let mut said = vec![0; ANSWER];
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            match rustix::event::poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&left)) {
                Ok(1..) => {}
                Err(rustix::io::Errno::INTR) => continue,
                _ => return None,
            }
            match rustix::net::recv(control, &mut said[..], RecvFlags::DONTWAIT) {
                Ok((n @ 1.., _)) => match is_it(&said[..n]) {
                    None => {}
                    found => return found,
                },
                _ => return None,
            }
        }
    }

    fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
        let order = member.order(key);
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd()];
        descriptors.extend(member.sockets.iter().map(AsFd::as_fd));
        self.send(&order, &descriptors)?;
        match (&self.kept, &member.process) {
            (Some(_), Some(process)) => self.send(&Order::Runs { key }, &[process.as_fd()]),
            _ => Ok(()),
        }
    }

    pub fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(self.control.as_ref(), order, descriptors).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock
                && let Some(process) = &self.process
            {
                doppel_service::say(format_args!("a network service takes no orders and is killed"));
                process.kill();
            }
        })
    }
}

fn send(control: Option<&OwnedFd>, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let control = control.ok_or(io::ErrorKind::NotConnected)?;
    let bytes = packet(order)?;
    doppel_service::send_packet(control.as_fd(), &bytes, descriptors)
}

/// Has one of a program that is to be used from now on begin, and end: whether it can at all, and understands us.
pub(crate) fn try_out(program: &Program, life: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let gear = ServiceResources::new()?;
    let heart = &gear.heart;
    let (child, control) = spawn(program, &gear, life)?;
    heart.begin();
    let begun = send(Some(&control), &Order::Begin { version: ORDERS }, &gear.files());
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many rules or names for one domain"));
    }
    Ok(bytes)
}

/// `life`: it outlives us, and sees by this that we have ended.
fn spawn(
    program: &Program,
    gear: &ServiceResources,
    life: Option<BorrowedFd<'_>>,
) -> io::Result<(Process, OwnedFd)> {
    let (ours, theirs) = resources::orders()?;
    let process = match life {
        Some(life) => program.start(theirs.as_fd(), &gear.estate(life, &ours))?,
        None => program.start(theirs.as_fd(), &[])?,
    };
    Ok((process, ours))
}

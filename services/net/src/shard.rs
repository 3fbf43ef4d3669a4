//! One shard: a service domain's process, those it serves, and the thread that replaces it when it has ended.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doppel_service::{Heart, Process, Program, Watchdog};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::WaitOptions;

use crate::ledger::Ledger;
use crate::manager::Wanted;
use crate::resolver;
use crate::serve::{DESCRIPTORS, Order, PACKET};

/// Service domains that die faster than this one after the other are given a pause.
const STEADY: Duration = Duration::from_millis(50);
/// How long a service domain is given to let go of sockets.
const LET_GO: Duration = Duration::from_millis(500);

/// A shard, for all that have to do with it; its service domain ends when the last of them has gone.
#[derive(Debug)]
pub(crate) struct Shard(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    program: Arc<Program>,
    control: OwnedFd,
    pub ledger: Arc<Ledger>,
    heart: Arc<Heart>,
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
        let (ledger, heart) = (Ledger::new()?, Arc::new(Heart::new()?));
        heart.begin();
        let state = State { program, control, ledger, heart, log, bell, members: BTreeMap::new() };
        let watchdog = state.inform(&child);
        let shard = Arc::new(Self(Mutex::new(state)));
        let watched = Arc::downgrade(&shard);
        std::thread::Builder::new().name("network".into()).spawn(move || {
            let mut running = Some((child, watchdog));
            loop {
                let begun = Instant::now();
                // One that could not be started has ended as soon as it began.
                if let Some((child, watchdog)) = running.take() {
                    await_end(&child);
                    drop(watchdog);
                }
                if begun.elapsed() < STEADY {
                    std::thread::sleep(STEADY);
                }
                let Some(shard) = watched.upgrade() else { return };
                let next = shard.lock().replace();
                running = next
                    .inspect_err(|error| eprintln!("doppel: cannot start a network service: {error}"))
                    .ok();
            }
        })?;
        Ok(shard)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // What it protects is whole at any moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn replace(&mut self) -> io::Result<(Process, Option<Watchdog>)> {
        self.heart.begin();
        let (child, control) = spawn(&self.program)?;
        self.control = control;
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
            eprintln!("doppel: a network service cannot be told what to do: {error}");
            child.kill();
        }
        watchdog
    }

    /// Has a service domain watched that has been told to begin. Without a watchdog it is only not found if it hangs.
    fn watch(&self, child: &Process) -> Option<Watchdog> {
        Watchdog::new(self.heart.clone(), child.pid())
            .inspect_err(|error| eprintln!("doppel: a network service is not watched: {error}"))
            .ok()
    }

    /// What a service domain is told first.
    fn begin(&self) -> io::Result<()> {
        let files = [self.ledger.file(), self.bell.as_fd(), self.log.as_fd(), self.heart.file()];
        self.send(&Order::Begin, &files)
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

    pub fn tell(&self, key: u64, member: &Member) -> io::Result<()> {
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
        };
        let mut descriptors = vec![member.memory.as_fd(), member.doorbell.as_fd()];
        descriptors.extend(member.sockets.iter().map(AsFd::as_fd));
        self.send(&order, &descriptors)
    }

    pub fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = packet(order)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let parts = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&self.control, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
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

/// Waits until a service domain has ended, and sees to it that one that hangs or is stopped does.
fn await_end(child: &Process) {
    let pid = child.pid();
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => {
                // Nobody who calls would be answered.
                child.kill();
            }
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            // Nothing but a child of ours can be waited for, so this is its end.
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

fn spawn(program: &Program) -> io::Result<(Process, OwnedFd)> {
    let (ours, theirs) = pair(SocketFlags::empty())?;
    Ok((program.start(theirs.as_fd())?, ours))
}

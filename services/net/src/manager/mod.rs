//! The supervisor's side: starts the service domains (`shard`), places domains on them (`placement`) and attaches them.
//!
//! Everything a successor of one that has died needs is kept: channels, doorbells, rules, and the listening sockets of
//! published ports, in whose backlog connections wait meanwhile.

pub mod adopt;
pub mod own;
pub mod placement;
pub mod records;
pub mod resources;
pub mod shard;

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doppel_abi_service::net::SIZE;
use doppel_service::{DESCRIPTORS, Groups, Hibernated, Program};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::channel::quota::Quota;
use crate::flow::live::{FLOWS, FlowPage};
use crate::manager::placement::{LAST, Placement};
use crate::manager::records::{ShardRecords, Slot};
use crate::manager::shard::{Member, Shard, ip4, ip6, packet, try_out};
use crate::names::membership::Membership;
use crate::names::subnet::Space;
use crate::rules::ledger::{Counts, Traffic};
use crate::rules::logs::{Bells, Logs};
use crate::rules::{Rules, Transport};
use crate::service::serve::Order;

/// What a domain wants of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSpec {
    /// Its first virtual network, by name; empty: it is on none.
    pub network: String,
    /// Its own name, by which others of its networks find it; empty: by none.
    pub name: String,
    /// Further names of its on the first network, which others may have too.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Subnets of the first network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<Space>,
    /// Its addresses out of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<IpAddr>,
    /// Further networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Membership>,
    /// It is closed to the outside: its networks are internal, or it is on none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// What it may do.
    pub rules: Rules,
    /// Ports of the host that lead to ports of the domain.
    pub published: Vec<Port>,
    /// Who answers its questions about names; none: who answers the host's.
    pub resolver: Option<SocketAddr>,
    /// What it may have at once.
    #[serde(default)]
    pub quota: Quota,
}

impl EndpointSpec {
    /// Its networks.
    #[must_use]
    pub fn networks(&self) -> Vec<Membership> {
        let (network, aliases) = (self.network.clone(), self.aliases.clone());
        let first = Membership { network, aliases, spaces: self.spaces.clone(), own: self.own.clone() };
        let first = Some(first).filter(|first| !first.network.is_empty());
        first.into_iter().chain(self.further.iter().cloned()).collect()
    }

    /// Its first addresses: out of the first of its networks that has a subnet, or the manager's own for it, which are those of
    /// this key.
    pub(crate) fn addresses(&self, key: u64) -> (Ipv4Addr, Ipv6Addr) {
        let mut first = (ip4(key), ip6(key));
        self.networks().iter().rev().for_each(|one| first = one.found_at(first));
        first
    }

    /// It is on these.
    pub fn set_networks(&mut self, networks: Vec<Membership>) {
        let mut all = networks.into_iter();
        let Membership { network, aliases, spaces, own } = all.next().unwrap_or_default();
        (self.network, self.aliases, self.spaces, self.own) = (network, aliases, spaces, own);
        self.further = all.collect();
    }
}

/// A port of the host that leads to one of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The host's address and port; port 0: any that is free.
    pub host: SocketAddr,
    /// The domain's port.
    pub port: u16,
    /// Of which protocol.
    pub protocol: Transport,
}

/// Where a domain is in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its IPv4 address.
    pub ip4: Ipv4Addr,
    /// Its IPv6 address.
    pub ip6: Ipv6Addr,
    /// Its published ports, with the host's of each.
    pub published: Vec<Port>,
    /// The networks it is on; none: who says this knows of one alone.
    #[serde(default)]
    pub networks: Option<Vec<String>>,
}

/// How a service domain is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Host process id; none while none can be started.
    pub pid: Option<i32>,
    /// How many have been started on this shard.
    pub starts: u64,
    /// How many of them in the place of one that had died or hung.
    pub restarts: u64,
    /// Domains it serves.
    pub domains: usize,
    /// CPU time of this process.
    pub cpu_seconds: f64,
    /// Its resident memory, its part of channels included.
    pub memory_bytes: u64,
    /// The longest step of work that this process says it has taken, waits for a CPU included.
    #[serde(default)]
    pub longest_step_seconds: f64,
}

/// A domain's part in the network; dropped, it has none any more.
#[derive(Debug)]
pub struct Attachment {
    pub(crate) shard: Arc<Shard>,
    pub(crate) index: usize,
    pub(crate) book: Arc<Mutex<Placement>>,
    pub(crate) key: u64,
    /// The channel's memory file.
    pub memory: Arc<OwnedFd>,
    /// The service's doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// Its published ports, with the host's of each.
    pub published: Vec<Port>,
    pub(crate) counts: Counts,
    /// What had been counted before the counts began.
    pub(crate) before: Traffic,
}

impl Attachment {
    /// Which domain of its manager's it is, as lines of the log say.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Gives it other rules; what they do not allow any more ends.
    ///
    /// # Errors
    /// Too many of them.
    pub fn set_rules(&self, rules: Rules) -> io::Result<()> {
        let order = Order::Rules { key: self.key, rules: rules.clone() };
        let mut state = self.shard.lock();
        packet(&order)?;
        if let Some(member) = state.members.get_mut(&self.key) {
            if member.wanted.rules == rules {
                return Ok(());
            }
            member.wanted.rules = rules;
        }
        // One that has died is replaced, and its successor is told of all members.
        let _ = state.send(&order, &[]);
        Ok(())
    }

    /// Others of its network find it by this name from now on.
    pub fn set_name(&self, name: &str) {
        let mut state = self.shard.lock();
        if let Some(member) = state.members.get_mut(&self.key) {
            name.clone_into(&mut member.wanted.name);
        }
        // As for rules.
        let _ = state.send(&Order::Name { key: self.key, name: name.to_owned() }, &[]);
    }

    /// Puts it on other networks, which are `internal` or not; what it has with domains that it does not reach any more ends.
    ///
    /// # Errors
    /// If they are not served by one service domain.
    pub fn set_networks(&self, networks: Vec<Membership>, internal: bool) -> io::Result<()> {
        let mut state = self.shard.lock();
        let Some(mut wanted) = state.members.get(&self.key).map(|member| member.wanted.clone()) else {
            return Ok(());
        };
        wanted.set_networks(networks.clone());
        let (ip4, ip6) = wanted.addresses(self.key);
        let order = Order::Networks { key: self.key, networks: networks.clone(), internal, ip4, ip6 };
        packet(&order)?;
        locked(&self.book).change(self.key, networks.iter().map(|m| m.network.as_str()))?;
        if let Some(member) = state.members.get_mut(&self.key) {
            member.wanted.set_networks(networks);
            member.wanted.internal = internal;
            own::write(&member.memory, &own::table(&member.wanted, self.key))?;
        }
        // As for rules.
        let _ = state.send(&order, &[]);
        Ok(())
    }

    /// What it has moved so far, if the service domain is right.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.before.plus(self.counts.read())
    }

    /// Its flows from this place on, [`FlowPage::next`] of those before.
    ///
    /// # Errors
    /// The service domain does not say, or says what cannot be.
    pub fn flows(&self, from: u32) -> io::Result<FlowPage> {
        let said = self.shard.lock().flows(self.key, from);
        let page =
            said.ok_or_else(|| io::Error::other("the network service does not say which flows there are"))?;
        // It may have been taken by an enemy: it leads nobody around in circles.
        if page.flows.len() > FLOWS || page.next.is_some_and(|next| next <= from) {
            return Err(io::Error::other("the network service says of flows what cannot be"));
        }
        Ok(page)
    }

    /// It is this process.
    pub fn runs(&self, process: OwnedFd) {
        self.shard.lock().runs(self.key, process);
    }

    /// Where the domain is.
    #[must_use]
    pub fn place(&self) -> Endpoint {
        let networks = locked(&self.book).networks_of_domain(self.key);
        let (ip4, ip6) = self.addresses();
        Endpoint { ip4, ip6, published: self.published.clone(), networks }
    }

    /// Its first addresses.
    #[must_use]
    pub fn addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        let own = |member: &Member| member.wanted.addresses(self.key);
        self.shard.lock().members.get(&self.key).map_or_else(|| (ip4(self.key), ip6(self.key)), own)
    }
}

impl Attachment {
    /// The domain is hibernated. Its connections stay with the service domain, its ports take callers, and
    /// [`Manager::bells`] is rung when there is news for it.
    ///
    /// # Errors
    /// What the host says.
    pub fn hibernate(mut self) -> io::Result<Sleeper> {
        let channel = Hibernated::new(&self.memory)?;
        // What is counted from now on is the run's that begins with its wake.
        self.counts.clear();
        self.before = Traffic::default();
        Ok(Sleeper { attachment: self, channel, same: true })
    }
}

/// A hibernated domain's part in the network.
#[derive(Debug)]
pub struct Sleeper {
    pub(crate) attachment: Attachment,
    pub(crate) channel: Hibernated,
    pub(crate) same: bool,
}

impl Sleeper {
    /// Whether somebody wants the domain to wake: something has come, or the service domain is another.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.channel.has_news()
    }

    /// What it wakes with.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// The domain wakes; and whether its channel is the one it had.
    #[must_use]
    pub fn wake(self) -> (Attachment, bool) {
        (self.attachment, self.same)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        // Ports are free again when both have closed their sockets.
        let answer = state.dismiss(self.key).is_some_and(|m| !m.sockets.is_empty());
        // A service domain that is dead has forgotten it.
        if state.send(&Order::Detach { key: self.key, answer }, &[]).is_ok() && answer {
            state.await_detached(self.key);
        }
        drop(state);
        locked(&self.book).leave(self.key);
    }
}

pub(crate) fn locked(book: &Mutex<Placement>) -> MutexGuard<'_, Placement> {
    // What it protects is whole at any moment.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that may wait at a published port; the host may allow fewer.
const BACKLOG: i32 = 4096;
/// Most shards.
pub const SHARDS: usize = 64;

/// The hidden command of a program that is a service domain's process, with [`crate::serve()`] on its standard input.
pub const SERVICE: &str = "network-service";
/// Its option: it must not poll.
const NO_POLLING: &str = "--no-polling";

/// Its option: it does not end with its supervisor.
const OUTLIVES: &str = "--outlives";

/// Service domains of this program.
fn service(
    file: &Path,
    name: &OsStr,
    groups: Option<Arc<dyn Groups>>,
    outlives: bool,
) -> io::Result<Program> {
    let options = [(!doppel_service::may_poll(), NO_POLLING), (outlives, OUTLIVES)];
    let options = options.iter().filter(|(wanted, _)| *wanted).map(|(_, option)| OsStr::new(option));
    let program = Program::new(file, [name, OsStr::new(SERVICE)].into_iter().chain(options))?;
    Ok(program.in_groups(groups).outliving(outlives))
}

/// Runs service domains.
#[derive(Debug)]
pub struct Manager {
    program: Mutex<Arc<Program>>,
    kept: Option<Arc<ShardRecords>>,
    pub(crate) shards: Vec<Arc<Shard>>,
    pub(crate) book: Arc<Mutex<Placement>>,
    logs: Logs,
}

impl Manager {
    /// Starts so many service domains by the command [`SERVICE`] of the program that runs, each in a control group of these.
    ///
    /// # Errors
    /// What the host says.
    pub fn of_this_program(groups: Option<Arc<dyn Groups>>, shards: usize) -> io::Result<Self> {
        let name = std::env::args_os().next().unwrap_or_default();
        Self::start(service(Path::new("/proc/self/exe"), &name, groups, false)?, shards)
    }

    /// The same, but they outlive this process, and are written down in `dir`. Those of one before it that are there are
    /// taken over; whoever has this done is the only one to.
    ///
    /// # Errors
    /// What the host says.
    pub fn kept_in(dir: &Path, groups: Option<Arc<dyn Groups>>, shards: usize) -> io::Result<Self> {
        let name = std::env::args_os().next().unwrap_or_default();
        Self::keep(dir, service(Path::new("/proc/self/exe"), &name, groups, true)?, shards)
    }

    /// Whether service domains are written down there.
    #[must_use]
    pub fn are_kept_in(dir: &Path) -> bool {
        std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
    }

    pub(crate) fn keep(dir: &Path, program: Program, shards: usize) -> io::Result<Self> {
        let kept = ShardRecords::new(dir)?;
        let records = kept.read()?;
        let program = Arc::new(program);
        let shards = shards.clamp(1, SHARDS).max(records.len());
        let all = (0..shards).map(|index| {
            let slot = Slot { kept: kept.clone(), index };
            match records.get(index).and_then(Option::as_ref) {
                Some(record) => Shard::adopt(program.clone(), slot, record),
                None => Shard::start(program.clone(), Some(slot)),
            }
        });
        let all = all.collect::<io::Result<_>>()?;
        Self::of(program, Some(kept), all)
    }

    /// Starts so many service domains with this program, whose standard input becomes its control socket (`serve`); one at
    /// least, [`SHARDS`] at most. They end when the last of this manager and its attachments is dropped.
    ///
    /// # Errors
    /// What the host says.
    pub fn start(program: Program, shards: usize) -> io::Result<Self> {
        let program = Arc::new(program);
        let all = (0..shards.clamp(1, SHARDS)).map(|_| Shard::start(program.clone(), None));
        let all = all.collect::<io::Result<_>>()?;
        Self::of(program, None, all)
    }

    fn of(
        program: Arc<Program>,
        kept: Option<Arc<ShardRecords>>,
        shards: Vec<Arc<Shard>>,
    ) -> io::Result<Self> {
        let book = Arc::new(Mutex::new(Placement::new(shards.len())));
        // Each has its own, so that none can speak for another.
        let ends =
            shards.iter().map(|shard| shard.lock().gear.lines.try_clone()).collect::<io::Result<_>>()?;
        let logs = Logs::new(ends, book.clone())?;
        Ok(Self { program: Mutex::new(program), kept, shards, book, logs })
    }

    /// Replaces the service domains, one after the other, by ones of the command [`SERVICE`] of this program; established
    /// connections end as by a death. One that cannot begin, or does not understand us, is not used.
    ///
    /// # Errors
    /// What the host says, or why the program is not used.
    pub fn upgrade(&self, to: &Path) -> io::Result<()> {
        let mut program = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        let next = service(to, to.as_os_str(), program.groups(), self.kept.is_some())?;
        try_out(&next, self.kept.as_deref().map(ShardRecords::life))?;
        *program = Arc::new(next);
        self.shards.iter().try_for_each(|shard| shard.upgrade(program.clone()))
    }

    /// Whether the service domains are of the program that is there.
    ///
    /// # Errors
    /// If none is there.
    pub fn is_of(&self, program: &Path) -> io::Result<bool> {
        if !self.program.lock().unwrap_or_else(PoisonError::into_inner).is(program)? {
            return Ok(false);
        }
        // Those that were taken over may be of another. Who cannot be looked at is taken for what was started.
        Ok(self.shards.iter().all(|shard| !matches!(shard.is_of(program), Some(Ok(false)))))
    }

    /// How each of the service domains is, and how many networks it has.
    #[must_use]
    pub fn health(&self) -> Vec<(Health, usize)> {
        let networks = |i| locked(&self.book).networks_of(i);
        self.shards.iter().enumerate().map(|(i, shard)| (shard.health(), networks(i))).collect()
    }

    /// What rules have written down.
    #[must_use]
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// What is rung when there is news for a hibernated domain.
    ///
    /// # Errors
    /// What the host says.
    pub fn bells(&self) -> io::Result<Bells> {
        let bells = self.shards.iter().map(|shard| shard.lock().gear.bell.try_clone());
        Bells::new(bells.collect::<io::Result<_>>()?)
    }

    /// Gives a domain its part in the network.
    ///
    /// # Errors
    /// A port that cannot be published, or what the host says.
    pub fn attach(&self, wanted: EndpointSpec) -> io::Result<Attachment> {
        if wanted.published.len() + 2 > DESCRIPTORS {
            let text = format!("{} published ports: at most {}", wanted.published.len(), DESCRIPTORS - 2);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut wanted = wanted;
        let sockets = wanted.published.iter_mut().map(publish).collect::<io::Result<_>>()?;
        let (memory, doorbell) = doppel_service::make(SIZE)?;
        let networks = wanted.networks();
        let member =
            Member { wanted, memory: memory.into(), doorbell: doorbell.into(), sockets, process: None };
        // One that cannot be told of would wait for ever.
        packet(&member.order(LAST))?;
        let (key, index) = locked(&self.book).enter(networks.iter().map(|m| m.network.as_str()))?;
        let attachment = self.attachment(key, index, &member);
        own::write(&member.memory, &own::table(&member.wanted, key))?;
        let mut state = attachment.shard.lock();
        attachment.counts.clear();
        state.enlist(key, member);
        drop(state);
        Ok(attachment)
    }

    /// A domain's, on this shard.
    pub(crate) fn attachment(&self, key: u64, index: usize, member: &Member) -> Attachment {
        let shard = self.shards[index].clone();
        let counts = shard.lock().gear.ledger.entry(key);
        Attachment {
            shard,
            index,
            book: self.book.clone(),
            key,
            memory: member.memory.clone(),
            doorbell: member.doorbell.clone(),
            published: member.wanted.published.clone(),
            counts,
            before: Traffic::default(),
        }
    }
}

fn bound(at: SocketAddr, protocol: Transport) -> io::Result<OwnedFd> {
    let kind = match protocol {
        Transport::Tcp => Type::STREAM,
        Transport::Udp => Type::DGRAM,
    };
    let socket = Socket::new(Domain::for_address(at), kind.cloexec(), None)?;
    if at.is_ipv6() {
        // IPv4 is published by itself, at the same port if it is to be.
        socket.set_only_v6(true)?;
    }
    if protocol == Transport::Tcp {
        // What is left of connections keeps nobody from the port.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket.into())
}

/// The host's socket for a published port, which is entered if any would do.
pub(crate) fn publish(port: &mut Port) -> io::Result<OwnedFd> {
    let at = port.host;
    let socket = bound(at, port.protocol)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot publish a port at {at}: {e}")))?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    if port.protocol == Transport::Tcp {
        // The standard library's 128 make a thousand who call at once try again after a second.
        rustix::net::listen(&socket, BACKLOG)?;
    }
    port.host = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(socket)
}

//! What domains may take of what the host has once for all: descriptors, ports, memory for what they receive.
//!
//! Each has limits of its own ([`Quota`]), and beside them a share of each [`Pool`]: it may take more while it has less than
//! [`SHARE`] times of what is left to all, an eighth of the pool apart, which is for those who have little: so alone it gets more than
//! half of the pool, each greedy one that comes later less, and who wants little finds something however many of them there are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doppel_abi_service::net::pages;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::rules::host::HostRule;

/// How much more than what is left a domain may have.
const SHARE: u64 = 2;
/// What a domain may have in any case while there is some, and the part of a pool that is kept for that.
const LEAST: u64 = 64;
const KEPT: u64 = 8;
/// The part of the host's ports that always stays free.
const FREE: u64 = 8;
/// Descriptors that are not for sockets of domains: of the service itself, channels and published ports.
const RESERVE: u64 = 256;

/// Most that one domain may have of the network service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Sockets of the host: connections, and what datagrams are sent from.
    pub sockets: u64,
    /// Ports of the host that connections and datagrams to the outside take, of TCP and of UDP each.
    pub ports: u64,
    /// Bytes of memory for what it has received and not taken.
    pub memory: u64,
    /// Hundredths of the service's time for what burdens it, while others would notice.
    pub burden_percent: u8,
}

/// The part of a domain's memory for what it has received that streams may fill where something waits already.
const AHEAD: u64 = 4;
/// The same while nothing of a stream was ever taken, in a domain whose kernel touches pages itself.
const UNREAD: u64 = 64;
/// Pages beyond the first ones that sockets of a domain may leave for the next ones.
const IDLE: u32 = 256;
/// Most rules for all domains.
const MOST_RULES: usize = 100;
/// What a domain's memory for what it has received and not taken is at least.
const LEAST_MEMORY: u64 = 16 << 20;

/// What one domain may have, as an administrator says it (the table `network` of doppeld.toml).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// [`Quota::sockets`].
    pub sockets: u32,
    /// [`Quota::ports`].
    pub ports: u32,
    /// [`Quota::memory`], in hundredths of the domain's memory limit.
    pub received_percent: u8,
    /// [`Quota::burden_percent`].
    pub burden_percent: u8,
    /// What holds for all domains, before their own rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HostRule>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { sockets: 20_480, ports: 16_384, received_percent: 25, burden_percent: 5, rules: Vec::new() }
    }
}

impl Quotas {
    /// Of a domain with this memory limit; 0 is none.
    #[must_use]
    pub fn of_memory(&self, limit: Option<u64>) -> Quota {
        let part = |limit: u64| (limit / 100).saturating_mul(self.received_percent.into()).max(LEAST_MEMORY);
        Quota {
            sockets: self.sockets.into(),
            ports: self.ports.into(),
            memory: limit.filter(|&n| n > 0).map_or(Quota::default().memory, part),
            burden_percent: self.burden_percent,
        }
    }

    /// A domain's rules with those of the host before them, so that it can add to what these refuse and not undo it.
    ///
    /// # Errors
    /// Which of the host's makes no sense, and why.
    pub fn before(&self, own: Rules) -> Result<Rules, String> {
        if self.rules.len() > MOST_RULES {
            return Err(format!("rules: at most {MOST_RULES}"));
        }
        let mut all = Rules { rates: own.rates, ..Rules::default() };
        for (n, rule) in self.rules.iter().enumerate() {
            let named = |e: String| format!("rules: the {}. ({:?}): {e}", n + 1, rule.pattern);
            rule.add_to(&mut all).map_err(named)?;
        }
        all.outbound.extend(own.outbound);
        all.inbound.extend(own.inbound);
        Ok(all)
    }

    /// Whether they make sense.
    ///
    /// # Errors
    /// Which does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let all = [
            ("sockets", self.sockets, doppel_abi_service::OBJECTS),
            ("ports", self.ports, u16::MAX.into()),
            ("received_percent", self.received_percent.into(), 100),
            ("burden_percent", self.burden_percent.into(), 100),
        ];
        self.before(Rules::default())?;
        let wrong = all.into_iter().find(|(_, is, most)| !(1..=*most).contains(is));
        wrong.map_or(Ok(()), |(name, _, most)| Err(format!("{name}: must be between 1 and {most}")))
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self { sockets: 20_480, ports: 16_384, memory: 256 << 20, burden_percent: 5 }
    }
}

/// So much of something, for all domains of a service.
#[derive(Debug)]
struct Pool {
    size: AtomicU64,
    used: AtomicU64,
}

impl Pool {
    fn new(size: u64) -> Self {
        Self { size: AtomicU64::new(size), used: AtomicU64::new(0) }
    }

    /// Takes `n` for who has so many; false if that would be more than its share.
    fn take(&self, has: u64, n: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let size = self.size.load(Ordering::Relaxed);
        let left = size.saturating_sub(used);
        let free = left.saturating_sub(n).saturating_sub(size / KEPT);
        let fits = n <= left && (has + n <= SHARE * free || has + n <= LEAST);
        if fits {
            self.used.store(used + n, Ordering::Relaxed);
        }
        fits
    }

    fn give(&self, n: u64) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }
}

/// What one service has for its domains.
#[derive(Debug)]
pub(crate) struct Pools {
    descriptors: Pool,
    /// Of TCP and of UDP.
    ports: [Pool; 2],
    memory: Pool,
}

/// Which ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    Tcp,
    Udp,
}

impl Pools {
    /// Of a process that may have so many descriptors, on a host with so many ports to call from, and so many bytes of memory.
    pub fn new(descriptors: u64, ports: u64, memory: u64) -> Arc<Self> {
        Arc::new(Self {
            descriptors: Pool::new(descriptors.saturating_sub(RESERVE)),
            ports: [Pool::new(ports), Pool::new(ports)],
            memory: Pool::new(memory),
        })
    }

    /// As this process and its host have it.
    pub fn of_host() -> Arc<Self> {
        use rustix::process::Resource;
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        // The host looks for a free one from a random one on: where some are free, it finds one soon.
        let ports = port_range(&text("/proc/sys/net/ipv4/ip_local_port_range"));
        let ports = ports - ports / FREE;
        // Its control group has half of the host's, for all it does.
        let memory = total_memory(&text("/proc/meminfo")) / 4;
        Self::new(descriptors, ports, memory)
    }
}

/// How many ports there are, by `ip_local_port_range`; Linux' own default if it says nothing.
fn port_range(text: &str) -> u64 {
    let mut numbers = text.split_whitespace().map_while(|n| n.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if first <= last => last - first + 1,
        _ => 28_232,
    }
}

/// In bytes, by the text of `/proc/meminfo`; a gigabyte if it says nothing.
fn total_memory(text: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map_or(1 << 30, |kb| kb << 10)
}

/// What one domain has.
#[derive(Debug)]
pub(crate) struct Account {
    quota: Quota,
    pools: Arc<Pools>,
    sockets: AtomicU64,
    ports: [AtomicU64; 2],
    memory: AtomicU64,
    /// Its guest kernel touches pages itself: seen of one of its sockets.
    lends: AtomicBool,
    /// Pages of buffers whose sockets are no more.
    left: Mutex<HashMap<u32, Left>>,
    /// How many of these are beyond the first ones.
    idle: AtomicU32,
}

/// Pages of a buffer whose socket is no more, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Those that count.
    pub there: u64,
    /// Those that the domain pays for.
    pub lent: u64,
}

impl Left {
    /// Pages that the next socket of a number finds in any case.
    pub const FIRST: u64 = (1 << pages::FIRST) - 1;

    fn beyond(self) -> u32 {
        ((self.there | self.lent) & !Self::FIRST).count_ones()
    }
}

/// A socket of the host that a domain has, until it is dropped: its descriptor, and perhaps a port.
#[derive(Debug)]
pub(crate) struct SocketLease {
    account: Arc<Account>,
    port: Option<Ports>,
}

impl Account {
    pub fn new(quota: Quota, pools: Arc<Pools>) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            quota,
            pools,
            sockets: zero(),
            ports: [zero(), zero()],
            memory: zero(),
            lends: AtomicBool::new(false),
            left: Mutex::default(),
            idle: AtomicU32::new(0),
        })
    }

    /// Lets it have one more socket, and its port.
    ///
    /// # Errors
    /// As Linux says it: its own limit of sockets, those of all, no port.
    pub fn take(self: &Arc<Self>, port: Option<Ports>) -> Result<SocketLease, Errno> {
        let has = self.sockets.load(Ordering::Relaxed);
        if has >= self.quota.sockets {
            return Err(Errno::MFILE);
        }
        if let Some(port) = port {
            let has = self.ports[port as usize].load(Ordering::Relaxed);
            if has >= self.quota.ports || !self.pools.ports[port as usize].take(has, 1) {
                return Err(Errno::ADDRNOTAVAIL);
            }
            self.ports[port as usize].fetch_add(1, Ordering::Relaxed);
        }
        if !self.pools.descriptors.take(has, 1) {
            self.give_port(port);
            return Err(Errno::NFILE);
        }
        self.sockets.fetch_add(1, Ordering::Relaxed);
        Ok(SocketLease { account: self.clone(), port })
    }

    fn give_port(&self, port: Option<Ports>) {
        if let Some(port) = port {
            self.ports[port as usize].fetch_sub(1, Ordering::Relaxed);
            self.pools.ports[port as usize].give(1);
        }
    }

    /// Whether it may have another socket that takes no port.
    pub fn has_room(&self) -> bool {
        let (has, all) = (self.sockets.load(Ordering::Relaxed), &self.pools.descriptors);
        let fits = has < self.quota.sockets && all.take(has, 1);
        if fits {
            all.give(1);
        }
        fits
    }

    /// Lets it have so many bytes of memory more; false if they are too many.
    pub fn take_memory(&self, bytes: u64) -> bool {
        self.take_within(bytes, self.quota.memory)
    }

    /// The same for bytes of streams before which others wait. They can wait in the host's sockets: a [`AHEAD`]th is enough.
    pub fn take_ahead(&self, bytes: u64) -> bool {
        self.take_within(bytes, self.quota.memory / AHEAD)
    }

    /// The same for those of streams of which nothing was taken yet: who reads at once has them soon.
    pub fn take_first(&self, bytes: u64) -> bool {
        self.take_within(bytes, self.quota.memory / if self.lends() { UNREAD } else { AHEAD })
    }

    fn take_within(&self, bytes: u64, most: u64) -> bool {
        let has = self.memory.load(Ordering::Relaxed);
        let fits = has + bytes <= most && self.pools.memory.take(has, bytes);
        if fits {
            self.memory.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Lets it have them whether they are too many or not.
    pub fn overdraw_memory(&self, bytes: u64) {
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        self.pools.memory.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Its guest kernel has touched pages of a buffer.
    pub fn lent(&self) {
        self.lends.store(true, Ordering::Relaxed);
    }

    /// Whether it has done so.
    pub fn lends(&self) -> bool {
        self.lends.load(Ordering::Relaxed)
    }

    /// So many are free again.
    pub fn give_memory(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        self.pools.memory.give(bytes);
    }
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Left>> {
        // What it protects is whole at any moment.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A socket is no more whose buffer has these pages; those that count stay counted. What the host is asked again is not kept.
    pub fn leave(&self, number: u32, left: Left) {
        if left.there != 0 || left.beyond() != 0 {
            self.idle.fetch_add(left.beyond(), Ordering::Relaxed);
            self.lock().insert(number, left);
        }
    }

    /// Whether the next socket may find so many pages beyond the first ones.
    pub fn may_leave(&self, beyond: u32) -> bool {
        self.idle.load(Ordering::Relaxed) + beyond <= IDLE
    }

    /// What the last socket of this number has left.
    pub fn inherit(&self, number: u32) -> Left {
        let left = self.lock().remove(&number).unwrap_or_default();
        self.idle.fetch_sub(left.beyond(), Ordering::Relaxed);
        left
    }

    /// Takes out what some have left of pages that count.
    pub fn left(&self, most: usize) -> Vec<(u32, Left)> {
        let counts = |(n, left): (&u32, &Left)| (left.there != 0).then_some(*n);
        let numbers: Vec<u32> = self.lock().iter().filter_map(counts).take(most).collect();
        numbers.into_iter().map(|n| (n, self.inherit(n))).collect()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.pools.memory.give(self.memory.load(Ordering::Relaxed));
    }
}

impl Drop for SocketLease {
    fn drop(&mut self) {
        self.account.sockets.fetch_sub(1, Ordering::Relaxed);
        self.account.pools.descriptors.give(1);
        self.account.give_port(self.port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greedy(account: &Arc<Account>, port: Option<Ports>) -> (Vec<SocketLease>, Errno) {
        let mut all = Vec::new();
        loop {
            match account.take(port) {
                Ok(taken) => all.push(taken),
                Err(e) => return (all, e),
            }
        }
    }

    #[test]
    fn who_comes_later_finds_something_however_greedy_others_are() {
        let pools = Pools::new(20_000 + RESERVE, 28_000, 0);
        let quota = Quota { sockets: u64::MAX, ports: u64::MAX, memory: 0, ..Quota::default() };
        let mut all = Vec::new();
        for n in 1..=20u64 {
            let account = Account::new(quota, pools.clone());
            let (taken, why) = greedy(&account, None);
            assert_eq!(why, Errno::NFILE);
            assert!(taken.len() >= 64, "the {n}th has {}", taken.len());
            all.push(taken);
        }
        assert_eq!(all[0].len(), 11_666);
        all.clear();
        let account = Account::new(quota, pools);
        assert_eq!(greedy(&account, None).0.len(), 11_666);
    }

    #[test]
    fn each_limit_has_its_error_and_all_is_given_back() {
        let pools = Pools::new(1 << 20, 3000, 300);
        let quota = Quota { sockets: 5000, ports: 1 << 20, memory: 100, ..Quota::default() };
        let account = Account::new(quota, pools.clone());
        for _ in 0..2 {
            let (udp, why) = greedy(&account, Some(Ports::Udp));
            assert_eq!((udp.len(), why), (1750, Errno::ADDRNOTAVAIL));
            let (rest, why) = greedy(&account, None);
            assert_eq!((rest.len(), why), (3250, Errno::MFILE));
        }
        assert!(account.has_room());
        assert!(account.take_memory(100) && !account.take_memory(1));
        account.overdraw_memory(50);
        account.give_memory(150);
        assert!(account.take_memory(100));
    }

    #[test]
    fn what_an_administrator_says() {
        let plain = Quotas::default();
        assert_eq!(plain.of_memory(None), Quota::default());
        assert_eq!(plain.of_memory(Some(1000 << 20)).memory, 250 << 20);
        assert_eq!(plain.of_memory(Some(1 << 20)).memory, LEAST_MEMORY);
        let other = Quotas { sockets: 3, received_percent: 50, ..plain.clone() }.of_memory(Some(1000 << 20));
        assert_eq!((other.sockets, other.memory), (3, 500 << 20));
        assert!(plain.check().is_ok());
        assert!(
            Quotas { burden_percent: 101, ..plain.clone() }
                .check()
                .unwrap_err()
                .starts_with("burden_percent")
        );
    }

    #[test]
    fn what_the_host_says() {
        assert_eq!(port_range("32768\t60999\n"), 28_232);
        assert_eq!(port_range(""), 28_232);
        assert_eq!(total_memory("MemTotal:       16000000 kB\nMemFree: 1 kB\n"), 16_384_000_000);
    }
}

//! What the keeper does when it is asked.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_domain::{Error, Outcome};

use super::config::exit_file;
use super::protocol::{
    Call, Fault, KeeperCommand, Kept, KnownExec, Limits, Message, PROTOCOL, Refusal, Reply, Usage,
};
use super::{Domain, Keeper, locked};

/// Exit codes for domains whose program did not end by itself.
const OUT_OF_MEMORY: u8 = 137;
const KILLED: u8 = 137;
pub(super) const TOOL_ERROR: u8 = 125;
/// Bytes of a page, for page-seconds.
const PAGE: f64 = 4096.0;

/// Input on its way to a program.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub queue: VecDeque<Piece>,
}

/// A piece of input: which call brought it, how much of it is done, and whether it is the last.
#[derive(Debug)]
pub(super) struct Piece {
    pub call: Option<u64>,
    pub bytes: Vec<u8>,
    pub done: usize,
    pub close: bool,
    /// Bytes that came before it, of a stream whose input is counted.
    pub at: Option<u32>,
    /// Whoever brought it wants to know how much the program has.
    pub tell: bool,
}

impl Piece {
    /// Passes over what the program, which was given so many bytes, has of it already; once.
    pub fn pass(&mut self, given: impl FnOnce() -> u32) {
        let Some(at) = self.at.take() else { return };
        let given = given().wrapping_sub(at);
        // One that is behind what it has, which nobody sends, is not taken for one far ahead of it.
        let given = if given > u32::MAX / 2 { 0 } else { usize::try_from(given).unwrap_or(0) };
        self.done = given.min(self.bytes.len());
    }
}

impl Input {
    pub fn forget_calls(&mut self) {
        for piece in &mut self.queue {
            piece.call = None;
        }
    }
}

pub(super) fn refused(fault: Fault, text: impl Into<String>) -> Reply {
    Reply::Refused(Refusal { fault, text: text.into() })
}

pub(super) fn failed(error: &Error) -> Reply {
    let fault = match error {
        Error::Config(_) => Fault::Request,
        Error::Ended(_) => Fault::Gone,
        Error::State(_) | Error::InDomain(_) => Fault::State,
        Error::Misuse(_) => Fault::Host,
        Error::Unsupported(_) => Fault::Unsupported,
        Error::Image { .. } | Error::Freezer(_) => Fault::Image,
        Error::Host { error, .. } => match error.kind() {
            std::io::ErrorKind::StorageFull => Fault::Full,
            std::io::ErrorKind::InvalidInput => Fault::Request,
            std::io::ErrorKind::Unsupported => Fault::Unsupported,
            _ => Fault::Host,
        },
        Error::Kernel(_) | Error::Spawn(_) => Fault::Host,
    };
    refused(fault, error.to_string())
}

impl Keeper {
    pub(super) fn answer(&mut self, call: Call) {
        if let Some(said) = self.act(call.n, call.command) {
            self.say(&Message::Reply { n: call.n, reply: said });
        }
    }

    /// Does what is asked; none if the answer comes later.
    fn act(&mut self, n: u64, ask: KeeperCommand) -> Option<Reply> {
        match ask {
            KeeperCommand::Hello { protocol, execs } => self.greet(n, protocol, &execs),
            KeeperCommand::Start { id, run, follow, spec } => self.start(n, id, run, follow, *spec),
            KeeperCommand::Ack { ended } => {
                for (id, run) in ended {
                    self.forget(&id, run);
                }
                Some(Reply::Done)
            }
            KeeperCommand::Signal { id, signal } => self.with(&id, |keeper, key| {
                if let Some(domain) = keeper.fleet.get(key) {
                    domain.signal(signal);
                }
                Some(Reply::Done)
            }),
            KeeperCommand::Kill { id, grace } => self.with(&id, |keeper, key| keeper.kill(key, grace)),
            KeeperCommand::Pause { id } => self.change_pause(n, &id, true),
            KeeperCommand::Unpause { id } => self.change_pause(n, &id, false),
            KeeperCommand::Input { id, data, close, at, tell } => match STANDARD.decode(data) {
                Ok(bytes) => self.give(&id, Piece { call: Some(n), bytes, done: 0, close, at, tell }),
                Err(_) => Some(refused(Fault::Request, "not base64")),
            },
            KeeperCommand::Resize { id, rows, columns } => self.with(&id, |keeper, key| {
                if let Some(domain) = keeper.fleet.get(key) {
                    domain.resize(rows, columns);
                }
                Some(Reply::Done)
            }),
            KeeperCommand::Follow { id } => Some(self.follow(&id)),
            KeeperCommand::Unfollow { id } => {
                if let Some(domain) = self.domains.get(&id) {
                    domain.tap.0.store(false, Ordering::Relaxed);
                }
                Some(Reply::Done)
            }
            KeeperCommand::Freeze { id, to, stop, whole, keep_network, least_ms } => {
                self.freeze(n, &id, keep_network, |fleet, key| match keep_network && stop {
                    true => fleet.hibernate(key, to, Duration::from_millis(least_ms)),
                    false => fleet.freeze(key, to, stop, whole),
                })
            }
            KeeperCommand::KeepDisk { id, disk, needed_by } => self.keep_disk(n, &id, disk, needed_by),
            KeeperCommand::Release { id } => {
                drop(self.sleepers.take(&id));
                self.forget_asleep(&id);
                Some(Reply::Done)
            }
            KeeperCommand::Update { id, limits } => self.update(n, &id, limits),
            KeeperCommand::Name { id, name } => Some(self.set_name(&id, &name)),
            KeeperCommand::Networks { id, networks, internal } => {
                Some(self.set_networks(&id, networks, internal))
            }
            KeeperCommand::Rules { id, rules } => Some(self.set_rules(&id, rules)),
            KeeperCommand::GiveWay { program } => Some(self.give_way(n, &program)),
            KeeperCommand::Services => Some(self.services()),
            KeeperCommand::Forget { frozen } => {
                Some(Reply::Forgot { any: self.spares.forget(&mut self.fleet, &frozen) })
            }
            KeeperCommand::UpgradeServices { program, if_other } => {
                Some(self.upgrade_services(&program, if_other))
            }
            KeeperCommand::Exec { id, exec, spec } => self.exec(n, &id, exec, *spec),
            KeeperCommand::ToExec { exec, command: ask } => self.exec_ask(n, &exec, ask),
            KeeperCommand::Usage { id, flows: Some(from) } => Some(self.flows(&id, from)),
            KeeperCommand::Usage { id, flows: None } => {
                Some(self.usage(&id).map_or_else(|| gone(&id), |usage| Reply::Usage(Box::new(usage))))
            }
            KeeperCommand::Memory { id } => self.with_running(&id, |keeper, domain| {
                if domain.counting.is_empty() {
                    keeper.count_memory(domain.key);
                }
                domain.counting.push(n);
                None
            }),
        }
    }

    /// Greets a supervisor, which is told what is kept.
    fn greet(&mut self, n: u64, protocol: u32, execs: &[KnownExec]) -> Option<Reply> {
        if protocol != PROTOCOL {
            tracing::warn!("a supervisor speaks protocol {protocol}, this keeper {PROTOCOL}");
        }
        let execs = self.greet_execs(execs);
        let domains = self.kept();
        let kept =
            Reply::Kept { protocol: PROTOCOL, domains, readies_clones: true, knows_subnets: true, execs };
        self.reply(Some(n), kept);
        self.tell_called(true);
        None
    }

    fn kill(&mut self, key: doppel_domain::Key, grace: u32) -> Option<Reply> {
        if let Some(domain) = self.keys.get(&key).and_then(|id| self.domains.get_mut(id)) {
            domain.killed = true;
            domain.storage.iter().for_each(super::storage::Storage::settle);
        }
        self.write_note(key);
        // A domain whose vCPUs stand still dies all the same: they are the host's processes.
        let killed = self.fleet.kill_within(key, Duration::from_secs(grace.into()));
        Some(killed.map_or_else(|e| failed(&e), |()| Reply::Done))
    }

    /// Has a domain stand still or go on.
    fn change_pause(&mut self, n: u64, id: &str, pause: bool) -> Option<Reply> {
        self.with_running(id, |fleet, domain| {
            if domain.pausing.is_some() {
                return Some(refused(Fault::State, "it is being paused, or let go on"));
            }
            domain.pausing = Some(n);
            if pause {
                fleet.pause(domain.key)
            } else {
                fleet.unpause(domain.key)
            }
            None
        })
    }

    /// Takes a piece of input for a domain.
    fn give(&mut self, id: &str, piece: Piece) -> Option<Reply> {
        let domain = match self.running(id) {
            Ok(domain) => domain,
            Err(said) => return Some(said),
        };
        domain.input.queue.push_back(piece);
        self.feed(id);
        None
    }

    /// What a domain printed last; what it prints from now on is told too.
    fn follow(&self, id: &str) -> Reply {
        match self.domains.get(id) {
            Some(domain) => {
                domain.tap.0.store(true, Ordering::Relaxed);
                Reply::Printed(locked(&domain.journal).recent())
            }
            None => gone(id),
        }
    }

    fn freeze(
        &mut self,
        n: u64,
        id: &str,
        keep_network: bool,
        begin: impl FnOnce(&doppel_domain::Fleet, doppel_domain::Key),
    ) -> Option<Reply> {
        let key = match self.running(id) {
            Ok(domain) => domain.key,
            Err(said) => return Some(said),
        };
        if self.freezes.contains_key(&key) {
            return Some(refused(Fault::State, "it is being frozen"));
        }
        if let Some(domain) = self.domains.get_mut(id) {
            domain.keeps_network = keep_network;
        }
        self.write_note(key);
        self.freezes.insert(key, n);
        begin(&self.fleet, key);
        None
    }

    fn keep_disk(&mut self, n: u64, id: &str, disk: String, needed_by: PathBuf) -> Option<Reply> {
        self.with_running(id, |fleet, domain| {
            domain.keeping.push(n);
            fleet.keep_disk(domain.key, n, disk, needed_by);
            None
        })
    }

    fn update(&mut self, n: u64, id: &str, limits: Limits) -> Option<Reply> {
        self.with_running(id, |fleet, domain| {
            if domain.limiting.is_some() {
                return Some(refused(Fault::State, "its limits are being changed"));
            }
            fleet.set_limits(domain.key, limits.clone());
            domain.limiting = Some((Some(n), limits));
            None
        })
    }

    fn kept(&self) -> Vec<Kept> {
        let kept = |(id, d): (&String, &Domain)| Kept {
            id: id.clone(),
            run: d.run,
            pid: self.fleet.get(d.key).map(doppel_domain::Domain::pid),
            started_at: d.started_at.clone(),
            paused: d.paused,
            network: d.network.as_ref().map(doppel_net::Attachment::place),
            exit: d.exit.clone(),
        };
        self.domains.iter().map(kept).collect()
    }

    fn running(&mut self, id: &str) -> Result<&mut Domain, Reply> {
        let Some(domain) = self.domains.get_mut(id).filter(|d| d.exit.is_none()) else {
            return Err(gone(id));
        };
        if domain.started_at.is_none() {
            return Err(refused(Fault::State, format!("domain {id} is being started")));
        }
        Ok(domain)
    }

    fn with(
        &mut self,
        id: &str,
        act: impl FnOnce(&mut Self, doppel_domain::Key) -> Option<Reply>,
    ) -> Option<Reply> {
        match self.domains.get(id).filter(|d| d.exit.is_none()).map(|d| d.key) {
            Some(key) => act(self, key),
            None => Some(gone(id)),
        }
    }

    fn with_running(
        &mut self,
        id: &str,
        act: impl FnOnce(&mut doppel_domain::Fleet, &mut Domain) -> Option<Reply>,
    ) -> Option<Reply> {
        let Some(domain) = self.domains.get_mut(id).filter(|d| d.exit.is_none()) else {
            return Some(gone(id));
        };
        if domain.started_at.is_none() {
            return Some(refused(Fault::State, format!("domain {id} is being started")));
        }
        act(&mut self.fleet, domain)
    }

    fn forget(&mut self, id: &str, run: u64) {
        let known = self.domains.get(id);
        if known.is_some_and(|d| d.run != run || d.exit.is_none()) {
            return;
        }
        if let Some(domain) = self.domains.remove(id) {
            self.keys.remove(&domain.key);
        }
        match std::fs::remove_file(exit_file(&self.config.store, id)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove the exit of domain {id}: {e}");
            }
            _ => {}
        }
    }

    /// Moves waiting input into the domain.
    pub(super) fn feed(&mut self, id: &str) {
        let mut done = Vec::new();
        let Some(domain) = self.domains.get_mut(id) else { return };
        while let Some(piece) = domain.input.queue.front_mut() {
            piece.pass(|| self.fleet.given(domain.key));
            piece.done += self.fleet.input(domain.key, &piece.bytes[piece.done..]);
            if piece.done < piece.bytes.len() {
                break;
            }
            if piece.close {
                self.fleet.end_input(domain.key);
            }
            let said =
                if piece.tell { Reply::Given { bytes: self.fleet.given(domain.key) } } else { Reply::Done };
            done.extend(piece.call.map(|n| Message::Reply { n, reply: said }));
            domain.input.queue.pop_front();
        }
        for answer in done {
            self.say(&answer);
        }
    }

    /// What a domain has used so far.
    fn usage(&mut self, id: &str) -> Option<Usage> {
        let domain = self.domains.get_mut(id)?;
        let live = self.fleet.get(domain.key);
        let mut usage = live.map(|d| Usage::from(d.usage())).unwrap_or_default();
        domain.count(&mut usage, live.map_or(0, doppel_domain::Domain::calls));
        usage.swap_bytes = live.and_then(doppel_domain::Domain::swapped);
        Some(usage)
    }

    pub(super) fn reply(&mut self, call: Option<u64>, said: Reply) {
        if let Some(n) = call {
            self.say(&Message::Reply { n, reply: said });
        }
    }
}

impl Domain {
    /// Adds to what the control group counted what only the keeper knows, the calls that the domain claims, and what the
    /// network service does.
    pub(super) fn count(&mut self, usage: &mut Usage, calls: u64) {
        self.calls = self.calls.max(calls);
        usage.calls = Some(self.calls);
        let now = Instant::now();
        if let Some((before, since)) = self.sample {
            let memory = usage.memory_bytes.unwrap_or(0);
            // A trapezoid between two counts.
            let mean = (before as f64 + memory as f64) / 2.0;
            self.page_seconds += mean / PAGE * now.duration_since(since).as_secs_f64();
            self.sample = Some((memory, now));
        }
        usage.page_seconds = self.page_seconds;
        usage.console_bytes = locked(&self.journal).total;
        if let Some(now) = self.network.as_ref().map(doppel_net::Attachment::traffic) {
            self.traffic = Some(self.traffic.unwrap_or_default().most(now));
        }
        usage.traffic = self.traffic;
        usage.storage = self.storage.as_ref().and_then(super::storage::Storage::traffic);
    }
}

/// Exit code, reason, and whether it was for want of memory.
pub(super) fn exit_of(outcome: &Outcome, killed: bool) -> (u8, Option<String>, bool) {
    match outcome {
        Outcome::Exited(code) => (*code, None, false),
        // As asked for.
        Outcome::Ended { out_of_memory: false, .. } if killed => (KILLED, None, false),
        Outcome::Ended { reason, out_of_memory } => {
            (if *out_of_memory { OUT_OF_MEMORY } else { TOOL_ERROR }, Some(reason.clone()), *out_of_memory)
        }
    }
}

/// Stages of a start as they are told, with microseconds.
pub(super) type Stages = Vec<(String, u64)>;

pub(super) fn stages(times: doppel_domain::StartTimes) -> Stages {
    let doppel_domain::StartTimes { queue, memory, group, process } = times;
    let named = [("queue", queue), ("memory", memory), ("group", group), ("process", process)];
    named.map(|(name, took)| (name.to_owned(), u64::try_from(took.as_micros()).unwrap_or(u64::MAX))).into()
}

pub(super) fn gone(id: &str) -> Reply {
    refused(Fault::Gone, format!("domain {id} does not run"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use doppel_api::{Code, Problem};

    #[test]
    fn a_client_is_not_blamed_for_what_the_domain_did() {
        let code = |error: Error| match failed(&error) {
            Reply::Refused(refusal) => Problem::from(refusal).code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(Error::Config("no command given".into())), Code::InvalidRequest);
        assert_eq!(code(Error::Ended("the domain has ended".into())), Code::WrongState);
        assert_eq!(code(Error::State("its programs do not stop".into())), Code::WrongState);
        assert_eq!(code(Error::InDomain("tar: no space left".into())), Code::WrongState);
        assert_eq!(code(Error::Misuse("a rule of this crate")), Code::Internal);
    }
}

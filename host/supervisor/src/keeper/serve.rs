//! What the keeper does when it is asked, and when something happens to a domain.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_domain::{
    CloneConfig, DomainConfig, Error, Event, NetworkLink, NewLimits, Outcome, Output, Start,
};

use super::log::Journal;
use super::protocol::{
    Ask, Boot, Call, Exit, Fault, Kept, News, PROTOCOL, Refusal, Resume, Said, Spec, Usage, Word,
};
use super::{Domain, Keeper, Sink, Tap, adopt, domain_dir, exit_file, locked, network};
use crate::time;

/// Exit codes for domains whose program did not end by itself.
const OUT_OF_MEMORY: u8 = 137;
const KILLED: u8 = 137;
const TOOL_ERROR: u8 = 125;
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

pub(super) fn refused(fault: Fault, text: impl Into<String>) -> Said {
    Said::Refused(Refusal { fault, text: text.into() })
}

pub(super) fn failed(error: &Error) -> Said {
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
        if let Some(said) = self.act(call.n, call.ask) {
            self.say(&Word::Answer { n: call.n, said });
        }
    }

    /// Does what is asked; none if the answer comes later.
    fn act(&mut self, n: u64, ask: Ask) -> Option<Said> {
        match ask {
            Ask::Hello { protocol, execs } => {
                if protocol != PROTOCOL {
                    tracing::warn!("a supervisor speaks protocol {protocol}, this keeper {PROTOCOL}");
                }
                let execs = self.greet_execs(&execs);
                let kept = Said::Kept { protocol: PROTOCOL, domains: self.kept(), execs };
                self.reply(Some(n), kept);
                self.tell_called(true);
                None
            }
            Ask::Start { id, run, follow, spec } => self.start(n, id, run, follow, *spec),
            Ask::Ack { ended } => {
                for (id, run) in ended {
                    self.forget(&id, run);
                }
                Some(Said::Done)
            }
            Ask::Signal { id, signal } => self.with(&id, |keeper, key| {
                if let Some(domain) = keeper.fleet.get(key) {
                    domain.signal(signal);
                }
                Some(Said::Done)
            }),
            Ask::Kill { id } => self.with(&id, |keeper, key| {
                if let Some(domain) = keeper.keys.get(&key).and_then(|id| keeper.domains.get_mut(id)) {
                    domain.killed = true;
                }
                keeper.write_note(key);
                // A domain whose vCPUs stand still dies all the same: they are the host's processes.
                Some(keeper.fleet.kill(key).map_or_else(|e| failed(&e), |()| Said::Done))
            }),
            Ask::Pause { id } => self.with_running(&id, |keeper, domain| {
                if domain.pausing.is_some() {
                    return Some(refused(Fault::State, "it is being paused, or let go on"));
                }
                domain.pausing = Some(n);
                keeper.pause(domain.key);
                None
            }),
            Ask::Unpause { id } => self.with_running(&id, |keeper, domain| {
                if domain.pausing.is_some() {
                    return Some(refused(Fault::State, "it is being paused, or let go on"));
                }
                domain.pausing = Some(n);
                keeper.unpause(domain.key);
                None
            }),
            Ask::Input { id, data, close, at, tell } => {
                let Ok(bytes) = STANDARD.decode(data) else {
                    return Some(refused(Fault::Request, "not base64"));
                };
                let domain = match self.running(&id) {
                    Ok(domain) => domain,
                    Err(said) => return Some(said),
                };
                domain.input.queue.push_back(Piece { call: Some(n), bytes, done: 0, close, at, tell });
                self.feed(&id);
                None
            }
            Ask::Resize { id, rows, columns } => self.with(&id, |keeper, key| {
                if let Some(domain) = keeper.fleet.get(key) {
                    domain.resize(rows, columns);
                }
                Some(Said::Done)
            }),
            Ask::Follow { id } => Some(match self.domains.get(&id) {
                Some(domain) => {
                    domain.tap.0.store(true, Ordering::Relaxed);
                    Said::Printed(locked(&domain.journal).recent())
                }
                None => gone(&id),
            }),
            Ask::Unfollow { id } => {
                if let Some(domain) = self.domains.get(&id) {
                    domain.tap.0.store(false, Ordering::Relaxed);
                }
                Some(Said::Done)
            }
            Ask::Freeze { id, to, stop, keep_network } => {
                let key = match self.running(&id) {
                    Ok(domain) => domain.key,
                    Err(said) => return Some(said),
                };
                if self.freezes.contains_key(&key) {
                    return Some(refused(Fault::State, "it is being frozen"));
                }
                if let Some(domain) = self.domains.get_mut(&id) {
                    domain.keeps_network = keep_network;
                }
                self.write_note(key);
                self.freezes.insert(key, n);
                self.fleet.freeze(key, to, stop);
                None
            }
            Ask::Release { id } => {
                drop(self.sleepers.take(&id));
                self.forget_asleep(&id);
                Some(Said::Done)
            }
            Ask::Update { id, limits } => self.with_running(&id, |keeper, domain| {
                if domain.limiting.is_some() {
                    return Some(refused(Fault::State, "its limits are being changed"));
                }
                let wanted = NewLimits {
                    memory: limits.memory,
                    memory_target: limits.memory_target,
                    cpus: limits.cpus,
                    resources: limits.resources(),
                };
                domain.limiting = Some((Some(n), limits));
                keeper.set_limits(domain.key, wanted);
                None
            }),
            Ask::Name { id, name } => Some(self.set_name(&id, &name)),
            Ask::Rules { id, rules } => Some(self.set_rules(&id, rules)),
            Ask::GiveWay { program } => Some(self.give_way(n, &program)),
            Ask::Services => Some(self.services()),
            Ask::UpgradeServices { program, if_other } => Some(self.upgrade_services(&program, if_other)),
            Ask::Exec { id, exec, spec } => self.exec(n, &id, exec, *spec),
            Ask::ToExec { exec, ask } => self.exec_ask(n, &exec, ask),
            Ask::Usage { id } => Some(match self.usage(&id) {
                Some(usage) => Said::Usage(Box::new(usage)),
                None => gone(&id),
            }),
            Ask::Memory { id } => self.with_running(&id, |keeper, domain| {
                if domain.counting.is_empty() {
                    keeper.count_memory(domain.key);
                }
                domain.counting.push(n);
                None
            }),
        }
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

    fn running(&mut self, id: &str) -> Result<&mut Domain, Said> {
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
        act: impl FnOnce(&mut Self, doppel_domain::Key) -> Option<Said>,
    ) -> Option<Said> {
        match self.domains.get(id).filter(|d| d.exit.is_none()).map(|d| d.key) {
            Some(key) => act(self, key),
            None => Some(gone(id)),
        }
    }

    fn with_running(
        &mut self,
        id: &str,
        act: impl FnOnce(&mut doppel_domain::Fleet, &mut Domain) -> Option<Said>,
    ) -> Option<Said> {
        let Some(domain) = self.domains.get_mut(id).filter(|d| d.exit.is_none()) else {
            return Some(gone(id));
        };
        if domain.started_at.is_none() {
            return Some(refused(Fault::State, format!("domain {id} is being started")));
        }
        act(&mut self.fleet, domain)
    }

    fn start(&mut self, n: u64, id: String, run: u64, follow: bool, spec: Spec) -> Option<Said> {
        if let Some(said) = self.start_again(n, &id, run) {
            return said;
        }
        if self.domains.get(&id).is_some_and(|d| d.exit.is_none()) {
            return Some(refused(Fault::State, format!("domain {id} runs already")));
        }
        let (log, limits) = match &spec {
            Spec::Boot(boot) => (boot.log, boot.limits.clone()),
            Spec::Resume(resume) => (resume.log, resume.limits.clone()),
        };
        let dir = domain_dir(&self.config.store, &id);
        let journal = match Journal::open(&dir, log) {
            Ok(journal) => Arc::new(Mutex::new(journal)),
            Err(e) => {
                let full = e.kind() == std::io::ErrorKind::StorageFull;
                let fault = if full { Fault::Full } else { Fault::Host };
                return Some(refused(fault, format!("cannot make {}: {e}", dir.display())));
            }
        };
        let wanted = match &spec {
            Spec::Boot(boot) => boot.network.clone(),
            Spec::Resume(resume) => resume.network.clone(),
        };
        // Whoever wakes has what it had, if the keeper is the one that has kept it.
        let kept = self.sleepers.take(&id);
        let (network, same) = match kept {
            Some((kept, same)) => (Some(kept), same),
            None => match wanted.map(|w| self.attach(w)).transpose() {
                Ok(network) => (network, false),
                Err(said) => return Some(said),
            },
        };
        let link = network.as_ref().map(|a| network::link(a, same));
        // Names may change, ids do not; and what is left of the last run goes a little later than it ends.
        let label = format!("{id}.{run}");
        let start = match spec {
            Spec::Boot(boot) => {
                let keep = Duration::from_secs(boot.spare_seconds.into());
                if boot.kind == doppel_domain::Kind::Para {
                    self.spares.used(&boot.image, keep);
                }
                Start::Boot(Box::new(DomainConfig { network: link, ..self.boot(label, boot) }))
            }
            Spec::Resume(resume) => self.resume(label, resume, link),
        };
        let woke = matches!(start, Start::Wake(..));
        let note = adopt::Note::new(&id, run, log, &limits, woke, network.as_ref());
        let start = adopt::kept(start, &adopt::keep(&self.config, note.to_value()));
        let tap = Tap::default();
        tap.0.store(follow, Ordering::Relaxed);
        let sink =
            Sink { id: id.clone(), journal: journal.clone(), tap: tap.clone(), outbox: self.outbox.clone() };
        let output = Output::To(Box::new(sink));
        let begun = Instant::now();
        let (key, ready) = match self.take_or_start(start, output) {
            Ok(found) => found,
            Err(e) => return Some(failed(&e)),
        };
        self.keys.insert(key, id.clone());
        let domain = Domain {
            run,
            key,
            started_at: None,
            paused: false,
            exit: None,
            journal,
            tap,
            starting: Some(n),
            woke,
            pausing: None,
            limiting: None,
            counting: Vec::new(),
            input: Input::default(),
            killed: false,
            limits,
            log,
            sample: None,
            page_seconds: 0.0,
            calls: 0,
            network,
            traffic: None,
            keeps_network: false,
        };
        self.domains.insert(id.clone(), domain);
        if ready {
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.started(key, &id, Vec::new(), vec![("spare".to_owned(), took)]);
        }
        None
    }

    /// Has a domain that was made ready become this one, or starts it; and whether it runs already.
    fn take_or_start(&mut self, start: Start, output: Output) -> Result<(doppel_domain::Key, bool), Error> {
        if let Start::Boot(config) = &start
            && let Some(key) = self.spares.take(&self.fleet, config)
        {
            if let Err(error) = self.fleet.go_as(key, config, output) {
                self.fleet.kill(key)?;
                return Err(error);
            }
            return Ok((key, true));
        }
        Ok((self.fleet.start(start, output), false))
    }

    /// A domain runs.
    fn started(
        &mut self,
        key: doppel_domain::Key,
        id: &str,
        warnings: Vec<String>,
        stages: Vec<(String, u64)>,
    ) {
        let Some(domain) = self.domains.get_mut(id) else { return };
        let at = time::now();
        domain.started_at = Some(at.clone());
        domain.sample = Some((0, Instant::now()));
        let call = domain.starting.take();
        if domain.limits.memory_target.is_some() {
            let (memory, target) = (domain.limits.memory, domain.limits.memory_target);
            if let Err(error) = self.fleet.set_memory(key, memory, target) {
                tracing::warn!("domain {id}: {error}");
            }
        }
        let run = domain.run;
        let live = self.fleet.get(key);
        let pid = live.map_or(0, doppel_domain::Domain::pid);
        if let Some(live) = live.filter(|_| domain.woke) {
            let name = id.to_owned();
            if let Err(error) = live.settle_wake(move |text| tracing::warn!("domain {name}: {text}")) {
                tracing::warn!("domain {id}: {error}");
            }
        }
        let network = domain.network.as_ref().map(doppel_net::Attachment::place);
        self.tell_process(id);
        self.forget_asleep(id);
        match call {
            Some(n) => self.reply(Some(n), Said::Started { pid, at, warnings, stages, network }),
            None => self.say(&Word::News(News::Started { id: id.to_owned(), run, pid, at, network })),
        }
    }

    fn boot(&self, label: String, boot: Boot) -> DomainConfig {
        let argv = boot.argv.into_iter().map(Into::into).collect();
        let mut config = DomainConfig {
            kind: boot.kind,
            disk: boot.disk,
            store: Some(self.config.store.clone()),
            env: boot.env.into_iter().map(Into::into).collect(),
            cwd: boot.cwd.into(),
            uid: boot.uid,
            gid: boot.gid,
            groups: boot.groups,
            name: Some(label),
            hostname: boot.hostname.into(),
            tty: boot.tty,
            stdin: boot.stdin,
            no_patch: boot.no_patch,
            freeze_to: boot.freeze_to,
            ..DomainConfig::new(boot.image, argv)
        };
        config.cpus = boot.limits.cpus;
        config.memory = boot.limits.memory;
        config.resources = boot.limits.resources();
        config
    }

    fn resume(&mut self, label: String, resume: Resume, network: Option<NetworkLink>) -> Start {
        let mut config = CloneConfig {
            name: Some(label),
            hostname: resume.hostname.into(),
            args: resume.args.into_iter().map(Into::into).collect(),
            command: resume.argv.into_iter().map(Into::into).collect(),
            env: resume.env.into_iter().map(Into::into).collect(),
            stdin: resume.stdin,
            store: Some(self.config.store.clone()),
            freeze_to: resume.freeze_to,
            network,
            ..CloneConfig::default()
        };
        config.cpus = resume.limits.cpus;
        config.memory = resume.limits.memory;
        config.resources = resume.limits.resources();
        if resume.wake {
            let name = resume.frozen.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return Start::Wake(name, Box::new(config));
        }
        Start::Clone {
            image: resume.frozen,
            index: resume.index,
            images: self.images.clone(),
            config: Box::new(config),
        }
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
    fn feed(&mut self, id: &str) {
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
                if piece.tell { Said::Given { bytes: self.fleet.given(domain.key) } } else { Said::Done };
            done.extend(piece.call.map(|n| Word::Answer { n, said }));
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
        Some(usage)
    }

    pub(super) fn happened(&mut self, event: Event) {
        let key = match &event {
            Event::Started { key, .. }
            | Event::Failed { key, .. }
            | Event::Frozen { key, .. }
            | Event::FrozeItself { key, .. }
            | Event::Memory { key, .. }
            | Event::Limited { key, .. }
            | Event::Paused { key, .. } => *key,
            Event::Unpaused(key)
            | Event::Held(key)
            | Event::FirstOutput(key)
            | Event::InputRoom(key)
            | Event::Session(key, ..) => *key,
            Event::Ended(ended) => ended.key,
        };
        if let Event::Frozen { result, .. } = &event
            && let Some(n) = self.freezes.remove(&key)
        {
            // Its domain may have ended by it, and be forgotten already.
            let said = match result {
                Ok(r) => Said::Frozen { bytes: r.bytes, stop_us: r.stop_us, pause_us: r.pause_us },
                Err(error) => failed(error),
            };
            self.say(&Word::Answer { n, said });
            return;
        }
        if matches!(event, Event::Started { .. } | Event::Ended(_)) {
            self.spares.stir();
        }
        let spare = self.spares.note(key, &event);
        let id = self.keys.get(&key).filter(|id| !spare && self.domains.contains_key(*id)).cloned();
        let Some((id, domain)) = id.and_then(|id| Some((id.clone(), self.domains.get_mut(&id)?))) else {
            // Nobody is to be told how it ended.
            if matches!(event, Event::Ended(_)) {
                self.fleet.bury(key);
            }
            return;
        };
        match event {
            Event::Started { warnings, .. } => {
                let times = self.fleet.get(key).map(|d| stages(d.start_times())).unwrap_or_default();
                self.started(key, &id, warnings, times);
            }
            Event::Failed { error, .. } => {
                let (call, run) = (domain.starting.take(), domain.run);
                if domain.woke
                    && let Some(attachment) = domain.network.take()
                {
                    self.keep_network(&id, attachment, true);
                }
                if call.is_some() {
                    self.domains.remove(&id);
                    self.keys.remove(&key);
                    self.reply(call, failed(&error));
                } else {
                    // Whoever asked has gone; its successor is told as of an end.
                    let reason = Some(format!("could not be started: {error}"));
                    let at = time::now();
                    self.ended(Exit { id, run, code: TOOL_ERROR, reason, at, ..Exit::default() });
                }
            }
            Event::InputRoom(_) => self.feed(&id),
            // Whoever asked for it has gone, and sees what came of it in the store.
            Event::Frozen { .. } => {}
            Event::FrozeItself { result, .. } => {
                let failed = result.err().map(|e| e.to_string());
                self.say(&Word::News(News::FrozeItself { id, failed }));
            }
            Event::Paused { result, .. } => {
                domain.paused = result.is_ok();
                let call = domain.pausing.take();
                self.reply(call, result.map_or_else(|e| failed(&e), |()| Said::Done));
            }
            Event::Unpaused(_) => {
                domain.paused = false;
                let call = domain.pausing.take();
                self.reply(call, Said::Done);
            }
            Event::Limited { result, .. } => {
                let Some((call, limits)) = domain.limiting.take() else { return };
                if result.is_ok() {
                    domain.limits = limits;
                    self.write_note(key);
                }
                self.reply(call, result.map_or_else(|e| failed(&e), |()| Said::Done));
            }
            Event::Memory { result, .. } => {
                for n in std::mem::take(&mut domain.counting) {
                    let said = match &result {
                        Ok((private, shared)) => {
                            Said::Memory { private_bytes: *private, shared_bytes: *shared }
                        }
                        Err(e) => failed(e),
                    };
                    self.say(&Word::Answer { n, said });
                }
            }
            Event::Session(_, session, event) => self.exec_happened(session, event),
            Event::Held(_) | Event::FirstOutput(_) => {}
            Event::Ended(ended) => {
                let mut usage = ended.usage.map(Usage::from).unwrap_or_default();
                domain.count(&mut usage, ended.calls);
                let asleep = ended.asleep;
                // A freeze that ended it is answered when its report is there.
                let freezing = if asleep { None } else { self.freezes.remove(&key) };
                let calls = [
                    domain.starting.take(),
                    freezing,
                    domain.pausing.take(),
                    domain.limiting.take().and_then(|(call, _)| call),
                ];
                let counting = std::mem::take(&mut domain.counting);
                let input = std::mem::take(&mut domain.input);
                let calls: Vec<u64> = calls
                    .into_iter()
                    .flatten()
                    .chain(input.queue.iter().filter_map(|p| p.call))
                    .chain(counting)
                    .collect();
                let (code, reason, out_of_memory) = exit_of(&ended.outcome, domain.killed);
                let run = domain.run;
                for n in calls {
                    self.say(&Word::Answer { n, said: gone(&id) });
                }
                let at = time::now();
                self.ended(Exit { id, run, code, reason, out_of_memory, at, asleep, lost: false, usage });
            }
        }
    }

    pub(super) fn reply(&mut self, call: Option<u64>, said: Said) {
        if let Some(n) = call {
            self.say(&Word::Answer { n, said });
        }
    }
}

impl Domain {
    /// Adds to what the control group counted what only the keeper knows, the calls that the domain claims, and what the
    /// network service does.
    fn count(&mut self, usage: &mut Usage, calls: u64) {
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

/// Stages of a start as they are told.
fn stages(times: doppel_domain::StartTimes) -> Vec<(String, u64)> {
    let doppel_domain::StartTimes { queue, memory, group, process } = times;
    let named = [("queue", queue), ("memory", memory), ("group", group), ("process", process)];
    named.map(|(name, took)| (name.to_owned(), u64::try_from(took.as_micros()).unwrap_or(u64::MAX))).into()
}

pub(super) fn gone(id: &str) -> Said {
    refused(Fault::Gone, format!("domain {id} does not run"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use doppel_api::{Code, Problem};

    #[test]
    fn a_client_is_not_blamed_for_what_the_domain_did() {
        let code = |error: Error| match failed(&error) {
            Said::Refused(refusal) => Problem::from(refusal).code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(Error::Config("no command given".into())), Code::InvalidRequest);
        assert_eq!(code(Error::Ended("the domain has ended".into())), Code::WrongState);
        assert_eq!(code(Error::State("its programs do not stop".into())), Code::WrongState);
        assert_eq!(code(Error::InDomain("tar: no space left".into())), Code::WrongState);
        assert_eq!(code(Error::Misuse("a rule of this crate")), Code::Internal);
    }
}

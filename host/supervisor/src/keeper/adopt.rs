//! What a keeper writes down of its domains for its successor, and how that takes them over.
//!
//! The lock on `keeper.lock` decides who speaks for the domains: it goes with the keeper, however that ends. The records in
//! `kept/` beside it (`host/domain`'s, with a [`Note`] each) say which domains there are. Bytes are taken from a
//! domain only when they are in its log, and each line of that says how far its stream was taken: one that its keeper wrote
//! and could not tell the domain of any more is not written again.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_domain::{Adopted, Adoption, Channels, Gone, Key, Orphan, Output};
use doppel_net::Attachment;
use rustix::fs::FlockOperation;
use serde::Deserialize;

use super::config::{domain_dir, records};
use super::log::Journal;
use super::protocol::{Exit, Fault, Message, Reply, Usage};
use super::records::{Note, now};
use super::serve;
use super::storage::Storage;
use super::{Domain, Keeper, Sink, Tap, locked};
use crate::time;

/// How long the lock of one that has died may still be held: by a process it was just making.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Exit code of a domain that is lost with its keeper.
const LOST: u8 = 137;
/// Bytes of a page, for page-seconds.
const PAGE: f64 = 4096.0;

/// Takes the lock.
pub(super) fn wait_for(lock: &File) -> rustix::io::Result<()> {
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Its layer again, of a domain that goes on.
fn held_again(id: &str, dir: &Path) -> Option<doppel_layers::Lock> {
    // Nobody else gets it: the supervisor notes whose it is.
    let held = doppel_layers::Lock::of(dir);
    if !matches!(held, Ok(Some(_))) {
        tracing::warn!("domain {id} goes on, and its layer {} is not locked", dir.display());
    }
    held.ok().flatten()
}

impl Keeper {
    /// Takes over the domains of a keeper that has died.
    pub(super) fn adopt(&mut self) {
        let begun = Instant::now();
        let (orphans, bad) = Orphan::all(&records(&self.config.runtime));
        for what in bad {
            tracing::error!("a record of a domain cannot be read: {what}");
        }
        self.adopt_network();
        let mut held = if self.config.held {
            crate::keepers::held_memory::borrow(std::io::stdin().lock())
        } else {
            HashMap::new()
        };
        let count = orphans.len();
        for orphan in self.without_older_runs(orphans) {
            match orphan.note().map(|note| serde_json::from_value::<Note>(note.clone())) {
                Some(Ok(note)) if orphan.has_network() && note.network.is_none() => self.lose(orphan, note),
                Some(Ok(note)) => {
                    let held = held.remove(&(note.id.clone(), note.run)).unwrap_or_default();
                    self.adopt_one(orphan, note, held);
                }
                other => {
                    if let Some(Err(error)) = other {
                        tracing::error!("a domain that no supervisor knows is ended: {error}");
                    }
                    if let Err(error) = self.fleet.discard(orphan) {
                        tracing::error!("what is left of a domain's start stays: {error}");
                    }
                }
            }
        }
        self.adopt_asleep();
        self.storage.sweep(self.domains.values().filter_map(|d| d.storage.as_ref()));
        if let Some(network) = &self.network {
            network.resumed();
        }
        self.fleet.adopted();
        if count > 0 {
            tracing::info!("took over {count} domains in {} ms", begun.elapsed().as_millis());
        }
    }

    /// One whose domain runs again is just going: its end was heard, or the next run would not have been asked for.
    fn without_older_runs(&mut self, orphans: Vec<Orphan>) -> Vec<Orphan> {
        let run = |orphan: &Orphan| {
            let note = Note::deserialize(orphan.note()?).ok()?;
            Some((note.id, note.run))
        };
        let mut newest: HashMap<String, u64> = HashMap::new();
        for (id, run) in orphans.iter().filter_map(run) {
            let known = newest.entry(id).or_default();
            *known = run.max(*known);
        }
        let older = |o: &Orphan| run(o).is_some_and(|(id, run)| newest.get(&id).is_some_and(|n| *n > run));
        let (older, rest): (Vec<_>, Vec<_>) = orphans.into_iter().partition(older);
        for orphan in older {
            if let Err(error) = self.fleet.discard(orphan) {
                tracing::error!("what is left of a domain's run before stays: {error}");
            }
        }
        rest
    }

    /// Ends a domain of whose part in the network nothing is known: its programs would wait for connections for ever.
    fn lose(&mut self, orphan: Orphan, note: Note) {
        let Note { id, run, page_seconds, calls, .. } = note;
        if let Err(error) = self.fleet.discard(orphan) {
            tracing::error!("domain {id} does not end: {error}");
        }
        let usage = Usage { page_seconds, calls: Some(calls), ..Usage::default() };
        let reason = Some("lost: its keeper ended, and what it had of the network is not known".to_owned());
        self.ended(Exit {
            id,
            run,
            code: LOST,
            reason,
            at: time::now(),
            lost: true,
            usage,
            ..Exit::default()
        });
    }

    fn adopt_one(&mut self, orphan: Orphan, note: Note, held: Vec<OwnedFd>) {
        let dir = domain_dir(&self.config.store, &note.id);
        let (journal, taken) = match Journal::resume(&dir, note.log) {
            Ok(found) => found,
            Err(error) => {
                // It goes on, and what is missing in its log is said there as soon as that can be.
                tracing::error!("the log of domain {}: {error}", note.id);
                (Journal::unreadable(&dir, note.log), None)
            }
        };
        let journal = Arc::new(Mutex::new(journal));
        let tap = Tap::default();
        let (id, outbox) = (note.id.clone(), self.outbox.clone());
        let sink = Sink { id: id.clone(), journal: journal.clone(), tap: tap.clone(), outbox };
        let adoption = Adoption {
            output: Output::To(Box::new(sink)),
            taken: taken.map(|(stream, end)| (stream.into(), end)),
            resources: note.limits.clone(),
            account: true,
            held,
        };
        match self.fleet.adopt(orphan, adoption) {
            Ok(Adopted::Lives(key, channels)) => self.adopted(key, note, channels, journal, tap),
            Ok(Adopted::Gone(gone)) => self.gone(*gone, note),
            Err(error) => tracing::error!("domain {id} goes on without a keeper: {error}"),
        }
    }

    fn adopted(&mut self, key: Key, note: Note, channels: Channels, journal: Arc<Mutex<Journal>>, tap: Tap) {
        let counted = note.traffic.unwrap_or_default();
        let network = note
            .network
            .zip(channels.network)
            .map(|(part, channel)| self.resume_network(part, channel, counted));
        let network = network.and_then(|resumed| self.or_end(key, &note.id, "network", resumed));
        let storage = match channels.storage {
            Some(channel) => Some(self.storage.resume(&note.id, note.run, note.volumes, channel)),
            None => (!note.volumes.is_empty()).then(|| self.storage.hold(note.volumes)),
        };
        let storage = storage.and_then(|resumed| self.or_end(key, &note.id, "volumes", resumed));
        let layer = note.layer.as_deref().and_then(|dir| held_again(&note.id, dir));
        let live = self.fleet.get(key);
        let paused = live.is_some_and(doppel_domain::Domain::is_paused);
        if let Some(live) = live {
            storage.iter().filter_map(Storage::disks).for_each(|disks| live.set_disks(disks));
            // All that was taken since is modulo 2^32.
            let since = live.taken().wrapping_sub((note.printed & 0xffff_ffff) as u32);
            locked(&journal).total = note.printed + u64::from(since);
        }
        let memory = live.and_then(|d| d.usage().memory_bytes).unwrap_or(0);
        let passed = (now() - note.counted).max(0.0);
        self.keys.insert(key, note.id.clone());
        let domain = Domain {
            started_at: Some(note.started_at),
            paused,
            woke: note.woke,
            killed: note.killed,
            sample: Some((memory, Instant::now())),
            page_seconds: note.page_seconds + memory as f64 / PAGE * passed,
            calls: note.calls,
            network,
            storage,
            layer,
            traffic: note.traffic,
            keeps_network: note.keeps_network,
            ..Domain::new(note.run, key, journal, tap, note.log, note.limits)
        };
        domain.storage.iter().for_each(|storage| storage.limit(&domain.limits));
        let networked = domain.network.is_some();
        self.domains.insert(note.id.clone(), domain);
        self.adopt_execs(&note.id, key);
        self.tell_process(&note.id);
        if networked {
            // Its ports may have been bound again.
            self.write_note(key);
        }
    }

    /// Ends a domain that has lost what it would wait for for ever.
    fn or_end<T>(&mut self, key: Key, id: &str, what: &str, resumed: std::io::Result<T>) -> Option<T> {
        let end = |error: &std::io::Error| {
            tracing::error!("domain {id} is ended, which has lost its {what}: {error}");
            if let Err(error) = self.fleet.kill(key) {
                tracing::error!("domain {id}: {error}");
            }
        };
        resumed.inspect_err(end).ok()
    }

    /// A domain has ended while it had no keeper, and took with it how.
    fn gone(&mut self, gone: Gone, note: Note) {
        let (code, reason, out_of_memory) = serve::exit_of(&gone.outcome, note.killed);
        let mut usage = Usage::from(gone.usage);
        (usage.page_seconds, usage.calls) = (note.page_seconds, Some(note.calls));
        let (id, run, at, asleep) = (note.id.clone(), note.run, time::now(), gone.asleep);
        if let Some(part) = note.network.filter(|_| asleep && note.keeps_network)
            && let Err(error) = self.resume_asleep(&id, part)
        {
            tracing::warn!("the connections of hibernated domain {id} end: {error}");
        }
        // Written down before what is left goes.
        self.ended(Exit { id, run, code, reason, out_of_memory, at, asleep, lost: false, usage });
        drop(gone);
    }

    /// Writes down what has changed of a domain.
    pub(super) fn write_note(&self, key: Key) {
        let Some((id, live)) = self.keys.get(&key).zip(self.fleet.get(key)) else { return };
        let Some(domain) = self.domains.get(id) else { return };
        let note = Note {
            id: id.clone(),
            run: domain.run,
            started_at: domain.started_at.clone().unwrap_or_else(time::now),
            log: domain.log,
            limits: domain.limits.clone(),
            woke: domain.woke,
            killed: domain.killed,
            page_seconds: domain.page_seconds,
            counted: now(),
            printed: locked(&domain.journal).total,
            calls: domain.calls,
            network: domain.network.as_ref().and_then(Attachment::part),
            traffic: domain.network.as_ref().map(Attachment::traffic),
            keeps_network: domain.keeps_network,
            volumes: domain.storage.as_ref().map(|s| s.volumes.clone()).unwrap_or_default(),
            layer: domain.layer.as_ref().map(|l| l.dir.clone()),
        };
        if let Some(Err(error)) = note.to_value().map(|note| live.set_note(note)) {
            tracing::warn!("domain {id}: a successor of this keeper will not know of a change: {error}");
        }
    }

    /// Ends for a keeper of another program, which takes over all domains as if this one had been killed; what keeps it
    /// from that is said.
    pub(super) fn give_way(&mut self, n: u64, program: &Path) -> Reply {
        let file = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
        match (file(program), file(Path::new("/proc/self/exe"))) {
            (Ok(theirs), Ok(ours)) if theirs == ours => return Reply::Done,
            (Err(error), _) | (_, Err(error)) => {
                return serve::refused(Fault::Host, format!("cannot examine {}: {error}", program.display()));
            }
            _ => {}
        }
        let why = if !self.freezes.is_empty() {
            "a domain is being frozen"
        } else {
            tracing::info!("gives way to a keeper of {}", program.display());
            self.say(&Message::Reply { n, reply: Reply::Done });
            self.flush();
            // Nothing is taken apart, and the lock goes last.
            std::process::exit(0);
        };
        serve::refused(Fault::State, format!("the keeper stays: {why}"))
    }

    /// A start that was asked for before, of which the supervisor has not heard: its answer, or that it comes later.
    pub(super) fn start_again(&mut self, n: u64, id: &str, run: u64) -> Option<Option<Reply>> {
        let domain = self.domains.get_mut(id).filter(|d| d.run == run)?;
        let Some(at) = domain.started_at.clone() else {
            if domain.exit.is_some() {
                // It could not be started, as is known by now.
                return Some(Some(serve::gone(id)));
            }
            domain.starting = Some(n);
            return Some(None);
        };
        let network = domain.network.as_ref().map(|network| Box::new(network.place()));
        let pid = self.fleet.get(domain.key).map_or(0, doppel_domain::Domain::pid);
        Some(Some(Reply::Started { pid, at, warnings: Vec::new(), stages: Vec::new(), network }))
    }
}

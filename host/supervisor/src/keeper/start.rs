//! Starting domains: from a root image, from a frozen image, or as one that was made ready.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_disks::FrozenDisks;
use doppel_domain::{DomainConfig, Error, Output, Start};
use doppel_spec::CreateDomain;

use super::config::domain_dir;
use super::log::Journal;
use super::protocol::{Boot, Fault, Log, Message, Notification, Reply, Resume, Spec};
use super::records;
use super::serve::{self, failed, refused};
use super::spares::Taken;
use super::{Domain, Keeper, Sink, Tap, network, storage};
use crate::time;

/// The layer that a domain is to have, if any, for it alone.
fn layer_of(spec: &Spec) -> Result<Option<doppel_layers::Lock>, Reply> {
    let Some(dir) = spec.layer() else { return Ok(None) };
    match doppel_layers::Lock::of(dir) {
        Ok(None) => {
            Err(refused(Fault::State, format!("another domain runs on its layer, {}", dir.display())))
        }
        held => held.map_err(|e| refused(Fault::Host, e.to_string())),
    }
}

impl Keeper {
    /// Starts a domain, or has one that was made ready go on as it. The answer comes when it runs.
    pub(super) fn start(&mut self, n: u64, id: String, run: u64, follow: bool, spec: Spec) -> Option<Reply> {
        if let Some(said) = self.start_again(n, &id, run) {
            return said;
        }
        self.begin(n, id, run, follow, spec).err()
    }

    fn begin(&mut self, n: u64, id: String, run: u64, follow: bool, spec: Spec) -> Result<(), Reply> {
        if self.domains.get(&id).is_some_and(|d| d.exit.is_none()) {
            return Err(refused(Fault::State, format!("domain {id} runs already")));
        }
        let (log, limits) = (spec.asked().log, spec.asked().resources.clone());
        let journal = self.journal(&id, log)?;
        let layer = layer_of(&spec)?;
        let (volumes, endpoint) = (storage::wanted(&spec), spec.network().cloned());
        let nodes = spec.nodes().map(Path::to_owned);
        let disks = spec.frozen_disks().map_err(|e| refused(Fault::State, e.to_string()))?;
        // Names may change, ids do not; and what is left of the last run goes a little later than it ends.
        let label = format!("{id}.{run}");
        let (kind, keep) = (spec.asked().kind, Duration::from_secs(spec.spare_seconds().into()));
        let mut start = match spec {
            Spec::Boot(boot) => Start::Boot(Box::new(self.boot(label, boot))),
            Spec::Resume(resume) => self.resume(label, resume),
        };
        if kind == doppel_spec::Kind::Para {
            self.spares.used(&start, keep);
        }
        let woke = matches!(start, Start::Wake(..));
        // None is made with a network.
        let spare = match endpoint {
            None => self.spares.take(&self.fleet, &start),
            Some(_) => None,
        };
        let (spare, channel) = spare.map(|Taken { key, channel }| (key, channel)).unzip();
        let attached =
            self.storage_of(&id, run, volumes, channel.flatten(), (nodes, disks)).and_then(|storage| {
                let (network, same) = self.network_of(&id, endpoint)?;
                Ok((storage, network, same))
            });
        let (storage, network, same) = attached.inspect_err(|_| {
            if let Some(key) = spare {
                self.spares.give_up(&mut self.fleet, key);
            }
        })?;
        let config = records::config_of(&mut start);
        config.network = network.as_ref().map(|a| network::link(a, same));
        config.storage = storage.as_ref().and_then(storage::Storage::link);
        let note = records::Note {
            volumes: storage.as_ref().map(|s| s.volumes.clone()).unwrap_or_default(),
            layer: layer.as_ref().map(|l| l.dir.clone()),
            ..records::Note::new(&id, run, log, &limits, woke, network.as_ref())
        };
        records::config_of(&mut start).keep = Some(records::keep(&self.config, note.to_value()));
        let tap = Tap::default();
        tap.0.store(follow, Ordering::Relaxed);
        let sink =
            Sink { id: id.clone(), journal: journal.clone(), tap: tap.clone(), outbox: self.outbox.clone() };
        let begun = Instant::now();
        let (key, ready) =
            self.go_or_start(spare, start, Output::To(Box::new(sink))).map_err(|e| failed(&e))?;
        self.keys.insert(key, id.clone());
        let mut domain = Domain::new(run, key, journal, tap, log, limits);
        (domain.starting, domain.woke) = (Some(n), woke);
        (domain.network, domain.storage, domain.layer) = (network, storage, layer);
        domain.storage.iter().for_each(|storage| storage.limit(&domain.limits));
        self.domains.insert(id.clone(), domain);
        if ready {
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.runs(key, &id, Vec::new(), vec![("spare".to_owned(), took)]);
        }
        Ok(())
    }

    /// Opens the log of a domain.
    fn journal(&self, id: &str, log: Log) -> Result<Arc<Mutex<Journal>>, Reply> {
        let dir = domain_dir(&self.config.store, id);
        let journal = Journal::open(&dir, log).map_err(|e| {
            let full = e.kind() == std::io::ErrorKind::StorageFull;
            let fault = if full { Fault::Full } else { Fault::Host };
            refused(fault, format!("cannot make {}: {e}", dir.display()))
        })?;
        Ok(Arc::new(Mutex::new(journal)))
    }

    /// The volumes of a domain, if any.
    fn storage_of(
        &mut self,
        id: &str,
        run: u64,
        volumes: Vec<records::KeptVolume>,
        channel: Option<storage::Channel>,
        (nodes, disks): (Option<PathBuf>, FrozenDisks),
    ) -> Result<Option<storage::Storage>, Reply> {
        if volumes.is_empty() {
            return Ok(None);
        }
        let attached = match volumes.iter().all(|kept| kept.own) {
            false => self.storage.attach(id, run, volumes, channel, (nodes.as_deref(), &disks)),
            true => self.storage.hold(volumes),
        };
        attached.map(Some).map_err(|e| {
            let busy = e.kind() == std::io::ErrorKind::ResourceBusy;
            let fault = if busy { Fault::State } else { Fault::Host };
            refused(fault, format!("it cannot have its volumes or disks: {e}"))
        })
    }

    /// The network that a domain is to have, if any, and whether it had it before.
    fn network_of(
        &mut self,
        id: &str,
        endpoint: Option<doppel_net::EndpointSpec>,
    ) -> Result<(Option<doppel_net::Attachment>, bool), Reply> {
        // Whoever wakes has what it had, if the keeper is the one that has kept it.
        if let Some((kept, same)) = self.sleepers.take(id) {
            return Ok((Some(kept), same));
        }
        Ok((endpoint.map(|w| self.attach(w)).transpose()?, false))
    }

    /// Has a domain that was made ready become this one, or starts it; and whether it runs already.
    fn go_or_start(
        &mut self,
        spare: Option<doppel_domain::Key>,
        start: Start,
        output: Output,
    ) -> Result<(doppel_domain::Key, bool), Error> {
        let Some(key) = spare else { return Ok((self.fleet.start(start, output), false)) };
        let mut start = start;
        if let Err(error) = self.fleet.go_as(key, records::config_of(&mut start), output) {
            self.fleet.kill(key)?;
            return Err(error);
        }
        Ok((key, true))
    }

    /// A domain runs. Whoever waits for that is told when its storage service has begun, too.
    pub(super) fn runs(
        &mut self,
        key: doppel_domain::Key,
        id: &str,
        warnings: Vec<String>,
        stages: serve::Stages,
    ) {
        let Some(domain) = self.domains.get_mut(id) else { return };
        if domain.storage.as_ref().is_none_or(storage::Storage::has_begun) && domain.failed.is_none() {
            return self.started(key, id, warnings, stages);
        }
        domain.unserved = Some((warnings, stages));
        // What there is to hear may have been heard before.
        self.look_who_is_served();
    }

    /// A domain runs, and has what it wants.
    pub(super) fn started(
        &mut self,
        key: doppel_domain::Key,
        id: &str,
        warnings: Vec<String>,
        stages: serve::Stages,
    ) {
        let Some(domain) = self.domains.get_mut(id) else { return };
        let at = time::now();
        domain.started_at = Some(at.clone());
        domain.sample = Some((0, Instant::now()));
        let call = domain.starting.take();
        if domain.limits.memory_target_bytes.is_some() {
            let (memory, target) = (domain.limits.memory_bytes, domain.limits.memory_target_bytes);
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
            Some(n) => {
                let network = network.map(Box::new);
                self.reply(Some(n), Reply::Started { pid, at, warnings, stages, network });
            }
            None => self.say(&Message::Notification(Notification::Started {
                id: id.to_owned(),
                run,
                pid,
                at,
                network,
            })),
        }
    }

    fn boot(&self, label: String, boot: Boot) -> DomainConfig {
        DomainConfig {
            spec: CreateDomain { name: Some(label), ..boot.spec },
            program: boot.program.into(),
            image: boot.image,
            store: Some(self.config.store.clone()),
            sources: boot.sources,
            layer: boot.layer,
            freeze_to: boot.freeze_to,
            keep: Some(records::keep(&self.config, None)),
            account: true,
            ..DomainConfig::default()
        }
    }

    fn resume(&mut self, label: String, resume: Resume) -> Start {
        let config = DomainConfig {
            spec: CreateDomain { name: Some(label), ..resume.spec },
            program: resume.program.into(),
            clone_args: resume.args.into_iter().map(Into::into).collect(),
            store: Some(self.config.store.clone()),
            freeze_to: resume.freeze_to,
            layer: resume.layer,
            sources: resume.sources,
            keep: Some(records::keep(&self.config, None)),
            account: true,
            ..DomainConfig::default()
        };
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
}

//! Starting domains: from a root image, from a frozen image, or as one that was made ready.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_domain::{CloneConfig, DomainConfig, Error, NetworkLink, Output, Start};

use super::config::domain_dir;
use super::log::Journal;
use super::protocol::{Boot, Fault, Log, News, Resume, Said, Spec, Word};
use super::records;
use super::serve::{failed, refused};
use super::{Domain, Keeper, Sink, Tap, network, storage};
use crate::time;

impl Keeper {
    /// Starts a domain, or has one that was made ready go on as it. The answer comes when it runs.
    pub(super) fn start(&mut self, n: u64, id: String, run: u64, follow: bool, spec: Spec) -> Option<Said> {
        if let Some(said) = self.start_again(n, &id, run) {
            return said;
        }
        self.begin(n, id, run, follow, spec).err()
    }

    fn begin(&mut self, n: u64, id: String, run: u64, follow: bool, spec: Spec) -> Result<(), Said> {
        if self.domains.get(&id).is_some_and(|d| d.exit.is_none()) {
            return Err(refused(Fault::State, format!("domain {id} runs already")));
        }
        let (log, limits) = match &spec {
            Spec::Boot(boot) => (boot.log, boot.limits.clone()),
            Spec::Resume(resume) => (resume.log, resume.limits.clone()),
        };
        let journal = self.journal(&id, log)?;
        let storage = self.storage_of(&id, run, &spec)?;
        let (network, same) = self.network_of(&id, &spec)?;
        let link = network.as_ref().map(|a| network::link(a, same));
        // Names may change, ids do not; and what is left of the last run goes a little later than it ends.
        let label = format!("{id}.{run}");
        let start = match spec {
            Spec::Boot(boot) => {
                let keep = Duration::from_secs(boot.spare_seconds.into());
                if boot.kind == doppel_spec::Kind::Para {
                    self.spares.used(&boot.image, keep);
                }
                let storage = storage.as_ref().map(storage::Storage::link);
                Start::Boot(Box::new(DomainConfig { network: link, storage, ..self.boot(label, boot) }))
            }
            Spec::Resume(resume) => self.resume(label, resume, link),
        };
        let woke = matches!(start, Start::Wake(..));
        let note = records::Note {
            volumes: storage.as_ref().map(|s| s.volumes.clone()).unwrap_or_default(),
            ..records::Note::new(&id, run, log, &limits, woke, network.as_ref())
        };
        let start = records::kept(start, &records::keep(&self.config, note.to_value()));
        let tap = Tap::default();
        tap.0.store(follow, Ordering::Relaxed);
        let sink =
            Sink { id: id.clone(), journal: journal.clone(), tap: tap.clone(), outbox: self.outbox.clone() };
        let begun = Instant::now();
        let (key, ready) = self.take_or_start(start, Output::To(Box::new(sink))).map_err(|e| failed(&e))?;
        self.keys.insert(key, id.clone());
        let mut domain = Domain::new(run, key, journal, tap, log, limits);
        (domain.starting, domain.woke) = (Some(n), woke);
        (domain.network, domain.storage) = (network, storage);
        self.domains.insert(id.clone(), domain);
        if ready {
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.started(key, &id, Vec::new(), vec![("spare".to_owned(), took)]);
        }
        Ok(())
    }

    /// Opens the log of a domain.
    fn journal(&self, id: &str, log: Log) -> Result<Arc<Mutex<Journal>>, Said> {
        let dir = domain_dir(&self.config.store, id);
        let journal = Journal::open(&dir, log).map_err(|e| {
            let full = e.kind() == std::io::ErrorKind::StorageFull;
            let fault = if full { Fault::Full } else { Fault::Host };
            refused(fault, format!("cannot make {}: {e}", dir.display()))
        })?;
        Ok(Arc::new(Mutex::new(journal)))
    }

    /// The volumes that a storage service has for a domain, if any.
    fn storage_of(&mut self, id: &str, run: u64, spec: &Spec) -> Result<Option<storage::Storage>, Said> {
        let Spec::Boot(boot) = spec else { return Ok(None) };
        let volumes = storage::wanted(boot);
        if volumes.is_empty() {
            return Ok(None);
        }
        let attached = self.storage.attach(id, run, volumes);
        attached.map(Some).map_err(|e| refused(Fault::Host, format!("it cannot have its volumes: {e}")))
    }

    /// The network that a domain is to have, if any, and whether it had it before.
    fn network_of(&mut self, id: &str, spec: &Spec) -> Result<(Option<doppel_net::Attachment>, bool), Said> {
        // Whoever wakes has what it had, if the keeper is the one that has kept it.
        if let Some((kept, same)) = self.sleepers.take(id) {
            return Ok((Some(kept), same));
        }
        let wanted = match spec {
            Spec::Boot(boot) => boot.network.clone(),
            Spec::Resume(resume) => resume.network.clone(),
        };
        Ok((wanted.map(|w| self.attach(w)).transpose()?, false))
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
    pub(super) fn started(
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
            Some(n) => self.reply(Some(n), Said::Started { pid, at, warnings, stages, network }),
            None => self.say(&Word::News(News::Started { id: id.to_owned(), run, pid, at, network })),
        }
    }

    fn boot(&self, label: String, boot: Boot) -> DomainConfig {
        let argv = boot.argv.into_iter().map(Into::into).collect();
        DomainConfig {
            kind: boot.kind,
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
            files: boot.files,
            sources: boot.sources,
            freeze_to: boot.freeze_to,
            resources: boot.limits,
            account: true,
            ..DomainConfig::new(boot.image, argv)
        }
    }

    fn resume(&mut self, label: String, resume: Resume, network: Option<NetworkLink>) -> Start {
        let config = CloneConfig {
            name: Some(label),
            hostname: resume.hostname.into(),
            args: resume.args.into_iter().map(Into::into).collect(),
            command: resume.argv.into_iter().map(Into::into).collect(),
            env: resume.env.into_iter().map(Into::into).collect(),
            stdin: resume.stdin,
            store: Some(self.config.store.clone()),
            freeze_to: resume.freeze_to,
            network,
            resources: resume.limits,
            account: true,
            ..CloneConfig::default()
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

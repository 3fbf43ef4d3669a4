//! New domains: the image they run, defaults, admission.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use doppel_api::{self as api, Code, DomainState, EventKind, Output, Problem};
use doppel_image::{ImageConfig, identity, small_file};

use crate::asker::Asker;
use crate::core::Core;
use crate::domains::{DomainTable, Entry, Origin, Row, User};
use crate::domains::{names, network, spec};
use crate::images::root::Root;
use crate::jobs::{blocking, is_full};
use crate::keeper::protocol::Usage;
use crate::networks::leases::Addresses;
use crate::residency::admission::Patience;
use crate::telemetry::stages::What;
use crate::{LineStream, locked, streams, time};

/// What the host has: CPUs and bytes of memory.
pub(crate) fn capacity() -> (f64, u64) {
    let cpus = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1));
    let info = rustix::system::sysinfo();
    (f64::from(cpus), info.totalram.saturating_mul(u64::from(info.mem_unit.max(1))))
}

/// Refuses what is above the host's capacity together with what is set aside already.
pub(crate) fn admit(
    domains: &DomainTable,
    wanted: &api::Resources,
    except: Option<&str>,
) -> Result<(), Problem> {
    // Most set nothing aside: all domains are not gone through for them.
    if wanted.cpu_reservation.is_none() && wanted.memory_reservation_bytes.is_none() {
        return Ok(());
    }
    let (cpus, memory) = domains.reserved(except);
    let (all_cpus, all_memory) = capacity();
    let refused = |text: String| Err(Problem::new(Code::Capacity, text));
    // Sums of decimals are off by a little.
    const SLACK: f64 = 1e-6;
    if let Some(more) = wanted.cpu_reservation
        && cpus + more > all_cpus + SLACK
    {
        return refused(format!(
            "cpu_reservation {more}: the host has {all_cpus} CPUs, of which {cpus} are set aside, so {} are left",
            (all_cpus - cpus).max(0.0)
        ));
    }
    if let Some(more) = wanted.memory_reservation_bytes
        && memory.saturating_add(more) > all_memory
    {
        return refused(format!(
            "memory_reservation_bytes {more}: the host has {all_memory} bytes, of which {memory} are set aside, so {} are left",
            all_memory.saturating_sub(memory)
        ));
    }
    Ok(())
}

/// The image of this name in the store. Paths are not taken: the file would be opened with our rights, could be changed
/// while the host's kernel has it mounted for a paene domain, and was never checked.
fn find_image(images: &doppel_image::Store, image: &str) -> Result<Root, Problem> {
    if image.contains('/') && image.starts_with(['/', '.']) {
        let text = format!(
            "image {image}: name one of the store (`doppel image import` makes one of a file or directory)"
        );
        return Err(spec::wrong(text));
    }
    let open = images.open(image).map_err(|e| image_problem(&e))?;
    let config = open.record.oci.map(|o| o.config).unwrap_or_default();
    Ok(Root { digest: open.record.digest, path: open.path, config })
}

/// An error of the image store.
pub(crate) fn image_problem(error: &doppel_image::Error) -> Problem {
    let code = match error {
        doppel_image::Error::NotFound(_) => Code::ImageNotFound,
        doppel_image::Error::BadName(_) => Code::InvalidRequest,
        error if is_full(error) => Code::StorageFull,
        _ => Code::Internal,
    };
    Problem::new(code, error.to_string())
}

/// Looks a user up in an image.
fn find_user(image: &Path, user: &str) -> Result<User, Problem> {
    let file = |name: &str| std::fs::File::open(image).ok().and_then(|f| small_file(&f, name));
    Ok(identity(user, file).map_err(|e| spec::wrong(format!("user: the image's {e}")))?.into())
}

/// Fills in what the image says and what is left to us, by Docker's rules.
fn complete(mut wanted: api::CreateDomain, image: &ImageConfig) -> Result<api::CreateDomain, Problem> {
    if wanted.command.is_empty() && wanted.entrypoint.is_none() {
        wanted.command.clone_from(&image.cmd);
    }
    let mut argv = wanted.entrypoint.take().unwrap_or_else(|| image.entrypoint.clone());
    argv.append(&mut wanted.command);
    wanted.command = argv;
    if wanted.command.is_empty() {
        return Err(spec::wrong("command: the image has none of its own, so name one"));
    }
    for (name, value) in image.env.iter().filter_map(|v| v.split_once('=')).filter(|(n, _)| !n.is_empty()) {
        wanted.env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    for (key, value) in &image.labels {
        wanted.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    wanted.working_dir.get_or_insert_with(|| or(&image.working_dir, "/"));
    wanted.user.get_or_insert_with(|| or(&image.user, "0:0"));
    wanted.stop_signal.get_or_insert_with(|| or(&image.stop_signal, "SIGTERM"));
    wanted.stop_timeout_seconds.get_or_insert(10);
    network::publish_exposed(&mut wanted.network, image.exposed_ports.keys().map(String::as_str));
    match &wanted.health {
        Some(health) if health.command.is_empty() => wanted.health = None,
        Some(_) => {}
        None => wanted.health = image_health(image),
    }
    Ok(wanted)
}

/// The image's own health check.
pub(crate) fn image_health(image: &ImageConfig) -> Option<api::HealthCheck> {
    let check = image.healthcheck.as_ref()?;
    let command = match check.test.split_first()? {
        (kind, words) if kind == "CMD" => words.to_vec(),
        (kind, [line]) if kind == "CMD-SHELL" => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        _ => return None,
    };
    let seconds = |ns: u64, other: f64| if ns == 0 { other } else { ns as f64 / 1e9 };
    Some(api::HealthCheck {
        command,
        interval_seconds: seconds(check.interval, 30.0),
        timeout_seconds: seconds(check.timeout, 30.0),
        start_period_seconds: seconds(check.start_period, 0.0),
        retries: u32::try_from(check.retries).ok().filter(|n| *n > 0).unwrap_or(3),
    })
}

impl Core {
    /// Makes a domain, and starts it if asked. If `request` made one before, it is that: the supervisor died before it
    /// could keep the answer.
    pub async fn create(
        self: Arc<Self>,
        wanted: api::CreateDomain,
        start: bool,
        asker: Asker,
    ) -> Result<api::Created, Problem> {
        spec::check(&wanted)?;
        if let Some(entry) = self.made_by(asker.request.as_deref()) {
            return self.made_before(entry, start).await;
        }
        let (entry, mut warnings) = self.make(wanted, asker).await?;
        if start {
            warnings.extend(self.settle_and_launch(&entry).await?);
        } else {
            self.settle(&entry).await?;
        }
        Ok(api::Created { domain: entry.describe(&self.volumes), warnings })
    }

    /// Makes a domain and starts it; gives what it prints until it has ended and, if it goes then, is removed. It is not kept if
    /// it cannot be started.
    pub async fn run(
        self: Arc<Self>,
        wanted: api::CreateDomain,
        asker: Asker,
    ) -> Result<LineStream<Output>, Problem> {
        spec::check(&wanted)?;
        // What such a request prints is given once: it cannot be asked for again.
        let (entry, mut warnings) = self.make(wanted, Asker { request: None, ..asker }).await?;
        let goes = locked(&entry.row).config.auto_remove;
        let live = match self.follow(&entry).await {
            Ok(live) => live,
            Err(problem) => {
                self.forget(&entry);
                return Err(problem);
            }
        };
        warnings.extend(self.settle_and_launch(&entry).await?);
        let first = Output::Started { id: entry.id.clone(), name: entry.name(), warnings };
        Ok(streams::produce(move |out| async move {
            let mut ending = entry.ending.subscribe();
            if out.give(first).await {
                live.give_all(&out).await;
            }
            if goes {
                // The sender lives as long as the entry.
                let _ = ending.wait_for(|e| e.removed).await;
            }
        }))
    }

    /// A new domain among the others, not yet written down.
    async fn make(
        self: &Arc<Self>,
        wanted: api::CreateDomain,
        asker: Asker,
    ) -> Result<(Arc<Entry>, Vec<String>), Problem> {
        Self::check_residency(wanted.kind, &wanted.residency)?;
        let root = self.root(&wanted.image).await?;
        let mut config = complete(wanted, &root.config)?;
        config.resources = spec::over(&config.resources, &self.resources.of_kind(config.kind))?;
        let (cpus, memory) = capacity();
        let warnings = api::validate::within_host(&mut config.resources, cpus, memory);
        let user = self.user(&root, config.user.clone().unwrap_or_default()).await?;
        spec::check_completed(&config)?;
        self.keep_files(&mut config);
        self.disk_dirs(&config.files)?;
        let config = self.make_volumes(config, &root.path).await?;
        let entry = self.add(config, &root.path, root.digest, user, Origin::Boot, asker)?;
        if let Err(problem) = self.make_layer(&entry).await {
            locked(&self.domains).remove(&entry);
            self.release_addresses(&entry);
            return Err(problem);
        }
        Ok((entry, warnings))
    }

    /// Says whether what the domain changes is kept, if nobody did, and how much of that there may be.
    fn keep_files(&self, config: &mut api::CreateDomain) {
        let para = config.kind == api::Kind::Para;
        if !spec::keeps_files(config) || !(para || config.files.is_kept() || self.layers.takes_overlays()) {
            return;
        }
        config.files.persist.get_or_insert(true);
        if para {
            config.resources.disk_bytes = config.resources.disk_bytes.or(self.resources.disk_bytes);
        }
    }

    /// The image of this name.
    async fn root(&self, image: &str) -> Result<Root, Problem> {
        if let Some(root) = self.image_cache.get(&self.images, image) {
            return Ok(root);
        }
        let (images, name) = (self.images.clone(), image.to_owned());
        let version = images.version(image);
        let root = blocking(move || find_image(&images, &name)).await?;
        self.image_cache.put(image, version, &root);
        Ok(root)
    }

    /// A user of it.
    async fn user(&self, root: &Root, who: String) -> Result<User, Problem> {
        if let Some(user) = self.image_cache.user(root, &who) {
            return Ok(user);
        }
        let (path, name) = (root.path.clone(), who.clone());
        let user = blocking(move || find_user(&path, &name)).await?;
        self.image_cache.put_user(root, &who, &user);
        Ok(user)
    }

    /// The domain that a request made.
    pub fn made_by(&self, request: Option<&str>) -> Option<Arc<Entry>> {
        locked(&self.domains).made_by(request?)
    }

    /// Answers a request that made this domain before.
    pub async fn made_before(
        self: Arc<Self>,
        entry: Arc<Entry>,
        start: bool,
    ) -> Result<api::Created, Problem> {
        // It may have been started then.
        if start && matches!(entry.state(), DomainState::Created | DomainState::Dead) {
            let started = self.clone().start(entry.clone()).await;
            if let Err(problem) = started {
                let how = api::RemoveOptions { force: true, volumes: true };
                if let Err(p) = self.remove(entry.clone(), how).await {
                    tracing::warn!(domain = entry.id, "not started, and not removed: {p}");
                }
                return Err(problem);
            }
        }
        Ok(api::Created { domain: entry.describe(&self.volumes), warnings: Vec::new() })
    }

    /// Puts a new domain among the others, if its name is free and its reservations fit.
    pub fn add(
        &self,
        config: api::CreateDomain,
        image: &Path,
        image_digest: String,
        user: User,
        origin: Origin,
        asker: Asker,
    ) -> Result<Arc<Entry>, Problem> {
        self.check_published(&asker.owner, &config.network)?;
        let (id, owner) = (names::id(), asker.owner.clone());
        let addresses = self.lease(&owner, &id, &config.network, &Addresses::new())?;
        let made = self.enter(config, image, image_digest, (user, origin), asker, (id.clone(), addresses));
        made.inspect_err(|_| locked(&self.networks).leases.release(&owner, &id))
    }

    /// The same, with this id and these addresses.
    fn enter(
        &self,
        mut config: api::CreateDomain,
        image: &Path,
        image_digest: String,
        (user, origin): (User, Origin),
        asker: Asker,
        (id, addresses): (String, Addresses),
    ) -> Result<Arc<Entry>, Problem> {
        let mut domains = locked(&self.domains);
        let taken = |name: &str| domains.names.contains_key(name) || domains.by_id.contains_key(name);
        let name = match &config.name {
            Some(name) if taken(name) => {
                return Err(Problem::new(
                    Code::NameInUse,
                    format!("a domain named {name:?} exists; remove or rename it, or choose another name"),
                ));
            }
            Some(name) => name.clone(),
            None => names::name(taken),
        };
        admit(&domains, &config.resources, None)?;
        config.hostname.get_or_insert_with(|| name.clone());
        config.name = Some(name.clone());
        let row = Row {
            id,
            name,
            config,
            image: image.to_owned(),
            image_digest,
            user,
            origin,
            created_at: time::now(),
            state: DomainState::Created,
            run: 0,
            ended_run: 0,
            started_at: None,
            exit: None,
            restarts: 0,
            failures: 0,
            stopped: false,
            asleep: None,
            deadline: None,
            used: Usage::default(),
            owner: asker.owner,
            keeper: None,
            request: asker.request,
            slept: None,
            restless: 0,
            pending: None,
            addresses,
        };
        let entry = Entry::new(row);
        domains.insert(entry.clone());
        Ok(entry)
    }

    /// Whether a domain's image is one of the store, and not a file that somebody named: of another store, say.
    fn in_store(&self, row: &Row) -> bool {
        let ours = self.store.join("images").join(format!("sha256-{}.erofs", row.image_digest));
        row.image == ours || std::fs::canonicalize(ours).is_ok_and(|ours| ours == row.image)
    }

    /// Keeps the image of a new domain, so that it stays when its name goes to another.
    fn hold_image(&self, entry: &Arc<Entry>) -> Result<(), Problem> {
        let row = entry.row();
        if !self.in_store(&row) {
            return Ok(());
        }
        self.images.pin(&row.image_digest, &entry.id).map_err(|error| image_problem(&error))
    }

    /// Gives the image of a domain that is no more up.
    pub fn release_image(&self, entry: &Entry) {
        let row = entry.row();
        if self.in_store(&row)
            && let Err(error) = self.images.unpin(&row.image_digest, &entry.id)
        {
            tracing::warn!("{error}");
        }
    }

    /// Makes pins agree with the domains there are: a crash may have come between a row and its pin.
    pub fn settle_images(&self) {
        let mut pinned: HashSet<(String, String)> = match self.images.pinned() {
            Ok(pinned) => pinned.into_iter().collect(),
            Err(error) => return tracing::warn!("{error}"),
        };
        for entry in self.all() {
            let row = entry.row();
            if self.in_store(&row)
                && !pinned.remove(&(row.image_digest.clone(), row.id.clone()))
                && let Err(error) = self.images.pin(&row.image_digest, &row.id)
            {
                tracing::warn!("domain {} has lost its image: {error}", row.name);
            }
        }
        for (digest, user) in pinned {
            if let Err(error) = self.images.unpin(&digest, &user) {
                tracing::warn!("{error}");
            }
        }
    }

    /// Makes a new domain durable, or takes it back.
    async fn settle(&self, entry: &Arc<Entry>) -> Result<(), Problem> {
        let kept = async {
            self.hold_image(entry)?;
            self.hold_volumes(entry)?;
            self.settle_layer(entry);
            self.save(entry).await
        };
        if let Err(error) = kept.await {
            locked(&self.domains).remove(entry);
            self.release_image(entry);
            self.release_volumes(entry);
            self.release_disks(entry);
            self.release_layer(entry);
            self.release_addresses(entry);
            return Err(error);
        }
        self.tell_made(entry);
        Ok(())
    }

    fn tell_made(&self, entry: &Entry) {
        let image = locked(&entry.row).config.image.clone();
        self.event(EventKind::Create, entry, &[("image", image)]);
    }

    /// Makes a new domain durable and starts it meanwhile; takes it back if either fails. If this process dies before it
    /// is durable, the next one kills what the keeper runs without a row: nobody was told of it.
    pub async fn settle_and_launch(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Vec<String>, Problem> {
        let _turn = entry.turn.lock().await;
        let begun = Instant::now();
        let saved = async {
            // What was said to the keeper goes out first.
            tokio::task::yield_now().await;
            self.hold_image(entry)?;
            self.hold_volumes(entry)?;
            self.settle_layer(entry);
            let saved = self.save(entry).await;
            self.stages.note(What::of(&locked(&entry.row).origin), "record", begun.elapsed());
            saved
        };
        self.tell_made(entry);
        match tokio::join!(self.launch(entry, false, Patience::Asked), saved) {
            (Ok(warnings), Ok(())) => Ok(warnings),
            (Err(problem), Ok(())) => {
                self.erase(entry).await?;
                Err(problem)
            }
            (launched, Err(problem)) => {
                if launched.is_ok() {
                    let run = locked(&entry.row).run;
                    self.kill_and_wait(entry, run).await?;
                }
                self.forget(entry);
                Err(problem)
            }
        }
    }
}

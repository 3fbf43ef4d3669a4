//! Freezing, cloning, sleeping: over the same frozen images as the stand-alone commands.

pub mod collect;
pub mod origins;
mod rollback;

use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_api::{self as api, Code, DomainState, EventKind, Problem, WakeReason};
use doppel_disks::FrozenDisks;
use doppel_freezer::{FrozenImage, Medium};

use crate::asker::Asker;
use crate::core::Core;
use crate::domains::{Entry, Origin, User, is_live};
use crate::domains::{network, spec};
use crate::images::disks::disk_problem;
use crate::jobs::blocking;
use crate::keeper::protocol::{KeeperCommand, Reply};
use crate::keepers::keeper_client::is_unanswered;
use crate::residency::admission::Patience;
use crate::residency::figures::word;
use crate::residency::residence::Slept;
use crate::telemetry::stages::What;
use crate::{locked, time};

/// How a domain is frozen.
#[derive(Clone, Copy, Debug, Default)]
struct Freezing {
    /// It ends with that.
    stop: bool,
    /// Its image refers to no other.
    whole: bool,
    /// It hibernates: its connections stay.
    keep_network: bool,
    /// One that has something to do before that time is over is left as it is.
    least: Duration,
}

fn problem(code: Code) -> impl Fn(doppel_freezer::Error) -> Problem {
    move |error| Problem::new(code, error.to_string())
}

impl Core {
    /// Writes a domain's memory to a frozen image.
    pub async fn freeze(
        self: Arc<Self>,
        entry: Arc<Entry>,
        how: api::FreezeDomain,
    ) -> Result<api::FreezeReport, Problem> {
        let _turn = entry.turn.lock().await;
        if entry.state() != DomainState::Running {
            return Err(Problem::new(Code::WrongState, format!("domain {} does not run", entry.name())));
        }
        let place = if how.in_memory { Medium::Memory } else { Medium::Disk };
        let to = self.frozen.vacant(&how.frozen, place).map_err(problem(Code::NameInUse))?;
        if how.stop {
            locked(&entry.row).stopped = true;
        }
        let freezing = Freezing { stop: how.stop, whole: how.whole, ..Freezing::default() };
        let report = match self.freeze_to(&entry, how.frozen.clone(), to.clone(), freezing).await {
            Ok((report, _)) => report,
            Err(problem) if is_unanswered(&problem) => {
                self.made_all_the_same(&entry, &how, &to).await?.ok_or(problem)?
            }
            Err(problem) => return Err(problem),
        };
        self.note_origin(&entry, &how.frozen, how.temporary).await;
        self.event(EventKind::Freeze, &entry, &[("frozen", how.frozen)]);
        Ok(report)
    }

    /// What is told of an image whose keeper died when it was whole, and had not answered; none if there is no image. Images get
    /// their names when they are whole.
    async fn made_all_the_same(
        &self,
        entry: &Entry,
        how: &api::FreezeDomain,
        to: &std::path::Path,
    ) -> Result<Option<api::FreezeReport>, Problem> {
        let Ok(image) = FrozenImage::open_unchecked(to) else { return Ok(None) };
        if how.stop {
            let run = locked(&entry.row).run;
            self.kill_after(entry, run, 0).await?;
        }
        let description = image.describe();
        let (bytes, written_bytes) = (description.data_bytes, description.own_bytes);
        Ok(Some(api::FreezeReport {
            frozen: how.frozen.clone(),
            bytes,
            written_bytes,
            stop_us: 0,
            pause_us: 0,
        }))
    }

    /// Has the keeper freeze it; also says when it has something to do by itself, in seconds since 1970.
    async fn freeze_to(
        &self,
        entry: &Entry,
        frozen: String,
        to: std::path::PathBuf,
        how: Freezing,
    ) -> Result<(api::FreezeReport, Option<f64>), Problem> {
        let Freezing { stop, whole, keep_network, least } = how;
        let (run, begun) = (locked(&entry.row).run, Instant::now());
        let least_ms = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
        let ask = KeeperCommand::Freeze { id: entry.id.clone(), to, stop, whole, keep_network, least_ms };
        match self.ask(entry, ask).await? {
            Reply::Frozen { bytes, written, stop_us, pause_us, due_in_ms } => {
                let due = due_in_ms.map(|ms| time::seconds_now() + ms as f64 / 1000.0);
                self.stages.note_us(What::Freeze, [("stop", stop_us), ("pause", pause_us)]);
                self.stages.note(What::Freeze, "all", begun.elapsed());
                if stop {
                    let mut ending = entry.ending.subscribe();
                    // The sender lives as long as the entry.
                    let _ = ending.wait_for(|e| e.run >= run).await;
                }
                Ok((api::FreezeReport { frozen, bytes, written_bytes: written, stop_us, pause_us }, due))
            }
            _ => Err(Problem::new(Code::Internal, "the keeper answered something else")),
        }
    }

    /// Notes what a frozen image was made from.
    pub async fn note_origin(&self, entry: &Entry, name: &str, temporary: bool) {
        let (image, command) = {
            let row = locked(&entry.row);
            (row.config.image.clone(), row.command().to_vec())
        };
        // One that is gone again needs no note.
        if let Ok(frozen) = self.frozen.path(name).and_then(|path| FrozenImage::open_unchecked(&path)) {
            let saved = self.origins.put(&self.state, name, &frozen, image, command, temporary);
            // The image is good without.
            if let Err(problem) = saved.await {
                tracing::warn!("what frozen image {name} was made from is not written down: {problem}");
            }
        }
    }

    /// Forgets what was noted of images that have been removed while no supervisor ran.
    pub fn settle_origins(&self) {
        match self.frozen.list() {
            Ok(there) => self.origins.keep_only(&self.state, &there.into_iter().map(|e| e.name).collect()),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Puts a domain to sleep on disk, as somebody asked.
    pub async fn hibernate(
        self: Arc<Self>,
        entry: Arc<Entry>,
        asker: Asker,
    ) -> Result<api::Hibernated, Problem> {
        let _turn = entry.turn.lock().await;
        if entry.state() != DomainState::Running {
            return Err(Problem::new(Code::WrongState, format!("domain {} does not run", entry.name())));
        }
        let slept = Slept { by: Some(asker.owner), at: time::seconds_now(), ..Slept::default() };
        locked(&entry.live).hibernating = true;
        let done = self.put_to_sleep(&entry, slept, Duration::ZERO).await;
        locked(&entry.live).hibernating = false;
        Ok(api::Hibernated { report: done? })
    }

    /// Hibernates a domain that runs, unless it has something to do by itself before `least` is over; whoever calls has its turn.
    pub async fn put_to_sleep(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        slept: Slept,
        least: Duration,
    ) -> Result<api::FreezeReport, Problem> {
        let name = format!("{}.asleep", entry.id);
        let to = self
            .frozen
            .path(&name)
            .or_else(|_| self.frozen.vacant(&name, Medium::Disk))
            .map_err(problem(Code::Internal))?;
        let reason = slept.reason;
        let before = {
            let mut row = locked(&entry.row);
            (row.asleep.replace(name.clone()), row.slept.replace(slept))
        };
        let how = Freezing { stop: true, whole: false, keep_network: true, least };
        // Written down first: whoever finds it asleep must know where.
        let done = match self.save(entry).await {
            Ok(()) => self.freeze_to(entry, name, to, how).await,
            Err(problem) => Err(problem),
        };
        {
            let mut row = locked(&entry.row);
            match (&done, &mut row.slept) {
                (Ok((report, due)), Some(slept)) => {
                    (slept.due, slept.bytes, slept.settled) = (*due, report.bytes, true);
                }
                (Ok(_), None) => {}
                (Err(_), _) => (row.asleep, row.slept) = before,
            }
        }
        self.save_soon(entry);
        let (report, _) = done?;
        locked(&self.gate.figures).hibernated(reason);
        self.plan_wake(entry);
        Ok(report)
    }

    /// Removes the image in which a domain slept. What is left of the domain may have it open for a moment yet.
    pub fn discard_asleep(&self, name: Option<String>) {
        let Some(Ok(path)) = name.map(|name| self.frozen.path(&name)) else { return };
        let removed = FrozenImage::open_unchecked(&path).and_then(|image| self.frozen.discard(&image));
        if let Err(error) = removed {
            tracing::warn!("{error}");
        }
    }

    /// Lets a sleeping domain go on.
    pub async fn wake(
        self: Arc<Self>,
        entry: Arc<Entry>,
        reason: WakeReason,
    ) -> Result<api::Domain, Problem> {
        let _turn = entry.turn.lock().await;
        self.check_there(&entry)?;
        let (state, asleep) = {
            let row = locked(&entry.row);
            (row.state, row.asleep.is_some())
        };
        if is_live(state) || !asleep {
            return Err(Problem::new(Code::WrongState, format!("domain {} is not hibernated", entry.name())));
        }
        let patience = match reason {
            WakeReason::Request | WakeReason::Call => Patience::Asked,
            WakeReason::Network | WakeReason::Timer => Patience::Endless,
        };
        self.note_wake(&entry);
        if let Err(problem) = self.launch(&entry, true, patience).await {
            self.give_up_stale(&entry).await;
            return Err(problem);
        }
        locked(&self.gate.figures).woke(reason);
        self.event(EventKind::Wake, &entry, &[("reason", word(reason))]);
        Ok(entry.describe(&self.volumes))
    }

    /// Gives up the memory of a domain that could not wake with it because its files are newer; it can be started with those.
    async fn give_up_stale(self: &Arc<Self>, entry: &Arc<Entry>) {
        let (core, row) = (self.clone(), entry.row());
        let stale = blocking(move || {
            let path = core.frozen.path(row.asleep.as_deref().unwrap_or_default());
            let frozen = path.and_then(|path| FrozenImage::open_unchecked(&path));
            let frozen = frozen.map_err(problem(Code::Internal))?;
            let disks = frozen.volumes().map(|dir| FrozenDisks::open(&dir)).transpose();
            let disks = disks.map_err(|e| disk_problem(&e))?.unwrap_or_default();
            let Some(dir) = core.layer_dir(&row)? else { return Ok(!core.disks_are(&disks)) };
            let now = doppel_layers::state(&dir).map_err(|e| Problem::new(Code::Internal, e.to_string()))?;
            Ok(frozen.header().layer != now || !core.disks_are(&disks))
        });
        if !stale.await.unwrap_or(false) {
            return;
        }
        let asleep = {
            let mut row = locked(&entry.row);
            (row.state, row.slept) = (DomainState::Exited, None);
            row.asleep.take()
        };
        self.save_soon(entry);
        // A keeper that does not answer has nothing of it, or will end.
        let _ = self.ask(entry, KeeperCommand::Release { id: entry.id.clone() }).await;
        self.discard_asleep(asleep);
    }

    /// All frozen images, without those in which domains sleep.
    pub async fn frozen_list(self: Arc<Self>) -> Result<Vec<api::FrozenImage>, Problem> {
        blocking(move || {
            let entries = self.frozen.list().map_err(problem(Code::Internal))?;
            let entries = entries.into_iter().filter(|e| !e.name.ends_with(".asleep"));
            // A damaged image is left out here; asking for it by name says what is wrong with it.
            Ok(entries.filter_map(|e| self.frozen_describe(&e).ok()).collect())
        })
        .await
    }

    fn frozen_describe(&self, entry: &doppel_freezer::Entry) -> Result<api::FrozenImage, Problem> {
        let image = FrozenImage::open_unchecked(&entry.path).map_err(problem(Code::Internal))?;
        let description = image.describe();
        let at = std::time::UNIX_EPOCH + Duration::from_secs(description.frozen_at);
        let (shown, command) = self.origin(&entry.name, &image);
        Ok(api::FrozenImage {
            name: entry.name.clone(),
            size_bytes: entry.used,
            ancestors: description.ancestors,
            ancestors_bytes: description.ancestor_bytes,
            in_memory: entry.medium == Medium::Memory,
            image: shown,
            command,
            hostname: description.hostname,
            generation: description.generation,
            threads: description.processes as u64,
            created_at: time::text(at),
        })
    }

    /// Name of the root image and command of the domain that a frozen image was made from, as far as they are known.
    fn origin(&self, name: &str, frozen: &FrozenImage) -> (String, Vec<String>) {
        if let Some(note) = self.origins.get(name, frozen) {
            return (note.image, note.command);
        }
        let description = frozen.describe();
        (self.image_named(&description.image_digest).unwrap_or(description.image), Vec::new())
    }

    /// A name of the root image with this digest.
    fn image_named(&self, digest: &str) -> Option<String> {
        let records = self.images.list().unwrap_or_default();
        records
            .into_iter()
            .find_map(|(name, record)| record.is_ok_and(|r| r.digest == digest).then_some(name))
    }

    fn frozen_entry(&self, name: &str) -> Result<doppel_freezer::Entry, Problem> {
        let entries = self.frozen.list().map_err(problem(Code::Internal))?;
        let none = || Problem::new(Code::FrozenNotFound, format!("no frozen image {name:?}"));
        entries.into_iter().find(|e| e.name == name).ok_or_else(none)
    }

    pub async fn frozen_inspect(self: Arc<Self>, name: String) -> Result<api::FrozenImage, Problem> {
        blocking(move || self.frozen_describe(&self.frozen_entry(&name)?)).await
    }

    pub async fn frozen_remove(self: Arc<Self>, name: String) -> Result<(), Problem> {
        let (core, which) = (self.clone(), name.clone());
        let path = blocking(move || {
            let entry = core.frozen_entry(&which)?;
            core.check_frozen_unused(&which)?;
            Ok(entry.path)
        })
        .await?;
        self.keepers.forget(&path).await;
        let (core, which) = (self.clone(), name.clone());
        blocking(move || {
            core.check_frozen_unused(&which)?;
            core.frozen.remove(&which).map_err(problem(Code::InUse))
        })
        .await?;
        self.origins.remove(&self.state, &name);
        self.collect_disks().await;
        Ok(())
    }

    /// Copies what an image has in files of older ones, so that it needs none of them.
    pub async fn frozen_flatten(self: Arc<Self>, name: String) -> Result<api::FrozenImage, Problem> {
        blocking(move || {
            self.frozen_entry(&name)?;
            self.frozen.flatten(&name).map_err(|error| match error {
                doppel_freezer::Error::Request(_) => problem(Code::InUse)(error),
                _ => problem(Code::Internal)(error),
            })?;
            self.frozen_describe(&self.frozen_entry(&name)?)
        })
        .await
    }

    /// Refuses an image that a domain was cloned from, or sleeps in.
    pub fn check_frozen_unused(&self, name: &str) -> Result<(), Problem> {
        let uses = |entry: &&Arc<Entry>| {
            let row = locked(&entry.row);
            row.asleep.as_deref() == Some(name)
                || matches!(&row.origin, Origin::Clone { frozen, .. } if frozen == name && is_live(row.state))
        };
        match self.all().iter().find(uses) {
            Some(entry) => Err(Problem::new(
                Code::InUse,
                format!("frozen image {name} is used by domain {}; stop and remove it first", entry.name()),
            )),
            None => Ok(()),
        }
    }

    /// Makes clones, each with a result of its own. Those that `request` made before are theirs: the supervisor died
    /// before it could keep the answer.
    pub async fn clone_frozen(
        self: Arc<Self>,
        name: String,
        how: api::CloneFrozen,
        asker: Asker,
    ) -> Result<api::Cloned, Problem> {
        let count = how.count.unwrap_or(1);
        network::endpoint_spec(&how.network)?;
        spec::fits(api::Kind::Para, &how.resources)?;
        let _cloning = self.origins.cloning(&name);
        let core = self.clone();
        let frozen = name.clone();
        let (path, description, (shown, command)) = blocking(move || {
            let entry = core.frozen_entry(&frozen)?;
            let image = FrozenImage::open_unchecked(&entry.path).map_err(problem(Code::InvalidRequest))?;
            let description = image.describe();
            let origin = core.origin(&frozen, &image);
            Ok((entry.path, description, origin))
        })
        .await?;
        let image = description.image.into();
        let from = Arc::new(From { name, path, image, shown, command, digest: description.image_digest });
        let mut tasks = Vec::new();
        for index in 1..=count {
            let (core, how, from) = (self.clone(), how.clone(), from.clone());
            let request = asker.request.as_ref().map(|r| format!("{r} {index}"));
            let asker = Asker { request, ..asker.clone() };
            tasks.push(tokio::spawn(async move { core.clone_one(&how, &from, index, count, asker).await }));
        }
        let mut results = Vec::new();
        for task in tasks {
            let result = match task.await {
                Ok(result) => result,
                Err(error) => Err(Problem::new(Code::Internal, format!("a task failed: {error}"))),
            };
            results.push(match result {
                Ok(domain) => api::CloneResult::Domain(Box::new(domain)),
                Err(problem) => api::CloneResult::Problem(problem),
            });
        }
        Ok(api::Cloned { results })
    }

    async fn clone_one(
        self: &Arc<Self>,
        how: &api::CloneFrozen,
        from: &From,
        index: u32,
        count: u32,
        asker: Asker,
    ) -> Result<api::Domain, Problem> {
        if let Some(entry) = self.made_by(asker.request.as_deref()) {
            return self.clone().made_before(entry, true).await.map(|made| made.domain);
        }
        let name = how.name.as_ref().map(|n| if count > 1 { format!("{n}-{index}") } else { n.clone() });
        // Its memory limit is the one that was frozen.
        let defaults = api::Resources { memory_bytes: None, ..self.resources.of_kind(api::Kind::Para) };
        let mut resources = spec::over(&how.resources, &defaults)?;
        let (cpus, memory) = crate::domains::create::capacity();
        // What it is then is in the answer.
        let _ = api::validate::within_host(&mut resources, cpus, memory);
        let config = api::CreateDomain {
            image: from.shown.clone(),
            name,
            user: Some("0:0".into()),
            resources,
            stop_signal: Some("SIGTERM".into()),
            stop_timeout_seconds: Some(10),
            ..how.domain()
        };
        let origin = Origin::Clone {
            frozen: from.name.clone(),
            path: from.path.clone(),
            index,
            args: how.args.clone(),
            command: from.command.clone(),
        };
        let entry = self.add(config, &from.image, from.digest.clone(), User::default(), origin, asker)?;
        if let Err(problem) = self.give_volumes(&entry, &from.path).await {
            self.erase(&entry).await?;
            return Err(problem);
        }
        self.settle_and_launch(&entry).await?;
        self.event(EventKind::Clone, &entry, &[("frozen", from.name.clone())]);
        Ok(entry.describe(&self.volumes))
    }
}

/// What clones come from.
struct From {
    name: String,
    path: std::path::PathBuf,
    image: std::path::PathBuf,
    /// The image's name, if it is known.
    shown: String,
    /// KeeperCommand of the domain that was frozen, if it is known.
    command: Vec<String>,
    digest: String,
}

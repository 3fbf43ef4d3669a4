//! What all parts of the supervisor share.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doppel_api::{Code, EventKind, Problem};
use doppel_disks::DiskStore;
use doppel_freezer::FrozenStore;
use doppel_image::Store;
use doppel_layers::LayerStore;
use doppel_volumes::VolumeStore;
use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::config::Replacement;
use crate::domains::create::capacity;
use crate::domains::execs::Execs;
use crate::domains::{DomainTable, Entry, Row};
use crate::frozen::origins::Notes;
use crate::http::idempotency::IdempotencyKeys;
use crate::images::image_cache::ImageCache;
use crate::jobs::failed;
use crate::keeper::protocol::{KeeperCommand, Kept, Reply};
use crate::keepers::held_memory::HeldMemory;
use crate::keepers::keeper_client::{Happening, KeeperClient, Setup};
use crate::keepers::{Keepers, Plan};
use crate::networks::table::NetworkTable;
use crate::operations::Operations;
use crate::residency::gate::Gate;
use crate::state::{StateStore, Table};
use crate::telemetry::audit::Audit;
use crate::telemetry::events::Events;
use crate::telemetry::stages::Stages;
use crate::{keeper, locked};

/// How long keepers may take to say what they keep when a supervisor begins.
const PATIENCE: Duration = Duration::from_secs(30);

/// The supervisor's parts. Lock order: see `domains/mod.rs`; the others' locks are taken last and alone.
#[derive(Debug)]
pub(crate) struct Core {
    pub store: PathBuf,
    pub images: Store,
    pub frozen: FrozenStore,
    pub volumes: VolumeStore,
    pub layers: LayerStore,
    pub disks: DiskStore,
    pub state: StateStore,
    pub domains: Mutex<DomainTable>,
    pub keepers: Keepers,
    /// The keeper's and the services' program, as it was called when this process began.
    pub program: PathBuf,
    pub events: Events,
    pub operations: Operations,
    pub execs: Arc<Execs>,
    pub held: Arc<HeldMemory>,
    pub idempotency: IdempotencyKeys,
    pub origins: Notes,
    pub image_cache: ImageCache,
    pub spare_seconds: u32,
    pub quotas: doppel_net::Quotas,
    /// What a domain may use that asks for nothing else.
    pub resources: doppel_api::Resources,
    pub audit: Audit,
    /// What this program was called with, if another may go on in its process.
    pub arguments: Option<Vec<OsString>>,
    /// That one, when there is to be one.
    pub replaced: watch::Sender<Option<Replacement>>,
    pub stages: Stages,
    pub gate: Arc<Gate>,
    /// Networks that were made by themselves.
    pub networks: Mutex<NetworkTable>,
}

/// Makes the directories of a supervisor, which only its user may enter.
fn make_directories(config: &Config) -> Result<(), Problem> {
    let store = &config.store;
    for dir in [store, &store.join("supervisor"), &store.join("domains"), &config.runtime] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("make", dir))?;
    }
    Ok(())
}

/// The program of this process.
fn own_program() -> Result<PathBuf, Problem> {
    std::env::current_exe()
        .map_err(|e| Problem::new(Code::Internal, format!("cannot tell what program this is: {e}")))
}

impl Core {
    /// Opens everything; returns when the domains are as the keepers say.
    pub async fn open(config: Config) -> Result<Arc<Self>, Problem> {
        make_directories(&config)?;
        let (state, mut rows) = StateStore::open(&config.store.join("supervisor/state.redb"))?;
        let mut domains = DomainTable::default();
        for (_, row) in rows.take::<Row>(Table::Domains) {
            domains.insert(Entry::new(row));
        }
        let Config { store, runtime, network_shards, defaults, program, .. } = config.clone();
        // Keepers are of this program, also when another lies in its place by now.
        let keeper = program.clone().unwrap_or_else(|| "/proc/self/exe".into());
        let program = program.map_or_else(own_program, Ok)?;
        let execs = Arc::new(Execs::default());
        let held = Arc::new(HeldMemory::new());
        let (known, lent) = (execs.clone(), held.clone());
        let resources = defaults.resources.clone();
        let setup =
            Setup { store, runtime, network_shards, defaults, program: keeper, execs: known, held: lent };
        let plan = Plan { setup, most: config.keeper_domains, idle: config.keeper_idle };
        let (keepers, mut happenings) = Keepers::new(plan)?;
        let goes_on = config.replacement.as_ref().map(|r| r.operation.as_str());
        let core = Arc::new(Self {
            images: Store::at(config.store.clone()),
            frozen: FrozenStore::new(&config.store),
            volumes: VolumeStore::of(&config.store).with_binds_below(config.binds),
            layers: LayerStore::of(&config.store),
            disks: DiskStore::of(&config.store),
            audit: Audit::open(&config.store.join("supervisor/audit.log"))?,
            operations: Operations::new(&state, rows.take(Table::Operations), goes_on),
            arguments: config.arguments,
            replaced: watch::channel(None).0,
            idempotency: IdempotencyKeys::new(rows.take(Table::Answers)),
            origins: Notes::new(rows.take(Table::Frozen)),
            image_cache: ImageCache::default(),
            spare_seconds: config.spare_seconds,
            quotas: config.network,
            resources,
            store: config.store,
            state,
            domains: Mutex::new(domains),
            keepers,
            program,
            execs,
            held,
            events: Events::new(),
            stages: Stages::default(),
            gate: Gate::new(config.gatekeeper, capacity().1),
            networks: Mutex::new(NetworkTable::new(rows.take(Table::Networks))),
        });
        core.sweep();
        core.settle_images();
        core.settle_volumes();
        core.settle_layers();
        core.settle_disks();
        core.settle_addresses();
        core.settle_origins();
        core.meet_keepers(&mut happenings, config.replacement).await?;
        let weak = Arc::downgrade(&core);
        tokio::spawn(async move {
            while let Some((number, happening)) = happenings.recv().await {
                let Some(core) = weak.upgrade() else { return };
                core.happened(number, happening);
            }
        });
        core.take_up_gate();
        core.keep_gate();
        core.tend();
        core.collect_temporary();
        Ok(core)
    }

    /// Waits until all keepers have said what they keep, or for [`PATIENCE`], and takes it for what is.
    async fn meet_keepers(
        self: &Arc<Self>,
        happenings: &mut mpsc::UnboundedReceiver<(u64, Happening)>,
        replacement: Option<Replacement>,
    ) -> Result<(), Problem> {
        let mut kept = Vec::new();
        let mut early = Vec::new();
        let mut missing = self.keepers.numbers();
        let all_there = async {
            while !missing.is_empty() {
                match happenings.recv().await {
                    Some((number, Happening::Connected(domains, _))) if missing.remove(&number) => {
                        kept.push((number, domains));
                    }
                    Some(other) => early.push(other),
                    None => return,
                }
            }
        };
        // What those keep that say nothing is known when they do.
        let _ = tokio::time::timeout(PATIENCE, all_there).await;
        if kept.is_empty() {
            return Err(Problem::new(
                Code::Internal,
                "no keeper can be reached; supervisor/keeper.log says more",
            ));
        }
        self.found(kept, &missing);
        self.begun(replacement);
        for (number, happening) in early {
            self.happened(number, happening);
        }
        Ok(())
    }

    /// Something happened with a keeper.
    fn happened(self: &Arc<Self>, number: u64, happening: Happening) {
        match happening {
            Happening::Connected(kept, execs) => {
                self.connected(number, kept, false);
                self.execs_found(number, &execs);
            }
            Happening::Lost => {
                tracing::error!("keeper {number} has died; its domains go on with the next one");
            }
            Happening::Notification(news) => self.news(number, news),
            Happening::Printed(exec, stream, at, bytes) => self.exec_printed(&exec, stream, at, bytes),
        }
    }

    /// The first that all keepers say; `missing` ones say nothing yet.
    fn found(self: &Arc<Self>, kept: Vec<(u64, Vec<Kept>)>, missing: &BTreeSet<u64>) {
        // A crash may have come between a start and its row, which then names the keeper of a run before.
        for (number, kept) in kept.iter().flat_map(|(n, all)| all.iter().map(move |k| (*n, k))) {
            let Ok(entry) = self.find(&kept.id) else { continue };
            let mut row = locked(&entry.row);
            if kept.exit.is_none() && kept.run >= row.run {
                row.keeper = Some(number);
            }
        }
        let (known, silent): (BTreeSet<u64>, _) = (kept.iter().map(|(n, _)| *n).collect(), missing);
        for (number, kept) in kept {
            self.connected(number, kept, true);
        }
        for entry in self.all() {
            let keeper = locked(&entry.row).keeper;
            if !keeper.is_some_and(|n| known.contains(&n) || silent.contains(&n)) {
                self.gone(&entry);
            }
            self.start_by_policy(&entry);
        }
    }

    /// The keeper that holds a domain, or held it last.
    pub fn keeper_of(&self, entry: &Entry) -> Result<Arc<KeeperClient>, Problem> {
        let number = locked(&entry.row).keeper;
        self.keepers
            .get(number)
            .ok_or_else(|| Problem::new(Code::WrongState, format!("domain {} does not run", entry.name())))
    }

    /// Asks the keeper of a domain.
    pub async fn ask(&self, entry: &Entry, ask: KeeperCommand) -> Result<Reply, Problem> {
        self.keeper_of(entry)?.ask(ask).await
    }

    /// A domain by name, id or beginning of an id.
    pub fn find(&self, which: &str) -> Result<Arc<Entry>, Problem> {
        locked(&self.domains).find(which)
    }

    /// All domains.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        locked(&self.domains).by_id.values().cloned().collect()
    }

    /// Writes a domain's row down some time soon, in order.
    pub fn save_soon(&self, entry: &Entry) {
        // Under the table's lock, so that it does not come after the row's removal.
        let domains = locked(&self.domains);
        if domains.by_id.contains_key(&entry.id) {
            self.state.put_soon(Table::Domains, &entry.id, &entry.row());
        }
    }

    /// Writes a domain's row down, in order; the future is done when it is durable.
    pub fn save(&self, entry: &Entry) -> impl Future<Output = Result<(), Problem>> + use<> {
        let domains = locked(&self.domains);
        let there = domains.by_id.contains_key(&entry.id);
        let saved = there.then(|| self.state.put(Table::Domains, &entry.id, &entry.row()));
        async {
            match saved {
                Some(saved) => saved.await,
                None => Ok(()),
            }
        }
    }

    /// As [`Self::save`], for one who has time.
    pub fn save_unhurried(&self, entry: &Entry) -> impl Future<Output = Result<(), Problem>> + use<> {
        let domains = locked(&self.domains);
        let there = domains.by_id.contains_key(&entry.id);
        let saved = there.then(|| self.state.put_unhurried(Table::Domains, &entry.id, &entry.row()));
        async {
            match saved {
                Some(saved) => saved.await,
                None => Ok(()),
            }
        }
    }

    /// Notes an event of a domain.
    pub fn event(&self, kind: EventKind, entry: &Entry, attributes: &[(&str, String)]) {
        self.events.add(kind, &entry.id, Some(&entry.name()), attributes);
    }

    /// Directory of a domain's log.
    pub fn domain_dir(&self, id: &str) -> PathBuf {
        keeper::config::domain_dir(&self.store, id)
    }

    /// Removes directories of domains that are no more.
    fn sweep(&self) {
        let known: HashSet<String> = locked(&self.domains).by_id.keys().cloned().collect();
        let entries = fs::read_dir(self.store.join("domains")).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_str().is_none_or(|name| !known.contains(name)) {
                self.remove_dir(&entry.path());
            }
        }
    }

    /// Removes the directory of a domain that its keeper has forgotten. What cannot be removed is swept at the next start.
    pub fn remove_dir(&self, dir: &Path) {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {e}", dir.display())
            }
            _ => {}
        }
    }
}

//! What all parts of the supervisor share.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use doppel_api::{Code, EventKind, Problem};
use doppel_freezer::FrozenStore;
use doppel_image::Store;

use crate::answers::Answers;
use crate::audit::Audit;
use crate::domains::{Entry, Row, World};
use crate::events::Events;
use crate::execs::Execs;
use crate::link::{Happening, Link, Setup};
use crate::operations::Operations;
use crate::origins::Notes;
use crate::roots::Roots;
use crate::stages::Stages;
use crate::state::{State, Table};
use crate::supervisor::Config;
use crate::{keeper, locked};

/// The supervisor's parts. Lock order: see `domains.rs`; the others' locks are taken last and alone.
#[derive(Debug)]
pub(crate) struct Core {
    pub store: PathBuf,
    pub images: Store,
    pub frozen: FrozenStore,
    pub state: State,
    pub world: Mutex<World>,
    pub link: Link,
    /// The keeper's and the services' program, as it was called when this process began.
    pub program: PathBuf,
    pub events: Events,
    pub operations: Operations,
    pub execs: Execs,
    pub answers: Answers,
    pub origins: Notes,
    pub roots: Roots,
    pub spare_seconds: u32,
    pub audit: Audit,
    pub stages: Stages,
}

impl Core {
    /// Opens everything; returns when the world is as the keeper says.
    pub async fn open(config: Config) -> Result<Arc<Self>, Problem> {
        let private = |dir: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("make", dir))
        };
        private(&config.store)?;
        private(&config.store.join("supervisor"))?;
        private(&config.store.join("domains"))?;
        private(&config.runtime)?;
        let (state, mut rows) = State::open(&config.store.join("supervisor/state.redb"))?;
        let mut world = World::default();
        for (_, row) in rows.take::<Row>(Table::Domains) {
            world.insert(Entry::new(row));
        }
        let Config { store, runtime, network_shards, program, .. } = config.clone();
        let program = match program {
            Some(program) => program,
            None => std::env::current_exe().map_err(|e| {
                Problem::new(Code::Internal, format!("cannot tell what program this is: {e}"))
            })?,
        };
        let setup = Setup { store, runtime, network_shards, program: program.clone() };
        let (link, mut happenings) = Link::new(setup);
        let core = Arc::new(Self {
            images: Store::at(config.store.clone()),
            frozen: FrozenStore::new(&config.store),
            audit: Audit::open(&config.store.join("supervisor/audit.log"))?,
            operations: Operations::new(&state, rows.take(Table::Operations)),
            answers: Answers::new(rows.take(Table::Answers)),
            origins: Notes::new(rows.take(Table::Frozen)),
            roots: Roots::default(),
            spare_seconds: config.spare_seconds,
            store: config.store,
            state,
            world: Mutex::new(world),
            link,
            program,
            execs: Execs::default(),
            events: Events::new(),
            stages: Stages::default(),
        });
        core.sweep();
        core.settle_images();
        core.settle_origins();
        match happenings.recv().await {
            Some(Happening::Connected(kept)) => core.connected(kept, true),
            _ => return Err(Problem::new(Code::Internal, "the keeper cannot be reached")),
        }
        core.bring_services();
        let weak = Arc::downgrade(&core);
        tokio::spawn(async move {
            while let Some(happening) = happenings.recv().await {
                let Some(core) = weak.upgrade() else { return };
                match happening {
                    Happening::Connected(kept) => core.connected(kept, false),
                    Happening::Lost => {
                        tracing::error!("the keeper has died; its domains go on with the next one");
                        core.execs_lost();
                    }
                    Happening::News(news) => core.news(news),
                    Happening::Printed(exec, stream, bytes) => core.exec_printed(&exec, stream, bytes),
                }
            }
        });
        core.tend();
        core.collect_temporary();
        Ok(core)
    }

    /// A domain by name, id or beginning of an id.
    pub fn find(&self, which: &str) -> Result<Arc<Entry>, Problem> {
        locked(&self.world).find(which)
    }

    /// All domains.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        locked(&self.world).domains.values().cloned().collect()
    }

    /// Writes a domain's row down some time soon, in order.
    pub fn save_soon(&self, entry: &Entry) {
        // Under the world's lock, so that it does not come after the row's removal.
        let world = locked(&self.world);
        if world.domains.contains_key(&entry.id) {
            self.state.put_soon(Table::Domains, &entry.id, &entry.row());
        }
    }

    /// Writes a domain's row down, in order; the future is done when it is durable.
    pub fn save(&self, entry: &Entry) -> impl Future<Output = Result<(), Problem>> + use<> {
        let world = locked(&self.world);
        let there = world.domains.contains_key(&entry.id);
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
        let world = locked(&self.world);
        let there = world.domains.contains_key(&entry.id);
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
        keeper::domain_dir(&self.store, id)
    }

    /// Removes directories of domains that are no more.
    fn sweep(&self) {
        let known: HashSet<String> = locked(&self.world).domains.keys().cloned().collect();
        let entries = fs::read_dir(self.store.join("domains")).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_str().is_none_or(|name| !known.contains(name)) {
                self.remove_dir(&entry.path());
            }
        }
    }

    /// Removes a domain's directory; what cannot be removed is swept at the next start.
    pub fn remove_dir(&self, dir: &Path) {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {e}", dir.display())
            }
            _ => {}
        }
    }
}

/// Whether the disk is full, wherever that was noticed first.
pub(crate) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::StorageFull)
}

/// A failure of the host.
pub(crate) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Problem + 'a {
    move |error| {
        let code = match error.kind() {
            io::ErrorKind::StorageFull => Code::StorageFull,
            io::ErrorKind::PermissionDenied => Code::Forbidden,
            _ => Code::Internal,
        };
        let hint =
            if code == Code::Forbidden { "; run doppeld as root or name a store of your own" } else { "" };
        Problem::new(code, format!("cannot {doing} {}: {error}{hint}", path.display()))
    }
}

/// Does something that blocks, on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => Err(Problem::new(Code::Internal, format!("a thread failed: {error}"))),
    }
}

/// Does something whole although whoever asked may go away.
pub(crate) async fn whole<T: Send + 'static>(
    job: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(job).await {
        Ok(result) => result,
        Err(error) => Err(Problem::new(Code::Internal, format!("a task failed: {error}"))),
    }
}

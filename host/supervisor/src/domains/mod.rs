//! The domains the supervisor knows: their rows and what belongs to them while it runs.
//!
//! [`DomainTable`] has an [`Entry`] for each domain, by id and by name. A [`Row`] is what is written down of it. Lock order:
//! `networks`, `DomainTable`, then one `row` or `live`; none of them is held across an await. `turn` is held by whoever changes a domain's
//! state, across all the awaits that takes.

pub mod create;
pub mod execs;
pub mod files;
pub mod followers;
pub mod health;
pub mod input;
pub mod lifecycle;
pub mod names;
pub mod network;
pub mod output;
pub mod reconcile;
pub mod run_exec;
pub mod spec;
pub mod volumes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use doppel_api::{self as api, Code, DomainState, ExitInfo, Problem};
use doppel_net::Traffic;
use doppel_spec::Program;
use doppel_volumes::VolumeStore;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use crate::domains::followers::Followers;
use crate::keeper::protocol::{Exit, Usage};
use crate::locked;
use crate::networks::leases::Addresses;
use crate::residency::residence::{Pending, Residence, Slept};

/// Most bytes of input, of a domain or an exec, sent to the keeper at a time.
pub(crate) const PIECE: usize = 64 << 10;

/// Bytes of a piece, which has [`PIECE`] at most.
pub(crate) fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).expect("a piece is short")
}

/// Bytes of input that a run of a domain was given, modulo 2^32, as far as that is known.
pub(crate) type Given = Option<(u64, u32)>;

/// What is written down of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub id: String,
    pub name: String,
    /// As it was asked for, defaults filled in.
    pub config: api::CreateDomain,
    /// File of the root image.
    pub image: PathBuf,
    pub image_digest: String,
    /// Whom its program runs as.
    pub user: User,
    pub origin: Origin,
    pub created_at: String,
    pub state: DomainState,
    /// Number of the run it is in or was in last; 0 before the first.
    pub run: u64,
    /// Number of the last run whose end was written down.
    pub ended_run: u64,
    pub started_at: Option<String>,
    pub exit: Option<ExitInfo>,
    /// How often it was started again by its restart policy.
    pub restarts: u32,
    /// How often in a row it was so without running for long.
    pub failures: u32,
    /// Somebody wanted it to stop.
    pub stopped: bool,
    /// Frozen image in which it sleeps, or from which it woke.
    pub asleep: Option<String>,
    /// When it is stopped whatever it does, in seconds since 1970.
    pub deadline: Option<f64>,
    /// What it used in its former runs.
    pub used: Usage,
    /// On whose behalf it is there.
    #[serde(default = "crate::asker::root")]
    pub owner: String,
    /// Number of the keeper that holds it, or held it last.
    #[serde(default)]
    pub keeper: Option<u64>,
    /// The request that made it, if that may come again ([`crate::asker::REQUEST`]).
    #[serde(default)]
    pub request: Option<String>,
    /// Its hibernation, from when that begins until it has woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slept: Option<Slept>,
    /// How often in a row it was woken too soon ([`crate::gatekeeper::damping`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restless: u8,
    /// Its addresses out of subnets, by network.
    #[serde(default, skip_serializing_if = "Addresses::is_empty")]
    pub addresses: Addresses,
    /// It waits for memory to start or wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
}

fn is_zero(n: &u8) -> bool {
    *n == 0
}

impl Row {
    /// Somebody wants it to stop: no policy starts it again.
    pub fn is_to_stop(&mut self) {
        self.stopped = true;
        if self.state == DomainState::Restarting {
            self.state = DomainState::Exited;
        }
    }

    /// Whether it has connections and ports, which stay with its keeper while it hibernates.
    pub fn has_network(&self) -> bool {
        self.config.network.kind == api::NetworkKind::Nat
    }

    /// The networks that it shares with others wherever they are, by name: not that of all that name none.
    pub fn networks(&self) -> Vec<String> {
        network::shared(&self.config.network)
    }

    /// What runs in it: its own command, or in a clone without one that of the domain it was cloned from.
    pub fn command(&self) -> &[String] {
        match &self.origin {
            Origin::Clone { command, .. } if self.config.command.is_empty() => command,
            _ => &self.config.command,
        }
    }
}

/// A user of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
    #[serde(default)]
    pub groups: Vec<u32>,
    pub home: String,
}

impl Default for User {
    fn default() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), home: "/root".into() }
    }
}

impl User {
    /// A program that runs as it, in `/`.
    pub fn program(&self, argv: Vec<String>) -> Program<String> {
        Program { uid: self.uid, gid: self.gid, groups: self.groups.clone(), ..Program::new(argv) }
    }
}

impl From<doppel_image::Identity> for User {
    fn from(found: doppel_image::Identity) -> Self {
        let doppel_image::Identity { uid, gid, groups, home } = found;
        Self { uid, gid, groups, home }
    }
}

/// What a domain starts from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Its root image.
    Boot,
    /// A frozen image.
    Clone {
        /// Its name.
        frozen: String,
        /// Its file.
        path: PathBuf,
        /// Which clone.
        index: u32,
        /// Lines of `/sys/doppel/args`.
        args: Vec<String>,
        /// KeeperCommand of the domain that was frozen, if it is known.
        #[serde(default)]
        command: Vec<String>,
    },
}

/// How a domain's last run ended, for those who wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Which run.
    pub run: u64,
    pub exit: ExitInfo,
    /// It hibernates.
    pub asleep: bool,
    /// The domain is no more.
    pub removed: bool,
}

/// What is known of a domain only while both live.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub pid: Option<i32>,
    /// A keeper has been asked to start it, or will be when there is a connection, and has not answered yet.
    pub launching: bool,
    /// The end of the run that is being started, of which its keeper has told before its start was noted here.
    pub early_end: Option<(u64, Box<Exit>)>,
    pub health: Option<api::HealthState>,
    /// Where it is in its network.
    pub network: Option<api::Attached>,
    pub followers: Followers,
    /// It is being removed with its volumes without a name.
    pub drop_volumes: bool,
    /// Its part of memory, while it runs.
    pub residence: Option<Box<Residence>>,
    /// How many use it just now: it does not hibernate by itself meanwhile.
    pub users: u32,
    /// It is being hibernated.
    pub hibernating: bool,
    /// Rung when it is not to wait for memory any more.
    pub cancel: Option<Arc<Notify>>,
    /// The last run that its keeper has been told to forget, and of which it writes nothing any more.
    pub forgotten_run: u64,
}

/// A domain.
#[derive(Debug)]
pub(crate) struct Entry {
    pub id: String,
    pub row: Mutex<Row>,
    pub live: Mutex<Live>,
    pub turn: tokio::sync::Mutex<()>,
    /// Held by whoever has the keeper begin or stop sending what it prints.
    pub tap: tokio::sync::Mutex<()>,
    /// Held while it is given input.
    pub given: Arc<tokio::sync::Mutex<Given>>,
    pub ending: watch::Sender<Ending>,
}

impl Entry {
    pub fn new(row: Row) -> Arc<Self> {
        let ending =
            Ending { run: row.ended_run, exit: row.exit.clone().unwrap_or_default(), ..Ending::default() };
        Arc::new(Self {
            id: row.id.clone(),
            row: Mutex::new(row),
            live: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            tap: tokio::sync::Mutex::default(),
            given: Arc::default(),
            ending: watch::channel(ending).0,
        })
    }

    /// A copy of the row.
    pub fn row(&self) -> Row {
        locked(&self.row).clone()
    }

    pub fn state(&self) -> DomainState {
        locked(&self.row).state
    }

    pub fn name(&self) -> String {
        locked(&self.row).name.clone()
    }

    /// As the interface gives it; `volumes`: where these are.
    pub fn describe(&self, volumes: &VolumeStore) -> api::Domain {
        let row = self.row();
        let path = |name: &str| volumes.path(name).display().to_string();
        let mounts = row.config.files.mounts.iter().map(|mount| api::MountPoint::of(mount, path)).collect();
        let command = row.command().to_vec();
        let deadline = row.deadline.map(crate::time::of_seconds);
        let live = locked(&self.live);
        let running = is_live(row.state);
        api::Domain {
            usage: (row.ended_run > 0).then(|| stats(&row, &Usage::default())),
            id: row.id,
            name: row.name,
            state: row.state,
            command,
            deadline,
            config: row.config,
            image_digest: row.image_digest,
            created_at: row.created_at,
            started_at: row.started_at,
            pid: live.pid.filter(|_| running),
            exit: row.exit,
            restarts: row.restarts,
            health: live.health.filter(|_| running),
            network: live.network.clone().filter(|_| running),
            addresses: row.addresses,
            hibernated: row
                .slept
                .filter(|_| row.state == DomainState::Hibernated)
                .map(|slept| slept.describe()),
            waiting: row.pending.map(|pending| pending.describe()),
            mounts,
            cloned_from: match row.origin {
                Origin::Clone { frozen, .. } => Some(frozen),
                Origin::Boot => None,
            },
        }
    }
}

/// Whether a domain in this state has processes.
pub(crate) fn is_live(state: DomainState) -> bool {
    matches!(state, DomainState::Running | DomainState::Paused)
}

/// What a domain used in all its runs; `now`: in the one it is in.
pub(crate) fn stats(row: &Row, now: &Usage) -> api::DomainStats {
    let used = &row.used;
    let sum = |f: fn(&Usage) -> Option<u64>| f(used).unwrap_or(0).saturating_add(f(now).unwrap_or(0));
    let both = |f: fn(&Usage) -> Option<u64>| (f(used).is_some() || f(now).is_some()).then(|| sum(f));
    api::DomainStats {
        id: row.id.clone(),
        name: row.name.clone(),
        at: crate::time::now(),
        cpu_seconds: used.cpu_seconds.unwrap_or(0.0) + now.cpu_seconds.unwrap_or(0.0),
        memory: api::MemoryStats {
            usage_bytes: now.memory_bytes.unwrap_or(0),
            peak_bytes: used.memory_peak_bytes.unwrap_or(0).max(now.memory_peak_bytes.unwrap_or(0)),
            swap_bytes: now.swap_bytes,
            limit_bytes: row.config.resources.memory_bytes.filter(|&n| n != doppel_domain::UNBOUNDED),
            private_bytes: 0,
            shared_bytes: 0,
        },
        page_seconds: used.page_seconds + now.page_seconds,
        pids: now.pids.unwrap_or(0),
        console_bytes: used.console_bytes + now.console_bytes,
        calls: both(|u| u.calls),
        oom_kills: sum(|u| u.oom_kills),
        io_read_bytes: both(|u| u.io_read_bytes),
        io_write_bytes: both(|u| u.io_write_bytes),
        network: traffic(used, now).map(network::stats),
        storage: storage(used, now),
    }
}

/// What its storage service has done in all its runs; none if it never had one.
fn storage(used: &Usage, now: &Usage) -> Option<api::StorageStats> {
    let both = used.storage.unwrap_or_default().plus(now.storage.unwrap_or_default());
    (used.storage.is_some() || now.storage.is_some()).then_some(both)
}

/// What it sent and received in all its runs; none if it never had a network.
fn traffic(used: &Usage, now: &Usage) -> Option<Traffic> {
    (used.traffic.is_some() || now.traffic.is_some())
        .then(|| used.traffic.unwrap_or_default().plus(now.traffic.unwrap_or_default()))
}

/// Adds a run that has ended.
pub(crate) fn add_usage(row: &mut Row, exit: &Exit) {
    let total = stats(row, &exit.usage);
    row.used = Usage {
        cpu_seconds: Some(total.cpu_seconds),
        memory_bytes: None,
        swap_bytes: None,
        memory_peak_bytes: Some(total.memory.peak_bytes),
        pids: None,
        oom_kills: Some(total.oom_kills),
        io_read_bytes: total.io_read_bytes,
        io_write_bytes: total.io_write_bytes,
        console_bytes: total.console_bytes,
        page_seconds: total.page_seconds,
        calls: total.calls,
        traffic: traffic(&row.used, &exit.usage),
        storage: storage(&row.used, &exit.usage),
    };
}

/// A domain's place among all, the newest first: when it was made, in microseconds since 1970, and its id.
pub(crate) type Age = (Reverse<u64>, String);

pub(crate) fn age(entry: &Entry) -> Age {
    let made = crate::time::parse(&locked(&entry.row).created_at);
    let since = made.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    (Reverse(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)), entry.id.clone())
}

/// All domains.
#[derive(Debug, Default)]
pub(crate) struct DomainTable {
    pub by_id: BTreeMap<String, Arc<Entry>>,
    pub names: HashMap<String, String>,
    /// The newest first.
    by_age: BTreeMap<Age, Arc<Entry>>,
    /// Ids by the request that made them, of those that may come again.
    by_request: HashMap<String, String>,
    /// Those that are being removed, of which something may be left.
    leaving: BTreeMap<String, Arc<Entry>>,
}

impl DomainTable {
    pub fn insert(&mut self, entry: Arc<Entry>) {
        self.leaving.remove(&entry.id);
        self.names.insert(entry.name(), entry.id.clone());
        let request = locked(&entry.row).request.clone();
        if let Some(request) = request {
            self.by_request.insert(request, entry.id.clone());
        }
        self.by_age.insert(age(&entry), entry.clone());
        self.by_id.insert(entry.id.clone(), entry);
    }

    /// The one that a request made.
    pub fn made_by(&self, request: &str) -> Option<Arc<Entry>> {
        self.by_id.get(self.by_request.get(request)?).cloned()
    }

    /// The place of one that is there.
    pub fn age_of(&self, id: &str) -> Option<Age> {
        self.by_id.get(id).map(|entry| age(entry))
    }

    /// So many at most that come behind this place, or from the first on.
    pub fn behind(&self, place: Option<&Age>, most: usize) -> Vec<Arc<Entry>> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_age
            .range::<Age, _>((from, Bound::Unbounded))
            .map(|(_, entry)| entry.clone())
            .take(most)
            .collect()
    }

    /// It is being removed.
    pub fn leave(&mut self, entry: &Arc<Entry>) {
        self.leaving.insert(entry.id.clone(), entry.clone());
        self.remove(entry);
    }

    pub fn remove(&mut self, entry: &Entry) {
        let name = entry.name();
        if self.names.get(&name) == Some(&entry.id) {
            self.names.remove(&name);
        }
        let request = locked(&entry.row).request.clone();
        if let Some(request) = request
            && self.by_request.get(&request) == Some(&entry.id)
        {
            self.by_request.remove(&request);
        }
        self.by_age.remove(&age(entry));
        self.by_id.remove(&entry.id);
    }

    /// Nothing is left of it.
    pub fn removed(&mut self, entry: &Entry) {
        self.leaving.remove(&entry.id);
    }

    /// One that is there, or is being removed, by its id.
    pub fn find_leaving(&self, which: &str) -> Result<Arc<Entry>, Problem> {
        self.leaving.get(which).cloned().map_or_else(|| self.find(which), Ok)
    }

    /// By name, id, or a unique beginning of an id.
    pub fn find(&self, which: &str) -> Result<Arc<Entry>, Problem> {
        let none = || Problem::new(Code::DomainNotFound, format!("no domain {which:?}"));
        let by_name = self.names.get(which).and_then(|id| self.by_id.get(id));
        if let Some(entry) = by_name.or_else(|| self.by_id.get(which)) {
            return Ok(entry.clone());
        }
        if which.is_empty() || !which.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(none());
        }
        let beginning = which.to_ascii_lowercase();
        let mut matching =
            self.by_id.range(beginning.clone()..).take_while(|(id, _)| id.starts_with(&beginning));
        match (matching.next(), matching.next()) {
            (Some((_, entry)), None) => Ok(entry.clone()),
            (None, _) => Err(none()),
            (Some(_), Some(_)) => Err(Problem::new(
                Code::DomainNotFound,
                format!("{which:?} begins the ids of several domains; give more digits"),
            )),
        }
    }

    /// Sums of what is set aside: CPUs and bytes of memory.
    pub fn reserved(&self, except: Option<&str>) -> (f64, u64) {
        let others = self.by_id.values().filter(|e| Some(e.id.as_str()) != except);
        others.fold((0.0, 0), |(cpus, memory), entry| {
            let resources = &locked(&entry.row).config.resources;
            let more = resources.memory_reservation_bytes.unwrap_or(0);
            (cpus + resources.cpu_reservation.unwrap_or(0.0), memory + more)
        })
    }
}

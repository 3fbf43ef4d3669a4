//! The keepers there are: whose domains each holds, and how many of them there need to be.
//!
//! A keeper holds domains of one owner, and no more than a limit: what ends it touches only these. Each has a number, and
//! a directory of it (`keepers/N` in the runtime directory) with its socket, its lock and its owner's name. Keepers are
//! started when they are needed, and let go when they have had nothing to keep for a while; the last one stays, so that the
//! next start need not wait for one. The first is started for whoever comes first.
//!
//! Lock order: `table` is taken last.

pub mod held_memory;
pub mod hold;
pub mod keeper_client;
pub mod pulse;
pub mod services;
pub mod upgrade;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use doppel_api::{Code, Problem};
use rustix::fs::FlockOperation;
use tokio::sync::mpsc;

use crate::keeper::protocol::{KeeperCommand, Reply};
use crate::keepers::keeper_client::{Happening, KeeperClient, Setup};
use crate::{keeper, locked};

/// Number of the keeper of a supervisor that knew only one, whose directory is the runtime directory itself.
const OLD: u64 = 0;
/// Between two looks whether a keeper that was let go has ended, and how many there are.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 60;

/// How keepers are started, and how much each may hold.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Of each; the directory is that of all of them.
    pub setup: Setup,
    /// Most domains of one.
    pub most: usize,
    /// How long one without domains stays.
    pub idle: Duration,
}

/// What a keeper holds, as the supervisor knows.
#[derive(Debug, Default)]
struct Holding {
    /// Whose domains it holds; none: it waits for the first.
    owner: Option<String>,
    /// The domains, also those that sleep, with the networks of each.
    domains: HashMap<String, Vec<String>>,
    /// Since when it has none.
    idle: Option<Instant>,
}

impl Holding {
    fn is_of(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }

    fn put(&mut self, id: &str, networks: Vec<String>) {
        self.domains.insert(id.to_owned(), networks);
        self.idle = None;
    }

    /// The first of these networks that another domain than this one is on.
    fn is_on<'a>(&self, networks: &'a [String], id: &str) -> Option<&'a str> {
        let on = |name: &String| self.domains.iter().any(|(other, all)| other != id && all.contains(name));
        networks.iter().find(|name| on(name)).map(String::as_str)
    }
}

/// A domain that is to have a keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Homeless<'a> {
    pub id: &'a str,
    /// The keeper that held it last.
    pub last: Option<u64>,
    pub owner: &'a str,
    pub networks: &'a [String],
}

/// Two networks whose domains are with different keepers, so that no domain can be on both.
#[derive(Debug, PartialEq, Eq)]
struct Apart(String, String);

impl From<Apart> for Problem {
    fn from(Apart(one, other): Apart) -> Self {
        let text = format!(
            "domains on networks {one:?} and {other:?} are with different keepers, so none can be on both; stop those of one \
             of them, start this one first, and then the others again"
        );
        Self::new(Code::WrongState, text)
    }
}

/// The keeper for a domain: the one that holds it already, one that has others of its networks, whatever the limit (they
/// reach each other through their keeper's services), the fullest of its owner with room, so that others become empty, or
/// one that is nobody's yet. None: there has to be another.
fn choose<'a>(
    all: impl Iterator<Item = (u64, &'a Holding)> + Clone,
    domain: Homeless<'_>,
    most: usize,
) -> Result<Option<u64>, Apart> {
    let Homeless { id, last, owner, networks } = domain;
    let of_owner = || all.clone().filter(|(_, h)| h.is_of(owner));
    let held = || all.clone().find(|(n, h)| Some(*n) == last && h.domains.contains_key(id));
    let mut others = of_owner().filter_map(|(n, h)| Some(((n, h), h.is_on(networks, id)?)));
    let with_others = others.next();
    if let (Some((_, one)), Some((_, other))) = (with_others, others.next()) {
        return Err(Apart(one.to_owned(), other.to_owned()));
    }
    let with_room =
        || of_owner().filter(|(_, h)| h.domains.len() < most).max_by_key(|(_, h)| h.domains.len());
    let nobodys = || all.clone().find(|(_, h)| h.owner.is_none());
    let with_others = || with_others.map(|(keeper, _)| keeper);
    Ok(held().or_else(with_others).or_else(with_room).or_else(nobodys).map(|(number, _)| number))
}

/// A keeper as the supervisor sees it.
#[derive(Debug)]
struct One {
    link: Arc<KeeperClient>,
    holding: Holding,
}

#[derive(Debug, Default)]
struct Table {
    keepers: BTreeMap<u64, One>,
    /// Number of the next one.
    next: u64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Keepers {
    plan: Plan,
    table: Mutex<Table>,
    happenings: mpsc::UnboundedSender<(u64, Happening)>,
}

impl Keepers {
    /// Connects to those there are, or starts one. What happens with each comes out of the channel.
    pub fn new(plan: Plan) -> Result<(Self, mpsc::UnboundedReceiver<(u64, Happening)>), Problem> {
        let (happenings, out) = mpsc::unbounded_channel();
        let keepers = Self { plan, table: Mutex::default(), happenings };
        let dir = keepers.plan.setup.runtime.join("keepers");
        let problem =
            |e: io::Error| Problem::new(Code::Internal, format!("cannot use {}: {e}", dir.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(problem)?;
        let mut table = locked(&keepers.table);
        table.next = OLD + 1;
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&dir).map_err(problem)?.flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            table.next = table.next.max(number + 1);
            // One that ended as it should has removed its socket. What another has left its successor finds.
            if in_use(&entry.path()) {
                found.insert(number);
            } else {
                remove(&entry.path());
            }
        }
        if in_use(&keepers.plan.setup.runtime) {
            found.insert(OLD);
        }
        for number in &found {
            let owner = match *number {
                // Nobody's new ones.
                OLD => Some(String::new()),
                number => fs::read_to_string(owner_file(&keepers.dir(number))).ok(),
            };
            keepers.link(&mut table, *number, owner).map_err(problem)?;
        }
        if found.is_empty() {
            keepers.begin(&mut table, None).map_err(problem)?;
        }
        drop(table);
        Ok((keepers, out))
    }

    fn dir(&self, number: u64) -> PathBuf {
        let runtime = &self.plan.setup.runtime;
        if number == OLD { runtime.clone() } else { runtime.join("keepers").join(number.to_string()) }
    }

    /// Connects to one, which is started if it is not there.
    fn link(&self, table: &mut Table, number: u64, owner: Option<String>) -> io::Result<Arc<KeeperClient>> {
        let runtime = self.dir(number);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&runtime)?;
        let setup = Setup { runtime, ..self.plan.setup.clone() };
        let link = Arc::new(KeeperClient::new(setup, number, self.happenings.clone()));
        let one = One { link: link.clone(), holding: Holding { owner, ..Holding::default() } };
        table.keepers.insert(number, one);
        Ok(link)
    }

    /// Starts another one.
    fn begin(&self, table: &mut Table, owner: Option<&str>) -> io::Result<(u64, Arc<KeeperClient>)> {
        let number = table.next;
        table.next += 1;
        let link = self.link(table, number, owner.map(str::to_owned))?;
        if let Some(owner) = owner {
            fs::write(owner_file(&self.dir(number)), owner)?;
        }
        Ok((number, link))
    }

    /// Numbers of all.
    pub fn numbers(&self) -> BTreeSet<u64> {
        locked(&self.table).keepers.keys().copied().collect()
    }

    /// The one of this number.
    pub fn get(&self, number: Option<u64>) -> Option<Arc<KeeperClient>> {
        Some(locked(&self.table).keepers.get(&number?)?.link.clone())
    }

    /// The keeper for a domain that is to start, which is started if need be.
    pub fn place(&self, domain: Homeless<'_>) -> Result<(u64, Arc<KeeperClient>), Problem> {
        let failed = |e: io::Error| Problem::new(Code::Internal, format!("cannot start a keeper: {e}"));
        let mut table = locked(&self.table);
        let holdings = table.keepers.iter().map(|(number, one)| (*number, &one.holding));
        let number = match choose(holdings, domain, self.plan.most)? {
            Some(number) => number,
            None => self.begin(&mut table, Some(domain.owner)).map_err(failed)?.0,
        };
        let dir = self.dir(number);
        let gone = || Problem::new(Code::Internal, "the keeper has been let go");
        let one = table.keepers.get_mut(&number).ok_or_else(gone)?;
        if one.holding.owner.is_none() {
            fs::write(owner_file(&dir), domain.owner).map_err(failed)?;
            one.holding.owner = Some(domain.owner.to_owned());
        }
        one.holding.put(domain.id, domain.networks.to_vec());
        Ok((number, one.link.clone()))
    }

    /// A domain that one holds is to be on these networks. Refused if others of one of them are with another keeper.
    pub fn change_networks(
        &self,
        number: Option<u64>,
        id: &str,
        owner: &str,
        networks: &[String],
    ) -> Result<(), Problem> {
        let mut table = locked(&self.table);
        let elsewhere = |(n, one): (&u64, &One)| {
            (Some(*n) != number && one.holding.is_of(owner)).then(|| one.holding.is_on(networks, id))?
        };
        if let Some(name) = table.keepers.iter().find_map(elsewhere) {
            let text = format!(
                "domains on network {name:?} are with another keeper than this one; stop this one, connect it, and start it again"
            );
            return Err(Problem::new(Code::WrongState, text));
        }
        if let Some(one) = number.and_then(|n| table.keepers.get_mut(&n)) {
            one.holding.put(id, networks.to_vec());
        }
        Ok(())
    }

    /// One holds this domain, as it says.
    pub fn holds(&self, number: u64, id: &str, networks: Vec<String>) {
        if let Some(one) = locked(&self.table).keepers.get_mut(&number) {
            one.holding.put(id, networks);
        }
    }

    /// A domain is not held any more.
    pub fn left(&self, number: Option<u64>, id: &str) {
        let mut table = locked(&self.table);
        if let Some(one) = number.and_then(|n| table.keepers.get_mut(&n)) {
            one.holding.domains.remove(id);
        }
    }

    /// Asks all of them; the answers are with their numbers, in order.
    pub async fn ask_all(&self, ask: impl Fn() -> KeeperCommand) -> Vec<(u64, Result<Reply, Problem>)> {
        self.ask_those(|_| true, ask).await
    }

    /// The same of some.
    async fn ask_those(
        &self,
        which: impl Fn(&KeeperClient) -> bool,
        ask: impl Fn() -> KeeperCommand,
    ) -> Vec<(u64, Result<Reply, Problem>)> {
        let mut links: Vec<_> = locked(&self.table).keepers.values().map(|one| one.link.clone()).collect();
        links.retain(|link| which(link));
        // At once: one that does not answer keeps nobody from hearing the others.
        let asked: Vec<_> = links
            .into_iter()
            .map(|link| {
                let ask = ask();
                (link.number, tokio::spawn(async move { link.ask(ask).await }))
            })
            .collect();
        let mut answers = Vec::new();
        for (number, answer) in asked {
            let failed = |e| Err(Problem::new(Code::Internal, format!("a task failed: {e}")));
            answers.push((number, answer.await.unwrap_or_else(failed)));
        }
        // One that was let go meanwhile has nothing to say.
        let table = locked(&self.table);
        answers.retain(|(number, answer)| answer.is_ok() || table.keepers.contains_key(number));
        answers
    }

    /// A frozen image is to go: what was made ready of it ends; whether there was something.
    pub async fn forget(&self, frozen: &Path) -> bool {
        let ask = || KeeperCommand::Forget { frozen: frozen.to_owned() };
        let answers = self.ask_those(KeeperClient::readies_clones, ask).await;
        // One that dies meanwhile has nothing ready any more.
        answers.iter().any(|(_, answer)| matches!(answer, Ok(Reply::Forgot { any: true })))
    }

    /// Lets go of those that have had nothing to keep for a while. They end by themselves.
    pub fn let_idle_go(&self) {
        let mut over = Vec::new();
        {
            let mut table = locked(&self.table);
            let mut left = table.keepers.len();
            for (number, one) in &mut table.keepers {
                let since = match one.holding.domains.is_empty() {
                    true => *one.holding.idle.get_or_insert_with(Instant::now),
                    false => continue,
                };
                if left > 1 && since.elapsed() >= self.plan.idle {
                    left -= 1;
                    over.push(*number);
                }
            }
            for number in &over {
                if let Some(one) = table.keepers.remove(number) {
                    one.link.close();
                }
            }
        }
        for number in over.into_iter().filter(|n| *n != OLD) {
            let dir = self.dir(number);
            tokio::spawn(async move {
                for _ in 0..LOOKS {
                    tokio::time::sleep(LOOK).await;
                    if !in_use(&dir) {
                        return remove(&dir);
                    }
                }
                tracing::warn!("keeper {number} has nothing to keep, and does not end");
            });
        }
    }
}

fn owner_file(dir: &Path) -> PathBuf {
    dir.join("owner")
}

/// Whether there is a keeper, or one that died without cleaning up, or domains without one.
fn in_use(dir: &Path) -> bool {
    // What its storage service knew of files is of no use without domains.
    let is_left = |entry: fs::DirEntry| entry.file_name() != keeper::config::STORAGE;
    let orphans = || fs::read_dir(keeper::config::records(dir)).is_ok_and(|all| all.flatten().any(is_left));
    if keeper::config::socket(dir).exists() || orphans() {
        return true;
    }
    let Ok(lock) = fs::File::open(keeper::config::lock(dir)) else { return false };
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
}

fn remove(dir: &Path) {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("cannot remove {}: {e}", dir.display())
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(networks: &str) -> Vec<String> {
        networks.split_whitespace().map(str::to_owned).collect()
    }

    fn holding(owner: Option<&str>, domains: &[(&str, &str)]) -> Holding {
        let mut holding = Holding { owner: owner.map(str::to_owned), ..Holding::default() };
        domains.iter().for_each(|(id, networks)| holding.put(id, named(networks)));
        holding
    }

    #[test]
    fn where_domains_go() {
        let all = [
            (1, holding(Some("a"), &[("a1", ""), ("a2", "net")])),
            (2, holding(Some("a"), &[("a3", "")])),
            (3, holding(Some("b"), &[("b1", "other")])),
        ];
        let put = |most, last, owner, networks| {
            let domain = Homeless { id: "a1", last, owner, networks: &named(networks) };
            choose(all.iter().map(|(n, h)| (*n, h)), domain, most).unwrap()
        };
        // The fullest with room; those of the network whatever the limit; never another owner's.
        assert_eq!(put(3, None, "a", ""), Some(1));
        assert_eq!(put(2, None, "a", ""), Some(2));
        assert_eq!(put(1, None, "a", ""), None);
        assert_eq!(put(1, None, "a", "net"), Some(1));
        assert_eq!(put(1, None, "a", "new net"), Some(1));
        assert_eq!(put(2, None, "a", "other"), Some(2));
        assert_eq!(put(1, None, "b", "net"), None);
        assert_eq!(put(9, None, "c", "net"), None);
        // Where it is held it stays, as one that sleeps with its connections is.
        assert_eq!(put(1, Some(1), "a", ""), Some(1));
        assert_eq!(put(2, Some(2), "a", ""), Some(2));
        assert_eq!(put(1, Some(2), "a", ""), None);
        let more = [(4, holding(None, &[]))];
        let domain = Homeless { id: "x", last: None, owner: "c", networks: &[] };
        assert_eq!(choose(all.iter().chain(&more).map(|(n, h)| (*n, h)), domain, 2), Ok(Some(4)));
    }

    #[test]
    fn no_domain_is_with_two_keepers() {
        let all = [
            (1, holding(Some("a"), &[("a1", "front"), ("a2", "front back")])),
            (2, holding(Some("a"), &[("a3", "other")])),
            (3, holding(Some("b"), &[("b1", "other")])),
        ];
        let put = |id, networks| {
            let domain = Homeless { id, last: None, owner: "a", networks: &named(networks) };
            choose(all.iter().map(|(n, h)| (*n, h)), domain, 9)
        };
        assert_eq!(put("x", "front back"), Ok(Some(1)));
        assert_eq!(put("x", "other back"), Err(Apart("back".into(), "other".into())));
        // What it is on itself holds nobody.
        assert_eq!(put("a3", "other back"), Ok(Some(1)));
    }

    #[test]
    fn what_a_keeper_left_is_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let one = dir.path().join("1");
        assert!(!in_use(&one));
        fs::create_dir_all(keeper::config::records(&one)).expect("its directory");
        fs::write(keeper::config::lock(&one), "").expect("its lock");
        assert!(!in_use(&one));
        fs::write(keeper::config::records(&one).join("7"), "{}").expect("a record");
        assert!(in_use(&one));
        fs::remove_file(keeper::config::records(&one).join("7")).expect("a record");
        let lock = fs::File::open(keeper::config::lock(&one)).expect("its lock");
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("it is free");
        assert!(in_use(&one));
    }
}

//! What survives the supervisor: a `redb` file, `supervisor/state.redb`.
//!
//! Values are JSON by key in a few tables ([`Table`]). One thread writes: it takes whatever changes are waiting as one
//! transaction, so that many clients share the cost of making it durable, and tells each when its own is. The rows
//! themselves are held in memory by their owners; the file is read once, at the start.
//!
//! What nobody waits for gathers for a moment ([`GATHER`]), so that the rows of a domain that starts and ends at once
//! are one transaction, and making it durable is not in the way of what is waited for.
//!
//! A change that cannot be written (the disk is full) fails for whoever waits for it. One that nobody waits for (how a
//! domain ended) is kept and tried again, with the next change or after a second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use doppel_api::{Code, Problem};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

/// Pages kept in memory: rows are in memory anyway.
const CACHE: usize = 1 << 20;
/// Most changes in one transaction.
const BATCH: usize = 1000;
/// How long changes wait for others if nobody is held up by that.
const GATHER: Duration = Duration::from_millis(20);
/// A file from this size on is looked at for what it could give back, at the start and every so many transactions.
const SPARSE_FROM: u64 = 4 << 20;
const LOOK_EVERY: u32 = 256;
/// It gives back what it can when its rows are less than this part of it.
const SPARSE: u64 = 4;
/// How long a failed write waits for the next try.
const AGAIN: Duration = Duration::from_secs(1);

/// Tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    /// Domains by id.
    Domains,
    /// Answers by idempotency key.
    Answers,
    /// Long operations by id.
    Operations,
    /// What frozen images were made from, by name.
    Frozen,
    /// Networks by owner and name.
    Networks,
}

impl Table {
    const ALL: [Self; 5] = [Self::Domains, Self::Answers, Self::Operations, Self::Frozen, Self::Networks];

    fn definition(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(match self {
            Self::Domains => "domains",
            Self::Answers => "answers",
            Self::Operations => "operations",
            Self::Frozen => "frozen",
            Self::Networks => "networks",
        })
    }
}

type Outcome = Result<(), Problem>;

/// Makes the file, if it is not there, and makes it nobody else's to read.
fn own_only(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

fn closed(_: oneshot::error::RecvError) -> Outcome {
    Err(Problem::new(Code::Internal, "the state is closed"))
}

/// One change: a row's new value, or none to remove it.
#[derive(Debug)]
struct Change {
    table: Table,
    key: String,
    value: Option<Vec<u8>>,
    done: Option<oneshot::Sender<Outcome>>,
    /// Somebody is held up until it is durable.
    urgent: bool,
}

/// The state file.
#[derive(Debug)]
pub(crate) struct StateStore {
    changes: Option<Sender<Change>>,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl StateStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// If it is in use or cannot be read.
    pub fn open(path: &Path) -> Result<(Self, Rows), Problem> {
        own_only(path).map_err(|e| Problem::new(Code::Internal, format!("{}: {e}", path.display())))?;
        let mut database = database(path).map_err(|e| open_problem(path, &e))?;
        compact_if_sparse(path, &mut database).map_err(|e| problem(path, &e))?;
        let rows = Rows::read(&database).map_err(|e| problem(path, &e))?;
        let (changes, queue) = channel();
        let writer =
            Writer { path: path.to_owned(), database: Some(database), failed: BTreeMap::new(), commits: 0 };
        let writer = std::thread::Builder::new()
            .name("state".into())
            .spawn(move || writer.run(&queue))
            .map_err(|e| Problem::new(Code::Internal, format!("cannot start a thread: {e}")))?;
        Ok((Self { changes: Some(changes), writer: Some(writer) }, rows))
    }

    /// Writes a row, in the order of the calls; the future is done when it is durable.
    pub fn put<T: Serialize>(
        &self,
        table: Table,
        key: &str,
        value: &T,
    ) -> impl Future<Output = Outcome> + use<T> {
        let change = encoded(value).map(|value| self.change(table, key, Some(value), true));
        async { change?.await.unwrap_or_else(closed) }
    }

    /// As [`Self::put`], for one who has time.
    pub fn put_unhurried<T: Serialize>(
        &self,
        table: Table,
        key: &str,
        value: &T,
    ) -> impl Future<Output = Outcome> + use<T> {
        let change = encoded(value).map(|value| self.change(table, key, Some(value), false));
        async { change?.await.unwrap_or_else(closed) }
    }

    /// Removes a row, as [`Self::put`].
    pub fn remove(&self, table: Table, key: &str) -> impl Future<Output = Outcome> + use<> {
        let change = self.change(table, key, None, true);
        async { change.await.unwrap_or_else(closed) }
    }

    /// Removes a row, as [`Self::put_unhurried`].
    pub fn remove_unhurried(&self, table: Table, key: &str) -> impl Future<Output = Outcome> + use<> {
        let change = self.change(table, key, None, false);
        async { change.await.unwrap_or_else(closed) }
    }

    /// When all changes so far are durable.
    pub fn settled(&self) -> impl Future<Output = Outcome> + use<> {
        // Of a row that is not there.
        self.remove(Table::Operations, "")
    }

    fn change(
        &self,
        table: Table,
        key: &str,
        value: Option<Vec<u8>>,
        urgent: bool,
    ) -> oneshot::Receiver<Outcome> {
        let (done, outcome) = oneshot::channel();
        self.send(Change { table, key: key.into(), value, done: Some(done), urgent });
        outcome
    }

    /// Writes a row some time soon, in the order of the calls, whatever it takes.
    pub fn put_soon(&self, table: Table, key: &str, value: &impl Serialize) {
        match encoded(value) {
            Ok(value) => {
                self.send(Change { table, key: key.into(), value: Some(value), done: None, urgent: false })
            }
            Err(error) => tracing::error!("{error}"),
        }
    }

    /// Removes a row some time soon.
    pub fn remove_soon(&self, table: Table, key: &str) {
        self.send(Change { table, key: key.into(), value: None, done: None, urgent: false });
    }

    fn send(&self, change: Change) {
        // The writer lives as long as we do; were it gone, whoever waits would be told.
        if let Some(changes) = &self.changes {
            let _ = changes.send(change);
        }
    }
}

impl Drop for StateStore {
    fn drop(&mut self) {
        self.changes = None;
        if let Some(writer) = self.writer.take() {
            // A panic of it has been reported by itself.
            let _ = writer.join();
        }
    }
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|e| Problem::new(Code::Internal, format!("cannot encode a row: {e}")))
}

/// What was in the file.
#[derive(Debug, Default)]
pub(crate) struct Rows(BTreeMap<Table, Vec<(String, Vec<u8>)>>);

impl Rows {
    fn read(database: &Database) -> Result<Self, redb::Error> {
        let read = database.begin_read()?;
        let mut all = BTreeMap::new();
        for table in Table::ALL {
            let mut rows = Vec::new();
            for row in read.open_table(table.definition())?.iter()? {
                let (key, value) = row?;
                rows.push((key.value().to_owned(), value.value().to_owned()));
            }
            all.insert(table, rows);
        }
        Ok(Self(all))
    }

    /// The rows of a table. One that cannot be read is reported and left out: the others must not suffer.
    pub fn take<T: DeserializeOwned>(&mut self, table: Table) -> Vec<(String, T)> {
        let rows = self.0.remove(&table).unwrap_or_default();
        let decoded = rows.into_iter().filter_map(|(key, value)| match serde_json::from_slice(&value) {
            Ok(row) => Some((key, row)),
            Err(error) => {
                tracing::error!("row {key} of {table:?} cannot be read: {error}");
                None
            }
        });
        decoded.collect()
    }
}

fn database(path: &Path) -> Result<Database, redb::Error> {
    let database = Database::builder().set_cache_size(CACHE).create(path)?;
    let write = database.begin_write()?;
    for table in Table::ALL {
        write.open_table(table.definition())?;
    }
    write.commit()?;
    Ok(database)
}

/// Makes the file smaller if little of it is used: after many rows at once it would stay as large as it was then.
fn compact_if_sparse(path: &Path, database: &mut Database) -> Result<(), redb::Error> {
    let size = std::fs::metadata(path)?.len();
    if size < SPARSE_FROM {
        return Ok(());
    }
    let look = database.begin_write()?;
    let used = look.stats()?.stored_bytes();
    look.abort()?;
    if used < size / SPARSE {
        database.compact()?;
    }
    Ok(())
}

type Unwritten = BTreeMap<(Table, String), Option<Vec<u8>>>;

struct Writer {
    path: PathBuf,
    /// None after an error, until it could be opened again.
    database: Option<Database>,
    /// What nobody waits for and could not be written.
    failed: Unwritten,
    commits: u32,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Change>) {
        loop {
            let first = if self.failed.is_empty() {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(AGAIN)
            };
            let batch: Vec<Change> = match first {
                Ok(first) => gather(first, queue),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    if !self.failed.is_empty() {
                        self.write(Vec::new());
                    }
                    return;
                }
            };
            self.write(batch);
            self.look();
        }
    }

    /// Gives back now and then what the file has too much of, after those who waited for a row have been told.
    fn look(&mut self) {
        self.commits += 1;
        let Some(database) = self.database.as_mut().filter(|_| self.commits.is_multiple_of(LOOK_EVERY))
        else {
            return;
        };
        if let Err(error) = compact_if_sparse(&self.path, database) {
            tracing::warn!("{} keeps its size: {error}", self.path.display());
            self.database = None;
        }
    }

    fn write(&mut self, batch: Vec<Change>) {
        let result = self.commit(&batch);
        if let Err(error) = &result {
            tracing::error!("{error}");
            // After an error the database wants to be opened again.
            self.database = None;
        } else {
            self.failed.clear();
        }
        for change in batch {
            let row = (change.table, change.key);
            match (change.done, &result) {
                // Who does not wait any more is not told.
                (Some(done), _) => {
                    let _ = done.send(result.clone());
                    // A newer value that was refused must not be undone by an older one that was kept.
                    self.failed.remove(&row);
                }
                (None, Err(_)) => {
                    self.failed.insert(row, change.value);
                }
                (None, Ok(())) => {}
            }
        }
    }

    fn commit(&mut self, batch: &[Change]) -> Result<(), Problem> {
        // Of several values of a row only the last one counts.
        let mut rows: BTreeMap<(Table, &str), Option<&[u8]>> = BTreeMap::new();
        rows.extend(
            self.failed.iter().map(|((table, key), value)| ((*table, key.as_str()), value.as_deref())),
        );
        rows.extend(batch.iter().map(|c| ((c.table, c.key.as_str()), c.value.as_deref())));
        let failed = |e: redb::Error| problem(&self.path, &e);
        if self.database.is_none() {
            self.database = Some(database(&self.path).map_err(failed)?);
        }
        let Some(database) = &self.database else { unreachable!("opened above") };
        let written = || -> Result<(), redb::Error> {
            let write = database.begin_write()?;
            for table in Table::ALL {
                let mut rows = rows.range((table, "")..).take_while(|((t, _), _)| *t == table).peekable();
                if rows.peek().is_none() {
                    continue;
                }
                let mut open = write.open_table(table.definition())?;
                for ((_, key), value) in rows {
                    match value {
                        Some(value) => drop(open.insert(*key, *value)?),
                        None => drop(open.remove(*key)?),
                    }
                }
            }
            write.commit()?;
            Ok(())
        };
        written().map_err(failed)
    }
}

/// A change and those that belong into the same transaction.
fn gather(first: Change, queue: &Receiver<Change>) -> Vec<Change> {
    let mut urgent = first.urgent;
    let mut batch = vec![first];
    let until = Instant::now() + GATHER;
    while batch.len() < BATCH {
        let wait = if urgent { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
        match queue.recv_timeout(wait) {
            Ok(change) => {
                urgent |= change.urgent;
                batch.push(change);
            }
            // Without a sender all that there is is written now; the next look finds out.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    batch
}

fn problem(path: &Path, error: &redb::Error) -> Problem {
    let full = match error {
        redb::Error::Io(e) => e.kind() == std::io::ErrorKind::StorageFull,
        _ => false,
    };
    let code = if full { Code::StorageFull } else { Code::Internal };
    Problem::new(code, format!("cannot write {}: {error}", path.display()))
}

fn open_problem(path: &Path, error: &redb::Error) -> Problem {
    match error {
        redb::Error::DatabaseAlreadyOpen => Problem::new(
            Code::InUse,
            format!("{} is in use: another doppeld runs on this store", path.display()),
        ),
        _ => Problem::new(Code::Internal, format!("cannot open {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn rows_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let (state, mut rows) = StateStore::open(&path).unwrap();
        assert!(rows.take::<u32>(Table::Domains).is_empty());
        assert_eq!(StateStore::open(&path).unwrap_err().code, Code::InUse);
        runtime().block_on(async {
            state.put(Table::Domains, "a", &1).await.unwrap();
            state.put_soon(Table::Domains, "b", &2);
            state.put_soon(Table::Domains, "c", &3);
            state.remove(Table::Domains, "a").await.unwrap();
            state.remove_soon(Table::Domains, "c");
            state.put_unhurried(Table::Domains, "d", &5).await.unwrap();
            state.put_soon(Table::Domains, "d", &6);
            state.put_soon(Table::Answers, "b", &4);
        });
        drop(state);
        let (_state, mut rows) = StateStore::open(&path).unwrap();
        assert_eq!(rows.take::<u32>(Table::Domains), [("b".to_owned(), 2), ("d".to_owned(), 6)]);
        assert_eq!(rows.take::<u32>(Table::Answers), [("b".to_owned(), 4)]);
    }

    /// What many rows took is given back, at the start and in between.
    #[test]
    fn the_file_does_not_grow_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let size = || std::fs::metadata(&path).unwrap().len();
        let row = "x".repeat(3000);
        // Not in order, as the ids of domains.
        let id = |n: u64| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (state, _) = StateStore::open(&path).unwrap();
        let bulge = || async {
            for n in 0..3000 {
                state.put_soon(Table::Domains, &id(n), &row);
            }
            state.put(Table::Domains, "last", &row).await.unwrap();
            assert!(size() > SPARSE_FROM, "{}", size());
            for n in 0..2990 {
                state.remove_soon(Table::Domains, &id(n));
            }
        };
        runtime().block_on(async {
            bulge().await;
            for n in 0..=LOOK_EVERY {
                state.put(Table::Domains, "last", &n).await.unwrap();
            }
            // The next one is written after the look.
            state.put(Table::Domains, "last", &row).await.unwrap();
            assert!(size() < SPARSE_FROM, "{}", size());
            bulge().await;
        });
        drop(state);
        let (_state, mut rows) = StateStore::open(&path).unwrap();
        assert!(size() < SPARSE_FROM, "{}", size());
        assert_eq!(rows.take::<String>(Table::Domains).len(), 11);
    }
}

//! What a keeper is started with, and where it and its supervisor find what they have in common.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use crate::keeper::protocol::Exit;
/// How a keeper is set up.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// Directory of images, frozen images and state.
    pub store: PathBuf,
    /// Directory of its socket.
    pub runtime: PathBuf,
    /// How many network services there are to be.
    pub network_shards: usize,
    /// The supervisor that starts it says on standard input what it has of its domains' memory.
    pub held: bool,
}

/// Where the keeper listens.
pub(crate) fn socket(runtime: &Path) -> PathBuf {
    runtime.join("keeper.sock")
}

/// The file whose lock a keeper holds as long as it lives.
pub(crate) fn lock(runtime: &Path) -> PathBuf {
    runtime.join("keeper.lock")
}

/// Where it writes its domains down for its successor.
pub(crate) fn records(runtime: &Path) -> PathBuf {
    runtime.join("kept")
}

/// What is kept there of the storage service is in a directory of this name.
pub(crate) const STORAGE: &str = "storage";

/// Directory of a domain's log and exit.
pub(crate) fn domain_dir(store: &Path, id: &str) -> PathBuf {
    store.join("domains").join(id)
}

/// The file that says how a domain ended.
pub(crate) fn exit_file(store: &Path, id: &str) -> PathBuf {
    domain_dir(store, id).join("exit.json")
}

/// Writes `exit.json`, whole or not at all.
pub(crate) fn write_exit(store: &Path, exit: &Exit) -> io::Result<()> {
    let path = exit_file(store, &exit.id);
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(exit)?)?;
    fs::rename(new, path)
}

/// Reads `exit.json`; none if there is none or it is damaged.
pub(crate) fn read_exit(store: &Path, id: &str) -> Option<Exit> {
    serde_json::from_slice(&fs::read(exit_file(store, id)).ok()?).ok()
}

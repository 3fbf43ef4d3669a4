//! The service and a guest kernel's end of a channel, in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::{Engine, Volume, nodes};
use guest::Guest;

mod acts;
mod bounds;
mod disks;
mod guest;
mod hostile;
mod locks;
mod names;
mod operations;
mod watches;

/// A service on threads of its own, with one domain.
struct Bench {
    guest: Guest,
    root: PathBuf,
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(|root| vec![Volume::open(root, false).unwrap()])
    }

    /// With the volumes made of a directory.
    fn with(volumes: impl FnOnce(&Path) -> Vec<Volume>) -> Self {
        Self::with_another(volumes, |_, _| {})
    }

    /// And with what else is attached.
    fn with_another(volumes: impl FnOnce(&Path) -> Vec<Volume>, more: impl FnOnce(&Engine, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        std::fs::create_dir(&root).unwrap();
        let engine = Arc::new(Engine::new(4, true).unwrap());
        let (memory, doorbell) = guest::channel();
        let guest = guest::guest(&memory, &doorbell);
        engine.attach(&memory, doorbell, &nodes::memory().unwrap(), volumes(&root)).unwrap();
        more(&engine, &root);
        let threads = engine.start().unwrap();
        Self { guest, root, engine, threads, _dir: dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.stop();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

//! The service and a guest kernel's end of a channel, in one process.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use crate::{Engine, Volume, nodes};
use guest::Guest;

mod guest;
mod names;
mod operations;

/// A service on a thread of its own, with one domain.
struct Bench {
    guest: Guest,
    root: PathBuf,
    over: Arc<AtomicBool>,
    bell: OwnedFd,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(|root| vec![Volume::open(root, false).unwrap()])
    }

    /// With the volumes made of a directory.
    fn with(volumes: impl FnOnce(&Path) -> Vec<Volume>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        std::fs::create_dir(&root).unwrap();
        let mut engine = Engine::new().unwrap();
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        engine.watch_control(bell.as_fd()).unwrap();
        let (memory, doorbell) = guest::channel();
        let guest = guest::guest(&memory, &doorbell);
        engine.attach(&memory, doorbell, &nodes::memory().unwrap(), volumes(&root)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let work = move || {
            while !seen.load(Ordering::SeqCst) {
                engine.wait().unwrap();
                engine.work();
            }
        };
        let thread = std::thread::Builder::new().spawn(work).unwrap();
        Self { guest, root, over, bell, thread: Some(thread), _dir: dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

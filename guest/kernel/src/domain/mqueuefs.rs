//! The file system of POSIX message queues (`mq_overview(7)`): their names, and what waits in them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::objects::vfs::synthetic::{Directory, Node, SyntheticInode, text};
use crate::objects::vfs::{FileType, Inode};
use crate::process::descriptors::mqueue::{NAMES, Queue};

/// Root inode of such a file system.
pub fn root(dev: u64) -> Arc<dyn Inode> {
    SyntheticInode::root(Arc::new(Queues), dev)
}

struct Queues;

fn file(queue: Arc<Queue>) -> Node {
    text(move || {
        let bytes = queue.bytes();
        Ok(format!("QSIZE:{bytes:<10} NOTIFY:{:<5} SIGNO:{:<5} NOTIFY_PID:{:<6}\n", 0, 0, 0))
    })
}

impl Directory for Queues {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        NAMES.get().0.lock().get(name).cloned().map(file)
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let names: Vec<_> = NAMES.get().0.lock().keys().cloned().collect();
        for (i, name) in names.iter().enumerate().skip(from as usize) {
            if !each(i as u64 + 1, name, FileType::Regular) {
                return;
            }
        }
    }

    fn mode(&self) -> u32 {
        0o1777
    }
}

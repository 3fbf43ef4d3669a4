//! The file system of POSIX message queues (`mq_overview(7)`): their names, and what waits in them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::objects::ipc::sysv::namespace::{Ipc, here};
use crate::objects::vfs::synthetic::{Directory, Node, SyntheticInode, text};
use crate::objects::vfs::{FileType, Inode};
use crate::process::descriptors::mqueue::Queue;

/// Root inode of such a file system, of the mounter's IPC namespace.
pub fn root(dev: u64) -> Arc<dyn Inode> {
    SyntheticInode::root(Arc::new(Queues(here().keep())), dev)
}

struct Queues(Arc<Ipc>);

fn file(queue: Arc<Queue>) -> Node {
    text(move || {
        let bytes = queue.bytes();
        Ok(format!("QSIZE:{bytes:<10} NOTIFY:{:<5} SIGNO:{:<5} NOTIFY_PID:{:<6}\n", 0, 0, 0))
    })
}

impl Directory for Queues {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let queue = self.0.named.lock().get(name).cloned()?;
        queue.downcast().ok().map(file)
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let names: Vec<_> = self.0.named.lock().keys().cloned().collect();
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

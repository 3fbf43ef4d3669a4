//! /proc (`proc(5)`): the domain's processes and its own view of the machine.
//!
//! pid.rs: one process; system.rs: the files at the top; sysctl.rs: /proc/sys; net.rs: /proc/net.
//! Everything shown belongs to the domain: its processes, its CPUs (`--cpus`), its memory (`--memory`).

mod cpuinfo;
mod ids;
mod locks;
mod mem;
mod net;
mod ns;
mod pid;
mod put;
mod status;
mod sysctl;
pub(crate) mod system;
mod title;
pub mod waiting;

use crate::process::task::TASKS;
pub use pid::{comm_of, comm_text, cpu_list, state};
pub use system::memory;

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::core::namespace::pid::PidNamespace;
use crate::objects::vfs::synthetic::{Directory, Fixed, Node, SyntheticInode, dir, link};
use crate::objects::vfs::{FileType, Inode};
use crate::process::task::current;
use crate::{Errno, Result};

/// Root inode of a proc file system that shows the processes of a PID namespace, with their numbers there.
pub fn root(dev: u64, ns: Arc<PidNamespace>) -> Arc<dyn Inode> {
    SyntheticInode::root(Arc::new(Root { top: Fixed(system::entries()), ns }), dev)
}

struct Root {
    top: Fixed,
    ns: Arc<PidNamespace>,
}

/// Directory cookies of processes start here, after all fixed entries.
const PID_COOKIES: u64 = 1 << 16;

fn parse_pid(name: &[u8]) -> Option<i32> {
    if name.is_empty() || name[0] == b'0' || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

impl Directory for Root {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        match name {
            b"self" => {
                let ns = self.ns.clone();
                Some(Node::Link(Arc::new(move || {
                    Ok(own(&ns, crate::core::subject::pid())?.to_string().into_bytes())
                })))
            }
            b"thread-self" => {
                let ns = self.ns.clone();
                Some(Node::Link(Arc::new(move || {
                    let t = current();
                    let (pid, tid) = (own(&ns, t.process.pid)?, own(&ns, t.tid())?);
                    Ok(alloc::format!("{pid}/task/{tid}").into_bytes())
                })))
            }
            b"sys" => Some(sysctl::root()),
            b"net" => Some(link("self/net")),
            _ => match parse_pid(name) {
                Some(pid) => pid::process_dir(pid, &self.ns),
                None => self.top.lookup(name),
            },
        }
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let special: [(&[u8], FileType); 4] = [
            (b"self", FileType::Symlink),
            (b"thread-self", FileType::Symlink),
            (b"sys", FileType::Directory),
            (b"net", FileType::Symlink),
        ];
        let fixed = self.top.0.len() as u64;
        let mut go = true;
        if from < fixed {
            self.top.list(from, &mut |c, n, k| {
                go = each(c, n, k);
                go
            });
        }
        for (i, (name, kind)) in special.iter().enumerate() {
            let cookie = fixed + 1 + i as u64;
            if go && cookie > from {
                go = each(cookie, name, *kind);
            }
        }
        let mut pids: Vec<i32> = TASKS.processes.lock().keys().copied().collect();
        if !self.ns.is_first() {
            pids = pids.into_iter().map(|n| self.ns.shown(n)).filter(|n| *n != 0).collect();
            pids.sort_unstable();
        }
        for pid in pids {
            let cookie = PID_COOKIES + pid as u64;
            if go && cookie > from {
                go = each(cookie, pid.to_string().as_bytes(), FileType::Directory);
            }
        }
    }
}

/// The number of the caller itself; ENOENT where it has none.
fn own(ns: &PidNamespace, kernel: i32) -> Result<i32> {
    Some(ns.shown(kernel)).filter(|n| *n != 0).ok_or(Errno::ENOENT)
}

/// An empty directory.
fn empty() -> Node {
    dir(Vec::new())
}

//! What AF_UNIX messages carry besides bytes: descriptors and credentials.
//!
//! Key types: [`Fds`] (open files in flight), [`Ucred`]. A file in flight counts as a descriptor of the file
//! (`File::fd_added`), so pipes and locks behave as while it is open somewhere. Two dangers are met here:
//! dropping a message may close sockets whose queues hold messages, so files are closed from one list by
//! one thread, never recursively; and sockets may be sent over themselves, so sockets only reachable from
//! messages in flight are found by counting and their queues emptied (as Linux' af_unix garbage collector).
//! Lock order: flight lock → socket lock.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;

use super::UnixSock;
use crate::core::hook::Hook;
use crate::core::part::Part;
use crate::core::subject::{Resource, Subject, kernel_pid, shown_pid, subject};
use crate::objects::net::Socket;
use crate::objects::vfs::File;
use crate::{Errno, Result};

/// Most descriptors in one message.
pub const SCM_MAX_FD: usize = 253;

pod_struct! {
    /// `struct ucred`
    pub struct Ucred {
        /// Process.
        pub pid: i32,
        /// User.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }
}

impl PartialEq for Ucred {
    fn eq(&self, o: &Self) -> bool {
        (self.pid, self.uid, self.gid) == (o.pid, o.uid, o.gid)
    }
}

impl Ucred {
    /// Of what was sent while nobody asked: no process, and the overflow user and group.
    pub const NOBODY: Self = Self { pid: 0, uid: 65_534, gid: 65_534 };

    /// What a process sends when it says nothing.
    pub fn of(p: &dyn Subject) -> Self {
        let c = p.cred();
        Self { pid: p.pid(), uid: c.ruid, gid: c.rgid }
    }

    /// What SO_PEERCRED shows of a process that connects or listens.
    pub fn peer_of(p: &dyn Subject) -> Self {
        let c = p.cred();
        Self { pid: p.pid(), uid: c.euid, gid: c.egid }
    }

    /// What `p`, which is the current process, claims, with the kernel's numbers: EPERM if it may not, EINVAL for a user
    /// or group that its user namespace does not have.
    pub fn check(&self, p: &dyn Subject) -> Result<Self> {
        const CAP_SETGID: u32 = 6;
        const CAP_SETUID: u32 = 7;
        const CAP_SYS_ADMIN: u32 = 21;
        let c = p.cred();
        let uid = c.user.kernel_uid(self.uid).ok_or(Errno::EINVAL)?;
        let gid = c.user.kernel_gid(self.gid).ok_or(Errno::EINVAL)?;
        let kernel = Self { pid: kernel_pid(self.pid).ok_or(Errno::ESRCH)?, uid, gid };
        let pid = kernel_pid(self.pid) == Some(p.pid()) || c.capable(CAP_SYS_ADMIN);
        let uid = [c.ruid, c.euid, c.suid].contains(&uid) || c.has(CAP_SETUID);
        let gid = [c.rgid, c.egid, c.sgid].contains(&gid) || c.has(CAP_SETGID);
        if pid && uid && gid { Ok(kernel) } else { Err(Errno::EPERM) }
    }

    /// These as the current process is told of them.
    #[must_use]
    pub fn shown(self) -> Self {
        let user = &subject().cred().user;
        Self { pid: shown_pid(self.pid), uid: user.uid(self.uid), gid: user.gid(self.gid) }
    }
}

/// What is asked of the processes at the other end.
#[derive(Clone, Copy)]
pub struct Peers {
    /// Supplementary groups of a process; none if it has ended.
    pub groups: fn(pid: i32) -> Option<Vec<u32>>,
    /// A new descriptor of a process, in the current one; ESRCH if it has ended.
    pub descriptor: fn(pid: i32) -> Result<i32>,
}

/// Set by the layer of processes.
pub static PEERS: Hook<Peers> = Hook::new();

/// Sockets in flight and files to close.
#[derive(Default)]
pub(crate) struct Flight {
    /// AF_UNIX sockets in flight: the file and how many messages hold it.
    sockets: SpinLock<BTreeMap<u64, (Arc<File>, u64)>>,
    /// Files whose messages are gone.
    closing: SpinLock<Closing>,
}

/// The domain's.
pub(crate) static FLIGHT: Part<Flight> = Part::new();

#[derive(Default)]
struct Closing {
    active: bool,
    files: Vec<Arc<File>>,
}

/// Files in flight. Dropping it closes those not taken out.
pub struct Fds {
    files: Vec<Arc<File>>,
}

impl Fds {
    /// Puts files in flight. ETOOMANYREFS when the process has too many sockets in flight already.
    pub fn new(p: &dyn Subject, files: Vec<Arc<File>>) -> Result<Self> {
        const CAP_SYS_RESOURCE: u32 = 24;
        let flight = FLIGHT.get();
        if !p.cred().capable(CAP_SYS_RESOURCE) {
            let in_flight: u64 = flight.sockets.lock().values().map(|(_, n)| *n).sum();
            if in_flight > p.rlimit(Resource::Nofile) {
                return Err(Errno::ETOOMANYREFS);
            }
        }
        files.iter().for_each(|f| f.fd_added());
        Ok(Peeked(files).register())
    }

    /// A second set of the same files (MSG_PEEK), to be registered once no socket lock is held.
    pub(super) fn duplicate(&self) -> Peeked {
        self.files.iter().for_each(|f| f.fd_added());
        Peeked(self.files.clone())
    }

    /// The files, in the order they were sent.
    pub fn files(&self) -> &[Arc<File>] {
        &self.files
    }
}

/// Files counted as descriptors but not yet known to be in flight: such sockets are never garbage.
pub(super) struct Peeked(Vec<Arc<File>>);

impl Peeked {
    /// Puts them in flight.
    pub(super) fn register(self) -> Fds {
        let flight = FLIGHT.get();
        for f in self.0.iter().filter(|f| unix_of(f).is_some()) {
            let mut s = flight.sockets.lock();
            s.entry(f.id).or_insert_with(|| (f.clone(), 0)).1 += 1;
        }
        Fds { files: self.0 }
    }
}

impl Drop for Fds {
    fn drop(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let flight = FLIGHT.get();
        for f in &self.files {
            if unix_of(f).is_some() {
                let gone = {
                    let mut s = flight.sockets.lock();
                    let zero = s.get_mut(&f.id).is_some_and(|e| {
                        e.1 -= 1;
                        e.1 == 0
                    });
                    if zero { s.remove(&f.id) } else { None }
                };
                drop(gone);
            }
        }
        let mut c = flight.closing.lock();
        c.files.append(&mut self.files);
        if c.active {
            return;
        }
        c.active = true;
        loop {
            let batch = core::mem::take(&mut c.files);
            drop(c);
            for f in &batch {
                f.fd_removed();
            }
            drop(batch);
            c = flight.closing.lock();
            if c.files.is_empty() {
                c.active = false;
                return;
            }
        }
    }
}

fn unix_of(f: &File) -> Option<Arc<UnixSock>> {
    let s = f.downcast::<Socket>()?;
    let any: Arc<dyn core::any::Any + Send + Sync> = s.ops.clone();
    any.downcast::<UnixSock>().ok()
}

/// A descriptor of a socket is being closed: if the socket is in flight, this may have been the last way to it.
pub fn descriptor_closing(f: &File) {
    let flight = FLIGHT.get();
    if flight.sockets.lock().contains_key(&f.id) {
        collect_without(flight, Some(f.id));
    }
}

/// Empties the queues of sockets that only messages in flight can reach. Called when an AF_UNIX socket closes.
pub fn collect() {
    collect_without(FLIGHT.get(), None);
}

/// As [`collect`], with one descriptor of the file `closing` not counted.
fn collect_without(flight: &Flight, closing: Option<u64>) {
    if flight.sockets.lock().is_empty() {
        return;
    }
    let mut garbage = Vec::new();
    {
        let sockets = flight.sockets.lock();
        // Candidates: in flight, and in no descriptor table. Value: references not explained by messages in
        // candidates' own queues.
        let mut outside: BTreeMap<u64, i64> = sockets
            .iter()
            .filter(|(id, (f, n))| f.fd_count() == *n + u64::from(closing == Some(**id)))
            .map(|(id, (_, n))| (*id, *n as i64))
            .collect();
        let ids: Vec<u64> = outside.keys().copied().collect();
        let held = |id: u64| {
            let mut found = Vec::new();
            if let Some(s) = sockets.get(&id).and_then(|(f, _)| unix_of(f)) {
                s.files_in_queue(&mut |f| found.push(f.id));
            }
            found
        };
        for id in &ids {
            for child in held(*id) {
                if let Some(n) = outside.get_mut(&child) {
                    *n -= 1;
                }
            }
        }
        let mut live: Vec<u64> = outside.iter().filter(|(_, n)| **n > 0).map(|(id, _)| *id).collect();
        while let Some(id) = live.pop() {
            if outside.remove(&id).is_some() {
                live.extend(held(id).into_iter().filter(|c| outside.contains_key(c)));
            }
        }
        garbage.extend(outside.keys().filter_map(|id| sockets.get(id)).map(|(f, _)| f.clone()));
    }
    for f in garbage {
        if let Some(s) = unix_of(&f) {
            s.purge();
        }
    }
}

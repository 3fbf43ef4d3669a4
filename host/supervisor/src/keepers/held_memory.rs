//! Memory of running domains, held a second time.
//!
//! What a domain prints last, and how it ended, is in its control area, which goes with its processes. So the supervisor has
//! descriptors of it, and maps nothing: should a domain die while it has no keeper, the keeper that follows, which the
//! supervisor starts, takes them from it (`pidfd_getfd`) and finds there what there is.
//!
//! One descriptor a domain, two with a network: they may be three quarters of those that the supervisor may have at most, so that
//! it can do everything else. What domains beyond that say last is as safe as their keeper is.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::process::{PidfdFlags, Resource, getpid, getppid, getrlimit, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::locked;

/// All of it.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    /// Most descriptors.
    most: usize,
    held: Mutex<Held>,
}

/// By ids of domains.
#[derive(Debug, Default)]
struct Held {
    domains: HashMap<String, Memory>,
    descriptors: usize,
    /// That there are no more was said.
    said: bool,
}

#[derive(Debug)]
struct Memory {
    keeper: u64,
    run: u64,
    files: Vec<OwnedFd>,
}

/// What a supervisor lends to a keeper that it starts.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Loan {
    /// The supervisor.
    holder: i32,
    runs: Vec<Lent>,
}

/// A run of a domain, and what its supervisor has of its memory.
#[derive(Debug, Serialize, Deserialize)]
struct Lent {
    id: String,
    run: u64,
    files: Vec<RawFd>,
}

impl Held {
    fn insert(&mut self, id: &str, memory: Memory) {
        self.descriptors += memory.files.len();
        if let Some(before) = self.domains.insert(id.to_owned(), memory) {
            self.descriptors -= before.files.len();
        }
    }

    fn remove(&mut self, id: &str) {
        self.descriptors -= self.domains.remove(id).map_or(0, |memory| memory.files.len());
    }
}

impl HeldMemory {
    /// With as many descriptors as this process may have for it.
    pub fn new() -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::of_most(usize::try_from(most / 4 * 3).unwrap_or(usize::MAX))
    }

    fn of_most(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    /// Holds that of a run that has begun. If the host refuses, what it says last is as safe as its keeper is.
    pub fn take(&self, keeper: u64, id: &str, run: u64, pid: i32, network: bool) {
        {
            let mut held = locked(&self.held);
            if held.descriptors >= self.most {
                if !std::mem::replace(&mut held.said, true) {
                    tracing::warn!(
                        "the memory of no more domains than {} is held a second time: of descriptors (RLIMIT_NOFILE) there are too few",
                        held.domains.len()
                    );
                }
                return held.remove(id);
            }
        }
        match doppel_domain::hold(pid, network) {
            Ok(files) => locked(&self.held).insert(id, Memory { keeper, run, files }),
            Err(error) => tracing::debug!("the memory of domain {id} is not held: {error}"),
        }
    }

    /// A run has ended, and how is known.
    pub fn forget(&self, id: &str, run: u64) {
        let mut held = locked(&self.held);
        if held.domains.get(id).is_some_and(|memory| memory.run <= run) {
            held.remove(id);
        }
    }

    /// What its successor, which finds it on its standard input ([`borrow`]), is told of that of a keeper's domains.
    pub fn of(&self, keeper: u64) -> serde_json::Result<Vec<u8>> {
        let held = locked(&self.held);
        let its = held.domains.iter().filter(|(_, memory)| memory.keeper == keeper);
        let lent = |(id, memory): (&String, &Memory)| Lent {
            id: id.clone(),
            run: memory.run,
            files: memory.files.iter().map(AsRawFd::as_raw_fd).collect(),
        };
        let loan = Loan { holder: getpid().as_raw_nonzero().get(), runs: its.map(lent).collect() };
        serde_json::to_vec(&loan)
    }
}

/// Takes what the supervisor lends to a keeper that it starts, by ids and runs.
pub(crate) fn borrow(loan: impl Read) -> HashMap<(String, u64), Vec<OwnedFd>> {
    let mut found = HashMap::new();
    let loan: Loan = match serde_json::from_reader(loan) {
        Ok(loan) => loan,
        Err(error) => {
            tracing::warn!("the supervisor does not say what it has of domains' memory: {error}");
            return found;
        }
    };
    let Some(parent) = getppid() else { return found };
    let Ok(process) = pidfd_open(parent, PidfdFlags::empty()) else { return found };
    // If the supervisor has gone, this is another process, now or by the time it is opened.
    if getppid() != Some(parent) || loan.holder != parent.as_raw_nonzero().get() {
        return found;
    }
    for Lent { id, run, files } in loan.runs {
        match doppel_domain::borrow(process.as_fd(), &files) {
            Ok(files) => drop(found.insert((id, run), files)),
            Err(error) => {
                tracing::warn!("the memory that the supervisor has of {id} is not to be had: {error}")
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Domains and descriptors that are held.
    fn counts(held: &HeldMemory) -> (usize, usize) {
        let held = locked(&held.held);
        (held.domains.len(), held.descriptors)
    }

    #[test]
    fn a_loan_is_its_keepers_and_of_its_supervisor() {
        let held = HeldMemory::of_most(8);
        for (id, keeper) in [("a", 1), ("b", 2)] {
            let file = rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            locked(&held.held).insert(id, Memory { keeper, run: 2, files: vec![file] });
        }
        let loan = held.of(1).unwrap();
        let said: Loan = serde_json::from_slice(&loan).unwrap();
        assert_eq!(said.runs.iter().map(|lent| lent.id.as_str()).collect::<Vec<_>>(), ["a"]);
        // This process, which lends it, is not the parent of the one that borrows.
        assert!(borrow(&loan[..]).is_empty());
        assert!(borrow(&b"{"[..]).is_empty());
        held.forget("a", 1);
        assert_eq!(locked(&held.held).domains.len(), 2);
        held.forget("a", 2);
        assert_eq!(counts(&held), (1, 1));
    }

    #[test]
    fn no_more_is_held_than_may_be() {
        let held = HeldMemory::of_most(2);
        let memory = |run| {
            let file = || rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            Memory { keeper: 1, run, files: vec![file(), file()] }
        };
        locked(&held.held).insert("a", memory(1));
        locked(&held.held).insert("a", memory(2));
        assert_eq!(locked(&held.held).descriptors, 2);
        held.take(1, "b", 1, 1, false);
        assert_eq!(locked(&held.held).domains.len(), 1);
        // Another run of one that is held has no more of it.
        held.take(1, "a", 3, 1, false);
        assert_eq!(counts(&held), (0, 0));
    }
}

//! Memory of running domains, held a second time.
//!
//! What a domain prints last, and how it ended, is in its control area, which goes with its processes. So the supervisor has
//! descriptors of it, and maps nothing: should a domain die while it has no keeper, the keeper that follows, which the
//! supervisor starts, takes them from it (`pidfd_getfd`) and finds there what there is.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::process::{PidfdFlags, getpid, getppid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::locked;

/// All of it, by ids of domains.
#[derive(Debug, Default)]
pub(crate) struct HeldMemory(Mutex<HashMap<String, Memory>>);

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

impl HeldMemory {
    /// Holds that of a run that has begun. If the host refuses, what it says last is as safe as its keeper is.
    pub fn take(&self, keeper: u64, id: &str, run: u64, pid: i32, network: bool) {
        match doppel_domain::hold(pid, network) {
            Ok(files) => drop(locked(&self.0).insert(id.to_owned(), Memory { keeper, run, files })),
            Err(error) => tracing::debug!("the memory of domain {id} is not held: {error}"),
        }
    }

    /// A run has ended, and how is known.
    pub fn forget(&self, id: &str, run: u64) {
        let mut all = locked(&self.0);
        if all.get(id).is_some_and(|memory| memory.run <= run) {
            all.remove(id);
        }
    }

    /// What its successor, which finds it on its standard input ([`borrow`]), is told of that of a keeper's domains.
    pub fn of(&self, keeper: u64) -> serde_json::Result<Vec<u8>> {
        let all = locked(&self.0);
        let its = all.iter().filter(|(_, memory)| memory.keeper == keeper);
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

    #[test]
    fn a_loan_is_its_keepers_and_of_its_supervisor() {
        let held = HeldMemory::default();
        for (id, keeper) in [("a", 1), ("b", 2)] {
            let file = rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            locked(&held.0).insert(id.into(), Memory { keeper, run: 2, files: vec![file] });
        }
        let loan = held.of(1).unwrap();
        let said: Loan = serde_json::from_slice(&loan).unwrap();
        assert_eq!(said.runs.iter().map(|lent| lent.id.as_str()).collect::<Vec<_>>(), ["a"]);
        // This process, which lends it, is not the parent of the one that borrows.
        assert!(borrow(&loan[..]).is_empty());
        assert!(borrow(&b"{"[..]).is_empty());
        held.forget("a", 1);
        assert_eq!(locked(&held.0).len(), 2);
        held.forget("a", 2);
        assert_eq!(locked(&held.0).len(), 1);
    }
}

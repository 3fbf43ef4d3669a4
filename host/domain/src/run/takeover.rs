//! A fleet takes over what a process that has died has left.

use rustix::process::{Pid, Signal};

use crate::limits::cgroup::{self, Cgroup, Limits};
use crate::limits::group_limits::limits;
use crate::registry::adopt::{Leftover, end, find, processes_of};
use crate::registry::record::Recorded;
use crate::{Adopted, Adoption, Error, Fleet, Orphan, Resources};

impl Fleet {
    /// Takes a domain over; one that lives and cannot be is ended. [`Self::adopted`] is for when all have been.
    ///
    /// # Errors
    /// What the host says; the domain is left as it is.
    pub fn adopt(&mut self, orphan: Orphan, adoption: Adoption) -> Result<Adopted, Error> {
        let Orphan { path, record } = orphan;
        let identity = self.predecessors.identity(&record)?;
        let Some(birth) = record.birth.clone() else {
            return Err(Error::Ended("its start was not completed".into()));
        };
        let limits =
            Limits { account: adoption.account, ..limits(birth.kind, birth.vcpus, &adoption.resources) };
        // Without its group it has no limits, and goes on.
        let cgroup = birth.group.as_deref().and_then(|name| Cgroup::adopt(name, &limits).ok());
        let found = find(&record, &birth);
        let recorded = Recorded::at(path, record.clone());
        let left = Leftover { record, birth, recorded, cgroup, identity };
        match found {
            Ok((process, memory)) => {
                let (stopping, output) = (left.record.stopping, adoption.output);
                let (domain, channels) =
                    left.go_on(process, memory, adoption.taken, adoption.resources.memory_bytes);
                let key = self.add(domain, output)?;
                if stopping {
                    self.settle(key);
                }
                Ok(Adopted::Lives(key, channels))
            }
            Err(why) => Ok(Adopted::Gone(Box::new(left.gone(adoption, &why)))),
        }
    }

    /// Ends what is left of a domain that nobody wants: one whose start was not completed, or that was nobody's yet.
    ///
    /// # Errors
    /// What the host says.
    pub fn discard(&mut self, orphan: Orphan) -> Result<(), Error> {
        let Orphan { path, record } = orphan;
        let identity = self.predecessors.identity(&record)?;
        let group = match &record.birth {
            Some(birth) => {
                if let Ok(Some(process)) = birth.process.open() {
                    end(&process);
                }
                let limits = limits(birth.kind, birth.vcpus, &Resources::default());
                birth.group.as_deref().and_then(|name| Cgroup::adopt(name, &limits).ok())
            }
            None => {
                // It may have been forked, and not been written down.
                let pids = cgroup::tasks_of(record.id).into_iter().chain(processes_of(&identity));
                for pid in pids.filter_map(Pid::from_raw) {
                    // One that is gone is what is wanted.
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
                None
            }
        };
        drop(group);
        cgroup::remove_left_over(|id| id == record.id, &mut true);
        drop(Recorded::at(path, record));
        drop(identity);
        Ok(())
    }

    /// All have been adopted: names and ids of those that were not are free.
    pub fn adopted(&mut self) {
        for holder in std::mem::take(&mut self.predecessors.0).into_values() {
            holder.release_unused();
        }
    }
}

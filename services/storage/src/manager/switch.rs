//! A disk that gets another topmost layer while its domain runs: what it was until now stays as it is.

use std::io;
use std::sync::PoisonError;
use std::time::Instant;

use super::{Attachment, ROOM};
use crate::serve::Order;
use crate::volume::DiskFiles;

impl Attachment {
    /// The disk that is this volume of the domain is made of these files from here on: when this returns nobody writes to the ones before,
    /// on the domain's behalf. The domain stands still, so nothing is asked meanwhile.
    ///
    /// # Errors
    /// It is no disk, or no service could be started that has them.
    pub fn switch_disk(&self, volume: usize, files: DiskFiles) -> io::Result<()> {
        let mut state = self.shared.lock();
        let order = Order::Switch { key: self.key, volume, live: files.live.is_some() };
        let no_disk = || io::Error::new(io::ErrorKind::InvalidInput, "it is no disk of the domain");
        let member = state.members.get(&self.key).and_then(|member| member.volumes.get(volume));
        member.and_then(|volume| volume.disk.as_ref()).ok_or_else(no_disk)?;
        // One that has died is replaced, and its successor is told which files there are.
        let _ = state.send(&order, &files.descriptors());
        let member = state.members.get_mut(&self.key).ok_or_else(no_disk)?;
        member.volumes[volume].disk = Some(files);
        member.switching.insert(volume as u64);
        for patient in [true, false] {
            let until = Instant::now() + ROOM;
            loop {
                let member = state.members.get(&self.key);
                if let Some(why) = member.and_then(|member| member.failure.clone()) {
                    return Err(io::Error::other(why));
                }
                let waits = member.is_some_and(|m| m.switching.contains(&(volume as u64)));
                let left = until.saturating_duration_since(Instant::now());
                if !waits {
                    return Ok(());
                }
                if left.is_zero() {
                    break;
                }
                let waited = self.shared.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            // One that does not answer ends, and its successor begins with these files.
            if let Some(process) = state.process.as_ref().filter(|_| patient) {
                process.kill();
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the storage service does not answer"))
    }
}

//! The helper process: threads that each take a request of the host's kernel, and wait for the storage service.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use super::channel::Channel;
use super::serve::{Served, Server};
use crate::network::process::drop_rights;
use crate::program::talk;

/// Argument that makes this program the helper.
pub(crate) const VERB: &str = "disks";
/// Requests at once: as many as the service does at once for a domain.
const THREADS: u16 = 8;
/// It goes after all others of the domain when memory runs out; the first of these that the host permits.
const OOM_SCORES: [&str; 2] = ["-900", "0"];

/// What it is told, in one message with the kernel's end, the channel and the service's doorbell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelperConfig {
    /// Its user and group.
    pub user: u32,
    /// Of each disk: which of the service's volumes it is, and whether it is only read.
    pub disks: Vec<(u8, bool)>,
}

impl HelperConfig {
    pub fn to_bytes(&self) -> Vec<u8> {
        let disks = self.disks.iter().flat_map(|(volume, read_only)| [*volume, u8::from(*read_only)]);
        self.user.to_le_bytes().into_iter().chain(disks).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (user, disks) = bytes.split_first_chunk::<4>()?;
        let (disks, []) = disks.as_chunks::<2>() else { return None };
        let disks = disks.iter().map(|[volume, read_only]| (*volume, *read_only != 0)).collect();
        Some(Self { user: u32::from_le_bytes(*user), disks })
    }
}

/// The helper.
pub(crate) fn run() -> ExitCode {
    // Why it ended nobody can be told, but that it has is seen.
    match io::stdin().as_fd().try_clone_to_owned().and_then(|socket| serve(&socket)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let (bytes, fds) = talk::receive(socket)?;
    let wanted = HelperConfig::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    let [kernel, memory, doorbell] = <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
    let disks = wanted.disks.iter().map(|(volume, read_only)| Served::new((*volume).into(), *read_only));
    let server = Arc::new(Server {
        kernel: File::from(kernel),
        channel: Channel::new(&memory, doorbell, THREADS)?,
        disks: disks.collect(),
    });
    // What the host wants to write to a disk for want of memory must not wait for memory of ours. Not every root may say so, as within
    // a container; the slots' memory is there once it was used in any case.
    match rustix::process::configure_io_flusher_behavior(true) {
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    if !OOM_SCORES.iter().any(|score| fs::write("/proc/self/oom_score_adj", score).is_ok()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    drop_rights(wanted.user)?;
    for slot in 1..THREADS {
        let server = server.clone();
        std::thread::Builder::new().spawn(move || {
            let done = filter().and_then(|()| server.work(slot));
            // If one has nothing to do any more, nobody has.
            std::process::exit(i32::from(done.is_err()));
        })?;
    }
    filter()?;
    server.work(0)
}

/// Confines the calling thread to what serving disks takes.
fn filter() -> io::Result<()> {
    let filter: Vec<[u8; 8]> = doppel_confine::disks::filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install(&filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let wanted = HelperConfig { user: 0x2000_fffd, disks: vec![(0, false), (1, true)] };
        assert_eq!(HelperConfig::parse(&wanted.to_bytes()).as_ref(), Some(&wanted));
        assert_eq!(HelperConfig::parse(&wanted.to_bytes()[1..]), None);
    }
}

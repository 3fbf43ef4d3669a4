//! The helper process: two threads that wait, one for packets, one for the service, and take turns at the stack.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use doppel_abi_service::ChannelHeader;
use doppel_sys::shared::SharedMap;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, futex};

use super::addresses::Addresses;
use super::channel::{self, Channel};
use super::stack::Stack;
use super::tunnel::Tunnel;
use crate::program::talk;

/// Argument that makes this program the helper.
pub(crate) const VERB: &str = "network";

/// What it is told, in one message with the device's packets, the channel and the service's doorbell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HelperConfig {
    pub addresses: Addresses,
    /// Its user and group.
    pub user: u32,
}

impl HelperConfig {
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.user.to_le_bytes()[..], &self.addresses.to_bytes()].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (user, addresses) = bytes.split_first_chunk::<4>()?;
        Some(Self { addresses: Addresses::parse(addresses), user: u32::from_le_bytes(*user) })
    }
}

/// The helper.
pub(crate) fn run() -> ExitCode {
    // Why it ended nobody can be told, but that it has is seen.
    let _ = io::stdin().as_fd().try_clone_to_owned().and_then(|socket| serve(&socket));
    ExitCode::FAILURE
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let (bytes, fds) = talk::receive(socket)?;
    let wanted = HelperConfig::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    let [packets, memory, doorbell] =
        <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
    let map = channel::map(&memory)?;
    let stack =
        Stack::new(Channel::new(map.clone(), doorbell), Tunnel::new(packets.try_clone()?), wanted.addresses);
    let stack = Arc::new(Mutex::new(stack));
    drop_rights(wanted.user)?;
    let other = stack.clone();
    std::thread::Builder::new().spawn(move || {
        let _ = filter().and_then(|()| heed_service(&other, &map).map_err(io::Error::from));
        // Nothing goes on without the service.
        std::process::exit(1);
    })?;
    filter()?;
    Ok(take_packets(&stack, &packets)?)
}

/// Becomes a user that owns nothing.
pub(crate) fn drop_rights(user: u32) -> io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Confines the calling thread to what moving packets takes.
pub(crate) fn filter() -> io::Result<()> {
    let filter: Vec<[u8; 8]> = doppel_confine::packets::filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install(&filter)
}

fn lock(stack: &Mutex<Stack>) -> MutexGuard<'_, Stack> {
    // A turn that panicked ends the process.
    stack.lock().unwrap_or_else(PoisonError::into_inner)
}

fn timespec(most: Option<Duration>) -> Option<Timespec> {
    // Rounded up, or it would be woken before its time.
    most.and_then(|d| Timespec::try_from(d + Duration::from_micros(1)).ok())
}

fn take_packets(stack: &Mutex<Stack>, packets: &OwnedFd) -> Result<(), Errno> {
    loop {
        let most = timespec(lock(stack).turn()?);
        let mut fds = [PollFd::new(packets, PollFlags::IN)];
        match rustix::event::poll(&mut fds, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            // The device is gone, and the domain with it.
            return Ok(());
        }
    }
}

fn heed_service(stack: &Mutex<Stack>, map: &SharedMap) -> Result<(), Errno> {
    let header: &ChannelHeader = channel::header(map);
    header.watched.store(1, Ordering::SeqCst);
    loop {
        let seen = header.bell.load(Ordering::SeqCst);
        let most = timespec(lock(stack).turn()?);
        match futex::wait(&header.bell, futex::Flags::empty(), seen, most.as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn what_is_told_is_heard() {
        let addresses = Addresses::new(Ipv4Addr::new(10, 88, 1, 2), Ipv6Addr::LOCALHOST);
        let wanted = HelperConfig { addresses, user: 0x2000_ffff };
        let bytes = wanted.to_bytes();
        assert_eq!(HelperConfig::parse(&bytes), Some(wanted));
        assert_eq!(HelperConfig::parse(&bytes[..3]), None);
    }
}

//! Processes that are written down for another process to find, and what that takes of them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, SealFlags};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde::{Deserialize, Serialize};

/// A process, told from later ones of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Born {
    pid: i32,
    /// When it began, in the host's clock ticks since its boot.
    began: u64,
}

impl Born {
    /// The one that has this number now.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, began: began(pid)? })
    }

    /// The one of this number that began then, in the host's clock ticks since its boot.
    #[must_use]
    pub fn named(pid: i32, began: u64) -> Self {
        Self { pid, began }
    }

    /// Its number.
    #[must_use]
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// A descriptor of it; none if it is gone.
    ///
    /// # Errors
    /// What the host says.
    pub fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let fd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Whatever has the number as long as the descriptor's process is not reaped is that process.
        let same = began(self.pid).is_ok_and(|began| began == self.began);
        let mut ended = [PollFd::new(&fd, PollFlags::IN)];
        let dead = rustix::event::poll(&mut ended, Some(&Timespec::default()))? > 0;
        Ok((same && !dead).then_some(fd))
    }

    /// Whether it runs; one that cannot be looked at may.
    #[must_use]
    pub fn lives(self) -> bool {
        self.open().map_or(true, |found| found.is_some())
    }
}

/// Field 22 of `/proc/PID/stat`.
fn began(pid: i32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_ascii_whitespace());
    let began = fields.and_then(|mut f| f.nth(19)).and_then(|f| f.parse().ok());
    began.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A copy of another process' descriptor.
///
/// # Errors
/// What the host says.
pub fn take(process: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

fn not(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a descriptor that was taken is no {what}"))
}

/// Whether it is memory of this size that nobody can make shorter; what was taken from another process may be anything.
///
/// # Errors
/// If it is not.
pub fn check_memory(file: &OwnedFd, size: u64) -> io::Result<()> {
    let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let long = u64::try_from(rustix::fs::fstat(file)?.st_size).ok() == Some(size);
    if sealed && long { Ok(()) } else { Err(not("sealed memory of its size")) }
}

/// Whether it is an eventfd.
///
/// # Errors
/// If it is not.
pub fn check_bell(file: &OwnedFd) -> io::Result<()> {
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if link.to_str() == Some("anon_inode:[eventfd]") { Ok(()) } else { Err(not("eventfd")) }
}

/// The number by which the host tells a socket from all others.
///
/// # Errors
/// If it is no socket.
pub fn socket_number(socket: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(socket)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
        Ok(stat.st_ino)
    } else {
        Err(not("socket"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_another_of_its_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Born::of(child.id().try_into().unwrap()).unwrap();
        assert!(process.open().unwrap().is_some());
        let other = Born { began: process.began + 1, ..process };
        assert!(other.open().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.open().unwrap().is_none());
    }

    #[test]
    fn what_was_taken_is_looked_at() {
        let (memory, bell) = crate::make(1 << 16).unwrap();
        check_memory(&memory, 1 << 16).unwrap();
        check_memory(&memory, 1 << 15).unwrap_err();
        check_memory(&bell, 0).unwrap_err();
        check_bell(&bell).unwrap();
        check_bell(&memory).unwrap_err();
        socket_number(&memory).unwrap_err();
        let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let own = Born::of(std::process::id().try_into().unwrap()).unwrap().open().unwrap().unwrap();
        let same = take(own.as_fd(), socket.as_raw_fd()).unwrap();
        assert_eq!(socket_number(&same).unwrap(), socket_number(&socket).unwrap());
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_ne!(socket_number(&other).unwrap(), socket_number(&socket).unwrap());
    }
}

//! Sockets a service manager has opened for this process (`sd_listen_fds(3)`).

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first of them.
const FIRST: RawFd = 3;

/// Takes the descriptors from 3 on, `N` of them, of a process that its parent has given them; only the first call in a process
/// does.
///
/// To be called before anything else opens descriptors.
pub fn next_to_streams<const N: usize>() -> [std::io::Result<OwnedFd>; N] {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let taken = TAKEN.swap(true, Ordering::Relaxed);
    std::array::from_fn(|i| {
        let fd = FIRST + RawFd::try_from(i).map_err(|_| std::io::ErrorKind::NotFound)?;
        // SAFETY: F_SETFD only changes a flag, and fails for a number that is no descriptor.
        if taken || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        // SAFETY: it is open, and by agreement with the parent nobody's but ours; TAKEN keeps it from being owned twice.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    })
}

/// Takes descriptors that this process has kept for the program it is now, by their numbers, close-on-exec; only the first call
/// does.
///
/// To be called before anything else opens descriptors: it believes that these numbers are from the program before.
///
/// # Errors
/// If one is not open, or is said twice; none is taken then.
pub fn kept(numbers: &[RawFd]) -> std::io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let twice = numbers.iter().enumerate().any(|(i, fd)| numbers.iter().take(i).any(|other| other == fd));
    // SAFETY: F_SETFD only changes a flag, and fails for a number that is no descriptor.
    let open = |fd: &RawFd| *fd >= FIRST && unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) == 0 };
    if twice || !numbers.iter().all(open) || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    // SAFETY: each is open and said once, and by agreement with the program before nobody's but ours; TAKEN keeps it from being
    // owned twice.
    Ok(numbers.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }).collect())
}

/// Takes the descriptors that `LISTEN_PID` and `LISTEN_FDS` hand to this process, close-on-exec; none on a second call.
///
/// To be called before anything else opens descriptors for good: it believes the environment that these numbers are
/// the service manager's.
#[must_use]
pub fn take() -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").and_then(|n| RawFd::try_from(n).ok()).unwrap_or(0).min(64);
    let open = |fd: &RawFd| {
        // SAFETY: F_SETFD only changes a flag, and fails for a number that is no descriptor.
        unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) == 0 }
    };
    (FIRST..FIRST + count)
        .filter(open)
        .map(|fd| {
            // SAFETY: it is open, and by the protocol nobody's but ours; TAKEN keeps it from being owned twice.
            unsafe { OwnedFd::from_raw_fd(fd) }
        })
        .collect()
}

//! Signals as a descriptor: blocked in this thread and read from a `signalfd`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Blocked signals that arrive on a descriptor; dropping it restores the former mask.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
    previous: libc::sigset_t,
}

/// Starts a thread that has all signals blocked from its first instruction on, so that those for the process go to threads
/// that expect them. One that blocked them itself could be given one before it gets to that.
///
/// # Errors
/// What the host says, for instance that it gives no more threads.
pub fn spawn_blocked<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    let blocked = Blocked::all();
    // It inherits the mask of whoever makes it.
    let made = std::thread::Builder::new().name(name.into()).spawn(work);
    drop(blocked);
    made
}

/// Signals blocked in this thread until dropped.
pub(crate) struct Blocked(libc::sigset_t);

impl Blocked {
    pub fn all() -> Self {
        // SAFETY: sigset_t is plain data, for which all zeros is a value; sigfillset initialises it.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: valid sets; with these arguments neither call fails.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        }
        Self(before)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask that the thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Ends this process as a signal does by default, so that its parent sees that; without an action and a core file of ours.
/// For one that has such a default action: for others, it ends as the shell would tell it.
pub fn end_by(signal: i32) -> ! {
    // SAFETY: sigset_t is plain data, for which all zeros is a value; sigemptyset initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: set is a valid sigset_t; bad signal numbers are reported, not undefined; no code of ours runs for the
    // default action.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}

/// For a process that is about to execute another program: no signal is blocked, and the C library's own (32 and 33), which
/// it has ignored by those that it starts, mean what they do by default.
///
/// # Errors
/// What the host says.
pub fn unblock_all() -> io::Result<()> {
    // SAFETY: sigset_t is plain data, for which all zeros is a value; sigemptyset initialises it.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: none is a valid sigset_t.
    let error = unsafe {
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut())
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // The kernel's `struct sigaction`: SIG_DFL, no flags, no restorer, no mask.
    let default = [0u64; 4];
    for signal in 32..=33 {
        // SAFETY: the kernel reads a structure of that size; the default takes no handler away that is ours.
        let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl SignalFd {
    /// Blocks `signals` in the calling thread (be it the only one) and opens a descriptor for them.
    ///
    /// # Errors
    /// What the host says.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data, for which all zeros is a value; sigemptyset initialises it.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut previous: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: set is a valid sigset_t.
        unsafe { libc::sigemptyset(&raw mut set) };
        for signal in signals {
            // SAFETY: set is a valid sigset_t; a bad number is reported, not undefined.
            if unsafe { libc::sigaddset(&raw mut set, *signal) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: both sets are valid.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut previous) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, previous })
    }

    /// The next pending signal, if any.
    ///
    /// # Errors
    /// What the host says, other than "none pending".
    pub fn next(&self) -> io::Result<Option<i32>> {
        // SAFETY: plain data, for which all zeros is a value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: info has room for one entry of that size.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size) };
        match usize::try_from(got) {
            Ok(n) if n == size => Ok(i32::try_from(info.ssi_signo).ok()),
            Ok(_) => Ok(None),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e => Err(e),
            },
        }
    }
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SignalFd {
    fn drop(&mut self) {
        // SAFETY: `previous` was filled by the kernel. Failure is impossible with a valid set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.previous, std::ptr::null_mut()) };
    }
}

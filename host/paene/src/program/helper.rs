//! Processes that help an attendant: this program again, by a verb of its own, with nothing of our environment.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use doppel_abi_machine::ATTENDANT;
use rustix::process::Pid;

use super::talk;

/// Starts one, which is told what is wanted, with these descriptors, on its standard input.
pub(crate) fn start(verb: &str, wanted: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<Pid> {
    let (ours, helpers) = talk::pair()?;
    let helper = Command::new("/proc/self/exe")
        .arg0(ATTENDANT)
        .arg(verb)
        .env_clear()
        .stdin(Stdio::from(helpers))
        .spawn()?;
    talk::send(&ours, wanted, descriptors)?;
    Ok(Pid::from_child(&helper))
}

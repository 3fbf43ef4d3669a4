//! What our own privileged processes give up when they begin: doppeld, its keepers, attendants. What they keep is data
//! (`doppel_confine::supervisor`).

use std::io;

use doppel_confine::supervisor::{ATTENDANT, CAPABILITIES, Capability, filter};

fn keep(capabilities: &[Capability]) -> io::Result<()> {
    let numbers: Vec<u32> = capabilities.iter().map(|c| c.number).collect();
    doppel_sys::privileges::keep(&numbers)
}

/// Gives up what none of them needs, for this process and all it starts. To be called before there are other threads.
///
/// # Errors
/// What the host says.
pub fn now() -> io::Result<()> {
    keep(CAPABILITIES)?;
    let program: Vec<[u8; 8]> = filter().iter().map(|i| i.to_bytes()).collect();
    doppel_sys::filter::install(&program)
}

/// The same, unless whoever started this process has done so: filters add up, and every call goes through all of them.
///
/// # Errors
/// What the host says.
pub fn unless_inherited() -> io::Result<()> {
    if rustix::thread::no_new_privs()? { Ok(()) } else { now() }
}

/// What an attendant gives up once its container is made.
pub(crate) fn further() -> io::Result<()> {
    keep(ATTENDANT)
}

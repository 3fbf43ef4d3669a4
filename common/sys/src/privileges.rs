//! What this process gives up of root's rights, for ever and for all that it starts.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Keeps of the capabilities these numbers at most, and no new ones: the calling thread, and threads and processes it starts.
/// To be called while there is no other thread.
///
/// # Errors
/// What the host says.
pub fn keep(numbers: &[u32]) -> io::Result<()> {
    let one = |n: u32| CapabilitySet::from_bits_retain(1 << n);
    let kept = numbers.iter().fold(CapabilitySet::empty(), |all, n| all | one(*n));
    for other in (0..u64::BITS).filter(|n| !numbers.contains(n)) {
        match remove_capability_from_bounding_set(one(other)) {
            // Those that this kernel does not have are none to remove; who may not remove any has none to give away.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let now = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: now.effective & kept,
            permitted: now.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(set_no_new_privs(true)?)
}

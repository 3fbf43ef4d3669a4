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

/// The capabilities that this thread has, by the bits of their numbers.
///
/// # Errors
/// What the host says.
pub fn held() -> io::Result<u64> {
    Ok(capabilities(None)?.permitted.bits())
}

/// Does something as the owner of files with this user and group id, with all rights that this thread has. It is done on a thread
/// of its own: a process whose ids change once lives on when its parent dies, whatever it had asked for.
///
/// # Errors
/// What the host says; then it was not done.
pub fn as_owner<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    let rights = capabilities(None)?;
    let go = move || {
        set_owner(id)?;
        // With root's id the host takes the rights over files away.
        set_capabilities(None, rights)?;
        Ok(act())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, go)?;
        thread.join().map_err(|_| io::Error::other("a thread has ended"))?
    })
}

/// Sets the ids of this thread that files it makes belong to.
fn set_owner(id: u32) -> io::Result<()> {
    // SAFETY: both take an integer, and give the id that was; none is changed to -1.
    let now = unsafe {
        libc::setfsuid(id);
        libc::setfsgid(id);
        [libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)]
    };
    match now.iter().all(|now| now.cast_unsigned() == id) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

//! Filters of sockets (`SO_ATTACH_FILTER`): classic BPF that says how much of each datagram a socket takes.
//!
//! Boundary: here they are attached, shown and run; protocols make the packet that a filter sees where they put a datagram
//! into a queue. A filter only looks at what its own socket would get, so nobody needs a right for one. TCP has no packets
//! within the domain, and netlink answers only its own socket: there filters are kept, and not run.

use crate::objects::vfs::opener;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_algo::bpf::{Insn, Kind, MAX_INSNS, Packet, Program};
use doppel_machine::user::UserPtr;

use super::Common;
use super::consts as c;
use crate::core::random;
use crate::{Errno, Result};

fn check_unlocked(o: &Common) -> Result<()> {
    if o.on(c::SO_LOCK_FILTER) { Err(Errno::EPERM) } else { Ok(()) }
}

/// SO_ATTACH_FILTER, in place of the one there is.
pub fn attach(o: &Common, fprog: &[u8]) -> Result<()> {
    let fprog: &[u8; 16] = fprog.try_into().map_err(|_| Errno::EINVAL)?;
    check_unlocked(o)?;
    let [n0, n1, _, _, _, _, _, _, at @ ..] = *fprog;
    let insns = read_insns(UserPtr(u64::from_le_bytes(at)), u16::from_le_bytes([n0, n1]))?;
    let program = Program::check_socket(insns).ok_or(Errno::EINVAL)?;
    let old = o.filter.lock().replace(Arc::new(program));
    drop(old);
    o.switch(c::SO_ATTACH_FILTER, true);
    Ok(())
}

/// SO_ATTACH_BPF: there are no programs that a descriptor could name (`bpf(2)` is refused).
pub fn attach_descriptor(o: &Common, fd: i32) -> Result<()> {
    check_unlocked(o)?;
    opener().any_file(fd)?;
    Err(Errno::EINVAL)
}

/// SO_DETACH_FILTER.
pub fn detach(o: &Common) -> Result<()> {
    check_unlocked(o)?;
    let old = o.filter.lock().take();
    o.switch(c::SO_ATTACH_FILTER, false);
    old.map(drop).ok_or(Errno::ENOENT)
}

/// SO_GET_FILTER: lengths are counted in instructions, and without room the length alone is told.
pub fn show(o: &Common, to: UserPtr, room: usize) -> Result<usize> {
    let Some(program) = o.filter.lock().clone() else { return Ok(0) };
    let insns = program.insns();
    if room == 0 {
        return Ok(insns.len());
    }
    if room < insns.len() {
        return Err(Errno::EINVAL);
    }
    let bytes: Vec<u8> = insns.iter().flat_map(|i| i.to_bytes()).collect();
    to.write_bytes(&bytes)?;
    Ok(insns.len())
}

/// Whether a socket has a filter.
#[inline]
pub fn is_set(o: &Common) -> bool {
    o.on(c::SO_ATTACH_FILTER)
}

/// How many bytes of a packet, from its socket's part on, the socket takes; `None`: it does not want it.
pub fn judge(o: &Common, bytes: &[u8], start: usize, kind: Kind) -> Option<usize> {
    let Some(program) = o.filter.lock().clone() else { return Some(usize::MAX) };
    let mut dice = [0; 4];
    random::fill(&mut dice);
    let kind = Kind { random: u32::from_ne_bytes(dice), ..kind };
    match program.run(&Packet { bytes, start, kind }) {
        0 => None,
        n => Some(n as usize),
    }
}

/// The instructions of a program, as `struct sock_fprog` has them.
pub fn read_insns(at: UserPtr, len: u16) -> Result<Vec<Insn>> {
    let len = usize::from(len);
    if at.is_null() || len == 0 || len > MAX_INSNS {
        return Err(Errno::EINVAL);
    }
    let mut bytes = alloc::vec![0u8; len * 8];
    at.read_bytes(&mut bytes)?;
    let (chunks, _) = bytes.as_chunks::<8>();
    Ok(chunks.iter().map(|b| Insn::from_bytes(*b)).collect())
}

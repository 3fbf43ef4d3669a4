//! Which calls the helper may make that serves a paene domain's disks (`host/paene`, disks), as data: what moves packets takes, and
//! bytes with a head before them. It has all its descriptors and threads by then. What is not on the list fails with EPERM.

use doppel_abi_linux::syscalls::nr;

use crate::bpf::{Instruction, program};
use crate::packets;

/// Calls with any arguments, beside those of [`packets::ALLOWED`].
pub const ALLOWED: &[u32] = &[nr::READV, nr::WRITEV];

/// The program for seccomp.
#[must_use]
pub fn filter() -> Vec<Instruction> {
    let all: Vec<u32> = packets::ALLOWED.iter().chain(ALLOWED).copied().collect();
    program(&[], &all, &[])
}

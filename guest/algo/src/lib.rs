//! Pure algorithms of the guest kernel, tested on the host: no state of their own, no I/O, no unsafe code.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bpf;
pub mod buddy;
pub mod byte_ranges;
pub mod byte_ring;
pub mod elf;
pub mod elsewhere;
pub mod keys;
pub mod ldisc;
pub mod loadavg;
pub mod nametable;
pub mod net;
pub mod newest;
pub mod park;
pub mod rangemap;
pub mod record_locks;
pub mod vdso_elf;
pub mod x86;
pub mod zeros;

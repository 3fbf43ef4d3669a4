//! The machine layer of the guest kernel: the one guest crate with unsafe code (docs/design.md §10).
//!
//! It turns what the host offers (pages, vCPUs, futexes, a doorbell) into safe parts a kernel is written
//! with: locks, user-memory copies, tasks and context switches, the clock, the page file, the root image,
//! console rings. `guest/kernel` above it is `forbid(unsafe_code)`.
#![no_std]

extern crate alloc;

pub mod backtrace;
pub mod boot;
pub mod clock;
pub mod cpu;
pub mod host;
mod memory;
pub mod meter;
mod position;
mod rings;
pub mod slots;
pub mod sync;
pub mod task;
pub mod trap;
pub mod vdso;
pub mod wakes;
mod xframe;
pub mod xstate;

pub use memory::{arena, frozen, pagefile, shield, swap, user};
pub use rings::{channel, console, network, session, storage};

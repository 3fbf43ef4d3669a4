//! The Linux ABI as contracts: numbers, flags and layouts only, no behaviour (docs/design.md §10).
//!
//! One module per family, named like the header or man page they come from. Layouts that programs share with
//! us are `#[repr(C)]` and pinned by size asserts.
#![no_std]
#![forbid(unsafe_code)]

pub mod errno;
pub mod signal;
pub mod syscalls;
pub mod termios;
pub mod time;

//! Doppel: abi/linux.
#![no_std]
#![forbid(unsafe_code)]

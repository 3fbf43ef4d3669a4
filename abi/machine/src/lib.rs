//! Doppel: abi/machine.
#![no_std]
#![forbid(unsafe_code)]

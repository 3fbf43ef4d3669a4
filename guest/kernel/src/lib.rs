//! Doppel: guest/kernel.
#![no_std]
#![forbid(unsafe_code)]

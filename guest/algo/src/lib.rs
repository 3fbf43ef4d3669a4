//! Doppel: guest/algo.
#![no_std]
#![forbid(unsafe_code)]

//! Doppel: abi/image.
#![no_std]
#![forbid(unsafe_code)]

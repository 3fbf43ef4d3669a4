//! Doppel: guest/machine.
#![no_std]

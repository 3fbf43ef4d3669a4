//! Arbitrary bytes as what keeper and supervisor say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doppel_supervisor::keeper::fuzz::lines(bytes));

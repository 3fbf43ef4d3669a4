//! A domain that writes what it likes to its control area, while the host moves its console and a session.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doppel_domain::fuzz::control_area(bytes));

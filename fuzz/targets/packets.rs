//! Packets of a paene domain's kernel, and a channel that somebody writes to: whoever moves packets between them goes on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| doppel_paene::fuzz_packets(bytes));

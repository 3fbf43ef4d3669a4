//! Arbitrary bytes as an image: every reader function must return.
#![no_main]

#[path = "../../common/erofs/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    common::exercise(bytes);
});

//! Arbitrary bytes as a frozen image, as an export of one, and as its working set.
#![no_main]

#[path = "../../host/freezer/tests/common/mod.rs"]
mod common;

use std::sync::LazyLock;

static STORE: LazyLock<common::TempStore> = LazyLock::new(common::TempStore::new);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    STORE.exercise(bytes);
    // Most inputs are far from an image: lay them over one too.
    for mut image in [common::sound_image(), common::sound_child()] {
        for (place, byte) in image.iter_mut().zip(bytes) {
            *place ^= byte;
        }
        STORE.exercise(&image);
    }
    // And an ancestor that is not the one.
    let mut ancestor = common::sound_image();
    for (place, byte) in ancestor.iter_mut().zip(bytes) {
        *place ^= byte;
    }
    STORE.exercise_beside(&common::sound_child(), &ancestor);
});

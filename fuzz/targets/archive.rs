//! Arbitrary bytes as an archive out of a domain, as they are and with right checksums: nothing outside changes.
#![no_main]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use doppel_domain::archive::{Limits, unpack};

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// Makes the checksum of every block right that could be a header.
fn forge(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(BLOCK).filter(|b| b.iter().any(|byte| *byte != 0)) {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fn exercise(bytes: &[u8]) {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let (inside, victim) = (place.path().join("in"), place.path().join("victim"));
    fs::create_dir(&inside).expect("room");
    fs::write(&victim, "untouched").expect("room");
    let top = (bytes.first().copied().unwrap_or(0) & 1 == 0).then(|| OsStr::new("top"));
    let _ = unpack(bytes, &inside, top, Limits { entries: 64, bytes: 1 << 16 });
    assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
    let beside = fs::read_dir(place.path()).expect("a directory").count();
    assert_eq!(beside, 2, "something is outside");
    let mode = fs::metadata(&victim).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7000, 0);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise(bytes);
    let mut forged = bytes.to_vec();
    forge(&mut forged);
    exercise(&forged);
});

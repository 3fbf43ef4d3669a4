//! Damaged images give errors: bytes flipped, fields set to extreme values, ends cut off.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;
use std::sync::LazyLock;

mod common;

/// Small, fixed-seed generator (xorshift64*): the same mutations in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Images of a small tree in every layout, made by erofs-utils.
fn images() -> &'static [Vec<u8>] {
    static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(make_images);
    &IMAGES
}

fn make_images() -> Vec<Vec<u8>> {
    let temp = std::env::temp_dir().join(format!("doppel-erofs-mutate-{}", std::process::id()));
    let root = temp.join("root");
    fs::create_dir_all(root.join("dir/deeper")).unwrap();
    fs::write(root.join("file100"), [1; 100]).unwrap();
    fs::write(root.join("dir/file9000"), [2; 9000]).unwrap();
    for i in 0..150 {
        fs::write(root.join(format!("dir/deeper/a-name-that-takes-some-room-{i}")), [3; 10]).unwrap();
    }
    std::os::unix::fs::symlink("file100", root.join("link")).unwrap();
    let layouts: [&[&str]; 4] = [
        &["-Enoinline_data"],
        &[],
        &["-Eforce-inode-extended"],
        &["--chunksize=4096", "-Eforce-chunk-indexes"],
    ];
    let made = layouts
        .iter()
        .map(|options| {
            let image = temp.join("image");
            let out = Command::new("mkfs.erofs").args(*options).arg(&image).arg(&root).output();
            assert!(out.expect("mkfs.erofs is needed: `make setup` installs it").status.success());
            let mut bytes = fs::read(&image).unwrap();
            // Without this flag the checksum is not looked at, and damage gets past the superblock.
            bytes[1024 + 8] &= !1;
            bytes
        })
        .collect();
    fs::remove_dir_all(&temp).unwrap();
    made
}

#[test]
fn damage_never_panics() {
    let mut rng = Rng(0x00D0_99E1);
    let extremes = [0u64, 1, 0x7f, 0xff, 0xfff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, u64::MAX / 2];
    for image in images() {
        assert!(common::exercise(image) > 100);
        // The first blocks hold the superblock, the inodes and the directories.
        let interesting = image.len().min(24 << 10);
        for _ in 0..3000 {
            let mut bytes = image.clone();
            for _ in 0..=rng.below(4) {
                let at = 1024 + rng.below(interesting - 1024 - 8);
                if rng.below(2) == 0 {
                    bytes[at] ^= 1 << rng.below(8);
                } else {
                    let width = 1 << rng.below(4);
                    let value = extremes[rng.below(extremes.len())].to_le_bytes();
                    bytes[at..at + width].copy_from_slice(&value[..width]);
                }
            }
            common::exercise(&bytes);
        }
        for _ in 0..300 {
            common::exercise(&image[..rng.below(image.len())]);
        }
    }
}

#[test]
fn every_header_byte_can_be_any_value() {
    let image = &images()[0];
    for at in (1024..1024 + 128).chain(1152..1152 + 256) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = image.clone();
            bytes[at] = value;
            common::exercise(&bytes);
        }
    }
}

#[test]
fn nothing_is_an_image() {
    assert_eq!(common::exercise(&[]), 0);
    assert_eq!(common::exercise(&[0; 1024]), 0);
    assert_eq!(common::exercise(&[0xff; 8192]), 0);
}

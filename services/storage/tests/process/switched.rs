//! A disk gets another topmost layer while its domain has it, and while the service is killed.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use doppel_disk::{BLOCK, DATA_AT, File as _, Header};
use doppel_storage::{DiskFiles, Volume};

use crate::Fixture;
use crate::guest::Guest;

const SIZE: u64 = 1 << 20;

/// A layer with this number.
fn layer(dir: &Path, number: u8) -> PathBuf {
    let path = dir.join(number.to_string());
    let below = (number > 0).then_some([number; 16]);
    let header =
        Header { id: [number + 1; 16], below, size: SIZE, visible: if below.is_some() { SIZE } else { 0 } };
    let file = File::create_new(&path).unwrap();
    file.write(0, &header.encode()).unwrap();
    file.set_len(DATA_AT + SIZE).unwrap();
    path
}

/// A disk with this one as its topmost.
fn files(dir: &Path, top: u8) -> DiskFiles {
    let mut open = File::options();
    open.read(true).write(true);
    let layers = (0..=top).rev().map(|n| open.open(dir.join(n.to_string())).unwrap()).collect();
    let live = dir.join(format!("{top}.live"));
    let live = open.create(true).truncate(false).open(live).unwrap();
    DiskFiles { layers, live: Some(live), lock: File::open(dir).unwrap() }
}

/// What is in a layer's file at a block, whatever its map says.
fn at(dir: &Path, number: u8, block: u64) -> u8 {
    let mut byte = [0];
    File::open(dir.join(number.to_string())).unwrap().read(DATA_AT + block * BLOCK, &mut byte).unwrap();
    byte[0]
}

/// What was written before stays where it is, what is written later is above it, and the domain sees both.
pub fn nothing_below_changes() {
    let fixture = Fixture::new();
    let dir = fixture.dir.path();
    let first = layer(dir, 0);
    let volume = Volume { disk: Some(files(dir, 0)), ..Volume::open(&first, false).unwrap() };
    let attachment = fixture.manager.attach(vec![volume]).unwrap();
    let mut guest = Guest::new(attachment.memory.as_fd(), attachment.doorbell.as_fd());
    for n in 1..=20_u8 {
        guest.write(0, 0, &[n; BLOCK as usize]).unwrap();
        guest.write(0, u64::from(n) * BLOCK, &[n; BLOCK as usize]).unwrap();
        layer(dir, n);
        files(dir, n - 1).open(false).unwrap().flush().unwrap();
        // Before, after, or just as it switches.
        if n % 4 == 1 {
            fixture.kill();
        }
        std::thread::scope(|scope| {
            let kill = || (n % 4 == 2).then(|| fixture.kill());
            std::thread::Builder::new().spawn_scoped(scope, kill).unwrap();
            attachment.switch_disk(0, files(dir, n)).unwrap();
        });
        if n % 4 == 3 {
            fixture.kill();
        }
        for block in 0..=n {
            let expected = if block == 0 { n } else { block };
            let read = guest.read(0, u64::from(block) * BLOCK, BLOCK).unwrap();
            assert!(read.iter().all(|byte| *byte == expected), "block {block} in round {n}: {}", read[0]);
        }
        guest.write(0, 0, &[100 + n; BLOCK as usize]).unwrap();
        assert_eq!((at(dir, n - 1, 0), at(dir, n, 0)), (n, 100 + n));
    }
    assert!(attachment.switch_disk(1, files(dir, 20)).is_err(), "it has no such disk");
    drop(attachment);
    fs::remove_file(first).unwrap();
}

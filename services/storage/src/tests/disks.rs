//! Disks: their bytes, and nothing else of their files.

use std::fs::File;
use std::path::{Path, PathBuf};

use doppel_abi_service::storage::{BUFFER, Changes, Operation, Request, flags, set};
use doppel_disk::{BLOCK, DATA_AT, File as _, Header};
use rustix::io::Errno;

use super::Bench;
use crate::{DiskFiles, Volume};

const SIZE: u64 = 1 << 20;
const PUNCH: u32 = 3;

fn number(errno: Errno) -> u16 {
    u16::try_from(errno.raw_os_error()).unwrap()
}

/// A layer in a file of this name.
fn layer(dir: &Path, name: &str, id: u8, below: Option<u8>) -> PathBuf {
    let (path, visible) = (dir.join(name), if below.is_some() { SIZE } else { 0 });
    let file = File::create_new(&path).unwrap();
    let header = Header { id: [id; 16], below: below.map(|id| [id; 16]), size: SIZE, visible };
    file.write(0, &header.encode()).unwrap();
    file.set_len(DATA_AT + SIZE).unwrap();
    path
}

/// A disk of these layers, the topmost first.
fn disk(paths: &[PathBuf], read_only: bool) -> Volume {
    let open = |path| File::options().read(true).write(!read_only).open(path).unwrap();
    let live = (!read_only).then(|| {
        File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(paths[0].with_extension("live"))
    });
    let lock = File::open(&paths[0]).unwrap();
    let files = DiskFiles { layers: paths.iter().map(open).collect(), live: live.transpose().unwrap(), lock };
    Volume { disk: Some(files), ..Volume::open(&paths[0], read_only).unwrap() }
}

/// A volume, a disk of two layers, and the lower one of these alone, read-only.
fn bench() -> Bench {
    Bench::with(|root| {
        let dir = root.parent().unwrap();
        let lower = layer(dir, "lower", 1, None);
        let file = File::options().read(true).write(true).open(&lower).unwrap();
        file.write(doppel_disk::MAP_AT, &[1]).unwrap();
        file.write(DATA_AT, &[7; BLOCK as usize]).unwrap();
        let top = layer(dir, "top", 2, Some(1));
        vec![Volume::open(root, false).unwrap(), disk(&[top, lower.clone()], false), disk(&[lower], true)]
    })
}

#[test]
fn a_disk_is_its_bytes() {
    let mut b = bench();
    assert_eq!(b.guest.attributes(1).unwrap().size, SIZE);
    assert_eq!(b.guest.read(1, 4000, 200).unwrap(), [[7; 96].as_slice(), &[0; 104]].concat());
    let data: Vec<u8> = (0..BUFFER).map(|i| ((i / 100) as u8).wrapping_add(1)).collect();
    assert_eq!(b.guest.write(1, 1000, &data), Ok(BUFFER as u64));
    assert_eq!(b.guest.read(1, 1000, BUFFER as u64).unwrap(), data);
    assert_eq!(b.guest.read(1, 0, 1000).unwrap(), [7; 1000]);
    b.guest.sync(1, flags::DATA).unwrap();
    b.guest.allocate(1, PUNCH, 500, 10_000).unwrap();
    assert_eq!(
        b.guest.read(1, 0, 20_000).unwrap(),
        [&[7; 500][..], &[0; 10_000], &data[9500..19_000]].concat()
    );
    // Of the layer below nothing has changed.
    assert_eq!(b.guest.read(2, 0, 5000).unwrap(), [[7; 4096].as_slice(), &[0; 904]].concat());
    // The end is the end.
    assert_eq!(b.guest.read(1, SIZE - 3, 10).unwrap(), [0; 3]);
    assert_eq!(b.guest.read(1, u64::MAX, 10).unwrap(), b"");
    for at in [SIZE - 1, SIZE, u64::MAX] {
        assert_eq!(b.guest.write(1, at, b"xy"), Err(number(Errno::INVAL)), "{at}");
        assert_eq!(b.guest.allocate(1, PUNCH, at, 2), Err(number(Errno::INVAL)), "{at}");
    }
}

#[test]
fn nothing_else_is_done_to_a_disk() {
    let mut b = bench();
    let dir = b.guest.make(0, "dir", 0o040_755).unwrap();
    let refused = number(Errno::PERM);
    assert_eq!(b.guest.append(1, b"x"), Err(refused));
    assert_eq!(b.guest.truncate(1, 0), Err(refused));
    assert_eq!(b.guest.change(1, set::MODE, Changes { mode: 0o777, ..Changes::default() }), Err(refused));
    assert_eq!(b.guest.link(1, dir, "linked"), Err(refused));
    assert_eq!(b.guest.make(1, "made", 0o100_644), Err(refused));
    assert_eq!(b.guest.set_xattr(1, "user.x", b"1", 0), Err(refused));
    for operation in [Operation::ReadDir, Operation::StatFs, Operation::ReadLink, Operation::Seek] {
        assert_eq!(b.guest.call(Request::new(operation, 1)).unwrap_err(), refused, "{operation:?}");
    }
    for mode in [0, 1, 8, 16, 32] {
        assert_eq!(b.guest.allocate(1, mode, 0, 4096), Err(number(Errno::OPNOTSUPP)), "{mode}");
    }
    assert!(b.guest.rename(0, "dir", 1, "moved", 0).is_err());
    let read_only = number(Errno::ROFS);
    assert_eq!(b.guest.write(2, 0, b"x"), Err(read_only));
    assert_eq!(b.guest.allocate(2, PUNCH, 0, 4096), Err(read_only));
    let lower = b.root.with_file_name("lower");
    assert_eq!(std::fs::metadata(lower).unwrap().len(), DATA_AT + SIZE);
    assert_eq!(b.guest.list(0).unwrap(), ["dir"]);
}

//! Disks of a store: their lives, who has them, snapshots, clones, other sizes.

use std::fs::{self, File};
use std::path::Path;

use doppel_disk::{BLOCK, File as _, MOST_BYTES, MOST_LAYERS, Stack};
use doppel_disks::{Disk, DiskStore, Error};

fn store() -> (tempfile::TempDir, DiskStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::of(dir.path());
    (dir, store)
}

/// The disk as a storage service opens it.
fn open(store: &DiskStore, name: &str, read_only: bool) -> Stack<File> {
    let held = store.hold(&store.get(name).unwrap(), read_only).unwrap();
    held.volume().unwrap().disk.unwrap().open(read_only).unwrap()
}

fn write(disk: &Stack<File>, block: u64, byte: u8) {
    let done =
        disk.write(block * BLOCK, BLOCK as usize, |file, at, n| file.write(at, &vec![byte; n]).map(|()| n));
    assert_eq!(done.unwrap(), BLOCK as usize);
}

/// The first byte of each block.
fn blocks(store: &DiskStore, name: &str) -> Vec<u8> {
    let disk = open(store, name, true);
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_to(0, &mut bytes).unwrap();
    bytes.chunks(BLOCK as usize).map(|block| block[0]).collect()
}

fn layers(dir: &Path) -> usize {
    fs::read_dir(dir.join("disks/.layers")).unwrap().count()
}

/// A disk as what a file system is read from.
struct Source(Stack<File>);

impl doppel_layer::Source for Source {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<usize, doppel_layer::Error> {
        self.0.read_to(at, bytes).map(|()| bytes.len()).map_err(|_| doppel_layer::Error::Io)
    }
}

#[test]
fn a_formatted_one_has_an_empty_file_system() {
    let (_dir, store) = store();
    assert!(matches!(store.create_formatted("small", (1 << 20) - BLOCK), Err(Error::Wrong(_))));
    assert!(matches!(store.get("small"), Err(Error::NotFound(_))));
    let disk = store.create_formatted("fs", 1 << 20).unwrap();
    assert!(!disk.dir.join("live").exists(), "it is on the disk");
    let clone = store.clone_of("fs", "clone").unwrap();
    for name in [disk.name, clone.name] {
        let mut source = Source(open(&store, &name, true));
        let loaded = doppel_layer::disk::load(&mut source, (1 << 20) / BLOCK, 1 << 20).unwrap();
        assert_eq!(loaded.tree.files.keys().collect::<Vec<_>>(), [&doppel_layer::disk::ROOT]);
    }
    store.create("none", 1 << 20).unwrap();
    let none = doppel_layer::disk::load(&mut Source(open(&store, "none", true)), 256, 1 << 20);
    assert_eq!(none.map(drop), Err(doppel_layer::Error::NotLayer));
}

#[test]
fn they_are_made_once_of_a_size_and_removed() {
    let (_dir, store) = store();
    assert!(store.list().unwrap().is_empty());
    let made = store.create("db", 1 << 30).unwrap();
    assert_eq!((made.size, made.layers, made.snapshot), (1 << 30, 1, false));
    assert!(made.used < 1 << 20);
    assert!(matches!(store.create("db", BLOCK), Err(Error::Exists(_))));
    for (name, size) in [("../x", BLOCK), ("aa", 0), ("aa", BLOCK + 1), ("aa", MOST_BYTES + BLOCK)] {
        assert!(matches!(store.create(name, size), Err(Error::Wrong(_))), "{name} {size}");
    }
    assert_eq!(store.list().unwrap(), std::slice::from_ref(&made));
    store.remove("db").unwrap();
    assert!(!made.dir.exists() && matches!(store.remove("db"), Err(Error::NotFound(_))));
}

#[test]
fn who_writes_is_alone_and_who_reads_is_not() {
    let (_dir, store) = store();
    let disk = store.create("db", BLOCK).unwrap();
    let readers = [store.hold(&disk, true).unwrap(), store.hold(&disk, true).unwrap()];
    let in_use = |done: Result<Disk, Error>| matches!(done, Err(Error::InUse(_)));
    assert!(matches!(store.hold(&disk, false), Err(Error::InUse(_))));
    assert!(matches!(store.remove("db"), Err(Error::InUse(_))) && disk.is_in_use());
    assert!(in_use(store.resize("db", 2 * BLOCK)) && !disk.is_written());
    // Who only reads does not notice that.
    store.snapshot("db", "s1").unwrap();
    store.clone_of("db", "c1").unwrap();
    drop(readers);
    let writer = store.hold(&disk, false).unwrap();
    assert!(matches!(store.hold(&disk, true), Err(Error::InUse(_))));
    assert!(in_use(store.snapshot("db", "s2")) && in_use(store.clone_of("db", "c2")) && disk.is_written());
    drop(writer);
    for name in ["db", "s1", "c1"] {
        store.remove(name).unwrap();
    }
}

#[test]
fn snapshots_and_clones_are_what_a_disk_was() {
    let (dir, store) = store();
    store.create("db", 4 * BLOCK).unwrap();
    let disk = open(&store, "db", false);
    write(&disk, 0, 1);
    write(&disk, 1, 1);
    drop(disk);
    // What was not flushed is in them all the same.
    store.snapshot("db", "s1").unwrap();
    let disk = open(&store, "db", false);
    write(&disk, 1, 2);
    disk.zero(0, BLOCK).unwrap();
    drop(disk);
    store.clone_of("db", "c1").unwrap();
    write(&open(&store, "c1", false), 3, 3);
    store.clone_of("s1", "c2").unwrap();
    write(&open(&store, "db", false), 2, 4);
    for (name, is) in [("db", [0, 2, 4, 0]), ("s1", [1, 1, 0, 0]), ("c1", [0, 2, 0, 3]), ("c2", [1, 1, 0, 0])]
    {
        assert_eq!(blocks(&store, name), is, "{name}");
    }
    let snapshot = store.get("s1").unwrap();
    assert!(matches!(store.hold(&snapshot, false), Err(Error::Snapshot(_))));
    assert!(matches!(store.resize("s1", BLOCK), Err(Error::Snapshot(_))));
    // Layers stay as long as somebody needs them.
    store.remove("s1").unwrap();
    store.remove("db").unwrap();
    assert_eq!((blocks(&store, "c1"), blocks(&store, "c2")), (vec![0, 2, 0, 3], vec![1, 1, 0, 0]));
    assert_eq!(store.flatten("c1").unwrap().layers, 1);
    store.remove("c2").unwrap();
    assert_eq!(blocks(&store, "c1"), [0, 2, 0, 3]);
    assert_eq!(layers(dir.path()), 1);
}

#[test]
fn another_size_shows_nothing_that_was_cut_off() {
    let (_dir, store) = store();
    store.create("db", 4 * BLOCK).unwrap();
    let disk = open(&store, "db", false);
    (0..4).for_each(|block| write(&disk, block, 1));
    drop(disk);
    store.snapshot("db", "s1").unwrap();
    write(&open(&store, "db", false), 3, 2);
    assert_eq!(store.resize("db", 2 * BLOCK).unwrap().size, 2 * BLOCK);
    assert_eq!(blocks(&store, "db"), [1, 1]);
    store.resize("db", 5 * BLOCK).unwrap();
    assert_eq!(blocks(&store, "db"), [1, 1, 0, 0, 0]);
    assert_eq!(blocks(&store, "s1"), [1, 1, 1, 1]);
    write(&open(&store, "db", false), 4, 5);
    assert_eq!(blocks(&store, "db"), [1, 1, 0, 0, 5]);
}

#[test]
fn without_its_live_map_a_disk_is_what_was_flushed() {
    let (dir, store) = store();
    store.create("db", 2 * BLOCK).unwrap();
    let disk = open(&store, "db", false);
    write(&disk, 0, 1);
    disk.flush().unwrap();
    write(&disk, 1, 1);
    drop(disk);
    assert_eq!(blocks(&store, "db"), [1, 1]);
    // As after a reboot: it is another boot's.
    fs::write(dir.path().join("disks/db/live"), b"of another boot").unwrap();
    assert_eq!(blocks(&store, "db"), [1, 0]);
    write(&open(&store, "db", false), 1, 2);
    assert_eq!(blocks(&store, "db"), [1, 2]);
}

#[test]
fn there_is_a_most_of_layers() {
    let (_dir, store) = store();
    store.create("db", BLOCK).unwrap();
    for n in 1..MOST_LAYERS {
        store.snapshot("db", &format!("s{n}")).unwrap();
    }
    write(&open(&store, "db", false), 0, 7);
    let refused = store.snapshot("db", "one-more").unwrap_err().to_string();
    assert!(refused.contains("flatten"), "{refused}");
    store.flatten("db").unwrap();
    store.snapshot("db", "one-more").unwrap();
    assert_eq!((blocks(&store, "one-more"), blocks(&store, "s1")), (vec![7], vec![0]));
}

#[test]
fn what_was_not_finished_goes() {
    let (dir, store) = store();
    store.create("kept", BLOCK).unwrap();
    fs::create_dir_all(dir.path().join("disks/.gone-1/x")).unwrap();
    fs::create_dir_all(dir.path().join("disks/.new-1")).unwrap();
    // What was kept, and was just being removed.
    fs::create_dir_all(dir.path().join("disks/.kept-1")).unwrap();
    fs::write(dir.path().join("disks/.layers/nobodys"), b"").unwrap();
    store.sweep().unwrap();
    for name in [".gone-1", ".new-1", ".kept-1"] {
        assert!(!dir.path().join("disks").join(name).exists(), "{name}");
    }
    assert_eq!((store.list().unwrap().len(), layers(dir.path())), (1, 1));
}

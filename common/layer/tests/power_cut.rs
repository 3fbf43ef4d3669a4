//! The power-cut oracle: whatever part of the unsynced writes reached the disk, the layer is what it was after some commit, and none
//! that was synced is lost.

mod common;

use common::{Disk, File, Random, contents};
use doppel_layer::{
    Attributes, BLOCK, Loaded, Pages, Record, Store, Superblock, Transaction, Tree, Writer, load,
};

fn read(disk: &[u8]) -> Loaded {
    load(&mut File(disk)).unwrap()
}

fn fresh() -> Disk {
    let superblock = Superblock::new([1; 32], 77);
    let mut disk = Disk::default();
    disk.write(superblock.block() * BLOCK, &superblock.encode()).unwrap();
    disk.sync().unwrap();
    disk
}

/// Random records of a commit, and the pages it writes.
fn change(random: &mut Random) -> (Transaction, Vec<Pages>) {
    let (mut t, mut pages) = (Transaction::new(), Vec::new());
    for _ in 0..=random.below(4) {
        let ino = 10 + random.below(6);
        match random.below(6) {
            0 => t.add(&Record::Gone { ino }),
            1 => t.add(&Record::Entry { dir: 1, name: &[b'a' + (ino as u8)], ino, cookie: random.below(99) }),
            2 => t.add(&Record::Hole { ino, page: random.below(8), pages: random.below(8) }),
            _ => {
                let attributes =
                    Attributes { mode: 0o100_644, mtime: random.below(1000) as i64, ..Attributes::default() };
                t.add(&Record::Inode { ino, attributes });
                t.add(&Record::Size { ino, size: random.below(100_000) });
                pages.push(Pages { ino, page: random.below(20), pages: random.below(80) + 1 });
            }
        }
    }
    (t, pages)
}

/// Small transactions in a row, each of which is synced, and a cut within each.
fn small_ones(writer: &mut Writer, disk: &mut Disk, random: &mut Random) {
    for n in 0..40 {
        let mut t = Transaction::new();
        t.add(&Record::Inode {
            ino: 10,
            attributes: Attributes { mode: 0o100_644, ..Attributes::default() },
        });
        t.add(&Record::Size { ino: 10, size: BLOCK * 20 });
        let pages = [Pages { ino: 10, page: random.below(8), pages: random.below(6) + 1 }];
        let before = (writer.tree().clone(), contents(&disk.synced, writer.tree()));
        writer.commit_synced(disk, t, &pages, |_, page, room| room.fill(n ^ page as u8)).unwrap();
        let after = (writer.tree().clone(), contents(&disk.now(), writer.tree()));
        let found = disk.after_a_cut(random);
        let tree = read(&found).tree;
        let now = (tree.clone(), contents(&found, &tree));
        assert!(now == after && before != after, "what was synced is there");
    }
    assert!(disk.now().len() as u64 > writer.len(), "there is room behind the end");
}

/// What a tree says, however it came to that: runs of blocks that are beside each other may be in pieces.
fn state(tree: &Tree, disk: &[u8]) -> (Tree, Vec<(u64, Vec<u8>)>) {
    let mut whole = Tree::default();
    whole.apply_all(tree.checkpoint().records(), |_, _| ()).unwrap();
    (whole, contents(disk, tree))
}

fn run(seed: u64, steps: u64) -> u64 {
    let random = &mut Random(seed);
    let mut disk = fresh();
    let loaded = read(&disk.synced);
    let mut writer = Writer::open(loaded, &mut disk).unwrap();
    // The states that may be found after a power cut: the last synced one, and those after it.
    let mut states = vec![(Tree::default(), Vec::new())];
    for step in 0..steps {
        match random.below(8) {
            0 => {
                writer.sync(&mut disk).unwrap();
                states.drain(..states.len() - 1);
            }
            1 if step % 50 == 0 => {
                writer.close(&mut disk).unwrap();
                states.drain(..states.len() - 1);
            }
            3 if step % 10 == 0 => {
                writer.sync(&mut disk).unwrap();
                small_ones(&mut writer, &mut disk, random);
                states = vec![state(writer.tree(), &disk.now())];
            }
            2 if step % 30 == 0 => {
                // The power goes, and comes back.
                let found = disk.after_a_cut(random);
                disk = Disk { synced: found, ..Disk::default() };
                let loaded = read(&disk.synced);
                writer = Writer::open(loaded, &mut disk).unwrap();
                let now = state(writer.tree(), &disk.synced);
                assert!(states.contains(&now), "seed {seed}, step {step}");
                states = vec![now];
            }
            _ => {
                let (t, pages) = change(random);
                let fill = random.below(255) as u8 + 1;
                let read = |_, page: u64, room: &mut [u8]| room.fill(fill ^ page as u8);
                let synced = fill.is_multiple_of(8);
                match synced {
                    true => writer.commit_synced(&mut disk, t, &pages, read).unwrap(),
                    false => writer.commit(&mut disk, t, &pages, read).unwrap(),
                };
                states.push(state(writer.tree(), &disk.now()));
                if synced {
                    states.drain(..states.len() - 1);
                    assert!(writer.is_durable());
                }
            }
        }
        let found = disk.after_a_cut(random);
        let loaded = read(&found);
        let now = state(&loaded.tree, &found);
        assert!(states.contains(&now), "seed {seed}, step {step}: a state that never was");
        let whole = disk.now();
        assert_eq!(
            state(&read(&whole).tree, &whole),
            state(writer.tree(), &whole),
            "seed {seed}, step {step}"
        );
    }
    disk.punched
}

#[test]
fn every_cut_leaves_a_state_that_was() {
    let runs = std::env::var("DOPPEL_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let punched: u64 = (0..runs).map(|seed| run(seed, 120)).sum();
    assert!(punched > 0, "no block was ever given back");
}

#[test]
fn a_full_disk_changes_nothing() {
    struct Full(Disk, bool);
    impl Store for Full {
        type Error = ();
        fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), ()> {
            if self.1 { Err(()) } else { self.0.write(at, bytes) }
        }
        fn sync(&mut self) -> Result<(), ()> {
            self.0.sync()
        }
        fn punch(&mut self, at: u64, len: u64) {
            self.0.punch(at, len);
        }
    }
    let random = &mut Random(5);
    let mut disk = Full(fresh(), false);
    let loaded = read(&disk.0.synced);
    let mut writer = Writer::open(loaded, &mut disk).unwrap();
    let mut commit = |disk: &mut Full| {
        let (t, pages) = change(random);
        writer.commit(disk, t, &pages, |_, _, room| room.fill(1)).map(|_| writer.tree().clone())
    };
    let before = (0..5).map(|_| commit(&mut disk).unwrap()).last().unwrap();
    disk.1 = true;
    assert!(commit(&mut disk).is_err());
    assert_eq!(read(&disk.0.now()).tree, before);
    disk.1 = false;
    let after = commit(&mut disk).unwrap();
    assert_eq!(read(&disk.0.now()).tree, after);
}

#[test]
fn checkpoints_keep_a_busy_layer_small() {
    let mut disk = fresh();
    let loaded = read(&disk.synced);
    let mut writer = Writer::open(loaded, &mut disk).unwrap();
    for i in 0..1500u64 {
        let mut t = Transaction::new();
        t.add(&Record::Size { ino: 5, size: 4 * BLOCK });
        let page = Pages { ino: 5, page: i % 4, pages: 1 };
        writer.commit(&mut disk, t, &[page], |_, _, room| room.fill(i as u8)).unwrap();
        writer.sync(&mut disk).unwrap();
    }
    writer.close(&mut disk).unwrap();
    disk.sync().unwrap();
    let used = disk.synced.chunks(BLOCK as usize).filter(|b| b.iter().any(|b| *b != 0)).count();
    assert!(used < 16, "{used} blocks are in use for four");
    let loaded = read(&disk.synced);
    assert_eq!(loaded.heads.len(), 1);
    let found = contents(&disk.synced, &loaded.tree);
    let want: Vec<u8> = (0..4).flat_map(|i| vec![(1496 + i) as u8; BLOCK as usize]).collect();
    assert_eq!(found, [(5, want)]);
}

//! Hostile images are told from sound ones.
use super::*;
use crate::tree::{Content, Data, Limits, Meta, Tree};

fn image() -> Vec<u8> {
    let mut tree = Tree::new(Limits::default());
    for i in 0..40 {
        let path = format!("dir{}/file{i}", i % 3);
        tree.insert(path.as_bytes(), Meta::default(), Content::File(Data::Bytes(vec![1; i * 100]))).unwrap();
    }
    let program = Content::File(Data::Bytes(crate::patch::tests::sample()));
    tree.insert(b"program", Meta::default(), program).unwrap();
    tree.link(b"hard", b"dir0/file0").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    crate::write(&tree, None, file.as_file(), file.path(), true, &crate::Watcher::default()).unwrap();
    let mut bytes = std::fs::read(file.path()).unwrap();
    // No checksum, so that damage gets past the superblock.
    bytes[1024 + 8] &= !1;
    bytes
}

/// Where the inode of `path` is in the image.
fn inode_at(image: &[u8], path: &[&[u8]]) -> usize {
    let fs = Erofs::open(image).unwrap();
    let mut nid = fs.root_nid();
    for name in path {
        nid = fs.lookup(&fs.inode(nid).unwrap(), name).unwrap().unwrap().0;
    }
    nid as usize * 32
}

#[test]
fn sound() {
    let found = verify(&image()).unwrap();
    assert_eq!((found.counts.files, found.counts.directories, found.names), (41, 4, 45));
}

#[test]
fn damaged_patches() {
    let good = image();
    let end = blocks_end(&good) as usize;
    // Two pages of text, one of trampolines, the table, the footer.
    assert_eq!(good.len() - end, 5 * 4096);
    let text = end + 4096;
    let table = end + 3 * 4096;
    let damage = |at: usize, want: &str| {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        let error = verify(&bad).unwrap_err();
        assert!(error.contains(want), "{error}");
    };
    damage(text + 100, "differs");
    damage(end + 2 * 4096, "trampoline 0");
    damage(table, "node");
    damage(table + 16, "numbers out of range");
    damage(table + 28, "outside");
    damage(table + 60, "counts");
    damage(good.len() - 4096, "no patch section");
    let mut longer = good.clone();
    longer.extend([0; 4096]);
    assert!(verify(&longer).is_err());
    longer.truncate(end);
    verify(&longer).expect("an image without a section is sound");
}

#[test]
fn named_damage() {
    let good = image();
    let dir = inode_at(&good, &[b"dir0"]);
    let other = inode_at(&good, &[b"dir1"]);
    let file = inode_at(&good, &[b"dir0", b"file3"]);
    let say = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        verify(&bytes).unwrap_err()
    };
    assert!(say(&|b| b[file + 44] = 9).contains("link count"));
    assert!(say(&|b| b[file + 17] = 0xff).contains("outside the image"));
    assert!(say(&|b| b[file] = 0x3).contains("compressed"));
    assert!(say(&|b| b[file + 5] = 0x10).contains("another kind"));
    // dir1's first entry (`.`) made to be dir0: a directory that is not itself.
    let at = other + 64;
    let nid = ((dir / 32) as u64).to_le_bytes();
    assert!(say(&|b| b[at..at + 8].copy_from_slice(&nid)).contains("`.`"));
    // The root's entry of dir1 made to name dir0 as well: a directory with two names.
    let root = inode_at(&good, &[]);
    let entry =
        (0..).map(|i| root + 64 + i * 12).find(|e| good[*e..*e + 8] == ((other / 32) as u64).to_le_bytes());
    let entry = entry.unwrap();
    assert!(say(&|b| b[entry..entry + 8].copy_from_slice(&nid)).contains("two names"));
}

#[test]
fn mutations_never_panic() {
    let good = image();
    for at in (1024..good.len().min(12 << 10)).step_by(3) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = verify(&bytes);
        }
    }
}

#[test]
fn what_is_mounted_has_nothing_unchecked() {
    let good = image();
    check_for_mount(&good).expect("our own writer's");
    // Of the superblock: extension slots, algorithms, further devices and their table, prefixes, fragments, reserved.
    for at in [13, 84, 86, 88, 91, 92, 96, 104, 110] {
        let mut bytes = good.clone();
        bytes[1024 + at] = 1;
        assert!(check_for_mount(&bytes).is_err(), "byte {at}");
    }
    let file = inode_at(&good, &[b"dir0", b"file3"]);
    let mut bytes = good.clone();
    bytes[file + 17] = 0xff;
    assert!(check_for_mount(&bytes).unwrap_err().contains("outside the image"));
    // What the kernel does not look at is no reason not to mount it.
    bytes = good.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 0xff;
    check_for_mount(&bytes).expect("patches are the guest kernel's business");
    assert!(check_for_mount(&good[..1100]).is_err() && check_for_mount(&[]).is_err());
}

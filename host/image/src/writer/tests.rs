//! What the writer writes, the reader reads; erofs-utils agrees; the same tree gives the same bytes.
use std::collections::BTreeMap;
use std::process::Command;

use doppel_erofs::{Erofs, Inode, Kind};
use proptest::prelude::*;

use super::*;
use crate::tree::{Limits, Meta};

/// The image of a tree, as bytes.
fn image(tree: &Tree) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let written = write(tree, None, file.as_file(), file.path(), true, &Watcher::default()).unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    assert_eq!(written.size, bytes.len() as u64);
    bytes
}

/// Compares node `node` of the tree with inode `nid` of the image, and what is below.
fn compare(tree: &Tree, node: usize, fs: &Erofs<'_>, inode: &Inode) {
    let want = &tree.nodes[node];
    assert_eq!(inode.mode, want.content.type_bits() | want.meta.mode);
    assert_eq!((inode.uid, inode.gid), (want.meta.uid, want.meta.gid));
    assert_eq!((inode.mtime_sec, inode.mtime_nsec), (want.meta.mtime_sec, want.meta.mtime_nsec));
    let mut xattrs = BTreeMap::new();
    fs.xattrs(inode, |prefix, name, value| xattrs.insert([prefix, name].concat(), value.to_vec()).is_none())
        .unwrap();
    assert_eq!(xattrs, want.meta.xattrs);
    for (name, value) in &want.meta.xattrs {
        assert_eq!(fs.xattr(inode, name).unwrap(), Some(value.as_slice()));
    }
    match &want.content {
        Content::Dir(children) => {
            let mut names = Vec::new();
            fs.readdir(inode, 0, |e| {
                names.push(e.name.to_vec());
                true
            })
            .unwrap();
            names.retain(|n| n != b"." && n != b"..");
            assert_eq!(names, children.keys().cloned().collect::<Vec<_>>());
            for (name, child) in children {
                let (nid, _) = fs.lookup(inode, name).unwrap().expect("name is found");
                compare(tree, *child, fs, &fs.inode(nid).unwrap());
            }
        }
        Content::File(Data::Bytes(bytes)) => {
            assert_eq!(inode.size, bytes.len() as u64);
            if let Some((offset, len)) = fs.data_range(inode).unwrap() {
                let (start, len) = (offset as usize, len as usize);
                assert_eq!(&fs.image()[start..start + len], bytes);
                let padding = &fs.image()[start + len..(start + len).next_multiple_of(BLOCK)];
                assert!(padding.iter().all(|b| *b == 0));
            } else {
                assert!(bytes.is_empty());
            }
        }
        Content::File(_) => panic!("not in these tests"),
        Content::Symlink(target) => assert_eq!(fs.symlink(inode).unwrap(), target),
        Content::Char(rdev) | Content::Block(rdev) => assert_eq!(inode.rdev, *rdev),
        Content::Fifo => assert_eq!(inode.kind, Kind::Fifo),
        Content::Socket => assert_eq!(inode.kind, Kind::Socket),
    }
}

fn check(tree: &Tree) -> Vec<u8> {
    let bytes = image(tree);
    let fs = Erofs::open(&bytes).unwrap();
    compare(tree, 0, &fs, &fs.inode(fs.root_nid()).unwrap());
    crate::verify(&bytes).unwrap();
    bytes
}

fn meta() -> impl Strategy<Value = Meta> {
    let xattr = ("(user|trusted|security)\\.[a-z]{1,8}", prop::collection::vec(any::<u8>(), 0..40));
    let xattrs = prop::collection::btree_map(xattr.0.prop_map(String::into_bytes), xattr.1, 0..4);
    (0..0o10000u16, any::<u32>(), any::<u32>(), any::<i64>(), 0..1_000_000_000u32, xattrs).prop_map(
        |(mode, uid, gid, mtime_sec, mtime_nsec, xattrs)| Meta {
            mode,
            uid,
            gid,
            mtime_sec,
            mtime_nsec,
            xattrs,
        },
    )
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        3 => Just(Content::dir()),
        4 => prop::collection::vec(any::<u8>(), 0..9000).prop_map(|b| Content::File(Data::Bytes(b))),
        1 => prop::collection::vec(1..=255u8, 1..4096).prop_map(Content::Symlink),
        1 => (0..0xfffu32, 0..0xf_ffffu32).prop_map(|(a, i)| Content::Char(abi::encode_rdev(a, i).unwrap())),
        1 => Just(Content::Fifo),
        1 => Just(Content::Socket),
    ]
}

/// Random trees: paths of up to four short names out of few, so that they often meet.
fn entries() -> impl Strategy<Value = Vec<(Vec<String>, Meta, Content)>> {
    let name = prop_oneof![4 => "[a-c]", 1 => "[ -.0-~é]{1,60}"];
    let name = name.prop_filter("dots", |n| n != "." && n != "..");
    prop::collection::vec((prop::collection::vec(name, 1..5), meta(), content()), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn round_trip(entries in entries()) {
        let mut tree = Tree::new(Limits::default());
        for (path, meta, content) in &entries {
            // Some do not fit with the earlier ones; the tree refuses them.
            let _ = tree.insert(path.join("/").as_bytes(), meta.clone(), content.clone());
            let _ = tree.link(format!("{}-link", path[0]).as_bytes(), path.join("/").as_bytes());
        }
        check(&tree);
    }
}

fn insert(tree: &mut Tree, path: &str, content: Content) {
    tree.insert(path.as_bytes(), Meta { mode: 0o644, ..Meta::default() }, content).unwrap();
}

fn sample() -> Tree {
    let mut tree = Tree::new(Limits::default());
    for i in 0..1500 {
        insert(
            &mut tree,
            &format!("big/entry-with-a-long-name-{i}"),
            Content::File(Data::Bytes(vec![7; i % 5])),
        );
    }
    // Names around `.` and `..` in byte order.
    for name in ["!", "-", ".-", ".a", "..a", "...", "0"] {
        insert(&mut tree, &format!("dots/{name}"), Content::Fifo);
    }
    for len in [1, 3990, 4031, 4032, 4033, 4095] {
        insert(&mut tree, &format!("links/{len}"), Content::Symlink(vec![b't'; len]));
    }
    for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
        insert(&mut tree, &format!("files/{len}"), Content::File(Data::Bytes(vec![9; len])));
    }
    tree.link(b"hard/a", b"files/4097").unwrap();
    tree.link(b"hard/b", b"files/4097").unwrap();
    let big = Meta {
        xattrs: [(b"user.big".to_vec(), vec![1; 65_535]), (b"system.posix_acl_access".to_vec(), vec![2; 28])]
            .into(),
        ..Meta::default()
    };
    tree.insert(b"xattrs", big.clone(), Content::dir()).unwrap();
    tree.insert(b"xattrs/link", big, Content::Symlink(b"x".to_vec())).unwrap();
    insert(&mut tree, "dev/null", Content::Char(abi::encode_rdev(1, 3).unwrap()));
    insert(&mut tree, "dev/sda", Content::Block(abi::encode_rdev(8, 0).unwrap()));
    tree
}

#[test]
fn sizes_at_the_edges() {
    let bytes = check(&sample());
    let fs = Erofs::open(&bytes).unwrap();
    let root = fs.inode(fs.root_nid()).unwrap();
    assert_eq!(root.nlink, 2 + 7);
    let (dir, _) = fs.lookup(&root, b"hard").unwrap().unwrap();
    let dir = fs.inode(dir).unwrap();
    let (a, b) = (fs.lookup(&dir, b"a").unwrap(), fs.lookup(&dir, b"b").unwrap());
    assert_eq!(a, b);
    assert_eq!(fs.inode(a.unwrap().0).unwrap().nlink, 3);
}

#[test]
fn erofs_utils_accept_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut tree = sample();
    insert(&mut tree, "program", Content::File(Data::Bytes(crate::patch::tests::sample())));
    let written = write(&tree, None, file.as_file(), file.path(), true, &Watcher::default()).unwrap();
    let patches = written.patches.unwrap();
    assert_eq!((patches.files, patches.sites, patches.rule_a, patches.rule_b), (1, 2, 1, 1));
    assert_eq!(patches.top[0].path, "/program");
    let out = tempfile::tempdir().unwrap();
    let extract = format!("--extract={}", out.path().join("x").display());
    let run = Command::new("fsck.erofs").args(["--no-preserve", &extract]).arg(file.path()).output();
    let run = run.expect("fsck.erofs is needed: `make setup` installs it");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_order_of_insertion_does_not_matter() {
    let names: Vec<String> = (0..100).map(|i| format!("d{}/f{}", i % 7, i * 37 % 100)).collect();
    let build = |names: &mut dyn Iterator<Item = &String>| {
        let mut tree = Tree::new(Limits::default());
        for name in names {
            insert(&mut tree, name, Content::File(Data::Bytes(name.clone().into_bytes())));
        }
        image(&tree)
    };
    assert_eq!(build(&mut names.iter()), build(&mut names.iter().rev()));
}

#[test]
fn a_file_that_changes_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"12345").unwrap();
    for len in [4, 6] {
        let mut tree = Tree::new(Limits::default());
        insert(&mut tree, "f", Content::File(Data::Host { path: dir.path().join("f"), len }));
        let out = tempfile::tempfile().unwrap();
        let error = write(&tree, None, &out, Path::new("out"), true, &Watcher::default()).unwrap_err();
        assert!(error.to_string().contains("changed while it was read"), "{error}");
    }
}

//! The store as its users see it: importing, naming, removing, damage, and leftovers of dead processes.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use doppel_erofs::{Erofs, Inode};
use doppel_image::{Error, Limits, Record, Source, Step, Store, Watcher};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

struct Fixture {
    temp: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::at(temp.path().join("store"));
        Self { temp, store }
    }

    fn tree(&self, name: &str) -> PathBuf {
        let root = self.temp.path().join(name);
        fs::create_dir_all(root.join("sub/empty")).unwrap();
        fs::write(root.join("hello"), name).unwrap();
        fs::hard_link(root.join("hello"), root.join("sub/hello-too")).unwrap();
        symlink("../hello", root.join("sub/link")).unwrap();
        fs::set_permissions(root.join("hello"), PermissionsExt::from_mode(0o4711)).unwrap();
        root
    }

    fn import(&self, name: &str, dir: &Path) -> Record {
        self.store.import_dir(name, dir, Limits::default()).unwrap().0
    }

    fn import_tar(&self, name: &str, tar: &Path) -> Record {
        let source = Source::Archive { path: tar.into() };
        self.store.import_tar(name, File::open(tar).unwrap(), source, Limits::default()).unwrap()
    }

    fn images(&self) -> usize {
        fs::read_dir(self.store.root().join("images")).unwrap().count()
    }
}

fn find(fs: &Erofs<'_>, path: &str) -> Inode {
    let step = |nid, name: &str| fs.lookup(&fs.inode(nid).unwrap(), name.as_bytes()).unwrap().unwrap().0;
    fs.inode(path.split('/').fold(fs.root_nid(), step)).unwrap()
}

/// A directory, its tar archive and its compressed archive give the same image.
#[test]
fn one_tree_one_digest() {
    let f = Fixture::new();
    let root = f.tree("one");
    let _ = rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from(0o600u32), 0);
    // These need root, and a file system with attributes; where they do not work they are not there to keep.
    let zero = rustix::fs::makedev(1, 5);
    let _ =
        rustix::fs::mknodat(CWD, root.join("zero"), FileType::CharacterDevice, Mode::from(0o666u32), zero);
    let with_xattr =
        rustix::fs::setxattr(root.join("hello"), "user.note", b"kept", XattrFlags::empty()).is_ok();
    let by_dir = f.import("dir", &root);

    let tar = f.temp.path().join("t.tar");
    let pack = |options: &[&str], to: &Path| {
        let mut command = Command::new("tar");
        command.args(["--format=pax", "--xattrs", "--numeric-owner"]).args(options);
        assert!(command.arg("-cf").arg(to).arg("-C").arg(&root).arg(".").status().unwrap().success());
    };
    pack(&[], &tar);
    let by_tar = f.import_tar("tar", &tar);
    assert_eq!(by_dir.digest, by_tar.digest);
    let tgz = f.temp.path().join("t.tgz");
    pack(&["--gzip", "--sort=inode"], &tgz);
    assert_eq!(f.import_tar("tgz", &tgz).digest, by_dir.digest);
    assert_eq!(f.images(), 1);

    let image = f.store.open("tar").unwrap();
    image.verify().unwrap();
    let bytes = fs::read(&image.path).unwrap();
    let fs = Erofs::open(&bytes).unwrap();
    let hello = find(&fs, "hello");
    assert_eq!((hello.mode, hello.nlink), (0o104_711, 2));
    assert_eq!(hello.nid, find(&fs, "sub/hello-too").nid);
    assert_eq!(fs.symlink(&find(&fs, "sub/link")).unwrap(), b"../hello");
    if with_xattr {
        assert_eq!(fs.xattr(&hello, b"user.note").unwrap(), Some(&b"kept"[..]));
    }
    if root.join("zero").exists() {
        assert_eq!(find(&fs, "zero").device(), (1, 5));
    }
}

#[test]
fn names_share_and_release_images() {
    let f = Fixture::new();
    let (a, b) = (f.tree("a"), f.tree("b"));
    let first = f.import("first", &a);
    let second = f.import("second", &a);
    assert_eq!(first.digest, second.digest);
    assert!(!f.store.remove("first").unwrap(), "the image is still used");
    f.store.open("second").unwrap().verify().unwrap();
    let open = f.store.open("second").unwrap();
    f.import("second", &b);
    assert_eq!(f.images(), 1, "the replaced image is gone");
    open.verify().unwrap();
    let names: Vec<_> = f.store.list().unwrap().into_iter().map(|(name, r)| (name, r.is_ok())).collect();
    assert_eq!(names, [("second".to_owned(), true)]);
    assert!(f.store.remove("second").unwrap());
    assert_eq!(f.images(), 0);
    assert!(matches!(f.store.remove("second"), Err(Error::NotFound(_))));
    assert!(matches!(f.store.open("second"), Err(Error::NotFound(_))));
}

#[test]
fn names_are_checked() {
    let f = Fixture::new();
    let root = f.tree("x");
    for bad in ["", ".", "..", "a//b", "a/", "a/../b", "a~b", "../x", "-x", "a b", &"x".repeat(201)] {
        assert!(matches!(f.store.import_dir(bad, &root, Limits::default()), Err(Error::BadName(_))), "{bad}");
        assert!(matches!(f.store.open(bad), Err(Error::BadName(_))));
        assert!(matches!(f.store.remove(bad), Err(Error::BadName(_))));
    }
    f.import("debian:12.1_x-y", &root);
    f.import("localhost:5000/team/app:latest", &root);
    assert_eq!(f.store.find("localhost:5000/team/app").unwrap(), "localhost:5000/team/app:latest");
    assert_eq!(f.store.tag("debian:12.1_x-y", "x/y").unwrap().name, "x/y");
    assert_eq!(f.store.list().unwrap().len(), 3);
    assert!(f.store.list().unwrap().iter().all(|(name, r)| r.as_ref().unwrap().name == *name));
}

#[test]
fn images_without_a_name_are_swept() {
    let f = Fixture::new();
    let (a, b) = (f.tree("a"), f.tree("b"));
    let first = f.import("first", &a);
    // What a death between the image's rename and the record's leaves.
    let orphan = f.store.root().join(format!("images/sha256-{}.erofs", "0".repeat(64)));
    fs::write(&orphan, "x").unwrap();
    f.import("second", &b);
    assert!(!orphan.exists());
    assert_eq!(f.store.record("first").unwrap(), first);
}

#[test]
fn damage_is_noticed() {
    let f = Fixture::new();
    let root = f.tree("x");
    f.import("x", &root);
    let path = f.store.open("x").unwrap().path;
    let good = fs::read(&path).unwrap();
    let put = |bytes: &[u8]| {
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    };
    let message = |e: Error| e.to_string();

    put(&good[..good.len() - 4096]);
    assert!(message(f.store.open("x").unwrap_err()).contains("bytes instead of"));
    let mut bad = good.clone();
    bad[1024] ^= 1;
    put(&bad);
    assert!(message(f.store.open("x").unwrap_err()).contains("superblock"));
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    put(&bad);
    assert!(message(f.store.open("x").unwrap().verify().unwrap_err()).contains("its digest is"));
    fs::remove_file(&path).unwrap();
    assert!(message(f.store.open("x").unwrap_err()).contains("gone"));

    // Importing again repairs it.
    f.import("x", &root);
    f.store.open("x").unwrap().verify().unwrap();

    fs::write(f.store.root().join("names/x.json"), "{ not json").unwrap();
    assert!(matches!(f.store.open("x"), Err(Error::BadRecord { .. })));
    assert_eq!(f.store.list().unwrap().len(), 1);
    f.store.remove("x").unwrap();
    assert!(f.store.list().unwrap().is_empty());
}

#[test]
fn leftovers_are_cleared() {
    let f = Fixture::new();
    f.import("x", &f.tree("x"));
    let tmp = f.store.root().join("tmp");
    fs::write(tmp.join("left-by-a-dead-process"), "").unwrap();
    let live = File::create(tmp.join("of-a-live-one")).unwrap();
    live.lock().unwrap();
    f.import("y", &f.tree("y"));
    let left: Vec<_> = fs::read_dir(&tmp).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["of-a-live-one"]);
}

#[test]
fn sources_that_do_not_fit() {
    let f = Fixture::new();
    let root = f.tree("x");
    let small = Limits { bytes: 1 << 20, nodes: 4 };
    assert!(matches!(f.store.import_dir("x", &root, small), Err(Error::TooLarge { .. })));
    File::create(root.join("huge")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(f.store.import_dir("x", &root, Limits::default()), Err(Error::TooLarge { .. })));
    let missing = f.store.import_dir("x", &root.join("missing"), Limits::default()).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    assert!(f.store.import_dir("x", &root.join("hello"), Limits::default()).is_err());
    assert!(f.store.list().unwrap().is_empty(), "no failed import leaves a name");
    assert_eq!(f.images(), 0);
    assert_eq!(fs::read_dir(f.store.root().join("tmp")).unwrap().count(), 0);
}

/// The patch section is left out when asked, and is no part of the tree.
#[test]
fn without_patches() {
    let f = Fixture::new();
    let root = f.tree("one");
    let with = f.import("with", &root);
    let plain = f.store.clone().without_patches();
    let without = plain.import_dir("without", &root, Limits::default()).unwrap().0;
    assert!(with.patches.is_some() && without.patches.is_none());
    assert!(with.size > without.size);
    assert_eq!(with.counts, without.counts);
    let (long, short) = (f.store.open("with").unwrap(), f.store.open("without").unwrap());
    assert_eq!(long.verify().unwrap(), short.verify().unwrap());
    assert!(fs::read(long.path).unwrap().starts_with(&fs::read(short.path).unwrap()));
}

/// A watched store tells of each step of its work, from nothing to all of it.
#[test]
fn a_watcher_is_told_how_far_it_is() {
    let f = Fixture::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let store = f.store.clone().watched(Watcher::new(move |step| list.lock().unwrap().push(step)));
    let mut tar = Vec::new();
    let image = f.import("x", &f.tree("one"));
    let open = f.store.open("x").unwrap();
    doppel_image::write_tar(&open.file, &open.path, &mut tar).unwrap();
    let again =
        store.import_tar("y", &tar[..], Source::Archive { path: "-".into() }, Limits::default()).unwrap();
    assert_eq!(again.digest, image.digest);
    let told = told.lock().unwrap();
    let read = told.iter().filter_map(|s| if let Step::Read { done } = s { Some(*done) } else { None });
    assert_eq!(read.max(), Some(tar.len() as u64));
    let end = |of: fn(&Step) -> Option<(u64, u64)>| told.iter().filter_map(of).next_back().unwrap();
    let (done, total) =
        end(|s| if let Step::Write { done, total } = s { Some((*done, *total)) } else { None });
    assert!(done == total && total > 0, "{done} of {total}");
    let (done, total) =
        end(|s| if let Step::Patch { done, total } = s { Some((*done, *total)) } else { None });
    assert!(done == total && total > 0, "{done} of {total}");
}

/// An image that somebody has pinned stays when its name goes to another one or is removed, until it is given up.
#[test]
fn pinned_images_stay() {
    let f = Fixture::new();
    let one = f.import("a", &f.tree("one"));
    f.store.pin(&one.digest, "first").unwrap();
    f.store.pin(&one.digest, "second").unwrap();
    let two = f.import("a", &f.tree("two"));
    assert_eq!(f.images(), 2);
    f.store.pin(&two.digest, "first").unwrap();
    assert!(!f.store.remove("a").unwrap());
    f.store.prepare().unwrap();
    assert_eq!(f.images(), 2);
    assert_eq!(f.store.pinned().unwrap().len(), 3);
    let left = |digest: &str, user: &str| {
        f.store.unpin(digest, user).unwrap();
        f.store.prepare().unwrap();
        f.images()
    };
    assert_eq!(left(&one.digest, "first"), 2);
    assert_eq!(left(&one.digest, "second"), 1);
    assert_eq!(left(&one.digest, "second"), 1);
    assert_eq!(left(&two.digest, "first"), 0);
    assert!(matches!(f.store.pin(&one.digest, "first"), Err(Error::NotFound(_))));
}

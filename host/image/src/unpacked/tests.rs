use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{Content, Limits, Meta, Source, Tree};

fn meta(mode: u16, sec: i64, xattr: &str) -> Meta {
    Meta {
        mode,
        uid: 70_000,
        gid: 4_000_000_000,
        mtime_sec: sec,
        mtime_nsec: 250_000_000,
        xattrs: [(xattr.as_bytes().to_vec(), b"1\n\0".to_vec())].into(),
    }
}

fn tree() -> Tree {
    let mut tree = Tree::new(Limits::default());
    let deep = "d".repeat(200) + "/" + &"e".repeat(120);
    let file = |text: &[u8]| Content::File(crate::Data::Bytes(text.to_vec()));
    let device = |major, minor| doppel_abi_image::encode_rdev(major, minor).unwrap();
    tree.insert(b"", meta(0o711, 7, "user.a"), Content::dir()).unwrap();
    tree.insert(b"a", meta(0o4755, 1_700_000_000, "user.a"), file(b"some data")).unwrap();
    tree.insert(deep.as_bytes(), meta(0o600, -5, "user.b"), file(&[7; 3_000_000])).unwrap();
    tree.insert(b"holes", meta(0o600, 1, "trusted.t"), file(&[0; 100_000])).unwrap();
    tree.insert(b"b", meta(0o2755, 11, "user.d"), Content::dir()).unwrap();
    tree.insert(b"b/null", meta(0o666, -5, "trusted.t"), Content::Char(device(1, 3))).unwrap();
    tree.insert(b"b/disk", meta(0o660, 0, "trusted.t"), Content::Block(device(259, 300))).unwrap();
    tree.insert(b"b/fifo", meta(0o660, 0, "trusted.t"), Content::Fifo).unwrap();
    tree.insert(b"b/link", meta(0o777, 3, "trusted.t"), Content::Symlink(b"x/".repeat(150))).unwrap();
    tree.link(b"z", b"a").unwrap();
    tree
}

/// A store with the image, and its file.
fn store() -> (tempfile::TempDir, File, crate::Written) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("images")).unwrap();
    let made = dir.path().join("made");
    let file = File::create_new(&made).unwrap();
    let written = crate::write(&tree(), None, &file, &made, false, &crate::Watcher::default()).unwrap();
    let path = dir.path().join(format!("images/sha256-{}.erofs", written.digest));
    fs::rename(made, &path).unwrap();
    (dir, File::open(path).unwrap(), written)
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not tried: only root can give files to others");
    }
    root
}

#[test]
fn an_unpacked_image_is_the_image() {
    if !is_root() {
        return;
    }
    let (_dir, image, written) = store();
    let unpacked = unpacked(&image).unwrap();
    let name = unpacked.path.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(name, format!("sha256-{}", written.digest));
    let (again, notes) = crate::from_dir(&unpacked.path, Limits::default()).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let file = tempfile::tempfile().unwrap();
    assert_eq!(
        crate::write(&again, None, &file, Path::new("x"), false, &crate::Watcher::default()).unwrap().digest,
        written.digest
    );
    let holes = fs::metadata(unpacked.path.join("holes")).unwrap();
    assert_eq!((holes.len(), holes.blocks()), (100_000, 0));
    let above = fs::metadata(unpacked.path.parent().unwrap()).unwrap();
    assert_eq!(above.permissions().mode() & 0o777, 0o700, "nobody gets at its set-user-ID programs");
}

#[test]
fn a_directory_is_copied_out_without_devices_and_by_links_inside() {
    let (_dir, image, _) = store();
    let to = tempfile::tempdir().unwrap();
    if is_root() {
        assert!(copy_out(&image, "/b", to.path()).unwrap());
        let names = |dir: &Path| {
            let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            all.sort();
            all
        };
        assert_eq!(names(to.path()), ["fifo", "link"]);
        let made = fs::metadata(to.path()).unwrap();
        assert_eq!((made.permissions().mode() & 0o7777, made.uid()), (0o2755, 70_000));
    }
    for none in ["/none", "/a", "/b/link", "/b/null/x"] {
        assert!(!copy_out(&image, none, to.path()).unwrap(), "{none}");
    }
}

#[test]
fn it_is_made_once_and_goes_with_the_image_and_its_users() {
    if !is_root() {
        return;
    }
    let (dir, image, written) = store();
    let store = Store::at(dir.path().to_owned());
    let path = dir.path().join(format!("unpacked/sha256-{}", written.digest));
    let one = unpacked(&image).unwrap();
    let made = fs::metadata(&path).unwrap();
    let another = unpacked(&image).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), made.ino());
    // One that somebody else left unfinished.
    fs::create_dir(dir.path().join("unpacked/new-dead")).unwrap();
    store.sweep_unpacked().unwrap();
    assert!(path.exists() && !dir.path().join("unpacked/new-dead").exists());
    fs::remove_file(dir.path().join(format!("images/sha256-{}.erofs", written.digest))).unwrap();
    drop(one);
    store.sweep_unpacked().unwrap();
    assert!(path.exists(), "somebody uses it");
    drop(another);
    store.prepare().unwrap();
    assert!(!path.exists());
}

#[test]
fn an_image_that_is_removed_takes_its_directory_along() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("from")).unwrap();
    let store = Store::at(dir.path().join("store"));
    let (record, _) = store.import_dir("x", &dir.path().join("from"), Limits::default()).unwrap();
    assert!(matches!(record.source, Source::Directory { .. }));
    let path = unpacked(&store.open("x").unwrap().file).unwrap().path;
    assert!(path.exists());
    assert!(store.remove("x").unwrap());
    assert!(!path.exists());
}

#[test]
fn what_is_in_no_store_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = unpacked(file.as_file()).unwrap_err();
    assert!(error.to_string().contains("only images of a store"), "{error}");
}

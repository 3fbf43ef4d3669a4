use std::io::Seek;

use super::*;
use crate::{Content, Limits, Meta, Tree, from_tar};

/// What an image holds comes back whole: the archive gives the same image again.
#[test]
fn an_archive_of_an_image_gives_the_same_image() {
    let mut tree = Tree::new(Limits::default());
    let deep = "d".repeat(200) + "/" + &"e".repeat(120);
    let meta = |mode, sec, nsec| Meta {
        mode,
        uid: 70_000,
        gid: 4_000_000_000,
        mtime_sec: sec,
        mtime_nsec: nsec,
        xattrs: [(b"user.a".to_vec(), b"1\n\0".to_vec())].into(),
    };
    let file = |text: &[u8]| Content::File(crate::Data::Bytes(text.to_vec()));
    tree.insert(b"", meta(0o711, 7, 9), Content::dir()).unwrap();
    tree.insert(b"a", meta(0o4755, 1_700_000_000, 123), file(b"some data")).unwrap();
    tree.insert(deep.as_bytes(), meta(0o600, -5, 250_000_000), file(&[7; 10_000])).unwrap();
    tree.insert(b"b/null", meta(0o666, -5, 0), Content::Char(doppel_abi_image::encode_rdev(1, 3).unwrap()))
        .unwrap();
    tree.insert(
        b"b/disk",
        meta(0o660, 0, 0),
        Content::Block(doppel_abi_image::encode_rdev(259, 300).unwrap()),
    )
    .unwrap();
    tree.insert(b"b/fifo", meta(0o660, 0, 0), Content::Fifo).unwrap();
    tree.insert(b"b/link", meta(0o777, 3, 0), Content::Symlink(b"x/".repeat(150))).unwrap();
    tree.link(b"z", b"a").unwrap();
    let (first, second, mut archive) =
        (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let one = crate::write(&tree, None, &first, Path::new("x"), false, &crate::Watcher::default()).unwrap();
    write_tar(&first, Path::new("x"), &archive).unwrap();
    archive.rewind().unwrap();
    let spool = tempfile::tempfile().unwrap();
    let again = from_tar(&archive, &spool, Limits::default()).unwrap();
    let two = crate::write(&again, Some(&spool), &second, Path::new("x"), false, &crate::Watcher::default())
        .unwrap();
    assert_eq!(one, two);
    assert_eq!(small_file(&first, "/a").unwrap(), b"some data");
    assert_eq!(small_file(&first, "/b/link"), None);
    assert_eq!(small_file(&first, "/nothing/here"), None);
    assert_eq!(small_file(&archive, "/a"), None, "no image");
}

/// An image of some files, and where it is.
fn image() -> (File, tempfile::TempDir) {
    let mut tree = Tree::new(Limits::default());
    let file = |text: &[u8]| Content::File(crate::Data::Bytes(text.to_vec()));
    let meta = |mode| Meta { mode, ..Meta::default() };
    for dir in [&b"etc"[..], b"old", b"old/deep", b"same"] {
        tree.insert(dir, meta(0o755), Content::dir()).unwrap();
    }
    for name in
        [&b"etc/appended"[..], b"etc/gone", b"etc/mode", b"etc/same", b"old/a", b"old/deep/b", b"same/c"]
    {
        tree.insert(name, meta(0o644), file(name)).unwrap();
    }
    let image = tempfile::tempfile().unwrap();
    crate::write(&tree, None, &image, Path::new("x"), false, &crate::Watcher::default()).unwrap();
    (image, tempfile::tempdir().unwrap())
}

/// Differences as `doppel diff` has them, and the files of the archive with their content.
fn changed(image: &File, changes: Changes<'_>) -> (Vec<String>, HashMap<String, String>) {
    let found = differences(image, Path::new("x"), changes).unwrap();
    let said = found.into_iter().map(|(d, path)| format!("{:?} {}", d, String::from_utf8(path).unwrap()));
    let mut archive = Vec::new();
    write_changed_tar(image, Path::new("x"), changes, &mut archive).unwrap();
    let mut files = HashMap::new();
    for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        let size = entry.read_to_string(&mut text).unwrap();
        let link = entry.link_name().unwrap().map(|to| format!("-> {}", to.display()));
        let what = link.unwrap_or_else(|| if size > 4096 { format!("{size} bytes") } else { text });
        files.insert(entry.path().unwrap().display().to_string(), what);
    }
    (said.collect(), files)
}

const EXPECTED: [&str; 13] = [
    "Changed /etc",
    "Changed /etc/appended",
    "Deleted /etc/gone",
    "Changed /etc/mode",
    "Added /link",
    "Added /new",
    "Added /new/again",
    "Added /new/file",
    "Changed /old",
    "Deleted /old/a",
    "Deleted /old/deep",
    "Added /old/mine",
    "Added /sparse",
];

fn check(files: &HashMap<String, String>) {
    let text = |name: &str| files.get(name).map_or("none", String::as_str);
    assert_eq!(text("etc/appended"), "etc/appended and more");
    assert_eq!((text("etc/same"), text("same/c"), text("old/mine")), ("etc/same", "same/c", "mine"));
    assert_eq!((text("new/again"), text("new/file")), ("new", "-> new/again"));
    assert_eq!((text("link"), text("sparse")), ("-> else/where", "8200 bytes"));
    for gone in ["etc/gone", "old/a", "old/deep/", "old/deep/b"] {
        assert_eq!(text(gone), "none");
    }
}

#[test]
fn what_an_overlay_has_above_an_image() {
    let (image, dir) = image();
    let at = |name: &str| dir.path().join("upper").join(name);
    for name in ["", "etc", "new", "old"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    // As overlayfs copies a file up: with its attributes.
    let put = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(at(name), text).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    put("etc/appended", "etc/appended and more", 0o644);
    put("etc/mode", "etc/mode", 0o600);
    put("new/file", "new", 0o644);
    put("old/mine", "mine", 0o644);
    put("sparse", "", 0o644);
    File::options().write(true).open(at("sparse")).unwrap().set_len(8200).unwrap();
    std::fs::hard_link(at("new/file"), at("new/again")).unwrap();
    std::os::unix::fs::symlink("else/where", at("link")).unwrap();
    let whiteout = rustix::fs::mknodat(
        rustix::fs::CWD,
        at("etc/gone"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::empty(),
        0,
    );
    let flags = rustix::fs::XattrFlags::empty();
    if whiteout.is_err() || rustix::fs::setxattr(at("old"), "trusted.overlay.opaque", b"y", flags).is_err() {
        return; // only root makes those
    }
    let upper = at("");
    let (said, files) = changed(&image, Changes::Upper(&upper));
    assert_eq!(said, EXPECTED);
    check(&files);
    let none = dir.path().join("never");
    assert!(changed(&image, Changes::Upper(&none)).0.is_empty());
}

/// A layer's file.
struct Written<'a>(&'a File);

impl doppel_layer::Store for Written<'_> {
    type Error = io::Error;

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self.0, bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&mut self, _: u64, _: u64) {}
}

/// The file of a layer that has these records, with the pages of its files in memory.
fn layer(records: &[doppel_layer::Record<'_>], pages: &[(u64, u64, &[u8])]) -> File {
    let file = tempfile::tempfile().unwrap();
    let mut store = Written(&file);
    let first = doppel_layer::Superblock::new([1; 32], 2);
    doppel_layer::Store::write(&mut store, first.block() * doppel_layer::BLOCK, &first.encode()).unwrap();
    let loaded = doppel_layer::load(&mut kept::Reader(&file)).unwrap();
    let mut writer = doppel_layer::Writer::open(loaded, &mut store).unwrap();
    let mut transaction = doppel_layer::Transaction::new();
    records.iter().for_each(|record| transaction.add(record));
    let runs: Vec<_> =
        pages.iter().map(|(ino, page, _)| doppel_layer::Pages { ino: *ino, page: *page, pages: 1 }).collect();
    let read = |ino, page, bytes: &mut [u8]| {
        let (_, _, text) = pages.iter().find(|(i, p, _)| (*i, *p) == (ino, page)).unwrap();
        bytes.fill(0);
        bytes[..text.len()].copy_from_slice(text);
    };
    writer.commit(&mut store, transaction, &runs, read).unwrap();
    writer.close(&mut store).unwrap();
    file
}

#[test]
fn what_a_layer_says_of_an_image() {
    use doppel_layer::{Attributes, Record};
    let (image, _dir) = image();
    let map = doppel_sys::FileMap::new(&image).unwrap();
    let fs = Erofs::open(&map).unwrap();
    let nid = |path: &str| {
        path.split('/').fold(fs.root_nid(), |dir, name| {
            fs.lookup(&fs.inode(dir).unwrap(), name.as_bytes()).unwrap().unwrap().0
        })
    };
    let (root, etc, old) = (fs.root_nid(), nid("etc"), nid("old"));
    let new = map.len() as u64 / 32 + 1;
    let inode = |ino, mode, nlink| {
        let attributes = Attributes { mode, nlink, ..Attributes::default() };
        Record::Inode { ino, attributes }
    };
    let entry = |dir, name, ino| Record::Entry { dir, name, ino, cookie: 0 };
    let text = b"etc/appended and more";
    let mut records = vec![
        inode(nid("etc/appended"), 0o100_644, 1),
        Record::Size { ino: nid("etc/appended"), size: text.len() as u64 },
        inode(nid("etc/mode"), 0o100_600, 1),
        Record::Whiteout { dir: etc, name: b"gone" },
        inode(new, 0o040_755, 2),
        entry(root, b"new", new),
        inode(new + 1, 0o100_644, 2),
        Record::Size { ino: new + 1, size: 3 },
        entry(new, b"file", new + 1),
        entry(new, b"again", new + 1),
        inode(new + 2, 0o100_644, 1),
        Record::Size { ino: new + 2, size: 4 },
        entry(old, b"mine", new + 2),
        Record::Whiteout { dir: old, name: b"a" },
        Record::Whiteout { dir: old, name: b"deep" },
        inode(new + 3, 0o120_777, 1),
        Record::Target { ino: new + 3, target: b"else/where" },
        entry(root, b"link", new + 3),
        inode(new + 4, 0o100_644, 1),
        Record::Size { ino: new + 4, size: 8200 },
        entry(root, b"sparse", new + 4),
    ];
    let pages: [(u64, u64, &[u8]); 4] =
        [(nid("etc/appended"), 0, text), (new + 1, 0, b"new"), (new + 2, 0, b"mine"), (new + 4, 1, b"x")];
    let (said, files) = changed(&image, Changes::Layer(&layer(&records, &pages)));
    assert_eq!(said, EXPECTED);
    check(&files);
    // A directory of the image under another name has its files still.
    records.extend([Record::Whiteout { dir: root, name: b"same" }, entry(new, b"moved", nid("same"))]);
    let (said, files) = changed(&image, Changes::Layer(&layer(&records, &pages)));
    assert!(
        said.contains(&"Deleted /same".into()) && said.contains(&"Added /new/moved/c".into()),
        "{said:?}"
    );
    assert_eq!(files["new/moved/c"], "same/c");
    // A hostile one leads in circles, or nowhere.
    for wrong in [entry(new, b"up", new), entry(new, b"up", root), entry(root, b"x", new + 9)] {
        let file = layer(&[&records[..], &[wrong]].concat(), &pages);
        assert!(differences(&image, Path::new("x"), Changes::Layer(&file)).is_err());
        assert!(write_changed_tar(&image, Path::new("x"), Changes::Layer(&file), io::sink()).is_err());
    }
    assert!(differences(&image, Path::new("x"), Changes::Layer(&tempfile::tempfile().unwrap())).is_err());
}

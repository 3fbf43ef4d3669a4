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

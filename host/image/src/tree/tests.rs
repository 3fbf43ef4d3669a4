//! Paths, replacement and limits.
use super::*;

fn file(bytes: &[u8]) -> Content {
    Content::File(Data::Bytes(bytes.to_vec()))
}

fn insert(tree: &mut Tree, path: &str, content: Content) -> Result<usize> {
    tree.insert(path.as_bytes(), Meta::default(), content)
}

#[test]
fn paths_that_leave_the_tree_are_refused() {
    let mut tree = Tree::new(Limits::default());
    let long = "n".repeat(256);
    for path in ["/etc/passwd", "../x", "a/../../x", "a/..", long.as_str(), "a\0b", ""] {
        assert!(insert(&mut tree, path, file(b"")).is_err(), "{path}");
    }
    insert(&mut tree, "link", Content::Symlink(b"/etc".to_vec())).unwrap();
    let through = insert(&mut tree, "link/passwd", file(b"")).unwrap_err();
    assert_eq!(through.to_string(), "link/passwd: goes through the symbolic link link");
    insert(&mut tree, "./a//b/./c", file(b"")).unwrap();
    assert!(insert(&mut tree, "a/b/c/d", file(b"")).is_err());
}

#[test]
fn replacing() {
    let mut tree = Tree::new(Limits::default());
    insert(&mut tree, "d/f", file(b"1")).unwrap();
    assert!(insert(&mut tree, "d", file(b"")).is_err(), "a directory with files");
    insert(&mut tree, "d", Content::dir()).unwrap();
    insert(&mut tree, "d/f", Content::Fifo).unwrap();
    insert(&mut tree, "d/f", Content::dir()).unwrap();
    insert(&mut tree, "d/f", file(b"2")).unwrap();
    assert!(tree.link(b"d", b"d/f").is_err());
    assert!(tree.link(b"x", b"d").is_err(), "hard link to a directory");
    assert!(tree.link(b"x", b"missing").is_err());
    assert!(tree.link(b"x", b"../d/f").is_err());
    tree.link(b"new/x", b"d/f").unwrap();
    tree.link(b"new/x", b"new/x").unwrap();
}

#[test]
fn limits_and_impossible_values() {
    let mut tree = Tree::new(Limits { bytes: 10, nodes: 4 });
    assert!(matches!(insert(&mut tree, "a/b/c/d/e", file(b"")), Err(Error::TooLarge { .. })));
    let mut tree = Tree::new(Limits::default());
    assert!(insert(&mut tree, "l", Content::Symlink(Vec::new())).is_err());
    assert!(insert(&mut tree, "l", Content::Symlink(vec![b'x'; 4096])).is_err());
    for (name, len) in [("user.big", 65_536), ("nonsense", 1), ("user.", 1), ("system.posix_acl_access.x", 1)]
    {
        let meta = Meta { xattrs: [(name.as_bytes().to_vec(), vec![0; len])].into(), ..Meta::default() };
        assert!(tree.insert(b"x", meta, Content::Fifo).is_err(), "{name}");
    }
    let many = (0..5).map(|i| (format!("user.{i}").into_bytes(), vec![0; 60_000])).collect();
    let meta = Meta { xattrs: many, ..Meta::default() };
    assert!(tree.insert(b"x", meta, Content::Fifo).is_err());
}

//! Archives of every kind, and hostile ones.
use std::io::Seek;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::Builder;

use super::*;
use crate::input::pax::tests::record;

fn read(bytes: &[u8]) -> Result<Tree> {
    read_limited(bytes, Limits::default())
}

fn read_limited(bytes: &[u8], limits: Limits) -> Result<Tree> {
    from_tar(bytes, &tempfile::tempfile().unwrap(), limits)
}

fn message(bytes: &[u8]) -> String {
    read(bytes).map(|_| ()).unwrap_err().to_string()
}

fn header(kind: EntryType, path: &str, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    // Set the bytes directly: the crate's own setter refuses the paths these tests are about.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_size(size);
    header.set_mode(0o4755);
    header.set_uid(1000);
    header.set_gid(5);
    header.set_mtime(1_234_567);
    header.set_cksum();
    header
}

/// An archive of raw headers and data.
fn archive(entries: &[(Header, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (header, data) in entries {
        out.extend(header.as_bytes());
        out.extend(*data);
        out.resize(out.len().next_multiple_of(RECORD), 0);
    }
    out.extend([0; 2 * RECORD]);
    out
}

fn link(kind: EntryType, path: &str, target: &str) -> Header {
    let mut h = header(kind, path, 0);
    h.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    h.set_cksum();
    h
}

fn node<'a>(tree: &'a Tree, path: &str) -> &'a crate::tree::Node {
    let mut at = 0;
    for name in path.split('/') {
        let Content::Dir(children) = &tree.nodes[at].content else { panic!("{path}") };
        at = children[name.as_bytes()];
    }
    &tree.nodes[at]
}

fn sample() -> Vec<u8> {
    let mut device = header(EntryType::Char, "dev/null", 0);
    device.set_device_major(1).unwrap();
    device.set_device_minor(3).unwrap();
    device.set_cksum();
    let long = format!("{}/file", "long-directory-name".repeat(10));
    let records =
        [("mtime", &b"1700000000.000007"[..]), ("SCHILY.xattr.user.k", b"a\nb=c"), ("uid", b"3000000")];
    let pax: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
    archive(&[
        (header(EntryType::Directory, "./", 0), b""),
        (header(EntryType::Regular, "./hello", 5), b"hello"),
        (link(EntryType::Link, "hard", "./hello"), b""),
        (link(EntryType::Symlink, "soft", "/etc/passwd"), b""),
        (device, b""),
        (header(EntryType::Fifo, "fifo", 0), b""),
        (header(EntryType::Regular, "old-style-directory/", 0), b""),
        (header(EntryType::GNULongName, "././@LongLink", long.len() as u64), long.as_bytes()),
        (header(EntryType::Regular, "cut", 0), b""),
        (header(EntryType::XHeader, "pax", pax.len() as u64), &pax),
        (header(EntryType::Regular, "pax-file", 600), &[b'x'; 600]),
    ])
}

#[test]
fn everything_is_kept() {
    let mut spool = tempfile::tempfile().unwrap();
    let tree = from_tar(sample().as_slice(), &spool, Limits::default()).unwrap();
    let hello = node(&tree, "hello");
    assert_eq!((hello.meta.mode, hello.meta.uid, hello.meta.gid), (0o4755, 1000, 5));
    assert_eq!((hello.meta.mtime_sec, hello.meta.mtime_nsec), (1_234_567, 0));
    assert!(std::ptr::eq(hello, node(&tree, "hard")));
    assert!(matches!(&node(&tree, "soft").content, Content::Symlink(t) if t == b"/etc/passwd"));
    assert!(matches!(node(&tree, "dev/null").content, Content::Char(0x103)));
    assert!(matches!(node(&tree, "fifo").content, Content::Fifo));
    assert!(matches!(node(&tree, "old-style-directory").content, Content::Dir(_)));
    node(&tree, &format!("{}/file", "long-directory-name".repeat(10)));
    let pax = node(&tree, "pax-file");
    assert_eq!((pax.meta.uid, pax.meta.mtime_sec, pax.meta.mtime_nsec), (3_000_000, 1_700_000_000, 7_000));
    assert_eq!(pax.meta.xattrs[&b"user.k"[..]], b"a\nb=c");
    let Content::File(Data::Spool { offset, len: 600 }) = pax.content else { panic!("{pax:?}") };
    spool.seek(io::SeekFrom::Start(offset)).unwrap();
    let mut data = Vec::new();
    spool.read_to_end(&mut data).unwrap();
    assert_eq!(data, [b'x'; 600]);
}

#[test]
fn gzip_is_recognised_and_others_are_named() {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&sample()).unwrap();
    let gz = gz.finish().unwrap();
    read(&gz).unwrap();
    assert!(message(&gz[..gz.len() / 2]).contains("truncated"), "{}", message(&gz[..gz.len() / 2]));
    assert!(message(b"\xfd7zXZ\0").contains("xz"));
    assert!(message(b"\x28\xb5\x2f\xfd__").contains("zstd"));
}

#[test]
fn escapes_are_refused() {
    for path in ["/etc/passwd", "../up", "a/../../up", "a/.."] {
        let said = message(&archive(&[(header(EntryType::Regular, path, 0), b"")]));
        assert!(said.starts_with(path) && (said.contains("absolute") || said.contains("`..`")), "{said}");
    }
    let said = message(&archive(&[
        (link(EntryType::Symlink, "out", "/tmp"), b""),
        (header(EntryType::Regular, "out/file", 0), b""),
    ]));
    assert!(said.contains("goes through the symbolic link"), "{said}");
    for target in ["/etc/passwd", "../x", "missing"] {
        assert!(read(&archive(&[(link(EntryType::Link, "hard", target), b"")])).is_err(), "{target}");
    }
    let pax = record("path", b"../../etc/evil");
    let said = message(&archive(&[
        (header(EntryType::XHeader, "pax", pax.len() as u64), &pax),
        (header(EntryType::Regular, "innocent", 0), b""),
    ]));
    assert!(said.contains("`..`"), "{said}");
}

#[test]
fn bombs_hit_the_limits() {
    let limits = Limits { bytes: 1 << 20, nodes: 100 };
    let too_large = |bytes: &[u8]| matches!(read_limited(bytes, limits), Err(Error::TooLarge { .. }));
    assert!(too_large(&archive(&[(header(EntryType::Regular, "big", 1 << 40), b"")])));
    assert!(too_large(&archive(&[(header(EntryType::Regular, "big", (1 << 33) - 1), b"")])));
    let many: Vec<_> = (0..200).map(|i| (header(EntryType::Fifo, &format!("f{i}"), 0), &b""[..])).collect();
    assert!(too_large(&archive(&many)));
    let same: Vec<_> = (0..300).map(|_| (header(EntryType::Directory, "d", 0), &b""[..])).collect();
    assert!(read_limited(&archive(&same), limits).is_err());
    let said = message(&archive(&[(header(EntryType::GNULongName, "n", 1 << 40), b"")]));
    assert!(said.contains("more than 1 MiB"), "{said}");
    let pax = record("SCHILY.xattr.user.x", &[b'v'; 60_000]);
    let headers: Vec<_> =
        (0..20).map(|_| (header(EntryType::XHeader, "pax", pax.len() as u64), &pax[..])).collect();
    assert!(message(&archive(&headers)).contains("more than 1 MiB"));
    // A gzip bomb: 64 MiB of zeros as one file.
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    let mut builder = Builder::new(&mut gz);
    builder.append(&header(EntryType::Regular, "zeros", 64 << 20), io::repeat(0).take(64 << 20)).unwrap();
    builder.finish().unwrap();
    drop(builder);
    assert!(too_large(&gz.finish().unwrap()));
}

#[test]
fn damage_is_named() {
    assert!(message(b"").contains("not a tar archive"));
    assert!(message(&[0; 1024]).contains("holds no files"));
    assert!(message(&[b'x'; 2048]).contains("checksum"));
    let whole = sample();
    assert!(message(&whole[..whole.len() - 1024]).contains("no end marker"));
    assert!(message(&whole[..1024 + 100]).contains("truncated"));
    let said = message(&archive(&[(header(EntryType::GNUSparse, "s", 0), b"")]));
    assert!(said.contains("sparse"), "{said}");
    let said = message(&archive(&[(header(EntryType::new(b'M'), "odd", 0), b"")]));
    assert!(said.contains("unknown type"), "{said}");
}

/// Damage anywhere gives an error or a tree that can be written, never a panic.
#[test]
fn mutations_never_panic() {
    let whole = sample();
    let mut state = 7u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let limits = Limits { bytes: 1 << 20, nodes: 1000 };
    for _ in 0..4000 {
        let mut bytes = whole.clone();
        let block = random(bytes.len() / RECORD) * RECORD;
        for _ in 0..=random(3) {
            bytes[block + random(RECORD)] = [0, b'/', b'.', b'7', b' ', 0xff, 0x80][random(7)];
        }
        if random(2) == 0 {
            // Make the damage believable: a right checksum.
            let mut header = Header::from_byte_slice(&bytes[block..block + RECORD]).clone();
            header.set_cksum();
            bytes[block..block + RECORD].copy_from_slice(header.as_bytes());
        }
        bytes.truncate(bytes.len() - random(4) * 300);
        if let Ok(tree) = read_limited(&bytes, limits) {
            assert!(tree.nodes.len() < 1000);
        }
    }
}

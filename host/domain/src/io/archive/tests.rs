use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

/// A directory of the test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doppel-archive-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("in")).unwrap();
        Self(path)
    }

    fn inside(&self) -> PathBuf {
        self.0.join("in")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PLENTY: Limits = Limits { entries: 1000, bytes: 1 << 20 };

fn entry(path: &str, kind: Kind, link: &str) -> Entry {
    let size = if kind == Kind::File { 1 } else { 0 };
    Entry { mode: 0o6777, size, link: link.into(), ..Entry::new(path.into(), kind) }
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for e in entries {
        out.extend(tar::header(e));
        out.resize(out.len() + e.size as usize + tar::padding(e.size), b'x');
    }
    out.extend(tar::END);
    out
}

#[test]
fn hostile_archives_stay_inside() {
    let s = Scratch::new("hostile");
    std::fs::write(s.0.join("victim"), "untouched").unwrap();
    let out = s.0.to_string_lossy().into_owned();
    let cases: [&[Entry]; 10] = [
        &[entry("../victim", Kind::File, "")],
        &[entry("a/../../victim", Kind::File, "")],
        &[entry("l", Kind::Symlink, ".."), entry("l/victim", Kind::File, "")],
        &[entry("l", Kind::Symlink, &out), entry("l/new", Kind::Directory, "")],
        &[entry("l", Kind::Symlink, ".."), entry("l", Kind::Directory, "")],
        &[entry("h", Kind::HardLink, "../victim")],
        &[entry("l", Kind::Symlink, ".."), entry("h", Kind::HardLink, "l/victim")],
        &[entry("h", Kind::HardLink, &format!("{out}/victim"))],
        &[entry("null", Kind::CharDevice, "")],
        &[entry("d", Kind::Directory, ""), entry("d", Kind::File, "")],
    ];
    for case in cases {
        std::fs::remove_dir_all(s.inside()).unwrap();
        std::fs::create_dir(s.inside()).unwrap();
        assert!(unpack(&archive(case)[..], &s.inside(), None, PLENTY).is_err(), "{case:?}");
        assert_eq!(std::fs::read_to_string(s.0.join("victim")).unwrap(), "untouched");
        let names = std::fs::read_dir(&s.0).unwrap().count();
        assert_eq!(names, 2, "{case:?}");
    }
}

#[test]
fn links_are_replaced_not_written_through() {
    let s = Scratch::new("through");
    std::fs::write(s.0.join("victim"), "untouched").unwrap();
    let case =
        [entry("l", Kind::Symlink, "../victim"), entry("l", Kind::File, ""), entry("/abs", Kind::File, "")];
    unpack(&archive(&case)[..], &s.inside(), None, PLENTY).unwrap();
    assert_eq!(std::fs::read_to_string(s.0.join("victim")).unwrap(), "untouched");
    let meta = std::fs::symlink_metadata(s.inside().join("l")).unwrap();
    assert!(meta.is_file());
    // Neither set-user-ID nor the like.
    assert_eq!(meta.permissions().mode() & 0o7777, 0o777);
    assert!(s.inside().join("abs").exists());
}

#[test]
fn limits_hold() {
    let s = Scratch::new("limits");
    let many: Vec<Entry> = (0..11).map(|i| entry(&i.to_string(), Kind::Directory, "")).collect();
    assert!(unpack(&archive(&many)[..], &s.inside(), None, Limits { entries: 10, bytes: 10 }).is_err());
    let large = Entry { size: 1 << 60, ..entry("f", Kind::File, "") };
    assert!(unpack(&tar::header(&large)[..], &s.inside(), None, PLENTY).is_err());
    let deep = entry(&"d/".repeat(DEPTH_MAX + 1), Kind::Directory, "");
    assert!(unpack(&archive(&[deep])[..], &s.inside(), None, PLENTY).is_err());
    let whole = archive(&[entry("f", Kind::File, "")]);
    for cut in [1, 511, 513, 700] {
        assert!(unpack(&whole[..cut], &s.inside(), None, PLENTY).is_err(), "{cut}");
    }
}

#[test]
fn there_and_back() {
    let s = Scratch::new("back");
    let from = s.0.join("in/tree");
    std::fs::create_dir_all(from.join("d")).unwrap();
    std::fs::write(from.join("d/f"), vec![7; 100_000]).unwrap();
    std::fs::hard_link(from.join("d/f"), from.join("h")).unwrap();
    std::os::unix::fs::symlink("d/f", from.join("l")).unwrap();
    File::create(from.join("hole")).unwrap().set_len(10 << 20).unwrap();
    let mut bytes = Vec::new();
    pack(&from, OsStr::new("tree"), &mut bytes).unwrap();
    let to = s.0.join("out");
    std::fs::create_dir(&to).unwrap();
    let room = Limits { entries: 100, bytes: 20 << 20 };
    unpack(&bytes[..], &to, Some(OsStr::new("copy")), room).unwrap();
    assert_eq!(std::fs::read(to.join("copy/d/f")).unwrap(), vec![7; 100_000]);
    assert_eq!(std::fs::read_link(to.join("copy/l")).unwrap(), Path::new("d/f"));
    let hole = std::fs::metadata(to.join("copy/hole")).unwrap();
    assert_eq!((hole.len(), hole.blocks()), (10 << 20, 0));
    let (a, b) =
        (std::fs::metadata(to.join("copy/h")).unwrap(), std::fs::metadata(to.join("copy/d/f")).unwrap());
    assert_eq!(a.ino(), b.ino());
    // What is in it alone, and a second name at the top.
    let mut bytes = Vec::new();
    pack(&from, OsStr::new(""), &mut bytes).unwrap();
    unpack(&bytes[..], &to, None, room).unwrap();
    assert!(to.join("d/f").exists());
    assert!(unpack(&bytes[..], &to, Some(OsStr::new("one")), room).is_err());
}

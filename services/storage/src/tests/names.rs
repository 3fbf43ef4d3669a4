//! Names are single components, and lead nowhere but into the volume.

use doppel_abi_service::storage::{NAME, Operation, Request, TARGET, flags};
use rustix::io::Errno;

use super::Bench;
use crate::Volume;

fn number(errno: Errno) -> u16 {
    u16::try_from(errno.raw_os_error()).unwrap()
}

#[test]
fn what_is_no_name_is_refused() {
    let mut b = Bench::new();
    for name in [&b""[..], b".", b"..", b"/", b"a/b", b"../volume", b"a\0b", b"\0"] {
        for operation in [Operation::Lookup, Operation::Unlink, Operation::RmDir] {
            let found = b.guest.named(Request::new(operation, 0), name);
            assert_eq!(found.unwrap_err(), number(Errno::INVAL), "{operation:?} {name:?}");
        }
        let make = Request { b: 0o100_644, ..Request::new(Operation::Make, 0) };
        assert_eq!(b.guest.named(make, name).unwrap_err(), number(Errno::INVAL), "{name:?}");
    }
    let long = "n".repeat(NAME + 1);
    assert_eq!(b.guest.lookup(0, &long), Err(number(Errno::NAMETOOLONG)));
    assert_eq!(b.guest.create(0, &long), Err(number(Errno::NAMETOOLONG)));
    b.guest.create(0, &long[1..]).unwrap();
    assert!(b.path(&long[1..]).is_file());
    let target = vec![b't'; TARGET + 1];
    assert_eq!(b.guest.symlink(0, "l", &target), Err(number(Errno::NAMETOOLONG)));
    assert_eq!(b.guest.list(0).unwrap(), [&long[1..]]);
}

#[test]
fn links_are_never_followed() {
    let mut b = Bench::new();
    let outside = b.root.parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "s").unwrap();
    let absolute = outside.to_str().unwrap().to_owned();
    for (name, target) in [("up", ".."), ("out", absolute.as_str()), ("proc", "/proc/self/root")] {
        let link = b.guest.symlink(0, name, target.as_bytes()).unwrap();
        assert_eq!(b.guest.read_link(link).unwrap(), target.as_bytes());
        assert_eq!(b.guest.lookup(link, "secret"), Err(number(Errno::NOTDIR)));
        assert_eq!(b.guest.read(link, 0, 1), Err(number(Errno::INVAL)));
        assert_eq!(b.guest.write(link, 0, b"x"), Err(number(Errno::INVAL)));
        assert_eq!(b.guest.truncate(link, 0).unwrap_err(), number(Errno::INVAL));
        assert_eq!(b.guest.entries(link, 0).unwrap_err(), number(Errno::NOTDIR));
        assert_eq!(b.guest.create(link, "made"), Err(number(Errno::NOTDIR)));
        assert_eq!(b.guest.set_xattr(link, "user.a", b"x", 0), Err(number(Errno::OPNOTSUPP)));
    }
    // What the host puts in a directory's place is not followed either.
    let dir = b.guest.make(0, "dir", 0o040_755).unwrap();
    std::fs::rename(b.path("dir"), b.path("moved")).unwrap();
    std::os::unix::fs::symlink(&outside, b.path("dir")).unwrap();
    assert_eq!(b.guest.lookup(dir, "secret"), Err(number(Errno::NOENT)));
    b.guest.create(dir, "in").unwrap();
    assert!(b.path("moved/in").is_file() && !outside.join("in").exists());
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"s");
}

#[test]
fn a_directory_that_was_moved_out_leads_nowhere_up() {
    let mut b = Bench::new();
    let dir = b.guest.make(0, "dir", 0o040_755).unwrap();
    let outside = b.root.parent().unwrap().join("gone");
    std::fs::rename(b.path("dir"), &outside).unwrap();
    assert_eq!(b.guest.lookup(dir, ".."), Err(number(Errno::INVAL)));
    b.guest.create(dir, "in").unwrap();
    assert!(outside.join("in").is_file() && !b.path("in").exists());
}

#[test]
fn devices_are_not_made_and_not_opened() {
    let mut b = Bench::new();
    for kind in [0o020_000, 0o060_000, 0o120_000, 0] {
        assert_eq!(b.guest.make(0, "device", kind | 0o666), Err(number(Errno::PERM)), "{kind:o}");
    }
    for (name, kind) in [("fifo", 0o010_000), ("socket", 0o140_000)] {
        let node = b.guest.make(0, name, kind | 0o640).unwrap();
        assert_eq!(b.guest.attributes(node).unwrap().mode, kind | 0o640);
        assert_eq!(b.guest.read(node, 0, 1), Err(number(Errno::INVAL)));
        assert_eq!(b.guest.sync(node, flags::DATA), Err(number(Errno::INVAL)));
    }
}

#[test]
fn nodes_that_are_none_are_stale() {
    let mut b = Bench::new();
    let node = b.guest.create(0, "file").unwrap();
    for bad in [1, 63, node + 1, u64::MAX, 1 << 40] {
        assert_eq!(b.guest.attributes(bad).unwrap_err(), number(Errno::STALE), "{bad}");
        assert_eq!(b.guest.lookup(bad, "file"), Err(number(Errno::STALE)));
        assert_eq!(b.guest.read(bad, 0, 1), Err(number(Errno::STALE)));
    }
    b.guest.forget(node, 1);
    assert_eq!(b.guest.attributes(node).unwrap_err(), number(Errno::STALE));
}

#[test]
fn nothing_changes_in_a_read_only_volume() {
    let mut b = Bench::with(|root| {
        std::fs::write(root.join("file"), "text").unwrap();
        vec![Volume::open(root, true).unwrap(), Volume::open(root, false).unwrap()]
    });
    let rofs = number(Errno::ROFS);
    let g = &mut b.guest;
    let file = g.lookup(0, "file").unwrap();
    assert_eq!(g.read(file, 0, 9).unwrap(), b"text");
    assert_eq!(g.write(file, 0, b"x"), Err(rofs));
    assert_eq!(g.truncate(file, 0).unwrap_err(), rofs);
    assert_eq!(g.allocate(file, 0, 0, 9), Err(rofs));
    assert_eq!(g.set_xattr(file, "user.a", b"", 0), Err(rofs));
    assert_eq!(g.create(0, "new"), Err(rofs));
    assert_eq!(g.symlink(0, "new", b"t"), Err(rofs));
    assert_eq!(g.tmpfile(0), Err(rofs));
    assert_eq!(g.link(file, 0, "new"), Err(rofs));
    assert_eq!(g.unlink(0, "file"), Err(rofs));
    assert_eq!(g.rmdir(0, "file"), Err(rofs));
    assert_eq!(g.rename(0, "file", 0, "new", 0), Err(rofs));
    // The same directory as a volume that may change: its files are others.
    g.create(1, "new").unwrap();
    let other = g.lookup(1, "file").unwrap();
    assert_eq!(g.write(other, 0, b"x"), Ok(1));
    assert_eq!(g.rename(1, "new", 0, "newer", 0), Err(number(Errno::XDEV)));
    assert_eq!(g.link(file, 1, "newer"), Err(number(Errno::XDEV)));
    assert_eq!(g.write(file, 0, b"y"), Err(rofs));
    assert_eq!(g.read(file, 0, 9).unwrap(), b"xext");
}

#[test]
fn a_volume_may_be_a_file() {
    let mut b = Bench::with(|root| {
        let file = root.join("file");
        std::fs::write(&file, "text").unwrap();
        vec![Volume::open(&file, false).unwrap(), Volume::open(&file, true).unwrap()]
    });
    let g = &mut b.guest;
    assert_eq!(g.attributes(0).unwrap().size, 4);
    assert_eq!(g.read(0, 1, 9).unwrap(), b"ext");
    assert_eq!(g.write(0, 4, b"!"), Ok(1));
    assert_eq!(g.write(1, 4, b"!"), Err(number(Errno::ROFS)));
    assert_eq!(g.append(0, b"?"), Ok(6));
    assert_eq!(g.truncate(0, 5).unwrap().size, 5);
    g.sync(0, 0).unwrap();
    assert_eq!(g.lookup(0, "x"), Err(number(Errno::NOTDIR)));
    assert_eq!(g.create(0, "x"), Err(number(Errno::NOTDIR)));
    assert_eq!(g.entries(0, 0).unwrap_err(), number(Errno::NOTDIR));
    assert_eq!(std::fs::read(b.path("file")).unwrap(), b"text!");
}

#[test]
fn a_volume_is_no_device() {
    Volume::open("/dev/null".as_ref(), false).unwrap_err();
    Volume::open("/nowhere".as_ref(), false).unwrap_err();
}

//! What each operation does to the host's files.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use doppel_abi_service::storage::{BUFFER, Changes, Operation, Request, STEPS, Step, flags, set, text};
use doppel_sys::shared::offset;
use rustix::io::Errno;

use super::Bench;

fn number(errno: Errno) -> u16 {
    u16::try_from(errno.raw_os_error()).unwrap()
}

#[test]
fn files_are_made_with_their_owner_and_mode() {
    let mut b = Bench::new();
    let root = rustix::process::geteuid().is_root();
    let owner = if root { (1234, 56) } else { (0, 0) };
    for (name, mode) in [
        ("file", 0o100_640),
        ("dir", 0o042_755),
        ("sticky", 0o041_777),
        ("setuid", 0o104_755),
        ("fifo", 0o010_600),
    ] {
        let request = Request { b: mode, c: owner.0, d: owner.1, ..Request::new(Operation::Make, 0) };
        let node = b.guest.named(request, name.as_bytes()).unwrap().node;
        let shown = b.guest.shown();
        assert_eq!(u64::from(shown.mode), mode, "{name}");
        let m = std::fs::symlink_metadata(b.path(name)).unwrap();
        assert_eq!((m.mode(), m.uid(), m.gid(), m.ino()), (shown.mode, owner.0, owner.1, shown.ino));
        assert_eq!(b.guest.lookup(0, name), Ok(node));
        assert_eq!(b.guest.attributes(node).unwrap(), shown);
        assert_eq!(b.guest.make(0, name, 0o100_600), Err(number(Errno::EXIST)));
    }
    assert!(std::fs::symlink_metadata(b.path("fifo")).unwrap().file_type().is_fifo());
    assert_eq!(b.guest.lookup(0, "none"), Err(number(Errno::NOENT)));
}

#[test]
fn bytes_are_read_and_written_where_it_was_said() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    let whole: Vec<u8> = (0..BUFFER).map(|i| ((i * 7) >> 3) as u8).collect();
    assert_eq!(b.guest.write(file, 0, &whole), Ok(BUFFER as u64));
    assert_eq!(b.guest.shown().size, BUFFER as u64);
    assert_eq!(b.guest.write(file, 1 << 40, b"far"), Ok(3));
    assert_eq!(b.guest.read(file, 0, BUFFER as u64).unwrap(), whole);
    assert_eq!(b.guest.read(file, 1 << 40, 10).unwrap(), b"far");
    assert_eq!(b.guest.read(file, 1 << 41, 10).unwrap(), b"");
    let too_long = Request { b: BUFFER as u64 + 1, ..Request::new(Operation::Read, file) };
    assert_eq!(b.guest.call(too_long).unwrap_err(), number(Errno::INVAL));
    let too_far = Request { a: u64::MAX, b: 1, ..Request::new(Operation::Write, file) };
    assert_eq!(b.guest.call(too_far).unwrap_err(), number(Errno::INVAL));
    assert_eq!(b.guest.append(file, b"end"), Ok((1 << 40) + 6));
    assert_eq!(b.guest.truncate(file, 3).unwrap().size, 3);
    assert_eq!(b.guest.append(file, b"end"), Ok(6));
    b.guest.sync(file, 0).unwrap();
    b.guest.sync(file, flags::DATA).unwrap();
    b.guest.sync(file, flags::ALL).unwrap();
    b.guest.sync(0, 0).unwrap();
    assert_eq!(std::fs::read(b.path("file")).unwrap(), [&whole[..3], b"end"].concat());
    let dir = b.guest.make(0, "dir", 0o040_755).unwrap();
    assert_eq!(b.guest.write(dir, 0, b"x"), Err(number(Errno::ISDIR)));
    assert_eq!(b.guest.read(dir, 0, 1), Err(number(Errno::ISDIR)));
}

#[test]
fn whole_pages_go_to_the_device_and_are_seen_as_all_others_are() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    b.guest.write(file, 0, &[1; 10_000]).unwrap();
    let direct = |operation, a, b| Request { a, b, flags: flags::DIRECT, ..Request::new(operation, file) };
    // The second is no whole page, and written as ever.
    for (at, len) in [(4096, 8192), (100, 50)] {
        b.guest.put_data(0, &vec![2; usize::try_from(len).unwrap()]);
        assert_eq!(b.guest.call(direct(Operation::Write, at, len)).map(|a| a.value), Ok(len));
    }
    let mut want = [&[1; 4096][..], &[2; 8192]].concat();
    want[100..150].fill(2);
    assert_eq!(std::fs::read(b.path("file")).unwrap(), want);
    assert_eq!(b.guest.shown().size, 12288);
    // Behind the end there is nothing.
    b.guest.truncate(file, 5000).unwrap();
    assert_eq!(b.guest.call(direct(Operation::Read, 0, 8192)).map(|a| a.value), Ok(5000));
    assert_eq!(b.guest.call(direct(Operation::Read, 8192, 4096)).map(|a| a.value), Ok(0));
}

#[test]
fn a_write_that_has_waited_has_the_time_at_which_it_began_to() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    let (written, len) = (1_234_567_890_123_456_789_u64, b.guest.put_data(0, b"late"));
    let request = Request { b: len, other: written, ..Request::new(Operation::Write, file) };
    assert_eq!(b.guest.call(request).map(|a| a.value), Ok(4));
    let shown = b.guest.shown();
    assert_eq!((shown.mtime, shown.size), (written.cast_signed(), 4));
    assert!(shown.atime > shown.mtime);
}

#[test]
fn room_and_holes() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    b.guest.allocate(file, 0, 0, 1 << 20).unwrap();
    assert_eq!(b.guest.shown().size, 1 << 20);
    b.guest.write(file, 0, &[1; 8192]).unwrap();
    // KEEP_SIZE and PUNCH_HOLE.
    b.guest.allocate(file, 3, 0, 4096).unwrap();
    assert_eq!(b.guest.read(file, 4095, 2).unwrap(), [0, 1]);
    b.guest.truncate(file, 0).unwrap();
    b.guest.write(file, 1 << 20, &[1; 4096]).unwrap();
    assert_eq!(b.guest.seek(file, 3, 0), Ok(1 << 20));
    assert_eq!(b.guest.seek(file, 4, 0), Ok(0));
    assert_eq!(b.guest.seek(file, 4, 1 << 20), Ok((1 << 20) + 4096));
    assert_eq!(b.guest.seek(file, 3, 1 << 21), Err(number(Errno::NXIO)));
    assert_eq!(b.guest.seek(file, 0, 0), Err(number(Errno::INVAL)));
    // UNSHARE_RANGE is not passed on.
    assert_eq!(b.guest.allocate(file, 64, 0, 4096), Err(number(Errno::OPNOTSUPP)));
    assert_eq!(b.guest.allocate(0, 0, 0, 4096), Err(number(Errno::ISDIR)));
    assert_eq!(b.guest.seek(0, 3, 0), Err(number(Errno::ISDIR)));
}

#[test]
fn a_directory_whose_end_was_read_first_is_not_empty() {
    let mut b = Bench::new();
    let dir = b.guest.make(0, "dir", 0o040_755).unwrap();
    b.guest.create(dir, "file").unwrap();
    let end = Request { a: i64::MAX.cast_unsigned(), ..Request::new(Operation::ReadDir, dir) };
    assert_eq!(b.guest.call(end).map(|answer| answer.value), Ok(0));
    assert_eq!(b.guest.list(dir).unwrap(), ["file"]);
}

#[test]
fn attributes_change_as_they_are_said() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    let times = Changes { atime: 1_500_000_000, mtime: -1_500_000_000, ..Changes::default() };
    let shown = b.guest.change(file, set::ATIME | set::MTIME, times).unwrap();
    assert_eq!((shown.atime, shown.mtime), (times.atime, times.mtime));
    let later = Changes { mtime: 1 << 60, ..times };
    let shown = b.guest.change(file, set::MTIME, later).unwrap();
    assert_eq!((shown.atime, shown.mtime), (times.atime, later.mtime));
    let mode = Changes { mode: 0o100_751, ..Changes::default() };
    assert_eq!(b.guest.change(file, set::MODE, mode).unwrap().mode, 0o100_751);
    if rustix::process::geteuid().is_root() {
        let owner = Changes { uid: 7, gid: 8, mode: 0o6711, ..Changes::default() };
        let shown = b.guest.change(file, set::UID | set::GID | set::MODE, owner).unwrap();
        assert_eq!((shown.uid, shown.gid, shown.mode), (7, 8, 0o106_711));
        let shown = b.guest.change(file, set::GID, Changes { gid: 9, ..owner }).unwrap();
        assert_eq!((shown.uid, shown.gid), (7, 9));
        let link = b.guest.symlink(0, "link", b"file").unwrap();
        assert_eq!(b.guest.change(link, set::UID, owner).unwrap().uid, 7);
        assert_eq!(b.guest.attributes(file).unwrap().gid, 9);
    }
}

#[test]
fn names_are_given_changed_and_taken() {
    let mut b = Bench::new();
    let (dir, file) = (b.guest.make(0, "dir", 0o040_755).unwrap(), b.guest.create(0, "a").unwrap());
    b.guest.link(file, dir, "b").unwrap();
    assert_eq!(b.guest.shown().nlink, 2);
    assert_eq!(b.guest.lookup(dir, "b"), Ok(file));
    assert_eq!(b.guest.link(file, dir, "b"), Err(number(Errno::EXIST)));
    assert_eq!(b.guest.link(dir, 0, "hard"), Err(number(Errno::PERM)));
    assert_eq!(b.guest.rmdir(0, "dir"), Err(number(Errno::NOTEMPTY)));
    assert_eq!(b.guest.rmdir(0, "a"), Err(number(Errno::NOTDIR)));
    assert_eq!(b.guest.unlink(0, "dir"), Err(number(Errno::ISDIR)));
    b.guest.rename(0, "a", dir, "c", 0).unwrap();
    assert_eq!(b.guest.list(dir).unwrap(), ["b", "c"]);
    let other = b.guest.create(0, "other").unwrap();
    // NOREPLACE, EXCHANGE.
    assert_eq!(b.guest.rename(0, "other", dir, "c", 1), Err(number(Errno::EXIST)));
    b.guest.rename(0, "other", dir, "c", 2).unwrap();
    assert_eq!((b.guest.lookup(0, "other"), b.guest.lookup(dir, "c")), (Ok(file), Ok(other)));
    // WHITEOUT makes a device.
    assert_eq!(b.guest.rename(0, "other", dir, "x", 4), Err(number(Errno::INVAL)));
    assert_eq!(b.guest.rename(0, "none", dir, "x", 0), Err(number(Errno::NOENT)));
    b.guest.rename(0, "other", dir, "c", 0).unwrap();
    assert_eq!(b.guest.lookup(dir, "c"), Ok(file));
    // What has lost its last name stays as long as it is known.
    b.guest.write(other, 0, b"still there").unwrap();
    assert_eq!(b.guest.attributes(other).unwrap().nlink, 0);
    b.guest.unlink(dir, "b").unwrap();
    b.guest.unlink(dir, "c").unwrap();
    assert_eq!(b.guest.unlink(dir, "c"), Err(number(Errno::NOENT)));
    b.guest.rmdir(0, "dir").unwrap();
    assert_eq!(b.guest.list(0).unwrap(), [""; 0]);
    assert_eq!(b.guest.list(dir), Err(number(Errno::NOENT)));
    assert_eq!(b.guest.create(dir, "new"), Err(number(Errno::NOENT)));
    assert_eq!(b.guest.read(other, 0, 99).unwrap(), b"still there");
}

#[test]
fn files_without_names() {
    let mut b = Bench::new();
    let file = b.guest.tmpfile(0).unwrap();
    assert_eq!((b.guest.shown().nlink, b.guest.shown().mode), (0, 0o100_600));
    b.guest.write(file, 0, b"nameless").unwrap();
    assert_eq!(b.guest.list(0).unwrap(), [""; 0]);
    b.guest.link(file, 0, "named").unwrap();
    assert_eq!(std::fs::read(b.path("named")).unwrap(), b"nameless");
}

#[test]
fn many_entries_are_read_by_their_positions() {
    let mut b = Bench::new();
    let long = "x".repeat(200);
    let mut names: Vec<_> = (0..3000).map(|i| format!("{i:04}{long}")).collect();
    for name in &names {
        std::fs::write(b.path(name), "").unwrap();
    }
    std::fs::create_dir(b.path("dir")).unwrap();
    names.push("dir".into());
    names.sort();
    assert_eq!(b.guest.list(0).unwrap(), names);
    // From each position the rest is read, also after names have gone.
    let first = b.guest.entries(0, 0).unwrap();
    let (entry, name) = first[first.len() / 2].clone();
    let next = b.guest.entries(0, entry.next).unwrap();
    assert_eq!(next[0], first[first.len() / 2 + 1]);
    std::fs::remove_file(b.path(std::str::from_utf8(&name).unwrap())).unwrap();
    assert_eq!(b.guest.entries(0, entry.next).unwrap()[0], next[0]);
    let found = first.iter().chain(&next).find(|(_, name)| name == b"dir").map(|(entry, _)| entry.kind);
    assert!(found.is_none_or(|kind| kind == 4));
    let (entry, name) = &next[0];
    let path = b.path(std::str::from_utf8(name).unwrap());
    assert_eq!((entry.kind, entry.ino), (8, std::fs::metadata(path).unwrap().ino()));
    let file = b.guest.create(0, "file").unwrap();
    assert_eq!(b.guest.entries(file, 0).unwrap_err(), number(Errno::NOTDIR));
}

#[test]
fn links_show_their_targets() {
    let mut b = Bench::new();
    let target = [b"/no/where/".as_slice(), &[b'x'; 3000]].concat();
    let link = b.guest.symlink(0, "link", &target).unwrap();
    assert_eq!(b.guest.shown().mode, 0o120_777);
    assert_eq!(b.guest.read_link(link).unwrap(), target);
    assert_eq!(b.guest.symlink(0, "link", b"t"), Err(number(Errno::EXIST)));
    let file = b.guest.create(0, "file").unwrap();
    assert_eq!(b.guest.read_link(file), Err(number(Errno::INVAL)));
    b.guest.link(link, 0, "again").unwrap();
    assert_eq!(std::fs::read_link(b.path("again")).unwrap().as_os_str().len(), target.len());
}

#[test]
fn extended_attributes() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    for node in [0, file] {
        let g = &mut b.guest;
        assert_eq!(g.get_xattr(node, "user.a"), Err(number(Errno::NODATA)));
        g.set_xattr(node, "user.a", b"one", 1).unwrap();
        assert_eq!(g.set_xattr(node, "user.a", b"two", 1), Err(number(Errno::EXIST)));
        g.set_xattr(node, "user.a", b"two", 2).unwrap();
        g.set_xattr(node, "user.empty", b"", 0).unwrap();
        assert_eq!(g.set_xattr(node, "user.b", b"", 2), Err(number(Errno::NODATA)));
        assert_eq!(g.get_xattr(node, "user.a").unwrap(), b"two");
        let listed = g.call(Request::new(Operation::ListXattr, node)).unwrap();
        let mut names: Vec<_> = g.data(0, listed.value).split(|b| *b == 0).map(<[u8]>::to_vec).collect();
        names.sort();
        assert_eq!(names, [&b""[..], b"user.a", b"user.empty"]);
        for name in ["trusted.overlay.opaque", "security.selinux", "system.nfs4_acl"] {
            assert_eq!(g.set_xattr(node, name, b"x", 0), Err(number(Errno::OPNOTSUPP)), "{name}");
            assert_eq!(g.get_xattr(node, name), Err(number(Errno::OPNOTSUPP)), "{name}");
        }
        g.named(Request::new(Operation::RemoveXattr, node), b"user.a").unwrap();
        let gone = g.named(Request::new(Operation::RemoveXattr, node), b"user.a");
        assert_eq!(gone.unwrap_err(), number(Errno::NODATA));
        let long = Request { b: 65537, ..Request::new(Operation::SetXattr, node) };
        assert_eq!(g.named(long, b"user.a").unwrap_err(), number(Errno::TOOBIG));
    }
    let fifo = b.guest.make(0, "fifo", 0o010_644).unwrap();
    assert_eq!(b.guest.get_xattr(fifo, "user.a"), Err(number(Errno::OPNOTSUPP)));
}

#[test]
fn the_file_system_says_its_room() {
    let mut b = Bench::new();
    b.guest.call(Request::new(Operation::StatFs, 0)).unwrap();
    let words: Vec<u64> =
        b.guest.text(56).as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let s = rustix::fs::statfs(&b.root).unwrap();
    assert_eq!(words[..3], [s.f_type.cast_unsigned(), s.f_bsize.cast_unsigned(), s.f_blocks]);
    assert_eq!(words[5], s.f_files);
}

#[test]
fn what_the_host_changes_is_seen() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    std::fs::write(b.path("file"), "by the host").unwrap();
    assert_eq!(b.guest.attributes(file).unwrap().size, 11);
    std::fs::rename(b.path("file"), b.path("moved")).unwrap();
    assert_eq!(b.guest.read(file, 0, 99).unwrap(), b"by the host");
    std::fs::write(b.path("file"), "another").unwrap();
    let other = b.guest.lookup(0, "file").unwrap();
    assert_ne!(other, file);
    assert_eq!(b.guest.lookup(0, "moved"), Ok(file));
}

#[test]
fn a_node_stays_as_often_as_it_was_given() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    assert_eq!(b.guest.lookup(0, "file"), Ok(file));
    b.guest.forget(file, 1);
    b.guest.attributes(file).unwrap();
    b.guest.forget(file, 1);
    b.guest.attributes(file).unwrap_err();
    b.guest.forget(file, 1);
    // Its number is another file's now.
    assert_eq!(b.guest.create(0, "other"), Ok(file));
    assert_eq!(b.guest.lookup(0, "file"), Ok(file + 1));
    b.guest.forget(0, u64::MAX);
    b.guest.attributes(0).unwrap();
}

#[test]
fn changes_of_names_are_made_in_their_order() {
    let mut b = Bench::new();
    let dir = b.guest.make(0, "d", 0o040_755).unwrap();
    for name in ["one", "two"] {
        b.guest.create(0, name).unwrap();
    }
    let step =
        |operation, node, other| Step { operation, flags: flags::UNUSED, node, other, first: 0, second: 0 };
    let (unlink, rename) = (step(Operation::Unlink, 0, 0), step(Operation::Rename, 0, dir));
    let steps = [
        (rename, "one", "moved"),
        (rename, "two", "moved"),
        (unlink, "one", ""),
        (unlink, "d/moved", ""),
        (step(Operation::Rename, dir, 0), "moved", "one"),
        (step(Operation::RmDir, 0, 0), "d", ""),
    ];
    let request = b.guest.batch(0, 0, &steps);
    // The first error, and the others are made all the same.
    assert_eq!(b.guest.call(request).unwrap().value, u64::from(number(Errno::NOENT)));
    assert_eq!(b.guest.list(0).unwrap(), ["one"]);
    let request = b.guest.batch(0, 0, &[(unlink, "one", "")]);
    assert_eq!(b.guest.call(request).unwrap().value, 0);
    let too_many = Request { a: STEPS as u64 + 1, ..request };
    assert_eq!(b.guest.call(too_many), Err(number(Errno::INVAL)));
    assert_eq!(b.guest.call(Request { b: 5, ..request }), Err(number(Errno::INVAL)));
}

#[test]
fn what_was_done_is_not_done_again_by_other_names() {
    let mut b = Bench::new();
    let twice = |b: &mut Bench, request: Request| {
        let first = b.guest.call(request).unwrap();
        assert_eq!(b.guest.call_again(request).unwrap(), first, "{request:?}");
        first.node
    };
    let a = b.guest.put_name(0, b"made");
    let file = twice(&mut b, Request { a, b: 0o100_644, ..Request::new(Operation::Make, 0) });
    let a = b.guest.put_name(0, b"dir");
    let dir = twice(&mut b, Request { a, b: 0o040_755, ..Request::new(Operation::Make, 0) });
    let a = b.guest.put_name(0, b"link");
    let to = b.guest.put_second(0, b"made");
    twice(&mut b, Request { a, b: to, ..Request::new(Operation::Symlink, 0) });
    let a = b.guest.put_name(0, b"other");
    twice(&mut b, Request { a, other: dir, ..Request::new(Operation::Link, file) });
    let changes = Changes { size: 12_345, ..Changes::default() };
    b.guest.map.write(offset(text(0)), &changes.encode());
    twice(&mut b, Request { flags: set::SIZE, ..Request::new(Operation::SetAttr, file) });
    assert_eq!(b.guest.shown().size, 12_345);
    assert_eq!(std::fs::metadata(b.path("made")).unwrap().len(), 12_345);
    assert_eq!(b.guest.list(0).unwrap(), ["dir", "link", "made"]);
    assert_eq!(b.guest.list(dir).unwrap(), ["other"]);
}

#[test]
fn a_write_may_end_on_the_disk() {
    let mut b = Bench::new();
    let file = b.guest.create(0, "file").unwrap();
    for (at, how) in [(0, flags::DSYNC), (4, flags::SYNC), (0, flags::DSYNC | flags::APPEND)] {
        let len = b.guest.put_data(0, b"good");
        let request = Request { a: at, b: len, flags: how, ..Request::new(Operation::Write, file) };
        assert_eq!(b.guest.call(request).unwrap().value, 4, "{how}");
    }
    assert_eq!(std::fs::read(b.path("file")).unwrap(), b"goodgoodgood");
}

//! What a domain hears of files that it watches: what others change, each thing once, and nothing of what it does itself.

use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::file_event::{
    ALL, ATTRIB, CLOSE_WRITE, CREATE, DELETE, DELETE_SELF, ISDIR, MODIFY, MOVE_SELF, MOVED_FROM, MOVED_TO,
    OVERFLOW,
};
use doppel_abi_service::storage::lock::{EXCLUSIVE, LAST, UNLOCK};
use doppel_abi_service::storage::{Changes, FileEvent, Operation, Request, Step, flags, set};

use super::guest::{self, Guest};
use super::{Bench, Volume, nodes};

/// Longer than a file is open for writing after it was written.
const CLOSED: Duration = Duration::from_millis(700);

/// An event without its cookie: file, what happened, name.
type Told = (u64, u32, String);

fn told(events: &[FileEvent]) -> Vec<Told> {
    let name = |e: &FileEvent| String::from_utf8(e.name.bytes().to_vec()).unwrap();
    events.iter().map(|e| (e.node, e.mask, name(e))).collect()
}

fn of(node: u64, mask: u32, name: &str) -> Told {
    (node, mask, name.to_owned())
}

/// Takes events until there are so many, and as many as come within a moment of the last.
fn hear(guest: &mut Guest, most: usize) -> Vec<FileEvent> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.len() < most {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", told(&all));
        all.extend(guest.events());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    all.extend(guest.events());
    all
}

/// Nothing comes, for as long as what was written is open.
fn silent(guest: &mut Guest) {
    std::thread::sleep(CLOSED);
    assert_eq!(told(&guest.events()), []);
}

/// Two domains that have one directory.
fn two() -> (Bench, Guest) {
    let mut other = None;
    let bench = Bench::with_another(
        |root| vec![Volume::open(root, false).unwrap()],
        |engine, root| {
            let (memory, doorbell) = guest::channel();
            other = Some(guest::guest(&memory, &doorbell));
            let volumes = vec![Volume::open(root, false).unwrap()];
            engine.attach(&memory, doorbell, &nodes::memory().unwrap(), volumes).unwrap();
        },
    );
    (bench, other.unwrap())
}

#[test]
fn what_another_domain_changes_is_heard_once() {
    let (mut bench, mut other) = two();
    let guest = &mut bench.guest;
    guest.watch(0, ALL, 1).unwrap();
    let file = other.create(0, "file").unwrap();
    assert_eq!(told(&hear(guest, 1)), [of(0, CREATE, "file")]);
    other.write(file, 0, b"text").unwrap();
    // It is closed a moment later.
    assert_eq!(told(&hear(guest, 2)), [of(0, MODIFY, "file"), of(0, CLOSE_WRITE, "file")]);
    other.change(file, set::MODE, Changes { mode: 0o600, ..Changes::default() }).unwrap();
    assert_eq!(told(&hear(guest, 1)), [of(0, ATTRIB, "file")]);
    other.rename(0, "file", 0, "other", 0).unwrap();
    let moved = hear(guest, 2);
    assert_eq!(told(&moved), [of(0, MOVED_FROM, "file"), of(0, MOVED_TO, "other")]);
    assert!(moved[0].cookie != 0 && moved[0].cookie == moved[1].cookie);
    other.unlink(0, "other").unwrap();
    assert_eq!(told(&hear(guest, 1)), [of(0, DELETE, "other")]);
    other.make(0, "dir", 0o40_755).unwrap();
    other.rmdir(0, "dir").unwrap();
    assert_eq!(told(&hear(guest, 2)), [of(0, CREATE | ISDIR, "dir"), of(0, DELETE | ISDIR, "dir")]);
    silent(guest);
}

#[test]
fn what_the_host_changes_is_heard_once() {
    let mut bench = Bench::new();
    bench.guest.watch(0, ALL, 1).unwrap();
    std::fs::write(bench.path("file"), "text").unwrap();
    let guest = &mut bench.guest;
    let expected = [of(0, CREATE, "file"), of(0, MODIFY, "file"), of(0, CLOSE_WRITE, "file")];
    assert_eq!(told(&hear(guest, 3)), expected);
    let file = guest.lookup(0, "file").unwrap();
    guest.watch(file, MODIFY | ATTRIB | DELETE_SELF | MOVE_SELF, 2).unwrap();
    std::fs::File::options().write(true).open(bench.root.join("file")).unwrap().write_at(b"x", 0).unwrap();
    let both = [of(0, MODIFY, "file"), of(file, MODIFY, ""), of(0, CLOSE_WRITE, "file")];
    let mut heard = told(&hear(guest, 3));
    heard.sort_unstable_by_key(|(node, mask, _)| (*mask, *node));
    assert_eq!(heard, both);
    std::fs::rename(bench.root.join("file"), bench.root.join("new")).unwrap();
    let moved = [of(0, MOVED_FROM, "file"), of(0, MOVED_TO, "new"), of(file, MOVE_SELF, "")];
    assert_eq!(told(&hear(guest, 3)), moved);
    // It is held open here; the host does not say that it is gone.
    std::fs::remove_file(bench.root.join("new")).unwrap();
    let mut gone = told(&hear(guest, 3));
    gone.sort_unstable();
    assert_eq!(gone, [of(0, DELETE, "new"), of(file, ATTRIB, ""), of(file, DELETE_SELF, "")]);
    silent(guest);
}

#[test]
fn names_across_directories_are_joined_by_their_cookies() {
    let (mut bench, mut other) = two();
    let guest = &mut bench.guest;
    let dirs = ["one", "two"].map(|name| other.make(0, name, 0o40_755).unwrap());
    let file = other.create(dirs[0], "file").unwrap();
    let seen = ["one", "two"].map(|name| guest.lookup(0, name).unwrap());
    // It was open for writing when it was made.
    let events = ALL & !CLOSE_WRITE;
    seen.into_iter().zip(1..).for_each(|(dir, number)| guest.watch(dir, events, number).unwrap());
    other.rename(dirs[0], "file", dirs[1], "moved", 0).unwrap();
    let moved = hear(guest, 2);
    assert_eq!(told(&moved), [of(seen[0], MOVED_FROM, "file"), of(seen[1], MOVED_TO, "moved")]);
    assert_eq!(moved[0].cookie, moved[1].cookie);
    // A directory that is watched can go all the same.
    other.unlink(dirs[1], "moved").unwrap();
    other.rmdir(0, "two").unwrap();
    // Once nobody has it open, or what was in it.
    other.forget(file, 1);
    other.forget(dirs[1], 1);
    let gone = told(&hear(guest, 2));
    assert_eq!(gone, [of(seen[1], DELETE, "moved"), of(seen[1], DELETE_SELF, "")]);
    // By the host, too.
    std::fs::remove_dir(bench.root.join("one")).unwrap();
    other.forget(dirs[0], 1);
    assert_eq!(told(&hear(&mut bench.guest, 1)), [of(seen[0], DELETE_SELF, "")]);
}

#[test]
fn what_it_does_itself_is_not_heard() {
    let (mut bench, _other) = two();
    let guest = &mut bench.guest;
    guest.watch(0, ALL, 1).unwrap();
    let dir = guest.make(0, "dir", 0o40_755).unwrap();
    guest.watch(dir, ALL, 2).unwrap();
    // Of another owner, and a mode that a directory's group changes.
    let request = Request { b: 0o102_755, c: 7, d: 8, ..Request::new(Operation::Make, dir) };
    let file = guest.named(request, b"file").unwrap().node;
    guest.watch(file, ALL, 3).unwrap();
    guest.write(file, 0, b"text").unwrap();
    let synced = flags::SYNC;
    let b = guest.put_data(0, b"more");
    guest.call(Request { b, flags: synced, other: 5, ..Request::new(Operation::Write, file) }).unwrap();
    guest.append(file, b"end").unwrap();
    guest.truncate(file, 2).unwrap();
    guest.allocate(file, 0, 0, 9000).unwrap();
    let changes = Changes { mode: 0o600, uid: 3, gid: 4, atime: 5, mtime: 6, size: 0 };
    guest.change(file, set::MODE | set::UID | set::GID | set::ATIME | set::MTIME, changes).unwrap();
    guest.set_xattr(file, "user.a", b"b", 0).unwrap();
    guest.lock(file, (0, 9), EXCLUSIVE).unwrap();
    guest.lock(file, (0, 9), UNLOCK | LAST).unwrap();
    guest.link(file, 0, "second").unwrap();
    guest.symlink(dir, "link", b"target").unwrap();
    guest.rename(dir, "link", 0, "moved", 0).unwrap();
    guest.rename(0, "moved", 0, "second", 0).unwrap();
    let steps = [
        (Step { operation: Operation::Rename, node: 0, other: dir, ..step() }, "second", "third"),
        (Step { operation: Operation::Unlink, node: dir, ..step() }, "third", ""),
    ];
    let batch = guest.batch(0, 0, &steps);
    assert_eq!(guest.call(batch).unwrap().value, 0);
    let nameless = guest.tmpfile(dir).unwrap();
    guest.write(nameless, 0, b"text").unwrap();
    guest.forget(nameless, 1);
    silent(guest);
    guest.unlink(dir, "file").unwrap();
    guest.rmdir(0, "dir").unwrap();
    silent(guest);
}

fn step() -> Step {
    Step { operation: Operation::Unlink, flags: 0, node: 0, other: 0, first: 0, second: 0 }
}

#[test]
fn files_that_lose_their_names_are_closed_silently() {
    let (mut bench, _other) = two();
    let guest = &mut bench.guest;
    let nodes: Vec<u64> = ["a", "b", "c (deleted)"].map(|name| guest.create(0, name).unwrap()).into();
    guest.watch(0, ALL, 1).unwrap();
    for node in &nodes {
        guest.write(*node, 0, b"text").unwrap();
    }
    // It is written without a name, and with one that is another's.
    guest.unlink(0, "a").unwrap();
    guest.write(nodes[0], 4, b"more").unwrap();
    guest.rename(0, "b", 0, "d", 0).unwrap();
    guest.unlink(0, "d").unwrap();
    guest.symlink(0, "d", b"other").unwrap();
    guest.unlink(0, "c (deleted)").unwrap();
    silent(guest);
}

#[test]
fn a_file_is_closed_when_its_program_closes_it() {
    let (mut bench, mut other) = two();
    let guest = &mut bench.guest;
    let file = other.create(0, "file").unwrap();
    guest.watch(0, CLOSE_WRITE, 1).unwrap();
    let b = other.put_data(0, b"text");
    let write = Request { b, flags: flags::HELD, ..Request::new(Operation::Write, file) };
    for round in 0..3 {
        other.call(write).unwrap();
        silent(guest);
        if round == 1 {
            // By somebody else, who does not say so.
            other.write(file, 0, b"text").unwrap();
        }
        other.ask(0, Request::new(Operation::Release, file));
        assert_eq!(told(&hear(guest, 1)), [of(0, CLOSE_WRITE, "file")]);
        other.ask(0, Request::new(Operation::Release, file));
    }
    silent(guest);
}

#[test]
fn what_fails_does_not_hide_what_others_do() {
    let (mut bench, mut other) = two();
    let guest = &mut bench.guest;
    guest.watch(0, CREATE, 1).unwrap();
    for n in 0..200 {
        let name = n.to_string();
        // Who comes first makes it; the other one's fails.
        let request = Request { slot: 1, b: 0o100_644, ..Request::new(Operation::Make, 0) };
        let a = guest.put_name(1, name.as_bytes());
        let theirs = other.put_name(1, name.as_bytes());
        guest.ask(1, Request { a, ..request });
        other.ask(1, Request { a: theirs, ..request });
        let (mine, theirs) = (guest.wait(1), other.wait(1));
        assert!(mine.is_ok() != theirs.is_ok());
        let expected = if mine.is_ok() { vec![] } else { vec![of(0, CREATE, &name)] };
        let heard = if mine.is_ok() { guest.events() } else { hear(guest, 1) };
        assert_eq!(told(&heard), expected, "{n}");
    }
}

#[test]
fn two_places_of_one_directory_hear_of_each_other() {
    let mut bench = Bench::with(|root| [0, 1].map(|_| Volume::open(root, false).unwrap()).into());
    let guest = &mut bench.guest;
    guest.watch(0, CREATE, 1).unwrap();
    guest.watch(1, CREATE | DELETE, 2).unwrap();
    guest.create(0, "file").unwrap();
    assert_eq!(told(&hear(guest, 1)), [of(1, CREATE, "file")]);
    guest.unlink(1, "file").unwrap();
    // The first one has not asked for it.
    silent(guest);
    guest.unwatch(0, 3);
    // That is not answered.
    guest.attributes(0).unwrap();
    std::fs::write(bench.root.join("file"), "").unwrap();
    assert_eq!(told(&hear(&mut bench.guest, 1)), [of(1, CREATE, "file")]);
}

#[test]
fn who_watches_no_more_hears_nothing() {
    let mut bench = Bench::new();
    bench.guest.watch(0, ALL, 5).unwrap();
    // It comes late.
    bench.guest.unwatch(0, 4);
    bench.guest.attributes(0).unwrap();
    std::fs::create_dir(bench.path("one")).unwrap();
    assert_eq!(told(&hear(&mut bench.guest, 1)), [of(0, CREATE | ISDIR, "one")]);
    bench.guest.unwatch(0, 6);
    bench.guest.attributes(0).unwrap();
    std::fs::create_dir(bench.path("two")).unwrap();
    silent(&mut bench.guest);
    // So does one of before.
    bench.guest.watch(0, DELETE, 7).unwrap();
    bench.guest.watch(0, CREATE, 6).unwrap();
    std::fs::create_dir(bench.path("three")).unwrap();
    std::fs::remove_dir(bench.path("three")).unwrap();
    assert_eq!(told(&hear(&mut bench.guest, 1)), [of(0, DELETE | ISDIR, "three")]);
}

#[test]
fn who_does_not_listen_is_told_that_it_has_missed_something() {
    let mut bench = Bench::new();
    bench.guest.watch(0, CREATE | DELETE, 1).unwrap();
    let (one, two) = (bench.path("one"), bench.path("two"));
    // More than the ring holds, and than waits behind it.
    for _ in 0..1500 {
        for name in [&one, &two] {
            std::fs::create_dir(name).unwrap();
            std::fs::remove_dir(name).unwrap();
        }
        // It is served meanwhile.
        bench.guest.attributes(0).unwrap();
    }
    let mut all = Vec::new();
    let begun = Instant::now();
    while all.last() != Some(&FileEvent::LOST) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} events", all.len());
        all.extend(bench.guest.events());
    }
    assert!((2048..6000).contains(&all.len()), "{} events", all.len());
    assert_eq!(all.iter().filter(|event| event.mask == OVERFLOW).count(), 1);
    // From then on it hears again.
    std::fs::create_dir(&one).unwrap();
    assert_eq!(told(&hear(&mut bench.guest, 1)), [of(0, CREATE | ISDIR, "one")]);
}

#[test]
fn watches_are_bounded() {
    let mut bench = Bench::new();
    let guest = &mut bench.guest;
    for n in 0..=8192u64 {
        let node = guest.make(0, &n.to_string(), 0o40_755).unwrap();
        let watched = guest.watch(node, ALL, n);
        assert_eq!(watched, if n < 8192 { Ok(()) } else { Err(28) }, "{n}");
        if n == 0 {
            assert_eq!(guest.watch(node, 0, n), Err(22));
            // Who reads is not told of.
            assert_eq!(guest.watch(node, 0x20, n), Err(22));
            assert_eq!(guest.watch(u64::MAX, ALL, n), Err(116));
        }
    }
    // One that is given back has no watch any more.
    let node = guest.lookup(0, "0").unwrap();
    guest.forget(node, 2);
    guest.watch(0, ALL, 9000).unwrap();
}

#[test]
fn a_file_that_is_not_the_domains_is_not_watched() {
    let mut bench = Bench::new();
    std::fs::write(bench.path("file"), "").unwrap();
    let file = bench.guest.lookup(0, "file").unwrap();
    bench.guest.watch(file, ALL, 1).unwrap();
    bench.guest.forget(file, 1);
    assert_eq!(bench.guest.watch(file, ALL, 2), Err(116));
    change(&bench.path("file"));
    silent(&mut bench.guest);
}

fn change(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    chown(path, Some(5), None).unwrap();
}

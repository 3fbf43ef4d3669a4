//! The service is killed, at any point of its work.

use std::time::{Duration, Instant};

use crate::oracle::{Random, Stream, same};
use crate::{Fixture, wait_for};

/// Streams of operations that go on at once.
const STREAMS: u16 = 4;

pub fn nothing_is_lost_or_done_twice() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let wanted = std::env::var("KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let fixture = Fixture::new();
    let (attachment, mut guest, root) = fixture.domain("volume");
    let plain = fixture.dir.path().join("plain");
    let mut streams: Vec<_> = (0..STREAMS)
        .map(|n| {
            let name = n.to_string();
            let host = plain.join(&name);
            std::fs::create_dir_all(&host).unwrap();
            let node = guest.make(0, &name, 0o040_755).unwrap();
            Stream::new(n + 1, seed * 100 + u64::from(n), node, &host)
        })
        .collect();
    let mut random = Random(seed);
    let begun = Instant::now();
    let (mut kills, mut kill_at) = (0, Instant::now());
    let (mut killed, mut gaps) = (None, Vec::new());
    while kills < wanted || streams.iter().any(|s| s.done < 100) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{kills} kills");
        let before: u64 = streams.iter().map(|s| s.done).sum();
        streams.iter_mut().for_each(|stream| stream.go_on(&mut guest, true));
        let done: u64 = streams.iter().map(|s| s.done).sum();
        if guest.successors == kills
            && done > before
            && let Some(at) = killed.take()
        {
            gaps.push(Instant::now().duration_since(at));
            kill_at = Instant::now() + Duration::from_micros(100 + random.below(20_000));
        }
        if killed.is_none() && Instant::now() >= kill_at {
            fixture.kill();
            (killed, kills) = (Some(Instant::now()), kills + 1);
        }
    }
    wait_for("the last answers", || {
        streams.iter_mut().for_each(|stream| stream.go_on(&mut guest, false));
        streams.iter().all(Stream::rests)
    });
    for (done, failed) in streams.iter().map(|s| (s.done, s.failed)) {
        assert!(failed < done / 10 * 9, "{done} operations, {failed} failed");
    }
    let files = same(&root, &plain);
    gaps.sort();
    let done: u64 = streams.iter().map(|s| s.done).sum();
    println!(
        "{done} operations, {files} files, {kills} kills; first answer after a kill: median {:?}, worst {:?}",
        gaps[gaps.len() / 2],
        gaps.last()
    );
    // With the pause for those that die as soon as they are born, on a host that may be busy.
    assert!(gaps[gaps.len() / 2] < Duration::from_secs(1), "{gaps:?}");
    assert!(attachment.traffic().operations > 0);
}

pub fn files_without_names_stay() {
    let fixture = Fixture::new();
    let (_attachment, mut guest, root) = fixture.domain("volume");
    let file = guest.create(0, "file").unwrap();
    let victim = guest.create(0, "victim").unwrap();
    let dir = guest.make(0, "dir", 0o040_755).unwrap();
    let nameless = guest.tmpfile(0).unwrap();
    let named = guest.tmpfile(0).unwrap();
    for (node, text) in [(file, "file"), (victim, "victim"), (nameless, "nameless"), (named, "named")] {
        guest.write(node, 0, text.as_bytes()).unwrap();
    }
    guest.unlink(0, "file").unwrap();
    std::fs::write(root.join("other"), "other").unwrap();
    guest.rename(0, "other", 0, "victim", 0).unwrap();
    guest.rmdir(0, "dir").unwrap();
    guest.link(named, 0, "named").unwrap();
    for _ in 0..3 {
        fixture.kill();
        for (node, text) in [(file, "file"), (victim, "victim"), (nameless, "nameless"), (named, "named")] {
            assert_eq!(guest.read(node, 0, 99).unwrap(), text.as_bytes());
            guest.write(node, 0, text.as_bytes()).unwrap();
        }
        assert_eq!(guest.attributes(file).unwrap().nlink, 0);
        assert_eq!(guest.attributes(dir).unwrap().nlink, 0);
        assert_eq!(guest.attributes(named).unwrap().nlink, 1);
    }
    assert_eq!(guest.successors, 3);
    // What is given back is kept no more.
    let held = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        links
            .filter(|l| {
                l.to_string_lossy().ends_with(" (deleted)") && !l.to_string_lossy().contains("memfd:")
            })
            .count()
    };
    wait_for("pins at the manager", || held() >= 4);
    for node in [file, victim, dir, nameless] {
        guest.forget(node, 1);
    }
    guest.attributes(0).unwrap();
    wait_for("none at the manager", || held() == 0);
    assert_eq!(guest.list(0).unwrap(), ["named", "victim"]);
}

pub fn what_is_pinned_is_bounded() {
    let fixture = Fixture::new();
    let (_attachment, mut guest, _) = fixture.domain("volume");
    let (_other, mut neighbour, _) = fixture.domain("neighbour");
    let mut nodes = Vec::new();
    let refused = loop {
        match guest.tmpfile(0) {
            Ok(node) => nodes.push(node),
            Err(error) => break error,
        }
        assert!(nodes.len() < 5000);
    };
    assert_eq!(i32::from(refused), rustix::io::Errno::NFILE.raw_os_error());
    let file = guest.create(0, "file").unwrap();
    assert_eq!(guest.unlink(0, "file"), Err(refused));
    // One that is not in use needs no pin; nor does a neighbour mind.
    let neighbours = neighbour.tmpfile(0).unwrap();
    fixture.kill();
    assert_eq!(neighbour.attributes(neighbours).unwrap().nlink, 0);
    for node in nodes.drain(..) {
        assert_eq!(guest.attributes(node).unwrap().nlink, 0);
        guest.forget(node, 1);
    }
    guest.unlink(0, "file").unwrap();
    assert_eq!(guest.attributes(file).unwrap().nlink, 0);
    guest.tmpfile(0).unwrap();
}

pub fn counts_do_not_go_down() {
    let fixture = Fixture::new();
    let (attachment, mut guest, _) = fixture.domain("volume");
    let file = guest.create(0, "file").unwrap();
    guest.write(file, 0, &[1; 1000]).unwrap();
    guest.read(file, 0, 600).unwrap();
    let before = attachment.traffic();
    assert_eq!(
        (before.operations, before.written_bytes, before.read_bytes, before.errors),
        (3, 1000, 600, 0)
    );
    assert!(before.nanoseconds > 0);
    fixture.kill();
    guest.read(file, 0, 600).unwrap();
    let after = attachment.traffic();
    assert_eq!((after.operations, after.read_bytes), (4, 1200));
    assert_eq!(fixture.manager.health().starts, 2);
}

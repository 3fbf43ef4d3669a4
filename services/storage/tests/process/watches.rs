//! What is watched, when the service is killed.

use std::time::{Duration, Instant};

use doppel_abi_service::storage::file_event::{ALL, CREATE, DELETE, DELETE_SELF, ISDIR};
use doppel_abi_service::storage::{FileEvent, Name};

use crate::Fixture;
use crate::guest::Guest;

/// Takes events until this one comes.
fn until(guest: &mut Guest, last: &FileEvent) -> Vec<FileEvent> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while all.last() != Some(last) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{last:?}, not {all:?}");
        all.extend(guest.events());
        std::thread::yield_now();
    }
    all
}

fn event(node: u64, mask: u32, name: &str) -> FileEvent {
    FileEvent { node, mask, cookie: 0, name: Name::new(name.as_bytes()).unwrap() }
}

pub fn watches_stay() {
    let fixture = Fixture::new();
    let (_a, mut guest, root) = fixture.domain("volume");
    let (_b, mut other) = fixture.domain_of(&root);
    guest.watch(0, CREATE | DELETE, 1).unwrap();
    let dir = guest.make(0, "dir", 0o040_755).unwrap();
    guest.watch(dir, ALL, 2).unwrap();
    let file = guest.create(dir, "file").unwrap();
    guest.watch(file, ALL, 3).unwrap();
    guest.unwatch(file, 4);
    guest.attributes(file).unwrap();
    let mut gaps = Vec::new();
    for n in 0..10 {
        let name = n.to_string();
        fixture.kill();
        let begun = Instant::now();
        assert_eq!(until(&mut guest, &FileEvent::LOST), [FileEvent::LOST], "{n}");
        gaps.push(begun.elapsed());
        std::fs::write(root.join("dir/file"), &name).unwrap();
        let made = other.make(0, &name, 0o040_755).unwrap();
        let last = event(0, CREATE | ISDIR, &name);
        let all = until(&mut guest, &last);
        assert!(all.contains(&event(dir, 2, "file")), "{all:?}");
        assert!(all.iter().all(|event| event.node != file), "{all:?}");
        other.rmdir(0, &name).unwrap();
        other.forget(made, 1);
        until(&mut guest, &event(0, DELETE | ISDIR, &name));
        // Its own are not told by a successor either.
        guest.make(0, &name, 0o040_755).unwrap();
        guest.rmdir(0, &name).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(guest.events(), []);
    }
    gaps.sort();
    println!("told of what was missed: median {:?}, worst {:?}", gaps[gaps.len() / 2], gaps.last());
    // With the pause for those that die as soon as they are born, on a host that may be busy.
    assert!(gaps[gaps.len() / 2] < Duration::from_secs(1), "{gaps:?}");
    // A directory is not held open by who watches it.
    std::fs::remove_file(root.join("dir/file")).unwrap();
    guest.forget(file, 1);
    std::fs::remove_dir(root.join("dir")).unwrap();
    let all = until(&mut guest, &event(0, DELETE | ISDIR, "dir"));
    assert!(all.contains(&event(dir, DELETE_SELF, "")), "{all:?}");
}

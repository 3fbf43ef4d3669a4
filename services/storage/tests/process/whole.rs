//! Every operation, in a process that is confined.

use std::os::fd::AsFd;

use doppel_abi_service::storage::file_event::ALL;
use doppel_abi_service::storage::{Changes, Operation, Request, Step, flags, set};
use doppel_storage::Volume;

use crate::Fixture;
use crate::guest::Guest;

pub fn every_operation_passes_the_filter() {
    let fixture = Fixture::new();
    let (_attachment, mut g, root) = fixture.domain("volume");
    let dir = g.make(0, "dir", 0o042_775).unwrap();
    let fifo = g.make(0, "fifo", 0o010_600).unwrap();
    let link = g.symlink(0, "link", b"target").unwrap();
    for (node, number) in [(0, 1), (dir, 2), (fifo, 3), (link, 4)] {
        g.watch(node, ALL, number).unwrap();
    }
    let file = g.create(dir, "file").unwrap();
    // Who is not root has one owner.
    let owner = if rustix::process::geteuid().is_root() { (5, 6) } else { (0, 0) };
    let request = Request { b: 0o104_755, c: owner.0, d: owner.1, ..Request::new(Operation::Make, 0) };
    g.named(request, b"owned").unwrap();
    let changes = Changes { mode: 0o600, uid: owner.0, gid: owner.1, size: 10, atime: 7, mtime: 8 };
    let all = set::MODE | set::UID | set::GID | set::SIZE | set::ATIME | set::MTIME;
    assert_eq!(g.change(file, all, changes).unwrap().mode, 0o100_600);
    g.write(file, 0, &[1; 100_000]).unwrap();
    g.append(file, b"end").unwrap();
    assert_eq!(g.read(file, 0, 200_000).unwrap().len(), 100_003);
    g.allocate(file, 3, 0, 4096).unwrap();
    g.allocate(file, 8, 0, 4096).unwrap();
    g.seek(file, 3, 0).unwrap();
    g.sync(file, 0).unwrap();
    g.sync(file, flags::DATA).unwrap();
    g.sync(dir, 0).unwrap();
    assert_eq!(g.read_link(link).unwrap(), b"target");
    g.link(file, 0, "hard").unwrap();
    g.rename(0, "hard", dir, "moved", 1).unwrap();
    g.rename(dir, "moved", dir, "file", 2).unwrap();
    g.set_xattr(file, "user.a", b"value", 0).unwrap();
    assert_eq!(g.get_xattr(file, "user.a").unwrap(), b"value");
    g.call(Request::new(Operation::ListXattr, file)).unwrap();
    g.named(Request::new(Operation::RemoveXattr, file), b"user.a").unwrap();
    g.call(Request::new(Operation::StatFs, 0)).unwrap();
    g.attributes(fifo).unwrap();
    g.tmpfile(dir).unwrap();
    assert_eq!(g.list(dir).unwrap(), ["file", "moved"]);
    g.unlink(dir, "file").unwrap();
    let step = Step { operation: Operation::Unlink, flags: 0, node: dir, other: 0, first: 0, second: 0 };
    let batch = g.batch(0, 0, &[(step, "moved", "")]);
    assert_eq!(g.call(batch).unwrap().value, 0);
    g.rmdir(0, "dir").unwrap();
    // Memory of its threads, by answers of several at once.
    for slot in 1..9 {
        g.ask(slot, Request { slot, ..Request::new(Operation::Sync, 0) });
    }
    for slot in 1..9 {
        g.wait(slot).unwrap();
    }
    assert_eq!(g.successors, 0);
    // All of that it did itself.
    assert_eq!(g.events(), []);
    g.unwatch(0, 5);
    g.attributes(0).unwrap();
    // It can neither leave its root nor see where that is on the host.
    let status =
        |what: &str| std::fs::read_to_string(format!("/proc/{}/{what}", fixture.manager.pid().unwrap()));
    let status = status("status").unwrap();
    let line = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().to_owned()
    };
    assert_eq!((line("Seccomp:").as_str(), line("NoNewPrivs:").as_str()), ("2", "1"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(line("CapEff:"), "000000000000001f");
        assert_eq!(line("CapBnd:"), "000000000000001f");
    }
    assert!(root.join("owned").is_file());
}

pub fn its_descriptors_are_bounded() {
    let fixture = Fixture::new();
    let (_attachment, mut g, root) = fixture.domain("volume");
    let names: Vec<_> = (0..3000).map(|i| i.to_string()).collect();
    let mut nodes = Vec::new();
    for name in &names {
        let node = g.create(0, name).unwrap();
        g.write(node, 0, name.as_bytes()).unwrap();
        nodes.push(node);
    }
    let pid = fixture.manager.pid().unwrap();
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open() < 1700, "{} descriptors", open());
    for (name, &node) in names.iter().zip(&nodes) {
        assert_eq!(g.read(node, 0, 9).unwrap(), name.as_bytes());
    }
    // What is not written any more is not open for that: the host could not execute it.
    let writes = || {
        let all = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
        let written = all.filter(|fd| {
            let info = std::fs::read_to_string(fd.path()).unwrap_or_default();
            let link = std::fs::read_link(format!("/proc/{pid}/fd/{}", fd.file_name().to_str().unwrap()));
            let names: Vec<_> = names.iter().map(|name| format!("/{name}")).collect();
            info.lines().any(|line| line.starts_with("flags:") && line.ends_with('2'))
                && link.is_ok_and(|link| {
                    names.iter().any(|name| link.ends_with(name) || link.to_str() == Some(name))
                })
        });
        written.count()
    };
    crate::wait_for("files that are not written", || writes() == 0);
    // So it is with a volume that is a file.
    let volumes = vec![Volume::open(&root.join("1"), false).unwrap()];
    let attachment = fixture.manager.attach(volumes).unwrap();
    let mut of_file = Guest::new(attachment.memory.as_fd(), attachment.doorbell.as_fd());
    assert_eq!(of_file.write(0, 0, b"one"), Ok(3));
    assert_eq!(g.read(nodes[1], 0, 9).unwrap(), b"one");
}

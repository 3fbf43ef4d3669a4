//! The service cannot begin, or cannot serve a domain.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use doppel_service::Program;
use doppel_storage::{Manager, SERVICE, Volume};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::guest::Guest;
use crate::{Fixture, wait_for};

/// Whoever wants it is told why, and those that were served before go on when it can begin again.
pub fn cannot_begin() {
    let dir = tempfile::tempdir().unwrap();
    let (refuse, root) = (dir.path().join("refuse"), dir.path().join("volume"));
    std::fs::create_dir(&root).unwrap();
    let volumes = || vec![Volume::open(&root, false).unwrap()];
    // As the test's `main` has it: it does not begin while that file is there.
    let arguments = [OsStr::new("doppel-storage-test"), OsStr::new(SERVICE), refuse.as_os_str()];
    let manager = Manager::start(Program::new("/proc/self/exe", arguments).unwrap()).unwrap();
    let served = manager.attach(volumes()).unwrap();
    served.wait_served().unwrap();
    let mut guest = Guest::new(served.memory.as_fd(), served.doorbell.as_fd());
    let file = guest.create(0, "file").unwrap();
    manager.heard();

    std::fs::write(&refuse, "").unwrap();
    let pid = Pid::from_raw(manager.pid().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    wait_for("another process", || manager.pid() != Some(pid.as_raw_nonzero().get()));
    let begun = Instant::now();
    // It is known already, or will be soon.
    let why = match manager.attach(volumes()) {
        Ok(new) => new.wait_served().unwrap_err(),
        Err(why) => why,
    };
    assert!(why.to_string().contains("cannot begin: it ended with exit code 3"), "{why}");
    wait_for("a bell", || {
        rustix::event::poll(
            &mut [PollFd::from_borrowed_fd(manager.bell(), PollFlags::IN)],
            Some(&Default::default()),
        ) == Ok(1)
    });
    let why = manager.attach(volumes()).map(drop).unwrap_err();
    assert!(why.to_string().contains("cannot begin"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(served.failure().is_none() && !served.has_begun());
    // It is not started without end meanwhile.
    let starts = manager.health().starts;
    std::thread::sleep(Duration::from_secs(1));
    assert!(manager.health().starts - starts < 12, "{starts}, {:?}", manager.health());

    std::fs::remove_file(&refuse).unwrap();
    assert_eq!(guest.write(file, 0, b"text"), Ok(4));
    wait_for("its word", || served.has_begun());
    manager.attach(volumes()).unwrap().wait_served().unwrap();
}

/// One that has no room for a domain's descriptors serves the others.
pub fn refuses_one() {
    let fixture = Fixture::new();
    let (first, mut guest, _) = fixture.domain("first");
    first.wait_served().unwrap();
    let file = guest.create(0, "file").unwrap();
    let pid = fixture.manager.pid().unwrap();
    let has = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let process = Pid::from_raw(pid);
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let few = |current| Rlimit { current: Some(current), maximum: most };
    let before = prlimit(process, Resource::Nofile, few(has)).unwrap();
    let root = fixture.dir.path().join("second");
    std::fs::create_dir(&root).unwrap();
    let second = fixture.manager.attach(vec![Volume::open(&root, false).unwrap()]).unwrap();
    let why = second.wait_served().unwrap_err().to_string();
    assert!(why.contains("the storage service cannot serve it") && why.contains("RLIMIT_NOFILE"), "{why}");
    assert_eq!(guest.write(file, 0, b"text"), Ok(4));
    assert_eq!((fixture.manager.pid(), fixture.manager.health().starts), (Some(pid), 1));
    prlimit(process, Resource::Nofile, before).unwrap();
    drop(second);
    let (third, mut guest) = fixture.domain_of(&root);
    third.wait_served().unwrap();
    guest.create(0, "file").unwrap();
}

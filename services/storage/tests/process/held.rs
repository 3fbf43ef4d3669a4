//! The host, or a domain, holds the service up.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Operation, Request};
use rustix::process::Signal;

use crate::{Fixture, wait_for};

/// Has a lease of files (`F_SETLEASE`): whoever opens one waits until it ends, for 45 s at most.
const HOLDER: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
for file in held:
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";

/// Files that cannot be opened.
struct Held(Child);

impl Held {
    /// Makes files.
    fn new(paths: &[PathBuf]) -> Self {
        paths.iter().for_each(|path| std::fs::write(path, "held").unwrap());
        let mut holder = Command::new("python3");
        holder.args(["-c", HOLDER]).args(paths).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = holder.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn one_waits() {
    let fixture = Fixture::new();
    let (_a, mut first, root) = fixture.domain("first");
    let (_b, mut second, _) = fixture.domain("second");
    let held = Held::new(&[root.join("held")]);
    let node = first.lookup(0, "held").unwrap();
    let file = second.create(0, "file").unwrap();
    first.ask(1, Request { slot: 1, b: 9, ..Request::new(Operation::Read, node) });
    // The first one takes over from who waits.
    let begun = Instant::now();
    let mut worst = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(2500) {
        let call = Instant::now();
        second.write(file, 0, b"text").unwrap();
        worst = worst.max(call.elapsed());
    }
    println!("the worst of the second's calls: {worst:?}");
    // Mostly some milliseconds; whoever had to wait for the first one would wait for all that time.
    assert!(worst < Duration::from_millis(1500), "{worst:?}");
    assert!(first.answered(1).is_none(), "it waits");
    drop(held);
    assert_eq!(first.wait(1).unwrap().value, 4);
    assert_eq!(fixture.manager.health().starts, 1, "nothing hung");
}

pub fn many_wait() {
    let fixture = Fixture::new();
    let (_b, mut last, _) = fixture.domain("last");
    let domains: Vec<_> = (0..3).map(|n| fixture.domain(&n.to_string())).collect();
    let paths: Vec<_> =
        domains.iter().flat_map(|(_, _, root)| (1..33).map(|n| root.join(n.to_string()))).collect();
    let held = Held::new(&paths);
    let mut guests = Vec::new();
    for (attachment, mut guest, _) in domains {
        let nodes: Vec<_> = (1..33).map(|n| guest.lookup(0, &n.to_string()).unwrap()).collect();
        for (n, node) in (1..33).zip(nodes) {
            guest.ask(n, Request { slot: n, b: 9, ..Request::new(Operation::Read, node) });
        }
        guests.push((attachment, guest));
    }
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let file = last.create(0, "file").unwrap();
    for _ in 0..100 {
        last.write(file, 0, b"text").unwrap();
        last.sync(file, 0).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(guests.iter_mut().all(|(_, guest)| (1..33).all(|slot| guest.answered(slot).is_none())));
    drop(held);
    for (_, guest) in &mut guests {
        for slot in 1..33 {
            assert_eq!(guest.wait(slot).unwrap().value, 4);
        }
    }
    assert_eq!(fixture.manager.health().starts, 1, "nothing hung");
}

pub fn hangs() {
    let fixture = Fixture::new();
    let (_attachment, mut guest, _) = fixture.domain("volume");
    let file = guest.create(0, "file").unwrap();
    for starts in 2..5 {
        let pid = fixture.signal(Signal::STOP);
        let begun = Instant::now();
        wait_for("a process that stands", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") T ") || stat.contains(") Z "))
        });
        assert_eq!(guest.write(file, 0, b"text"), Ok(4));
        println!("answered after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(fixture.manager.health().starts, starts);
    }
}

pub fn breaks() {
    let fixture = Fixture::new();
    let (_a, mut hostile, _) = fixture.domain("hostile");
    let (_b, mut other, _) = fixture.domain("other");
    let file = hostile.create(0, "file").unwrap();
    // One slot twice.
    let sync = Request { slot: 3, ..Request::new(Operation::Sync, file) };
    hostile.ask(3, sync);
    hostile.ask(3, sync);
    for _ in 0..200 {
        hostile.ask(3, sync);
    }
    let begun = Instant::now();
    for n in 0..100 {
        other.create(0, &n.to_string()).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    wait_for("an end of its service", || {
        let epoch = hostile.header().epoch.load(std::sync::atomic::Ordering::SeqCst);
        epoch == 1
    });
    assert_eq!(fixture.manager.health().starts, 1);
}

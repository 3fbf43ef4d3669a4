//! The service as a process of its own, confined as always, that is killed, stopped and held up. Without the harness of tests: this is also
//! the program of the service, which begins with one thread.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use doppel_service::Program;
use doppel_storage::{Attachment, Manager, SERVICE, Volume};

mod failing;
#[path = "../../src/tests/guest.rs"]
#[allow(dead_code)]
mod guest;
mod held;
mod killed;
mod oracle;
mod switched;
mod watches;
mod whole;

use guest::Guest;

/// A service, and directories of the host for its domains.
struct Fixture {
    manager: Manager,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let arguments = ["doppel-storage-test", SERVICE].map(OsStr::new);
        let manager = Manager::start(Program::new("/proc/self/exe", arguments).unwrap()).unwrap();
        Self { manager, dir: tempfile::tempdir().unwrap() }
    }

    /// A domain with a directory of this name.
    fn domain(&self, name: &str) -> (Attachment, Guest, PathBuf) {
        let root = self.dir.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let (attachment, guest) = self.domain_of(&root);
        (attachment, guest, root)
    }

    fn domain_of(&self, root: &Path) -> (Attachment, Guest) {
        let attachment = self.manager.attach(vec![Volume::open(root, false).unwrap()]).unwrap();
        let guest = Guest::new(attachment.memory.as_fd(), attachment.doorbell.as_fd());
        (attachment, guest)
    }

    fn signal(&self, signal: rustix::process::Signal) -> i32 {
        let pid = self.manager.pid().expect("it runs");
        // It may have ended a moment ago.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
        pid
    }

    fn kill(&self) -> i32 {
        self.signal(rustix::process::Signal::KILL)
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const TESTS: &[(&str, fn())] = &[
    ("whole::every_operation_passes_the_filter", whole::every_operation_passes_the_filter),
    ("whole::its_descriptors_are_bounded", whole::its_descriptors_are_bounded),
    ("killed::nothing_is_lost_or_done_twice", killed::nothing_is_lost_or_done_twice),
    ("killed::files_without_names_stay", killed::files_without_names_stay),
    ("killed::what_is_pinned_is_bounded", killed::what_is_pinned_is_bounded),
    ("killed::counts_do_not_go_down", killed::counts_do_not_go_down),
    ("switched::nothing_below_changes", switched::nothing_below_changes),
    ("killed::what_is_watched_stays_so", watches::watches_stay),
    ("held::one_that_waits_for_the_host_holds_up_nobody_else", held::one_waits),
    ("held::many_that_wait_hold_up_nobody_else", held::many_wait),
    ("held::one_that_hangs_is_replaced", held::hangs),
    ("failing::who_wants_one_that_cannot_begin_is_told", failing::cannot_begin),
    ("failing::one_that_has_no_room_for_a_domain_serves_the_others", failing::refuses_one),
    ("held::who_breaks_the_protocol_is_served_no_more", held::breaks),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == SERVICE) {
        if arguments.get(1).is_some_and(|refuse| Path::new(refuse).exists()) {
            return ExitCode::from(3);
        }
        return match doppel_storage::serve(std::io::stdin().as_fd(), true) {
            Ok(code) => code,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let wanted: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let listed = arguments.iter().any(|a| a == "--list");
    for (name, test) in TESTS {
        if listed {
            println!("{name}: test");
        } else if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            println!("test {name} ...");
            let begun = Instant::now();
            test();
            println!("test {name} ... ok ({:.1} s)", begun.elapsed().as_secs_f64());
        }
    }
    ExitCode::SUCCESS
}

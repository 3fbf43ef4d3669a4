//! Service domains that hang are replaced. These are shells, which never say a word of how they are.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Manager;

/// A file that goes with its test; whoever is started adds a line with its number.
struct Births(PathBuf);

impl Births {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doppel-{name}-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        // A service domain has a user id of its own.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        Self(path)
    }

    fn all(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for Births {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn eventually(check: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !check() {
        assert!(Instant::now() < end, "it does not come to pass");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_replaced(name: &str, hang: &str) {
    let births = Births::new(name);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("echo $$ >>{}; {hang}", births.0.display())).stdout(Stdio::null());
    let manager = Manager::start(shell).unwrap();
    eventually(|| births.all().len() >= 3);
    // The last one is killed as well, and has no successor.
    drop(manager);
    eventually(|| births.all().iter().all(|pid| !std::path::Path::new("/proc").join(pid).exists()));
}

#[test]
fn one_that_loops() {
    is_replaced("loops", "while :; do :; done");
}

#[test]
fn one_that_is_blocked() {
    is_replaced("blocked", "exec sleep 1000");
}

#[test]
fn one_that_is_stopped() {
    is_replaced("stopped", "kill -STOP $$");
}

#[test]
fn one_that_ends() {
    is_replaced("ends", "exit 1");
}

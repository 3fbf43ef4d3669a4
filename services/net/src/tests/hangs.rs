//! Service domains that hang are replaced. These are shells, which never say a word of how they are.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use doppel_service::Program;
use rustix::process::{Pid, Signal};

use crate::Manager;

/// A file that goes with its test; whoever is started adds a line with its number.
struct Births(PathBuf);

impl Births {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doppel-{name}-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    fn all(&self) -> Vec<String> {
        std::fs::read_to_string(&self.0).unwrap().lines().map(str::to_owned).collect()
    }

    fn living(&self) -> Vec<String> {
        let name = self.0.to_str().unwrap().as_bytes();
        // Numbers are used again.
        let is_one = |pid: &String| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(name.len()).any(|w| w == name)
        };
        self.all().into_iter().filter(is_one).collect()
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
    is_replaced_if(name, hang, |_| {});
}

/// `harm` is done to those who are born, by their process ids.
fn is_replaced_if(name: &str, hang: &str, harm: impl Fn(&str)) {
    let births = Births::new(name);
    // It has a PID namespace of its own, but sees the host's /proc.
    let born = format!("read pid rest </proc/self/stat; echo $pid >>{}; {hang}", births.0.display());
    let words = ["sh", "-c", &born].map(OsStr::new);
    let manager = Manager::start(Program::new("/bin/sh", words).unwrap(), 1).unwrap();
    eventually(|| {
        births.living().iter().for_each(|pid| harm(pid));
        births.all().len() >= 3
    });
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
    let stop = |pid: &str| {
        // One that has ended by now is as good.
        let _ = rustix::process::kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::STOP);
    };
    is_replaced_if("stopped", "while :; do :; done", stop);
}

#[test]
fn one_that_ends() {
    is_replaced("ends", "exit 1");
}

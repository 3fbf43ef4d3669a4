//! `doppel run -it`: raw mode that always ends, and the size of the terminal.

mod probe;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};

/// A pseudo-terminal: our side and the program's.
fn terminal() -> (OwnedFd, File) {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&ours).unwrap();
    rustix::pty::unlockpt(&ours).unwrap();
    let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    (ours, theirs.into())
}

fn start(what: &str, theirs: &File) -> std::process::Child {
    let terminal = || theirs.try_clone().unwrap();
    probe::command(&["-it"], what).stdin(terminal()).stdout(terminal()).stderr(terminal()).spawn().unwrap()
}

#[test]
fn the_terminal_is_raw_while_the_domain_runs() {
    let (ours, theirs) = terminal();
    let before = rustix::termios::tcgetattr(&theirs).unwrap();
    assert!(before.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
    let mut child = start("hang", &theirs);
    let mut line = String::new();
    BufReader::new(File::from(ours.try_clone().unwrap())).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), "ready");
    let during = rustix::termios::tcgetattr(&theirs).unwrap();
    assert!(!during.local_modes.intersects(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
    probe::kill(probe::first_process(&child), 9);
    assert_eq!(child.wait().unwrap().code(), Some(125));
    let after = rustix::termios::tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.output_modes, before.output_modes);
}

#[test]
fn the_size_follows_the_terminal() {
    let (ours, theirs) = terminal();
    let mut child = start("window", &theirs);
    let mut lines = BufReader::new(File::from(ours.try_clone().unwrap())).lines();
    assert_eq!(lines.next().unwrap().unwrap().trim_end(), "ready");
    let size = Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&theirs, size).unwrap();
    // The terminal is not its controlling one here, so the kernel does not send it.
    probe::kill(child.id() as i32, 28);
    assert_eq!(lines.next().unwrap().unwrap().trim_end(), "33 rows 101 columns");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

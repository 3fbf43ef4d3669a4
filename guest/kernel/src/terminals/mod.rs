//! Terminals: pseudo-terminals, the console terminal, job control (`tty_ioctl(4)`, `pty(7)`, `credentials(7)`).
//!
//! Key types: [`Tty`] (one terminal: line discipline, sizes, both sides' wait queues), slave.rs and master.rs
//! (open files on its two sides), devpts.rs (the file system and the numbering), job.rs (controlling terminals,
//! foreground groups), console.rs (terminals on a channel to the host).
//! Boundary: what characters do is `doppel_algo::ldisc`; this module adds locks, waiting and signals.
//! Lock order: terminal control → session's terminal; terminal state → console rings; no two terminals.
//! Signals are sent and queues woken with none of these held.

pub mod channel;
pub(crate) mod console;
pub mod devpts;
mod ioctl;
mod job;
mod layout;
mod master;
mod slave;
pub mod stdio;
mod terminal;

pub use console::{open_console, open_session};
pub use job::{controlling_numbers, current_tty};
pub use terminal::Tty;

use crate::Errno;
use crate::objects::vfs::devices;
use crate::objects::vfs::flags::{MountFlags, OpenFlags};

/// Registers the terminal devices and mounts /dev/pts; once, at boot, when /dev is there.
pub fn init() {
    devices::register(5, 0..=2, |minor, flags| match minor {
        0 => {
            let tty = current_tty().ok_or(Errno::ENXIO)?;
            Ok(slave::Slave::open(&tty, flags | OpenFlags::NOCTTY)?)
        }
        1 => Ok(slave::Slave::open(&console::terminal().ok_or(Errno::ENXIO)?, flags)?),
        _ => devpts::open_ptmx(),
    });
    devices::register(136, 0..=255, devpts::open_slave);
    devices::register(137, 0..=255, |minor, flags| devpts::open_slave(256 + minor, flags));
    devices::register(138, 0..=255, |minor, flags| devpts::open_slave(512 + minor, flags));
    devices::register(139, 0..=255, |minor, flags| devpts::open_slave(768 + minor, flags));
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RELATIME;
    if let Err(e) =
        crate::objects::lookup::walk::mount_at(b"/dev/pts", devpts::root(), "devpts", b"devpts", flags)
    {
        panic!("boot: cannot mount /dev/pts: {}", e.name());
    }
}

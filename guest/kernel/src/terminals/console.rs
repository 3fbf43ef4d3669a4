//! Terminals on a channel: that of `doppel run -t` on the console, those of sessions (`doppel exec -t`), which are
//! pseudo-terminals with the host in the master's place.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use doppel_abi_linux::termios::{IUTF8, TOSTOP};
use doppel_abi_machine::ring;
use doppel_algo::ldisc::{Effects, Termios};
use doppel_machine::sync::Once;

use super::layout::Winsize;
use super::slave::Slave;
use super::terminal::{Kind, OUT, State};
use super::{Tty, devpts, job};
use crate::Result;
use crate::core::part::Part;
use crate::objects::lookup::walk::Walker;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::inode::SetAttr;
use crate::process::signal::sig;
use crate::process::task::Process;
use crate::terminals::channel::Channel;
use crate::terminals::stdio;

/// Its device node.
const NAME: &[u8] = b"/dev/console";

/// Where the console terminal is found.
#[derive(Default)]
pub(crate) struct ConsoleTty {
    tty: Once<Arc<Tty>>,
}

/// The domain's.
pub(crate) static CONSOLE_TTY: Part<ConsoleTty> = Part::new();

/// The console terminal, if the domain has one.
pub(super) fn terminal() -> Option<Arc<Tty>> {
    CONSOLE_TTY.get().tty.get().cloned()
}

fn termios() -> Termios {
    Termios { iflag: Termios::default().iflag | IUTF8, ..Termios::default() }
}

/// Opens the console terminal as the controlling terminal of `p`; `connected`: the end of its input is the end of
/// the file.
pub fn open_console(p: &Arc<Process>, winsize: u32, connected: bool) -> Arc<File> {
    let channel = stdio::get();
    let size = Winsize::from_register(winsize);
    let tty = Tty::new(Kind::Console, termios(), size, connected, Some(channel));
    let made = CONSOLE_TTY.get().tty.set(tty.clone());
    assert!(made.is_ok(), "console terminal opened twice");
    let file = open_first(&tty, p, NAME);
    if let Some(inode) = &file.inode {
        let owner = SetAttr { uid: Some(p.cred().ruid), gid: Some(5), ..SetAttr::default() };
        if let Err(e) = inode.set_attr(&owner) {
            panic!("boot: cannot give /dev/console to its user: {}", e.name());
        }
    }
    file
}

/// Opens a new terminal on a session's channel as the controlling terminal of `p`.
pub fn open_session(
    p: &Arc<Process>,
    channel: &Arc<Channel>,
    winsize: u32,
    connected: bool,
) -> Result<Arc<File>> {
    let size = Winsize::from_register(winsize);
    let make = |n| Tty::new(Kind::Pty(n), termios(), size, connected, Some(channel.clone()));
    let (number, tty) = devpts::add(p.cred().fsuid, make)?;
    Ok(open_first(&tty, p, format!("/dev/pts/{number}").as_bytes()))
}

/// The terminal is there: makes it the controlling one and opens it.
fn open_first(tty: &Arc<Tty>, p: &Arc<Process>, name: &[u8]) -> Arc<File> {
    if let Some(channel) = &tty.channel {
        channel.set_terminal(tty);
    }
    job::assign(tty, p);
    tty.pump();
    let slave = Slave::opened(tty);
    let walker = Walker::kernel();
    match walker.resolve(walker.root(), name, true) {
        Ok(path) => File::new(slave, path.inode().clone(), path, OpenFlags::RDWR),
        Err(_) => File::anon(slave, String::from_utf8_lossy(name).into_owned(), OpenFlags::RDWR),
    }
}

impl Tty {
    /// Moves input from the channel to the line discipline, as far as it has room.
    pub fn pump(&self) {
        let Some(c) = &self.channel else { return };
        let mut fx = Effects::default();
        let mut buf = [0u8; 256];
        let mut any = false;
        {
            let mut s = self.state.lock();
            while s.disc.has_room() {
                let n = c.take_input(&mut buf);
                if n == 0 {
                    break;
                }
                any = true;
                s.disc.receive_all(&buf[..n], &mut fx);
            }
        }
        if any {
            self.act(&fx);
        }
    }

    /// A reader took input: there is room for more.
    pub(super) fn consumed(&self) {
        if self.channel.is_some() {
            self.pump();
        } else {
            self.master_wait.wake_all(OUT);
        }
    }

    /// Moves output to the channel, as far as there is room. Output nobody will read is thrown away.
    pub(super) fn flush_channel(&self, s: &mut State) {
        let Some(c) = &self.channel else { return };
        while s.disc.output_len() > 0 {
            let front = s.disc.output_front();
            let n = if c.hung_up(ring::STDOUT) { front.len() } else { c.put_output(ring::STDOUT, front) };
            if n == 0 {
                break;
            }
            s.disc.consume_output(n);
        }
    }

    /// There is room on the channel again; runs on PID 1.
    pub fn room_came(&self) {
        self.flush_channel(&mut self.state.lock());
        self.slave_wait.wake_all(OUT);
    }

    /// The host says how large it is: rows << 16 | columns.
    pub fn resized(&self, winsize: u32) {
        self.resize(Winsize::from_register(winsize));
    }

    /// The host is gone from the session: as if the master of a pseudo-terminal were closed.
    pub fn host_hung_up(self: &Arc<Self>) {
        devpts::master_closed(self);
        self.hang_up();
    }

    /// Whether all output has left for the channel.
    pub(super) fn drained(&self) -> bool {
        let mut s = self.state.lock();
        self.flush_channel(&mut s);
        self.channel.is_none() || s.disc.output_len() == 0 || s.hung_up
    }

    /// Whether the host has closed the channel's input and all of it was taken.
    pub(super) fn input_ended(&self) -> bool {
        self.input_ends && self.channel.as_ref().is_some_and(|c| c.at_end())
    }

    /// Whether background groups may not write.
    pub(super) fn tostop(&self) -> bool {
        self.state.lock().disc.termios().lflag & TOSTOP != 0
    }

    /// Sets the window size; the foreground group is told of a change.
    pub(super) fn resize(&self, w: Winsize) {
        {
            let mut s = self.state.lock();
            if s.winsize.same(&w) {
                return;
            }
            s.winsize = w;
        }
        self.signal_foreground(sig::SIGWINCH);
    }
}

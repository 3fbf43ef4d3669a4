//! The console terminal: `doppel run -t` connects it to the caller's terminal over rings 0 and 1.

use alloc::string::String;
use alloc::sync::Arc;

use doppel_abi_linux::termios::{IUTF8, TOSTOP};
use doppel_abi_machine::{boot_flags, ring};
use doppel_algo::ldisc::{Effects, Termios};
use doppel_machine::sync::Once;
use doppel_machine::{boot, console as rings};

use super::layout::Winsize;
use super::slave::Slave;
use super::terminal::{Kind, OUT, State};
use super::{Tty, job};
use crate::fs::File;
use crate::fs::file::flags::O_RDWR;
use crate::fs::inode::SetAttr;
use crate::fs::walk::Walker;
use crate::signal::sig;
use crate::task::Process;
use crate::{console, kernel};

/// Its device node.
const NAME: &[u8] = b"/dev/console";

/// Where the console terminal is found.
#[derive(Default)]
struct ConsoleTty {
    tty: Once<Arc<Tty>>,
}

/// The console terminal, if the domain has one.
pub(super) fn terminal() -> Option<Arc<Tty>> {
    kernel().service::<ConsoleTty>().tty.get().cloned()
}

/// Input arrived on the console ring; runs on PID 1.
pub fn console_input() {
    if let Some(t) = terminal() {
        t.pump();
        // The end of input is told by the queue alone.
        t.wake();
    }
}

/// There is room on the console ring again; runs on PID 1.
pub fn console_output() {
    if let Some(t) = terminal() {
        t.flush_console(&mut t.state.lock());
        t.slave_wait.wake_all(OUT);
    }
}

/// The console terminal was resized: rows << 16 | columns.
pub fn console_resized(winsize: u32) {
    if let Some(t) = terminal() {
        t.resize(Winsize::from_register(winsize));
    }
}

/// Opens the console terminal as the controlling terminal of `p`.
pub fn open_console(p: &Arc<Process>, winsize: u32) -> Arc<File> {
    let termios = Termios { iflag: Termios::default().iflag | IUTF8, ..Termios::default() };
    let input_ends = boot::boot_data().args.flags & boot_flags::STDIN != 0;
    let tty = Tty::new(Kind::Console, termios, Winsize::from_register(winsize), input_ends);
    let made = kernel().service::<ConsoleTty>().tty.set(tty.clone());
    assert!(made.is_ok(), "console terminal opened twice");
    job::assign(&tty, p);
    tty.pump();
    let slave = Slave::opened(&tty);
    let walker = Walker::kernel();
    match walker.resolve(walker.root(), NAME, true) {
        Ok(path) => {
            let inode = path.inode().clone();
            let owner = SetAttr { uid: Some(p.cred().ruid), gid: Some(5), ..SetAttr::default() };
            if let Err(e) = inode.set_attr(&owner) {
                panic!("boot: cannot give /dev/console to its user: {}", e.name());
            }
            File::new(slave, inode, path, O_RDWR)
        }
        Err(_) => File::anon(slave, String::from("/dev/console"), O_RDWR),
    }
}

impl Tty {
    /// Moves input from the console ring to the line discipline, as far as it has room.
    pub(super) fn pump(&self) {
        if self.kind != Kind::Console {
            return;
        }
        let c = console::get();
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
        if self.kind == Kind::Console {
            self.pump();
        } else {
            self.master_wait.wake_all(OUT);
        }
    }

    /// Moves output to the console ring, as far as there is room. Output nobody will read is thrown away.
    pub(super) fn flush_console(&self, s: &mut State) {
        if self.kind != Kind::Console {
            return;
        }
        let c = console::get();
        while s.disc.output_len() > 0 {
            let front = s.disc.output_front();
            let n =
                if rings::hung_up(ring::STDOUT) { front.len() } else { c.put_output(ring::STDOUT, front) };
            if n == 0 {
                break;
            }
            s.disc.consume_output(n);
        }
    }

    /// Whether all output has left for the console ring.
    pub(super) fn drained(&self) -> bool {
        let mut s = self.state.lock();
        self.flush_console(&mut s);
        self.kind != Kind::Console || s.disc.output_len() == 0 || s.hung_up
    }

    /// Whether the host has closed the console's input and all of it was taken.
    pub(super) fn input_ended(&self) -> bool {
        self.input_ends && console::get().at_end()
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

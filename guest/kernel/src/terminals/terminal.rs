//! One terminal.

use alloc::sync::{Arc, Weak};

use doppel_abi_linux::termios::pkt;
use doppel_algo::ldisc::{Effects, LineDisc, Termios};
use doppel_machine::sync::SpinLock;

use super::layout::Winsize;
use crate::core::sched::{PollEvents, WaitQueue};
use crate::process::signal::{SigInfo, send_group, sig};
use crate::process::task::Session;
use crate::terminals::channel::Channel;

/// Most output of a program that nobody has read yet.
const PTY_OUTPUT: usize = 32 << 10;
/// Likewise for a channel, whose ring holds more.
const CHANNEL_OUTPUT: usize = 4096;

/// Readable, as poll tells it.
pub(super) const IN: PollEvents = PollEvents::READABLE;
/// Writable, as poll tells it.
pub(super) const OUT: PollEvents = PollEvents::WRITABLE;

/// What a terminal is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The console rings.
    Console,
    /// The master side of pseudo-terminal N, or a session's channel in its place.
    Pty(u32),
}

/// State under the terminal's lock.
pub(super) struct State {
    pub disc: LineDisc,
    /// Bits and characters of its settings that stay as they are (TIOCSLCKTRMIOS).
    pub locks: Termios,
    pub winsize: Winsize,
    /// TIOCEXCL.
    pub exclusive: bool,
    /// The slave may not be opened yet (TIOCSPTLCK).
    pub locked: bool,
    /// The other end is gone for good: open files give end of file and EIO.
    pub hung_up: bool,
    /// Open slave files.
    pub slaves: u32,
    /// The slave was open and is no longer.
    pub slave_closed: bool,
    /// Packet mode, and what the next read of the master tells.
    pub packet: bool,
    pub packet_status: u8,
}

/// Whose controlling terminal it is.
#[derive(Default)]
pub(super) struct Control {
    pub session: Weak<Session>,
    /// Foreground process group; 0 for none.
    pub pgrp: i32,
}

/// A terminal. For a pseudo-terminal it stands for both sides.
pub struct Tty {
    pub(super) kind: Kind,
    /// The host at the other end.
    pub(super) channel: Option<Arc<Channel>>,
    /// The end of the channel's input is the end of file (standard input is connected).
    pub(super) input_ends: bool,
    pub(super) state: SpinLock<State>,
    pub(super) control: SpinLock<Control>,
    /// Woken for programs on the terminal, and for the master side.
    pub(super) slave_wait: Arc<WaitQueue>,
    pub(super) master_wait: Arc<WaitQueue>,
}

impl Tty {
    pub(super) fn new(
        kind: Kind,
        termios: Termios,
        winsize: Winsize,
        input_ends: bool,
        channel: Option<Arc<Channel>>,
    ) -> Arc<Self> {
        let output = if channel.is_some() { CHANNEL_OUTPUT } else { PTY_OUTPUT };
        Arc::new(Self {
            kind,
            input_ends,
            state: SpinLock::new(State {
                disc: LineDisc::new(termios, output),
                winsize,
                locks: Termios::NONE,
                exclusive: false,
                locked: channel.is_none(),
                hung_up: false,
                slaves: 0,
                slave_closed: false,
                packet: false,
                packet_status: 0,
            }),
            channel,
            control: SpinLock::default(),
            slave_wait: Arc::default(),
            master_wait: Arc::default(),
        })
    }

    /// Device number of the slave side: major and minor.
    pub fn device(&self) -> (u32, u32) {
        match self.kind {
            Kind::Console => (5, 1),
            Kind::Pty(n) => (136 + n / 256, n % 256),
        }
    }

    /// The session it controls.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.control.lock().session.upgrade()
    }

    /// Sends a signal to the foreground group, if there is one.
    pub(super) fn signal_foreground(&self, signo: i32) {
        let pgrp = self.control.lock().pgrp;
        if pgrp != 0 {
            // The group may have ended (ESRCH); a terminal does not care.
            let _ = send_group(pgrp, SigInfo::kernel(signo));
        }
    }

    /// Does what received characters asked for, and wakes both sides.
    pub(super) fn act(&self, fx: &Effects) {
        {
            let mut s = self.state.lock();
            if fx.flushed {
                s.note(pkt::FLUSHREAD | pkt::FLUSHWRITE, 0);
            }
            if fx.stopped {
                s.note(pkt::STOP, pkt::START);
            }
            if fx.started {
                s.note(pkt::START, pkt::STOP);
            }
            self.flush_channel(&mut s);
        }
        if fx.interrupt {
            self.signal_foreground(sig::SIGINT);
        }
        if fx.quit {
            self.signal_foreground(sig::SIGQUIT);
        }
        if fx.suspend {
            self.signal_foreground(sig::SIGTSTP);
        }
        self.wake();
    }

    /// Wakes both sides for the events that hold now.
    pub fn wake(&self) {
        let (slave, master) = {
            let s = self.state.lock();
            (self.slave_events(&s), self.master_events(&s))
        };
        if !slave.is_empty() {
            self.slave_wait.wake_all(slave);
        }
        if !master.is_empty() && self.channel.is_none() {
            self.master_wait.wake_all(master);
        }
    }

    /// Poll events of the slave side.
    pub(super) fn slave_events(&self, s: &State) -> PollEvents {
        if s.hung_up {
            return IN | OUT | PollEvents::ALWAYS;
        }
        let input = s.disc.readable(true) || self.input_ended();
        IN.when(input) | OUT.when(s.disc.writable())
    }

    /// Poll events of the master side.
    pub(super) fn master_events(&self, s: &State) -> PollEvents {
        let mut e = IN.when(s.disc.output_len() > 0);
        if s.packet && s.packet_status != 0 {
            e |= IN | PollEvents::PRI;
        }
        if s.slave_closed {
            e |= PollEvents::HUP;
        }
        if s.disc.has_room() { e | OUT } else { e }
    }

    /// The other end is gone: the session leader gets SIGHUP, the session loses its terminal.
    pub(super) fn hang_up(self: &Arc<Self>) {
        {
            let mut s = self.state.lock();
            s.hung_up = true;
            s.disc.flush_input();
            s.disc.flush_output();
        }
        self.slave_wait.wake_all(IN | OUT | PollEvents::HUP);
        self.master_wait.wake_all(PollEvents::HUP);
        super::job::lose_terminal(self);
    }
}

impl State {
    /// Notes something for packet mode.
    pub(super) fn note(&mut self, set: u8, clear: u8) {
        if self.packet {
            self.packet_status = self.packet_status & !clear | set;
        }
    }
}

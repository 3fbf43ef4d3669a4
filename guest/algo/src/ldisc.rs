//! The line discipline N_TTY (`termios(3)`): what lies between a terminal's keyboard and a program.
//!
//! Key types: [`Termios`] (the settings), [`LineDisc`] (input queue with line editing and echo, output queue
//! with post-processing), [`Effects`] (what received characters ask of the terminal: signals, flow control).
//! Boundary: no waiting, no locks, no signals sent; both queues are bounded ([`INPUT_MAX`], the limit given to
//! [`LineDisc::new`] plus [`ECHO_MAX`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use doppel_abi_linux::termios::*;

#[cfg(test)]
mod tests;

/// Most queued input.
pub const INPUT_MAX: usize = 32 << 10;
/// Longest line in canonical mode, its newline included.
pub const LINE_MAX: usize = 4096;
/// How far echo may fill the output queue beyond its limit; echo beyond that is lost.
pub const ECHO_MAX: usize = 4096;

/// Settings of a terminal, as the kernel keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Termios {
    /// Input modes.
    pub iflag: u32,
    /// Output modes.
    pub oflag: u32,
    /// Control modes.
    pub cflag: u32,
    /// Local modes.
    pub lflag: u32,
    /// Line discipline number.
    pub line: u8,
    /// Control characters.
    pub cc: [u8; NCCS],
    /// Input speed in bit/s.
    pub ispeed: u32,
    /// Output speed in bit/s.
    pub ospeed: u32,
}

impl Termios {
    /// No bit and no character.
    pub const NONE: Self =
        Self { iflag: 0, oflag: 0, cflag: 0, lflag: 0, line: 0, cc: [0; NCCS], ispeed: 0, ospeed: 0 };

    /// The same but for what is locked, which is as before.
    #[must_use]
    pub fn locked(mut self, before: &Self, locks: &Self) -> Self {
        let keep = |new: &mut u32, old: u32, lock: u32| *new = *new & !lock | old & lock;
        keep(&mut self.iflag, before.iflag, locks.iflag);
        keep(&mut self.oflag, before.oflag, locks.oflag);
        keep(&mut self.cflag, before.cflag, locks.cflag);
        keep(&mut self.lflag, before.lflag, locks.lflag);
        if locks.line != 0 {
            self.line = before.line;
        }
        for (i, lock) in locks.cc.iter().enumerate() {
            if *lock != 0 {
                self.cc[i] = before.cc[i];
            }
        }
        self
    }
}

impl Default for Termios {
    /// What Linux gives a new terminal.
    fn default() -> Self {
        Self {
            iflag: ICRNL | IXON,
            oflag: OPOST | ONLCR,
            cflag: B38400 | CS8 | CREAD | HUPCL,
            lflag: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            cc: INIT_CC,
            ispeed: 38400,
            ospeed: 38400,
        }
    }
}

/// What received characters ask of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// VINTR was typed.
    pub interrupt: bool,
    /// VQUIT was typed.
    pub quit: bool,
    /// VSUSP was typed.
    pub suspend: bool,
    /// A signal character discarded both queues.
    pub flushed: bool,
    /// Output was stopped.
    pub stopped: bool,
    /// Output was started again.
    pub started: bool,
}

/// Mark in the input queue: the character ends a line.
const END: u16 = 0x100;
/// Mark in the input queue: end of file was typed; nothing is delivered (with [`END`]).
const EOF: u16 = 0x200;

/// One terminal's line discipline.
#[derive(Debug)]
pub struct LineDisc {
    termios: Termios,
    input: VecDeque<u16>,
    /// Complete lines in `input` (canonical mode).
    lines: usize,
    /// Characters behind the last complete line: what can still be edited.
    cur: usize,
    lnext: bool,
    output: VecDeque<u8>,
    output_max: usize,
    /// Echo kept back while output is stopped.
    held: Vec<u8>,
    stopped: bool,
    /// Cursor column, and where the current input line began.
    column: u32,
    line_column: u32,
}

fn control(c: u8) -> bool {
    c < 0x20 || c == 0x7f
}

impl LineDisc {
    /// A line discipline whose output queue holds `output_max` bytes (and some echo).
    pub fn new(termios: Termios, output_max: usize) -> Self {
        Self {
            termios,
            input: VecDeque::new(),
            lines: 0,
            cur: 0,
            lnext: false,
            output: VecDeque::new(),
            output_max,
            held: Vec::new(),
            stopped: false,
            column: 0,
            line_column: 0,
        }
    }

    /// The settings.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Changes the settings; queued input stays. Returns whether stopped output was started (IXON cleared).
    pub fn set_termios(&mut self, t: Termios) -> bool {
        let old = core::mem::replace(&mut self.termios, t);
        if (old.lflag ^ t.lflag) & ICANON != 0 {
            self.lnext = false;
            self.cur = 0;
            self.lines = 0;
            for c in &mut self.input {
                *c &= 0xff;
            }
            if self.canonical()
                && let Some(last) = self.input.back_mut()
            {
                *last |= END;
                self.lines = 1;
            }
        }
        old.iflag & IXON != 0 && t.iflag & IXON == 0 && self.start()
    }

    /// Whether input is given line by line.
    pub fn canonical(&self) -> bool {
        self.l(ICANON)
    }

    /// VMIN.
    pub fn vmin(&self) -> usize {
        usize::from(self.cc(cc::VMIN))
    }

    /// VTIME in nanoseconds.
    pub fn vtime_ns(&self) -> u64 {
        u64::from(self.cc(cc::VTIME)) * 100_000_000
    }

    fn cc(&self, i: usize) -> u8 {
        self.termios.cc[i]
    }

    fn i(&self, flag: u32) -> bool {
        self.termios.iflag & flag != 0
    }

    fn o(&self, flag: u32) -> bool {
        self.termios.oflag & flag != 0
    }

    fn l(&self, flag: u32) -> bool {
        self.termios.lflag & flag != 0
    }

    /// Whether `c` is control character `i`, which 0 disables.
    fn is(&self, c: u8, i: usize) -> bool {
        c != 0 && c == self.cc(i)
    }

    /// Whether `c` continues a UTF-8 character.
    fn continues(&self, c: u8) -> bool {
        self.i(IUTF8) && c & 0xc0 == 0x80
    }

    // Input.

    /// Whether more input can be received. With no complete line there always is: the line is cut instead.
    pub fn has_room(&self) -> bool {
        self.input.len() < INPUT_MAX || (self.canonical() && self.lines == 0)
    }

    /// Receives typed characters; returns how many before the queue was full.
    pub fn receive(&mut self, bytes: &[u8], fx: &mut Effects) -> usize {
        for (n, &c) in bytes.iter().enumerate() {
            if !self.has_room() {
                return n;
            }
            self.receive_one(c, fx);
        }
        bytes.len()
    }

    /// Receives all of `bytes`, beyond the limit of the queue if it must: for few characters at a time that
    /// cannot be given back, after asking [`Self::has_room`].
    pub fn receive_all(&mut self, bytes: &[u8], fx: &mut Effects) {
        for &c in bytes {
            self.receive_one(c, fx);
        }
    }

    fn receive_one(&mut self, mut c: u8, fx: &mut Effects) {
        if self.i(ISTRIP) {
            c &= 0x7f;
        }
        if self.i(IUCLC) && self.l(IEXTEN) {
            c = c.to_ascii_lowercase();
        }
        if self.lnext {
            self.lnext = false;
            self.ordinary(c);
            return;
        }
        if self.i(IXON) {
            if self.is(c, cc::VSTART) {
                fx.started |= self.start();
                return;
            }
            if self.is(c, cc::VSTOP) {
                fx.stopped |= self.stop();
                return;
            }
        }
        if self.l(ISIG) && self.signal(c, fx) {
            return;
        }
        if self.stopped && self.i(IXON) && self.i(IXANY) {
            fx.started |= self.start();
        }
        if c == b'\r' {
            if self.i(IGNCR) {
                return;
            }
            if self.i(ICRNL) {
                c = b'\n';
            }
        } else if c == b'\n' && self.i(INLCR) {
            c = b'\r';
        }
        if self.canonical() && self.edit(c) {
            return;
        }
        self.ordinary(c);
    }

    fn signal(&mut self, c: u8, fx: &mut Effects) -> bool {
        if self.is(c, cc::VINTR) {
            fx.interrupt = true;
        } else if self.is(c, cc::VQUIT) {
            fx.quit = true;
        } else if self.is(c, cc::VSUSP) {
            fx.suspend = true;
        } else {
            return false;
        }
        if !self.l(NOFLSH) {
            self.flush_input();
            self.flush_output();
            fx.flushed = true;
        }
        if self.i(IXON) {
            fx.started |= self.start();
        }
        if self.l(ECHO) {
            self.echo(c);
        }
        true
    }

    /// The special characters of canonical mode; false if `c` is none of them.
    fn edit(&mut self, c: u8) -> bool {
        let ext = self.l(IEXTEN);
        if self.is(c, cc::VERASE) || self.is(c, cc::VKILL) || (ext && self.is(c, cc::VWERASE)) {
            self.erase(c);
        } else if ext && self.is(c, cc::VLNEXT) {
            self.lnext = true;
            if self.l(ECHO) && self.l(ECHOCTL) {
                self.push_echo(b"^\x08");
            }
        } else if ext && self.l(ECHO) && self.is(c, cc::VREPRINT) {
            self.echo(c);
            self.echo_raw(b'\n');
            for i in self.input.len() - self.cur..self.input.len() {
                self.echo(self.input[i] as u8);
            }
        } else if c == b'\n' {
            if self.l(ECHO) || self.l(ECHONL) {
                self.echo_raw(c);
            }
            self.end_line(u16::from(c));
        } else if self.is(c, cc::VEOF) {
            self.end_line(EOF);
        } else if self.is(c, cc::VEOL) || (ext && self.is(c, cc::VEOL2)) {
            if self.l(ECHO) {
                self.echo(c);
            }
            if c == 0xff && self.i(PARMRK) {
                self.put(c);
            }
            self.end_line(u16::from(c));
        } else {
            return false;
        }
        true
    }

    fn end_line(&mut self, c: u16) {
        self.input.push_back(c | END);
        self.lines += 1;
        self.cur = 0;
    }

    fn ordinary(&mut self, c: u8) {
        if self.l(ECHO) {
            if self.cur == 0 {
                self.line_column = self.column;
            }
            if c == b'\n' {
                self.echo_raw(c);
            } else {
                self.echo(c);
            }
        }
        if c == 0xff && self.i(PARMRK) {
            self.put(c);
        }
        self.put(c);
    }

    /// Queues a character; what does not fit in a line is lost.
    fn put(&mut self, c: u8) {
        if self.canonical() {
            if self.cur >= LINE_MAX - 1 {
                if self.i(IMAXBEL) {
                    self.push_echo(b"\x07");
                }
                return;
            }
            self.cur += 1;
        }
        self.input.push_back(u16::from(c));
    }

    fn pop(&mut self) {
        self.cur -= 1;
        self.input.pop_back();
    }

    fn erase(&mut self, key: u8) {
        if self.cur == 0 {
            return;
        }
        let (one, word) = (self.is(key, cc::VERASE), !self.is(key, cc::VKILL));
        let rub_out = [ECHO, ECHOK, ECHOKE, ECHOE].iter().all(|f| self.l(*f));
        if !word && !one && !rub_out {
            while self.cur > 0 {
                self.pop();
            }
            if self.l(ECHO) {
                self.echo(key);
                if self.l(ECHOK) {
                    self.echo_raw(b'\n');
                }
            }
            return;
        }
        let mut seen = false;
        while self.cur > 0 {
            // A whole character, of several bytes perhaps.
            let len = self.last_char();
            let Some(&first) = self.input.get(self.input.len() - len) else { return };
            let first = first as u8;
            if self.continues(first) {
                return;
            }
            if word && !one {
                if first.is_ascii_alphanumeric() || first >= 0xc0 || first == b'_' {
                    seen = true;
                } else if seen {
                    return;
                }
            }
            for _ in 0..len {
                self.pop();
            }
            if self.l(ECHO) {
                self.echo_erased(key, first, one);
            }
            if one {
                return;
            }
        }
    }

    /// Bytes of the last character of the line being edited.
    fn last_char(&self) -> usize {
        let mut n = 1;
        while n < self.cur && self.continues(self.input[self.input.len() - n] as u8) {
            n += 1;
        }
        n
    }

    fn echo_erased(&mut self, key: u8, c: u8, one: bool) {
        if one && !self.l(ECHOE) {
            self.echo(key);
        } else if c == b'\t' {
            let mut width = 0;
            let mut after_tab = false;
            for i in (self.input.len() - self.cur..self.input.len()).rev() {
                let c = self.input[i] as u8;
                if c == b'\t' {
                    after_tab = true;
                    break;
                }
                if control(c) {
                    width += if self.l(ECHOCTL) { 2 } else { 0 };
                } else if !self.continues(c) {
                    width += 1;
                }
            }
            if !after_tab {
                width += self.line_column;
            }
            for _ in 0..8 - (width & 7) {
                self.push_echo(b"\x08");
                self.column = self.column.saturating_sub(1);
            }
        } else {
            let width = if !control(c) {
                1
            } else if self.l(ECHOCTL) {
                2
            } else {
                0
            };
            for _ in 0..width {
                self.push_echo(b"\x08 \x08");
                self.column = self.column.saturating_sub(1);
            }
        }
    }

    /// Whether a read would give something. `poll` applies VMIN, as poll(2) does.
    pub fn readable(&self, poll: bool) -> bool {
        if self.canonical() {
            return self.lines > 0;
        }
        let min = if poll && self.cc(cc::VTIME) == 0 { self.vmin().max(1) } else { 1 };
        self.input.len() >= min
    }

    /// Takes input: in canonical mode up to the end of a line. Returns the count and whether a line (or the
    /// file) ended there.
    pub fn read(&mut self, buf: &mut [u8]) -> (usize, bool) {
        if self.canonical() && self.lines == 0 {
            return (0, false);
        }
        let canonical = self.canonical();
        let mut n = 0;
        while n < buf.len() {
            let Some(c) = self.input.pop_front() else { break };
            if c & EOF == 0 || !canonical {
                buf[n] = c as u8;
                n += 1;
            }
            if canonical && c & END != 0 {
                self.lines -= 1;
                self.shrink();
                return (n, true);
            }
        }
        // An end of file right behind what was asked for belongs to it.
        if canonical && self.input.front().is_some_and(|c| c & EOF != 0) {
            self.input.pop_front();
            self.lines -= 1;
            return (n, true);
        }
        self.shrink();
        (n, false)
    }

    fn shrink(&mut self) {
        if self.input.is_empty() && self.input.capacity() > LINE_MAX {
            self.input = VecDeque::new();
        }
    }

    /// Bytes that can be read (FIONREAD).
    pub fn available(&self) -> usize {
        let n = self.input.len() - if self.canonical() { self.cur } else { 0 };
        if !self.canonical() {
            return n;
        }
        self.input.iter().take(n).filter(|c| **c & EOF == 0).count()
    }

    /// Discards input.
    pub fn flush_input(&mut self) {
        self.input = VecDeque::new();
        self.lines = 0;
        self.cur = 0;
        self.lnext = false;
    }

    // Echo.

    /// Echoes a character as `^X` if ECHOCTL says so.
    fn echo(&mut self, c: u8) {
        if self.l(ECHOCTL) && control(c) && c != b'\t' {
            self.push_echo(&[b'^', c ^ 0x40]);
            self.column += 2;
        } else {
            self.echo_raw(c);
        }
    }

    /// Echoes a character through output post-processing.
    fn echo_raw(&mut self, c: u8) {
        let mut out = [0u8; 8];
        let n = self.post(c, &mut out);
        self.push_echo(&out[..n]);
    }

    fn push_echo(&mut self, bytes: &[u8]) {
        if self.stopped {
            if self.held.len() + bytes.len() <= ECHO_MAX {
                self.held.extend_from_slice(bytes);
            }
        } else if self.output.len() + bytes.len() <= self.output_max + ECHO_MAX {
            self.output.extend(bytes);
        }
    }

    // Output.

    /// Post-processes one character into `out`; returns how many bytes it became.
    fn post(&mut self, mut c: u8, out: &mut [u8; 8]) -> usize {
        if self.o(OPOST) {
            match c {
                b'\n' => {
                    if self.o(ONLRET) {
                        self.column = 0;
                    }
                    if self.o(ONLCR) {
                        self.column = 0;
                        self.line_column = 0;
                        out[..2].copy_from_slice(b"\r\n");
                        return 2;
                    }
                    self.line_column = self.column;
                }
                b'\r' => {
                    if self.o(ONOCR) && self.column == 0 {
                        return 0;
                    }
                    if self.o(OCRNL) {
                        c = b'\n';
                        if self.o(ONLRET) {
                            self.column = 0;
                            self.line_column = 0;
                        }
                    } else {
                        self.column = 0;
                        self.line_column = 0;
                    }
                }
                b'\t' => {
                    let spaces = 8 - (self.column & 7);
                    self.column += spaces;
                    if self.termios.oflag & TABDLY == XTABS {
                        out[..spaces as usize].fill(b' ');
                        return spaces as usize;
                    }
                }
                8 => self.column = self.column.saturating_sub(1),
                _ => {
                    if !control(c) {
                        if self.o(OLCUC) {
                            c = c.to_ascii_uppercase();
                        }
                        if !self.continues(c) {
                            self.column = self.column.wrapping_add(1);
                        }
                    }
                }
            }
        }
        out[0] = c;
        1
    }

    /// Bytes of room in the output queue; none while output is stopped.
    pub fn output_room(&self) -> usize {
        if self.stopped { 0 } else { self.output_max.saturating_sub(self.output.len()) }
    }

    /// Writes as much of `bytes` as there is room for; returns how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if !self.o(OPOST) {
            let n = bytes.len().min(self.output_room());
            self.output.extend(&bytes[..n]);
            return n;
        }
        let mut out = [0u8; 8];
        for (i, &c) in bytes.iter().enumerate() {
            if self.output_room() < out.len() {
                return i;
            }
            let n = self.post(c, &mut out);
            self.output.extend(&out[..n]);
        }
        bytes.len()
    }

    /// Whether a write would take something.
    pub fn writable(&self) -> bool {
        self.output_room() >= 8
    }

    /// Output waiting for the terminal.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// The first piece of waiting output.
    pub fn output_front(&self) -> &[u8] {
        self.output.as_slices().0
    }

    /// Takes `n` bytes of output away.
    pub fn consume_output(&mut self, n: usize) {
        self.output.drain(..n);
        if self.output.is_empty() && self.output.capacity() > 2 * ECHO_MAX {
            self.output = VecDeque::new();
        }
    }

    /// Takes output into `buf`; returns how much.
    pub fn take_output(&mut self, buf: &mut [u8]) -> usize {
        let mut n = 0;
        while n < buf.len() {
            let front = self.output.as_slices().0;
            let k = front.len().min(buf.len() - n);
            if k == 0 {
                break;
            }
            buf[n..n + k].copy_from_slice(&front[..k]);
            self.consume_output(k);
            n += k;
        }
        n
    }

    /// Discards output and echo.
    pub fn flush_output(&mut self) {
        self.output = VecDeque::new();
        self.held = Vec::new();
    }

    /// Whether output is stopped.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Stops output; false if it was.
    pub fn stop(&mut self) -> bool {
        !core::mem::replace(&mut self.stopped, true)
    }

    /// Starts output again; false if it was not stopped.
    pub fn start(&mut self) -> bool {
        let was = core::mem::replace(&mut self.stopped, false);
        if was {
            let held = core::mem::take(&mut self.held);
            self.push_echo(&held);
        }
        was
    }

    /// Sends a START or STOP character (TCXONC), past flow control.
    pub fn send_flow(&mut self, start: bool) {
        let c = self.cc(if start { cc::VSTART } else { cc::VSTOP });
        if c != 0 && self.output.len() < self.output_max + ECHO_MAX {
            self.output.push_back(c);
        }
    }
}

//! A domain's console: output rings to where the output goes, input to the input ring, and what the domain says.
//!
//! [`Console::step`] does what can be done now and returns; who drives the domain ([`crate::Fleet`], or
//! [`crate::Domain::wait`] for one in the foreground) decides when to look again. Work per step is bounded, so that a
//! domain that floods its console cannot keep others waiting.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use doppel_abi_machine::{boot_flags, event, ring, state};
use doppel_sys::shared::SharedMap;
use rustix::event::PollFlags;

use crate::io::forward::{Captured, Forwarders, ready};
use crate::io::ring::{Broken, InputRing, OutputRing, Stop, post, registers};
use crate::{Output, Stream};

/// Why a domain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The guest kernel says that the program has ended, with this wait status.
    Exited(i32),
    /// The guest kernel says that it is broken.
    Panicked,
    /// The first process is gone.
    Died,
    /// The domain broke the console protocol.
    Broken,
}

/// What a step found.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// It has ended, and all its output is out.
    pub end: Option<End>,
    /// There is more to move right away.
    pub more: bool,
    /// A program of it asks to be frozen.
    pub asked: bool,
    /// A clone that was asked to hold is ready.
    pub held: bool,
}

/// The host side of a domain's console.
#[derive(Debug)]
pub(crate) struct Console {
    input: InputRing,
    input_open: bool,
    /// Somebody waits for room in the input ring.
    input_full: bool,
    forwarders: Forwarders,
    /// Requests of the program that were reported.
    requests: u32,
    died: bool,
}

impl Console {
    /// `stdin` says whether standard input is connected, `tty` whether the program has a terminal.
    pub fn new(map: &SharedMap, stdin: bool, tty: bool, output: Output) -> Self {
        let input = InputRing::new(ring::STDIN);
        if !stdin {
            input.close(map);
        }
        let rings =
            [(ring::STDOUT, Stream::Stdout), (ring::STDERR, Stream::Stderr), (ring::LOG, Stream::Log)];
        let rings = rings.map(|(index, stream)| (OutputRing::new(index), stream));
        Self {
            input,
            input_open: stdin,
            input_full: false,
            forwarders: Forwarders::new(rings, output, tty),
            requests: 0,
            died: false,
        }
    }

    /// The console of a domain that another process has run: goes on where that one stopped. `served`: how many of its
    /// programs' requests to be frozen were; `taken`: a stream of which more was taken than that one could say.
    pub fn adopt(map: &SharedMap, flags: u32, served: u32, taken: Option<(Stream, u32)>) -> Self {
        let mut input = InputRing::new(ring::STDIN);
        input.resume(map);
        let rings =
            [(ring::STDOUT, Stream::Stdout), (ring::STDERR, Stream::Stderr), (ring::LOG, Stream::Log)];
        let rings = rings.map(|(index, stream)| {
            let mut ring = OutputRing::new(index);
            ring.resume(map, taken.filter(|(of, _)| *of == stream).map(|(_, at)| at));
            (ring, stream)
        });
        let input_open = flags & boot_flags::STDIN != 0 && !input.is_closed(map);
        Self {
            input,
            input_open,
            input_full: false,
            forwarders: Forwarders::new(rings, Output::Kept, flags & boot_flags::TTY != 0),
            requests: served,
            died: false,
        }
    }

    /// Bytes of output taken so far, of all streams, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.forwarders.taken()
    }

    /// Sends output elsewhere from now on.
    pub fn set_output(&mut self, output: Output) {
        self.forwarders.set_output(output);
    }

    /// What was kept so far.
    pub fn captured(&self) -> &Captured {
        self.forwarders.captured()
    }

    /// Takes what was kept.
    pub fn take_captured(&mut self) -> Captured {
        self.forwarders.take_captured()
    }

    /// When the first byte of standard output was seen.
    pub fn first_output(&self) -> Option<Instant> {
        self.forwarders.first_output()
    }

    /// Bytes of output so far.
    pub fn bytes(&self) -> u64 {
        self.forwarders.bytes()
    }

    /// The first process is gone.
    pub fn died(&mut self) {
        self.died = true;
    }

    /// Whether the first process is known to be gone.
    pub fn has_died(&self) -> bool {
        self.died
    }

    /// Whether output waits for standard output, and for standard error, to take more; or for a sink.
    pub fn blocked(&self) -> (bool, bool) {
        self.forwarders.blocked()
    }

    /// Whether output goes to our own descriptors.
    pub fn is_ours(&self) -> bool {
        self.forwarders.is_ours()
    }

    /// Moves output as far as it goes now, and looks what the domain says.
    pub fn step(&mut self, map: &SharedMap) -> Step {
        // The state is read before the rings are drained: what was printed before it changed is out
        // before we act on it.
        let registers = registers(map);
        let state = registers.state.load(Ordering::Acquire);
        let end = match state {
            state::EXITED => Some(End::Exited(registers.exit_status.load(Ordering::Acquire))),
            state::PANICKED => Some(End::Panicked),
            _ if self.died => Some(End::Died),
            _ => None,
        };
        let Ok(more) = self.pump(map) else {
            return Step { end: Some(End::Broken), ..Step::default() };
        };
        let asked = registers.freeze_requests.load(Ordering::Acquire);
        let step = Step {
            more,
            held: state == state::HELD,
            asked: asked != self.requests && end.is_none(),
            end: end.filter(|_| !more && !self.forwarders.is_blocked()),
        };
        if step.asked {
            self.requests = asked;
        }
        step
    }

    /// Moves output; true if there is more to move right away.
    fn pump(&mut self, map: &SharedMap) -> Result<bool, Broken> {
        let done = self.forwarders.drain(map)?;
        if done.tell {
            post(map, event::CONSOLE_OUT);
        }
        Ok(done.more)
    }

    /// Whether standard input is open and its ring has room; if not, the doorbell rings when it has.
    pub fn wants_input(&self, map: &SharedMap) -> bool {
        // A broken ring is found when it is filled.
        self.input_open && self.input.has_room(map).unwrap_or(true)
    }

    /// Moves input from our standard input, if there is any; true if the domain broke the protocol.
    pub fn feed(&mut self, map: &SharedMap) -> bool {
        if !self.wants_input(map) {
            return false;
        }
        let stdin = io::stdin();
        if !ready(stdin.as_fd(), PollFlags::IN) {
            return false;
        }
        match self.input.fill_from(map, stdin.as_fd()) {
            Ok(0) => self.end_input(map),
            Ok(_) => self.input_came(map),
            Err(Stop::Io(e))
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // A terminal that went away, for example: the program sees the end of its input.
            Err(Stop::Io(_)) => self.end_input(map),
            Err(Stop::Broken) => return true,
        }
        false
    }

    /// Gives the program input; how much of it there was room for.
    pub fn push_input(&mut self, map: &SharedMap, bytes: &[u8]) -> usize {
        if !self.input_open {
            return 0;
        }
        // A domain that breaks the protocol gets nothing; it is found out by its output.
        let (taken, full) = self.input.push_until_full(map, bytes).unwrap_or((0, false));
        if taken > 0 {
            self.input_came(map);
        }
        // Asks for the doorbell as soon as there is room.
        self.input_full = full;
        taken
    }

    /// Whether there is room again after [`Self::push_input`] found too little; said once.
    pub fn has_room_again(&mut self, map: &SharedMap) -> bool {
        let again = self.input_full && self.input.has_room(map).unwrap_or(true);
        self.input_full &= !again;
        again
    }

    /// Bytes of input that the program was given, modulo 2^32.
    pub fn given(&self) -> u32 {
        self.input.written()
    }

    fn input_came(&self, map: &SharedMap) {
        if self.input.take_consumer_waits(map) {
            post(map, event::CONSOLE_IN);
        }
    }

    /// Says that no more input will come.
    pub fn end_input(&mut self, map: &SharedMap) {
        self.input_open = false;
        self.input.close(map);
        post(map, event::CONSOLE_IN);
    }
}

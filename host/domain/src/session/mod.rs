//! Sessions: more programs in a running domain, each with streams or a terminal of its own.
//!
//! A [`Session`] is the host's end of one, over a slot of the control area (`common/abi/machine`, session.rs). It does nothing
//! by itself: [`Session::step`] moves what there is to move. Who drives it learns when to look again from the domain's
//! doorbell ([`crate::Fleet`]), or, on another thread, from the session's own descriptor, which who drives the domain
//! rings ([`slots::ring_bells`]). What a domain says about a session concerns that session only: nonsense ends it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::session::{SESSION_NOTE, SESSION_NOTE_MAX, SESSION_REQUEST, SESSIONS, session_state};
use doppel_abi_machine::{event, ring, state};
use doppel_sys::shared::SharedMap;
use rustix::event::EventfdFlags;

use crate::io::forward::{Captured, Forwarders};
use crate::io::ring::{Broken, InputRing, OutputRing, post, registers};
use crate::lock::lock;
use crate::run::state::Core;
use crate::session::config::size;
use crate::session::slots::header;
use crate::session::slots::offset;
use crate::{Domain, Error, ExecConfig, Output, Stream};

/// Largest process number a domain can have.
const PID_MAX: i32 = 1 << 22;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The program ended: its exit code, or 128 + the signal that ended it.
    Exited(u8),
    /// The program could not be started: an errno of Linux, ENOENT if there is none of that name.
    Failed(i32),
    /// The domain has ended, and the program with it.
    DomainEnded,
    /// The domain broke the protocol.
    Broken,
}

impl SessionEnd {
    /// The exit code a command that stands for the program should have: Docker's.
    #[must_use]
    pub fn code(self) -> u8 {
        const ENOENT: i32 = 2;
        match self {
            Self::Exited(code) => code,
            Self::Failed(ENOENT) => 127,
            Self::Failed(_) => 126,
            Self::DomainEnded => 137,
            Self::Broken => 125,
        }
    }
}

/// What a step found.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionStep {
    /// The program runs, as this process of the domain; said once.
    pub started: Option<i32>,
    /// There is room again after [`Session::write_input`] found too little; said once.
    pub input_room: bool,
    /// There is more to move right away.
    pub more: bool,
    /// It has ended, and all its output is out.
    pub end: Option<SessionEnd>,
}

/// Tells the domain that a session wants something.
fn tell(map: &SharedMap, slot: usize) {
    registers(map).sessions[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    post(map, event::SESSION);
}

/// The host's end of a session. Dropping it hangs up: the program's reads end, its writes fail, its terminal is gone;
/// it goes on otherwise.
#[derive(Debug)]
pub struct Session {
    core: Arc<Core>,
    pub(crate) slot: usize,
    input: InputRing,
    input_open: bool,
    /// Somebody waits for room in the input ring.
    input_full: bool,
    forwarders: Forwarders,
    pid: Option<i32>,
    bell: Option<Arc<OwnedFd>>,
    /// Somebody is to take it over if this process dies: it stays until it is released, also when it has ended.
    pub(crate) kept: bool,
    /// That it has ended was told.
    pub(crate) told: bool,
    /// Its domain has ended: there is nobody to hang up.
    pub(crate) over: bool,
}

impl Session {
    /// Asks for a session. `bell`: it is driven from another thread than the domain is.
    pub(crate) fn open(
        core: &Arc<Core>,
        config: &ExecConfig,
        output: Output,
        bell: bool,
    ) -> Result<Self, Error> {
        let bell = if bell {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Some(Arc::new(rustix::event::eventfd(0, flags).map_err(Error::os("make a session's bell"))?))
        } else {
            None
        };
        Self::ask(core, config, output, bell, None)
    }

    fn ask(
        core: &Arc<Core>,
        config: &ExecConfig,
        output: Output,
        bell: Option<Arc<OwnedFd>>,
        note: Option<&str>,
    ) -> Result<Self, Error> {
        let request = config::request(config)?;
        // As text that ends with a NUL.
        if note.is_some_and(|note| note.len() as u64 >= SESSION_NOTE_MAX || note.contains('\0')) {
            return Err(Error::Misuse("too long a note of a session"));
        }
        let map = &core.map;
        let slot = {
            let mut slots = lock(&core.sessions);
            let slot = slots.take(map).ok_or_else(|| {
                Error::State(format!("the domain has {SESSIONS} sessions already; wait until one ends"))
            })?;
            if let Some(bell) = &bell {
                slots.bells.push((slot, Arc::downgrade(bell)));
            }
            slot
        };
        let h = header(map, slot);
        // First of all: who finds it without a state knows by this that it is not clean.
        h.request_len.store(u32::try_from(request.len()).expect("bounded above"), Ordering::Release);
        map.write(offset(slot, SESSION_REQUEST), &request);
        map.write(offset(slot, SESSION_NOTE), note.unwrap_or_default().as_bytes());
        h.winsize.store(config::winsize(config), Ordering::Relaxed);
        let rings = [(ring::STDOUT, Stream::Stdout), (ring::STDERR, Stream::Stderr)];
        let rings = rings.map(|(index, stream)| (OutputRing::session(slot, index), stream));
        let session = Self {
            core: core.clone(),
            slot,
            input: InputRing::session(slot, ring::STDIN),
            input_open: config.spec.stdin,
            input_full: false,
            forwarders: Forwarders::new(rings, output, false),
            pid: None,
            bell,
            kept: note.is_some(),
            told: false,
            over: false,
        };
        if !config.spec.stdin && !config.spec.tty {
            session.input.close(map);
        }
        h.state.store(session_state::ASKED, Ordering::Release);
        tell(map, slot);
        Ok(session)
    }

    /// Moves output as far as it goes now, and looks what the domain says of the program. Needs to be called again when
    /// the doorbell, or [`Self::bell`], has rung, and when an [`Output`] that took no more takes bytes again.
    pub fn step(&mut self) -> SessionStep {
        if let Some(bell) = &self.bell {
            // Only empties the counter; what happened is read from shared memory.
            let _ = rustix::io::read(&**bell, &mut [0u8; 8]);
        }
        self.look().unwrap_or(SessionStep { end: Some(SessionEnd::Broken), ..SessionStep::default() })
    }

    fn look(&mut self) -> Result<SessionStep, Broken> {
        let core = self.core.clone();
        let map = &core.map;
        let h = header(map, self.slot);
        // Before the rings are drained: what was printed before it changed is out before we act on it.
        let state = h.state.load(Ordering::Acquire);
        let gone = matches!(registers(map).state.load(Ordering::Acquire), state::EXITED | state::PANICKED)
            || core.is_dead();
        let mut step = SessionStep::default();
        if matches!(state, session_state::RUNNING | session_state::ENDED) && self.pid.is_none() {
            let pid = h.pid.load(Ordering::Relaxed);
            if (1..PID_MAX).contains(&pid) {
                self.pid = Some(pid);
                step.started = self.pid;
            }
        }
        let end = match state {
            session_state::ENDED => Some(match h.error.load(Ordering::Relaxed) {
                0 => SessionEnd::Exited(crate::run::exit::exit_code(h.status.load(Ordering::Relaxed))),
                error => SessionEnd::Failed(error),
            }),
            _ if gone => Some(SessionEnd::DomainEnded),
            _ => None,
        };
        let done = self.forwarders.drain(map)?;
        if done.tell {
            tell(map, self.slot);
        }
        step.more = done.more;
        step.input_room = self.input_full && self.input.has_room(map)?;
        self.input_full &= !step.input_room;
        step.end = end.filter(|_| !done.more && !self.forwarders.is_blocked());
        Ok(step)
    }

    /// Process number of the program in the domain, once it runs.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// What was kept of its output.
    #[must_use]
    pub fn captured(&self) -> &Captured {
        self.forwarders.captured()
    }

    /// Takes what was kept of its output.
    pub fn take_captured(&mut self) -> Captured {
        self.forwarders.take_captured()
    }

    /// Whether output waits for where it goes: [`Self::step`] is to be called when that takes bytes again.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.forwarders.is_blocked()
    }

    /// Gives the program input; how much of it there was room for. A step says when there is room for more.
    pub fn write_input(&mut self, bytes: &[u8]) -> usize {
        if !self.input_open {
            return bytes.len();
        }
        let map = &self.core.map;
        // A domain that breaks the protocol gets nothing; it is found out by the next step.
        let (taken, full) = self.input.push_until_full(map, bytes).unwrap_or((0, false));
        if taken > 0 && self.input.take_consumer_waits(map) {
            tell(map, self.slot);
        }
        self.input_full = full;
        taken
    }

    /// Says that no more input will come.
    pub fn close_input(&mut self) {
        self.input_open = false;
        self.input.close(&self.core.map);
        tell(&self.core.map, self.slot);
    }

    /// Tells the program that its terminal has this size.
    pub fn resize(&self, rows: u16, columns: u16) {
        header(&self.core.map, self.slot).winsize.store(size((rows, columns)), Ordering::Release);
        tell(&self.core.map, self.slot);
    }

    /// Sends the program, and what it started in its process group, a signal; numbers that are none are ignored.
    pub fn signal(&self, signal: i32) {
        let bit = u32::try_from(signal - 1).ok().and_then(|n| 1u64.checked_shl(n));
        if let Some(bit) = bit {
            header(&self.core.map, self.slot).signals.fetch_or(bit, Ordering::SeqCst);
            tell(&self.core.map, self.slot);
        }
    }

    /// Polls as readable when [`Self::step`] is to be called, if the domain is driven elsewhere.
    #[must_use]
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(|b| b.as_fd())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.over && self.kept {
            return;
        }
        let map = &self.core.map;
        self.input.close(map);
        self.forwarders.hang_up(map);
        header(map, self.slot).released.store(1, Ordering::Release);
        tell(map, self.slot);
        let mut slots = lock(&self.core.sessions);
        slots.bells.retain(|(slot, _)| *slot != self.slot);
        slots.leaving |= 1 << self.slot;
    }
}

impl Domain {
    /// Starts a program in the domain. The session is driven by the caller, on a thread other than the one that drives
    /// the domain: see [`Session::bell`]. In a fleet, [`crate::Fleet::exec`] is the way.
    ///
    /// # Errors
    /// What is wrong with the request; whether the program could be started, [`Session::step`] tells later.
    pub fn exec(&self, config: &ExecConfig, output: Output) -> Result<Session, Error> {
        Session::open(&self.core, config, output, true)
    }
}

pub mod config;
mod persistent;
pub mod piped;
pub mod relay;
pub mod remote;
pub mod slots;
#[cfg(test)]
mod tests;

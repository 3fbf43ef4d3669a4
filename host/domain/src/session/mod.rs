//! Sessions: more programs in a running domain, each with streams or a terminal of its own.
//!
//! A [`Session`] is the host's end of one, over a slot of the control area (`common/abi/machine`, session.rs). It does nothing
//! by itself: [`Session::step`] moves what there is to move. Who drives it learns when to look again from the domain's
//! doorbell ([`crate::Fleet`]), or, on another thread, from the session's own descriptor, which who drives the domain
//! rings ([`ring_bells`]). What a domain says about a session concerns that session only: nonsense ends it.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use doppel_abi_machine::session::{
    SESSION_NOTE, SESSION_NOTE_MAX, SESSION_REQUEST, SESSION_REQUEST_MAX, SESSION_STRIDE, SESSIONS,
    SessionHeader, session_state,
};
use doppel_abi_machine::{boot_flags, control, event, ring, state};
use doppel_sys::shared::SharedMap;
use rustix::event::EventfdFlags;
use serde::{Deserialize, Serialize};

use crate::io::forward::{Captured, Forwarders};
use crate::io::ring::{Broken, InputRing, OutputRing, post, registers};
use crate::launch::control::encode_args;
use crate::run::state::{Core, lock};
use crate::{Domain, DomainConfig, Error, Output, Stream};

/// Largest process number a domain can have.
const PID_MAX: i32 = 1 << 22;

/// What to run in a domain that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecConfig {
    /// The program and its arguments; with `builtin`, a command of the guest kernel and its arguments.
    pub argv: Vec<OsString>,
    /// Its environment, `NAME=value` each.
    pub env: Vec<OsString>,
    /// Its working directory.
    pub cwd: OsString,
    /// Its user id inside the domain.
    pub uid: u32,
    /// Its group id inside the domain.
    pub gid: u32,
    /// Its supplementary groups inside the domain.
    pub groups: Vec<u32>,
    /// Give it a terminal of this size: rows and columns.
    pub tty: Option<(u16, u16)>,
    /// Connect standard input.
    pub stdin: bool,
    /// Run a command of the guest kernel itself, which needs nothing in the image (docs/sessions.md).
    pub builtin: bool,
}

impl ExecConfig {
    /// Runs `argv` as root in `/`, with no environment and no input.
    #[must_use]
    pub fn new(argv: Vec<OsString>) -> Self {
        Self {
            argv,
            env: Vec::new(),
            cwd: "/".into(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            tty: None,
            stdin: false,
            builtin: false,
        }
    }

    fn encode(&self) -> Result<Vec<u8>, Error> {
        if self.argv.is_empty() {
            return Err(Error::Config("no command given".into()));
        }
        if !self.cwd.as_encoded_bytes().starts_with(b"/") {
            return Err(Error::Config(format!(
                "the working directory {:?} must be an absolute path",
                self.cwd
            )));
        }
        let config = DomainConfig {
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
            ..DomainConfig::new(PathBuf::new(), self.argv.clone())
        };
        let flags = [
            (self.tty.is_some(), boot_flags::TTY),
            (self.stdin, boot_flags::STDIN),
            (self.builtin, boot_flags::BUILTIN),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        encode_args(&config, flags, size(self.tty.unwrap_or_default()), SESSION_REQUEST_MAX)
    }
}

fn size((rows, columns): (u16, u16)) -> u32 {
    u32::from(rows) << 16 | u32::from(columns)
}

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

/// Which slots of a domain are taken.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    used: u128,
    /// Given up by us, not yet by the domain.
    leaving: u128,
    /// Who is to be told that the doorbell rang.
    bells: Vec<(usize, Weak<OwnedFd>)>,
    /// Those that another process has left to us, with its note of each.
    left: Vec<(usize, String)>,
}

const _: () = assert!(SESSIONS <= 128, "the sets above have 128 bits");

impl Slots {
    /// Takes back the slots that the domain has left.
    fn sweep(&mut self, map: &SharedMap) {
        let leaving = self.leaving;
        for slot in (0..SESSIONS).filter(|slot| leaving & 1 << slot != 0) {
            if header(map, slot).left.load(Ordering::Acquire) == 0 {
                continue;
            }
            // With its old bytes it could not be used again: it stays as it is.
            if map.free(offset(slot, 0), stride()).is_ok() {
                self.leaving &= !(1 << slot);
                self.used &= !(1 << slot);
            }
        }
    }

    fn take(&mut self, map: &SharedMap) -> Option<usize> {
        self.sweep(map);
        let slot = (0..SESSIONS).find(|slot| self.used & 1 << slot == 0)?;
        self.used |= 1 << slot;
        Some(slot)
    }
}

fn offset(slot: usize, within: u64) -> usize {
    usize::try_from(control::SESSIONS + slot as u64 * SESSION_STRIDE + within)
        .expect("inside the control area")
}

fn stride() -> usize {
    usize::try_from(SESSION_STRIDE).expect("fits the control area")
}

fn header(map: &SharedMap, slot: usize) -> &SessionHeader {
    map.get(offset(slot, 0))
}

/// Tells the domain that a session wants something.
fn tell(map: &SharedMap, slot: usize) {
    registers(map).sessions[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
    post(map, event::SESSION);
}

/// The domain's doorbell rang, or it ended: those who drive sessions on other threads are to look.
pub(crate) fn ring_bells(core: &Core) {
    let mut slots = lock(&core.sessions);
    if slots.leaving != 0 {
        slots.sweep(&core.map);
    }
    for bell in slots.bells.iter().filter_map(|(_, bell)| bell.upgrade()) {
        // A counter at its maximum has rung already.
        let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
    }
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
        let request = config.encode()?;
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
        h.winsize.store(size(config.tty.unwrap_or_default()), Ordering::Relaxed);
        let rings = [(ring::STDOUT, Stream::Stdout), (ring::STDERR, Stream::Stderr)];
        let rings = rings.map(|(index, stream)| (OutputRing::session(slot, index), stream));
        let session = Self {
            core: core.clone(),
            slot,
            input: InputRing::session(slot, ring::STDIN),
            input_open: config.stdin,
            input_full: false,
            forwarders: Forwarders::new(rings, output, false),
            pid: None,
            bell,
            kept: note.is_some(),
            told: false,
            over: false,
        };
        if !config.stdin && config.tty.is_none() {
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
                0 => SessionEnd::Exited(crate::run::domain::exit_code(h.status.load(Ordering::Relaxed))),
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

mod persistent;
pub mod piped;
pub mod relay;
pub mod remote;
#[cfg(test)]
mod tests;

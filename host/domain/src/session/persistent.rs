//! Sessions that outlive the process that drives them: whoever takes the domain over goes on with them.
//!
//! All that is needed is in the slot: the indices of its rings, what the guest kernel says of the program, and the note of
//! whoever asked for it. Output stays in its ring until the sink says that it is safe ([`crate::Sink::safe`]), a session
//! that has ended in its slot until it is released.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::ring;
use doppel_abi_machine::session::{SESSION_NOTE, SESSION_NOTE_MAX, SESSIONS, session_state};
use doppel_sys::shared::SharedMap;

use super::slots::{Slots, header, offset, stride};
use super::{Session, tell};
use crate::io::forward::Forwarders;
use crate::io::ring::{InputRing, OutputRing};
use crate::lock::lock;
use crate::run::fleet::{Fleet, SessionKey};
use crate::run::key::Key;
use crate::run::state::Core;
use crate::{Error, ExecConfig, Output, Stream};

/// What was noted of a session. The domain can write it too: it is about that session only.
fn note(map: &SharedMap, slot: usize) -> Option<String> {
    let mut bytes = vec![0; usize::try_from(SESSION_NOTE_MAX).ok()?];
    map.read(offset(slot, SESSION_NOTE), &mut bytes);
    let end = bytes.iter().position(|b| *b == 0)?;
    bytes.truncate(end);
    String::from_utf8(bytes).ok().filter(|note| !note.is_empty())
}

impl Slots {
    /// Those of a domain that another process has run. What it has noted can be taken over ([`Session::resume`]); those at
    /// the other end of all others are gone with it: they are hung up.
    pub fn adopt(map: &SharedMap) -> Self {
        let mut slots = Self::default();
        for slot in 0..SESSIONS {
            let h = header(map, slot);
            if h.state.load(Ordering::Acquire) == session_state::FREE {
                if h.request_len.load(Ordering::Relaxed) != 0 && map.free(offset(slot, 0), stride()).is_err()
                {
                    // Half written, and not to be had clean: nobody's.
                    slots.used |= 1 << slot;
                }
                continue;
            }
            slots.used |= 1 << slot;
            let note = note(map, slot).filter(|_| h.released.load(Ordering::Acquire) == 0);
            if let Some(note) = note {
                slots.left.push((slot, note));
                continue;
            }
            slots.leaving |= 1 << slot;
            InputRing::session(slot, ring::STDIN).close(map);
            for index in [ring::STDOUT, ring::STDERR] {
                OutputRing::session(slot, index).hang_up(map);
            }
            h.released.store(1, Ordering::Release);
            tell(map, slot);
        }
        slots
    }

    /// Those that can be taken over.
    pub fn take_left(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.left)
    }
}

impl Session {
    /// As [`Self::open`], to be driven by a fleet; with this note of it for a successor of this process.
    pub(crate) fn open_kept(
        core: &Arc<Core>,
        config: &ExecConfig,
        output: Output,
        note: &str,
    ) -> Result<Self, Error> {
        Self::ask(core, config, output, None, Some(note))
    }

    /// Goes on with the session of this slot where another process has stopped. `stdin`: it has an input.
    pub(crate) fn resume(core: &Arc<Core>, slot: usize, stdin: bool, output: Output) -> Self {
        let map = &core.map;
        let mut input = InputRing::session(slot, ring::STDIN);
        input.resume(map);
        let rings = [(ring::STDOUT, Stream::Stdout), (ring::STDERR, Stream::Stderr)];
        let rings = rings.map(|(index, stream)| {
            let mut ring = OutputRing::session(slot, index);
            ring.resume(map, None);
            (ring, stream)
        });
        let input_open = stdin && !input.is_closed(map);
        // The other may have died between what it did and telling the domain of it.
        tell(map, slot);
        Self {
            core: core.clone(),
            slot,
            input,
            input_open,
            input_full: false,
            forwarders: Forwarders::new(rings, output, false),
            pid: None,
            bell: None,
            kept: true,
            told: false,
            over: false,
        }
    }

    /// Output that was taken and may not outlive this process is taken again, and its end told again.
    pub(crate) fn rewind(&mut self) {
        self.forwarders.rewind();
        self.told = false;
    }

    /// Bytes of output that were taken, modulo 2^32: of standard output and of standard error.
    pub(crate) fn taken(&self) -> [u32; 2] {
        [Stream::Stdout, Stream::Stderr].map(|stream| self.forwarders.taken_of(stream))
    }

    /// Bytes of input that it was given, modulo 2^32.
    pub(crate) fn given(&self) -> u32 {
        self.input.written()
    }
}

impl Fleet {
    /// As [`Self::exec`], of a program that outlives this process: with this note of it for whoever takes the domain over
    /// ([`Self::left_sessions`]), up to 2,047 bytes without a NUL. It stays until it is released, also when it has ended.
    ///
    /// # Errors
    /// As [`Self::exec`].
    pub fn exec_kept(
        &mut self,
        key: Key,
        config: &ExecConfig,
        output: Output,
        note: &str,
    ) -> Result<SessionKey, Error> {
        let Some(live) = self.live.get(&key.0) else {
            return Err(Error::Ended("the domain has ended".into()));
        };
        let session = Session::open_kept(&live.domain.core, config, output, note)?;
        Ok(self.enter(key, session))
    }

    /// Sessions of a domain that was taken over, with their notes, which the domain can write too: all of them are to be
    /// resumed, or released.
    pub fn left_sessions(&self, key: Key) -> Vec<(usize, String)> {
        self.live.get(&key.0).map(|live| lock(&live.domain.core.sessions).take_left()).unwrap_or_default()
    }

    /// Goes on with one of them; `stdin`: it has an input.
    pub fn resume_session(
        &mut self,
        key: Key,
        slot: usize,
        stdin: bool,
        output: Output,
    ) -> Option<SessionKey> {
        let session = Session::resume(&self.live.get(&key.0)?.domain.core, slot, stdin, output);
        Some(self.enter(key, session))
    }

    /// What its sink took and has not called safe comes again, and its end.
    pub fn rewind_session(&mut self, key: Key, session: SessionKey) {
        self.session(key, session, Session::rewind);
        self.mark(key.0);
    }

    /// Bytes of a session's output that were taken, modulo 2^32: of standard output and of standard error.
    pub fn session_taken(&mut self, key: Key, session: SessionKey) -> [u32; 2] {
        self.session(key, session, |s| s.taken()).unwrap_or_default()
    }

    /// Bytes of input that a session was given, modulo 2^32.
    pub fn session_given(&mut self, key: Key, session: SessionKey) -> u32 {
        self.session(key, session, |s| s.given()).unwrap_or_default()
    }
}

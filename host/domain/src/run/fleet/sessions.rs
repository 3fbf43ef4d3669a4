//! Sessions of a fleet's domains: programs that are run beside the first one.

use super::{Fleet, SessionKey};
use crate::run::key::Key;
use crate::session::Session;
use crate::{Error, ExecConfig, Output};

impl Fleet {
    /// Starts a program in a domain; [`super::Event::Session`] tells what becomes of it. Its output does not go to
    /// [`Output::Ours`], which is the domain's; of a sink that took no more, [`Self::unblock`] says when it does.
    ///
    /// # Errors
    /// What is wrong with the request, or that the domain has ended.
    pub fn exec(&mut self, key: Key, config: &ExecConfig, output: Output) -> Result<SessionKey, Error> {
        if matches!(output, Output::Ours) {
            return Err(Error::Misuse("a session in a fleet needs a place of its own for its output"));
        }
        let Some(live) = self.live.get_mut(&key.0) else {
            return Err(Error::Ended("the domain has ended".into()));
        };
        let session = Session::open(&live.domain.core, config, output, false)?;
        Ok(self.enter(key, session))
    }

    /// A session of a domain, of which it is told from now on.
    pub(crate) fn enter(&mut self, key: Key, session: Session) -> SessionKey {
        let number = self.key().0;
        if let Some(live) = self.live.get_mut(&key.0) {
            live.sessions.insert(number, session);
        }
        self.mark(key.0);
        SessionKey(number)
    }

    /// Does something with a session, if it has not ended.
    pub(crate) fn session<T>(
        &mut self,
        key: Key,
        session: SessionKey,
        act: impl FnOnce(&mut Session) -> T,
    ) -> Option<T> {
        self.live.get_mut(&key.0)?.sessions.get_mut(&session.0).map(act)
    }

    /// Gives a session's program input; how much of it there was room for. [`super::SessionEvent::InputRoom`] says when there
    /// is more.
    pub fn session_input(&mut self, key: Key, session: SessionKey, bytes: &[u8]) -> usize {
        let taken = self.session(key, session, |s| s.write_input(bytes)).unwrap_or(0);
        if taken < bytes.len() {
            self.mark(key.0);
        }
        taken
    }

    /// Says that no more input will come for a session's program.
    pub fn end_session_input(&mut self, key: Key, session: SessionKey) {
        self.session(key, session, Session::close_input);
    }

    /// Tells a session's program that its terminal has this size.
    pub fn resize_session(&mut self, key: Key, session: SessionKey, rows: u16, columns: u16) {
        self.session(key, session, |s| s.resize(rows, columns));
    }

    /// Sends a session's program a signal.
    pub fn signal_session(&mut self, key: Key, session: SessionKey, signal: i32) {
        self.session(key, session, |s| s.signal(signal));
    }

    /// Hangs up: the program goes on without streams and terminal, and nothing more is told of it.
    pub fn release_session(&mut self, key: Key, session: SessionKey) {
        if let Some(live) = self.live.get_mut(&key.0) {
            live.sessions.remove(&session.0);
        }
    }
}

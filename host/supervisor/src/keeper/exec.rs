//! Further programs in running domains, for the supervisor that asked for them.
//!
//! Their output is sent as far as the supervisor has taken it ([`WINDOW`]), bytes as they are; then the program waits, as at a pipe. They
//! belong to the connection: when it is lost they are hung up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_domain::{ExecConfig, Key, Output, SessionEnd, SessionEvent, SessionKey};

use super::protocol::{ExecAsk, ExecSpec, Fault, News, Refusal, Said, Stream, WINDOW, Word};
use super::serve::{Input, Piece, failed, gone, refused};
use super::{Keeper, Outbox, locked};

/// A program.
#[derive(Debug)]
pub(super) struct Exec {
    domain: Key,
    session: SessionKey,
    /// The call that started it, until it is answered.
    starting: Option<u64>,
    waiting: Arc<AtomicU64>,
    input: Input,
}

/// Takes a program's output.
struct Sink {
    exec: String,
    waiting: Arc<AtomicU64>,
    outbox: Outbox,
}

impl doppel_domain::Sink for Sink {
    fn put(&mut self, stream: doppel_domain::Stream, _: u32, bytes: &[u8]) -> io::Result<usize> {
        let room = WINDOW.saturating_sub(self.waiting.load(Ordering::Relaxed));
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.waiting.fetch_add(taken as u64, Ordering::Relaxed);
        let news = News::ExecPrinted { exec: self.exec.clone(), stream: Stream::from(stream), bytes: taken };
        locked(&self.outbox).push((news, bytes[..taken].to_vec()));
        Ok(taken)
    }
}

/// Throws a program's output away.
struct Nowhere;

impl doppel_domain::Sink for Nowhere {
    fn put(&mut self, _: doppel_domain::Stream, _: u32, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
}

impl Keeper {
    /// Starts a program; it is answered when it runs or cannot.
    pub(super) fn exec(&mut self, n: u64, id: &str, exec: String, spec: ExecSpec) -> Option<Said> {
        let domain = match self.domains.get(id).filter(|d| d.exit.is_none() && d.started_at.is_some()) {
            Some(domain) => domain.key,
            None => return Some(gone(id)),
        };
        let config = ExecConfig {
            env: spec.env.into_iter().map(Into::into).collect(),
            cwd: spec.cwd.into(),
            uid: spec.uid,
            gid: spec.gid,
            groups: spec.groups,
            tty: spec.tty,
            stdin: spec.stdin,
            builtin: spec.builtin,
            ..ExecConfig::new(spec.argv.into_iter().map(Into::into).collect())
        };
        let waiting = Arc::new(AtomicU64::new(0));
        let output: Box<dyn doppel_domain::Sink> = if spec.discard {
            Box::new(Nowhere)
        } else {
            let (waiting, outbox) = (waiting.clone(), self.outbox.clone());
            Box::new(Sink { exec: exec.clone(), waiting, outbox })
        };
        match self.fleet.exec(domain, &config, Output::To(output)) {
            Ok(session) => {
                self.sessions.insert(session, exec.clone());
                let input = Input::default();
                self.execs.insert(exec, Exec { domain, session, starting: Some(n), waiting, input });
                None
            }
            Err(error) => Some(failed(&error)),
        }
    }

    /// Does something with a program; none if the answer comes later.
    pub(super) fn exec_ask(&mut self, n: u64, id: &str, ask: ExecAsk) -> Option<Said> {
        let Some(exec) = self.execs.get_mut(id) else {
            return Some(refused(Fault::Gone, "the program has ended"));
        };
        match ask {
            ExecAsk::Taken { bytes } => {
                exec.waiting.fetch_sub(bytes.min(exec.waiting.load(Ordering::Relaxed)), Ordering::Relaxed);
                self.fleet.unblock(exec.domain);
            }
            ExecAsk::Signal { signal } => self.fleet.signal_session(exec.domain, exec.session, signal),
            ExecAsk::Resize { rows, columns } => {
                self.fleet.resize_session(exec.domain, exec.session, rows, columns);
            }
            ExecAsk::Input { data, close } => {
                let Ok(bytes) = STANDARD.decode(data) else {
                    return Some(refused(Fault::Request, "not base64"));
                };
                exec.input.queue.push_back(Piece { call: Some(n), bytes, done: 0, close });
                self.feed_exec(id);
                return None;
            }
            ExecAsk::Release => {
                self.fleet.release_session(exec.domain, exec.session);
                self.sessions.remove(&exec.session);
                self.execs.remove(id);
            }
        }
        Some(Said::Done)
    }

    fn feed_exec(&mut self, id: &str) {
        let mut done = Vec::new();
        let Some(exec) = self.execs.get_mut(id) else { return };
        while let Some(piece) = exec.input.queue.front_mut() {
            piece.done += self.fleet.session_input(exec.domain, exec.session, &piece.bytes[piece.done..]);
            if piece.done < piece.bytes.len() {
                break;
            }
            if piece.close {
                self.fleet.end_session_input(exec.domain, exec.session);
            }
            done.extend(piece.call);
            exec.input.queue.pop_front();
        }
        for n in done {
            self.say(&Word::Answer { n, said: Said::Done });
        }
    }

    /// Something happened to a program.
    pub(super) fn exec_happened(&mut self, session: SessionKey, event: SessionEvent) {
        let Some(id) = self.sessions.get(&session).cloned() else { return };
        match event {
            SessionEvent::Started(pid) => {
                let call = self.execs.get_mut(&id).and_then(|e| e.starting.take());
                self.reply(call, Said::ExecStarted { pid });
            }
            SessionEvent::InputRoom => self.feed_exec(&id),
            SessionEvent::Ended(end, _) => {
                self.sessions.remove(&session);
                let Some(mut exec) = self.execs.remove(&id) else { return };
                // What it printed comes before its end.
                self.send_printed();
                if let Some(n) = exec.starting.take() {
                    let said = match end {
                        // So short that its start was not seen by itself.
                        SessionEnd::Exited(_) => Said::ExecStarted { pid: 0 },
                        _ => Said::Refused(refusal(end)),
                    };
                    let started = matches!(said, Said::ExecStarted { .. });
                    self.say(&Word::Answer { n, said });
                    if !started {
                        return;
                    }
                }
                for piece in exec.input.queue {
                    self.reply(piece.call, Said::Done);
                }
                let reason = match end {
                    SessionEnd::Exited(_) | SessionEnd::Failed(_) => None,
                    SessionEnd::DomainEnded => Some("the domain has ended".to_owned()),
                    SessionEnd::Broken => Some("the domain broke the protocol of sessions".to_owned()),
                };
                self.say(&Word::News(News::ExecEnded { exec: id, code: end.code(), reason }));
            }
        }
    }

    /// Hangs up all programs: who asked for them has gone.
    pub(super) fn release_execs(&mut self) {
        for (_, exec) in self.execs.drain() {
            self.fleet.release_session(exec.domain, exec.session);
        }
        self.sessions.clear();
    }
}

fn refusal(end: SessionEnd) -> Refusal {
    let (fault, text) = match end {
        SessionEnd::Failed(2) => (Fault::NotFound, "the command is not there"),
        SessionEnd::Failed(12) => (
            Fault::NotExecutable,
            "the command cannot be started: its domain has too little memory left, or too low a target for it",
        ),
        SessionEnd::Failed(_) => (Fault::NotExecutable, "the command cannot be executed"),
        _ => (Fault::Gone, "the domain ended before the program ran"),
    };
    let number =
        if let SessionEnd::Failed(errno) = end { format!(" (errno {errno})") } else { String::new() };
    Refusal { fault, text: format!("{text}{number}") }
}

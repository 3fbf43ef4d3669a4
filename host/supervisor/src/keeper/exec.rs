//! Further programs in running domains, for the supervisor that asked for them.
//!
//! Their output is sent as far as the supervisor has taken it ([`WINDOW`]), bytes as they are; then the program waits, as at a
//! pipe. They outlive the keeper: each has its id in its session's slot ([`Left`]), its output stays in its ring until it is
//! in the supervisor's socket, which is read to its end whatever becomes of us, and one that has ended stays until it is
//! released. So a successor sends again what may not have come, with its place in the stream, and the supervisor knows what
//! it has. A supervisor says first of all which programs it knows; those of another one are hung up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doppel_domain::{ExecConfig, Key, Output, SessionEnd, SessionEvent, SessionKey};
use doppel_spec::CreateExec;
use serde::{Deserialize, Serialize};

use super::protocol::{ExecCommand, Fault, KnownExec, Message, Notification, Refusal, Reply, Stream, WINDOW};
use super::serve::{Input, Piece, failed, gone, refused};
use super::{Keeper, Outbox, locked};

/// A program.
#[derive(Debug)]
pub(super) struct Exec {
    domain: Key,
    /// Id of that.
    of: String,
    session: SessionKey,
    /// The call that started it, until it is answered.
    starting: Option<u64>,
    /// Its process in the domain, once it runs.
    pid: Option<i32>,
    end: Option<SessionEnd>,
    flow: Arc<Flow>,
    input: Input,
}

/// What a successor has to know of it: the note of its session.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    exec: String,
    stdin: bool,
    discard: bool,
}

/// Whether there is a supervisor that has said which programs it knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Greeted(Arc<AtomicBool>);

impl Greeted {
    pub fn set(&self, to: bool) {
        self.0.store(to, Ordering::Relaxed);
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A program's output on its way.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Bytes that the supervisor has not taken yet.
    waiting: AtomicU64,
    /// Where in standard output and standard error the bytes end that are in its socket, modulo 2^32.
    sent: [AtomicU32; 2],
}

impl Flow {
    fn sent(&self, stream: Stream) -> &AtomicU32 {
        &self.sent[usize::from(stream != Stream::Stdout)]
    }
}

/// Output up to here is safe when it has been sent.
#[derive(Debug)]
pub(super) struct Mark {
    flow: Arc<Flow>,
    domain: Key,
    stream: Stream,
    end: u32,
}

/// Takes a program's output.
struct Sink {
    exec: String,
    domain: Key,
    flow: Arc<Flow>,
    outbox: Outbox,
    greeted: Greeted,
}

impl doppel_domain::Sink for Sink {
    fn put(&mut self, stream: doppel_domain::Stream, at: u32, bytes: &[u8]) -> io::Result<usize> {
        let room = WINDOW.saturating_sub(self.flow.waiting.load(Ordering::Relaxed));
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if taken == 0 || !self.greeted.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.flow.waiting.fetch_add(taken as u64, Ordering::Relaxed);
        let stream = Stream::from(stream);
        let news = Notification::ExecPrinted { exec: self.exec.clone(), stream, bytes: taken, at: Some(at) };
        let end = at.wrapping_add(u32::try_from(taken).unwrap_or_default());
        let mark = Mark { flow: self.flow.clone(), domain: self.domain, stream, end };
        locked(&self.outbox).push((news, bytes[..taken].to_vec(), Some(mark)));
        Ok(taken)
    }

    fn safe(&self, stream: doppel_domain::Stream) -> Option<u32> {
        Some(self.flow.sent(stream.into()).load(Ordering::Relaxed))
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
    fn exec_output(&self, exec: &str, domain: Key, discard: bool, flow: &Arc<Flow>) -> Output {
        if discard {
            return Output::To(Box::new(Nowhere));
        }
        let (flow, outbox, greeted) = (flow.clone(), self.outbox.clone(), self.greeted.clone());
        Output::To(Box::new(Sink { exec: exec.to_owned(), domain, flow, outbox, greeted }))
    }

    /// Starts a program; it is answered when it runs or cannot.
    pub(super) fn exec(
        &mut self,
        n: u64,
        id: &str,
        exec: String,
        config: ExecConfig<String>,
    ) -> Option<Reply> {
        if let Some(known) = self.execs.get_mut(&exec).filter(|e| e.of == id) {
            // Asked for before, of a keeper that has died or on another connection.
            return match (known.end, known.pid) {
                (Some(end), _) => Some(started(end)),
                (None, Some(pid)) => Some(Reply::ExecStarted { pid }),
                (None, None) => {
                    known.starting = Some(n);
                    None
                }
            };
        }
        let domain = match self.domains.get(id).filter(|d| d.exit.is_none() && d.started_at.is_some()) {
            Some(domain) => domain.key,
            None => return Some(gone(id)),
        };
        let CreateExec { stdin, detach: discard, .. } = config.spec;
        let left = Left { exec: exec.clone(), stdin, discard };
        let note = match serde_json::to_string(&left) {
            Ok(note) => note,
            Err(error) => return Some(refused(Fault::Request, error.to_string())),
        };
        let flow = Arc::new(Flow::default());
        let output = self.exec_output(&exec, domain, discard, &flow);
        match self.fleet.exec_kept(domain, &config.into(), output, &note) {
            Ok(session) => {
                self.enter_exec(exec, id, domain, session, flow, Some(n));
                None
            }
            Err(error) => Some(failed(&error)),
        }
    }

    fn enter_exec(
        &mut self,
        exec: String,
        of: &str,
        domain: Key,
        session: SessionKey,
        flow: Arc<Flow>,
        starting: Option<u64>,
    ) {
        self.sessions.insert(session, exec.clone());
        let of = of.to_owned();
        let (pid, end, input) = (None, None, Input::default());
        self.execs.insert(exec, Exec { domain, of, session, starting, pid, end, flow, input });
    }

    /// Goes on with the programs of a domain that was taken over. Nothing of them is sent until a supervisor has said
    /// that it knows them.
    pub(super) fn adopt_execs(&mut self, id: &str, domain: Key) {
        for (slot, note) in self.fleet.left_sessions(domain) {
            // What the domain may have written in its place is nobody's.
            let left = serde_json::from_str::<Left>(&note).ok().filter(|l| !self.execs.contains_key(&l.exec));
            let flow = Arc::new(Flow::default());
            let output = match &left {
                Some(left) => self.exec_output(&left.exec, domain, left.discard, &flow),
                None => Output::To(Box::new(Nowhere)),
            };
            let stdin = left.as_ref().is_some_and(|l| l.stdin);
            let Some(session) = self.fleet.resume_session(domain, slot, stdin, output) else { continue };
            let Some(left) = left else {
                self.fleet.release_session(domain, session);
                continue;
            };
            let taken = self.fleet.session_taken(domain, session);
            for (sent, taken) in flow.sent.iter().zip(taken) {
                sent.store(taken, Ordering::Relaxed);
            }
            self.enter_exec(left.exec, id, domain, session, flow, None);
        }
    }

    /// A supervisor says which programs it knows: those go on, all others are hung up. Which there are.
    pub(super) fn greet_execs(&mut self, known: &[KnownExec]) -> Vec<String> {
        // What was not sent is taken again.
        locked(&self.outbox).retain(|(_, _, mark)| mark.is_none());
        let mut others = Vec::new();
        for (id, exec) in &mut self.execs {
            let Some(known) = known.iter().find(|k| k.exec == *id && k.domain == exec.of) else {
                others.push(id.clone());
                continue;
            };
            exec.starting = None;
            exec.input.forget_calls();
            exec.flow.waiting.store(known.waiting, Ordering::Relaxed);
            self.fleet.rewind_session(exec.domain, exec.session);
        }
        for id in others {
            self.release_exec(&id);
        }
        self.greeted.set(true);
        self.execs.keys().cloned().collect()
    }

    /// Output is in the supervisor's socket.
    pub(super) fn execs_sent(&mut self, marks: Vec<Mark>) {
        for Mark { flow, domain, stream, end } in marks {
            flow.sent(stream).store(end, Ordering::Relaxed);
            self.fleet.unblock(domain);
        }
    }

    fn release_exec(&mut self, id: &str) {
        if let Some(exec) = self.execs.remove(id) {
            self.fleet.release_session(exec.domain, exec.session);
            self.sessions.remove(&exec.session);
        }
    }

    /// Does something with a program; none if the answer comes later.
    pub(super) fn exec_ask(&mut self, n: u64, id: &str, ask: ExecCommand) -> Option<Reply> {
        let over = || Some(refused(Fault::Gone, "the program has ended"));
        let Some(exec) = self.execs.get_mut(id) else { return over() };
        let ended = exec.end.is_some();
        match ask {
            ExecCommand::Release => self.release_exec(id),
            _ if ended => return over(),
            ExecCommand::Taken { bytes } => {
                let waiting = &exec.flow.waiting;
                waiting.fetch_sub(bytes.min(waiting.load(Ordering::Relaxed)), Ordering::Relaxed);
                self.fleet.unblock(exec.domain);
            }
            ExecCommand::Signal { signal } => self.fleet.signal_session(exec.domain, exec.session, signal),
            ExecCommand::Resize { rows, columns } => {
                self.fleet.resize_session(exec.domain, exec.session, rows, columns);
            }
            ExecCommand::Input { data, close, at } => {
                let Ok(bytes) = STANDARD.decode(data) else {
                    return Some(refused(Fault::Request, "not base64"));
                };
                exec.input.queue.push_back(Piece { call: Some(n), bytes, done: 0, close, at, tell: false });
                self.feed_exec(id);
                return None;
            }
        }
        Some(Reply::Done)
    }

    fn feed_exec(&mut self, id: &str) {
        let mut done = Vec::new();
        let Some(exec) = self.execs.get_mut(id) else { return };
        while let Some(piece) = exec.input.queue.front_mut() {
            piece.pass(|| self.fleet.session_given(exec.domain, exec.session));
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
            self.say(&Message::Reply { n, reply: Reply::Done });
        }
    }

    /// Something happened to a program.
    pub(super) fn exec_happened(&mut self, session: SessionKey, event: SessionEvent) {
        let Some(id) = self.sessions.get(&session).cloned() else { return };
        match event {
            SessionEvent::Started(pid) => {
                let Some(exec) = self.execs.get_mut(&id) else { return };
                exec.pid = Some(pid);
                let call = exec.starting.take();
                self.reply(call, Reply::ExecStarted { pid });
            }
            SessionEvent::InputRoom => self.feed_exec(&id),
            SessionEvent::Ended(end, _) => self.exec_ended(id, end),
        }
    }

    fn exec_ended(&mut self, id: String, end: SessionEnd) {
        // What it printed comes before its end.
        self.send_printed();
        let Some(exec) = self.execs.get_mut(&id) else { return };
        exec.end = Some(end);
        let (call, ran) = (exec.starting.take(), exec.pid.is_some());
        let waiting: Vec<u64> = exec.input.queue.drain(..).filter_map(|piece| piece.call).collect();
        if end == SessionEnd::DomainEnded {
            // With its domain: there is nothing to release.
            self.release_exec(&id);
        }
        self.reply(call, started(end));
        for n in waiting {
            self.say(&Message::Reply { n, reply: Reply::Done });
        }
        let reason = match end {
            // That it could not be started is the answer to whoever asks for it, now or again.
            SessionEnd::Failed(_) if !ran => return,
            SessionEnd::Exited(_) | SessionEnd::Failed(_) => None,
            SessionEnd::DomainEnded if call.is_some() => return,
            SessionEnd::DomainEnded => Some("the domain has ended".to_owned()),
            SessionEnd::Broken => Some("the domain broke the protocol of sessions".to_owned()),
        };
        self.say(&Message::Notification(Notification::ExecEnded { exec: id, code: end.code(), reason }));
    }
}

/// The answer to whoever asks for a program that has ended.
fn started(end: SessionEnd) -> Reply {
    let (fault, text) = match end {
        // So short that its start was not seen by itself.
        SessionEnd::Exited(_) => return Reply::ExecStarted { pid: 0 },
        SessionEnd::Failed(2) => (Fault::NotFound, "the command is not there"),
        SessionEnd::Failed(12) => (
            Fault::NotExecutable,
            "the command cannot be started: its domain has too little memory left, or too low a target for it",
        ),
        SessionEnd::Failed(_) => (Fault::NotExecutable, "the command cannot be executed"),
        SessionEnd::DomainEnded | SessionEnd::Broken => {
            (Fault::Gone, "the domain ended before the program ran")
        }
    };
    let number =
        if let SessionEnd::Failed(errno) = end { format!(" (errno {errno})") } else { String::new() };
    Reply::Refused(Refusal { fault, text: format!("{text}{number}") })
}

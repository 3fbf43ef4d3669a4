//! Requests to running domains: a Unix socket in the runtime directory, a line of JSON each way.
//!
//! A thread of the process that runs domains answers for them, with another one for each visitor while it lasts. Only
//! the owner can reach the directory. Requests to one domain are served one after the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::freeze::frozen::FreezeReport;
use crate::registry::{self, Doors};
use crate::run::state::lock;
use crate::run::workers;
use crate::session::relay;
use crate::{DomainStats, Error, ExecConfig};

/// How long a connected peer may take to send its line.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take: that of a freeze comes when all memory has been written.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// The refusal for a domain that is not this process'.
const NOT_HERE: &str = "no such domain here";
const NO_THREAD: &str = "the host has no thread left for a session; try again";
/// Longest request in bytes.
const LONGEST: u64 = 1 << 20;

/// What can be asked of a running domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Write its memory to a frozen image.
    Freeze {
        /// The image's file.
        to: PathBuf,
        /// End the domain afterwards.
        stop: bool,
    },
    /// Write its memory to a frozen image and end it. An image that it woke from is replaced.
    Hibernate {
        /// The image's file.
        to: PathBuf,
    },
    /// Tell what memory it has.
    Stats,
    /// Change the memory its programs may have and the balloon's target, in bytes.
    Memory {
        /// Most memory; none for no limit.
        limit: Option<u64>,
        /// What it should try to stay under.
        target: Option<u64>,
    },
    /// Start a program in it; frames follow the answer (`relay.rs`).
    Exec(Box<ExecConfig>),
}

/// What is written: the domain's name and what is asked of it, or nothing to learn which there are.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Letter {
    domain: Option<String>,
    request: Option<Request>,
}

/// The answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It was frozen.
    Frozen(FreezeReport),
    /// Its memory.
    Stats(DomainStats),
    /// It was done.
    Done,
    /// The session is there.
    Session,
    /// It was not done; the text says why.
    Refused(String),
    /// The domains of this process.
    Domains(Vec<String>),
}

/// Asks the domain called `name`.
///
/// # Errors
/// If no such domain runs, or it does not answer.
pub fn ask(name: &str, request: &Request) -> Result<Reply, Error> {
    converse(name, request).map(|(reply, _)| reply)
}

/// As [`ask`]; gives the connection too, and nothing behind the answer is taken from it.
pub(crate) fn converse(name: &str, request: &Request) -> Result<(Reply, UnixStream), Error> {
    let none = || Error::Ended(format!("no domain named {name:?} is running here"));
    if name.is_empty() || name.contains('/') {
        return Err(none());
    }
    registry::check().map_err(Error::host(format!("ask domain {name}")))?;
    let socket = registry::socket_of(name).ok_or_else(none)?;
    let letter = Letter { domain: Some(name.to_owned()), request: Some(request.clone()) };
    let ended = || Error::Ended(format!("domain {name} ended before it answered"));
    match exchange(&socket, &letter) {
        Ok(Some((Reply::Refused(why), _))) if why == NOT_HERE => Err(none()),
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(ended()),
        Err(e) => Err(match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => none(),
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => ended(),
            std::io::ErrorKind::WouldBlock => Error::State(format!(
                "domain {name} has not answered for {} s; what was asked of it may still happen",
                ANSWER_PATIENCE.as_secs()
            )),
            _ => Error::host(format!("ask domain {name}"))(e),
        }),
    }
}

/// Names of the domains that run here, as far as they can be asked.
#[must_use]
pub fn running() -> Vec<String> {
    let mut names = Vec::new();
    if registry::check().is_err() {
        // What another has put there are no domains of ours.
        return names;
    }
    for socket in registry::sockets() {
        // Who does not answer has just ended, or died suddenly.
        if let Ok(Some((Reply::Domains(more), _))) = exchange(&socket, &Letter::default()) {
            names.extend(more);
        }
    }
    names.sort();
    names
}

/// Sends a letter; none if the other side ends before it answers.
fn exchange(socket: &Path, letter: &Letter) -> std::io::Result<Option<(Reply, UnixStream)>> {
    let stream = UnixStream::connect(socket)?;
    registry::check_peer(&stream)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(letter)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = String::new();
    // A byte at a time: what comes behind the line is for others.
    BufReader::with_capacity(1, &stream).read_line(&mut answer)?;
    Ok(if answer.is_empty() { None } else { Some((serde_json::from_str(&answer)?, stream)) })
}

/// Listens at `path` for who wants something of the domains behind `doors`, until the listener is shut down.
pub(crate) fn listen(path: &Path, doors: Doors) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    let door = listener.try_clone()?;
    doppel_sys::signal::spawn_blocked("door", move || {
        loop {
            match door.accept() {
                // Nobody else can reach the directory; were it otherwise, nobody else is answered.
                Ok((visitor, _)) if registry::check_peer(&visitor).is_err() => {}
                Ok((visitor, _)) => {
                    receive(visitor, doors.clone());
                }
                Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => return,
                // Out of descriptors, say: whoever waits is heard when there are some.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(listener)
}

/// Hears a visitor on a thread of its own. If the host has none left, one of those made beforehand answers; only a
/// conversation, which may last, is refused then.
fn receive(visitor: UnixStream, doors: Doors) {
    let lasting = Arc::new(AtomicBool::new(true));
    let its = lasting.clone();
    let job = Box::new(move || answer(visitor, &doors, its.load(Ordering::Relaxed)));
    if let Err(job) = workers::try_run(job) {
        lasting.store(false, Ordering::Relaxed);
        workers::leave(job);
    }
}

/// Hears one visitor. Who sends nonsense is told so. `lasting`: it may become a conversation.
fn answer(visitor: UnixStream, doors: &Doors, lasting: bool) {
    let answer = Answer(visitor);
    match answer.read() {
        Ok(Letter { domain: Some(domain), request: Some(request) }) => {
            let core = lock(doors).get(&domain).and_then(Weak::upgrade);
            let Some(core) = core else { return answer.give(&Reply::Refused(NOT_HERE.into())) };
            match request {
                Request::Exec(_) if !lasting => answer.give(&Reply::Refused(NO_THREAD.into())),
                Request::Exec(config) => relay::serve(&core, &config, answer),
                request => {
                    // Held until the answer is out: the domain's end waits for that.
                    let guest = core.receive();
                    answer.give(&guest.serve(request));
                }
            }
        }
        Ok(_) => answer.give(&Reply::Domains(lock(doors).keys().cloned().collect())),
        Err(why) => answer.give(&Reply::Refused(format!("bad request: {why}"))),
    }
}

/// Where to answer a request.
#[derive(Debug)]
pub(crate) struct Answer(UnixStream);

impl Answer {
    /// The connection, for a conversation.
    pub fn into_stream(self) -> UnixStream {
        self.0
    }

    fn read(&self) -> Result<Letter, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        self.0.set_read_timeout(Some(PATIENCE)).map_err(|e| text(&e))?;
        self.0.set_write_timeout(Some(PATIENCE)).map_err(|e| text(&e))?;
        let mut line = String::new();
        BufReader::new(std::io::Read::take(&self.0, LONGEST)).read_line(&mut line).map_err(|e| text(&e))?;
        serde_json::from_str(&line).map_err(|e| text(&e))
    }

    /// Answers; a peer that has gone away does not want to know.
    pub fn give(&self, reply: &Reply) {
        if let Ok(mut line) = serde_json::to_vec(reply) {
            line.push(b'\n');
            let _ = (&self.0).write_all(&line);
        }
    }
}

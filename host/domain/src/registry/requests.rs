//! Requests to running domains: a Unix socket in the runtime directory, a line of JSON each way.
//!
//! A thread of the process that runs domains answers for them, with another one for each visitor while it lasts. Only
//! the owner can reach the directory. Requests to one domain are served one after the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::lock::lock;
use crate::paging::pager;
use crate::registry::messages::Answer;
use crate::registry::messages::Envelope;
use crate::registry::messages::PATIENCE;
use crate::registry::messages::Reply;
use crate::registry::messages::Request;
use crate::registry::{self, DomainsByName};
use crate::run::state::Core;
use crate::run::workers;
use crate::session::relay;

/// How long an answer may take: that of a freeze comes when all memory has been written.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
/// The refusal for a domain that is not this process'.
const NOT_HERE: &str = "no such domain here";
const NO_THREAD: &str = "the host has no thread left for a session; try again";
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
    let letter = Envelope { domain: Some(name.to_owned()), request: Some(request.clone()) };
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
        if let Ok(Some((Reply::Domains(more), _))) = exchange(&socket, &Envelope::default()) {
            names.extend(more);
        }
    }
    names.sort();
    names
}

/// Sends a letter; none if the other side ends before it answers.
fn exchange(socket: &Path, letter: &Envelope) -> std::io::Result<Option<(Reply, UnixStream)>> {
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
pub(crate) fn listen(path: &Path, doors: DomainsByName) -> std::io::Result<UnixListener> {
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
fn receive(visitor: UnixStream, doors: DomainsByName) {
    let lasting = Arc::new(AtomicBool::new(true));
    let its = lasting.clone();
    let job = Box::new(move || answer(visitor, &doors, its.load(Ordering::Relaxed)));
    if let Err(job) = workers::try_run(job) {
        lasting.store(false, Ordering::Relaxed);
        workers::leave(job);
    }
}

/// Hears one visitor. Who sends nonsense is told so. `lasting`: it may become a conversation.
fn answer(visitor: UnixStream, doors: &DomainsByName, lasting: bool) {
    let answer = Answer(visitor);
    match answer.read() {
        Ok(Envelope { domain: Some(domain), request: Some(request) }) => {
            let core = lock(doors).get(&domain).and_then(Weak::upgrade);
            let Some(core) = core else { return answer.give(&Reply::Refused(NOT_HERE.into())) };
            match request {
                Request::Exec(_) if !lasting => answer.give(&Reply::Refused(NO_THREAD.into())),
                Request::Exec(config) => relay::serve(&core, &config, answer),
                request => {
                    // Held until the answer is out: the domain's end waits for that.
                    let guest = core.receive();
                    answer.give(&serve(&guest, request));
                    pager::look_after(&core);
                }
            }
        }
        Ok(_) => answer.give(&Reply::Domains(lock(doors).keys().cloned().collect())),
        Err(why) => answer.give(&Reply::Refused(format!("bad request: {why}"))),
    }
}

/// Does what somebody outside asks for.
fn serve(core: &Core, request: Request) -> Reply {
    let reply = match request {
        Request::Freeze { to, stop, whole } => core.freeze(&to, stop, whole).map(Reply::Frozen),
        Request::Hibernate { to } => core.freeze(&to, true, false).map(Reply::Frozen),
        Request::Stats => core.stats().map(Reply::Stats),
        Request::Memory { limit, target } => core.set_memory(limit, target).map(|()| Reply::Done),
        // Those have a conversation of their own.
        Request::Exec(_) => Err(Error::Misuse("a session cannot be asked for here")),
    };
    reply.unwrap_or_else(|error| Reply::Refused(error.to_string()))
}

//! Further programs in a container that runs: a helper process for each, which joins its namespaces, forks the program
//! and waits for it.
//!
//! libcontainer's own way (its tenant builder, 0.7) does not join a container's user namespace: the program would be the
//! host's root in there. So this is ours; the limits, capabilities and the filter are those of the first program.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use doppel_sys::namespace::{Forked, join_and_fork};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::program::bundle::{CAPABILITIES, LIMITS, OOM_SCORE};
use crate::program::request::Request;
use crate::program::start;
use crate::program::talk::{self, Message, Stage};

/// Argument that makes this program the helper.
pub(crate) const VERB: &str = "enter";

/// The helper. Standard input is the socket to the attendant, from which one message comes: the request, with the
/// container's first process and the program's three streams.
pub(crate) fn run() -> ExitCode {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    match start(&socket) {
        Ok(code) => code,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            // The attendant sees our end in any case.
            let _ = Message::Failed(Stage::Enter, errno).say(&socket);
            ExitCode::FAILURE
        }
    }
}

fn start(socket: &OwnedFd) -> io::Result<ExitCode> {
    let (bytes, fds) = talk::receive(socket)?;
    let request = Request::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    let [init, streams @ ..] = <[OwnedFd; 4]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
    let (ours, theirs) = talk::pair()?;
    fs::write("/proc/self/oom_score_adj", OOM_SCORE.to_string())?;
    for (resource, most) in LIMITS {
        limit(*resource, *most)?;
    }
    match join_and_fork(init.as_fd())? {
        Forked::Child => {
            let theirs = Arc::new(theirs);
            let code = match confine(&request, &streams) {
                Ok(()) => {
                    drop((ours, streams, init));
                    start::become_it(&request, &theirs)
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
                    let _ = Message::Failed(Stage::Enter, errno).say(&theirs);
                    126
                }
            };
            Ok(ExitCode::from(code))
        }
        Forked::Parent(pid) => {
            drop((theirs, streams, init));
            wait(socket, &ours, pid)
        }
    }
}

/// Lowers a limit, soft and hard alike, as far as it is not lower already.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let old = rustix::process::getrlimit(resource);
    let most = old.maximum.map_or(most, |m| m.min(most));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Becomes the request's user, with no more rights than the container's first program had.
fn confine(request: &Request, [stdin, stdout, stderr]: &[OwnedFd; 3]) -> io::Result<()> {
    rustix::process::setsid()?;
    dup2_stdin(stdin)?;
    dup2_stdout(stdout)?;
    dup2_stderr(stderr)?;
    rustix::thread::set_no_new_privs(true)?;
    let kept = CAPABILITIES.iter().fold(CapabilitySet::empty(), |all, (_, one)| all | *one);
    // Capabilities this kernel does not have are none to remove.
    for one in (CapabilitySet::all() - kept).iter() {
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let id = |raw: u32| if raw == u32::MAX { Err(io::ErrorKind::InvalidInput) } else { Ok(raw) };
    let groups: Vec<_> = request.program.groups.iter().map(|g| rustix::fs::Gid::from_raw(*g)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (gid, uid) = (
        rustix::fs::Gid::from_raw(id(request.program.gid)?),
        rustix::fs::Uid::from_raw(id(request.program.uid)?),
    );
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let own = if uid.is_root() { kept } else { CapabilitySet::empty() };
    let sets = CapabilitySets { effective: own, permitted: own, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// Passes on what the program says before it runs, and waits for its end.
fn wait(socket: &OwnedFd, program: &OwnedFd, pid: i32) -> io::Result<ExitCode> {
    Message::Process(pid).say(socket)?;
    let mut failed = false;
    while let Some(word) = Message::hear(program)? {
        failed |= matches!(word, Message::Failed(..));
        let started = matches!(word, Message::Started);
        word.say(socket)?;
        if started {
            break;
        }
    }
    if !failed {
        // Said twice of a built-in command, which does no harm.
        Message::Started.say(socket)?;
    }
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                Message::Ended(status.as_raw()).say(socket)?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

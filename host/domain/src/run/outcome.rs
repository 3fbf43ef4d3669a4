//! How a domain ended, by what it has left in its memory; also of one that died while nobody ran it.
//!
//! Its control area goes with its processes, unless somebody has held it ([`hold`]): then whoever takes over what is left
//! finds what it printed last, and how it ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use doppel_abi_machine::{StartInfo, control, fd, layout};
use doppel_abi_service::net;
use doppel_service::{check_memory, take};
use doppel_sys::shared::{self, SharedMap};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::io::console::{Console, End};
use crate::io::ring::registers;
use crate::registry::record::{Birth, Record};
use crate::run::exit::{describe, exit_code};
use crate::{Error, Kind, Outcome, Output, Stream};

/// SIGKILL as a wait status.
const KILLED: i32 = 9;
/// Most looks at what a domain has printed last.
const STEPS: u32 = 16;

/// Descriptors of the memory in which the domain with this first process leaves what it says last; `network`: it has one.
/// Nothing is mapped. They are no use to others than whoever takes it over ([`crate::Adoption::held`]).
///
/// # Errors
/// If it has ended, or the host refuses.
pub fn hold(pid: i32, network: bool) -> io::Result<Vec<OwnedFd>> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let process = pidfd_open(Pid::from_raw(pid).ok_or_else(gone)?, PidfdFlags::empty())?;
    let memory =
        |number, size| take(process.as_fd(), number).and_then(|f| check_memory(&f, size).map(|()| f));
    let control = |number| memory(number, control::SIZE);
    let mut held = vec![control(fd::CONTROL).or_else(|_| control(fd::ATTENDANT_CONTROL))?];
    if network {
        held.push(memory(fd::NETWORK, net::SIZE)?);
    }
    Ok(held)
}

/// Descriptors that another process holds, by their numbers there.
///
/// # Errors
/// What the host says.
pub fn borrow(holder: BorrowedFd<'_>, numbers: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    numbers.iter().map(|number| take(holder, *number)).collect()
}

/// Maps a control area; with the registers of a channel to a network service, if it has one.
pub(crate) fn map(control: BorrowedFd<'_>, channel: Option<BorrowedFd<'_>>) -> Result<SharedMap, Error> {
    let mut map = SharedMap::new(control, usize::try_from(control::SIZE).unwrap_or(usize::MAX))
        .map_err(Error::host("map the control area"))?;
    if let Some(channel) = channel {
        let at = shared::offset(control::VREGS);
        let page = usize::try_from(layout::PAGE).expect("a page");
        map.overlay(at, page, channel, doppel_abi_service::layout::REGISTERS)
            .map_err(Error::host("map the network service's channel"))?;
    }
    Ok(map)
}

/// Takes what a domain that is gone has printed last out of its held memory; how it ended, by that. None: it is not that
/// domain's, or the host cannot map it.
pub(crate) fn words(
    record: &Record,
    birth: &Birth,
    held: &[OwnedFd],
    taken: Option<(Stream, u32)>,
    output: Output,
) -> Option<(End, SharedMap)> {
    let control = held.first()?;
    check_memory(control, control::SIZE).ok()?;
    let channel = if birth.network { Some(held.get(1)?) } else { None };
    if let Some(channel) = channel {
        check_memory(channel, net::SIZE).ok()?;
    }
    let map = map(control.as_fd(), channel.map(AsFd::as_fd)).ok()?;
    let mut id = [0; 8];
    let at = usize::try_from(control::START_INFO).ok()? + std::mem::offset_of!(StartInfo, domain_id);
    map.read(at, &mut id);
    if u64::from_le_bytes(id) != u64::from(record.id) {
        return None;
    }
    let mut console = Console::adopt(&map, birth.boot_flags, record.served, taken);
    console.set_output(output);
    console.died();
    // What its rings hold is out long before the last of these, if nobody who is left of it adds to them.
    for _ in 0..STEPS {
        let step = console.step(&map);
        match step.end {
            Some(end) => return Some((end, map)),
            // One who takes no more now never will.
            None if !step.more => break,
            None => {}
        }
    }
    Some((End::Died, map))
}

/// How a domain ended; `died` is for one whose first process ended before it said anything.
pub(crate) fn outcome(
    end: End,
    kind: Kind,
    map: &SharedMap,
    oom_kills: u64,
    asleep: bool,
    died: &str,
) -> Outcome {
    let ended = |reason: String| Outcome::Ended { reason, out_of_memory: oom_kills > 0 };
    let oom = if oom_kills > 0 { " (out of memory: the limit was reached)" } else { "" };
    match end {
        // The host's kernel does to a paene domain's program what a guest kernel's refusals spare a para domain's.
        End::Exited(KILLED) if kind == Kind::Paene && oom_kills > 0 => {
            ended("its program was killed: out of memory, the limit was reached".into())
        }
        End::Exited(status) => Outcome::Exited(exit_code(status)),
        End::Broken => ended("it broke the console protocol: an impossible ring index".into()),
        End::Panicked => {
            let registers = registers(map);
            let status = registers.crash_status.load(Ordering::Acquire);
            let pid = registers.crash_pid.load(Ordering::Acquire);
            if pid == 0 {
                ended(format!("guest kernel panic{oom}; its last words are above"))
            } else {
                ended(format!("its process {pid} was {}{oom}", describe(status)))
            }
        }
        End::Died if asleep => Outcome::Exited(0),
        End::Died => ended(format!("{died}{oom}")),
    }
}

//! Taking over domains whose process has died: the successor finds their records (`record.rs`) and goes on where that one
//! stopped.
//!
//! A domain's first process, which lives on, has all that the dead one had of it: the control area and the doorbell are
//! taken from its descriptors, whose numbers never change. Rings go on at the indices in the control area. Whoever
//! adopts must be the only one to speak for these domains: it holds the caller's lock, which died with the other.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doppel_abi_machine::{boot_flags, control, event, fd, state};
use doppel_freezer::FrozenImage;
use doppel_sys::child::Child;
use doppel_sys::shared::SharedMap;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use rustix::thread::futex;
use serde_json::Value;

use crate::freeze::frozen::Resume;
use crate::io::console::Console;
use crate::io::ring::{post, registers};
use crate::limits::cgroup::{Cgroup, Usage};
use crate::paging::{Paging, region};
use crate::registry::Registry;
use crate::registry::identity::Identity;
use crate::registry::record::{self, Birth, Record, Recorded};
use crate::run::key::Key;
use crate::run::outcome;
use crate::run::state::{Born, Core, Guests, HostFiles};
use crate::session::slots::Slots;
use crate::{Domain, Error, Kind, Outcome, Output, Resources, StartTimes, Stream};

/// How long what is left of a domain nobody wants may take to die.
const PATIENCE: Duration = Duration::from_secs(5);

/// A domain whose process has died.
#[derive(Debug)]
pub struct Orphan {
    pub(crate) path: PathBuf,
    pub(crate) record: Record,
}

impl Orphan {
    /// Those that are written down in `dir`; and what of it cannot be read.
    #[must_use]
    pub fn all(dir: &Path) -> (Vec<Self>, Vec<String>) {
        let (found, bad) = record::read_all(dir);
        (found.into_iter().map(|(path, record)| Self { path, record }).collect(), bad)
    }

    /// Whether it has a channel to a network service.
    #[must_use]
    pub fn has_network(&self) -> bool {
        self.record.birth.as_ref().is_some_and(|birth| birth.network)
    }

    /// The words of whoever ran it; none if it was not started for good.
    #[must_use]
    pub fn note(&self) -> Option<&Value> {
        self.record.note.as_ref().filter(|_| self.record.birth.is_some())
    }
}

/// What the successor knows of a domain.
#[derive(Debug)]
pub struct Adoption {
    /// Where its output goes from now on.
    pub output: Output,
    /// Its output of this stream was taken up to here, whatever the control area says.
    pub taken: Option<(Stream, u32)>,
    /// Its limits, as in [`crate::DomainConfig::spec`].
    pub resources: Resources,
    /// As [`crate::DomainConfig::account`].
    pub account: bool,
    /// Its memory, if somebody has held that ([`crate::hold`]): for one that has died meanwhile, and cannot be asked for it.
    pub held: Vec<OwnedFd>,
}

/// A domain that has ended while nobody ran it. Dropping it removes what is left.
#[derive(Debug)]
pub struct Gone {
    /// How, as far as that is known.
    pub outcome: Outcome,
    /// Its memory is in a frozen image.
    pub asleep: bool,
    /// What its control group has counted.
    pub usage: Usage,
    // Declared, and so dropped, in this order.
    _record: Recorded,
    _cgroup: Option<Cgroup>,
    _identity: Identity,
}

/// Whose ids and names the adopted domains have.
#[derive(Debug, Default)]
pub(crate) struct Predecessors(pub HashMap<String, Arc<Registry>>);

impl Predecessors {
    pub fn identity(&mut self, record: &Record) -> Result<Identity, Error> {
        let holder = match self.0.get(&record.holder) {
            Some(holder) => holder.clone(),
            None => {
                let holder = Registry::take_over(&record.holder)?;
                self.0.insert(record.holder.clone(), holder.clone());
                holder
            }
        };
        Ok(Identity::adopt(record.id, record.name.clone(), holder))
    }
}

/// A domain's channels to services, each with the service's doorbell.
#[derive(Debug, Default)]
pub struct Channels {
    /// To a network service, if it has one.
    pub network: Option<(OwnedFd, OwnedFd)>,
    /// To a storage service, if it has one.
    pub storage: Option<(OwnedFd, OwnedFd)>,
}

/// What became of a domain that was to be adopted.
#[derive(Debug)]
pub enum Adopted {
    /// It goes on, with these channels.
    Lives(Key, Channels),
    /// It has ended.
    Gone(Box<Gone>),
}

/// What a dead process has left of a domain.
pub(crate) struct Leftover {
    pub record: Record,
    pub birth: Birth,
    pub recorded: Recorded,
    pub cgroup: Option<Cgroup>,
    pub identity: Identity,
}

impl Leftover {
    /// The end of one that does not live any more.
    pub fn gone(self, adoption: Adoption, why: &str) -> Gone {
        let Self { record, birth, recorded, cgroup, identity } = self;
        let asleep = record.asleep;
        let usage = cgroup.as_ref().map(|group| group.usage()).unwrap_or_default();
        let oom_kills = usage.oom_kills.unwrap_or(0);
        let Adoption { output, taken, held, .. } = adoption;
        let outcome = match outcome::words(&record, &birth, &held, taken, output) {
            Some((end, map)) => outcome::outcome(end, birth.kind, &map, oom_kills, asleep, why),
            None if asleep => Outcome::Exited(0),
            None => {
                let oom = if oom_kills > 0 { " (out of memory: the limit was reached)" } else { "" };
                Outcome::Ended { reason: format!("{why}{oom}"), out_of_memory: oom_kills > 0 }
            }
        };
        Gone { outcome, asleep, usage, _record: recorded, _cgroup: cgroup, _identity: identity }
    }

    /// One that lives, as ours; and its channels to services.
    pub fn go_on(
        self,
        process: OwnedFd,
        memory: Memory,
        taken: Option<(Stream, u32)>,
        limit: Option<u64>,
    ) -> (Domain, Channels) {
        let Self { record, birth, recorded, cgroup, identity } = self;
        let Memory { map, doorbell, resume, channels } = memory;
        let console = Console::adopt(&map, birth.boot_flags, record.served, taken);
        let sessions = Slots::adopt(&map);
        // A region that cannot be opened is as good as none.
        let swap = region::of(birth.process.pid()).ok().flatten();
        let target = registers(&map).memory_target.load(Ordering::Relaxed);
        let core = Arc::new(Core {
            child: Child { pid: birth.process.pid(), pidfd: process },
            map,
            label: Mutex::new(identity.label()),
            id: identity.id.into(),
            born: Born {
                kind: birth.kind,
                resume,
                kernel: birth.kernel,
                image: birth.image,
                generation: birth.generation,
                vcpus: birth.vcpus,
                memory_limit: limit.unwrap_or(0).into(),
                boot_flags: birth.boot_flags,
                owner: birth.owner,
                freeze_to: birth.freeze_to,
                freeze_stop: birth.freeze_stop,
                storage: channels.storage.is_some(),
            },
            files: Mutex::new(HostFiles {
                volumes: birth.volumes,
                held: birth.held,
                // An older program did not write down where.
                layer: birth.layer_dir.or_else(|| birth.layer.then(PathBuf::new)),
                disks: None,
            }),
            hostname: Mutex::new(record.hostname),
            parents: Mutex::new(record.parents),
            share: Mutex::new(None),
            paging: Mutex::new(swap.map(|_| Paging::new(Some(target)))),
            stops: Mutex::new(()),
            asleep: AtomicBool::new(record.asleep),
            paused: AtomicBool::new(record.paused),
            killed: AtomicBool::new(false),
            sessions: Mutex::new(sessions),
            guests: Guests::default(),
            group: cgroup.as_ref().map(Cgroup::view),
            record: Some(recorded),
        });
        // Why it cannot be asked from outside was said when it was started.
        let _ = identity.open_door(&core);
        let domain = Domain {
            core,
            reaped: None,
            doorbell,
            cgroup,
            identity,
            console,
            signals: None,
            tty: birth.boot_flags & boot_flags::TTY != 0,
            times: StartTimes::default(),
        };
        (domain, channels)
    }
}

/// What `pidfd_getfd(2)` says of a process that has given its descriptors up.
const ESRCH: i32 = 3;

/// What is found again of a domain's memory.
pub(crate) struct Memory {
    map: SharedMap,
    doorbell: OwnedFd,
    resume: Option<Resume>,
    channels: Channels,
}

/// The domain's first process and its memory, or why it is not to be adopted; then it is dead.
pub(crate) fn find(record: &Record, birth: &Birth) -> Result<(OwnedFd, Memory), String> {
    let ended = || "its first process ended while it had no keeper".to_owned();
    let process = match birth.process.open() {
        Ok(Some(process)) => process,
        Ok(None) => return Err(ended()),
        Err(error) => return Err(format!("its first process cannot be opened: {error}")),
    };
    match memory(&process, birth) {
        Ok(memory) => {
            settle_stop(record, birth, &memory.map);
            Ok((process, memory))
        }
        // Nobody can speak for it.
        Err(why) => {
            // One that is dying has no descriptors any more before it is seen to have ended.
            let dying = matches!(&why, Error::Host { error, .. } if error.raw_os_error() == Some(ESRCH));
            Err(if end(&process) || dying { ended() } else { format!("it could not be taken over: {why}") })
        }
    }
}

fn memory(process: &OwnedFd, birth: &Birth) -> Result<Memory, Error> {
    let take = |number| {
        doppel_service::take(process.as_fd(), number).map_err(Error::host("take a descriptor of the domain"))
    };
    let control = match birth.kind {
        Kind::Para => take(fd::CONTROL)?,
        Kind::Paene => take(fd::ATTENDANT_CONTROL)?,
    };
    // It is what it was made as: neither a domain nor an attendant can put another there, or make it shorter.
    doppel_service::check_memory(&control, control::SIZE).map_err(Error::host("use its control area"))?;
    let doorbell = take(fd::DOORBELL)?;
    let both = |there: bool, memory, doorbell| {
        there.then(|| Ok::<_, Error>((take(memory)?, take(doorbell)?))).transpose()
    };
    let served = match birth.kind {
        Kind::Para => birth.layer || !birth.volumes.is_empty(),
        Kind::Paene => birth.disks,
    };
    let channels = Channels {
        network: both(birth.network, fd::NETWORK, fd::NETWORK_DOORBELL)?,
        storage: both(served, fd::STORAGE, fd::STORAGE_DOORBELL)?,
    };
    let network = channels.network.as_ref().map(|(channel, _)| channel.as_fd());
    let map = outcome::map(control.as_fd(), network)?;
    let resume = birth.origin.as_ref().map(|origin| {
        // The domain has it open, and so locked.
        let image = Arc::new(FrozenImage::open_unchecked(&origin.path)?);
        Ok::<_, Error>(Resume { image, index: origin.index, wake: origin.wake, hold: false })
    });
    Ok(Memory { map, doorbell, resume: resume.transpose()?, channels })
}

/// Whoever stopped the domain for a moment is gone, and what it needed of it.
fn settle_stop(record: &Record, birth: &Birth, map: &SharedMap) {
    if !record.stopping || birth.kind == Kind::Paene {
        return;
    }
    let registers = registers(map);
    registers.shadows_end.fetch_add(1, Ordering::SeqCst);
    // The only possible failure is an unmapped word, and ours is mapped.
    let _ = futex::wake(&registers.shadows_end, futex::Flags::empty(), i32::MAX as u32);
    if registers.state.load(Ordering::Acquire) == state::FROZEN && !record.paused {
        post(map, event::THAW);
    }
}

/// Kills a process and waits for its end; true if it had ended before.
pub(crate) fn end(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    // A zombie takes signals, too.
    let ended = rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(1)
        || rustix::process::pidfd_send_signal(process, Signal::KILL).is_err();
    let patience = Timespec::try_from(PATIENCE).ok();
    // One that takes longer dies when it can.
    let _ = rustix::event::poll(&mut fds, patience.as_ref());
    ended
}

/// First processes of the domain with this identity, by what they are called.
pub(crate) fn processes_of(identity: &Identity) -> Vec<i32> {
    let para = format!("doppel:{}", identity.label());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|b| *b == 0);
        match words.next() {
            Some(first) if first == para.as_bytes() => true,
            Some(first) if first == doppel_abi_machine::ATTENDANT.as_bytes() => {
                words.next() == Some(identity.label().as_bytes())
            }
            _ => false,
        }
    })
    .collect()
}

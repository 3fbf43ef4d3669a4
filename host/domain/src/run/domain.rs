//! A domain: looked after, killed, given up. `start.rs` starts it, `foreground.rs` waits for it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use doppel_abi_machine::{CallCounts, control, event};
use doppel_disks::InUse;
use doppel_spec::DebugLevel;
use doppel_sys::shared;
use doppel_sys::signal::SignalFd;
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::freeze::frozen::FreezeReport;
use crate::io::console::{Console, End, Step};
use crate::io::ring::{post, registers};
use crate::launch::config::completed;
use crate::launch::control::boot_args;
use crate::limits::cgroup::{Cgroup, Usage};
use crate::limits::group_limits::limits;
use crate::lock::lock;
use crate::paging::region;
use crate::registry::identity::Identity;
use crate::registry::record::Recorded;
use crate::run::exit::Outcome;
use crate::run::state::Core;
use crate::session::slots::ring_bells;
use crate::{Captured, DomainConfig, DomainStats, Error, Kind, Output, Resources, UNBOUNDED};

/// How long the parts of a domain's start took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartTimes {
    /// Waiting for its turn, in a fleet.
    pub queue: Duration,
    /// Its memory: made, and filled with what it starts from.
    pub memory: Duration,
    /// Its control group.
    pub group: Duration,
    /// Its first process, up to the guest kernel's first instruction.
    pub process: Duration,
}

/// A running domain. Dropping it kills it and removes all that belongs to it.
#[derive(Debug)]
pub struct Domain {
    // Declared, and so dropped, in this order: processes (in `Drop`), then memory, group, identity.
    pub(crate) core: Arc<Core>,
    pub(crate) reaped: Option<rustix::process::WaitIdStatus>,
    pub(crate) doorbell: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) identity: Identity,
    pub(crate) console: Console,
    /// Signals for the program, of a domain in the foreground.
    pub(crate) signals: Option<SignalFd>,
    pub(crate) tty: bool,
    pub(crate) times: StartTimes,
}

/// Ends a domain.
#[derive(Debug)]
pub struct Killer(OwnedFd);

impl Killer {
    /// Kills every process of the domain; one that has ended is no error.
    pub fn kill(&self) {
        // Only a domain that is gone cannot be killed.
        let _ = rustix::process::pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Domain {
    /// A descriptor of its first process.
    ///
    /// # Errors
    /// What the host says.
    pub fn process(&self) -> std::io::Result<OwnedFd> {
        self.core.child.pidfd.try_clone()
    }

    /// Lets what is held go with the command, environment and so on of `config`, and its host name (none: the domain's name).
    pub(crate) fn go(&mut self, config: &DomainConfig) -> Result<(), Error> {
        let config = completed(config, self.identity.label());
        let bytes = boot_args(&config, 0)?;
        *lock(&self.core.hostname) = config.spec.hostname.unwrap_or_default();
        let map = &self.core.map;
        map.write(shared::offset(control::BOOT_ARGS), &bytes);
        let len = u32::try_from(bytes.len()).expect("bounded by BOOT_ARGS_MAX");
        registers(map).late_args_len.store(len, Ordering::Release);
        post(map, event::GO);
        Ok(())
    }

    /// Whether a domain that boots and was asked to hold can become this one: what it was made with is the same, and the
    /// rest can be changed.
    pub(crate) fn suits(&self, wanted: &DomainConfig) -> bool {
        let born = &self.core.born;
        born.resume.is_none()
            && !(wanted.spec.tty || wanted.spec.no_patch)
            && born.image == wanted.image
            && born.vcpus == wanted.vcpus()
            && self.can_become(wanted)
    }

    /// The same of a clone that was asked to hold, and this clone of the frozen image.
    pub(crate) fn suits_clone(&self, image: &Path, index: u32, wanted: &DomainConfig) -> bool {
        self.core.born.resume.as_ref().is_some_and(|from| {
            from.image.path() == image && from.index == index && self.can_become(&from.left_of(wanted))
        })
    }

    fn can_become(&self, wanted: &DomainConfig) -> bool {
        let (born, spec) = (&self.core.born, &wanted.spec);
        let swap = region::size(spec.kind, &spec.resources) > 0;
        !(swap || spec.stdin || wanted.trace)
            && spec.events == DebugLevel::Off
            && (born.kind, spec.kind) == (Kind::Para, Kind::Para)
            && self.core.record.is_some() == wanted.keep.is_some()
            && wanted.freeze_to.is_none()
            && wanted.network.is_none()
            && (born.storage || !wanted.has_host_files())
            // It has been told how much memory there is.
            && spec.resources.memory_bytes != Some(UNBOUNDED)
    }

    /// Lets a domain go that was held, as the one that is `wanted`.
    pub(crate) fn become_one(&mut self, wanted: &DomainConfig) -> Result<(), Error> {
        let wanted = &match &self.core.born.resume {
            None => {
                wanted.check()?;
                wanted.clone()
            }
            Some(from) => {
                let wanted = from.left_of(wanted);
                wanted.check_limits()?;
                from.check_layer(wanted.layer.as_deref())?;
                from.check_volumes(wanted.sources.len(), wanted.spec.files.disks.len())?;
                wanted
            }
        };
        self.identity.take_name(wanted.spec.name.as_deref(), &self.core)?;
        let hostname = completed(wanted, self.identity.label()).spec.hostname.unwrap_or_default();
        let note = wanted.keep.as_ref().and_then(|keep| keep.note.clone());
        let files = wanted.host_files();
        *lock(&self.core.files) = files.clone();
        self.core.note(|r| {
            r.name.clone_from(&wanted.spec.name);
            r.hostname = hostname;
            r.note = note;
            if let Some(birth) = &mut r.birth {
                (birth.volumes, birth.layer) = (files.volumes, files.layer.is_some());
                (birth.layer_dir, birth.held) = (files.layer, files.held);
            }
        })?;
        // The target is set once it runs.
        let limits =
            Resources { memory_target_bytes: None, memory_swap_bytes: None, ..wanted.spec.resources.clone() };
        if limits != Resources::default() {
            self.core.limit(&limits)?;
            self.limited(&limits);
        }
        if limits.memory_bytes.is_some() {
            self.core.set_memory(limits.memory_bytes, None)?;
        }
        self.go(wanted)
    }

    /// Its disks, of one that was adopted.
    pub fn set_disks(&self, disks: Weak<InUse>) {
        lock(&self.core.files).disks = Some(disks);
    }

    /// Sends its output elsewhere from now on; what [`Output::Kept`] kept so far stays in [`Self::captured`].
    pub fn set_output(&mut self, output: Output) {
        self.console.set_output(output);
    }

    /// What was kept of its output.
    #[must_use]
    pub fn captured(&self) -> &Captured {
        self.console.captured()
    }

    /// When the first byte of its standard output was seen.
    #[must_use]
    pub fn first_output(&self) -> Option<Instant> {
        self.console.first_output()
    }

    /// Bytes it has printed so far.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.console.bytes()
    }

    /// Moves output and sees what the domain says.
    pub(crate) fn step(&mut self) -> Step {
        ring_bells(&self.core.sessions, &self.core.map);
        self.console.step(&self.core.map)
    }

    /// Sends the program (guest pid 1) a signal; numbers that are none are ignored.
    pub fn signal(&self, signal: i32) {
        let bit = u32::try_from(signal - 1).ok().and_then(|n| 1u64.checked_shl(n));
        if let Some(bit) = bit {
            registers(&self.core.map).signals.fetch_or(bit, Ordering::SeqCst);
            post(&self.core.map, event::SIGNAL);
        }
    }

    /// Tells the program that its terminal has this size.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = u32::from(rows) << 16 | u32::from(columns);
        registers(&self.core.map).winsize.store(size, Ordering::Release);
        post(&self.core.map, event::WINCH);
    }

    /// Stops the domain, writes its memory to the frozen image `to`, and lets it go on, or ends it if `stop`.
    ///
    /// # Errors
    /// If it cannot be stopped or written; it runs on unharmed then, and no file is left.
    pub fn freeze(&mut self, to: &Path, stop: bool) -> Result<FreezeReport, Error> {
        self.core.freeze(to, stop, false)
    }

    /// Whether it stands still until it is let go on.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.core.paused.load(Ordering::SeqCst)
    }

    /// Changes the caller's words in what is written down of it ([`crate::Keep`]).
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn set_note(&self, note: serde_json::Value) -> Result<(), Error> {
        self.core.note(|r| r.note = Some(note))
    }

    /// How much of its output has been taken, in bytes modulo 2^32.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.console.taken()
    }

    /// Whether the domain has ended because its memory is in a frozen image.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.core.asleep.load(Ordering::SeqCst)
    }

    /// Something that ends the domain from another thread.
    ///
    /// # Errors
    /// What the host says.
    pub fn killer(&self) -> Result<Killer, Error> {
        self.core.child.pidfd.try_clone().map(Killer).map_err(Error::host("watch the domain's first process"))
    }

    /// What its programs run on.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.core.born.kind
    }

    /// The domain's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.core.label()
    }

    /// The domain's id, unique among those that run.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.identity.id
    }

    /// How long the parts of its start took.
    #[must_use]
    pub fn start_times(&self) -> StartTimes {
        self.times
    }

    /// Host process id of its first process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.core.child.pid
    }

    /// The limits of its control group were changed.
    pub(crate) fn limited(&self, to: &Resources) {
        let born = &self.core.born;
        if let Some(group) = &self.cgroup {
            group.limited(&limits(born.kind, born.vcpus, to));
        }
        if let Some(most) = to.pids {
            registers(&self.core.map).task_limit.store(most, Ordering::Relaxed);
        }
    }

    /// What its control group has counted.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.cgroup.as_ref().map(|group| group.usage()).unwrap_or_default()
    }

    /// System calls its guest kernel says it has served.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let counts: &CallCounts = self.core.map.get(shared::offset(control::CALLS));
        counts.counters.iter().fold(0, |sum, counter| sum.wrapping_add(counter.0.load(Ordering::Relaxed)))
    }

    /// Bytes that its swap region takes on the disk; none if it has no region.
    #[must_use]
    pub fn swapped(&self) -> Option<u64> {
        lock(&self.core.paging).as_ref()?;
        region::held(self.core.child.pid).ok()
    }

    /// Its memory as it is now.
    ///
    /// # Errors
    /// If it is gone.
    pub fn stats(&self) -> Result<DomainStats, Error> {
        self.core.stats()
    }

    /// Kills every process of the domain.
    ///
    /// # Errors
    /// What the host says; a domain that is dead already is no error.
    pub fn kill(&self) -> Result<(), Error> {
        self.core.kill()
    }

    /// Waits for the first process, whose end the host kernel delays until all others are gone.
    pub(crate) fn reap(&mut self) -> Result<(), Error> {
        while self.reaped.is_none() {
            // Whoever ignores SIGCHLD (our caller may have) gets no status, only the news.
            match rustix::process::waitid(WaitId::PidFd(self.core.child.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                Ok(status) => self.reaped = status,
                Err(rustix::io::Errno::INTR) => {}
                // Another's child, or its status went to nobody: the end is all there is to wait for.
                Err(rustix::io::Errno::CHILD) => return self.core.wait_dead(),
                Err(error) => return Err(Error::os("wait for the domain's end")(error)),
            }
        }
        Ok(())
    }

    /// How it ended; of one that died, only when it is reaped.
    pub(crate) fn outcome(&self, end: End) -> Outcome {
        let died = self.reaped.as_ref().map(|s| (s.terminating_signal(), s.exit_status()));
        let died = match died {
            Some((Some(signal), _)) => format!("its first process was killed by signal {signal}"),
            Some((None, Some(code))) => {
                format!("its guest kernel exited with {code} before the program ended")
            }
            _ => "its first process ended".into(),
        };
        let oom_kills = self.usage().oom_kills.unwrap_or(0);
        let Core { map, born, .. } = &*self.core;
        crate::run::outcome::outcome(end, born.kind, map, oom_kills, self.is_asleep(), &died)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Both fail only if the domain is dead and reaped, which is what is wanted.
        let _ = self.kill();
        let _ = self.reap();
        ring_bells(&self.core.sessions, &self.core.map);
        self.core.see_off();
        // Before its id is another's.
        let _ = self.core.record.as_ref().map(Recorded::remove);
    }
}

//! A domain: started, waited for, killed.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use doppel_confine::limits::{FIRST_UID, LIMITS, NAMESPACES, OOM_SCORE_ADJ, USER_NAMESPACE};
use doppel_sys::child::{self, Child, ChildPlan};
use doppel_sys::signal::SignalFd;
use rustix::event::EventfdFlags;
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::cgroup::{self, Cgroup, Usage};
use crate::console::{Console, End, FORWARDED, WINCH};
use crate::control::{Facts, Memory, open_image};
use crate::identity::Identity;
use crate::ring::registers;
use crate::terminal::{RawMode, winsize};
use crate::{DomainConfig, Error, Kernel};

/// How a domain ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended: its exit code, or 128 + the signal that ended it.
    Exited(u8),
    /// The domain ended without the program ending.
    Ended {
        /// Why, in words.
        reason: String,
        /// The host killed it for want of memory.
        out_of_memory: bool,
    },
}

/// A running domain. Dropping it kills it and removes all that belongs to it.
#[derive(Debug)]
pub struct Domain {
    // Declared, and so dropped, in this order: processes (in `Drop`), then memory, group, identity.
    child: Child,
    reaped: Option<rustix::process::WaitIdStatus>,
    doorbell: OwnedFd,
    memory: Memory,
    cgroup: Option<Cgroup>,
    identity: Identity,
    console: Console,
    signals: SignalFd,
    tty: bool,
}

impl Domain {
    /// Builds a domain and starts its guest kernel.
    ///
    /// The domain dies with the calling *thread*, which must also be the one that waits for it. `warn`
    /// is told what could not be enforced although nobody asked for it.
    ///
    /// # Errors
    /// What was wrong; nothing is left behind.
    pub fn start(config: &DomainConfig, warn: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        config.check()?;
        let kernel = match &config.kernel {
            Some(path) => Kernel::from_file(path)?,
            None => Kernel::embedded()?,
        };
        let (image, image_size) = open_image(&config.image)?;
        let identity = Identity::claim(config.name.as_deref())?;
        let config = &completed(config, &identity);
        let facts = Facts {
            domain_id: identity.id.into(),
            vcpus: config.vcpus(),
            image_size,
            winsize: winsize(std::io::stdin())
                .or_else(|| winsize(std::io::stdout()))
                .unwrap_or(24 << 16 | 80),
        };
        let memory = Memory::new(config, &kernel, &facts)?;
        let console = Console::new(&memory.map, config.stdin, config.tty);
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::os("make the doorbell"))?;
        let executable = kernel.executable(config.store.as_deref())?;
        let cgroup = make_cgroup(config, &identity, warn)?;
        let birth = cgroup
            .as_ref()
            .map_or_else(|| Ok(cgroup::Birth::default()), Cgroup::birth)
            .map_err(Error::host("open the domain's control group"))?;

        let root = rustix::process::geteuid().is_root();
        let (uid, gid) = if root {
            (FIRST_UID + identity.id, FIRST_UID + identity.id)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let arguments = [CString::new(format!("doppel:{}", identity.label())).unwrap_or_default()];
        let limits: Vec<(u32, u64)> = LIMITS.iter().map(|l| (l.resource, l.value)).collect();
        let oom_score_adj = CString::new(OOM_SCORE_ADJ.to_string()).unwrap_or_default();
        // In the order of `abi/machine`'s `fd`.
        let descriptors = [
            memory.control.as_fd(),
            memory.arena.as_fd(),
            memory.pagefile.as_fd(),
            image.as_fd(),
            doorbell.as_fd(),
        ];
        // Blocked before the fork, so that none is lost between.
        let signals =
            SignalFd::new(&[&FORWARDED[..], &[WINCH]].concat()).map_err(Error::host("watch signals"))?;
        let child = child::spawn(&ChildPlan {
            executable: executable.as_fd(),
            arguments: &arguments,
            descriptors: &descriptors,
            namespaces: NAMESPACES | if root { 0 } else { USER_NAMESPACE },
            user_namespace: !root,
            uid,
            gid,
            cgroup: birth.cgroup_dir(),
            cgroup_tasks: &birth.tasks(),
            limits: &limits,
            oom_score_adj: &oom_score_adj,
        })
        .map_err(Error::Spawn)?;
        Ok(Self {
            child,
            reaped: None,
            doorbell,
            memory,
            cgroup,
            identity,
            console,
            signals,
            tty: config.tty,
        })
    }

    /// The domain's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.identity.label()
    }

    /// Host process id of its first process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.pid
    }

    /// What its control group has counted.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.cgroup.as_ref().map(Cgroup::usage).unwrap_or_default()
    }

    /// Moves console bytes and signals until the domain ends.
    ///
    /// # Errors
    /// If the host fails us; the domain may still run then.
    pub fn wait(&mut self) -> Result<Outcome, Error> {
        let raw = if self.tty {
            RawMode::enter().map_err(Error::host("put the terminal into raw mode"))?
        } else {
            None
        };
        let end = self.console.run(
            &self.memory.map,
            &self.doorbell,
            self.child.pidfd.as_fd(),
            &self.signals,
            self.tty,
        );
        drop(raw);
        let end = end?;
        if !matches!(end, End::Died) {
            self.kill()?;
        }
        self.reap()?;
        Ok(self.outcome(&end))
    }

    /// Kills every process of the domain.
    ///
    /// # Errors
    /// What the host says; a domain that is dead already is no error.
    pub fn kill(&self) -> Result<(), Error> {
        match rustix::process::pidfd_send_signal(&self.child.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(Error::os("kill the domain")(error)),
        }
    }

    /// Waits for the first process, whose end the host kernel delays until all others are gone.
    fn reap(&mut self) -> Result<(), Error> {
        while self.reaped.is_none() {
            // Whoever ignores SIGCHLD (our caller may have) gets no status, only the news.
            match rustix::process::waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(status) => self.reaped = status,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(error) => return Err(Error::os("wait for the domain's end")(error)),
            }
        }
        Ok(())
    }

    fn outcome(&self, end: &End) -> Outcome {
        let oom_kills = self.usage().oom_kills.unwrap_or(0);
        let ended = |reason: String| Outcome::Ended { reason, out_of_memory: oom_kills > 0 };
        let oom = if oom_kills > 0 { " (out of memory: the limit was reached)" } else { "" };
        match end {
            End::Exited(status) => Outcome::Exited(exit_code(*status)),
            End::Broken => ended("it broke the console protocol: an impossible ring index".into()),
            End::Panicked => {
                let registers = registers(&self.memory.map);
                let status = registers.crash_status.load(Ordering::Acquire);
                let pid = registers.crash_pid.load(Ordering::Acquire);
                if pid == 0 {
                    ended(format!("guest kernel panic{oom}; its last words are above"))
                } else {
                    ended(format!("its process {pid} was {}{oom}", describe(status)))
                }
            }
            End::Died => ended(match self.reaped.as_ref() {
                Some(status) => match (status.terminating_signal(), status.exit_status()) {
                    (Some(signal), _) => format!("its first process was killed by signal {signal}{oom}"),
                    (None, Some(code)) => {
                        format!("its guest kernel exited with {code} before the program ended{oom}")
                    }
                    (None, None) => format!("its first process ended{oom}"),
                },
                None => format!("its first process ended{oom}"),
            }),
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Both fail only if the domain is dead and reaped, which is what is wanted.
        let _ = self.kill();
        let _ = self.reap();
    }
}

/// Fills in what follows from the identity: the host name and its environment variable.
fn completed(config: &DomainConfig, identity: &Identity) -> DomainConfig {
    let mut config = config.clone();
    if config.hostname.is_empty() {
        config.hostname = identity.label().into();
    }
    if !config.env.iter().any(|e| e.as_encoded_bytes().starts_with(b"HOSTNAME=")) {
        let mut variable = OsString::from("HOSTNAME=");
        variable.push(&config.hostname);
        config.env.push(variable);
    }
    config
}

fn make_cgroup(
    config: &DomainConfig,
    identity: &Identity,
    warn: &mut dyn FnMut(&str),
) -> Result<Option<Cgroup>, Error> {
    let limits = cgroup::Limits { memory: config.memory.map(host_limit), cpus: config.cpus };
    match Cgroup::create(&identity.cgroup(), limits) {
        Ok(group) => Ok(Some(group)),
        Err(error) if config.memory.is_some() || config.cpus.is_some() => {
            Err(Error::host("make the control group that --memory and --cpus need")(error))
        }
        Err(error) => {
            warn(&format!("running without a control group, so without limits on processes: {error}"));
            Ok(None)
        }
    }
}

/// The control group's limit for a guest limit: the guest kernel's own memory (page tables, stacks, its
/// heap) comes on top, so that programs get ENOMEM from it before the host kills anything.
fn host_limit(guest: u64) -> u64 {
    guest.saturating_add(guest / 8).saturating_add(64 << 20)
}

/// A shell's view of a wait status.
fn exit_code(status: i32) -> u8 {
    let [low, high, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => high,
        signal => 128 + signal,
    }
}

/// A wait status in words.
fn describe(status: i32) -> String {
    let [low, high, ..] = status.to_le_bytes();
    match low & 0x7f {
        0 => format!("ended with exit code {high}"),
        signal => format!("killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(127 << 8), 127);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(11 | 0x80), 139);
        assert_eq!(describe(9), "killed by signal 9");
    }
}

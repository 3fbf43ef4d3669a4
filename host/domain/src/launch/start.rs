//! Starting a domain: memory, identity, control group, then its first process.

use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use doppel_sys::signal::SignalFd;
use rustix::event::EventfdFlags;

use crate::Keep;
use crate::freeze::frozen::{Resume, image_digest};
use crate::freeze::share::Member;
use crate::io::console::Console;
use crate::io::terminal::winsize;
use crate::launch::config::completed;
use crate::launch::control::{Facts, Memory, open_image};
use crate::launch::first_process::FirstProcess;
use crate::launch::kernel::First;
use crate::limits::cgroup::{Cgroup, Limits};
use crate::limits::group_limits::limits;
use crate::lock::lock;
use crate::paging::{Paging, region};
use crate::registry::identity::Identity;
use crate::registry::record::{self, Birth, Origin, Recorded};
use crate::run::foreground::{FORWARDED, WINCH};
use crate::run::state::{Born, Core, Guests};
use crate::{Domain, DomainConfig, Error, NO_PIDS_LIMIT, Output, Resources, StartTimes, UNBOUNDED};

impl Domain {
    /// Builds a domain and starts its guest kernel.
    ///
    /// The domain dies with the calling *thread*, which must live as long, unless it `outlives_parent`
    /// ([`crate::Fleet::start`] does not have this catch). `warn` is told what could not be enforced although nobody asked for it.
    ///
    /// # Errors
    /// What was wrong; nothing is left behind.
    pub fn start(config: &DomainConfig, warn: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        config.check()?;
        Self::launch(config, None, warn)
    }

    /// Builds a domain that goes on from a frozen image, as a clone with a new identity or, if `resume` says so,
    /// as the domain it was. Its image, terminal, files and the use of patched system calls are as they were frozen, whatever
    /// `clone` says.
    ///
    /// # Errors
    /// What was wrong, for example that the image does not fit this host; nothing is left behind.
    pub fn resume(resume: Resume, clone: &DomainConfig, warn: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let config = resume.left_of(clone);
        config.check_limits()?;
        Self::launch(&config, Some(resume), warn)
    }

    fn launch(
        config: &DomainConfig,
        resume: Option<Resume>,
        warn: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let (begun, mut times) = (Instant::now(), StartTimes::default());
        let first = First::of(config)?;
        let (image, image_size) = open_image(&config.image)?;
        if let Some(resume) = &resume {
            resume.image.check_fit(&first.digest, &image_digest(&config.image)?)?;
            // One that is held is given its layer when it is let go.
            if !config.hold {
                resume.check_layer(config.layer.as_deref())?;
            }
            resume.check_volumes(config.sources.len(), config.spec.files.disks.len())?;
        }
        let identity = Identity::claim(config.spec.name.as_deref())?;
        let record = config.keep.as_ref().map(|keep| recorded(keep, &identity)).transpose()?;
        let config = &completed(config, identity.label());
        let facts = facts(config, &identity, image_size, resume.as_ref());
        let memory = Memory::new(config, &first.filter, &facts)?;
        times.memory = begun.elapsed();
        let output = if config.capture { Output::Kept } else { Output::Ours };
        let console = Console::new(&memory.map, config.spec.stdin, config.spec.tty, output);
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::os("make the doorbell"))?;
        let cgroup = make_cgroup(config, &identity, warn)?;
        times.group = begun.elapsed() - times.memory;
        // Blocked before the fork, so that none is lost between.
        let signals = if config.capture { None } else { Some(watch_signals()?) };
        let swap = region::make(config)?;
        let process = FirstProcess {
            config,
            swap: swap.as_ref(),
            executable: &first,
            memory: &memory,
            image: &image,
            doorbell: &doorbell,
            resume: resume.as_ref(),
            share: config.share.as_deref(),
            identity: &identity,
            cgroup: cgroup.as_ref(),
            tied: !config.outlives_parent && record.is_none(),
        };
        let child = process.spawn()?;
        times.process = begun.elapsed() - times.memory - times.group;
        let (vcpus, tty) = (facts.vcpus, config.spec.tty);
        let hostname = config.spec.hostname.clone().unwrap_or_default();
        let born = born(config, first.digest, vcpus, resume);
        // The filter and the arguments are the domain's now; a process with many domains would keep them for nothing. It
        // is no matter if it does.
        let _ = memory.map.let_go();
        let core = Arc::new(Core {
            share: Mutex::new(config.share.clone().map(|s| Member::new(s, child.pid))),
            child,
            map: memory.map,
            label: Mutex::new(identity.label()),
            id: identity.id.into(),
            born,
            hostname: Mutex::new(hostname),
            files: Mutex::new(config.host_files()),
            parents: Mutex::default(),
            paging: Mutex::new(swap.map(|_| Paging::new(config.spec.resources.memory_target_bytes))),
            stops: Mutex::new(()),
            asleep: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            sessions: Mutex::default(),
            guests: Guests::default(),
            group: cgroup.as_ref().map(Cgroup::view),
            record,
        });
        // One that is held is nobody's yet.
        if !config.hold
            && let Err(why) = identity.open_door(&core)
        {
            warn(&format!("this domain cannot be frozen from outside: {why}"));
        }
        let domain = Self { core, reaped: None, doorbell, cgroup, identity, console, signals, tty, times };
        // Dropped, and so ended, if that fails: it would be nobody's when this process dies.
        domain.record_birth(config.network.is_some())?;
        Ok(domain)
    }
}

/// What the guest kernel is told beside the configuration.
fn facts<'a>(
    config: &DomainConfig,
    identity: &Identity,
    image_size: u64,
    resume: Option<&'a Resume>,
) -> Facts<'a> {
    Facts {
        domain_id: identity.id.into(),
        // The kernel of a clone was made for so many.
        vcpus: resume.map_or_else(|| config.vcpus(), |r| r.image.header().vcpus),
        image_size,
        winsize: winsize(std::io::stdin()).or_else(|| winsize(std::io::stdout())).unwrap_or(24 << 16 | 80),
        resume,
    }
}

/// The signals of a domain in the foreground, which are ours.
fn watch_signals() -> Result<SignalFd, Error> {
    let all = [&FORWARDED[..], &[WINCH]].concat();
    SignalFd::new(&all).map_err(Error::host("watch signals"))
}

fn born(config: &DomainConfig, kernel: [u8; 32], vcpus: u32, resume: Option<Resume>) -> Born {
    Born {
        kind: config.spec.kind,
        kernel,
        image: config.image.clone(),
        generation: resume.as_ref().map_or(0, Resume::generation),
        vcpus,
        memory_limit: config.spec.resources.memory_bytes.unwrap_or(0).into(),
        boot_flags: crate::launch::control::flags(config),
        owner: rustix::process::geteuid().as_raw(),
        freeze_to: config.freeze_to.clone(),
        freeze_stop: config.freeze_stop,
        storage: config.storage.is_some(),
        resume,
    }
}

impl Domain {
    /// Writes down what its successor needs, if there is to be one.
    fn record_birth(&self, network: bool) -> Result<(), Error> {
        let Some(record) = &self.core.record else { return Ok(()) };
        let (born, files) = (&self.core.born, lock(&self.core.files).clone());
        let process =
            record::Process::of(self.core.child.pid).map_err(Error::host("look at the domain's process"))?;
        let birth = Birth {
            process,
            kind: born.kind,
            kernel: born.kernel,
            image: born.image.clone(),
            generation: born.generation,
            vcpus: born.vcpus,
            boot_flags: born.boot_flags,
            owner: born.owner,
            freeze_to: born.freeze_to.clone(),
            freeze_stop: born.freeze_stop,
            origin: born.resume.as_ref().map(|r| Origin {
                path: r.image.path().to_owned(),
                index: r.index,
                wake: r.wake,
            }),
            network,
            volumes: files.volumes,
            held: files.held,
            layer: files.layer.is_some(),
            layer_dir: files.layer,
            disks: files.disks.is_some(),
            group: self.cgroup.as_ref().and_then(|group| group.name()),
        };
        let hostname = lock(&self.core.hostname).clone();
        record.change(|r| {
            r.hostname = hostname;
            r.birth = Some(birth);
        })
    }
}

/// Writes down that a domain is about to be started.
fn recorded(keep: &Keep, identity: &Identity) -> Result<Recorded, Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&keep.dir);
    made.map_err(Error::host(format!("make {}", keep.dir.display())))?;
    identity.kept_in(&keep.dir)?;
    Recorded::begin(keep, identity.id, identity.name(), identity.holder())
}

fn make_cgroup(
    config: &DomainConfig,
    identity: &Identity,
    warn: &mut dyn FnMut(&str),
) -> Result<Option<Cgroup>, Error> {
    let asked = &config.spec.resources;
    let mut limits = Limits { account: config.account, ..limits(config.spec.kind, config.vcpus(), asked) };
    if asked.memory_bytes.is_none() {
        limits.by_default = crate::launch::defaults::bound_of(None);
    }
    // All but what is no bound, and what is not the control group's.
    let needed = Resources {
        memory_bytes: asked.memory_bytes.filter(|&bytes| bytes != UNBOUNDED),
        pids: asked.pids.filter(|&n| n != NO_PIDS_LIMIT),
        memory_swap_bytes: None,
        memory_target_bytes: None,
        disk_bytes: None,
        disk_inodes: None,
        ..asked.clone()
    };
    match Cgroup::create(&identity.cgroup(), limits) {
        Ok(group) => Ok(Some(group)),
        Err(error) if needed != Resources::default() => {
            let what = match rustix::process::geteuid().is_root() {
                true => "make the control group that limits on memory, CPUs, tasks and block I/O need",
                false => {
                    "make the control group that limits on memory, CPUs, tasks and block I/O need, as root can (leave \
                     the limits out, or run as root)"
                }
            };
            Err(Error::host(what)(error))
        }
        Err(error) => {
            warn(&format!("running without a control group, so without limits on processes: {error}"));
            Ok(None)
        }
    }
}

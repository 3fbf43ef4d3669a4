//! Starting a domain: memory, identity, control group, then its first process.

use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use doppel_abi_machine::{ATTENDANT, UNPACKED, boot_flags, fd};
use doppel_confine::limits::{
    ATTENDANT_NAMESPACES, FIRST_UID, LIMITS, Limit, NAMESPACES, OOM_SCORE_ADJ, USER_NAMESPACE,
};
use doppel_sys::child::{self, ChildPlan};
use doppel_sys::signal::SignalFd;
use rustix::event::EventfdFlags;

use crate::freeze::frozen::{CloneConfig, Resume, image_digest};
use crate::freeze::share::Member;
use crate::io::console::Console;
use crate::io::terminal::winsize;
use crate::launch::control::{Facts, Memory, open_image};
use crate::launch::kernel::First;
use crate::launch::namespaces;
use crate::limits::cgroup::{self, Cgroup};
use crate::registry::identity::Identity;
use crate::registry::record::{self, Birth, Origin, Recorded};
use crate::run::foreground::{FORWARDED, WINCH};
use crate::run::state::{Born, Core, Guests, lock};
use crate::{
    Disk, Domain, DomainConfig, Error, Kind, NO_PIDS_LIMIT, Output, Resources, Sharing, StartTimes, UNBOUNDED,
};

/// `RLIMIT_NOFILE`, and its value in a clone, which has the frozen image as sixth descriptor; one that shares pages
/// has the share file as seventh.
const RLIMIT_NOFILE: u32 = 7;
const CLONE_DESCRIPTORS: u64 = 6;
/// And in a domain with a network.
const NETWORK_DESCRIPTORS: u64 = fd::NETWORK_DOORBELL as u64 + 1;

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
        Self::launch(config, None, None, warn)
    }

    /// Builds a domain that goes on from a frozen image, as a clone with a new identity or, if `resume` says so,
    /// as the domain it was.
    ///
    /// # Errors
    /// What was wrong, for example that the image does not fit this host; nothing is left behind.
    pub fn resume(resume: Resume, clone: &CloneConfig, warn: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let header = *resume.image.header();
        let path = PathBuf::from(resume.image.image_path());
        let tty = header.boot_flags & boot_flags::TTY != 0;
        let mut config = DomainConfig {
            kernel: clone.kernel.clone(),
            store: clone.store.clone(),
            name: clone.name.clone(),
            hostname: clone.hostname.clone(),
            cpus: clone.cpus,
            resources: clone.resources.clone(),
            memory: clone.memory.or((header.memory_limit > 0).then_some(header.memory_limit)),
            stdin: clone.stdin,
            tty,
            no_patch: header.boot_flags & boot_flags::NO_PATCH != 0,
            freeze_to: clone.freeze_to.clone(),
            capture: clone.capture,
            outlives_parent: clone.outlives_parent,
            keep: clone.keep.clone(),
            env: clone.env.clone(),
            clone_args: clone.args.clone(),
            network: clone.network.clone(),
            ..DomainConfig::new(path, clone.command.clone())
        };
        if resume.wake && config.hostname.is_empty() {
            config.hostname = resume.image.hostname().into();
        }
        config.check_limits()?;
        Self::launch(&config, Some(resume), clone.share.clone(), warn)
    }

    fn launch(
        config: &DomainConfig,
        resume: Option<Resume>,
        share: Option<Arc<Sharing>>,
        warn: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let (begun, mut times) = (Instant::now(), StartTimes::default());
        let paene = config.kind == Kind::Paene;
        let first = First::of(config)?;
        let (image, image_size) = open_image(&config.image)?;
        if let Some(resume) = &resume {
            resume.image.check_fit(&first.digest, &image_digest(&config.image)?)?;
        }
        let identity = Identity::claim(config.name.as_deref())?;
        let record = config.keep.as_ref().map(|keep| Recorded::begin(keep, &identity)).transpose()?;
        let config = &completed(config, &identity);
        let facts = Facts {
            domain_id: identity.id.into(),
            // The kernel of a clone was made for so many.
            vcpus: resume.as_ref().map_or_else(|| config.vcpus(), |r| r.image.header().vcpus),
            image_size,
            winsize: winsize(std::io::stdin())
                .or_else(|| winsize(std::io::stdout()))
                .unwrap_or(24 << 16 | 80),
            resume: resume.as_ref(),
        };
        let memory = Memory::new(config, &first.filter, &facts)?;
        times.memory = begun.elapsed();
        let console = {
            let output = if config.capture { Output::Kept } else { Output::Ours };
            Console::new(&memory.map, config.stdin, config.tty, output)
        };
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::os("make the doorbell"))?;
        let cgroup = make_cgroup(config, &identity, warn)?;
        times.group = begun.elapsed() - times.memory;
        let birth = cgroup
            .as_ref()
            .map_or_else(|| Ok(cgroup::Birth::default()), |group| group.birth())
            .map_err(Error::host("open the domain's control group"))?;

        let root = rustix::process::geteuid().is_root();
        let (uid, gid) = if root {
            (FIRST_UID + identity.id, FIRST_UID + identity.id)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let arguments = arguments(config, &identity.label(), cgroup.as_ref())?;
        let limit = |l: &Limit| match l.resource {
            RLIMIT_NOFILE if config.network.is_some() => NETWORK_DESCRIPTORS,
            RLIMIT_NOFILE if resume.is_some() => CLONE_DESCRIPTORS + u64::from(share.is_some()),
            _ => l.value,
        };
        // An attendant sets those of its programs itself.
        let limits = LIMITS.iter().filter(|_| !paene).map(|l| (l.resource, limit(l))).collect::<Vec<_>>();
        let oom_score_adj = CString::new(OOM_SCORE_ADJ.to_string()).unwrap_or_default();
        // In the order of `common/abi/machine`'s `fd`.
        let mut descriptors = vec![
            memory.control.as_fd(),
            memory.arena.as_fd(),
            memory.pagefile.as_fd(),
            image.as_fd(),
            doorbell.as_fd(),
        ];
        descriptors.extend(resume.as_ref().map(|r| r.image.file().as_fd()));
        descriptors.extend(share.as_ref().map(|s| s.descriptor()));
        if let Some(network) = &config.network {
            // Numbers it has no use for lead to its image.
            descriptors.resize_with(fd::NETWORK as usize, || image.as_fd());
            descriptors.extend([network.memory.as_fd(), network.doorbell.as_fd()]);
        }
        // Blocked before the fork, so that none is lost between.
        let signals = if config.capture {
            None
        } else {
            let all = [&FORWARDED[..], &[WINCH]].concat();
            Some(SignalFd::new(&all).map_err(Error::host("watch signals"))?)
        };
        let plan = ChildPlan {
            executable: first.executable.as_fd(),
            arguments: &arguments,
            descriptors: &descriptors,
            join: None,
            namespaces: match (paene, root) {
                (true, _) => ATTENDANT_NAMESPACES,
                (false, true) => NAMESPACES,
                (false, false) => NAMESPACES | USER_NAMESPACE,
            },
            privileged: paene,
            user_namespace: !root,
            uid,
            gid,
            cgroup: birth.cgroup_dir(),
            cgroup_tasks: &birth.tasks(),
            limits: &limits,
            speculation: crate::launch::defaults::forsworn(),
            tied: !config.outlives_parent && record.is_none(),
            oom_score_adj: &oom_score_adj,
        };
        // Those that others look after, and clones, come in numbers; one in the foreground is alone in its process.
        let many = !paene && (config.capture || resume.is_some());
        let spawned = if many { namespaces::spawn(plan) } else { child::spawn(&plan) };
        let child = spawned.map_err(Error::Spawn)?;
        times.process = begun.elapsed() - times.memory - times.group;
        let born = Born {
            kind: config.kind,
            kernel: first.digest,
            image: config.image.clone(),
            generation: resume.as_ref().map_or(0, Resume::generation),
            vcpus: facts.vcpus,
            memory_limit: config.memory.unwrap_or(0).into(),
            boot_flags: crate::launch::control::flags(config),
            owner: rustix::process::geteuid().as_raw(),
            freeze_to: config.freeze_to.clone(),
            freeze_stop: config.freeze_stop,
            resume,
        };
        // The filter and the arguments are the domain's now; a process with many domains would keep them for nothing. It
        // is no matter if it does.
        let _ = memory.map.let_go();
        let core = Core {
            share: Mutex::new(share.map(|s| Member::new(s, child.pid))),
            child,
            map: memory.map,
            label: Mutex::new(identity.label()),
            id: identity.id.into(),
            born,
            hostname: Mutex::new(config.hostname.to_string_lossy().into_owned()),
            stops: Mutex::new(()),
            asleep: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            sessions: Mutex::default(),
            guests: Guests::default(),
            group: cgroup.as_ref().map(Cgroup::view),
            record,
        };
        let core = Arc::new(core);
        // One that is held is nobody's yet.
        if !config.hold
            && let Err(why) = identity.open_door(&core)
        {
            warn(&format!("this domain cannot be frozen from outside: {why}"));
        }
        let domain =
            Self { core, reaped: None, doorbell, cgroup, identity, console, signals, tty: config.tty, times };
        // Dropped, and so ended, if that fails: it would be nobody's when this process dies.
        domain.record_birth(config.network.is_some())?;
        Ok(domain)
    }
}

impl Domain {
    /// Writes down what its successor needs, if there is to be one.
    fn record_birth(&self, network: bool) -> Result<(), Error> {
        let Some(record) = &self.core.record else { return Ok(()) };
        let born = &self.core.born;
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
            group: self.cgroup.as_ref().and_then(|group| group.name()),
        };
        let hostname = lock(&self.core.hostname).clone();
        record.change(|r| {
            r.hostname = hostname;
            r.birth = Some(birth);
        })
    }
}

/// Arguments of the first process, which `ps` shows.
fn arguments(config: &DomainConfig, label: &str, cgroup: Option<&Cgroup>) -> Result<Vec<CString>, Error> {
    let text = |text: String| CString::new(text).unwrap_or_default();
    if config.kind == Kind::Para {
        return Ok(vec![text(format!("doppel:{label}"))]);
    }
    let Disk { bytes, inodes } = config.disk;
    let number = |n: Option<u64>| text(n.unwrap_or(0).to_string());
    let mut all = vec![text(ATTENDANT.to_owned()), text(label.to_owned()), number(bytes), number(inodes)];
    all.push(text(root_form()?));
    all.extend(cgroup.iter().flat_map(|group| group.directories()).filter_map(|dir| {
        // It has none: it was made of a name.
        CString::new(dir.as_os_str().as_encoded_bytes()).ok()
    }));
    Ok(all)
}

/// How a paene domain is to have its image's files: as the environment says, if it does.
fn root_form() -> Result<String, Error> {
    match std::env::var_os("DOPPEL_PAENE_ROOT").unwrap_or_default().to_str() {
        Some(word @ ("" | UNPACKED)) => Ok(word.to_owned()),
        _ => Err(Error::Config(format!("DOPPEL_PAENE_ROOT can only be {UNPACKED:?}"))),
    }
}

/// Fills in what follows from the identity: the host name and its environment variable.
pub(crate) fn completed(config: &DomainConfig, identity: &Identity) -> DomainConfig {
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
    let mut limits =
        limits(config.kind, config.vcpus(), config.memory, config.cpus, config.resources.clone());
    if config.memory.is_none() {
        limits.by_default = crate::launch::defaults::bound_of(None);
    }
    let unlimited = Resources {
        account: config.resources.account,
        pids: config.resources.pids.filter(|&n| n == NO_PIDS_LIMIT),
        ..Resources::default()
    };
    let bounded = config.memory.is_some_and(|bytes| bytes != UNBOUNDED);
    match Cgroup::create(&identity.cgroup(), limits) {
        Ok(group) => Ok(Some(group)),
        Err(error) if bounded || config.cpus.is_some() || config.resources != unlimited => {
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

/// The control group's limits.
pub(crate) fn limits(
    kind: Kind,
    vcpus: u32,
    memory: Option<u64>,
    cpus: Option<f64>,
    mut resources: Resources,
) -> cgroup::Limits {
    let memory = memory.map(|bytes| match kind {
        _ if bytes == UNBOUNDED => u64::MAX,
        Kind::Para => host_limit(bytes),
        Kind::Paene => bytes.saturating_add(ATTENDANT_MEMORY),
    });
    if kind == Kind::Para {
        // A guest kernel keeps the limit itself (`VirtualRegisters::task_limit`); the host's bounds one that does not.
        resources.pids = resources.pids.map(|tasks| match tasks {
            NO_PIDS_LIMIT => tasks,
            _ => tasks.saturating_mul(vcpus).saturating_add(KERNEL_TASKS),
        });
    }
    cgroup::Limits { memory, by_default: None, cpus, resources, pauses: kind == Kind::Paene, service: false }
}

/// Host tasks of a guest kernel besides its programs' vCPUs: PID 1's, and address spaces kept ready for exec.
const KERNEL_TASKS: u32 = 16;
/// What an attendant may need on top of its domain's memory.
const ATTENDANT_MEMORY: u64 = 16 << 20;

/// The control group's limit for a guest limit: the guest kernel's own memory (page tables, stacks, its
/// heap) comes on top, so that programs get ENOMEM from it before the host kills anything.
pub(crate) fn host_limit(guest: u64) -> u64 {
    guest.saturating_add(guest / 8).saturating_add(64 << 20)
}

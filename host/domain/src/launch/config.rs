//! What a caller asks of a domain.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use doppel_disks::InUse;
use doppel_spec::{CreateDomain, DebugLevel, Kind, LEAST_MEMORY, MOST_CPUS, Program, UNBOUNDED};
use doppel_volumes::Held;
use serde_json::Value;

use crate::run::state::HostFiles;
use crate::{Error, Sharing};

/// What to run, on what, within which limits.
#[derive(Clone, Debug, Default)]
pub struct DomainConfig {
    /// What was asked for. Of its options count those that need no looking up: `kind`, `name` (unique among running domains; none
    /// makes one of its id), `hostname` (none is the domain's name), `tty`, `stdin`, `no_patch`, `events`, `files` and
    /// `resources`. What follows from the others is below.
    ///
    /// Without `cpus` it has as many vCPUs as the host has CPUs, without `memory_bytes` the limit of all domains
    /// ([`crate::Defaults::memory`]), or in a clone the frozen limit. Whether what is set aside is there, and the balloon's target
    /// once it runs, are the caller's business.
    pub spec: CreateDomain,
    /// The program. In a clone it is started beside what was frozen, and the clone ends with it; an empty `argv` for none.
    pub program: Program,
    /// Root image: an EROFS file. A clone has that of the domain that was frozen.
    pub image: PathBuf,
    /// Guest kernel to use instead of the embedded one (for work on the kernel itself).
    pub kernel: Option<PathBuf>,
    /// Directory in which to keep the guest kernel, for all domains to share its pages.
    pub store: Option<PathBuf>,
    /// Lines of `/sys/doppel/args`, in a clone.
    pub clone_args: Vec<OsString>,
    /// Count CPU time and block I/O, which on control groups v1 takes groups in further hierarchies.
    pub account: bool,
    /// Print system calls.
    pub trace: bool,
    /// Where on this host the binds and volumes of `spec.files` are, in their order. A paene domain has these itself; those of
    /// a para domain are the caller's to attach to a storage service, in this order, as `storage`.
    pub sources: Vec<PathBuf>,
    /// Directory of the layer (`host/layers`) that keeps what it changes, if `files` says so. A paene domain has it itself; that of a
    /// para domain is attached to the storage service behind its volumes.
    pub layer: Option<PathBuf>,
    /// File of the frozen image to make when the program asks for it (`/sys/power/state`); none refuses.
    pub freeze_to: Option<PathBuf>,
    /// End the domain once it has frozen itself.
    pub freeze_stop: bool,
    /// Keep the program's output for the caller instead of writing it to our own, and leave our signals alone.
    pub capture: bool,
    /// Let the domain live on when the thread that started it ends. Its console then stands still for good: for
    /// callers who see to its end themselves.
    pub outlives_parent: bool,
    /// Write it down, so that another process can take it over when this one dies ([`crate::Fleet::adopt`]); then it lives on.
    pub keep: Option<crate::Keep>,
    /// Make everything ready and wait for [`crate::Fleet::go_as`] before the program runs.
    pub hold: bool,
    /// Share pages that became equal with the other clones that have this.
    pub share: Option<Arc<Sharing>>,
    /// Its network; none: only its own loopback. What was frozen had another one, or none.
    pub network: Option<NetworkLink>,
    /// Its channel to the storage service, if it has volumes, a layer or disks: attached in this order. One that is held may have one for
    /// what it will become.
    pub storage: Option<StorageLink>,
}

/// Where a domain is written down, and what its caller has to know of it.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The directory, which is made if there is none.
    pub dir: PathBuf,
    /// The caller's own words; none: it is nobody's yet, and ends if this process does.
    pub note: Option<Value>,
}

/// A domain's channel to the network service (`services/net`), and its addresses.
#[derive(Clone, Debug)]
pub struct NetworkLink {
    /// The channel's memory file.
    pub memory: Arc<OwnedFd>,
    /// The service's doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// IPv4 address in the virtual network.
    pub ip4: Ipv4Addr,
    /// IPv6 address.
    pub ip6: Ipv6Addr,
    /// A domain that wakes had this channel when it was hibernated.
    pub same: bool,
}

/// A domain's channel to the storage service (`services/storage`).
#[derive(Clone, Debug)]
pub struct StorageLink {
    /// The channel's memory file.
    pub memory: Arc<OwnedFd>,
    /// The service's doorbell.
    pub doorbell: Arc<OwnedFd>,
    /// The file with what the service knows of its files; without one it is not frozen with volumes.
    pub nodes: Option<PathBuf>,
    /// Its disks, behind its volumes; one that has some is not frozen without.
    pub disks: Option<Weak<InUse>>,
}

impl DomainConfig {
    /// Runs `argv` on `image` as root in `/`, with no environment, no limits and no input.
    #[must_use]
    pub fn new(image: PathBuf, argv: Vec<OsString>) -> Self {
        Self { image, program: Program::new(argv), ..Self::default() }
    }

    /// Checks what can be checked before anything is made.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Config(text));
        let CreateDomain { kind, name, hostname, files, resources, .. } = &self.spec;
        if self.program.argv.is_empty() {
            return wrong("no command given; name one after the image, for example `-- /bin/sh`".into());
        }
        if let Some(name) = name
            && !is_name(name)
        {
            return wrong(format!(
                "{name:?} is no name for a domain: use up to 63 letters, digits, '-', '_' and '.', the first a letter or digit"
            ));
        }
        if hostname.as_ref().is_some_and(|name| name.len() > 64) {
            return wrong("a host name has at most 64 bytes".into());
        }
        let cwd = &self.program.cwd;
        if !cwd.as_encoded_bytes().starts_with(b"/") {
            return wrong(format!("the working directory {cwd:?} must be an absolute path"));
        }
        if let Err((i, why)) = files.check() {
            return wrong(format!("mount {i}: {why}"));
        }
        if let Err((i, why)) = files.check_disks() {
            return wrong(format!("disk {i}: {why}"));
        }
        self.check_volumes()?;
        if *kind == Kind::Paene {
            self.check_paene()?;
        } else if resources.disk_inodes.is_some() || resources.disk_bytes.is_some() && self.layer.is_none() {
            return wrong(
                "limits on the disk are for paene domains, and of bytes for a para domain's layer; its other files count as its memory"
                    .into(),
            );
        }
        self.check_limits()
    }

    /// Refuses volumes, layers and disks that are nowhere, and what domains that have some cannot do.
    fn check_volumes(&self) -> Result<(), Error> {
        let count = self.spec.files.volumes().count();
        let kept = self.layer.is_some();
        let served = count > 0 || kept || !self.spec.files.disks.is_empty();
        // A paene domain has its volumes and its layer itself; one that is held has a channel for what it may become.
        let served = match self.spec.kind {
            Kind::Para => served,
            Kind::Paene => !self.spec.files.disks.is_empty(),
        };
        let attached = self.hold || self.storage.is_some() == served;
        if count != self.sources.len() || kept != self.spec.files.is_kept() || !attached {
            return Err(Error::Config(
                "volumes, a layer or disks are asked for, and none are attached".into(),
            ));
        }
        let resources = &self.spec.resources;
        let bounded = resources.disk_bytes.is_some() || resources.disk_inodes.is_some();
        if kept && bounded && self.spec.kind == Kind::Paene {
            let text = "a paene domain's limits on the disk are for files in memory; what it keeps has none";
            return Err(Error::Config(text.into()));
        }
        match self.freeze_to {
            Some(_) if !self.is_frozen_with_files() => Err(no_freeze(&self.volumes())),
            Some(_) if kept && self.freeze_stop => Err(no_hibernation()),
            _ => Ok(()),
        }
    }

    /// Its volumes and disks, as people name them.
    fn volumes(&self) -> Vec<String> {
        let volumes = self.spec.files.volumes();
        let volumes = volumes.map(|v| v.source.clone().unwrap_or_else(|| v.target.clone()));
        volumes.chain(self.spec.files.disks.iter().map(|disk| format!("disk {}", disk.name))).collect()
    }

    /// Whether some of it is files of the host.
    pub(crate) fn has_host_files(&self) -> bool {
        let files = &self.spec.files;
        self.layer.is_some() || files.volumes().next().is_some() || !files.disks.is_empty()
    }

    /// Whether it can be frozen with what it has of volumes and disks.
    fn is_frozen_with_files(&self) -> bool {
        self.volumes().is_empty() || self.held().is_some()
    }

    /// What is kept of its volumes when it is frozen, if it has some, and that can be.
    fn held(&self) -> Option<Held> {
        let files = &self.spec.files;
        let storage =
            self.storage.as_ref().filter(|storage| files.disks.is_empty() || storage.disks.is_some());
        let nodes = storage.and_then(|storage| storage.nodes.clone());
        let nodes = nodes.filter(|_| files.volumes().next().is_some() || !files.disks.is_empty())?;
        Some(Held { mounts: files.volumes().cloned().collect(), sources: self.sources.clone(), nodes })
    }

    /// What of it is files of the host.
    pub(crate) fn host_files(&self) -> HostFiles {
        let disks = self.storage.as_ref().and_then(|storage| storage.disks.clone());
        HostFiles { volumes: self.volumes(), held: self.held(), layer: self.layer.clone(), disks }
    }

    /// Refuses what only a guest kernel can do.
    fn check_paene(&self) -> Result<(), Error> {
        let only_para = [
            (self.kernel.is_some(), "a guest kernel"),
            (self.trace, "--trace"),
            (self.spec.events != DebugLevel::Off, "events of a guest kernel"),
            (self.freeze_to.is_some(), "freezing itself"),
        ];
        if let Some((_, what)) = only_para.iter().find(|(asked, _)| *asked) {
            return Err(Error::Unsupported(format!("a paene domain has not {what}")));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unsupported("a paene domain needs root; a para domain does not".into()));
        }
        Ok(())
    }

    /// Checks the limits alone.
    pub(crate) fn check_limits(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Config(text));
        if let Some(cpus) = self.spec.resources.cpus
            && !(0.01..=MOST_CPUS).contains(&cpus)
        {
            return wrong(format!("{cpus} CPUs: between 0.01 and {MOST_CPUS} are possible"));
        }
        check_memory(self.spec.resources.memory_bytes)
    }

    /// How many vCPUs a guest process may use.
    pub(crate) fn vcpus(&self) -> u32 {
        match self.spec.resources.cpus {
            // Bounded by `check`, and rounded up.
            Some(cpus) => cpus.ceil() as u32,
            None => rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1),
        }
    }
}

/// Why a domain with these volumes and disks is not frozen: it was started by an older program.
pub(crate) fn no_freeze(volumes: &[String]) -> Error {
    Error::Unsupported(format!(
        "it is not known what the storage service has of the domain, so it cannot be frozen, cloned or hibernated: it has {}",
        volumes.join(", ")
    ))
}

/// Why a domain with a layer is not ended once it is frozen.
pub(crate) fn no_hibernation() -> Error {
    let text = "only the supervisor's domains can be hibernated with a layer; stop it, and start it again";
    Error::Unsupported(text.into())
}

/// Checks a limit on memory, in bytes.
pub(crate) fn check_memory(memory: Option<u64>) -> Result<(), Error> {
    match memory {
        Some(bytes) if bytes != UNBOUNDED && bytes < LEAST_MEMORY => Err(Error::Config(format!(
            "{bytes} bytes of memory: at least {} MiB are needed",
            LEAST_MEMORY >> 20
        ))),
        _ => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= 63 && name.chars().all(good) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Fills in what follows from the domain's name: the host name and its environment variable.
pub(crate) fn completed(config: &DomainConfig, label: String) -> DomainConfig {
    let mut config = config.clone();
    let hostname = config.spec.hostname.take().filter(|name| !name.is_empty()).unwrap_or(label);
    let env = &mut config.program.env;
    if !env.iter().any(|e| e.as_encoded_bytes().starts_with(b"HOSTNAME=")) {
        env.push(format!("HOSTNAME={hostname}").into());
    }
    config.spec.hostname = Some(hostname);
    config
}

//! What a caller asks of a domain.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use doppel_spec::{Kind, LEAST_MEMORY, MOST_CPUS, Resources, UNBOUNDED};
use serde_json::Value;

use crate::Error;

/// What to run, on what, within which limits.
#[derive(Clone, Debug)]
pub struct DomainConfig {
    /// What its programs run on.
    pub kind: Kind,
    /// Root image: an EROFS file.
    pub image: PathBuf,
    /// Guest kernel to use instead of the embedded one (for work on the kernel itself).
    pub kernel: Option<PathBuf>,
    /// Directory in which to keep the guest kernel, for all domains to share its pages.
    pub store: Option<PathBuf>,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Its environment, `NAME=value` each.
    pub env: Vec<OsString>,
    /// Lines of `/sys/doppel/args`, in a clone.
    pub clone_args: Vec<OsString>,
    /// Its working directory.
    pub cwd: OsString,
    /// Its user id inside the domain.
    pub uid: u32,
    /// Its group id inside the domain.
    pub gid: u32,
    /// Its supplementary groups inside the domain.
    pub groups: Vec<u32>,
    /// Name of the domain, unique among those running; also its host name if none is given.
    pub name: Option<String>,
    /// Host name; empty means the domain's name.
    pub hostname: OsString,
    /// Limits, weights and reservations. Without `cpus` it has as many vCPUs as the host has CPUs, without `memory_bytes` the
    /// limit of all domains ([`crate::Defaults::memory`]). Whether what is set aside is there, and the balloon's target once
    /// it runs, are the caller's business.
    pub resources: Resources,
    /// Count CPU time and block I/O, which on control groups v1 takes groups in further hierarchies.
    pub account: bool,
    /// Give the program a terminal.
    pub tty: bool,
    /// Connect standard input.
    pub stdin: bool,
    /// Print system calls.
    pub trace: bool,
    /// Leave the image's patched system calls unused.
    pub no_patch: bool,
    /// What is mounted before the program starts.
    pub files: doppel_spec::Files,
    /// Where on this host the binds and volumes of `files` are, in their order. A paene domain has these themselves; those of
    /// a para domain are the caller's to attach to a storage service, in this order, as `storage`.
    pub sources: Vec<PathBuf>,
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
    /// Its network; none: only its own loopback.
    pub network: Option<NetworkLink>,
    /// Its channel to the storage service, if it has volumes.
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
}

impl DomainConfig {
    /// Runs `argv` on `image` as root in `/`, with no environment, no limits and no input.
    #[must_use]
    pub fn new(image: PathBuf, argv: Vec<OsString>) -> Self {
        Self {
            kind: Kind::Para,
            image,
            kernel: None,
            store: None,
            argv,
            env: Vec::new(),
            clone_args: Vec::new(),
            cwd: "/".into(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            name: None,
            hostname: OsString::new(),
            resources: Resources::default(),
            account: false,
            tty: false,
            stdin: false,
            trace: false,
            no_patch: false,
            files: doppel_spec::Files::default(),
            sources: Vec::new(),
            freeze_to: None,
            freeze_stop: false,
            capture: false,
            outlives_parent: false,
            keep: None,
            hold: false,
            network: None,
            storage: None,
        }
    }

    /// Checks what can be checked before anything is made.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Config(text));
        if self.argv.is_empty() {
            return wrong("no command given; name one after the image, for example `-- /bin/sh`".into());
        }
        if let Some(name) = &self.name
            && !is_name(name)
        {
            return wrong(format!(
                "{name:?} is no name for a domain: use up to 63 letters, digits, '-', '_' and '.', the first a letter or digit"
            ));
        }
        if self.hostname.len() > 64 {
            return wrong("a host name has at most 64 bytes".into());
        }
        if !self.cwd.as_encoded_bytes().starts_with(b"/") {
            return wrong(format!("the working directory {:?} must be an absolute path", self.cwd));
        }
        if let Err((i, why)) = self.files.check() {
            return wrong(format!("mount {i}: {why}"));
        }
        self.check_volumes()?;
        if self.kind == Kind::Paene {
            self.check_paene()?;
        } else if self.resources.disk_bytes.is_some() || self.resources.disk_inodes.is_some() {
            return wrong(
                "limits on the disk are for paene domains; a para domain's files count as its memory".into(),
            );
        }
        self.check_limits()
    }

    /// Refuses volumes that are nowhere, and what domains that have some cannot do.
    fn check_volumes(&self) -> Result<(), Error> {
        let count = self.files.volumes().count();
        let attached = self.kind == Kind::Paene || self.storage.is_some() == (count > 0);
        if count != self.sources.len() || !attached {
            return Err(Error::Config("volumes are asked for, and none are attached".into()));
        }
        if count > 0 && self.freeze_to.is_some() {
            return Err(no_freeze(&self.volumes()));
        }
        Ok(())
    }

    /// What of it is files of the host, as people name them.
    pub(crate) fn volumes(&self) -> Vec<String> {
        self.files.volumes().map(|v| v.source.clone().unwrap_or_else(|| v.target.clone())).collect()
    }

    /// Refuses what only a guest kernel can do.
    fn check_paene(&self) -> Result<(), Error> {
        let only_para = [
            (self.kernel.is_some(), "a guest kernel"),
            (self.trace, "--trace"),
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
        if let Some(cpus) = self.resources.cpus
            && !(0.01..=MOST_CPUS).contains(&cpus)
        {
            return wrong(format!("{cpus} CPUs: between 0.01 and {MOST_CPUS} are possible"));
        }
        check_memory(self.resources.memory_bytes)
    }

    /// How many vCPUs a guest process may use.
    pub(crate) fn vcpus(&self) -> u32 {
        match self.resources.cpus {
            // Bounded by `check`, and rounded up.
            Some(cpus) => cpus.ceil() as u32,
            None => rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()).max(1),
        }
    }
}

/// Why a domain with these volumes is not frozen.
pub(crate) fn no_freeze(volumes: &[String]) -> Error {
    Error::Unsupported(format!(
        "a domain with volumes cannot be frozen, cloned or hibernated yet: it has {}",
        volumes.join(", ")
    ))
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
    if config.hostname.is_empty() {
        config.hostname = label.into();
    }
    if !config.env.iter().any(|e| e.as_encoded_bytes().starts_with(b"HOSTNAME=")) {
        let mut variable = OsString::from("HOSTNAME=");
        variable.push(&config.hostname);
        config.env.push(variable);
    }
    config
}

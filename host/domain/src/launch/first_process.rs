//! The first process of a domain: what it is born with, and its birth.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use doppel_abi_machine::{ATTENDANT, UNPACKED, fd};
use doppel_confine::limits::{
    ATTENDANT_NAMESPACES, FIRST_UID, LIMITS, Limit, NAMESPACES, OOM_SCORE_ADJ, USER_NAMESPACE,
};
use doppel_sys::child::{self, Child, ChildPlan};

use crate::freeze::frozen::Resume;
use crate::launch::control::Memory;
use crate::launch::kernel::First;
use crate::launch::namespaces;
use crate::limits::cgroup::{self, Cgroup};
use crate::registry::identity::Identity;
use crate::{DomainConfig, Error, Kind, Resources, Sharing};

/// `RLIMIT_NOFILE`, and its value in a clone, which has the frozen image as sixth descriptor; one that shares pages
/// has the share file as seventh.
const RLIMIT_NOFILE: u32 = 7;
const CLONE_DESCRIPTORS: u64 = 6;
/// And in a domain with a network.
const NETWORK_DESCRIPTORS: u64 = fd::NETWORK_DOORBELL as u64 + 1;
/// The same with a channel to the storage service.
const STORAGE_DESCRIPTORS: u64 = fd::STORAGE_DOORBELL as u64 + 1;

/// The same with a swap region.
const SWAP_DESCRIPTORS: u64 = fd::SWAP as u64 + 1;

/// The same as a clone of a frozen image that has ancestors.
const ANCESTOR_DESCRIPTORS: u64 = fd::END as u64;

/// What a first process is made of.
pub(super) struct FirstProcess<'a> {
    pub config: &'a DomainConfig,
    pub executable: &'a First,
    pub memory: &'a Memory,
    pub image: &'a File,
    pub swap: Option<&'a File>,
    pub doorbell: &'a OwnedFd,
    pub resume: Option<&'a Resume>,
    pub share: Option<&'a Sharing>,
    pub identity: &'a Identity,
    pub cgroup: Option<&'a Cgroup>,
    /// It ends with the thread that makes it.
    pub tied: bool,
}

impl FirstProcess<'_> {
    /// Makes it.
    pub fn spawn(&self) -> Result<Child, Error> {
        let paene = self.config.spec.kind == Kind::Paene;
        let birth = self
            .cgroup
            .map_or_else(|| Ok(cgroup::Birth::default()), |group| group.birth())
            .map_err(Error::host("open the domain's control group"))?;
        let root = rustix::process::geteuid().is_root();
        let (uid, gid) = if root {
            (FIRST_UID + self.identity.id, FIRST_UID + self.identity.id)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let arguments = arguments(self.config, &self.identity.label(), self.cgroup)?;
        let limits = self.limits();
        let oom_score_adj = CString::new(OOM_SCORE_ADJ.to_string()).unwrap_or_default();
        let descriptors = self.descriptors();
        let plan = ChildPlan {
            executable: self.executable.executable.as_fd(),
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
            tied: self.tied,
            oom_score_adj: &oom_score_adj,
        };
        // Those that others look after, and clones, come in numbers; one in the foreground is alone in its process.
        let many = self.config.capture || self.resume.is_some();
        let spawned = match (paene, many) {
            (true, _) => child::spawn(&plan),
            (false, true) => namespaces::spawn(&plan),
            (false, false) => namespaces::spawn_alone(&plan),
        };
        spawned.map_err(Error::Spawn)
    }

    /// Its resource limits; an attendant sets those of its programs itself.
    fn limits(&self) -> Vec<(u32, u64)> {
        let limit = |l: &Limit| match l.resource {
            RLIMIT_NOFILE if self.resume.is_some_and(|r| r.image.has_ancestors()) => ANCESTOR_DESCRIPTORS,
            RLIMIT_NOFILE if self.swap.is_some() => SWAP_DESCRIPTORS,
            RLIMIT_NOFILE if self.config.storage.is_some() => STORAGE_DESCRIPTORS,
            RLIMIT_NOFILE if self.config.network.is_some() => NETWORK_DESCRIPTORS,
            RLIMIT_NOFILE if self.resume.is_some() => CLONE_DESCRIPTORS + u64::from(self.share.is_some()),
            _ => l.value,
        };
        let para = self.config.spec.kind == Kind::Para;
        LIMITS.iter().filter(|_| para).map(|l| (l.resource, limit(l))).collect()
    }

    /// Its descriptors, in the order of `common/abi/machine`'s `fd`.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![
            self.memory.control.as_fd(),
            self.memory.arena.as_fd(),
            self.memory.pagefile.as_fd(),
            self.image.as_fd(),
            self.doorbell.as_fd(),
        ];
        all.extend(self.resume.map(|r| r.image.file().as_fd()));
        all.extend(self.share.map(Sharing::descriptor));
        if let Some(network) = &self.config.network {
            // Numbers it has no use for lead to its image.
            all.resize_with(fd::NETWORK as usize, || self.image.as_fd());
            all.extend([network.memory.as_fd(), network.doorbell.as_fd()]);
        }
        if let Some(storage) = &self.config.storage {
            all.resize_with(fd::STORAGE as usize, || self.image.as_fd());
            all.extend([storage.memory.as_fd(), storage.doorbell.as_fd()]);
        }
        if let Some(swap) = self.swap {
            all.resize_with(fd::SWAP as usize, || self.image.as_fd());
            all.push(swap.as_fd());
        }
        if let Some(resume) = self.resume.filter(|r| r.image.has_ancestors()) {
            all.resize_with(fd::ANCESTORS as usize, || self.image.as_fd());
            all.extend(resume.image.ancestors().map(AsFd::as_fd));
            all.resize_with(fd::END as usize, || self.image.as_fd());
        }
        all
    }
}

/// Arguments of the first process, which `ps` shows.
fn arguments(config: &DomainConfig, label: &str, cgroup: Option<&Cgroup>) -> Result<Vec<CString>, Error> {
    let text = |text: String| CString::new(text).unwrap_or_default();
    if config.spec.kind == Kind::Para {
        return Ok(vec![text(format!("doppel:{label}"))]);
    }
    let Resources { disk_bytes, disk_inodes, .. } = config.spec.resources;
    let number = |n: Option<u64>| text(n.unwrap_or(0).to_string());
    let mut all =
        vec![text(ATTENDANT.to_owned()), text(label.to_owned()), number(disk_bytes), number(disk_inodes)];
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

//! The control area and the other memory a domain is born with.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use doppel_abi_machine::events::Level;
use doppel_abi_machine::{START_MAGIC, StartInfo, VERSION, boot_flags, control, layout, resume_flags};
use doppel_spec::{Request, Unfit};
use doppel_sys::shared::{self, SharedMap};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::freeze::frozen::Resume;
use crate::launch::defaults::{bound_of, host_memory};
use crate::launch::mounts;
use crate::paging::region;
use crate::{DomainConfig, Error};

/// Arena size: sparse, so only what the guest kernel touches costs anything.
const ARENA_SIZE: u64 = 4 << 30;
/// Page file size, sparse too.
const PAGEFILE_SIZE: u64 = layout::PAGEFILE_MAX;

/// The memory of one domain, as the host holds it.
#[derive(Debug)]
pub(crate) struct Memory {
    pub control: OwnedFd,
    pub arena: OwnedFd,
    pub pagefile: OwnedFd,
    pub map: SharedMap,
}

/// What [`Memory::new`] needs besides the configuration.
pub(crate) struct Facts<'a> {
    pub domain_id: u64,
    pub vcpus: u32,
    pub image_size: u64,
    pub winsize: u32,
    /// What to go on from instead of a boot.
    pub resume: Option<&'a Resume>,
}

impl Memory {
    /// Makes the memory files and writes the start info, the boot arguments and the filter.
    pub fn new(config: &DomainConfig, filter: &[u8], facts: &Facts<'_>) -> Result<Self, Error> {
        let control_fd = memfd("doppel-control", control::SIZE)?;
        let header = facts.resume.map(|r| *r.image.header());
        let arena_size = header.map_or(ARENA_SIZE, |h| h.arena_size);
        let pagefile_size = header.map_or(PAGEFILE_SIZE, |h| h.pagefile_size);
        let arena = memfd("doppel-arena", arena_size)?;
        let pagefile = memfd("doppel-pages", pagefile_size)?;
        if let Some(resume) = facts.resume {
            resume.image.fill(&arena, &pagefile)?;
        }
        let size = usize::try_from(control::SIZE).expect("the control area fits in memory");
        let mut map =
            SharedMap::new(control_fd.as_fd(), size).map_err(Error::host("map the control area"))?;
        if let Some(network) = &config.network {
            let at = shared::offset(control::VREGS);
            let page = usize::try_from(layout::PAGE).expect("a page");
            map.overlay(at, page, network.memory.as_fd(), doppel_abi_service::layout::REGISTERS)
                .map_err(Error::host("map the network service's channel"))?;
            // Of the domain that was hibernated with it.
            map.write(at, &[0; size_of::<doppel_abi_machine::VirtualRegisters>()]);
        }

        let boot_args = boot_args(config, facts.winsize)?;
        assert!(filter.len() as u64 <= control::FILTER_MAX, "the seccomp program is too long");
        let mut seed = [0u8; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(Error::os("get randomness"))?;
        let info = StartInfo {
            magic: START_MAGIC,
            version: VERSION,
            vcpus: facts.vcpus,
            domain_id: facts.domain_id,
            generation: facts.resume.map_or(0, Resume::generation),
            memory_limit: config.spec.resources.memory_bytes.unwrap_or(0),
            arena_size,
            pagefile_size,
            image_size: facts.image_size,
            filter_len: u32::try_from(filter.len() / 8).expect("bounded by FILTER_MAX"),
            boot_args_len: u32::try_from(boot_args.len()).expect("bounded by BOOT_ARGS_MAX"),
            seed,
            // What it cannot have is not there for it.
            host_memory: bound_of(config.spec.resources.memory_bytes)
                .map_or_else(host_memory, |bound| bound.min(host_memory())),
            boot_realtime_ns: realtime_ns(),
            frozen_tables: header.map_or(0, |h| h.tables_len),
            resume_flags: facts.resume.map_or_else(|| Resume::held(config.hold), Resume::flags)
                | config.network.as_ref().filter(|n| n.same).map_or(0, |_| resume_flags::SAME_NETWORK),
            clone_index: facts.resume.map_or(0, |r| r.index),
            network: config.network.is_some().into(),
            ip4: config.network.as_ref().map_or([0; 4], |n| n.ip4.octets()),
            ip6: config.network.as_ref().map_or([0; 16], |n| n.ip6.octets()),
            storage: u32::from(config.storage.is_some()),
            reserved: 0,
            swap_size: region::size(config.spec.kind, &config.spec.resources),
        };
        map.write(shared::offset(control::START_INFO), &start_info_bytes(&info));
        map.write(shared::offset(control::FILTER), filter);
        map.write(shared::offset(control::BOOT_ARGS), &boot_args);
        let vregs: &doppel_abi_machine::VirtualRegisters = map.get(shared::offset(control::VREGS));
        vregs.winsize.store(facts.winsize, std::sync::atomic::Ordering::Relaxed);
        vregs.memory_limit.store(info.memory_limit, std::sync::atomic::Ordering::Relaxed);
        let target = config.spec.resources.memory_target_bytes.unwrap_or(0);
        vregs.memory_target.store(target, std::sync::atomic::Ordering::Relaxed);
        vregs.task_limit.store(config.spec.resources.pids.unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
        if let Some(resume) = facts.resume {
            let offset = resume.image.monotonic_offset()?;
            vregs.monotonic_offset.store(offset, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Self { control: control_fd, arena, pagefile, map })
    }
}

/// A sparse memory file that can neither shrink nor grow.
fn memfd(name: &str, size: u64) -> Result<OwnedFd, Error> {
    let doing = || format!("make the memory file {name}");
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(Error::os(doing()))?;
    rustix::fs::ftruncate(&fd, size).map_err(Error::os(doing()))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)
        .map_err(Error::os(doing()))?;
    Ok(fd)
}

/// [`StartInfo`] as bytes, field by field: its layout has no padding (pinned in `common/abi/machine`).
fn start_info_bytes(info: &StartInfo) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<StartInfo>());
    out.extend(info.magic.to_le_bytes());
    out.extend(info.version.to_le_bytes());
    out.extend(info.vcpus.to_le_bytes());
    for word in [
        info.domain_id,
        info.generation,
        info.memory_limit,
        info.arena_size,
        info.pagefile_size,
        info.image_size,
    ] {
        out.extend(word.to_le_bytes());
    }
    out.extend(info.filter_len.to_le_bytes());
    out.extend(info.boot_args_len.to_le_bytes());
    out.extend(info.seed);
    out.extend(info.host_memory.to_le_bytes());
    out.extend(info.boot_realtime_ns.to_le_bytes());
    out.extend(info.frozen_tables.to_le_bytes());
    out.extend(info.resume_flags.to_le_bytes());
    out.extend(info.clone_index.to_le_bytes());
    out.extend(info.network.to_le_bytes());
    out.extend(info.ip4);
    out.extend(info.ip6);
    out.extend(info.storage.to_le_bytes());
    out.extend(info.reserved.to_le_bytes());
    out.extend(info.swap_size.to_le_bytes());
    assert_eq!(out.len(), size_of::<StartInfo>(), "StartInfo changed: see docs/machine-interface.md");
    out
}

/// Boot arguments as bytes.
pub(crate) fn boot_args(config: &DomainConfig, winsize: u32) -> Result<Vec<u8>, Error> {
    let request = Request {
        program: config.program.clone(),
        clone_args: config.clone_args.clone(),
        hostname: config.spec.hostname.clone().unwrap_or_default().into(),
        flags: flags(config),
        winsize,
        mounts: mounts::encoded(config),
        hosts: host_lines(&config.spec.extra_hosts)?,
    };
    written(&request, control::BOOT_ARGS_MAX)
}

fn host_lines(entries: &[String]) -> Result<Vec<OsString>, Error> {
    entries.iter().map(|entry| doppel_spec::host_line(entry).map(Into::into).map_err(Error::Config)).collect()
}

/// A request as bytes, of which there may be so many.
pub(crate) fn written(request: &Request, room: u64) -> Result<Vec<u8>, Error> {
    request.to_bytes(room).map_err(|unfit| match unfit {
        Unfit::Nul => Error::Config("an argument contains a NUL byte".into()),
        Unfit::TooLong => Error::Config(format!(
            "the command and its environment are longer than {} KiB; pass long input on standard input or in files",
            room >> 10
        )),
    })
}

/// [`boot_flags`] of a configuration, and of our environment.
pub(crate) fn flags(config: &DomainConfig) -> u32 {
    let switches = doppel_spec::flags(&[
        (config.spec.tty, boot_flags::TTY),
        (config.spec.stdin, boot_flags::STDIN),
        (config.trace, boot_flags::TRACE),
        (config.spec.no_patch, boot_flags::NO_PATCH),
        (config.spec.files.read_only, boot_flags::READ_ONLY),
        (!doppel_service::may_poll(), boot_flags::NO_POLLING),
    ]);
    switches | Level::from(config.spec.events).flags()
}

fn realtime_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Size and descriptor of the root image.
pub(crate) fn open_image(path: &std::path::Path) -> Result<(File, u64), Error> {
    let bad = |reason: String| Error::Image { path: path.into(), reason };
    let file = File::open(path).map_err(|e| bad(format!("cannot open it: {e}")))?;
    let meta = file.metadata().map_err(|e| bad(format!("cannot examine it: {e}")))?;
    if !meta.is_file() {
        return Err(bad("not a regular file".into()));
    }
    if meta.len() == 0 || meta.len() > layout::IMAGE_MAX {
        return Err(bad(format!(
            "its size is {} bytes; 1 byte to {} GiB are possible",
            meta.len(),
            layout::IMAGE_MAX >> 30
        )));
    }
    Ok((file, meta.len()))
}

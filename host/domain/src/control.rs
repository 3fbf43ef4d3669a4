//! The control area and the other memory a domain is born with.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use doppel_abi_machine::{BootArgs, START_MAGIC, StartInfo, VERSION, boot_flags, control, layout};
use doppel_confine::{ALLOWED, compile};
use doppel_sys::shared::SharedMap;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::{DomainConfig, Error, Kernel};

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
pub(crate) struct Facts {
    pub domain_id: u64,
    pub vcpus: u32,
    pub image_size: u64,
    pub winsize: u32,
}

impl Memory {
    /// Makes the memory files and writes the start info, the boot arguments and the filter.
    pub fn new(config: &DomainConfig, kernel: &Kernel, facts: &Facts) -> Result<Self, Error> {
        let control_fd = memfd("doppel-control", control::SIZE)?;
        let arena = memfd("doppel-arena", ARENA_SIZE)?;
        let pagefile = memfd("doppel-pages", PAGEFILE_SIZE)?;
        let size = usize::try_from(control::SIZE).expect("the control area fits in memory");
        let map = SharedMap::new(control_fd.as_fd(), size).map_err(Error::host("map the control area"))?;

        let filter = compile(ALLOWED, kernel.sites());
        let boot_args = boot_args(config, facts.winsize)?;
        let filter_bytes: Vec<u8> = filter.iter().flat_map(|i| i.to_bytes()).collect();
        assert!(filter_bytes.len() as u64 <= control::FILTER_MAX, "the seccomp program is too long");
        let mut seed = [0u8; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(Error::os("get randomness"))?;
        let info = StartInfo {
            magic: START_MAGIC,
            version: VERSION,
            vcpus: facts.vcpus,
            domain_id: facts.domain_id,
            generation: 0,
            memory_limit: config.memory.unwrap_or(0),
            arena_size: ARENA_SIZE,
            pagefile_size: PAGEFILE_SIZE,
            image_size: facts.image_size,
            filter_len: u32::try_from(filter.len()).expect("bounded by FILTER_MAX"),
            boot_args_len: u32::try_from(boot_args.len()).expect("bounded by BOOT_ARGS_MAX"),
            seed,
            host_memory: host_memory(),
            boot_realtime_ns: realtime_ns(),
        };
        let offset = |o: u64| usize::try_from(o).expect("inside the control area");
        map.write(offset(control::START_INFO), &start_info_bytes(&info));
        map.write(offset(control::FILTER), &filter_bytes);
        map.write(offset(control::BOOT_ARGS), &boot_args);
        let vregs: &doppel_abi_machine::VirtualRegisters = map.get(offset(control::VREGS));
        vregs.winsize.store(facts.winsize, std::sync::atomic::Ordering::Relaxed);
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

/// [`StartInfo`] as bytes, field by field: its layout has no padding (pinned in `abi/machine`).
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
    assert_eq!(out.len(), size_of::<StartInfo>(), "StartInfo changed: see docs/machine-interface.md");
    out
}

/// [`BootArgs`] and its strings as bytes.
fn boot_args(config: &DomainConfig, winsize: u32) -> Result<Vec<u8>, Error> {
    let count = |n: usize| u32::try_from(n).map_err(|_| too_long());
    let mut flags = 0;
    for (set, flag) in [
        (config.tty, boot_flags::TTY),
        (config.stdin, boot_flags::STDIN),
        (config.trace, boot_flags::TRACE),
        (config.no_patch, boot_flags::NO_PATCH),
    ] {
        flags |= if set { flag } else { 0 };
    }
    let header =
        [count(config.argv.len())?, count(config.env.len())?, config.uid, config.gid, flags, winsize];
    let mut out: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(out.len(), size_of::<BootArgs>(), "BootArgs changed: see docs/machine-interface.md");
    let last = [&config.cwd, &config.hostname];
    for text in config.argv.iter().chain(&config.env).chain(last) {
        let bytes = text.as_bytes();
        if bytes.contains(&0) {
            return Err(Error::Config("an argument contains a NUL byte".into()));
        }
        out.extend(bytes);
        out.push(0);
    }
    if out.len() as u64 > control::BOOT_ARGS_MAX {
        return Err(too_long());
    }
    Ok(out)
}

fn too_long() -> Error {
    Error::Config(format!(
        "the command and its environment are longer than {} KiB; pass long input on standard input or in files",
        control::BOOT_ARGS_MAX >> 10
    ))
}

fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)))
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

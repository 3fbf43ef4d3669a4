//! The guest kernel as a file: the embedded ELF, its gates, a sealed memfd to execute.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use doppel_confine::Sites;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, Stat, StatVfsMountFlags};

use crate::Error;
use crate::elf::{self, Gates};

/// The guest kernel built with this program, trimmed; empty in debug builds without `DOPPEL_EMBED_KERNEL=1`.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel.elf"));
/// Its gates, found before trimming.
const EMBEDDED_GATES: Gates = include!(concat!(env!("OUT_DIR"), "/kernel_gates.rs"));
/// Digest of the trimmed ELF.
const EMBEDDED_DIGEST: u64 = include!(concat!(env!("OUT_DIR"), "/kernel_digest.rs"));

/// A guest kernel: its ELF and the addresses its host calls come from.
#[derive(Debug)]
pub struct Kernel {
    elf: Cow<'static, [u8]>,
    gates: Gates,
}

impl Kernel {
    /// The kernel this program was built with.
    ///
    /// # Errors
    /// If there is none, or it has no gates.
    pub fn embedded() -> Result<Self, Error> {
        if EMBEDDED.is_empty() {
            return Err(Error::Kernel(
                "this build has none; build with --release (or DOPPEL_EMBED_KERNEL=1), or give --kernel FILE"
                    .into(),
            ));
        }
        Ok(Self { elf: EMBEDDED.into(), gates: EMBEDDED_GATES })
    }

    /// A kernel from a file.
    ///
    /// # Errors
    /// If it cannot be read or has no gates.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::host(format!("read {}", path.display())))?;
        let gates = elf::gates(&elf).map_err(Error::Kernel)?;
        Ok(Self { elf: elf::trim(elf).map_err(Error::Kernel)?.into(), gates })
    }

    /// Where its host calls come from.
    #[must_use]
    pub fn gates(&self) -> Gates {
        self.gates
    }

    /// The same, for the filter.
    #[must_use]
    pub fn sites(&self) -> Sites {
        Sites { gate_end: self.gates.syscall_end, sigreturn_end: self.gates.sigreturn_end }
    }

    /// A file to execute the kernel from.
    ///
    /// The embedded kernel comes from `store` where possible, so that all domains of a host share its pages;
    /// else from a memory file of its own.
    pub(crate) fn executable(&self, store: Option<&Path>) -> Result<OwnedFd, Error> {
        if let (Cow::Borrowed(_), Some(store)) = (&self.elf, store)
            && let Some(fd) = self.stored(store)
        {
            return Ok(fd);
        }
        self.to_memfd()
    }

    /// The kernel's file in `store`, made if it is not there; none if that is not possible or not safe.
    fn stored(&self, store: &Path) -> Option<OwnedFd> {
        let me = rustix::process::geteuid();
        let dir = rustix::fs::open(store, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .ok()?;
        // Nobody but us may be able to change what will be executed.
        let private = |stat: &Stat| stat.st_uid == me.as_raw() && stat.st_mode & 0o022 == 0;
        let no_exec = rustix::fs::fstatvfs(&dir).ok()?.f_flag.contains(StatVfsMountFlags::NOEXEC);
        if !private(&rustix::fs::fstat(&dir).ok()?) || no_exec {
            return None;
        }
        let name = format!("guest-kernel-{:016x}", EMBEDDED_DIGEST);
        let open = || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&dir, &name, flags, Mode::empty()).ok()?;
            let stat = rustix::fs::fstat(&fd).ok()?;
            let whole = u64::try_from(stat.st_size).is_ok_and(|size| size == self.elf.len() as u64);
            (private(&stat) && whole && stat.st_mode & 0o001 != 0).then_some(fd)
        };
        open().or_else(|| {
            let temporary = format!("{name}.{}", std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&dir, &temporary, flags, Mode::from_raw_mode(0o755)).ok()?;
            let mut file = File::from(fd);
            let written = file.write_all(&self.elf).and_then(|()| file.sync_all());
            // Whatever our umask: domains have user ids of their own.
            let open_to_all = rustix::fs::fchmod(&file, Mode::from_raw_mode(0o755));
            let done = written.is_ok()
                && open_to_all.is_ok()
                && rustix::fs::renameat(&dir, &temporary, &dir, &name).is_ok();
            drop(file);
            if !done {
                // Nothing else can be done about a file that cannot be removed either.
                let _ = rustix::fs::unlinkat(&dir, &temporary, rustix::fs::AtFlags::empty());
            }
            open()
        })
    }

    /// A memfd with the ELF in it that nobody can change any more.
    fn to_memfd(&self) -> Result<OwnedFd, Error> {
        let doing = "make a memory file for the guest kernel";
        // MFD_EXEC is right, but unknown before Linux 6.3, where it was the only way anyway.
        let wanted = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("doppel-kernel", wanted | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create("doppel-kernel", wanted))
            .map_err(Error::os(doing))?;
        let mut file = File::from(fd);
        file.write_all(&self.elf).map_err(Error::host(doing))?;
        let fd = OwnedFd::from(file);
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(Error::os("seal the guest kernel"))?;
        Ok(fd)
    }
}

//! The guest kernel as a file: the embedded ELF, its gates, a sealed memfd to execute.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use doppel_confine::{ALLOWED, Sites, compile};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::launch::elf::{self, Gates};
use crate::launch::kernel_cache::KernelCache;
use crate::launch::symbols;
use crate::lock::lock;
use crate::{DomainConfig, Error, Kind};

/// The guest kernel built with this program, trimmed; empty in debug builds without `DOPPEL_EMBED_KERNEL=1`.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernel.elf"));
/// Its gates, found before trimming.
const EMBEDDED_GATES: Gates = include!(concat!(env!("OUT_DIR"), "/kernel_gates.rs"));
/// Digest of the trimmed ELF.
const EMBEDDED_DIGEST: u64 = include!(concat!(env!("OUT_DIR"), "/kernel_digest.rs"));

/// Digest of the guest kernel built with this program; 0 if there is none.
#[must_use]
pub fn kernel_digest() -> u64 {
    EMBEDDED_DIGEST
}

const _: () = assert!(symbols::SYMBOLS_BASE == doppel_abi_machine::layout::SYMBOLS_BASE);

/// What a domain's first process executes.
pub(crate) struct First {
    /// What tells it from others in a frozen image.
    pub digest: [u8; 32],
    /// The seccomp program it installs.
    pub filter: Arc<[u8]>,
    pub executable: Arc<OwnedFd>,
}

impl First {
    /// A guest kernel, or for a paene domain ourselves, as its attendant.
    pub fn of(config: &DomainConfig) -> Result<Self, Error> {
        if config.spec.kind == Kind::Paene {
            let exe = File::open("/proc/self/exe").map_err(Error::host("open this program"))?;
            return Ok(Self { digest: [0; 32], filter: Arc::new([]), executable: Arc::new(exe.into()) });
        }
        let kernel = match &config.kernel {
            Some(path) => Kernel::from_file(path)?,
            None => Kernel::embedded()?,
        };
        Ok(Self {
            digest: kernel.digest(),
            filter: kernel.filter(),
            executable: kernel.executable(config.store.as_deref())?,
        })
    }
}

/// A guest kernel: its ELF and the addresses its host calls come from.
#[derive(Debug)]
pub struct Kernel {
    elf: Cow<'static, [u8]>,
    gates: Gates,
    digest: u64,
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
        Ok(Self { elf: EMBEDDED.into(), gates: EMBEDDED_GATES, digest: EMBEDDED_DIGEST })
    }

    /// A kernel from a file.
    ///
    /// # Errors
    /// If it cannot be read or has no gates.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::host(format!("read {}", path.display())))?;
        let gates = elf::gates(&elf).map_err(Error::Kernel)?;
        let table = symbols::table(&elf).map_err(Error::Kernel)?;
        let elf = elf::trim(elf).and_then(|elf| symbols::attach(elf, &table)).map_err(Error::Kernel)?;
        let digest = elf::digest(&elf);
        Ok(Self { elf: elf.into(), gates, digest })
    }

    /// What tells this kernel from others in a frozen image.
    #[must_use]
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.digest.to_le_bytes());
        digest[8..16].copy_from_slice(&(self.elf.len() as u64).to_le_bytes());
        digest
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
    /// else from a memory file. It is opened once in a process.
    pub(crate) fn executable(&self, store: Option<&Path>) -> Result<Arc<OwnedFd>, Error> {
        static OPEN: Mutex<Option<(Option<PathBuf>, Arc<OwnedFd>)>> = Mutex::new(None);
        let Cow::Borrowed(_) = &self.elf else { return Ok(Arc::new(self.to_memfd()?)) };
        let mut open = lock(&OPEN);
        if let Some((of, fd)) = &*open
            && of.as_deref() == store
        {
            return Ok(fd.clone());
        }
        let shelved = store
            .and_then(|store| KernelCache::new(store, &self.elf, EMBEDDED_DIGEST))
            .and_then(|s| s.open());
        let fd = Arc::new(shelved.map_or_else(|| self.to_memfd(), Ok)?);
        *open = Some((store.map(Path::to_owned), fd.clone()));
        Ok(fd)
    }

    /// The seccomp program for it, as bytes; that of the embedded kernel is made once.
    pub(crate) fn filter(&self) -> Arc<[u8]> {
        static FILTER: OnceLock<Arc<[u8]>> = OnceLock::new();
        let make = || compile(ALLOWED, self.sites()).iter().flat_map(|i| i.to_bytes()).collect();
        match &self.elf {
            Cow::Borrowed(_) => FILTER.get_or_init(make).clone(),
            Cow::Owned(_) => make(),
        }
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

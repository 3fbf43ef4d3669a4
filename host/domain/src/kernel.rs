//! The guest kernel as a file: the embedded ELF, its gates, a sealed memfd to execute.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use doppel_confine::Sites;
use object::{Object, ObjectSymbol};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::Error;

/// The guest kernel built with this program; empty in debug builds without `DOPPEL_EMBED_KERNEL=1`.
static EMBEDDED: &[u8] = include_bytes!(env!("DOPPEL_KERNEL_ELF"));

/// A guest kernel: its ELF and the addresses its host calls come from.
#[derive(Debug)]
pub struct Kernel {
    elf: std::borrow::Cow<'static, [u8]>,
    gates: Gates,
}

/// Addresses of the guest kernel's two `syscall` instructions.
#[derive(Clone, Copy, Debug)]
pub struct Gates {
    /// The host-call instruction.
    pub syscall: u64,
    /// The address right after it.
    pub syscall_end: u64,
    /// The address right after the signal return's instruction.
    pub sigreturn_end: u64,
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
        Self::new(EMBEDDED.into())
    }

    /// A kernel from a file.
    ///
    /// # Errors
    /// If it cannot be read or has no gates.
    pub fn from_file(path: &std::path::Path) -> Result<Self, Error> {
        let elf = std::fs::read(path).map_err(Error::host(format!("read {}", path.display())))?;
        Self::new(elf.into())
    }

    fn new(elf: std::borrow::Cow<'static, [u8]>) -> Result<Self, Error> {
        let file = object::File::parse(&*elf).map_err(|e| Error::Kernel(format!("not an ELF file: {e}")))?;
        let (mut syscall, mut syscall_end, mut sigreturn_end) = (None, None, None);
        for symbol in file.symbols() {
            match symbol.name_bytes() {
                Ok(b"doppel_gate_syscall") => syscall = Some(symbol.address()),
                Ok(b"doppel_gate_syscall_end") => syscall_end = Some(symbol.address()),
                Ok(b"doppel_sigreturn_end") => sigreturn_end = Some(symbol.address()),
                _ => {}
            }
        }
        let need = |value: Option<u64>, name: &str| {
            value.ok_or_else(|| Error::Kernel(format!("it has no symbol {name}: not a guest kernel")))
        };
        let gates = Gates {
            syscall: need(syscall, "doppel_gate_syscall")?,
            syscall_end: need(syscall_end, "doppel_gate_syscall_end")?,
            sigreturn_end: need(sigreturn_end, "doppel_sigreturn_end")?,
        };
        Ok(Self { elf, gates })
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

    /// A memfd with the ELF in it that nobody can change any more.
    pub(crate) fn to_memfd(&self) -> Result<OwnedFd, Error> {
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

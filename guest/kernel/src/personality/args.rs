//! Arguments of a system call: raw register values and typed views of them.

use alloc::vec::Vec;

use bitflags::Flags;
use doppel_machine::cpu::CurrentRef;
use doppel_machine::user::UserPtr;

use crate::objects::lookup::caller::{PATH_MAX, read_string};
use crate::objects::vfs::fdtable::FileRef;
use crate::process::task::Thread;
use crate::{Errno, Result};

/// Kind of an argument, for tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Signed number.
    Int,
    /// Number in hexadecimal (flags).
    Hex,
    /// Number in octal (modes).
    Octal,
    /// Descriptor; -100 is AT_FDCWD.
    Fd,
    /// Address.
    Ptr,
    /// NUL-terminated string.
    Str,
    /// Buffer the call reads, its length in the next argument.
    Buf,
    /// Signal number.
    Sig,
}

/// The six arguments and the calling thread.
pub struct Args {
    /// The calling thread.
    pub thread: CurrentRef<Thread>,
    /// Raw values.
    pub raw: [u64; 6],
}

impl Args {
    /// Argument `i` as it is.
    pub fn u64(&self, i: usize) -> u64 {
        self.raw[i]
    }

    /// Argument `i` as a signed 64-bit number.
    pub fn i64(&self, i: usize) -> i64 {
        self.raw[i].cast_signed()
    }

    /// The low 32 bits of argument `i`.
    pub fn u32(&self, i: usize) -> u32 {
        self.raw[i] as u32
    }

    /// The low 32 bits of argument `i`, signed.
    pub fn i32(&self, i: usize) -> i32 {
        self.raw[i] as i32
    }

    /// Argument `i` as one of the numbers of a `T` ([`crate::core::numbers`]); EINVAL if it is none.
    #[inline]
    pub fn number<T: TryFrom<u32, Error = Errno>>(&self, i: usize) -> Result<T> {
        T::try_from(self.u32(i))
    }

    /// Argument `i` as flags; EINVAL for bits that `T` has no name for.
    #[inline]
    pub fn flags<T: Flags<Bits = u32>>(&self, i: usize) -> Result<T> {
        T::from_bits(self.u32(i)).ok_or(Errno::EINVAL)
    }

    /// As [`Self::flags`]; EINVAL also for flags outside `allowed`.
    #[inline]
    pub fn flags_of<T: Flags<Bits = u32> + Copy>(&self, i: usize, allowed: T) -> Result<T> {
        let flags = self.flags(i)?;
        if allowed.contains(flags) { Ok(flags) } else { Err(Errno::EINVAL) }
    }

    /// As [`Self::flags`], for calls that overlook bits they do not know.
    #[inline]
    pub fn known_flags<T: Flags<Bits = u32>>(&self, i: usize) -> T {
        T::from_bits_truncate(self.u32(i))
    }

    /// Argument `i` as a length or size.
    pub fn len(&self, i: usize) -> usize {
        self.raw[i] as usize
    }

    /// Argument `i` as a user address.
    pub fn ptr(&self, i: usize) -> UserPtr {
        UserPtr(self.raw[i])
    }

    /// The open file of the descriptor in argument `i`; EBADF also for O_PATH descriptors.
    #[inline]
    pub fn file(&self, i: usize) -> Result<FileRef<'_>> {
        self.thread.file(self.i32(i))
    }

    /// A path argument: at most PATH_MAX with its NUL, ENAMETOOLONG beyond. May be empty.
    pub fn path(&self, i: usize) -> Result<Vec<u8>> {
        read_string(self.ptr(i), PATH_MAX)
            .map_err(|e| if e == Errno::E2BIG { Errno::ENAMETOOLONG } else { e })
    }
}

//! Arguments of a system call: raw register values and typed views of them.

use alloc::vec::Vec;
use core::marker::PhantomData;

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

/// A type that a register is decoded into. What a call refuses is refused where Linux refuses it: types that can be wrong
/// ([`Bits`], [`Number`]) are asked by the handler.
pub trait FromArg: Sized {
    /// How `--trace` shows it.
    const KIND: Arg;
    /// Whether the type says all there is to know; flags without a type of their own do not.
    const TYPED: bool = true;

    /// Decodes the value of a register.
    fn from_arg(raw: u64) -> Self;
}

/// A descriptor, not looked up yet.
#[derive(Clone, Copy)]
pub struct RawFd(pub i32);

/// The address of a NUL-terminated string.
#[derive(Clone, Copy)]
pub struct UserStr(pub UserPtr);

/// A signal number, not checked yet.
#[derive(Clone, Copy)]
pub struct SigNo(pub i32);

/// Permission bits.
#[derive(Clone, Copy)]
pub struct FileMode(pub u32);

/// A key or an index, shown in hexadecimal.
#[derive(Clone, Copy)]
pub struct HexInt(pub i32);

/// A size, not cut to the address space.
#[derive(Clone, Copy)]
pub struct Size(pub u64);

/// A request number of ioctl and the like.
#[derive(Clone, Copy)]
pub struct Request(pub u32);

/// Flags that have no type yet.
#[derive(Clone, Copy)]
pub struct RawFlags(pub u32);

/// Flags, not checked yet.
#[derive(Clone, Copy)]
pub struct Bits<T> {
    register: u64,
    flags: PhantomData<T>,
}

/// The bits of flags: the low half of a register, or all of it.
pub trait Register {
    /// Of a register.
    fn of(register: u64) -> Self;
}

impl Register for u32 {
    #[inline(always)]
    fn of(register: u64) -> Self {
        register as u32
    }
}

impl Register for u64 {
    #[inline(always)]
    fn of(register: u64) -> Self {
        register
    }
}

impl<T: Flags<Bits: Register> + Copy> Bits<T> {
    /// The flags; EINVAL if one of them is not in `allowed`.
    #[inline]
    pub fn of(self, allowed: T) -> Result<T> {
        self.checked().and_then(|f| if allowed.contains(f) { Ok(f) } else { Err(Errno::EINVAL) })
    }

    /// The flags; EINVAL for bits without a name.
    #[inline]
    pub fn checked(self) -> Result<T> {
        T::from_bits(Register::of(self.register)).ok_or(Errno::EINVAL)
    }

    /// The flags, with all bits that were given.
    #[inline]
    pub fn any(self) -> T {
        T::from_bits_retain(Register::of(self.register))
    }
}

/// One number of several, not checked yet.
#[derive(Clone, Copy)]
pub struct Number<T> {
    number: u32,
    of: PhantomData<T>,
}

impl<T: TryFrom<u32, Error = Errno>> Number<T> {
    /// What it stands for; EINVAL if it is none of them.
    #[inline]
    pub fn get(self) -> Result<T> {
        T::try_from(self.number)
    }
}

/// Implements [`FromArg`]: type, kind, and the expression that makes it of a register.
macro_rules! from_arg {
    ($($type:ty, $kind:ident, $raw:ident => $value:expr;)+) => {
        $(impl FromArg for $type {
            const KIND: Arg = Arg::$kind;

            #[inline(always)]
            fn from_arg($raw: u64) -> Self {
                $value
            }
        })+
    };
}

from_arg! {
    i32, Int, raw => raw as i32;
    u32, Int, raw => raw as u32;
    i64, Int, raw => raw.cast_signed();
    usize, Int, raw => raw as usize;
    u64, Hex, raw => raw;
    UserPtr, Ptr, raw => UserPtr(raw);
    UserStr, Str, raw => UserStr(UserPtr(raw));
    RawFd, Fd, raw => RawFd(raw as i32);
    SigNo, Sig, raw => SigNo(raw as i32);
    FileMode, Octal, raw => FileMode(raw as u32);
    HexInt, Hex, raw => HexInt(raw as i32);
    Size, Int, raw => Size(raw);
    Request, Hex, raw => Request(raw as u32);
}

impl FromArg for RawFlags {
    const KIND: Arg = Arg::Hex;
    const TYPED: bool = false;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

impl<T> FromArg for Bits<T> {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self { register: raw, flags: PhantomData }
    }
}

impl<T> FromArg for Number<T> {
    const KIND: Arg = Arg::Int;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self { number: raw as u32, of: PhantomData }
    }
}

/// A row of the table: number, handler with the types of its arguments, support, note. The kinds `--trace` shows are made
/// from these types, which the compiler holds to the handler's signature.
macro_rules! call {
    ($nr:expr, $handler:ident($($type:ty),*), $support:expr, $note:expr $(,)?) => {
        $crate::personality::Syscall {
            nr: $nr,
            handler: |a| $crate::personality::args::decode!(a, $handler, $($type),*),
            support: $support,
            args: &[$(<$type as $crate::personality::args::FromArg>::KIND),*],
            typed: true $(&& <$type as $crate::personality::args::FromArg>::TYPED)*,
            note: $note,
        }
    };
}
pub(crate) use call;

/// Calls a handler with its arguments decoded.
macro_rules! decode {
    ($a:ident, $handler:ident, ) => { $handler($a) };
    ($a:ident, $handler:ident, $t0:ty $(, $t1:ty $(, $t2:ty $(, $t3:ty $(, $t4:ty $(, $t5:ty)?)?)?)?)?) => {
        $handler(
            $a,
            <$t0 as $crate::personality::args::FromArg>::from_arg($a.raw[0]),
            $(<$t1 as $crate::personality::args::FromArg>::from_arg($a.raw[1]),
            $(<$t2 as $crate::personality::args::FromArg>::from_arg($a.raw[2]),
            $(<$t3 as $crate::personality::args::FromArg>::from_arg($a.raw[3]),
            $(<$t4 as $crate::personality::args::FromArg>::from_arg($a.raw[4]),
            $(<$t5 as $crate::personality::args::FromArg>::from_arg($a.raw[5]),)?)?)?)?)?
        )
    };
}
pub(crate) use decode;

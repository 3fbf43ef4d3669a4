//! Arguments of a system call: raw register values and typed views of them.

use core::marker::PhantomData;

use bitflags::Flags;
use doppel_machine::cpu::CurrentRef;
use doppel_machine::user::UserPtr;

use crate::process::task::Thread;
use crate::{Errno, Result};

/// Kind of an argument, for tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Signed number.
    Int,
    /// Signed number of 64 bits (sizes, offsets).
    Long,
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

/// The calling thread, and what its registers hold: handlers get that decoded, by the types in their signature.
pub struct Args {
    /// The calling thread.
    pub thread: CurrentRef<Thread>,
    /// The registers of the six arguments.
    pub raw: [u64; 6],
}

/// A type that a register is decoded into. What a call refuses is refused where Linux refuses it: types that can be wrong
/// ([`Bits`], [`Number`]) are asked by the handler.
pub trait FromArg: Sized {
    /// How `--trace` shows it.
    const KIND: Arg;

    /// Decodes the value of a register.
    fn from_arg(raw: u64) -> Self;
}

/// A descriptor, not looked up yet.
#[derive(Clone, Copy)]
pub struct RawFd(pub i32);

/// The address of a NUL-terminated string.
#[derive(Clone, Copy)]
pub struct UserStr(pub UserPtr);

/// The address of a buffer that the call reads; the next argument is its length.
#[derive(Clone, Copy)]
pub struct UserBuf(pub UserPtr);

/// A signal number, not checked yet.
#[derive(Clone, Copy)]
pub struct SigNo(pub i32);

/// Permission bits.
#[derive(Clone, Copy)]
pub struct FileMode(pub u32);

/// The number of a device, as `makedev(3)` makes it.
#[derive(Clone, Copy)]
pub struct DeviceNumber(pub u32);

/// A user or group id; -1 leaves an id as it is.
#[derive(Clone, Copy)]
pub struct Id(pub u32);

impl Id {
    /// The id, if it is one.
    pub fn given(self) -> Option<u32> {
        (self.0 != u32::MAX).then_some(self.0)
    }
}

/// A key or an index, shown in hexadecimal.
#[derive(Clone, Copy)]
pub struct HexInt(pub i32);

/// A size, not cut to the address space.
#[derive(Clone, Copy)]
pub struct Size(pub u64);

/// A request number of ioctl and the like.
#[derive(Clone, Copy)]
pub struct Request(pub u32);

bitflags::bitflags! {
    /// The flags of calls that know none yet.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct NoFlags: u32 {}
}

bitflags::bitflags! {
    /// As [`NoFlags`], of calls that look at all of the register.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct NoLongFlags: u64 {}
}

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

    /// The flags that have a name, for calls that overlook bits they do not know.
    #[inline]
    pub fn known(self) -> T {
        T::from_bits_truncate(Register::of(self.register))
    }

    /// The flags, with all bits that were given.
    #[inline]
    pub fn any(self) -> T {
        T::from_bits_retain(Register::of(self.register))
    }
}

/// One number of several, not checked yet; shown in hexadecimal if `HEX`.
#[derive(Clone, Copy)]
pub struct Number<T, const HEX: bool = false> {
    number: u32,
    of: PhantomData<T>,
}

/// A number that is no count: requests and options whose bits have a meaning.
pub type Code<T> = Number<T, true>;

impl<T: TryFrom<u32, Error = Errno>, const HEX: bool> Number<T, HEX> {
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
    i64, Long, raw => raw.cast_signed();
    usize, Long, raw => raw as usize;
    u64, Hex, raw => raw;
    UserPtr, Ptr, raw => UserPtr(raw);
    UserStr, Str, raw => UserStr(UserPtr(raw));
    UserBuf, Buf, raw => UserBuf(UserPtr(raw));
    RawFd, Fd, raw => RawFd(raw as i32);
    SigNo, Sig, raw => SigNo(raw as i32);
    FileMode, Octal, raw => FileMode(raw as u32);
    DeviceNumber, Hex, raw => DeviceNumber(raw as u32);
    Id, Int, raw => Id(raw as u32);
    HexInt, Hex, raw => HexInt(raw as i32);
    Size, Long, raw => Size(raw);
    Request, Hex, raw => Request(raw as u32);
}

impl<T> FromArg for Bits<T> {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self { register: raw, flags: PhantomData }
    }
}

impl<T, const HEX: bool> FromArg for Number<T, HEX> {
    const KIND: Arg = if HEX { Arg::Hex } else { Arg::Int };

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self { number: raw as u32, of: PhantomData }
    }
}

/// A row of the table: number, handler with the types of its arguments, support, note. The kinds `--trace` shows are made
/// from these types, which the compiler holds to the handler's signature.
///
/// Handlers that programs call often are `#[inline]`: then decoding and handler are one function, else the one jumps to the
/// other.
macro_rules! call {
    ($nr:expr, $handler:ident($($type:ty),*), $support:expr, $note:expr $(,)?) => {
        $crate::personality::Syscall {
            nr: $nr,
            handler: |a| $crate::personality::args::decode!(a, $handler, $($type),*),
            support: $support,
            args: &[$(<$type as $crate::personality::args::FromArg>::KIND),*],
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

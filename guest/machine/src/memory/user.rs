//! Guest user memory: reached only by copying, and every copy may fault.
//!
//! Key types: [`UserPtr`] is an address a program *alleges* to be its own; nothing can be read through it
//! without a copy that checks the range and survives a fault ([`Fault`] = EFAULT). Copies run on the
//! current address space only.
//!
//! A page that a program may use need not be there yet ([`Personality::mend`](crate::trap::Personality::mend)). Copies of whole values
//! ([`UserPtr::read`], [`UserPtr::write`] and their like) have such pages made and go on: a call that has had an effect stores its result
//! there, and must not be made twice. So they are for those who hold no lock. Copies up to the first fault (`_some`) are for those who
//! do; what these are to meet is made before (`before_copies` of the kernel above). The copy routines are the exception table: a host SIGSEGV or SIGBUS whose
//! program counter lies in one of them resumes at its fix-up (trap.rs).

use alloc::vec::Vec;

use doppel_abi_machine::layout;

/// A user address could not be read or written: EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Plain data that may be copied from and to user memory byte by byte.
///
/// # Safety
/// Every bit pattern of `size_of::<Self>()` bytes is a valid value, and there is no padding.
pub unsafe trait Pod: Copy + Send + 'static {}

macro_rules! pod {
    ($($t:ty),*) => { $(
        // SAFETY: integers have no padding and no invalid values.
        unsafe impl Pod for $t {}
    )* };
}
pod!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);
// SAFETY: arrays of Pod have no padding beyond their elements'.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// Declares `#[repr(C)]` structs of integers as [`Pod`], checking at compile time that they have no padding.
///
/// Usage: `pod_struct! { /// doc pub struct Timespec { /// doc pub sec: i64, /// doc pub nsec: i64 } }`.
#[macro_export]
macro_rules! pod_struct {
    ($(#[$m:meta])* pub struct $name:ident { $($(#[$fm:meta])* pub $f:ident : $t:ty),* $(,)? }) => {
        $(#[$m])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $($(#[$fm])* pub $f: $t),* }
        const _: () = {
            const fn is_pod<T: $crate::user::Pod>() {}
            $( is_pod::<$t>(); )*
            assert!(size_of::<$name>() == 0 $( + size_of::<$t>() )*, "padding in a Pod struct");
        };
        impl Default for $name {
            fn default() -> Self { $crate::user::zeroed() }
        }
        $crate::user::impl_pod!($name);
    };
}

/// Implements [`Pod`] for a struct checked by [`pod_struct!`]; not for use elsewhere.
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_pod {
    ($name:ident) => {
        // SAFETY: pod_struct! checked that all fields are Pod and that there is no padding.
        unsafe impl $crate::user::Pod for $name {}
    };
}
#[doc(hidden)]
pub use crate::__impl_pod as impl_pod;

/// The all-zero value of a [`Pod`] type.
pub fn zeroed<T: Pod>() -> T {
    // SAFETY: every bit pattern of a Pod is valid.
    unsafe { core::mem::zeroed() }
}

/// The bytes of a [`Pod`] value.
pub fn bytes_of<T: Pod>(v: &T) -> &[u8] {
    // SAFETY: Pod has no padding, so all bytes are initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(v).cast(), size_of::<T>()) }
}

/// The bytes of a [`Pod`] value, to be overwritten.
pub fn bytes_of_mut<T: Pod>(v: &mut T) -> &mut [u8] {
    // SAFETY: any bytes make a valid Pod.
    unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(v).cast(), size_of::<T>()) }
}

/// An address in the current process, as a program gave it. Unchecked until copied through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UserPtr(pub u64);

impl UserPtr {
    /// Whether this is the null pointer.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `n` bytes further; wraps, which a later copy rejects.
    // Named as the pointer method it resembles; wrapping is not what `+` promises.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn add(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }

    #[inline]
    fn range(self, len: usize) -> Result<(), Fault> {
        let end = self.0.checked_add(len as u64).ok_or(Fault)?;
        if end <= layout::USER_END { Ok(()) } else { Err(Fault) }
    }

    /// Whether these bytes are user memory at all.
    pub(crate) fn check(self, len: usize) -> Result<(), Fault> {
        self.range(len)
    }

    /// Copies `dst.len()` bytes from user memory.
    #[inline]
    pub fn read_bytes(self, dst: &mut [u8]) -> Result<(), Fault> {
        self.range(dst.len())?;
        // SAFETY: as for read_some.
        let left = unsafe { copy_user(dst.as_mut_ptr() as u64, self.0, dst.len() as u64) };
        if left == 0 { Ok(()) } else { self.read_on(dst, left) }
    }

    /// Goes on with a copy that has faulted.
    #[cold]
    #[inline(never)]
    fn read_on(self, dst: &mut [u8], left: u64) -> Result<(), Fault> {
        mended(dst.len(), left, |done| self.add(done as u64).read_some(&mut dst[done..]))
    }

    /// Copies from user memory up to the first fault; `Err` if not even one byte could be read.
    #[inline]
    pub fn read_some(self, dst: &mut [u8]) -> Result<usize, Fault> {
        self.range(dst.len())?;
        // SAFETY: dst is ours; the source is user memory, and faults are fixed up.
        let left = unsafe { copy_user(dst.as_mut_ptr() as u64, self.0, dst.len() as u64) };
        partial(dst.len(), left)
    }

    /// Appends up to `len` bytes of user memory to `dst` within its spare capacity, up to the first fault;
    /// `Err` if not even one byte could be read.
    #[inline]
    pub fn read_append(self, dst: &mut Vec<u8>, len: usize) -> Result<usize, Fault> {
        let len = len.min(dst.capacity() - dst.len());
        self.range(len)?;
        let spare = dst.spare_capacity_mut();
        // SAFETY: the destination is the vector's spare capacity, at least len bytes; faults are fixed up.
        let left = unsafe { copy_user(spare.as_mut_ptr() as u64, self.0, len as u64) };
        let done = partial(len, left)?;
        // SAFETY: the copy wrote the first `done` bytes of the spare capacity, in ascending order.
        unsafe { dst.set_len(dst.len() + done) };
        Ok(done)
    }

    /// Copies `src` to user memory.
    #[inline]
    pub fn write_bytes(self, src: &[u8]) -> Result<(), Fault> {
        self.range(src.len())?;
        // SAFETY: as for write_some.
        let left = unsafe { copy_user(self.0, src.as_ptr() as u64, src.len() as u64) };
        if left == 0 { Ok(()) } else { self.write_on(src, left) }
    }

    /// Goes on with a copy that has faulted.
    #[cold]
    #[inline(never)]
    fn write_on(self, src: &[u8], left: u64) -> Result<(), Fault> {
        mended(src.len(), left, |done| self.add(done as u64).write_some(&src[done..]))
    }

    /// Copies to user memory up to the first fault; `Err` if not even one byte could be written.
    #[inline]
    pub fn write_some(self, src: &[u8]) -> Result<usize, Fault> {
        self.range(src.len())?;
        // SAFETY: src is ours; the destination is user memory, and faults are fixed up.
        let left = unsafe { copy_user(self.0, src.as_ptr() as u64, src.len() as u64) };
        partial(src.len(), left)
    }

    /// Zeroes `len` bytes of user memory up to the first fault; returns how many.
    #[inline]
    pub fn zero_some(self, len: usize) -> Result<usize, Fault> {
        self.range(len)?;
        // SAFETY: user memory only; faults are fixed up.
        let left = unsafe { zero_user(self.0, len as u64) };
        partial(len, left)
    }

    /// Copies one value from user memory.
    #[inline]
    pub fn read<T: Pod>(self) -> Result<T, Fault> {
        let mut v = zeroed::<T>();
        self.read_bytes(bytes_of_mut(&mut v))?;
        Ok(v)
    }

    /// Copies one value to user memory.
    #[inline]
    pub fn write<T: Pod>(self, v: &T) -> Result<(), Fault> {
        self.write_bytes(bytes_of(v))
    }

    /// As [`Self::read_bytes`], for those who hold locks: what is not there is a fault.
    #[inline]
    pub fn peek_bytes(self, dst: &mut [u8]) -> Result<(), Fault> {
        if self.read_some(dst)? == dst.len() { Ok(()) } else { Err(Fault) }
    }

    /// As [`Self::read`], for those who hold locks.
    #[inline]
    pub fn peek<T: Pod>(self) -> Result<T, Fault> {
        let mut v = zeroed::<T>();
        self.peek_bytes(bytes_of_mut(&mut v))?;
        Ok(v)
    }

    /// As [`Self::write_bytes`], for those who hold locks.
    #[inline]
    pub fn poke_bytes(self, src: &[u8]) -> Result<(), Fault> {
        if self.write_some(src)? == src.len() { Ok(()) } else { Err(Fault) }
    }

    /// Copies a NUL-terminated string of at most `buf.len()` bytes (with its NUL) and returns its length
    /// without the NUL, or `None` if no NUL was found in that many bytes.
    pub fn read_cstr(self, buf: &mut [u8]) -> Result<Option<usize>, Fault> {
        let mut done = 0;
        while done < buf.len() {
            // Up to the end of the page, so that a string at the end of a mapping does not fault.
            let at = self.add(done as u64);
            let room = (layout::PAGE - at.0 % layout::PAGE) as usize;
            let n = room.min(buf.len() - done).min(256);
            at.read_bytes(&mut buf[done..done + n])?;
            if let Some(i) = buf[done..done + n].iter().position(|&b| b == 0) {
                return Ok(Some(done + i));
            }
            done += n;
        }
        Ok(None)
    }

    /// Reads an aligned 32-bit word atomically (futex).
    pub fn load_u32(self) -> Result<u32, Fault> {
        self.range(4)?;
        let mut v = 0u32;
        // SAFETY: user memory only; faults are fixed up; v is ours.
        if unsafe { load_user_u32(self.0, &raw mut v) } == 0 { Ok(v) } else { Err(Fault) }
    }

    /// Compares and exchanges an aligned 32-bit word; `Ok(previous value)`.
    pub fn cmpxchg_u32(self, old: u32, new: u32) -> Result<u32, Fault> {
        self.range(4)?;
        let mut v = old;
        // SAFETY: user memory only; faults are fixed up; v is ours.
        if unsafe { cmpxchg_user_u32(self.0, &raw mut v, new) } == 0 { Ok(v) } else { Err(Fault) }
    }
}

/// Where a copy met memory that was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The page.
    pub page: u64,
    /// It is mapped, but has no memory behind it (SIGBUS).
    pub bus: bool,
}

/// The form in which a vCPU keeps a [`Missed`].
pub(crate) fn missed(addr: u64, bus: bool) -> u64 {
    addr & !(layout::PAGE - 1) | u64::from(bus) << 1 | 1
}

/// The last fault of a copy on this vCPU, once.
pub fn take_missed() -> Option<Missed> {
    let word = crate::cpu::vcpu().missed.swap(0, core::sync::atomic::Ordering::Relaxed);
    (word != 0).then_some(Missed { page: word & !(layout::PAGE - 1), bus: word & 2 != 0 })
}

/// How often in a row a copy that does not come on is tried again.
const RETRIES: u32 = 64;

/// Goes on with a copy of `len` bytes of which so many are left, as long as the memory that it meets can be made.
fn mended(len: usize, left: u64, mut rest: impl FnMut(usize) -> Result<usize, Fault>) -> Result<(), Fault> {
    let mut done = len - left as usize;
    let mut retries = 0;
    // Where the kernel's functions are tested there is no kernel.
    while crate::trap::has_personality() && crate::trap::personality().mend() && retries < RETRIES {
        let got = rest(done).unwrap_or(0);
        retries = if got == 0 { retries + 1 } else { 0 };
        done += got;
        if done == len {
            return Ok(());
        }
    }
    Err(Fault)
}

#[inline]
fn partial(len: usize, left: u64) -> Result<usize, Fault> {
    let done = len - left as usize;
    if done == 0 && len != 0 { Err(Fault) } else { Ok(done) }
}

/// Copies between user memory and the page file window or the image (both sides may fault: SIGBUS).
pub(crate) unsafe fn copy_raw(dst: u64, src: u64, len: u64) -> u64 {
    // SAFETY: forwarded: the caller vouches for the non-user side.
    unsafe { copy_user(dst, src, len) }
}

// The routines below are the exception table: trap.rs makes a fault inside them return at once. None of
// them touches the stack, so the return address is on top of it.

core::arch::global_asm!(
    ".pushsection .text.doppel_user,\"ax\",@progbits",
    // copy_user(dst, src, len) -> bytes left. rcx counts what is left at every access to memory. Up to 768 bytes go
    // by general registers, because `rep movsb` takes long to start (mem.rs); and all do where the destination is 1-15 bytes
    // ahead of the source modulo a page, because there it takes ten times as long (AMD Zen 3 and 4). A fault among
    // these is tried again by single bytes (fixup), so that the count is exact.
    ".global doppel_copy_user",
    "doppel_copy_user:",
    "mov rcx, rdx",
    "cmp rdx, 8",
    "jb 4f",
    "cmp rdx, 64",
    "ja 9f",
    "2: mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rcx, 8",
    "cmp rcx, 8",
    "jae 2b",
    "8: test rcx, rcx",
    "jz 5f",
    // The last 8 bytes, some of them a second time.
    "mov rax, [rsi+rcx-8]",
    "mov [rdi+rcx-8], rax",
    "xor eax, eax",
    "ret",
    "9: cmp rdx, 768",
    "jbe 7f",
    "lea eax, [rdi-1]",
    "sub eax, esi",
    "and eax, 4095",
    "cmp eax, 15",
    "jb 7f",
    "rep movsb",
    "mov rax, rcx",
    "ret",
    "7: mov rax, [rsi]",
    "mov r8, [rsi+8]",
    "mov r9, [rsi+16]",
    "mov r10, [rsi+24]",
    "mov [rdi], rax",
    "mov [rdi+8], r8",
    "mov [rdi+16], r9",
    "mov [rdi+24], r10",
    "add rsi, 32",
    "add rdi, 32",
    "sub rcx, 32",
    "cmp rcx, 32",
    "jae 7b",
    // Fewer than 32 are left, and more than 64 were there.
    "cmp rcx, 8",
    "jae 2b",
    "jmp 8b",
    ".global doppel_copy_user_bytes",
    "doppel_copy_user_bytes:",
    "4: test rcx, rcx",
    "jz 5f",
    "6: mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jnz 6b",
    "5: xor eax, eax",
    "ret",
    // zero_user(dst, len) -> bytes left; as copy_user.
    ".global doppel_zero_user",
    "doppel_zero_user:",
    "mov rcx, rsi",
    "xor eax, eax",
    "cmp rcx, 64",
    "ja 3f",
    "2: cmp rcx, 8",
    "jb 4f",
    "mov [rdi], rax",
    "add rdi, 8",
    "sub rcx, 8",
    "jmp 2b",
    "3: rep stosb",
    "mov rax, rcx",
    "ret",
    ".global doppel_zero_user_bytes",
    "doppel_zero_user_bytes:",
    "4: test rcx, rcx",
    "jz 5f",
    "6: mov byte ptr [rdi], 0",
    "inc rdi",
    "dec rcx",
    "jnz 6b",
    "5: xor eax, eax",
    "ret",
    ".global doppel_user_word",
    "doppel_user_word:",
    // load_user_u32(addr, out) -> 0 or 1
    ".global doppel_load_user_u32",
    "doppel_load_user_u32:",
    "mov eax, [rdi]",
    "mov [rsi], eax",
    "xor eax, eax",
    "ret",
    // cmpxchg_user_u32(addr, old, new) -> 0 or 1
    ".global doppel_cmpxchg_user_u32",
    "doppel_cmpxchg_user_u32:",
    "mov eax, [rsi]",
    "lock cmpxchg [rdi], edx",
    "mov [rsi], eax",
    "xor eax, eax",
    "ret",
    // xsave_user(area, features) -> 0 or 1; XSAVE writes one word of the header only
    ".global doppel_xsave_user",
    "doppel_xsave_user:",
    "xor ecx, ecx",
    "mov [rdi+512], rcx",
    "mov [rdi+520], rcx",
    "mov [rdi+528], rcx",
    "mov [rdi+536], rcx",
    "mov [rdi+544], rcx",
    "mov [rdi+552], rcx",
    "mov [rdi+560], rcx",
    "mov [rdi+568], rcx",
    "mov eax, esi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "xsave64 [rdi]",
    "xor eax, eax",
    "ret",
    // xrstor_user(area, features) -> 0 or 1
    ".global doppel_xrstor_user",
    "doppel_xrstor_user:",
    "mov eax, esi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "xrstor64 [rdi]",
    "xor eax, eax",
    "ret",
    ".global doppel_user_word_fixup",
    "doppel_user_word_fixup:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "doppel_copy_user"]
    fn copy_user(dst: u64, src: u64, len: u64) -> u64;
    #[link_name = "doppel_zero_user"]
    fn zero_user(dst: u64, len: u64) -> u64;
    #[link_name = "doppel_load_user_u32"]
    fn load_user_u32(addr: u64, out: *mut u32) -> u64;
    #[link_name = "doppel_cmpxchg_user_u32"]
    fn cmpxchg_user_u32(addr: u64, old: *mut u32, new: u32) -> u64;
    /// The state the processor holds for the program, as a standard XSAVE area.
    #[link_name = "doppel_xsave_user"]
    pub(crate) fn xsave_user(area: u64, features: u64) -> u64;
    /// And back; what the processor refuses counts as a fault.
    #[link_name = "doppel_xrstor_user"]
    pub(crate) fn xrstor_user(area: u64, features: u64) -> u64;
    static doppel_copy_user_bytes: u8;
    static doppel_zero_user_bytes: u8;
    static doppel_user_word: u8;
    static doppel_user_word_fixup: u8;
}

/// How to resume a fault inside a user copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixup {
    /// `rcx` holds the bytes left: return it to the caller of the copy routine.
    ReturnRcx,
    /// Return 1 to the caller.
    ReturnOne,
    /// Go on at this address, which does the rest byte by byte.
    Resume(u64),
}

/// What to do about a fault at `pc`, if it was inside one of the routines above.
pub(crate) fn fixup(pc: u64) -> Option<Fixup> {
    // In ascending order: where each part ends, and what a fault before that end means.
    let parts = [
        (copy_user as *const () as u64, None),
        // `rep movsb` and `rep stosb` lie in the first parts too: by single bytes they fault at the same one.
        (
            (&raw const doppel_copy_user_bytes) as u64,
            Some(Fixup::Resume((&raw const doppel_copy_user_bytes) as u64)),
        ),
        (zero_user as *const () as u64, Some(Fixup::ReturnRcx)),
        (
            (&raw const doppel_zero_user_bytes) as u64,
            Some(Fixup::Resume((&raw const doppel_zero_user_bytes) as u64)),
        ),
        ((&raw const doppel_user_word) as u64, Some(Fixup::ReturnRcx)),
        ((&raw const doppel_user_word_fixup) as u64, Some(Fixup::ReturnOne)),
    ];
    parts.into_iter().find(|(end, _)| pc < *end).and_then(|(_, f)| f)
}

impl From<Fault> for doppel_abi_linux::errno::Errno {
    fn from(_: Fault) -> Self {
        Self::EFAULT
    }
}

impl UserPtr {
    /// Copies between this user range and kernel-mapped memory; `order` puts (dst, src) from our address.
    #[inline]
    pub(crate) fn transfer(self, len: usize, order: impl Fn(u64) -> (u64, u64)) -> Result<usize, Fault> {
        self.range(len)?;
        let (dst, src) = order(self.0);
        // SAFETY: one side is checked user memory, the other was checked by the caller; faults are fixed up.
        let left = unsafe { copy_user(dst, src, len as u64) };
        partial(len, left)
    }
}

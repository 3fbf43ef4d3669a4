//! Memory policy (`numa(7)`): of the one node that there is.

use core::sync::atomic::Ordering;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::memory::PAGE;
use crate::objects::vfs::file_map::range;
use crate::personality::Support::Stub;
use crate::personality::args::{Arg, Bits, FromArg, NoLongFlags, Size};
use crate::personality::memory::remote::accessible;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

const CAP_SYS_NICE: u32 = 23;

/// The family.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::GET_MEMPOLICY,
        get_mempolicy(UserPtr, UserPtr, Size, UserPtr, Bits<PolicyFlags>),
        Stub,
        "one memory node"
    ),
    call!(nr::SET_MEMPOLICY, set_mempolicy(PolicyMode, UserPtr, i64), Stub, "one memory node"),
    call!(nr::MBIND, mbind(UserPtr, u64, PolicyMode, UserPtr, i64, Bits<MoveFlags>), Stub, "one memory node"),
    call!(
        nr::SET_MEMPOLICY_HOME_NODE,
        set_mempolicy_home_node(UserPtr, u64, u64, Bits<NoLongFlags>),
        Stub,
        "one memory node: no mapping has a policy"
    ),
    call!(nr::MIGRATE_PAGES, migrate_pages(i32, Size, UserPtr, UserPtr), Stub, "one memory node"),
    call!(
        nr::MOVE_PAGES,
        move_pages(i32, Size, UserPtr, UserPtr, UserPtr, Bits<MoveFlags>),
        Stub,
        "one memory node, on which everything is taken to be"
    ),
];

bitflags::bitflags! {
    /// `MPOL_MF_` flags of `mbind(2)` and `move_pages(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct MoveFlags: u64 {
        const STRICT = 1;
        const MOVE = 2;
        const MOVE_ALL = 4;
    }
}

impl MoveFlags {
    /// Pages that others have too are moved only for who may change others' priorities.
    fn permitted(self, a: &Args) -> Result<()> {
        let ok = !self.contains(Self::MOVE_ALL) || a.thread.cred().capable(CAP_SYS_NICE);
        if ok { Ok(()) } else { Err(Errno::EPERM) }
    }
}

bitflags::bitflags! {
    /// `MPOL_F_` flags of `get_mempolicy(2)`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct PolicyFlags: u64 {
        const NODE = 1;
        const ADDR = 2;
        const MEMS_ALLOWED = 4;
    }
}

/// A memory policy and its flags, not checked yet.
#[derive(Clone, Copy)]
struct PolicyMode(u32);

impl FromArg for PolicyMode {
    const KIND: Arg = Arg::Hex;

    #[inline(always)]
    fn from_arg(raw: u64) -> Self {
        Self(raw as u32)
    }
}

impl PolicyMode {
    /// EINVAL for policies there are not.
    fn check(self) -> Result<()> {
        /// MPOL_WEIGHTED_INTERLEAVE.
        const LAST: u32 = 6;
        const MODE_FLAGS: u32 = 7 << 13;
        if self.0 & !MODE_FLAGS > LAST { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

fn get_mempolicy(
    a: &Args,
    mode: UserPtr,
    nodes: UserPtr,
    Size(max): Size,
    UserPtr(addr): UserPtr,
    flags: Bits<PolicyFlags>,
) -> Result<u64> {
    let flags = flags.checked()?;
    let of_address = flags.contains(PolicyFlags::ADDR);
    if !of_address && addr != 0 {
        return Err(Errno::EINVAL);
    }
    if of_address && a.thread.space().mm.vma(addr).is_none() {
        return Err(Errno::EFAULT);
    }
    if !mode.is_null() {
        mode.write(&0u32)?;
    }
    if !nodes.is_null() && max > 0 {
        // The only node, or no node at all for the default policy.
        let mask = u64::from(flags.contains(PolicyFlags::MEMS_ALLOWED));
        nodes.write(&mask)?;
        let words = max.div_ceil(64).min(16);
        for i in 1..words {
            nodes.add(i * 8).write(&0u64)?;
        }
    }
    Ok(0)
}

fn set_mempolicy(_: &Args, mode: PolicyMode, _nodes: UserPtr, _max: i64) -> Result<u64> {
    mode.check().map(|()| 0)
}

fn mbind(
    a: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    mode: PolicyMode,
    _nodes: UserPtr,
    _max: i64,
    flags: Bits<MoveFlags>,
) -> Result<u64> {
    flags.checked()?.permitted(a)?;
    mode.check()?;
    let (start, end) = range(addr, len)?;
    if start < end && !a.thread.space().mm.is_covered(start, end) {
        return Err(Errno::EFAULT);
    }
    Ok(0)
}

fn set_mempolicy_home_node(
    _: &Args,
    UserPtr(addr): UserPtr,
    len: u64,
    home: u64,
    flags: Bits<NoLongFlags>,
) -> Result<u64> {
    if !addr.is_multiple_of(PAGE) || flags.checked().is_err() || home != 0 {
        return Err(Errno::EINVAL);
    }
    let end =
        len.checked_next_multiple_of(PAGE).and_then(|len| addr.checked_add(len)).ok_or(Errno::EINVAL)?;
    // Of a mapping without a policy there is none to be changed.
    if end == addr { Ok(0) } else { Err(Errno::ENOENT) }
}

/// Whether the one node is in a mask of nodes; EINVAL if it has others that no kernel could have.
fn has_node(mask: UserPtr, max: u64) -> Result<bool> {
    /// Most nodes of a kernel (`MAX_NUMNODES`), of which all beyond the first are absent here.
    const MOST: u64 = 1024;
    let bits = max.saturating_sub(1);
    if max == 0 || mask.is_null() {
        return Ok(false);
    }
    if bits > PAGE * 8 {
        return Err(Errno::EINVAL);
    }
    let mut first = false;
    for i in 0..bits.div_ceil(64) {
        let word: u64 = mask.add(8 * i).read()?;
        let left = bits - 64 * i;
        let word = if left < 64 { word & ((1 << left) - 1) } else { word };
        if 64 * i >= MOST && word != 0 {
            return Err(Errno::EINVAL);
        }
        first |= i == 0 && word & 1 != 0;
    }
    Ok(first)
}

fn migrate_pages(a: &Args, pid: i32, Size(max): Size, old: UserPtr, new: UserPtr) -> Result<u64> {
    has_node(old, max)?;
    let new = has_node(new, max)?;
    if pid != 0 {
        accessible(a, pid)?;
    }
    // Where it is to go there is nothing, or it is there.
    if new { Ok(0) } else { Err(Errno::EINVAL) }
}

fn move_pages(
    a: &Args,
    pid: i32,
    Size(count): Size,
    pages: UserPtr,
    nodes: UserPtr,
    status: UserPtr,
    flags: Bits<MoveFlags>,
) -> Result<u64> {
    let flags = flags.of(MoveFlags::MOVE | MoveFlags::MOVE_ALL)?;
    flags.permitted(a)?;
    let other = if pid == 0 { None } else { Some(accessible(a, pid)?) };
    let space = match &other {
        Some(process) => process.space(),
        None => a.thread.space().clone(),
    };
    for i in 0..count {
        let at: u64 = pages.add(8 * i).read()?;
        if !nodes.is_null() {
            match nodes.add(4 * i).read::<i32>()? {
                0 => {}
                _ => return Err(Errno::ENODEV),
            }
        }
        let said = if space.mm.vma(at).is_some() { 0i32 } else { -i32::from(Errno::EFAULT.0) };
        status.add(4 * i).write(&said)?;
        // There may be very many.
        if a.thread.exiting.load(Ordering::SeqCst) {
            return Err(Errno::EINTR);
        }
    }
    Ok(0)
}

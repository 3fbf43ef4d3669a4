//! System calls on keys and keyrings.

mod control;
mod parent;
mod text;

use alloc::sync::Arc;

use doppel_abi_linux::syscalls::nr;
use doppel_algo::keys::{Destination, Kind};
use doppel_machine::arena;
use doppel_machine::user::UserPtr;

use self::control::sys_keyctl;
use crate::personality::Support::Full;
use crate::personality::args::{UserBuf, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::process::keys;
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::ADD_KEY,
        sys_add_key(UserStr, UserStr, UserBuf, usize, i32),
        Full,
        "types keyring, user, logon and big_key; others: ENODEV"
    ),
    call!(
        nr::REQUEST_KEY,
        sys_request_key(UserStr, UserStr, UserStr, i32),
        Full,
        "what is not there is not made, as without /sbin/request-key"
    ),
    call!(
        nr::KEYCTL,
        sys_keyctl(i32, u64, u64, u64, u64),
        Full,
        "without public keys, Diffie-Hellman and watches: EOPNOTSUPP, as Linux built without them"
    ),
];

/// Most bytes that a key can be given.
const CONTENT_MAX: usize = (1 << 20) - 1;

/// ENOMEM if the kernel has no memory to spare for one more key.
fn room() -> Result<()> {
    if arena::low() { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Copies the content of a key.
fn content(from: UserPtr, len: usize) -> Result<Arc<[u8]>> {
    let mut bytes = alloc::vec![0; len];
    from.read_bytes(&mut bytes)?;
    Ok(bytes.into())
}

fn sys_add_key(
    a: &Args,
    UserStr(kind): UserStr,
    UserStr(description): UserStr,
    UserBuf(from): UserBuf,
    len: usize,
    ring: i32,
) -> Result<u64> {
    if len > CONTENT_MAX {
        return Err(Errno::EINVAL);
    }
    let name = text::kind(kind)?;
    let description = text::given(description)?.filter(|d| !d.is_empty());
    if description.as_ref().is_some_and(|d| d[0] == b'.') && name.starts_with(b"keyring") {
        return Err(Errno::EPERM);
    }
    room()?;
    let content = content(from, len)?;
    let kind = Kind::by_name(&name);
    keys::call(&a.thread, |c| c.add(kind, description.as_deref(), &content, ring)).map(text::number)
}

fn sys_request_key(
    a: &Args,
    UserStr(kind): UserStr,
    UserStr(description): UserStr,
    UserStr(callout): UserStr,
    ring: i32,
) -> Result<u64> {
    let name = text::kind(kind)?;
    let description = text::read(description)?;
    let make = text::given(callout)?.is_some();
    room()?;
    let kind = Kind::by_name(&name);
    keys::call(&a.thread, |c| c.request(kind, &description, make, ring)).map(text::number)
}

/// KEYCTL_SET_REQKEY_KEYRING. Value: what it was.
fn set_destination(a: &Args, number: i32) -> Result<u64> {
    const NO_CHANGE: i32 = -1;
    let old = a.thread.keyrings.lock().destination;
    if number != NO_CHANGE {
        let new = Destination::by_number(number).ok_or(Errno::EINVAL)?;
        room()?;
        keys::call(&a.thread, |c| match new {
            Destination::Thread => c.thread_ring().map(drop),
            Destination::Process => c.process_ring().map(drop),
            _ => Ok(()),
        })?;
        a.thread.keyrings.lock().destination = new;
    }
    Ok(text::number(old.number()))
}

/// KEYCTL_GET_PERSISTENT; `uid` -1 for the caller's own.
fn persistent(a: &Args, uid: u32, into: i32) -> Result<u64> {
    const CAP_SETUID: u32 = 7;
    let cred = a.thread.cred();
    let uid = if uid == u32::MAX { cred.ruid } else { uid };
    if uid != cred.ruid && uid != cred.euid && !cred.has(CAP_SETUID) {
        return Err(Errno::EPERM);
    }
    room()?;
    keys::call(&a.thread, |c| c.persistent(uid, into)).map(text::number)
}

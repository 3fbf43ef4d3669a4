//! keyctl: one call for each of its commands.

use alloc::vec::Vec;

use doppel_algo::keys::{Content, Kind};
use doppel_machine::user::UserPtr;

use super::{CONTENT_MAX, content, parent, persistent, room, set_destination, text};
use crate::core::numbers::numbers;
use crate::personality::Args;
use crate::process::keys;
use crate::{Errno, Result};

numbers! {
    /// Commands of `keyctl(2)`.
    enum Command {
        GetKeyringId = 0,
        JoinSessionKeyring = 1,
        Update = 2,
        Revoke = 3,
        Chown = 4,
        SetPerm = 5,
        Describe = 6,
        Clear = 7,
        Link = 8,
        Unlink = 9,
        Search = 10,
        Read = 11,
        Instantiate = 12,
        Negate = 13,
        SetReqkeyKeyring = 14,
        SetTimeout = 15,
        AssumeAuthority = 16,
        GetSecurity = 17,
        SessionToParent = 18,
        Reject = 19,
        InstantiateIov = 20,
        Invalidate = 21,
        GetPersistent = 22,
        RestrictKeyring = 29,
        Move = 30,
        Capabilities = 31,
    }
}

/// Most bytes that KEYCTL_UPDATE takes.
const UPDATE_MAX: usize = 4096;
/// What KEYCTL_CAPABILITIES tells: itself, persistent keyrings, big keys, INVALIDATE, RESTRICT_KEYRING, MOVE; names and tags
/// of keys by namespace.
const CAPABILITIES: [u8; 2] = [0x01 | 0x02 | 0x10 | 0x20 | 0x40 | 0x80, 0x01 | 0x02];

pub(super) fn sys_keyctl(a: &Args, command: i32, b: u64, c: u64, d: u64, e: u64) -> Result<u64> {
    let command = Command::try_from(command.cast_unsigned()).map_err(|_| Errno::EOPNOTSUPP)?;
    // Keys and numbers are 32 bits wide.
    let (key, other) = (b as i32, c as i32);
    match command {
        Command::GetKeyringId => {
            room()?;
            keys::call(&a.thread, |k| k.id(key, other != 0)).map(text::number)
        }
        Command::JoinSessionKeyring => join(a, UserPtr(b)),
        Command::Update => update(a, key, UserPtr(c), d as usize),
        Command::Revoke => done(a, |k| k.revoke(key)),
        Command::Chown => {
            let id = |n: u64| (n as u32 != u32::MAX).then_some(n as u32);
            done(a, |k| k.chown(key, id(c), id(d)))
        }
        Command::SetPerm => done(a, |k| k.set_perm(key, c as u32)),
        Command::Describe => describe(a, key, UserPtr(c), d as usize),
        Command::Clear => done(a, |k| k.clear(key)),
        Command::Link => done(a, |k| k.link(key, other)),
        Command::Unlink => done(a, |k| k.unlink(key, other)),
        Command::Search => search(a, key, UserPtr(c), UserPtr(d), e as i32),
        Command::Read => read(a, key, UserPtr(c), d as usize),
        Command::Instantiate => instantiate(UserPtr(c), d as usize),
        Command::InstantiateIov => instantiate_iov(UserPtr(c), d),
        Command::Negate => Err(Errno::EPERM),
        Command::Reject => reject(d as u32),
        Command::SetReqkeyKeyring => set_destination(a, key),
        Command::SetTimeout => done(a, |k| k.set_timeout(key, c as u32)),
        Command::AssumeAuthority => match key {
            0 => Ok(0),
            n if n < 0 => Err(Errno::EINVAL),
            _ => Err(Errno::ENOKEY),
        },
        Command::GetSecurity => label(a, key, UserPtr(c), d as usize),
        Command::SessionToParent => parent::give_session(a),
        Command::Invalidate => done(a, |k| k.invalidate(key)),
        Command::GetPersistent => persistent(a, b as u32, other),
        Command::RestrictKeyring => restrict(a, key, UserPtr(c), UserPtr(d)),
        Command::Move => {
            const EXCLUSIVE: u32 = 1;
            let flags = e as u32;
            if flags & !EXCLUSIVE != 0 {
                return Err(Errno::EINVAL);
            }
            done(a, |k| k.shift(key, other, d as i32, flags == EXCLUSIVE))
        }
        Command::Capabilities => capabilities(UserPtr(b), c as usize),
    }
}

/// A command that gives nothing.
fn done(a: &Args, f: impl FnOnce(&mut doppel_algo::keys::Caller<'_>) -> Result<()>) -> Result<u64> {
    room()?;
    keys::call(&a.thread, f).map(|()| 0)
}

fn join(a: &Args, name: UserPtr) -> Result<u64> {
    let name = text::given(name)?;
    if name.as_ref().is_some_and(|n| n.starts_with(b".")) {
        return Err(Errno::EPERM);
    }
    room()?;
    keys::call(&a.thread, |k| k.join(name.as_deref())).map(text::number)
}

fn update(a: &Args, key: i32, from: UserPtr, len: usize) -> Result<u64> {
    if len > UPDATE_MAX {
        return Err(Errno::EINVAL);
    }
    let content = content(from, len)?;
    done(a, |k| k.update(key, &content))
}

/// Gives all of an answer to who has room for it. Value: how long it is.
fn answer(bytes: &[u8], to: UserPtr, room: usize) -> Result<u64> {
    if !to.is_null() && room >= bytes.len() {
        to.write_bytes(bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn describe(a: &Args, key: i32, to: UserPtr, room: usize) -> Result<u64> {
    answer(&keys::call(&a.thread, |k| k.describe(key))?, to, room)
}

fn read(a: &Args, key: i32, to: UserPtr, room: usize) -> Result<u64> {
    match keys::call(&a.thread, |k| k.read(key))? {
        Content::Bytes(b) => answer(&b, to, room),
        Content::Links(links) => {
            if !to.is_null() && !room.is_multiple_of(size_of::<i32>()) {
                return Err(Errno::EINVAL);
            }
            let bytes: Vec<u8> = links.iter().flat_map(|s| s.to_ne_bytes()).collect();
            answer(&bytes, to, room)
        }
    }
}

fn search(a: &Args, ring: i32, kind: UserPtr, description: UserPtr, into: i32) -> Result<u64> {
    let name = text::kind(kind)?;
    let description = text::read(description)?;
    room()?;
    let kind = Kind::by_name(&name);
    keys::call(&a.thread, |k| k.find(ring, kind, &description, into)).map(text::number)
}

/// Nobody is asked to make keys, so nobody has the right to.
fn instantiate(_from: UserPtr, len: usize) -> Result<u64> {
    Err(if len > CONTENT_MAX { Errno::EINVAL } else { Errno::EPERM })
}

fn instantiate_iov(vector: UserPtr, count: u64) -> Result<u64> {
    const COUNT_MAX: u64 = 1024;
    let count = u64::from(count as u32);
    if vector.is_null() {
        return instantiate(vector, 0);
    }
    if count > COUNT_MAX {
        return Err(Errno::EINVAL);
    }
    let mut len = 0_usize;
    for i in 0..count {
        let [_, n] = vector.add(i * 16).read::<[u64; 2]>()?;
        let n = isize::try_from(n).map_err(|_| Errno::EINVAL)?;
        len = len.saturating_add(n.unsigned_abs());
    }
    instantiate(vector, len)
}

fn reject(error: u32) -> Result<u64> {
    /// Errors that only the kernel knows: the call is made again.
    const INTERNAL: [u32; 4] = [512, 513, 514, 516];
    let known = (1..4095).contains(&error) && !INTERNAL.contains(&error);
    Err(if known { Errno::EPERM } else { Errno::EINVAL })
}

/// There are no labels: what is told is an empty one.
fn label(a: &Args, key: i32, to: UserPtr, room: usize) -> Result<u64> {
    keys::call(&a.thread, |k| k.label(key))?;
    answer(&[0], to, room)
}

fn restrict(a: &Args, ring: i32, kind: UserPtr, rule: UserPtr) -> Result<u64> {
    let kind = match (kind.is_null(), rule.is_null()) {
        (true, true) => None,
        (false, false) => {
            let name = text::kind(kind)?;
            text::read(rule)?;
            Some(Kind::by_name(&name))
        }
        _ => return Err(Errno::EINVAL),
    };
    done(a, |k| k.restrict(ring, kind))
}

/// Bytes beyond what is known are zero.
fn capabilities(to: UserPtr, room: usize) -> Result<u64> {
    if !to.is_null() && room > 0 {
        let known = room.min(CAPABILITIES.len());
        to.write_bytes(&CAPABILITIES[..known])?;
        let zeros = [0; 256];
        let mut at = known;
        while at < room {
            let n = zeros.len().min(room - at);
            to.add(at as u64).write_bytes(&zeros[..n])?;
            at += n;
        }
    }
    Ok(CAPABILITIES.len() as u64)
}

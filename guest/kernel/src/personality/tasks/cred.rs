//! System calls on user and group ids.

use crate::process::namespaces::numbers;
use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::core::subject::ALL_CAPS;
use crate::personality::Support::Full;
use crate::personality::args::Id;
use crate::personality::{Args, Syscall, call};
use crate::process::task::Cred;
use crate::process::task::cred::{SECURE_NO_SETUID_FIXUP, change_of, fix_caps};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::GETUID, sys_getuid(), Full, ""),
    call!(nr::GETEUID, sys_geteuid(), Full, ""),
    call!(nr::GETGID, sys_getgid(), Full, ""),
    call!(nr::GETEGID, sys_getegid(), Full, ""),
    call!(nr::GETRESUID, sys_getresuid(UserPtr, UserPtr, UserPtr), Full, ""),
    call!(nr::GETRESGID, sys_getresgid(UserPtr, UserPtr, UserPtr), Full, ""),
    call!(nr::SETUID, sys_setuid(Id), Full, ""),
    call!(nr::SETGID, sys_setgid(Id), Full, ""),
    call!(nr::SETREUID, sys_setreuid(Id, Id), Full, ""),
    call!(nr::SETREGID, sys_setregid(Id, Id), Full, ""),
    call!(nr::SETRESUID, sys_setresuid(Id, Id, Id), Full, ""),
    call!(nr::SETRESGID, sys_setresgid(Id, Id, Id), Full, ""),
    call!(nr::SETFSUID, sys_setfsuid(Id), Full, ""),
    call!(nr::SETFSGID, sys_setfsgid(Id), Full, ""),
    call!(nr::GETGROUPS, sys_getgroups(i32, UserPtr), Full, ""),
    call!(nr::SETGROUPS, sys_setgroups(u32, UserPtr), Full, ""),
    call!(nr::CAPGET, sys_capget(UserPtr, UserPtr), Full, ""),
    call!(nr::CAPSET, sys_capset(UserPtr, UserPtr), Full, ""),
];

const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SETPCAP: u32 = 8;
/// Capabilities that follow the file-system user: CHOWN to FSETID, LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE.
const FS_CAPS: u64 = 0x1f | 1 << 9 | 1 << 27 | 1 << 32;
const GROUPS_MAX: usize = 65536;

fn cred(a: &Args) -> Arc<Cred> {
    a.thread.cred()
}

/// Changes the caller's identity.
pub(crate) fn change<T>(a: &Args, f: impl FnOnce(&mut Cred) -> Result<T>) -> Result<T> {
    change_of(&a.thread, f)
}

fn sys_getuid(a: &Args) -> Result<u64> {
    let c = cred(a);
    Ok(u64::from(c.user.uid(c.ruid)))
}

fn sys_geteuid(a: &Args) -> Result<u64> {
    let c = cred(a);
    Ok(u64::from(c.user.uid(c.euid)))
}

fn sys_getgid(a: &Args) -> Result<u64> {
    let c = cred(a);
    Ok(u64::from(c.user.gid(c.rgid)))
}

fn sys_getegid(a: &Args) -> Result<u64> {
    let c = cred(a);
    Ok(u64::from(c.user.gid(c.egid)))
}

fn sys_getresuid(a: &Args, real: UserPtr, effective: UserPtr, saved: UserPtr) -> Result<u64> {
    let c = cred(a);
    for (p, id) in [(real, c.ruid), (effective, c.euid), (saved, c.suid)] {
        p.write(&c.user.uid(id))?;
    }
    Ok(0)
}

fn sys_getresgid(a: &Args, real: UserPtr, effective: UserPtr, saved: UserPtr) -> Result<u64> {
    let c = cred(a);
    for (p, id) in [(real, c.rgid), (effective, c.egid), (saved, c.sgid)] {
        p.write(&c.user.gid(id))?;
    }
    Ok(0)
}

fn set_uids(a: &Args, f: impl FnOnce(&mut Cred) -> Result<()>) -> Result<u64> {
    change(a, |c| {
        let old = c.clone();
        f(c)?;
        c.fsuid = c.euid;
        fix_caps(&old, c);
        Ok(0)
    })
}

fn set_gids(a: &Args, f: impl FnOnce(&mut Cred) -> Result<()>) -> Result<u64> {
    change(a, |c| {
        f(c)?;
        c.fsgid = c.egid;
        Ok(0)
    })
}

/// A user given by a program, none for "leave alone"; EINVAL for one that its user namespace does not have.
fn user(c: &Cred, id: Id) -> Result<Option<u32>> {
    id.given().map(|n| c.user.kernel_uid(n).ok_or(Errno::EINVAL)).transpose()
}

/// As [`user`], a group.
fn group(c: &Cred, id: Id) -> Result<Option<u32>> {
    id.given().map(|n| c.user.kernel_gid(n).ok_or(Errno::EINVAL)).transpose()
}

/// EPERM unless `id` is "leave alone" or one of `mine`.
fn check(privileged: bool, id: Option<u32>, mine: &[u32]) -> Result<()> {
    let ok = privileged || id.is_none_or(|id| mine.contains(&id));
    if ok { Ok(()) } else { Err(Errno::EPERM) }
}

fn sys_setuid(a: &Args, given: Id) -> Result<u64> {
    let id = user(&cred(a), given)?.ok_or(Errno::EINVAL)?;
    set_uids(a, |c| {
        if c.has(CAP_SETUID) {
            (c.ruid, c.suid) = (id, id);
        } else {
            check(false, Some(id), &[c.ruid, c.suid])?;
        }
        c.euid = id;
        Ok(())
    })
}

fn sys_setgid(a: &Args, given: Id) -> Result<u64> {
    let id = group(&cred(a), given)?.ok_or(Errno::EINVAL)?;
    set_gids(a, |c| {
        if c.has(CAP_SETGID) {
            (c.rgid, c.sgid) = (id, id);
        } else {
            check(false, Some(id), &[c.rgid, c.sgid])?;
        }
        c.egid = id;
        Ok(())
    })
}

fn sys_setreuid(a: &Args, real: Id, effective: Id) -> Result<u64> {
    let me = cred(a);
    let (real, effective) = (user(&me, real)?, user(&me, effective)?);
    set_uids(a, |c| {
        let p = c.has(CAP_SETUID);
        check(p, real, &[c.ruid, c.euid])?;
        check(p, effective, &[c.ruid, c.euid, c.suid])?;
        let old = c.ruid;
        c.ruid = real.unwrap_or(c.ruid);
        c.euid = effective.unwrap_or(c.euid);
        if real.is_some() || effective.is_some_and(|e| e != old) {
            c.suid = c.euid;
        }
        Ok(())
    })
}

fn sys_setregid(a: &Args, real: Id, effective: Id) -> Result<u64> {
    let me = cred(a);
    let (real, effective) = (group(&me, real)?, group(&me, effective)?);
    set_gids(a, |c| {
        let p = c.has(CAP_SETGID);
        check(p, real, &[c.rgid, c.egid])?;
        check(p, effective, &[c.rgid, c.egid, c.sgid])?;
        let old = c.rgid;
        c.rgid = real.unwrap_or(c.rgid);
        c.egid = effective.unwrap_or(c.egid);
        if real.is_some() || effective.is_some_and(|e| e != old) {
            c.sgid = c.egid;
        }
        Ok(())
    })
}

fn sys_setresuid(a: &Args, real: Id, effective: Id, saved: Id) -> Result<u64> {
    let me = cred(a);
    let ids = [user(&me, real)?, user(&me, effective)?, user(&me, saved)?];
    set_uids(a, |c| {
        let p = c.has(CAP_SETUID);
        let mine = [c.ruid, c.euid, c.suid];
        ids.iter().try_for_each(|id| check(p, *id, &mine))?;
        for (slot, id) in [&mut c.ruid, &mut c.euid, &mut c.suid].into_iter().zip(ids) {
            *slot = id.unwrap_or(*slot);
        }
        Ok(())
    })
}

fn sys_setresgid(a: &Args, real: Id, effective: Id, saved: Id) -> Result<u64> {
    let me = cred(a);
    let ids = [group(&me, real)?, group(&me, effective)?, group(&me, saved)?];
    set_gids(a, |c| {
        let p = c.has(CAP_SETGID);
        let mine = [c.rgid, c.egid, c.sgid];
        ids.iter().try_for_each(|id| check(p, *id, &mine))?;
        for (slot, id) in [&mut c.rgid, &mut c.egid, &mut c.sgid].into_iter().zip(ids) {
            *slot = id.unwrap_or(*slot);
        }
        Ok(())
    })
}

/// These two never fail: they return the id that was in force.
fn sys_setfsuid(a: &Args, given: Id) -> Result<u64> {
    let old = cred(a);
    let given = given.given().and_then(|n| old.user.kernel_uid(n));
    let allowed = check(old.has(CAP_SETUID), given, &[old.ruid, old.euid, old.suid, old.fsuid]);
    if let Some(id) = given
        && allowed.is_ok()
        && id != old.fsuid
    {
        let root = old.user.kernel_uid(0);
        change(a, |c| {
            c.fsuid = id;
            if old.securebits & SECURE_NO_SETUID_FIXUP == 0 {
                if root == Some(old.fsuid) {
                    c.cap_effective &= !FS_CAPS;
                } else if root == Some(id) {
                    c.cap_effective |= c.cap_permitted & FS_CAPS;
                }
            }
            Ok(())
        })?;
    }
    Ok(u64::from(old.user.uid(old.fsuid)))
}

fn sys_setfsgid(a: &Args, given: Id) -> Result<u64> {
    let old = cred(a);
    let given = given.given().and_then(|n| old.user.kernel_gid(n));
    let allowed = check(old.has(CAP_SETGID), given, &[old.rgid, old.egid, old.sgid, old.fsgid]);
    if let Some(id) = given
        && allowed.is_ok()
        && id != old.fsgid
    {
        change(a, |c| {
            c.fsgid = id;
            Ok(())
        })?;
    }
    Ok(u64::from(old.user.gid(old.fsgid)))
}

fn sys_getgroups(a: &Args, size: i32, list: UserPtr) -> Result<u64> {
    let me = cred(a);
    let groups = &me.groups;
    let room = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
    if room > 0 {
        if groups.len() > room {
            return Err(Errno::EINVAL);
        }
        for (i, g) in (0..).zip(groups) {
            list.add(i * 4).write(&me.user.gid(*g))?;
        }
    }
    Ok(groups.len() as u64)
}

fn sys_setgroups(a: &Args, size: u32, list: UserPtr) -> Result<u64> {
    let me = cred(a);
    if !me.has(CAP_SETGID) || !me.user.may_setgroups() {
        return Err(Errno::EPERM);
    }
    let n = size as usize;
    if n > GROUPS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut groups = Vec::new();
    for i in 0..n as u64 {
        groups.push(me.user.kernel_gid(list.add(i * 4).read()?).ok_or(Errno::EINVAL)?);
    }
    groups.sort_unstable();
    change(a, |c| {
        c.groups = groups;
        Ok(0)
    })
}

/// Header versions of `capget(2)` and how many 32-bit words of each set they carry.
const VERSIONS: [(u32, usize); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];

/// Reads the header; an unknown version is answered with the preferred one.
fn cap_header(p: UserPtr) -> Result<(Option<usize>, i32)> {
    let [version, pid] = p.read::<[u32; 2]>()?;
    let words = VERSIONS.iter().find(|(v, _)| *v == version).map(|(_, n)| *n);
    if words.is_none() {
        p.write(&VERSIONS[2].0)?;
    }
    Ok((words, pid.cast_signed()))
}

fn word(caps: u64, i: usize) -> u32 {
    (caps >> (32 * i)) as u32
}

fn sys_capget(a: &Args, header: UserPtr, user_data: UserPtr) -> Result<u64> {
    let (words, pid) = cap_header(header)?;
    let Some(words) = words else {
        // With no place for data this was a query of the version.
        return if user_data.is_null() { Ok(0) } else { Err(Errno::EINVAL) };
    };
    let c = match pid {
        0 => cred(a),
        n if n < 0 => return Err(Errno::EINVAL),
        n => numbers::thread(n)?.cred(),
    };
    if user_data.is_null() {
        return Ok(0);
    }
    for i in 0..words {
        let v = [word(c.cap_effective, i), word(c.cap_permitted, i), word(c.cap_inheritable, i)];
        user_data.add(i as u64 * 12).write(&v)?;
    }
    Ok(0)
}

fn sys_capset(a: &Args, header: UserPtr, data: UserPtr) -> Result<u64> {
    let (words, pid) = cap_header(header)?;
    let words = words.ok_or(Errno::EINVAL)?;
    if pid != 0 && pid != a.thread.shown_tid() {
        return Err(Errno::EPERM);
    }
    let mut sets = [0u64; 3];
    for i in 0..words {
        let v = data.add(i as u64 * 12).read::<[u32; 3]>()?;
        for (s, w) in sets.iter_mut().zip(v) {
            *s |= u64::from(w) << (32 * i);
        }
    }
    let [effective, permitted, inheritable] = sets.map(|s| s & ALL_CAPS);
    change(a, |c| {
        let allowed = if c.has(CAP_SETPCAP) { c.cap_bounding } else { c.cap_permitted };
        if inheritable & !(c.cap_inheritable | allowed) != 0
            || inheritable & !(c.cap_inheritable | c.cap_bounding) != 0
            || permitted & !c.cap_permitted != 0
            || effective & !permitted != 0
        {
            return Err(Errno::EPERM);
        }
        c.cap_effective = effective;
        c.cap_permitted = permitted;
        c.cap_inheritable = inheritable;
        c.cap_ambient &= permitted & inheritable;
        Ok(0)
    })
}

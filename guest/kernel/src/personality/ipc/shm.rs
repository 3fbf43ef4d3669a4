//! System calls of System V shared memory.

use crate::personality::args::{HexInt, RawFlags, Size};
use crate::process::task::TASKS;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::sync::SpinLock;

use crate::memory::{Backing, Place, Vma, page_up, vm};
use crate::objects::ipc::sysv::shm::{Attach, SHM_DEST, Segment, ShmidDs, State, segments};
use crate::objects::ipc::sysv::{IPC_64, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, seconds};
use crate::objects::pages::Object;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SHMGET, sys_shmget(HexInt, Size, RawFlags), Partial, "no huge pages"),
    call!(nr::SHMAT, sys_shmat(i32, UserPtr, RawFlags), Full, ""),
    call!(nr::SHMDT, sys_shmdt(UserPtr), Full, ""),
    call!(nr::SHMCTL, sys_shmctl(i32, i32, UserPtr), Full, ""),
];

const SHM_HUGETLB: u32 = 0o4000;
const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100000;
const SHM_LOCKED: u32 = 0o2000;
const SHM_LOCK: i32 = 11;
const SHM_UNLOCK: i32 = 12;
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;
const SHMLBA: u64 = 4096;
const SHMMNI: usize = 4096;
const SHMMAX: u64 = u64::MAX - (1 << 24);

fn sys_shmget(a: &Args, HexInt(key): HexInt, Size(size): Size, RawFlags(f): RawFlags) -> Result<u64> {
    let pid = a.thread.process.pid;
    let id = segments().get(
        key,
        f,
        SHMMNI,
        |s| if size > s.size { Err(Errno::EINVAL) } else { Ok(()) },
        |perm| {
            if size == 0 || size > 1 << 46 || f & SHM_HUGETLB != 0 {
                return Err(Errno::EINVAL);
            }
            let state = State { ctime: seconds(), cpid: pid, ..State::default() };
            Ok(Segment {
                perm: SpinLock::new(perm),
                size,
                pages: Object::new(page_up(size)),
                state: SpinLock::new(state),
            })
        },
    )?;
    Ok(u64::from(id.unsigned_abs()))
}

fn sys_shmat(a: &Args, id: i32, UserPtr(address): UserPtr, RawFlags(f): RawFlags) -> Result<u64> {
    let segment = segments().find(id)?;
    let perm = *segment.perm.lock();
    let write = f & SHM_RDONLY == 0;
    perm.check(if write { 6 } else { 4 } | u32::from(f & SHM_EXEC != 0))?;
    let addr = match address {
        0 if f & SHM_REMAP != 0 => return Err(Errno::EINVAL),
        n if n % SHMLBA == 0 => n,
        n if f & SHM_RND != 0 => n - n % SHMLBA,
        _ => return Err(Errno::EINVAL),
    };
    let place = match addr {
        0 => Place::Hint(0),
        n if f & SHM_REMAP != 0 => Place::Fixed(n),
        n => Place::NoReplace(n),
    };
    let me = a.thread.process.pid;
    {
        let mut s = segment.state.lock();
        s.attached += 1;
        s.atime = seconds();
        s.lpid = me;
    }
    let attach = Arc::new(Attach { segment: segment.clone(), at: AtomicU64::new(0) });
    let name = format!("/SYSV{:08x} (deleted)", perm.key);
    let file = File::anon(attach.clone(), name, if write { OpenFlags::RDWR } else { OpenFlags::RDONLY });
    let prot = 1 | u32::from(write) << 1 | u32::from(f & SHM_EXEC != 0) << 2;
    let mut vma = Vma::object(prot, vm::SHARED, Backing::Pages(segment.pages.clone()), Some(file), 0);
    if !write {
        vma.max_prot &= !2;
    }
    let at = a
        .thread
        .space()
        .mm
        .map(place, page_up(segment.size), vma, false)
        .map_err(|e| if e == Errno::EEXIST { Errno::EINVAL } else { e })?;
    attach.at.store(at, Ordering::Relaxed);
    Ok(at)
}

fn sys_shmdt(a: &Args, UserPtr(addr): UserPtr) -> Result<u64> {
    let space = a.thread.space();
    let file = space.mm.vma(addr).and_then(|v| v.file).ok_or(Errno::EINVAL)?;
    let file: &dyn core::any::Any = &*file;
    let attach = file.downcast_ref::<File>().and_then(|f| f.downcast::<Attach>()).ok_or(Errno::EINVAL)?;
    if attach.at.load(Ordering::Relaxed) != addr {
        return Err(Errno::EINVAL);
    }
    attach.segment.state.lock().lpid = a.thread.process.pid;
    space.mm.unmap(addr, addr + page_up(attach.segment.size))?;
    Ok(0)
}

fn sys_shmctl(_: &Args, id: i32, command: i32, buf: UserPtr) -> Result<u64> {
    let cmd = command & !IPC_64;
    match cmd {
        IPC_INFO => {
            buf.write(&[SHMMAX, 1, SHMMNI as u64, SHMMNI as u64, SHMMAX / 4096, 0, 0, 0, 0])?;
            return Ok(segments().highest());
        }
        SHM_INFO => {
            let list = segments().list();
            let pages: u64 = list.iter().map(|s| page_up(s.size) / 4096).sum();
            let resident: u64 = list.iter().map(|s| s.pages.blocks() / 8).sum();
            buf.write(&[list.len() as u64, pages, resident, 0, 0, 0])?;
            return Ok(segments().highest());
        }
        SHM_STAT | SHM_STAT_ANY => {
            let s = segments().at(id)?;
            let perm = *s.perm.lock();
            if cmd == SHM_STAT {
                perm.check(4)?;
            }
            buf.write(&describe(&s))?;
            return Ok(u64::from(perm.id.unsigned_abs()));
        }
        IPC_RMID | IPC_SET | IPC_STAT | SHM_LOCK | SHM_UNLOCK => {}
        _ => return Err(Errno::EINVAL),
    }
    let s = segments().find(id)?;
    let perm = *s.perm.lock();
    match cmd {
        IPC_STAT => {
            perm.check(4)?;
            buf.write(&describe(&s))?;
        }
        IPC_SET => {
            let new = buf.read::<ShmidDs>()?;
            perm.check_owner()?;
            s.perm.lock().set(&new.perm);
            s.state.lock().ctime = seconds();
        }
        IPC_RMID => {
            perm.check_owner()?;
            {
                let mut p = s.perm.lock();
                p.mode |= SHM_DEST;
                // Its key is free for another segment.
                p.key = crate::objects::ipc::sysv::IPC_PRIVATE;
            }
            if s.state.lock().attached == 0 {
                segments().remove(id);
            }
        }
        lock => {
            perm.check_owner()?;
            let mut p = s.perm.lock();
            p.mode = if lock == SHM_LOCK { p.mode | SHM_LOCKED } else { p.mode & !SHM_LOCKED };
        }
    }
    Ok(0)
}

/// Attachments, counting those of each space: fork copies them.
fn attachments(s: &Segment) -> u64 {
    let mut seen = alloc::vec::Vec::new();
    let mut n = 0;
    for p in TASKS.all_processes() {
        let space = p.space();
        if seen.contains(&space.id) {
            continue;
        }
        seen.push(space.id);
        n += space.mm.count_files(|f| {
            let f: &dyn core::any::Any = f;
            f.downcast_ref::<File>()
                .and_then(|f| f.downcast::<Attach>())
                .is_some_and(|a| core::ptr::eq(Arc::as_ptr(&a.segment), s))
        });
    }
    n
}

pub(crate) fn describe(s: &Segment) -> ShmidDs {
    let st = *s.state.lock();
    ShmidDs {
        perm: s.perm.lock().to_user(),
        segsz: s.size,
        atime: st.atime,
        dtime: st.dtime,
        ctime: st.ctime,
        cpid: st.cpid,
        lpid: st.lpid,
        nattch: attachments(s),
        unused: [0; 2],
    }
}

//! System calls of System V shared memory.

use crate::personality::args::{Bits, HexInt, Size};
use crate::personality::ipc::Control;
use crate::process::task::TASKS;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::sync::SpinLock;

use crate::core::numbers::numbers;
use crate::core::subject::shown_pid;
use crate::memory::{Backing, MapAt, Prot, VmFlags, Vma, page_up};
use crate::objects::ipc::sysv::namespace::here;
use crate::objects::ipc::sysv::shm::{Attach, SHM_DEST, Segment, ShmidDs, State};
use crate::objects::ipc::sysv::{GetFlags, seconds};
use crate::objects::pages::Object;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::{Full, Partial};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SHMGET, sys_shmget(HexInt, Size, Bits<GetFlags>), Partial, "no huge pages"),
    call!(nr::SHMAT, sys_shmat(i32, UserPtr, Bits<AttachFlags>), Full, ""),
    call!(nr::SHMDT, sys_shmdt(UserPtr), Full, ""),
    call!(nr::SHMCTL, sys_shmctl(i32, Control<Command>, UserPtr), Full, ""),
];

bitflags::bitflags! {
    /// Flags of `shmat(2)`; others are overlooked.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct AttachFlags: u32 {
        const RDONLY = 0o10000;
        const RND = 0o20000;
        const REMAP = 0o40000;
        const EXEC = 0o100000;
    }
}

numbers! {
    /// Commands of `shmctl(2)`.
    enum Command {
        Remove = 0,
        Set = 1,
        Stat = 2,
        IpcInfo = 3,
        Lock = 11,
        Unlock = 12,
        StatAt = 13,
        ShmInfo = 14,
        StatAtAny = 15,
    }
}

/// Bit of a segment's mode that shows that it is locked.
const SHM_LOCKED: u32 = 0o2000;
const SHMLBA: u64 = 4096;
const SHMMNI: usize = 4096;
const SHMMAX: u64 = u64::MAX - (1 << 24);

fn sys_shmget(a: &Args, HexInt(key): HexInt, Size(size): Size, flags: Bits<GetFlags>) -> Result<u64> {
    let flags = flags.known();
    let pid = a.thread.process.pid;
    let id = here().segments.get(
        key,
        flags,
        SHMMNI,
        |s| if size > s.size { Err(Errno::EINVAL) } else { Ok(()) },
        |perm| {
            if size == 0 || size > 1 << 46 || flags.contains(GetFlags::HUGETLB) {
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

fn sys_shmat(a: &Args, id: i32, UserPtr(address): UserPtr, flags: Bits<AttachFlags>) -> Result<u64> {
    let flags = flags.known();
    let (write, exec) = (!flags.contains(AttachFlags::RDONLY), flags.contains(AttachFlags::EXEC));
    let remap = flags.contains(AttachFlags::REMAP);
    let segment = here().segments.find(id)?;
    let perm = *segment.perm.lock();
    perm.check(if write { 6 } else { 4 } | u32::from(exec))?;
    let addr = match address {
        0 if remap => return Err(Errno::EINVAL),
        n if n % SHMLBA == 0 => n,
        n if flags.contains(AttachFlags::RND) => n - n % SHMLBA,
        _ => return Err(Errno::EINVAL),
    };
    let place = match addr {
        0 => MapAt::Hint(0),
        n if remap => MapAt::Fixed(n),
        n => MapAt::NoReplace(n),
    };
    let me = a.thread.process.pid;
    {
        let mut s = segment.state.lock();
        s.attached += 1;
        s.atime = seconds();
        s.lpid = me;
    }
    let attach = Arc::new(Attach { segment: segment.clone(), home: here().keep(), at: AtomicU64::new(0) });
    let name = format!("/SYSV{:08x} (deleted)", perm.key);
    let file = File::anon(attach.clone(), name, if write { OpenFlags::RDWR } else { OpenFlags::RDONLY });
    let prot = Prot::READ | Prot::WRITE.when(write) | Prot::EXEC.when(exec);
    let mut vma = Vma::object(prot, VmFlags::SHARED, Backing::Pages(segment.pages.clone()), Some(file), 0);
    if !write {
        vma.max_prot -= Prot::WRITE;
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

fn sys_shmctl(_: &Args, id: i32, command: Control<Command>, buf: UserPtr) -> Result<u64> {
    let command = command.get()?;
    match command {
        Command::IpcInfo => {
            buf.write(&[SHMMAX, 1, SHMMNI as u64, SHMMNI as u64, SHMMAX / 4096, 0, 0, 0, 0])?;
            return Ok(here().segments.highest());
        }
        Command::ShmInfo => {
            let list = here().segments.list();
            let pages: u64 = list.iter().map(|s| page_up(s.size) / 4096).sum();
            let resident: u64 = list.iter().map(|s| s.pages.blocks() / 8).sum();
            buf.write(&[list.len() as u64, pages, resident, 0, 0, 0])?;
            return Ok(here().segments.highest());
        }
        Command::StatAt | Command::StatAtAny => {
            let s = here().segments.at(id)?;
            let perm = *s.perm.lock();
            if command == Command::StatAt {
                perm.check(4)?;
            }
            buf.write(&describe(&s))?;
            return Ok(u64::from(perm.id.unsigned_abs()));
        }
        Command::Remove | Command::Set | Command::Stat | Command::Lock | Command::Unlock => {}
    }
    let s = here().segments.find(id)?;
    let perm = *s.perm.lock();
    match command {
        Command::Stat => {
            perm.check(4)?;
            buf.write(&describe(&s))?;
        }
        Command::Set => {
            let new = buf.read::<ShmidDs>()?;
            perm.check_owner()?;
            s.perm.lock().set(&new.perm)?;
            s.state.lock().ctime = seconds();
        }
        Command::Remove => {
            perm.check_owner()?;
            {
                let mut p = s.perm.lock();
                p.mode |= SHM_DEST;
                // Its key is free for another segment.
                p.key = crate::objects::ipc::sysv::IPC_PRIVATE;
            }
            if s.state.lock().attached == 0 {
                here().segments.remove(id);
            }
        }
        _ => {
            perm.check_owner()?;
            let mut p = s.perm.lock();
            p.mode = if command == Command::Lock { p.mode | SHM_LOCKED } else { p.mode & !SHM_LOCKED };
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
        cpid: shown_pid(st.cpid),
        lpid: shown_pid(st.lpid),
        nattch: attachments(s),
        unused: [0; 2],
    }
}

//! System calls of System V message queues.

use crate::objects::ipc::sysv::namespace::here;
use crate::personality::args::{Bits, HexInt};
use crate::personality::ipc::Control;
use alloc::vec;
use doppel_machine::user::UserPtr;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::arena;
use doppel_machine::sync::SpinLock;

use crate::core::numbers::numbers;
use crate::core::sched::{WaitQueue, wait_until};
use crate::objects::ipc::sysv::msg::{Message, MessageFlags, MsqidDs, Queue, State, describe};
use crate::objects::ipc::sysv::{GetFlags, seconds};
use crate::personality::Support::Full;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::MSGGET, sys_msgget(HexInt, Bits<GetFlags>), Full, ""),
    call!(nr::MSGSND, sys_msgsnd(i32, UserPtr, usize, Bits<MessageFlags>), Full, ""),
    call!(nr::MSGRCV, sys_msgrcv(i32, UserPtr, i64, i64, Bits<MessageFlags>), Full, ""),
    call!(nr::MSGCTL, sys_msgctl(i32, Control<Command>, UserPtr), Full, ""),
];

numbers! {
    /// Commands of `msgctl(2)`.
    enum Command {
        Remove = 0,
        Set = 1,
        Stat = 2,
        IpcInfo = 3,
        StatAt = 11,
        MsgInfo = 12,
        StatAtAny = 13,
    }
}

const MSGMNI: usize = 32000;
const MSGMAX: usize = 8192;
const MSGMNB: u64 = 16384;
const CAP_SYS_RESOURCE: u32 = 24;

fn sys_msgget(_: &Args, HexInt(key): HexInt, flags: Bits<GetFlags>) -> Result<u64> {
    let id = here().queues.get(
        key,
        flags.known(),
        MSGMNI,
        |_| Ok(()),
        |perm| {
            let state = State { max_bytes: MSGMNB, ctime: seconds(), ..State::default() };
            Ok(Queue {
                perm: SpinLock::new(perm),
                state: SpinLock::new(state),
                receivers: WaitQueue::new(),
                senders: WaitQueue::new(),
            })
        },
    )?;
    Ok(u64::from(id.unsigned_abs()))
}

/// A handler always ends the wait with EINTR, SA_RESTART or not.
fn interrupted(e: Errno) -> Errno {
    if e == Errno::ERESTARTSYS { Errno::ERESTARTNOHAND } else { e }
}

fn sys_msgsnd(
    a: &Args,
    id: i32,
    user_message: UserPtr,
    size: usize,
    flags: Bits<MessageFlags>,
) -> Result<u64> {
    if size > MSGMAX {
        return Err(Errno::EINVAL);
    }
    if arena::low() {
        return Err(Errno::ENOMEM);
    }
    let kind = user_message.read::<i64>()?;
    if kind < 1 {
        return Err(Errno::EINVAL);
    }
    let mut data = vec![0; size];
    user_message.add(8).read_bytes(&mut data)?;
    let q = here().queues.find(id)?;
    let perm = *q.perm.lock();
    perm.check(2)?;
    let mut message = Some(Message { kind, data });
    let pid = a.thread.process.pid;
    let mut attempt = || {
        let mut s = q.state.lock();
        if s.removed {
            return Some(Err(Errno::EIDRM));
        }
        if s.bytes + size as u64 > s.max_bytes || s.messages.len() as u64 >= s.max_bytes {
            return None;
        }
        s.messages.extend(message.take());
        s.bytes += size as u64;
        s.stime = seconds();
        s.lspid = pid;
        Some(Ok(()))
    };
    match attempt() {
        Some(r) => r?,
        None if flags.known().contains(MessageFlags::NOWAIT) => return Err(Errno::EAGAIN),
        None => wait_until(&q.senders, None, attempt).map_err(interrupted)??,
    }
    q.receivers.notify_all();
    Ok(0)
}

fn sys_msgrcv(
    a: &Args,
    id: i32,
    message: UserPtr,
    room: i64,
    kind: i64,
    flags: Bits<MessageFlags>,
) -> Result<u64> {
    let flags = flags.known();
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let copy = flags.contains(MessageFlags::COPY);
    let impossible = flags.contains(MessageFlags::EXCEPT) || !flags.contains(MessageFlags::NOWAIT);
    if id < 0 || copy && impossible {
        return Err(Errno::EINVAL);
    }
    let q = here().queues.find(id)?;
    let perm = *q.perm.lock();
    perm.check(4)?;
    let pid = a.thread.process.pid;
    let attempt = || {
        let mut s = q.state.lock();
        if s.removed {
            return Some(Err(Errno::EIDRM));
        }
        let i = s.find(kind, flags)?;
        if s.messages[i].data.len() > room && !flags.contains(MessageFlags::NOERROR) {
            return Some(Err(Errno::E2BIG));
        }
        if copy {
            let m = &s.messages[i];
            return Some(Ok(Message { kind: m.kind, data: m.data.clone() }));
        }
        let m = s.messages.remove(i)?;
        s.bytes -= m.data.len() as u64;
        s.rtime = seconds();
        s.lrpid = pid;
        Some(Ok(m))
    };
    let m = match attempt() {
        Some(r) => r?,
        None if flags.contains(MessageFlags::NOWAIT) => return Err(Errno::ENOMSG),
        None => wait_until(&q.receivers, None, attempt).map_err(interrupted)??,
    };
    q.senders.notify_all();
    let n = m.data.len().min(room);
    message.write(&m.kind)?;
    message.add(8).write_bytes(&m.data[..n])?;
    Ok(n as u64)
}

/// IPC_INFO and MSG_INFO: limits, or limits and use.
fn info(out: UserPtr, used: bool) -> Result<u64> {
    let (mut pool, mut map, mut tql) = (MSGMNI as i32 * 16, MSGMNI as i32 * 16, MSGMNI as i32);
    if used {
        let list = here().queues.list();
        pool = list.len() as i32;
        map = list.iter().map(|q| q.state.lock().messages.len()).sum::<usize>() as i32;
        tql = list.iter().map(|q| q.state.lock().bytes).sum::<u64>() as i32;
    }
    // msgpool, msgmap, msgmax, msgmnb, msgmni, msgssz, msgtql, msgseg and its padding.
    out.write(&[pool, map, MSGMAX as i32, MSGMNB as i32, MSGMNI as i32, 16, tql, 0xffff])?;
    Ok(here().queues.highest())
}

fn sys_msgctl(a: &Args, id: i32, command: Control<Command>, buf: UserPtr) -> Result<u64> {
    let command = command.get()?;
    match command {
        Command::IpcInfo | Command::MsgInfo => return info(buf, command == Command::MsgInfo),
        Command::StatAt | Command::StatAtAny => {
            let q = here().queues.at(id)?;
            let perm = *q.perm.lock();
            if command == Command::StatAt {
                perm.check(4)?;
            }
            buf.write(&describe(&q))?;
            return Ok(u64::from(perm.id.unsigned_abs()));
        }
        Command::Remove | Command::Set | Command::Stat => {}
    }
    let q = here().queues.find(id)?;
    let perm = *q.perm.lock();
    match command {
        Command::Stat => {
            perm.check(4)?;
            buf.write(&describe(&q))?;
        }
        Command::Set => {
            let new = buf.read::<MsqidDs>()?;
            perm.check_owner()?;
            if new.qbytes > MSGMNB && !a.thread.cred().capable(CAP_SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            q.perm.lock().set(&new.perm)?;
            let mut s = q.state.lock();
            s.max_bytes = new.qbytes.min(1 << 24);
            s.ctime = seconds();
        }
        _ => {
            perm.check_owner()?;
            q.state.lock().removed = true;
            here().queues.remove(id);
        }
    }
    q.receivers.notify_all();
    q.senders.notify_all();
    Ok(0)
}

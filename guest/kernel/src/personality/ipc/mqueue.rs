//! System calls of POSIX message queues (`mq_overview(7)`).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::arena;
use doppel_machine::pod_struct;
use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use crate::core::sched::{Deadline, wait_until};
use crate::core::time::{Timespec, monotonic_ns, realtime_ns};
use crate::objects::ipc::sysv::namespace::here;
use crate::objects::lookup::caller::read_string;
use crate::objects::vfs::File;
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Support::{Full, Partial};
use crate::personality::args::{Bits, FileMode, RawFd, UserBuf, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::mqueue::{CAP_DAC_OVERRIDE, Handle, Notify, Queue};
use crate::process::time::timers::SigevNotify;
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::MQ_OPEN, sys_mq_open(UserStr, Bits<OpenFlags>, FileMode, UserPtr), Full, ""),
    call!(nr::MQ_UNLINK, sys_mq_unlink(UserStr), Full, ""),
    call!(nr::MQ_TIMEDSEND, sys_mq_timedsend(RawFd, UserBuf, usize, u32, UserPtr), Full, ""),
    call!(nr::MQ_TIMEDRECEIVE, sys_mq_timedreceive(RawFd, UserPtr, usize, UserPtr, UserPtr), Full, ""),
    call!(nr::MQ_NOTIFY, sys_mq_notify(RawFd, UserPtr), Partial, "SIGEV_THREAD is refused: ENOSYS"),
    call!(nr::MQ_GETSETATTR, sys_mq_getsetattr(RawFd, UserPtr, UserPtr), Full, ""),
];

const NAME_MAX: usize = 255;
const QUEUES_MAX: usize = 256;
const DEFAULT_MESSAGES: i64 = 10;
const DEFAULT_SIZE: i64 = 8192;
/// Limits without and with CAP_SYS_RESOURCE: messages, bytes of one.
const LIMITS: [(i64, i64); 2] = [(10, 8192), (65_536, 1 << 20)];
const PRIO_MAX: u32 = 32_768;
const CAP_SYS_RESOURCE: u32 = 24;

pod_struct! {
    /// `struct mq_attr`.
    pub struct MqAttr {
        /// O_NONBLOCK.
        pub flags: i64,
        /// Most messages.
        pub maxmsg: i64,
        /// Most bytes of a message.
        pub msgsize: i64,
        /// Messages in the queue.
        pub curmsgs: i64,
        /// Unused.
        pub pad: [i64; 4],
    }
}

fn read_name(name: UserPtr) -> Result<Vec<u8>> {
    let name = read_string(name, NAME_MAX + 1)
        .map_err(|e| if e == Errno::E2BIG { Errno::ENAMETOOLONG } else { e })?;
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.contains(&b'/') { Err(Errno::EACCES) } else { Ok(name) }
}

fn make(args: &Args, mode: u32, user_attr: UserPtr) -> Result<Queue> {
    let cred = args.thread.cred();
    let (mut max, mut size) = (DEFAULT_MESSAGES, DEFAULT_SIZE);
    if !user_attr.is_null() {
        let attr = user_attr.read::<MqAttr>()?;
        let limit = LIMITS[usize::from(cred.capable(CAP_SYS_RESOURCE))];
        if !(1..=limit.0).contains(&attr.maxmsg) || !(1..=limit.1).contains(&attr.msgsize) {
            return Err(Errno::EINVAL);
        }
        (max, size) = (attr.maxmsg, attr.msgsize);
    }
    let mode = mode & 0o777 & !args.thread.fs().umask();
    Ok(Queue {
        max: max as usize,
        size: size as usize,
        mode,
        uid: cred.fsuid,
        gid: cred.fsgid,
        state: SpinLock::default(),
        changed: Arc::default(),
    })
}

fn sys_mq_open(
    args: &Args,
    UserStr(name): UserStr,
    flags: Bits<OpenFlags>,
    FileMode(mode): FileMode,
    user_attr: UserPtr,
) -> Result<u64> {
    let f = flags.known();
    let name = read_name(name)?;
    let here = here();
    let found = here.named.lock().get(&name).cloned().map(queue_of);
    let queue = match found {
        Some(_) if f.contains(OpenFlags::CREAT) && f.contains(OpenFlags::EXCL) => return Err(Errno::EEXIST),
        Some(q) => {
            q.check(match f & OpenFlags::ACCMODE {
                OpenFlags::RDONLY => 4,
                OpenFlags::WRONLY => 2,
                _ => 6,
            })?;
            q
        }
        None if !f.contains(OpenFlags::CREAT) => return Err(Errno::ENOENT),
        None => {
            let q = Arc::new(make(args, mode, user_attr)?);
            let mut n = here.named.lock();
            if n.len() >= QUEUES_MAX {
                return Err(Errno::ENOSPC);
            }
            // Somebody may have made it meanwhile: theirs is the one.
            queue_of(n.entry(name.clone()).or_insert(q).clone())
        }
    };
    let label = alloc::format!("/{}", alloc::string::String::from_utf8_lossy(&name));
    let file = File::anon(Arc::new(Handle { queue }), label, f & (OpenFlags::ACCMODE | OpenFlags::NONBLOCK));
    anon::insert(args, file, f.contains(OpenFlags::CLOEXEC))
}

/// What a name of a queue stands for.
fn queue_of(named: Arc<dyn core::any::Any + Send + Sync>) -> Arc<Queue> {
    match named.downcast() {
        Ok(q) => q,
        Err(_) => panic!("something else than a queue has the name of one"),
    }
}

fn sys_mq_unlink(args: &Args, UserStr(name): UserStr) -> Result<u64> {
    let name = read_name(name)?;
    let here = here();
    let mut n = here.named.lock();
    let q = queue_of(n.get(&name).ok_or(Errno::ENOENT)?.clone());
    let c = args.thread.cred();
    if c.fsuid != q.uid && !c.capable_over(q.uid, q.gid, CAP_DAC_OVERRIDE) {
        return Err(Errno::EACCES);
    }
    n.remove(&name);
    Ok(0)
}

/// The queue behind a descriptor.
fn queue(args: &Args, mqd: i32, write: bool) -> Result<(FileRef<'_>, Arc<Queue>)> {
    let file = args.thread.file(mqd)?;
    let q = file.downcast::<Handle>().ok_or(Errno::EBADF)?.queue.clone();
    let ok = if write { file.writable() } else { file.readable() };
    if ok { Ok((file, q)) } else { Err(Errno::EBADF) }
}

/// An absolute CLOCK_REALTIME time as a deadline; null is never.
fn deadline(p: UserPtr) -> Result<Deadline> {
    if p.is_null() {
        return Ok(None);
    }
    let at = p.read::<Timespec>()?.to_ns()?;
    Ok(Some(monotonic_ns().saturating_add(at.saturating_sub(realtime_ns()))))
}

fn sys_mq_timedsend(
    args: &Args,
    RawFd(mqd): RawFd,
    UserBuf(message): UserBuf,
    len: usize,
    priority: u32,
    timeout: UserPtr,
) -> Result<u64> {
    if priority >= PRIO_MAX {
        return Err(Errno::EINVAL);
    }
    let until = deadline(timeout)?;
    let (file, q) = queue(args, mqd, true)?;
    if len > q.size {
        return Err(Errno::EMSGSIZE);
    }
    if arena::low() {
        return Err(Errno::ENOMEM);
    }
    let mut data = vec![0; len];
    message.read_bytes(&mut data)?;
    let mut data = Some(data);
    match q.push(priority, &mut data) {
        Some(()) => {}
        None if file.nonblocking() => return Err(Errno::EAGAIN),
        None => wait_until(&q.changed, until, || q.push(priority, &mut data))?,
    }
    Ok(0)
}

fn sys_mq_timedreceive(
    args: &Args,
    RawFd(mqd): RawFd,
    buffer: UserPtr,
    room: usize,
    user_priority: UserPtr,
    timeout: UserPtr,
) -> Result<u64> {
    let until = deadline(timeout)?;
    let (file, q) = queue(args, mqd, false)?;
    if room < q.size {
        return Err(Errno::EMSGSIZE);
    }
    let (priority, data) = match q.pop() {
        Some(m) => m,
        None if file.nonblocking() => return Err(Errno::EAGAIN),
        None => {
            q.state.lock().receivers += 1;
            let r = wait_until(&q.changed, until, || q.pop());
            q.state.lock().receivers -= 1;
            r?
        }
    };
    buffer.write_bytes(&data)?;
    if !user_priority.is_null() {
        user_priority.write(&priority)?;
    }
    Ok(data.len() as u64)
}

fn sys_mq_notify(args: &Args, RawFd(mqd): RawFd, event: UserPtr) -> Result<u64> {
    let request = if event.is_null() {
        None
    } else {
        // sigev_value, then sigev_signo and sigev_notify.
        let value = event.read::<u64>()?;
        let [signo, how] = event.add(8).read::<[i32; 2]>()?;
        match SigevNotify::try_from(how.cast_unsigned())? {
            SigevNotify::None => Some((0, value)),
            SigevNotify::Signal if (1..=64).contains(&signo) => Some((signo, value)),
            SigevNotify::Thread => return Err(Errno::ENOSYS),
            _ => return Err(Errno::EINVAL),
        }
    };
    let file = args.thread.file(mqd)?;
    let q = &file.downcast::<Handle>().ok_or(Errno::EBADF)?.queue;
    let me = &args.thread.process;
    let mut s = q.state.lock();
    match request {
        None => {
            if s.notify.as_ref().is_some_and(|n| n.process.pid == me.pid) {
                s.notify = None;
            }
        }
        Some(_) if s.notify.is_some() => return Err(Errno::EBUSY),
        Some(signal) => s.notify = Some(Notify { process: me.clone(), signal }),
    }
    Ok(0)
}

fn sys_mq_getsetattr(args: &Args, RawFd(mqd): RawFd, user_new: UserPtr, user_old: UserPtr) -> Result<u64> {
    let file = args.thread.file(mqd)?;
    let q = &file.downcast::<Handle>().ok_or(Errno::EBADF)?.queue;
    let nonblock = i64::from(OpenFlags::NONBLOCK.bits());
    let new = if user_new.is_null() { None } else { Some(user_new.read::<MqAttr>()?) };
    if new.is_some_and(|n| n.flags & !nonblock != 0) {
        return Err(Errno::EINVAL);
    }
    let old = MqAttr {
        flags: if file.nonblocking() { nonblock } else { 0 },
        maxmsg: q.max as i64,
        msgsize: q.size as i64,
        curmsgs: q.state.lock().count as i64,
        pad: [0; 4],
    };
    if let Some(n) = new {
        let keep = file.flags() & !OpenFlags::NONBLOCK;
        file.set_flags(keep | OpenFlags::NONBLOCK.when(n.flags != 0));
    }
    if !user_old.is_null() {
        user_old.write(&old)?;
    }
    Ok(0)
}

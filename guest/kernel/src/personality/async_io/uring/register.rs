//! What is registered with an instance.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use super::enter::{check_issuer, instance};
use super::steps::{Step, server};
use crate::core::numbers::numbers;
use crate::objects::ipc::eventfd::EventFd;
use crate::objects::vfs::rw::UserIoVec;
use crate::personality::Args;
use crate::personality::args::RawFd;
use crate::process::async_io::held::HeldFile;
use crate::process::async_io::uring::request::Request;
use crate::process::async_io::uring::{Buffer, Uring};
use crate::{Errno, Result};

/// Most registered files, buffers, and bytes of a buffer.
const MOST_FILES: u32 = 1 << 20;
const MOST_BUFFERS: u32 = 1 << 14;
const LARGEST_BUFFER: u64 = 1 << 30;
const MOST_IDENTITIES: usize = 1 << 12;
/// Operations that programs may ask for.
const OPERATIONS: u8 = 58;
/// A place that is left as it is.
const SKIP: i32 = -2;

numbers! {
    /// `IORING_REGISTER_` operations.
    enum Registered {
        Buffers = 0,
        NoBuffers = 1,
        Files = 2,
        NoFiles = 3,
        Counter = 4,
        NoCounter = 5,
        FilesUpdate = 6,
        CounterLater = 7,
        Probe = 8,
        Personality = 9,
        NoPersonality = 10,
        Enable = 12,
        Workers = 19,
    }
}

pod_struct! {
    /// `struct io_uring_files_update`.
    pub struct FilesUpdate {
        /// First place.
        pub offset: u32,
        /// Zero.
        pub reserved: u32,
        /// Address of descriptors.
        pub fds: u64,
    }
}

pub(super) fn sys_io_uring_register(
    a: &Args,
    RawFd(fd): RawFd,
    what: u32,
    argument: UserPtr,
    count: u32,
) -> Result<u64> {
    let what = Registered::try_from(what)?;
    if fd == -1 {
        // Only what is registered with no instance, of which there is nothing here.
        return Err(Errno::EINVAL);
    }
    let ring = instance(&*a.thread.file(fd)?)?;
    if !ring.disabled.load(Ordering::SeqCst) || what == Registered::Enable {
        check_issuer(a, &ring)?;
    }
    let nothing = argument.is_null() && count == 0;
    match what {
        Registered::Buffers => buffers(&ring, argument, count),
        Registered::NoBuffers if nothing => ring.buffers.lock().take().map(|_| 0).ok_or(Errno::ENXIO),
        Registered::Files => files(a, &ring, argument, count),
        Registered::NoFiles if nothing => {
            let old = core::mem::take(&mut *ring.files.lock());
            if old.is_empty() { Err(Errno::ENXIO) } else { Ok(0) }
        }
        Registered::FilesUpdate => {
            let update: FilesUpdate = argument.read()?;
            if update.reserved != 0 || count == 0 {
                return Err(Errno::EINVAL);
            }
            change_files(a, &ring, update.offset, UserPtr(update.fds), count)
        }
        Registered::Counter | Registered::CounterLater if count == 1 => {
            let file = HeldFile::new(a.thread.file(argument.read()?)?.clone());
            file.downcast::<EventFd>().ok_or(Errno::EINVAL)?;
            ring.set_counter(Some(file), what == Registered::CounterLater).map(|()| 0)
        }
        Registered::NoCounter if nothing => ring.set_counter(None, false).map(|()| 0),
        Registered::Probe => probe(argument, count),
        Registered::Personality if nothing => {
            let mut all = ring.identities.lock();
            if all.len() >= MOST_IDENTITIES {
                return Err(Errno::ENOSPC);
            }
            all.push(Some(a.thread.cred()));
            Ok(all.len() as u64)
        }
        Registered::NoPersonality if argument.is_null() => {
            let place = (count as usize).checked_sub(1).ok_or(Errno::EINVAL)?;
            let old = ring.identities.lock().get_mut(place).and_then(Option::take);
            old.map(|_| 0).ok_or(Errno::EINVAL)
        }
        Registered::Enable if nothing => {
            if ring.disabled.swap(false, Ordering::SeqCst) {
                Ok(0)
            } else {
                Err(Errno::EBADFD)
            }
        }
        Registered::Workers if count == 2 => {
            let _: [u32; 2] = argument.read()?;
            argument.write(&[16u32, 16])?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn buffers(ring: &Uring, argument: UserPtr, count: u32) -> Result<u64> {
    if count == 0 || count > MOST_BUFFERS {
        return Err(Errno::EINVAL);
    }
    let mut all = Vec::new();
    for i in 0..count {
        let v: UserIoVec = argument.add(u64::from(i) * size_of::<UserIoVec>() as u64).read()?;
        let sparse = v.base == 0 && v.len == 0;
        if !sparse && (v.base == 0 || v.len == 0 || v.len > LARGEST_BUFFER) {
            return Err(Errno::EFAULT);
        }
        v.base.checked_add(v.len).ok_or(Errno::EOVERFLOW)?;
        if !sparse {
            // It must be there.
            let mut byte = [0];
            UserPtr(v.base).read_bytes(&mut byte)?;
            UserPtr(v.base + v.len - 1).read_bytes(&mut byte)?;
        }
        all.push(Buffer { at: v.base, len: v.len, id: 0 });
    }
    let mut buffers = ring.buffers.lock();
    if buffers.is_some() {
        return Err(Errno::EBUSY);
    }
    *buffers = Some(all);
    Ok(0)
}

/// A descriptor that is registered; none for -1.
fn one_file(a: &Args, fd: i32) -> Result<Option<Arc<HeldFile>>> {
    if fd == -1 {
        return Ok(None);
    }
    let file = a.thread.file(fd)?.clone();
    // An instance that held itself would never end.
    if file.downcast::<Uring>().is_some() {
        return Err(Errno::EBADF);
    }
    Ok(Some(Arc::new(HeldFile::new(file))))
}

fn files(a: &Args, ring: &Uring, argument: UserPtr, count: u32) -> Result<u64> {
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    let limit = a.thread.process.rlimits.lock()[crate::core::subject::Resource::Nofile].cur;
    if count > MOST_FILES || u64::from(count) > limit {
        return Err(Errno::EMFILE);
    }
    if !ring.files.lock().is_empty() {
        return Err(Errno::EBUSY);
    }
    let mut all = Vec::new();
    for i in 0..count {
        all.push(one_file(a, argument.add(u64::from(i) * 4).read()?)?);
    }
    *ring.files.lock() = all;
    Ok(0)
}

/// Puts descriptors into places; gives how many.
fn change_files(a: &Args, ring: &Uring, first: u32, fds: UserPtr, count: u32) -> Result<u64> {
    let places = ring.files.lock().len();
    if places == 0 {
        return Err(Errno::ENXIO);
    }
    let end = first.checked_add(count).ok_or(Errno::EOVERFLOW)?;
    if end as usize > places {
        return Err(Errno::EINVAL);
    }
    for i in 0..count {
        let new = fds
            .add(u64::from(i) * 4)
            .read::<i32>()
            .map_err(Errno::from)
            .and_then(|fd| if fd == SKIP { Ok(None) } else { one_file(a, fd).map(Some) });
        match new {
            Ok(None) => {}
            Ok(Some(file)) => {
                let mut files = ring.files.lock();
                let place = files.get_mut((first + i) as usize).ok_or(Errno::EINVAL)?;
                let old = core::mem::replace(place, file);
                drop(files);
                drop(old);
            }
            Err(e) if i == 0 => return Err(e),
            Err(_) => return Ok(i.into()),
        }
    }
    Ok(count.into())
}

/// Moves a new descriptor to the place among the registered files that its request names (`file_index`), if it does; gives the
/// result of the request.
pub(super) fn placed(a: &Args, request: &Request, fd: u64) -> Result<i64> {
    /// IORING_FILE_INDEX_ALLOC.
    const ANY: i32 = -1;
    let index = request.sqe.file_index;
    if index == 0 {
        return Ok(fd.cast_signed());
    }
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    let file = Arc::new(HeldFile::new(a.thread.file(fd)?.clone()));
    a.thread.files().close(fd)?;
    let mut files = request.ring.files.lock();
    if files.is_empty() {
        return Err(Errno::ENXIO);
    }
    let (place, result) = if index == ANY {
        let free = files.iter().position(Option::is_none).ok_or(Errno::ENFILE)?;
        (free, free as i64)
    } else {
        (index as u32 as usize - 1, 0)
    };
    let old = files.get_mut(place).ok_or(Errno::EINVAL)?.replace(file);
    drop(files);
    drop(old);
    Ok(result)
}

/// Takes a file out of its place (IORING_OP_CLOSE with `file_index`).
pub(super) fn taken_out(request: &Request) -> Result<()> {
    let mut files = request.ring.files.lock();
    if files.is_empty() {
        return Err(Errno::ENXIO);
    }
    let place = files.get_mut(request.sqe.file_index as u32 as usize - 1).ok_or(Errno::EINVAL)?;
    let old = place.take();
    drop(files);
    old.map(drop).ok_or(Errno::EBADF)
}

/// IORING_OP_FILES_UPDATE.
pub(super) fn update_by_request(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.flags & 1 != 0 || sqe.op_flags != 0 || sqe.len == 0 {
        return Err(Errno::EINVAL);
    }
    let first = u32::try_from(sqe.off).map_err(|_| Errno::EINVAL)?;
    change_files(a, &request.ring, first, UserPtr(sqe.addr), sqe.len).map(|n| Step::Done(n.cast_signed()))
}

/// Tells which operations there are (`struct io_uring_probe`).
fn probe(argument: UserPtr, count: u32) -> Result<u64> {
    /// IO_URING_OP_SUPPORTED.
    const SUPPORTED: u16 = 1;
    if count > 256 {
        return Err(Errno::EINVAL);
    }
    let head: [u64; 2] = argument.read()?;
    if head != [0; 2] {
        return Err(Errno::EINVAL);
    }
    let told = count.min(OPERATIONS.into()) as u8;
    argument.write(&[OPERATIONS - 1, told, 0, 0])?;
    for op in 0..told {
        let flags = if server(op).is_some() { SUPPORTED } else { 0 };
        let [low, high] = flags.to_le_bytes();
        let entry = [op, 0, low, high, 0, 0, 0, 0];
        argument.add(16 + u64::from(op) * 8).write(&entry)?;
    }
    Ok(0)
}

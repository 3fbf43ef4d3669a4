//! Making an instance.

use alloc::sync::Arc;

use doppel_machine::user::UserPtr;

use super::enter::{check_issuer, instance};
use crate::objects::vfs::flags::OpenFlags;
use crate::personality::Args;
use crate::personality::events::anon;
use crate::process::async_io::uring::Uring;
use crate::process::async_io::uring::layout::{Features, Params, SetupFlags};
use crate::process::async_io::uring::rings::Rings;
use crate::{Errno, Result};

/// The flags, if they go together.
fn checked(params: &Params) -> Result<SetupFlags> {
    let flags = SetupFlags::from_bits(params.flags).ok_or(Errno::EINVAL)?;
    if params.reserved != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let polled = flags.contains(SetupFlags::SQPOLL);
    let wrong = [
        // A thread of the kernel submits, or the program's own is told of work, not both.
        polled
            && flags.intersects(
                SetupFlags::COOP_TASKRUN.union(SetupFlags::TASKRUN_FLAG).union(SetupFlags::DEFER_TASKRUN),
            ),
        flags.contains(SetupFlags::SQ_AFF) && !polled,
        flags.contains(SetupFlags::TASKRUN_FLAG)
            && !flags.intersects(SetupFlags::COOP_TASKRUN.union(SetupFlags::DEFER_TASKRUN)),
        flags.contains(SetupFlags::DEFER_TASKRUN) && !flags.contains(SetupFlags::SINGLE_ISSUER),
    ];
    if wrong.contains(&true) { Err(Errno::EINVAL) } else { Ok(flags) }
}

pub(super) fn sys_io_uring_setup(a: &Args, entries: u32, at: UserPtr) -> Result<u64> {
    let mut params: Params = at.read()?;
    let flags = checked(&params)?;
    if flags.contains(SetupFlags::ATTACH_WQ) {
        // Only whether it is one: workers are the process' anyway.
        let other = a.thread.file(i32::try_from(params.wq_fd).map_err(|_| Errno::EBADF)?)?;
        instance(&other).map_err(|_| Errno::EINVAL)?;
    }
    let rings = Rings::new(entries, flags, &mut params)?;
    params.features = Features::all().bits();
    at.write(&params)?;
    let ring: Arc<Uring> = Uring::new(rings, flags);
    if !flags.contains(SetupFlags::R_DISABLED) {
        check_issuer(a, &ring)?;
    }
    anon::new_fd(a, ring, "io_uring", OpenFlags::RDWR | OpenFlags::CLOEXEC)
}

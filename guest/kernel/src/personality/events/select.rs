//! `select(2)` and `pselect6(2)`.

use alloc::vec;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use crate::core::sched::PollEvents;
use crate::objects::ipc::timeout::Timeout;
use crate::objects::vfs::fdtable::FileRef;
use crate::objects::vfs::fdtable::NR_OPEN;
use crate::personality::Support::Full;
use crate::personality::events::mask::with_mask;
use crate::personality::events::poll::wait_scan;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(nr::SELECT, sys_select(i32, UserPtr, UserPtr, UserPtr, UserPtr), Full, ""),
    call!(nr::PSELECT6, sys_pselect6(i32, UserPtr, UserPtr, UserPtr, UserPtr, UserPtr), Full, ""),
];

/// Events that put a descriptor in the read, write and exception set.
const SETS: [PollEvents; 3] = [
    PollEvents::READABLE.union(PollEvents::RDBAND).union(PollEvents::ALWAYS),
    PollEvents::WRITABLE.union(PollEvents::WRBAND).union(PollEvents::ERR),
    PollEvents::PRI,
];

/// A descriptor that is watched.
struct Watched<'a> {
    fd: usize,
    file: FileRef<'a>,
    /// Which of the three sets ask for it.
    wanted: u8,
}

/// Copies in one set of `bytes` bytes; null is `None`.
fn read_set(p: UserPtr, bytes: usize) -> Result<Option<Vec<u8>>> {
    if p.is_null() {
        return Ok(None);
    }
    let mut v = vec![0; bytes];
    p.read_bytes(&mut v)?;
    Ok(Some(v))
}

/// Waits for the descriptors below `nfds` in the sets at `user`: to read, to write, of exceptions.
fn do_select(args: &Args, nfds: i32, user: [UserPtr; 3], timeout: Timeout) -> Result<u64> {
    let n = usize::try_from(nfds).map_err(|_| Errno::EINVAL)?;
    // Bits beyond the open descriptors are not looked at, nor is their memory.
    let last = args.thread.files().last().map_or(0, |fd| fd + 1);
    let n = n.min(last.max(64)).min(NR_OPEN as usize);
    let bytes = n.div_ceil(64) * 8;
    let mut sets = [read_set(user[0], bytes)?, read_set(user[1], bytes)?, read_set(user[2], bytes)?];
    let mut watched = Vec::new();
    for fd in 0..n {
        let mut wanted = 0;
        for (i, set) in sets.iter().enumerate() {
            if set.as_ref().is_some_and(|s| s[fd / 8] & (1 << (fd % 8)) != 0) {
                wanted |= 1 << i;
            }
        }
        if wanted != 0 {
            watched.push(Watched { fd, file: args.thread.file(fd as i32)?, wanted });
        }
    }
    let ready = wait_scan(timeout, |mut table| {
        for s in sets.iter_mut().flatten() {
            s.fill(0);
        }
        let mut ready = 0;
        for w in &watched {
            let t = if ready == 0 { table.as_deref_mut() } else { None };
            // As on Linux, what was closed meanwhile is looked up again; what it named is kept.
            let ev = if w.file.unshared() {
                w.file.poll(t)
            } else {
                args.thread.file(w.fd as i32).map_or(PollEvents::all(), |f| f.poll(t))
            };
            for (i, set) in sets.iter_mut().enumerate() {
                if let (true, true, Some(s)) =
                    (w.wanted & (1 << i) != 0, ev.intersects(SETS[i]), set.as_mut())
                {
                    s[w.fd / 8] |= 1 << (w.fd % 8);
                    ready += 1;
                }
            }
        }
        Ok(ready)
    })?;
    for (p, set) in user.iter().zip(&sets) {
        if let Some(s) = set {
            p.write_bytes(s)?;
        }
    }
    Ok(ready as u64)
}

fn sys_select(
    args: &Args,
    nfds: i32,
    read: UserPtr,
    write: UserPtr,
    except: UserPtr,
    user_timeout: UserPtr,
) -> Result<u64> {
    let timeout = Timeout::timeval(user_timeout)?;
    let r = do_select(args, nfds, [read, write, except], timeout);
    timeout.store_timeval(user_timeout);
    r
}

fn sys_pselect6(
    args: &Args,
    nfds: i32,
    read: UserPtr,
    write: UserPtr,
    except: UserPtr,
    user_timeout: UserPtr,
    sigmask: UserPtr,
) -> Result<u64> {
    let timeout = Timeout::timespec(user_timeout)?;
    // The sixth argument points to { mask, size }.
    let (mask, size) = match sigmask {
        p if p.is_null() => (UserPtr(0), 0),
        p => {
            let [mask, size] = p.read::<[u64; 2]>()?;
            (UserPtr(mask), size as usize)
        }
    };
    let r = with_mask(args, mask, size, || do_select(args, nfds, [read, write, except], timeout));
    timeout.store_timespec(user_timeout);
    r
}

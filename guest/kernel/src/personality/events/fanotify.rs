//! System calls of `fanotify(7)`.

use doppel_abi_linux::syscalls::nr;

use crate::objects::ipc::fanotify::{FanMask, Group, InitFlags, MarkFlags, Place, WAYS, Ways};
use crate::objects::lookup::open::quietly;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm::{self, cap};
use crate::objects::vfs::attach::busy::is_written;
use crate::objects::vfs::attach::handle::Handle;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Caller, File, FileType, Name};
use crate::personality::Support::Partial;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::process::descriptors::pidfd;
use crate::process::task::{TASKS, current_ref};
use crate::{Errno, Result};

/// System calls of this module.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::FANOTIFY_INIT,
        sys_init(Bits<InitFlags>, Bits<OpenFlags>),
        Partial,
        "FAN_REPORT_MNT and FAN_ENABLE_AUDIT are refused: EINVAL"
    ),
    call!(
        nr::FANOTIFY_MARK,
        sys_mark(RawFd, Bits<MarkFlags>, Bits<FanMask>, RawFd, UserStr),
        Partial,
        "files of /proc and /sys never change; FAN_DELETE_SELF comes at the last unlink; \
         what others change on a volume is not told; FAN_FS_ERROR never comes"
    ),
];

/// What files of events may be opened with.
const EVENT_FLAGS: OpenFlags = OpenFlags::WRONLY
    .union(OpenFlags::RDWR)
    .union(OpenFlags::APPEND)
    .union(OpenFlags::NONBLOCK)
    .union(OpenFlags::CLOEXEC)
    .union(OpenFlags::SYNC)
    .union(OpenFlags::NOATIME)
    .union(OpenFlags::LARGEFILE);

fn open_event(path: Path, flags: OpenFlags) -> Result<i32> {
    let file = quietly(path, flags)?;
    current_ref().files().insert(file, flags.contains(OpenFlags::CLOEXEC))
}

/// Gives fanotify what it asks of this layer; once, at boot.
pub fn run() {
    WAYS.set(Ways {
        open: open_event,
        // Another thread may have closed it already; then there is nothing to undo.
        close: |fd| {
            let _ = current_ref().files().close(fd);
        },
        process: |pid| pidfd::open(&TASKS.process(pid)?),
    });
}

fn sys_init(a: &Args, flags: Bits<InitFlags>, event_flags: Bits<OpenFlags>) -> Result<u64> {
    let cred = a.thread.cred();
    let privileged = cred.capable(cap::SYS_ADMIN);
    let given = flags.any();
    if !privileged && (given.intersects(InitFlags::PRIVILEGED) || !given.intersects(InitFlags::FID)) {
        return Err(Errno::EPERM);
    }
    let flags = flags.of(InitFlags::all() - InitFlags::ENABLE_AUDIT)?;
    let needs = |bit, other| flags.contains(bit) && !flags.contains(other);
    let event_flags = event_flags.of(EVENT_FLAGS)?;
    if flags.contains(InitFlags::REPORT_PIDFD | InitFlags::REPORT_TID)
        || flags.contains(InitFlags::CLASS)
        || event_flags.contains(OpenFlags::WRONLY | OpenFlags::RDWR)
        || flags.intersects(InitFlags::FID) && flags.intersects(InitFlags::CLASS)
        || needs(InitFlags::REPORT_NAME, InitFlags::REPORT_DIR_FID)
        || needs(InitFlags::REPORT_TARGET_FID, InitFlags::REPORT_NAME | InitFlags::REPORT_FID)
    {
        return Err(Errno::EINVAL);
    }
    let how = OpenFlags::RDWR
        | if flags.contains(InitFlags::NONBLOCK) { OpenFlags::NONBLOCK } else { OpenFlags::empty() };
    let group = Group::new(flags, event_flags, !privileged, cred.ruid)?;
    let file = File::anon(group.clone(), "anon_inode:[fanotify]".into(), how);
    let made = anon::insert(a, file.clone(), flags.contains(InitFlags::CLOEXEC));
    if made.is_err() {
        file.ops().release(&file);
    }
    made
}

/// What a mark wants, once it is known to make sense.
struct Request {
    flags: MarkFlags,
    mask: FanMask,
}

/// Checks what needs no group.
fn request(flags: Bits<MarkFlags>, mask: Bits<FanMask>) -> Result<Request> {
    let flags = flags.checked()?;
    if flags.contains(MarkFlags::KIND) {
        return Err(Errno::EINVAL);
    }
    let given = mask.any();
    match flags & MarkFlags::COMMAND {
        MarkFlags::ADD | MarkFlags::REMOVE if !given.is_empty() => {}
        MarkFlags::FLUSH if (flags - MarkFlags::KIND - MarkFlags::FLUSH).is_empty() => {}
        _ => return Err(Errno::EINVAL),
    }
    let mut mask = mask.of(FanMask::MARK)?;
    if flags.contains(MarkFlags::IGNORES) {
        return Err(Errno::EINVAL);
    }
    if flags.contains(MarkFlags::IGNORED_MASK) {
        mask -= FanMask::FLAGS;
    }
    Ok(Request { flags, mask })
}

/// Checks what depends on the group.
fn fits(group: &Group, r: &Request) -> Result<()> {
    let of_inode = !r.flags.intersects(MarkFlags::KIND);
    let others = r.mask - FanMask::OPENED - FanMask::FLAGS;
    let asks = r.mask.intersects(FanMask::PERM);
    if asks && !group.flags.intersects(InitFlags::CLASS)
        || r.mask.contains(FanMask::FS_ERROR) && !r.flags.contains(MarkFlags::FILESYSTEM)
        || r.flags.contains(MarkFlags::EVICTABLE) && !of_inode
        || !others.is_empty() && (!group.by_handle() || r.flags.contains(MarkFlags::MOUNT))
        || r.mask.contains(FanMask::RENAME) && !group.flags.contains(InitFlags::REPORT_NAME)
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The place that is marked, or the file of a descriptor that has none.
fn find(a: &Args, flags: MarkFlags, RawFd(dirfd): RawFd, UserStr(name): UserStr) -> Result<Path> {
    let path = if name.is_null() {
        a.thread.file(dirfd)?.path.clone().ok_or(Errno::EINVAL)?
    } else {
        let name = Name::read(name)?;
        let caller = Caller::new(&**a.thread);
        caller.find(dirfd, name.bytes(), !flags.contains(MarkFlags::DONT_FOLLOW))?
    };
    if flags.contains(MarkFlags::ONLYDIR) && path.dentry().kind() != FileType::Directory {
        return Err(Errno::ENOTDIR);
    }
    perm::check(&a.thread.cred(), &**path.inode(), perm::MAY_READ)?;
    Ok(path)
}

/// Checks what depends on the file: `adds` what is asked for.
fn fits_file(group: &Group, r: &Request, path: &Path, adds: bool) -> Result<()> {
    let is_dir = path.dentry().kind() == FileType::Directory;
    let strict = group.flags.contains(InitFlags::REPORT_TARGET_FID)
        || r.mask.contains(FanMask::RENAME)
        || r.flags.contains(MarkFlags::IGNORE);
    if adds && r.mask.intersects(FanMask::PERM) && path.mount().fstype() == "proc" {
        return Err(Errno::EINVAL);
    }
    if adds && strict && !is_dir && r.mask.intersects(FanMask::ENTRY | FanMask::FLAGS) {
        return Err(Errno::ENOTDIR);
    }
    let opens = Handle::of(&**path.inode(), None).is_some();
    if group.by_handle() && r.flags.intersects(MarkFlags::KIND) && !opens {
        return Err(Errno::EOPNOTSUPP);
    }
    let of_inode = !r.flags.intersects(MarkFlags::KIND);
    let lasts = r.flags.contains(MarkFlags::IGNORED_SURV_MODIFY);
    if adds && r.flags.contains(MarkFlags::IGNORE) && !lasts && (!of_inode || is_dir) {
        return Err(if of_inode { Errno::EISDIR } else { Errno::EINVAL });
    }
    Ok(())
}

fn sys_mark(
    a: &Args,
    RawFd(fd): RawFd,
    flags: Bits<MarkFlags>,
    mask: Bits<FanMask>,
    dirfd: RawFd,
    name: UserStr,
) -> Result<u64> {
    let mut r = request(flags, mask)?;
    let file = a.thread.file(fd)?;
    let group = file.downcast::<Group>().ok_or(Errno::EINVAL)?;
    let of_inode = !r.flags.intersects(MarkFlags::KIND);
    let admin = a.thread.cred().capable(cap::SYS_ADMIN);
    if (!admin || group.unprivileged) && !of_inode {
        return Err(Errno::EPERM);
    }
    fits(group, &r)?;
    if r.flags.contains(MarkFlags::FLUSH) {
        group.flush(r.flags & MarkFlags::KIND);
        return Ok(0);
    }
    let path = find(a, r.flags, dirfd, name)?;
    let adds = r.flags.contains(MarkFlags::ADD);
    fits_file(group, &r, &path, adds)?;
    let is_dir = path.dentry().kind() == FileType::Directory;
    if !of_inode || !is_dir {
        r.mask -= FanMask::EVENT_ON_CHILD;
        let with_dir = group.flags.contains(InitFlags::REPORT_DIR_FID);
        if adds && with_dir && !r.flags.intersects(MarkFlags::IGNORES) {
            // The directory is told as well.
            r.mask |= FanMask::EVENT_ON_CHILD;
        }
    }
    let lasts = r.flags.contains(MarkFlags::IGNORED_SURV_MODIFY);
    if adds
        && of_inode
        && !lasts
        && r.flags.intersects(MarkFlags::IGNORES)
        && is_written(path.inode().attachments())
    {
        // It would end with the next write.
        return Ok(0);
    }
    let place = if r.flags.contains(MarkFlags::MOUNT) {
        Place::Mount(path.mount().id)
    } else if r.flags.contains(MarkFlags::FILESYSTEM) {
        Place::FileSystem(path.inode().place().0)
    } else {
        Place::Inode(path.inode().clone())
    };
    if adds {
        group.add(place, r.mask, r.flags)?
    } else {
        group.remove(&place, r.mask, r.flags)?
    }
    Ok(0)
}

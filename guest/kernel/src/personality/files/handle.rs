//! File handles: name_to_handle_at and open_by_handle_at.
//!
//! A handle names a file, not a way to it, so it survives renames. Which file systems have handles, their sizes and
//! types are Linux': files in memory (tmpfs' layout) and cgroup2 (kernfs'); with AT_HANDLE_FID everything that
//! has a number, to be compared only.

use alloc::sync::Arc;
use core::any::Any;

use doppel_abi_linux::syscalls::nr;

use crate::objects::lookup::caller::{Caller, Name, Target, at};
use crate::objects::lookup::open;
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm::cap;
use crate::objects::rootfs::Node;
use crate::objects::vfs::attach::handle::{Handle, NODE, alias};
use crate::objects::vfs::dentry::Dentry;
use crate::objects::vfs::flags::{AtFlags, OpenFlags};
use crate::objects::vfs::inode::Inode;
use crate::objects::vfs::mount::Mount;
use crate::objects::vfs::synthetic::SyntheticInode;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, RawFd, UserStr};
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};
use doppel_machine::user::UserPtr;

doppel_machine::pod_struct! {
    /// The head of `struct file_handle`.
    pub struct Head {
        /// Bytes of the handle behind this.
        pub bytes: u32,
        /// Its layout.
        pub kind: i32,
    }
}

/// MAX_HANDLE_SZ.
const MAX_BYTES: u32 = 128;
/// `handle_type` of kernfs: its number.
const KERNFS: i32 = 0xfe;
/// FILEID_IS_CONNECTABLE and FILEID_IS_DIR may be set in a type; above them nothing is.
const USER_FLAGS: i32 = 0x3_0000;

fn halves(ino: u64) -> [u32; 2] {
    [ino as u32, (ino >> 32) as u32]
}

fn node(i: &dyn Inode) -> Option<&Node> {
    let any: &dyn Any = i;
    any.downcast_ref()
}

/// Whether it is the one synthetic file system that has handles on Linux: procfs, sysfs and devpts have none.
fn is_cgroups(m: &Mount) -> bool {
    m.fstype() == "cgroup2"
}

/// The handle of a file: EOPNOTSUPP if it cannot have one. `compared`: it need not serve to open the file.
fn handle_of(target: &Target, compared: bool) -> Result<Handle> {
    let (inode, path) = match target {
        Target::Path(p) => (Some(p.inode()), Some(p)),
        Target::File(f) => (f.inode.as_ref(), None),
    };
    if let Some(h) = inode.and_then(|i| Handle::of(&**i, path.map(Path::dentry))) {
        return Ok(h);
    }
    let ino = target.stat()?.ino;
    if path.is_some_and(|p| is_cgroups(p.mount())) {
        let [low, high] = halves(ino);
        return Ok(Handle::new(KERNFS, 2, [low, high, 0]));
    }
    if compared { Ok(Handle::compared(ino)) } else { Err(Errno::EOPNOTSUPP) }
}

/// Copies a handle from the caller.
fn read_handle(user: UserPtr) -> Result<Handle> {
    let head: Head = user.read()?;
    if head.bytes == 0 || head.bytes > MAX_BYTES || head.kind & !(USER_FLAGS | 0xffff) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut raw = [0; MAX_BYTES as usize];
    user.add(size_of::<Head>() as u64).read_bytes(&mut raw[..head.bytes as usize])?;
    let mut words = [0; 3];
    for (w, b) in words.iter_mut().zip(raw.as_chunks().0) {
        *w = u32::from_le_bytes(*b);
    }
    Ok(Handle::new(head.kind & 0xffff, head.bytes as usize / 4, words))
}

/// The file that a handle names, in the file system of `mount`. ESTALE if there is none.
fn place(handle: &Handle, mount: &Arc<Mount>) -> Result<Path> {
    dentry(handle, mount).map(|d| Path::new(mount.clone(), d)).ok_or(Errno::ESTALE)
}

fn dentry(handle: &Handle, mount: &Mount) -> Option<Arc<Dentry>> {
    let number = |w: &[u32]| u64::from(w[0]) | u64::from(w[1]) << 32;
    let root = mount.root.inode();
    let words = handle.words();
    if let Some(r) = node(&**root) {
        let ours = handle.kind == NODE && words.len() == 3 && words[0] == r.generation();
        let found = if ours { r.by_handle(number(&words[1..]))? } else { return None };
        // Without a name in the cache it hangs in no directory, which only directories would miss: theirs stay.
        let kept = alias(&*found).filter(|d| !d.unlinked() || found.stat().nlink == 0);
        return Some(kept.unwrap_or_else(|| Dentry::root(found)));
    }
    let any: &dyn Any = &**root;
    let tree = any.downcast_ref::<SyntheticInode>().filter(|_| is_cgroups(mount))?;
    let ours = handle.kind == KERNFS && words.len() >= 2;
    let names = if ours { tree.names_to(number(words))? } else { return None };
    names.iter().try_fold(mount.root.clone(), |d, n| d.child(n).ok())
}

fn name_to_handle_at(
    a: &Args,
    RawFd(dirfd): RawFd,
    UserStr(path): UserStr,
    user_handle: UserPtr,
    mount_id: UserPtr,
    flags: Bits<AtFlags>,
) -> Result<u64> {
    let known = AtFlags::SYMLINK_FOLLOW
        | AtFlags::EMPTY_PATH
        | AtFlags::HANDLE_FID
        | AtFlags::HANDLE_MNT_ID_UNIQUE
        | AtFlags::HANDLE_CONNECTABLE;
    let flags = flags.of(known)?;
    if flags.contains(AtFlags::HANDLE_FID | AtFlags::HANDLE_CONNECTABLE) {
        return Err(Errno::EINVAL);
    }
    let name = Name::read(path)?;
    let follow = AtFlags::SYMLINK_NOFOLLOW.when(!flags.contains(AtFlags::SYMLINK_FOLLOW));
    let target =
        Caller::new(&**a.thread).target(dirfd, name.bytes(), flags & AtFlags::EMPTY_PATH | follow)?;
    if flags.contains(AtFlags::HANDLE_CONNECTABLE) {
        // As tmpfs: its handles do not hold the directory.
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = handle_of(&target, flags.contains(AtFlags::HANDLE_FID))?;
    let room: Head = user_handle.read()?;
    if room.bytes > MAX_BYTES {
        return Err(Errno::EINVAL);
    }
    let mount = match &target {
        Target::Path(p) => p.mount().id,
        Target::File(_) => 0,
    };
    if flags.contains(AtFlags::HANDLE_MNT_ID_UNIQUE) {
        mount_id.write(&mount)?
    } else {
        mount_id.write(&(mount as i32))?
    }
    let bytes = 4 * handle.words().len() as u32;
    let fits = bytes <= room.bytes;
    user_handle.write(&Head { bytes, kind: handle.kind })?;
    if !fits {
        return Err(Errno::EOVERFLOW);
    }
    let data = user_handle.add(size_of::<Head>() as u64);
    for (i, w) in handle.words().iter().enumerate() {
        data.add(4 * i as u64).write(w)?;
    }
    Ok(0)
}

fn open_by_handle_at(
    a: &Args,
    RawFd(mount_fd): RawFd,
    user_handle: UserPtr,
    flags: Bits<OpenFlags>,
) -> Result<u64> {
    let flags = flags.known();
    let handle = read_handle(user_handle)?;
    let caller = Caller::new(&**a.thread);
    let anchor =
        if mount_fd == at::FDCWD { Some(caller.fs.cwd()) } else { a.thread.file(mount_fd)?.path.clone() };
    if !caller.cred.capable(cap::DAC_READ_SEARCH) {
        return Err(Errno::EPERM);
    }
    let place = place(&handle, anchor.ok_or(Errno::ESTALE)?.mount())?;
    let file = open::found(&caller, place, flags)?;
    Ok(a.thread.files().insert(file, flags.contains(OpenFlags::CLOEXEC))? as u64)
}

/// name_to_handle_at and open_by_handle_at.
pub const CALLS: &[Syscall] = &[
    call!(
        nr::NAME_TO_HANDLE_AT,
        name_to_handle_at(RawFd, UserStr, UserPtr, UserPtr, Bits<AtFlags>),
        Full,
        ""
    ),
    call!(nr::OPEN_BY_HANDLE_AT, open_by_handle_at(RawFd, UserPtr, Bits<OpenFlags>), Full, ""),
];

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
/// `handle_type`: tmpfs' (generation, number), kernfs' number, and a number with a generation that only compares.
const NODE: i32 = 1;
const KERNFS: i32 = 0xfe;
const COMPARED: i32 = 0x81;
/// FILEID_IS_CONNECTABLE and FILEID_IS_DIR may be set in a type; above them nothing is.
const USER_FLAGS: i32 = 0x3_0000;

/// A handle: its layout, and up to three words of it.
#[derive(Clone, Copy)]
struct Handle {
    kind: i32,
    len: usize,
    words: [u32; 3],
}

fn halves(ino: u64) -> [u32; 2] {
    [ino as u32, (ino >> 32) as u32]
}

/// Where the directory cache had the file when its handle was given.
struct Alias(alloc::sync::Weak<Dentry>);

fn node(i: &dyn Inode) -> Option<&Node> {
    let any: &dyn Any = i;
    any.downcast_ref()
}

/// Whether it is the one synthetic file system that has handles on Linux: procfs, sysfs and devpts have none.
fn is_cgroups(m: &Mount) -> bool {
    m.fstype == "cgroup2"
}

impl Handle {
    /// The handle of a file: EOPNOTSUPP if it cannot have one. `compared`: it need not serve to open the file.
    fn of(target: &Target, compared: bool) -> Result<Self> {
        let (inode, path) = match target {
            Target::Path(p) => (Some(p.inode()), Some(p)),
            Target::File(f) => (f.inode.as_ref(), None),
        };
        if let Some(n) = inode.and_then(|i| node(&**i)) {
            if let (Some(p), Some(slot)) = (path, n.attachments()) {
                p.dentry().give_handle();
                slot.set(Arc::new(Alias(Arc::downgrade(p.dentry()))));
            }
            let [low, high] = halves(n.give_handle());
            return Ok(Self { kind: NODE, len: 3, words: [n.generation(), low, high] });
        }
        let [low, high] = halves(target.stat()?.ino);
        if path.is_some_and(|p| is_cgroups(p.mount())) {
            return Ok(Self { kind: KERNFS, len: 2, words: [low, high, 0] });
        }
        if compared {
            Ok(Self { kind: COMPARED, len: 3, words: [low, high, 0] })
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    }

    /// Copies a handle from the caller.
    fn read(user: UserPtr) -> Result<Self> {
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
        Ok(Self { kind: head.kind & 0xffff, len: head.bytes as usize / 4, words })
    }

    /// The file it names, in the file system of `mount`. ESTALE if there is none.
    fn place(&self, mount: &Arc<Mount>) -> Result<Path> {
        self.dentry(mount).map(|d| Path::new(mount.clone(), d)).ok_or(Errno::ESTALE)
    }

    fn dentry(&self, mount: &Mount) -> Option<Arc<Dentry>> {
        let number = |w: &[u32]| u64::from(w[0]) | u64::from(w[1]) << 32;
        let root = mount.root.inode();
        if let Some(r) = node(&**root) {
            let ours = self.kind == NODE && self.len >= 3 && self.words[0] == r.generation();
            let found = if ours { r.by_handle(number(&self.words[1..]))? } else { return None };
            let place = found.attachments().and_then(crate::objects::vfs::inode::Attachments::get::<Alias>);
            // Without a name in the cache it hangs in no directory, which only directories would miss: theirs stay.
            let kept = place.and_then(|p| p.0.upgrade()).filter(|d| !d.unlinked() || found.stat().nlink == 0);
            return Some(kept.unwrap_or_else(|| Dentry::root(found)));
        }
        let any: &dyn Any = &**root;
        let tree = any.downcast_ref::<SyntheticInode>().filter(|_| is_cgroups(mount))?;
        let ours = self.kind == KERNFS && self.len >= 2;
        let names = if ours { tree.names_to(number(&self.words))? } else { return None };
        names.iter().try_fold(mount.root.clone(), |d, n| d.child(n).ok())
    }
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
    let handle = Handle::of(&target, flags.contains(AtFlags::HANDLE_FID))?;
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
    let bytes = 4 * handle.len as u32;
    let fits = bytes <= room.bytes;
    user_handle.write(&Head { bytes, kind: handle.kind })?;
    if !fits {
        return Err(Errno::EOVERFLOW);
    }
    let data = user_handle.add(size_of::<Head>() as u64);
    for (i, w) in handle.words[..handle.len].iter().enumerate() {
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
    let handle = Handle::read(user_handle)?;
    let caller = Caller::new(&**a.thread);
    let anchor =
        if mount_fd == at::FDCWD { Some(caller.fs.cwd()) } else { a.thread.file(mount_fd)?.path.clone() };
    if !caller.cred.capable(cap::DAC_READ_SEARCH) {
        return Err(Errno::EPERM);
    }
    let place = handle.place(anchor.ok_or(Errno::ESTALE)?.mount())?;
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

//! devpts: the numbering of pseudo-terminals, and the file system that shows them.
//!
//! There is one instance a domain. A number is taken while either side of its pseudo-terminal exists; the name
//! is there while the master is open.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::sync::Arc;

use doppel_abi_linux::termios::HUPCL;
use doppel_algo::ldisc::Termios;
use doppel_machine::sync::SpinLock;

use super::Tty;
use super::layout::Winsize;
use super::master::Master;
use super::slave::Slave;
use super::terminal::Kind;
use crate::core::part::Part;
use crate::core::time;
use crate::objects::vfs::file::{DirSink, Splice};
use crate::objects::vfs::flags::{OpenFlags, RenameFlags};
use crate::objects::vfs::inode::{SetAttr, StatFs, Time};
use crate::objects::vfs::{File, FileOps, FileType, Inode, Stat, Whence};
use crate::process::task::current;
use crate::process::task::current_ref;
use crate::{Errno, Result};

/// Most pseudo-terminals at a time: the minors of the four major numbers registered.
const MAX: u32 = 1024;
/// Group of the slaves: tty.
const GID: u32 = 5;
/// Device number of the file system.
const DEV: u64 = 0x14;
/// Inode numbers: the root, ptmx, then pseudo-terminal N as N + 3, as on Linux.
const ROOT_INO: u64 = 1;
const PTMX_INO: u64 = 2;
const PTMX_RDEV: u64 = 5 << 8 | 2;

#[derive(Default)]
pub(crate) struct DevPts {
    numbers: SpinLock<BTreeSet<u32>>,
    open: SpinLock<BTreeMap<u32, Arc<Node>>>,
}

/// The domain's.
pub(crate) static DEV_PTS: Part<DevPts> = Part::new();

fn devpts() -> &'static DevPts {
    DEV_PTS.get()
}

struct Attr {
    mode: u32,
    uid: u32,
    gid: u32,
    time: Time,
}

/// The file of one slave.
struct Node {
    number: u32,
    tty: Arc<Tty>,
    attr: SpinLock<Attr>,
}

/// What statfs says of the file system (DEVPTS_SUPER_MAGIC).
fn statfs() -> StatFs {
    StatFs { magic: 0x1cd1, dev: DEV, ..StatFs::default() }
}

fn now() -> Time {
    time::realtime_ns().cast_signed()
}

/// Adds a pseudo-terminal that belongs to user `uid`.
pub(super) fn add(uid: u32, make: impl FnOnce(u32) -> Arc<Tty>) -> Result<(u32, Arc<Tty>)> {
    let d = devpts();
    let number = {
        let mut used = d.numbers.lock();
        let n = (0..MAX).find(|n| !used.contains(n)).ok_or(Errno::ENOSPC)?;
        used.insert(n);
        n
    };
    let tty = make(number);
    let attr = SpinLock::new(Attr { mode: 0o620, uid, gid: GID, time: now() });
    d.open.lock().insert(number, Arc::new(Node { number, tty: tty.clone(), attr }));
    Ok((number, tty))
}

/// Opens /dev/ptmx: a new pseudo-terminal's master.
pub(super) fn open_ptmx() -> Result<Arc<dyn FileOps>> {
    let mut termios = Termios::default();
    termios.cflag &= !HUPCL;
    let make = |n| Tty::new(Kind::Pty(n), termios, Winsize::default(), false, None);
    let (_, tty) = add(current().cred().fsuid, make)?;
    Ok(Arc::new(Master::new(tty)))
}

/// The master of a pseudo-terminal was closed, or the host gave it up: its name goes.
pub(super) fn master_closed(tty: &Tty) {
    if let Kind::Pty(n) = tty.kind {
        let node = devpts().open.lock().remove(&n);
        drop(node);
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        if let Kind::Pty(n) = self.kind {
            devpts().numbers.lock().remove(&n);
        }
    }
}

/// Opens the slave of pseudo-terminal `number`: EIO if it has no master.
pub(super) fn open_slave(number: u32, flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
    let node = devpts().open.lock().get(&number).cloned().ok_or(Errno::EIO)?;
    let slave = Slave::open(&node.tty, flags)?;
    Ok(slave)
}

/// TIOCGPTPEER: a new descriptor for the slave of this master, whatever /dev/pts shows the caller.
pub(super) fn open_peer(tty: &Arc<Tty>, flags: OpenFlags) -> Result<u64> {
    if !(OpenFlags::ACCMODE | OpenFlags::CLOEXEC | OpenFlags::NOCTTY | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let Kind::Pty(n) = tty.kind else { return Err(Errno::ENOTTY) };
    let name = alloc::format!("/dev/pts/{n}");
    let slave = Slave::open(tty, flags)?;
    let file = match crate::objects::lookup::caller::resolve(name.as_bytes()) {
        Ok(p) => File::new(slave, p.inode().clone(), p, flags),
        Err(_) => File::anon(slave, name, flags),
    };
    let fd = current_ref().files().insert(file, flags.contains(OpenFlags::CLOEXEC))?;
    Ok(fd as u64)
}

impl Inode for Node {
    fn statfs(&self) -> StatFs {
        statfs()
    }

    fn stat(&self) -> Stat {
        let a = self.attr.lock();
        let (major, minor) = self.tty.device();
        Stat {
            dev: DEV,
            ino: u64::from(self.number) + 3,
            mode: FileType::CharDevice as u32 | a.mode,
            uid: a.uid,
            gid: a.gid,
            rdev: u64::from(major) << 8 | u64::from(minor),
            blksize: 1024,
            atime: a.time,
            mtime: a.time,
            ctime: a.time,
            btime: a.time,
            ..Stat::anonymous()
        }
    }

    fn set_attr(&self, new: &SetAttr) -> Result<()> {
        let mut a = self.attr.lock();
        a.mode = new.mode.map_or(a.mode, |m| m & 0o7777);
        a.uid = new.uid.unwrap_or(a.uid);
        a.gid = new.gid.unwrap_or(a.gid);
        a.time = new.mtime.unwrap_or_else(now);
        Ok(())
    }

    fn open(&self, flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        open_slave(self.number, flags)
    }
}

/// /dev/pts/ptmx.
struct Ptmx;

impl Inode for Ptmx {
    fn statfs(&self) -> StatFs {
        statfs()
    }

    fn stat(&self) -> Stat {
        let mode = FileType::CharDevice as u32 | 0o666;
        Stat { dev: DEV, ino: PTMX_INO, mode, rdev: PTMX_RDEV, ..Stat::anonymous() }
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        open_ptmx()
    }
}

/// The root directory of devpts.
struct Root {
    ptmx: Arc<Ptmx>,
}

/// The file system, to be mounted on /dev/pts.
pub fn root() -> Arc<dyn Inode> {
    Arc::new(Root { ptmx: Arc::new(Ptmx) })
}

impl Inode for Root {
    fn statfs(&self) -> StatFs {
        statfs()
    }

    fn stat(&self) -> Stat {
        let mode = FileType::Directory as u32 | 0o755;
        Stat { dev: DEV, ino: ROOT_INO, mode, nlink: 2, ..Stat::anonymous() }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if name == b"ptmx" {
            return Ok(self.ptmx.clone());
        }
        let text = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let n: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
        if n.to_string() != text {
            return Err(Errno::ENOENT);
        }
        let node = devpts().open.lock().get(&n).cloned();
        Ok(node.ok_or(Errno::ENOENT)?)
    }

    fn open(&self, _flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(Listing))
    }

    // Names come and go with the masters only.

    fn create(&self, _name: &[u8], mode: u32, _uid: u32, _gid: u32, _rdev: u64) -> Result<Arc<dyn Inode>> {
        let file = FileType::from_mode(mode) == Some(FileType::Regular);
        Err(if file { Errno::EACCES } else { Errno::EPERM })
    }

    fn symlink(&self, _name: &[u8], _target: &[u8], _uid: u32, _gid: u32) -> Result<Arc<dyn Inode>> {
        Err(Errno::EPERM)
    }

    fn link(&self, _name: &[u8], _inode: &Arc<dyn Inode>) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn unlink(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn rmdir(&self, _name: &[u8], _unused: bool) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn rename(
        &self,
        _name: &[u8],
        _dir: &Arc<dyn Inode>,
        _new_name: &[u8],
        _flags: RenameFlags,
        _unused: bool,
    ) -> Result<()> {
        Err(Errno::EPERM)
    }

    fn cacheable(&self) -> bool {
        false
    }
}

/// The open directory. Positions: 0 ".", 1 "..", 2 ptmx, then number + 3.
struct Listing;

impl FileOps for Listing {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn pollable(&self) -> bool {
        false
    }

    fn readdir(&self, _file: &File, pos: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let dir = FileType::Directory;
        let fixed: [(u64, FileType, &[u8]); 3] =
            [(ROOT_INO, dir, b"."), (ROOT_INO, dir, b".."), (PTMX_INO, FileType::CharDevice, b"ptmx")];
        for (i, (ino, kind, name)) in fixed.iter().enumerate().skip(pos.min(3) as usize) {
            if !sink(*ino, i as u64 + 1, *kind, name) {
                return Ok(());
            }
        }
        let from = u32::try_from(pos.saturating_sub(3)).unwrap_or(u32::MAX);
        let numbers: alloc::vec::Vec<u32> = devpts().open.lock().range(from..).map(|(n, _)| *n).collect();
        for n in numbers {
            let ino = u64::from(n) + 3;
            if !sink(ino, ino + 1, FileType::CharDevice, n.to_string().as_bytes()) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Cur => file.pos.get(),
            _ => return Err(Errno::EINVAL),
        };
        base.checked_add_signed(offset).ok_or(Errno::EINVAL)
    }

    fn seekable(&self) -> bool {
        true
    }

    fn fsync(&self, _file: &File) -> Result<()> {
        Ok(())
    }
}

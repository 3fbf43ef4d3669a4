//! A file as a block device.
//!
//! All who attach the same image get the same device, so that the host's kernel mounts it once and caches its pages
//! once; a domain's disk is a device of its own. Devices go away by themselves when nobody has them open or mounted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::FlockOperation;

const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// How often a device that another process takes first is looked for again.
const TRIES: u32 = 64;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304, "linux/loop.h");

const EMPTY: LoopInfo = LoopInfo {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// A block device that shows a file.
#[derive(Debug)]
pub struct Disk {
    /// Its path; valid while it is open here or mounted.
    pub path: PathBuf,
    /// It stays while this is open.
    device: File,
}

impl Disk {
    /// Its number, as of `mknod(2)`.
    ///
    /// # Errors
    /// What the host says.
    pub fn number(&self) -> io::Result<u64> {
        let meta = self.device.metadata()?;
        if !meta.file_type().is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device"));
        }
        Ok(meta.rdev())
    }

    /// Its descriptor.
    #[must_use]
    pub fn device(&self) -> &File {
        &self.device
    }
}

/// A read-only device with the bytes of `image`, which must not change.
///
/// # Errors
/// If the host has no loop devices, or none to spare.
pub fn attach(image: &File) -> io::Result<Disk> {
    // Two that look at the same time would attach it twice.
    rustix::fs::flock(image, FlockOperation::LockExclusive)?;
    let disk = match find(image)? {
        Some(disk) => Ok(disk),
        None => make(image, true),
    };
    rustix::fs::flock(image, FlockOperation::Unlock)?;
    disk
}

/// A device of its own with the bytes of a file, which is written to unless it is read-only.
///
/// # Errors
/// As for [`attach`].
pub fn attach_alone(file: &File, read_only: bool) -> io::Result<Disk> {
    make(file, read_only)
}

fn open(number: u32, read_only: bool) -> io::Result<Disk> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    Ok(Disk { device: OpenOptions::new().read(true).write(!read_only).open(&path)?, path })
}

/// The device that shows this file already.
fn find(image: &File) -> io::Result<Option<Disk>> {
    let meta = image.metadata()?;
    for entry in std::fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("loop")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        // It may be gone by now; and most are nobody's.
        let Ok(disk) = open(number, true) else { continue };
        let mut info = EMPTY;
        // SAFETY: the kernel fills the structure, whose size is that of `linux/loop.h`.
        let got = unsafe { libc::ioctl(disk.device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
        let whole = (info.offset, info.size_limit) == (0, 0) && info.flags & LO_FLAGS_READ_ONLY != 0;
        if got == 0 && whole && (info.device, info.inode) == (meta.dev(), meta.ino()) {
            return Ok(Some(disk));
        }
    }
    Ok(None)
}

fn make(image: &File, read_only: bool) -> io::Result<Disk> {
    let flags = LO_FLAGS_AUTOCLEAR | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..TRIES {
        // SAFETY: takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
        let disk = open(number, read_only)?;
        // Pages of the file are cached once, above the device; not all file systems can do so.
        let first = configure(&disk.device, image.as_fd(), flags | LO_FLAGS_DIRECT_IO);
        let done = match first {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => configure(&disk.device, image.as_fd(), flags),
            done => done,
        };
        match done {
            Ok(()) => return Ok(disk),
            // Somebody else was faster.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn configure(device: &File, image: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(image.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
        block_size: 0,
        info: LoopInfo { flags, ..EMPTY },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads the structure, whose size is that of `linux/loop.h`, and keeps the file open itself.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

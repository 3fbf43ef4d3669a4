//! Devices by number, and the memory devices.
//!
//! Drivers register an open function for a range of minors; device nodes anywhere (in /dev or in the image)
//! lead here.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use doppel_machine::sync::SpinLock;

use rand_chacha::rand_core::RngCore;

use super::file::{File, FileOps, Splice, Whence};
use super::io::{Input, Output};
use crate::core::part::Part;
use crate::core::random;
use crate::memory::MapSource;
use crate::objects::vfs::flags::OpenFlags;
use crate::{Errno, Result};

/// Opens a device: `(minor, open flags)`.
pub type Open = fn(u32, OpenFlags) -> Result<Arc<dyn FileOps>>;

/// Opens a block device: `(major and minor, open flags)`.
pub type OpenBlock = fn((u32, u32), OpenFlags) -> Result<Arc<dyn FileOps>>;

/// A driver of block devices: their major number, minor numbers, and how they are opened.
type BlockDriver = (u32, RangeInclusive<u32>, OpenBlock);

struct Driver {
    major: u32,
    minors: RangeInclusive<u32>,
    open: Open,
}

#[derive(Default)]
pub(crate) struct Registry {
    drivers: SpinLock<Vec<Driver>>,
    blocks: SpinLock<Vec<BlockDriver>>,
}

/// The domain's.
pub(crate) static REGISTRY: Part<Registry> = Part::new();

/// Registers `open` for character devices of `major` with these minors; the newest registration wins.
pub fn register(major: u32, minors: RangeInclusive<u32>, open: Open) {
    REGISTRY.drivers.lock().push(Driver { major, minors, open });
}

/// Registers `open` for block devices of `major` with these minors.
pub fn register_block(major: u32, minors: RangeInclusive<u32>, open: OpenBlock) {
    REGISTRY.blocks.lock().push((major, minors, open));
}

/// Opens a block device; ENXIO if no driver serves it.
pub(crate) fn open_block(rdev: u64, flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
    let (major, minor) = split(rdev);
    let open = {
        let drivers = REGISTRY.blocks.lock();
        drivers.iter().find(|(m, minors, _)| *m == major && minors.contains(&minor)).map(|(_, _, open)| *open)
    };
    (open.ok_or(Errno::ENXIO)?)((major, minor), flags)
}

/// Major and minor number of a device number.
pub const fn split(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
    let minor = (rdev & 0xff) | (rdev >> 12 & !0xff);
    (major as u32, minor as u32)
}

/// Opens a character device; ENXIO if no driver serves it.
pub(crate) fn open(rdev: u64, flags: OpenFlags) -> Result<Arc<dyn FileOps>> {
    let (major, minor) = split(rdev);
    let registry = REGISTRY.get();
    let open = {
        let d = registry.drivers.lock();
        d.iter().rev().find(|d| d.major == major && d.minors.contains(&minor)).map(|d| d.open)
    };
    (open.ok_or(Errno::ENXIO)?)(minor, flags)
}

/// The memory devices: null, zero, full, random, urandom, kmsg.
enum Memory {
    Null,
    Zero,
    Full,
    Random,
    Kmsg,
}

/// Registers the memory devices (boot).
pub(super) fn init() {
    register(1, 3..=11, |minor, _| {
        let dev = match minor {
            3 => Memory::Null,
            5 => Memory::Zero,
            7 => Memory::Full,
            8 | 9 => Memory::Random,
            11 => Memory::Kmsg,
            _ => return Err(Errno::ENXIO),
        };
        Ok(Arc::new(dev))
    });
}

impl FileOps for Memory {
    fn splice(&self) -> Splice {
        match self {
            Self::Null => Splice::Into,
            Self::Full => Splice::From,
            Self::Kmsg => Splice::Neither,
            Self::Zero | Self::Random => Splice::Both,
        }
    }

    fn read(&self, _file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        match self {
            Self::Null | Self::Kmsg => Ok(0),
            Self::Zero | Self::Full => out.zero(out.remaining()),
            Self::Random => fill_output(out),
        }
    }

    fn write(&self, _file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        match self {
            Self::Full => Err(Errno::ENOSPC),
            _ => Ok(input.remaining()),
        }
    }

    fn seekable(&self) -> bool {
        !matches!(self, Self::Kmsg)
    }

    fn positioned(&self) -> bool {
        false
    }

    fn seek(&self, _file: &File, _offset: i64, _whence: Whence) -> Result<u64> {
        Ok(0)
    }

    fn pollable(&self) -> bool {
        !matches!(self, Self::Null | Self::Zero | Self::Full)
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        const RNDGETENTCNT: u32 = 0x8004_5200;
        match (self, cmd) {
            (Self::Random, RNDGETENTCNT) => File::copy_out(arg, &256i32),
            (Self::Random, _) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn map(&self, _file: &File) -> Result<MapSource> {
        match self {
            Self::Zero => Ok(MapSource::Zero),
            _ => Err(Errno::ENODEV),
        }
    }
}

/// Fills all of `out` with random bytes; a fault ends it early.
pub fn fill_output(out: &mut Output<'_>) -> Result<usize> {
    let mut rng = random::fork();
    let mut buf = [0u8; 256];
    let mut done = 0;
    while out.remaining() > 0 {
        let n = out.remaining().min(buf.len());
        rng.fill_bytes(&mut buf[..n]);
        let got = match out.write(&buf[..n]) {
            Ok(g) => g,
            Err(e) if done == 0 => return Err(e),
            Err(_) => 0,
        };
        done += got;
        if got < n {
            break;
        }
    }
    Ok(done)
}

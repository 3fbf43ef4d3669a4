//! Loop devices: files of the domain's as block devices (`loop(4)`).
//!
//! [`Loop`] is what a device is bound to. A descriptor names the file, so whoever knows descriptors gives it to [`bind`].

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use super::{DEVICES, Device, Medium, SECTOR, Source};
use crate::objects::lookup::caller::file_stat;
use crate::objects::vfs::devices;
use crate::objects::vfs::file::{File, FileOps, Splice};
use crate::objects::vfs::flags::FallocateFlags;
use crate::objects::vfs::inode::{FileType, Stat};
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// Major number of loop devices, and how many there are.
const MAJOR: u32 = 7;
/// Loop devices that there are.
pub const COUNT: u32 = 8;
/// Major and minor number of /dev/loop-control.
pub const CONTROL: (u32, u32) = (10, 237);

const LOOP_SET_FD: u32 = 0x4c00;
const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_SET_STATUS64: u32 = 0x4c04;
const LOOP_GET_STATUS64: u32 = 0x4c05;
const LOOP_SET_CAPACITY: u32 = 0x4c07;
const LOOP_SET_DIRECT_IO: u32 = 0x4c08;
const LOOP_SET_BLOCK_SIZE: u32 = 0x4c09;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LOOP_CTL_ADD: u32 = 0x4c80;
const LOOP_CTL_REMOVE: u32 = 0x4c81;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;

/// `LO_FLAGS_`: what a binding is. Partitions are not looked for, and direct I/O is what there is in any case.
const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;

/// Zeros that are written at a time, where a file has no holes.
const ZEROS: [u8; 4096] = [0; 4096];

/// `struct loop_info64`, of which no part is interpreted but those named here.
#[derive(Clone, Copy)]
struct Info([u64; Self::WORDS]);

impl Info {
    const WORDS: usize = 29;

    fn offset(&self) -> u64 {
        self.0[3]
    }

    fn limit(&self) -> u64 {
        self.0[4]
    }

    fn flags(&self) -> u32 {
        (self.0[6] >> 32) as u32
    }

    /// The file's name, as whoever bound it has told it.
    fn name(&self) -> Vec<u8> {
        let name = self.0[7..15].iter().flat_map(|word| word.to_le_bytes());
        name.take_while(|byte| *byte != 0).collect()
    }
}

/// A binding: a file, or a part of it.
pub struct Loop {
    file: Arc<File>,
    read_only: bool,
    /// It ends with the last use of the device.
    autoclear: AtomicBool,
    info: SpinLock<Info>,
    /// From where in the file, and how many bytes.
    range: SpinLock<(u64, u64)>,
}

/// Bytes of a file that can be bound.
fn length(file: &File) -> Result<u64> {
    match file.downcast::<Device>() {
        Some(device) => Ok(device.size()),
        None => Ok(file_stat(file)?.size),
    }
}

impl Loop {
    fn new(file: Arc<File>, read_only: bool, info: Info) -> Result<Self> {
        let range = Self::range(&file, &info)?;
        let autoclear = AtomicBool::new(info.flags() & AUTOCLEAR != 0);
        file.fd_added();
        Ok(Self { file, read_only, autoclear, info: SpinLock::new(info), range: SpinLock::new(range) })
    }

    /// Which bytes of the file it is: whole sectors.
    fn range(file: &File, info: &Info) -> Result<(u64, u64)> {
        let left = length(file)?.saturating_sub(info.offset());
        let len = if info.limit() == 0 { left } else { left.min(info.limit()) };
        Ok((info.offset(), len / SECTOR * SECTOR))
    }

    fn set_info(&self, info: Info) -> Result<()> {
        let range = Self::range(&self.file, &info)?;
        *self.info.lock() = info;
        *self.range.lock() = range;
        self.autoclear.store(info.flags() & AUTOCLEAR != 0, Ordering::SeqCst);
        Ok(())
    }

    /// What is told of it: where the file is, and what was told before.
    fn told(&self, number: u32) -> Info {
        let mut info = *self.info.lock();
        let stat = file_stat(&self.file).unwrap_or_else(|_| Stat::anonymous());
        (info.0[0], info.0[1], info.0[2]) = (stat.dev, stat.ino, stat.rdev);
        info.0[5] = number.into();
        let flag = |on: bool, flag: u32| if on { u64::from(flag) << 32 } else { 0 };
        info.0[6] = flag(self.read_only, READ_ONLY) | flag(self.is_autoclear(), AUTOCLEAR);
        info
    }

    fn is_autoclear(&self) -> bool {
        self.autoclear.load(Ordering::SeqCst)
    }

    /// Path of the file, offset, size limit, and whether it ends with the last use, for /sys.
    pub fn described(&self) -> [String; 4] {
        let info = *self.info.lock();
        let path =
            self.file.path.as_ref().map_or_else(|| info.name(), crate::objects::lookup::path::Path::name);
        [
            format!("{}\n", String::from_utf8_lossy(&path)),
            format!("{}\n", info.offset()),
            format!("{}\n", info.limit()),
            format!("{}\n", u8::from(self.is_autoclear())),
        ]
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.file.let_go();
    }
}

impl Medium for Loop {
    fn size(&self) -> u64 {
        self.range.lock().1
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, out: &mut Output<'_>, at: u64) -> Result<usize> {
        let (from, _) = *self.range.lock();
        self.file.ops().read(&self.file, out, from + at)
    }

    fn write(&self, input: &mut Input<'_>, at: u64, most: usize) -> Result<usize> {
        let (from, _) = *self.range.lock();
        input.truncate(most);
        self.file.ops().write(&self.file, input, from + at)
    }

    fn sync(&self) -> Result<()> {
        self.file.ops().fsync(&self.file)
    }

    fn zero(&self, at: u64, len: u64) -> Result<()> {
        let (from, _) = *self.range.lock();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.file.ops().fallocate(&self.file, hole, from + at, len) {
            Err(Errno::EOPNOTSUPP) => {}
            done => return done,
        }
        let mut done = 0;
        while done < len {
            let part = &ZEROS[..ZEROS.len().min((len - done) as usize)];
            match self.file.ops().write(&self.file, &mut Input::kernel(part), from + at + done)? {
                0 => return Err(Errno::EIO),
                n => done += n as u64,
            }
        }
        Ok(())
    }
}

/// Makes the devices.
pub(super) fn init() {
    for number in 0..COUNT {
        super::add(Device::new(format!("loop{number}"), (MAJOR, number), Source::Loop(SpinLock::new(None))));
    }
    devices::register(CONTROL.0, CONTROL.1..=CONTROL.1, |_, _| Ok(Arc::new(Control)));
}

/// The descriptor of a file that a request to an open file is about besides: one that binds a loop device.
///
/// # Errors
/// EFAULT.
pub fn other_file(file: &File, request: u32, argument: u64) -> Result<Option<i32>> {
    if file.downcast::<Device>().is_none_or(|device| device.loops().is_none()) {
        return Ok(None);
    }
    Ok(match request {
        LOOP_SET_FD => Some(argument as i32),
        LOOP_CONFIGURE => {
            let fd: i32 = UserPtr(argument).read()?;
            Some(fd)
        }
        _ => None,
    })
}

/// Binds an open loop device to a file, as a request says for which [`other_file`] has given it.
///
/// # Errors
/// EBUSY: it is bound; EINVAL: to such a file it cannot be; EFAULT.
pub fn bind(device: &File, request: u32, argument: u64, other: Arc<File>) -> Result<u64> {
    let slot = device.downcast::<Device>().and_then(Device::loops).ok_or(Errno::ENOTTY)?;
    let info = match request {
        // Behind the descriptor and the size of a block.
        LOOP_CONFIGURE => Info(UserPtr(argument + 8).read()?),
        _ => Info([0; Info::WORDS]),
    };
    let kind = other.inode.as_ref().map(|inode| inode.kind());
    let disk = other.downcast::<Device>().is_some_and(|device| device.loops().is_none());
    if kind != Some(FileType::Regular) && !disk {
        return Err(Errno::EINVAL);
    }
    if !other.readable() {
        return Err(Errno::EBADF);
    }
    let read_only = !other.writable() || !device.writable() || info.flags() & READ_ONLY != 0;
    let bound = Arc::new(Loop::new(other, read_only, info)?);
    let mut slot = slot.lock();
    if slot.is_some() {
        // It is let go without the lock.
        drop(slot);
        drop(bound);
        return Err(Errno::EBUSY);
    }
    *slot = Some(bound);
    Ok(0)
}

/// `ioctl(2)` of a loop device.
pub(super) fn ioctl(device: &Device, request: u32, argument: u64) -> Result<u64> {
    let slot = device.loops().ok_or(Errno::ENOTTY)?;
    let bound = || slot.lock().clone().ok_or(Errno::ENXIO);
    match request {
        LOOP_GET_STATUS64 => File::copy_out(argument, &bound()?.told(device.number.1).0),
        LOOP_SET_STATUS64 => bound()?.set_info(Info(UserPtr(argument).read()?)).map(|()| 0),
        LOOP_SET_CAPACITY => {
            let bound = bound()?;
            let info = *bound.info.lock();
            bound.set_info(info).map(|()| 0)
        }
        LOOP_SET_DIRECT_IO => bound().map(|_| 0),
        LOOP_SET_BLOCK_SIZE => {
            bound()?;
            let fits = (SECTOR..=super::BLOCK).contains(&argument) && argument.is_power_of_two();
            if fits { Ok(0) } else { Err(Errno::EINVAL) }
        }
        LOOP_CLR_FD => {
            bound()?.autoclear.store(true, Ordering::SeqCst);
            // Who else uses it ends the binding.
            if device.is_used_once() {
                device.unused();
            }
            Ok(0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

impl Device {
    /// What it is bound to, if it is a loop device.
    pub(super) fn loops(&self) -> Option<&SpinLock<Option<Arc<Loop>>>> {
        match &self.source {
            Source::Loop(slot) => Some(slot),
            Source::Disk(_) => None,
        }
    }

    /// What it is bound to, if it is a loop device and is bound.
    pub fn bound(&self) -> Option<Arc<Loop>> {
        self.loops()?.lock().clone()
    }

    /// Nobody uses it any more: ends a binding that ends then.
    pub(super) fn unused(&self) {
        let Some(slot) = self.loops() else { return };
        let bound = {
            let mut slot = slot.lock();
            if slot.as_ref().is_some_and(|bound| bound.is_autoclear()) { slot.take() } else { None }
        };
        // It is let go without the lock.
        drop(bound);
    }
}

/// /dev/loop-control.
struct Control;

impl FileOps for Control {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn ioctl(&self, _file: &File, request: u32, argument: u64) -> Result<u64> {
        let free = |device: &&Arc<Device>| device.loops().is_some_and(|slot| slot.lock().is_none());
        match request {
            LOOP_CTL_GET_FREE => {
                let all = DEVICES.all.lock();
                all.iter().find(free).map(|device| device.number.1.into()).ok_or(Errno::ENOSPC)
            }
            LOOP_CTL_ADD if argument < COUNT.into() => Err(Errno::EEXIST),
            LOOP_CTL_ADD => Err(Errno::ENOSPC),
            LOOP_CTL_REMOVE => Err(Errno::EBUSY),
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// Device nodes: name, mode with the type, major and minor number.
pub fn nodes() -> impl Iterator<Item = (String, u32, (u32, u32))> {
    let block = FileType::BlockDevice as u32 | 0o660;
    let control = (String::from("loop-control"), FileType::CharDevice as u32 | 0o660, CONTROL);
    (0..COUNT).map(move |n| (format!("loop{n}"), block, (MAJOR, n))).chain([control])
}

//! Block devices: disks that the host gives the domain, and files as devices.
//!
//! Key types: [`Device`] (a block device by name and number), [`Medium`] (where its bytes are). Reads and writes go straight to
//! the medium: nothing is kept here, so O_DIRECT changes nothing, and a write is done when the call returns.

mod disk;
mod file;
mod ioctl;
pub mod loops;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::objects::vfs::devices;
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

pub use disk::attach;

/// Bytes of a sector, in which sizes are told and of which discarded ranges are multiples.
pub const SECTOR: u64 = 512;
/// Bytes that are best read or written at once.
pub const BLOCK: u64 = 4096;

/// Where a block device has its bytes.
pub trait Medium: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Nothing can be written.
    fn is_read_only(&self) -> bool;

    /// Reads some bytes at `at`, inside the medium; gives how many.
    fn read(&self, out: &mut Output<'_>, at: u64) -> Result<usize>;

    /// Writes some bytes at `at`, at most `most`, inside the medium; gives how many.
    fn write(&self, input: &mut Input<'_>, at: u64, most: usize) -> Result<usize>;

    /// What was written survives a power cut from here on.
    fn sync(&self) -> Result<()>;

    /// These bytes are zero from here on, and take no room where that can be.
    fn zero(&self, at: u64, len: u64) -> Result<()>;
}

/// A block device.
pub struct Device {
    /// Its name in /dev.
    pub name: String,
    /// Major and minor number.
    pub number: (u32, u32),
    source: Source,
    /// Open files and mounts of it.
    uses: AtomicU32,
}

/// What a device reads and writes.
enum Source {
    Disk(Arc<dyn Medium>),
    /// A loop device, and what it is bound to.
    Loop(SpinLock<Option<Arc<loops::Loop>>>),
}

/// The block devices that there are.
#[derive(Default)]
pub struct Devices {
    all: SpinLock<Vec<Arc<Device>>>,
}

/// The domain's.
pub static DEVICES: Part<Devices> = Part::new();

impl Device {
    fn new(name: String, number: (u32, u32), source: Source) -> Self {
        Self { name, number, source, uses: AtomicU32::new(0) }
    }

    /// Where its bytes are now, if they are anywhere.
    fn medium(&self) -> Option<Arc<dyn Medium>> {
        match &self.source {
            Source::Disk(medium) => Some(medium.clone()),
            Source::Loop(slot) => slot.lock().clone().map(|bound| bound as Arc<dyn Medium>),
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.medium().map_or(0, |medium| medium.size())
    }

    /// Nothing can be written to it.
    pub fn is_read_only(&self) -> bool {
        self.medium().is_some_and(|medium| medium.is_read_only())
    }

    /// Fills `bytes` with those from `at` on.
    ///
    /// # Errors
    /// EIO: it ends before; ENXIO: it is bound to nothing; or what the medium says.
    pub fn read_whole(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let medium = self.medium().ok_or(Errno::ENXIO)?;
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > medium.size()) {
            return Err(Errno::EIO);
        }
        let mut done = 0;
        while done < bytes.len() {
            match medium.read(&mut Output::kernel(&mut bytes[done..]), at + done as u64)? {
                0 => return Err(Errno::EIO),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Fills `bytes` with those from `at` on, as far as there are some; gives how many.
    ///
    /// # Errors
    /// As for [`Self::read_whole`].
    pub fn read_up_to(&self, at: u64, bytes: &mut [u8]) -> Result<usize> {
        let n = self.size().saturating_sub(at).min(bytes.len() as u64) as usize;
        self.read_whole(at, &mut bytes[..n]).map(|()| n)
    }

    /// Writes all of `bytes` at `at`.
    ///
    /// # Errors
    /// EIO: it ends before; ENXIO: it is bound to nothing; or what the medium says.
    pub fn write_whole(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let medium = self.medium().ok_or(Errno::ENXIO)?;
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > medium.size()) {
            return Err(Errno::EIO);
        }
        let mut done = 0;
        while done < bytes.len() {
            let left = bytes.len() - done;
            match medium.write(&mut Input::kernel(&bytes[done..]), at + done as u64, left)? {
                0 => return Err(Errno::EIO),
                n => done += n,
            }
        }
        Ok(())
    }

    /// What was written survives a power cut from here on.
    ///
    /// # Errors
    /// ENXIO: it is bound to nothing; or what the medium says.
    pub fn flush(&self) -> Result<()> {
        self.medium().ok_or(Errno::ENXIO)?.sync()
    }

    /// These bytes are not needed any more.
    pub fn discard(&self, at: u64, len: u64) {
        // It only takes room.
        let _ = self.medium().map(|medium| medium.zero(at, len));
    }

    /// Somebody uses it, as long as what is returned is there.
    pub fn used(self: &Arc<Self>) -> Used {
        Used(self.clone().use_once_more())
    }

    /// One more uses it.
    fn use_once_more(self: Arc<Self>) -> Arc<Self> {
        self.uses.fetch_add(1, Ordering::SeqCst);
        self
    }

    /// One uses it no more.
    fn let_go(&self) {
        if self.uses.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.unused();
        }
    }

    /// Nobody uses it but who asks.
    fn is_used_once(&self) -> bool {
        self.uses.load(Ordering::SeqCst) <= 1
    }
}

/// A use of a device.
pub struct Used(Arc<Device>);

impl Deref for Used {
    type Target = Arc<Device>;

    fn deref(&self) -> &Arc<Device> {
        &self.0
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Makes the devices that are there in every domain (boot).
pub fn init() {
    loops::init();
}

/// Those that there are.
pub fn all() -> Vec<Arc<Device>> {
    DEVICES.all.lock().clone()
}

/// The one with this name in /dev.
pub fn named(name: &[u8]) -> Option<Arc<Device>> {
    DEVICES.all.lock().iter().find(|device| device.name.as_bytes() == name).cloned()
}

/// The one with this major and minor number; ENXIO: there is none.
///
/// # Errors
/// See above.
pub fn numbered(number: (u32, u32)) -> Result<Arc<Device>> {
    DEVICES.all.lock().iter().find(|device| device.number == number).cloned().ok_or(Errno::ENXIO)
}

/// There is one more.
fn add(device: Device) {
    let (major, minor) = device.number;
    DEVICES.all.lock().push(Arc::new(device));
    devices::register_block(major, minor..=minor, |number, _| Ok(numbered(number)?.use_once_more()));
}

/// Writes all to where it survives a power cut (`sync(2)`).
pub fn sync() {
    for device in all() {
        // sync(2) tells of no errors.
        let _ = device.medium().map(|medium| medium.sync());
    }
}

//! Disks of the host's (`host/disks`), which the storage service reads and writes: `/dev/vda` and so on.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use super::{Device, Medium, Source};
use crate::core::time::Expire;
use crate::core::{time, work};
use crate::kernel;
use crate::objects::storage::RawFile;
use crate::objects::vfs::io::{Input, Output};
use crate::{Errno, Result};

/// Major number of virtio's disks, which these look like.
const MAJOR: u32 = 254;
/// Minor numbers of each, for its partitions.
const MINORS: u32 = 16;

/// What was written is flushed after so long, if no program does it before.
const AGE_NS: u64 = 5_000_000_000;

struct Disk {
    file: RawFile,
    size: u64,
    read_only: bool,
    /// Something was written since the last flush: a [`Flush`] is to come.
    written: AtomicBool,
    me: Weak<Self>,
}

/// Flushes a disk when its time has come.
struct Flush(Weak<Disk>);

impl Expire for Flush {
    fn expire(self: Arc<Self>, _now: u64) {
        let disk = self.0.clone();
        let begun = work::START.get()(Box::new(move || {
            if let Some(disk) = disk.upgrade().filter(|disk| disk.written.load(Ordering::SeqCst)) {
                // Nobody asked: whoever does is told.
                let _ = disk.sync();
            }
        }));
        if !begun {
            kernel().timekeeper.arm(time::monotonic_ns() + AGE_NS, self);
        }
    }
}

impl Disk {
    /// Something is about to be written.
    fn will_write(&self) {
        if !self.written.swap(true, Ordering::SeqCst) {
            kernel().timekeeper.arm(time::monotonic_ns() + AGE_NS, Arc::new(Flush(self.me.clone())));
        }
    }
}

impl Medium for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, out: &mut Output<'_>, at: u64) -> Result<usize> {
        self.file.read_out(out, at)
    }

    fn write(&self, input: &mut Input<'_>, at: u64, most: usize) -> Result<usize> {
        self.will_write();
        self.file.write_in(input, at, most)
    }

    fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // Who writes from here on marks it again.
        self.written.store(false, Ordering::SeqCst);
        self.file.sync().inspect_err(|_| self.will_write())
    }

    fn zero(&self, at: u64, len: u64) -> Result<()> {
        self.will_write();
        self.file.zero(at, len)
    }
}

/// Makes the disk that the storage service has as its volume with this number a device of this name: `vda`, `vdb`, …; gives its
/// major and minor number.
///
/// # Errors
/// EINVAL: it is no such name; or what the service says.
pub fn attach(name: &str, volume: u64, read_only: bool) -> Result<(u32, u32)> {
    let letter = name.strip_prefix("vd").and_then(|rest| match rest.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(letter - b'a'),
        _ => None,
    });
    let number = (MAJOR, u32::from(letter.ok_or(Errno::EINVAL)?) * MINORS);
    let file = RawFile::open(volume)?;
    let size = file.size()?;
    let written = AtomicBool::new(false);
    let disk = Arc::new_cyclic(|me| Disk { file, size, read_only, written, me: me.clone() });
    let source = Source::Disk(disk);
    super::add(Device::new(String::from(name), number, source));
    Ok(number)
}

//! What is asked of a file.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

/// A file with holes.
pub trait File {
    /// Reads all of `bytes` from `at` on; behind the end there are zeros.
    ///
    /// # Errors
    /// What the host says.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `at`.
    ///
    /// # Errors
    /// What the host says.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a hole, which reads as zeros.
    ///
    /// # Errors
    /// What the host says; a file system may have no holes.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;

    /// What was written before survives a power cut.
    ///
    /// # Errors
    /// What the host says.
    fn sync(&self) -> io::Result<()>;
}

impl File for fs::File {
    fn read(&self, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.read_at(bytes, at) {
                Ok(0) => {
                    bytes.fill(0);
                    return Ok(());
                }
                Ok(n) => (bytes, at) = (&mut bytes[n..], at + n as u64),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(self, how, at, len)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

//! Block devices: their numbers, and files as ones.

mod image;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

pub use image::{Disk, attach, attach_alone};

/// Major and minor number of a block device, named by its file or by these numbers, as `8:0`.
///
/// # Errors
/// There is no such file, or it is no block device.
pub fn number(device: &str) -> io::Result<(u32, u32)> {
    if let Some((major, minor)) = device.split_once(':')
        && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
    {
        return Ok((major, minor));
    }
    let meta = fs::metadata(device)?;
    if !meta.file_type().is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device"));
    }
    Ok((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_numbers() {
        assert_eq!(number("8:16").unwrap(), (8, 16));
        assert_eq!(number("/dev/null").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(number("8:x").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

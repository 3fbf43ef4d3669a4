//! Disks of another size.

use std::io;

use crate::map::{OF_PAGE, Part, State};
use crate::{BLOCK, DATA_AT, File, Header, header};

/// Gives a disk, whose topmost layer this is and which nobody has open, another size. What comes behind the old end is zero, also
/// if the disk was larger before. After a power cut it has the one size or the other.
///
/// # Errors
/// The size is none, or what the host says.
pub fn resize(file: &impl File, header: Header, size: u64) -> io::Result<Header> {
    if !header::is_size(size) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{size} bytes is no size of a disk"),
        ));
    }
    if size > header.size {
        forget(file, header.size / BLOCK, size / BLOCK)?;
        file.sync()?;
    }
    let new = Header { size, visible: header.visible.min(size), ..header };
    file.write(0, &new.encode())?;
    file.sync()?;
    if size < header.size {
        // It only takes room.
        let _ = file.punch(DATA_AT + size, header.size - size);
    }
    Ok(new)
}

/// Makes these blocks holes: what stands there is of a time when the disk was larger.
fn forget(file: &impl File, mut first: u64, end: u64) -> io::Result<()> {
    while first < end {
        let count = (OF_PAGE - first % OF_PAGE).min(end - first);
        let mut part = Part::read(file, first, count)?;
        let mut changed = false;
        for block in part.blocks() {
            changed |= part.set(block, State::Hole);
        }
        if changed {
            part.write(file)?;
        }
        first += count;
    }
    Ok(())
}

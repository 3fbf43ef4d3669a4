//! What a service knows of a domain's files, for whoever goes on from a frozen image of the domain.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use doppel_abi_service::storage::VOLUMES;
use doppel_sys::handle::Handle;
use rustix::fs::AtFlags;

use super::records::{Identity, Locator, Records, SIZE};
use crate::files::statx;

/// Where a file is that the domain knew.
#[derive(Debug)]
pub enum Remap {
    /// Where it was.
    Same,
    /// This one has taken its place.
    To(OwnedFd),
    /// Nowhere: whoever has it in use gets ESTALE.
    Gone,
}

/// Copies what a service knows of a domain's files, which stands still, to a new file for [`crate::Manager::attach_in`]. `place` is asked for each
/// file by volume, device and number. Files without names are gone.
///
/// # Errors
/// What the host, or `place`, says.
pub fn copy_nodes(
    from: &Path,
    to: &Path,
    place: &mut dyn FnMut(u64, u64, u64) -> io::Result<Remap>,
) -> io::Result<()> {
    let open = |options: &mut std::fs::OpenOptions, path| options.read(true).write(true).open(path);
    let from = Records::open(&open(&mut File::options(), from)?.into())?;
    let file = open(File::options().create_new(true).mode(0o600), to)?;
    file.set_len(SIZE)?;
    let to = Records::open(&file.into())?;
    let used = from.used();
    for index in 0..used {
        let mut record = from.get(index);
        if record.given == 0 {
            continue;
        }
        let was = record.identity;
        match place(was.volume, was.device, was.inode)? {
            Remap::Same => {}
            Remap::Gone => record.locator = Locator::None,
            Remap::To(file) => {
                record.identity = Identity::of(was.volume, &statx(file.as_fd(), c"", AtFlags::EMPTY_PATH)?);
                if matches!(record.locator, Locator::Handle(_)) {
                    record.locator = Handle::of(file.as_fd()).map_or(Locator::None, Locator::Handle);
                }
            }
        }
        to.put(index, &record);
    }
    for volume in 0..VOLUMES {
        to.set_root_watched(volume, from.root_watched(volume));
    }
    to.set_used(used);
    Ok(())
}

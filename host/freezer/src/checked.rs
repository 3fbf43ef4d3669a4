//! Which frozen images were found sound, since this boot of the host, and not changed since: they are not read whole again.
//!
//! A note beside the image says what it and its ancestors were then: inodes, lengths and times. Whoever writes to them changes those; a further
//! link does too, and then it is read once more. What a disk
//! does to it later is not found so, nor is it where clones read pages again that memory did not hold.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::host;

const SUFFIX: &str = "checked";

/// Where it is noted.
fn beside(image: &Path) -> PathBuf {
    image.with_extension(SUFFIX)
}

/// What tells an image's files from any others, and from changed ones; none if the host does not tell.
pub(crate) fn state<'a>(files: impl IntoIterator<Item = &'a File>) -> Option<String> {
    let boot = u128::from_be_bytes(host::boot_id().ok()?);
    let mut text = format!("doppel checked 1\n{boot:x}\n");
    for file in files {
        let m = file.metadata().ok()?;
        let (modified, changed) = ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        let place = format!("{} {} {} {modified:?} {changed:?}\n", m.dev(), m.ino(), m.len());
        text.push_str(&place);
    }
    Some(text)
}

/// Makes the times of a new file its own: those that the host gives are the same for whoever writes within some milliseconds.
pub(crate) fn stamp(file: &File) -> std::io::Result<()> {
    file.set_modified(std::time::SystemTime::now())
}

/// Whether these files have been as they are for so long that a change since would show in their times.
pub(crate) fn settled<'a>(files: impl IntoIterator<Item = &'a File>) -> bool {
    let now = i64::try_from(host::realtime_ns() / 1_000_000_000).unwrap_or(0);
    let old = |m: fs::Metadata| m.ctime() + 1 < now && m.mtime() + 1 < now;
    files.into_iter().all(|file| file.metadata().is_ok_and(old))
}

/// Whether this image was found sound in this state.
pub(crate) fn is_noted(image: &Path, state: &str) -> bool {
    fs::read_to_string(beside(image)).is_ok_and(|noted| noted == state)
}

/// Notes that it was. If that cannot be written, it is read whole the next time.
pub(crate) fn note(image: &Path, state: &str) {
    let _ = fs::write(beside(image), state);
}

/// Its image is gone.
pub(crate) fn forget(image: &Path) -> std::io::Result<()> {
    match fs::remove_file(beside(image)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes the notes in a directory of images whose images are gone.
pub(crate) fn sweep(images: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(images) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let note = entry?.path();
        let image = note.with_extension("frozen");
        if note.extension().is_some_and(|e| e == SUFFIX) && !image.try_exists()? {
            forget(&image)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_changed_image_is_not_noted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i.frozen");
        fs::write(&path, "sound").unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let noted = |files: &[&File]| is_noted(&path, &state(files.iter().copied()).unwrap());
        assert!(!noted(&[&file]));
        note(&path, &state([&file]).unwrap());
        assert!(noted(&[&file]));
        // Another file of that name, and one with an ancestor.
        let other = dir.path().join("other");
        fs::write(&other, "sound").unwrap();
        let other = File::open(&other).unwrap();
        assert!(!noted(&[&other]) && !noted(&[&file, &other]));
        file.write_all(b"!").unwrap();
        assert!(!noted(&[&file]));
        note(&path, &state([&file]).unwrap());
        sweep(dir.path()).unwrap();
        assert!(noted(&[&file]));
        forget(&path).unwrap();
        forget(&path).unwrap();
        assert!(!noted(&[&file]));
        note(&path, &state([&file]).unwrap());
        fs::remove_file(&path).unwrap();
        sweep(dir.path()).unwrap();
        assert!(!beside(&path).exists());
    }
}

//! `stat`, `list`, `remove`, `mkdir`, `read`, `write`; the records they print are described in docs/sessions.md.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use doppel_abi_machine::builtin::FileRecord;
use rustix::io::Errno;

use super::outcome::{About, Failure, Outcome, os};

fn letter(meta: &Metadata) -> char {
    let kind = meta.file_type();
    let letters = [
        (kind.is_dir(), 'd'),
        (kind.is_symlink(), 'l'),
        (kind.is_char_device(), 'c'),
        (kind.is_block_device(), 'b'),
        (kind.is_fifo(), 'p'),
        (kind.is_socket(), 's'),
    ];
    letters.iter().find(|(is, _)| *is).map_or('f', |(_, letter)| *letter)
}

fn record(out: &mut dyn Write, path: &Path, meta: &Metadata, name: &[u8]) -> Outcome {
    let target = if meta.is_symlink() {
        fs::read_link(path).about(name)?.into_os_string()
    } else {
        Default::default()
    };
    let time = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    let record = FileRecord {
        kind: letter(meta),
        size: meta.size(),
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        modified: time,
        links: meta.nlink(),
    };
    let head = record.to_string();
    for part in [head.as_bytes(), name, b"\0", target.as_bytes(), b"\0"] {
        out.write_all(part).about(b"standard output")?;
    }
    Ok(())
}

pub fn stat(out: &mut dyn Write, name: &[u8], follow: bool) -> Outcome {
    let path = Path::new(os(name));
    let meta = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) }.about(name)?;
    record(out, path, &meta, name)
}

/// The names in a directory, in order.
pub fn names(dir: &Path) -> io::Result<Vec<Vec<u8>>> {
    let names = fs::read_dir(dir)?.map(|e| Ok(e?.file_name().as_bytes().to_vec()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

pub fn list(out: &mut dyn Write, name: &[u8], depth: u64) -> Outcome {
    let top = PathBuf::from(os(name));
    // What is still to be listed: the directory, its name, how deep below it.
    let mut todo = vec![(top, Vec::new(), depth)];
    while let Some((dir, prefix, left)) = todo.pop() {
        let all = match names(&dir) {
            // It has gone meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !prefix.is_empty() => continue,
            all => all.about(if prefix.is_empty() { name } else { &prefix })?,
        };
        for one in all {
            let path = dir.join(os(&one));
            let meta = match fs::symlink_metadata(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                meta => meta.about(&one)?,
            };
            let full = if prefix.is_empty() { one } else { [&prefix[..], b"/", &one].concat() };
            record(out, &path, &meta, &full)?;
            if left > 1 && meta.is_dir() {
                todo.push((path, full, left - 1));
            }
        }
    }
    Ok(())
}

pub fn remove(name: &[u8], recursive: bool) -> Outcome {
    let last = name.rsplit(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or_default();
    if matches!(last, b"" | b"." | b"..") {
        return Err(Failure { what: name.to_vec(), errno: Errno::INVAL });
    }
    let path = Path::new(os(name));
    let meta = fs::symlink_metadata(path).about(name)?;
    match (meta.is_dir(), recursive) {
        (true, true) => fs::remove_dir_all(path),
        (true, false) => fs::remove_dir(path),
        (false, _) => fs::remove_file(path),
    }
    .about(name)
}

fn make_dirs(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

pub fn mkdir(name: &[u8], mode: u32) -> Outcome {
    make_dirs(Path::new(os(name)), mode).about(name)
}

pub fn read(out: &mut dyn Write, name: &[u8], offset: u64, length: Option<u64>) -> Outcome {
    let mut file = File::open(os(name)).about(name)?;
    if file.metadata().about(name)?.is_dir() {
        return Err(Failure { what: name.to_vec(), errno: Errno::ISDIR });
    }
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).about(name)?;
    }
    io::copy(&mut file.take(length.unwrap_or(u64::MAX)), out).map(drop).about(name)
}

pub fn write(name: &[u8], mode: u32) -> Outcome {
    let path = Path::new(os(name));
    if let Some(above) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        make_dirs(above, 0o755).about(above.as_os_str().as_bytes())?;
    }
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path).about(name)?;
    io::copy(&mut io::stdin().lock(), &mut file).about(name)?;
    // The umask says nothing here; only the owner may.
    let meta = file.metadata().about(name)?;
    let own = rustix::process::geteuid();
    if meta.is_file() && (own.is_root() || meta.uid() == own.as_raw()) {
        file.set_permissions(fs::Permissions::from_mode(mode)).about(name)?;
    }
    Ok(())
}

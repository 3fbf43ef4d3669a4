//! `doppel cp`: files into and out of a running domain.
//!
//! As in Docker: a directory that is there takes the source in, under its own name; a target that is not there becomes
//! the source's copy; `DIR/.` means what is in the directory; `-` is a tar archive on our standard streams.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use doppel_domain::archive::{Limits, pack, unpack};
use doppel_domain::{Error, Piped};

/// Longest record of a file.
const RECORD_MAX: usize = 64 << 10;

/// Options of `doppel cp`.
#[derive(Args)]
pub struct CopyArgs {
    /// What to copy: PATH, DOMAIN:PATH, or - for a tar archive on standard input
    source: OsString,
    /// Where to: PATH, DOMAIN:PATH, or - for a tar archive on standard output
    target: OsString,
}

/// One side of a copy.
enum Side {
    /// A path in a domain.
    Domain(String, Vec<u8>),
    Path(PathBuf),
    Stream,
}

impl Side {
    fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        let colon = bytes.iter().position(|&b| b == b':');
        match colon {
            // A path with a colon in it has a slash before it: ./a:b.
            Some(at) if !bytes[..at].contains(&b'/') && !bytes.starts_with(b".") => {
                let name =
                    std::str::from_utf8(&bytes[..at]).map_err(|_| format!("{text:?} names no domain"))?;
                let path = &bytes[at + 1..];
                if path.is_empty() {
                    return Err(format!("{text:?} has no path behind the colon"));
                }
                Ok(Self::Domain(name.into(), path.to_vec()))
            }
            _ if bytes.is_empty() => Err("an empty path".into()),
            _ => Ok(Self::Path(text.into())),
        }
    }
}

/// Copies.
pub fn run(args: &CopyArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match (Side::parse(&args.source)?, Side::parse(&args.target)?) {
        (Side::Domain(domain, path), Side::Path(to)) => out(&domain, &path, &to)?,
        (Side::Domain(domain, path), Side::Stream) => {
            let mut archive = command(&domain, &[b"tar-out", &path])?;
            io::copy(&mut archive, &mut io::stdout().lock())
                .map_err(|e| format!("cannot write the archive: {e}"))?;
            archive.finish()?;
        }
        (Side::Path(from), Side::Domain(domain, path)) => into(&from, &domain, &path)?,
        (Side::Stream, Side::Domain(domain, path)) => {
            let mut target = command(&domain, &[b"tar-in", &path])?;
            let sent = io::copy(&mut io::stdin().lock(), &mut target);
            finish(
                target,
                sent.map(drop).map_err(|e| Error::Host { doing: "send the archive".into(), error: e }),
            )?;
        }
        _ => return Err("one side must be DOMAIN:PATH, the other a path here or -".into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn command(domain: &str, argv: &[&[u8]]) -> Result<Piped, Error> {
    let argv: Vec<OsString> = argv.iter().map(|a| OsString::from_vec(a.to_vec())).collect();
    Piped::builtin(domain, &argv)
}

/// What the domain says counts more than that it took no more.
fn finish(target: Piped, sent: Result<(), Error>) -> Result<(), Error> {
    let ended = target.finish();
    match sent {
        Err(Error::Host { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe && ended.is_err() => {
            ended
        }
        Err(error) => Err(error),
        Ok(()) => ended,
    }
}

/// The last component of a path; none of `/` and of what ends in a dot.
fn last(path: &[u8]) -> Option<&[u8]> {
    path.split(|&b| b == b'/').rfind(|p| !p.is_empty()).filter(|p| *p != b"." && *p != b"..")
}

fn out(domain: &str, path: &[u8], to: &Path) -> Result<(), Error> {
    let no = |why: &str| Err(Error::Config(format!("{}: {why}", to.display())));
    let mut archive = command(domain, &[b"tar-out", path])?;
    let (dir, top) = match std::fs::metadata(to) {
        Ok(meta) if meta.is_dir() => (to.to_owned(), None),
        Ok(_) => {
            let Some(name) = to.file_name() else { return no("no name for a file") };
            (parent(to), Some(name))
        }
        Err(_) if last(path).is_none() => {
            // The contents of a directory, to one that is to be made.
            std::fs::create_dir(to)
                .map_err(|error| Error::Host { doing: format!("make {}", to.display()), error })?;
            (to.to_owned(), None)
        }
        Err(_) => {
            let Some(name) = to.file_name() else { return no("no name for a file") };
            (parent(to), Some(name))
        }
    };
    let limits = Limits::of(&dir)?;
    let unpacked = unpack(&mut archive, &dir, top, limits);
    let ended = archive.finish();
    // What the domain could not read is the reason for an archive that ends in the middle.
    match (&unpacked, &ended) {
        (Err(_), Err(Error::Config(text))) if text.starts_with("in the domain") => ended,
        (Err(_), _) => unpacked,
        _ => ended,
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Letter of the kind of a file in the domain; none if it is not there.
fn kind(domain: &str, path: &[u8]) -> Result<Option<u8>, Error> {
    match command(domain, &[b"stat", b"-L", path])?.output(RECORD_MAX) {
        Ok(record) => Ok(record.first().copied()),
        Err(Error::Config(text)) if text.contains("ENOENT") => Ok(None),
        Err(error) => Err(error),
    }
}

fn into(from: &Path, domain: &str, path: &[u8]) -> Result<(), Error> {
    let doing = |error| Error::Host { doing: format!("read {}", from.display()), error };
    let contents = from.as_os_str().as_bytes().ends_with(b"/.") || from == Path::new(".");
    let meta = std::fs::symlink_metadata(from).map_err(doing)?;
    let own = match from.file_name() {
        Some(name) if !contents => name.to_owned(),
        // What is in it, or a name like "..".
        _ => OsString::new(),
    };
    if own.is_empty() && !meta.is_dir() {
        return Err(Error::Config(format!("{} has no name to copy it by", from.display())));
    }
    let (dir, top): (Vec<u8>, OsString) = match kind(domain, path)? {
        Some(b'd') => (path.to_vec(), own),
        Some(_) if meta.is_dir() => {
            let path = String::from_utf8_lossy(path);
            return Err(Error::Config(format!("{path} is there and no directory")));
        }
        _ => {
            let Some(name) = last(path) else {
                return Err(Error::Config(format!("{}: no such directory", String::from_utf8_lossy(path))));
            };
            if path.ends_with(b"/") && !meta.is_dir() {
                return Err(Error::Config(format!("{}: no such directory", String::from_utf8_lossy(path))));
            }
            let name = OsStr::from_bytes(name).to_owned();
            (above(path), name)
        }
    };
    let mut target = command(domain, &[b"tar-in", &dir])?;
    let sent = pack(from, &top, &mut target);
    finish(target, sent)
}

/// The directory of a path in a domain.
fn above(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |n| n + 1);
    match path[..end].iter().rposition(|&b| b == b'/') {
        Some(0) => b"/".to_vec(),
        Some(at) => path[..at].to_vec(),
        None => b".".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(above(b"/a/b/"), b"/a");
        assert_eq!(above(b"/a"), b"/");
        assert_eq!(above(b"a"), b".");
        assert_eq!(last(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(last(b"/"), None);
        assert_eq!(last(b"/a/."), None);
    }

    #[test]
    fn sides() {
        let is_domain = |t: &str| matches!(Side::parse(OsStr::new(t)), Ok(Side::Domain(..)));
        let is_path = |t: &str| matches!(Side::parse(OsStr::new(t)), Ok(Side::Path(_)));
        assert!(is_domain("a:/b") && is_domain("a:b:c"));
        assert!(is_path("./a:b") && is_path("/a:b") && is_path("a"));
        assert!(Side::parse(OsStr::new("a:")).is_err());
        assert!(matches!(Side::parse(OsStr::new("-")), Ok(Side::Stream)));
    }
}

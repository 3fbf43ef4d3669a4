//! `doppel cp`: files into and out of a running domain.
//!
//! As in Docker: a directory that is there takes the source in, under its own name; a target that is not there becomes
//! the source's copy; `DIR/.` means what is in the directory; `-` is a tar archive on our standard streams. To and from
//! a domain of the supervisor files go through it, so that it may be on another host; else through the domain's own
//! socket.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use doppel_api::Code;
use doppel_client::Client;
use doppel_domain::archive::{Limits, pack, unpack};
use doppel_domain::{Error, Piped};
use rustix::fs::{Mode, OFlags};

use crate::supervised::keeper_of;

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
    copy(args).map_err(|error| match error.downcast_ref::<Error>() {
        Some(Error::InDomain(complaint)) => {
            format!("in the domain: {}", doppel_api::in_words(complaint)).into()
        }
        _ => error,
    })
}

fn copy(args: &CopyArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match (Side::parse(&args.source)?, Side::parse(&args.target)?) {
        (Side::Domain(domain, path), Side::Path(to)) => out(&Domain::find(domain)?, &path, &to)?,
        (Side::Domain(domain, path), Side::Stream) => {
            let mut archive = Domain::find(domain)?.tar_out(&path)?;
            io::copy(&mut archive, &mut crate::terminal::out::stdout())?;
            archive.finish()?;
        }
        (Side::Path(from), Side::Domain(domain, path)) => into(&from, &Domain::find(domain)?, &path)?,
        (Side::Stream, Side::Domain(domain, path)) => {
            let send = |target: &mut dyn Write| {
                let sent = io::copy(&mut io::stdin().lock(), target);
                sent.map(drop).map_err(|error| Error::Host { doing: "send the archive".into(), error })
            };
            Domain::find(domain)?.tar_in(&path, send)?;
        }
        _ => return Err("one side must be DOMAIN:PATH, the other a path here or -".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// How a domain's files are reached.
enum Domain {
    /// Through the socket of the process that runs it.
    Own(String),
    /// Through the supervisor, by its id.
    Kept(Box<Client>, String),
}

/// An archive that comes out of a domain.
enum Archive {
    Own(Box<Piped>),
    Kept(Box<doppel_client::Body>),
}

impl Read for Archive {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Own(piped) => piped.read(buf),
            Self::Kept(body) => body.read(buf),
        }
    }
}

impl Archive {
    /// What the domain says at the end. The supervisor breaks off in the middle instead.
    fn finish(self) -> Result<(), Error> {
        match self {
            Self::Own(piped) => piped.finish(),
            Self::Kept(_) => Ok(()),
        }
    }
}

impl Domain {
    fn find(name: String) -> Result<Self, Box<dyn std::error::Error>> {
        Ok(match keeper_of(&name)? {
            Some((client, found)) => Self::Kept(Box::new(client), found.id),
            None => Self::Own(name),
        })
    }

    fn tar_out(&self, path: &[u8]) -> Result<Archive, Error> {
        match self {
            Self::Own(name) => command(name, &[b"tar-out", path]).map(|piped| Archive::Own(Box::new(piped))),
            Self::Kept(client, id) => {
                let body = client.archive_out(id, &absolute(path)?).map_err(refused)?;
                Ok(Archive::Kept(Box::new(body)))
            }
        }
    }

    /// Unpacks what `send` writes below a directory of the domain.
    fn tar_in(
        &self,
        path: &[u8],
        send: impl FnOnce(&mut dyn Write) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        match self {
            Self::Own(name) => {
                let mut target = command(name, &[b"tar-in", path])?;
                let sent = send(&mut target);
                answered(sent, target.finish())
            }
            Self::Kept(client, id) => {
                let path = absolute(path)?;
                let (mut from, mut to) =
                    io::pipe().map_err(|error| Error::Host { doing: "make a pipe".into(), error })?;
                std::thread::scope(|scope| {
                    let sender = std::thread::Builder::new()
                        .spawn_scoped(scope, move || send(&mut to))
                        .map_err(|error| Error::Host { doing: "start a thread".into(), error })?;
                    let ended = client.archive_in(id, &path, &mut from).map_err(refused);
                    // Whoever still writes learns that nobody reads.
                    drop(from);
                    let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    answered(sent, ended)
                })
            }
        }
    }

    /// What is at a path, links followed: whether it is a directory; none if nothing is there.
    fn is_directory(&self, path: &[u8]) -> Result<Option<bool>, Error> {
        match self {
            Self::Own(name) => match command(name, &[b"stat", b"-L", path])?.output(RECORD_MAX) {
                Ok(record) => Ok(record.first().map(|kind| *kind == b'd')),
                Err(Error::InDomain(text)) if text.contains("ENOENT") => Ok(None),
                Err(error) => Err(error),
            },
            Self::Kept(client, id) => {
                let path = absolute(path)?;
                let there = |path: &str| match client.file_info(id, path) {
                    Ok(_) => Ok(true),
                    Err(e) if e.code() == Some(Code::FileNotFound) => Ok(false),
                    Err(e) => Err(refused(e)),
                };
                // Only a directory, or a link to one, has a dot in it.
                Ok(if there(&format!("{path}/."))? { Some(true) } else { there(&path)?.then_some(false) })
            }
        }
    }
}

/// A path as the supervisor takes it; the root is where relative ones begin.
fn absolute(path: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(path).map_err(|_| {
        Error::Config(format!("{:?} is no UTF-8, as the supervisor needs", OsStr::from_bytes(path)))
    })?;
    Ok(if text.starts_with('/') { text.to_owned() } else { format!("/{text}") })
}

fn refused(error: doppel_client::Error) -> Error {
    match error.code() {
        Some(Code::InvalidRequest) => Error::Config(error.to_string()),
        Some(Code::DomainNotFound) => Error::Ended(error.to_string()),
        _ => Error::State(error.to_string()),
    }
}

fn command(domain: &str, argv: &[&[u8]]) -> Result<Piped, Error> {
    let argv: Vec<OsString> = argv.iter().map(|a| OsString::from_vec(a.to_vec())).collect();
    Piped::builtin(domain, &argv)
}

/// What the domain says counts more than that it took no more.
fn answered(sent: Result<(), Error>, ended: Result<(), Error>) -> Result<(), Error> {
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

fn out(domain: &Domain, path: &[u8], to: &Path) -> Result<(), Error> {
    let no = |why: &str| Err(Error::Config(format!("{}: {why}", to.display())));
    let mut archive = domain.tar_out(path)?;
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
    // The archive is a stranger's. `unpack` lets none of its names lead elsewhere; nor does the host, where it can.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&dir, flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|dir| doppel_sys::landlock::change_only_below(dir.as_fd()))
        .map_err(|error| Error::Host { doing: format!("stay below {}", dir.display()), error })?;
    let unpacked = unpack(&mut archive, &dir, top, limits);
    let ended = archive.finish();
    // What the domain could not read is the reason for an archive that ends in the middle.
    match (&unpacked, &ended) {
        (Err(_), Err(Error::InDomain(_))) => ended,
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

fn into(from: &Path, domain: &Domain, path: &[u8]) -> Result<(), Error> {
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
    let (dir, top): (Vec<u8>, OsString) = match domain.is_directory(path)? {
        Some(true) => (path.to_vec(), own),
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
    domain.tar_in(&dir, |target| pack(from, &top, target))
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

//! `watch [-r] PATH`: what happens to the names in a directory, as it happens (docs/sessions.md).

use std::collections::BTreeMap;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use doppel_abi_machine::builtin::Change;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::outcome::{About, Failure, Outcome, os};

/// The directories watched, by watch number: their names from the top, and where they are.
type Watched = BTreeMap<i32, (Vec<u8>, PathBuf)>;

fn wanted() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
}

pub fn run(out: &mut dyn Write, name: &[u8], recursive: bool) -> Outcome {
    let top = Path::new(os(name));
    if !std::fs::metadata(top).about(name)?.is_dir() {
        return Err(Failure { what: name.to_vec(), errno: Errno::NOTDIR });
    }
    let instance = inotify::init(CreateFlags::CLOEXEC).about(name)?;
    let mut watched = Watched::new();
    add(&instance, &mut watched, top, Vec::new(), recursive).about(name)?;
    say(out, Change::Ready, b"")?;
    follow(out, &instance, &mut watched, recursive)
}

fn say(out: &mut dyn Write, what: Change, name: &[u8]) -> Outcome {
    let bytes = [what.word().as_bytes(), b" ", name, b"\0"].concat();
    out.write_all(&bytes).and_then(|()| out.flush()).about(b"standard output")
}

/// Watches a directory, and those below it.
fn add(
    instance: &OwnedFd,
    watched: &mut Watched,
    dir: &Path,
    name: Vec<u8>,
    recursive: bool,
) -> std::io::Result<()> {
    let mut todo = vec![(dir.to_owned(), name)];
    while let Some((dir, name)) = todo.pop() {
        let wd = inotify::add_watch(instance, &dir, wanted())?;
        if recursive {
            for one in super::files::names(&dir)? {
                let child = dir.join(os(&one));
                if std::fs::symlink_metadata(&child).is_ok_and(|m| m.is_dir()) {
                    todo.push((child, join(&name, &one)));
                }
            }
        }
        watched.insert(wd, (name, dir));
    }
    Ok(())
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

fn follow(out: &mut dyn Write, instance: &OwnedFd, watched: &mut Watched, recursive: bool) -> Outcome {
    let mut buf = [MaybeUninit::uninit(); 8192];
    let mut reader = Reader::new(instance, &mut buf);
    loop {
        let event = match reader.next() {
            Err(Errno::INTR) => continue,
            event => event.about(b"inotify")?,
        };
        let flags = event.events();
        let name = event.file_name().map(|n| n.to_bytes().to_vec()).unwrap_or_default();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            say(out, Change::Lost, b"")?;
            continue;
        }
        let Some((prefix, dir)) = watched.get(&event.wd()).cloned() else { continue };
        if flags.contains(ReadFlags::IGNORED) {
            watched.remove(&event.wd());
            continue;
        }
        if flags.contains(ReadFlags::DELETE_SELF) && prefix.is_empty() {
            return say(out, Change::Removed, b"");
        }
        let Some(what) = Change::of_event(flags.bits()).filter(|_| !name.is_empty()) else { continue };
        let full = join(&prefix, &name);
        // Before it is told: who hears of a directory may rely on hearing of what is then put into it.
        if recursive && flags.contains(ReadFlags::ISDIR) && what == Change::Created {
            // It may be gone again.
            let _ = add(instance, watched, &dir.join(os(&name)), full.clone(), true);
        }
        say(out, what, &full)?;
    }
}

//! `watch [-r] PATH`: what happens to the names in a directory, as it happens. With `-r`
//! directories below are watched too, from when their creation is seen. A renamed file is removed under one name and created
//! under the other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use doppel_abi_machine::builtin::Change;

use super::{About, Command, Failure, Outcome};
use crate::Errno;
use crate::objects::ipc::inotify::{Inotify, InotifyMask};
use crate::objects::lookup::path::Path;
use crate::objects::lookup::perm;
use crate::objects::vfs::{File, FileType, Output};

const WANTED: InotifyMask = InotifyMask::CREATE
    .union(InotifyMask::DELETE)
    .union(InotifyMask::MODIFY)
    .union(InotifyMask::CLOSE_WRITE)
    .union(InotifyMask::ATTRIB)
    .union(InotifyMask::MOVED_FROM)
    .union(InotifyMask::MOVED_TO)
    .union(InotifyMask::DELETE_SELF);

/// The directories watched, by watch number: their names from the top, and where they are.
type Watched = BTreeMap<i32, (Vec<u8>, Path)>;

pub fn run(c: &mut Command<'_>, name: &[u8], recursive: bool) -> Outcome {
    let top = c.find(name, true).about(name)?;
    if top.inode().kind() != FileType::Directory {
        return Err(Failure { what: name.to_vec(), errno: Errno::ENOTDIR });
    }
    let file = Inotify::file();
    let instance = file.downcast::<Inotify>().ok_or(Errno::EINVAL).about(name)?;
    let mut watched = Watched::new();
    add(c, instance, &mut watched, &top, Vec::new(), recursive).about(name)?;
    say(c, Change::Ready, b"")?;
    let result = follow(c, &file, instance, &mut watched, recursive).about(name);
    file.ops().release(&file);
    result
}

fn say(c: &mut Command<'_>, what: Change, name: &[u8]) -> Outcome {
    let bytes = [what.word().as_bytes(), b" ", name, b"\0"].concat();
    c.put(&bytes).and_then(|()| c.flush()).about(b"standard output")
}

/// Watches a directory, and those below it.
fn add(
    c: &Command<'_>,
    instance: &Inotify,
    watched: &mut Watched,
    dir: &Path,
    name: Vec<u8>,
    recursive: bool,
) -> crate::Result<()> {
    let mut todo = alloc::vec![(dir.clone(), name)];
    while let Some((dir, name)) = todo.pop() {
        perm::check(&c.caller.cred, &**dir.inode(), perm::MAY_READ)?;
        let wd = instance.add(&dir, WANTED)?;
        if recursive {
            for one in c.names(&dir)? {
                if let Ok(child) = c.child(&dir, &one)
                    && child.inode().kind() == FileType::Directory
                {
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

fn follow(
    c: &mut Command<'_>,
    file: &File,
    instance: &Inotify,
    watched: &mut Watched,
    recursive: bool,
) -> crate::Result<()> {
    let mut buf = super::chunk();
    loop {
        let n = c.patiently(|| file.ops().read(file, &mut Output::kernel(&mut buf), 0))?;
        let mut at = 0;
        while let Some(head) = buf[at..n].first_chunk::<16>() {
            let word = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
            let (wd, len) = (word(0).cast_signed(), word(12) as usize);
            let mask = InotifyMask::from_bits_retain(word(4));
            let name = buf[at + 16..at + 16 + len].split(|&b| b == 0).next().unwrap_or_default().to_vec();
            at += 16 + len;
            if mask.contains(InotifyMask::Q_OVERFLOW) {
                say(c, Change::Lost, b"").map_err(|f| f.errno)?;
                continue;
            }
            let Some((prefix, dir)) = watched.get(&wd).cloned() else { continue };
            if mask.contains(InotifyMask::IGNORED) {
                watched.remove(&wd);
                continue;
            }
            if mask.contains(InotifyMask::DELETE_SELF) && prefix.is_empty() {
                return say(c, Change::Removed, b"").map_err(|f| f.errno);
            }
            let Some(what) = Change::of_event(mask.bits()).filter(|_| !name.is_empty()) else { continue };
            let full = join(&prefix, &name);
            // Before it is told: who hears of a directory may rely on hearing of what is then put into it.
            if recursive
                && mask.contains(InotifyMask::ISDIR)
                && what == Change::Created
                && let Ok(child) = c.child(&dir, &name)
            {
                // It may be gone again.
                let _ = add(c, instance, watched, &child, full.clone(), true);
            }
            say(c, what, &full).map_err(|f| f.errno)?;
        }
    }
}

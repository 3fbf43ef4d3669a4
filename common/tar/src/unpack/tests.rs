//! Unpacking onto files that are but a table.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use super::*;
use crate::{END, header};

/// A file: its kind, its bytes, and its permission bits once it has its attributes.
type File = (Kind, Vec<u8>, Option<u32>);

#[derive(Default)]
struct Table {
    archive: Vec<u8>,
    files: BTreeMap<String, File>,
    dir: String,
    last: String,
    found: String,
    /// Names in the order in which they got their attributes.
    dressed: Vec<String>,
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

impl Table {
    fn path(&self, name: &[u8]) -> String {
        if self.dir.is_empty() { text(name) } else { [&self.dir, "/", &text(name)].concat() }
    }
}

impl Target for Table {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let n = buf.len().min(self.archive.len());
        buf[..n].copy_from_slice(&self.archive[..n]);
        self.archive.drain(..n);
        Ok(n)
    }

    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    fn enter(&mut self, names: &[&[u8]], make: bool) -> Result<()> {
        self.dir.clear();
        for name in names {
            let path = self.path(name);
            match self.files.get(&path) {
                Some((Kind::Directory, _, Some(mode))) if mode & 0o100 == 0 => return Err(Errno::EACCES),
                Some((Kind::Directory, ..)) => {}
                Some(_) => return Err(Errno::ENOTDIR),
                None if make => drop(self.files.insert(path.clone(), (Kind::Directory, Vec::new(), None))),
                None => return Err(Errno::ENOENT),
            }
            self.dir = path;
        }
        Ok(())
    }

    fn is_directory(&mut self, name: &[u8]) -> Result<Option<bool>> {
        Ok(self.files.get(&self.path(name)).map(|(kind, ..)| *kind == Kind::Directory))
    }

    fn remove(&mut self, name: &[u8]) -> Result<()> {
        self.files.remove(&self.path(name)).map(drop).ok_or(Errno::ENOENT)
    }

    fn make(&mut self, name: &[u8], entry: &Entry) -> Result<()> {
        self.last = self.path(name);
        self.files.insert(self.last.clone(), (entry.kind, entry.link.clone(), None));
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (_, content, _) = self.files.get_mut(&self.last).ok_or(Errno::EBADF)?;
        content.resize(usize::try_from(offset).unwrap(), 0);
        content.extend(bytes);
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        let (_, content, _) = self.files.get_mut(&self.last).ok_or(Errno::EBADF)?;
        content.resize(usize::try_from(size).unwrap(), 0);
        Ok(())
    }

    fn find(&mut self, names: &[&[u8]]) -> Result<()> {
        self.found = text(&names.join(&b'/'));
        if self.files.contains_key(&self.found) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    fn link(&mut self, name: &[u8]) -> Result<()> {
        let file = self.files[&self.found].clone();
        self.files.insert(self.path(name), file);
        Ok(())
    }

    fn set_attributes(&mut self, name: &[u8], entry: &Entry) -> Result<()> {
        let path = self.path(name);
        self.files.get_mut(&path).ok_or(Errno::ENOENT)?.2 = Some(entry.mode);
        self.dressed.push(path);
        Ok(())
    }
}

fn entry(path: &str, kind: Kind, mode: u32, link: &str) -> Entry {
    Entry { mode, link: link.into(), ..Entry::new(path.into(), kind) }
}

/// An archive of these entries, the files with these bytes.
fn archive(entries: &[(Entry, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (entry, bytes) in entries {
        out.extend(header(&Entry { size: bytes.len() as u64, ..entry.clone() }));
        out.extend(*bytes);
        out.resize(out.len() + padding(bytes.len() as u64), 0);
    }
    out
}

/// What becomes of these entries.
fn unpacked(entries: &[(Entry, &[u8])]) -> (Table, core::result::Result<(), (String, Errno)>) {
    let archive = [archive(entries), END.to_vec(), vec![0; 10 * BLOCK]].concat();
    let mut table = Table { archive, ..Table::default() };
    let done = unpack(&mut table).map_err(|f| (text(&f.what), f.errno));
    (table, done)
}

#[test]
fn files_come_where_their_names_say() {
    let hole = [&[0; 2 * CHUNK][..], b"end", &[0; CHUNK]].concat();
    let (table, done) = unpacked(&[
        (entry("./", Kind::Directory, 0, ""), b""),
        // Closed to whoever unpacks once it has its attributes; what is in it comes before and behind.
        (entry("a/b", Kind::Directory, 0o700, ""), b""),
        (entry("a", Kind::Directory, 0, ""), b""),
        (entry("/a/b/holes", Kind::File, 0o640, ""), &hole),
        (entry("a/link", Kind::Symlink, 0o777, "../../etc/passwd"), b""),
        (entry("a/other", Kind::HardLink, 0, "a/b/holes"), b""),
        (entry("a/link", Kind::File, 0o600, ""), b"instead of the link"),
    ]);
    assert_eq!(done, Ok(()));
    assert!(table.archive.is_empty(), "the padding is read too");
    assert_eq!(table.files["a/b/holes"], (Kind::File, hole, Some(0o640)));
    assert_eq!(table.files["a/other"], table.files["a/b/holes"]);
    assert_eq!(table.files["a/link"], (Kind::File, b"instead of the link".to_vec(), Some(0o600)));
    assert_eq!(table.dressed, ["a/b/holes", "a/link", "a/link", "a/b", "a"]);
}

#[test]
fn nothing_leaves_the_directory_nor_replaces_one() {
    for (one, what, errno) in [
        (entry("../x", Kind::File, 0, ""), "../x", Errno::EINVAL),
        (entry("a/../../x", Kind::File, 0, ""), "a/../../x", Errno::EINVAL),
        (entry("x", Kind::HardLink, 0, "../../etc/passwd"), "../../etc/passwd", Errno::EINVAL),
        (entry("x", Kind::HardLink, 0, "nothing"), "nothing", Errno::ENOENT),
        (entry("x", Kind::HardLink, 0, "."), ".", Errno::EINVAL),
        (entry("dir", Kind::File, 0, ""), "dir", Errno::EISDIR),
        (entry("dir/pipe/x", Kind::File, 0, ""), "dir/pipe/x", Errno::ENOTDIR),
    ] {
        let first = (entry("dir/pipe", Kind::Fifo, 0o600, ""), &b""[..]);
        let (table, done) = unpacked(&[first, (one, b"")]);
        assert_eq!(done, Err((what.to_string(), errno)));
        assert!(table.files.keys().map(String::as_str).eq(["dir", "dir/pipe"]), "{what}");
    }
}

#[test]
fn an_archive_that_ends_early_is_none() {
    let whole = archive(&[(entry("file", Kind::File, 0o600, ""), b"bytes")]);
    for len in [100, BLOCK + 3, BLOCK + 100] {
        let mut table = Table { archive: whole[..len].to_vec(), ..Table::default() };
        assert_eq!(unpack(&mut table).map_err(|f| f.errno), Err(Errno::EINVAL), "{len}");
    }
    let mut table = Table { archive: whole, ..Table::default() };
    assert!(unpack(&mut table).is_ok(), "some have no end mark");
}

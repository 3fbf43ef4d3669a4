//! Random operations on a volume and, at the same time, on a plain directory of the host: everything must be the same.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use doppel_abi_service::storage::{
    Answer, Changes, DirectoryEntry, Operation, Request, Step, flags, set, text,
};
use doppel_sys::shared::offset;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::guest::Guest;

/// A linear congruential generator: the same operations for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A file that is known on both sides.
struct Both {
    node: u64,
    host: OwnedFd,
    is_directory: bool,
}

/// What the host's file system says to it.
type Expected = Result<Outcome, Errno>;

enum Outcome {
    Nothing,
    /// A file that was made or found, on the host's side.
    File(OwnedFd, bool),
    Value(u64),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Attributes {
        mode: u32,
        nlink: u32,
        size: u64,
    },
}

/// One stream of operations, in a slot of its own.
pub struct Stream {
    slot: u16,
    random: Random,
    known: Vec<Both>,
    pending: Option<(Request, String, Expected)>,
    pub done: u64,
    pub failed: u64,
}

const KNOWN: usize = 12;
const MOST: u64 = 40_000;

impl Stream {
    /// Works below `node`, and `host` on the other side.
    pub fn new(slot: u16, seed: u64, node: u64, host: &Path) -> Self {
        let host = rustix::fs::open(host, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let known = vec![Both { node, host, is_directory: true }];
        Self { slot, random: Random(seed), known, pending: None, done: 0, failed: 0 }
    }

    /// Takes an answer that came, and asks for something else.
    pub fn go_on(&mut self, guest: &mut Guest, more: bool) {
        if let Some((_, what, _)) = &self.pending {
            let Some(answer) = guest.answered(self.slot) else { return };
            let what = what.clone();
            let (request, _, expected) = self.pending.take().unwrap();
            self.compare(guest, &request, &what, answer, expected);
        }
        if more {
            self.ask(guest);
        }
    }

    pub fn rests(&self) -> bool {
        self.pending.is_none()
    }

    fn compare(
        &mut self,
        guest: &Guest,
        request: &Request,
        what: &str,
        answer: Result<Answer, u16>,
        expected: Expected,
    ) {
        self.done += 1;
        let (answer, expected) = match (answer, expected) {
            (Ok(answer), Ok(expected)) => (answer, expected),
            (Err(got), Err(wanted)) => {
                self.failed += 1;
                return assert_eq!(i32::from(got), wanted.raw_os_error(), "{what}");
            }
            (answer, expected) => panic!("{what}: {answer:?}, and not {:?}", expected.map(drop)),
        };
        match expected {
            Outcome::Nothing => {}
            Outcome::File(host, is_directory) => {
                self.known.push(Both { node: answer.node, host, is_directory });
            }
            Outcome::Value(value) => assert_eq!(answer.value, value, "{what}"),
            Outcome::Bytes(bytes) => assert!(guest.data(self.slot, answer.value) == bytes, "{what}"),
            Outcome::Names(names) => {
                assert_eq!(names_of(&guest.data(self.slot, answer.value)), names, "{what}");
            }
            Outcome::Attributes { mode, nlink, size } => {
                let a = guest.shown_in(self.slot);
                let size = if a.mode & 0o170_000 == 0o040_000 { a.size } else { size };
                assert_eq!((a.mode, a.nlink, a.size), (mode, nlink, size), "{what} {request:?}");
            }
        }
    }

    fn pick(&mut self, directory: bool) -> Option<usize> {
        let of: Vec<usize> =
            (0..self.known.len()).filter(|&i| self.known[i].is_directory == directory).collect();
        (!of.is_empty()).then(|| of[self.random.below(of.len() as u64) as usize])
    }

    fn name(&mut self) -> String {
        let names = ["a", "b", "c", "d", "e", "name with blanks and \u{e4}\u{f6}\u{fc}"];
        names[self.random.below(names.len() as u64) as usize].into()
    }

    fn ask(&mut self, guest: &mut Guest) {
        while self.known.len() > KNOWN {
            // Not the first one.
            let i = 1 + self.random.below(self.known.len() as u64 - 1) as usize;
            let gone = self.known.swap_remove(i);
            guest.ask(self.slot, Request { a: 1, ..Request::new(Operation::Forget, gone.node) });
        }
        let (request, what, expected) = self.next(guest);
        self.pending = Some((request, format!("slot {}, {} done: {what}", self.slot, self.done), expected));
        guest.ask(self.slot, request);
    }

    /// What to ask, and what the host says to it.
    fn next(&mut self, guest: &mut Guest) -> (Request, String, Expected) {
        loop {
            let kind = self.random.below(27);
            let next = match kind {
                0..13 => self.next_of_names(kind, guest),
                13..25 => self.next_of_file(kind, guest),
                _ => self.next_batch(guest),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    fn next_of_names(&mut self, kind: u64, guest: &mut Guest) -> Option<(Request, String, Expected)> {
        let at = self.pick(true)?;
        let name = self.name();
        let dir = self.known[at].host.as_fd();
        let node = self.known[at].node;
        let a = guest.put_name(self.slot, name.as_bytes());
        let request = |operation| Request { a, ..Request::new(operation, node) };
        let what = format!("{name} in {node}");
        let rw = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Some(match kind {
            0..=2 => {
                let how = rw | OFlags::CREATE | OFlags::EXCL;
                let made = rustix::fs::openat(dir, &name, how, Mode::from_raw_mode(0o640));
                let request = Request { b: 0o100_640, ..request(Operation::Make) };
                (request, format!("create {what}"), made.map(|f| Outcome::File(f, false)))
            }
            3 => {
                let made = rustix::fs::mkdirat(dir, &name, Mode::from_raw_mode(0o750)).and_then(|()| {
                    rustix::fs::openat(dir, &name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                });
                let request = Request { b: 0o040_750, ..request(Operation::Make) };
                (request, format!("mkdir {what}"), made.map(|f| Outcome::File(f, true)))
            }
            4 => {
                let b = guest.put_second(self.slot, b"the/target");
                let made = rustix::fs::symlinkat("the/target", dir, &name);
                let request = Request { b, ..request(Operation::Symlink) };
                (request, format!("symlink {what}"), made.map(|()| Outcome::Nothing))
            }
            5 | 6 => {
                let found = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW);
                let found = found.and_then(|s| match s.st_mode & 0o170_000 {
                    0o100_000 => Ok(Outcome::File(rustix::fs::openat(dir, &name, rw, Mode::empty())?, false)),
                    0o040_000 => {
                        let how = OFlags::RDONLY | OFlags::DIRECTORY;
                        Ok(Outcome::File(rustix::fs::openat(dir, &name, how, Mode::empty())?, true))
                    }
                    _ => Ok(Outcome::Nothing),
                });
                (request(Operation::Lookup), format!("lookup {what}"), found)
            }
            7 | 8 => {
                let done = rustix::fs::unlinkat(dir, &name, AtFlags::empty());
                (request(Operation::Unlink), format!("unlink {what}"), done.map(|()| Outcome::Nothing))
            }
            9 => {
                let done = rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR);
                (request(Operation::RmDir), format!("rmdir {what}"), done.map(|()| Outcome::Nothing))
            }
            10 | 11 => {
                let (to, new, how) = (self.pick(true)?, self.name(), self.random.below(4) as u32 % 3);
                let (to, other) = (self.known[to].host.as_fd(), self.known[to].node);
                let b = guest.put_second(self.slot, new.as_bytes());
                let dir = self.known[at].host.as_fd();
                let how_host = RenameFlags::from_bits_retain(how);
                let done = rustix::fs::renameat_with(dir, &name, to, &new, how_host);
                let request = Request { other, b, flags: how, ..request(Operation::Rename) };
                (request, format!("rename {how} {what} to {new} in {other}"), done.map(|()| Outcome::Nothing))
            }
            _ => {
                let file = self.pick(false)?;
                let (file, from) = (self.known[file].host.as_fd(), self.known[file].node);
                let dir = self.known[at].host.as_fd();
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let done = rustix::fs::linkat(rustix::fs::CWD, path, dir, &name, AtFlags::SYMLINK_FOLLOW);
                let request = Request { a, other: node, ..Request::new(Operation::Link, from) };
                (request, format!("link {from} to {what}"), done.map(|()| Outcome::Nothing))
            }
        })
    }

    /// Several changes of names at once, some of which cannot be made.
    fn next_batch(&mut self, guest: &mut Guest) -> Option<(Request, String, Expected)> {
        let (mut steps, mut failed) = (Vec::new(), 0);
        for _ in 0..=self.random.below(12) {
            let (at, to) = (self.pick(true)?, self.pick(true)?);
            let (kind, name, new) = (self.random.below(4), self.name(), self.name());
            let (from, to) = (&self.known[at], &self.known[to]);
            let (operation, done) = match kind {
                0 => (Operation::Unlink, rustix::fs::unlinkat(&from.host, &name, AtFlags::empty())),
                1 => (Operation::RmDir, rustix::fs::unlinkat(&from.host, &name, AtFlags::REMOVEDIR)),
                _ => (Operation::Rename, rustix::fs::renameat(&from.host, &name, &to.host, &new)),
            };
            if let (Err(error), 0) = (done, failed) {
                failed = error.raw_os_error();
            }
            let renames = operation == Operation::Rename;
            let (other, new) = if renames { (to.node, new) } else { (0, String::new()) };
            steps.push((
                Step { operation, flags: 0, node: from.node, other, first: 0, second: 0 },
                name,
                new,
            ));
        }
        let named: Vec<_> = steps.iter().map(|(step, a, b)| (*step, a.as_str(), b.as_str())).collect();
        let request = guest.batch(self.slot, 0, &named);
        Some((request, format!("changes {steps:?}"), Ok(Outcome::Value(failed.cast_unsigned().into()))))
    }

    fn next_of_file(&mut self, kind: u64, guest: &mut Guest) -> Option<(Request, String, Expected)> {
        if kind >= 22 {
            return self.next_of_any(kind, guest);
        }
        let at = self.pick(false)?;
        let (mut place, mut len) = (self.random.below(MOST), self.random.below(9000));
        // Whole pages go to the device itself, or are asked to.
        let direct = if self.random.below(3) == 0 { flags::DIRECT } else { 0 };
        if direct != 0 {
            (place, len) = (place / 4096 * 4096, len.next_multiple_of(4096));
        }
        let byte = self.random.below(256) as u8;
        let file = self.known[at].host.as_fd();
        let request =
            |operation| Request { a: place, b: len, ..Request::new(operation, self.known[at].node) };
        let what = format!("{place} {len} of {}", self.known[at].node);
        let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add((i / 7) as u8)).collect();
        Some(match kind {
            13 | 14 => {
                guest.put_data(self.slot, &data);
                let done = rustix::io::pwrite(file, &data, place);
                let synced = [0, 0, 0, flags::DSYNC, flags::SYNC][self.random.below(5) as usize];
                let request = Request { flags: direct | synced, ..request(Operation::Write) };
                (request, format!("write {what}"), done.map(|n| Outcome::Value(n as u64)))
            }
            15 | 16 => {
                guest.put_data(self.slot, &data);
                let end = rustix::fs::fstat(file).unwrap().st_size.cast_unsigned();
                let done = rustix::io::pwrite(file, &data, end);
                let synced = if byte.is_multiple_of(8) { flags::DSYNC } else { 0 };
                let request = Request { flags: flags::APPEND | synced, ..request(Operation::Write) };
                (request, format!("append {what}"), done.map(|n| Outcome::Value(n as u64)))
            }
            17 => {
                let mut bytes = vec![0; offset(len)];
                let n = rustix::io::pread(file, &mut bytes, place);
                let read = n.map(|n| Outcome::Bytes(bytes[..n].to_vec()));
                (Request { flags: direct, ..request(Operation::Read) }, format!("read {what}"), read)
            }
            18 => {
                let changes = Changes { size: place, mode: 0o600 | len as u32 & 0o77, ..Changes::default() };
                guest.map.write(offset(text(self.slot)), &changes.encode());
                let done = rustix::fs::ftruncate(file, place)
                    .and_then(|()| rustix::fs::fchmod(file, Mode::from_raw_mode(changes.mode)))
                    .and_then(|()| attributes(file));
                let request = Request { flags: set::SIZE | set::MODE, ..request(Operation::SetAttr) };
                (request, format!("truncate {what}"), done)
            }
            19 => {
                // Holes, and what is not idempotent: ranges that are taken out and put in.
                let mode = [3, 8, 16, 32, 0][self.random.below(5) as usize];
                let (place, len) = (place / 4096 * 4096, (len / 4096 + 1) * 4096);
                let how = FallocateFlags::from_bits_retain(mode);
                let done = rustix::fs::fallocate(file, how, place, len).and_then(|()| attributes(file));
                let request = Request { a: place, b: len, flags: mode, ..request(Operation::Allocate) };
                (request, format!("allocate {mode} {what}"), done)
            }
            20 => {
                let done = rustix::fs::fdatasync(file).map(|()| Outcome::Nothing);
                (Request { flags: flags::DATA, ..request(Operation::Sync) }, format!("sync {what}"), done)
            }
            _ => (request(Operation::GetAttr), format!("attributes {what}"), attributes(file)),
        })
    }

    /// Of directories, too.
    fn next_of_any(&mut self, kind: u64, guest: &mut Guest) -> Option<(Request, String, Expected)> {
        let directory = kind == 22 || self.random.below(2) == 0;
        let at = self.pick(directory)?;
        let (file, node) = (self.known[at].host.as_fd(), self.known[at].node);
        if kind == 22 {
            let names = entries(file).map(Outcome::Names);
            return Some((Request::new(Operation::ReadDir, node), format!("list {node}"), names));
        }
        let a = guest.put_name(self.slot, b"user.x");
        let request = |operation| Request { a, ..Request::new(operation, node) };
        let what = format!("attribute of {node}");
        Some(match self.random.below(3) {
            0 => {
                let mut value = [0; 64];
                let found = rustix::fs::fgetxattr(file, "user.x", &mut value[..]);
                let found = found.map(|n| Outcome::Bytes(value[..n].to_vec()));
                (request(Operation::GetXattr), format!("get {what}"), found)
            }
            1 => {
                let how = self.random.below(3) as u32;
                let value = self.random.below(1000).to_string();
                let file = self.known[at].host.as_fd();
                let b = guest.put_data(self.slot, value.as_bytes());
                let how_host = XattrFlags::from_bits_retain(how);
                let done = rustix::fs::fsetxattr(file, "user.x", value.as_bytes(), how_host);
                let request = Request { b, flags: how, ..request(Operation::SetXattr) };
                (request, format!("set {how} {what}"), done.map(|()| Outcome::Nothing))
            }
            _ => {
                let done = rustix::fs::fremovexattr(file, "user.x").map(|()| Outcome::Nothing);
                (request(Operation::RemoveXattr), format!("remove {what}"), done)
            }
        })
    }
}

fn attributes(file: impl AsFd) -> Expected {
    let s = rustix::fs::fstat(file)?;
    Ok(Outcome::Attributes {
        mode: s.st_mode,
        nlink: u32::try_from(s.st_nlink).unwrap(),
        size: s.st_size.cast_unsigned(),
    })
}

fn entries(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(0))?;
    let mut space = vec![std::mem::MaybeUninit::uninit(); 1 << 16];
    let mut dir = RawDir::new(dir, &mut space);
    let mut names = Vec::new();
    while let Some(entry) = dir.next() {
        names.push(entry?.file_name().to_bytes().to_vec());
    }
    names.sort();
    Ok(names)
}

fn names_of(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while let Some((head, after)) = bytes.split_first_chunk() {
        let (name, after) = after.split_at(DirectoryEntry::decode(head).len.into());
        names.push(name.to_vec());
        bytes = after;
    }
    names.sort();
    names
}

/// Both trees are the same: names, kinds, modes, links, bytes, targets.
pub fn same(one: &Path, other: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let list = |dir: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let names = list(one);
    assert_eq!(names, list(other), "{one:?}");
    let mut files = 0;
    for name in names {
        let (a, b) = (one.join(&name), other.join(&name));
        let (x, y) = (std::fs::symlink_metadata(&a).unwrap(), std::fs::symlink_metadata(&b).unwrap());
        assert_eq!((x.mode(), x.nlink()), (y.mode(), y.nlink()), "{a:?}");
        files += 1;
        if x.is_dir() {
            files += same(&a, &b);
        } else if x.is_symlink() {
            assert_eq!(std::fs::read_link(&a).unwrap(), std::fs::read_link(&b).unwrap(), "{a:?}");
        } else {
            assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "{a:?}");
        }
    }
    files
}

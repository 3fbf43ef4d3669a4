//! One thread of the helper: takes what the host's kernel asks of the disks' files, and has the storage service do it.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_service::storage::{BUFFER, Operation, Request as Ask, buffer};
use doppel_sys::shared::offset;
use rustix::io::Errno;

use super::channel::Channel;
use super::fuse::{self, Asked, FIRST, HEAD, ROOT, Request};

/// `fallocate(2)`: PUNCH_HOLE with KEEP_SIZE, and what makes zeros.
const PUNCH: u32 = 3;
const MAKES_ZEROS: u32 = 2 | 16;

/// A disk.
#[derive(Debug)]
pub(super) struct Served {
    /// Which of the service's volumes it is.
    pub volume: u64,
    pub read_only: bool,
    /// Something was written since the last flush.
    written: AtomicBool,
}

impl Served {
    pub fn new(volume: u64, read_only: bool) -> Self {
        // Whoever had it before may have died before a flush.
        Self { volume, read_only, written: AtomicBool::new(!read_only) }
    }
}

/// What all threads have.
pub(super) struct Server {
    pub kernel: File,
    pub channel: Channel,
    pub disks: Vec<Served>,
}

type Answer = Result<Vec<u8>, u16>;

fn errno(error: Errno) -> u16 {
    u16::try_from(error.raw_os_error()).unwrap_or(5)
}

impl Server {
    /// Serves in this slot until the kernel has nothing to ask any more.
    pub fn work(&self, slot: u16) -> io::Result<()> {
        let place = offset(buffer(slot));
        let mut head = [0; HEAD];
        loop {
            let len = match self.channel.map.read_behind(&self.kernel, &mut head, place, BUFFER) {
                Ok(len) => len,
                Err(e) => match Errno::from_io_error(&e) {
                    // Nobody has one of the files any more.
                    Some(Errno::NODEV) => return Ok(()),
                    // Who asked has given up.
                    Some(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
                    _ => return Err(e),
                },
            };
            self.answer(slot, Request::parse(&head, len)?)?;
        }
    }

    fn answer(&self, slot: u16, request: Request) -> io::Result<()> {
        let Request { unique, node, what } = request;
        let said = match what {
            Asked::Silence => return Ok(()),
            Asked::Read { at, len } => return self.read(slot, unique, node, (at, len)),
            Asked::Init { flags } => Ok(fuse::init(flags, BUFFER as u32)),
            Asked::Lookup { name } => self.lookup(slot, name),
            Asked::GetAttr if node == ROOT => Ok(fuse::shown(node, 0)),
            Asked::GetAttr => self.size(slot, node).map(|size| fuse::shown(node, size)),
            Asked::Open => Ok(fuse::opened()),
            Asked::StatFs => Ok(fuse::file_system()),
            Asked::Write { at, len } => self.write(slot, node, at, len),
            Asked::Sync => self.sync(slot, node),
            Asked::Allocate { mode, at, len } => self.zero(slot, node, mode, (at, len)),
            Asked::Nothing => Ok(Vec::new()),
            Asked::Unknown => Err(errno(Errno::NOSYS)),
        };
        let mut bytes = fuse::answer(
            unique,
            said.as_ref().err().copied().unwrap_or(0),
            said.as_ref().map_or(0, Vec::len),
        );
        bytes.extend(said.unwrap_or_default());
        self.say(&bytes, slot, 0)
    }

    /// Answers, with so many bytes of the slot's buffer.
    fn say(&self, bytes: &[u8], slot: u16, len: usize) -> io::Result<()> {
        match self.channel.map.write_behind(&self.kernel, bytes, offset(buffer(slot)), len) {
            // Who asked has given up.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => Ok(()),
            said => said.map(drop),
        }
    }

    fn disk(&self, node: u64) -> Result<&Served, u16> {
        let place = node.checked_sub(FIRST).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.disks.get(place)).ok_or(errno(Errno::NOENT))
    }

    /// One that is to be changed.
    fn writable(&self, node: u64) -> Result<&Served, u16> {
        let disk = self.disk(node)?;
        if disk.read_only { Err(errno(Errno::ROFS)) } else { Ok(disk) }
    }

    fn size(&self, slot: u16, node: u64) -> Result<u64, u16> {
        self.channel.call(slot, Ask::new(Operation::GetAttr, self.disk(node)?.volume))?;
        Ok(self.channel.shown(slot).size)
    }

    fn lookup(&self, slot: u16, name: Option<u8>) -> Answer {
        let node = FIRST + u64::from(name.ok_or(errno(Errno::NOENT))?);
        Ok(fuse::entry(node, self.size(slot, node)?))
    }

    fn read(&self, slot: u16, unique: u64, node: u64, (at, len): (u64, u32)) -> io::Result<()> {
        let ask = |disk: &Served| {
            let request = Ask { a: at, b: len.into(), ..Ask::new(Operation::Read, disk.volume) };
            self.channel.call(slot, request)
        };
        let read = self.disk(node).and_then(ask).map(|answer| answer.value.min(len.into()));
        // The kernel asks for no more than it was told is possible; the service says no more than it was asked.
        let count = read.ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0).min(BUFFER);
        self.say(&fuse::answer(unique, read.err().unwrap_or(0), count), slot, count)
    }

    fn write(&self, slot: u16, node: u64, at: u64, len: u32) -> Answer {
        let disk = self.writable(node)?;
        disk.written.store(true, Ordering::SeqCst);
        let request = Ask { a: at, b: len.into(), ..Ask::new(Operation::Write, disk.volume) };
        let answer = self.channel.call(slot, request)?;
        Ok(fuse::written(u32::try_from(answer.value).unwrap_or(0).min(len)))
    }

    fn sync(&self, slot: u16, node: u64) -> Answer {
        let disk = self.disk(node)?;
        // Who writes from here on says so again.
        if disk.written.swap(false, Ordering::SeqCst) {
            let synced = self.channel.call(slot, Ask::new(Operation::Sync, disk.volume));
            synced.inspect_err(|_| disk.written.store(true, Ordering::SeqCst))?;
        }
        Ok(Vec::new())
    }

    fn zero(&self, slot: u16, node: u64, mode: u32, (at, len): (u64, u64)) -> Answer {
        let disk = self.writable(node)?;
        if mode & MAKES_ZEROS == 0 {
            return Err(errno(Errno::OPNOTSUPP));
        }
        disk.written.store(true, Ordering::SeqCst);
        let request = Ask { flags: PUNCH, a: at, b: len, ..Ask::new(Operation::Allocate, disk.volume) };
        self.channel.call(slot, request).map(|_| Vec::new())
    }
}

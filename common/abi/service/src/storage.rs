//! The storage service: files that a service domain keeps for a domain.
//!
//! A request names a *slot*, which the guest kernel chooses and which is the request's until it is answered: its names lie in
//! the slot's text, its data in the slot's buffer, and so do those of the answer; attributes that come with an answer have a place of
//! their own. Operations mean what FUSE's of the same name
//! mean. A file is named by a *node*, a number that the service domain gives with [`Operation::Lookup`] and whatever makes a
//! file; it stays until it was given back as often as it was given ([`Operation::Forget`]). The roots of volumes are nodes 0 on,
//! and are never given back.
//!
//! **What is done is done once.** A service domain that is replaced is asked again ([`flags::AGAIN`]) for what was under way. A
//! slot says how far it came ([`SlotHeader`]): what is done is answered from there, what was not begun is done. Until then the names and
//! data of a request that changes something stay as they were asked: no answer is written over them.

mod batch;
mod events;
mod leases;
mod used;

use core::sync::atomic::{AtomicU64, Ordering};

use doppel_ring::{Entry, Ticket};

use crate::layout;

pub use batch::{STEPS, Split, Step};
pub use events::{FILE_EVENTS, FileEvent, FileEvents, Name, file_event};
pub use leases::{Keeps, LEASES, Lease, Leases};
pub use used::{Amount, Charges, Used};

/// Requests that may be under way.
pub const SLOTS: u16 = 64;
/// Bytes of a slot's text: two halves, of which each holds a name or a link's target with room to spare.
pub const TEXT: usize = 8 << 10;
/// Where the second half begins.
pub const SECOND: usize = 4 << 10;
/// Bytes of a slot's buffer: the most that a read or write moves.
pub const BUFFER: usize = 256 << 10;
/// Longest name of one component in bytes.
pub const NAME: usize = 255;
/// Longest target of a symbolic link in bytes.
pub const TARGET: usize = 4095;
/// Longest extended attribute's value in bytes.
pub const XATTR: usize = 64 << 10;
/// What places and lengths are multiples of that go to a device, in bytes.
const BLOCK: u64 = 4096;
/// The extended attribute of a layer's file which says how many of its first bytes are somebody else's too as long as it has several
/// names: 8 bytes, little-endian. Only the host's root can set it.
pub const SHARED: &str = "security.doppel.shared";
/// Bytes at the beginning of a layer's file that are its writer's own.
pub const SUPERBLOCKS: u64 = 8192;
/// Most volumes of a domain.
pub const VOLUMES: u64 = 64;

const HEADER: u64 = 4 << 10;
const STRIDE: u64 = HEADER + TEXT as u64 + BUFFER as u64;
const FIRST: u64 = layout::SERVICE;
/// Size of a channel in bytes; it is sparse.
pub const SIZE: u64 = FIRST + SLOTS as u64 * STRIDE;

/// Where a slot's [`SlotHeader`] is.
#[must_use]
pub fn header(slot: u16) -> u64 {
    FIRST + u64::from(slot) * STRIDE
}

/// Where the [`Attributes`] are that come with an answer.
#[must_use]
pub fn shown(slot: u16) -> u64 {
    header(slot) + size_of::<SlotHeader>() as u64
}

/// Where a slot's text is.
#[must_use]
pub fn text(slot: u16) -> u64 {
    header(slot) + HEADER
}

/// Where a slot's buffer is.
#[must_use]
pub fn buffer(slot: u16) -> u64 {
    text(slot) + TEXT as u64
}

/// How far the request in a slot came. The service domain's; a guest kernel that writes it deceives itself alone.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SlotHeader {
    /// Ticket of the request that was begun last.
    begun: AtomicU64,
    /// Ticket of the request that was done last, and its answer.
    done: AtomicU64,
    error: AtomicU64,
    value: AtomicU64,
    node: AtomicU64,
    /// What a request that was begun has found, by its operation: where an append writes, or what a name leads to.
    place: AtomicU64,
    /// Changes of a batch that are done, and, from bit 32 on, the first error of these.
    step: AtomicU64,
}

/// First page of a memory file that a storage service and its manager have for each domain, which that does not see: what the service
/// has done for it, and how many nodes it has given.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Ledger {
    /// Records of nodes that were ever used.
    pub nodes: AtomicU64,
    operations: AtomicU64,
    errors: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    nanoseconds: AtomicU64,
}

/// What a storage service has done for a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that were answered.
    pub operations: u64,
    /// Those that failed because of the host: it has no room, or is broken.
    pub errors: u64,
    /// Bytes of files.
    pub read_bytes: u64,
    /// Bytes of files.
    pub written_bytes: u64,
    /// From when requests were taken until they were answered, all together.
    pub nanoseconds: u64,
}

impl Ledger {
    /// Adds what was done.
    pub fn add(&self, t: &Traffic) {
        self.operations.fetch_add(t.operations, Ordering::Relaxed);
        self.nanoseconds.fetch_add(t.nanoseconds, Ordering::Relaxed);
        for (word, n) in
            [(&self.errors, t.errors), (&self.read, t.read_bytes), (&self.written, t.written_bytes)]
        {
            if n > 0 {
                word.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            operations: self.operations.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            read_bytes: self.read.load(Ordering::Relaxed),
            written_bytes: self.written.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }
}

/// No place in a file.
const NOWHERE: u64 = u64::MAX;

/// How far a request came, when it is asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was done.
    None,
    /// It was begun: what it asks for may be done or not.
    Begun,
    /// It was done, with this answer.
    Done(Answer),
}

impl SlotHeader {
    /// It is begun.
    pub fn begin(&self, ticket: Ticket) {
        self.place.store(NOWHERE, Ordering::SeqCst);
        self.step.store(0, Ordering::SeqCst);
        self.begun.store(ticket.0, Ordering::SeqCst);
    }

    /// So many changes of a batch are done, and this is their first error, or 0.
    pub fn set_step(&self, step: u32, error: u16) {
        // The next one has found nothing.
        self.place.store(NOWHERE, Ordering::SeqCst);
        self.step.store(u64::from(step) | u64::from(error) << 32, Ordering::SeqCst);
    }

    /// How many changes of the batch that was begun last are done, and their first error.
    #[must_use]
    pub fn step(&self) -> (u32, u16) {
        let step = self.step.load(Ordering::SeqCst);
        (step as u32, (step >> 32) as u16)
    }

    /// It is done.
    pub fn finish(&self, answer: &Answer) {
        self.error.store(answer.error.into(), Ordering::Relaxed);
        self.value.store(answer.value, Ordering::Relaxed);
        self.node.store(answer.node, Ordering::Relaxed);
        self.done.store(answer.ticket.0, Ordering::SeqCst);
    }

    /// What it has found; said before anything is changed.
    pub fn set_place(&self, place: u64) {
        self.place.store(place, Ordering::SeqCst);
    }

    /// What the request that was begun last has found; none if it did not come that far, and so has changed nothing.
    #[must_use]
    pub fn place(&self) -> Option<u64> {
        Some(self.place.load(Ordering::SeqCst)).filter(|place| *place != NOWHERE)
    }

    /// How far the request with this ticket came.
    #[must_use]
    pub fn progress(&self, slot: u16, ticket: Ticket) -> Progress {
        if self.done.load(Ordering::SeqCst) == ticket.0 {
            return Progress::Done(Answer {
                slot,
                error: u16::try_from(self.error.load(Ordering::Relaxed)).unwrap_or(u16::MAX),
                ticket,
                value: self.value.load(Ordering::Relaxed),
                node: self.node.load(Ordering::Relaxed),
            });
        }
        if self.begun.load(Ordering::SeqCst) == ticket.0 { Progress::Begun } else { Progress::None }
    }
}

/// What is asked for. Unless said otherwise the answer shows the node's [`Attributes`] ([`shown`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// The file of a name in the directory `node`: name of length `a`. Answer: its node.
    Lookup = 1,
    /// `node` is given back `a` times. No slot, no answer; not to be sent again to another service domain.
    Forget = 2,
    /// Attributes of `node`.
    GetAttr = 3,
    /// Changes those of `node` that [`set`] names in `flags`, as [`Changes`] in the text.
    SetAttr = 4,
    /// The target of the symbolic link `node`. Answer: its length, the target in the text, no attributes.
    ReadLink = 5,
    /// Makes a file in the directory `node`: name of length `a`, mode (with the type) `b`, owner `c` and `d`, device `e`.
    Make = 6,
    /// Makes a symbolic link in the directory `node`: name of length `a`, owner `c` and `d`, target of length `b` in the second half.
    Symlink = 7,
    /// Removes the name of length `a` from the directory `node`; may be [`flags::UNUSED`]. No attributes.
    Unlink = 8,
    /// The same of a directory.
    RmDir = 9,
    /// Renames the name of length `a` in `node` to that of length `b`, in the second half, in `other`; `flags` as `renameat2(2)`, and
    /// may have [`flags::UNUSED`], of the file whose place is taken. No attributes.
    Rename = 10,
    /// Gives the file `node` another name, of length `a`, in the directory `other`.
    Link = 11,
    /// Reads `b` bytes at `a` into the buffer. Answer: how many. No attributes.
    Read = 12,
    /// Writes `b` bytes of the buffer at `a`; with [`flags::APPEND`] at the end, with [`flags::DSYNC`] or [`flags::SYNC`] for good. The time of modification is `e` then, in nanoseconds since
    /// 1970, unless that is 0. Answer: how many, and as node where they end.
    Write = 13,
    /// Writes `node` to where it survives a power cut; with [`flags::DATA`] its data alone, with
    /// [`flags::ALL`] all of its file system. No attributes.
    Sync = 14,
    /// `fallocate(2)` of `b` bytes at `a`, with this mode as `flags`.
    Allocate = 15,
    /// `lseek(2)` from `a` on for data (`flags` 3) or a hole (4). Answer: where. No attributes.
    Seek = 16,
    /// Entries of the directory `node` from the position `a` on, into the buffer ([`DirectoryEntry`]). Answer: bytes. No attributes.
    ReadDir = 17,
    /// What `statfs(2)` says of the file system of `node`, as seven words in the text.
    StatFs = 18,
    /// The extended attribute with a name of length `a`. Answer: its length, the value in the buffer. No attributes.
    GetXattr = 19,
    /// Sets it to the `b` bytes of the buffer, with `flags` as `setxattr(2)`. No attributes.
    SetXattr = 20,
    /// All names. Answer: their length, the names in the buffer, each with a NUL behind it. No attributes.
    ListXattr = 21,
    /// Removes it. No attributes.
    RemoveXattr = 22,
    /// A regular file without a name in the file system of the directory `node`: mode `b`, owner `c` and `d`.
    TmpFile = 23,
    /// Locks the bytes `a` to `b` (`i64::MAX`: to the end) of `node` for the domain as a whole, with [`lock::EXCLUSIVE`] also against those who
    /// only share; or does what else [`lock`] in `flags` says. EAGAIN: somebody outside the domain has a lock that conflicts. The domain's own
    /// users of the file are the guest kernel's matter. Answer of [`lock::TEST`]: 0, or 1 more than whether what conflicts is exclusive, and its
    /// first and last byte as two words in the text. No attributes.
    Lock = 24,
    /// Does `a` changes of names, one after the other, which are the first `b` bytes of the buffer ([`Step`]); of one volume, that of
    /// `node`. One that fails keeps none of the others from being done. Answer: the first error, or 0. No attributes.
    Batch = 25,
    /// Tells of changes to `node` that others make, and in it if it is a directory: the [`file_event`]s in `a`, by [`FileEvents`], until
    /// [`Operation::Unwatch`]. Each one has a number `b`, larger than that of what was asked before; who comes late is not heard. ENOSPC: the
    /// domain or the host has too many. No attributes.
    Watch = 26,
    /// Tells of them no more, if no [`Operation::Watch`] of a larger number than `b` came. No slot, no answer; need not be sent again to another
    /// service domain.
    Unwatch = 27,
    /// A program that has written `node` with [`flags::HELD`] has closed it. No slot, no answer; need not be sent again to another service
    /// domain.
    Release = 28,
}

impl Operation {
    const ALL: [Self; 28] = [
        Self::Lookup,
        Self::Forget,
        Self::GetAttr,
        Self::SetAttr,
        Self::ReadLink,
        Self::Make,
        Self::Symlink,
        Self::Unlink,
        Self::RmDir,
        Self::Rename,
        Self::Link,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Allocate,
        Self::Seek,
        Self::ReadDir,
        Self::StatFs,
        Self::GetXattr,
        Self::SetXattr,
        Self::ListXattr,
        Self::RemoveXattr,
        Self::TmpFile,
        Self::Lock,
        Self::Batch,
        Self::Watch,
        Self::Unwatch,
        Self::Release,
    ];

    /// Whether there is an answer, and so a slot until that comes.
    #[must_use]
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Forget | Self::Unwatch | Self::Release)
    }

    fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u16 == number)
    }
}

/// Bits of [`Request::flags`] and, from the second on, their meaning by operation.
pub mod flags {
    /// Asked of a service domain before this one: it may be done already.
    pub const AGAIN: u32 = 1 << 31;
    /// No program has what loses its name here in use, and none will: it need not be found again. What is found by its node afterwards
    /// may be lost when the service domain is replaced.
    pub const UNUSED: u32 = 1 << 30;
    /// See [`super::Operation::Write`].
    pub const APPEND: u32 = 1;
    /// A read or write goes to the host's device itself, past the host's cache, if place and length are multiples of 4096 and the host's file
    /// system can; else it is one like all others.
    pub const DIRECT: u32 = 2;
    /// The file's data are written to where they survive a power cut, once the write is done: a [`super::Operation::Sync`] with [`DATA`] is not needed.
    pub const DSYNC: u32 = 4;
    /// All of the file is; likewise.
    pub const SYNC: u32 = 8;
    /// Who writes has the file open, until [`super::Operation::Release`]: to others it is closed then.
    pub const HELD: u32 = 16;
    /// See [`super::Operation::Sync`].
    pub const DATA: u32 = 1;
    /// See [`super::Operation::Sync`].
    pub const ALL: u32 = 2;
}

/// Bits of [`Operation::Lock`].
pub mod lock {
    /// Against everybody.
    pub const EXCLUSIVE: u32 = 1;
    /// Gives the lock up instead.
    pub const UNLOCK: u32 = 2;
    /// A lock of `flock(2)`, which has no range and meets its kind alone.
    pub const WHOLE: u32 = 4;
    /// Only tells what conflicts. Not of [`WHOLE`].
    pub const TEST: u32 = 8;
    /// With [`UNLOCK`]: the domain has no lock of this file any more, of either kind.
    pub const LAST: u32 = 16;
}

/// Bits of [`Operation::SetAttr`].
#[allow(missing_docs)]
pub mod set {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const SIZE: u32 = 8;
    pub const ATIME: u32 = 16;
    pub const MTIME: u32 = 32;
}

/// An operation is not known, or names a slot that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

/// What the guest kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub operation: Operation,
    /// Where its names and data are.
    pub slot: u16,
    /// By operation.
    pub flags: u32,
    /// Never used twice in a slot.
    pub ticket: Ticket,
    /// The file.
    pub node: u64,
    /// Another one; or, where none is, the word `e`.
    pub other: u64,
    /// By operation.
    pub a: u64,
    /// By operation.
    pub b: u64,
    /// By operation.
    pub c: u32,
    /// By operation.
    pub d: u32,
}

impl Request {
    /// One without names and data.
    #[must_use]
    pub fn new(operation: Operation, node: u64) -> Self {
        Self { operation, slot: 0, flags: 0, ticket: Ticket(0), node, other: 0, a: 0, b: 0, c: 0, d: 0 }
    }

    /// Whether it is a read or write of whole pages, and asks for these past the host's cache ([`flags::DIRECT`]).
    #[must_use]
    pub fn is_direct(&self) -> bool {
        let asks = match self.operation {
            Operation::Read => self.flags & flags::DIRECT != 0,
            Operation::Write => self.flags & (flags::DIRECT | flags::APPEND) == flags::DIRECT,
            _ => false,
        };
        asks && self.a.is_multiple_of(BLOCK) && self.b.is_multiple_of(BLOCK) && self.b > 0
    }

    /// Whether it ends when something is written to where it survives a power cut.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        match self.operation {
            Operation::Sync => true,
            Operation::Write => self.flags & (flags::DSYNC | flags::SYNC) != 0,
            _ => false,
        }
    }

    /// As an entry of the ring.
    #[must_use]
    pub fn encode(&self) -> Entry {
        let first =
            u64::from(self.operation as u16) | u64::from(self.slot) << 16 | u64::from(self.flags) << 32;
        let owner = u64::from(self.c) | u64::from(self.d) << 32;
        [first, self.ticket.0, self.node, self.other, self.a, self.b, owner, 0]
    }

    /// From an entry.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(e: &Entry) -> Result<Self, Unknown> {
        let slot = (e[0] >> 16) as u16;
        let operation = Operation::from_number(e[0] as u16).filter(|_| slot < SLOTS).ok_or(Unknown)?;
        Ok(Self {
            operation,
            slot,
            flags: (e[0] >> 32) as u32,
            ticket: Ticket(e[1]),
            node: e[2],
            other: e[3],
            a: e[4],
            b: e[5],
            c: e[6] as u32,
            d: (e[6] >> 32) as u32,
        })
    }
}

/// What the service domain says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's slot, which is free again.
    pub slot: u16,
    /// An errno; 0: it is done.
    pub error: u16,
    /// The request's.
    pub ticket: Ticket,
    /// By operation.
    pub value: u64,
    /// By operation.
    pub node: u64,
}

impl Answer {
    /// As an entry of the ring.
    #[must_use]
    pub fn encode(&self) -> Entry {
        [u64::from(self.slot) | u64::from(self.error) << 16, self.ticket.0, self.value, self.node, 0, 0, 0, 0]
    }

    /// From an entry.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(e: &Entry) -> Result<Self, Unknown> {
        let slot = e[0] as u16;
        if slot >= SLOTS {
            return Err(Unknown);
        }
        Ok(Self { slot, error: (e[0] >> 16) as u16, ticket: Ticket(e[1]), value: e[2], node: e[3] })
    }
}

/// Attributes of a file, as `statx(2)` has them; times in nanoseconds since 1970.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub ino: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub block_size: u32,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
}

impl Attributes {
    /// Their size in bytes.
    pub const BYTES: usize = 88;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        words([
            self.ino,
            pair(self.mode, self.nlink),
            pair(self.uid, self.gid),
            self.rdev,
            self.size,
            self.blocks,
            self.block_size.into(),
            self.atime.cast_unsigned(),
            self.mtime.cast_unsigned(),
            self.ctime.cast_unsigned(),
            self.btime.cast_unsigned(),
        ])
    }

    /// From bytes; everything is attributes.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [ino, kind, owner, rdev, size, blocks, block_size, atime, mtime, ctime, btime] = numbers(bytes);
        Self {
            ino,
            mode: kind as u32,
            nlink: (kind >> 32) as u32,
            uid: owner as u32,
            gid: (owner >> 32) as u32,
            rdev,
            size,
            blocks,
            block_size: block_size as u32,
            atime: atime.cast_signed(),
            mtime: mtime.cast_signed(),
            ctime: ctime.cast_signed(),
            btime: btime.cast_signed(),
        }
    }
}

/// What [`Operation::SetAttr`] changes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: i64,
    pub mtime: i64,
}

impl Changes {
    /// Their size in a text in bytes.
    pub const BYTES: usize = 40;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        words([
            self.mode.into(),
            pair(self.uid, self.gid),
            self.size,
            self.atime.cast_unsigned(),
            self.mtime.cast_unsigned(),
        ])
    }

    /// From bytes; everything is changes.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [mode, owner, size, atime, mtime] = numbers(bytes);
        Self {
            mode: mode as u32,
            uid: owner as u32,
            gid: (owner >> 32) as u32,
            size,
            atime: atime.cast_signed(),
            mtime: mtime.cast_signed(),
        }
    }
}

/// An entry of a directory: this header, then its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Inode number.
    pub ino: u64,
    /// The position behind it.
    pub next: u64,
    /// `d_type`.
    pub kind: u8,
    /// Length of its name, 1 to [`NAME`].
    pub len: u8,
}

impl DirectoryEntry {
    /// Size of the header in bytes.
    pub const BYTES: usize = 24;

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        words([self.ino, self.next, u64::from(self.kind) | u64::from(self.len) << 8])
    }

    /// From bytes; everything is an entry.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [ino, next, rest] = numbers(bytes);
        Self { ino, next, kind: rest as u8, len: (rest >> 8) as u8 }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Words, little-endian.
fn words<const N: usize, const BYTES: usize>(words: [u64; N]) -> [u8; BYTES] {
    const { assert!(N * 8 == BYTES) };
    let mut out = [0; BYTES];
    for (to, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    out
}

fn numbers<const N: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; N] {
    const { assert!(N * 8 == BYTES) };
    let (chunks, _) = bytes.as_chunks();
    core::array::from_fn(|i| u64::from_le_bytes(chunks[i]))
}

// Pinned: docs/services.md.
const _: () = {
    assert!(size_of::<SlotHeader>() == 64 && size_of::<Ledger>() == 64);
    assert!(TARGET < TEXT - SECOND && NAME < SECOND);
    assert!(XATTR <= BUFFER);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_what_they_were() {
        for operation in Operation::ALL {
            let request = Request {
                slot: 63,
                flags: flags::AGAIN | 5,
                ticket: Ticket(7),
                other: 9,
                a: u64::MAX,
                b: 3,
                c: 1,
                d: u32::MAX,
                ..Request::new(operation, 8)
            };
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let answer = Answer { slot: 63, error: 17, ticket: Ticket(u64::MAX), value: 1, node: 2 };
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }

    #[test]
    fn whole_pages_alone_go_past_the_cache() {
        let request = |operation, a, b, flags| Request { a, b, flags, ..Request::new(operation, 70) };
        for operation in [Operation::Read, Operation::Write] {
            assert!(request(operation, 8192, 4096, flags::DIRECT | flags::AGAIN).is_direct());
            for (a, b, flags) in
                [(1, 4096, flags::DIRECT), (0, 100, flags::DIRECT), (0, 0, flags::DIRECT), (0, 4096, 0)]
            {
                assert!(!request(operation, a, b, flags).is_direct(), "{a} {b} {flags}");
            }
        }
        assert!(!request(Operation::Write, 0, 4096, flags::DIRECT | flags::APPEND).is_direct());
        assert!(!request(Operation::Allocate, 0, 4096, flags::DIRECT).is_direct());
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert_eq!(Request::decode(&[0; 8]), Err(Unknown));
        assert_eq!(Request::decode(&[29, 0, 0, 0, 0, 0, 0, 0]), Err(Unknown));
        assert_eq!(Request::decode(&[1 | 64 << 16, 0, 0, 0, 0, 0, 0, 0]), Err(Unknown));
        assert_eq!(Answer::decode(&[64, 0, 0, 0, 0, 0, 0, 0]), Err(Unknown));
    }

    #[test]
    fn records_are_what_they_were() {
        let a = Attributes {
            ino: 1,
            mode: 0o100_644,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 5,
            btime: -6,
            ..Attributes::default()
        };
        assert_eq!(Attributes::decode(&a.encode()), a);
        let c = Changes { mode: 1, uid: 2, gid: 3, size: 4, atime: -5, mtime: i64::MAX };
        assert_eq!(Changes::decode(&c.encode()), c);
        let d = DirectoryEntry { ino: 1, next: u64::MAX, kind: 8, len: 255 };
        assert_eq!(DirectoryEntry::decode(&d.encode()), d);
    }

    #[test]
    fn a_slot_says_how_far_a_request_came() {
        let slot = SlotHeader {
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            error: AtomicU64::new(0),
            value: AtomicU64::new(0),
            node: AtomicU64::new(0),
            place: AtomicU64::new(0),
            step: AtomicU64::new(0),
        };
        let answer = Answer { slot: 3, error: 2, ticket: Ticket(9), value: 4, node: 5 };
        assert_eq!(slot.progress(3, answer.ticket), Progress::None);
        slot.begin(answer.ticket);
        assert_eq!(slot.progress(3, answer.ticket), Progress::Begun);
        slot.set_place(7);
        slot.set_step(2, 17);
        assert_eq!((slot.step(), slot.place()), ((2, 17), None));
        slot.finish(&answer);
        assert_eq!(slot.progress(3, answer.ticket), Progress::Done(answer));
        assert_eq!(slot.progress(3, Ticket(10)), Progress::None);
    }
}

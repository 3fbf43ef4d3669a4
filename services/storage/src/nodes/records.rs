//! Records of nodes, as memory that outlives the process has them: one after the other behind a page of counts.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Ledger, VOLUMES};
use doppel_sys::handle::{Handle, LONGEST};
use doppel_sys::shared::{SharedMap, offset};
use rustix::fs::{FileType, FlockOperation, MemfdFlags, SealFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// Most files that a domain may know at once.
const MOST: u32 = 1 << 18;
const WORDS: usize = 8;
/// Bytes of a record.
const RECORD: usize = WORDS * 8 + LONGEST;
const LEDGER: usize = 4096;
/// Where in that page the [`Charges`](doppel_abi_service::storage::Charges) are.
pub(crate) const CHARGES: usize = 1024;
/// Where in that page the events are by which the roots of volumes are watched, 4 bytes each.
const ROOTS: usize = 512;
/// Size of the memory in bytes; it is sparse.
pub(super) const SIZE: u64 = LEDGER as u64 + MOST as u64 * RECORD as u64;

/// How long a service that has lost its manager may take to end, and how often that is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

/// Makes the memory for a domain.
///
/// # Errors
/// What the host says.
pub fn memory() -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("doppel-nodes", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, SIZE)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A file for this memory which a successor of the process that has it finds; locked, as long as that process or a service of
/// its has it: who follows waits for these to be gone.
///
/// # Errors
/// What the host says; or they are not gone in time.
pub fn nodes_file(path: &Path) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            done => break done?,
        }
    }
    file.set_len(SIZE)?;
    Ok(file.into())
}

/// What tells a file from all others, also from later ones with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub volume: u64,
    pub device: u64,
    pub inode: u64,
    /// When it was made, in nanoseconds; 0 where the host does not know.
    pub born: u64,
}

impl Identity {
    pub fn of(volume: u64, s: &Statx) -> Self {
        let knows = StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::BTIME);
        let born = s.stx_btime.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000);
        let born = born.wrapping_add(s.stx_btime.tv_nsec.into());
        Self {
            volume,
            device: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
            inode: s.stx_ino,
            born: if knows { born } else { 0 },
        }
    }

    /// As one word, for a slot: the file that a name led to.
    pub fn word(&self) -> u64 {
        let mixed = [self.device, self.inode, self.born]
            .into_iter()
            .fold(0u64, |h, w| (h.rotate_left(23) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Not that of nothing.
        mixed >> 1
    }
}

/// How a file is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locator {
    /// It is not, unless it is held open.
    None,
    Handle(Handle),
    /// By its last known name in this directory.
    Name {
        parent: u64,
        name: Vec<u8>,
    },
}

const HANDLE: u64 = 1;
const NAME: u64 = 2;

/// A file that a domain knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// How often it was given; 0: no record.
    pub given: u64,
    /// Which request it was given by last.
    pub giver: u64,
    pub identity: Identity,
    pub kind: FileType,
    /// Events by which it is watched, of the lowest 16 bits.
    pub watched: u32,
    pub locator: Locator,
}

/// Names the request of a ticket in a slot.
pub(crate) fn giver(slot: u16, ticket: u64) -> u64 {
    ticket.rotate_left(6) ^ u64::from(slot)
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        let (locator, len, bytes): (u64, usize, &[u8]) = match &self.locator {
            Locator::None => (0, 0, &[]),
            Locator::Handle(h) => {
                let kind = u64::from(h.kind.cast_unsigned()) << 8;
                (HANDLE | kind, offset(h.len.into()), &h.bytes[..offset(h.len.into()).min(LONGEST)])
            }
            Locator::Name { parent, name } => (NAME | parent << 8, name.len(), name),
        };
        let words: [u64; WORDS] = [
            self.given,
            self.giver,
            self.identity.volume | u64::from(self.kind.as_raw_mode()) << 32 | u64::from(self.watched) << 48,
            self.identity.device,
            self.identity.inode,
            self.identity.born,
            locator,
            len as u64,
        ];
        for (to, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        out[WORDS * 8..][..bytes.len()].copy_from_slice(bytes);
        out
    }

    fn decode(bytes: &[u8; RECORD]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        let len = offset(word(7)).min(LONGEST);
        let stored = &bytes[WORDS * 8..][..len];
        let locator = match word(6) & 0xff {
            HANDLE => {
                let mut handle = Handle {
                    kind: ((word(6) >> 8) as u32).cast_signed(),
                    len: len as u32,
                    bytes: [0; LONGEST],
                };
                handle.bytes[..len].copy_from_slice(stored);
                Locator::Handle(handle)
            }
            NAME => Locator::Name { parent: word(6) >> 8, name: stored.to_vec() },
            _ => Locator::None,
        };
        Self {
            given: word(0),
            giver: word(1),
            identity: Identity {
                volume: word(2) & u64::from(u32::MAX),
                device: word(3),
                inode: word(4),
                born: word(5),
            },
            kind: FileType::from_raw_mode((word(2) >> 32) as u32 & 0xffff),
            watched: (word(2) >> 48) as u32,
            locator,
        }
    }
}

const _: () = assert!(size_of::<Ledger>() <= ROOTS && ROOTS + 4 * VOLUMES as usize <= CHARGES);

/// The memory.
#[derive(Debug)]
pub(crate) struct Records {
    map: Arc<SharedMap>,
    free: Vec<u32>,
}

fn place(index: u32) -> usize {
    LEDGER + offset(u64::from(index)) * RECORD
}

impl Records {
    pub fn open(memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self { map: Arc::new(SharedMap::new(memory.as_fd(), offset(SIZE))?), free: Vec::new() })
    }

    /// The memory, which begins with the [`Ledger`].
    pub fn share(&self) -> Arc<SharedMap> {
        self.map.clone()
    }

    fn ledger(&self) -> &Ledger {
        self.map.get(0)
    }

    /// Records that were ever used.
    pub fn used(&self) -> u32 {
        u32::try_from(self.ledger().nodes.load(Ordering::Relaxed)).unwrap_or(MOST).min(MOST)
    }

    /// So many were used by somebody before.
    pub fn set_used(&self, used: u32) {
        self.ledger().nodes.store(used.into(), Ordering::Relaxed);
    }

    pub fn get(&self, index: u32) -> Record {
        let mut bytes = [0; RECORD];
        self.map.read(place(index), &mut bytes);
        Record::decode(&bytes)
    }

    /// A process that is killed meanwhile leaves no half of one: how often it was given is written last.
    pub fn put(&self, index: u32, record: &Record) {
        let bytes = record.encode();
        self.map.write(place(index) + 8, &bytes[8..]);
        self.map.write(place(index), &bytes[..8]);
    }

    /// How often it was given, and by which request last.
    pub fn set_given(&self, index: u32, given: u64, giver: u64) {
        self.map.write(place(index) + 8, &giver.to_le_bytes());
        self.map.write(place(index), &given.to_le_bytes());
    }

    /// By which events the root of a volume is watched.
    pub fn root_watched(&self, volume: u64) -> u32 {
        let mut bytes = [0; 4];
        self.map.read(ROOTS + 4 * offset(volume), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// It is watched by these; callers check that there is such a volume.
    pub fn set_root_watched(&self, volume: u64, events: u32) {
        self.map.write(ROOTS + 4 * offset(volume), &events.to_le_bytes());
    }

    /// A record that nobody uses.
    pub fn take(&mut self) -> Result<u32, Errno> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        let index = self.used();
        if index == MOST {
            return Err(Errno::NFILE);
        }
        self.ledger().nodes.store(u64::from(index) + 1, Ordering::Relaxed);
        Ok(index)
    }

    pub fn release(&mut self, index: u32) {
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_what_they_were() {
        let handle = Handle { kind: -7, len: 3, bytes: std::array::from_fn(|i| if i < 3 { 9 } else { 0 }) };
        let identity = Identity { volume: 63, device: u64::MAX, inode: 5, born: 6 };
        let name = Locator::Name { parent: 1 << 40, name: vec![b'n'; LONGEST] };
        for locator in [Locator::None, Locator::Handle(handle), name] {
            let record =
                Record { given: 1, giver: 2, identity, kind: FileType::RegularFile, watched: 0xfce, locator };
            assert_eq!(Record::decode(&record.encode()), record);
        }
    }

    #[test]
    fn records_outlive_who_wrote_them() {
        let memory = memory().unwrap();
        let mut one = Records::open(&memory).unwrap();
        let identity = Identity { volume: 0, device: 1, inode: 2, born: 3 };
        let record = Record {
            given: 1,
            giver: 9,
            identity,
            kind: FileType::Directory,
            watched: 0,
            locator: Locator::None,
        };
        assert_eq!((one.take(), one.take()), (Ok(0), Ok(1)));
        one.put(1, &record);
        one.set_given(1, 5, 8);
        drop(one);
        let mut other = Records::open(&memory).unwrap();
        assert_eq!(other.used(), 2);
        assert_eq!(other.get(1), Record { given: 5, giver: 8, ..record });
        assert_eq!(other.get(0).given, 0);
        assert_eq!(other.take(), Ok(2));
        other.release(1);
        assert_eq!(other.take(), Ok(1));
    }
}

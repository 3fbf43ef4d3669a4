//! Which files a domain knows, by number. What is known lies in memory that outlives the process, so that its successor finds
//! the files again by their handles; descriptors are a cache.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::VOLUMES;
use doppel_sys::handle::{Handle, LONGEST};
use doppel_sys::shared::{SharedMap, offset};
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::volume::Volume;

/// Most files that a domain may know at once.
const MOST: u32 = 1 << 18;
/// Bytes of a record: how often it was given, volume, device, inode, its handle.
const RECORD: usize = 8 + 8 + 8 + 8 + 8 + LONGEST;
/// Size of the memory in bytes; it is sparse.
pub(crate) const SIZE: u64 = MOST as u64 * RECORD as u64;
/// Files that are held open for a domain, beside those that could not be found again.
const OPEN: usize = 512;

/// How long a service that has lost its manager may take to end, and how often that is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);

/// Makes the memory for a domain.
pub(crate) fn memory() -> io::Result<OwnedFd> {
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

/// A file that a domain knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// How often it was given; 0: no record.
    given: u64,
    volume: u64,
    device: u64,
    inode: u64,
    /// None: it cannot be found again.
    handle: Option<Handle>,
}

impl Record {
    fn key(&self) -> Key {
        (self.volume, self.device, self.inode)
    }

    fn encode(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        let (kind, len) = self.handle.map_or((0, 0), |h| (h.kind, h.len));
        let words = [
            self.given,
            self.volume,
            self.device,
            self.inode,
            u64::from(kind.cast_unsigned()) | u64::from(len) << 32,
        ];
        for (to, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        if let Some(h) = &self.handle {
            out[RECORD - LONGEST..].copy_from_slice(&h.bytes);
        }
        out
    }

    fn decode(bytes: &[u8; RECORD]) -> Self {
        let word = |i: usize| bytes.as_chunks().0.get(i).map_or(0, |w| u64::from_le_bytes(*w));
        let (kind, len) = ((word(4) as u32).cast_signed(), (word(4) >> 32) as u32);
        let mut handle = Handle { kind, len, bytes: [0; LONGEST] };
        handle.bytes.copy_from_slice(&bytes[RECORD - LONGEST..]);
        Self {
            given: word(0),
            volume: word(1),
            device: word(2),
            inode: word(3),
            handle: (len > 0).then_some(handle),
        }
    }
}

/// The descriptors of a file.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Names it (O_PATH).
    name: Option<Arc<OwnedFd>>,
    /// Reads it and, if that may be, writes it.
    data: Option<(Arc<OwnedFd>, bool)>,
    /// It has no name any more, or no handle: nobody would find it again.
    pinned: bool,
}

/// Volume, device, inode.
type Key = (u64, u64, u64);

/// The files of a domain.
#[derive(Debug)]
pub(crate) struct Nodes {
    map: SharedMap,
    volumes: Vec<Volume>,
    /// Its own descriptors as a directory, by which a named file is opened.
    descriptors: Arc<OwnedFd>,
    known: HashMap<Key, u32>,
    open: HashMap<u32, Open>,
    /// Those that are open, longest first.
    order: VecDeque<u32>,
    free: Vec<u32>,
    /// The first record that was never used.
    next: u32,
}

fn place(index: u32) -> usize {
    offset(u64::from(index)) * RECORD
}

impl Nodes {
    /// Those in this memory, which may be a predecessor's.
    pub fn open(memory: &OwnedFd, volumes: Vec<Volume>, descriptors: Arc<OwnedFd>) -> io::Result<Self> {
        let map = SharedMap::new(memory.as_fd(), offset(SIZE))?;
        let mut nodes = Self {
            map,
            volumes,
            descriptors,
            known: HashMap::new(),
            open: HashMap::new(),
            order: VecDeque::new(),
            free: Vec::new(),
            next: 0,
        };
        // Records are used from the first on; behind the last page that was touched there is none.
        let pages = usize::try_from(SIZE / 4096).unwrap_or(0);
        let mut touched = vec![0; pages];
        nodes.map.resident(0, &mut touched)?;
        let end = touched.iter().rposition(|page| page & 1 != 0).map_or(0, |page| (page + 1) * 4096);
        let count = u32::try_from(end.div_ceil(RECORD)).unwrap_or(MOST).min(MOST);
        for index in 0..count {
            let record = nodes.record(index);
            if record.given == 0 {
                nodes.free.push(index);
            } else {
                nodes.known.insert(record.key(), index);
            }
        }
        nodes.next = count;
        Ok(nodes)
    }

    fn record(&self, index: u32) -> Record {
        let mut bytes = [0; RECORD];
        self.map.read(place(index), &mut bytes);
        Record::decode(&bytes)
    }

    fn put(&self, index: u32, record: &Record) {
        self.map.write(place(index), &record.encode());
    }

    /// Which volume a node is of.
    fn volume_of(&self, node: u64) -> Result<u64, Errno> {
        if node < VOLUMES { Ok(node) } else { Ok(self.known_record(node)?.1.volume) }
    }

    fn known_record(&self, node: u64) -> Result<(u32, Record), Errno> {
        let index = node.checked_sub(VOLUMES).and_then(|i| u32::try_from(i).ok()).filter(|i| *i < self.next);
        let index = index.ok_or(Errno::STALE)?;
        let record = self.record(index);
        if record.given == 0 { Err(Errno::STALE) } else { Ok((index, record)) }
    }

    fn root(&self, volume: u64) -> Result<&Volume, Errno> {
        usize::try_from(volume).ok().and_then(|v| self.volumes.get(v)).ok_or(Errno::STALE)
    }

    /// EROFS if nothing may change where this node is.
    pub fn writable(&self, node: u64) -> Result<(), Errno> {
        if self.root(self.volume_of(node)?)?.read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// A descriptor that names a file (O_PATH), or a volume's directory.
    pub fn name(&mut self, node: u64) -> Result<Arc<OwnedFd>, Errno> {
        if node < VOLUMES {
            let root = self.root(node)?.root.try_clone().map_err(|_| Errno::NFILE)?;
            return Ok(Arc::new(root));
        }
        let (index, record) = self.known_record(node)?;
        if let Some(name) = self.open.get(&index).and_then(|open| open.name.clone()) {
            return Ok(name);
        }
        let handle = record.handle.ok_or(Errno::STALE)?;
        let root = self.root(record.volume)?.root.as_fd();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
        let found = handle.open(root, flags.bits().cast_signed()).map_err(errno)?;
        let stat = rustix::fs::fstat(&found)?;
        if (stat.st_dev, stat.st_ino) != (record.device, record.inode) {
            return Err(Errno::STALE);
        }
        let found = Arc::new(found);
        self.hold(index, |open| open.name = Some(found.clone()));
        Ok(found)
    }

    /// A descriptor that reads a regular file or directory, and writes it if so asked.
    pub fn data(&mut self, node: u64, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        use rustix::fs::{Mode, OFlags};
        let index = node.checked_sub(VOLUMES).and_then(|i| u32::try_from(i).ok());
        let found = index.and_then(|i| self.open.get(&i)).and_then(|open| open.data.clone());
        if let Some((file, writes)) = found
            && (writes || !write)
        {
            return Ok(file);
        }
        let name = self.name(node)?;
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&name)?.st_mode);
        let access = match kind {
            rustix::fs::FileType::Directory if write => return Err(Errno::ISDIR),
            rustix::fs::FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            rustix::fs::FileType::RegularFile if write => OFlags::RDWR,
            rustix::fs::FileType::RegularFile => OFlags::RDONLY,
            // To open another kind would do something.
            _ => return Err(Errno::INVAL),
        };
        let file = Arc::new(rustix::fs::openat(
            &self.descriptors,
            descriptor_name(name.as_fd()),
            access | OFlags::CLOEXEC | OFlags::NOCTTY,
            Mode::empty(),
        )?);
        if let Some(index) = index {
            self.hold(index, |open| open.data = Some((file.clone(), write)));
        }
        Ok(file)
    }

    /// Its own descriptors as a directory.
    pub fn descriptors(&self) -> BorrowedFd<'_> {
        self.descriptors.as_fd()
    }

    /// The node of a file that was just opened by name, below `parent`. It is given once more.
    pub fn give(&mut self, parent: u64, name: OwnedFd) -> Result<u64, Errno> {
        let volume = self.volume_of(parent)?;
        let stat = rustix::fs::fstat(&name)?;
        let key = (volume, stat.st_dev, stat.st_ino);
        if let Some(&index) = self.known.get(&key) {
            let mut record = self.record(index);
            if self.is_same(index, &record, &name) {
                record.given += 1;
                self.put(index, &record);
                self.hold(index, |open| open.name = Some(Arc::new(name)));
                return Ok(VOLUMES + u64::from(index));
            }
            // The host has given the number to another file: the old one is no more.
            self.known.remove(&key);
        }
        let handle = self.reachable_handle(volume, &name);
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.next < MOST => {
                self.next += 1;
                self.next - 1
            }
            None => return Err(Errno::NFILE),
        };
        self.put(index, &Record { given: 1, volume, device: key.1, inode: key.2, handle });
        self.known.insert(key, index);
        self.hold(index, |open| {
            open.name = Some(Arc::new(name));
            open.pinned = handle.is_none();
        });
        Ok(VOLUMES + u64::from(index))
    }

    /// Whether a record is of the file that is open there, and not of an earlier one with its number.
    fn is_same(&self, index: u32, record: &Record, name: &OwnedFd) -> bool {
        match record.handle {
            Some(handle) => Handle::of(name.as_fd()).is_ok_and(|h| h == handle),
            None => self.open.get(&index).is_some_and(|open| open.name.is_some()),
        }
    }

    /// Its handle, if we may find it again by that.
    fn reachable_handle(&self, volume: u64, name: &OwnedFd) -> Option<Handle> {
        let handle = Handle::of(name.as_fd()).ok()?;
        let flags = rustix::fs::OFlags::PATH.bits().cast_signed();
        handle.open(self.root(volume).ok()?.root.as_fd(), flags).ok().map(|_| handle)
    }

    /// A node is given back so often.
    pub fn forget(&mut self, node: u64, times: u64) {
        let Ok((index, mut record)) = self.known_record(node) else { return };
        record.given = record.given.saturating_sub(times);
        self.put(index, &record);
        if record.given == 0 {
            self.open.remove(&index);
            if self.known.get(&record.key()) == Some(&index) {
                self.known.remove(&record.key());
            }
            self.free.push(index);
        }
    }

    /// A name is about to go: if a node is known of what it names, that stays open, for nobody could find it again.
    pub fn losing(&mut self, file: OwnedFd) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&file)?;
        let file = Arc::new(file);
        // Two volumes may be of one directory.
        for volume in (0..).take(self.volumes.len()) {
            if let Some(&index) = self.known.get(&(volume, stat.st_dev, stat.st_ino)) {
                self.hold(index, |open| {
                    open.pinned |= stat.st_nlink <= 1;
                    open.name = Some(file.clone());
                });
            }
        }
        Ok(())
    }

    /// Notes descriptors, and closes others that have been open for long.
    fn hold(&mut self, index: u32, change: impl FnOnce(&mut Open)) {
        if !self.open.contains_key(&index) {
            self.order.push_back(index);
        }
        change(self.open.entry(index).or_default());
        let mut looks = self.order.len();
        while self.open.len() > OPEN
            && looks > 0
            && let Some(oldest) = self.order.pop_front()
        {
            looks -= 1;
            match self.open.get(&oldest) {
                Some(open) if open.pinned || oldest == index => self.order.push_back(oldest),
                Some(_) => drop(self.open.remove(&oldest)),
                // It was forgotten.
                None => {}
            }
        }
    }
}

/// What a descriptor is called in the directory of descriptors.
pub(crate) fn descriptor_name(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    fd.as_raw_fd().to_string()
}

/// The errno of an error of the host's.
pub(crate) fn errno(error: io::Error) -> Errno {
    if error.kind() == io::ErrorKind::InvalidInput {
        return Errno::INVAL;
    }
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

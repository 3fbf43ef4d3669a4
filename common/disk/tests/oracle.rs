//! The oracle: random operations on a disk and on plain memory, with writers that are killed between any two steps, snapshots, other
//! sizes, and power cuts after which any part of the unsynced writes is there. What was acknowledged survives a kill; what was
//! flushed survives a power cut; of each sector there is a version that it had since the last flush, and never anything else.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use doppel_disk::{BLOCK, File, Header, Layer, Stack};

const SECTOR: u64 = 512;
/// Blocks of a disk at most.
const BLOCKS: u64 = 24;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

type Sector = [u8; SECTOR as usize];
type Sectors = BTreeMap<u64, Sector>;

/// A file as the host has it: what its programs see, what is on the disk, and which versions of sectors came since the last sync.
#[derive(Debug, Default)]
struct Inner {
    now: Sectors,
    synced: Sectors,
    pending: Vec<(u64, Sector)>,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    file: Arc<Mutex<Inner>>,
    /// So many changes are left before the writer is killed.
    fuse: Arc<Mutex<Option<u64>>>,
}

impl Memory {
    fn burn(&self) -> io::Result<()> {
        match &mut *self.fuse.lock().unwrap() {
            Some(0) => Err(io::Error::other("killed")),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&self, at: u64, len: u64, byte: impl Fn(u64) -> u8) {
        let mut inner = self.file.lock().unwrap();
        for number in at / SECTOR..(at + len).div_ceil(SECTOR) {
            let mut sector = inner.now.get(&number).copied().unwrap_or([0; SECTOR as usize]);
            for i in 0..SECTOR {
                let place = number * SECTOR + i;
                if (at..at + len).contains(&place) {
                    sector[i as usize] = byte(place - at);
                }
            }
            inner.now.insert(number, sector);
            inner.pending.push((number, sector));
        }
    }

    /// The file after a power cut.
    fn cut(&self, random: &mut Random) -> Self {
        let inner = self.file.lock().unwrap();
        let mut synced = inner.synced.clone();
        let some = random.below(3);
        for (number, sector) in &inner.pending {
            if some == 0 || some == 1 && random.below(2) == 0 {
                synced.insert(*number, *sector);
            }
        }
        let inner = Inner { now: synced.clone(), synced, pending: Vec::new() };
        Self { file: Arc::new(Mutex::new(inner)), fuse: self.fuse.clone() }
    }
}

impl File for Memory {
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let inner = self.file.lock().unwrap();
        for (place, byte) in (at..).zip(bytes) {
            *byte = inner.now.get(&(place / SECTOR)).map_or(0, |s| s[(place % SECTOR) as usize]);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.burn()?;
        self.change(at, bytes.len() as u64, |i| bytes[i as usize]);
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.burn()?;
        self.change(at, len, |_| 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.burn()?;
        let mut inner = self.file.lock().unwrap();
        inner.synced = inner.now.clone();
        inner.pending.clear();
        Ok(())
    }
}

/// A disk's files, the topmost layer first, and what it is to be.
struct Disk {
    files: Vec<Memory>,
    live: Memory,
    fuse: Arc<Mutex<Option<u64>>>,
    ids: u8,
    now: Vec<u8>,
    /// What each sector has been since the last flush.
    versions: Vec<Vec<Vec<u8>>>,
}

/// What is asked of a disk.
#[derive(Clone, Debug)]
enum Act {
    Write(u64, Vec<u8>),
    Zero(u64, u64),
    Flush,
}

fn layer(file: &Memory, live: Option<&Memory>) -> Layer<Memory> {
    Layer::open(file.clone(), live.cloned()).unwrap()
}

impl Disk {
    fn new(blocks: u64) -> Self {
        let size = blocks * BLOCK;
        let mut disk = Self {
            files: Vec::new(),
            live: Memory::default(),
            fuse: Arc::default(),
            ids: 0,
            now: vec![0; size as usize],
            versions: Vec::new(),
        };
        disk.push(size, 0);
        disk.flushed();
        disk
    }

    fn memory(&self) -> Memory {
        Memory { fuse: self.fuse.clone(), ..Memory::default() }
    }

    /// A new topmost layer.
    fn push(&mut self, size: u64, visible: u64) {
        let below = (self.ids > 0).then_some([self.ids; 16]);
        self.ids += 1;
        let (file, header) = (self.memory(), Header { id: [self.ids; 16], below, size, visible });
        file.write(0, &header.encode()).unwrap();
        file.sync().unwrap();
        self.files.insert(0, file);
        self.live = self.memory();
    }

    /// A live map of what the layer's own says.
    fn begin(&mut self) {
        self.live = self.memory();
        let mut map = vec![0; doppel_disk::map_bytes(self.now.len() as u64) as usize];
        self.files[0].read(doppel_disk::MAP_AT, &mut map).unwrap();
        self.live.write(doppel_disk::MAP_AT, &map).unwrap();
    }

    fn open(&self) -> Stack<Memory> {
        let lower = self.files[1..].iter().map(|file| layer(file, None));
        let layers = std::iter::once(layer(&self.files[0], Some(&self.live))).chain(lower).collect();
        Stack::new(layers, false).unwrap()
    }

    fn flushed(&mut self) {
        self.versions = self.now.chunks(SECTOR as usize).map(|sector| vec![sector.to_vec()]).collect();
    }

    fn expect(&mut self, act: &Act) {
        let (at, bytes) = match act {
            Act::Write(at, bytes) => (*at as usize, bytes.clone()),
            Act::Zero(at, len) => (*at as usize, vec![0; *len as usize]),
            Act::Flush => return self.flushed(),
        };
        self.now[at..at + bytes.len()].copy_from_slice(&bytes);
        for (sector, versions) in self.now.chunks(SECTOR as usize).zip(&mut self.versions) {
            if versions.last().is_none_or(|last| last != sector) {
                versions.push(sector.to_vec());
            }
        }
    }

    /// Reads the disk as somebody who has these files.
    fn read(stack: &Stack<Memory>) -> Vec<u8> {
        let mut bytes = vec![1; stack.size() as usize];
        stack.read_to(0, &mut bytes).unwrap();
        bytes
    }

    /// After a power cut: checks, and gives the files.
    fn cut(&self, random: &mut Random) -> Vec<Memory> {
        let files: Vec<Memory> = self.files.iter().map(|file| file.cut(random)).collect();
        let layers = files.iter().map(|file| layer(file, None)).collect();
        let found = Self::read(&Stack::new(layers, true).unwrap());
        assert_eq!(found.len(), self.now.len());
        for (n, (sector, versions)) in found.chunks(SECTOR as usize).zip(&self.versions).enumerate() {
            assert!(
                versions.iter().any(|v| v == sector),
                "sector {n} is none of {} versions",
                versions.len()
            );
        }
        files
    }
}

fn act(stack: &Stack<Memory>, act: &Act) -> io::Result<()> {
    match act {
        Act::Write(at, bytes) => {
            let mut done = 0;
            while done < bytes.len() {
                done += stack.write(at + done as u64, bytes.len() - done, |file, place, n| {
                    file.write(place, &bytes[done..done + n]).map(|()| n)
                })?;
            }
            Ok(())
        }
        Act::Zero(at, len) => stack.zero(*at, *len),
        Act::Flush => stack.flush(),
    }
}

fn any_act(random: &mut Random, size: u64) -> Act {
    let at = random.below(size);
    let len = match random.below(3) {
        0 => random.below(700),
        _ => random.below(4 * BLOCK),
    };
    let (at, len) = match random.below(2) {
        0 => (at, len),
        _ => (at / BLOCK * BLOCK, len.next_multiple_of(BLOCK)),
    };
    let len = len.min(size - at);
    match random.below(8) {
        0 | 1 => Act::Zero(at, len),
        2 => Act::Flush,
        _ => {
            let first = random.below(255) as u8 + 1;
            Act::Write(at, (0..len).map(|i| first.wrapping_add((i / 100) as u8)).collect())
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut disk = Disk::new(1 + random.below(BLOCKS));
    disk.begin();
    let mut stack = disk.open();
    for _ in 0..60 {
        match random.below(20) {
            // The writer is killed; its successor goes on.
            0 => stack = disk.open(),
            // A power cut; the disk goes on as it is found.
            1 => {
                disk.files = disk.cut(&mut random);
                disk.begin();
                stack = disk.open();
                disk.now = Disk::read(&stack);
                // What was found is not all on the disk: only flushes are relied upon.
                disk.flushed();
            }
            2 if disk.files.len() < 5 => {
                stack.flush().unwrap();
                disk.push(disk.now.len() as u64, disk.now.len() as u64);
                disk.flushed();
                stack = disk.open();
            }
            4 => {
                stack.flatten().unwrap();
                disk.files.truncate(1);
                disk.flushed();
            }
            3 => {
                stack.flush().unwrap();
                let size = (1 + random.below(BLOCKS)) * BLOCK;
                let header = layer(&disk.files[0], None).header;
                doppel_disk::resize(&disk.files[0], header, size).unwrap();
                disk.now.resize(size as usize, 0);
                disk.flushed();
                disk.begin();
                stack = disk.open();
            }
            _ => {
                let wanted = any_act(&mut random, disk.now.len() as u64);
                if random.below(4) == 0 {
                    *disk.fuse.lock().unwrap() = Some(random.below(5));
                    let killed = act(&stack, &wanted).is_err();
                    *disk.fuse.lock().unwrap() = None;
                    if killed {
                        // Some of it may be on the disk.
                        let before = disk.now.clone();
                        if !matches!(wanted, Act::Flush) {
                            disk.expect(&wanted);
                        }
                        disk.cut(&mut random);
                        stack = disk.open();
                        disk.now = before;
                    }
                }
                act(&stack, &wanted).unwrap();
                disk.expect(&wanted);
            }
        }
        assert!(Disk::read(&stack) == disk.now, "seed {seed}");
        if random.below(4) == 0 {
            disk.cut(&mut random);
        }
    }
}

#[test]
fn what_was_written_is_there_whatever_dies() {
    for seed in 0..150 {
        run(seed);
    }
}

#[test]
fn reads_of_a_part_are_parts_of_the_whole() {
    let mut random = Random(7);
    let mut disk = Disk::new(BLOCKS);
    disk.begin();
    let mut stack = disk.open();
    for round in 0..30 {
        let wanted = any_act(&mut random, disk.now.len() as u64);
        act(&stack, &wanted).unwrap();
        disk.expect(&wanted);
        if round == 10 || round == 20 {
            stack.flush().unwrap();
            disk.push(disk.now.len() as u64, disk.now.len() as u64);
            stack = disk.open();
        }
        let at = random.below(disk.now.len() as u64);
        let mut bytes = vec![1; (random.below(disk.now.len() as u64 - at + 1)) as usize];
        stack.read_to(at, &mut bytes).unwrap();
        assert!(bytes == disk.now[at as usize..at as usize + bytes.len()]);
    }
}

#[test]
fn layers_that_do_not_belong_together_are_refused() {
    let (mut one, other) = (Disk::new(2), Disk::new(3));
    one.push(2 * BLOCK, 2 * BLOCK);
    one.push(2 * BLOCK, 2 * BLOCK);
    let stack = |files: &[&Memory]| Stack::new(files.iter().map(|file| layer(file, None)).collect(), true);
    let [top, middle, lowest] = one.files.as_slice() else { panic!("three layers") };
    stack(&[top, middle, lowest]).unwrap();
    for wrong in [&[][..], &[top, lowest], &[top, middle], &[middle, lowest, &other.files[0]]] {
        stack(wrong).unwrap_err();
    }
    assert!(Stack::new(vec![layer(lowest, None)], false).is_err(), "there is no live map");
}

#[test]
fn a_damaged_header_is_refused() {
    let header = Header { id: [1; 16], below: Some([2; 16]), size: BLOCK, visible: 0 };
    let bytes = header.encode();
    assert_eq!(Header::decode(&bytes), Ok(header));
    for i in 0..72 {
        let mut damaged = bytes;
        damaged[i] ^= 1;
        Header::decode(&damaged).unwrap_err();
    }
    let sizes = [0, BLOCK + 1, doppel_disk::MOST_BYTES + BLOCK];
    assert!(sizes.iter().all(|size| Header::decode(&Header { size: *size, ..header }.encode()).is_err()));
}

//! A frozen image that may be hostile: everything the host does with one before a clone runs, with bounded work.

use std::fs;
use std::mem::offset_of;
use std::path::Path;

use doppel_abi_machine::frozen::{
    ARENA, CHUNK, HEADER_SIZE, Header, MAGIC, PAGEFILE, SEGMENT_SIZE, Segment, VERSION,
};
use doppel_abi_machine::layout::{ARENA_MAX, PAGE, PAGEFILE_MAX, USER_START};
use doppel_freezer::{FrozenImage, FrozenStore, Medium, WorkingSet};
use rustix::fs::MemfdFlags;
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

const PAGE_BYTES: usize = PAGE as usize;

/// A store of frozen images in memory; the directory goes when it is dropped.
pub struct TempStore {
    root: tempfile::TempDir,
    store: FrozenStore,
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

fn get(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
}

/// A sound image: a page of the page file, two of the arena (one of zeros), two of a process.
pub fn sound_image() -> Vec<u8> {
    let mut bytes = vec![0; 6 * PAGE_BYTES];
    for (i, byte) in bytes.iter_mut().enumerate().skip(PAGE_BYTES).filter(|(i, _)| i / PAGE_BYTES != 3) {
        *byte = (i * 7 % 251) as u8;
    }
    let words = [
        (offset_of!(Header, magic), MAGIC),
        (offset_of!(Header, tables_len), PAGE),
        (offset_of!(Header, file_len), bytes.len() as u64),
        (offset_of!(Header, segments), 3),
        (offset_of!(Header, chunks), 1),
        (offset_of!(Header, data_at), PAGE),
        (offset_of!(Header, arena_size), 4 * PAGE),
        (offset_of!(Header, pagefile_size), PAGE),
    ];
    for (at, word) in words {
        put(&mut bytes, at, &word.to_le_bytes());
    }
    put(&mut bytes, offset_of!(Header, version), &VERSION.to_le_bytes());
    let segments =
        [(PAGEFILE, 0, PAGE, PAGE), (ARENA, PAGE, 2 * PAGE, 2 * PAGE), (7, USER_START, 2 * PAGE, 4 * PAGE)];
    for (i, (space, addr, len, offset)) in segments.into_iter().enumerate() {
        put_segment(&mut bytes, i, space, 0, [addr, len, offset]);
    }
    forge(&mut bytes);
    bytes
}

/// An image that refers to [`sound_image`] for one of the arena's two pages and for the first of two processes' pages, the second
/// of which has forked from it.
pub fn sound_child() -> Vec<u8> {
    let mut bytes = sound_image();
    put(&mut bytes, offset_of!(Header, segments), &6u64.to_le_bytes());
    put(&mut bytes, offset_of!(Header, ancestor_count), &1u64.to_le_bytes());
    put(&mut bytes, offset_of!(Header, ancestors), &identity_of(&sound_image()));
    let segments = [
        (PAGEFILE, 0, 0, PAGE, PAGE),
        (ARENA, 0, PAGE, PAGE, 2 * PAGE),
        (ARENA, 1, 2 * PAGE, PAGE, 3 * PAGE),
        (7, 1, USER_START, PAGE, 4 * PAGE),
        (7, 0, USER_START + PAGE, PAGE, 5 * PAGE),
        (9, 1, USER_START, PAGE, 4 * PAGE),
    ];
    for (i, (space, file, addr, len, offset)) in segments.into_iter().enumerate() {
        put_segment(&mut bytes, i, space, file, [addr, len, offset]);
    }
    forge(&mut bytes);
    bytes
}

/// What tells an image from others: of its header and tables.
pub fn identity_of(bytes: &[u8]) -> [u8; 16] {
    let tables = usize::try_from(get(bytes, offset_of!(Header, tables_len))).unwrap_or(usize::MAX);
    xxh3_128(&bytes[..tables.min(bytes.len())]).to_le_bytes()
}

fn put_segment(bytes: &mut [u8], i: usize, space: i32, file: u32, [addr, len, offset]: [u64; 3]) {
    let at = (HEADER_SIZE + i as u64 * SEGMENT_SIZE) as usize;
    put(bytes, at, &i32::to_le_bytes(space));
    put(bytes, at + offset_of!(Segment, file), &file.to_le_bytes());
    for (field, word) in [
        (offset_of!(Segment, addr), addr),
        (offset_of!(Segment, len), len),
        (offset_of!(Segment, offset), offset),
    ] {
        put(bytes, at + field, &word.to_le_bytes());
    }
}

/// Makes all checksums right again, as a forger would, as far as the numbers allow it.
pub fn forge(bytes: &mut [u8]) {
    let tables = get(bytes, offset_of!(Header, tables_len));
    let data = get(bytes, offset_of!(Header, data_at));
    let sums =
        HEADER_SIZE.saturating_add(get(bytes, offset_of!(Header, segments)).saturating_mul(SEGMENT_SIZE));
    let [Ok(tables), Ok(sums), Ok(data)] = [tables, sums, data].map(usize::try_from) else { return };
    if tables > bytes.len() || sums > tables || tables < HEADER_SIZE as usize || data > bytes.len() {
        return;
    }
    let chunk_sums: Vec<u64> = bytes[data..].chunks(CHUNK as usize).map(chunk_sum).collect();
    for (i, sum) in chunk_sums.into_iter().enumerate() {
        let at = sums + i * 8;
        if at + 8 <= tables {
            put(bytes, at, &sum.to_le_bytes());
        }
    }
    put(bytes, offset_of!(Header, checksum), &[0; 8]);
    let sum = xxh3_64(&bytes[..tables]);
    put(bytes, offset_of!(Header, checksum), &sum.to_le_bytes());
}

fn chunk_sum(chunk: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    for (i, page) in chunk.chunks(PAGE_BYTES).enumerate().filter(|(_, p)| p.iter().any(|&b| b != 0)) {
        hash.update(&((i * PAGE_BYTES) as u32).to_le_bytes());
        hash.update(page);
    }
    hash.digest()
}

impl TempStore {
    pub fn new() -> Self {
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        let store = FrozenStore::new(root.path());
        store.vacant("i", Medium::Disk).expect("an empty store");
        Self { root, store }
    }

    fn dir(&self) -> std::path::PathBuf {
        self.root.path().join("frozen")
    }

    /// Uses `bytes` as an image, as they are and with checksums made right, and as an export; returns how often
    /// they were taken for sound. Panics if the reader does, or says yes to what it must refuse.
    pub fn exercise(&self, bytes: &[u8]) -> usize {
        self.exercise_beside(bytes, &sound_image())
    }

    /// The same with other bytes in the place of [`sound_image`], which it may refer to.
    pub fn exercise_beside(&self, bytes: &[u8], ancestor: &[u8]) -> usize {
        let mut forged = bytes.to_vec();
        forge(&mut forged);
        let mut taken = self.image(bytes, bytes, ancestor);
        if forged != bytes {
            taken += self.image(&forged, bytes, ancestor);
        }
        taken += usize::from(self.imported(bytes));
        let left = fs::read_dir(self.dir()).expect("its directory").count();
        assert_eq!(left, 0, "something was left behind");
        taken
    }

    /// `hints` become a working set.
    fn image(&self, bytes: &[u8], hints: &[u8], ancestor: &[u8]) -> usize {
        let path = self.dir().join("i.frozen");
        fs::write(&path, bytes).expect("room for an image");
        let beside = FrozenImage::ancestors_beside(&path);
        fs::create_dir(&beside).expect("room for a directory");
        let name: String = identity_of(&sound_image()).iter().map(|b| format!("{b:02x}")).collect();
        fs::write(beside.join(name), ancestor).expect("room for an ancestor");
        let (mut taken, mut was_child) = (0, false);
        if let Ok(image) = FrozenImage::open_unchecked(&path) {
            let _ = image.describe();
        }
        if let Ok(image) = self.store.open("i") {
            taken += 1;
            was_child = image.has_ancestors();
            self.used(&image, (bytes.len() + ancestor.len()) as u64);
            drop(image);
            self.exported();
        }
        fs::write(WorkingSet::beside(&path), touched(hints)).expect("room for a working set");
        if let Ok(image) = self.store.open_to_wake("i", true) {
            // Those chunks that are touched first were right; the others may not be.
            let all = image.check_rest().is_ok();
            assert_eq!(all, taken == 1, "a wake checks what a clone checks");
        }
        if was_child {
            self.store.flatten("i").expect("it is sound");
            assert!(!self.store.open("i").expect("it is as sound as before").has_ancestors());
            assert!(!beside.exists(), "its ancestors' files are not needed any more");
        }
        self.store.remove("i").expect("nobody uses it");
        taken
    }

    fn used(&self, image: &FrozenImage, size: u64) {
        let h = image.header();
        assert!(
            h.arena_size <= ARENA_MAX && h.pagefile_size <= PAGEFILE_MAX,
            "memory files have a largest size"
        );
        let about = image.describe();
        assert!(about.copied_bytes <= size, "clones copy no more than there is");
        assert_eq!(about.segments, h.segments);
        // Whether it fits depends on its digests; that it is decided does not.
        let _ = image.check_fit(&[0; 32], &h.image);
        let _ = image.check_fit(&h.kernel, &[0; 32]);
        let _ = image.check_fit(&h.kernel, &h.image);
        let _ = (image.monotonic_offset(), image.image_path(), image.hostname());
        let memfd = || rustix::fs::memfd_create("freezer-test", MemfdFlags::CLOEXEC).expect("a memory file");
        let (arena, pagefile) = (memfd(), memfd());
        image.fill(&arena, &pagefile).expect("there is room for it");
        let used = |fd| rustix::fs::fstat(fd).expect("a memory file").st_blocks * 512;
        assert!(used(&arena) + used(&pagefile) <= i64::try_from(size).expect("small"), "more than there was");
    }

    /// What is exported can be imported, and is the same.
    fn exported(&self) {
        let mut out = Vec::new();
        let image = self.store.open("i").expect("it is sound");
        if image.volumes().is_some() || image.layers().is_err() {
            self.store
                .export("i", &mut out)
                .expect_err("volumes are the host's, and files of layers are not there");
            return;
        }
        drop(image);
        let len = self.store.export("i", &mut out).expect("it is sound");
        let image = self.store.import("j", Medium::Disk, &mut &out[..]).expect("it was exported just now");
        assert_eq!(image.header().file_len, len);
        drop(image);
        self.store.remove("j").expect("nobody uses it");
    }

    fn imported(&self, bytes: &[u8]) -> bool {
        let taken = self.store.import("k", Medium::Disk, &mut &bytes[..]).is_ok();
        if taken {
            self.store.remove("k").expect("nobody uses it");
        }
        taken
    }

    /// An export of `bytes`.
    #[allow(dead_code, reason = "used by the tests, not by the fuzz target")]
    pub fn export_of(&self, bytes: &[u8]) -> Vec<u8> {
        let path: &Path = &self.dir().join("i.frozen");
        fs::write(path, bytes).expect("room for an image");
        let mut out = Vec::new();
        self.store.export("i", &mut out).expect("a sound image");
        self.store.remove("i").expect("nobody uses it");
        out
    }
}

/// A file of touched pages made of the last bytes.
fn touched(hints: &[u8]) -> String {
    let mut text = String::from("doppel touched pages 1\n");
    for h in hints.rchunks_exact(7).take(8) {
        let start = u64::from(u16::from_le_bytes([h[1], h[2]])) << (h[3] % 40);
        let len = u64::from(u16::from_le_bytes([h[4], h[5]])) << (h[6] % 40);
        text += &format!("{} {start:x} {:x}\n", h[0] % 4, start.saturating_add(len));
    }
    text
}

//! A disk in memory, of which a power cut loses any part that was not synced.

use doppel_layer::{BLOCK, Content, Error, Source, Store, Tree};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A disk: what is on it, and what was written since the last sync, in order.
#[derive(Default)]
pub struct Disk {
    pub synced: Vec<u8>,
    pub pending: Vec<(u64, Option<Vec<u8>>, u64)>,
    pub punched: u64,
}

/// Writes bytes, or makes a hole.
pub fn apply(disk: &mut Vec<u8>, at: u64, bytes: Option<&[u8]>, len: u64) {
    let (at, len) = (at as usize, len as usize);
    let end = if bytes.is_some() { at + len } else { (at + len).min(disk.len()) };
    if disk.len() < end {
        disk.resize(end, 0);
    }
    match bytes {
        Some(bytes) => disk[at..end].copy_from_slice(&bytes[..len]),
        None => disk[at.min(end)..end].fill(0),
    }
}

impl Disk {
    /// With all that was written.
    pub fn now(&self) -> Vec<u8> {
        let mut disk = self.synced.clone();
        for (at, bytes, len) in &self.pending {
            apply(&mut disk, *at, bytes.as_deref(), *len);
        }
        disk
    }

    /// The disk after a power cut: of each unsynced write all, some blocks, or nothing is there.
    pub fn after_a_cut(&self, random: &mut Random) -> Vec<u8> {
        let mut disk = self.synced.clone();
        for (at, bytes, len) in &self.pending {
            let some = random.below(3);
            let mut from = 0;
            while from < *len {
                let n = BLOCK.min(len - from);
                if some == 0 || some == 1 && random.below(2) == 0 {
                    apply(&mut disk, at + from, bytes.as_deref().map(|b| &b[from as usize..]), n);
                }
                from += n;
            }
        }
        disk
    }
}

impl Store for Disk {
    type Error = ();

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), ()> {
        self.pending.push((at, Some(bytes.to_vec()), bytes.len() as u64));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ()> {
        for (at, bytes, len) in self.pending.drain(..) {
            apply(&mut self.synced, at, bytes.as_deref(), len);
        }
        Ok(())
    }

    fn punch(&mut self, at: u64, len: u64) {
        self.punched += len;
        self.pending.push((at, None, len));
    }

    fn cut(&mut self, at: u64) {
        // The file stays as long: what was behind it is zero, as it would be if it became longer again.
        self.pending.push((at, None, 1 << 20));
    }
}

/// What is read from.
pub struct File<'a>(pub &'a [u8]);

impl Source for File<'_> {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let from = self.0.get(at as usize..).unwrap_or_default();
        let n = from.len().min(bytes.len());
        bytes[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }
}

/// The bytes of all files, besides what the tree says: blocks by themselves are no content.
pub fn contents(disk: &[u8], tree: &Tree) -> Vec<(u64, Vec<u8>)> {
    let bytes = |c: &Content| {
        let mut all = vec![0; c.size as usize];
        for (page, pages, block) in c.blocks.runs() {
            let (to, from, len) = (page * BLOCK, block * BLOCK, pages * BLOCK);
            for i in 0..len.min((c.size).saturating_sub(to)) {
                all[(to + i) as usize] = disk[(from + i) as usize];
            }
        }
        all
    };
    tree.files.iter().filter_map(|(ino, f)| f.content.as_ref().map(|c| (*ino, bytes(c)))).collect()
}

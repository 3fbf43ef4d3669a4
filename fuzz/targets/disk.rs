//! Arbitrary operations on a disk of two layers whose maps and header hold arbitrary bytes: nothing panics, what is written is read,
//! the lower layer stays as it is, and whoever goes on finds the same.
#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use doppel_disk::{BLOCK, File, Header, Layer, MAP_AT, Stack};

const BLOCKS: u64 = 16;
const SIZE: u64 = BLOCKS * BLOCK;

/// A file by its sectors.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<u64, [u8; 512]>>>);

impl Memory {
    fn change(&self, at: u64, len: u64, byte: impl Fn(u64) -> u8) {
        let mut sectors = self.0.lock().expect("nobody panics");
        for place in at..at + len {
            sectors.entry(place / 512).or_insert([0; 512])[(place % 512) as usize] = byte(place - at);
        }
    }
}

impl File for Memory {
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let sectors = self.0.lock().expect("nobody panics");
        for (place, byte) in (at..).zip(bytes) {
            *byte = sectors.get(&(place / 512)).map_or(0, |sector| sector[(place % 512) as usize]);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(at, bytes.len() as u64, |i| bytes[i as usize]);
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.change(at, len, |_| 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn layer(id: u8, below: Option<u8>, visible: u64) -> Memory {
    let file = Memory::default();
    let header = Header { id: [id; 16], below: below.map(|id| [id; 16]), size: SIZE, visible };
    file.write(0, &header.encode()).expect("it is memory");
    file
}

fn whole(stack: &Stack<Memory>) -> Vec<u8> {
    let mut bytes = vec![1; SIZE as usize];
    stack.read_to(0, &mut bytes).expect("it is memory");
    bytes
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk() {
        let _ = Header::decode(header);
    }
    let Some(([seen, maps @ ..], acts)) = bytes.split_first_chunk::<9>() else { return };
    let (lower, top, live) = (layer(1, None, 0), layer(2, Some(1), u64::from(seen % 17) * BLOCK), Memory::default());
    lower.write(MAP_AT, &maps[..4]).expect("it is memory");
    lower.change(doppel_disk::DATA_AT, SIZE, |i| (i / BLOCK) as u8 + 1);
    live.write(MAP_AT, &maps[4..]).expect("it is memory");
    let before = lower.0.lock().expect("nobody panics").clone();
    let open = || {
        let top = Layer::open(top.clone(), Some(live.clone())).expect("it is a layer");
        Stack::new(vec![top, Layer::open(lower.clone(), None).expect("it is a layer")], false).expect("they fit")
    };
    let mut stack = open();
    let mut now = whole(&stack);
    for [what, a, b, c, d] in acts.as_chunks().0 {
        let at = u64::from(u16::from_le_bytes([*a, *b])) % SIZE;
        let len = u64::from(u16::from_le_bytes([*c, *d])).min(SIZE - at);
        match what % 4 {
            0 => stack = open(),
            1 => stack.flush().expect("it is memory"),
            2 => {
                stack.zero(at, len).expect("it is memory");
                now[at as usize..(at + len) as usize].fill(0);
            }
            _ => {
                let put = |file: &Memory, at, n| {
                    file.change(at, n as u64, |_| *what);
                    io::Result::Ok(n)
                };
                assert_eq!(stack.write(at, len as usize, put).expect("it is memory"), len as usize);
                now[at as usize..(at + len) as usize].fill(*what);
            }
        }
        assert!(whole(&stack) == now);
    }
    assert!(*lower.0.lock().expect("nobody panics") == before);
    // The layer's own map says the same once it was flushed.
    stack.flush().expect("it is memory");
    let layers = [&top, &lower].map(|file| Layer::open(file.clone(), None).expect("it is a layer"));
    assert!(whole(&Stack::new(layers.into(), true).expect("they fit")) == now);
});

//! What the host's kernel asks of a file system that a process serves (`linux/fuse.h`), as far as a directory of disks has it.
//!
//! A request is a head, an argument, and for a write its bytes: these lie behind [`HEAD`] bytes whatever is asked.

use std::io;

/// Bytes of a request before those of a write.
pub(super) const HEAD: usize = 80;
/// The directory.
pub(super) const ROOT: u64 = 1;
/// Numbers of files begin there, in the order of the disks.
pub(super) const FIRST: u64 = 2;

/// Bytes of a request's head, and of an answer's.
const IN: usize = 40;
const OUT: usize = 16;
/// The version that is spoken, of those that the kernel knows: what is asked for here has been the same since.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Flags of INIT: several reads at once, several direct requests at once, `max_pages`, writes of more than a page.
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
/// Requests of the kernel's own at once, and from how many on it waits.
const BACKGROUND: u16 = 64;
const CONGESTION: u16 = 48;
/// Flags of OPEN: no pages of the kernel's between; writes beside each other.
const DIRECT_IO: u32 = 1;
const PARALLEL_WRITES: u32 = 1 << 6;
/// For how long the kernel may believe what it is told, in seconds: it does not change.
const VALID: u64 = 1 << 30;
const PAGE: u32 = 4096;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// By which it is answered.
    pub unique: u64,
    pub node: u64,
    pub what: Asked,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The first of all: a version and flags.
    Init {
        flags: u32,
    },
    /// The file with this name, which is its number.
    Lookup {
        name: Option<u8>,
    },
    GetAttr,
    Open,
    /// Of the file system: a loop device over a file of one that says nothing discards nothing.
    StatFs,
    Read {
        at: u64,
        len: u32,
    },
    /// The bytes lie behind the head.
    Write {
        at: u64,
        len: u32,
    },
    Sync,
    Allocate {
        mode: u32,
        at: u64,
        len: u64,
    },
    /// Nothing is to be done, and that is to be said.
    Nothing,
    /// Nothing is to be done or said.
    Silence,
    /// Something else.
    Unknown,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Request {
    /// What the head of one says that has `len` bytes in all.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(head: &[u8; HEAD], len: usize) -> io::Result<Self> {
        if len < IN || u32_at(head, 0) as usize != len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let word = |at: usize| u32_at(head, IN + at);
        let long = |at: usize| u64_at(head, IN + at);
        let what = match u32_at(head, 4) {
            1 => Asked::Lookup { name: name(&head[IN..len.min(HEAD)]) },
            2 | 36 | 42 => Asked::Silence,
            3 => Asked::GetAttr,
            14 => Asked::Open,
            15 => Asked::Read { at: long(8), len: word(16) },
            16 if len - HEAD.min(len) == word(16) as usize => Asked::Write { at: long(8), len: word(16) },
            17 => Asked::StatFs,
            18 | 25 | 38 => Asked::Nothing,
            20 => Asked::Sync,
            26 => Asked::Init { flags: word(12) },
            43 => Asked::Allocate { mode: word(24), at: long(8), len: long(16) },
            _ => Asked::Unknown,
        };
        Ok(Self { unique: u64_at(head, 8), node: u64_at(head, 16), what })
    }
}

/// A number in digits, with a NUL behind it.
fn name(bytes: &[u8]) -> Option<u8> {
    let end = bytes.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()
}

/// The head of an answer that has so many bytes behind it.
pub(super) fn answer(unique: u64, error: u16, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OUT + 128);
    bytes.extend(u32::try_from(OUT + len).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend((-i32::from(error)).to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes
}

/// The answer to INIT: of what the kernel can, what is wanted. Requests have at most `most` bytes.
pub(super) fn init(flags: u32, most: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    let wanted = flags & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES);
    // Nothing is read ahead: that is the block device's.
    [MAJOR, MINOR, 0, wanted].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    [BACKGROUND, CONGESTION].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
    [most, 1].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(u16::try_from(most / PAGE).unwrap_or(u16::MAX).to_le_bytes());
    bytes.resize(64, 0);
    bytes
}

/// What a file is: a disk of so many bytes, or the directory.
fn attributes(node: u64, size: u64) -> Vec<u8> {
    let mode: u32 = if node == ROOT { 0o040_700 } else { 0o100_600 };
    let mut bytes = Vec::with_capacity(88);
    [node, size, size.div_ceil(512), 0, 0, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    [0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0].iter().for_each(|word: &u32| bytes.extend(word.to_le_bytes()));
    bytes
}

/// The answer to LOOKUP.
pub(super) fn entry(node: u64, size: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    [node, 0, VALID, VALID, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(attributes(node, size));
    bytes
}

/// The answer to GETATTR.
pub(super) fn shown(node: u64, size: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(104);
    [VALID, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(attributes(node, size));
    bytes
}

/// The answer to OPEN.
pub(super) fn opened() -> Vec<u8> {
    let mut bytes = 0u64.to_le_bytes().to_vec();
    bytes.extend((DIRECT_IO | PARALLEL_WRITES).to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes
}

/// The answer to STATFS: blocks of a page.
pub(super) fn file_system() -> Vec<u8> {
    let mut bytes = vec![0; 80];
    for at in [40, 48] {
        bytes[at..at + 4].copy_from_slice(&PAGE.to_le_bytes());
    }
    bytes
}

/// The answer to WRITE.
pub(super) fn written(len: u32) -> Vec<u8> {
    [len, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, argument: &[u8], len: usize) -> io::Result<Request> {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
        head[4..8].copy_from_slice(&opcode.to_le_bytes());
        head[8..16].copy_from_slice(&7u64.to_le_bytes());
        head[16..24].copy_from_slice(&2u64.to_le_bytes());
        head[IN..IN + argument.len()].copy_from_slice(argument);
        Request::parse(&head, len)
    }

    #[test]
    fn requests_are_what_the_kernel_says() {
        let what = |opcode, argument: &[u8], len| request(opcode, argument, len).unwrap().what;
        let mut transfer = vec![0; 40];
        transfer[8..16].copy_from_slice(&4096u64.to_le_bytes());
        transfer[16..20].copy_from_slice(&512u32.to_le_bytes());
        assert_eq!(what(15, &transfer, HEAD), Asked::Read { at: 4096, len: 512 });
        assert_eq!(what(16, &transfer, HEAD + 512), Asked::Write { at: 4096, len: 512 });
        assert_eq!(what(16, &transfer, HEAD + 511), Asked::Unknown, "bytes are missing");
        assert_eq!(what(1, b"12\0", IN + 3), Asked::Lookup { name: Some(12) });
        assert_eq!(what(1, b"x\0", IN + 2), Asked::Lookup { name: None });
        assert_eq!(what(44, &[], IN), Asked::Unknown);
        assert!(request(3, &[], IN - 1).is_err());
    }

    #[test]
    fn answers_are_as_long_as_the_kernel_wants() {
        let lengths = [init(!0, 256 << 10), entry(2, 1), shown(2, 1), opened(), file_system(), written(1)];
        assert_eq!(lengths.map(|b| b.len()), [64, 128, 104, 16, 80, 8]);
        let refused = answer(7, 5, 0);
        assert_eq!((refused.len(), u32_at(&refused, 4).cast_signed(), u64_at(&refused, 8)), (16, -5, 7));
    }
}

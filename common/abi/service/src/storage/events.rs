//! FileEvents that others have made to files which a domain watches: a ring from the service domain to the guest kernel, of entries as
//! requests have. One change takes several entries if its name is long.
//!
//! The service domain marks object 0 for the guest kernel when there are some. What finds no room waits at the service domain, 1,024
//! changes at most; what comes then is lost, and [`FileEvent::LOST`] stands in its place.

use doppel_ring::{Broken, Consumer, Entries, Entry, Header, Producer, Slot};

use super::{LEASES, Leases, NAME};
use crate::layout;

/// Where the [`FileEvents`] are in a channel.
pub const FILE_EVENTS: u64 = 512 << 10;
/// Entries of the ring.
const ENTRIES: usize = 1024;
/// Bytes of a name in the first entry, and in each other one.
const FIRST: usize = 32;
const OTHER: usize = 64;

/// What happened, as `inotify(7)` has it, but for who reads or opens a file: that the service domain does itself all the time.
#[allow(missing_docs)]
pub mod file_event {
    pub const MODIFY: u32 = 0x2;
    pub const ATTRIB: u32 = 0x4;
    pub const CLOSE_WRITE: u32 = 0x8;
    pub const MOVED_FROM: u32 = 0x40;
    pub const MOVED_TO: u32 = 0x80;
    pub const CREATE: u32 = 0x100;
    pub const DELETE: u32 = 0x200;
    pub const DELETE_SELF: u32 = 0x400;
    pub const MOVE_SELF: u32 = 0x800;
    /// Those that can be asked for.
    pub const ALL: u32 = 0xfce;
    /// FileEvents were lost.
    pub const OVERFLOW: u32 = 0x4000;
    /// What has the name is a directory.
    pub const ISDIR: u32 = 0x4000_0000;
}

/// The ring.
#[repr(C)]
#[derive(Debug)]
pub struct FileEvents {
    /// Its words.
    pub header: Header,
    /// Its entries.
    pub slots: [Slot; ENTRIES],
}

impl FileEvents {
    /// As a ring.
    #[must_use]
    pub fn ring(&self) -> Entries<'_> {
        Entries::new(&self.header, &self.slots)
    }
}

/// A name of at most 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    bytes: [u8; NAME],
}

impl Name {
    /// No name.
    pub const NONE: Self = Self { len: 0, bytes: [0; NAME] };

    /// One; none if it is too long.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut new = Self { len: u8::try_from(name.len()).ok()?, ..Self::NONE };
        new.bytes[..name.len()].copy_from_slice(name);
        Some(new)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", core::str::from_utf8(self.bytes()))
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// The file that is watched.
    pub node: u64,
    /// What happened: one of [`file_event`], perhaps with [`file_event::ISDIR`].
    pub mask: u32,
    /// Ties MOVED_FROM to MOVED_TO; otherwise 0.
    pub cookie: u32,
    /// What it happened to in the directory that is watched; none: to that itself.
    pub name: Name,
}

impl FileEvent {
    /// Some were lost, of any file.
    pub const LOST: Self = Self { node: u64::MAX, mask: file_event::OVERFLOW, cookie: 0, name: Name::NONE };

    /// Entries that it takes.
    fn entries(len: usize) -> usize {
        1 + len.saturating_sub(FIRST).div_ceil(OTHER)
    }

    /// Puts it into the ring; false if there is no room. The guest kernel sees it once that is published.
    ///
    /// # Errors
    /// The guest kernel's index is impossible.
    pub fn put(&self, producer: &mut Producer, ring: &Entries<'_>) -> Result<bool, Broken> {
        let name = self.name.bytes();
        if (producer.room(ring)? as usize) < Self::entries(name.len()) {
            return Ok(false);
        }
        let (here, mut rest) = name.split_at(name.len().min(FIRST));
        let mut first = [
            self.node,
            u64::from(self.mask) | u64::from(self.cookie) << 32,
            name.len() as u64,
            0,
            0,
            0,
            0,
            0,
        ];
        fill(&mut first[4..], here);
        // There is room, and it cannot become less.
        let mut fits = producer.push(ring, &first)?;
        while !rest.is_empty() {
            let (here, behind) = rest.split_at(rest.len().min(OTHER));
            let mut entry = [0; 8];
            fill(&mut entry, here);
            fits &= producer.push(ring, &entry)?;
            rest = behind;
        }
        if fits { Ok(true) } else { Err(Broken) }
    }

    /// Takes the next one out of the ring.
    ///
    /// # Errors
    /// The service domain's index is impossible, or what it says.
    pub fn take(consumer: &mut Consumer, ring: &Entries<'_>) -> Result<Option<Self>, Broken> {
        let Some(first) = consumer.pop(ring)? else { return Ok(None) };
        let len = usize::try_from(first[2]).ok().filter(|len| *len <= NAME).ok_or(Broken)?;
        let mut bytes = [0; FIRST + 4 * OTHER];
        empty(&mut bytes[..FIRST], &first[4..]);
        for n in 0..Self::entries(len) - 1 {
            let entry: Entry = consumer.pop(ring)?.ok_or(Broken)?;
            empty(&mut bytes[FIRST + n * OTHER..][..OTHER], &entry);
        }
        let name = Name::new(&bytes[..len]).ok_or(Broken)?;
        Ok(Some(Self { node: first[0], mask: first[1] as u32, cookie: (first[1] >> 32) as u32, name }))
    }
}

/// Bytes into words, little-endian.
fn fill(words: &mut [u64], bytes: &[u8]) {
    for (word, some) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..some.len()].copy_from_slice(some);
        *word = u64::from_le_bytes(whole);
    }
}

fn empty(bytes: &mut [u8], words: &[u64]) {
    for (some, word) in bytes.chunks_mut(8).zip(words) {
        some.copy_from_slice(&word.to_le_bytes());
    }
}

// Pinned: docs/services.md.
const _: () = {
    assert!(FILE_EVENTS >= LEASES + size_of::<Leases>() as u64);
    assert!(FILE_EVENTS + size_of::<FileEvents>() as u64 <= layout::SERVICE);
    assert!(FIRST + 4 * OTHER >= NAME);
};

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec;

    use super::*;

    fn ring() -> Box<FileEvents> {
        Box::new(FileEvents { header: Header::default(), slots: core::array::from_fn(|_| Slot::default()) })
    }

    fn event(len: usize) -> FileEvent {
        let name = Name::new(&vec![b'a' + (len % 26) as u8; len]).unwrap();
        FileEvent { node: len as u64, mask: file_event::MOVED_TO | file_event::ISDIR, cookie: u32::MAX, name }
    }

    #[test]
    fn events_are_what_they_were() {
        let events = ring();
        let (mut from, mut to) = (Producer::default(), Consumer::default());
        for len in 0..=NAME {
            assert_eq!(event(len).put(&mut from, &events.ring()), Ok(true));
            let _ = from.publish(&events.ring());
            assert_eq!(FileEvent::take(&mut to, &events.ring()), Ok(Some(event(len))));
            let _ = to.release(&events.ring());
        }
        assert_eq!(FileEvent::take(&mut to, &events.ring()), Ok(None));
        assert_eq!(Name::new(&[0; NAME + 1]), None);
    }

    #[test]
    fn none_is_put_by_halves() {
        let events = ring();
        let (mut from, mut to) = (Producer::default(), Consumer::default());
        let mut put = 0;
        while event(NAME).put(&mut from, &events.ring()).unwrap() {
            put += 1;
        }
        let _ = from.publish(&events.ring());
        assert_eq!(put, ENTRIES / 5);
        for _ in 0..put {
            assert_eq!(FileEvent::take(&mut to, &events.ring()), Ok(Some(event(NAME))));
        }
        assert_eq!(FileEvent::take(&mut to, &events.ring()), Ok(None));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let events = ring();
        let mut from = Producer::default();
        // A name that is too long, and one that ends early.
        for len in [NAME as u64 + 1, 200] {
            let mut to = Consumer::default();
            assert_eq!(from.push(&events.ring(), &[1, 2, len, 0, 0, 0, 0, 0]), Ok(true));
            let _ = from.publish(&events.ring());
            assert_eq!(FileEvent::take(&mut to, &events.ring()), Err(Broken));
        }
    }
}

//! Which events come by what the service does for the domain itself.

use std::time::{Duration, Instant};

use doppel_abi_service::storage::FileEvent;
use doppel_abi_service::storage::file_event::{ATTRIB, CLOSE_WRITE, MODIFY};

use super::places::{FileId, Place, Watcher};

/// What is heard of a file that is written or whose attributes are changed. It may have been opened for that alone.
pub(crate) const WRITTEN: u32 = MODIFY | ATTRIB | CLOSE_WRITE;
/// What is heard of one that was written before, and is closed.
pub(crate) const CLOSED: u32 = CLOSE_WRITE;
/// How long a file may take to be closed that others have open.
const CLOSES: Duration = Duration::from_secs(1);
/// Most files that are waited for so.
const OWED: usize = 64;

/// What is heard of an operation.
#[derive(Debug)]
pub(crate) struct Own {
    volume: u64,
    number: u64,
    /// Events of names in directories.
    names: Vec<(u64, Vec<u8>, u32)>,
    /// Those of files, wherever these have names.
    files: Vec<(FileId, u32)>,
    /// Names by which these may be heard of, which may be others' by now.
    called: Vec<Vec<u8>>,
    /// Those of files themselves.
    selves: Vec<(FileId, u32)>,
    held: Vec<FileEvent>,
}

impl Own {
    /// Of one in this volume.
    pub fn of(volume: u64) -> Self {
        let (names, files, called) = (Vec::new(), Vec::new(), Vec::new());
        Self { volume, number: 0, names, files, called, selves: Vec::new(), held: Vec::new() }
    }

    /// By these events a name in the directory `node` is changed.
    pub fn renames(mut self, node: u64, name: &[u8], events: u32) -> Self {
        self.names.push((node, name.to_vec(), events));
        self
    }

    /// By these a file.
    pub fn changes(mut self, file: FileId, events: u32) -> Self {
        self.files.push((file, events));
        self
    }

    /// Files that it changes may be heard of by these names.
    pub fn called(mut self, names: [Vec<u8>; 2]) -> Self {
        self.called.extend(names);
        self
    }

    /// By these a file, and its directory hears nothing of it.
    pub fn changes_itself(mut self, file: FileId, events: u32) -> Self {
        self.selves.push((file, events));
        self
    }

    fn causes(&self, watcher: &Watcher, heard: &mut Heard<'_>) -> bool {
        let of = |all: &[(FileId, u32)], file, mask| {
            all.iter().any(|(id, events)| *id == file && events & mask != 0)
        };
        let (mask, name) = (heard.mask, heard.name);
        if name.is_empty() {
            let file = heard.place.file;
            return self.volume == watcher.volume
                && (of(&self.files, file, mask) || of(&self.selves, file, mask));
        }
        let named = |(node, known, events): &(u64, Vec<u8>, u32)| {
            *node == watcher.node && known == name && events & mask != 0
        };
        self.names.iter().any(named)
            || self.volume == watcher.volume
                && self.files.iter().any(|(_, events)| events & mask != 0)
                && (self.called.iter().any(|called| called == name)
                    // One that has lost this name.
                    || heard.file().is_none_or(|file| of(&self.files, file, mask)))
    }
}

/// An event.
pub(super) struct Heard<'a> {
    place: &'a Place,
    name: &'a [u8],
    mask: u32,
    /// What has that name, once that was looked for.
    found: Option<Option<FileId>>,
}

impl<'a> Heard<'a> {
    pub fn new(place: &'a Place, name: &'a [u8], mask: u32) -> Self {
        Self { place, name, mask, found: None }
    }

    fn file(&mut self) -> Option<FileId> {
        *self.found.get_or_insert_with(|| self.place.named(self.name))
    }

    /// Whether it is of a file without a name, which the host gives one of its own (`#` and a number) that is nowhere to be found.
    pub fn is_of_nameless(&mut self) -> bool {
        let Some(number) = self.name.strip_prefix(b"#") else { return false };
        !number.is_empty() && number.iter().all(u8::is_ascii_digit) && self.file().is_none()
    }
}

/// What becomes of an event that is the domain's own.
pub(super) enum Held<'a> {
    /// It is, if this operation is done.
    Until(&'a mut Vec<FileEvent>),
    ForGood,
}

/// A file that is going to be closed.
#[derive(Debug)]
struct Owed {
    volume: u64,
    file: FileId,
    until: Instant,
    /// Who has been told, by node.
    told: Vec<u64>,
}

/// Operations that are under way.
#[derive(Debug, Default)]
pub(super) struct Owns {
    last: u64,
    under_way: Vec<Own>,
    owed: Vec<Owed>,
}

impl Owns {
    pub fn begin(&mut self, own: Own) -> u64 {
        self.last += 1;
        self.under_way.push(Own { number: self.last, ..own });
        self.last
    }

    pub fn also(&mut self, number: u64, file: FileId, events: u32) {
        let own = self.under_way.iter_mut().find(|own| own.number == number);
        own.into_iter().for_each(|own| own.selves.push((file, events)));
    }

    /// One is over; what came by it.
    pub fn end(&mut self, number: u64) -> Vec<FileEvent> {
        let at = self.under_way.iter().position(|own| own.number == number);
        at.map(|at| self.under_way.remove(at).held).unwrap_or_default()
    }

    pub fn owe(&mut self, volume: u64, file: FileId) {
        let now = Instant::now();
        self.owed.retain(|owed| owed.until > now);
        if self.owed.len() < OWED {
            self.owed.push(Owed { volume, file, until: now + CLOSES, told: Vec::new() });
        }
    }

    /// Where an event for this watcher belongs, if it is the domain's own.
    pub fn find(&mut self, watcher: &Watcher, heard: &mut Heard<'_>) -> Option<Held<'_>> {
        if let Some(at) = self.under_way.iter().position(|own| own.causes(watcher, heard)) {
            return Some(Held::Until(&mut self.under_way[at].held));
        }
        if heard.mask != CLOSED || self.owed.is_empty() {
            return None;
        }
        let file = if heard.name.is_empty() { heard.place.file } else { heard.file()? };
        let now = Instant::now();
        let owed = self.owed.iter_mut().find(|owed| {
            (owed.volume, owed.file) == (watcher.volume, file)
                && owed.until > now
                && !owed.told.contains(&watcher.node)
        })?;
        owed.told.push(watcher.node);
        Some(Held::ForGood)
    }
}
